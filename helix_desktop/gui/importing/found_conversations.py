"""The tree of found conversations: by project, each with its date, length and cost."""

from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHeaderView, QTreeWidgetItem, QWidget

from helix_desktop.gui.common.figure_formats import format_byte_size, format_date, format_dollars
from helix_desktop.gui.common.list_row_model import RowTree
from helix_desktop.gui.frame.sidebar import format_folder
from helix_desktop.gui.importing.history_import_port import HistoryDetails
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.transcript.safe_text import make_safe_text, safe_tooltip
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.histories.history_finding import FoundHistories

EXPANDED_ROWS = 30  # If no more conversations were found, all projects are expanded.
_GROUP = Qt.ItemDataRole.UserRole
_TITLE = 0
_DATE = 1
_LENGTH = 2
_COST = 3
_MODEL = 4
MODEL_WIDTH = 130  # Long names are cut off, so that the titles keep their space.


class FoundConversationTree(RowTree):
    """Checkboxes choose conversations or whole projects. Only visible rows count as chosen."""

    choice_changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        """Sets up an empty tree: projects, and below each its conversations."""
        super().__init__(parent)
        # By file and folder, as a file may cover several folders.
        self.rows: dict[tuple[str, str], QTreeWidgetItem] = {}
        self._projects: dict[tuple[str, str], QTreeWidgetItem] = {}  # By folder and program.
        self.setHeaderLabels(
            [tr("Conversation"), tr("Date"), tr("Length"), tr("Cost so far"), tr("Model")]
        )
        header = self.header()
        header.setStretchLastSection(False)
        for column in range(self.columnCount()):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.ResizeToContents)
        header.setSectionResizeMode(_TITLE, QHeaderView.ResizeMode.Stretch)
        header.setSectionResizeMode(_MODEL, QHeaderView.ResizeMode.Interactive)
        header.resizeSection(_MODEL, MODEL_WIDTH)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setUniformRowHeights(True)
        self.setAccessibleName(tr("Conversations from other programs"))
        self.itemChanged.connect(self._announce_changed_choice)

    def _announce_changed_choice(self, _item: QTreeWidgetItem, column: int) -> None:
        if column == _TITLE:
            self.choice_changed.emit()

    def show_groups(self, groups: Sequence[FoundHistories]) -> None:
        """Shows the groups, the newest project first. Those that are not here yet are checked."""
        self.blockSignals(True)
        self.clear()
        self.rows.clear()
        self._projects.clear()
        self.blockSignals(False)
        self.add_groups(groups)

    def add_groups(self, groups: Sequence[FoundHistories]) -> None:
        """Adds groups below those that are shown. A file that is shown already is not added."""
        self.blockSignals(True)
        newest_first = sorted(groups, key=lambda group: group.last, reverse=True)
        for group in newest_first:
            if (str(group.path), group.folder) not in self.rows:
                self._add_conversation(self._find_or_add_project(group), group)
        is_short = len(self.rows) <= EXPANDED_ROWS or len(self._projects) == 1
        for project in self._projects.values():
            if is_short:
                project.setExpanded(True)
            count = 0
            for row in _rows_of(project):
                count += row.data(_TITLE, _GROUP).conversations
            project.setText(_LENGTH, format_count(count, "{n} conversation", "{n} conversations"))
        self.blockSignals(False)
        self.choice_changed.emit()

    def untick_all(self) -> None:
        self.blockSignals(True)
        for project in self._project_items():
            project.setCheckState(_TITLE, Qt.CheckState.Unchecked)
        self.blockSignals(False)
        self.choice_changed.emit()

    def _find_or_add_project(self, group: FoundHistories) -> QTreeWidgetItem:
        key = (group.folder, group.program)
        if key not in self._projects:
            self._projects[key] = self._add_project(group)
        return self._projects[key]

    def _add_project(self, group: FoundHistories) -> QTreeWidgetItem:
        folder = tr("no folder")
        if group.folder:
            folder = format_folder(Path(group.folder))
        project = QTreeWidgetItem(self, [f"{folder}  ·  {group.program}"])
        project.setFlags(
            project.flags() | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsAutoTristate
        )
        if not group.is_folder_present():
            tooltip = tr("This folder is not on this computer. Its conversations are imported into the workspace “Imported conversations”.")  # fmt: skip
            project.setToolTip(_TITLE, tooltip)
        return project

    def _add_conversation(self, project: QTreeWidgetItem, group: FoundHistories) -> None:
        """Adds a row for a conversation, or for a file with several, which is read only
        when it is imported. What is new is checked, what was imported before is not.
        """
        title = tr("Loading…")
        if group.conversations > 1:
            count = format_count(group.conversations, "{n} conversation", "{n} conversations")
            title = tr("{file}: {count}", file=make_safe_text(group.path.name), count=count)
        date = format_date(group.last)
        row = QTreeWidgetItem(project, [title, date, format_byte_size(group.size)])
        row.setFlags(row.flags() | Qt.ItemFlag.ItemIsUserCheckable)
        if group.is_imported:
            row.setCheckState(_TITLE, Qt.CheckState.Unchecked)
        else:
            row.setCheckState(_TITLE, Qt.CheckState.Checked)
        row.setTextAlignment(_COST, Qt.AlignmentFlag.AlignRight)
        row.setData(_TITLE, _GROUP, group)
        self._mark_if_imported(row)
        self.rows[str(group.path), group.folder] = row

    def show_details(self, group: FoundHistories, details: HistoryDetails) -> None:
        """Shows what was read of a conversation, or why it cannot be imported."""
        row = self.rows.get((str(group.path), group.folder))
        if row is None:
            return
        row.setText(_TITLE, make_safe_text(details.title) or tr("Untitled"))
        time_of_last_message = details.last or group.last
        row.setText(_DATE, format_date(time_of_last_message))
        project = row.parent()
        if project is not None:
            self._show_newest_date_of_project(project, time_of_last_message)
        row.setText(_LENGTH, format_count(details.messages, "{n} message", "{n} messages"))
        cost = "–"
        if details.cost:
            cost = format_dollars(details.cost)
        row.setText(_COST, cost)
        models = make_safe_text(", ".join(details.models))
        row.setText(_MODEL, models)
        row.setToolTip(_MODEL, safe_tooltip(models))
        self._mark_if_imported(row)
        if details.reason:
            self._show_reason(row, details.reason)
            row.setCheckState(_TITLE, Qt.CheckState.Unchecked)

    def _show_newest_date_of_project(self, project: QTreeWidgetItem, time: float) -> None:
        shown_time = project.data(_DATE, _GROUP) or 0.0
        if time > shown_time:
            project.setData(_DATE, _GROUP, time)
            project.setText(_DATE, format_date(time))

    def show_reasons_and_return_others(self, complaints: Sequence[str]) -> list[str]:
        """Shows each reason beside the conversation it concerns. Returns the reasons
        that concern none.
        """
        other_complaints: list[str] = []
        for complaint in complaints:
            row = self._find_row_named_in(complaint)
            if row is None:
                other_complaints.append(complaint)
            else:
                self._show_reason(row, complaint)
        return other_complaints

    def _find_row_named_in(self, complaint: str) -> QTreeWidgetItem | None:
        for (path, _folder), row in self.rows.items():
            if complaint.startswith(path):
                return row
        return None

    def _mark_if_imported(self, row: QTreeWidgetItem) -> None:
        if row.data(_TITLE, _GROUP).is_imported:
            self._show_reason(row, tr("already imported"))

    def _show_reason(self, row: QTreeWidgetItem, reason: str) -> None:
        """Shows a reason behind the title, in place of one that is there."""
        path = row.data(_TITLE, _GROUP).path
        # The row is about this file, so its name is enough.
        translated_reason = translate_sentences(reason).replace(str(path), path.name)
        safe_reason = make_safe_text(translated_reason)
        title, _dash, _reason_before = row.text(_TITLE).partition(" — ")
        row.setText(_TITLE, f"{title} — {safe_reason}")
        row.setToolTip(_TITLE, safe_tooltip(safe_reason))

    def filter_rows(self, words: str) -> bool:
        """Shows the rows that have all these words. Returns whether there are any."""
        searched_words = words.casefold().split()
        has_any_row = False
        for project in self._project_items():
            has_visible_row = False
            for row in _rows_of(project):
                text = f"{project.text(_TITLE)} {row.text(_TITLE)}".casefold()
                has_all_words = all(word in text for word in searched_words)
                row.setHidden(not has_all_words)
                if has_all_words:
                    has_visible_row = True
            has_any_row = has_any_row or has_visible_row
            project.setHidden(not has_visible_row)
            if searched_words:
                project.setExpanded(True)
        self.choice_changed.emit()
        return has_any_row

    def chosen_groups(self) -> list[FoundHistories]:
        groups: list[FoundHistories] = []
        for project in self._project_items():
            for row in _rows_of(project):
                is_checked = row.checkState(_TITLE) == Qt.CheckState.Checked
                if is_checked and not row.isHidden():
                    groups.append(row.data(_TITLE, _GROUP))
        return groups

    def _project_items(self) -> list[QTreeWidgetItem]:
        return _rows_of(self.invisibleRootItem())


def _rows_of(project: QTreeWidgetItem) -> list[QTreeWidgetItem]:
    rows: list[QTreeWidgetItem] = []
    for number in range(project.childCount()):
        row = project.child(number)
        if row is not None:
            rows.append(row)
    return rows
