"""Shows a change that needs permission: every line exactly, and whether its end has been shown."""

from collections.abc import Sequence

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence, QPaintEvent
from PySide6.QtWidgets import QAbstractSlider, QSizePolicy, QWidget

from helix_desktop.engine import hidden_characters
from helix_desktop.gui.common.consent_text_view import ExactTextView, describe_exact_text
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.code_highlighting import highlight_language_of
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.difference_view import DifferenceView

LEAST = 2  # The minimum number of visible lines.
END = 6  # The pixels below the last line.
LONGEST_NAME_IN_TITLE = 60  # In letters: this much stands in the title of every question.
LARGEST = 1 << 20  # A change of more characters is shown as text and loaded in pieces.


class ExactDifferenceView(DifferenceView):
    """`reading_state_changed`: the end of the change has been shown."""

    reading_state_changed = Signal()

    def __init__(self, theme: Theme, text: str, title: str, parent: QWidget) -> None:
        """`title`: that of the question, which names the file."""
        super().__init__(theme, parent)
        self._text = text
        self.tail = END
        self.is_end_seen = False
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.fits = len(text) <= LARGEST and self.show_patch(
            text,
            language=highlight_language_of(title),
            known_file=find_file_named_in_title(text, title),
        )
        self._marks = 0
        for line in self.shown_lines:
            self._marks += hidden_characters.count_marked_characters(line.text)
        if self.fits:
            self.setAccessibleDescription(hidden_characters.mark_text(text))

    def describe_length_and_warnings(self) -> str:
        """A warning if something is hidden, and how long it is if not all has been shown."""
        lines = [line.text for line in self.shown_lines if line.mark]
        description = describe_exact_text("\n".join(lines), self._marks, end_seen=self.is_end_seen)
        if self.is_end_seen:
            return description
        return tr("The changed lines and those around them: {length}", length=description)

    def show_next_part(self) -> None:
        self.verticalScrollBar().triggerAction(QAbstractSlider.SliderAction.SliderPageStepAdd)

    def sizeHint(self) -> QSize:
        height_of_frame = self.height() - self.viewport().height()
        return QSize(200, self.content_height + height_of_frame)

    def minimumSizeHint(self) -> QSize:
        height_of_lines = round(LEAST * self._ink.code_line_height)
        return QSize(100, height_of_lines + self._ink.scaled_pixels(self.tail))

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        bar = self.verticalScrollBar()
        if not self.is_end_seen and bar.value() == bar.maximum():
            self.is_end_seen = True
            self.reading_state_changed.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and not self.selected_text():
            QGuiApplication.clipboard().setText(self._text)
        else:
            super().keyPressEvent(event)


def find_file_named_in_title(text: str, title: str) -> str:
    """Returns the file of a change if the title ends with its whole name, so that it need not be
    repeated above the lines. A long name may be cut in the title.
    """
    name = text.partition("\n")[0].removeprefix("--- ")
    if name and len(name) <= LONGEST_NAME_IN_TITLE and title.endswith(f" {name}"):
        return name
    return ""


def build_exact_preview(
    theme: Theme,
    text: str,
    title: str,
    parent: QWidget,
    *,
    is_command: bool,
    programs: Sequence[str] = (),
) -> ExactTextView | ExactDifferenceView:
    """Builds what every question shows: the change of a file with its lines and colours,
    anything else as text. `title`: that of the question, which names the file. `programs`: the
    names of those that a command would start.
    """
    if not is_command and text.startswith("--- "):
        difference = ExactDifferenceView(theme, text, title, parent)
        if difference.fits:
            return difference
        difference.setParent(None)
    return ExactTextView(theme, text, parent, programs)
