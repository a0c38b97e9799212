"""The page Chat: the transcript, the questions that wait for the user, the composer."""

from __future__ import annotations

from collections.abc import Mapping

from PySide6.QtWidgets import QVBoxLayout, QWidget

from helix_desktop.gui.approvals import Approvals
from helix_desktop.gui.composer import Composer
from helix_desktop.gui.memory import Memory
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.pane import TranscriptPane


class ChatPage(QWidget):
    """One page for all conversations: what it shows is changed, the widgets stay."""

    def __init__(
        self,
        theme: Theme,
        memory: Memory,
        transcript: TranscriptPane,
        keys: Mapping[str, str],
        parent: QWidget | None = None,
    ) -> None:
        super().__init__(parent)
        self.setProperty("look", "page")
        self.transcript = transcript
        self.approvals = Approvals(theme, keys, self)
        self.composer = Composer(theme, memory, self)
        whole = QVBoxLayout(self)
        whole.setContentsMargins(0, 0, 0, 0)
        whole.setSpacing(0)
        whole.addWidget(transcript, 1)
        whole.addWidget(self.approvals)
        whole.addWidget(self.composer)
