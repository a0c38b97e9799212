"""A real cache, a folder, and its checkpoints."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.async_stores import StoreCache
from helix_desktop.tools.changes import change_restoring, checkpoints
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.changes.checkpoints import Checkpoints

State = dict[str, object]


@pytest.fixture(autouse=True)
def _thorough(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine as well."""
    monkeypatch.setattr(checkpoints, "SHORT_CHECK_SECONDS", 60.0)


@dataclass
class Net:
    """`folder` and what watches it."""

    folder: Path
    cache: StoreCache
    checkpoints: Checkpoints
    file: Path

    def again(self, coverage: CheckpointCoverage | None = None) -> Checkpoints:
        """As after a restart."""
        wanted = CheckpointCoverage() if coverage is None else coverage
        self.checkpoints = Checkpoints([self.folder], self.cache, file=self.file, coverage=wanted)
        return self.checkpoints

    async def step(self, act: object, by: str = "command") -> FilesChanged | None:
        """Have something done between two checkpoints."""
        window = await self.checkpoints.begin_step("call", "c", by)
        assert window is not None
        act()  # type: ignore[operator]
        return await self.checkpoints.end_step(window)

    async def undo(
        self, fact: FilesChanged, choose: dict[str, str] | None = None
    ) -> change_restoring.RestoreResult:
        changes = folder_state.decode_difference(
            await self.cache.read_content(fact.difference.digest)
        )
        planned = await change_restoring.plan_undo_of_changes(self.checkpoints, changes)
        chosen = {
            one.path: one.before for one in planned if (choose or {}).get(one.path) == "before"
        }
        return await change_restoring.restore_paths(
            self.checkpoints, change_restoring.plan_restore_steps(planned, chosen)
        )


Read = dict[
    bytes, tuple[tuple[int, ...], bytes]
]  # by path: what its times and inode were, and its bytes


def state(folder: Path, read: Read | None = None) -> State:
    """Everything below a folder, as bytes, kinds, modes, links and names that are one
    file. `read`: files whose inode, size and times are those of the last time are not
    read again.
    """
    found: State = {}
    read = {} if read is None else read
    inodes: dict[int, list[str]] = {}
    for at, names, files in os.walk(os.fsencode(folder)):
        names[:] = [name for name in names if name != b".git"]
        for name in (*names, *files):
            path = os.path.join(at, name)  # noqa: PTH118 -- bytes
            st = os.lstat(path)
            inside = os.fsdecode(os.path.relpath(path, os.fsencode(folder)))
            match stat.S_IFMT(st.st_mode):
                case stat.S_IFREG:
                    times = (st.st_ino, st.st_size, st.st_mtime_ns, st.st_ctime_ns)
                    if path not in read or read[path][0] != times:
                        read[path] = times, Path(os.fsdecode(path)).read_bytes()
                    found[inside] = (stat.S_IMODE(st.st_mode), read[path][1])
                    inodes.setdefault(st.st_ino, []).append(inside)
                case stat.S_IFLNK:
                    found[inside] = os.readlink(path)  # noqa: PTH115 -- bytes
                case stat.S_IFDIR:
                    found[inside] = stat.S_IMODE(st.st_mode)
                case kind:
                    found[inside] = ("other", kind)
    found["\0one file"] = sorted(sorted(names) for names in inodes.values() if len(names) > 1)
    return found


@pytest.fixture
async def net(tmp_path: Path) -> AsyncIterator[Net]:
    folder = tmp_path / "project"
    folder.mkdir()
    known = AllWorkspaces(tmp_path / "home")
    workspace = await known.open_stored_workspace(known.create_stored_workspace("net", folder).id)
    file = tmp_path / "folders.known"
    made = Net(folder, workspace.cache, Checkpoints([folder], workspace.cache, file=file), file)
    yield made
    await made.checkpoints.aclose()
    await workspace.aclose()
