"""The page Chat: the transcript, the questions that wait for the user, the composer."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QKeyEvent, QResizeEvent, QTextCursor
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from helix_desktop.engine.facts import Text
from helix_desktop.gui.chat.approvals import Approvals
from helix_desktop.gui.chat.attachments import holds_files
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.chat.empty import EmptyChat
from helix_desktop.gui.chat.foreign import ForeignLine
from helix_desktop.gui.chat.next_steps import WayOn
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.pane import TranscriptPane

ABOVE, BELOW = 96, 560  # pixels: of the transcript beside a question, and of the question with the composer


class ChatPage(QWidget):
    """One page for all conversations: what it shows is changed, the widgets stay."""

    def __init__(
        self,
        theme: Theme,
        memory: Memory,
        transcript: TranscriptPane,
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self.setProperty("look", "page")
        self.setAcceptDrops(True)
        self.transcript = transcript
        self.approvals = Approvals(theme, {}, self)
        self.way_on = WayOn(theme, self)
        self.composer = Composer(theme, memory, self)
        self.foreign = ForeignLine(theme, self)
        self.approvals.left.connect(self.composer.text.setFocus)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        self.empty = EmptyChat(theme, self)
        self.empty.suggested.connect(self._suggest)
        self.empty.asked.connect(lambda words: self.composer.sent.emit((Text(words),), False))
        self._above = QStackedWidget(self)
        self._above.addWidget(transcript)
        self._above.addWidget(self.empty)
        whole.addWidget(self._above, 1)
        whole.addWidget(self.approvals)
        whole.addWidget(self.way_on)
        whole.addWidget(self.composer)
        whole.addWidget(self.foreign)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Where there is little room a question and the composer have it."""
        px = self._theme.px
        self._above.setMinimumSize(1, max(min(self.height() - px(BELOW), px(ABOVE)), 1))
        super().resizeEvent(event)

    def show_begun(self, name: str, *, begun: bool, scripted: bool = False) -> None:
        """The transcript, or, before the first message, what will be here. `name`: of the workspace. `scripted`: the built-in
        script is the model.
        """
        self.empty.show_name(name)
        self.empty.show_scripted(scripted=scripted)
        self._above.setCurrentWidget(self.transcript if begun else self.empty)

    def show_transcript(self) -> None:
        """It has begun."""
        self._above.setCurrentWidget(self.transcript)

    def show_writer(self, agent: str, machine: str = "") -> None:
        """Who writes here: the user, or a connected agent or another computer, and then there is no composer."""
        self.foreign.show_writer(agent, machine)
        self.composer.setVisible(not agent and not machine)
        self.way_on.elsewhere = bool(agent or machine)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        wanted = holds_files(event.mimeData()) or event.mimeData().hasText()
        if wanted and not self.composer.isHidden():
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        """Wherever it falls, it belongs to the message."""
        self.composer.text.insertFromMimeData(event.mimeData())
        event.acceptProposedAction()
        self.composer.text.setFocus()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Letters nobody else wants are a message: who read back, or was asked something, just goes on writing."""
        plain = not event.modifiers() & ~Qt.KeyboardModifier.ShiftModifier
        if plain and not self.composer.isHidden() and event.text().strip() and event.text().isprintable():
            self.composer.text.setFocus()
            self.composer.text.insertPlainText(event.text())
        else:
            super().keyPressEvent(event)

    def _suggest(self, words: str) -> None:
        self.composer.text.setPlainText(words)
        self.composer.text.moveCursor(QTextCursor.MoveOperation.End)
        self.composer.text.setFocus()
