"""Why a request cost what it did: causes injected one by one and in pairs, with a
provider that bills as Anthropic's does.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Recorded,
    RulesSet,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolSpec,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import Delta, Reply, Request
from helix_desktop.engine.request_changes import Cause, CauseKind
from helix_desktop.engine.request_costs import (
    RequestCost,
    RequestCostReader,
    explain_requests,
    read_original_and_explain_requests,
)
from helix_desktop.errors import NotFound
from helix_desktop.protocols.anthropic.anthropic_client import AnthropicMessages
from helix_desktop.protocols.protocol_dialect import ModelAbilities
from helix_desktop.providers.model_prices import TokenPrices, usage_cost
from tests.engine.agent import ScriptedTools, SteppedClock, World, world
from tests.peers.anthropic_billing import Cache

LIFE = 300.0
MODEL = ModelSet(ModelRole.MAIN, "one", 1_000_000, 0, 3.0, 15.0, 0.3, 3.75, cache_seconds=int(LIFE))
PLAIN = {CauseKind.READ, CauseKind.NEW, CauseKind.REPLY, CauseKind.RULES}
HERE = AnthropicMessages("http://127.0.0.1:1", "peer")


@dataclass
class BillingModel:
    """Answers by a script and bills by the bytes of the request, each model with a
    cache of its own.
    """

    clock: SteppedClock
    script: list[Reply] = field(default_factory=list)
    caches: dict[str, Cache] = field(default_factory=dict)
    paid: list[float] = field(default_factory=list)
    model_name: str = "one"
    is_cached_for_an_hour: bool = False

    async def stream_reply(self, request: Request) -> AsyncIterator[Delta]:
        body: Any = HERE.compile_request(request, ModelAbilities()).body
        cache = self.caches.setdefault(self.model_name, Cache(life=LIFE))
        billed = cache.bill(body, self.clock.time)
        fresh, read, write = billed.values()
        hour = write if self.is_cached_for_an_hour else 0
        usage = Usage(fresh + read + write, read, write, 200, cache_write_hour=hour)
        self.paid.append(
            (fresh * 3.0 + read * 0.3 + write * (6.0 if hour else 3.75) + 200 * 15.0) / 1e6
        )
        reply = self.script.pop(0) if self.script else Reply((Text("done"),), Stop.END)
        yield replace(reply, usage=usage, model=self.model_name)


class ChangingTools(ScriptedTools):
    specs = tuple(
        ToolSpec(name, f"The tool {name}. " * 60, '{"type": "object", "required": []}')
        for name in ("look", "run")
    )

    def offered_specs(self) -> tuple[ToolSpec, ...]:
        return self.specs


@dataclass
class Trial:
    """An agent that has read five long files, and what can happen to it."""

    made: World
    model: BillingModel
    clock: SteppedClock

    @classmethod
    async def start(cls) -> Trial:
        clock = SteppedClock()
        model = BillingModel(clock)
        made = await world(model=model, preset="none")
        made.tools.__class__ = ChangingTools
        made.session.context._services = made.session.turns._services = replace(
            made.session._services, clock=clock
        )
        made.journal._now = clock.current_time
        made.setup = replace(
            made.setup, models=(MODEL,), system=SystemSet("You are tested. " * 300, 900)
        )
        trial = cls(made, model, clock)
        await trial.turn(steps=5)
        return trial

    async def turn(self, steps: int = 1) -> None:
        async def look(call: ToolCall, _: object) -> str:
            return f"line of {call.id} and {self.clock.time}\n" * 200

        self.made.tools.runs["look"] = look
        for step in range(steps):
            call = ToolCall(f"c{len(self.made.facts)}-{step}", "look", "{}")
            self.model.script.append(Reply((Text("I look."), call), Stop.CALLS))
        self.clock.time += 20
        self.made.session.send_message((Text("go on"),))
        await self.made.session.wait_until_idle()

    async def explain(self) -> list[RequestCost]:
        await self.turn()
        return explain_requests(self.made.session.all_facts, lambda _: None)

    # --- what happens

    async def fold(self) -> None:
        facts = self.made.session.all_facts
        seq = [one.seq for one in facts if isinstance(one.fact, ToolReturned)][2]
        before = facts[seq - 1].fact.tokens  # type: ignore[union-attr]
        cover = PartRef(seq)
        await self.made.session.conversation.append_facts(
            Folded("marker-1", FoldKind.MARKER, cover, "[CACHED]", 1, before)
        )

    async def time(self) -> None:
        self.clock.time += 700

    async def tools(self) -> None:
        ChangingTools.specs = tuple(ChangingTools.specs) + (
            ToolSpec("write", "The tool write.", "{}"),
        )

    async def schema(self) -> None:
        first = ChangingTools.specs[0]
        changed = replace(first, description=f"{first.description} It is fast.")
        ChangingTools.specs = (changed,) + tuple(ChangingTools.specs[1:])

    async def system(self) -> None:
        self.made.setup = replace(
            self.made.setup, system=SystemSet("You are tested again. " * 300, 1_200)
        )

    async def rules(self) -> None:
        self.made.setup = replace(self.made.setup, rules=(RulesSet("AGENTS.md", "Be brief.", 2),))

    async def order(self) -> None:
        ChangingTools.specs = ChangingTools.specs[::-1]

    async def keys(self) -> None:
        changed = replace(ChangingTools.specs[0], schema='{"required": [], "type": "object"}')
        ChangingTools.specs = (changed,) + tuple(ChangingTools.specs[1:])

    async def switch(self) -> None:
        self.model.model_name = "two"
        self.made.setup = replace(self.made.setup, models=(replace(MODEL, model="two"),))

    async def edit(self) -> None:
        replies = [
            one.seq for one in self.made.session.all_facts if isinstance(one.fact, ModelReplied)
        ]
        await self.made.session.context.exclude_part(PartRef(replies[1], 0))

    async def thinking(self) -> None:
        self.made.setup = replace(self.made.setup, models=(replace(MODEL, effort="high"),))
        self.model.caches.clear()  # as providers do when thinking is changed

    async def loss(self) -> None:
        self.model.caches.clear()


INJECTED: dict[str, tuple[Callable[[Trial], Awaitable[None]], CauseKind]] = {
    "fold": (Trial.fold, CauseKind.FOLD),
    "time": (Trial.time, CauseKind.TIME),
    "tools": (Trial.tools, CauseKind.TOOLS),
    "schema": (Trial.schema, CauseKind.TOOLS),
    "system": (Trial.system, CauseKind.SYSTEM),
    "rules": (Trial.rules, CauseKind.SYSTEM),
    "order": (Trial.order, CauseKind.ORDER),
    "keys": (Trial.keys, CauseKind.ORDER),
    "switch": (Trial.switch, CauseKind.MODEL),
    "edit": (Trial.edit, CauseKind.EDIT),
    "thinking": (Trial.thinking, CauseKind.MODEL),
    "loss": (Trial.loss, CauseKind.NOT_KEPT),
}
HEAD = {"tools", "schema", "order", "keys", "system", "rules"}


@pytest.fixture(autouse=True)
def _same_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ChangingTools, "specs", ChangingTools.specs)


def named(request: RequestCost) -> set[CauseKind]:
    return {one.cause.kind for one in request.causes}


def check_sums(trial: Trial, requests: list[RequestCost]) -> None:
    assert len(requests) == len(trial.model.paid)
    for request, paid in zip(requests, trial.model.paid, strict=True):
        assert sum(one.tokens for one in request.causes) == request.tokens
        assert request.cost == pytest.approx(paid, abs=1e-9)
        assert sum(one.cost for one in request.causes) == pytest.approx(paid, abs=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        MODEL,
        replace(MODEL, price_cache_read=0, price_cache_write=0),
        replace(MODEL, price_output=0),
    ],
)
def test_every_cause_costs_its_tokens_at_the_models_prices(model: ModelSet) -> None:
    """Where the price of cached tokens was not known, 1,200 tokens at $3 a million were
    said to cost $0.017.
    """
    chance = random.Random(35)
    known = TokenPrices(
        model.price_input, model.price_output, model.price_cache_read, model.price_cache_write
    )
    read_price = model.price_cache_read or model.price_input
    write_price = model.price_cache_write or model.price_input
    for _ in range(200):
        plain, read, write, output = (
            chance.choice([0, chance.randrange(20_000)]) for _ in range(4)
        )
        usage = Usage(plain + read + write, read, write, output)
        paid = usage if chance.random() < 0.5 else replace(usage, cost=usage_cost(usage, known))
        segments = [
            (read, Cause(CauseKind.READ)),
            (write, Cause(CauseKind.NOT_KEPT)),
            (plain, Cause(CauseKind.NEW)),
        ]
        reader = RequestCostReader([], lambda _: None)
        recorded = Recorded("a", 1, 0.0, UserSaid(()))
        request = reader._price_request(
            recorded, "m", paid, [(n, (cause,)) for n, cause in segments], model
        )
        costs = {one.cause.kind: one.cost for one in request.causes}
        assert costs.get(CauseKind.READ, 0) == pytest.approx(read * read_price / 1e6)
        assert costs.get(CauseKind.NOT_KEPT, 0) == pytest.approx(write * write_price / 1e6)
        assert costs.get(CauseKind.NEW, 0) == pytest.approx(plain * model.price_input / 1e6)
        assert sum(costs.values()) == pytest.approx(request.cost)


def can_be_seen(one: str, both: set[str]) -> bool:
    """Whether a cause leaves anything that tells of it beside the other: what was lost
    anyway was not read by anybody.
    """
    other = (both - {one}).pop()
    if one == "loss":
        return other in {"fold", "edit"}
    return not (both <= HEAD and {"tools", "schema", "order", "keys"} >= both)


@pytest.mark.parametrize("name", INJECTED)
async def test_one_cause_is_named_and_nothing_else_is_blamed(name: str) -> None:
    trial = await Trial.start()
    inject, kind = INJECTED[name]
    await inject(trial)
    requests = await trial.explain()
    check_sums(trial, requests)
    first = requests[0]
    usual = requests[1:-2]
    assert named(first) <= {CauseKind.FIRST, CauseKind.REPLY}
    assert set().union(*map(named, usual)) <= PLAIN
    assert kind in named(requests[-2])
    assert named(requests[-2]) <= PLAIN | {kind}
    assert named(requests[-1]) <= PLAIN  # the next step reads what that one wrote
    last = await trial.made.session.context.explain_costs_of_last_turn()
    assert [named(one) for one in last] == [named(one) for one in requests[-2:]]


async def test_another_thinking_time_is_not_blamed_where_the_cache_is_of_the_contents_alone() -> (
    None
):
    trial = await Trial.start()
    trial.model.model_name = "gemini-2.5-flash"
    at_google = replace(MODEL, model=trial.model.model_name)
    trial.made.setup = replace(trial.made.setup, models=(at_google,))
    await trial.turn()
    await trial.loss()
    trial.made.setup = replace(trial.made.setup, models=(replace(at_google, effort="high"),))
    requests = await trial.explain()
    check_sums(trial, requests)
    assert named(requests[-2]) <= PLAIN | {CauseKind.NOT_KEPT}
    assert CauseKind.NOT_KEPT in named(requests[-2])


async def test_two_causes_at_once_are_both_named() -> None:
    right = wrong = missed = 0
    for one, other in itertools.combinations(INJECTED, 2):
        both = {one, other}
        if both == {"switch", "thinking"}:
            continue
        ChangingTools.specs = ChangingTools.specs[:2]
        kept = ChangingTools.specs
        trial = await Trial.start()
        for name in (one, other):
            await INJECTED[name][0](trial)
        requests = await trial.explain()
        ChangingTools.specs = kept
        check_sums(trial, requests)
        found = named(requests[-2]) - PLAIN
        wanted = {INJECTED[name][1] for name in both if can_be_seen(name, both)}
        allowed = {INJECTED[name][1] for name in both}
        wrong += len(found - allowed)
        if wanted <= found:
            right += 1
        else:
            missed += 1
    assert wrong == 0
    assert right >= 0.95 * (right + missed)


async def test_a_model_that_is_switched_back_to_reads_what_it_has_and_the_rest_is_of_the_switch() -> (
    None
):
    trial = await Trial.start()
    await trial.switch()
    await trial.turn(steps=2)
    trial.model.model_name = "one"
    trial.made.setup = replace(trial.made.setup, models=(MODEL,))
    requests = await trial.explain()
    check_sums(trial, requests)
    back = requests[-2]
    assert named(back) <= PLAIN | {CauseKind.MODEL}
    assert {"model switched: from two"} == {
        one.cause.describe_cause() for one in back.causes if one.cause.kind is CauseKind.MODEL
    }
    assert (
        sum(one.tokens for one in back.causes if one.cause.kind is CauseKind.READ) > back.tokens / 2
    )
    assert named(requests[-1]) <= PLAIN


async def test_after_a_switch_only_what_changed_with_it_is_blamed() -> None:
    trial = await Trial.start()
    await trial.switch()
    await trial.turn()
    trial.model.model_name = "one"
    trial.made.setup = replace(trial.made.setup, models=(MODEL,))
    await trial.system()
    await trial.turn()
    await trial.switch()
    requests = await trial.explain()
    check_sums(trial, requests)
    assert named(requests[-2]) <= PLAIN | {CauseKind.MODEL}


async def test_which_fold_how_long_and_which_bytes_are_told() -> None:
    for inject, words in (
        (Trial.fold, "fold: marker-1"),
        (Trial.time, "time ran out: 12 min"),
        (Trial.tools, "tools changed: +write"),
        (Trial.system, "system prompt changed: bytes 14 to"),
        (Trial.switch, "model switched: from one"),
    ):
        trial = await Trial.start()
        await inject(trial)
        request = (await trial.explain())[-2]
        assert any(one.cause.describe_cause().startswith(words) for one in request.causes), words


async def test_a_fold_that_is_made_when_the_cache_is_cold_is_not_blamed() -> None:
    trial = await Trial.start()
    await trial.time()
    await trial.fold()
    assert CauseKind.FOLD not in named((await trial.explain())[-2])


async def test_what_an_agent_keeps_for_an_hour_costs_more_and_is_not_over_after_five_minutes() -> (
    None
):
    trial = await Trial.start()
    trial.model.is_cached_for_an_hour = True
    trial.model.caches["one"].life = 3_600.0
    await trial.turn()
    await trial.time()
    await trial.loss()
    lost = (await trial.explain())[-2]
    assert {CauseKind.NOT_KEPT} <= named(lost) <= PLAIN | {CauseKind.NOT_KEPT}
    trial.clock.time += 3_700
    requests = await trial.explain()
    check_sums(trial, requests)
    assert {CauseKind.TIME} <= named(requests[-2]) <= PLAIN | {CauseKind.TIME}


async def test_what_could_have_been_avoided_comes_dearest_first() -> None:
    trial = await Trial.start()
    await trial.system()
    found = (await trial.explain())[-2].avoidable_causes()
    assert [one.cause.kind for one in found] == [CauseKind.SYSTEM]
    assert found[0].cost > 0.01
    await asyncio.sleep(0)


@pytest.mark.parametrize("name", ["switch", "tools", "rules", "system", "thinking"])
async def test_a_choice_that_is_not_sent_yet_tells_what_it_would_write_again(name: str) -> None:
    trial = await Trial.start()
    session = trial.made.session
    session.preview_setup(trial.made.setup)
    assert session.context.pending_rewrite() is None
    before = session.context.next_message_cost()
    await INJECTED[name][0](trial)
    session.preview_setup(trial.made.setup)
    pending = session.context.pending_rewrite()
    after = session.context.next_message_cost()
    assert pending is not None
    assert before is not None
    assert after is not None
    assert pending.is_model == (name in ("switch", "thinking"))
    assert pending.dollars == pytest.approx(pending.tokens * 3.75 / 1e6)
    assert after.warm > before.warm + 0.5 * pending.dollars  # the price beside Send says so too
    await trial.turn()
    causes = [cause for one in await trial.explain() for cause in one.avoidable_causes()]
    paid_again = sum(cause.cost for cause in causes)
    if name == "thinking":  # This provider drops the system prompt and the tools, too.
        assert paid_again > pending.dollars
    else:
        assert paid_again == pytest.approx(pending.dollars, rel=0.06), "it is the sum said after it"
    trial.clock.time += LIFE + 1
    assert session.context.pending_rewrite() is None  # it is cold in any case


@pytest.mark.parametrize(("beside", "kind"), [(7_000, CauseKind.EDIT), (20, CauseKind.UNKNOWN)])
def test_a_recording_in_which_two_requests_at_once_are_joined_says_so(
    beside: int, kind: CauseKind
) -> None:
    said: list[Fact] = []
    for words, whole, read in (
        (100, 20_000, 0),
        (100, 20_300, 20_000),
        (beside, 20_500 + beside, 20_300),
        (100, 20_420, 20_300),  # It has nothing of the one before if that was larger.
        (100, 29_000, 6_000),
    ):
        usage = Usage(whole, read, whole - read, 50)
        said += [
            UserSaid((Text("Go on.", words),)),
            ModelReplied((Text("So.", 50),), "one", Stop.END, usage),
        ]
    said.append(BroughtIn(Origin("claude-code", "s"), "run", first=1))
    requests = explain_requests(
        [Recorded("c", at, 10.0 * at, one) for at, one in enumerate(said, 1)], lambda _: MODEL
    )
    assert [named(one) & {CauseKind.EDIT, CauseKind.UNKNOWN} for one in requests] == [
        set(),
        set(),
        set(),
        set(),
        {kind},
    ]


def _said_and_answered(words: str, whole: int, read: int) -> list[Fact]:
    usage = Usage(whole, read, whole - read, 50)
    return [
        UserSaid((Text(words, 100),)),
        ModelReplied((Text("So.", 50),), "one", Stop.END, usage),
    ]


def _recorded_in(conversation: str, facts: list[Fact]) -> list[Recorded]:
    return [Recorded(conversation, seq, 10.0 * seq, fact) for seq, fact in enumerate(facts, 1)]


async def test_of_a_fork_its_own_requests_are_explained_by_what_the_original_sent_last() -> None:
    beginning = _said_and_answered("Begin.", 20_000, 0)
    original = _recorded_in("original", beginning + _said_and_answered("Go on.", 20_300, 20_000))
    start = ConversationStarted(forked_from="original", forked_at=2)
    fork = _recorded_in("fork", [*beginning, start, *_said_and_answered("Else.", 20_400, 20_000)])
    asked: list[str] = []

    async def read_facts(conversation: str) -> list[Recorded]:
        asked.append(conversation)
        return original

    async def find_nothing(conversation: str) -> list[Recorded]:
        raise NotFound(f"There is no conversation {conversation}.")

    def prices(_model: str) -> ModelSet | None:
        return MODEL

    explained = await read_original_and_explain_requests(fork, prices, read_facts)
    assert asked == ["original"]
    assert [request.seq for request in explained] == [5]
    assert explained == explain_requests(fork, prices, original)
    alone = explain_requests(fork, prices)
    assert [request.seq for request in alone] == [5]
    for cannot_read in (None, find_nothing):
        assert await read_original_and_explain_requests(fork, prices, cannot_read) == alone
    # What is no fork asks nobody for another conversation.
    await read_original_and_explain_requests(original, prices, read_facts)
    assert asked == ["original"]
