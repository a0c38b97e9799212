"""Changes of files in a workspace that another process has open, as the Changes page asks for them.

It has what the page needs of `FileChanges`, under the same names. The host finds and undoes changes;
contents come by their digests and are compared here, so that a large file is sent once.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from helix_desktop.engine.changes import turn_changes
from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    TreeItem,
    decode_path,
    encode_path,
)
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UncoveredPath,
)
from helix_desktop.engine.facts import Recorded
from helix_desktop.engine.ports import ContentReader
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError
from helix_desktop.tools.changes.checkpoints import CheckpointProgress
from helix_desktop.workbench.undo_and_change_list import FileUndoResult
from helix_desktop.workspace_host import host_interface, sent_changes
from helix_desktop.workspace_host.host_interface import ChangesAnswer, HostCommand
from helix_desktop.workspace_host.host_line import HostLine

ReadFacts = Callable[[str], Awaitable[Sequence[Recorded]]]
LONGEST_REASON = 1_000  # So many characters of what a host says are shown.


class ClientFileChanges:
    """For one conversation, or for the workspace's folders if its id is empty."""

    def __init__(
        self, line: HostLine, contents: ContentReader, read_facts: ReadFacts, conversation: str
    ) -> None:
        self.line = line
        self._contents = contents
        self._read_facts = read_facts
        self._conversation = conversation
        self.git_repository = ClientRepository(line, conversation)
        self.checkpoint_progress = CheckpointProgress()
        self._uncovered_paths: Sequence[UncoveredPath] = ()

    # --- What checkpoints cover

    async def read_coverage(self) -> None:
        """Asks the host what `checkpoint_progress` and `list_uncovered_paths` return."""
        answer = await _ask_host_of_changes(
            self.line, host_interface.DescribeCoverage(self._conversation)
        )
        coverage = answer.coverage
        if coverage is None:
            return
        reason = coverage.why[:LONGEST_REASON]
        self.checkpoint_progress = CheckpointProgress(
            coverage.state, coverage.files, coverage.all_files, reason
        )
        self._uncovered_paths = sent_changes.receive_uncovered_paths(coverage)

    def list_uncovered_paths(self) -> Sequence[UncoveredPath]:
        return self._uncovered_paths

    def watch_checkpoints(
        self, listener: Callable[[CheckpointProgress], object]
    ) -> Callable[[], None]:
        """A host does not tell how far checkpoints are. It is asked whenever changes are read."""
        return lambda: None

    # --- What was changed

    async def turns_with_changes(self, conversation: str) -> Sequence[TurnOfChanges]:
        command = host_interface.ListTurnsWithChanges(conversation)
        answer = await _ask_host_of_changes(self.line, command)
        return [sent_changes.receive_turn(turn) for turn in answer.turns]

    async def file_changes_of_groups(
        self, groups: Sequence[Sequence[ChangeSource]]
    ) -> Sequence[Sequence[FileChange]]:
        """Asks for all groups at once: over a line, each question costs its way there and back."""
        sent_groups: list[tuple[sent_changes.SentStep, ...]] = []
        for sources in groups:
            steps = [sent_changes.send_step(source) for source in sources]
            sent_groups.append(tuple(steps))
        command = host_interface.ListChangesOfSteps(self._conversation, tuple(sent_groups))
        answer = await _ask_host_of_changes(self.line, command)
        if len(answer.groups) != len(groups):
            raise HelixError("The other side did not tell what was changed.", remedy="Try again.")
        files_by_group: list[Sequence[FileChange]] = []
        for sent_files in answer.groups:
            files = sent_changes.receive_files(sent_files)
            files_by_group.append(turn_changes.mark_renames(files))
        return files_by_group

    async def file_changes_of_steps(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        groups = await self.file_changes_of_groups([sources])
        return groups[0]

    async def changes_with_folders(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        steps = tuple(sent_changes.send_step(source) for source in sources)
        command = host_interface.ListChangesOfSteps(self._conversation, (steps,), with_folders=True)
        return await self._ask_for_changed_files(command)

    async def changes_since_checkpoint(
        self, checkpoint: Digest, *, folders: bool = False
    ) -> Sequence[FileChange]:
        files = await self._ask_for_changed_files(
            host_interface.ListChangesSinceCheckpoint(self._conversation, checkpoint, folders)
        )
        if folders:
            return files
        return turn_changes.mark_renames(files)

    async def changes_since_revision(self, revision: str) -> Sequence[FileChange]:
        files = await self._ask_for_changed_files(
            host_interface.ListChangesSinceRevision(self._conversation, revision)
        )
        return turn_changes.mark_renames(files)

    async def _ask_for_changed_files(self, command: HostCommand) -> Sequence[FileChange]:
        answer = await _ask_host_of_changes(self.line, command)
        files: list[FileChange] = []
        for sent_files in answer.groups[:1]:
            files += sent_changes.receive_files(sent_files)
        return files

    async def kept_hunks_by_path(self, conversation: str) -> Mapping[str, frozenset[str]]:
        return turn_changes.kept_hunks(await self._read_facts(conversation))

    # --- Contents

    async def contents_of_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        before = await self._read_item(file.change.before)
        after = await self._read_item(file.change.after)
        return before, after

    async def three_versions_of_file(self, planned: PlannedUndo) -> tuple[bytes, bytes, bytes]:
        before = await self._read_item(planned.before)
        after = await self._read_item(planned.after)
        now = await self._read_item(planned.now)
        return before, after, now

    async def _read_item(self, item: TreeItem | None) -> bytes:
        if item is None:
            return b""
        if item.kind is PathKind.LINK:
            return item.content
        if item.kind is PathKind.TWIN:
            raise ActionRefused(
                "Another name of a file (a hard link) is shown only where the workspace is open."
            )
        digest = item.file_digest
        if digest is None:
            return b""
        return await self._contents.read_content(digest)

    # --- What the user does about it

    async def keep_hunk(self, conversation: str, path: str, hunk: str = "") -> None:
        command = host_interface.KeepHunk(conversation, encode_path(path), hunk)
        await self.line.run_at_host(command)

    async def plan_undo(self, files: Sequence[FileChange]) -> Sequence[PlannedUndo]:
        sent_files = sent_changes.send_files(files)
        command = host_interface.PlanUndo(self._conversation, sent_files)
        answer = await _ask_host_of_changes(self.line, command)
        return [sent_changes.receive_plan(plan) for plan in answer.planned]

    async def undo_file_changes(
        self,
        files: Sequence[FileChange],
        *,
        conversation: str = "",
        choices: Mapping[str, str] = {},
        undoes: Sequence[int] = (),
    ) -> FileUndoResult:
        sent_files = sent_changes.send_files(files)
        sent_choices: list[tuple[bytes, str]] = []
        for path, choice in choices.items():
            sent_choices.append((encode_path(path), choice))
        command = host_interface.UndoChangedFiles(
            conversation, sent_files, tuple(sent_choices), tuple(undoes)
        )
        return await self._undo_at_host(command)

    async def undo_hunks(
        self, file: FileChange, ids: Sequence[str], *, conversation: str = ""
    ) -> FileUndoResult:
        sent_files = sent_changes.send_files([file])
        command = host_interface.UndoHunks(conversation, sent_files, tuple(ids))
        return await self._undo_at_host(command)

    async def _undo_at_host(self, command: HostCommand) -> FileUndoResult:
        answer = await _ask_host_of_changes(self.line, command)
        undone = answer.undone or sent_changes.SentUndo()
        fact = None
        if undone.fact:
            fact = sent_changes.receive_change_fact(undone.fact)
        restored = [decode_path(path) for path in undone.restored]
        left_alone: list[tuple[str, str]] = []
        for path, reason in undone.left_alone:
            left_alone.append((decode_path(path), reason[:LONGEST_REASON]))
        return FileUndoResult(
            tuple(restored),
            tuple(left_alone),
            undone.files_put_back,
            undone.files_deleted,
            fact,
        )


class ClientRepository:
    """What the page asks of git. A commit is made only where the workspace is open."""

    def __init__(self, line: HostLine, conversation: str) -> None:
        self._line = line
        self._conversation = conversation

    async def find_committed_paths(self, changes: Sequence[PathChange]) -> frozenset[str]:
        return await self._compare_paths_with_commit(changes, changed_since=False)

    async def find_paths_changed_since_commit(
        self, changes: Sequence[PathChange]
    ) -> frozenset[str]:
        return await self._compare_paths_with_commit(changes, changed_since=True)

    async def _compare_paths_with_commit(
        self, changes: Sequence[PathChange], *, changed_since: bool
    ) -> frozenset[str]:
        if not changes:
            return frozenset()
        sent = tuple(sent_changes.send_change(change) for change in changes)
        command = host_interface.CompareWithLastCommit(self._conversation, sent, changed_since)
        answer = await _ask_host_of_changes(self._line, command)
        return frozenset(decode_path(path) for path in answer.paths)


async def _ask_host_of_changes(line: HostLine, command: HostCommand) -> ChangesAnswer:
    result = await line.run_at_host(command)
    return result.changes or ChangesAnswer()
