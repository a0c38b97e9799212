"""An old file of each version that was ever stored opens, and holds what was put into it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from helix_desktop.engine.facts import Folded, FoldKind, ModelReplied, Usage
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import NotFound
from helix_desktop.store import journal_backups
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.old.make import CONTENTS, HERE
from tests.store.journal_damage import find_journal_damage

VERSIONS = sorted(path.name for path in HERE.iterdir() if path.name.startswith("v"))


async def check(workspace: StoredWorkspace) -> None:
    """What every version of the old workspace holds."""
    for content in CONTENTS:
        assert await workspace.cache.read_content(Digest.of_content(content)) == content
    with pytest.raises(NotFound, match="removed to free up space"):
        await workspace.cache.read_content(Digest.of_content(b"collected long ago"))
    facts = [each.fact for each in await workspace.journal.read_facts("first")]
    assert len(facts) == 20
    assert isinstance(facts[7], ModelReplied)
    assert facts[7].usage == Usage(10, 5, 0, 3)
    assert isinstance(facts[10], Folded)
    assert facts[10].kind is FoldKind.MARKER
    rows = {row.id: row for row in await workspace.journal.list_conversations()}
    assert (rows["first"].title, rows["first"].pinned, rows["first"].cost) == (
        "New title",
        True,
        0.25,
    )
    assert (rows["second"].forked_from, rows["second"].last_seq) == ("first", 9)
    await workspace.index.wait_until_indexed()
    assert len(await workspace.index.search_index("zebra", entries_only=True)) == 1
    assert (await workspace.index.compute_figures()).pinned == 1
    assert (await workspace.cache.verify_cache()).damaged == ()
    assert await find_journal_damage(workspace) == ()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_old_workspace_opens(version: str, tmp_path: Path) -> None:
    with tarfile.open(HERE / version / "workspace.tar.xz") as archive:
        known = (
            {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        )  # 3.11.2 knows no filter
        archive.extractall(tmp_path, **known)  # type: ignore[arg-type]  # noqa: S202 - our own file
    backups = journal_backups.list_backups(tmp_path / "old")
    copy = JournalFile(backups[0].path)
    assert len(copy.stored_facts_since(0, 100)) == 29
    copy.close()
    workspace = await AllWorkspaces(tmp_path).open_stored_workspace("old")
    assert workspace.notes == ()
    assert (workspace.settings.colour, workspace.settings.models) == ("#123456", {"main": "m"})
    await check(workspace)
    with pytest.raises(NotFound, match="permanently removed"):
        await workspace.cache.read_content(Digest.of_content(b"forgotten long ago"))
    await workspace.aclose()


@pytest.mark.parametrize("version", VERSIONS)
async def test_an_old_export_is_imported(version: str, tmp_path: Path) -> None:
    workspaces = AllWorkspaces(tmp_path)
    known = await workspaces.import_workspace(HERE / version / "workspace.helix")
    assert known.settings.proposed["permissions"] == {"mode": "ask"}
    workspace = await workspaces.open_stored_workspace(known.id)
    await check(workspace)
    await workspace.aclose()
