"""Facts on their way to other machines: a segment is a run of them as bytes, and a head
lists segments.

A chain runs through a conversation's facts: each link is the digest of the previous link and of
the fact's time and text. Machines with the same link at a number have the same facts up to it.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from typing import Any

import zstandard

from helix_desktop.decompression import decompress_zstd_frame
from helix_desktop.engine.fact_encoding import (
    CONVERSATION_ID,
    decode_fact,
    require_storable_amount,
    require_valid_time,
)
from helix_desktop.errors import JournalCorrupt, WrittenByNewerVersion
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.journal_file import StoredFact, checksum_of_fact

VERSION = 1
NOTHING = bytes(32)  # Stands for "no fact before" in a conversation's chain of hashes.
MOST_FACTS_IN_SEGMENT = 4_096  # A segment with this many facts is never rewritten.
_LONGEST_HEAD = 10_000
MOST_SEGMENT_BYTES = 64 << 20  # Bytes. Another machine's row must not decompress to more.
_ERRORS_OF_UNKNOWN_ROWS = (
    ValueError,
    KeyError,
    TypeError,
    OverflowError,
    RecursionError,
)  # What an unknown row may raise.
_LEAST_FACTS_IN_SEGMENT = (
    32  # A segment with fewer facts is rewritten together with the next facts.
)


@dataclass(frozen=True, slots=True)
class FactSegment:
    """The facts from `first` to `last`. `name`: that of its row."""

    name: bytes
    first: int
    last: int

    @property
    def fact_count(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class HeadContents:
    """A head's contents. `machine`: its writer's name. `is_removed`: it was removed for good there.

    `generation` grows when facts were changed in place, by forgetting.
    """

    conversation: str
    machine: str
    last: int = 0
    chain: bytes = NOTHING
    segments: tuple[FactSegment, ...] = ()
    generation: int = 0
    is_removed: bool = False


def next_chain_link(before: bytes, stored_fact: StoredFact) -> bytes:
    return hashlib.sha256(before + f"{stored_fact.time!r}\0{stored_fact.fact}".encode()).digest()


def compute_chain(chain: bytes, stored_facts: Iterable[StoredFact]) -> bytes:
    """Return the chain's link at the last of these facts."""
    for stored_fact in stored_facts:
        chain = next_chain_link(chain, stored_fact)
    return chain


def count_common_facts(own_facts: Sequence[StoredFact], other_facts: Sequence[StoredFact]) -> int:
    count = 0
    for ours, theirs in zip(own_facts, other_facts, strict=False):
        if (ours.time, ours.fact) != (theirs.time, theirs.fact):
            break
        count += 1
    return count


def pack_segment(stored_facts: Sequence[StoredFact]) -> bytes:
    """Return a segment's bytes. They contain its conversation, so that no two
    conversations share one.
    """
    first = stored_facts[0]
    head = json.dumps({"segment": VERSION, "conversation": first.conversation, "first": first.seq})
    text = "\n".join(
        [head, *(f"{stored_fact.time!r}\t{stored_fact.fact}" for stored_fact in stored_facts)]
    )
    return zstandard.ZstdCompressor(level=3).compress(text.encode())


def unpack_segment(content: bytes) -> tuple[StoredFact, ...]:
    """Return the facts of a segment, which is a packed run of a conversation's facts.
    JournalCorrupt if it is not one.
    """
    try:
        segment_text = decompress_zstd_frame(content, MOST_SEGMENT_BYTES)
        has_acceptable_count = segment_text.count(b"\n") <= MOST_FACTS_IN_SEGMENT
        if not has_acceptable_count:
            raise ValueError("a segment has too many facts")
        head, *rows = segment_text.decode().split("\n")
        if len(head) > _LONGEST_HEAD:
            raise ValueError("a segment's description is too long")
        description = json.loads(head)
        if description["segment"] > VERSION:
            raise _newer_version_error()
        conversation = _check_conversation_id(description["conversation"])
        first = int(description["first"])
        return tuple(_fact_from_row(conversation, seq, row) for seq, row in enumerate(rows, first))
    except (zstandard.ZstdError, *_ERRORS_OF_UNKNOWN_ROWS) as error:
        raise JournalCorrupt(
            "Part of a shared conversation cannot be read.", remedy=_REMEDY
        ) from error


def check_fetched_facts(
    stored_facts: Sequence[StoredFact], conversation: str, after: int, last: int
) -> None:
    """Raise JournalCorrupt if these are not the conversation's facts from `after` to
    `last`, or one is invalid.
    """
    for seq, stored_fact in enumerate(stored_facts, after + 1):
        if not _is_valid_fact_at(stored_fact, conversation, seq):
            raise _unreadable_record_error(conversation, seq)
    last_fetched = after + len(stored_facts)
    if last_fetched != last:
        raise _unreadable_record_error(conversation, last_fetched + 1)


def _unreadable_record_error(conversation: str, seq: int) -> JournalCorrupt:
    return JournalCorrupt(
        f"Record {seq} of the shared conversation {conversation} cannot be read.",
        remedy=_REMEDY,
    )


def _is_valid_fact_at(stored_fact: StoredFact, conversation: str, seq: int) -> bool:
    try:
        decode_fact(stored_fact.fact, is_foreign=True)
    except JournalCorrupt:
        return False
    return (stored_fact.conversation, stored_fact.seq) == (conversation, seq)


def _check_conversation_id(text: str) -> str:
    if not CONVERSATION_ID.fullmatch(text):
        raise ValueError("this is not the ID of a conversation")
    return text


def _fact_from_row(conversation: str, seq: int, row: str) -> StoredFact:
    time_text, fact = row.split("\t", 1)
    time = require_valid_time(time_text)
    return StoredFact(
        0, conversation, seq, time, fact, checksum_of_fact(conversation, seq, time, fact)
    )


def _printable(machine: str) -> str:
    """Return the name of another machine, as it is shown in sentences."""
    printable_name = "".join(letter for letter in machine[:200] if letter.isprintable())
    return printable_name or "?"


def encode_head(contents: HeadContents) -> bytes:
    segments: list[list[object]] = []
    for segment in contents.segments:
        segment_name = segment.name.hex()
        segments.append([segment_name, segment.first, segment.last])
    body = {
        "head": VERSION,
        "conversation": contents.conversation,
        "machine": contents.machine,
        "last": contents.last,
        "chain": contents.chain.hex(),
        "segments": segments,
        "generation": contents.generation,
        "gone": contents.is_removed,
    }
    text = json.dumps(body, separators=(",", ":"))
    return text.encode()


def decode_head(content: bytes) -> HeadContents:
    """Return what a head says. JournalCorrupt if it cannot be read, WrittenByNewerVersion if it is
    of a format that is not known yet.
    """
    try:
        body = json.loads(content)
        if body["head"] > VERSION:
            raise _newer_version_error()
        return _head_from_json(body)
    except _ERRORS_OF_UNKNOWN_ROWS as error:
        raise JournalCorrupt(
            "The shared data of a conversation cannot be read.", remedy=_REMEDY
        ) from error


def _head_from_json(body: Any) -> HeadContents:
    """Return a head as it was written. Raises one of `_ERRORS_OF_UNKNOWN_ROWS` if a part of it is
    missing or is not what it should be.
    """
    segments: list[FactSegment] = []
    for name, first, last in body["segments"]:
        first_seq = require_storable_amount(first)
        last_seq = require_storable_amount(last)
        segment_name = bytes.fromhex(name)
        segments.append(FactSegment(segment_name, first_seq, last_seq))
    conversation = _check_conversation_id(body["conversation"])
    machine = str(body["machine"])
    newest_seq = require_storable_amount(body["last"])
    chain = bytes.fromhex(body["chain"])
    generation = require_storable_amount(body["generation"])
    return HeadContents(
        conversation=conversation,
        machine=_printable(machine),
        last=newest_seq,
        chain=chain,
        segments=tuple(segments),
        generation=generation,
        is_removed=bool(body["gone"]),
    )


def check_fetched_head(contents: HeadContents) -> None:
    """Raise JournalCorrupt if no machine of ours would have written this."""
    has_all_facts = contents.is_removed or _cover_all_facts(contents.segments, contents.last)
    if not has_all_facts or len(contents.chain) != len(NOTHING):
        raise JournalCorrupt(
            f"The shared data of the conversation {contents.conversation} cannot be read.",
            remedy=_REMEDY,
        )


def _cover_all_facts(segments: Iterable[FactSegment], last_seq: int) -> bool:
    """Whether segments follow each other without a gap, from the first fact to the last."""
    next_seq = 1
    for segment in segments:
        if segment.first != next_seq or segment.last < segment.first:
            return False
        next_seq = segment.last + 1
    return next_seq == last_seq + 1


def count_segments_to_merge(segments: Sequence[FactSegment], fact_count: int) -> int:
    """Return how many segments to merge, so that few remain and each fact is sent again
    only a few times.
    """
    segment_count = 0
    for segment in reversed(segments):
        if (
            segment.fact_count > max(fact_count, _LEAST_FACTS_IN_SEGMENT)
            or fact_count + segment.fact_count > MOST_FACTS_IN_SEGMENT
        ):
            break
        fact_count += segment.fact_count
        segment_count += 1
    return segment_count


_REMEDY = "Your own copy is intact. Run `workspace sync --check` on the computer that wrote this conversation."


def _newer_version_error() -> WrittenByNewerVersion:
    return WrittenByNewerVersion(
        "This conversation was shared by a newer version of Helix Desktop."
    )
