"""A session on memory stores with a scripted model and scripted tools: real
implementations of the ports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import (
    Fact,
    Forgotten,
    ModelRole,
    ModelSet,
    PolicySet,
    ReplyPart,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolSpec,
    TurnEnded,
    Usage,
)
from helix_desktop.engine.messages import Delta, Reply, Request, TextDelta
from helix_desktop.engine.ports import (
    CallContext,
    CallOutcome,
    ContentForgetter,
    EntryOrigin,
    ForgetResult,
    ModelClient,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.engine.session_setup import (
    AgentsCost,
    ConversationSetup,
    SessionServices,
    TurnLimits,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal

NO_LIMITS = TurnLimits()
F = TypeVar("F")
Scripted = Reply | Exception | Callable[[Request], Awaitable[Reply]]


def says(text: str, stop: Stop = Stop.END, cost: float = 0.0) -> Reply:
    return Reply((Text(text),), stop, Usage(input=10, output=1, cost=cost), "scripted")


def calls(*named: str, cost: float = 0.0, **arguments: object) -> Reply:
    """A reply that calls tools; the n-th call of a session has the id `name-n`."""
    parts: tuple[ReplyPart, ...] = tuple(
        ToolCall(f"{name}-{i}", name, json.dumps(arguments)) for i, name in enumerate(named)
    )
    return Reply(parts, Stop.CALLS, Usage(input=10, output=1, cost=cost), "scripted")


@dataclass
class ScriptedModel:
    """Answers with the script, one entry a request, and says "done" when it is at its end."""

    script: list[Scripted] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    model_name: str = "scripted"

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        next_one = self.script.pop(0) if self.script else says("done")
        if isinstance(next_one, Exception):
            raise next_one
        reply = next_one if isinstance(next_one, Reply) else await next_one(request)
        for part in reply.parts:
            if isinstance(part, Text):
                yield TextDelta(part.text)
        numbered = tuple(
            replace(part, id=f"{part.id}-{len(self.requests)}")
            if isinstance(part, ToolCall)
            else part
            for part in reply.parts
        )
        yield replace(reply, parts=numbered)


@dataclass
class ScriptedTools:
    """Every tool answers with its name, unless `runs` has something else for it."""

    cache: MemoryCache
    runs: dict[str, Callable[[ToolCall, CallContext], Awaitable[str | CallOutcome]]] = field(
        default_factory=dict
    )
    ran: list[str] = field(default_factory=list)

    def offered_specs(self) -> tuple[ToolSpec, ...]:
        return tuple(
            ToolSpec(name, f"The tool {name}.", '{"type":"object"}') for name in ("look", "run")
        )

    def runs_alone(self, name: str) -> bool:
        return name == "run"

    async def run_tool_call(self, call: ToolCall, context: CallContext) -> CallOutcome:
        context.note_begun()
        answer = (
            await self.runs[call.name](call, context)
            if call.name in self.runs
            else f"{call.name} answers"
        )
        self.ran.append(call.id)
        if isinstance(answer, CallOutcome):
            return answer
        return CallOutcome(await self.cache.store_content(answer.encode(), EntryOrigin(call.name)))


class Words:
    """Tokens: a word each."""

    def count_tokens(self, text: str) -> int:
        return len(text.split())


@dataclass
class SteppedClock:
    """Time passes only where somebody sleeps. Who changes `time` alone sets the clock."""

    time: float = 1_000.0
    passed: float = 0.0  # In seconds, however the clock was set.

    def current_time(self) -> float:
        return self.time

    def steady_time(self) -> float:
        return self.passed

    def pass_seconds(self, seconds: float) -> None:
        self.time += seconds
        self.passed += seconds

    async def sleep_seconds(self, seconds: float) -> None:
        self.pass_seconds(seconds)
        await asyncio.sleep(0)


@dataclass
class World:
    """A session and everything around it that a test wants to look at or to change."""

    session: Session
    model: ScriptedModel
    tools: ScriptedTools
    journal: MemoryJournal
    cache: MemoryCache
    events: list[Event]
    setup: ConversationSetup
    forget: ContentForgetter

    @property
    def facts(self) -> list[Fact]:
        return [recorded.fact for recorded in self.session.all_facts]

    def of(self, kind: type[F]) -> list[F]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


async def world(
    *script: Scripted,
    limits: TurnLimits = NO_LIMITS,
    spent: Sequence[float] = (0.0, 0.0),
    model: ModelClient | None = None,
    preset: str = "layered",
    window: int = 128_000,
) -> World:
    journal = MemoryJournal()
    cache = MemoryCache()
    scripted = ScriptedModel(list(script))
    tools = ScriptedTools(cache)
    conversation = await Conversation.open(journal, "c1")

    async def as_set() -> ConversationSetup:
        return made.setup

    async def forget(*, text: str = "", entries: Sequence[Digest] = ()) -> ForgetResult:
        """The text stands in no other conversation: this one's facts are blanked, and a
        tombstone says so.
        """
        async with session.pause_session():
            recorded = journal._facts["c1"]  # what only forgetting may do
            recorded[:] = [
                replace(each, fact=decode_fact(encode_fact(each.fact).replace(text, "[forgotten]")))
                for each in recorded
            ]
            await journal.append_to_journal("c1", [Forgotten(tuple(entries), len(recorded))])
        return ForgetResult(tuple(entries), len(recorded), ("c1",), 0)

    setup = ConversationSetup(
        SystemSet("You are tested.", 3),
        PolicySet(preset),
        (ModelSet(ModelRole.MAIN, "scripted", window),),
    )
    services = SessionServices(
        cache=cache,
        index=MemoryIndex(journal, cache),
        tokens=Words(),
        clock=SteppedClock(),
        tools=tools,
        models=lambda role: (model or scripted) if role == "main" else None,
        setup=as_set,
        expected_setup=as_set,
        spawn=OwnedTasks("test").spawn_task,
        limits=lambda: limits,
        spent=lambda: (spent[0], spent[1]),
        agents_spent=AgentsCost,
    )
    folding = ConversationFolding(conversation, services)
    events: list[Event] = []
    session = Session(conversation, services, folding)
    session.subscribe_to_events(events.append)
    made = World(session, scripted, tools, journal, cache, events, setup, forget)
    return made


def appended(events: Sequence[Event]) -> list[Fact]:
    return [event.recorded.fact for event in events if isinstance(event, FactAppended)]


async def told(at: World) -> TurnEnded:
    """A turn from one message to its end."""
    at.session.send_message((Text("hello"),))
    await asyncio.wait_for(at.session.wait_until_idle(), 60)
    end = at.facts[-1]
    assert isinstance(end, TurnEnded)
    return end
