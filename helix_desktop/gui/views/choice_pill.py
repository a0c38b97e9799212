"""Buttons that show the current choice and open the choices: a model, or the policy."""

from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QWidget

from helix_desktop.gui.common.policy_names import list_named_presets, list_plain_choices
from helix_desktop.gui.common.widgets import add_menu_choice, build_popup_menu, open_menu_below
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr

MAX_CHOICE_LENGTH = 32  # Longer texts of choices are cut to this many characters.


class ChoicePill(QPushButton):
    """A button that shows the current choice. `choice_wanted`: the user wants another."""

    choice_wanted = Signal()

    def __init__(self, hint: str, parent: QWidget) -> None:
        super().__init__(parent, autoDefault=False)
        self._hint = hint
        self.setProperty("look", "pill")
        self.clicked.connect(self.open_choices)
        self.show_choice("")

    def show_choice(self, current: str, title: str = "") -> None:
        """Shows a choice by its `title`, or by its own name. Without any, the hint is shown."""
        self.current = current
        text = title or current or self._hint
        self._text = text
        if len(text) > MAX_CHOICE_LENGTH:
            half = MAX_CHOICE_LENGTH // 2
            beginning = text[:half]
            end = text[-(half - 1) :]
            self._text = f"{beginning}…{end}"
        self._set_pill_text(self._text)
        self.setAccessibleName(f"{self._hint}: {text}")
        self.setToolTip(safe_tooltip(f"{self._hint}: {text}"))

    def show_full_text_and_measure_width(self) -> int:
        self._set_pill_text(self._text)
        return self.sizeHint().width()

    def fit_pill_text(self, width: int) -> None:
        """Shortens the text in the middle to fit, since names differ at both ends."""
        missing_width = self.show_full_text_and_measure_width() - width
        if missing_width <= 0:
            return
        metrics = self.fontMetrics()
        text_width = metrics.horizontalAdvance(self._text) - missing_width
        elided = metrics.elidedText(self._text, Qt.TextElideMode.ElideMiddle, text_width)
        self._set_pill_text(elided)

    def open_choices(self) -> None:
        self.choice_wanted.emit()

    def _set_pill_text(self, text: str) -> None:
        # A single "&" would make the next letter a shortcut.
        escaped_text = text.replace("&", "&&")
        self.setText(f"{escaped_text} ▾")


class PolicyChoicePill(ChoicePill):
    """Opens its few choices as a menu. `chosen` carries a preset's name."""

    chosen = Signal(str)
    more_wanted = Signal()

    def open_choices(self) -> None:
        menu = build_popup_menu(self)
        for choices in (list_plain_choices(), list_named_presets()):
            for choice in choices:
                label = f"{choice.title} – {choice.brief}"
                choose = partial(self.chosen.emit, choice.preset)
                is_chosen = choice.preset == self.current
                add_menu_choice(menu, label, choose, chosen=is_chosen)
            menu.addSeparator()
        more = menu.addAction(tr("More…"))
        more.triggered.connect(self.more_wanted)
        open_menu_below(menu, self, gap=4)
