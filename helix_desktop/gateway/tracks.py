"""Which conversation a request belongs to: the longest known beginning wins, and what the agent says of itself narrows it."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

from helix_desktop.values import dataclass
from helix_desktop.wire.message import Wired


def chain_of(wire: str, messages: Sequence[Wired], before: Sequence[str] = ()) -> tuple[str, ...]:
    """For each message the hash of all up to it. `before`: those of the messages at the beginning, where they are known."""
    made = list(before)
    for message in messages[len(made) :]:
        made.append(longer(made, wire, message.key))
    return tuple(made)


def longer(chain: Sequence[str], wire: str, key: str) -> str:
    """The hash of a chain with one more message."""
    last = bytes.fromhex(chain[-1]) if chain else wire.encode()
    digest = hashlib.blake2b(last, digest_size=16)
    digest.update(key.encode())
    return digest.hexdigest()


@dataclass(eq=False, slots=True)
class Track:
    """One conversation as its agent sends it: its messages' hashes, and for each the last fact that stands for it. `saw`: the
    newest fact of what its last request was sent, where that was recorded behind it. `recorded`: no request is ahead of its
    facts; `wanted`: somebody waits for that.
    """

    conversation: str
    session: str
    head: str
    chain: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    saw: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    recorded: asyncio.Event = field(default_factory=asyncio.Event)
    wanted: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.recorded.set()

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """Alone, when all that went ahead is recorded."""
        async with self.lock:
            self.wanted.set()
            await self.recorded.wait()
            yield

    @property
    def is_free(self) -> bool:
        return self.recorded.is_set() and not self.lock.locked()

    @property
    def tip(self) -> int:
        """The last fact that stands for a message."""
        return self.seqs[-1] if self.seqs else 0


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request stands: on `track`, after `known` of its messages; on_line: as that track goes on now."""

    track: Track | None
    known: int = 0
    seqs: tuple[int, ...] = ()
    on_line: bool = True
    parent: str = ""

    @property
    def at_tip(self) -> bool:
        """Whether the track ends where the request's new messages begin."""
        return self.track is not None and self.on_line and self.known == len(self.track.chain)


class Tracks:
    """All conversations of connected agents, as far as they were read."""

    def __init__(self) -> None:
        self._known: dict[str, list[tuple[Track, int]]] = {}
        self._sessions: dict[str, list[Track]] = {}
        self._tracks: list[Track] = []

    def of(self, conversation: str) -> Track | None:
        """The track of a conversation."""
        return next((track for track in reversed(self._tracks) if track.conversation == conversation), None)

    def add(self, track: Track) -> None:
        """One more conversation."""
        self._tracks.append(track)
        if track.session:
            self._sessions.setdefault(track.session, []).append(track)
        for hashed, seq in zip(track.chain, track.seqs, strict=True):
            self._know(track, hashed, seq)

    def drop(self, conversation: str) -> None:
        """The conversation is gone."""
        self._tracks = [track for track in self._tracks if track.conversation != conversation]
        for hashed, entries in list(self._known.items()):
            left = [entry for entry in entries if entry[0].conversation != conversation]
            if left:
                self._known[hashed] = left
            else:
                del self._known[hashed]
        for session, tracks in self._sessions.items():
            self._sessions[session] = [track for track in tracks if track.conversation != conversation]

    def extend(self, track: Track, hashed: str, seq: int) -> None:
        """One more message of a conversation."""
        track.chain.append(hashed)
        track.seqs.append(seq)
        self._know(track, hashed, seq)

    def cut(self, track: Track, known: int, seqs: Sequence[int], chain: Sequence[str]) -> None:
        """The conversation goes on after these messages of it; the others stay known, as a branch that was left."""
        track.chain[:], track.seqs[:] = list(chain[:known]), list(seqs[:known])

    def join(self, track: Track, session: str) -> None:
        """The agent goes on with this conversation under another name."""
        if session and track not in self._sessions.get(session, ()):
            self._sessions.setdefault(session, []).append(track)
            track.session = session

    def _know(self, track: Track, hashed: str, seq: int) -> None:
        entries = self._known.setdefault(hashed, [])
        entries[:] = [entry for entry in entries if entry[0] is not track]
        entries.append((track, seq))

    def find(self, chain: Sequence[str], session: str, head: str, parent: str = "") -> Place:
        """The place of a request. `parent`: the name of the conversation whose sub-agent asks."""
        for at in range(len(chain) - 1, -1, -1):
            for track, _ in reversed(self._known.get(chain[at], ())):
                if self._may_be(track, session, chain, at, is_below=bool(parent)):
                    return self._place(track, chain, at)
        tracks = self._sessions.get(session, []) if session else []
        if tracks and tracks[0].head == head:  # the agent has shortened its own history, or begun anew
            return Place(tracks[0])
        above = tracks or self._sessions.get(parent, [])
        return Place(None, parent=above[0].conversation if above else "")

    def _may_be(self, track: Track, session: str, chain: Sequence[str], at: int, *, is_below: bool) -> bool:
        if track.session == session or track in self._sessions.get(session, ()):
            return True
        resumed = at >= 1 and at + 1 == len(track.chain) and track.chain[at] == chain[at] and len(chain) > at + 1
        return bool(session) and session not in self._sessions and resumed and not is_below

    def _place(self, track: Track, chain: Sequence[str], at: int) -> Place:
        on_line = at < len(track.chain) and track.chain[at] == chain[at]
        if on_line:
            return Place(track, at + 1, tuple(track.seqs[: at + 1]))
        seqs = [next((seq for one, seq in self._known.get(chain[i], ()) if one is track), 0) for i in range(at + 1)]
        return Place(track, at + 1, tuple(seqs), on_line=False)
