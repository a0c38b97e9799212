"""Correcting what is known of one model: its window, its prices, what it can do."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QVBoxLayout, QWidget

from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.settings.fields import Declared, Value, row
from helix_desktop.gui.setup import Model
from helix_desktop.gui.shared.plain import plain_label, yes_or_cancel
from helix_desktop.gui.words import tr

MOST_TOKENS, MOST_DOLLARS = 100_000_000, 100_000


class ModelDialog(QDialog):
    """`corrected` carries what was changed; `reset_wanted`: back to the provider's own values."""

    corrected = Signal(dict)
    reset_wanted = Signal()

    def __init__(self, model: Model, parent: QWidget) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Edit model"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.resize(520, 480)
        self.changes: dict[str, float | bool] = {}
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        column.addWidget(plain_label(model.name, "title", self))
        column.addWidget(plain_label(said(model.note), "muted", self))
        for declared in _declared(model):
            column.addWidget(row(declared, partial(self._changed, declared.name), self))
        column.addStretch(1)
        buttons = yes_or_cancel(self, tr("Save"), self._save)
        reset = buttons.addButton(tr("Reset to the provider's values"), QDialogButtonBox.ButtonRole.ResetRole)
        reset.setAutoDefault(False)
        reset.clicked.connect(self._reset)
        column.addWidget(buttons)

    def _changed(self, name: str, value: Value) -> None:
        if not isinstance(value, str):
            self.changes[name] = value

    def _save(self) -> None:
        self.setFocus()  # a number that is still being typed is taken
        if self.changes:
            self.corrected.emit(self.changes)
        self.accept()

    def _reset(self) -> None:
        self.reset_wanted.emit()
        self.accept()


def _declared(model: Model) -> list[Declared]:
    dollars = tr("Dollars per million tokens.")
    prices: Mapping[str, tuple[str, float]] = {
        "input": (tr("Input price"), model.price_input),
        "output": (tr("Output price"), model.price_output),
        "cache_read": (tr("Cache read price"), model.price_cache_read),
        "cache_write": (tr("Cache write price"), model.price_cache_write),
    }
    return [
        Declared("window", tr("Context window"), tr("Tokens."), model.window, least=1_000, most=MOST_TOKENS),
        Declared(
            "max_output",
            tr("Longest reply"),
            tr("In tokens. 0 uses the provider's default."),
            model.max_output,
            most=MOST_TOKENS,
        ),
        *(Declared(name, title, dollars, value, most=MOST_DOLLARS) for name, (title, value) in prices.items()),
        Declared("images", tr("Vision"), tr("This model can read images."), model.images),
        Declared("tools", tr("Tools"), tr("This model can call tools."), model.tools),
        Declared("temperature", tr("Temperature"), tr("This model supports temperature and top-p."), model.temperature),
    ]
