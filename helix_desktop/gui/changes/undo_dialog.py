"""The dialog before an undo: what will happen, and a choice for each file changed by others."""

import itertools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QComboBox, QGridLayout, QHBoxLayout, QScrollArea, QWidget

from helix_desktop.engine.changes.diff_hunks import find_changed_lines, is_binary, split_into_lines
from helix_desktop.engine.changes.folder_state import PathChange, is_change_of_folder
from helix_desktop.engine.changes.turn_changes import (
    FileChange,
    PlannedUndo,
    UndoOutlook,
    printable_path,
)
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.elided_label import ElidedLabel, shorten_name_list
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.views.large_text_view import TextLineView


class UndoChangesDialog(widgets.TransientDialog):
    """`choices_by_path`: after acceptance, what to do with each file that was changed
    later; `later`: by which turns. `compare_wanted` carries the plan of the file whose
    versions the user wants to see.
    """

    compare_wanted = Signal(object)

    def __init__(
        self,
        theme: Theme,
        title: str,
        files: Sequence[FileChange],
        planned: Sequence[PlannedUndo],
        parent: QWidget | None = None,
        *,
        redo: bool = False,
        later: Mapping[str, str] = {},
    ) -> None:
        """`later`: by path, the names of the turns that changed the file again."""
        super().__init__(title, parent, 620)
        self._redo = redo
        self._later = later
        self._places = {file.path_of_change: file.place for file in files}
        self._boxes: dict[str, QComboBox] = {}

        column = build_column(owner=self, spacing=theme.zoomed_pixels(10))
        for sentence in self._describe_plan(planned):
            column.addWidget(widgets.build_plain_label(sentence, parent=self))
        conflicts = [undo for undo in planned if undo.how is UndoOutlook.CONFLICT]
        if conflicts:
            column.addWidget(self._build_conflict_list(conflicts), 1)
        note_words = tr("Only these files are changed. You can reverse this later.")
        if len(_mentioned_changes(planned)) == 1:
            note_words = tr("Only this file is changed. You can reverse this later.")
        note = widgets.build_plain_label(note_words, "small", self)
        column.addWidget(note)
        if not conflicts:
            column.addStretch(1)

        label = tr("Undo")
        if redo:
            label = tr("Redo")
        self.undo_button = widgets.build_push_button(label, self, look="primary")
        column.addWidget(widgets.build_confirm_buttons(self, self.undo_button, self.accept))

    @property
    def choices_by_path(self) -> dict[str, str]:
        return {path: str(box.currentData()) for path, box in self._boxes.items()}

    def _describe_plan(self, planned: Sequence[PlannedUndo]) -> list[str]:
        """Returns a sentence for each kind of thing that the undo would do."""
        groups = _group_plan(planned)
        sentences: list[str] = []
        if groups.restored:
            words = format_count(
                len(groups.restored),
                "{n} file will be restored: ",
                "{n} files will be restored: ",
            )
            sentences.append(words + self._list_names(groups.restored))
        if groups.deleted:
            words = format_count(
                len(groups.deleted), "{n} file will be deleted: ", "{n} files will be deleted: "
            )
            sentences.append(words + self._list_names(groups.deleted))
        if groups.unchanged:
            words = format_count(
                len(groups.unchanged), "{n} file needed no change.", "{n} files needed no change."
            )
            sentences.append(words)
        if groups.conflicting:
            sentences.append(self._ask_for_conflicts(groups.conflicting))
        if not sentences:
            sentences.append(self._say_nothing_to_do())
        return sentences

    def _list_names(self, undos: Sequence[PlannedUndo]) -> str:
        return shorten_name_list([self._path_for_display(undo) for undo in undos])

    def _say_nothing_to_do(self) -> str:
        if self._redo:
            return tr("There is nothing to redo.")
        return tr("There is nothing to undo.")

    def _ask_for_conflicts(self, conflicting: Sequence[PlannedUndo]) -> str:
        paths = {undo.path for undo in conflicting}
        is_all_by_agent = self._later.keys() >= paths
        if is_all_by_agent:
            return tr(
                "The agent changed these files again in later turns. Choose what to do with each file:"
            )
        return tr(
            "You or another program changed these files later. Choose what to do with each file:"
        )

    def _path_for_display(self, undo: PlannedUndo) -> str:
        _root, _slash, path_in_root = undo.path.partition("/")
        return printable_path(self._places.get(undo.path, path_in_root))

    def _list_conflict_choices(self) -> list[tuple[str, str]]:
        """Returns the label and the value of each choice."""
        leave = tr("Leave the file as it is now")
        if self._redo:
            restore = tr("Restore the file to its state before the undo")
            merge = tr("Redo only the agent's lines")
        else:
            restore = tr("Restore the file to its state before the agent's changes")
            merge = tr("Undo only the agent's lines")
        return [(leave, "now"), (restore, "before"), (merge, "merge")]

    def _build_conflict_list(self, conflicts: Sequence[PlannedUndo]) -> QScrollArea:
        """Builds two rows of a grid for each file: its name, and below it what to do with it."""
        grid_widget = QWidget()
        grid = QGridLayout(grid_widget)
        grid.setContentsMargins(0, 0, 0, 0)
        for number, undo in enumerate(conflicts):
            name_row = 2 * number
            choice_row = name_row + 1
            path = self._path_for_display(undo)
            name_label = ElidedLabel(grid_widget, Qt.TextElideMode.ElideMiddle)
            name_label.setProperty("look", "mono")
            name_label.set_elided_text(self._name_conflict(undo))
            choices_box = self._build_choices_box(path, grid_widget)
            self._boxes[undo.path] = choices_box
            compare = partial(self.compare_wanted.emit, undo)
            compare_button = widgets.build_push_button(tr("Compare…"), grid_widget, compare)
            grid.addWidget(name_label, name_row, 0, 1, 2)
            grid.addWidget(choices_box, choice_row, 0)
            grid.addWidget(compare_button, choice_row, 1)
        grid.setColumnStretch(0, 1)
        row_below_files = 2 * len(conflicts)
        grid.setRowStretch(row_below_files, 1)
        return widgets.build_scroll_area(grid_widget, self)

    def _name_conflict(self, undo: PlannedUndo) -> str:
        """Returns the path, with the turns of the agent that changed the file again."""
        path = self._path_for_display(undo)
        if undo.path not in self._later:
            return path
        return f"{path} · {self._later[undo.path]}"

    def _build_choices_box(self, path: str, parent: QWidget) -> QComboBox:
        box = widgets.build_combo_box(path, parent)
        box.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        for label, choice in self._list_conflict_choices():
            box.addItem(label, choice)
        return box


@dataclass(slots=True)
class _PlanGroups:
    """What an undo would do, by kind."""

    restored: list[PlannedUndo] = field(default_factory=list)
    deleted: list[PlannedUndo] = field(default_factory=list)
    unchanged: list[PlannedUndo] = field(default_factory=list)
    conflicting: list[PlannedUndo] = field(default_factory=list)


def _group_plan(planned: Sequence[PlannedUndo]) -> _PlanGroups:
    """Sorts the files of a planned undo by what will happen to them, for the sentences
    of the question.
    """
    groups = _PlanGroups()
    for undo in _mentioned_changes(planned):
        if undo.how is UndoOutlook.CONFLICT:
            groups.conflicting.append(undo)
        elif undo.how is UndoOutlook.ALREADY:
            groups.unchanged.append(undo)
        elif undo.before is None:  # The agent made the file, so it did not exist before.
            groups.deleted.append(undo)
        else:
            groups.restored.append(undo)
    return groups


def _mentioned_changes(planned: Sequence[PlannedUndo]) -> Sequence[PlannedUndo]:
    """Leaves out folders, unless nothing else changes."""
    changes_of_files = [undo for undo in planned if not _is_of_folder(undo)]
    return changes_of_files or planned


def _is_of_folder(undo: PlannedUndo) -> bool:
    return is_change_of_folder(PathChange(undo.path, undo.before, undo.after))


class ThreeVersionsDialog(widgets.TransientDialog):
    """Shows a file before the agent's change, after it, and now, side by side."""

    def __init__(
        self,
        theme: Theme,
        path: str,
        versions: tuple[bytes, bytes, bytes],
        parent: QWidget | None = None,
        *,
        differing: Sequence[Collection[int]] = ((), (), ()),
        redo: bool = False,
    ) -> None:
        """`differing`: see `find_differing_lines`."""
        super().__init__(printable_path(path), parent, 1200, 640)
        title_before = tr("Before the agent's changes")
        title_after = tr("After the agent's changes")
        if redo:
            title_before = tr("Before the undo")
            title_after = tr("After the undo")
        titles = [title_before, title_after, tr("Now")]
        marks = [_REMOVED, _ADDED, _ADDED]

        row = QHBoxLayout(self)
        self.views: list[TextLineView] = []
        for title, content, lines, mark in zip(titles, versions, differing, marks, strict=True):
            label = widgets.build_plain_label(title, "heading", self, wraps=False)
            view = TextLineView(theme, self)
            view.setAccessibleName(title)
            _show_version(view, content, lines, mark)
            self.views.append(view)
            row.addLayout(build_column(label, (view, 1)))
        # The three versions scroll together.
        for scrolled_view, other_view in itertools.permutations(self.views, 2):
            scroll_other = other_view.verticalScrollBar().setValue
            scrolled_view.verticalScrollBar().valueChanged.connect(scroll_other)


@dataclass(frozen=True, slots=True)
class LineMark:
    """How a line that differs is marked."""

    sign: str
    colour: str


_REMOVED = LineMark("-", "danger_soft")
_ADDED = LineMark("+", "added_soft")


def _show_version(
    view: TextLineView, content: bytes, differing: Collection[int], mark: LineMark
) -> None:
    """Shows one of three versions as numbered lines. Lines that differ have a colour
    and a sign. Of a file that is no text, only the size is shown.
    """
    if is_binary(content):
        text = format_byte_size(len(content))
    else:
        text = content.decode("utf-8", "replace")
    lines = text.split("\n")
    colours: list[str] = []
    labels: list[str] = []
    for index in range(len(lines)):
        line_number = index + 1
        if index in differing:
            colours.append(mark.colour)
            labels.append(f"{line_number} {mark.sign}")
        else:
            colours.append("")
            labels.append(f"{line_number}  ")
    view.show_text_lines(lines, tone=colours.__getitem__, labels=labels.__getitem__)


def find_differing_lines(versions: tuple[bytes, bytes, bytes]) -> list[set[int]]:
    """Returns for each version the lines that the agent removed, that it added, and
    that changed since.
    """
    lines_before, lines_after, current_lines = map(split_into_lines, versions)
    removed: set[int] = set()
    added: set[int] = set()
    for hunk in find_changed_lines(lines_before, lines_after):
        removed.update(range(hunk.old, hunk.old_end))
        added.update(range(hunk.new, hunk.new_end))
    changed_since: set[int] = set()
    for hunk in find_changed_lines(lines_after, current_lines):
        changed_since.update(range(hunk.new, hunk.new_end))
    return [removed, added, changed_since]
