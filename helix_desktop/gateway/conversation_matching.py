"""Finds a request's conversation: of its session's, the one that shares the longest beginning."""

import asyncio
import hashlib
from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.protocols.gateway_message import Wired

# A request with more new messages is sent, without folds, before they are recorded.
LONG_HISTORY_MESSAGES = 50


def compute_message_hashes(
    wire: str, messages: Sequence[Wired], before: Sequence[str] = ()
) -> tuple[str, ...]:
    """Return, for each message, the hash of all messages up to it. `before`: the first
    hashes, if known.
    """
    chain = list(before)
    for message in messages[len(chain) :]:
        chain.append(next_message_hash(chain, wire, message.identity_key))
    return tuple(chain)


def next_message_hash(chain: Sequence[str], wire: str, key: str) -> str:
    """Return the hash of a message and of all before it, whose hashes are the chain."""
    before = wire.encode()
    if chain:
        before = bytes.fromhex(chain[-1])
    digest = hashlib.blake2b(before, digest_size=16)
    digest.update(key.encode())
    return digest.hexdigest()


@dataclass(eq=False, slots=True)
class KnownMessages:
    """A conversation's messages as its agent sends them: their hashes, and each one's last fact.

    `newest_fact_sent` is the newest fact in the last request that was recorded after
    being sent. `is_recorded`: no request is ahead of its facts. `is_wanted`: somebody
    waits for that. `left`: the last facts of messages it was rewound from, by hash.
    `alone`: a tuple of only this. `heads`: of all requests. `agent`: who writes it;
    no other agent's request continues it, whatever session that names.
    """

    conversation: str
    session: str
    head: str
    chain: list[str] = field(default_factory=list)
    seqs: list[int] = field(default_factory=list)
    newest_fact_sent: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    is_recorded: asyncio.Event = field(default_factory=asyncio.Event)
    is_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    left: dict[str, int] = field(default_factory=dict)
    heads: set[str] = field(default_factory=set)
    agent: str = ""
    alone: "tuple[KnownMessages, ...]" = field(init=False)

    def __post_init__(self) -> None:
        self.is_recorded.set()
        self.heads.add(self.head)
        # The index has this one tuple for every message of a long history, to save memory.
        self.alone = (self,)

    def rewind_known_messages(self, chain: Sequence[str], seqs: Sequence[int]) -> None:
        """Continue from these messages, and remember the last facts of the others."""
        common = 0
        if self.chain[: len(chain)] == list(chain):
            common = len(chain)
        self.left.update(zip(self.chain[common:], self.seqs[common:], strict=True))
        self.chain[:] = chain
        self.seqs[:] = seqs

    @asynccontextmanager
    async def lock_once_recorded(self) -> AsyncIterator[None]:
        """Hold the lock, once all requests that were sent before being recorded are recorded."""
        async with self.lock:
            self.is_wanted.set()
            await self.is_recorded.wait()
            yield

    @property
    def can_lock_now(self) -> bool:
        return self.is_recorded.is_set() and not self.lock.locked()

    @property
    def last_message_seq(self) -> int:
        if not self.seqs:
            return 0
        return self.seqs[-1]


@dataclass(frozen=True, slots=True)
class RequestSender:
    """Who sent a request, as far as its registration and headers say.

    `session`: its own name for the conversation. `parent`: for the one whose sub-agent it is.
    """

    agent: str = ""
    session: str = ""
    parent: str = ""
    is_below_another: bool = False


@dataclass(frozen=True, slots=True)
class RequestPosition:
    """The conversation that a request continues, how many messages they share, and
    whether it still has these.
    """

    line: KnownMessages | None
    known_count: int = 0
    seqs: tuple[int, ...] = ()
    is_on_current_line: bool = True
    parent: str = ""

    @property
    def is_at_end(self) -> bool:
        """Whether the conversation ends where the request's new messages begin."""
        if self.line is None or not self.is_on_current_line:
            return False
        return self.known_count == len(self.line.chain)


def _lines_of_others(lines: Iterable[KnownMessages], conversation: str) -> list[KnownMessages]:
    return [line for line in lines if line.conversation != conversation]


class ConversationMatcher:
    """The conversations of connected agents that were read so far."""

    def __init__(self) -> None:
        self._lines_by_hash: dict[str, tuple[KnownMessages, ...]] = {}
        self._lines_by_session: dict[str, list[KnownMessages]] = {}
        self._all_lines: list[KnownMessages] = []

    def find_known_messages(self, conversation: str) -> KnownMessages | None:
        for track in reversed(self._all_lines):
            if track.conversation == conversation:
                return track
        return None

    def add_known_messages(self, track: KnownMessages) -> KnownMessages:
        self._all_lines.append(track)
        if track.session:
            self._lines_by_session.setdefault(track.session, []).append(track)
        for hashed in track.chain:
            self._index_message(track, hashed)
        return track

    def remove_known_messages(self, conversation: str) -> None:
        self._all_lines = _lines_of_others(self._all_lines, conversation)
        for hashed, lines in list(self._lines_by_hash.items()):
            rest = _lines_of_others(lines, conversation)
            if not rest:
                del self._lines_by_hash[hashed]
            elif len(rest) < len(lines):
                self._lines_by_hash[hashed] = tuple(rest)
        for session, lines_of_session in self._lines_by_session.items():
            self._lines_by_session[session] = _lines_of_others(lines_of_session, conversation)

    def append_message_hash(self, track: KnownMessages, hashed: str, seq: int) -> None:
        track.chain.append(hashed)
        track.seqs.append(seq)
        self._index_message(track, hashed)

    def assign_session(self, track: KnownMessages, session: str, head: str) -> None:
        track.head = head
        track.heads.add(head)
        if session and track not in self._lines_by_session.get(session, ()):
            self._lines_by_session.setdefault(session, []).append(track)
            track.session = session

    def _index_message(self, track: KnownMessages, hashed: str) -> None:
        others = tuple(line for line in self._lines_by_hash.get(hashed, ()) if line is not track)
        lines = track.alone
        if others:
            lines = others + track.alone
        self._lines_by_hash[hashed] = lines

    def find_request_position(
        self, sender: RequestSender, chain: Sequence[str], head: str
    ) -> RequestPosition:
        """Return where a request continues: the longest beginning that a conversation which
        it may continue has, or else the conversation of its session.
        """
        # Each hash stands for all messages before it. Looking up 73,825 new ones took 23 ms.
        known_count = bisect_left(chain, True, key=lambda hashed: hashed not in self._lines_by_hash)
        for at in range(known_count - 1, -1, -1):
            for track in reversed(self._lines_by_hash.get(chain[at], ())):
                if self._may_continue_known_messages(track, sender, chain, at):
                    return self._position_in_known_messages(track, chain, at)
        tracks = self._lines_of_session(sender.agent, sender.session)
        if tracks and head in tracks[0].heads:  # The agent shortened its history or started anew.
            return RequestPosition(tracks[0])
        above = tracks or self._lines_of_session(sender.agent, sender.parent)
        parent = ""
        if above:
            parent = above[0].conversation
        return RequestPosition(None, parent=parent)

    def _lines_of_session(self, agent: str, session: str) -> list[KnownMessages]:
        if not session:
            return []
        return [line for line in self._lines_by_session.get(session, ()) if line.agent == agent]

    def _may_continue_known_messages(
        self, track: KnownMessages, sender: RequestSender, chain: Sequence[str], at: int
    ) -> bool:
        if track.agent != sender.agent:
            return False
        lines = self._lines_of_session(sender.agent, sender.session)
        if track.session == sender.session or track in lines:
            return True
        if not sender.session or lines or sender.is_below_another:
            return False
        # An agent that resumes a session may give it another name, and says all of it.
        ends_with_it = at + 1 == len(track.chain) and track.chain[at] == chain[at]
        return ends_with_it and 1 <= at < len(chain) - 1

    def _position_in_known_messages(
        self, track: KnownMessages, chain: Sequence[str], at: int
    ) -> RequestPosition:
        if at < len(track.chain) and track.chain[at] == chain[at]:
            return RequestPosition(track, at + 1, tuple(track.seqs[: at + 1]))
        seqs = dict(track.left)
        seqs.update(zip(track.chain, track.seqs, strict=True))
        known_seqs = tuple(seqs.get(hashed, 0) for hashed in chain[: at + 1])
        return RequestPosition(track, at + 1, known_seqs, is_on_current_line=False)
