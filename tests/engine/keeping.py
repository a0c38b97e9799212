"""A conversation with its folding on memory stores, played by hand: what is said,
called and returned is the test's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import context_policy, request_building
from helix_desktop.engine.ask_model import ModelInquiry
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Recorded,
    Spent,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import Delta, Reply, Request, TextDelta
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_setup import AgentsCost, FoldServices, TurnLimits
from helix_desktop.engine.strategies.added_strategies import (
    AddedFoldStrategy,
    no_added_strategies,
)
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import ModelOverloaded
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryJournal
from tests.engine.agent import SteppedClock

Answer = Callable[[Request], str]
ListStrategies = Callable[[], Sequence[AddedFoldStrategy]]


def good(request: Request) -> str:
    """A writer that does as it is asked, and remembers nothing in particular."""
    if request.purpose == "handover":
        return "\n\n".join(f"## {name}\nThe work went on." for name in SECTIONS)
    return "- 2026-11-20 !! the work went on [1]"


def much(request: Request) -> str:
    """A writer with a lot to say, once; asked to merge, it finds a tenth worth keeping."""
    lines = 3 if request.purpose == "reflection" else 25
    return "\n".join(
        f"- 2026-11-20 12:{number:02} !! the work went on in the usual way [{number}]"
        for number in range(lines)
    )


def fails(_: Request) -> str:
    raise ModelOverloaded("the model is overloaded")


def empty(_: Request) -> str:
    return ""


def wrong_form(_: Request) -> str:
    return '{"sections": ["none of the ones you asked for"]}'


def other_language(_: Request) -> str:
    return "\n\n".join(
        f"## {name}\n工作在继续。"
        for name in ("项目背景", "技术细节", "已完成", "问题", "待办", "偏好")
    )


def too_long(request: Request) -> str:
    return "\n\n".join(f"## {name}\n" + "the work went on and on \n" * 10_000 for name in SECTIONS)


class Quarters:
    """Tokens: a quarter of the characters, which is about right for English."""

    def count_tokens(self, text: str) -> int:
        return -(-len(text) // 4)


@dataclass
class Writer:
    """A model that writes folds. `hangs`: it never answers; `gate`: it answers once
    that is set; `pauses`: seconds between signs of its writing.
    """

    model_name: str
    answer: Answer = good
    hangs: bool = False
    gate: asyncio.Event | None = None
    pauses: Sequence[float] = ()
    requests: list[Request] = field(default_factory=list)
    has_own_history: bool = False

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        if self.hangs:
            await asyncio.Event().wait()
        if self.gate is not None:
            await self.gate.wait()
        text = self.answer(request)
        for pause in self.pauses:
            await asyncio.sleep(pause)
            yield TextDelta("a word ")
        yield Reply(
            (Text(text),) if text else (), Stop.END, Usage(input=100, output=10), self.model_name
        )


@dataclass
class Keeping:
    """`say`, `step` and `batch` play the agent; the folding does what it does."""

    conversation: Conversation
    folding: ConversationFolding
    cache: MemoryCache
    clock: SteppedClock
    writers: dict[str, Writer]
    tasks: OwnedTasks
    tokens: Quarters = field(default_factory=Quarters)

    @property
    def facts(self) -> list[Recorded]:
        return self.conversation.state.facts

    def folds(self, kind: FoldKind | None = None) -> list[Folded]:
        made = [one.fact for one in self.facts if isinstance(one.fact, Folded)]
        return [fold for fold in made if kind is None or fold.kind is kind]

    def failures(self) -> list[FoldFailed]:
        return [one.fact for one in self.facts if isinstance(one.fact, FoldFailed)]

    async def say(self, text: str, *, steering: bool = False) -> int:
        said = UserSaid((Text(text, self.tokens.count_tokens(text)),), steering)
        return (
            await self.conversation.append_facts(*await self.folding.excerpt_large_message(said))
        )[0].seq

    async def end(self) -> None:
        await self.conversation.append_facts(TurnEnded(TurnEnd.DONE))
        self.folding.start_folds_after_turn()

    async def step(
        self,
        output: str,
        *,
        tool: str = "read",
        arguments: str = '{"path": "a.py"}',
        ok: bool = True,
    ) -> int:
        return (await self.batch([output], tool=tool, arguments=arguments, ok=ok))[0]

    async def batch(
        self,
        outputs: Sequence[str],
        *,
        tool: str = "read",
        arguments: str = '{"path": "a.py"}',
        ok: bool = True,
        keeps: Sequence[str] = (),
        ahead: int = 0,
    ) -> list[int]:
        """One step of the agent with so many parallel calls; the seqs of their results.
        The first `ahead` are recorded before the others are there.
        """
        await self.folding.apply_due_folds()
        self.clock.time += 10
        start = self.conversation.state.seq
        size = self.tokens.count_tokens(tool + arguments)
        calls = tuple(
            ToolCall(f"c{start}-{index}", tool, arguments, size) for index in range(len(outputs))
        )
        await self.conversation.append_facts(
            ModelReplied((Text("let me see", 3), *calls), "main", Stop.CALLS)
        )
        returned = []
        for call, output in zip(calls, outputs, strict=True):
            stored = await self.cache.store_content(output.encode(), EntryOrigin(tool))
            earlier = self.conversation.state.seq_of_last_output_with_content(stored.digest)
            returned.append(
                ToolReturned(
                    call.id, stored, self.tokens.count_tokens(output), ok, repeat_of=earlier
                )
            )
        kept = {call.id: keep for call, keep in zip(calls, keeps, strict=False)}
        before = [(await self.conversation.append_facts(one))[0].seq for one in returned[:ahead]]
        facts = await self.folding.excerpt_large_results(returned, kept, before)
        recorded = await self.conversation.append_facts(*returned[ahead:], *facts)
        return [*before, *(one.seq for one in recorded[: len(returned) - ahead])]

    async def answer(self, text: str) -> None:
        await self.folding.apply_due_folds()
        await self.conversation.append_facts(
            ModelReplied((Text(text, self.tokens.count_tokens(text)),), "main", Stop.END)
        )

    async def request(self) -> Request:
        """The next request, proved legal."""
        view = self.conversation.current_view()
        request = request_building.build_request(
            view, await ViewContents(self.cache).read_view_contents(view)
        )
        assert request_building.find_violations(request) == []
        return request

    async def shown(self) -> str:
        """All that the model would read now."""
        request = await self.request()
        return "\n".join(
            getattr(part, "text", "") or getattr(part, "arguments", "")
            for m in request.messages
            for part in m.parts
        )

    async def settled(self) -> None:
        """Until what runs in the background has come in."""
        if (asking := self.folding._asking_task) is not None:
            await asyncio.wait([asking])
        if (flying := self.folding._writing_task) is not None:
            await asyncio.wait([flying])
        await self.folding._run_and_record_failure(FoldKind.HANDOVER, self.folding.adopt_ready_fold)

    async def reopened(self) -> Keeping:
        """The same conversation in a program started again."""
        await self.folding.aclose()
        conversation = await Conversation.open(self.conversation.journal, self.conversation.id)
        return _around(conversation, self.cache, self.clock, self.writers, self.tasks)


async def keeping(
    preset: str = "layered",
    *,
    window: int = 20_000,
    answer: Answer = good,
    hangs: bool = False,
    long: bool = False,
    strategies: ListStrategies = no_added_strategies,
    **values: Any,
) -> Keeping:
    """A new conversation in which four characters are a token. `strategies`: those of extensions."""
    clock = SteppedClock()
    journal = MemoryJournal(now=clock.current_time)
    cache = MemoryCache(now=clock.current_time)
    conversation = await Conversation.open(journal, "kept")
    chosen = context_policy.preset_policy(preset).with_thresholds(
        {"handover_cooldown": 0, **values}
    )
    writers = {
        role: Writer(role, answer, hangs) for role in ("main", "fast", *(["long"] if long else []))
    }
    facts: list[Fact] = [
        chosen.to_policy_fact(),
        ModelSet(ModelRole.MAIN, "main", window),
        ModelSet(ModelRole.FAST, "fast", window),
    ]
    if long:
        facts.append(ModelSet(ModelRole.LONG, "long", window * 10))
    await conversation.append_facts(*facts)
    return _around(conversation, cache, clock, writers, OwnedTasks("test"), strategies)


def _around(
    conversation: Conversation,
    cache: MemoryCache,
    clock: SteppedClock,
    writers: dict[str, Writer],
    tasks: OwnedTasks,
    strategies: ListStrategies = no_added_strategies,
) -> Keeping:
    unlimited = TurnLimits, lambda: (0.0, 0.0), AgentsCost
    services = FoldServices(cache, Quarters(), clock, writers.get, tasks.spawn_task, *unlimited)
    folding = ConversationFolding(conversation, services, strategies)
    return Keeping(conversation, folding, cache, clock, writers, tasks)


def inquiry(spent: list[Spent] | None = None) -> ModelInquiry:
    """Asks within no limits, and adds what it cost to a list."""

    async def record(one: Spent) -> None:
        if spent is not None:
            spent.append(one)

    return ModelInquiry(record, lambda: None)
