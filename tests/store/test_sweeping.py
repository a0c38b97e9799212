"""What only checkpoints had goes when no fact leads to it; the whole way to a state that is named stays."""

from __future__ import annotations

from pathlib import Path

from helix_desktop.engine.changes import tree
from helix_desktop.engine.changes.tree import Change, Item, Kind
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import FilesChanged, Stored
from helix_desktop.engine.ports import About
from helix_desktop.store.workspace import Workspaces

ABOUT = About("checkpoint", "", "application/octet-stream")


async def test_what_a_fact_or_the_present_leads_to_stays(tmp_path: Path) -> None:
    known = Workspaces(tmp_path)
    workspace = await known.open(known.create("net", tmp_path).id)
    try:
        files = await workspace.cache.put_many([(text, ABOUT) for text in (b"one", b"two", b"three", b"nobody's")])
        items = [Item(Kind.FILE, 0o644, each.size, each.digest.raw) for each in files]
        manifest = await workspace.cache.put(b"".join(tree.write_manifest([("0/a", tree.pack(items[0]))])), ABOUT)

        async def then(before: Digest, old: int, new: int) -> Stored:
            content = tree.write_difference([Change("0/a", items[old], items[new])], before)
            return (await workspace.cache.put_many([(content, ABOUT)]))[0]

        second = await then(manifest.digest, 0, 1)
        third = await then(second.digest, 1, 2)
        now = await then(third.digest, 2, 0)
        lost = await then(manifest.digest, 0, 3)
        await workspace.journal.append("c", [FilesChanged(second, manifest.digest, second.digest)])
        swept = await workspace.collect_checkpoints(-1, now=now.digest)
        assert swept.entries == 3
        gone = await workspace.cache.lacking([each.digest for each in (*files, manifest, second, third, now, lost)])
        assert set(gone) == {files[2].digest, files[3].digest, lost.digest}, "the third had been replaced again by now"
    finally:
        await workspace.aclose()
