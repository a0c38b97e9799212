"""One widget for one declared value: made from its default, its choices and its range. All pages are made of these."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Signal
from PySide6.QtGui import QFocusEvent, QHideEvent, QWheelEvent
from PySide6.QtWidgets import (
    QAbstractSpinBox,
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QFontComboBox,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

Value = bool | int | float | str
Changed = Callable[[Value], object]
WIDE = 15  # heights of a line
WIDEST = 18  # that leave room for the words beside them
MARGIN = 7


@dataclass(frozen=True, slots=True)
class Declared:
    """What a field is made from. `words` are shown for `choices`, in the same order."""

    name: str
    title: str
    sentence: str
    value: Value
    choices: Sequence[str] = ()
    words: Sequence[str] = ()
    least: float = 0
    most: float = 0
    unit: str = ""
    unset: str = ""  # what a number shows at its least value, where that means that none is set
    long: bool = False  # a text of several lines, below its title
    font: str = ""  # "text" or "code": a font of the system


class LongText(QPlainTextEdit):
    """A text of several lines; `finished` when it is left, or the window closes."""

    finished = Signal()

    def __init__(self, text: str, parent: QWidget | None = None) -> None:
        super().__init__(text, parent)
        self.setTabChangesFocus(True)
        self._known = text

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self._finish()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._finish()

    def _finish(self) -> None:
        if self.toPlainText() != self._known:
            self._known = self.toPlainText()
            self.finished.emit()


class _Still:
    """A wheel that scrolls the page does not change what is chosen."""

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class Fonts(_Still, QFontComboBox):
    """The fonts of the system, by name; the first line is the default."""

    def __init__(self, declared: Declared, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        filters = QFontComboBox.FontFilter
        self.setFontFilters(filters.MonospacedFonts if declared.font == "code" else filters.ScalableFonts)
        self.setEditable(False)
        self.insertItem(0, declared.unset)
        self.setCurrentIndex(max(self.findText(str(declared.value)), 0) if declared.value else 0)


class Choice(_Still, QComboBox):
    """One of several."""


class Whole(_Still, QSpinBox):
    """A whole number."""


class Number(_Still, QDoubleSpinBox):
    """A number, without needless noughts."""

    def textFromValue(self, value: float) -> str:
        return self.locale().toString(value, "g", 6)


def field(declared: Declared, changed: Changed, parent: QWidget | None = None) -> QWidget:
    """The widget for a value; `changed` gets each new one."""
    widget = _made(declared, changed, parent)
    widget.setAccessibleName(declared.title or declared.sentence)
    widget.setAccessibleDescription(declared.sentence)
    widget.setObjectName(declared.name)
    if isinstance(widget, QAbstractSpinBox) and (line := widget.findChild(QLineEdit)) is not None:
        line.setTextMargins(MARGIN, 0, MARGIN, 0)  # the style sheet's padding does not reach it
    return widget


def _made(declared: Declared, changed: Changed, parent: QWidget | None) -> QWidget:
    value = declared.value
    if isinstance(value, bool):
        check = QCheckBox(parent)
        check.setChecked(value)
        check.toggled.connect(changed)
        return check
    if declared.choices:
        return _choice(declared, changed, parent)
    if isinstance(value, int):
        whole = Whole(parent)
        _limit(whole, declared)
        whole.setValue(value)
        whole.setKeyboardTracking(False)
        whole.valueChanged.connect(changed)
        return whole
    if isinstance(value, float):
        number, times = Number(parent), 100 if declared.most == 1 else 1  # a part of a whole is shown in percent
        number.setDecimals(1 if times > 1 else 3)
        number.setSingleStep(5 if times > 1 else 1)
        number.setRange(declared.least * times, declared.most * times)
        number.setSpecialValueText(declared.unset)
        number.setSuffix(tr("{n}%", n="") if times > 1 else f" {declared.unit}" if declared.unit else "")
        number.setValue(value * times)
        number.setKeyboardTracking(False)
        number.valueChanged.connect(lambda chosen: changed(chosen / times))
        return number
    return _written(declared, value, changed, parent)


def _written(declared: Declared, value: str, changed: Changed, parent: QWidget | None) -> QWidget:
    """A text, in the widget it is chosen or written in."""
    if declared.font:
        fonts = Fonts(declared, parent)
        fonts.activated.connect(lambda at: changed(fonts.itemText(at) if at else ""))
        return fonts
    if declared.long:
        text = LongText(value, parent)
        text.finished.connect(lambda: changed(text.toPlainText()))
        return text
    line = QLineEdit(value, parent)
    line.editingFinished.connect(lambda: changed(line.text()))
    return line


def _choice(declared: Declared, changed: Changed, parent: QWidget | None) -> Choice:
    choice = Choice(parent)
    for at, name in enumerate(declared.choices):
        choice.addItem(declared.words[at] if at < len(declared.words) else name, name)
    choice.setCurrentIndex(max(choice.findData(declared.value), 0))
    choice.activated.connect(lambda _at: changed(str(choice.currentData())))
    return choice


def _limit(whole: QSpinBox, declared: Declared) -> None:
    largest = 2**31 - 1
    whole.setRange(max(int(declared.least), -largest), min(int(declared.most) if declared.most else largest, largest))
    whole.setSuffix(f" {declared.unit}" if declared.unit else "")
    whole.setSpecialValueText(declared.unset)
    whole.setGroupSeparatorShown(True)
    whole.setSingleStep(max(10 ** (len(str(abs(int(declared.value)))) - 2), 1))


def row(declared: Declared, changed: Changed, parent: QWidget) -> QWidget:
    """Title and sentence at the left, the widget at the right; a long text, or a choice with long words, below them."""
    widget = field(declared, changed, parent)
    wide = 0 if isinstance(declared.value, bool) or declared.long else _wide(widget)
    below = declared.long or wide > WIDEST * widget.fontMetrics().height()
    if wide and not below:
        widget.setFixedWidth(wide)
    return labelled(declared.title, declared.sentence, widget, parent, below=below)


def labelled(title: str, sentence: str, widget: QWidget, parent: QWidget, *, below: bool = False) -> QWidget:
    """A widget with its words."""
    whole = QWidget(parent)
    whole.setProperty("look", "plain")
    line: QHBoxLayout | QVBoxLayout = QVBoxLayout(whole) if below else QHBoxLayout(whole)
    line.setContentsMargins(0, 7, 0, 7)
    line.setSpacing(6 if below else 16)
    words = QVBoxLayout()
    words.setSpacing(1)
    for text, look in ((title, ""), (sentence, "small")):
        if text:
            words.addWidget(plain_label(text, look, whole))
    line.addLayout(words, 1)
    line.addWidget(widget)
    return whole


def _wide(widget: QWidget) -> int:
    """Alike for all, and as large as the text is; a choice with long words shows them."""
    widget.ensurePolished()
    return max(WIDE * widget.fontMetrics().height(), widget.sizeHint().width())
