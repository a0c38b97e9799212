"""A box for the user's comment on a line, which is sent to the agent."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QWidget

from helix_desktop.gui.common.difference_rows import DifferenceLine
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button
from helix_desktop.gui.rows_and_columns import build_column, build_row
from helix_desktop.gui.theme import Theme, set_widget_look
from helix_desktop.gui.translation import tr


class _CommentTextEdit(QPlainTextEdit):
    sent = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if is_return and event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.sent.emit()
        else:
            super().keyPressEvent(event)


class CommentBox(QFrame):
    """`sent` carries the line's number and text, and the comment."""

    sent = Signal(int, str, str)
    cancelled = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        """Builds the box that opens below a line of a difference, for a comment to the
        agent.
        """
        super().__init__(parent)
        set_widget_look(self, "card")
        self.setCursor(Qt.CursorShape.ArrowCursor)
        self.line = DifferenceLine("", "")
        self._title = build_plain_label("", "small", self, wraps=False)
        self.words = _CommentTextEdit(self)
        self.words.setAccessibleName(tr("Comment for the agent"))
        self.words.setPlaceholderText(tr("What should the agent know about this line?"))
        self.words.sent.connect(self._send_comment)
        EscapeCloser(self, self.isVisible, self.cancelled.emit)
        send = build_push_button(tr("Send to agent"), self, self._send_comment, "primary")
        cancel = build_push_button(tr("Cancel"), self, self.cancelled.emit, "pill")
        buttons = build_row(send, cancel, 1)
        column = build_column(self._title, (self.words, 1), buttons, owner=self, spacing=4)
        theme.keep_lengths_scaled(self, column.setContentsMargins, 12, 8, 12, 8)

    def open_comment(self, line: DifferenceLine) -> None:
        self.show_line(line)
        self.words.clear()
        self.show()
        self.words.setFocus()

    def show_line(self, line: DifferenceLine) -> None:
        """Names the line that the comment is about. What is written stays."""
        self.line = line
        self._title.setText(tr("Line {number}", number=line.number))

    def _send_comment(self) -> None:
        comment = self.words.toPlainText().strip()
        if comment:
            self.sent.emit(self.line.number, self.line.text, comment)
