"""Choosing, correcting and connecting models: what the model button at the top right opens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QObject

from helix_desktop.errors import HelixError
from helix_desktop.gui.frame.connect import DEMO
from helix_desktop.gui.frame.first_start import ConnectDialog
from helix_desktop.gui.frame.model_chooser import ModelChooser
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.setup import Model, Setup
from helix_desktop.gui.words import tr


class ModelActs(QObject):
    """What is to happen once a model is chosen waits in `_then`: the first message goes by itself."""

    def __init__(self, window: MainWindow, setup: Setup) -> None:
        super().__init__(window)
        self._window = window
        self._setup = setup
        self._dialog: ConnectDialog | None = None
        self._then: Callable[[], object] | None = None
        self.chooser = ModelChooser(window.theme, window.memory, window)
        self.chooser.opened.connect(self._list)
        self.chooser.left.connect(self._nothing_chosen)
        self.chooser.chosen.connect(self.use)
        self.chooser.edit_wanted.connect(self._edit)
        self.chooser.connect_wanted.connect(self.connect_model)
        window.actions_.on("side-by-side", self.ask_two)
        window.top.model.opening.connect(self.open)

    def open(self) -> None:
        bench = self._window.bench
        if bench is not None:
            self.chooser.open(self._window.top.model, self._window.model)

    def ask_two(self) -> None:
        """One question to two models, beside each other."""
        from helix_desktop.gui.side_by_side import SideBySide

        window, bench = self._window, self._window.bench
        if bench is None:
            return
        composer = window.chat.composer
        parts = composer.parts()
        dialog = SideBySide(window, self._setup, bench, parts)
        dialog.asked.connect(lambda: composer.drop(parts))
        dialog.show()

    def first(self, then: Callable[[], object]) -> None:
        """A model is needed: choose one of those that are there, or connect one; `then` follows."""
        self._then = then

        def known(models: Sequence[Model]) -> None:
            if any(model.name != DEMO for model in models):
                self.open()
            else:
                self.connect_model()

        self._window.doing.do(self._setup.known(), name="list the models", then=known, owner=self._window)

    def _list(self) -> None:
        """What is known at once; then every provider is asked again."""
        self._window.doing.do(self._setup.known(), name="list the models", then=self._show, owner=self.chooser)

    def _show(self, models: Sequence[Model]) -> None:
        self.chooser.show_models(models)
        refreshed = self.chooser.show_refreshed
        self._window.doing.do(self._setup.refresh(), name="refresh the models", then=refreshed, owner=self.chooser)

    def use(self, model: str) -> None:
        bench, window = self._window.bench, self._window
        if bench is None or not model:
            return
        then, self._then = self._then, None

        def chosen(_done: None) -> None:
            window.show_choices()
            window.chat.composer.text.setFocus()
            if then is not None:
                then()

        window.doing.do(self._put(bench, model), name="choose a model", then=chosen, owner=window)

    async def _put(self, bench: Workbench, model: str) -> None:
        """A conversation that has a model of its own gets another; else the workspace does."""
        session = self._window.session
        if session is not None and bench.model_of(session.id) != bench.model:
            await bench.use_own_model(session.id, "" if model == bench.model else model)
        else:
            await bench.choose_model(model)

    def _nothing_chosen(self) -> None:
        self._then = None

    def connect_model(self) -> None:
        if self._dialog is not None:
            self._dialog.raise_()
            return
        dialog = self._dialog = ConnectDialog(self._setup, self._window.doing, self._window)
        dialog.chosen.connect(self.use)
        dialog.added.connect(self.open)
        dialog.rejected.connect(self._nothing_chosen)
        dialog.finished.connect(lambda _result: self._forget_dialog())
        dialog.open()

    def _forget_dialog(self) -> None:
        self._dialog = None

    def _edit(self, model: Model) -> None:
        from helix_desktop.gui.settings.model_dialog import ModelDialog

        dialog = ModelDialog(model, self._window)
        dialog.corrected.connect(lambda values: self._correct(model, values))
        dialog.reset_wanted.connect(lambda: self._save(model, reset=True))
        dialog.open()

    def _correct(self, model: Model, values: Mapping[str, float | bool]) -> None:
        self._save(model, values)

    def _save(self, model: Model, values: Mapping[str, float | bool] | None = None, *, reset: bool = False) -> None:
        window = self._window

        def done(_done: None) -> None:
            window.notices.tell(tr("{model}: the change applies from the next message.", model=model.id))

        def failed(error: HelixError) -> None:
            window.notices.tell_error(error)

        work = self._setup.reset(model.name) if reset else self._setup.correct(model.name, values or {})
        window.doing.do(work, name="correct a model", then=done, owner=window, failed=failed)
