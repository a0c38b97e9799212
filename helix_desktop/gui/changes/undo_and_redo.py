"""Undoes what turns, steps and hunks did to files, and redoes it. The user is asked first, except
where the result can be taken back by one press: a hunk, and what is redone.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QMenu, QPushButton

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
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.common.widgets import build_popup_menu, open_menu_below
from helix_desktop.gui.sentence_translation import join_sentences
from helix_desktop.gui.shown_workspace import ShownFileChanges
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.gui.workbench_types import FileUndoResult

MOST_NAMES = 2  # The maximum number of files that are named with a step.
LONGEST_NAME_OF_TURN = 40  # The most characters of a message by which a turn is named.
MOST_LEFT_ALONE = 6  # The maximum number of files that a result names as not changed.
MOST_STEPS = 8  # The most steps of a turn, undone turns and other turns that the menu offers.


@dataclass(frozen=True, slots=True)
class ChangesLeft:
    """What can still be undone of some steps. `is_redo`: the steps are undos themselves."""

    files: Sequence[FileChange]
    is_redo: bool


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """What an undo would do with each file. `later_turns`: by path, the names of the turns in
    which the agent changed the file again.
    """

    planned: Sequence[PlannedUndo]
    later_turns: dict[str, str]


@dataclass(frozen=True, slots=True)
class UndoWish:
    """What the user is asked about: which files are restored, and the facts that the undo names."""

    files: Sequence[FileChange]
    undoes: tuple[int, ...]
    title: str
    is_redo: bool


class ChangesUndo(QObject):
    """Undoes and redoes changes to files. Undoing more than a hunk is asked first.

    `button` is where the menu opens. `undone` carries a sentence on the result, and
    the button of its notice.
    """

    undone = Signal(str, dict)

    def __init__(self, theme: Theme, doing: BackgroundRunner, button: QPushButton) -> None:
        super().__init__(button)
        self._theme = theme
        self._doing = doing
        self._button = button
        self._changes: ShownFileChanges | None = None
        self._conversation = ""
        self.turns: Sequence[TurnOfChanges] = ()  # All turns with changes, oldest first.
        self.committed_paths: frozenset[str] = frozenset()  # As they are in the last commit.

    def set_changes(self, changes: ShownFileChanges | None, conversation: str) -> None:
        self._changes = changes
        self._conversation = conversation

    def ask_what_to_undo(
        self,
        turn: TurnOfChanges,
        turns: Sequence[TurnOfChanges],
        undone: Sequence[TurnOfChanges],
        committed_file: FileChange | None = None,
    ) -> None:
        """Offers what can be undone of a turn. Of all `turns`, some are already `undone`.
        `committed_file`: the chosen one, which has no button of its own any more.
        """
        if self._changes is not None:
            menu = partial(self._show_undo_menu, turn, turns, undone, committed_file)
            self._run_undo_work(self._undoable_steps(self._changes, turn, undone), then=menu)

    async def _undoable_steps(
        self, changes: ShownFileChanges, turn: TurnOfChanges, undone: Sequence[TurnOfChanges]
    ) -> Sequence[ChangeSource]:
        """Returns a turn's last steps that are not undone yet, or nothing if the turn
        has only one step.
        """
        steps = without_user_undos(turn.sources)
        if len(steps) < 2 or turn in undone:
            return []
        undoable_steps: list[ChangeSource] = []
        for step in steps[-MOST_STEPS:]:
            remaining_files = await changes.changes_with_folders(
                step_with_undos(step, turn.sources)
            )
            if remaining_files:
                undoable_steps.append(step)
        return undoable_steps

    def _show_undo_menu(
        self,
        turn: TurnOfChanges,
        turns: Sequence[TurnOfChanges],
        undone: Sequence[TurnOfChanges],
        committed_file: FileChange | None,
        steps: Sequence[ChangeSource],
    ) -> None:
        """Lists undone turns to redo, then each step, the turn, everything since the turn
        started, and each of the other turns, which can be undone alone, too.
        """
        menu = build_popup_menu(self._button)
        if committed_file is not None:
            label = tr("Undo {file}…", file=printable_path(committed_file.place))
            plan = partial(self.plan_and_confirm_undo, committed_file.both_halves)
            menu.addAction(label.replace("&", "&&"), plan)
        for undone_turn in reversed(undone[-MOST_STEPS:]):
            label = tr("Redo {turn}", turn=name_turn(undone_turn, turns))
            self._add_undo_action(menu, label, undone_turn.sources)
        names_of_steps = [_name_step(step) for step in steps]
        for step, name in zip(reversed(steps), reversed(names_of_steps), strict=True):
            label = tr("Undo only “{tool}”…", tool=name)
            if names_of_steps.count(name) > 1:
                label = tr("Undo only “{tool}” (step {step})…", tool=name, step=step.step)
            self._add_undo_action(menu, label, [step])
        newest_undos = _undos_to_reverse(turns, undone)[-MOST_STEPS:]
        for undo in reversed(newest_undos):
            files = _name_undone_files(undo.fact)
            time_of_undo = format_time_of_day(undo.time)
            label = tr("Redo {files}, undone at {time}", files=files, time=time_of_undo)
            self._add_undo_action(menu, label, [undo])
        if turn not in undone:
            label = tr("Undo {turn}…", turn=name_turn(turn, turns))
            self._add_undo_action(menu, label, turn.sources)

        turns_since: list[TurnOfChanges] = []
        for later_turn in turns:
            if later_turn.seq >= turn.seq and later_turn not in undone:
                turns_since.append(later_turn)
        if len(turns_since) > 1:  # Otherwise it would be the same as undoing the turn.
            label = tr("Undo everything since {turn}…", turn=name_turn(turn, turns))
            self._add_undo_action(menu, label, _sources_of_turns(turns_since))

        self._add_other_turns(menu, turn, turns, undone)
        open_menu_below(menu, self._button)

    def _add_other_turns(
        self,
        menu: QMenu,
        turn: TurnOfChanges,
        turns: Sequence[TurnOfChanges],
        undone: Sequence[TurnOfChanges],
    ) -> None:
        """Lists the turns that the menu is not about. Each can be undone alone."""
        other_turns = [other for other in turns if other != turn and other not in undone]
        if not other_turns:
            return
        menu.addSeparator()
        for other_turn in reversed(other_turns[-MOST_STEPS:]):
            label = tr("Undo {turn}…", turn=name_turn(other_turn, turns))
            self._add_undo_action(menu, label, other_turn.sources)

    def _add_undo_action(self, menu: QMenu, label: str, sources: Sequence[ChangeSource]) -> None:
        confirm = partial(self.confirm_and_undo_sources, sources, label)
        shown_label = label
        # The dots at the end say that a question comes. A name that was cut has such dots already.
        if label.count("…") > 1:
            shown_label = label.removesuffix("…")
        # Qt would take "&" for the mark of a shortcut key.
        menu.addAction(shown_label.replace("&", "&&"), confirm)

    def confirm_and_undo_since_turn(
        self, turn: TurnOfChanges, turns: Sequence[TurnOfChanges]
    ) -> None:
        """Restores everything to its state before a turn, including later changes of the user."""
        if self._changes is None:
            return
        title = tr(
            "Restore everything to its state before {turn} (your own changes are undone too)",
            turn=name_turn(turn, turns),
        )
        turns_since = [later_turn for later_turn in turns if later_turn.seq >= turn.seq]
        sources = _sources_of_turns(turns_since)
        undoes = seqs_to_name_in_undo(sources, self._conversation)
        work = self._changes.changes_since_checkpoint(turn.first_checkpoint, folders=True)
        self._run_undo_work(
            work, then=lambda files: self.plan_and_confirm_undo(files, undoes, title)
        )

    def confirm_and_undo_sources(self, sources: Sequence[ChangeSource], title: str) -> None:
        """Undoes everything that these steps changed, including folders, after a question."""
        if self._changes is None:
            return

        def confirm(changes_left: ChangesLeft) -> None:
            dialog_title = title.removesuffix("…")
            self.plan_and_confirm_undo(
                changes_left.files, title=dialog_title, redo=changes_left.is_redo
            )

        self._run_undo_work(self._changes_left_to_undo(self._changes, sources), then=confirm)

    async def _changes_left_to_undo(
        self, changes: ShownFileChanges, sources: Sequence[ChangeSource]
    ) -> ChangesLeft:
        """Returns what these steps changed and is not undone yet, or else all their undos."""
        files = await changes.changes_with_folders(sources)
        undos = [source for source in sources if source.fact.by == "undo"]
        if files or not undos:
            return ChangesLeft(files, is_redo=len(undos) == len(sources))
        return ChangesLeft(await changes.changes_with_folders(undos), is_redo=True)

    def plan_and_confirm_undo(
        self,
        files: Sequence[FileChange],
        undoes: Sequence[int] = (),
        title: str = "",
        *,
        redo: bool = False,
    ) -> None:
        """Asks before these files are restored. `undoes`: the facts that the undo names."""
        if self._changes is None or not files:
            return
        wish = UndoWish(files, tuple(undoes), title or tr("Undo"), is_redo=redo)
        work = self._check_plan(self._changes, files)
        self._run_undo_work(work, then=partial(self._show_undo_dialog, wish))

    async def _check_plan(
        self, changes: ShownFileChanges, files: Sequence[FileChange]
    ) -> CheckedPlan:
        planned = await changes.plan_undo(files)
        later_turns = await find_later_turns(changes, self.turns, files, planned)
        return CheckedPlan(planned, later_turns)

    def _show_undo_dialog(self, wish: UndoWish, plan: CheckedPlan) -> None:
        has_conflict = any(planned.how is UndoOutlook.CONFLICT for planned in plan.planned)
        if wish.is_redo and not has_conflict:
            # The message after an undo redoes without a question, too, and can be undone.
            self._undo_confirmed(wish, {})
            return
        # Imported here, so that the window's start does not wait for it.
        from helix_desktop.gui.changes.undo_dialog import UndoChangesDialog

        dialog = UndoChangesDialog(
            self._theme,
            wish.title,
            wish.files,
            plan.planned,
            self._button,
            redo=wish.is_redo,
            later=plan.later_turns,
        )
        open_comparison = partial(self._open_three_versions_dialog, redo=wish.is_redo)
        dialog.compare_wanted.connect(open_comparison)
        dialog.accepted.connect(lambda: self._undo_confirmed(wish, dialog.choices_by_path))
        dialog.open()

    def _undo_confirmed(self, wish: UndoWish, choices: dict[str, str]) -> None:
        if self._changes is None:
            return
        work = self._changes.undo_file_changes(
            wish.files, conversation=self._conversation, choices=choices, undoes=wish.undoes
        )
        report = partial(
            self.report_undone, is_redo=wish.is_redo, note=self._note_on_commit(wish.files)
        )
        self._run_undo_work(work, then=report)

    def _note_on_commit(self, files: Sequence[FileChange]) -> str:
        """Says that an undo takes nothing out of a commit. Empty if none of the files is in one."""
        for file in files:
            if file.path_of_change in self.committed_paths:
                return tr("The commit keeps what it has: this undo is a new change to commit.")
        return ""

    def _open_three_versions_dialog(self, planned: PlannedUndo, *, redo: bool) -> None:
        """Shows a file that others changed since as three versions beside each other:
        before the agent's change, after it, and as it is now.
        """
        from helix_desktop.gui.changes.undo_dialog import ThreeVersionsDialog, find_differing_lines

        changes = self._changes
        if changes is None:
            return
        _root, _slash, path_in_root = planned.path.partition("/")

        async def read_and_compare_versions() -> ThreeVersionsDialog:
            versions = await changes.three_versions_of_file(planned)
            differing_lines = await asyncio.to_thread(find_differing_lines, versions)
            return ThreeVersionsDialog(
                self._theme,
                path_in_root,
                versions,
                self._button,
                differing=differing_lines,
                redo=redo,
            )

        self._run_undo_work(read_and_compare_versions(), then=ThreeVersionsDialog.open)

    def report_undone(
        self,
        result: FileUndoResult,
        *,
        success_words: str = "",
        is_redo: bool = False,
        note: str = "",
    ) -> None:
        """Reports the result. `is_redo`: the notice offers to undo it again. `success_words`
        replace the counts if all went as planned. `note` is said behind them if something was done.
        """
        sentence = describe_undone_files(result, is_redo=is_redo)
        is_complete = bool(result.restored) and not result.paths_left_alone
        if success_words and is_complete:
            sentence = success_words
        if note and result.restored:
            sentence = join_sentences(sentence, note)
        button: dict[str, object] = {}
        if result.fact is not None:
            button["button"] = tr("Redo")
            if is_redo:
                button["button"] = tr("Undo")
            button["act"] = partial(self._undo_the_undo, result.fact, is_redo=not is_redo)
        self.undone.emit(sentence, button)

    def _undo_the_undo(self, fact: FilesChanged, *, is_redo: bool) -> None:
        """Redoes without a question: only files that nobody has changed since are restored."""
        if self._changes is None:
            return
        work = redo_undone_changes(self._changes, fact, self._conversation)
        self._run_undo_work(work, then=partial(self.report_undone, is_redo=is_redo))

    def undo_hunk(self, file: FileChange, hunk: str) -> None:
        if self._changes is not None:
            work = self._changes.undo_hunks(file, [hunk], conversation=self._conversation)
            words = tr("The change was undone. The rest of the file was not changed.")
            report = partial(
                self.report_undone, success_words=words, note=self._note_on_commit([file])
            )
            self._run_undo_work(work, then=report)

    def _run_undo_work(
        self, work: Coroutine[Any, Any, Any], *, then: Callable[[Any], object]
    ) -> None:
        self._doing.run_in_background(work, then=then, owner=self)


def _name_step(step: ChangeSource) -> str:
    """Names a step by words for its tool and the first files that it changed."""
    names = [printable_path(name) for name in step.fact.names[:MOST_NAMES]]
    if names and step.fact.files > len(names):
        names.append("…")
    tool = words_for_tool(step.what or step.fact.by)
    return f"{tool} {', '.join(names)}".rstrip()


def name_turn(turn: TurnOfChanges, turns: Sequence[TurnOfChanges]) -> str:
    """Names a turn by the user's message, and by its time if others of these turns are called so,
    too. Only a message without words leaves its number.
    """
    if not turn.title:
        return tr("turn {number}", number=turn.turn_numbers)
    words = make_safe_text(turn.title)
    if len(words) > LONGEST_NAME_OF_TURN:
        words = f"{words[: LONGEST_NAME_OF_TURN - 1].rstrip()}…"
    name = tr("“{message}”", message=words)
    titles = [other.title for other in turns]
    if titles.count(turn.title) > 1 and turn.sources:
        name = f"{name}, {format_time_of_day(turn.sources[0].time)}"
    later_messages = turn.last - turn.number
    if later_messages > 0:
        more = format_count(later_messages, "{n} more message", "{n} more messages")
        name = f"{name} + {more}"
    return name


def _sources_of_turns(turns: Sequence[TurnOfChanges]) -> list[ChangeSource]:
    sources: list[ChangeSource] = []
    for turn in turns:
        sources.extend(turn.sources)
    return sources


def _name_undone_files(undo: FilesChanged) -> str:
    if undo.files > 1:
        return format_count(undo.files, "{n} file", "{n} files")
    if not undo.names:
        return ""
    return undo.names[0]


async def redo_undone_changes(
    changes: ShownFileChanges, fact: FilesChanged, conversation: str
) -> FileUndoResult:
    undo = ChangeSource(conversation, 0, time.time(), fact)
    files = await changes.changes_with_folders([undo])
    return await changes.undo_file_changes(files, conversation=conversation)


async def find_later_turns(
    changes: ShownFileChanges,
    turns: Sequence[TurnOfChanges],
    files: Sequence[FileChange],
    plan: Sequence[PlannedUndo],
) -> dict[str, str]:
    """Returns, for files that are as a later turn of the agent has left them, the
    names of the turns that changed them.
    """
    conflicts = [planned for planned in plan if planned.how is UndoOutlook.CONFLICT]
    last_undone_seq = _find_last_change(files)
    if not conflicts or last_undone_seq == 0:
        return {}

    turns_by_path: dict[str, list[str]] = {}
    left_by_agent: dict[str, TreeItem | None] = {}
    for turn in turns:
        if turn.seq <= last_undone_seq:
            continue
        for file in await changes.changes_with_folders(turn.sources):
            path = file.path_of_change
            turns_by_path.setdefault(path, []).append(name_turn(turn, turns))
            left_by_agent[path] = file.change.after

    later_turns: dict[str, str] = {}
    for planned in conflicts:
        path = planned.path
        # If the file is not as the agent left it, somebody else changed it since.
        if path in turns_by_path and left_by_agent[path] == planned.now:
            later_turns[path] = ", ".join(turns_by_path[path])
    return later_turns


def _find_last_change(files: Sequence[FileChange]) -> int:
    """Returns the number of the newest fact that changed one of the files, or 0."""
    last_seq = 0
    for file in files:
        for source in file.sources:
            last_seq = max(last_seq, source.seq)
    return last_seq


def describe_undone_files(result: FileUndoResult, *, is_redo: bool = False) -> str:
    """Says how many files an undo or a redo restored and deleted, and below that, one a line, which
    paths it did not change and why.
    """
    restored_count = result.files_put_back
    deleted_count = result.files_deleted
    # If only folders were restored, they are counted instead.
    if restored_count == 0 and deleted_count == 0:
        restored_count = len(result.restored)

    sentences: list[str] = []
    changed_count = restored_count + deleted_count
    if is_redo and changed_count:
        sentences.append(
            format_count(
                changed_count,
                "The changes of {n} file were redone.",
                "The changes of {n} files were redone.",
            )
        )
        restored_count = 0
        deleted_count = 0
    if restored_count:
        sentences.append(
            format_count(restored_count, "{n} file was restored.", "{n} files were restored.")
        )
    if deleted_count:
        sentences.append(
            format_count(deleted_count, "{n} file was deleted.", "{n} files were deleted.")
        )
    if not sentences:
        sentences.append(tr("No files were restored."))

    lines = [join_sentences(*sentences)]
    for path, reason in result.paths_left_alone[:MOST_LEFT_ALONE]:
        lines.append(tr("{place} was not changed: {why}.", place=path, why=reason.rstrip(".")))
    return "\n".join(lines)


def _undos_to_reverse(
    turns: Sequence[TurnOfChanges], undone: Sequence[TurnOfChanges]
) -> list[ChangeSource]:
    """Returns the undos of all turns, oldest first, but none that a redo reversed at
    once, nor a turn's only one.
    """
    reversible: list[ChangeSource] = []
    for turn in turns:
        undos: list[ChangeSource] = []
        for source in turn.sources:
            if source.fact.by != "undo":
                continue
            if undos and _is_exact_reversal(source.fact, undos[-1].fact):
                undos.pop()
            else:
                undos.append(source)
        # The only undo of an undone turn is offered as “Redo turn”.
        if turn not in undone or len(undos) > 1:
            reversible.extend(undos)
    return sorted(reversible, key=lambda undo: undo.time)


def _is_exact_reversal(later: FilesChanged, earlier: FilesChanged) -> bool:
    if later.undoes != earlier.undoes or earlier.before == earlier.after:
        return False
    return later.before == earlier.after and later.after == earlier.before


def describe_undone_elsewhere(restored: Sequence[str], left_alone: Sequence[str]) -> str:
    """Says what the host of another process has undone."""
    lines = [tr("No files were restored.")]
    if restored:
        lines = [format_count(len(restored), "{n} file was restored.", "{n} files were restored.")]
    for path in left_alone[:MOST_LEFT_ALONE]:
        why = tr("it was changed since")
        lines.append(tr("{place} was not changed: {why}.", place=make_safe_text(path), why=why))
    return "\n".join(lines)
