"""Builds the widget for a declared value from its type, choices and range."""

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from PySide6 import QtWidgets
from PySide6.QtCore import Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QValidator, QWheelEvent

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import format_percent, tr

Value = bool | int | float | str
ValueListener = Callable[[Value], object]
FIELD_WIDTH_IN_LINES = 15  # The width of all fields, in line heights.
TEXT_MARGIN = 7


@dataclass(frozen=True, slots=True)
class FieldDeclaration:
    """Describes a field. `words` are the labels of `choices`, in the same order."""

    name: str
    title: str
    sentence: str
    value: Value
    choices: Sequence[str] = ()
    words: Sequence[str] = ()
    least: float = 0
    most: float = 0
    unit: str = ""
    unset: str = ""  # If set, a number field shows this text at its minimum.
    long: bool = (
        False  # True for text with several lines. The field is then placed below the title.
    )
    font: str = ""  # "text" or "code" if the user chooses from the system's fonts of that kind.


class LongTextField(QtWidgets.QPlainTextEdit):
    """A field for several lines. `finished`: it lost the focus or was hidden."""

    finished = Signal()

    def __init__(self, text: str, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(text, parent, tabChangesFocus=True)
        self._reported_text = text

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.report_changed_text()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.report_changed_text()

    def report_changed_text(self) -> None:
        if self.toPlainText() != self._reported_text:
            self._reported_text = self.toPlainText()
            self.finished.emit()


class _IgnoresWheel:
    """Ignores the mouse wheel, so that scrolling the page changes no value."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class FontField(_IgnoresWheel, QtWidgets.QFontComboBox):
    """The system's fonts by name. The first line is the default."""

    def __init__(self, declared: FieldDeclaration, parent: QtWidgets.QWidget | None = None) -> None:
        super().__init__(parent)
        filters = QtWidgets.QFontComboBox.FontFilter
        self.setFontFilters(
            filters.MonospacedFonts if declared.font == "code" else filters.ScalableFonts
        )
        self.setEditable(False)
        self.insertItem(0, declared.unset)
        self.setCurrentIndex(max(self.findText(str(declared.value)), 0) if declared.value else 0)


class ChoiceField(_IgnoresWheel, QtWidgets.QComboBox):
    """One of several choices."""


class _StatesRange(_IgnoresWheel):
    """Lets anything be typed. When the field is left, a wrong value is replaced by the
    last, and the range is shown.
    """

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        state: QValidator.State = super().validate(text, position)[0]  # type: ignore[misc]
        sure = QValidator.State.Acceptable
        return (sure if state is sure else QValidator.State.Intermediate), text, position

    def fixup(self, text: str) -> str:
        field: Any = self
        least, most = (field.textFromValue(end) for end in (field.minimum(), field.maximum()))
        words = tr("From {least} to {most}", least=least, most=f"{most}{field.suffix()}")
        QtWidgets.QToolTip.showText(field.mapToGlobal(field.rect().bottomLeft()), words, field)
        return text


class WholeNumberField(_StatesRange, QtWidgets.QSpinBox):
    """A whole number. Qt would make 15 of “1,5”; here, the field goes back to its last value."""

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        if re.search(rf"{re.escape(self.locale().groupSeparator())}(?!\d{{3}}(?!\d))", text):
            return QValidator.State.Intermediate, text, position
        return super().validate(text, position)


class NumberField(_StatesRange, QtWidgets.QDoubleSpinBox):
    """A number without trailing zeros. In “0,5”, the comma is a decimal sign in English, too."""

    def textFromValue(self, value: float) -> str:
        return self.locale().toString(value, "g", 6)

    def valueFromText(self, text: str) -> float:
        return super().valueFromText(self._with_decimal_sign(text))

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        return super().validate(self._with_decimal_sign(text), position)[0], text, position

    def _with_decimal_sign(self, text: str) -> str:
        """Replaces a group sign that is not followed by a group. Qt drops it, which
        makes 5 of 0.5.
        """
        group, point = self.locale().groupSeparator(), self.locale().decimalPoint()
        found = re.match(rf"(-?\d*){re.escape(group)}(\d*)(?![\d{re.escape(group + point)}])", text)
        if found is None or (len(found[2]) == 3 and found[1].lstrip("-0")):
            return text
        return f"{found[1]}{point}{text[found.start(2) :]}"


def build_field(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget | None = None
) -> QtWidgets.QWidget:
    """Builds the widget for a value. `changed` is called with each new value."""
    widget = _build_value_widget(declared, changed, parent)
    widget.setAccessibleName(declared.title or declared.sentence)
    widget.setAccessibleDescription(declared.sentence)
    widget.setObjectName(declared.name)
    if (
        isinstance(widget, QtWidgets.QAbstractSpinBox)
        and (line := widget.findChild(QtWidgets.QLineEdit)) is not None
    ):
        # A spin box ignores the style sheet's padding for the line edit inside it.
        line.setTextMargins(TEXT_MARGIN, 0, TEXT_MARGIN, 0)
    return widget


def _build_value_widget(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> QtWidgets.QWidget:
    value = declared.value
    if isinstance(value, bool):
        check = QtWidgets.QCheckBox(parent)
        check.setChecked(value)
        check.toggled.connect(changed)
        return check
    if declared.choices:
        return _build_choice_field(declared, changed, parent)
    if isinstance(value, str):
        return _build_text_widget(declared, value, changed, parent)
    return _build_number_field(declared, value, changed, parent)


def _build_number_field(
    declared: FieldDeclaration,
    value: float,
    changed: ValueListener,
    parent: QtWidgets.QWidget | None,
) -> QtWidgets.QWidget:
    field: Any = WholeNumberField(parent) if isinstance(value, int) else NumberField(parent)
    # A setting between 0 and 1 is shown as a percentage.
    largest, times = 2**31 - 1, 100 if isinstance(value, float) and declared.most == 1 else 1
    if isinstance(value, int):
        field.setRange(
            max(int(declared.least), -largest), min(int(declared.most) or largest, largest)
        )
        field.setGroupSeparatorShown(True)
        field.setSingleStep(max(10 ** (len(str(abs(value))) - 2), 1))
    else:
        field.setDecimals(1 if times > 1 else 3)
        field.setSingleStep(5 if times > 1 else 1)
        field.setRange(declared.least * times, declared.most * times)
    field.setSpecialValueText(declared.unset)
    is_share = times > 1 or declared.unit == "%"
    field.setSuffix(format_percent(0).lstrip("0") if is_share else f" {declared.unit}".rstrip())
    field.setKeyboardTracking(False)
    field.setValue(value * times)
    field.valueChanged.connect(lambda chosen: changed(chosen / times if times > 1 else chosen))
    return field  # type: ignore[no-any-return]


def _build_text_widget(
    declared: FieldDeclaration, value: str, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> QtWidgets.QWidget:
    if declared.font:
        fonts = FontField(declared, parent)
        fonts.activated.connect(lambda at: changed(fonts.itemText(at) if at else ""))
        return fonts
    if declared.long:
        text = LongTextField(value, parent)
        text.finished.connect(lambda: changed(text.toPlainText()))
        return text
    line = QtWidgets.QLineEdit(value, parent)
    line.editingFinished.connect(lambda: changed(line.text()))
    return line


def _build_choice_field(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> ChoiceField:
    choice = ChoiceField(parent)
    for at, name in enumerate(declared.choices):
        choice.addItem(declared.words[at] if at < len(declared.words) else name, name)
    choice.setCurrentIndex(max(choice.findData(declared.value), 0))
    choice.activated.connect(lambda _at: changed(str(choice.currentData())))
    return choice


def build_field_row(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget
) -> QtWidgets.QWidget:
    """Builds a row: title and sentence on the left, the field on the right, or below if long."""
    widget = build_field(declared, changed, parent)
    if not (isinstance(declared.value, bool) or declared.long):
        # All fields have the same width, in proportion to the text size. Only a choice
        # with long texts may be wider.
        widget.ensurePolished()
        widget.setMaximumWidth(
            max(FIELD_WIDTH_IN_LINES * widget.fontMetrics().height(), widget.sizeHint().width())
        )
    widget.setProperty("setting", True)
    return build_labelled_row(
        declared.title, declared.sentence, widget, parent, below=declared.long
    )


def build_labelled_row(
    title: str,
    sentence: str,
    widget: QtWidgets.QWidget,
    parent: QtWidgets.QWidget,
    *,
    below: bool = False,
) -> QtWidgets.QWidget:
    """Builds a row. With `below`, or if there is no room beside the words, the widget
    is placed below them.
    """
    whole, words = build_surface(parent, "plain"), build_surface(parent, "plain")
    column = build_column(owner=words, margins=0, spacing=1)
    for text, look in ((title, ""), (sentence, "small")):
        if text:
            column.addWidget(label := build_plain_label(text, look, words))
            if text == (title or sentence):
                label.setBuddy(widget)  # On Linux, screen readers find no other name for the field.
    build_line = build_column if below else partial(build_row, wraps=True)
    build_line((words, 1), widget, owner=whole, margins=(0, 7, 0, 7), spacing=6 if below else 16)
    return whole
