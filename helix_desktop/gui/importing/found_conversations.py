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

_GROUP = Qt.ItemDataRole.UserRole
_TITLE, _DATE, _LENGTH, _COST = range(4)


class FoundConversationTree(RowTree):
    """Checkboxes choose conversations or whole projects. Only visible rows count as chosen."""

    choice_changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.rows: dict[
            tuple[str, str], QTreeWidgetItem
        ] = {}  # By file and folder, as a file may cover several.
        self.setHeaderLabels([tr("Conversation"), tr("Date"), tr("Length"), tr("Cost")])
        self.header().setStretchLastSection(False)
        for column in range(self.columnCount()):
            fits = (
                QHeaderView.ResizeMode.Stretch
                if column == _TITLE
                else QHeaderView.ResizeMode.ResizeToContents
            )
            self.header().setSectionResizeMode(column, fits)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setUniformRowHeights(True)
        self.setAccessibleName(tr("Conversations from other programs"))
        self.itemChanged.connect(
            lambda _item, column: self.choice_changed.emit() if column == _TITLE else None
        )

    def show_groups(self, groups: Sequence[FoundHistories]) -> None:
        """Shows the groups, the newest project first. Those that are not here yet are checked."""
        self.blockSignals(True)
        self.clear()
        self.rows.clear()
        projects: dict[tuple[str, str], QTreeWidgetItem] = {}
        for group in sorted(groups, key=lambda group: -group.last):
            project = projects.get((group.folder, group.program))
            if project is None:
                project = projects[group.folder, group.program] = self._add_project(group)
            self._add_conversation(project, group)
        for project in projects.values():
            project.setExpanded(len(groups) <= 30 or len(projects) == 1)
            held = sum(row.data(_TITLE, _GROUP).conversations for row in _rows_of(project))
            project.setText(_LENGTH, format_count(held, "{n} conversation", "{n} conversations"))
        self.blockSignals(False)
        self.choice_changed.emit()

    def untick_all(self) -> None:
        self.blockSignals(True)
        for project in self._project_items():
            project.setCheckState(_TITLE, Qt.CheckState.Unchecked)
        self.blockSignals(False)
        self.choice_changed.emit()

    def _add_project(self, group: FoundHistories) -> QTreeWidgetItem:
        folder = format_folder(Path(group.folder)) if group.folder else tr("no folder")
        project = QTreeWidgetItem(self, [f"{folder}  ·  {group.program}"])
        project.setFlags(
            project.flags() | Qt.ItemFlag.ItemIsUserCheckable | Qt.ItemFlag.ItemIsAutoTristate
        )
        if not group.is_folder_present():
            words = tr("This folder is not on this computer. Its conversations are imported into the workspace “Imported conversations”.")  # fmt: skip
            project.setToolTip(_TITLE, words)
        return project

    def _add_conversation(self, project: QTreeWidgetItem, group: FoundHistories) -> None:
        many = format_count(group.conversations, "{n} conversation", "{n} conversations")
        title = many if group.conversations > 1 else tr("Loading…")
        row = QTreeWidgetItem(
            project, [title, format_date(group.last), format_byte_size(group.size)]
        )
        row.setFlags(row.flags() | Qt.ItemFlag.ItemIsUserCheckable)
        row.setCheckState(
            _TITLE, Qt.CheckState.Unchecked if group.is_imported else Qt.CheckState.Checked
        )
        row.setTextAlignment(_COST, Qt.AlignmentFlag.AlignRight)
        row.setData(_TITLE, _GROUP, group)
        self._mark_if_imported(row)
        self.rows[str(group.path), group.folder] = row

    def show_details(self, group: FoundHistories, details: HistoryDetails) -> None:
        """Shows what was read of a conversation, or why it cannot be imported."""
        if (row := self.rows.get((str(group.path), group.folder))) is None:
            return
        row.setText(_TITLE, make_safe_text(details.title) or tr("Untitled"))
        last, project = details.last or group.last, row.parent()
        row.setText(_DATE, format_date(last))
        if project is not None and last > (project.data(_DATE, _GROUP) or 0.0):
            project.setData(_DATE, _GROUP, last)
            project.setText(_DATE, format_date(last))
        row.setText(_LENGTH, format_count(details.messages, "{n} message", "{n} messages"))
        row.setText(_COST, format_dollars(details.cost) if details.cost else "–")
        self._mark_if_imported(row)
        if details.reason:
            self._show_reason(row, details.reason)
            row.setCheckState(_TITLE, Qt.CheckState.Unchecked)

    def show_reasons_and_return_others(self, complaints: Sequence[str]) -> list[str]:
        """Shows each reason beside the conversation it concerns. Returns the reasons
        that concern none.
        """
        others = []
        for complaint in complaints:
            row = next(
                (row for (path, _), row in self.rows.items() if complaint.startswith(path)), None
            )
            if row is None:
                others.append(complaint)
            else:
                self._show_reason(row, complaint)
        return others

    def _mark_if_imported(self, row: QTreeWidgetItem) -> None:
        if row.data(_TITLE, _GROUP).is_imported:
            self._show_reason(row, tr("already imported"))

    def _show_reason(self, row: QTreeWidgetItem, reason: str) -> None:
        group = row.data(_TITLE, _GROUP)
        words = make_safe_text(
            translate_sentences(reason).replace(str(group.path), group.path.name)
        )
        row.setText(_TITLE, f"{row.text(_TITLE).partition(' — ')[0]} — {words}")
        row.setToolTip(_TITLE, safe_tooltip(words))

    def filter_rows(self, words: str) -> None:
        wanted = words.casefold().split()
        for project in self._project_items():
            for row in _rows_of(project):
                text = f"{project.text(_TITLE)} {row.text(_TITLE)}".casefold()
                row.setHidden(not all(word in text for word in wanted))
            project.setHidden(all(row.isHidden() for row in _rows_of(project)))
            project.setExpanded(project.isExpanded() or bool(wanted))
        self.choice_changed.emit()

    def chosen_groups(self) -> list[FoundHistories]:
        return [
            row.data(_TITLE, _GROUP)
            for project in self._project_items()
            for row in _rows_of(project)
            if not row.isHidden() and row.checkState(_TITLE) == Qt.CheckState.Checked
        ]

    def _project_items(self) -> list[QTreeWidgetItem]:
        return _rows_of(self.invisibleRootItem())


def _rows_of(project: QTreeWidgetItem) -> list[QTreeWidgetItem]:
    return [row for at in range(project.childCount()) if (row := project.child(at)) is not None]
