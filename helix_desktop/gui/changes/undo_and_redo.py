"""Undoes what turns, steps and hunks did to files, and redoes it. The user is asked first."""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.changes.folder_state import TreeItem
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UndoOutlook,
    printable_path,
    seqs_to_name_in_undo,
    step_with_undos,
    without_user_undos,
)
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.undo_dialog import (
    ThreeVersionsDialog,
    UndoChangesDialog,
    find_differing_lines,
)
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.common.widgets import build_popup_menu
from helix_desktop.gui.sentence_translation import join_sentences
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import FileChanges, FileUndoResult

MOST_NAMES = 2  # The maximum number of files that are named with a step.
MOST_STEPS = 8  # The maximum number of a turn's steps, and of undone turns, that the menu offers.


class ChangesUndo(QObject):
    """`button` is where the menu opens. `undone` carries a sentence on the result, and
    the button of its notice.
    """

    undone = Signal(str, dict)

    def __init__(self, theme: Theme, doing: BackgroundRunner, button: QPushButton) -> None:
        super().__init__(button)
        self._theme, self._doing, self._button = theme, doing, button
        self._changes: FileChanges | None = None
        self._conversation = ""
        self.turns: Sequence[TurnOfChanges] = ()  # All turns with changes, oldest first.

    def set_changes(self, changes: FileChanges | None, conversation: str) -> None:
        self._changes, self._conversation = changes, conversation

    def ask_what_to_undo(
        self, turn: TurnOfChanges, turns: Sequence[TurnOfChanges], undone: Sequence[TurnOfChanges]
    ) -> None:
        """Offers what can be undone of a turn. Of all `turns`, some are already `undone`."""
        if self._changes is not None:
            menu = partial(self._show_undo_menu, turn, turns, undone)
            self._run_undo_work(self._undoable_steps(self._changes, turn, undone), then=menu)

    async def _undoable_steps(
        self, changes: FileChanges, turn: TurnOfChanges, undone: Sequence[TurnOfChanges]
    ) -> Sequence[ChangeSource]:
        """Returns a turn's last steps that are not undone yet, or nothing if the turn
        has only one step.
        """
        steps = without_user_undos(turn.sources)
        last = steps[-MOST_STEPS:] if len(steps) > 1 and turn not in undone else ()
        return [
            step
            for step in last
            if await changes.changes_with_folders(step_with_undos(step, turn.sources))
        ]

    def _show_undo_menu(
        self,
        turn: TurnOfChanges,
        turns: Sequence[TurnOfChanges],
        undone: Sequence[TurnOfChanges],
        steps: Sequence[ChangeSource],
    ) -> None:
        """Lists undone turns to redo, then each step, the turn, and everything since
        the turn started.
        """
        later = [each for each in turns if each.seq >= turn.seq and each not in undone]
        menu = build_popup_menu(self._button)

        def offer_undo(words: str, sources: Sequence[ChangeSource]) -> None:
            menu.addAction(
                words.replace("&", "&&"), lambda: self.confirm_and_undo_sources(sources, words)
            )

        for each in reversed(undone[-MOST_STEPS:]):
            offer_undo(tr("Redo turn {number}…", number=each.turn_numbers), each.sources)
        for step in reversed(steps):
            names = [printable_path(name) for name in step.fact.names[:MOST_NAMES]]
            more = ["…"] if names and step.fact.files > len(names) else []
            tool = f"{step.what or step.fact.by} {', '.join((*names, *more))}".rstrip()
            offer_undo(tr("Undo step {step} ({tool})…", step=step.step, tool=tool), [step])
        for undo in _undos_to_reverse(turns, undone)[: -MOST_STEPS - 1 : -1]:
            fact, time_of_day = undo.fact, format_time_of_day(undo.time)
            files = (
                format_count(fact.files, "{n} file", "{n} files")
                if fact.files > 1
                else "".join(fact.names[:1])
            )
            offer_undo(
                tr("Reverse the undo of {files}, {time}…", files=files, time=time_of_day), [undo]
            )
        if turn not in undone:
            offer_undo(tr("Undo turn {number}…", number=turn.turn_numbers), turn.sources)
        if len(later) > 1:
            all_of_it = [source for each in later for source in each.sources]
            offer_undo(tr("Undo everything since turn {number}…", number=turn.number), all_of_it)
        menu.popup(self._button.mapToGlobal(self._button.rect().bottomLeft()))

    def confirm_and_undo_since_turn(
        self, turn: TurnOfChanges, turns: Sequence[TurnOfChanges]
    ) -> None:
        """Restores everything to its state before a turn, including later changes of the user."""
        if self._changes is not None:
            title = tr("Restore everything to its state before turn {number} (your own changes are undone too)", number=turn.number)  # fmt: skip
            work = self._changes.changes_since_checkpoint(turn.first_checkpoint, folders=True)
            sources = (source for each in turns if each.seq >= turn.seq for source in each.sources)
            undoes = seqs_to_name_in_undo(sources, self._conversation)
            self._run_undo_work(
                work, then=lambda files: self.plan_and_confirm_undo(files, undoes, title)
            )

    def confirm_and_undo_sources(self, sources: Sequence[ChangeSource], title: str) -> None:
        """Undoes everything that these steps changed, including folders, after a question."""
        if self._changes is not None:
            work, title = (
                self._changes_left_to_undo(self._changes, sources),
                title.removesuffix("…"),
            )
            self._run_undo_work(
                work, then=lambda left: self.plan_and_confirm_undo(left[0], (), title, redo=left[1])
            )

    async def _changes_left_to_undo(
        self, changes: FileChanges, sources: Sequence[ChangeSource]
    ) -> tuple[Sequence[FileChange], bool]:
        """Returns what these steps changed and is not undone yet, or else all their
        undos; and whether it is a redo.
        """
        left = await changes.changes_with_folders(sources)
        undone = [source for source in sources if source.fact.by == "undo"]
        is_reversal = len(undone) == len(sources)
        return (
            (left, is_reversal)
            if left or not undone
            else (await changes.changes_with_folders(undone), True)
        )

    def plan_and_confirm_undo(
        self,
        files: Sequence[FileChange],
        undoes: Sequence[int] = (),
        title: str = "",
        *,
        redo: bool = False,
    ) -> None:
        changes = self._changes
        if changes is None or not files:
            return

        async def plan_and_find_later_turns() -> tuple[Sequence[PlannedUndo], dict[str, str]]:
            plan = await changes.plan_undo(files)
            return plan, await find_later_turns(changes, self.turns, files, plan)

        def show_undo_dialog(planned: tuple[Sequence[PlannedUndo], dict[str, str]]) -> None:
            words, (plan, later) = title or tr("Undo"), planned
            dialog = UndoChangesDialog(
                self._theme, words, files, plan, self._button, redo=redo, later=later
            )
            dialog.compare_wanted.connect(partial(self._open_three_versions_dialog, redo=redo))
            again = tr("Undo") if redo else ""
            dialog.accepted.connect(
                lambda: self._undo_confirmed(files, dialog.choices_by_path, undoes, again)
            )
            dialog.open()

        self._run_undo_work(plan_and_find_later_turns(), then=show_undo_dialog)

    def _undo_confirmed(
        self,
        files: Sequence[FileChange],
        choices: dict[str, str],
        undoes: Sequence[int],
        label: str,
    ) -> None:
        if self._changes is not None:
            work = self._changes.undo_file_changes(
                files, conversation=self._conversation, choices=choices, undoes=undoes
            )
            self._run_undo_work(work, then=partial(self.report_undone, label=label))

    def _open_three_versions_dialog(self, planned: PlannedUndo, *, redo: bool) -> None:
        if (changes := self._changes) is not None:
            place = planned.path.partition("/")[2]

            async def read_and_compare() -> ThreeVersionsDialog:
                versions = await changes.three_versions_of_file(planned)
                lines = await asyncio.to_thread(find_differing_lines, versions)
                return ThreeVersionsDialog(
                    self._theme, place, versions, self._button, differing=lines, redo=redo
                )

            self._run_undo_work(read_and_compare(), then=lambda dialog: dialog.open())

    def report_undone(self, undone: FileUndoResult, *, words: str = "", label: str = "") -> None:
        """Reports the result. `label`: the notice's button, by default "Redo". `words`
        replace the counts.
        """
        is_as_said = words and undone.restored and not undone.paths_left_alone
        button = {}
        if undone.fact is not None:
            button = {
                "button": label or tr("Redo"),
                "act": partial(self._undo_the_undo, undone.fact, label),
            }
        self.undone.emit(words if is_as_said else describe_undone_files(undone), button)

    def _undo_the_undo(self, fact: FilesChanged, label: str) -> None:
        """Redoes without a question: only files that nobody has changed since are restored."""
        if (changes := self._changes) is not None:
            work = redo_undone_changes(changes, fact, self._conversation)
            report = partial(self.report_undone, label="" if label else tr("Undo"))
            self._run_undo_work(work, then=report)

    def undo_hunk(self, file: FileChange, hunk: str) -> None:
        if self._changes is not None:
            work = self._changes.undo_hunks(file, [hunk], conversation=self._conversation)
            words = tr("The change was undone. The rest of the file was not changed.")
            self._run_undo_work(work, then=partial(self.report_undone, words=words))

    def _run_undo_work(
        self, work: Coroutine[Any, Any, Any], *, then: Callable[[Any], object]
    ) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


async def redo_undone_changes(
    changes: FileChanges, fact: FilesChanged, talk: str
) -> FileUndoResult:
    found = await changes.changes_with_folders([ChangeSource(talk, 0, time.time(), fact)])
    return await changes.undo_file_changes(found, conversation=talk)


async def find_later_turns(
    changes: FileChanges,
    turns: Sequence[TurnOfChanges],
    files: Sequence[FileChange],
    plan: Sequence[PlannedUndo],
) -> dict[str, str]:
    """Returns, for files that are as a later turn of the agent has left them, the
    numbers of the turns that changed them.
    """
    there = {one.path: one.now for one in plan if one.how is UndoOutlook.CONFLICT}
    last = max((source.seq for file in files for source in file.sources), default=0)
    found: dict[str, list[str]] = {}
    left: dict[str, TreeItem | None] = {}
    for turn in turns if there and last else ():
        for file in await changes.changes_with_folders(turn.sources) if turn.seq > last else ():
            found.setdefault(file.path_of_change, []).append(turn.turn_numbers)
            left[file.path_of_change] = file.change.after
    return {
        path: ", ".join(found[path])
        for path, now in there.items()
        if path in found and left[path] == now
    }


def describe_undone_files(undone: FileUndoResult) -> str:
    deleted = undone.files_deleted
    # If only folders were restored, they are counted instead.
    back = undone.files_put_back or (0 if deleted else len(undone.restored))
    said = format_count(back, "{n} file was restored.", "{n} files were restored.") if back else ""
    gone = (
        format_count(deleted, "{n} file was deleted.", "{n} files were deleted.") if deleted else ""
    )
    left = [
        tr("{place} was not changed: {why}.", place=place, why=why.rstrip("."))
        for place, why in undone.paths_left_alone[:6]
    ]
    return "\n".join((join_sentences(said, gone) or tr("No files were restored."), *left))


def _undos_to_reverse(
    turns: Sequence[TurnOfChanges], undone: Sequence[TurnOfChanges]
) -> list[ChangeSource]:
    """Returns the undos of all turns, oldest first, but none that a redo reversed at
    once, nor a turn's only one.
    """
    found = []
    for turn in turns:
        undos: list[ChangeSource] = []
        for undo in (each for each in turn.sources if each.fact.by == "undo"):
            if undos and _is_exact_reversal(undo.fact, undos[-1].fact):
                undos.pop()
            else:
                undos.append(undo)
        found += undos if turn not in undone or len(undos) > 1 else []
    return sorted(found, key=lambda undo: undo.time)


def _is_exact_reversal(later: FilesChanged, earlier: FilesChanged) -> bool:
    states = earlier.before, earlier.after
    return (
        later.undoes == earlier.undoes
        and states[0] != states[1]
        and (later.after, later.before) == states
    )
