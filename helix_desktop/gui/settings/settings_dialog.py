"""The settings window: seven pages and a search at the left, a page at the right, built when first
shown.
"""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QButtonGroup, QLabel, QPushButton, QStackedWidget, QWidget

from helix_desktop.gui.common import widgets
from helix_desktop.gui.help_dialog import open_help
from helix_desktop.gui.help_search import CONTENTS
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
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
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.providers_page import ProvidersPage
from helix_desktop.gui.settings.recorder_page import RecorderPage
from helix_desktop.gui.settings.rules_and_skills_page import RulesAndSkillsPage
from helix_desktop.gui.settings.settings_group_page import SettingsGroupPage, SettingsSections
from helix_desktop.gui.settings.shortcuts_page import ShortcutsPage
from helix_desktop.gui.settings.storage_page import StoragePage
from helix_desktop.gui.settings.workspace_settings_pages import CheckpointsPage, InstructionsPage
from helix_desktop.gui.shown_workspace import client_of_host
from helix_desktop.gui.translation import tr, translate_name

# These actions change what the pages show, so the settings are closed for them.
CHANGING_ACTIONS = ("compare-presets", "workspace-folder")
GENERAL_SECTIONS = ("Chat", "Notifications")
# The group that shows a section, for links that name the section.
GROUP_OF_SECTION = {
    "": "appearance",
    "general": "appearance",
    "phone": "appearance",
    "extensions": "appearance",
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
        # A workspace's page that was asked for while no workspace was open yet.
        self._awaited_page = ""
        self._add_program_pages()
        self._add_workspace_pages()
        self._page_list.addStretch(1)
        self._side = QWidget(self)
        self._side.setLayout(self._page_list)
        self._names = widgets.build_scroll_area(self._side, self)
        self._names.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._make_page_list_wide_enough()
        # The window's own key for the help does not reach a dialog above it.
        QShortcut(QKeySequence.StandardKey.HelpContents, self, self._show_help_of_page)
        window.theme.changed.connect(self._make_page_list_wide_enough)
        build_row((self._names, 1), (self._stack, 4), owner=self, margins=0, spacing=0)
        listing = setup.list_known_models()
        window.background_runner.run_in_background(listing, then=self._set_known_models, owner=self)

    def _make_page_list_wide_enough(self) -> None:
        names_width = self._side.sizeHint().width()
        # The current page's name is bold and therefore wider.
        extra_width = self._side.fontMetrics().averageCharWidth()
        scroll_bar_width = self._names.verticalScrollBar().sizeHint().width()
        self._names.setMinimumWidth(names_width + extra_width + scroll_bar_width)

    def show_settings_page(self, page: str) -> None:
        """Shows a page by its name, or the section of a page by the section's name."""
        name = GROUP_OF_SECTION.get(page, page)
        self._awaited_page = ""
        if name not in self._page_factories:  # Without a workspace, its pages are not there.
            self._awaited_page = page
            name = "appearance"
        section = page
        if page == "workspace":
            section = "models"

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
        self._hide_empty_headings()

    def _hide_empty_headings(self) -> None:
        """Shows a heading of the list only above pages that are shown."""
        for heading, names in self._names_below_heading.items():
            is_used = any(not self._buttons[name].isHidden() for name in names)
            heading.setVisible(is_used)

    def _open_page_or_run_action(self, name: str) -> None:
        if name in self._page_factories or name in GROUP_OF_SECTION:
            self.show_settings_page(name)
            return
        if name in CHANGING_ACTIONS:
            self.accept()
        self._window.window_actions[name].trigger()

    @property
    def is_without_workspace(self) -> bool:
        return self._workspace_id == ""

    def add_opened_workspace(self) -> None:
        """Adds the pages of a workspace that was still being opened, and keeps what is shown."""
        stretch_below_pages = self._page_list.count() - 1
        self._page_list.takeAt(stretch_below_pages)
        # The page of models also has those of the workspace now.
        page_of_models = self._pages.get("providers")
        if page_of_models is not None and page_of_models is not self._stack.currentWidget():
            del self._pages["providers"]
            self._stack.removeWidget(page_of_models)
            page_of_models.deleteLater()
        self._add_workspace_pages()
        self._page_list.addStretch(1)
        self._make_page_list_wide_enough()
        if self._awaited_page:
            self.show_settings_page(self._awaited_page)
        if self._search.text():
            self._show_pages_with(self._search.text())

    def _add_program_pages(self) -> None:
        window = self._window
        program = self._program
        settings = window.settings
        runner = window.background_runner
        theme = window.theme
        # What a page shows is built when it is opened.
        appearance: SettingsSections = {
            "appearance": partial(self._build_declared_settings, tr("Appearance"), "Appearance"),
            "general": self._build_general_page,
            "phone": lambda: PhoneSettingsPage(settings, program.phone_devices(), runner),
            "extensions": lambda: ExtensionsPage(theme, program.installed_extensions(), runner),
            "shortcuts": lambda: ShortcutsPage(window.window_actions),
            "about": lambda: AboutPage(program, runner),
        }
        self._add_page_group(tr("Program"))
        self._add_settings_page("appearance", appearance)
        self._add_settings_page("providers", {"providers": self._build_providers_page})

    def _build_declared_settings(self, title: str, section: str) -> ProgramSettingsPage:
        """Builds a part of a page with the program's settings of one section."""
        return ProgramSettingsPage(title, self._window.settings, [section])

    def _add_workspace_pages(self) -> None:
        """Adds the five pages of the workspace, and its models to the program's."""
        window = self._window
        program = self._program
        settings = window.settings
        runner = window.background_runner
        bench = window.current_workbench
        self._workspace_id = window.showing.workspace_id
        if bench is None:
            self._say_where_workspace_is_set_up()
            return

        title_of_models = translate_name("page of the settings", "providers")
        models: SettingsSections = {
            "providers": self._build_providers_page,
            "models": lambda: ModelsPage(window, bench, self._models),
        }
        self._page_factories["providers"] = partial(SettingsGroupPage, title_of_models, models)
        self._add_page_group(bench.name)
        build_settings = self._build_declared_settings
        in_every = tr("In every workspace")
        instructions: SettingsSections = {
            "instructions": lambda: InstructionsPage(bench, runner),
            "every": partial(build_settings, in_every, "Instructions"),
            "brought": lambda: RulesAndSkillsPage(window.theme, bench, runner),
        }
        before_sending = tr("Before a message is sent")
        long_conversations: SettingsSections = {
            "policy": lambda: LongConversationsPage(bench, runner, program.replay_policies),
            "price": partial(build_settings, before_sending, "Long conversations"),
        }
        permissions: SettingsSections = {
            "permissions": lambda: PermissionsPage(bench, program, runner),
        }
        servers: SettingsSections = {
            "servers": lambda: McpServersPage(window.theme, bench, program, runner),
            "agents": lambda: AcpAgentsPage(bench, settings, runner),
            "tools": partial(build_settings, tr("Tools"), "Tools"),
            "recorder": lambda: RecorderPage(settings, program, runner),
        }
        storage: SettingsSections = {
            "storage": lambda: StoragePage(bench, program, runner),
            "checkpoints": lambda: CheckpointsPage(bench, runner),
        }
        self._add_settings_page("instructions", instructions)
        self._add_settings_page("policy", long_conversations)
        self._add_settings_page("permissions", permissions)
        self._add_settings_page("servers", servers)
        self._add_settings_page("storage", storage)

    def _say_where_workspace_is_set_up(self) -> None:
        """A second window has no pages of the workspace, and nobody would know why."""
        client = client_of_host(self._window.showing.workspace)
        if client is None:
            return
        self._add_page_group(client.name)
        words = tr("Its settings are where it was opened first: in another window, or on the other computer.")  # fmt: skip
        note = widgets.build_plain_label(words, "small", self)
        note.setContentsMargins(10, 0, 10, 0)
        self._page_list.addWidget(note)

    def _build_general_page(self) -> ProgramSettingsPage:
        page = ProgramSettingsPage(tr("General"), self._window.settings, GENERAL_SECTIONS)
        page.add_link_to_settings_file()
        return page

    def _build_providers_page(self) -> ProvidersPage:
        page = ProvidersPage(self._setup, self._window.background_runner)
        page.model_chosen.connect(self.model_chosen)
        return page

    def _add_page_group(self, text: str) -> None:
        label = widgets.build_plain_label(text, "faint", self, wraps=False)
        label.setContentsMargins(10, 10, 0, 2)
        self._page_list.addWidget(label)
        self._names_below_heading[label] = []

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
