"""Changes of files in memory. It starts without any: `fill` makes some."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.changes import diff_hunks
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.changes.git_patch import FileVersion, format_git_patch
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UncoveredPath,
    UndoOutlook,
)
from helix_desktop.engine.facts import FilesChanged, Stored
from helix_desktop.engine.pull_request_text import PullRequestText
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.workbench.branch_publishing import BranchCheck, BranchState, PullRequest
from tests.gui.stand_in import StandIn


@dataclass(frozen=True)
class State:
    state: str = "ready"
    files: int = 0
    of_files: int = 0
    bytes: int = 0
    seconds: float = 0.0
    why: str = ""


_UNDO = FilesChanged(
    Stored(Digest(bytes(32)), 1), Digest(bytes(32)), Digest(bytes(32)), 1, by="undo"
)


@dataclass
class Undone:
    restored: Sequence[str] = ()
    paths_left_alone: Sequence[tuple[str, str]] = ()
    files_put_back: int = 0
    files_deleted: int = 0
    fact: FilesChanged | None = None


@dataclass
class FakeRepository:
    committed: list[tuple[tuple[str, ...], str]] = field(default_factory=list)

    has_git: bool = True
    has_other_changes: bool = False
    refuses: str = ""
    changed_since_commit: frozenset[str] = frozenset()

    async def has_repository(self) -> bool:
        return self.has_git

    async def has_uncommitted_changes(self) -> bool:
        return self.has_other_changes

    async def set_up_repository(self) -> None:
        self.has_git = True

    async def propose_commit_message(self, patch: Awaitable[bytes], conversation: str) -> str:
        return f"Change {(await patch).count(b'diff --git')} files"

    async def find_committed_paths(self, changes: Sequence[PathChange]) -> frozenset[str]:
        return frozenset(path for paths, _ in self.committed for path in paths)

    async def find_paths_changed_since_commit(
        self, changes: Sequence[PathChange]
    ) -> frozenset[str]:
        return self.changed_since_commit

    async def commit_files(self, paths: Sequence[str], message: str) -> str:
        if self.refuses:
            raise ActionRefused(self.refuses)
        self.committed.append((tuple(paths), message))
        return "[main 1234567] " + message


@dataclass
class FakePublishing:
    """A branch that is pushed to nowhere."""

    state: BranchState | None = None
    request: PullRequest | None = None
    refuses: str = ""
    log: str = "12:00 FAILED\n"
    written: list[PullRequestText] = field(default_factory=list)

    async def read_branch_state(self) -> BranchState | None:
        return self.state

    async def push_branch(self, state: BranchState) -> None:
        if self.refuses:
            raise ActionRefused(self.refuses)
        self.state = replace(state, unpushed=0)

    async def write_text(self, state: BranchState, conversation: str) -> PullRequestText:
        return PullRequestText("Add a file", "## Tests\n\nNone.\n")

    async def open_pull_request(self, state: BranchState, text: PullRequestText) -> str:
        await self.push_branch(state)
        self.written.append(text)
        self.request = PullRequest("https://example.org/pull/7")
        return self.request.address

    async def find_pull_request(self, state: BranchState) -> PullRequest | None:
        return self.request

    async def read_failure_log(self, state: BranchState, check: BranchCheck) -> str:
        return self.log


class FakeChanges(StandIn):
    """`now` is what stands in the files."""

    def __init__(self) -> None:
        self.checkpoint_progress = State()
        self.git_repository = FakeRepository()
        self.branch_publishing = FakePublishing()
        self.versions_of: dict[str, tuple[bytes, bytes]] = {}
        self.now: dict[str, bytes] = {}
        self.kept_hunks: dict[str, frozenset[str]] = {}
        self.left: list[UncoveredPath] = []
        self.undone: list[Mapping[str, str]] = []
        self.covered: list[tuple[bool, Sequence[str] | None]] = []
        self.listeners: list[Callable[[Any], object]] = []
        self.coverage_in_settings = CheckpointCoverage(("node_modules/", "*.iso"))
        self.days_to_keep = 30

    def fill(self, files: Mapping[str, tuple[bytes, bytes]]) -> None:
        """Files, each with its content before and after one turn of the agent."""
        self.versions_of = dict(files)
        self.now = {place: after for place, (_, after) in files.items() if after}

    def _files(self, *, undo: bool = False) -> list[FileChange]:
        """Those of the turn, or of its `undo`, which is the other way round."""
        found = []
        for place, (before, after) in self.versions_of.items():
            if undo:
                before, after = after, before  # noqa: PLW2901 - the other way round
            change = PathChange(f"0/{place}", _item(before), _item(after))
            added, removed = diff_hunks.count_added_and_removed_lines(before, after)
            found.append(FileChange(change, place, added, removed, "edit_file", 31))
        return found

    async def commit_files(
        self, conversation: str, files: Sequence[FileChange], message: str
    ) -> str:
        paths = [file.path_of_change for file in files]
        return await self.git_repository.commit_files(paths, message)

    def watch_checkpoints(self, listener: Callable[[Any], object]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def list_uncovered_paths(self) -> Sequence[UncoveredPath]:
        return self.left

    async def read_coverage(self) -> None:
        pass

    async def largest_subfolders(self) -> Sequence[tuple[str, int, int]]:
        return [("data", 300_000, 6_000_000_000), ("src", 20, 4_000), ("", 2, 100)]

    async def change_coverage(
        self, *, all_of_it: bool = False, leave_out: Sequence[str] | None = None
    ) -> None:
        self.covered.append((all_of_it, leave_out))

    async def turns_with_changes(self, conversation: str) -> Sequence[TurnOfChanges]:
        if not self.versions_of:
            return ()
        fact = FilesChanged(
            Stored(Digest(bytes(32)), 1),
            Digest(bytes(32)),
            Digest(bytes(32)),
            len(self.versions_of),
        )
        return [
            TurnOfChanges(
                12, 1, 9, "Extract it", (ChangeSource(conversation, 8, 1.0, fact, "edit_file", 31),)
            )
        ]

    async def changes_after_fact(self, conversation: str, seq: int) -> Sequence[FileChange]:
        return self._files() if seq < 8 else ()

    async def file_changes_of_steps(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        return self._files()

    async def file_changes_of_groups(
        self, groups: Sequence[Sequence[ChangeSource]]
    ) -> Sequence[Sequence[FileChange]]:
        return [await self.file_changes_of_steps(sources) for sources in groups]

    async def changes_with_folders(self, sources: Sequence[ChangeSource]) -> Sequence[FileChange]:
        is_undone = any(
            self.now.get(place, b"") == versions[0] for place, versions in self.versions_of.items()
        )
        return self._files(undo=sources[0].fact.by == "undo" and is_undone)

    async def changes_since_checkpoint(
        self, checkpoint: Digest, *, folders: bool = False
    ) -> Sequence[FileChange]:
        return self._files()

    async def changes_since_revision(self, revision: str) -> Sequence[FileChange]:
        return self._files()

    async def contents_of_both_versions(self, file: FileChange) -> tuple[bytes, bytes]:
        return self.versions_of[file.place]

    async def build_git_patch(self, files: Sequence[FileChange]) -> bytes:
        versions = [(file, *self.versions_of[file.place]) for file in files]
        return b"".join(
            format_git_patch(
                file.place,
                FileVersion(file.change.before, before),
                FileVersion(file.change.after, after),
            )
            for file, before, after in versions
        )

    async def kept_hunks_by_path(self, conversation: str) -> Mapping[str, frozenset[str]]:
        return self.kept_hunks

    async def keep_hunk(self, conversation: str, path: str, hunk: str = "") -> None:
        self.kept_hunks[path] = self.kept_hunks.get(path, frozenset()) | {hunk}

    async def plan_undo(self, files: Sequence[FileChange]) -> Sequence[PlannedUndo]:
        return [self._planned(file) for file in files]

    def _planned(self, file: FileChange) -> PlannedUndo:
        now = _item(self.now.get(file.place, b""))
        how = UndoOutlook.ALREADY if now == file.change.before else UndoOutlook.CONFLICT
        how = UndoOutlook.RESTORE if now == file.change.after else how
        return PlannedUndo(file.path_of_change, file.change.before, file.change.after, now, how)

    async def three_versions_of_file(self, planned: PlannedUndo) -> tuple[bytes, bytes, bytes]:
        place = planned.path[2:]
        return (*self.versions_of[place], self.now.get(place, b""))

    async def undo_file_changes(
        self,
        files: Sequence[FileChange],
        *,
        conversation: str = "",
        choices: Mapping[str, str] = {},
        undoes: Sequence[int] = (),
    ) -> Undone:
        self.undone.append(dict(choices))
        wanted = [
            f
            for f in files
            if self._planned(f).how is UndoOutlook.RESTORE
            or choices.get(f.path_of_change) == "before"
        ]
        for file in wanted:
            versions = self.versions_of[file.place]
            self.now[file.place] = next(
                each for each in versions if _item(each) == file.change.before
            )
        return Undone([file.place for file in wanted], fact=_UNDO)

    async def undo_hunks(
        self, file: FileChange, ids: Sequence[str], *, conversation: str = ""
    ) -> Undone:
        before, after = self.versions_of[file.place]
        chosen = [hunk for hunk in diff_hunks.find_hunks(before, after) if hunk.stable_id in ids]
        self.now[file.place] = diff_hunks.revert_hunks(before, after, self.now[file.place], chosen)
        return Undone([file.place], fact=_UNDO)

    def path_on_disk(self, file: FileChange) -> Path:
        return Path("/nowhere") / file.place


def _item(content: bytes) -> TreeItem | None:
    if not content:
        return None
    return TreeItem(PathKind.FILE, 0o644, len(content), hashlib.sha256(content).digest())
