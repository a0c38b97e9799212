"""The dialog to correct what is known about a model: its window, its prices and what it can do."""

from collections.abc import Mapping

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QDialogButtonBox, QWidget

from helix_desktop.engine.context_usage import WindowSizeSource
from helix_desktop.errors import InvalidInput
from helix_desktop.gui.common.fields_dialog import FieldsDialog
from helix_desktop.gui.common.setting_fields import FieldDeclaration, Value
from helix_desktop.gui.common.widgets import build_plain_label
from helix_desktop.gui.model_setup_port import ModelChoice
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import read_shown_names, tr

MOST_TOKENS = 100_000_000
MOST_DOLLARS = 100_000


class EditModelDialog(FieldsDialog):
    """`corrected` carries the changes. `reset` is pressed to restore the provider's own values."""

    corrected = Signal(dict)

    def __init__(self, model: ModelChoice, parent: QWidget) -> None:
        note = translate_sentences(model.note)
        if model.sure is WindowSizeSource.ASSUMED:
            note = tr(
                "The size of this model's context window is not known. Enter the size here so that older parts of the conversation are shortened in time."
            )
        name_label = build_plain_label(model.name, "title")
        note_label = build_plain_label(note, "muted")
        self._declared_fields = _declare_model_fields(model)
        super().__init__(
            tr("Edit model"),
            self._declared_fields,
            tr("Save"),
            self._save_corrections,
            parent,
            (name_label, note_label),
        )
        self.reset = self.buttons.addButton(
            tr("Reset to the provider's values"), QDialogButtonBox.ButtonRole.ResetRole
        )
        self.reset.setAutoDefault(False)
        self.reset.clicked.connect(self.accept)

    def _save_corrections(self, values: Mapping[str, Value]) -> None:
        if values["max_output"] > values["window"]:  # type: ignore[operator]  # two numbers
            raise InvalidInput(tr("The longest reply cannot be larger than the context window."))
        corrections: dict[str, Value] = {}
        for field in self._declared_fields:
            if values[field.name] != field.value:
                corrections[field.name] = values[field.name]
        if corrections:
            self.corrected.emit(corrections)


def _declare_model_fields(model: ModelChoice) -> list[FieldDeclaration]:
    """Returns what the user can change of a model, from top to bottom: sizes, prices, abilities."""
    window_field = FieldDeclaration(
        "window",
        tr("Context window"),
        tr("In tokens."),
        model.window,
        least=1_000,
        most=MOST_TOKENS,
    )
    reply_field = FieldDeclaration(
        "max_output",
        tr("Longest reply"),
        tr("In tokens. 0 means the provider's default."),
        model.max_output,
        most=MOST_TOKENS,
    )
    images = tr("This model can read images.")
    if not model.are_images_known:
        images = tr(
            "This model can read images. (The provider does not report this. If it is wrong, clear the box.)"
        )
    tools = tr("This model can call tools.")
    sampling = tr("This model supports temperature and top-p.")
    fields = [window_field, reply_field]
    fields += _declare_price_fields(model)
    fields.append(FieldDeclaration("images", tr("Vision"), images, model.images))
    fields.append(FieldDeclaration("tools", tr("Tools"), tools, model.tools))
    fields.append(FieldDeclaration("temperature", tr("Temperature"), sampling, model.temperature))
    return fields


def _declare_price_fields(model: ModelChoice) -> list[FieldDeclaration]:
    if model.local:
        label_of_zero = ""  # A model on this computer costs nothing.
    else:
        label_of_zero = tr("unknown")
    fields: list[FieldDeclaration] = []
    # The kinds of prices are the endings of the fields of `ModelChoice`, such as `price_input`.
    for kind, title in read_shown_names()["price of a model"].items():
        field = FieldDeclaration(
            kind,
            tr(title),
            tr("In dollars per million tokens."),
            getattr(model, f"price_{kind}"),
            most=MOST_DOLLARS,
            unset=label_of_zero,
        )
        fields.append(field)
    return fields
