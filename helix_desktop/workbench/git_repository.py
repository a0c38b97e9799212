"""Compares files with the user's git repository, and commits to it when the user says so.

No program that the repository names is run (tools/git_runner.py). A comparison reads only objects,
not the index. A commit runs no hook, and is refused for files that a filter would change.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from helix_desktop.engine.ask_model import build_material_request
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.facts import ModelRole, Purpose
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.changes.content_storing import ABOUT
from helix_desktop.tools.git_runner import find_filtered_files, run_git
from helix_desktop.workbench.model_roles import WorkspaceModels

_SECONDS = 60.0
_SHOWN = 30_000  # To propose a commit message, a model gets up to this many characters of the diff.
MANY = 500  # So many files are not named to Git one by one.
_PLAIN_MODE = b"100644"
_EXECUTABLE_MODE = b"100755"
_LINK_MODE = b"120000"
_MODES = {_PLAIN_MODE: 0o644, _EXECUTABLE_MODE: 0o755}
_OpenSession = Callable[[str], Awaitable[Session]]


@dataclass(frozen=True, slots=True)
class RevisionFile:
    """A file as a commit has it. `blob`: the name of its content."""

    mode: bytes
    blob: str
    size: int


@dataclass(frozen=True, slots=True)
class CommitComparison:
    """A changed path beside the last commit. `is_as_committed`: the file is now as the commit has
    it. `was_committed_before`: it was so before the change.
    """

    path: str
    is_as_committed: bool
    was_committed_before: bool


class GitRepository:
    """The repositories of one workspace; each of its roots may have one."""

    def __init__(
        self,
        models: WorkspaceModels,
        find_checkpoints: Callable[[], Checkpoints],
        open_session: _OpenSession,
    ) -> None:
        self._models = models
        self._find_checkpoints = find_checkpoints
        self._open_session = open_session

    async def compare_with_revision(self, revision: str) -> Sequence[PathChange]:
        """Return what differs now from a revision, in all roots that have it."""
        if revision.startswith("-"):
            raise InvalidInput(f"{revision} is not a commit, branch or tag.")
        changes: list[PathChange] = []
        is_revision_known = False
        checkpoints = self._find_checkpoints()
        await checkpoints.check_for_changes()
        for number, root in enumerate(checkpoints.roots):
            committed_files = await asyncio.to_thread(_list_revision_files, root, revision)
            if committed_files is not None:
                is_revision_known = True
                changes += await self._compare_root_with_revision(
                    checkpoints, number, root, committed_files
                )
        if not is_revision_known:
            raise NotFound(f"No folder in this workspace has a revision {revision[:80]}.")
        return sorted(changes)

    async def find_committed_paths(self, changes: Sequence[PathChange]) -> frozenset[str]:
        """Return the paths that are as in the last commit, and not as they were before
        these changes, newest first.
        """
        committed_paths = set[str]()
        for comparison in await self._compare_with_last_commit(changes):
            if comparison.is_as_committed and not comparison.was_committed_before:
                committed_paths.add(comparison.path)
        return frozenset(committed_paths)

    async def find_paths_changed_since_commit(
        self, changes: Sequence[PathChange]
    ) -> frozenset[str]:
        """Return the paths that were as in the last commit before these changes and are not now,
        such as a committed file of which the user undid something.
        """
        changed_paths = set[str]()
        for comparison in await self._compare_with_last_commit(changes):
            if comparison.was_committed_before and not comparison.is_as_committed:
                changed_paths.add(comparison.path)
        return frozenset(changed_paths)

    async def _compare_with_last_commit(
        self, changes: Sequence[PathChange]
    ) -> list[CommitComparison]:
        """Compare each changed path with the last commit. Left out is what has no commit to be
        compared with, or a content that was forgotten.
        """
        checkpoints = self._find_checkpoints()
        await checkpoints.check_for_changes()
        items_now = checkpoints.folders.known_items()
        comparisons: list[CommitComparison] = []
        for number, root in enumerate(checkpoints.roots):
            # Of several changes to a file, the oldest is compared: it comes last.
            change_by_name: dict[str, PathChange] = {}
            for change in changes:
                if change.path.startswith(f"{number}/"):
                    name = change.path.partition("/")[2]
                    change_by_name[name] = change
            if not change_by_name:
                continue
            committed_files = await asyncio.to_thread(
                _list_revision_files, root, "HEAD", list(change_by_name)
            )
            if committed_files is None:
                continue
            for name, change in change_by_name.items():
                committed = committed_files.get(name)
                item_now = items_now.get(change.path)
                with suppress(HelixError):  # The content of a change was forgotten.
                    is_as_committed = await self._is_as_committed(checkpoints, item_now, committed)
                    was_committed = await self._is_as_committed(
                        checkpoints, change.before, committed
                    )
                    comparisons.append(
                        CommitComparison(change.path, is_as_committed, was_committed)
                    )
        return comparisons

    async def _compare_root_with_revision(
        self,
        checkpoints: Checkpoints,
        number: int,
        root: Path,
        committed_files: dict[str, RevisionFile],
    ) -> list[PathChange]:
        """Return what differs in one folder between a revision and the present files."""
        known_items = checkpoints.folders.known_items()
        items_not_compared: dict[str, TreeItem] = {}
        for path, item in known_items.items():
            if path.startswith(f"{number}/"):
                items_not_compared[path] = item
        changes: list[PathChange] = []
        for name, committed in committed_files.items():
            path = f"{number}/{name}"
            item_now = items_not_compared.pop(path, None)
            if await self._is_as_committed(checkpoints, item_now, committed):
                continue
            before = await self._build_committed_item(root, committed)
            if before is None:
                continue
            # The difference is shown and undone from the cache, so it needs the content.
            content = await self._read_blob(root, committed.blob)
            (stored,) = await checkpoints.contents.store_many([(content, ABOUT)])
            if before.kind is PathKind.FILE:
                before = before._replace(size=stored.size, content=stored.digest.raw)
            changes.append(PathChange(path, before, item_now))
        # What the commit does not have is new. Git keeps no folders, so they are not named.
        for path, item in items_not_compared.items():
            if item.kind in (PathKind.FILE, PathKind.LINK):
                changes.append(PathChange(path, None, item))
        return changes

    async def _build_committed_item(self, root: Path, committed: RevisionFile) -> TreeItem | None:
        """Return None for a submodule, which has no content here."""
        if committed.mode == _LINK_MODE:
            target = await self._read_blob(root, committed.blob)
            return TreeItem(PathKind.LINK, 0o777, 0, target)
        if committed.mode not in _MODES:
            return None
        return TreeItem(PathKind.FILE, _MODES[committed.mode])

    async def _is_as_committed(
        self, checkpoints: Checkpoints, item: TreeItem | None, committed: RevisionFile | None
    ) -> bool:
        """Whether a file has the content, the kind and the mode that the revision has."""
        if item is None or committed is None:
            return item is None and committed is None
        is_link = item.kind is PathKind.LINK
        if is_link != (committed.mode == _LINK_MODE):
            return False
        if item.kind is PathKind.FILE:
            is_executable = bool(item.mode & 0o100)
            if item.size != committed.size:
                return False
            if is_executable != (committed.mode == _EXECUTABLE_MODE):
                return False
        content = await checkpoints.read_item_content(item)
        # Git names a blob by this SHA-1.
        blob = hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False)
        return blob.hexdigest() == committed.blob

    async def _read_blob(self, root: Path, blob: str) -> bytes:
        return await asyncio.to_thread(run_git, root, "cat-file", "blob", blob)

    async def propose_commit_message(self, patch: Awaitable[bytes], conversation: str) -> str:
        """Let the fast model write a message for a commit of these changes, at the
        conversation's cost.
        """
        client = self._models.client_for_role(ModelRole.FAST)
        if client is None:
            client = self._models.client_for_role(ModelRole.MAIN)
        if client is None:
            raise InvalidInput("No model is available to suggest a commit message.")
        patch_bytes = await patch
        shown_patch = patch_bytes.decode("utf-8", "replace")[:_SHOWN]
        request = build_material_request(shown_patch, _PROPOSE, Purpose.OTHER)
        session = await self._open_session(conversation)
        inquiry = session.folding.spending.build_model_inquiry()
        message = await inquiry.ask_for_text(client, request, _SECONDS)
        return message.strip()

    async def has_repository(self) -> bool:
        folders: list[Path] = []
        for root in self._find_checkpoints().roots:
            # A root may be a folder inside a repository.
            folders.append(root)
            folders.extend(root.parents)
        return await asyncio.to_thread(_is_any_repository, folders)

    async def has_uncommitted_changes(self) -> bool:
        """Whether any file that git knows differs from the last commit, whoever changed it."""
        for root in self._find_checkpoints().roots:
            if _is_any_repository([root, *root.parents]):
                status = await asyncio.to_thread(
                    run_git,
                    root,
                    "status",
                    "--porcelain=v1",
                    "--untracked-files=no",
                    "--ignore-submodules=all",
                    "--",
                    ".",
                )
                if status:
                    return True
        return False

    async def set_up_repository(self) -> None:
        """Create a repository in the workspace's first folder, without the hooks of a template."""
        await asyncio.to_thread(
            run_git, self._find_checkpoints().roots[0], "init", "--quiet", "--template="
        )

    async def commit_files(self, paths: Sequence[str], message: str) -> str:
        """Commit these files as they are now, and nothing else that is staged. Returns
        git's answer.
        """
        if not message.strip():
            raise InvalidInput("Enter a message for the commit.")
        roots = self._find_checkpoints().roots
        names_by_root: dict[Path, list[str]] = {}
        for path in paths:
            number, _, name = path.partition("/")
            root = roots[int(number)]
            names_by_root.setdefault(root, []).append(name)
        answers: list[str] = []
        for root, names in names_by_root.items():
            answers.append(await asyncio.to_thread(_run_git_commit, root, names, message))
        return "\n".join(answers)


_PROPOSE = (
    "Write a commit message for the changes you are shown: a subject line of at most 72 characters in the imperative, and, only"
    " where it helps, an empty line and a short body that says why. Answer with the message alone."
)


def _is_any_repository(folders: Sequence[Path]) -> bool:
    for folder in folders:
        if (folder / ".git").exists():
            return True
    return False


def _run_git_commit(root: Path, names: Sequence[str], message: str) -> str:
    """Commit these files alone, whatever else is staged. Return what git says."""
    tracked_files = set(run_git(root, "ls-files", "-z").split(b"\0"))
    new_files: list[bytes] = []
    changed_files: list[bytes] = []
    for name in names:
        raw_name = os.fsencode(name)
        if raw_name in tracked_files:
            changed_files.append(raw_name)
        elif (root / name).is_symlink() or (root / name).is_file():  # Git keeps no folders.
            new_files.append(raw_name)
    committed_files = new_files + changed_files
    if not committed_files:
        raise InvalidInput("Nothing was committed: Git does not keep empty folders.")
    filtered = find_filtered_files(root, committed_files)
    if filtered:
        raise ActionRefused(
            f"A git filter (such as Git LFS) would have to change {filtered[0]} before the commit, and Helix Desktop does not run filters.",
            remedy="Nothing was committed. Commit these files with git itself.",
        )
    # The names are given on standard input, because a command line can be too long. A
    # file may be named like a pattern, so patterns are off.
    names_from_stdin = ("--pathspec-from-file=-", "--pathspec-file-nul")
    run = partial(run_git, root, "--literal-pathspecs")
    listed_new_files = _join_with_nul(new_files)
    # Git commits only files that it knows.
    run("add", "--intent-to-add", *names_from_stdin, stdin=listed_new_files)
    try:
        answer = run(
            "commit",
            "--only",
            "--message",
            message,
            *names_from_stdin,
            stdin=_join_with_nul(committed_files),
        )
    except ActionRefused:
        # Nothing was committed, so the new files are forgotten again.
        if new_files:
            run("rm", "--cached", "--quiet", *names_from_stdin, stdin=listed_new_files)
        raise
    return answer.decode("utf-8", "replace").partition("\n")[0]


def _join_with_nul(names: Sequence[bytes]) -> bytes:
    return b"".join(name + b"\0" for name in names)


def _list_revision_files(
    root: Path, revision: str, names: Sequence[str] = ()
) -> dict[str, RevisionFile] | None:
    """Return a revision's files below the root, or if there are few `names`, these.
    None if it does not exist.
    """
    named_files = names
    if len(names) >= MANY:
        named_files = ()  # All files are listed.
    try:
        listing = run_git(root, "ls-tree", "-r", "-l", "-z", "--", revision, *named_files)
    except ActionRefused:
        return None
    files: dict[str, RevisionFile] = {}
    for line in listing.split(b"\0"):
        if not line:
            continue
        description, _, name = line.partition(b"\t")
        mode, _, blob, written_size = description.split()
        size = 0
        if written_size.isdigit():  # A submodule has a hyphen there.
            size = int(written_size)
        files[os.fsdecode(name)] = RevisionFile(mode, blob.decode(), size)
    return files
