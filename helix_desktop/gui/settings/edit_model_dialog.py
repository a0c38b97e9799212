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

MOST_TOKENS, MOST_DOLLARS = 100_000_000, 100_000


class EditModelDialog(FieldsDialog):
    """`corrected` carries the changes. `reset` is pressed to restore the provider's own values."""

    corrected = Signal(dict)

    def __init__(self, model: ModelChoice, parent: QWidget) -> None:
        assumed = tr("The size of this model's context window is not known. Enter the size here so that older parts of the conversation are shortened in time.")  # fmt: skip
        words = (
            assumed if model.sure is WindowSizeSource.ASSUMED else translate_sentences(model.note)
        )
        above = build_plain_label(model.name, "title"), build_plain_label(words, "muted")
        self._known = _declare_model_fields(model)
        super().__init__(
            tr("Edit model"), self._known, tr("Save"), self._save_corrections, parent, above
        )
        self.reset = self.buttons.addButton(
            tr("Reset to the provider's values"), QDialogButtonBox.ButtonRole.ResetRole
        )
        self.reset.setAutoDefault(False)
        self.reset.clicked.connect(self.accept)

    def _save_corrections(self, values: Mapping[str, Value]) -> None:
        if values["max_output"] > values["window"]:  # type: ignore[operator]  # two numbers
            raise InvalidInput(tr("The longest reply cannot be larger than the context window."))
        if changes := {
            one.name: values[one.name] for one in self._known if values[one.name] != one.value
        }:
            self.corrected.emit(changes)


def _declare_model_fields(model: ModelChoice) -> list[FieldDeclaration]:
    dollars = tr("In dollars per million tokens.")
    unknown = "" if model.local else tr("unknown")
    reply, sampling = (
        tr("In tokens. 0 means the provider's default."),
        tr("This model supports temperature and top-p."),
    )
    unsure = tr(
        "This model can read images. (The provider does not report this. If it is wrong, clear the box.)"
    )
    images = tr("This model can read images.") if model.are_images_known else unsure
    return [
        FieldDeclaration(
            "window",
            tr("Context window"),
            tr("In tokens."),
            model.window,
            least=1_000,
            most=MOST_TOKENS,
        ),
        FieldDeclaration(
            "max_output", tr("Longest reply"), reply, model.max_output, most=MOST_TOKENS
        ),
        *(
            FieldDeclaration(
                at,
                tr(title),
                dollars,
                getattr(model, f"price_{at}"),
                most=MOST_DOLLARS,
                unset=unknown,
            )
            for at, title in read_shown_names()["price of a model"].items()
        ),
        FieldDeclaration("images", tr("Vision"), images, model.images),
        FieldDeclaration("tools", tr("Tools"), tr("This model can call tools."), model.tools),
        FieldDeclaration("temperature", tr("Temperature"), sampling, model.temperature),
    ]
