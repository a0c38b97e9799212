"""Lays out the window: rail, sidebar, top bar, pages and the side panel. It knows their places and
widths, but nothing about their content.

Widths and hidden parts are saved for each workspace in `WindowStateFile`.
"""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import QEvent, QObject, Qt, Signal
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QSplitter, QStackedWidget, QWidget

from helix_desktop.gui import tab_order
from helix_desktop.gui.enter_key import press_focused_button
from helix_desktop.gui.frame import sidebar as sidebar_module
from helix_desktop.gui.frame.sidebar import Sidebar
from helix_desktop.gui.frame.top_bar import PAGES, TopBar
from helix_desktop.gui.frame.workspace_rail import WorkspaceRail
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.shown_state import ShownState
from helix_desktop.gui.theme import Theme

SIDE_WIDTH = 300
PREVIEW_SHARE = 0.46
MAX_SIDE_SHARE = 0.55  # The side panel takes at most this share of the width beside the sidebar.
# Unless the user has resized the sidebar, it takes at most this share of the window's
# width, even with large text.
MAX_SIDEBAR_SHARE = 0.3
# In a window narrower than this many pixels, at the usual text size, the inspector is
# shown only on request.
NARROW_WINDOW_WIDTH = 1_160
# In a window narrower than this many pixels, at the usual text size, the list of conversations is
# shown only on request, because beside it the message box has no room for its buttons.
VERY_NARROW_WINDOW_WIDTH = 500


class WindowFrame(QWidget):
    """The content of the window. Pages and panels may be built only when they are first shown."""

    side_left = Signal()

    def __init__(
        self, theme: Theme, state_file: WindowStateFile, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.theme = theme
        self.state_file = state_file
        self.showing = ShownState(self)
        self._workspace = ""
        self._wants_sidebar = True
        self._wants_side = False
        self._inspector_wanted_when_narrow = False
        self._sidebar_wanted_when_very_narrow = False
        self._preview: QWidget | None = None  # The open preview, which takes the inspector's place.
        self._is_dragging_splitter = False  # Widths are saved only while the user drags.
        self._is_changing_page = False  # True while Qt replaces one page with another.
        self._pages: dict[str, QWidget] = {}
        self.page_factories: dict[str, Callable[[], QWidget]] = {}  # Pages that are not built yet.

        self.rail = WorkspaceRail(theme, self)
        self.sidebar = Sidebar(theme, self)
        self._side = QStackedWidget(self)  # The panel at the right of the chat.
        self._middle = QWidget(self)
        # Pages are built in their final parent, because Qt styles moved widgets again.
        self.top = TopBar(theme, self._middle)
        self.page_area = QStackedWidget(self._middle)
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)

        self._lay_out_frame()
        self.top.side.clicked.connect(self.toggle_sidebar)
        self._splitter.splitterMoved.connect(self._save_dragged_widths)
        self._splitter.installEventFilter(self)
        theme.changed.connect(self._update_visible_sides)

    def _lay_out_frame(self) -> None:
        build_column(self.top, (self.page_area, 1), owner=self._middle, margins=0, spacing=0)
        self._middle.setMinimumWidth(360)
        self._side.setMinimumWidth(240)
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self.sidebar)
        self._splitter.addWidget(self._middle)
        self._splitter.addWidget(self._side)
        # The page in the middle gets the width by which the window grows.
        self._splitter.setStretchFactor(0, 0)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setStretchFactor(2, 0)
        self._splitter.setChildrenCollapsible(False)
        build_row(self.rail, (self._splitter, 1), owner=self, margins=0, spacing=0)
        self._side.hide()

    def focusNextPrevChild(self, following: bool) -> bool:  # noqa: FBT001 - Qt's
        if self._is_changing_page:  # The new page itself decides what gets the focus.
            return True
        areas = list(self.areas_in_tab_order())
        areas += self.findChildren(QWidget, "tour")
        focused = self.window().focusWidget()
        if tab_order.focus_next_stop(areas, focused, forward=following):
            return True
        return super().focusNextPrevChild(following)

    def areas_in_tab_order(self) -> Sequence[QWidget]:
        return self.rail, self.sidebar, self._middle, self._side

    # --- The pages of the window, and switching between them

    def add_page(self, name: str, page: QWidget) -> None:
        self._pages[name] = page
        self.page_area.addWidget(page)

    def switch_to_page(self, name: str) -> None:
        if name in self.page_factories:
            self.add_page(name, self.page_factories.pop(name)())
        if name not in self._pages:
            return
        page = self._pages[name]
        self.showing.set_shown_page(name)
        self._is_changing_page = True
        self.page_area.setCurrentWidget(page)
        self._is_changing_page = False
        self.top.setVisible(name in PAGES)
        if name in PAGES:
            self.top.mark_open_page(name)
            self.state_file.remember_value("layout", self._workspace, "page", value=name)
        self._update_visible_sides()

    @property
    def is_sidebar_shown(self) -> bool:
        return not self.sidebar.isHidden()

    @property
    def is_side_panel_shown(self) -> bool:
        return not self._side.isHidden()

    def toggle_sidebar(self) -> None:
        if self._is_very_narrow:
            # What is asked for here says nothing about a wider window.
            self._sidebar_wanted_when_very_narrow = not self.is_sidebar_shown
        else:
            self._wants_sidebar = not self.is_sidebar_shown
        self._update_visible_sides()
        self.save_window_layout()

    @property
    def is_preview_shown(self) -> bool:
        return self._preview is not None and not self._side.isHidden()

    def show_preview(self, panel: QWidget) -> None:
        """Shows the preview at the right, until it is closed."""
        self._side.addWidget(panel)
        self._preview = panel
        self._update_visible_sides()

    def hide_preview(self) -> None:
        had_focus = self._is_focus_in_side()
        if self._preview is not None:
            self._side.removeWidget(self._preview)
            self._preview.hide()
        self._preview = None
        self._update_visible_sides()
        if had_focus:
            self.side_left.emit()

    def _is_focus_in_side(self) -> bool:
        focused = self.window().focusWidget()
        return focused is not None and self._side.isAncestorOf(focused)

    def toggle_side_panel(self) -> None:
        if self._preview is not None:
            self.hide_preview()
            return
        had_focus = self._is_focus_in_side()
        self._wants_side = not self.is_side_panel_shown
        self._inspector_wanted_when_narrow = self._wants_side and self._is_narrow
        self._update_visible_sides()
        self.save_window_layout()
        if had_focus:
            self.side_left.emit()

    def _save_dragged_widths(self, _at: int, _index: int) -> None:
        self._is_dragging_splitter = True
        self.save_window_layout()
        self._is_dragging_splitter = False

    @property
    def _is_narrow(self) -> bool:
        return self.width() < self.theme.zoomed_pixels(NARROW_WINDOW_WIDTH)

    @property
    def _is_very_narrow(self) -> bool:
        return self.width() < self.theme.zoomed_pixels(VERY_NARROW_WINDOW_WIDTH)

    @property
    def _side_name(self) -> str:
        if self._preview is not None:
            return "preview"
        return "chat"

    def _update_visible_sides(self) -> None:
        """Shows and hides the sides as the user wants, if there is room."""
        is_chat = self.showing.page == "chat"
        shows_preview = is_chat and self._preview is not None
        shows_inspector = is_chat and self._preview is None and self._should_show_inspector()
        if shows_inspector and "inspector" in self.page_factories:
            self._side.addWidget(self.page_factories.pop("inspector")())
        if self._preview is not None:
            self._side.setCurrentWidget(self._preview)
        self._side.setVisible(shows_inspector or shows_preview)

        # In a narrow window, the conversation and the file need the room of the list.
        needs_room_of_sidebar = shows_preview and self._is_narrow
        has_sidebar = self.showing.page in PAGES and not needs_room_of_sidebar
        wants_sidebar = self._wants_sidebar
        if self._is_very_narrow:
            wants_sidebar = self._sidebar_wanted_when_very_narrow
        self.sidebar.setVisible(wants_sidebar and has_sidebar)
        self._distribute_widths()
        self.top.show_sidebar_button(needed=not wants_sidebar)

    def _should_show_inspector(self) -> bool:
        """Whether the user wants the inspector, and in a narrow window has asked for it there."""
        if not self._wants_side:
            return False
        return not self._is_narrow or self._inspector_wanted_when_narrow

    def _distribute_widths(self) -> None:
        """Gives the sides their saved widths and the page the rest, never less than it needs."""
        whole_width = self._splitter.width()
        sidebar_width = 0
        if self.is_sidebar_shown:
            sidebar_width = self._choose_sidebar_width(whole_width)
        # A pixel between two sides belongs to the splitter's handle.
        remaining_width = whole_width - sidebar_width - 1
        side_width = 0
        if self.is_side_panel_shown:
            side_width = self._choose_side_width(remaining_width)
        page_width = remaining_width - side_width - 1
        self._splitter.setSizes([sidebar_width, page_width, side_width])

    def _choose_sidebar_width(self, whole_width: int) -> int:
        largest_width = round(whole_width * MAX_SIDEBAR_SHARE)
        largest_width = max(largest_width, self.sidebar.minimumWidth())
        usual_width = self.theme.zoomed_pixels(sidebar_module.WIDTH) - 1
        usual_width = min(usual_width, largest_width)
        return self.state_file.get_remembered(
            "layout", self._workspace, "sidebar-width", default=usual_width
        )

    def _choose_side_width(self, remaining_width: int) -> int:
        if self._preview is None:
            usual_width = self.theme.zoomed_pixels(SIDE_WIDTH) - 1
        else:
            usual_width = round(remaining_width * PREVIEW_SHARE)
        wanted_width: int = self.state_file.get_remembered(
            "layout", self._workspace, "side-width", self._side_name, default=usual_width
        )
        largest_width = round(remaining_width * MAX_SIDE_SHARE)
        largest_width = max(largest_width, self._side.minimumWidth())
        return min(wanted_width, largest_width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self._update_visible_sides()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not press_focused_button(event):
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._splitter and event.type() == QEvent.Type.Resize:
            self._distribute_widths()
        return super().eventFilter(watched, event)

    def restore_window_layout(self, workspace: str) -> None:
        self._workspace = workspace
        get_saved = partial(self.state_file.get_remembered, "layout", workspace)
        self._wants_sidebar = get_saved("sidebar", default=True)
        self._wants_side = get_saved("side-panel", default=False)
        self.switch_to_page(get_saved("page", default="chat"))

    def save_window_layout(self) -> None:
        """Saves which sides the user wants, and their widths after a drag."""
        save = partial(self.state_file.remember_value, "layout", self._workspace)
        sidebar_width, _page_width, side_width = self._splitter.sizes()
        save("sidebar", value=self._wants_sidebar)
        save("side-panel", value=self._wants_side)
        if not self._is_dragging_splitter:
            return
        if self.is_sidebar_shown and sidebar_width:
            save("sidebar-width", value=sidebar_width)
        if self.is_side_panel_shown and side_width:
            save("side-width", self._side_name, value=side_width)
