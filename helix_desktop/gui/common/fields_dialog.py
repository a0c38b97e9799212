"""A dialog of declared fields, to create something or to change its values."""

from collections.abc import Callable, Sequence
from functools import partial

from PySide6.QtGui import QResizeEvent, QTextCursor
from PySide6.QtWidgets import QComboBox, QWidget

from helix_desktop.errors import HelixError
from helix_desktop.gui.common.setting_fields import (
    FieldDeclaration,
    LongTextField,
    NumberField,
    Value,
    WholeNumberField,
    build_field_row,
)
from helix_desktop.gui.common.widgets import (
    TransientDialog,
    build_confirm_buttons,
    build_plain_label,
)
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.sentence_translation import translate_sentences

MARGIN = 20


class FieldsDialog(TransientDialog):
    """`save` gets the values by field name. If it refuses them, the dialog shows why
    and stays open.
    """

    def __init__(
        self,
        title: str,
        fields: Sequence[FieldDeclaration],
        yes: str,
        save: Callable[[dict[str, Value]], object],
        parent: QWidget,
        above: Sequence[QWidget] = (),
    ) -> None:
        """Builds a field for each declaration. `save` gets all values; if it raises,
        the dialog stays open and says why. `above`: what stands above the fields.
        """
        super().__init__(title, parent, 600)
        self.values = {field.name: field.value for field in fields}
        self._save = save
        self._widest_choice = 0
        self.trouble = build_plain_label("", "danger", self)
        self.buttons = build_confirm_buttons(self, yes, self._save_values_and_close)
        column = build_column(*above, owner=self, margins=MARGIN)
        for field in fields:
            keep_value = partial(self.values.__setitem__, field.name)
            column.addWidget(build_field_row(field, keep_value, self))
        self._align_choices()
        self._focus_first_field(fields)
        column.addStretch(1)
        column.addWidget(self.trouble)
        column.addWidget(self.buttons)

    def _align_choices(self) -> None:
        """Gives all choices the width of the widest, so that they begin below each other, but no
        more than the dialog has.
        """
        choices = self.findChildren(QComboBox)
        for choice in choices:
            self._widest_choice = max(self._widest_choice, choice.maximumWidth())
        # A model may have a very long name, which the choice then cuts off.
        width = min(self._widest_choice, self.width() - 2 * MARGIN)
        for choice in choices:
            choice.setFixedWidth(width)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align_choices()

    def _focus_first_field(self, fields: Sequence[FieldDeclaration]) -> None:
        """Without this, the main button has the focus, and a typed space presses it."""
        if not fields:
            return
        first_field = self.findChild(QWidget, fields[0].name)
        if first_field is not None:
            first_field.setFocus()
        if isinstance(first_field, LongTextField):
            # Who writes on or presses Return does not mean the place before the text.
            first_field.moveCursor(QTextCursor.MoveOperation.End)

    def _save_values_and_close(self) -> None:
        self.setFocus()  # The field being edited accepts the typed value when it loses the focus.
        for text in self.findChildren(LongTextField):
            text.report_changed_text()
        if self._is_refused_value_unread():
            return
        try:
            self._save(self.values)
        except HelixError as error:
            self.trouble.setText(translate_sentences(str(error)))
        else:
            self.accept()

    def _is_refused_value_unread(self) -> bool:
        """Whether a typed value was not taken, which the dialog would hide by closing. Whoever
        saves again agrees to the value that is there instead.
        """
        is_unread = False
        fields: list[WholeNumberField | NumberField] = []
        fields.extend(self.findChildren(WholeNumberField))
        fields.extend(self.findChildren(NumberField))
        for field in fields:
            refused_line = field.refused_line
            if refused_line is None:
                continue
            if refused_line.isVisible() and refused_line.stops_saving:
                is_unread = True
                field.setFocus()
                field.selectAll()
            refused_line.stops_saving = False
        return is_unread
