"""The user's git repository, as far as changes have to do with it: read for a comparison, and committed to when the user says so.

No program of the repository's runs (tools/git.py). Reading reads objects, and the index is not touched; a commit runs no hook, and a
file that a filter would change on its way is refused.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from helix_desktop.engine.ask_model import Asking, plain_request
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.facts import ModelRole, Purpose
from helix_desktop.errors import NotThere, Refused, WrongUse
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.changes.reading import ABOUT
from helix_desktop.tools.git import filtered_files, run_git
from helix_desktop.workbench.models import Models

_SECONDS = 60.0
_SHOWN = 30_000  # characters of the changes that a model is shown to propose a message
_MODES = {b"100644": 0o644, b"100755": 0o755}


class Repository:
    """Of one workspace; each of its roots may have its own."""

    def __init__(self, models: Models, roots: Callable[[], Sequence[Path]]) -> None:
        self._models = models
        self._roots = roots

    async def compared(self, checkpoints: Checkpoints, revision: str) -> Sequence[Change]:
        """What is different now from a revision, in all roots that have it."""
        if revision.startswith("-"):
            raise WrongUse(f"{revision} is not a revision.")
        found: list[Change] = []
        any_of_them = False
        for number, root in enumerate(checkpoints.roots):
            listed = await asyncio.to_thread(_listed, root, revision)
            if listed is None:
                continue
            any_of_them = True
            found += await self._changes(checkpoints, number, root, listed)
        if not any_of_them:
            raise NotThere(f"No folder in this workspace has a revision {revision[:80]}.")
        return sorted(found)

    async def _changes(
        self, checkpoints: Checkpoints, number: int, root: Path, listed: dict[str, tuple[bytes, str, int]]
    ) -> list[Change]:
        now = {path: item for path, item in checkpoints.items().items() if path.startswith(f"{number}/")}
        found = []
        for name, (mode, blob, size) in listed.items():
            path = f"{number}/{name}"
            item = now.pop(path, None)
            before = await self._item(root, mode, blob)
            same = item is not None and before is not None and item.kind is before.kind
            if same and item is not None and await self._same(checkpoints, item, blob, size, mode):
                continue
            if before is not None:
                (stored,) = await checkpoints.contents.put_many([(await self._content(root, blob), ABOUT)])
                before = (
                    before._replace(size=stored.size, content=stored.digest.raw) if before.kind is Kind.FILE else before
                )
                found.append(Change(path, before, item))
        new = [(path, item) for path, item in now.items() if item.kind in (Kind.FILE, Kind.LINK)]
        return found + [Change(path, None, item) for path, item in new]

    async def _item(self, root: Path, mode: bytes, blob: str) -> Item | None:
        if mode == b"120000":
            return Item(Kind.LINK, 0o777, 0, await self._content(root, blob))
        return Item(Kind.FILE, _MODES[mode]) if mode in _MODES else None

    async def _same(self, checkpoints: Checkpoints, item: Item, blob: str, size: int, mode: bytes) -> bool:
        if item.kind is Kind.FILE and (item.size != size or bool(item.mode & 0o100) != (mode == b"100755")):
            return False
        content = await checkpoints.content(item)
        return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest() == blob

    async def _content(self, root: Path, blob: str) -> bytes:
        return await asyncio.to_thread(run_git, root, "cat-file", "blob", blob)

    async def propose(self, changes: bytes) -> str:
        """A message for a commit of these changes, by the fast model."""
        client = self._models.client(ModelRole.FAST) or self._models.client(ModelRole.MAIN)
        if client is None:
            raise WrongUse("No model is available to suggest a commit message.")
        text = changes.decode("utf-8", "replace")[:_SHOWN]
        request = plain_request(text, _PROPOSE, Purpose.OTHER)
        return (await Asking(lambda _spent: None).text(client, request, _SECONDS)).strip()

    async def commit(self, paths: Sequence[str], message: str) -> str:
        """Commit these files as they are now, and nothing else that is staged. Returns the line git answers with."""
        if not message.strip():
            raise WrongUse("A commit needs a message.")
        by_root: dict[Path, list[str]] = {}
        roots = self._roots()
        for path in paths:
            number, _, inside = path.partition("/")
            by_root.setdefault(roots[int(number)], []).append(inside)
        answers = []
        for root, names in by_root.items():
            answers.append(await asyncio.to_thread(_commit, root, names, message))
        return "\n".join(answers)


_PROPOSE = (
    "Write a commit message for the changes you are shown: a subject line of at most 72 characters in the imperative, and, only"
    " where it helps, an empty line and a short body that says why. Answer with the message alone."
)


def _commit(root: Path, names: Sequence[str], message: str) -> str:
    tracked = run_git(root, "ls-files", "-z").split(b"\0")
    raw = [os.fsencode(name) for name in names if os.path.lexists(root / name) or os.fsencode(name) in tracked]
    if filtered := filtered_files(root, raw):
        raise Refused(
            f"A filter of git (such as Git LFS) would change {filtered[0]} on its way into the repository, and this program runs none.",
            remedy="Nothing was committed. Commit these files with git itself.",
        )
    listed = b"".join(name + b"\0" for name in raw)
    files = ("--pathspec-from-file=-", "--pathspec-file-nul")
    literal = ("--literal-pathspecs",)
    run_git(root, *literal, "add", "--all", *files, given=listed)
    said = run_git(root, *literal, "commit", "--only", "--message", message, *files, given=listed)
    return said.decode("utf-8", "replace").partition("\n")[0]


def _listed(root: Path, revision: str) -> dict[str, tuple[bytes, str, int]] | None:
    """Every file of a revision beneath the root: mode, blob and size; None where there is none."""
    try:
        content = run_git(root, "ls-tree", "-r", "-l", "-z", revision)
    except Refused:
        return None
    found = {}
    for line in content.split(b"\0"):
        if line:
            about, _, name = line.partition(b"\t")
            mode, _, blob, size = about.split()
            found[os.fsdecode(name)] = (mode, blob.decode(), int(size) if size.isdigit() else 0)
    return found
