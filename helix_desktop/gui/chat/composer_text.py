"""The composer's text: grows to ten lines, sends, walks its history, takes files, completes."""

import sys
from collections.abc import Sequence

from PySide6.QtCore import QEvent, QMimeData, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QFocusEvent, QInputMethodEvent, QKeyEvent, QKeySequence, QTextCursor
from PySide6.QtWidgets import QFrame, QPlainTextEdit, QSizePolicy, QWidget

from helix_desktop.gui.chat import completion_list
from helix_desktop.gui.chat.attachment_chips import has_files_or_picture
from helix_desktop.gui.common.escape_key import EscapeCloser
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import tr

LINES = 10  # The text grows to so many lines.
PASTED = 20_000  # A paste of more characters becomes an attachment, as wrapping it would be slow.
KEPT = 200
ALT_WRITES = sys.platform == "darwin"  # On a Mac, the Alt key is used to type special characters.


class ComposerTextEdit(QPlainTextEdit):
    """The composer's text. `sending` carries whether to interrupt the agent."""

    sending = Signal(bool)
    offers_wanted = Signal(object)
    offer_taken = Signal(object)
    files_given = Signal(object)
    long_pasted = Signal(str)
    focused = Signal(bool)
    queued_message_wanted = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        """Sets up an empty text field that grows with its text."""
        super().__init__(parent, tabChangesFocus=True)
        self._theme = theme
        self._composing = False
        self._history: list[str] = []
        # The sent message that is shown, or the number of them where it is the user's own text.
        self._history_index = 0
        self._unsent = ""  # The user's own text while a sent message is shown.
        self.has_queued_messages = False
        self.enter_sends = True
        self.completion: completion_list.CompletionList | None = None
        self._asked: completion_list.CompletionRequest | None = None
        self.setProperty("look", "bare")
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAsNeeded)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Message"))
        self.document().setDocumentMargin(0)
        self.textChanged.connect(self._leave_history_and_update_height)
        self.cursorPositionChanged.connect(self._request_or_close_completion)
        theme.changed.connect(self.updateGeometry)

    def sizeHint(self) -> QSize:
        line_height = self.fontMetrics().lineSpacing()
        shown_lines = min(max(self._count_wrapped_lines(), 1), LINES)
        height = shown_lines * line_height + self._theme.zoomed_pixels(3)
        return QSize(200, height)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, self.fontMetrics().lineSpacing() + 3)

    def _count_wrapped_lines(self) -> int:
        """Counts wrapped lines, up to the number that can be shown."""
        lines = 0
        block = self.document().firstBlock()
        while block.isValid() and lines <= LINES:
            lines += max(block.lineCount(), 1)
            block = block.next()
        return lines

    # --- Bringing back sent messages with the arrow keys

    def set_sent_messages(self, sent: list[str]) -> None:
        """Sets the messages that were sent before, oldest first."""
        self._history = sent[-KEPT:]
        self._history_index = len(self._history)

    def _walk_sent_messages(self, steps: int) -> None:
        if self._history_index == len(self._history):
            self._unsent = self.toPlainText()
        new_index = min(max(self._history_index + steps, 0), len(self._history))
        text = self._unsent
        if new_index < len(self._history):
            text = self._history[new_index]
        self.setPlainText(text)
        # After the text, because a change of it sets this to the end.
        self._history_index = new_index
        self.moveCursor(QTextCursor.MoveOperation.End)

    def _is_cursor_at_edge(self, *, top: bool) -> bool:
        """Whether the cursor is in the first or last wrapped line, so an arrow leaves the text."""
        direction = QTextCursor.MoveOperation.Down
        if top:
            direction = QTextCursor.MoveOperation.Up
        probe = QTextCursor(self.textCursor())
        return not probe.movePosition(direction)

    def inputMethodEvent(self, event: QInputMethodEvent) -> None:
        self._composing = bool(event.preeditString())
        super().inputMethodEvent(event)

    def event(self, event: QEvent) -> bool:
        """Leaves Ctrl+End to the window where the cursor is at the end of the text already."""
        is_key_for_window = event.type() == QEvent.Type.ShortcutOverride
        if is_key_for_window and isinstance(event, QKeyEvent):
            goes_to_end = event.matches(QKeySequence.StandardKey.MoveToEndOfDocument)
            if goes_to_end and self.textCursor().atEnd():
                event.ignore()
                return True
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # While an input method composes a character, the keys are for that.
        if not self._composing and self._handle_own_key(event):
            return
        is_alt_alone = event.modifiers() == Qt.KeyboardModifier.AltModifier
        if is_alt_alone and event.text() and not ALT_WRITES:
            event.ignore()  # The shortcut of a disabled action must not become text.
            return
        super().keyPressEvent(event)

    def _handle_own_key(self, event: QKeyEvent) -> bool:
        """Does what a key does here but not in other text fields. Returns whether it did anything."""
        if self._use_key_for_completion(event):
            return True
        if self._send_or_break_line(event):
            return True
        return self._walk_history_by_key(event)

    def focusNextPrevChild(self, forward: bool) -> bool:  # noqa: FBT001 - Qt's
        """Lets Tab accept a suggestion while some are shown."""
        if self.completion is not None and self.completion.isVisible():
            return False
        return super().focusNextPrevChild(forward)

    def _use_key_for_completion(self, event: QKeyEvent) -> bool:
        popup = self.completion
        if popup is None or not popup.isVisible():
            return False
        key = event.key()
        if key == Qt.Key.Key_Down:
            popup.setCurrentRow((popup.currentRow() + 1) % popup.count())
        elif key == Qt.Key.Key_Up:
            popup.setCurrentRow((popup.currentRow() - 1) % popup.count())
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Tab):
            popup.choose_current_offer()
        else:
            return False
        return True

    def _send_or_break_line(self, event: QKeyEvent) -> bool:
        if event.key() not in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            return False
        modifiers = event.modifiers()
        has_control = bool(modifiers & Qt.KeyboardModifier.ControlModifier)
        has_shift = bool(modifiers & Qt.KeyboardModifier.ShiftModifier)
        breaks_line = has_shift or (not self.enter_sends and not has_control)
        if breaks_line:
            self.insertPlainText("\n")
            self.ensureCursorVisible()
        else:
            is_steering = has_control and self.enter_sends
            self.sending.emit(is_steering)
        return True

    def _walk_history_by_key(self, event: QKeyEvent) -> bool:
        """Brings back an earlier message with the arrow keys, as a terminal does. "Up"
        in an empty field first takes the last queued message back. Returns whether the
        key did anything.
        """
        # Some systems report the arrow keys as keys of the number pad.
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if modifiers or event.key() not in (Qt.Key.Key_Up, Qt.Key.Key_Down):
            return False
        goes_up = event.key() == Qt.Key.Key_Up
        is_at_own_text = self._history_index >= len(self._history)
        # In a text that the user is writing, the arrow keys only move the cursor.
        is_written_by_user = bool(self.toPlainText()) and is_at_own_text
        if is_written_by_user or not self._is_cursor_at_edge(top=goes_up):
            return False
        if not goes_up and is_at_own_text:
            return False

        if not goes_up:
            self._walk_sent_messages(1)
        elif self.has_queued_messages and is_at_own_text:
            # The message is taken out of the queue. A copy would be sent twice.
            self.queued_message_wanted.emit()
        else:
            self._walk_sent_messages(-1)
        return True

    def canInsertFromMimeData(self, source: QMimeData) -> bool:
        return has_files_or_picture(source) or super().canInsertFromMimeData(source)

    def insertFromMimeData(self, source: QMimeData) -> None:
        if has_files_or_picture(source):
            self.files_given.emit(source)
        elif source.hasText() and len(source.text()) > PASTED:
            self.long_pasted.emit(source.text())
        else:
            super().insertFromMimeData(source)

    def show_completion_offers(
        self,
        request: completion_list.CompletionRequest,
        offers: Sequence[completion_list.CompletionOffer],
    ) -> None:
        """Shows the offers for a request above the box, unless the text has changed since."""
        if request != self._asked:
            return
        if self.completion is None:
            self.completion = completion_list.CompletionList(self._theme, self.window())
            self.completion.offer_chosen.connect(self._insert_chosen_offer)
            EscapeCloser(self, self.completion.isVisible, self.completion.hide)
        box = self.parentWidget() or self
        bottom_left = box.mapTo(self.window(), QPoint(0, -4))
        width = min(box.width(), self._theme.zoomed_pixels(480))
        self.completion.show_offers(offers, bottom_left, width)

    def _insert_chosen_offer(self, offer: completion_list.CompletionOffer) -> None:
        request = self._asked
        self._asked = None
        if request is not None:
            length_of_trigger = 1
            end = request.start + length_of_trigger + len(request.typed_letters)
            cursor = self.textCursor()
            cursor.setPosition(request.start)
            cursor.setPosition(end, QTextCursor.MoveMode.KeepAnchor)
            cursor.insertText(offer.inserted_text)
            self.setTextCursor(cursor)
            self._asked = None  # The inserted text may look like the start of another request.
        if offer.value is not None:
            self.offer_taken.emit(offer)

    def _leave_history_and_update_height(self) -> None:
        if self.hasFocus() or not self.toPlainText():
            self._history_index = len(self._history)
        # The widgets around the text must then move.
        if self.sizeHint().height() != self.height():
            self.updateGeometry()

    def _request_or_close_completion(self) -> None:
        block = self.textCursor().block()
        if block.length() > PASTED:
            return
        request = self._find_request_at_cursor()
        self._asked = request
        if request is not None:
            self.offers_wanted.emit(request)
        elif self.completion is not None:
            self.completion.hide()

    def _find_request_at_cursor(self) -> completion_list.CompletionRequest | None:
        """Returns what is asked for at the cursor. Its start is that in the whole text."""
        block = self.textCursor().block()
        request = completion_list.find_completion_request(
            block.text(), self.textCursor().positionInBlock()
        )
        if request is None:
            return None
        # Only the first line can be a slash command.
        is_first_line = block.position() == 0
        if request.trigger == "/" and not is_first_line:
            return None
        start_in_text = request.start + block.position()
        return completion_list.CompletionRequest(
            request.trigger, request.typed_letters, start_in_text
        )

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focused.emit(False)
        if self.completion is not None:
            self.completion.hide()
