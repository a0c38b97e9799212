"""What the workspace's folders and the user's own bring for agents: what is used now and why, and each can be switched off."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QLabel, QLineEdit, QPushButton, QVBoxLayout, QWidget

from helix_desktop.engine import exact
from helix_desktop.gui.background import Doing
from helix_desktop.gui.chat.trust_dialog import TrustDialog, many
from helix_desktop.gui.engine_sentences import said
from helix_desktop.gui.layouts import clear
from helix_desktop.gui.ports import AllBrought, Brought, Workbench
from helix_desktop.gui.settings.page import Page
from helix_desktop.gui.shared.plain import plain_label, push_button
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.words import numeral, tr

FEW = 8  # items that need no filter


class BroughtPage(Page):
    """A card for each item; what is new or has changed comes first within its kind."""

    def __init__(self, theme: Theme, bench: Workbench, doing: Doing) -> None:
        super().__init__(tr("Rules and skills"))
        self._theme, self._bench, self._doing = theme, bench, doing
        self.sentence(
            tr(
                "Rules, skills, slash commands, hooks and agents in this folder. New or changed items are used only after you trust them."
            )
        )
        self._cards: list[tuple[QWidget, str]] = []
        self._filter = self.add(QLineEdit(self.inside))
        self._filter.setPlaceholderText(tr("Filter"))
        self._filter.setAccessibleName(tr("Filter"))
        self._filter.setClearButtonEnabled(True)
        self._filter.textChanged.connect(self._narrow)
        self._items = QVBoxLayout()
        self._items.setSpacing(6)
        self.add_layout(self._items)
        self.look()

    def look(self) -> None:
        self._doing.do(
            self._bench.project.look_again(), name="look at what the folder brings", then=self._fill, owner=self
        )

    def _fill(self, brought: AllBrought) -> None:
        clear(self._items)
        found = brought.items
        if not found:
            self._items.addWidget(
                self._label(tr("This folder has no rules, skills, slash commands, hooks or agents yet."), "faint")
            )
        asking = [item for item in found if item.state.endswith("not trusted yet")]
        if len(asking) > 1:
            review = QPushButton(tr("Review all {n} new or changed items", n=numeral(len(asking))), self.inside)
            review.setAutoDefault(False)
            review.clicked.connect(lambda _checked=False: self._review(asking))
            self._items.addWidget(review, 0, Qt.AlignmentFlag.AlignLeft)
        self._cards = []
        self._filter.setVisible(len(found) > FEW)
        for kind, words in many().items():
            own = sorted((item for item in found if item.kind == kind), key=_order)
            texts = [f"{words} {item.name} {item.about}".casefold() for item in own]
            shown = [(self._label(words, "heading"), "\n".join(texts))] if own else []
            self._cards += [*shown, *zip(map(self._card, own), texts, strict=True)]
        for widget, _ in self._cards:
            self._items.addWidget(widget)
        self._narrow(self._filter.text())

    def _narrow(self, words: str) -> None:
        """Only those with these words in their kind, name or description."""
        for widget, text in self._cards:
            widget.setVisible(words.casefold() in text)

    def _card(self, item: Brought) -> QWidget:
        card = QWidget(self.inside)
        card.setProperty("look", "card")
        card.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(card)
        column.setContentsMargins(12, 8, 10, 8)
        column.setSpacing(2)
        line = QHBoxLayout()
        line.addWidget(self._label(exact.one_line(item.name), "title"), 1)
        line.addWidget(self._label(states().get(item.state, item.state), "small"))
        line.addWidget(self._button(tr("Read"), item, lambda: self._review([item])))
        line.addWidget(self._switch(item))
        column.addLayout(line)
        for text in filter(None, [item.about, _why(item), *map(said, item.notes)]):
            column.addWidget(self._label(exact.shown(text[:400]), "muted"))
        column.addWidget(self._label(exact.one_line(str(item.path)), "faint"))
        return card

    def _button(self, text: str, item: Brought, act: Callable[[], object]) -> QPushButton:
        button = push_button(text, self.inside, act, "link")
        button.setAccessibleName(f"{text}: {item.name}")
        return button

    def _switch(self, item: Brought) -> QCheckBox:
        box = QCheckBox(tr("Use"), self.inside)
        box.setChecked(not item.off)
        box.setAccessibleName(tr("Use {name}", name=item.name))
        box.toggled.connect(lambda on: self._do(self._bench.project.switch(item.key, on=on)))
        return box

    def _review(self, items: Sequence[Brought]) -> None:
        TrustDialog(self._theme, items, lambda seen: self._do(self._bench.project.trust(*seen)), self).open()

    def _do(self, work: object) -> None:
        self._doing.do(work, name="change what is used", then=lambda _done: self.look(), owner=self)  # type: ignore[arg-type]

    def _label(self, text: str, look: str) -> QLabel:
        label = plain_label(text, look, self.inside, wraps=look in ("muted", "heading"))
        if look == "heading":
            label.setContentsMargins(0, 12, 0, 2)
        return label


def _order(item: Brought) -> tuple[bool, list[tuple[int, str]]]:
    """What asks for something first, then by name, with 2 before 10."""
    pieces = re.split(r"(\d+)", item.name.casefold())
    return item.state == "in use", [(int(piece) if piece.isdecimal() else -1, piece) for piece in pieces]


def states() -> dict[str, str]:
    """`project.item.Item.state` in the user's language."""
    return {
        "in use": tr("In use"),
        "off": tr("Off"),
        "cannot be used": tr("Cannot be used"),
        "new: not trusted yet": tr("New: not trusted yet"),
        "changed: not trusted yet": tr("Changed: not trusted yet"),
    }


def _why(item: Brought) -> str:
    return tr("In use because {why}.", why=item.why) if item.why else ""
