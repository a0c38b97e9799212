"""Commands of a host about changed files: what the Changes page of a window elsewhere asks."""

from collections.abc import Mapping, Sequence

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.changes.folder_state import encode_path
from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.errors import InvalidInput
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.undo_and_change_list import FileChanges, FileUndoResult
from helix_desktop.workspace_host import host_interface, sent_changes
from helix_desktop.workspace_host.host_interface import (
    ChangesAnswer,
    CommandResult,
    CommandRunner,
    HostCommand,
)

MOST_UNCOVERED_PATHS = 1_000


class ChangeCommands:
    """Carries out these commands. `runners`: what runs each."""

    def __init__(self, bench: Workbench) -> None:
        self._bench = bench
        self.runners: Mapping[type[HostCommand], CommandRunner] = {
            host_interface.ListTurnsWithChanges: self._list_turns_for_client,
            host_interface.ListChangesOfSteps: self._list_changes_of_steps,
            host_interface.ListChangesSinceCheckpoint: self._list_since_checkpoint,
            host_interface.ListChangesSinceRevision: self._list_since_revision,
            host_interface.CompareWithLastCommit: self._compare_with_last_commit,
            host_interface.DescribeCoverage: self._describe_coverage,
            host_interface.PlanUndo: self._plan_undo_of_client,
            host_interface.UndoChangedFiles: self._undo_changed_files,
            host_interface.UndoHunks: self._undo_hunks_of_client,
            host_interface.KeepHunk: self._keep_hunk_of_client,
        }

    async def _file_changes_to_ask(self, conversation: str) -> FileChanges:
        """Opens the conversation first: only an open one says whether it works in a copy."""
        if conversation:
            await self._bench.open_session(conversation)
        return self._bench.file_changes_of(conversation)

    # --- What was changed

    async def _list_turns_for_client(
        self, command: host_interface.ListTurnsWithChanges
    ) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        turns = await changes.turns_with_changes(command.conversation)
        sent_turns = tuple(sent_changes.send_turn(turn) for turn in turns)
        return _changes_result(ChangesAnswer(turns=sent_turns))

    async def _list_changes_of_steps(
        self, command: host_interface.ListChangesOfSteps
    ) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        groups: list[sent_changes.SentFiles] = []
        for steps in command.groups:
            sources = [sent_changes.receive_step(step) for step in steps]
            if command.with_folders:
                files = await changes.changes_with_folders(sources)
            else:
                files = await changes.file_changes_of_steps(sources)
            groups.append(sent_changes.send_files(files))
        return _changes_result(ChangesAnswer(groups=tuple(groups)))

    async def _list_since_checkpoint(
        self, command: host_interface.ListChangesSinceCheckpoint
    ) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        files = await changes.changes_since_checkpoint(
            command.checkpoint, folders=command.with_folders
        )
        return _changed_files_result(files)

    async def _list_since_revision(
        self, command: host_interface.ListChangesSinceRevision
    ) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        return _changed_files_result(await changes.changes_since_revision(command.revision))

    async def _compare_with_last_commit(
        self, command: host_interface.CompareWithLastCommit
    ) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        repository = changes.git_repository
        compared = [sent_changes.receive_change(change) for change in command.changes]
        if command.changed_since:
            paths = await repository.find_paths_changed_since_commit(compared)
        else:
            paths = await repository.find_committed_paths(compared)
        sent_paths = [encode_path(path) for path in sorted(paths)]
        return _changes_result(ChangesAnswer(paths=tuple(sent_paths)))

    async def _describe_coverage(self, command: host_interface.DescribeCoverage) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        uncovered: list[tuple[bytes, str, bool]] = []
        for path in changes.list_uncovered_paths()[:MOST_UNCOVERED_PATHS]:
            uncovered.append((encode_path(path.path), path.why, path.is_beyond_limits))
        progress = changes.checkpoint_progress
        coverage = sent_changes.SentCoverage(
            progress.state, progress.files, progress.of_files, progress.why, tuple(uncovered)
        )
        return _changes_result(ChangesAnswer(coverage=coverage))

    # --- What is done about it

    async def _plan_undo_of_client(self, command: host_interface.PlanUndo) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        files = _receive_files_of_workspace(changes, command.files)
        sent_plans: list[sent_changes.SentPlan] = []
        for planned in await changes.plan_undo(files):
            sent_plans.append(sent_changes.send_plan(planned))
        return _changes_result(ChangesAnswer(planned=tuple(sent_plans)))

    async def _undo_changed_files(self, command: host_interface.UndoChangedFiles) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        files = _receive_files_of_workspace(changes, command.files)
        choices: dict[str, str] = {}
        for sent_path, choice in command.choices:
            path = sent_changes.receive_path(sent_path)
            choices[path] = choice
        undone = await changes.undo_file_changes(
            files,
            conversation=command.conversation,
            choices=choices,
            undoes=command.undoes,
        )
        return _file_undo_result(undone)

    async def _undo_hunks_of_client(self, command: host_interface.UndoHunks) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        files = _receive_files_of_workspace(changes, command.files)
        if len(files) != 1:
            raise InvalidInput("Hunks are undone in one file at a time.")
        undone = await changes.undo_hunks(
            files[0], command.hunks, conversation=command.conversation
        )
        return _file_undo_result(undone)

    async def _keep_hunk_of_client(self, command: host_interface.KeepHunk) -> CommandResult:
        changes = await self._file_changes_to_ask(command.conversation)
        path = sent_changes.receive_path(command.path)
        await changes.keep_hunk(command.conversation, path, command.hunk)
        return CommandResult()


def _receive_files_of_workspace(
    changes: FileChanges, sent: sent_changes.SentFiles
) -> list[FileChange]:
    """Returns the files, if each is below a folder that the workspace has."""
    files = sent_changes.receive_files(sent)
    folder_count = len(changes.workspace_checkpoints.roots)
    for file in files:
        number = file.path_of_change.partition("/")[0]
        if int(number) >= folder_count:
            raise InvalidInput("The workspace has no such folder. Nothing was changed.")
    return files


def _changes_result(changes: ChangesAnswer) -> CommandResult:
    return CommandResult(changes=changes)


def _changed_files_result(files: Sequence[FileChange]) -> CommandResult:
    sent_files = sent_changes.send_files(files)
    answer = ChangesAnswer(groups=(sent_files,))
    return _changes_result(answer)


def _file_undo_result(undone: FileUndoResult) -> CommandResult:
    fact = ""
    if undone.fact is not None:
        fact = fact_encoding.encode_fact(undone.fact)
    restored = [encode_path(path) for path in undone.restored]
    left_alone: list[tuple[bytes, str]] = []
    for path, reason in undone.paths_left_alone:
        left_alone.append((encode_path(path), reason))
    sent = sent_changes.SentUndo(
        tuple(restored),
        tuple(left_alone),
        undone.files_put_back,
        undone.files_deleted,
        fact,
    )
    return _changes_result(ChangesAnswer(undone=sent))
