from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.store.memory import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.tasks import Tasks
from helix_desktop.tools.kit import Kit, Options
from helix_desktop.tools.runner import Permissions
from helix_desktop.tools.sandbox import Kind
from tests.tools.world import Words


async def opened(folders: list[Path], *closed: Path) -> tuple[Kit, Permissions]:
    cache, permissions = MemoryCache(), Permissions()
    stores = (cache, MemoryIndex(MemoryJournal(), cache), Words())
    kit = await Kit.open(
        folders, stores, permissions=permissions, spawn=Tasks("t").spawn, options=Options(closed=closed)
    )
    return kit, permissions


async def test_the_sandbox_is_found_and_permission_knows(tmp_path: Path) -> None:
    kit, permissions = await opened([tmp_path])
    assert permissions.sandboxed is (kit.sandbox.kind is not Kind.NONE)
    assert kit.sandbox.folders == (tmp_path.resolve(),)
    assert kit.sandbox.scratch.stat().st_mode & 0o77 == 0
    await kit.aclose()
    assert not kit.sandbox.scratch.exists()


@pytest.mark.parametrize("folders", [[], ["gone"]])
async def test_a_workspace_opens_without_its_folder(tmp_path: Path, folders: list[str]) -> None:
    kit, _ = await opened([tmp_path / name for name in folders], tmp_path / "own")
    assert len(kit.toolbox().specs()) >= 13
    await kit.aclose()


async def test_a_second_aclose_does_no_harm(tmp_path: Path) -> None:
    kit, _ = await opened([tmp_path])
    await kit.aclose()
    await kit.aclose()
