"""Shows a text that needs the user's consent, exactly: a command, arguments, rules.

All of it can be read, whatever its length: more lines are added as the reader scrolls. The widget
knows when the end has been shown, so that nobody agrees to what they cannot have seen.
"""

from collections.abc import Sequence
from itertools import islice

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QPaintEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QWidget

from helix_desktop.engine import hidden_characters
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr

LINES = 80  # No screen can show more lines than this.
SHORT = 12  # A text of fewer lines, with 50 characters per line, fits into every window.
_PIECE = 200  # The number of lines that are added at a time.


class ExactTextView(QPlainTextEdit):
    """As high as its lines if possible. `reading_state_changed`: text was added, or its
    end has been shown.
    """

    reading_state_changed = Signal()

    def __init__(
        self, theme: Theme, text: str, parent: QWidget, programs: Sequence[str] = ()
    ) -> None:
        """Shows the beginning of the text; further pieces follow as the user scrolls.
        Control characters and others that cannot be seen are marked. `programs`: the names of
        those that the text would start.
        """
        super().__init__(parent, readOnly=True, undoRedoEnabled=False, tabChangesFocus=True)
        self._theme = theme
        self._text = text
        self._lines = hidden_characters.marked_lines(text, programs)
        self._more = True  # True if more lines follow those that are shown.
        self._begun = False
        self._keeps_all_lines = False
        self._marks = 0
        self.is_end_seen = self._short = is_short_text(text)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Maximum)
        self.setProperty("look", "code")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFont(theme.monospaced_font())
        option = self.document().defaultTextOption()
        option.setTextDirection(Qt.LayoutDirection.LeftToRight)  # The first letter must not decide.
        self.document().setDefaultTextOption(option)
        self._append_next_piece_of_text()
        self.verticalScrollBar().valueChanged.connect(self._append_next_part_near_end)

    def describe_length_and_warnings(self) -> str:
        return describe_exact_text(self._text, self._marks, end_seen=self.is_end_seen)

    def keep_all_lines_in_sight(self) -> None:
        """Makes what it stands in grow with its lines, which are known once it has its width."""
        self._keeps_all_lines = True

    def show_next_part(self) -> None:
        bar = self.verticalScrollBar()
        bar.setValue(bar.value() + bar.pageStep())
        self._append_next_part_near_end()

    def sizeHint(self) -> QSize:
        shown_rows = min(max(self._count_visible_rows(), 1), LINES)
        return QSize(200, self._height_for_line_count(shown_rows))

    def minimumSizeHint(self) -> QSize:
        return QSize(100, self._height_for_line_count(1))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if event.oldSize().width() != event.size().width():
            if self._keeps_all_lines:
                self.setMinimumHeight(self.sizeHint().height())
            self.updateGeometry()

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        is_at_end = self._is_last_line_visible()
        # A short text counted as seen before its place was known. Now it is known.
        was_only_expected = self._short
        self._short = False
        if is_at_end == self.is_end_seen:
            return
        # What has been seen stays so when the reader scrolls back.
        if is_at_end or was_only_expected:
            self.is_end_seen = is_at_end
            self.reading_state_changed.emit()

    def _is_last_line_visible(self) -> bool:
        scroll_bar = self.verticalScrollBar()
        if self._more or scroll_bar.value() < scroll_bar.maximum():
            return False
        last_block = self.document().lastBlock()
        last_line = self.blockBoundingGeometry(last_block).translated(self.contentOffset())
        return last_line.bottom() <= self.viewport().height() + self.fontMetrics().descent()

    def _count_visible_rows(self) -> int:
        """Counts wrapped lines at this width, up to the number that can be shown at once."""
        height = 0.0
        for number in range(min(self.blockCount(), LINES)):
            block = self.document().findBlockByNumber(number)
            height += self.blockBoundingRect(block).height()
        return round(height / self.fontMetrics().lineSpacing())

    def _height_for_line_count(self, lines: int) -> int:
        return lines * self.fontMetrics().lineSpacing() + self._theme.zoomed_pixels(26)

    def _append_next_part_near_end(self) -> None:
        bar = self.verticalScrollBar()
        if self._more and bar.value() + 2 * bar.pageStep() >= bar.maximum():
            self._append_next_piece_of_text()

    def _append_next_piece_of_text(self) -> None:
        piece = list(islice(self._lines, _PIECE))
        self._more = len(piece) == _PIECE
        text = "\n".join(piece)
        self._marks += hidden_characters.count_marked_characters(text)
        if not self._begun:
            self._begun = True
            self.setPlainText(text)
        elif piece:
            end = QTextCursor(self.document())
            end.movePosition(QTextCursor.MoveOperation.End)
            end.insertText(f"\n{text}")
        self.reading_state_changed.emit()


def is_short_text(text: str) -> bool:
    """Whether a text can be seen at once in every window."""
    return len(text) < SHORT * 50 and text.count("\n") < SHORT


def describe_exact_text(text: str, marks: int, *, end_seen: bool) -> str:
    """Describes how long a text is that has not been in sight as a whole, the number of
    its visible marks, and whether there is more to read. Empty if there is nothing of these.
    """
    parts: list[str] = []
    if not end_seen:
        lines = text.removesuffix("\n").count("\n") + 1
        parts.append(format_count(lines, "{n} line", "{n} lines"))
        parts.append(format_count(len(text), "{n} character", "{n} characters"))
    if marks:
        parts.append(
            format_count(
                marks,
                "{n} hidden or look-alike character, marked ⟨…⟩",
                "{n} hidden or look-alike characters, marked ⟨…⟩",
            )
        )
    if not end_seen:
        parts.append(tr("scroll to the end to continue"))
    return " · ".join(parts)
