"""Builds the widget for a declared value from its type, choices and range."""

import re
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from PySide6 import QtWidgets
from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QValidator, QWheelEvent

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.widgets import build_plain_label, build_surface
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.translation import format_percent, tr

Value = bool | int | float | str
ValueListener = Callable[[Value], object]
FIELD_WIDTH_IN_LINES = 15  # The width of all fields, in line heights.
TEXT_MARGIN = 7
# A field for several lines is so many lines high, and has so much room above and below, in pixels.
LEAST_LINES = 3
MOST_LINES = 12
LINES_MARGIN = 8


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
        policy = QtWidgets.QSizePolicy.Policy
        self.setSizePolicy(policy.Expanding, policy.Preferred)
        self.textChanged.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        """As high as its text, within limits: an empty field of many lines hides what follows."""
        wanted_lines = max(self.blockCount() + 1, LEAST_LINES)
        lines = min(wanted_lines, MOST_LINES)
        line_height = self.fontMetrics().lineSpacing()
        height = lines * line_height + 2 * LINES_MARGIN
        usual_width = super().sizeHint().width()
        return QSize(usual_width, height)

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
        filters = QtWidgets.QFontComboBox.FontFilter.ScalableFonts
        if declared.font == "code":
            filters = QtWidgets.QFontComboBox.FontFilter.MonospacedFonts
        self.setFontFilters(filters)
        self.setEditable(False)
        self.insertItem(0, declared.unset)
        chosen = 0
        if declared.value:
            # A font that was removed from the system is not in the list.
            chosen = max(self.findText(str(declared.value)), 0)
        self.setCurrentIndex(chosen)


class ChoiceField(_IgnoresWheel, QtWidgets.QComboBox):
    """One of several choices."""


class RefusedValueLine(QtWidgets.QLabel):
    """Below a field: which value was refused, and what is allowed, until another one is taken."""

    def __init__(self, parent: QtWidgets.QWidget) -> None:
        super().__init__(parent, wordWrap=True, textFormat=Qt.TextFormat.PlainText)
        self.setProperty("look", "danger")
        self.stops_saving = False  # Until a dialog has stayed open once, so that it is read.
        self.hide()

    def show_refused_value(self, typed: str, least: str, most: str) -> None:
        self.setText(
            tr(
                "{value} was not saved. Enter a number from {least} to {most}.",
                value=typed,
                least=least,
                most=most,
            )
        )
        self.stops_saving = True
        self.show()


class _StatesRange(_IgnoresWheel):
    """Lets anything be typed. When the field is left, a wrong value is replaced by the
    last, and the range is shown.
    """

    refused_line: RefusedValueLine | None = None  # Where a refused value is named, if anywhere.

    def validate(self, text: str, position: int) -> tuple[QValidator.State, str, int]:
        state: QValidator.State = super().validate(text, position)[0]  # type: ignore[misc]
        if state is QValidator.State.Invalid:  # Qt would refuse the key that was pressed.
            state = QValidator.State.Intermediate
        return state, text, position

    def fixup(self, text: str) -> str:
        field: Any = self
        least = field.textFromValue(field.minimum())
        most = f"{field.textFromValue(field.maximum())}{field.suffix()}"
        if self.refused_line is not None:
            self.refused_line.show_refused_value(text, least, most)
            return text
        words = tr("From {least} to {most}", least=least, most=most)
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
        group_sign = self.locale().groupSeparator()
        decimal_sign = self.locale().decimalPoint()
        group = re.escape(group_sign)
        not_a_number = rf"(?![\d{re.escape(group_sign + decimal_sign)}])"
        match = re.match(rf"(-?\d*){group}(\d*){not_a_number}", text)
        if match is None:
            return text
        is_group_of_thousands = len(match[2]) == 3 and match[1].lstrip("-0")
        if is_group_of_thousands:
            return text
        return f"{match[1]}{decimal_sign}{text[match.start(2) :]}"


def build_field(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget | None = None
) -> QtWidgets.QWidget:
    """Builds the widget for a value. `changed` is called with each new value."""
    widget = _build_value_widget(declared, changed, parent)
    widget.setAccessibleName(declared.title or declared.sentence)
    widget.setAccessibleDescription(declared.sentence)
    widget.setObjectName(declared.name)
    if isinstance(widget, QtWidgets.QAbstractSpinBox):
        # A spin box ignores the style sheet's padding for the line edit inside it.
        line = widget.findChild(QtWidgets.QLineEdit)
        if line is not None:
            line.setTextMargins(TEXT_MARGIN, 0, TEXT_MARGIN, 0)
    return widget


def _build_value_widget(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> QtWidgets.QWidget:
    """Chooses the widget that suits a setting's value: a check box, a list of choices,
    a text or a number. `changed` is called with each new value.
    """
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
    if isinstance(value, int):
        return _build_whole_number_field(declared, value, changed, parent)
    return _build_number_field(declared, value, changed, parent)


def _build_whole_number_field(
    declared: FieldDeclaration, value: int, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> WholeNumberField:
    """Builds a field for a whole number. An arrow changes about a tenth of it: 10 in
    100 to 999.
    """
    field = WholeNumberField(parent)
    largest = 2**31 - 1  # A spin box counts with 32 bits.
    least = max(int(declared.least), -largest)
    most = min(int(declared.most) or largest, largest)
    field.setRange(least, most)
    is_port = declared.name.endswith("port")  # A port is a name made of digits, no quantity.
    field.setGroupSeparatorShown(not is_port)
    digits = len(str(abs(value)))
    field.setSingleStep(max(10 ** (digits - 2), 1))
    field.setSpecialValueText(declared.unset)
    field.setSuffix(_suffix_of_unit(declared.unit))
    field.setKeyboardTracking(False)
    field.setValue(value)
    field.valueChanged.connect(changed)
    return field


def _build_number_field(
    declared: FieldDeclaration,
    value: float,
    changed: ValueListener,
    parent: QtWidgets.QWidget | None,
) -> NumberField:
    """Builds a field for a number with decimals. A share, between 0 and 1, is shown and
    typed in percent.
    """
    # A setting between 0 and 1 is shown as a percentage.
    is_share = declared.most == 1
    factor = 1
    decimals = 3
    step = 1
    unit = declared.unit
    if is_share:
        factor = 100
        decimals = 1
        step = 5
        unit = "%"
    field = NumberField(parent)
    field.setDecimals(decimals)
    field.setSingleStep(step)
    field.setSuffix(_suffix_of_unit(unit))
    field.setRange(declared.least * factor, declared.most * factor)
    field.setSpecialValueText(declared.unset)
    field.setKeyboardTracking(False)
    field.setValue(value * factor)
    field.valueChanged.connect(lambda shown_value: changed(shown_value / factor))
    return field


def _suffix_of_unit(unit: str) -> str:
    if unit == "%":
        return format_percent(0).lstrip("0")  # With a space in German, without one in English.
    if not unit:
        return ""
    return f" {unit}"


def _build_text_widget(
    declared: FieldDeclaration, value: str, changed: ValueListener, parent: QtWidgets.QWidget | None
) -> QtWidgets.QWidget:
    """Builds a field for a text: a list of fonts, several lines, or one line, which
    counts as changed when the user leaves it.
    """
    if declared.font:
        fonts = FontField(declared, parent)

        def change_font(index: int) -> None:
            if index == 0:
                changed("")  # The first line is the default.
            else:
                changed(fonts.itemText(index))

        fonts.activated.connect(change_font)
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
    field = ChoiceField(parent)
    # A choice without words of its own is shown by its name.
    for name, words in zip_longest(declared.choices, declared.words):
        field.addItem(words or name, name)
    index_of_value = field.findData(declared.value)
    # A value that is not among the choices shows the first one.
    field.setCurrentIndex(max(index_of_value, 0))
    field.activated.connect(lambda _index: changed(str(field.currentData())))
    return field


def build_field_row(
    declared: FieldDeclaration, changed: ValueListener, parent: QtWidgets.QWidget
) -> QtWidgets.QWidget:
    """Builds a row: title and sentence on the left, the field on the right, or below if long."""
    widget = build_field(declared, changed, parent)
    if not (isinstance(declared.value, bool) or declared.long):
        # All fields have the same width, in proportion to the text size. Only a choice
        # with long texts may be wider.
        widget.ensurePolished()
        usual_width = FIELD_WIDTH_IN_LINES * widget.fontMetrics().height()
        most_width = max(usual_width, widget.sizeHint().width())
        widget.setMaximumWidth(most_width)
    widget.setProperty("setting", True)
    row = build_labelled_row(declared.title, declared.sentence, widget, parent, below=declared.long)
    if not isinstance(widget, WholeNumberField | NumberField):
        return row
    whole = build_surface(parent, "plain")
    widget.refused_line = RefusedValueLine(whole)
    widget.valueChanged.connect(widget.refused_line.hide)
    build_column(row, widget.refused_line, owner=whole, margins=0, spacing=0)
    return whole


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
    whole = build_surface(parent, "plain")
    words = build_surface(whole, "plain")
    labels: list[QtWidgets.QLabel] = []
    if title:
        labels.append(build_plain_label(title, "", words))
    if sentence:
        labels.append(build_plain_label(sentence, "small", words))
    build_column(*labels, owner=words, margins=0, spacing=1)
    if labels:
        labels[0].setBuddy(widget)  # On Linux, screen readers find no other name for the field.
    margins = (0, 7, 0, 7)
    if below:
        build_column((words, 1), widget, owner=whole, margins=margins, spacing=6)
    else:
        build_row((words, 1), widget, owner=whole, margins=margins, spacing=16, wraps=True)
    return whole
