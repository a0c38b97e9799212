"""The actions on the window itself: its menu, pages and panels, its look, the settings and the
help.
"""

from functools import partial
from typing import Any

from PySide6.QtCore import QObject, QPoint, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.gui import tab_order
from helix_desktop.gui.common.widgets import build_popup_menu
from helix_desktop.gui.frame.top_bar import PAGES
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_contents import WindowContents
from helix_desktop.program_settings import THEME, ZOOM

# What the window's menu offers, with a line between its groups. Everything else is a page, stands
# beside what it acts on, or is found with the search of everything.
OTHER_WAYS_TO_A_WORKSPACE = (
    "open-folder-elsewhere",
    "join-workspace",
    "import-workspace",
    "workspace-trash",
)
GROUPS_OF_MENU = (
    ("bring-in", "connect-agent", "share-workspace", "fleet"),
    ("inspector", "palette", "help", "tour"),
    ("settings",),
)
HELP_OF_PAGES = {"changes": "changes.md", "cache": "cache.md", "timeline": "context.md"}


class ViewActions(QObject):
    def __init__(self, contents: WindowContents) -> None:
        super().__init__(contents.frame)
        parts = contents.parts
        frame = contents.frame
        self._parts = parts
        self._frame = frame
        self._pages = contents.pages
        self._palette = contents.palette
        self._sides = contents.sides
        self._workspaces = contents.workspaces
        self._declare_menu()
        self._declare_page_actions()
        self._declare_look_actions()
        self._declare_settings_and_help()
        frame.side_left.connect(self._sides.focus_current_composer)
        frame.top.page_chosen.connect(frame.switch_to_page)
        parts.requests.page_wanted.connect(frame.switch_to_page)
        self._pages.page_made.connect(self._connect_built_page)
        parts.actions.shortcuts_changed.connect(self._show_shortcuts_in_search_fields)
        self._show_shortcuts_in_search_fields()

    # --- The menu

    def _declare_menu(self) -> None:
        self._frame.rail.menu_wanted.connect(self._open_menu_at)
        self._parts.actions.set_action_handler("menu", self._frame.rail.menu_button.click)

    def _open_menu_at(self, button: QWidget) -> None:
        """Opens the window's menu beside its button, upwards: the button is at the lower edge."""
        actions = self._parts.actions
        actions.update_enabled()
        menu = build_popup_menu(self._frame)
        menu.addAction(actions["open-folder"])
        other_ways = menu.addMenu(tr("Other ways to a workspace"))
        for name in OTHER_WAYS_TO_A_WORKSPACE:
            other_ways.addAction(actions[name])
        shown_workspace = self._parts.showing.workspace_id
        if shown_workspace:
            # Otherwise, it is found only by who points at the workspace's name or right-clicks.
            of_workspace = menu.addMenu(tr("This workspace"))
            self._frame.rail.fill_workspace_menu(of_workspace, shown_workspace)
        for group in GROUPS_OF_MENU:
            menu.addSeparator()
            for name in group:
                menu.addAction(actions[name])
        above_lower_edge = QPoint(button.width(), button.height() - menu.sizeHint().height())
        menu.popup(button.mapToGlobal(above_lower_edge))

    # --- Pages and panels

    def _declare_page_actions(self) -> None:
        has_workspace = self._parts.showing.has_workspace
        set_handler = self._parts.actions.set_action_handler
        for page in PAGES:
            if page == "changes":  # Without a workspace, it says what it would show.
                set_handler(page, partial(self._frame.switch_to_page, page))
            else:
                set_handler(page, partial(self._frame.switch_to_page, page), when=has_workspace)
        set_handler("find", self._open_search_of_shown_page, when=has_workspace)
        set_handler("bottom", self._jump_to_newest_message, when=has_workspace)
        set_handler("sidebar", self._frame.toggle_sidebar, when=has_workspace)
        set_handler("inspector", self._frame.toggle_side_panel, when=has_workspace)
        set_handler("next-area", self._focus_next_area, when=has_workspace)

    def _connect_built_page(self, name: str, page: Any) -> None:
        if name == "cache":
            page.over_limit_button.clicked.connect(partial(self._open_settings, "storage"))
            page.bar.show_find_shortcut(self._shortcut_hint("find"))
        elif name == "inspector":
            page.close_button.clicked.connect(self._frame.toggle_side_panel)

    def _open_search_of_shown_page(self) -> None:
        """Searches the shown page, or everything if the page has no search."""
        page = self._parts.showing.page
        if page == "chat":
            self._sides.current.transcript.open_find_bar()
        elif page == "cache":
            self._pages.cache.focus_entry_search()
        else:
            self._palette.open_palette("")

    def _jump_to_newest_message(self) -> None:
        self._sides.current.transcript.view.jump_to_end()

    def _focus_next_area(self) -> None:
        """Moves the focus to the next area: list, each conversation and its composer or
        another page, inspector.
        """
        areas = [area for area in self._list_areas() if area.isVisible()]
        if not areas:
            return
        focused = QApplication.focusWidget()
        for index, area in enumerate(areas):
            if focused is not None and (area is focused or area.isAncestorOf(focused)):
                # After the last area comes the first one again.
                next_index = (index + 1) % len(areas)
                tab_order.focus_first_stop(areas[next_index])
                return
        tab_order.focus_first_stop(areas[0])

    def _list_areas(self) -> list[QWidget]:
        areas: list[QWidget] = [self._frame.sidebar.list]
        if self._parts.showing.page == "chat":
            for side in self._sides.sides:
                areas.append(side.transcript)
                areas.append(side.composer.text)
        else:
            areas.append(self._frame.page_area)
        if self._frame.is_preview_shown:
            areas.append(self._pages.preview)
        elif self._frame.is_side_panel_shown:
            areas.append(self._pages.inspector)
        return areas

    def _show_shortcuts_in_search_fields(self) -> None:
        self._frame.sidebar.search.show_shortcut_in_field(self._shortcut_hint("palette"))
        if self._pages.is_page_built("cache"):
            self._pages.cache.bar.show_find_shortcut(self._shortcut_hint("find"))

    def _shortcut_hint(self, action: str) -> str:
        return self._parts.actions.format_shortcut(action).replace("+", " ")

    # --- The look

    def _declare_look_actions(self) -> None:
        actions = self._parts.actions
        set_handler = actions.set_action_handler
        change_setting = self._parts.settings.change_setting
        set_handler("light", partial(change_setting, THEME, "light"))
        set_handler("dark", partial(change_setting, THEME, "dark"))
        set_handler("as-system", partial(change_setting, THEME, "system"))
        set_handler("zoom-in", partial(self._change_and_save_text_zoom, 1))
        set_handler("zoom-out", partial(self._change_and_save_text_zoom, -1))
        set_handler("zoom-usual", partial(self._change_and_save_text_zoom, 0))
        set_handler("full-screen", self._toggle_full_screen)
        # On many keyboards, "+" needs Shift, and the key without it is "=".
        zoom_in = actions["zoom-in"]
        zoom_in.setShortcuts([zoom_in.shortcut(), QKeySequence("Ctrl+=")])
        self._parts.theme.changed.connect(self._frame.update)

    def _change_and_save_text_zoom(self, steps: int) -> None:
        theme = self._parts.theme
        theme.zoom_by_steps(steps)
        self._parts.settings.change_setting(ZOOM, round(theme.text_zoom * 100))

    def _toggle_full_screen(self) -> None:
        top_window = self._frame.window()
        top_window.setWindowState(top_window.windowState() ^ Qt.WindowState.WindowFullScreen)

    # --- Settings, help and the end

    def _declare_settings_and_help(self) -> None:
        has_workbench = self._parts.showing.has_workbench
        set_handler = self._parts.actions.set_action_handler
        set_handler("settings", partial(self._open_settings, ""))
        set_handler(
            "workspace-settings",
            partial(self._open_settings, "workspace"),
            when=has_workbench,
        )
        set_handler("brought", partial(self._open_settings, "brought"), when=has_workbench)
        set_handler("shortcuts", partial(self._open_settings, "shortcuts"))
        set_handler("doctor", partial(self._open_settings, "about"))
        set_handler("about", partial(self._open_settings, "about"))
        set_handler("help", self._show_help_of_page)
        set_handler("quit", self._close_whole_window)

    def _close_whole_window(self) -> None:
        self._frame.window().close()

    def _open_settings(self, page: str) -> None:
        # Until the stores are open, nobody answers; the key would have been pressed in vain.
        open_page = partial(self._parts.requests.settings_wanted.emit, page)
        self._workspaces.run_once_started(open_page)

    def _show_help_of_page(self) -> None:
        from helix_desktop.gui.help_dialog import open_help
        from helix_desktop.gui.help_search import CONTENTS

        open_help(self._frame, HELP_OF_PAGES.get(self._parts.showing.page, CONTENTS))
