"""Widgets of the dialog that connects agents: a figure, an agent with its button, and a command to copy."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from helix_desktop.gui.shared.figure_formats import format_time_ago
from helix_desktop.gui.shared.plain_widgets import build_plain_label, build_push_button
from helix_desktop.gui.translation import format_count, format_percent, tr
from helix_desktop.resident.connected_agents import ConnectedAgentRow


class FigureTile(QWidget):
    """One figure with its name above it and a word below it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        style_as_card(self)
        self._name, self._figure, self._below = (
            build_plain_label("", "small"),
            build_plain_label("", "large"),
            build_plain_label("", "faint"),
        )
        column = QVBoxLayout(self)
        column.setContentsMargins(16, 12, 16, 12)
        column.setSpacing(2)
        for each in (self._name, self._figure, self._below):
            column.addWidget(each)
        column.addStretch(1)

    def show_figure(self, name: str, figure: str, below: str) -> None:
        self._name.setText(name)
        self._figure.setText(figure)
        self._below.setText(below)


class ConnectedAgentCard(QWidget):
    """`change_wanted`: connect it, or disconnect it."""

    change_wanted = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        style_as_card(self)
        self.row = ConnectedAgentRow("", "", "")
        self._name, self._state, self._mark = (
            build_plain_label("", "title"),
            build_plain_label("", "small"),
            build_plain_label(tr("connected"), "chip"),
        )
        self._mark.setWordWrap(False)
        self.copy, self.change = QPushButton(tr("Copy command"), self), QPushButton(self)
        self.copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.row.start_command))
        self.change.clicked.connect(self.change_wanted)
        words = QVBoxLayout()
        words.setSpacing(2)
        words.addWidget(self._name)
        words.addWidget(self._state)
        line = QHBoxLayout(self)
        line.setContentsMargins(16, 12, 16, 12)
        line.setSpacing(10)
        line.addLayout(words, 1)
        line.addWidget(self._mark, 0, Qt.AlignmentFlag.AlignVCenter)
        for button in (self.copy, self.change):
            button.setAutoDefault(False)
            line.addWidget(button)

    def show_connected_agent(self, row: ConnectedAgentRow, now: float) -> None:
        """Every second, while requests may arrive."""
        self._state.setText(describe_agent_activity(row, now))
        if row == self.row:
            return
        self.row = row
        self._name.setText(row.title)
        self._mark.setVisible(row.connected)
        self.change.setText(tr("Disconnect…") if row.connected else tr("Connect…"))
        self.change.setProperty("look", "primary" if row.installed and not row.connected else "")
        self.change.style().polish(self.change)
        self.change.setAccessibleName(f"{self.change.text()} {row.title}")
        self.copy.setToolTip(row.start_command)
        self.copy.setAccessibleName(f"{self.copy.text()} {row.title}")


class CopyableCommandLine(QWidget):
    """A line of a terminal, and a button that copies it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        style_as_card(self)
        self.line = build_plain_label("", "mono")
        self.line.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self._copy = build_push_button(
            tr("Copy"), self, lambda: QGuiApplication.clipboard().setText(self.line.text()), "link"
        )
        row = QHBoxLayout(self)
        row.setContentsMargins(12, 6, 6, 6)
        row.addWidget(self.line, 1)
        row.addWidget(self._copy)

    def show_command_line(self, text: str) -> None:
        self.line.setText(text or tr("Turn the gateway on to see its address."))
        self._copy.setVisible(bool(text))


def describe_agent_activity(row: ConnectedAgentRow, now: float) -> str:
    """What an agent did, or why it does nothing."""
    if row.reason_not_folded:
        return tr("Not folded: the agent is signed in with a subscription")
    if row.requests:
        parts = [
            format_count(row.conversations, "{n} conversation today", "{n} conversations today")
            if row.conversations
            else "",
            format_count(row.requests, "{n} request", "{n} requests"),
            tr("last request {when}", when=format_time_ago(row.last_request_time, now)),
            tr("{share} saved", share=format_percent(1 - row.sent / row.without)) if row.without > row.sent else "",
        ]
        return " · ".join(filter(None, parts))
    if row.connected:
        return tr("Connected. Waiting for the first request.")
    return tr("Found on this computer") if row.installed else tr("Not found on this computer")


def style_as_card(widget: QWidget) -> None:
    """A surface with a line around it."""
    widget.setProperty("look", "card")
    widget.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
