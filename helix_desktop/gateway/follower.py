"""One conversation of a connected agent, held open: messages become its facts, and its view says what they are sent on as."""

from __future__ import annotations

import asyncio
import base64
import binascii
import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace

from helix_desktop.engine.ask_model import SYSTEM as ASKED_ALONE
from helix_desktop.engine.blocks import Delta, Image, Reply, Request, TextDelta, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Attachment,
    Fact,
    ModelRole,
    PolicySet,
    Reasoning,
    ReplyPart,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    ToolSpec,
    Usage,
    UserPart,
)
from helix_desktop.engine.following import Following, Output, Written
from helix_desktop.engine.ports import About
from helix_desktop.engine.session import Session
from helix_desktop.gateway.arrival import Arrival, Ask, Replied
from helix_desktop.gateway.shown import Showing, Shown
from helix_desktop.gateway.tracks import Track
from helix_desktop.providers.client import priced
from helix_desktop.providers.models import look_up
from helix_desktop.values import dataclass
from helix_desktop.wire.message import Kind, Piece, Speaker, Wired, slices
from helix_desktop.workbench import setup
from helix_desktop.workbench.bench import Workbench

LONG = 32_000  # characters from which on texts are counted beside the loop


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
        yield Reply((Text(text),) if text else (), Stop.END, _priced(usage, model, self.model), self.model)


@dataclass(slots=True)
class Follower:
    """A conversation held open."""

    bench: Workbench
    session: Session
    following: Following
    contents: Contents
    shown: Shown | None = None  # what its last view came to
    settled: tuple[object, ...] = ()  # what its last request said of system prompt, tools, model and policy

    @classmethod
    async def of(cls, bench: Workbench, name: str, ask: Ask) -> Follower:
        """The conversation of that name; what its folds need written, the agent's own model is asked for."""
        session = await bench.session(name, writer=lambda model: AgentsModel(name, model, ask))
        cache = bench.workspace.cache
        following = Following(session.conversation, session.steward, cache, bench.tokens)
        return cls(bench, session, following, Contents(cache))

    @property
    def conversation(self) -> Conversation:
        """Its facts."""
        return self.following.conversation

    async def ahead(self) -> Follower:
        """The same on a copy of the conversation."""
        return replace(self, following=self.following.ahead(await self.conversation.draft()))

    async def show(self, track: Track) -> Shown:
        """What the messages become now; from where it differs from what they became last."""
        view = self.conversation.view()
        shown, whole = await self.shown_of(view, tuple(track.seqs), self.shown)
        self.shown = shown if whole else None
        return shown

    async def shown_of(self, view: View, seqs: Sequence[int], before: Shown | None = None) -> tuple[Shown, bool]:
        """What a view comes to, and whether all of it belongs to these messages. Contents are read where they are shown."""
        contents: dict[Stored, str | Image] = {}
        while True:
            showing = Showing(self.conversation, seqs, contents)
            shown = await showing.shown(view, before)
            if not showing.missing:
                return shown, showing.whole
            contents |= await self.contents.of(replace(view, blocks=tuple(showing.missing.values())))

    async def settle(self, arrival: Arrival) -> None:
        """System prompt, tools, policy and model as the request has them."""
        conversation = self.conversation
        settings = conversation.state.settings
        wanted: list[Fact] = []
        if settings.system.text != arrival.system:
            wanted.append(SystemSet(arrival.system, await self.count([arrival.system])))
        tools = tuple(ToolSpec(tool.name, tool.description, tool.schema) for tool in arrival.tools)
        if settings.tools.tools != tools:
            tokens = await self.count([f"{tool.name}{tool.description}{tool.schema}" for tool in tools])
            wanted.append(ToolsOffered(tools, tokens))
        wanted.append(self._policy(fold=arrival.fold))
        wanted.append(look_up(arrival.wire, arrival.model).as_fact(ModelRole.MAIN))
        missing = [fact for fact in wanted if not conversation.state.holds(fact)]
        if missing:
            await conversation.append(*missing)
        self.settled = self.settings_of(arrival)

    async def count(self, texts: Sequence[str]) -> int:
        """Their tokens. Long texts are counted beside the loop; whoever counts them again is told what was found."""
        count = self.bench.tokens.count
        if sum(map(len, texts)) <= LONG:
            return sum(map(count, texts))
        return await asyncio.to_thread(lambda: sum(map(count, texts)))

    def _policy(self, *, fold: bool) -> PolicySet:
        settings = self.bench.workspace.settings
        return setup.policy_fact("none", {}) if not fold else setup.policy_fact(settings.preset, settings.policy)

    def settings_of(self, arrival: Arrival) -> tuple[object, ...]:
        settings = self.bench.workspace.settings
        return (arrival.system, arrival.tools, arrival.model, arrival.fold, settings.preset, settings.policy)

    def is_plain(self, fresh: Sequence[Wired]) -> bool:
        """Whether these are short texts, and results of calls that wait for them."""
        if any(message.speaker is not Speaker.USER for message in fresh):
            return False
        pieces = [piece for message in fresh for piece in message.pieces]
        waiting = {call.id for call in self.conversation.state.branch.running_calls}
        if not all(p.kind is Kind.TEXT or (p.kind is Kind.RESULT and p.id in waiting) for p in pieces):
            return False
        if sum(len(piece.text) for piece in pieces) > LONG:
            return False
        return self.session.steward.is_quiet(sum(self.bench.tokens.count(piece.text) for piece in pieces))

    # --- messages become facts

    async def take(self, messages: Sequence[Wired], tip: int) -> list[int]:
        """The messages are facts; for each the last fact that stands for it. `tip`: that of the message before them."""
        await self.count(_texts(messages))
        stored = await self._put(messages)
        outputs: list[tuple[int, Output]] = []
        seqs: dict[int, int] = {}
        for at, message in enumerate(messages):
            results, others = self._split(message, {output.call for _, output in outputs}, stored)
            if outputs and (not results or message.speaker is Speaker.ASSISTANT):
                await self._returned(outputs, seqs)
            outputs.extend((at, output) for output in results)
            if outputs and others:
                await self._returned(outputs, seqs)
            if others:
                await self._said(message, others, steering=bool(results))
                seqs[at] = self.conversation.state.last_seq
        if outputs:
            await self._returned(outputs, seqs)
        return list(itertools.accumulate((seqs.get(at, tip) for at in range(len(messages))), max, initial=tip))[1:]

    async def _put(self, messages: Sequence[Wired]) -> dict[str, Stored]:
        """What calls returned, by their ids. It is put together: one sync is enough for many."""
        calls = {call.id: call.call for call in self.conversation.state.branch.running_calls}
        calls |= {p.id: ToolCall(p.id, p.name, p.text) for message in messages for p in message.of(Kind.CALL)}
        texts = {p.id: p.text for message in messages for p in message.of(Kind.RESULT) if p.id in calls}
        put = (self.following.put(text, calls[call]) for call, text in texts.items())
        return dict(zip(texts, await asyncio.gather(*put), strict=True))

    def _split(
        self, message: Wired, waiting: set[str], stored: Mapping[str, Stored]
    ) -> tuple[list[Output], list[Piece]]:
        """The results somebody waits for, and all else."""
        calls = {call.id for call in self.conversation.state.branch.running_calls} - waiting
        results, others = [], []
        for piece in message.pieces:
            if piece.kind is Kind.RESULT and piece.id in calls:
                calls.discard(piece.id)
                results.append(Output(piece.id, piece.text, piece.ok, stored=stored.get(piece.id)))
            else:
                others.append(piece)
        return results, others

    async def _returned(self, outputs: list[tuple[int, Output]], seqs: dict[int, int]) -> None:
        before = self.conversation.state.last_seq
        await self.following.returned([output for _, output in outputs])
        at_of = {output.call: at for at, output in outputs}
        facts = self.conversation.state.facts[before:]
        for recorded in facts:
            if isinstance(recorded.fact, ToolReturned) and recorded.fact.call in at_of:
                seqs[at_of[recorded.fact.call]] = recorded.seq
        seqs[outputs[-1][0]] = self.conversation.state.last_seq
        outputs.clear()

    async def _said(self, message: Wired, pieces: Sequence[Piece], *, steering: bool) -> None:
        following = self.following
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
            stored = await self.bench.workspace.cache.put(await asyncio.to_thread(_picture, piece.text), about)
            return Attachment("image", stored, 0)
        if piece.kind is Kind.OTHER:
            about = About("user", "block", "application/json")
            stored = await self.bench.workspace.cache.put(piece.text.encode("utf-8", "replace"), about)
            return Attachment("block", stored, self.bench.tokens.count(piece.text))
        return Text(piece.text)

    def written(self, replied: Replied) -> Written:
        """Under the name the agent asks for: what is learned of a model is learned under that name."""
        main = self.conversation.state.settings.model(ModelRole.MAIN)
        asked = main.model if main else replied.model
        usage = _priced(replied.usage, replied.model, asked)
        return Written(reply_parts(replied.pieces), asked, replied.stop, usage, replied.raw, replied.seconds)


def _priced(usage: Usage, answered: str, asked: str) -> Usage:
    """By the model that answered; where its price is not known, by the one that was asked."""
    return priced(priced(usage, look_up("", answered)), look_up("", asked))


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
