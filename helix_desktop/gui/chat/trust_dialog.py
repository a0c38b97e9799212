"""What a folder brings for agents, word for word, before it is used for the first time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QDialog,
    QDialogButtonBox,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from helix_desktop.engine import exact
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.ports import Brought
from helix_desktop.gui.shared.exact_text import ExactText
from helix_desktop.gui.shared.plain import plain_label
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr


class TrustDialog(QDialog):
    """One item, or a list of them, each shown when it is chosen. `trust` is called with those whose end has been shown when
    the user agrees; closing it otherwise changes nothing.
    """

    def __init__(
        self,
        theme: Theme,
        items: Sequence[Brought],
        trust: Callable[[Sequence[Brought]], object],
        parent: QWidget,
    ) -> None:
        super().__init__(parent)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(kinds().get(items[0].kind, "") if len(items) == 1 else tr("New in this folder"))
        room = parent.window().size()
        self.resize(
            min(680 if len(items) == 1 else 920, max(480, room.width() - 40)), min(520, max(320, room.height() - 60))
        )
        self._theme, self._items = theme, items
        self._seen: set[int] = set()
        self._path, self._means = self._label("", "mono"), self._label("", "muted")
        self._text: ExactText | None = None
        self._length = self._label("", "faint")
        self._agree = QPushButton(tr("Trust"), self)
        self._list = QListWidget(self)
        self._list.setFixedWidth(240)
        self._list.setAccessibleName(tr("New or changed items"))
        self.filter = QLineEdit(self)
        self.filter.setPlaceholderText(tr("Filter"))
        self.filter.setAccessibleName(tr("Filter"))
        self.filter.setClearButtonEnabled(True)
        self.filter.textChanged.connect(self._narrow)
        self._right = QVBoxLayout()
        for widget in (self._path, self._means, self._length):
            self._right.addWidget(widget)
        across = QHBoxLayout()
        across.setSpacing(16)
        left = QVBoxLayout()
        for one in (self.filter, self._list):
            one.setVisible(len(items) > 1)
            left.addWidget(one)
        across.addLayout(left)
        across.addLayout(self._right, 1)
        column = QVBoxLayout(self)
        column.setContentsMargins(20, 20, 20, 20)
        column.addLayout(across, 1)
        column.addWidget(self._buttons(trust))
        for item in items:
            self._list.addItem(f"{kinds().get(item.kind, item.kind)}: {exact.one_line(item.name)}")
        self._list.currentRowChanged.connect(self._show)
        self._list.setCurrentRow(0)

    def _narrow(self, words: str) -> None:
        """Only those with these words in their kind or name."""
        rows = [self._list.item(row) for row in range(self._list.count())]
        for item in rows:
            item.setHidden(words.casefold() not in item.text().casefold())
        fits = [item for item in rows if not item.isHidden()]
        if fits and self._list.currentItem() not in fits:
            self._list.setCurrentItem(fits[0])

    def _show(self, row: int) -> None:
        item = self._items[row]
        self._path.setText(exact.one_line(str(item.path)))
        self._means.setText("\n".join([_means(item), *map(said, item.notes)]))
        if self._text is not None:
            self._right.removeWidget(self._text)
            self._text.hide()
            self._text.deleteLater()
        text = self._text = ExactText(self._theme, item.text, self)
        text.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        text.setAccessibleName(tr("What the file says"))
        self._right.insertWidget(2, text, 1)
        text.changed.connect(lambda: self._read_on(row, text))
        self._read_on(row, text)

    def _read_on(self, row: int, text: ExactText) -> None:
        if text is not self._text:
            return
        self._length.setText(text.facts())
        if text.end_seen and row not in self._seen:
            self._seen.add(row)
            if len(self._items) > 1:
                self._list.item(row).setText(f"✓ {self._list.item(row).text()}")
        self._agree.setEnabled(bool(self._seen))
        if len(self._items) > 1:
            self._agree.setText(
                tr(
                    "Trust the {n} of {all} items you have read",
                    n=numeral(len(self._seen)),
                    all=numeral(len(self._items)),
                )
            )

    def _label(self, words: str, look: str) -> QLabel:
        return plain_label(words, look, self, wraps=look != "mono")

    def _buttons(self, trust: Callable[[Sequence[Brought]], object]) -> QDialogButtonBox:
        buttons = QDialogButtonBox(self)
        buttons.addButton(self._agree, QDialogButtonBox.ButtonRole.AcceptRole)
        self._agree.setProperty("look", "primary")
        buttons.addButton(tr("Not now"), QDialogButtonBox.ButtonRole.RejectRole).setDefault(True)
        buttons.accepted.connect(lambda: trust([self._items[row] for row in sorted(self._seen)]))
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        return buttons


def many() -> dict[str, str]:
    """What several items of a kind are called."""
    return {
        "rules": tr("Rules for agents"),
        "skill": tr("Skills"),
        "command": tr("Slash commands"),
        "hook": tr("Hooks"),
        "agent": tr("Agents"),
    }


def kinds() -> dict[str, str]:
    """What each kind of item is called."""
    return {
        "rules": tr("Rules for agents"),
        "skill": tr("Skill"),
        "command": tr("Slash command"),
        "hook": tr("Hook"),
        "agent": tr("Agent"),
    }


def asks(items: Sequence[Brought]) -> str:
    """That there is something new to look at, in a line."""
    item = items[0]
    if len(items) > 1:
        return tr(
            "This folder contains {n} items for agents. They are used only after you trust them.", n=numeral(len(items))
        )
    words = {
        "rules": tr("{name} contains rules for agents. They are used only after you trust them.", name=item.name),
        "skill": tr("This folder contains a skill: {name}. Agents can use it only after you trust it.", name=item.name),
        "command": tr(
            "This folder contains a slash command: /{name}. You can use it only after you trust it.", name=item.name
        ),
        "hook": tr("This folder contains a hook: {name}. It runs only after you trust it.", name=item.name),
        "agent": tr("This folder contains an agent: {name}. It can be used only after you trust it.", name=item.name),
    }
    return words.get(item.kind, item.name)


def _means(item: Brought) -> str:
    words = {
        "rules": tr("If you trust it, this text is sent to the model with every request until the file changes."),
        "skill": tr(
            "If you trust it, the agent may read these instructions when they are useful. You are still asked before any of its scripts run."
        ),
        "command": tr(
            "If you trust it, you can send this text as a slash command. You are still asked before its shell commands run."
        ),
        "hook": tr("If you trust it, this program runs inside the sandbox whenever the event named above happens."),
        "agent": tr(
            "If you trust it, other agents can delegate work to an agent with these instructions. You are still asked before its tools run."
        ),
    }
    return words.get(item.kind, "")
