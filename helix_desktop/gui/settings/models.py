"""The models of a workspace by role, how long the main one thinks, and its temperature."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtWidgets import QHBoxLayout, QPushButton, QWidget

from helix_desktop.gui.frame.model_chooser import ModelChooser, price_words, window_words
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.settings.fields import Declared, Value, labelled, row
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.setup import Model
from helix_desktop.gui.words import tr

EFFORTS = ("", "low", "medium", "high")  # see ModelSet
STEP = 0.05  # below the least value a field shows "Default"


class ModelsPage(Page):
    """Each role has a button that opens the same chooser as the window's."""

    def __init__(self, window: MainWindow, bench: Workbench, models: Sequence[Model]) -> None:
        super().__init__(tr("Models"))
        self._window, self._bench, self._doing = window, bench, window.doing
        self._models = {model.name: model for model in models}
        self._chooser: ModelChooser | None = None
        self._fill()

    def _fill(self) -> None:
        self.clear()
        self.sentence(tr("If you don't choose a fast or long-window model, the main model is used instead."))
        chosen = self._bench.workspace.settings
        for role, title, sentence in (
            ("main", tr("Main model"), tr("Used for conversations.")),
            ("fast", tr("Fast model"), tr("Shortens outputs, records observations and writes summaries.")),
            ("long", tr("Long-window model"), tr("Used for requests that don't fit in the other models' windows.")),
        ):
            self.add(self._row(role, title, sentence, chosen.models.get(role, "")))
        self.add(self._thinking(chosen.effort))
        lacking = self._lacking(chosen.models.get("main", ""))
        about = tr("Low values make answers more predictable, high values more varied.")
        self.add(self._number("temperature", tr("Temperature"), f"{about} {lacking}".strip(), chosen.temperature, 2))
        about = tr(
            "Only the most likely words, up to this combined probability, are considered. Change either this or the temperature, not both."
        )
        self.add(self._number("top_p", tr("Top-p"), about, chosen.top_p, 1))
        if not self._models:
            self.sentence(tr("No models are known yet. Add a provider first."))

    def _row(self, role: str, title: str, sentence: str, current: str) -> QWidget:
        side = QWidget(self.inside)
        line = QHBoxLayout(side)
        line.setContentsMargins(0, 0, 0, 0)
        button = QPushButton(self._words(role, current), side)
        button.setObjectName(role)
        button.setAccessibleName(title)
        button.setAutoDefault(False)
        button.clicked.connect(lambda _checked=False: self._open(role, button, current))
        line.addWidget(button)
        if current and role != "main":
            clear = QPushButton(tr("Clear"), side)
            clear.setProperty("look", "link")
            clear.setAccessibleName(tr("Use the main model as the {role}", role=title))
            clear.setAutoDefault(False)
            clear.clicked.connect(lambda _checked=False: self._choose(role, ""))
            line.addWidget(clear)
        return labelled(title, sentence, side, self.inside)

    def _words(self, role: str, name: str) -> str:
        if not name:
            return tr("Choose a model…") if role == "main" else tr("The main model")
        model = self._models.get(name)
        parts = [name, window_words(model), price_words(model)] if model is not None else [name]
        return " · ".join(filter(None, parts)).replace("&", "&&")

    def _open(self, role: str, anchor: QWidget, current: str) -> None:
        """Over this window; a chooser that is left is made anew, so that it asks for nothing that is not shown."""
        if self._chooser is not None:
            self._chooser.deleteLater()
        chooser = self._chooser = ModelChooser(self._window.theme, self._window.memory, self.window())
        chooser.only_choose()
        chooser.chosen.connect(lambda name: self._choose(role, name))
        chooser.open(anchor, current)
        chooser.show_models(list(self._models.values()), refreshing=False)

    def _choose(self, role: str, name: str) -> None:
        work = self._bench.choose_model(name, role)
        self._doing.do(work, name="choose a model", then=lambda _done: self._fill(), owner=self)

    def _thinking(self, current: str) -> QWidget:
        sentence = tr(
            "How long the main model thinks before it answers. Longer thinking helps with hard problems, but it is slower and more expensive."
        )
        words = [tr("Default"), tr("Short"), tr("Medium"), tr("Long")]
        declared = Declared("effort", tr("Thinking"), sentence, current, EFFORTS, words)
        return row(declared, lambda value: self._change("effort", value or None), self.inside)

    def _number(self, name: str, title: str, sentence: str, current: float | None, most: float) -> QWidget:
        value = -STEP if current is None else current
        declared = Declared(name, title, sentence, value, least=-STEP, most=most, unset=tr("Default"))

        def changed(value: Value) -> None:
            self._change(name, value if isinstance(value, float) and value >= 0 else None)

        return row(declared, changed, self.inside)

    def _lacking(self, main: str) -> str:
        model = self._models.get(main)
        if model is None or model.temperature:
            return ""
        return tr("{model} supports neither temperature nor top-p, so neither is sent.", model=model.id)

    def _change(self, name: str, value: Value | None) -> None:
        work = self._bench.change({name: value})
        self._doing.do(work, name="change how the model answers", owner=self)
