from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store import cache_records
from helix_desktop.store.cache_records import CHUNK, CacheRecord, EntryState

NUMBERS = st.integers(0, 1 << 62)
TEXTS = st.text(max_size=100)
RECORDS = st.builds(
    CacheRecord,
    number=NUMBERS,
    blob=NUMBERS,
    digest=st.binary(min_size=32, max_size=32).map(Digest),
    size=NUMBERS,
    kept=NUMBERS,
    lines=NUMBERS,
    time=st.floats(0, 1e10),
    about=st.builds(EntryOrigin, TEXTS, TEXTS, TEXTS),
    chunks=st.lists(st.binary(min_size=32, max_size=32), max_size=4).map(tuple),
    state=st.sampled_from(EntryState),
)


@given(RECORDS)
def test_a_record_comes_back(record: CacheRecord) -> None:
    assert cache_records.unpack_record(record.number, cache_records.pack_record(record)) == record


@given(RECORDS, st.data())
def test_no_flipped_bit_goes_unseen(record: CacheRecord, data: st.DataObject) -> None:
    value = bytearray(cache_records.pack_record(record))
    bit = data.draw(st.integers(0, len(value) * 8 - 1))
    value[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="does not match its check"):
        cache_records.unpack_record(record.number, bytes(value))


@given(RECORDS)
def test_a_record_under_another_number_is_not_taken(record: CacheRecord) -> None:
    with pytest.raises(ValueError, match="check"):
        cache_records.unpack_record(record.number + 1, cache_records.pack_record(record))


def test_long_and_broken_texts_are_cut_and_mended() -> None:
    about = EntryOrigin("t" * 900, "s" * 90_000 + "\ud800", "m" * 900)
    record = CacheRecord(1, 1, Digest.of_content(b""), 0, 0, 0, 0.0, about)
    kept = cache_records.unpack_record(1, cache_records.pack_record(record)).about
    assert (len(kept.tool), len(kept.source), len(kept.media_type)) == (200, 4000, 200)
    half = CacheRecord(1, 1, Digest.of_content(b""), 0, 0, 0, 0.0, EntryOrigin(source="\ud800"))
    assert cache_records.unpack_record(1, cache_records.pack_record(half)).about.source == "?"


@pytest.mark.parametrize(
    ("size", "count"), [(0, 1), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (5 * CHUNK, 5)]
)
def test_chunks_are_counted(size: int, count: int) -> None:
    assert (
        CacheRecord(1, 1, Digest.of_content(b""), size, 0, 0, 0.0, EntryOrigin()).count_chunks
        == count
    )


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 1000)), min_size=2))
def test_keys_sort_as_their_numbers(pairs: list[tuple[int, int]]) -> None:
    keys = [cache_records.key_of_chunk(*pair) for pair in pairs]
    assert sorted(keys) == [cache_records.key_of_chunk(*pair) for pair in sorted(pairs)]
    assert [cache_records.number_in_key(key) for key in keys] == [number for number, _ in pairs]


@given(RECORDS)
def test_a_place_leads_to_the_blob_of_a_single_chunk(record: CacheRecord) -> None:
    number, blob = cache_records.decode_entry_place(cache_records.encode_entry_place(record))
    assert number == record.number
    assert blob == (
        record.blob if record.count_chunks == 1 and record.state is EntryState.LIVE else None
    )
    with pytest.raises(ValueError, match="place"):
        cache_records.decode_entry_place(b"short")
