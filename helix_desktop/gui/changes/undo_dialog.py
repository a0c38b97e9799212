"""The dialog before an undo: what will happen, and a choice for each file changed by others."""

import itertools
from collections.abc import Collection, Mapping, Sequence
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
from helix_desktop.gui.common import widgets
from helix_desktop.gui.common.elided_label import ElidedLabel
from helix_desktop.gui.common.figure_formats import format_byte_size
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.views.large_text_view import TextLineView

SHOWN_FILE_NAMES = 12  # The maximum number of changed files that are named.


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
        super().__init__(title, parent, 620)
        self._redo, self._later = redo, later
        self._places = {file.path_of_change: file.place for file in files}
        self._boxes: dict[str, QComboBox] = {}
        conflicts = [one for one in planned if one.how is UndoOutlook.CONFLICT]
        plan = [widgets.build_plain_label(one, parent=self) for one in self._describe_plan(planned)]
        column = build_column(*plan, owner=self, spacing=theme.zoomed_pixels(10))
        if conflicts:
            column.addWidget(self._build_conflict_list(conflicts), 1)
        note = widgets.build_plain_label(
            tr("Only these files are changed. You can reverse this later."), "small", self
        )
        column.addWidget(note)
        column.addStretch(0 if conflicts else 1)
        self.undo_button = widgets.build_push_button(
            tr("Redo") if redo else tr("Undo"), self, look="primary"
        )
        column.addWidget(widgets.build_confirm_buttons(self, self.undo_button, self.accept))

    @property
    def choices_by_path(self) -> dict[str, str]:
        return {path: str(box.currentData()) for path, box in self._boxes.items()}

    def _describe_plan(self, planned: Sequence[PlannedUndo]) -> list[str]:
        found = []
        planned = [
            one
            for one in planned
            if not is_change_of_folder(PathChange(one.path, one.before, one.after))
        ] or planned
        done = [one for one in planned if one.how is UndoOutlook.RESTORE]
        back = [self._path_for_display(one) for one in done if one.before is not None]
        gone = [self._path_for_display(one) for one in done if one.before is None]
        already = sum(one.how is UndoOutlook.ALREADY for one in planned)
        if back:
            words = format_count(
                len(back), "{n} file will be restored: ", "{n} files will be restored: "
            )
            found.append(words + shorten_name_list(back))
        if gone:
            words = format_count(
                len(gone), "{n} file will be deleted: ", "{n} files will be deleted: "
            )
            found.append(words + shorten_name_list(gone))
        if already:
            found.append(
                format_count(already, "{n} file needed no change.", "{n} files needed no change.")
            )
        conflicts = [one.path for one in planned if one.how is UndoOutlook.CONFLICT]
        if conflicts and self._later.keys() >= {*conflicts}:
            found.append(
                tr(
                    "The agent changed these files again in later turns. Choose what to do with each file:"
                )
            )
        elif conflicts:
            found.append(
                tr(
                    "You or another program changed these files later. Choose what to do with each file:"
                )
            )
        return found or [
            tr("There is nothing to redo.") if self._redo else tr("There is nothing to undo.")
        ]

    def _path_for_display(self, one: PlannedUndo) -> str:
        return printable_path(self._places.get(one.path, one.path.partition("/")[2]))

    def _conflict_choice_labels(self) -> tuple[str, str, str]:
        leave = tr("Leave the file as it is now")
        if self._redo:
            return (
                leave,
                tr("Restore the file to its state before the undo"),
                tr("Redo only the agent's lines"),
            )
        return (
            leave,
            tr("Restore the file to its state before the agent's changes"),
            tr("Undo only the agent's lines"),
        )

    def _build_conflict_list(self, planned: Sequence[PlannedUndo]) -> QScrollArea:
        inner = QWidget()
        grid = QGridLayout(inner)
        grid.setContentsMargins(0, 0, 0, 0)
        for row, one in enumerate(planned):
            name = ElidedLabel(inner, Qt.TextElideMode.ElideMiddle)
            name.setProperty("look", "mono")
            turn = (
                [tr("Turn {number}", number=self._later[one.path])]
                if one.path in self._later
                else []
            )
            name.set_elided_text(" · ".join((self._path_for_display(one), *turn)))
            box = widgets.build_combo_box(self._path_for_display(one), inner)
            box.setSizeAdjustPolicy(
                QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon
            )
            for words, choice in zip(
                self._conflict_choice_labels(), ("now", "before", "merge"), strict=True
            ):
                box.addItem(words, choice)
            look = widgets.build_push_button(
                tr("Compare…"), inner, partial(self.compare_wanted.emit, one)
            )
            self._boxes[one.path] = box
            grid.addWidget(name, 2 * row, 0, 1, 2)
            grid.addWidget(box, 2 * row + 1, 0)
            grid.addWidget(look, 2 * row + 1, 1)
        grid.setColumnStretch(0, 1)
        grid.setRowStretch(2 * len(planned), 1)
        return widgets.build_scroll_area(inner, self)


def shorten_name_list(places: Sequence[str]) -> str:
    return ", ".join(places[:SHOWN_FILE_NAMES]) + ("…" if len(places) > SHOWN_FILE_NAMES else "")


class ThreeVersionsDialog(widgets.TransientDialog):
    """Shows a file before the agent's change, after it, and now, side by side."""

    def __init__(
        self,
        theme: Theme,
        place: str,
        versions: tuple[bytes, bytes, bytes],
        parent: QWidget | None = None,
        *,
        differing: Sequence[Collection[int]] = ((), (), ()),
        redo: bool = False,
    ) -> None:
        """`differing`: see `find_differing_lines`."""
        super().__init__(printable_path(place), parent, 1200, 640)
        row = QHBoxLayout(self)
        self.views: list[TextLineView] = []
        agent = tr("Before the agent's changes"), tr("After the agent's changes")
        first = (tr("Before the undo"), tr("After the undo")) if redo else agent
        titles = (*first, tr("Now"))
        signs = ("-", "danger_soft"), ("+", "added_soft"), ("+", "added_soft")
        for title, content, lines, (sign, colour) in zip(
            titles, versions, differing, signs, strict=True
        ):
            label = widgets.build_plain_label(title, "heading", self, wraps=False)
            view = TextLineView(theme, self)
            view.setAccessibleName(title)
            shown = (
                format_byte_size(len(content))
                if is_binary(content)
                else content.decode("utf-8", "replace")
            )
            tones = [colour if number in lines else "" for number in range(shown.count("\n") + 1)]
            labels = [f"{number} {sign if tone else ' '}" for number, tone in enumerate(tones, 1)]
            view.show_text_lines(
                shown.split("\n"), tone=tones.__getitem__, labels=labels.__getitem__
            )
            self.views.append(view)
            row.addLayout(build_column(label, (view, 1)))
        for view, other in itertools.permutations(self.views, 2):
            view.verticalScrollBar().valueChanged.connect(other.verticalScrollBar().setValue)


def find_differing_lines(versions: tuple[bytes, bytes, bytes]) -> list[set[int]]:
    """Returns for each version the lines that the agent removed, that it added, and
    that changed since.
    """
    before, after, now = map(split_into_lines, versions)
    agents, later = list(find_changed_lines(before, after)), find_changed_lines(after, now)
    removed, added = (
        [range(one.old, one.old_end) for one in agents],
        [range(one.new, one.new_end) for one in agents],
    )
    ranges = removed, added, [range(one.new, one.new_end) for one in later]
    return [set(itertools.chain(*some)) for some in ranges]
