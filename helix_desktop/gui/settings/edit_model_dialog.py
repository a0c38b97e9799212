"""The dialog to correct what is known about a model: its window, its prices and what it can do."""

from collections.abc import Mapping
from functools import partial

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialogButtonBox, QWidget

from helix_desktop.gui.engine_sentences import translate_sentences
from helix_desktop.gui.layouts import build_column
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.settings.setting_fields import FieldDeclaration, Value, build_field_row
from helix_desktop.gui.shared.plain_widgets import TransientDialog, build_confirm_buttons, build_plain_label
from helix_desktop.gui.translation import tr

MOST_TOKENS, MOST_DOLLARS = 100_000_000, 100_000


class EditModelDialog(TransientDialog):
    """`corrected` carries what was changed; `reset_wanted`: back to the provider's own values."""

    corrected = Signal(dict)
    reset_wanted = Signal()

    def __init__(self, model: ModelChoice, parent: QWidget) -> None:
        super().__init__(tr("Edit model"), parent)
        self.resize(520, 480)
        self.changes: dict[str, float | bool] = {}
        note = build_plain_label(translate_sentences(model.note), "muted", self)
        column = build_column(build_plain_label(model.name, "title", self), note, owner=self, margins=20)
        for declared in _declare_model_fields(model):
            column.addWidget(build_field_row(declared, partial(self._note_model_change, declared.name), self))
        column.addStretch(1)
        buttons = build_confirm_buttons(self, tr("Save"), self._save_model_changes)
        reset = buttons.addButton(tr("Reset to the provider's values"), QDialogButtonBox.ButtonRole.ResetRole)
        reset.setAutoDefault(False)
        reset.clicked.connect(self.reset_wanted)
        reset.clicked.connect(self.accept)
        column.addWidget(buttons)

    def _note_model_change(self, name: str, value: Value) -> None:
        if not isinstance(value, str):
            self.changes[name] = value

    def _save_model_changes(self) -> None:
        self.setFocus()  # A number field takes over a typed number when it loses the focus.
        if self.changes:
            self.corrected.emit(self.changes)
        self.accept()


def _declare_model_fields(model: ModelChoice) -> list[FieldDeclaration]:
    dollars = tr("Dollars per million tokens.")
    prices: Mapping[str, tuple[str, float]] = {
        "input": (tr("Input price"), model.price_input),
        "output": (tr("Output price"), model.price_output),
        "cache_read": (tr("Cache read price"), model.price_cache_read),
        "cache_write": (tr("Cache write price"), model.price_cache_write),
    }
    reply, sampling = tr("In tokens. 0 uses the provider's default."), tr("This model supports temperature and top-p.")
    return [
        FieldDeclaration("window", tr("Context window"), tr("Tokens."), model.window, least=1_000, most=MOST_TOKENS),
        FieldDeclaration("max_output", tr("Longest reply"), reply, model.max_output, most=MOST_TOKENS),
        *(FieldDeclaration(name, title, dollars, value, most=MOST_DOLLARS) for name, (title, value) in prices.items()),
        FieldDeclaration("images", tr("Vision"), tr("This model can read images."), model.images),
        FieldDeclaration("tools", tr("Tools"), tr("This model can call tools."), model.tools),
        FieldDeclaration("temperature", tr("Temperature"), sampling, model.temperature),
    ]
