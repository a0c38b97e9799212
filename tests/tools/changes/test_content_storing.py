"""Contents on their way into the cache: whole, once each, never through a link, and
with stamps that can be trusted.
"""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import TreeItem
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.tools.changes import content_storing
from helix_desktop.tools.changes.content_storing import RootFileOpener, WantedFileRecord
from helix_desktop.tools.changes.folder_walk import STAMP, UNREADABLE, UNRELIABLE_STAMP, WantedFile
from tests.tools.changes.conftest import Net


def wanted(net: Net, name: str, *, old: bool = False) -> WantedFile:
    st = (net.folder / name).stat()
    return WantedFile(
        f"0/{name}",
        bytes(STAMP.size - 1) + b"1" if old else content_storing.pack_stat_stamp(st),
        0o644,
        st.st_size,
    )


async def stored(net: Net, *files: WantedFile) -> dict[str, WantedFileRecord]:
    batches = [
        batch
        async for batch in content_storing.store_wanted_files(
            net.cache, RootFileOpener([net.folder]), files
        )
    ]
    records = {got.path: got for batch in batches for got in batch}
    assert len(records) == sum(map(len, batches)), "each is stored once"
    return records


async def test_every_size_is_stored_whole(net: Net, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content_storing, "LARGE", 100_000)
    monkeypatch.setattr(content_storing, "BATCH", 5_000)
    contents = {
        f"f{size}": bytes(size) + b"x" for size in (0, 10, 4_999, 6_000, 99_999, 100_000, 3 << 20)
    }
    for name, content in contents.items():
        (net.folder / name).write_bytes(content)
    got = await stored(net, *(wanted(net, name) for name in contents))
    for name, content in contents.items():
        record = got[f"0/{name}"].record
        item = folder_state.unpack_item(record[STAMP.size :])
        assert item is not None
        assert await net.cache.read_content(Digest(item.content)) == content
        assert record.startswith(content_storing.pack_stat_stamp((net.folder / name).stat()))


def unpacked(record: WantedFileRecord) -> TreeItem:
    item = folder_state.unpack_item(record.record[STAMP.size :])
    assert item is not None
    return item


@pytest.mark.parametrize("large", [4, 1_000])
async def test_what_changed_since_it_was_listed_is_looked_at_again(
    net: Net, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(content_storing, "LARGE", large)
    (net.folder / "a").write_text("longer")
    listed = wanted(net, "a", old=True)
    (net.folder / "a").write_text("short")
    (net.folder / "a").chmod(0o4711)
    got = (await stored(net, listed))["0/a"]
    assert got.record.startswith(UNRELIABLE_STAMP)
    item = unpacked(got)
    assert (item.mode, item.size, item.content) == (0o4711, 5, Digest.of_content(b"short").raw)
    assert not got.keeps_changing
    (net.folder / "a").write_text("longer than it was")
    got = (await stored(net, listed))["0/a"]
    if large == 4:
        assert (got.record, got.reason_unread) == (b"", "changed while it was read")
    else:
        assert unpacked(got).content == Digest.of_content(b"longer than it was").raw


async def test_a_small_file_that_has_become_a_large_one_is_left_for_the_next_time(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_storing, "LARGE", 10)
    for name in ("a", "b"):
        (net.folder / name).write_bytes(b"x")
    files = [wanted(net, name) for name in ("a", "b")]
    (net.folder / "a").write_bytes(b"x" * 10)
    (net.folder / "b").write_bytes(b"x" * 11)
    got = await stored(net, *files)
    assert unpacked(got["0/a"]).size == 10
    assert got["0/b"] == WantedFileRecord("0/b", b"", reason_unread="changed while it was read")


@pytest.mark.parametrize(("times", "reads"), [(0, 1), (1, 2), (2, 3), (3, 3), (9, 3)])
async def test_a_file_that_changes_while_it_is_read_is_read_again_a_few_times(
    net: Net, monkeypatch: pytest.MonkeyPatch, times: int, reads: int
) -> None:
    read = [0]
    real = content_storing._read_until_size

    def read_beside_a_writer(handle: int, size: int) -> bytes:
        content = real(handle, size)
        read[0] += 1
        if read[0] <= times:
            with (net.folder / "a").open("ab") as file:
                file.write(b"+")
        return content

    monkeypatch.setattr(content_storing, "_read_until_size", read_beside_a_writer)
    (net.folder / "a").write_bytes(b"a")
    got = (await stored(net, wanted(net, "a")))["0/a"]
    assert read[0] == reads
    assert got.keeps_changing == (times >= 3)
    assert unpacked(got).content == Digest.of_content(b"a" + b"+" * (reads - 1)).raw
    assert got.record.startswith(UNRELIABLE_STAMP) == (times > 0)


def test_of_a_file_that_grows_while_it_is_read_no_more_is_read_than_it_had(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    with (tmp_path / "a").open("rb") as file:
        assert content_storing._read_until_size(file.fileno(), 4) == b"0123"
        assert content_storing._read_until_size(file.fileno(), 100) == b"456789"


class BesideAWriter:
    """The cache, while somebody else works in the file that is stored."""

    def __init__(self, net: Net, file: Path, more: bytes) -> None:
        self.store_many = net.cache.store_many
        self._net = net
        self._file = file
        self._more = more

    async def store_content(self, content: AsyncIterator[bytes], about: EntryOrigin) -> Stored:
        if self._more:
            with self._file.open("ab") as file:
                file.write(self._more)
        else:
            raise OSError(5, "Input/output error")
        assert about.source == ""
        return await self._net.cache.store_content(content, about)


async def test_a_large_file_that_grows_while_it_is_stored_is_stored_as_it_was_and_looked_at_again(
    net: Net, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(content_storing, "LARGE", 4)
    monkeypatch.setattr(content_storing, "_PIECE", 7)
    (net.folder / "a").write_bytes(b"0123456789")
    contents = BesideAWriter(net, net.folder / "a", b"more")
    reader = RootFileOpener([net.folder])
    batches = content_storing.store_wanted_files(contents, reader, [wanted(net, "a")])  # type: ignore[arg-type]
    ((got,),) = [batch async for batch in batches]
    assert (got.keeps_changing, got.reason_unread) == (True, "")
    assert unpacked(got).content == Digest.of_content(b"0123456789").raw
    assert got.record.startswith(UNRELIABLE_STAMP)
    contents = BesideAWriter(net, net.folder / "a", b"")
    batches = content_storing.store_wanted_files(contents, reader, [wanted(net, "a")])  # type: ignore[arg-type]
    ((got,),) = [batch async for batch in batches]
    assert got == WantedFileRecord("0/a", b"", reason_unread=UNREADABLE)


@pytest.mark.parametrize("large", [0, 1_000])
async def test_what_has_gone_or_is_a_link_by_now_is_not_read(
    net: Net, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, large: int
) -> None:
    monkeypatch.setattr(content_storing, "LARGE", large)
    (tmp_path / "outside").write_text("secret")
    names = ("gone", "link", "folder", "pipe")
    for name in names:
        (net.folder / name).write_text("x")
    files = [wanted(net, name) for name in names]
    for name in names:
        (net.folder / name).unlink()
    (net.folder / "link").symlink_to(tmp_path / "outside")
    (net.folder / "folder").mkdir()
    os.mkfifo(net.folder / "pipe")
    got = await stored(net, *files, WantedFile(f"0/{'n' * 300}", UNRELIABLE_STAMP, 0o644, 1))
    assert [got[f"0/{name}"] for name in names] == [
        WantedFileRecord(f"0/{name}", b"") for name in names
    ]
    assert got[f"0/{'n' * 300}"].reason_unread == UNREADABLE, "it may be there"


async def test_files_of_several_roots_are_opened_where_they_are_and_closed_again(
    net: Net, tmp_path: Path
) -> None:
    roots = [tmp_path / "one", tmp_path / "two"]
    for root in roots:
        (root / "in").mkdir(parents=True)
        (root / "in" / "file").write_text(root.name)
    reader = RootFileOpener(roots)

    def still_open() -> list[Path]:
        numbers = [st for number in range(1_000) if (st := _stat_of_handle(number)) is not None]
        everything = [root / name for root in roots for name in (".", "in", "in/file", "in/big")]
        return [
            path
            for path in everything
            if path.exists() and any(os.path.samestat(path.stat(), st) for st in numbers)
        ]

    for number, root in enumerate(roots):
        handle = reader.open_without_link(f"{number}/in/file")
        assert os.read(handle, 100) == root.name.encode()
        os.close(handle)
        handle = reader.open_without_link(f"{number}", os.O_RDONLY | os.O_DIRECTORY)
        assert os.fstat(handle).st_ino == root.stat().st_ino
        os.close(handle)
    for size in (3, content_storing.LARGE + 1):
        (tmp_path / "one" / "in" / "big").write_bytes(bytes(size))
        st = (tmp_path / "one" / "in" / "big").stat()
        file = WantedFile(
            "0/in/big", content_storing.pack_stat_stamp(st), stat.S_IMODE(st.st_mode), st.st_size
        )
        ((got,),) = [
            batch async for batch in content_storing.store_wanted_files(net.cache, reader, [file])
        ]
        assert got.record.startswith(file.stamp)
        with pytest.raises(FileNotFoundError):
            reader.open_without_link("1/in/big")
    assert still_open() == []
    handle = reader.open_without_link("0/in/file")
    assert still_open() == [tmp_path / "one" / "in/file"]
    os.close(handle)


def _stat_of_handle(number: int) -> os.stat_result | None:
    try:
        return os.fstat(number)
    except OSError:
        return None


def test_batches_hold_so_many_files_and_bytes_and_every_file_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(content_storing, "MOST", 3)
    monkeypatch.setattr(content_storing, "BATCH", 10)

    def sizes(*wanted: int) -> list[list[int]]:
        files = [WantedFile("0/f", UNRELIABLE_STAMP, 0o644, size) for size in wanted]
        return [[one.size for one in batch] for batch in content_storing._group_into_batches(files)]

    assert sizes(1, 1, 1, 1, 1, 1, 1) == [[1, 1, 1], [1, 1, 1], [1]]
    assert sizes(5, 5, 1, 20, 1) == [[5, 5], [1], [20], [1]]
    assert sizes() == []
