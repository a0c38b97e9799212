"""Contents on their way into the cache: whole, once each, never through a link, and with stamps that can be trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.digest import Digest
from helix_desktop.tools.changes import content_storing
from helix_desktop.tools.changes.content_storing import RootFileOpener, WantedFileRecord
from helix_desktop.tools.changes.folder_walk import STAMP, UNRELIABLE_STAMP, WantedFile
from tests.tools.changes.conftest import Net


def wanted(net: Net, name: str, *, old: bool = False) -> WantedFile:
    st = (net.folder / name).stat()
    return WantedFile(
        f"0/{name}", bytes(STAMP.size - 1) + b"1" if old else content_storing.pack_stat_stamp(st), 0o644, st.st_size
    )


async def stored(net: Net, *files: WantedFile) -> dict[str, WantedFileRecord]:
    batches = [
        batch async for batch in content_storing.store_wanted_files(net.cache, RootFileOpener([net.folder]), files)
    ]
    return {got.path: got for batch in batches for got in batch}


async def test_every_size_is_stored_whole(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_storing, "LARGE", 100_000)
    monkeypatch.setattr(content_storing, "BATCH", 5_000)
    contents = {f"f{size}": bytes(size) + b"x" for size in (0, 10, 4_999, 6_000, 100_000, 3 << 20)}
    for name, content in contents.items():
        (net.folder / name).write_bytes(content)
    got = await stored(net, *(wanted(net, name) for name in contents))
    for name, content in contents.items():
        record = got[f"0/{name}"].record
        item = folder_state.unpack_item(record[STAMP.size :])
        assert item is not None
        assert await net.cache.read_content(Digest(item.content)) == content
        assert record.startswith(content_storing.pack_stat_stamp((net.folder / name).stat()))


async def test_what_changed_since_it_was_listed_is_looked_at_again(net: Net) -> None:
    (net.folder / "a").write_text("new")
    got = await stored(net, wanted(net, "a", old=True))
    assert got["0/a"].record.startswith(UNRELIABLE_STAMP)


async def test_what_has_gone_or_is_a_link_by_now_is_not_read(net: Net, tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    for name in ("gone", "link", "folder"):
        (net.folder / name).write_text("x")
    files = [wanted(net, name) for name in ("gone", "link", "folder")]
    for name in ("gone", "link", "folder"):
        (net.folder / name).unlink()
    (net.folder / "link").symlink_to(tmp_path / "outside")
    (net.folder / "folder").mkdir()
    got = await stored(net, *files)
    assert [one.record for one in got.values()] == [b"", b"", b""]


def test_batches_hold_so_many_files_and_bytes_and_every_file_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_storing, "MOST", 3)
    monkeypatch.setattr(content_storing, "BATCH", 10)

    def sizes(*wanted: int) -> list[list[int]]:
        files = [WantedFile("0/f", UNRELIABLE_STAMP, 0o644, size) for size in wanted]
        return [[one.size for one in batch] for batch in content_storing._group_into_batches(files)]

    assert sizes(1, 1, 1, 1, 1, 1, 1) == [[1, 1, 1], [1, 1, 1], [1]]
    assert sizes(5, 5, 1, 20, 1) == [[5, 5], [1], [20], [1]]
    assert sizes() == []
