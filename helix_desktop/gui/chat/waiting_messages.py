"""The messages that are queued while the agent works. Each can be edited or deleted."""

from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.gui.common.widgets import build_plain_label, build_push_button, build_surface
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.transcript.safe_text import safe_tooltip
from helix_desktop.gui.translation import tr


class OneLineLabel(QLabel):
    """Shows as much of a text as fits on one line."""

    def __init__(self, words: str, parent: QWidget) -> None:
        super().__init__(parent, textFormat=Qt.TextFormat.PlainText, text=words)
        self._words = words
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.setText(
            self.fontMetrics().elidedText(self._words, Qt.TextElideMode.ElideRight, self.width())
        )


class WaitingMessageList(QWidget):
    """The queued messages. `editing(index)`: take one back; `discarding(index)`: delete it."""

    editing = Signal(int)
    discarding = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent, accessibleName=tr("Queued messages"))
        self._rows = build_column(owner=self, margins=0, spacing=4)
        self.setProperty("look", "plain")
        self.hide()

    @property
    def waiting_message_count(self) -> int:
        return self._rows.count()

    def show_message_lines(self, texts: Sequence[str]) -> None:
        clear_layout(self._rows)
        for index, text in enumerate(texts):
            self._rows.addWidget(self._build_waiting_message_row(index, text))
        self.setVisible(bool(texts))

    def _build_waiting_message_row(self, index: int, text: str) -> QWidget:
        row = build_surface(self, "soft")
        waits = build_plain_label(tr("Queued"), "faint", row, wraps=False)
        short = " ".join(text[:400].split())
        words = OneLineLabel(short, row)
        words.setToolTip(safe_tooltip(text[:2_000]))
        line = build_row(waits, (words, 1), owner=row, margins=(12, 4, 6, 4), spacing=4)
        for name, signal in ((tr("Edit"), self.editing), (tr("Remove"), self.discarding)):
            act = partial(signal.emit, index)
            line.addWidget(build_push_button(name, row, act, "link", name=f"{name}: {short[:80]}"))
        row.show()
        return row


def message_as_one_line(parts: Sequence[UserPart]) -> str:
    return " ".join(part.text if isinstance(part, Text) else f"[{part.name}]" for part in parts)
