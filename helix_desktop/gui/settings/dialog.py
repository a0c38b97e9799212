"""The settings in one window: the pages' names at the left, one page at the right, made when it is first looked at."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QHBoxLayout,
    QPushButton,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.gui import forgetting
from helix_desktop.gui.keys import presses
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.about import AboutPage
from helix_desktop.gui.settings.brought import BroughtPage
from helix_desktop.gui.settings.declared import DeclaredPage
from helix_desktop.gui.settings.models import ModelsPage
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.settings.permissions import PermissionsPage
from helix_desktop.gui.settings.program import Installation
from helix_desktop.gui.settings.providers import ProvidersPage
from helix_desktop.gui.settings.servers import ServersPage
from helix_desktop.gui.settings.shortcuts import ShortcutsPage
from helix_desktop.gui.settings.storage import StoragePage
from helix_desktop.gui.settings.workspace import CheckpointsPage, InstructionsPage, LimitsPage, PolicyPage
from helix_desktop.gui.setup import Model, Setup
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import tr

GENERAL = ("Instructions", "Chat", "Notifications", "Updates", "Logs", "Tools", "Sharing", "Keys")


class SettingsDialog(QDialog):
    """`model_chosen`: a provider was connected, and this model is to be used."""

    model_chosen = Signal(str)

    def __init__(self, window: MainWindow, setup: Setup, program: Installation) -> None:
        super().__init__(window)
        self._window = window
        self._setup = setup
        self._program = program
        self._models: Sequence[Model] = ()
        self._makers: dict[str, Callable[[], Page]] = {}
        self._pages: dict[str, Page] = {}
        self._buttons: dict[str, QPushButton] = {}
        self.setWindowTitle(tr("Settings"))
        wanted = QSize(window.theme.px(920), window.theme.px(660))
        self.resize(wanted.boundedTo(window.screen().availableGeometry().size() * 0.9))
        self._stack = QStackedWidget(self)
        self._names = QVBoxLayout()
        self._names.setContentsMargins(8, 12, 8, 12)
        self._names.setSpacing(2)
        self._group = QButtonGroup(self)
        self._offer()
        self._names.addStretch(1)
        side = QWidget(self)
        side.setMinimumWidth(200)
        side.setLayout(self._names)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        row.addWidget(side)
        row.addWidget(self._stack, 1)
        window.doing.do(setup.known(), name="list the models", then=self._known, owner=self)

    def open_at(self, page: str) -> None:
        """A page by its name; "workspace" is the workspace's first one, empty the first of all."""
        wanted = {"workspace": "models", "": "appearance"}.get(page, page)
        name = wanted if wanted in self._makers else "appearance"
        if name not in self._pages:
            self._pages[name] = self._makers[name]()
            self._stack.addWidget(self._pages[name])
        self._stack.setCurrentWidget(self._pages[name])
        self._buttons[name].setChecked(True)
        self._buttons[name].setFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if not presses(event):
            super().keyPressEvent(event)

    def names(self) -> tuple[str, ...]:
        return tuple(self._makers)

    def _offer(self) -> None:
        window, settings, doing, program = self._window, self._window.settings, self._window.doing, self._program
        self._heading(tr("Program"))
        self._page("appearance", tr("Appearance"), lambda: DeclaredPage(tr("Appearance"), settings, ["Appearance"]))
        self._page("general", tr("General"), lambda: DeclaredPage(tr("General"), settings, GENERAL))
        self._page("shortcuts", tr("Shortcuts"), lambda: ShortcutsPage(window.actions_))
        self._page("providers", tr("Providers"), self._providers)
        bench = window.bench
        if bench is not None:
            self._heading(bench.name)
            self._page("models", tr("Models"), lambda: ModelsPage(window, bench, self._models))
            self._page("instructions", tr("Instructions"), lambda: self._instructions(bench))
            self._page("policy", tr("Policy"), lambda: PolicyPage(bench, doing))
            self._page("permissions", tr("Permissions"), lambda: self._permissions(bench))
            self._page("brought", tr("Rules and skills"), lambda: BroughtPage(window.theme, bench, doing))
            self._page("servers", tr("MCP servers"), lambda: ServersPage(bench, program, doing))
            self._page("limits", tr("Limits"), lambda: LimitsPage(bench, doing))
            self._page("checkpoints", tr("Checkpoints"), lambda: CheckpointsPage(bench, program, doing))
            self._page("storage", tr("Storage"), lambda: self._storage(bench))
        self._heading("Helix Desktop")
        self._page("about", tr("About"), lambda: AboutPage(program, doing))

    def _providers(self) -> ProvidersPage:
        page = ProvidersPage(self._setup, self._window.doing)
        page.model_chosen.connect(self.model_chosen)
        return page

    def _instructions(self, bench: Workbench) -> InstructionsPage:
        page = InstructionsPage(bench, self._window.doing)
        page.everywhere_wanted.connect(lambda: self.open_at("general"))
        return page

    def _permissions(self, bench: Workbench) -> PermissionsPage:
        page = PermissionsPage(bench, self._program, self._window.doing)
        page.folder_wanted.connect(self._other_folder)
        return page

    def _other_folder(self) -> None:
        """The workspace is opened anew then: these pages would be about the one before."""
        self.accept()
        self._window.actions_["workspace-folder"].trigger()

    def _storage(self, bench: Workbench) -> StoragePage:
        page = StoragePage(bench, self._program, self._window.doing)
        page.forget_wanted.connect(lambda: forgetting.ask(self._window, self))
        page.export_wanted.connect(self._window.actions_["export-workspace"].trigger)
        return page

    def _heading(self, text: str) -> None:
        label = plain_label(text, "faint", self, wraps=False)
        label.setContentsMargins(10, 10, 0, 2)
        self._names.addWidget(label)

    def _page(self, name: str, title: str, make: Callable[[], Page]) -> None:
        self._makers[name] = make
        button = QPushButton(title, self)
        button.setProperty("look", "row")
        button.setCheckable(True)
        button.setAutoDefault(False)
        button.clicked.connect(lambda _checked=False: self.open_at(name))
        self._group.addButton(button)
        self._names.addWidget(button)
        self._buttons[name] = button

    def _known(self, models: Sequence[Model]) -> None:
        """The list of models came: a page that was made without it is made again."""
        self._models = models
        old = self._pages.pop("models", None)
        if old is not None:
            shown = self._stack.currentWidget() is old
            self._stack.removeWidget(old)
            old.deleteLater()
            if shown:
                self.open_at("models")
