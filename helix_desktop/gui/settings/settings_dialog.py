"""The settings window: seven pages and a search at the left, a page at the right, built when first
shown.
"""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QLabel, QPushButton, QStackedWidget, QWidget

from helix_desktop.gui.common import widgets
from helix_desktop.gui.frame.notices import announce_to_screen_reader
from helix_desktop.gui.help_dialog import open_help
from helix_desktop.gui.help_search import CONTENTS
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.open_workspaces import describe_opening
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.settings.about_page import AboutPage
from helix_desktop.gui.settings.acp_agents_page import AcpAgentsPage
from helix_desktop.gui.settings.extensions_page import ExtensionsPage
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.long_conversations_page import LongConversationsPage
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.models_page import ModelsPage
from helix_desktop.gui.settings.permissions_page import PermissionsPage
from helix_desktop.gui.settings.phone_settings_page import PhoneSettingsPage
from helix_desktop.gui.settings.program_settings_page import RESTART, ProgramSettingsPage
from helix_desktop.gui.settings.providers_page import ProvidersPage
from helix_desktop.gui.settings.recorder_page import RecorderPage
from helix_desktop.gui.settings.rules_and_skills_page import RulesAndSkillsPage
from helix_desktop.gui.settings.settings_group_page import (
    SettingsGroupPage,
    SettingsSections,
    WaitingSection,
)
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.settings.shortcuts_page import ShortcutsPage
from helix_desktop.gui.settings.storage_page import StoragePage
from helix_desktop.gui.settings.workspace_settings_pages import CheckpointsPage, InstructionsPage
from helix_desktop.gui.shown_workspace import client_of_host
from helix_desktop.gui.translation import tr, translate_name
from helix_desktop.gui.workbench_types import Workbench

# These actions change what the pages show, so the settings are closed for them.
CHANGING_ACTIONS = ("compare-presets", "workspace-folder")
GENERAL_SECTIONS = ("Chat", "Notifications")
# The group that shows a section, for links that name the section.
GROUP_OF_SECTION = {
    "": "appearance",
    "general": "appearance",
    "tools": "appearance",
    "recorder": "appearance",
    "extensions": "appearance",
    "phone": "appearance",
    "shortcuts": "appearance",
    "about": "appearance",
    "workspace": "providers",
    "models": "providers",
    "brought": "instructions",
    "limits": "policy",
    "agents": "servers",
    "checkpoints": "storage",
}
# The help that F1 opens on a page. The other pages open the contents.
HELP_OF_SETTINGS = {
    "providers": "keys.md",
    "instructions": "rules.md",
    "policy": "context.md",
    "permissions": "tools.md",
    "servers": "mcp.md",
    "storage": "workspaces.md",
}


class SettingsDialog(widgets.TransientDialog):
    """`model_chosen`: a provider was added, and this model is to be used."""

    model_chosen = Signal(str)

    def __init__(self, window: MainWindow, setup: ModelSetupPort, program: Installation) -> None:
        super().__init__(tr("Settings"), window, 920, 660)
        self._window = window
        self._setup = setup
        self._program = program
        self._models: Sequence[ModelChoice] = ()
        self._page_factories: dict[str, Callable[[], SettingsGroupPage]] = {}
        self._pages: dict[str, SettingsGroupPage] = {}
        self._buttons: dict[str, QPushButton] = {}
        self._names_below_heading: dict[QLabel, list[str]] = {}
        self._stack = QStackedWidget(self)
        self._page_list = build_column(margins=(8, 12, 8, 12), spacing=2)
        search_hint = tr("Search settings")
        self._search = widgets.build_line_edit(search_hint, search_hint, self)
        self._search.setClearButtonEnabled(True)
        self._search.textChanged.connect(self._show_pages_with)
        self._page_list.addWidget(self._search)
        self._group = QButtonGroup(self)
        # What was asked for last: where to scroll to when a workspace has been opened.
        self._page_asked_for = ""
        self._section_asked_for = ""
        self._workspace_id = window.showing.workspace_id
        self._add_all_settings_pages()
        # The welcome page comes when the workspace could not be opened.
        window.showing.page_changed.connect(self._say_again_what_is_waited_for)
        self._page_list.addStretch(1)
        self._side = QWidget(self)
        self._side.setLayout(self._page_list)
        self._names = widgets.build_scroll_area(self._side, self)
        self._names.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._make_page_list_wide_enough()
        # The window's own key for the help does not reach a dialog above it.
        QShortcut(QKeySequence.StandardKey.HelpContents, self, self._show_help_of_page)
        QShortcut(QKeySequence.StandardKey.Find, self, self._search.setFocus)
        window.theme.changed.connect(self._make_page_list_wide_enough)
        # It stands in the place of the page, which would be no answer to what was typed.
        self._nothing_found = widgets.build_plain_label("", "muted", self)
        self._nothing_found.setContentsMargins(40, 28, 40, 28)
        self._nothing_found.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self._nothing_found.hide()
        build_row(
            (self._names, 1),
            (self._stack, 4),
            (self._nothing_found, 4),
            owner=self,
            margins=0,
            spacing=0,
        )
        listing = setup.list_known_models()
        window.background_runner.run_in_background(listing, then=self._set_known_models, owner=self)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Looks for what is typed while no field has the focus."""
        typed = event.text()
        is_letter = bool(typed.strip()) and typed.isprintable()
        if not is_letter:
            super().keyPressEvent(event)
            return
        self._search.setFocus()
        self._search.insert(typed)

    def _make_page_list_wide_enough(self) -> None:
        names_width = self._side.sizeHint().width()
        # The current page's name is bold and therefore wider.
        extra_width = self._side.fontMetrics().averageCharWidth()
        scroll_bar_width = self._names.verticalScrollBar().sizeHint().width()
        self._names.setMinimumWidth(names_width + extra_width + scroll_bar_width)

    def show_settings_page(self, page: str) -> None:
        """Shows a page by its name, or the section of a page by the section's name."""
        name = GROUP_OF_SECTION.get(page, page)
        if name not in self._page_factories:
            name = "appearance"
        section = page
        if page == "workspace":
            section = "models"
        self._page_asked_for = name
        self._section_asked_for = section

        group_page = self._build_page(name)
        self._stack.setCurrentWidget(group_page)
        group_page.scroll_to_section(section)

        button = self._buttons[name]
        button.setChecked(True)
        button.setFocus()
        self._names.ensureWidgetVisible(button)

    def _show_help_of_page(self) -> None:
        help_file = CONTENTS
        for name, button in self._buttons.items():
            if button.isChecked():
                help_file = HELP_OF_SETTINGS.get(name, CONTENTS)
        open_help(self, help_file)

    def _build_page(self, name: str) -> SettingsGroupPage:
        if name not in self._pages:
            self._pages[name] = self._page_factories[name]()
            self._pages[name].wanted.connect(self._open_page_or_run_action)
            self._stack.addWidget(self._pages[name])
        return self._pages[name]

    def _show_pages_with(self, typed: str) -> None:
        """Shows only the pages that say what was typed, and the first place that says it."""
        words = typed.casefold().split()
        if not words:
            self._say_that_nothing_was_found("")
            for button in self._buttons.values():
                button.show()
            for page in self._pages.values():
                page.mark_found_rows(())
            self._hide_empty_headings()
            return
        has_found_page = False
        for name, button in self._buttons.items():
            page = self._build_page(name)
            page.mark_found_rows(words)
            first_row = next(page.find_rows(words), None)
            button.setVisible(first_row is not None)
            if first_row is not None and not has_found_page:
                has_found_page = True
                self._stack.setCurrentWidget(page)
                page.scroll_to_row(first_row)
                button.setChecked(True)
        if has_found_page:
            self._say_that_nothing_was_found("")
        else:
            self._say_that_nothing_was_found(typed.strip())
        self._hide_empty_headings()

    def _say_that_nothing_was_found(self, typed: str) -> None:
        """Says that no setting has these words, or shows the page again for an empty text."""
        sentence = ""
        if typed:
            words = tr("No setting says “{words}”. Ctrl+K searches actions and the help as well.")
            # The words are put in after the translation: they may have braces in them.
            sentence = words.format(words=typed)
        self._nothing_found.setText(sentence)
        self._nothing_found.setVisible(bool(sentence))
        self._stack.setHidden(bool(sentence))
        if sentence:
            announce_to_screen_reader(self._search, sentence)

    def _hide_empty_headings(self) -> None:
        """Shows a heading of the list only above pages that are shown."""
        for heading, names in self._names_below_heading.items():
            is_used = any(not self._buttons[name].isHidden() for name in names)
            heading.setVisible(is_used)

    def _open_page_or_run_action(self, name: str) -> None:
        if name in self._page_factories or name in GROUP_OF_SECTION:
            self.show_settings_page(name)
            return
        if name == RESTART:
            self.accept()
            self._window.parts.requests.restart_wanted.emit()
            return
        if name in CHANGING_ACTIONS:
            self.accept()
        self._window.window_actions[name].trigger()

    @property
    def is_without_workspace(self) -> bool:
        return self._workspace_id == ""

    def add_opened_workspace(self) -> None:
        """Fills what waited for a workspace that was still being opened, and keeps what is shown."""
        self._workspace_id = self._window.showing.workspace_id
        self._show_name_above_workspace_pages()
        for name, page in self._pages.items():
            was_filled = page.fill_waiting_sections()
            if was_filled and page is self._stack.currentWidget() and name == self._page_asked_for:
                page.scroll_to_section(self._section_asked_for)
        if self._search.text():
            self._show_pages_with(self._search.text())

    def _say_again_what_is_waited_for(self) -> None:
        if self.is_without_workspace and not self._window.showing.has_workspace():
            self._show_name_above_workspace_pages()
            for page in self._pages.values():
                page.fill_waiting_sections()

    def _add_all_settings_pages(self) -> None:
        """Adds all seven pages. What a page shows is built when it is opened. What holds for every
        workspace stands among the program's pages, or under a heading that says so.
        """
        build_settings = self._build_declared_settings
        once_open = self._build_once_workspace_is_open
        appearance: SettingsSections = {
            "appearance": partial(build_settings, tr("Appearance"), "Appearance"),
            "general": self._build_general_page,
            "tools": partial(build_settings, tr("Tools"), "Tools"),
            "recorder": self._build_recorder_page,
            "extensions": self._build_extensions_page,
            "phone": self._build_phone_page,
            "shortcuts": self._build_shortcuts_page,
            "about": self._build_about_page,
        }
        models: SettingsSections = {
            "providers": self._build_providers_page,
            "models": once_open(self._build_models_page),
        }
        in_every = tr("In every workspace")
        instructions: SettingsSections = {
            "instructions": once_open(self._build_instructions_page),
            "every": partial(build_settings, in_every, "Instructions"),
            "brought": once_open(self._build_rules_and_skills_page, says_it_waits=False),
        }
        before_sending = tr("Before a message is sent, in every workspace")
        long_conversations: SettingsSections = {
            "policy": once_open(self._build_long_conversations_page),
            "price": partial(build_settings, before_sending, "Long conversations"),
        }
        permissions: SettingsSections = {"permissions": once_open(self._build_permissions_page)}
        servers: SettingsSections = {
            "servers": once_open(self._build_mcp_servers_page),
            "agents": once_open(self._build_acp_agents_page, says_it_waits=False),
        }
        storage: SettingsSections = {
            "storage": once_open(self._build_storage_page),
            "checkpoints": once_open(self._build_checkpoints_page, says_it_waits=False),
        }
        self._add_page_group(tr("Program"))
        self._add_settings_page("appearance", appearance)
        self._add_settings_page("providers", models)
        self._workspace_heading = self._add_page_group("")
        self._show_name_above_workspace_pages()
        self._add_settings_page("instructions", instructions)
        self._add_settings_page("policy", long_conversations)
        self._add_settings_page("permissions", permissions)
        self._add_settings_page("servers", servers)
        self._add_settings_page("storage", storage)

    def _build_phone_page(self) -> PhoneSettingsPage:
        window = self._window
        devices = self._program.phone_devices()
        return PhoneSettingsPage(window.settings, devices, window.background_runner)

    def _build_shortcuts_page(self) -> ShortcutsPage:
        return ShortcutsPage(self._window.window_actions)

    def _build_about_page(self) -> AboutPage:
        return AboutPage(self._program, self._window.background_runner)

    def _build_recorder_page(self) -> RecorderPage:
        window = self._window
        return RecorderPage(window.settings, self._program, window.background_runner)

    def _build_extensions_page(self) -> ExtensionsPage:
        window = self._window
        installed = self._program.installed_extensions()
        return ExtensionsPage(window.theme, installed, window.background_runner)

    def _build_models_page(self, bench: Workbench) -> ModelsPage:
        return ModelsPage(self._window, bench, self._models)

    def _build_instructions_page(self, bench: Workbench) -> InstructionsPage:
        return InstructionsPage(bench, self._window.background_runner)

    def _build_rules_and_skills_page(self, bench: Workbench) -> RulesAndSkillsPage:
        window = self._window
        return RulesAndSkillsPage(window.theme, bench, window.background_runner)

    def _build_long_conversations_page(self, bench: Workbench) -> LongConversationsPage:
        runner = self._window.background_runner
        return LongConversationsPage(bench, runner, self._program.replay_policies)

    def _build_permissions_page(self, bench: Workbench) -> PermissionsPage:
        return PermissionsPage(bench, self._program, self._window.background_runner)

    def _build_mcp_servers_page(self, bench: Workbench) -> McpServersPage:
        window = self._window
        return McpServersPage(window.theme, bench, self._program, window.background_runner)

    def _build_acp_agents_page(self, bench: Workbench) -> AcpAgentsPage:
        window = self._window
        return AcpAgentsPage(bench, window.settings, window.background_runner)

    def _build_storage_page(self, bench: Workbench) -> StoragePage:
        return StoragePage(bench, self._program, self._window.background_runner)

    def _build_checkpoints_page(self, bench: Workbench) -> CheckpointsPage:
        return CheckpointsPage(bench, self._window.background_runner)

    def _build_declared_settings(self, title: str, section: str) -> ProgramSettingsPage:
        """Builds a part of a page with the program's settings of one section."""
        return ProgramSettingsPage(title, self._window.settings, [section])

    def _build_once_workspace_is_open(
        self, build: Callable[[Workbench], SettingsPage], *, says_it_waits: bool = True
    ) -> Callable[[], SettingsPage]:
        """Returns what builds a section of the workspace. Until it is open, the section says so, or
        is empty where the one above it has said it.
        """

        def build_or_wait() -> SettingsPage:
            bench = self._window.current_workbench
            if bench is not None:
                return build(bench)
            words = ""
            if says_it_waits:
                words = self._describe_wait_for_workspace()
            return WaitingSection(words)

        return build_or_wait

    def _describe_wait_for_workspace(self) -> str:
        if client_of_host(self._window.showing.workspace) is not None:
            # Nobody would know why a second window does not have them.
            return tr("Its settings are where it was opened first: in another window, or on the other computer.")  # fmt: skip
        if self._window.showing.page == "welcome":
            return tr("These settings belong to a workspace. They appear here once you open a folder.")  # fmt: skip
        return describe_opening(self._window.workspaces.name_of_wanted_workspace)

    def _show_name_above_workspace_pages(self) -> None:
        """Shows above its pages what the workspace is called, also while it is being opened."""
        shown = self._window.showing.workspace
        if shown is not None:
            name = shown.name
        elif self._window.showing.page == "welcome":
            name = tr("Workspace")
        else:
            name = self._window.workspaces.name_of_wanted_workspace or tr("Workspace")
        self._workspace_heading.setText(name)

    def _build_general_page(self) -> ProgramSettingsPage:
        page = ProgramSettingsPage(tr("General"), self._window.settings, GENERAL_SECTIONS)
        page.add_link_to_settings_file()
        return page

    def _build_providers_page(self) -> ProvidersPage:
        page = ProvidersPage(self._setup, self._window.background_runner)
        page.model_chosen.connect(self.model_chosen)
        return page

    def _add_page_group(self, text: str) -> QLabel:
        label = widgets.build_plain_label(text, "faint", self, wraps=False)
        label.setContentsMargins(10, 10, 0, 2)
        self._page_list.addWidget(label)
        self._names_below_heading[label] = []
        return label

    def _add_settings_page(self, name: str, sections: SettingsSections) -> None:
        title = translate_name("page of the settings", name)
        self._page_factories[name] = partial(SettingsGroupPage, title, sections)
        show_page = partial(self.show_settings_page, name)
        button = widgets.build_push_button(title, self, show_page, "row")
        button.setCheckable(True)
        # This makes screen readers announce a radio button instead of a check box.
        button.setAutoExclusive(True)
        self._group.addButton(button)
        self._page_list.addWidget(button)
        self._buttons[name] = button
        names_below_last_heading = list(self._names_below_heading.values())[-1]
        names_below_last_heading.append(name)

    def _set_known_models(self, models: Sequence[ModelChoice]) -> None:
        """Shows the models that are known, also where the page was built before they arrived."""
        self._models = models
        page = self._pages.get("providers")
        if page is None:
            return
        section = page.sections.get("models")
        if isinstance(section, ModelsPage):
            section.show_known_models(models)
