"""Compares files with the user's git repository, and commits to it when the user says so.

No program that the repository names is run (tools/git_runner.py). A comparison reads only objects,
not the index. A commit runs no hook, and is refused for files that a filter would change.
"""

import asyncio
import hashlib
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop.engine.ask_model import build_material_request
from helix_desktop.engine.changes.folder_state import PathChange, PathKind, TreeItem
from helix_desktop.engine.facts import ModelRole, Purpose
from helix_desktop.engine.session import Session
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.changes.content_storing import ABOUT
from helix_desktop.tools.git_runner import find_filtered_files, run_git
from helix_desktop.workbench.model_roles import WorkspaceModels

_SECONDS = 60.0
_SHOWN = 30_000  # To propose a commit message, a model gets up to this many characters of the diff.
MANY = 500  # So many files are not named to Git one by one.
RevisionFile = tuple[bytes, str, int]  # Its mode, blob and size.
_MODES = {b"100644": 0o644, b"100755": 0o755}
_OpenSession = Callable[[str], Awaitable[Session]]


class GitRepository:
    """The repositories of one workspace; each of its roots may have one."""

    def __init__(
        self,
        models: WorkspaceModels,
        find_checkpoints: Callable[[], Checkpoints],
        open_session: _OpenSession,
    ) -> None:
        self._models, self._find_checkpoints, self._open_session = (
            models,
            find_checkpoints,
            open_session,
        )

    async def compare_with_revision(self, revision: str) -> Sequence[PathChange]:
        """Return what differs now from a revision, in all roots that have it."""
        if revision.startswith("-"):
            raise InvalidInput(f"{revision} is not a commit, branch or tag.")
        found: list[PathChange] | None = None
        checkpoints = self._find_checkpoints()
        await checkpoints.check_for_changes()
        for number, root in enumerate(checkpoints.roots):
            if (
                listed := await asyncio.to_thread(_list_revision_files, root, revision)
            ) is not None:
                changes = await self._compare_root_with_revision(checkpoints, number, root, listed)
                found = [*(found or ()), *changes]
        if found is None:
            raise NotFound(f"No folder in this workspace has a revision {revision[:80]}.")
        return sorted(found)

    async def find_committed_paths(self, changes: Sequence[PathChange]) -> frozenset[str]:
        """Return the paths that are as in the last commit, and not as they were before
        these changes, newest first.
        """
        checkpoints, found = self._find_checkpoints(), set[str]()
        await checkpoints.check_for_changes()
        now = checkpoints.folders.known_items()
        for number, root in enumerate(checkpoints.roots):
            of_root = {
                each.path.partition("/")[2]: each
                for each in changes
                if each.path.startswith(f"{number}/")
            }
            listed = (
                await asyncio.to_thread(_list_revision_files, root, "HEAD", [*of_root])
                if of_root
                else None
            )
            for name, (path, before, _) in of_root.items() if listed is not None else ():
                there = listed.get(name) if listed else None
                with suppress(HelixError):  # The content of a change was forgotten.
                    if await self._is_as_committed(checkpoints, now.get(path), there):
                        found |= (
                            set()
                            if await self._is_as_committed(checkpoints, before, there)
                            else {path}
                        )
        return frozenset(found)

    async def _compare_root_with_revision(
        self, checkpoints: Checkpoints, number: int, root: Path, listed: dict[str, RevisionFile]
    ) -> list[PathChange]:
        now = {
            path: item
            for path, item in checkpoints.folders.known_items().items()
            if path.startswith(f"{number}/")
        }
        found = []
        for name, there in listed.items():
            mode, blob, _ = there
            path = f"{number}/{name}"
            item = now.pop(path, None)
            if await self._is_as_committed(checkpoints, item, there):
                continue
            before = await self._tree_item_of_path(root, mode, blob)
            if before is not None:
                (stored,) = await checkpoints.contents.store_many(
                    [(await self._read_blob(root, blob), ABOUT)]
                )
                if before.kind is PathKind.FILE:
                    before = before._replace(size=stored.size, content=stored.digest.raw)
                found.append(PathChange(path, before, item))
        new = [
            (path, item)
            for path, item in now.items()
            if item.kind in (PathKind.FILE, PathKind.LINK)
        ]
        return found + [PathChange(path, None, item) for path, item in new]

    async def _tree_item_of_path(self, root: Path, mode: bytes, blob: str) -> TreeItem | None:
        if mode == b"120000":
            return TreeItem(PathKind.LINK, 0o777, 0, await self._read_blob(root, blob))
        return TreeItem(PathKind.FILE, _MODES[mode]) if mode in _MODES else None

    async def _is_as_committed(
        self, checkpoints: Checkpoints, item: TreeItem | None, there: RevisionFile | None
    ) -> bool:
        if item is None or there is None:
            return item is None and there is None
        mode, blob, size = there
        if (item.kind is PathKind.LINK) != (mode == b"120000"):
            return False
        if item.kind is PathKind.FILE and (
            item.size != size or bool(item.mode & 0o100) != (mode == b"100755")
        ):
            return False
        content = await checkpoints.read_item_content(item)
        return (
            hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()
            == blob
        )

    async def _read_blob(self, root: Path, blob: str) -> bytes:
        return await asyncio.to_thread(run_git, root, "cat-file", "blob", blob)

    async def propose_commit_message(self, patch: Awaitable[bytes], conversation: str) -> str:
        """Let the fast model write a message for a commit of these changes, at the
        conversation's cost.
        """
        client = self._models.client_for_role(ModelRole.FAST) or self._models.client_for_role(
            ModelRole.MAIN
        )
        if client is None:
            raise InvalidInput("No model is available to suggest a commit message.")
        request = build_material_request(
            (await patch).decode("utf-8", "replace")[:_SHOWN], _PROPOSE, Purpose.OTHER
        )
        asking = (await self._open_session(conversation)).folding.spending.build_model_inquiry()
        return (await asking.ask_for_text(client, request, _SECONDS)).strip()

    async def has_repository(self) -> bool:
        places = [
            place for root in self._find_checkpoints().roots for place in (root, *root.parents)
        ]
        return await asyncio.to_thread(lambda: any((place / ".git").exists() for place in places))

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
        by_root: dict[Path, list[str]] = {}
        for path in paths:
            number, _, inside = path.partition("/")
            by_root.setdefault(self._find_checkpoints().roots[int(number)], []).append(inside)
        return "\n".join(
            [await asyncio.to_thread(_run_git_commit, *one, message) for one in by_root.items()]
        )


_PROPOSE = (
    "Write a commit message for the changes you are shown: a subject line of at most 72 characters in the imperative, and, only"
    " where it helps, an empty line and a short body that says why. Answer with the message alone."
)


def _run_git_commit(root: Path, names: Sequence[str], message: str) -> str:
    tracked = run_git(root, "ls-files", "-z").split(b"\0")
    found = [
        name for name in names if (root / name).is_symlink() or (root / name).is_file()
    ]  # Git keeps no folders.
    new = [name for name in map(os.fsencode, found) if name not in tracked]
    raw = new + [name for name in map(os.fsencode, names) if name in tracked]
    if not raw:
        raise InvalidInput("Nothing was committed: Git does not keep empty folders.")
    if filtered := find_filtered_files(root, raw):
        raise ActionRefused(
            f"A git filter (such as Git LFS) would have to change {filtered[0]} before the commit, and Helix Desktop does not run filters.",
            remedy="Nothing was committed. Commit these files with git itself.",
        )
    listed, added = (b"".join(name + b"\0" for name in each) for each in (raw, new))
    files = ("--pathspec-from-file=-", "--pathspec-file-nul")
    literal = ("--literal-pathspecs",)
    run_git(
        root, *literal, "add", "--intent-to-add", *files, stdin=added
    )  # Git commits only files that it knows.
    try:
        said = run_git(
            root, *literal, "commit", "--only", "--message", message, *files, stdin=listed
        )
    except ActionRefused:
        if new:
            run_git(root, *literal, "rm", "--cached", "--quiet", *files, stdin=added)
        raise
    return said.decode("utf-8", "replace").partition("\n")[0]


def _list_revision_files(
    root: Path, revision: str, names: Sequence[str] = ()
) -> dict[str, RevisionFile] | None:
    """Return a revision's files below the root, or if there are few `names`, these.
    None if it does not exist.
    """
    try:
        content = run_git(
            root, "ls-tree", "-r", "-l", "-z", "--", revision, *(names if len(names) < MANY else ())
        )
    except ActionRefused:
        return None
    found = {}
    for line in content.split(b"\0"):
        if line:
            about, _, name = line.partition(b"\t")
            mode, _, blob, size = about.split()
            found[os.fsdecode(name)] = (mode, blob.decode(), int(size) if size.isdigit() else 0)
    return found
