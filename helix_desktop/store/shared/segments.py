"""Facts of a conversation on their way to other machines: a segment is a run of them as bytes, a head says which segments there are.

A chain runs through the facts of a conversation: its link at a number is the digest of the link before and of that fact's time
and text. Two machines that have the same link at a number have the same facts up to there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence

import zstandard

from helix_desktop.errors import JournalCorrupt, NewerVersion
from helix_desktop.store.journal import Line, seal
from helix_desktop.values import dataclass

VERSION = 1
NOTHING = bytes(32)  # the link before the first fact
LARGEST = 4_096  # facts; a segment of so many is never made anew
_LEAST = 32  # facts: while a segment has fewer, it is made anew with those that follow it


@dataclass(frozen=True, slots=True)
class Segment:
    """The facts from `first` to `last`; `name`: what the engine knows it by."""

    name: bytes
    first: int
    last: int

    @property
    def facts(self) -> int:
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True)
class Contents:
    """What a head says of a conversation. `machine`: the name of the one that wrote it; `gone`: removed for good there.

    `generation` grows when facts were changed in place, which only forgetting does.
    """

    conversation: str
    machine: str
    last: int = 0
    chain: bytes = NOTHING
    segments: tuple[Segment, ...] = ()
    generation: int = 0
    gone: bool = False


def link(before: bytes, line: Line) -> bytes:
    """The chain's link at this fact."""
    return hashlib.sha256(before + f"{line.time!r}\0{line.fact}".encode()).digest()


def chain(before: bytes, lines: Iterable[Line]) -> bytes:
    """The link at the last of these facts."""
    for line in lines:
        before = link(before, line)
    return before


def common(here: Sequence[Line], there: Sequence[Line]) -> int:
    """How many facts both begin with."""
    found = 0
    for ours, theirs in zip(here, there, strict=False):
        if (ours.time, ours.fact) != (theirs.time, theirs.fact):
            break
        found += 1
    return found


def pack(lines: Sequence[Line]) -> bytes:
    """The bytes of a segment. Its conversation stands in it, so that no two conversations ever share one."""
    first = lines[0]
    head = json.dumps({"segment": VERSION, "conversation": first.conversation, "first": first.seq})
    text = "\n".join([head, *(f"{line.time!r}\t{line.fact}" for line in lines)])
    return zstandard.ZstdCompressor(level=3).compress(text.encode())


def unpack(content: bytes) -> tuple[Line, ...]:
    """The facts of a segment, each sealed for its place here."""
    try:
        head, *rows = zstandard.ZstdDecompressor().decompress(content).decode().split("\n")
        about = json.loads(head)
        if about["segment"] > VERSION:
            raise _newer()
        conversation, first = str(about["conversation"]), int(about["first"])
        return tuple(_line(conversation, first + at, row) for at, row in enumerate(rows))
    except (zstandard.ZstdError, ValueError, KeyError, TypeError) as error:
        raise JournalCorrupt("A part of a shared conversation cannot be read.", remedy=_REMEDY) from error


def _line(conversation: str, seq: int, row: str) -> Line:
    written, fact = row.split("\t", 1)
    time = float(written)
    return Line(0, conversation, seq, time, fact, seal(conversation, seq, time, fact))


def write(contents: Contents) -> bytes:
    """A head's bytes."""
    body = {
        "head": VERSION,
        "conversation": contents.conversation,
        "machine": contents.machine,
        "last": contents.last,
        "chain": contents.chain.hex(),
        "segments": [[one.name.hex(), one.first, one.last] for one in contents.segments],
        "generation": contents.generation,
        "gone": contents.gone,
    }
    return json.dumps(body, separators=(",", ":")).encode()


def read(content: bytes) -> Contents:
    try:
        body = json.loads(content)
        if body["head"] > VERSION:
            raise _newer()
        segments = tuple(Segment(bytes.fromhex(name), int(first), int(last)) for name, first, last in body["segments"])
        return Contents(
            str(body["conversation"]),
            str(body["machine"]),
            int(body["last"]),
            bytes.fromhex(body["chain"]),
            segments,
            int(body["generation"]),
            bool(body["gone"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise JournalCorrupt("The shared data of a conversation cannot be read.", remedy=_REMEDY) from error


def to_renew(segments: Sequence[Segment], fresh: int) -> int:
    """How many of the last segments are made anew with `fresh` facts behind them, so that few remain and each fact is
    sent again only a few times.
    """
    renewed = 0
    for segment in reversed(segments):
        if segment.facts > max(fresh, _LEAST) or fresh + segment.facts > LARGEST:
            break
        fresh += segment.facts
        renewed += 1
    return renewed


_REMEDY = "Your own copy is intact. Run `workspace sync --check` on the computer that wrote this conversation."


def _newer() -> NewerVersion:
    return NewerVersion(
        "This conversation was shared by a newer version of Helix Desktop.",
        remedy="Update Helix Desktop. Nothing was changed.",
    )
