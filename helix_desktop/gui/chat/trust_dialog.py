"""What a folder brings for agents, word for word, before it is used for the first time."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QDialogButtonBox, QLabel, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from helix_desktop.engine import exact
from helix_desktop.gui.ports import Brought
from helix_desktop.gui.shared.exact_text import ExactText
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import tr


class TrustDialog(QDialog):
    """`trust` is called when the user agrees; closing it otherwise changes nothing."""

    def __init__(self, theme: Theme, item: Brought, trust: Callable[[], object], parent: QWidget) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(kinds().get(item.kind, item.kind))
        self.resize(680, 520)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        column.addWidget(self._label(exact.one_line(str(item.path)), "mono"))
        column.addWidget(self._label("\n".join([_means(item), *item.notes]), "muted"))
        text = ExactText(theme, item.text, self)
        text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        text.setAccessibleName(tr("What the file says"))
        length = self._label("", "faint")
        agree = QPushButton(tr("Trust"), self)
        for widget in (text, length, self._buttons(agree, trust)):
            column.addWidget(widget)

        def read_on() -> None:
            length.setText(text.facts())
            agree.setEnabled(text.end_seen)

        text.changed.connect(read_on)
        read_on()

    def _label(self, words: str, look: str) -> QLabel:
        label = QLabel(words, self)
        label.setProperty("look", look)
        label.setTextFormat(Qt.TextFormat.PlainText)
        label.setWordWrap(look != "mono")
        return label

    def _buttons(self, agree: QPushButton, trust: Callable[[], object]) -> QDialogButtonBox:
        buttons = QDialogButtonBox(self)
        buttons.addButton(agree, QDialogButtonBox.ButtonRole.AcceptRole)
        agree.setProperty("look", "primary")
        buttons.addButton(tr("Not now"), QDialogButtonBox.ButtonRole.RejectRole).setDefault(True)
        buttons.accepted.connect(trust)
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        return buttons


def kinds() -> dict[str, str]:
    """What each kind of item is called."""
    return {
        "rules": tr("Rules for agents"),
        "skill": tr("Skill"),
        "command": tr("Slash command"),
        "hook": tr("Hook"),
        "agent": tr("Agent"),
    }


def asks(item: Brought) -> str:
    """That there is something new to look at, in a line."""
    words = {
        "rules": tr("{name} has rules for agents. They are used once you trust them.", name=item.name),
        "skill": tr("The folder brings a skill: {name}. It is used once you trust it.", name=item.name),
        "command": tr("The folder brings a slash command: /{name}. It works once you trust it.", name=item.name),
        "hook": tr("The folder brings a hook: {name}. It runs once you trust it.", name=item.name),
        "agent": tr("The folder brings an agent: {name}. It works once you trust it.", name=item.name),
    }
    return words.get(item.kind, item.name)


def _means(item: Brought) -> str:
    words = {
        "rules": tr("If you trust it, this text is sent to the model with every request until the file changes."),
        "skill": tr("If you trust it, the agent may read these instructions when they fit. Their scripts still ask."),
        "command": tr("If you trust it, you can send this text with a slash. Its shell lines still ask."),
        "hook": tr("If you trust it, this program runs inside the sandbox whenever its event happens."),
        "agent": tr("If you trust it, work can be given to an agent with these instructions. Its tools still ask."),
    }
    return words.get(item.kind, "")
