"""The engine's side of the gateway: requests become facts of a conversation, and its view says what is sent on.

It works where the workspace is open, on the same sessions the window shows. Nothing here sees keys, headers or addresses.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from helix_desktop import tasks
from helix_desktop.engine import recall
from helix_desktop.engine.ask_model import SYSTEM as ASKED_ALONE
from helix_desktop.engine.blocks import Delta, Image, Reply, Request, TextDelta, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    ModelReplied,
    ModelRole,
    PolicySet,
    Reasoning,
    Received,
    Recorded,
    ReplyPart,
    Rewound,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    TurnEnd,
    TurnEnded,
    Usage,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.following import Following, Output, Written
from helix_desktop.engine.ports import About
from helix_desktop.engine.session import Session
from helix_desktop.errors import HelixError, Refused, Stopped
from helix_desktop.gateway.figures import Figures, figures
from helix_desktop.gateway.shown import As, Entry, Showing, Shown
from helix_desktop.gateway.tracks import Place, Track, Tracks, longer
from helix_desktop.providers.client import priced
from helix_desktop.providers.models import look_up
from helix_desktop.tools.recall import AROUND, matching_lines
from helix_desktop.wire.message import Kind, Piece, Speaker, Tool, Wired, slices
from helix_desktop.workbench import setup
from helix_desktop.workbench.bench import Workbench

log = logging.getLogger(__name__)

NOT_TOLD = Wired(Speaker.USER, (), ())
KEPT = 24  # conversations held open
LATER = -1  # what a request saw is known when its messages are recorded
TITLE = 60
LONG = 32_000  # characters from which on texts are counted beside the loop
_WRAPPED = re.compile(r"<([a-zA-Z_-]+)[^>]*>.*?</\1>", re.DOTALL)  # what clients put around a first message


@dataclass(frozen=True, slots=True)
class Arrival:
    """What a request says of itself. `fold`: whether something may be folded; `parent`: the session whose sub-agent asks."""

    wire: str
    agent: str
    session: str
    head: str
    model: str
    system: str
    tools: tuple[Tool, ...]
    chain: tuple[str, ...]
    fold: bool = True
    parent: str = ""


@dataclass(frozen=True, slots=True)
class Ticket:
    """One request under way. `saw`: the newest fact of what it was sent, or LATER; `live`: whether its reply is recorded."""

    conversation: str
    chain: tuple[str, ...]
    saw: int
    wire: str
    live: bool = True


@dataclass(frozen=True, slots=True)
class Sent:
    """What the request's messages become. `recallable`: whether something is folded that a recall could bring back."""

    ticket: Ticket
    entries: tuple[Entry, ...]
    recallable: bool


@dataclass(frozen=True, slots=True)
class Replied:
    """A whole reply. `raw`: as JSON, where the agent does not see all of it."""

    pieces: tuple[Piece, ...]
    model: str
    stop: Stop
    usage: Usage
    raw: str = ""
    seconds: float = 0.0


# conversation, question (or a whole text to read, with its own instructions), most tokens → text and what it cost
Ask = Callable[[str, str, str, int], Awaitable[tuple[str, Usage, str]]]


@dataclass(frozen=True, slots=True)
class AgentsModel:
    """The agent's own model, asked for a fold with the agent's own key by whoever has it."""

    conversation: str
    model: str
    ask: Ask

    async def stream(self, request: Request) -> AsyncIterator[Delta]:
        """One text."""
        said = [part.text for part in request.messages[-1].parts if isinstance(part, Text)]
        alone = request.system == ASKED_ALONE
        question = "\n\n".join(said) if alone else said[-1]
        text, usage, model = await self.ask(
            self.conversation, question, request.system if alone else "", request.max_output
        )
        yield TextDelta(text)
        yield Reply((Text(text),) if text else (), Stop.END, usage, model or self.model)


@dataclass(slots=True)
class Follower:
    """A conversation held open."""

    session: Session
    following: Following
    contents: Contents
    shown: Shown | None = None  # what its last view came to
    settled: tuple[object, ...] = ()  # what its last request said of system prompt, tools, model and policy


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
            if place.track is not None and (sent := await self._ahead(arrival, messages, place, track)) is not None:
                return sent
            async with track.lock:
                if place.track is not None and self._place(arrival) != place:
                    continue  # it went on meanwhile
                if place.known < told:
                    raise Refused("The conversation has continued elsewhere in the meantime.")
                return await self._taken(arrival, messages, place, track)

    async def look(self, arrival: Arrival, messages: Sequence[Wired]) -> Sequence[Entry]:
        """What the request would become; nothing is recorded."""
        await self._read_tracks()
        place = self._place(arrival)
        entries: list[Entry] = []
        if place.track is not None and place.seqs and place.track.conversation:
            follower = await self._follower(place.track)
            conversation = follower.session.conversation
            view = conversation.view() if place.at_tip else conversation.state.at(place.seqs[-1]).view()
            entries = [*(await self._shown(follower, view, place.seqs))[0].entries]
        return [*entries, *(As(at) for at in range(place.known if place.seqs else 0, len(messages)))]

    def _place(self, arrival: Arrival) -> Place:
        return self._tracks.find(arrival.chain, arrival.session, arrival.head, arrival.parent)

    def _new_track(self, arrival: Arrival) -> Track:
        track = Track("", arrival.session, arrival.head)
        self._tracks.add(track)
        return track

    async def _taken(self, arrival: Arrival, messages: Sequence[Wired], place: Place, track: Track) -> Sent:
        if not track.conversation:
            title = title_of(messages)
            session = await self._bench.new_conversation(title, agent=arrival.agent, parent=place.parent)
            track.conversation = session.id
        elif not place.at_tip and place.known < len(messages):
            track = await self._branch(place, track, arrival)
        self._tracks.join(track, arrival.session)
        follower = await self._follower(track)
        conversation = follower.session.conversation
        aside = place.track is not None and place.known == len(messages) and not place.at_tip
        if not aside:
            if _last_message(conversation.state.facts) > track.tip:
                await conversation.append(Rewound(track.tip))  # a step whose reply never reached the agent
                follower.shown = None
            await self._settle(follower, arrival)
            await self._messages(follower, track, arrival, messages)
            if arrival.fold:
                await follower.following.next_view()
            shown = await self._show(follower, track)
        else:
            view = conversation.state.at(place.seqs[-1]).view()
            shown = (await self._shown(follower, view, place.seqs))[0]
        ticket = Ticket(track.conversation, arrival.chain, conversation.state.last_seq, arrival.wire, live=not aside)
        return Sent(ticket, shown.entries, recallable=_recallable(shown))

    async def _show(self, follower: Follower, track: Track) -> Shown:
        """What the messages become now; from where it differs from what they became last."""
        view = follower.session.conversation.view()
        shown, whole = await self._shown(follower, view, tuple(track.seqs), follower.shown)
        follower.shown = shown if whole else None
        return shown

    @staticmethod
    async def _shown(
        follower: Follower, view: View, seqs: Sequence[int], before: Shown | None = None
    ) -> tuple[Shown, bool]:
        """What a view comes to, and whether all of it belongs to these messages. Contents are read where they are shown."""
        contents: dict[Digest, str | Image] = {}
        while True:
            showing = Showing(follower.session.conversation, seqs, contents)
            shown = showing.shown(view, before)
            if not showing.missing:
                return shown, showing.whole
            contents |= await follower.contents.of(replace(view, blocks=tuple(showing.missing.values())))

    # --- a request goes on before it is recorded

    async def _ahead(self, arrival: Arrival, messages: Sequence[Wired], place: Place, track: Track) -> Sent | None:
        """Where nothing is due, the new messages go on as they came and are recorded while the provider answers: its reply
        waits for that. What comes due by them is folded for the next request. None where something may be due now.
        """
        follower = self._followers.get(track.conversation)
        if follower is None or track.lock.locked() or not place.at_tip or place.known == len(messages):
            return None
        shown, state = follower.shown, follower.session.conversation.state
        if shown is None or shown.seq != state.last_seq or follower.settled != self._settings_of(arrival):
            return None
        if not self._is_plain(follower, messages[place.known :]):
            return None
        self._tracks.join(track, arrival.session)
        await track.lock.acquire()  # it is free: nobody comes between
        try:
            self._tasks.spawn(self._recorded(follower, track, arrival, messages), name="record a request")
        except Stopped:
            track.lock.release()
            return None
        entries = (*shown.entries, *map(As, range(place.known, len(messages))))
        return Sent(Ticket(track.conversation, arrival.chain, LATER, arrival.wire), entries, _recallable(shown))

    def _is_plain(self, follower: Follower, fresh: Sequence[Wired]) -> bool:
        """Whether these are short texts, and results of calls that wait for them."""
        if any(message.speaker is not Speaker.USER for message in fresh):
            return False
        pieces = [piece for message in fresh for piece in message.pieces]
        waiting = {call.id for call in follower.session.conversation.state.branch.running_calls}
        if not all(p.kind is Kind.TEXT or (p.kind is Kind.RESULT and p.id in waiting) for p in pieces):
            return False
        if sum(len(piece.text) for piece in pieces) > LONG:
            return False
        return follower.session.steward.is_quiet(sum(self._bench.tokens.count(piece.text) for piece in pieces))

    async def _recorded(self, follower: Follower, track: Track, arrival: Arrival, messages: Sequence[Wired]) -> None:
        """Holds the lock of the track, which was taken for it."""
        try:
            await self._messages(follower, track, arrival, messages)
            track.saw = follower.session.conversation.state.last_seq
            if arrival.fold:
                await follower.following.next_view()
            await self._show(follower, track)
        except Exception:
            log.exception("a request could not be recorded; it went on as it came")
            follower.shown = None
        finally:
            track.lock.release()

    def _settings_of(self, arrival: Arrival) -> tuple[object, ...]:
        settings = self._bench.workspace.settings
        return (arrival.system, arrival.tools, arrival.model, arrival.fold, settings.preset, settings.policy)

    async def _branch(self, place: Place, track: Track, arrival: Arrival) -> Track:
        """The request leaves the known line. An agent that names its conversation has rewound it; of others it may be
        another session with the same beginning, which gets a conversation of its own.
        """
        seq = place.seqs[-1] if place.seqs else 0
        if arrival.session and arrival.session == track.session:
            follower = await self._follower(track)
            await follower.session.conversation.append(Rewound(seq))
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
            await follower.session.conversation.append(fact)

    def _agent_of(self, track: Track) -> str:
        row = self._bench.row(track.conversation)
        return row.agent if row else ""

    async def _follower(self, track: Track) -> Follower:
        """The conversation, open; of those nobody asked for lately it is let go."""
        held = self._followers.pop(track.conversation, None)
        if held is None:
            name = track.conversation
            session = await self._bench.session(name, writer=lambda model: AgentsModel(name, model, self._ask))
            cache, tokens = self._bench.workspace.cache, self._bench.tokens
            held = Follower(session, Following(session.conversation, session.steward, cache, tokens), Contents(cache))
        self._followers[track.conversation] = held
        while len(self._followers) > KEPT:
            del self._followers[next(iter(self._followers))]
        return held

    async def _settle(self, follower: Follower, arrival: Arrival) -> None:
        """System prompt, tools, policy and model as the request has them."""
        conversation = follower.session.conversation
        settings = conversation.state.settings
        wanted: list[Fact] = []
        if settings.system.text != arrival.system:
            wanted.append(SystemSet(arrival.system, await self._count([arrival.system])))
        tools = tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in arrival.tools)
        if settings.tools.tools != tools:
            tokens = await self._count([f"{tool.name}{tool.description}{tool.schema}" for tool in tools])
            wanted.append(ToolsOffered(tools, tokens))
        wanted.append(self._policy(fold=arrival.fold))
        wanted.append(look_up(arrival.wire, arrival.model).as_fact(ModelRole.MAIN))
        missing = [fact for fact in wanted if not conversation.state.holds(fact)]
        if missing:
            await conversation.append(*missing)
        follower.settled = self._settings_of(arrival)

    async def _count(self, texts: Sequence[str]) -> int:
        """Their tokens. Long texts are counted beside the loop; whoever counts them again is told what was found."""
        count = self._bench.tokens.count
        if sum(map(len, texts)) <= LONG:
            return sum(map(count, texts))
        return await asyncio.to_thread(lambda: sum(map(count, texts)))

    def _policy(self, *, fold: bool) -> PolicySet:
        settings = self._bench.workspace.settings
        return setup.policy_fact("none", {}) if not fold else setup.policy_fact(settings.preset, settings.policy)

    # --- messages become facts

    async def _messages(self, follower: Follower, track: Track, arrival: Arrival, messages: Sequence[Wired]) -> None:
        known = len(track.chain)
        await self._count(_texts(messages[known:]))
        outputs: list[tuple[int, Output]] = []
        seqs: dict[int, int] = {}
        for at in range(known, len(messages)):
            message = messages[at]
            results, others = self._split(follower, message, {output.call for _, output in outputs})
            if outputs and (not results or message.speaker is Speaker.ASSISTANT):
                await self._returned(follower, outputs, seqs)
            outputs.extend((at, output) for output in results)
            if outputs and others:
                await self._returned(follower, outputs, seqs)
            if others:
                await self._said(follower, message, others, steering=bool(results))
                seqs[at] = follower.session.conversation.state.last_seq
        if outputs:
            await self._returned(follower, outputs, seqs)
        last = track.tip
        for at in range(known, len(messages)):
            last = max(seqs.get(at, last), last)
            self._tracks.extend(track, arrival.chain[at], last)
        if known < len(messages):
            fact = Received(tuple(track.chain[known:]), tuple(track.seqs[known:]), track.session, track.head)
            await follower.session.conversation.append(fact)

    @staticmethod
    def _split(follower: Follower, message: Wired, waiting: set[str]) -> tuple[list[Output], list[Piece]]:
        """The results somebody waits for, and all else."""
        calls = {call.id for call in follower.session.conversation.state.branch.running_calls} - waiting
        results, others = [], []
        for piece in message.pieces:
            if piece.kind is Kind.RESULT and piece.id in calls:
                calls.discard(piece.id)
                results.append(Output(piece.id, piece.text, piece.ok))
            else:
                others.append(piece)
        return results, others

    async def _returned(self, follower: Follower, outputs: list[tuple[int, Output]], seqs: dict[int, int]) -> None:
        before = follower.session.conversation.state.last_seq
        await follower.following.returned([output for _, output in outputs])
        at_of = {output.call: at for at, output in outputs}
        facts = follower.session.conversation.state.facts[before:]
        for recorded in facts:
            if isinstance(recorded.fact, ToolReturned) and recorded.fact.call in at_of:
                seqs[at_of[recorded.fact.call]] = recorded.seq
        seqs[outputs[-1][0]] = follower.session.conversation.state.last_seq
        outputs.clear()

    async def _said(self, follower: Follower, message: Wired, pieces: Sequence[Piece], *, steering: bool) -> None:
        following = follower.following
        if message.speaker is Speaker.ASSISTANT:
            stop = Stop.CALLS if message.of(Kind.CALL) else Stop.END
            saw = following.conversation.state.last_seq
            await following.replied(Written(reply_parts(pieces), "", stop), saw)
            return
        parts = tuple([await self._user_part(piece) for piece in pieces])
        await following.said(parts, steering=steering or message.speaker is Speaker.SYSTEM)

    async def _user_part(self, piece: Piece) -> UserPart:
        """Pictures, and blocks nobody here knows, are entries of the cache."""
        if piece.kind is Kind.IMAGE:
            about = About("user", "image", piece.media_type)
            stored = await self._bench.workspace.cache.put(await asyncio.to_thread(_picture, piece.text), about)
            return Attachment("image", stored, 0)
        if piece.kind is Kind.OTHER:
            about = About("user", "block", "application/json")
            stored = await self._bench.workspace.cache.put(piece.text.encode("utf-8", "replace"), about)
            return Attachment("block", stored, self._bench.tokens.count(piece.text))
        return Text(piece.text)

    # --- a reply comes

    async def hidden(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece]
    ) -> list[tuple[str, str, str, bool]]:
        """A reply with calls of ours is recorded, and they are answered: id, name, text and whether it went well."""
        answered = [(call.id, call.name, *await self._recalled(call)) for call in calls]
        track = self._track_of(ticket)
        if track is not None and ticket.live:
            async with track.lock:
                if self._is_at(track, ticket):
                    following = (await self._follower(track)).following
                    await following.replied(self._written(replied, ticket), _saw(track, ticket))
                    await following.returned([Output(name, text, ok) for name, _, text, ok in answered])
        return answered

    async def replied(self, ticket: Ticket, replied: Replied | None, shown: str) -> None:
        """The agent's reply is recorded; `shown` is the key of what the agent saw of it. None: the last hidden one was it."""
        track = self._track_of(ticket)
        if track is None or not ticket.live:
            return
        async with track.lock:
            if not self._is_at(track, ticket):
                return
            follower = await self._follower(track)
            conversation = follower.session.conversation
            if replied is not None:
                await self._count([piece.text for piece in replied.pieces])
                await follower.following.replied(self._written(replied, ticket), _saw(track, ticket))
            self._tracks.extend(track, longer(track.chain, ticket.wire, shown), conversation.state.last_seq)
            facts: list[Fact] = [Received((track.chain[-1],), (track.tip,), track.session, track.head)]
            if replied is not None and replied.stop is not Stop.CALLS:
                facts.append(TurnEnded(TurnEnd.DONE))
            await conversation.append(*facts)
            if replied is not None and replied.stop is not Stop.CALLS:
                follower.session.steward.after_turn()
            await self._show(follower, track)

    def _written(self, replied: Replied, ticket: Ticket) -> Written:
        info = look_up(ticket.wire, replied.model)
        usage = priced(replied.usage, info)
        return Written(reply_parts(replied.pieces), info.name, replied.stop, usage, replied.raw, replied.seconds)

    async def overflowed(self, ticket: Ticket) -> Sent | None:
        """The provider found the request too long: what it becomes after a fold. None where nothing more can be folded."""
        track = self._track_of(ticket)
        if track is None or not ticket.live:
            return None
        async with track.lock:
            if not self._is_at(track, ticket):
                return None
            follower = await self._follower(track)
            before = follower.session.conversation.state.tokens
            await follower.session.steward.before_step(overflowed=True)
            conversation = follower.session.conversation
            if conversation.state.tokens >= before:
                return None
            shown = await self._show(follower, track)
            return Sent(replace(ticket, saw=conversation.state.last_seq), shown.entries, recallable=True)

    async def figures(self, since: float = 0.0) -> Sequence[Figures]:
        """Of the conversations that are held open; `since`: of all that went on after that moment, and only what came then."""
        found = [figures(name, one.session.conversation.state, since) for name, one in self._followers.items()]
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
        return self._tracks.of(ticket.conversation)

    @staticmethod
    def _is_at(track: Track, ticket: Ticket) -> bool:
        return tuple(track.chain[-1:]) == ticket.chain[-1:] and len(track.chain) == len(ticket.chain)

    async def _recalled(self, call: Piece) -> tuple[str, bool]:
        """What a call of ours brings back; a mistake in it is told to the model."""
        try:
            given = json.loads(call.text or "{}")
            asked: Mapping[str, object] = given if isinstance(given, dict) else {}
            stores, tokens = self._bench.workspace, self._bench.tokens
            if call.name.startswith("search"):
                limit = asked.get("limit", 10)
                count = limit if isinstance(limit, int) else 10
                return await recall.search(stores.index, str(asked.get("query", "")), limit=count), True
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


def _saw(track: Track, ticket: Ticket) -> int:
    return track.saw if ticket.saw == LATER else ticket.saw


def _recallable(shown: Shown) -> bool:
    return any(block.fold for block in shown.blocks)


def reply_parts(pieces: Sequence[Piece]) -> tuple[ReplyPart, ...]:
    """A reply's pieces as a fact has them."""
    parts: list[ReplyPart] = []
    for piece in pieces:
        if piece.kind is Kind.CALL:
            parts.append(ToolCall(piece.id, piece.name, piece.text))
        elif piece.kind is Kind.REASONING:
            if piece.text:
                parts.append(Reasoning(piece.text))
        elif piece.kind is Kind.TEXT and piece.text:
            parts.append(Text(piece.text))
        elif piece.kind is Kind.OTHER:
            parts.append(Text(f"[{piece.text[:200]}]"))
    return tuple(parts) or (Text(""),)


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


def _texts(messages: Sequence[Wired]) -> list[str]:
    return [piece.text for message in messages for piece in message.pieces if piece.kind is not Kind.IMAGE]


def _picture(text: str) -> bytes:
    """What base64 says, read in slices; text that is none is taken as it is."""
    content = bytearray()
    try:
        for part in slices(text):
            content += base64.b64decode(part, validate=True)
    except (binascii.Error, ValueError):
        return text.encode("utf-8", "surrogatepass")
    return bytes(content)


def _last_message(facts: Sequence[Recorded]) -> int:
    """The newest message; 0 where there is none."""
    for recorded in reversed(facts):
        if isinstance(recorded.fact, ModelReplied | ToolReturned | UserSaid):
            return recorded.seq
        if isinstance(recorded.fact, Rewound):
            return 0
    return 0
