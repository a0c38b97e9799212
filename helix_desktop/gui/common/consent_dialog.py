"""Asks before something from elsewhere takes effect: shows it exactly, and agrees once it was seen."""

from collections.abc import Callable

from PySide6.QtWidgets import QDialogButtonBox, QPushButton, QSizePolicy, QWidget

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.consent_text_view import ExactTextView, is_short_text
from helix_desktop.gui.common.widgets import TransientDialog, build_plain_label
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme, make_default_button
from helix_desktop.gui.translation import tr

# The size of the dialog, in pixels at the usual text size.
WIDTH = 720
HEIGHT = 420
MARGIN = 20


@dataclass(frozen=True, slots=True)
class ConsentQuestion:
    """`text`: exactly what takes effect. `yes`, `no` and `later` are the words on the buttons."""

    title: str
    sentence: str
    text: str
    yes: str
    no: str = ""
    later: str = ""


class ConsentDialog(TransientDialog):
    """`agreed` is called for `yes`, `refused` for `no`. To close the dialog decides nothing."""

    def __init__(
        self,
        theme: Theme,
        question: ConsentQuestion,
        parent: QWidget,
        agreed: Callable[[], object],
        refused: Callable[[], object] = bool,
    ) -> None:
        """Shows all of the text that the user is to agree to. The button that agrees
        waits until the end of the text has been in sight. `agreed` and `refused` are
        called after the answer; nothing is called if the dialog is closed.
        """
        is_short = is_short_text(question.text)
        height = HEIGHT
        if is_short:
            height = 0  # As high as its contents.
        super().__init__(question.title, parent, WIDTH, height)
        sentence = build_plain_label(question.sentence, "", self)
        self._text = ExactTextView(theme, question.text, self)
        if is_short:
            self._text.keep_all_lines_in_sight()
        else:
            self._text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self._text.setAccessibleName(tr("Exactly what you allow"))
        self._text.reading_state_changed.connect(self._update_as_text_is_read)
        self._length = build_plain_label("", "faint", self)

        self._agree = QPushButton(question.yes, self)
        self._agree.clicked.connect(lambda: self._decide(agreed))
        buttons = QDialogButtonBox(self)
        buttons.addButton(self._agree, QDialogButtonBox.ButtonRole.AcceptRole)
        if question.no:
            refuse = buttons.addButton(question.no, QDialogButtonBox.ButtonRole.DestructiveRole)
            refuse.clicked.connect(lambda: self._decide(refused))
        label_of_later = question.later or tr("Cancel")
        later = buttons.addButton(label_of_later, QDialogButtonBox.ButtonRole.RejectRole)
        # Enter must not agree to what nobody has looked at.
        make_default_button(later)
        buttons.rejected.connect(self.reject)
        text = (self._text, 1)
        build_column(sentence, text, self._length, buttons, owner=self, margins=MARGIN, spacing=12)
        self._update_as_text_is_read()

    def _decide(self, act: Callable[[], object]) -> None:
        self.accept()
        act()

    def _update_as_text_is_read(self) -> None:
        words = self._text.describe_length_and_warnings()
        self._length.setText(words)
        self._length.setVisible(bool(words))
        self._agree.setEnabled(self._text.is_end_seen)
