"""The page of a folder's rules, skills, commands, hooks and agents, each with a switch."""

import re
from collections.abc import Coroutine, Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.trust_dialog import TrustDialog
from helix_desktop.gui.common.widgets import (
    build_line_edit,
    build_plain_label,
    build_push_button,
    build_surface,
)
from helix_desktop.gui.rows_and_columns import build_column, build_row, clear_layout
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.settings.settings_page import SettingsPage
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_number, read_shown_names, tr, translate_name
from helix_desktop.gui.workbench_types import ProjectItem, ProjectItems, Workbench

MAX_ITEMS_WITHOUT_FILTER = 8  # A longer list gets a filter field.


class RulesAndSkillsPage(SettingsPage):
    """A card for each item; within a kind, new and changed items come first."""

    def __init__(self, theme: Theme, bench: Workbench, doing: BackgroundRunner) -> None:
        super().__init__(tr("Rules and skills"))
        self._theme = theme
        self._bench = bench
        self._doing = doing
        self.add_sentence(
            tr(
                "Rules, skills, slash commands, hooks and agents in this folder. New or changed items are used only after you trust them."
            )
        )
        self._cards: list[tuple[QWidget, str]] = []
        self._filter = self.add_page_widget(
            build_line_edit(tr("Filter"), tr("Filter"), self.page_content)
        )
        self._filter.setClearButtonEnabled(True)
        self._filter.textChanged.connect(self._filter_item_cards)
        self._items = build_column(spacing=6)
        self.add_page_layout(self._items)
        self.refresh_project_items()

    def refresh_project_items(self) -> None:
        work = self._bench.project.reread_project_folders()
        self._doing.run_in_background(work, then=self._show_project_items, owner=self)

    def _show_project_items(self, brought: ProjectItems) -> None:
        clear_layout(self._items)
        items = brought.items
        if not items:
            words = tr("This folder has no rules, skills, slash commands, hooks or agents yet.")
            self._items.addWidget(self._build_item_label(words, "faint"))
        asking = [item for item in items if item.state_description.endswith("not trusted yet")]
        if len(asking) > 1:
            words = tr("Review all {n} new or changed items", n=format_number(len(asking)))
            review = build_push_button(
                words, self.page_content, lambda: self._open_review_dialog(asking)
            )
            self._items.addWidget(review, 0, Qt.AlignmentFlag.AlignLeft)
        self._cards = []
        self._filter.setVisible(len(items) > MAX_ITEMS_WITHOUT_FILTER)
        for kind, name in read_shown_names()["kinds of items"].items():
            items_of_kind = [item for item in items if item.kind == kind]
            items_of_kind.sort(key=_item_sort_key)
            self._add_cards_of_kind(tr(name), items_of_kind)
        for widget, _ in self._cards:
            self._items.addWidget(widget)
        self._filter_item_cards(self._filter.text())

    def _add_cards_of_kind(self, kind: str, items: Sequence[ProjectItem]) -> None:
        """Adds a heading and a card for each item, each with the text that the filter searches."""
        if not items:
            return
        searched_texts = [f"{kind} {item.name} {item.about}".casefold() for item in items]
        heading = self._build_item_label(kind, "heading")
        # The heading stays as long as one of its items is in sight.
        self._cards.append((heading, "\n".join(searched_texts)))
        for item, searched_text in zip(items, searched_texts, strict=True):
            self._cards.append((self._build_item_card(item), searched_text))

    def _filter_item_cards(self, words: str) -> None:
        for widget, text in self._cards:
            widget.setVisible(words.casefold() in text)

    def _build_item_card(self, item: ProjectItem) -> QWidget:
        card = build_surface(self.page_content, "card")
        name = self._build_item_label(mark_on_one_line(item.name), "title")
        state_words = translate_name(
            "state of an item", item.state_description, otherwise=item.state_description
        )
        state = self._build_item_label(state_words, "small")
        read = build_push_button(
            tr("Read"), self.page_content, lambda: self._open_review_dialog([item]), "link"
        )
        read.setAccessibleName(f"{read.text()}: {item.name}")
        line = build_row((name, 1), state, read, self._build_use_checkbox(item), wraps=True)
        column = build_column(line, owner=card, margins=(12, 8, 10, 8), spacing=2)
        notes = [item.about]
        if item.why and item.is_in_force:
            notes.append(tr("In use because {why}.", why=item.why))
        notes += map(translate_sentences, item.notes)
        for text in filter(None, notes):
            column.addWidget(self._build_item_label(mark_text(text[:400]), "muted"))
        column.addWidget(self._build_item_label(mark_on_one_line(str(item.path)), "faint"))
        return card

    def _build_use_checkbox(self, item: ProjectItem) -> QCheckBox:
        box = QCheckBox(tr("Use"), self.page_content)
        box.setChecked(not item.off)
        box.setAccessibleName(tr("Use {name}", name=item.name))
        box.toggled.connect(
            lambda on: self._run_item_change(
                self._bench.project.switch_item(item.settings_key, on=on)
            )
        )
        return box

    def _open_review_dialog(self, items: Sequence[ProjectItem]) -> None:
        trust = self._bench.project.trust_items
        TrustDialog(
            self._theme, items, lambda seen: self._run_item_change(trust(*seen)), self
        ).open()

    def _run_item_change(self, work: Coroutine[Any, Any, Any]) -> None:
        self._doing.run_in_background(
            work, then=lambda _done: self.refresh_project_items(), owner=self
        )

    def _build_item_label(self, text: str, look: str) -> QLabel:
        label = build_plain_label(text, look, self.page_content)
        if look == "heading":
            label.setContentsMargins(0, 12, 0, 2)
        return label


def _item_sort_key(item: ProjectItem) -> tuple[bool, list[tuple[int, str]]]:
    """Sorts items that need the user's decision first, then by name, with 2 before 10."""
    pieces: list[tuple[int, str]] = []
    for piece in re.split(r"(\d+)", item.name.casefold()):
        number = -1
        if piece.isdecimal():
            number = int(piece)
        pieces.append((number, piece))
    return item.state_description == "in use", pieces
