"""The engine's side of the gateway: requests become facts of a conversation, and its view says what is sent on.

It works where the workspace is open, on the same sessions the window shows. Nothing here sees keys, headers or addresses.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from helix_desktop import tasks
from helix_desktop.engine import recall
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    ModelReplied,
    Received,
    Recorded,
    Rewound,
    Stop,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.following import Output
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import HelixError, Refused, Stopped
from helix_desktop.gateway.arrival import Arrival, Ask, Replied, Sent, Ticket
from helix_desktop.gateway.figures import Figures, figures
from helix_desktop.gateway.follower import Follower
from helix_desktop.gateway.shown import As, Entry, Shown
from helix_desktop.gateway.tracks import Place, Track, Tracks, longer
from helix_desktop.tools.recall import AROUND, matching_lines
from helix_desktop.wire.message import Kind, Piece, Speaker, Wired
from helix_desktop.workbench.bench import Workbench

log = logging.getLogger(__name__)

NOT_TOLD = Wired(Speaker.USER, (), ())
KEPT = 24  # conversations held open
PART, MANY = 100, 50  # messages
TITLE = 60
AHEAD = 0.05  # seconds a request goes ahead of what is recorded of it
_WRAPPED = re.compile(r"<([a-zA-Z_-]+)[^>]*>.*?</\1>", re.DOTALL)  # what clients put around a first message


class Room:
    """All conversations of connected agents in one workspace."""

    def __init__(self, bench: Workbench, ask: Ask) -> None:
        self._bench = bench
        self._ask = ask
        self._tracks = Tracks()
        self._followers: dict[str, Follower] = {}
        self._figures: dict[str, tuple[float, float, Figures]] = {}  # of conversations that are not held open
        self._read = asyncio.Lock()
        self._is_read = False
        self._tasks = tasks.Tasks("recording requests")

    # --- a request comes

    async def known(self, arrival: Arrival) -> int:
        """How many of the request's messages are facts already."""
        await self._read_tracks()
        return self._place(arrival).known

    async def arrive(self, arrival: Arrival, messages: Sequence[Wired], *, told: int = 0) -> Sent:
        """The request's messages are facts, what was due is folded, and this is what it becomes. `told`: how many messages
        before these are known here already.
        """
        messages = (*(NOT_TOLD,) * told, *messages)
        await self._read_tracks()
        while True:
            place = self._place(arrival)
            track = place.track or self._new_track(arrival)
            if place.track is not None and (sent := self._ahead(arrival, messages, place, track)) is not None:
                return sent
            async with track.held():
                if place.track is not None and self._place(arrival) != place:
                    continue  # it went on meanwhile
                if place.known < told:
                    raise Refused("The conversation was continued elsewhere in the meantime.")
                return await self._taken(arrival, messages, place, track)

    async def look(self, arrival: Arrival, messages: Sequence[Wired]) -> Sequence[Entry]:
        """What the request would become; nothing is recorded."""
        await self._read_tracks()
        place = self._place(arrival)
        entries: list[Entry] = []
        if place.track is not None and place.seqs and place.track.conversation:
            follower = await self._follower(place.track)
            conversation = follower.conversation
            view = conversation.view() if place.at_tip else conversation.state.at(place.seqs[-1]).view()
            entries = [*(await follower.shown_of(view, place.seqs))[0].entries]
        return [*entries, *(As(at) for at in range(place.known if place.seqs else 0, len(messages)))]

    def _place(self, arrival: Arrival) -> Place:
        """Conversations that were deleted meanwhile are forgotten."""
        while True:
            place = self._tracks.find(arrival.chain, arrival.session, arrival.head, arrival.parent)
            named = (place.track.conversation if place.track else "", place.parent)
            gone = next((name for name in named if name and self._bench.row(name) is None), "")
            if not gone:
                return place
            self._tracks.drop(gone)
            self._followers.pop(gone, None)

    def _new_track(self, arrival: Arrival) -> Track:
        track = Track("", arrival.session, arrival.head)
        self._tracks.add(track)
        return track

    async def _taken(self, arrival: Arrival, messages: Sequence[Wired], place: Place, track: Track) -> Sent:
        known = place.track is not None and place.known == len(messages)
        aside = known and not place.at_tip and not _is_of(arrival, track)
        if not track.conversation:
            title = title_of(messages)
            session = await self._bench.new_conversation(title, agent=arrival.agent, parent=place.parent)
            track.conversation = session.id
        elif not place.at_tip and not aside:
            track = await self._branch(place, track, arrival)
        self._tracks.join(track, arrival.session)
        follower = await self._follower(track)
        conversation = follower.conversation
        if not aside:
            if _last_message(conversation.state.facts) > track.tip:
                await conversation.append(Rewound(track.tip))  # a step whose reply never reached the agent
                follower.shown = None
            await follower.settle(arrival)
            if not arrival.fold or _are_many(messages, track):
                return self._goes_ahead(follower, track, arrival, messages, await follower.show(track))
            await self._messages(follower, track, arrival, messages)
            if arrival.fold:
                await follower.following.next_view()
            shown = await follower.show(track)
        else:
            view = conversation.state.at(place.seqs[-1]).view()
            shown = (await follower.shown_of(view, place.seqs))[0]
        ticket = _ticket(track, arrival, conversation.state.last_seq)
        return Sent(replace(ticket, live=not aside), shown.entries, recallable=_recallable(shown))

    # --- a request goes on before it is recorded

    def _ahead(self, arrival: Arrival, messages: Sequence[Wired], place: Place, track: Track) -> Sent | None:
        """Where nothing is due, the new messages go on as they came and are recorded while the provider answers: its reply
        waits for that. What comes due by them is folded for the next request. None where something may be due now.
        """
        follower = self._followers.get(track.conversation)
        if follower is None or not track.is_free or not place.at_tip or place.known == len(messages):
            return None
        shown, state = follower.shown, follower.conversation.state
        if shown is None or shown.seq != state.last_seq or follower.settled != follower.settings_of(arrival):
            return None
        if not follower.is_plain(messages[place.known :]):
            return None
        self._tracks.join(track, arrival.session)
        return self._goes_ahead(follower, track, arrival, messages, shown)

    def _goes_ahead(
        self, follower: Follower, track: Track, arrival: Arrival, messages: Sequence[Wired], shown: Shown
    ) -> Sent:
        """What is known goes on as it is shown, the rest as it came."""
        entries = (*shown.entries, *map(As, range(len(track.chain), len(messages))))
        track.recorded.clear()
        track.wanted.clear()
        try:
            self._tasks.spawn(self._recorded(follower, track, arrival, messages), name="record a request")
        except Stopped:
            track.recorded.set()
            raise
        ticket = _ticket(track, arrival, follower.conversation.state.last_seq)
        return Sent(replace(ticket, ahead=True), entries, _recallable(shown))

    async def _messages(self, follower: Follower, track: Track, arrival: Arrival, messages: Sequence[Wired]) -> None:
        """Long histories in parts, each in one commit: where a request is given up, the next one goes on from there."""
        conversation, writer = follower.conversation, follower
        many = _are_many(messages, track)
        while (known := len(track.chain)) < len(messages):
            if many and (writer is follower or writer.conversation.state.last_seq != conversation.state.last_seq):
                writer = await follower.ahead()
            ends = _part(messages, known)
            seqs = await writer.take(messages[known:ends], track.tip)
            chain = arrival.chain[known:ends]
            await writer.conversation.append(Received(chain, tuple(seqs), track.session, track.head))
            if many and not await conversation.adopt(writer.conversation):
                continue
            for hashed, seq in zip(chain, seqs, strict=True):
                self._tracks.extend(track, hashed, seq)

    async def _recorded(self, follower: Follower, track: Track, arrival: Arrival, messages: Sequence[Wired]) -> None:
        """The request goes out first, and what is answered at once comes through; the end of the reply waits for this."""
        with suppress(TimeoutError):
            await asyncio.wait_for(track.wanted.wait(), AHEAD)
        try:
            await self._messages(follower, track, arrival, messages)
            track.saw = follower.conversation.state.last_seq
            if arrival.fold:
                await follower.following.next_view()
            await follower.show(track)
        except Exception:
            log.exception("a request could not be recorded; it went on as it came")
            follower.shown = None
        finally:
            track.recorded.set()

    async def _branch(self, place: Place, track: Track, arrival: Arrival) -> Track:
        """The request leaves the known line. An agent that names its conversation has rewound it; of others it may be
        another session with the same beginning, which gets a conversation of its own.
        """
        seq = place.seqs[-1] if place.seqs else 0
        if _is_of(arrival, track):
            follower = await self._follower(track)
            await follower.conversation.append(Rewound(seq))
            follower.shown = None
            self._tracks.cut(track, place.known, place.seqs, arrival.chain)
            return track
        session = await self._bench.fork(track.conversation, seq, agent=self._agent_of(track))
        fresh = Track(session.id, arrival.session, arrival.head, list(arrival.chain[: place.known]), list(place.seqs))
        self._tracks.add(fresh)
        await self._told_again(fresh)
        return fresh

    async def _told_again(self, track: Track) -> None:
        """What a fork left behind: which messages its last facts stand for was noted after them."""
        noted = len(track_from(track.conversation, await self._bench.child(track.conversation)).chain)
        if noted < len(track.chain):
            follower = await self._follower(track)
            fact = Received(tuple(track.chain[noted:]), tuple(track.seqs[noted:]), track.session, track.head)
            await follower.conversation.append(fact)

    def _agent_of(self, track: Track) -> str:
        row = self._bench.row(track.conversation)
        return row.agent if row else ""

    async def _follower(self, track: Track) -> Follower:
        """The conversation, open; of those nobody asked for lately it is let go."""
        held = self._followers.pop(track.conversation, None)
        if held is None:
            held = await Follower.of(self._bench, track.conversation, self._ask)
        self._followers[track.conversation] = held
        while len(self._followers) > KEPT:
            del self._followers[next(iter(self._followers))]
        return held

    # --- a reply comes

    async def hidden(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece]
    ) -> list[tuple[str, str, str, bool]]:
        """A reply with calls of ours is recorded, and they are answered: id, name, text and whether it went well."""
        track = self._track_of(ticket)
        answered = [(call.id, call.name, *await self._recalled(call, track)) for call in calls]
        if track is not None and ticket.live:
            async with track.held():
                if self._is_at(track, ticket):
                    follower = await self._follower(track)
                    await follower.following.replied(follower.written(replied), _saw(track, ticket))
                    await follower.following.returned([Output(name, text, ok) for name, _, text, ok in answered])
        return answered

    async def replied(self, ticket: Ticket, replied: Replied | None, shown: str) -> None:
        """The agent's reply is recorded; `shown` is the key of what the agent saw of it. None: the last hidden one was it."""
        track = self._track_of(ticket)
        if track is None or not ticket.live:
            return
        async with track.held():
            if not self._is_at(track, ticket):
                return
            follower = await self._follower(track)
            conversation = follower.conversation
            if replied is not None:
                await follower.count([piece.text for piece in replied.pieces])
                await follower.following.replied(follower.written(replied), _saw(track, ticket))
            self._tracks.extend(track, longer(track.chain, ticket.wire, shown), conversation.state.last_seq)
            facts: list[Fact] = [Received((track.chain[-1],), (track.tip,), track.session, track.head)]
            if replied is not None and replied.stop is not Stop.CALLS:
                facts.append(TurnEnded(TurnEnd.DONE))
            await conversation.append(*facts)
            if replied is not None and replied.stop is not Stop.CALLS:
                follower.session.steward.after_turn()
            await follower.show(track)

    async def overflowed(self, ticket: Ticket) -> Sent | None:
        """The provider found the request too long: what it becomes after a fold, which may have been made since it was sent.
        None where nothing more can be folded.
        """
        track = self._track_of(ticket)
        if track is None or not ticket.live:
            return None
        async with track.held():
            if not self._is_at(track, ticket):
                return None
            follower = await self._follower(track)
            conversation = follower.conversation
            if not any(isinstance(each.fact, Folded) for each in conversation.state.facts[ticket.saw :]):
                before = conversation.state.tokens
                await follower.session.steward.before_step(overflowed=True)
                if conversation.state.tokens >= before:
                    return None
            shown = await follower.show(track)
            return Sent(replace(ticket, saw=conversation.state.last_seq, ahead=False), shown.entries, recallable=True)

    async def figures(self, since: float = 0.0) -> Sequence[Figures]:
        """Of the conversations that are held open; `since`: of all that went on after then, and only what came after."""
        found = [figures(name, one.conversation.state, since) for name, one in self._followers.items()]
        rows = self._bench.conversations() if since else ()
        rest = [row for row in rows if row.agent and row.updated >= since and row.id not in self._followers]
        for row in rest:
            kept = self._figures.get(row.id)
            if kept is None or kept[:2] != (row.updated, since):
                opened = await Conversation.open(self._bench.workspace.journal, row.id)
                kept = self._figures[row.id] = (row.updated, since, figures(row.id, opened.state, since))
            found.append(kept[2])
        return [each for each in found if each.requests or not since]

    def _track_of(self, ticket: Ticket) -> Track | None:
        return self._tracks.of(ticket.conversation) if self._bench.row(ticket.conversation) else None

    @staticmethod
    def _is_at(track: Track, ticket: Ticket) -> bool:
        return len(track.chain) == ticket.messages and track.chain[-1] == ticket.last

    async def _recalled(self, call: Piece, track: Track | None) -> tuple[str, bool]:
        """What a call of ours brings back; a mistake in it is told to the model."""
        try:
            given = json.loads(call.text or "{}")
            asked: Mapping[str, object] = given if isinstance(given, dict) else {}
            stores, tokens = self._bench.workspace, self._bench.tokens
            if call.name.startswith("search"):
                limit = asked.get("limit", 10)
                count = limit if isinstance(limit, int) else 10
                return await recall.search(stores.index, str(asked.get("query", "")), limit=count), True
            if call.name == ToolName.RECALL_HISTORY:
                if track is None:
                    return "[This conversation's earlier messages cannot be recalled now.]", False
                state = (await self._follower(track)).conversation.state
                fold, words = str(asked.get("fold") or ""), str(asked.get("find") or "")
                return await recall.history(state, stores.cache, tokens, fold, words), True
            text = await recall.recall(
                stores.cache,
                tokens,
                str(asked.get("sha256", "")),
                lines=str(asked.get("lines", "") or ""),
                words=str(asked.get("find", "") or ""),
                pattern=str(asked.get("grep", "") or ""),
                context=AROUND,
                grep=matching_lines,
            )
        except (HelixError, ValueError) as error:
            return f"[{error}]", False
        return text, True

    # --- after a restart

    async def _read_tracks(self) -> None:
        """What the journal knows of connected agents' conversations, once."""
        async with self._read:
            if self._is_read:
                return
            for row in sorted(self._bench.conversations(), key=lambda row: row.updated):
                if row.agent and not row.trashed:
                    facts = await self._bench.child(row.id)
                    self._tracks.add(track_from(row.id, facts))
            self._is_read = True

    async def aclose(self) -> None:
        """Let go of the conversations, when what went on is recorded."""
        await self._tasks.ended()
        await self._tasks.aclose(limit=1)
        self._followers.clear()


def _are_many(messages: Sequence[Wired], track: Track) -> bool:
    """Whether the agent comes with a history that would have to wait: it goes ahead of its facts, and nothing of it is folded."""
    return len(messages) - len(track.chain) > MANY + len(track.chain) // 50


def _part(messages: Sequence[Wired], first: int) -> int:
    """Where a part ends that begins with `first`: before a reply, so that results stay together."""
    replies = (at for at in range(first + PART, len(messages)) if messages[at].speaker is Speaker.ASSISTANT)
    return next(replies, len(messages))


def track_from(conversation: str, facts: Sequence[Recorded]) -> Track:
    """A conversation's messages as its facts tell them."""
    track = Track(conversation, "", "")
    for recorded in facts:
        fact = recorded.fact
        if isinstance(fact, Rewound):
            known = sum(seq <= fact.to for seq in track.seqs)
            del track.chain[known:], track.seqs[known:]
        elif isinstance(fact, Received):
            track.chain.extend(fact.chain)
            track.seqs.extend(fact.seqs)
            track.session, track.head = fact.session, fact.head
    return track


def _ticket(track: Track, arrival: Arrival, saw: int) -> Ticket:
    return Ticket(track.conversation, len(arrival.chain), arrival.chain[-1], saw, arrival.wire)


def _saw(track: Track, ticket: Ticket) -> int:
    return track.saw if ticket.ahead else ticket.saw


def _recallable(shown: Shown) -> bool:
    return any(block.fold for block in shown.blocks)


def _is_of(arrival: Arrival, track: Track) -> bool:
    """The agent names its conversation, and it is this one: what is left of it was rewound, or is asked again."""
    return bool(arrival.session) and arrival.session == track.session


def title_of(messages: Sequence[Wired]) -> str:
    """The first words a person said, without what the client put around them."""
    for message in messages:
        if message.speaker is Speaker.USER:
            for piece in message.of(Kind.TEXT):
                text = _WRAPPED.sub("", piece.text[:20_000]).strip()
                if text:
                    first = text.splitlines()[0].strip()
                    return first if len(first) <= TITLE else first[: TITLE - 1].rstrip() + "…"
    return ""


def _last_message(facts: Sequence[Recorded]) -> int:
    """The newest message; 0 where there is none."""
    for recorded in reversed(facts):
        if isinstance(recorded.fact, ModelReplied | ToolReturned | UserSaid):
            return recorded.seq
        if isinstance(recorded.fact, Rewound):
            return 0
    return 0
