from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.ports import About
from helix_desktop.store import records
from helix_desktop.store.records import CHUNK, Record, State

NUMBERS = st.integers(0, 1 << 62)
TEXTS = st.text(max_size=100)
RECORDS = st.builds(
    Record,
    number=NUMBERS,
    blob=NUMBERS,
    digest=st.binary(min_size=32, max_size=32).map(Digest),
    size=NUMBERS,
    kept=NUMBERS,
    lines=NUMBERS,
    time=st.floats(0, 1e10),
    about=st.builds(About, TEXTS, TEXTS, TEXTS),
    chunks=st.lists(st.binary(min_size=32, max_size=32), max_size=4).map(tuple),
    state=st.sampled_from(State),
)


@given(RECORDS)
def test_a_record_comes_back(record: Record) -> None:
    assert records.unpack(record.number, records.pack(record)) == record


@given(RECORDS, st.data())
def test_no_flipped_bit_goes_unseen(record: Record, data: st.DataObject) -> None:
    value = bytearray(records.pack(record))
    bit = data.draw(st.integers(0, len(value) * 8 - 1))
    value[bit // 8] ^= 1 << bit % 8
    with pytest.raises(ValueError, match="does not match its check"):
        records.unpack(record.number, bytes(value))


@given(RECORDS)
def test_a_record_under_another_number_is_not_taken(record: Record) -> None:
    with pytest.raises(ValueError, match="check"):
        records.unpack(record.number + 1, records.pack(record))


def test_long_and_broken_texts_are_cut_and_mended() -> None:
    about = About("t" * 900, "s" * 90_000 + "\ud800", "m" * 900)
    record = Record(1, 1, Digest.of(b""), 0, 0, 0, 0.0, about)
    kept = records.unpack(1, records.pack(record)).about
    assert (len(kept.tool), len(kept.source), len(kept.media_type)) == (200, 4000, 200)
    half = Record(1, 1, Digest.of(b""), 0, 0, 0, 0.0, About(source="\ud800"))
    assert records.unpack(1, records.pack(half)).about.source == "?"


@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 1), (CHUNK, 1), (CHUNK + 1, 2), (5 * CHUNK, 5)])
def test_chunks_are_counted(size: int, count: int) -> None:
    assert Record(1, 1, Digest.of(b""), size, 0, 0, 0.0, About()).count == count


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 1000)), min_size=2))
def test_keys_sort_as_their_numbers(pairs: list[tuple[int, int]]) -> None:
    keys = [records.chunk_key(*pair) for pair in pairs]
    assert sorted(keys) == [records.chunk_key(*pair) for pair in sorted(pairs)]
    assert [records.number_of(key) for key in keys] == [number for number, _ in pairs]


@given(RECORDS)
def test_a_place_leads_to_the_blob_of_a_single_chunk(record: Record) -> None:
    number, blob = records.unpack_place(records.pack_place(record))
    assert number == record.number
    assert blob == (record.blob if record.count == 1 and record.state is State.LIVE else None)
    with pytest.raises(ValueError, match="place"):
        records.unpack_place(b"short")
