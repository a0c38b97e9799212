"""The frame of the window: rail, sidebar, top bar, pages, the side at the right. Who is where and how wide, no more.

Sizes and what is folded away belong to a workspace and are kept in `Memory`.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtGui import QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QHBoxLayout, QSplitter, QStackedWidget, QVBoxLayout, QWidget

from helix_desktop.gui import tabbing
from helix_desktop.gui.frame import sidebar as sidebar_module
from helix_desktop.gui.frame.rail import Rail
from helix_desktop.gui.frame.sidebar import Sidebar
from helix_desktop.gui.frame.top_bar import PAGES, TopBar
from helix_desktop.gui.keys import presses
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.showing import Showing
from helix_desktop.gui.theme import Theme

SIDES = {"chat": 300, "timeline": 560}
MOST = 0.55  # of the room beside the sidebar
MOST_FIRST = 0.3  # of the whole, for a sidebar nobody has drawn wider: large text leaves the page its room
TIGHT = 1_160  # below this width, in text of the usual size, the inspector makes room unless it is asked for


class Frame(QWidget):
    """Stands in the window (shell.py). Pages are added by name ("chat", "cache", "timeline", "welcome"), or how they are made when they
    are first shown; so are the sides that belong to some.
    """

    def __init__(self, theme: Theme, memory: Memory) -> None:
        super().__init__()
        self.theme = theme
        self.memory = memory
        self.showing = Showing(self)
        self._workspace = ""
        self._wants_sidebar = True
        self._wants_side = True
        self._asked_when_tight = False
        self._moved = False  # by the user's hand, at this moment
        self._turning = False  # to another page, at this moment
        self._pages: dict[str, QWidget] = {}
        self._unmade: dict[str, Callable[[], tuple[QWidget, ...]]] = {}
        self._sides: dict[str, QWidget] = {}
        self.rail = Rail(theme, self)
        self.sidebar = Sidebar(theme, self)
        self.top = TopBar(theme, self)
        self._stack = QStackedWidget(self)
        self._side = QStackedWidget(self)
        self._middle = QWidget(self)
        self._splitter = QSplitter(Qt.Orientation.Horizontal, self)
        self._lay_out()
        self.top.sidebar_wanted.connect(self.toggle_sidebar)
        self.top.inspector_wanted.connect(self.toggle_side)
        self._splitter.splitterMoved.connect(self._widths_moved)
        self._splitter.installEventFilter(self)
        theme.changed.connect(self._settle)

    def _lay_out(self) -> None:
        middle = QVBoxLayout(self._middle)
        middle.setContentsMargins(0, 0, 0, 0)
        middle.setSpacing(0)
        middle.addWidget(self.top)
        middle.addWidget(self._stack, 1)
        self._middle.setMinimumWidth(360)
        self._side.setMinimumWidth(240)
        self._splitter.setHandleWidth(1)
        for at, widget in enumerate((self.sidebar, self._middle, self._side)):
            self._splitter.addWidget(widget)
            self._splitter.setCollapsible(at, False)
            self._splitter.setStretchFactor(at, 1 if widget is self._middle else 0)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(self.rail)
        row.addWidget(self._splitter, 1)
        self._side.hide()

    def focusNextPrevChild(self, following: bool) -> bool:  # noqa: FBT001 - Qt's
        if self._turning:  # the page that comes takes the keyboard
            return True
        areas = (self.rail, self.sidebar, self._middle, self._side)
        stop = tabbing.neighbour(areas, self.window().focusWidget(), forward=following)
        if stop is None:
            return super().focusNextPrevChild(following)
        reason = Qt.FocusReason.TabFocusReason if following else Qt.FocusReason.BacktabFocusReason
        stop.setFocus(reason)
        return True

    # --- pages ---------------------------------------------------------------------------------------------------

    def add_page(self, name: str, page: QWidget, side: QWidget | None = None) -> None:
        """`side` stands at the right while the page is shown."""
        self._pages[name] = page
        self._stack.addWidget(page)
        if side is not None:
            self._sides[name] = side
            self._side.addWidget(side)

    def add_unmade(self, name: str, make: Callable[[], tuple[QWidget, ...]]) -> None:
        """`make`: gives the page, and its side where it has one."""
        self._unmade[name] = make

    @property
    def page(self) -> str:
        """The page in front."""
        return self.showing.page

    def show_page(self, name: str) -> None:
        if name in self._unmade:
            self.add_page(name, *self._unmade.pop(name)())
        if name not in self._pages:
            return
        self.showing.show_page(name)
        self._turning = True
        self._stack.setCurrentWidget(self._pages[name])
        self._turning = False
        self.top.setVisible(name in PAGES)
        if name in PAGES:
            self.top.mark(name)
            self.memory.put("layout", self._workspace, "page", value=name)
        self._settle()

    # --- sides ---------------------------------------------------------------------------------------------------

    @property
    def sidebar_shown(self) -> bool:
        return not self.sidebar.isHidden()

    @property
    def side_shown(self) -> bool:
        return not self._side.isHidden()

    def toggle_sidebar(self) -> None:
        self._wants_sidebar = not self.sidebar_shown
        self._settle()
        self.keep_layout()

    def toggle_side(self) -> None:
        self._wants_side = not self.side_shown
        self._asked_when_tight = self._wants_side
        self._settle()
        self.keep_layout()

    def _widths_moved(self, _at: int, _index: int) -> None:
        self._moved = True
        self.keep_layout()
        self._moved = False

    def _settle(self) -> None:
        """Bring what is shown into line with what is wanted, and with the room there is."""
        side = self._sides.get(self.page)
        welcome = self.page not in PAGES
        room = self.width() >= self.theme.px(TIGHT) or self._asked_when_tight or self.page != "chat"
        if side is not None:
            self._side.setCurrentWidget(side)
        shown = side is not None and room and (self._wants_side or self.page != "chat")
        self._side.setVisible(shown)
        self.sidebar.setVisible(self._wants_sidebar and not welcome)
        self._share_room()
        self.top.show_sides(
            sidebar=self._wants_sidebar, inspector=self.side_shown, can_inspect=self.page == "chat" and side is not None
        )

    def _share_room(self) -> None:
        """The sides get the widths they were left with, the page gets the rest; never less than it needs."""
        kept, whole = self.memory.get, self._splitter.width()
        usual = min(
            self.theme.px(sidebar_module.WIDTH) - 1, max(round(whole * MOST_FIRST), self.sidebar.minimumWidth())
        )
        first = kept("layout", self._workspace, "sidebar-width", default=usual) if self.sidebar_shown else 0
        room, last = whole - first - 1, 0
        if self.side_shown:
            usual = self.theme.px(SIDES.get(self.page, SIDES["chat"])) - 1
            wanted = kept("layout", self._workspace, "side-width", self.page, default=usual)
            last = min(wanted, max(round(room * MOST), self._side.minimumWidth()))
        self._splitter.setSizes([first, room - last - 1, last])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            self._settle()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not presses(event):
            super().keyPressEvent(event)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self._splitter and event.type() == QEvent.Type.Resize:
            self._share_room()
        return super().eventFilter(watched, event)

    # --- what is remembered --------------------------------------------------------------------------------------

    def restore_layout(self, workspace: str) -> None:
        """The widths, sides and page of a workspace, as they were left."""
        self._workspace = workspace
        get = self.memory.get
        self._wants_sidebar = get("layout", workspace, "sidebar", default=True)
        self._wants_side = get("layout", workspace, "inspector", default=True)
        self.show_page(get("layout", workspace, "page", default="chat"))

    def keep_layout(self) -> None:
        put = self.memory.put
        first, _, last = self._splitter.sizes()
        put("layout", self._workspace, "sidebar", value=self._wants_sidebar)
        put("layout", self._workspace, "inspector", value=self._wants_side)
        if self.sidebar_shown and first and self._moved:
            put("layout", self._workspace, "sidebar-width", value=first)
        if self.side_shown and last and self._moved:
            put("layout", self._workspace, "side-width", self.page, value=last)
