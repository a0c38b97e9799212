"""The settings window: page names at the left, a page at the right, built when first shown."""

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QButtonGroup, QPushButton, QStackedWidget, QWidget

from helix_desktop.gui.common import widgets
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_setup_port import ModelChoice, ModelSetupPort
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.settings import workspace_settings_pages
from helix_desktop.gui.settings.about_page import AboutPage
from helix_desktop.gui.settings.installation_port import Installation
from helix_desktop.gui.settings.mcp_servers_page import McpServersPage
from helix_desktop.gui.settings.models_page import ModelsPage
from helix_desktop.gui.settings.permissions_page import PermissionsPage
from helix_desktop.gui.settings.program_settings_page import ProgramSettingsPage
from helix_desktop.gui.settings.providers_page import ProvidersPage
from helix_desktop.gui.settings.rules_and_skills_page import RulesAndSkillsPage
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.settings.shortcuts_page import ShortcutsPage
from helix_desktop.gui.settings.storage_page import StoragePage
from helix_desktop.gui.translation import tr, translate_name

CHANGING_ACTIONS = (
    "compare-presets",
    "workspace-folder",
)  # These actions change what the pages show.
GENERAL_SECTIONS = (
    "Instructions",
    "Chat",
    "Notifications",
    "Recorder",
    "Logs",
    "Tools",
    "Sharing",
    "Keys",
)


class SettingsDialog(widgets.TransientDialog):
    """`model_chosen`: a provider was added, and this model is to be used."""

    model_chosen = Signal(str)

    def __init__(self, window: MainWindow, setup: ModelSetupPort, program: Installation) -> None:
        super().__init__(tr("Settings"), window, 920, 660)
        self._window = window
        self._setup = setup
        self._program = program
        self._models: Sequence[ModelChoice] = ()
        self._page_factories: dict[str, Callable[[], SettingsPage]] = {}
        self._pages: dict[str, SettingsPage] = {}
        self._buttons: dict[str, QPushButton] = {}
        self._stack = QStackedWidget(self)
        self._page_list = build_column(margins=(8, 12, 8, 12), spacing=2)
        self._group = QButtonGroup(self)
        self._add_all_pages()
        self._page_list.addStretch(1)
        self._side = QWidget(self)
        self._side.setLayout(self._page_list)
        self._names = widgets.build_scroll_area(self._side, self)
        self._names.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._make_page_list_wide_enough()
        window.theme.changed.connect(self._make_page_list_wide_enough)
        build_row((self._names, 1), (self._stack, 4), owner=self, margins=0, spacing=0)
        window.background_runner.run_in_background(
            setup.list_known_models(), then=self._set_known_models, owner=self
        )

    def _make_page_list_wide_enough(self) -> None:
        bar = self._names.verticalScrollBar().sizeHint().width()
        wider = (
            self._side.fontMetrics().averageCharWidth()
        )  # The current page's name is bold and therefore wider.
        self._names.setMinimumWidth(self._side.sizeHint().width() + wider + bar)

    def show_settings_page(self, page: str) -> None:
        """Shows a page by name. "workspace": the workspace's first page; "": the first
        page of all.
        """
        wanted = {"workspace": "models", "": "appearance"}.get(page, page)
        name = wanted if wanted in self._page_factories else "appearance"
        if name not in self._pages:
            self._pages[name] = self._page_factories[name]()
            self._pages[name].wanted.connect(self._open_page_or_run_action)
            self._stack.addWidget(self._pages[name])
        self._stack.setCurrentWidget(self._pages[name])
        self._buttons[name].setChecked(True)
        self._buttons[name].setFocus()
        self._names.ensureWidgetVisible(self._buttons[name])

    def _open_page_or_run_action(self, name: str) -> None:
        if name in self._page_factories:
            self.show_settings_page(name)
            return
        if name in CHANGING_ACTIONS:
            self.accept()
        self._window.window_actions[name].trigger()

    def _add_all_pages(self) -> None:
        window, program = self._window, self._program
        settings, doing, add = window.settings, window.background_runner, self._add_settings_page
        self._add_page_group(tr("Program"))
        add("appearance", lambda: ProgramSettingsPage(tr("Appearance"), settings, ["Appearance"]))
        add("general", lambda: ProgramSettingsPage(tr("General"), settings, GENERAL_SECTIONS))
        add("shortcuts", lambda: ShortcutsPage(window.window_actions))
        add("providers", self._build_providers_page)
        if (bench := window.current_workbench) is not None:
            self._add_page_group(bench.name)
            add("models", lambda: ModelsPage(window, bench, self._models))
            add("instructions", lambda: workspace_settings_pages.InstructionsPage(bench, doing))
            add("policy", lambda: workspace_settings_pages.PolicyPage(bench, doing))
            add("permissions", lambda: PermissionsPage(bench, program, doing))
            add("brought", lambda: RulesAndSkillsPage(window.theme, bench, doing))
            add("servers", lambda: McpServersPage(window.theme, bench, program, doing))
            add("limits", lambda: workspace_settings_pages.TurnLimitsPage(bench, doing))
            add("checkpoints", lambda: workspace_settings_pages.CheckpointsPage(bench, doing))
            add("storage", lambda: StoragePage(bench, program, doing))
        self._add_page_group("Helix Desktop")
        add("about", lambda: AboutPage(program, doing))

    def _build_providers_page(self) -> ProvidersPage:
        page = ProvidersPage(self._setup, self._window.background_runner)
        page.model_chosen.connect(self.model_chosen)
        return page

    def _add_page_group(self, text: str) -> None:
        label = widgets.build_plain_label(text, "faint", self, wraps=False)
        label.setContentsMargins(10, 10, 0, 2)
        self._page_list.addWidget(label)

    def _add_settings_page(self, name: str, make: Callable[[], SettingsPage]) -> None:
        self._page_factories[name], title = make, translate_name("page of the settings", name)
        button = widgets.build_push_button(
            title, self, lambda: self.show_settings_page(name), "row"
        )
        button.setCheckable(True)
        button.setAutoExclusive(
            True
        )  # This makes screen readers announce a radio button instead of a check box.
        self._group.addButton(button)
        self._page_list.addWidget(button)
        self._buttons[name] = button

    def _set_known_models(self, models: Sequence[ModelChoice]) -> None:
        """Rebuilds the models page if it was built before the list of models arrived."""
        self._models = models
        if (old := self._pages.pop("models", None)) is not None:
            shown = self._stack.currentWidget() is old
            self._stack.removeWidget(old)
            old.deleteLater()
            if shown:
                self.show_settings_page("models")
