from __future__ import annotations

import json
from dataclasses import replace

import pytest
import zstandard

from helix_desktop.errors import JournalCorrupt, WrittenByNewerVersion
from helix_desktop.store.journal_file import StoredFact, checksum_of_fact
from helix_desktop.store.shared import fact_segments
from helix_desktop.store.shared.fact_segments import (
    MOST_FACTS_IN_SEGMENT,
    FactSegment,
    HeadContents,
)


def line(seq: int, fact: str = "{}", time: float = 1.5) -> StoredFact:
    return StoredFact(0, "c", seq, time, fact, checksum_of_fact("c", seq, time, fact))


@pytest.mark.parametrize("time", ["1e300", "-1e300", "nan", "inf", "-1"])
def test_a_time_of_no_calendar_is_refused(time: str) -> None:
    head = json.dumps({"segment": 1, "conversation": "c", "first": 1})
    with pytest.raises(JournalCorrupt):
        fact_segments.unpack_segment(
            zstandard.ZstdCompressor().compress(f"{head}\n{time}\t{{}}".encode())
        )


def test_a_segment_that_stands_for_more_than_it_is_is_refused() -> None:
    """A million facts of one byte each take gigabytes."""
    head = json.dumps({"segment": 1, "conversation": "c", "first": 1})
    most = zstandard.ZstdCompressor().compress((head + "\n0\t{}" * MOST_FACTS_IN_SEGMENT).encode())
    assert len(fact_segments.unpack_segment(most)) == MOST_FACTS_IN_SEGMENT
    for content in (
        head + "\n0\t{}" * (MOST_FACTS_IN_SEGMENT + 1),
        head + "\n0\t" + " " * (65 << 20),
    ):
        with pytest.raises(JournalCorrupt):
            fact_segments.unpack_segment(zstandard.ZstdCompressor().compress(content.encode()))


@pytest.mark.parametrize("last", ["1e999", "[" * 100_000, "-1", str(2**63), '"7"'])
def test_a_number_that_is_none_is_refused(last: str) -> None:
    head = fact_segments.encode_head(HeadContents("c", "laptop", last=7))
    with pytest.raises(JournalCorrupt):
        fact_segments.decode_head(head.replace(b'"last":7', b'"last":' + last.encode()))


@pytest.mark.parametrize("foreign", ["", "../../x", "/home/me/settings", ".hidden", "a" * 81, 5])
def test_an_id_that_would_be_a_path_is_refused(foreign: str) -> None:
    row = zstandard.ZstdCompressor().compress(
        json.dumps({"segment": 1, "conversation": foreign, "first": 1}).encode()
    )
    with pytest.raises(JournalCorrupt):
        fact_segments.unpack_segment(row)
    with pytest.raises(JournalCorrupt):
        fact_segments.decode_head(fact_segments.encode_head(HeadContents(foreign, "laptop")))


GOOD = '{"fact":"TurnEnded","version":1,"reason":"done"}'
BAD = '{"fact":"TurnEnded","version":1,"reason":"done","why":5}'


@pytest.mark.parametrize(
    ("lines", "last", "record"),
    [
        ([line(4, GOOD), line(5, BAD)], 5, 5),
        ([line(4, GOOD), line(6, GOOD)], 6, 5),
        ([line(5, GOOD)], 5, 4),
        ([replace(line(4, GOOD), conversation="other")], 4, 4),
        ([line(4, GOOD)], 5, 5),
        ([line(4, GOOD), line(5, BAD)], 4, 5),
        ([line(4, GOOD), line(5, GOOD)], 4, 6),
        ([line(4, GOOD)], 2**52, 5),
        ([], 4, 4),
    ],
)
def test_facts_of_others_in_a_wrong_place_or_with_a_wrong_value_are_refused_by_their_number(
    lines: list[StoredFact], last: int, record: int
) -> None:
    fact_segments.check_fetched_facts([line(4, GOOD)], "c", 3, 4)
    with pytest.raises(
        JournalCorrupt, match=f"^Record {record} of the shared conversation c cannot be read"
    ):
        fact_segments.check_fetched_facts(lines, "c", 3, last)


@pytest.mark.parametrize(
    ("sizes", "fresh", "renewed"),
    [
        ([], 5, 0),
        ([10], 5, 1),
        ([100], 5, 0),
        ([100, 10], 5, 1),
        ([30, 10], 5, 2),
        ([32], 1, 1),
        ([33], 1, 0),  # large enough to stay, while less is behind it
        ([33], 33, 1),
        ([33], 32, 0),
        ([60, 33], 33, 2),  # the two of them are more than the one before
        ([70, 33], 33, 1),
        ([2], MOST_FACTS_IN_SEGMENT - 2, 1),
        ([2], MOST_FACTS_IN_SEGMENT - 1, 0),
    ],
)
def test_small_segments_are_made_anew_and_large_ones_stay(
    sizes: list[int], fresh: int, renewed: int
) -> None:
    made = []
    last = 0
    for size in sizes:
        made.append(FactSegment(b"name", last + 1, last + size))
        last += size
    assert fact_segments.count_segments_to_merge(made, fresh) == renewed


def test_few_segments_remain_and_a_fact_is_sent_few_times() -> None:
    made: list[FactSegment] = []
    sent = 0
    for last in range(1, 3_001):
        count = fact_segments.count_segments_to_merge(made, 1)
        first = made[-count].first if count else last
        made = [*made[: len(made) - count], FactSegment(b"", first, last)]
        sent += made[-1].fact_count
    assert len(made) <= 12
    assert sent / 3_000 <= 24


def test_the_chain_runs_through_every_time_and_text_in_order() -> None:
    lines = [line(1), line(2, '{"a":1}')]
    chain = fact_segments.compute_chain(fact_segments.NOTHING, lines)
    assert chain == fact_segments.next_chain_link(
        fact_segments.next_chain_link(fact_segments.NOTHING, lines[0]), lines[1]
    )
    for others in (
        [lines[1], lines[0]],
        lines[:1],
        [lines[0], line(2, '{"a":2}')],
        [line(1, time=1.25), lines[1]],
    ):
        assert fact_segments.compute_chain(fact_segments.NOTHING, others) != chain
    assert fact_segments.count_common_facts(lines, [lines[0], line(2)]) == 1
    assert fact_segments.count_common_facts(lines, [line(1, time=2.0), lines[1]]) == 0
    assert fact_segments.count_common_facts(lines, lines[:1]) == 1


def test_a_segment_comes_back_with_its_numbers() -> None:
    lines = [line(7), line(8, '{"text":"a\\tb"}', 2.25)]
    assert list(fact_segments.unpack_segment(fact_segments.pack_segment(lines))) == lines
    with pytest.raises(JournalCorrupt):
        fact_segments.unpack_segment(b"nothing of the kind")


def test_a_head_comes_back_and_that_of_a_newer_program_is_left_alone() -> None:
    contents = HeadContents(
        "c", "desktop", 9, b"k" * 32, (FactSegment(b"n" * 32, 1, 9),), 3, is_removed=True
    )
    assert fact_segments.decode_head(fact_segments.encode_head(contents)) == contents
    assert (
        fact_segments.decode_head(
            fact_segments.encode_head(replace(contents, is_removed=False))
        ).is_removed
        is False
    )
    with pytest.raises(WrittenByNewerVersion):
        fact_segments.decode_head(
            fact_segments.encode_head(contents).replace(b'"head":1', b'"head":2')
        )
    with pytest.raises(JournalCorrupt):
        fact_segments.decode_head(b"[]")


def test_a_segment_that_stands_for_more_than_any_has_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether the frame says how much it stands for, or does not."""
    monkeypatch.setattr(fact_segments, "MOST_SEGMENT_BYTES", 1 << 20)
    text = fact_segments.pack_segment([line(1, "{" + " " * (2 << 20) + "}")])
    for says_size in (True, False):
        packed = zstandard.ZstdCompressor(write_content_size=says_size).compress(
            zstandard.ZstdDecompressor().decompress(text)
        )
        with pytest.raises(JournalCorrupt):
            fact_segments.unpack_segment(packed)
    assert fact_segments.unpack_segment(fact_segments.pack_segment([line(1)]))[0].fact == "{}"


def test_the_name_of_a_machine_is_cut_and_numbers_of_segments_are_checked() -> None:
    contents = HeadContents("c", "m" * 300, 9, b"k" * 32, (FactSegment(b"n" * 32, 1, 9),))
    assert fact_segments.decode_head(fact_segments.encode_head(contents)).machine == "m" * 200
    for wrong in (b",-1,9]", b",1,-9]", b",1]"):
        with pytest.raises(JournalCorrupt):
            fact_segments.decode_head(fact_segments.encode_head(contents).replace(b",1,9]", wrong))


def test_a_segment_of_a_newer_program_is_left_alone() -> None:
    for version, error in (
        (fact_segments.VERSION, None),
        (fact_segments.VERSION + 1, WrittenByNewerVersion),
    ):
        head = json.dumps({"segment": version, "conversation": "c", "first": 5})
        packed = zstandard.ZstdCompressor().compress(f"{head}\n1.5\t{{}}".encode())
        if error is None:
            assert fact_segments.unpack_segment(packed) == (line(5),)
        else:
            with pytest.raises(error, match="shared by a newer version") as refused:
                fact_segments.unpack_segment(packed)
            assert "Nothing was changed" in refused.value.remedy


@pytest.mark.parametrize(
    ("segments", "last"),
    [([(1, 4), (6, 9)], 9), ([(2, 4)], 4), ([(1, 4)], 9), ([(1, 0)], 0), ([(1, 4), (3, 9)], 9)],
)
def test_a_head_with_a_gap_or_an_overlap_is_refused(
    segments: list[tuple[int, int]], last: int
) -> None:
    parts = tuple(FactSegment(bytes(32), *each) for each in segments)
    with pytest.raises(JournalCorrupt):
        fact_segments.check_fetched_head(HeadContents("c", "laptop", last, segments=parts))
    whole = HeadContents("c", "laptop", 4, segments=(FactSegment(bytes(32), 1, 4),))
    fact_segments.check_fetched_head(whole)


def test_the_name_of_another_machine_cannot_deceive() -> None:
    head = fact_segments.encode_head(HeadContents("c", "\u202egnp.exe\n\x1b[2J"))
    assert fact_segments.decode_head(head).machine == "gnp.exe[2J"
    assert (
        fact_segments.decode_head(fact_segments.encode_head(HeadContents("c", "\n"))).machine == "?"
    )
