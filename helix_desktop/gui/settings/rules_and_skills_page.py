"""The page of a folder's rules, skills, commands, hooks and agents, each with a switch."""

import re
from collections.abc import Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QCheckBox, QLabel, QWidget

from helix_desktop.engine.hidden_characters import mark_on_one_line, mark_text
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
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
LONGEST_NOTE = 400


@dataclass(frozen=True, eq=False, slots=True)
class FilteredRow:
    """A heading or a card, and the text in which the filter searches."""

    widget: QWidget
    searched_text: str


class RulesAndSkillsPage(SettingsPage):
    """A card for each item; within a kind, new and changed items come first."""

    def __init__(self, theme: Theme, bench: Workbench, runner: BackgroundRunner) -> None:
        super().__init__(tr("Rules and skills"))
        self._theme = theme
        self._bench = bench
        self._runner = runner
        self.add_sentence(
            tr(
                "Rules, skills, slash commands, hooks and agents in this folder. New or changed items are used only after you trust them."
            )
        )
        self._rows: list[FilteredRow] = []
        self._filter = self.add_page_widget(
            build_line_edit(tr("Filter"), tr("Filter"), self.page_content)
        )
        self._filter.setClearButtonEnabled(True)
        self._filter.textChanged.connect(self._filter_rows)
        self._items = build_column(spacing=6)
        self.add_page_layout(self._items)
        self.refresh_project_items()

    def refresh_project_items(self) -> None:
        work = self._bench.project.reread_project_folders()
        self._runner.run_in_background(work, then=self._show_project_items, owner=self)

    def _show_project_items(self, project_items: ProjectItems) -> None:
        clear_layout(self._items)
        items = project_items.items
        if not items:
            text = tr("This folder has no rules, skills, slash commands, hooks or agents yet.")
            self._items.addWidget(self._build_item_label(text, "faint"))
        self._add_review_button(items)
        self._rows = []
        # A field with words in it stays, because they hide items until they are removed.
        has_filter = len(items) > MAX_ITEMS_WITHOUT_FILTER or bool(self._filter.text())
        self._filter.setVisible(has_filter)
        # The table has all kinds, in the order in which they are shown.
        for kind, name in read_shown_names()["kinds of items"].items():
            items_of_kind = [item for item in items if item.kind == kind]
            items_of_kind.sort(key=_item_sort_key)
            self._add_rows_of_kind(tr(name), items_of_kind)
        for row in self._rows:
            self._items.addWidget(row.widget)
        self._filter_rows(self._filter.text())

    def _add_review_button(self, items: Sequence[ProjectItem]) -> None:
        """Adds a button that shows all new and changed items one after the other, if there are
        several.
        """
        new_items: list[ProjectItem] = []
        for item in items:
            if item.awaits_trust:
                new_items.append(item)
        if len(new_items) < 2:
            return
        label = tr("Review all {n} new or changed items", n=format_number(len(new_items)))
        review = partial(self._open_review_dialog, new_items)
        button = build_push_button(label, self.page_content, review)
        self._items.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)

    def _add_rows_of_kind(self, kind: str, items: Sequence[ProjectItem]) -> None:
        """Adds a heading and a card for each item, each with the text that the filter searches."""
        if not items:
            return
        rows: list[FilteredRow] = []
        for item in items:
            searched_text = f"{kind} {item.name} {item.about}".casefold()
            rows.append(FilteredRow(self._build_item_card(item), searched_text))
        # The heading stays as long as one of its items is in sight.
        all_texts = "\n".join(row.searched_text for row in rows)
        heading = self._build_item_label(kind, "heading")
        self._rows.append(FilteredRow(heading, all_texts))
        self._rows.extend(rows)

    def _filter_rows(self, words: str) -> None:
        searched_words = words.casefold()
        for row in self._rows:
            row.widget.setVisible(searched_words in row.searched_text)

    def _build_item_card(self, item: ProjectItem) -> QWidget:
        card = build_surface(self.page_content, "card")
        name = self._build_item_label(mark_on_one_line(item.name), "title")

        description = item.state_description
        state_text = translate_name("state of an item", description, otherwise=description)
        state = self._build_item_label(state_text, "small")
        open_text = partial(self._open_review_dialog, [item])
        read_label = tr("Read")
        read_button = build_push_button(read_label, self.page_content, open_text, "link")
        read_button.setAccessibleName(f"{read_label}: {mark_on_one_line(item.name)}")

        use_box = self._build_use_checkbox(item)
        first_line = build_row((name, 1), state, read_button, use_box, wraps=True)
        column = build_column(first_line, owner=card, margins=(12, 8, 10, 8), spacing=2)

        notes = [item.about]
        if item.why and item.is_in_force:
            notes.append(tr("In use because {why}.", why=item.why))
        for note in item.notes:
            notes.append(translate_sentences(note))
        for note in filter(None, notes):
            short_note = mark_text(note[:LONGEST_NOTE])
            if len(note) > LONGEST_NOTE:
                short_note += "…"
            note_label = self._build_item_label(short_note, "muted")
            column.addWidget(note_label)
        path_words = mark_on_one_line(str(item.path))
        path_label = self._build_item_label(path_words, "faint")
        column.addWidget(path_label)
        return card

    def _build_use_checkbox(self, item: ProjectItem) -> QCheckBox:
        box = QCheckBox(tr("Use"), self.page_content)
        box.setChecked(not item.off)
        box.setAccessibleName(tr("Use {name}", name=mark_on_one_line(item.name)))
        box.toggled.connect(partial(self._switch_item, item))
        return box

    def _switch_item(self, item: ProjectItem, is_on: bool) -> None:  # noqa: FBT001 - a slot
        self._run_item_change(self._bench.project.switch_item(item.settings_key, on=is_on))

    def _open_review_dialog(self, items: Sequence[ProjectItem]) -> None:
        TrustDialog(self._theme, items, self._trust_items, self).open()

    def _trust_items(self, read_items: Sequence[ProjectItem]) -> None:
        self._run_item_change(self._bench.project.trust_items(*read_items))

    def _run_item_change(self, work: Coroutine[Any, Any, Any]) -> None:
        self._runner.run_in_background(
            work,
            then=lambda _done: self.refresh_project_items(),
            owner=self,
            failed=self._show_error_and_refresh,
        )

    def _show_error_and_refresh(self, error: HelixError) -> None:
        """Shows the items as they are, because the user's box shows what was not saved."""
        self._runner.failed.emit(error)
        self.refresh_project_items()

    def _build_item_label(self, text: str, look: str) -> QLabel:
        label = build_plain_label(text, look, self.page_content)
        if look == "heading":
            label.setContentsMargins(0, 12, 0, 2)
        return label


def _item_sort_key(item: ProjectItem) -> tuple[bool, list[tuple[int, str]]]:
    """Sorts items that the user has to read first, then by name, with 2 before 10."""
    pieces: list[tuple[int, str]] = []
    for piece in re.split(r"(\d+)", item.name.casefold()):
        number = -1
        if piece.isdecimal():
            number = int(piece)
        pieces.append((number, piece))
    return not item.awaits_trust, pieces
