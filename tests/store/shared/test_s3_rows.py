"""What lies in an S3-compatible store: packs of small rows, large rows alone, and
nothing of what was forgotten.
"""

from __future__ import annotations

import secrets
import time
from contextlib import nullcontext
from typing import Any, ClassVar

import obstore
import pytest
from obstore.store import MemoryStore

from helix_desktop.errors import (
    HelixError,
    InvalidInput,
    NotFound,
    SharedStoreUnreachable,
    StoreFailed,
    StoreFull,
    WrittenByNewerVersion,
)
from helix_desktop.store.shared import s3_rows
from helix_desktop.store.shared.row_store import ROW_KEY_BYTES, Tombstone
from helix_desktop.store.shared.s3_rows import LARGE_ROW_BYTES, S3RowStore

SPACE = b"s" * 16


def machine(bucket: MemoryStore, kind: type[S3RowStore] = S3RowStore) -> Any:
    """One more machine with this bucket, which is in memory."""
    made: Any = kind("s3://shared/trial?endpoint=http://127.0.0.1:1", SPACE, login="key:secret")
    made._store = bucket
    return made


def rows_of_sizes(*sizes: int) -> dict[bytes, bytes]:
    return {secrets.token_bytes(32): secrets.token_bytes(size) for size in sizes}


def objects(bucket: MemoryStore) -> dict[str, list[str]]:
    """The names of all objects by their folder."""
    found: dict[str, list[str]] = {}
    for page in bucket.list():
        for one in page:
            parts = one["path"].split("/")
            found.setdefault(parts[2], []).append("/".join(parts[3:]))
    return found


def test_a_large_row_is_an_object_of_its_own_and_small_ones_share_a_pack() -> None:
    bucket = MemoryStore()
    large = rows_of_sizes(LARGE_ROW_BYTES)
    machine(bucket).store_rows(large)
    assert {folder: len(names) for folder, names in objects(bucket).items()} == {
        "index": 1,
        "row": 1,
    }
    small = rows_of_sizes(LARGE_ROW_BYTES - 1, ROW_KEY_BYTES + 1, ROW_KEY_BYTES + 500)
    machine(bucket).store_rows(small)
    assert {folder: len(names) for folder, names in objects(bucket).items()} == {
        "index": 2,
        "row": 1,
        "pack": 1,
    }
    rows = large | small
    reader = machine(bucket)
    assert reader.fetch_rows(list(rows)) == rows
    used = reader.fetch_row_usage()
    assert (used.rows, used.bytes) == (4, sum(map(len, rows.values())))


class ForgottenMeanwhile(S3RowStore):
    """Another machine forgets a row between the pack and its index."""

    other: Any = None
    name = b""

    def _create_index(self, pack: str, places: bytes) -> None:
        if self.other is not None:
            self.other.forget_rows([Tombstone(self.name, b"sealed")])
            self.other = None
        super()._create_index(pack, places)


def test_a_row_that_another_machine_forgets_while_it_is_put_does_not_stay_in_the_bucket() -> None:
    bucket = MemoryStore()
    small = rows_of_sizes(200, 300)
    large = rows_of_sizes(LARGE_ROW_BYTES, LARGE_ROW_BYTES + 1)
    for rows in (small, large):
        here = machine(bucket, ForgottenMeanwhile)
        (here.name, gone), (stays, kept) = rows.items()
        here.other = machine(bucket)
        here.store_rows(rows)
        assert (
            here.fetch_rows(list(rows)) == machine(bucket).fetch_rows(list(rows)) == {stays: kept}
        )
        stored = [bytes(bucket.get(one["path"]).bytes()) for page in bucket.list() for one in page]
        assert not any(gone[ROW_KEY_BYTES:] in each for each in stored)
    assert machine(bucket).fetch_row_usage().rows == 2


def test_a_machine_sees_what_others_put_since_it_looked_and_leaves_nothing_from_asking_the_time() -> (
    None
):
    bucket = MemoryStore()
    here = machine(bucket)
    there = machine(bucket)
    assert there.fetch_row_usage().rows == 0
    rows: dict[bytes, bytes] = {}
    for count in (1, 2, 3):
        more = rows_of_sizes(*[100] * count)
        here.store_rows(more)
        rows |= more
        assert there.find_missing_rows(list(rows)) == frozenset()
        assert there.fetch_rows(list(rows)) == rows
    found = objects(bucket)
    assert "clock" not in found
    assert len(found["index"]) == len(found["pack"]) == 3
    for pack in found["index"]:
        assert abs(int(pack[:12], 16) / 1000 - time.time()) < 3600, (
            "a pack's name begins with the time there"
        )


def test_only_names_behind_the_one_that_was_looked_at_last_are_listed() -> None:
    here = machine(MemoryStore())
    for number in (1, 2, 3):
        here.publish_used_rows(bytes([number]) * 16, b"sealed")
    every = here._list_object_names("uses")
    assert every == [bytes([number]).hex() * 16 for number in (1, 2, 3)]
    assert here._list_object_names("uses", after=every[0]) == every[1:]
    assert here._list_object_names("uses", after="02") == every[1:]
    assert here._list_object_names("uses", after=every[-1]) == []


FAILED = "Server returned non-2xx status code:"  # So the library begins to name a status.


class PermissionDeniedError(Exception):
    """Named as the library's."""


@pytest.mark.parametrize(
    ("error", "kind", "sentence"),
    [
        (
            PermissionDeniedError("no"),
            StoreFailed,
            "The shared store rejected the key or the secret.",
        ),
        (
            ValueError("<Code>InvalidAccessKeyId</Code>"),
            StoreFailed,
            "The shared store rejected the key or the secret.",
        ),
        (
            FileNotFoundError("NoSuchBucket"),
            StoreFailed,
            "The shared store's bucket does not exist.",
        ),
        (FileNotFoundError("NoSuchKey"), NotFound, "-"),
        (ValueError(f"{FAILED} 507 Insufficient Storage"), StoreFull, "The shared store is full."),
        (ValueError("QuotaExceeded"), StoreFull, "The shared store is full."),
        (
            ValueError("error: InvalidCertificate("),
            StoreFailed,
            "The shared store's certificate was rejected.",
        ),
        (
            ValueError("invalid peer certificate: x"),
            StoreFailed,
            "The shared store's certificate was rejected.",
        ),
        (
            ValueError("/certificates/"),
            SharedStoreUnreachable,
            "The shared store is not responding: /certificates/",
        ),
        (
            ValueError(f"{FAILED} 503"),
            SharedStoreUnreachable,
            f"The shared store is not responding: {FAILED} 503",
        ),
        (
            ValueError("in 2.507ms"),
            SharedStoreUnreachable,
            "The shared store is not responding: in 2.507ms",
        ),
        (
            ValueError("host:1507"),
            SharedStoreUnreachable,
            "The shared store is not responding: host:1507",
        ),
        (NotFound("known"), NotFound, "known"),
    ],
)
def test_what_the_library_says_becomes_a_sentence(
    error: Exception, kind: type[HelixError], sentence: str
) -> None:
    found = s3_rows.convert_s3_error(error)
    assert (type(found), found.what) == (kind, sentence)


def test_a_reader_finds_the_rows_of_a_pack_that_was_rewritten_and_none_that_were_removed_with_it() -> (
    None
):
    bucket = MemoryStore()
    rows = rows_of_sizes(100, 100)
    kept, removed = rows
    reader = machine(bucket)
    other = machine(bucket)
    other.store_rows(rows)
    assert reader.fetch_rows([kept, b"n" * 32]) == {kept: rows[kept]}
    other.remove_rows([removed])
    assert reader.fetch_rows(list(rows)) == {kept: rows[kept]}


def test_what_is_there_or_was_forgotten_is_not_put_again() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    rows = rows_of_sizes(100, 100)
    first, second = rows
    here.store_rows({})
    assert objects(bucket) == {}
    here.store_rows({first: rows[first]})
    here.store_rows({first: rows[first]})
    assert len(objects(bucket)["index"]) == 1
    here.forget_rows([Tombstone(second, b"sealed")])
    here.store_rows(rows)
    assert len(objects(bucket)["index"]) == 1
    assert machine(bucket).fetch_rows(list(rows)) == {first: rows[first]}


def test_rows_that_are_missing_are_named() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    rows = rows_of_sizes(100, 100, 100)
    first, second, third = rows
    here.store_rows({first: rows[first]})
    here.forget_rows([Tombstone(second, b"")])
    assert machine(bucket).find_missing_rows([first, second, third]) == {third}
    assert machine(bucket).find_missing_rows([]) == frozenset()
    assert machine(bucket).fetch_rows([]) == {}


def test_what_was_forgotten_is_told_with_its_sealed_digest_once() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    assert here.fetch_tombstones(0) == ([], 0)
    here.forget_rows([Tombstone(b"b" * 32, b"sealed"), Tombstone(b"a" * 32, b"")])
    there = machine(bucket)
    assert there.fetch_tombstones(0) == (
        [Tombstone(b"a" * 32, b""), Tombstone(b"b" * 32, b"sealed")],
        2,
    )
    assert there.fetch_tombstones(2) == ([], 2)
    assert len(there.fetch_tombstones(1)[0]) == 2


def test_what_each_machine_uses_is_published_until_it_is_taken_back() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    there = machine(bucket)
    here.publish_used_rows(b"1" * 16, b"one")
    here.publish_used_rows(b"2" * 16, b"two")
    here.publish_used_rows(b"2" * 16, b"newer")
    assert there.fetch_published_uses() == {b"1" * 16: b"one", b"2" * 16: b"newer"}
    there.publish_used_rows(b"1" * 16, b"")
    there.publish_used_rows(b"3" * 16, b"")
    assert here.fetch_published_uses() == {b"2" * 16: b"newer"}


def test_what_another_machine_forgets_meanwhile_is_not_written_again() -> None:
    """The row and its key: other machines do not read it, and the store's operator must
    not have it either.
    """
    bucket = MemoryStore()
    rows = rows_of_sizes(500, 600, LARGE_ROW_BYTES, 700)
    x, y, large, z = rows
    machine(bucket).store_rows(rows)
    first = machine(bucket)

    class InBetween(S3RowStore):
        """The other machine forgets after this one has read the pack, and before it
        writes it again.
        """

        meanwhile: ClassVar[list[Any]] = [
            lambda: first.forget_rows([Tombstone(name, b"w") for name in (x, large)])
        ]

        def _create_pack(self, rows: Any) -> str:
            if self.meanwhile:
                self.meanwhile.pop()()
            return super()._create_pack(rows)

    machine(bucket, InBetween).forget_rows([Tombstone(y, b"w")])
    left = machine(bucket)
    assert left.fetch_row_usage().rows == 1
    assert left.fetch_rows([z]) == {z: rows[z]}
    everything = [
        bytes(obstore.get(bucket, one["path"]).bytes()) for page in bucket.list() for one in page
    ]
    assert any(rows[z][ROW_KEY_BYTES:] in content for content in everything)
    for row in (rows[x], rows[large]):
        assert not any(
            part in content
            for part in (row[:ROW_KEY_BYTES], row[ROW_KEY_BYTES:])
            for content in everything
        )


def test_packs_of_a_machine_that_was_suspended_are_of_now() -> None:
    """A virtual machine's clocks stand still then. Others look for packs that are newer
    than a quarter of an hour.
    """
    bucket = MemoryStore()
    laptop = machine(bucket)
    desk = machine(bucket)
    rows = rows_of_sizes(500)
    laptop.store_rows(rows)
    assert desk.fetch_rows(list(rows)) == rows
    laptop._store_ahead_ms -= 8 * 3_600_000
    laptop._clock_difference -= 8 * 3600
    more = rows_of_sizes(600)
    laptop.store_rows(more)
    assert desk.fetch_rows(list(more)) == more
    assert not set(desk.list_old_rows(3600.0)) & set(more)


def test_rows_are_old_by_the_stores_clock() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    rows = rows_of_sizes(100, 100, 100)
    here.store_rows(rows)
    names = sorted(rows)
    assert here.list_old_rows(3600) == []
    assert machine(bucket).list_old_rows(-3600) == names
    assert here.list_old_rows(-3600, after=names[0]) == names[1:]
    assert here.list_old_rows(-3600, limit=2) == names[:2]


def test_a_quota_holds_to_the_byte_for_every_machine() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    there = machine(bucket)
    assert here.fetch_row_usage().quota == 0
    here.set_quota(300)
    assert there.fetch_row_usage().quota == 300
    there.store_rows(rows_of_sizes(100, 200))
    with pytest.raises(StoreFull):
        here.store_rows(rows_of_sizes(100))
    assert (here.fetch_row_usage().rows, here.fetch_row_usage().bytes) == (2, 300)


def test_large_rows_stay_and_go_as_small_ones_do() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    rows = rows_of_sizes(LARGE_ROW_BYTES, LARGE_ROW_BYTES + 1, 100, 200)
    here.store_rows(rows)
    large, kept, small, stays = rows
    here.remove_rows([large, small])
    for one in (here, machine(bucket)):
        assert one.fetch_rows(list(rows)) == {kept: rows[kept], stays: rows[stays]}
        assert one.fetch_row_usage().bytes == len(rows[kept]) + len(rows[stays])
    found = objects(bucket)
    assert (found["row"], len(found["pack"]), len(found["index"])) == ([kept.hex()], 1, 2)
    here.remove_rows([kept, stays, b"n" * 32])
    assert {folder: names for folder, names in objects(bucket).items() if names} == {}


def test_a_damaged_index_says_nothing_and_its_rows_come_again() -> None:
    bucket = MemoryStore()
    rows = rows_of_sizes(100)
    machine(bucket).store_rows(rows)
    (path,) = [one["path"] for page in bucket.list() for one in page if "/index/" in one["path"]]
    whole = bytes(bucket.get(path).bytes())
    bucket.put(path, whole[:-40] + b"?" + whole[-39:])
    here = machine(bucket)
    assert here.find_missing_rows(list(rows)) == frozenset(rows)
    here.store_rows(rows)
    assert machine(bucket).fetch_rows(list(rows)) == rows


def test_what_a_newer_version_wrote_is_not_touched() -> None:
    bucket = MemoryStore()
    head = s3_rows._INDEX_HEAD % (s3_rows.VERSION + 1)
    bucket.put(f"trial/{SPACE.hex()}/index/{'0' * 12}a", s3_rows._with_checksum(head))
    with pytest.raises(WrittenByNewerVersion) as refused:
        machine(bucket).store_rows(rows_of_sizes(100))
    assert "Nothing was changed" in refused.value.remedy
    assert set(objects(bucket)) == {"index"}


def test_the_address_says_the_bucket_the_folder_and_the_host() -> None:
    made: Any = S3RowStore(
        "s3://shared/a/b/?endpoint=http://127.0.0.1:1&region=eu-1", SPACE, login="key:sec:ret"
    )
    config = made._store.config
    assert (config["access_key_id"], config["secret_access_key"]) == ("key", "sec:ret")
    assert (config["bucket"], config["endpoint"], config["region"]) == (
        "shared",
        "http://127.0.0.1:1",
        "eu-1",
    )
    assert made._space_folder == f"a/b/{SPACE.hex()}"
    plain: Any = S3RowStore("s3://shared", SPACE)
    assert (plain._store.config["region"], plain._space_folder) == ("us-east-1", SPACE.hex())
    assert "access_key_id" not in plain._store.config
    assert [
        made._store.client_options["allow_http"],
        plain._store.client_options["allow_http"],
    ] == ["true", "false"]
    assert plain.server != S3RowStore("s3://shared", SPACE, login="key:secret").server


def test_people_are_told_what_the_store_is_and_what_it_may_keep() -> None:
    here = machine(MemoryStore())
    assert here.describe_server().startswith("an S3-compatible store")
    assert [one for one in here.describe_remaining_copies() if "old versions" in one]
    assert len(s3_rows.convert_s3_error(ValueError("x" * 999)).what) < 300


def test_what_another_machine_put_meanwhile_is_forgotten_and_removed_too() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    there = machine(bucket)
    assert here.fetch_row_usage().rows == 0
    rows = rows_of_sizes(200, 300, 400)
    first, second, third = rows
    there.store_rows(rows)
    here.forget_rows([Tombstone(first, b"sealed")])
    here.remove_rows([second])
    stored = [bytes(bucket.get(one["path"]).bytes()) for page in bucket.list() for one in page]
    assert not any(
        rows[name][ROW_KEY_BYTES:] in each for each in stored for name in (first, second)
    )
    assert machine(bucket).fetch_rows(list(rows)) == {third: rows[third]}


@pytest.mark.parametrize(
    ("host", "refused"), [("93.184.216.34", True), ("s3.example.org", True), ("10.0.0.7", False)]
)
def test_what_is_outside_the_own_network_must_prove_who_it_is(host: str, refused: bool) -> None:
    with pytest.raises(InvalidInput, match="begins with http") if refused else nullcontext():
        S3RowStore(f"s3://shared?endpoint=http://{host}:9000", SPACE, login="key:secret")
    S3RowStore(f"s3://shared?endpoint=https://{host}", SPACE, login="key:secret")


class AsksForTime(S3RowStore):
    """Counts how often it asks what time it is there."""

    asked = 0

    def _call_object_store(self, call: str, path: str, *more: Any, **options: Any) -> Any:
        self.asked += call == "put" and path.startswith("clock/")
        return super()._call_object_store(call, path, *more, **options)


def test_the_time_there_is_asked_for_again_when_the_clocks_here_have_come_apart_by_more_than_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = MemoryStore()
    here = machine(bucket, AsksForTime)
    now = [1_000_000.0]
    since_start = [5_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(s3_rows, "seconds_since_start_of_computer", lambda: since_start[0])
    there = here._store_time_ms()
    assert here.asked == 1
    now[0] += 7.0
    since_start[0] += 7.0
    assert here._store_time_ms() == pytest.approx(there + 7_000)
    now[0] += 60.0  # Somebody set the clock by just a minute.
    assert here._store_time_ms() == pytest.approx(there + 7_000)
    now[0] -= 120.0
    here._store_time_ms()
    assert here.asked == 1
    for jump, asked in ((-0.5, 2), (60.5, 3), (-60.5, 4)):
        now[0] += jump
        here._store_time_ms()
        here._store_time_ms()
        assert here.asked == asked
    assert "clock" not in objects(bucket)


class CountsCalls(S3RowStore):
    """Counts calls to the store by kind and folder, and lists of indexes that begin anew."""

    def _call_object_store(self, call: str, path: str, *more: Any, **options: Any) -> Any:
        self.calls.append(f"{call} {path.partition('/')[0]}")
        return super()._call_object_store(call, path, *more, **options)

    def _list_object_names(self, folder: str, after: str = "") -> list[str]:
        self.calls.append(f"list {folder}{' on' if after else ''}")
        return super()._list_object_names(folder, after)

    def calls_of(self, *words: str) -> list[str]:
        """The calls of these kinds since this was last asked."""
        found = [call for call in self.calls if call in words]
        self.calls.clear()
        return found

    @property
    def calls(self) -> list[str]:
        return vars(self).setdefault("_calls", [])  # type: ignore[no-any-return]


def test_a_row_that_was_forgotten_elsewhere_is_never_written() -> None:
    bucket = MemoryStore()
    here = machine(bucket, CountsCalls)
    rows = rows_of_sizes(100, LARGE_ROW_BYTES)
    machine(bucket).forget_rows([Tombstone(name, b"") for name in rows])
    here.store_rows(rows)
    assert here.calls_of("put pack", "put row", "put index") == []
    other = rows_of_sizes(100)
    here.store_rows({**rows, **other})
    assert here.calls_of("put pack", "put row", "put index") == ["put pack", "put index"]
    assert machine(bucket).fetch_rows(list(rows | other)) == other


def test_a_row_with_a_tombstone_is_not_read_though_it_is_still_there() -> None:
    """As after a machine was switched off while it forgot the row."""
    bucket = MemoryStore()
    rows = rows_of_sizes(100, LARGE_ROW_BYTES, 200)
    here = machine(bucket)
    small, large, kept = rows
    here.store_rows(rows)
    assert here.fetch_rows(list(rows)) == rows
    for name in (small, large):
        bucket.put(f"trial/{SPACE.hex()}/gone/{name.hex()}", b"-")
    assert (
        here.fetch_rows(list(rows)) == machine(bucket).fetch_rows(list(rows)) == {kept: rows[kept]}
    )
    assert here.find_missing_rows(list(rows)) == frozenset()


def test_rows_that_are_all_there_are_read_without_looking_for_them_again() -> None:
    bucket = MemoryStore()
    rows = rows_of_sizes(100, 200, LARGE_ROW_BYTES)
    machine(bucket).store_rows(rows)
    here = machine(bucket, CountsCalls)
    assert here.fetch_rows(list(rows)) == rows
    assert here.calls_of("list index", "list index on", "get index") == ["list index", "get index"]
    assert here.fetch_rows(list(rows)) == rows
    assert here.calls_of(
        "list index", "list index on", "get index", "get_ranges pack", "get row"
    ) == [
        "get row",
        "get_ranges pack",
    ]
    assert here.fetch_rows([b"n" * 32]) == {}
    assert here.calls_of("list index", "list index on", "get index") == ["list index on"]


def test_what_was_put_a_quarter_of_an_hour_ago_is_still_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another machine may have named its pack then, and has written its index only now."""
    bucket = MemoryStore()
    here = machine(bucket)
    monkeypatch.setattr(here, "_store_time_ms", lambda: 5_000_000.9)
    here.fetch_row_usage()
    assert here._list_from_pack == f"{5_000_000 - s3_rows.LATEST_PUT_MS:012x}"
    monkeypatch.setattr(here, "_store_time_ms", lambda: 1_000.0)
    here.fetch_row_usage()
    assert here._list_from_pack == "0" * 12
    assert s3_rows.LATEST_PUT_MS == 15 * 60 * 1000


def test_old_rows_are_named_in_ten_thousands() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    rows = {number.to_bytes(32, "big"): bytes(ROW_KEY_BYTES + 1) for number in range(10_001)}
    here.store_rows(rows)
    first = here.list_old_rows(-3600)
    assert list(first) == sorted(rows)[:10_000]
    assert list(here.list_old_rows(-3600, after=first[-1])) == sorted(rows)[10_000:]


def test_a_quota_is_reached_by_one_byte_more_and_not_by_the_last_one() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    here.set_quota(300)
    here.store_rows(rows_of_sizes(100))
    with pytest.raises(StoreFull):
        here.store_rows(rows_of_sizes(201))
    here.store_rows(rows_of_sizes(200))
    assert here.fetch_row_usage().bytes == 300
    with pytest.raises(StoreFull):
        here.store_rows(rows_of_sizes(ROW_KEY_BYTES + 1))
    here.set_quota(0)
    here.store_rows(rows_of_sizes(500))
    assert here.fetch_row_usage().rows == 3


def test_rows_of_which_one_pack_is_gone_are_found_in_the_others() -> None:
    bucket = MemoryStore()
    here = machine(bucket)
    first = rows_of_sizes(100)
    second = rows_of_sizes(200)
    here.store_rows(first)
    here.store_rows(second)
    (pack,) = (place.pack for name, place in here._places.items() if name in first)
    for folder in ("pack", "index"):
        bucket.delete(f"trial/{SPACE.hex()}/{folder}/{pack}")
    both = list(first | second)
    assert here.fetch_rows(both) == second
    assert here.find_missing_rows(both) == frozenset(first)
    here.store_rows(first)
    assert machine(bucket).fetch_rows(both) == first | second


HOSTILE_INDEXES = [
    b"",
    b"helix-index-one\n",
    b"helix-index-\n",
    b"no line",
    b"helix-index-1\n" + b"short of a row",
    b"helix-index-1\n"
    + s3_rows._ROW_PLACE.pack(b"n" * 32, (1 << 64) - 2, (1 << 64) - 2, b"k" * 32),
    b"helix-index-1\n" + s3_rows._ROW_PLACE.pack(b"n" * 32, 0, (1 << 64) - 1, b"k" * 32),
]


@pytest.mark.parametrize("index", HOSTILE_INDEXES)
def test_what_a_stranger_writes_into_the_bucket_stops_no_machine(index: bytes) -> None:
    """Its checksum has no key, so whoever may write there can make it right."""
    bucket = MemoryStore()
    rows = rows_of_sizes(100, LARGE_ROW_BYTES)
    machine(bucket).store_rows(rows)
    base = f"trial/{SPACE.hex()}"
    name = "f" * 32
    obstore.put(bucket, f"{base}/index/{name}", s3_rows._with_checksum(index))
    for folder in ("index", "gone", "uses"):
        for path in ("not hex", "..%2F..%2Fetc", "zz" * 16, "abc"):
            obstore.put(bucket, f"{base}/{folder}/{path}", b"anything")
    obstore.put(bucket, f"{base}/quota", b"-many")
    other = machine(bucket)
    assert other.fetch_rows(list(rows) + [b"n" * 32]) == rows
    assert other.fetch_row_usage().quota == 0
    assert other.fetch_published_uses() == {}
    assert set(other.list_old_rows(-10.0)) == set(rows)
    other.remove_rows(list(rows))
    assert machine(bucket).fetch_rows(list(rows)) == {}
