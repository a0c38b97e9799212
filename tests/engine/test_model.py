"""A conversation, its journal, its cache and its folding together, against random
faults: what must hold at every step.

The faults: models that fail, hang, answer nothing or nonsense; a journal and a cache
that refuse; cancelled commands; a program that ends at any moment and is started again;
a user who undoes, pins, excludes, edits, rewinds and switches models meanwhile.
HELIX_MODEL_STEPS=10000 runs it at full length.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import AsyncIterable, Sequence

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import context_policy, request_building
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    BreakerClosed,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Recorded,
    Rewound,
    Span,
    Stop,
    Stored,
    ToolCall,
    ToolReturned,
    Unfolded,
    Unpinned,
)
from helix_desktop.engine.messages import Request
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.engine.view import build_state
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.errors import HelixError, ModelOverloaded, StoreFull
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryJournal
from tests.engine.agent import SteppedClock
from tests.engine.keeping import (
    Keeping,
    Writer,
    _around,
    good,
    other_language,
    too_long,
    wrong_form,
)
from tests.engine.test_properties import body, without_folds

STEPS = int(os.environ.get("HELIX_MODEL_STEPS", "480"))
SEEDS = range(6)


class ShakyJournal(MemoryJournal):
    """Refuses now and then, before anything is written."""

    def __init__(self, clock: SteppedClock, random: random.Random) -> None:
        super().__init__(now=clock.current_time)
        self.random = random
        self.shaky = True

    async def append_to_journal(
        self, conversation: str, facts: Sequence[Fact]
    ) -> Sequence[Recorded]:
        await asyncio.sleep(0)
        if self.shaky and self.random.random() < 0.02:
            raise StoreFull("The disk is full.")
        return await super().append_to_journal(conversation, facts)


class ShakyCache(MemoryCache):
    """Refuses a put now and then."""

    def __init__(self, clock: SteppedClock, random: random.Random) -> None:
        super().__init__(now=clock.current_time)
        self.random = random
        self.shaky = True

    async def store_content(
        self, content: bytes | AsyncIterable[bytes], about: EntryOrigin
    ) -> Stored:
        await asyncio.sleep(0)
        if self.shaky and self.random.random() < 0.03:
            raise StoreFull("The disk is full.")
        return await super().store_content(content, about)


class Shaken:
    """One run: `step` does something at random, `check` proves what must hold."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        clock = SteppedClock()
        self.journal = ShakyJournal(clock, self.random)
        self.cache = ShakyCache(clock, self.random)
        self.writers = {role: Writer(role, self.answer) for role in ("main", "fast", "long")}
        self.clock = clock
        self.tasks = OwnedTasks("model")
        self.kept: Keeping
        self.markers: dict[str, str] = {}
        self.did: list[str] = []
        self.reached_the_tail = False

    def answer(self, request: Request) -> str:
        kind = self.random.randrange(8)
        if kind == 0:
            raise ModelOverloaded("busy")
        if kind == 1:
            return ""
        return (good, good, good, wrong_form, other_language, too_long)[kind - 2](request)

    async def open(self) -> None:
        conversation = await Conversation.open(self.journal, "shaken")
        if not conversation.state.facts:
            self.journal.shaky = False
            chosen = context_policy.preset_policy("layered").with_thresholds(
                {"handover_cooldown": 30, "summary_wait": 0.02, "panic_wait": 0.02}
            )
            await conversation.append_facts(
                chosen.to_policy_fact(),
                ModelSet(ModelRole.MAIN, "main", 16_000),
                ModelSet(ModelRole.FAST, "fast", 9_000),
            )
            self.journal.shaky = True
        self.kept = _around(conversation, self.cache, self.clock, self.writers, self.tasks)
        conversation.listeners.append(self.tail_is_whole)

    # --- what may happen

    async def step(self) -> None:
        doing = self.random.choices(
            [
                "batch",
                "say",
                "answer",
                "end",
                "fold",
                "undo",
                "mark",
                "edit",
                "rewind",
                "model",
                "preset",
                "crash",
                "cancel",
                "hang",
                "wait",
            ],
            [40, 8, 4, 4, 4, 4, 5, 1, 1, 2, 1, 2, 2, 2, 6],
        )[0]
        self.did.append(doing)
        with contextlib.suppress(HelixError):
            await getattr(self, f"do_{doing}")()

    async def do_batch(self) -> None:
        count = self.random.choice([1, 1, 1, 2, 5])
        size = self.random.choice([5, 200, 900, 3_000, 20_000])
        outputs = [
            f"{self.random.random()} /src/file{index}.py\n" * (size // 10) for index in range(count)
        ]
        arguments = '{"path": "a.py", "text": "' + "x" * self.random.choice([1, 9_000]) + '"}'
        if self.random.random() < 0.05:
            await self.broken_off(outputs)
            return
        await self.kept.batch(outputs, arguments=arguments, ok=self.random.random() < 0.8)

    async def broken_off(self, outputs: Sequence[str]) -> None:
        """A batch of which not every call returned."""
        start = self.kept.conversation.state.seq
        calls = tuple(
            ToolCall(f"b{start}-{index}", "run", "{broken", 5) for index in range(len(outputs) + 1)
        )
        await self.kept.conversation.append_facts(ModelReplied(calls, "main", Stop.CUT))
        stored = await self.cache.store_content(outputs[0].encode(), EntryOrigin("run"))
        await self.kept.conversation.append_facts(
            ToolReturned(calls[0].id, stored, len(outputs[0]) // 4)
        )

    async def do_say(self) -> None:
        text = self.random.choice(["go on", "You must always use tabs.", "x " * 3_000, "看 一下"])
        await self.kept.say(text, steering=self.random.random() < 0.3)

    async def do_answer(self) -> None:
        await self.kept.answer("I have done " + "much " * self.random.choice([1, 300]))

    async def do_end(self) -> None:
        await self.kept.end()

    async def do_fold(self) -> None:
        await asyncio.wait_for(
            self.kept.folding.fold_on_demand(self.random.choice(list(FoldKind))), 60
        )

    async def do_undo(self) -> None:
        folds = self.kept.conversation.state.branch.folds
        if folds:
            name = self.random.choice(list(folds))
            await (
                self.kept.folding.unfold(name)
                if name in self.kept.conversation.state.branch.live
                else self.kept.folding.refold(name)
            )

    async def do_mark(self) -> None:
        seq = self.random.randint(1, self.kept.conversation.state.seq)
        ref = (
            PartRef(seq, self.random.randrange(2))
            if self.random.random() < 0.8
            else Span(max(1, seq - 3), seq)
        )
        made: list[Fact] = [Pinned(ref), Unpinned(ref), Unpinned(ref), Excluded(ref), Included(ref)]
        await self.kept.conversation.append_facts(self.random.choice(made))

    async def do_edit(self) -> None:
        spans = [
            fold for fold in self.kept.conversation.state.live_folds if isinstance(fold.cover, Span)
        ]
        if spans:
            await self.kept.conversation.append_facts(
                DocumentEdited(spans[-1].fold, "my own words", 3)
            )

    async def do_rewind(self) -> None:
        last = self.kept.conversation.state.seq
        await self.kept.conversation.append_facts(
            Rewound(self.random.randint(max(0, last - 60), last))
        )

    async def do_model(self) -> None:
        await self.kept.conversation.append_facts(
            ModelSet(ModelRole.MAIN, "main", self.random.choice([10_000, 16_000, 60_000]))
        )
        await self.kept.conversation.append_facts(BreakerClosed(FoldKind.HANDOVER))

    async def do_preset(self) -> None:
        chosen = context_policy.preset_policy(
            self.random.choice(["helix", "observational", "layered", "layered"])
        )
        values = {
            "handover_cooldown": 30,
            "summary_wait": 0.02,
            "panic_wait": 0.02,
            "admission_wait": 0.02,
        }
        await self.kept.conversation.append_facts(chosen.with_thresholds(values).to_policy_fact())

    async def do_crash(self) -> None:
        """The program ends in the middle of what it is doing, and is started again."""
        task = asyncio.ensure_future(self.kept.batch(["lost " * 2_000]))  # noqa: TID251  # a task to be killed
        for _ in range(self.random.randrange(12)):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        with contextlib.suppress(HelixError, asyncio.CancelledError):
            task.result()
        await self.kept.folding.aclose()
        before = self.kept.conversation.current_view()
        await self.open()
        assert self.kept.conversation.current_view() == before

    async def do_cancel(self) -> None:
        self.kept.folding.cancel_fold_in_work()

    async def do_hang(self) -> None:
        writer = self.random.choice(list(self.writers.values()))
        writer.hangs = not writer.hangs

    async def do_wait(self) -> None:
        self.clock.time += self.random.choice([1, 100, 1_000])
        await self.kept.settled()

    # --- what must hold

    async def check(self) -> None:
        state = self.kept.conversation.state
        assert len(await self.journal.read_facts("shaken")) == len(state.facts)
        view = state.get_view()
        request = request_building.build_request(
            view, await ViewContents(self.cache).read_view_contents(view)
        )
        assert request_building.find_violations(request) == []
        assert request_building.MISSING not in str(request)
        for block in view.blocks:
            for stored in block.cached:
                assert await self.cache.read_content(stored.digest)
            if block.fold and state.branch.folds[block.fold].kind is FoldKind.MARKER:
                shown = repr(block.content)
                assert self.markers.setdefault(block.fold, shown) == shown

    def tail_is_whole(self, event: Event) -> None:
        """A fold covers nothing of the tail, but in panic and on arrival."""
        fold = event.recorded.fact if isinstance(event, FactAppended) else None
        if isinstance(fold, Folded) and not fold.panic and fold.kind is not FoldKind.EXCERPT:
            branch = self.kept.conversation.state.branch
            tail = self.kept.conversation.policy.tail_steps
            last = fold.cover.seq if isinstance(fold.cover, PartRef) else fold.cover.last
            self.reached_the_tail |= last >= (
                max(
                    [branch.turn.before, *branch.steps[-tail:][:1]]
                    if len(branch.steps) >= tail
                    else [branch.turn.before]
                )
                if branch.turn.running
                else branch.turn.first_seq
            )

    async def fits(self) -> None:
        """With stores that work the next request always fits, unless what is pinned is
        too long by itself.
        """
        self.journal.shaky = self.cache.shaky = False
        await self.kept.folding.apply_due_folds()
        self.journal.shaky = self.cache.shaky = True
        said = [
            fact for fact in self.kept.failures() if "everything that can be shortened" in fact.why
        ]
        assert self.kept.conversation.current_meter().request_fits or said


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens(seed: int) -> None:
    print(f"seed {seed}")  # noqa: T201  # what a failure is repeated with
    shaken = Shaken(seed)
    await shaken.open()
    await shaken.kept.say(
        "Begin. You must never lose this sentence."
    ) if seed % 2 else await shaken.do_end()
    for number in range(STEPS // len(SEEDS)):
        await shaken.step()
        await shaken.check()
        assert not shaken.reached_the_tail, shaken.did[-9:]
        if number % 10 == 0:
            await shaken.fits()
            await shaken.check()
            assert (
                list(await shaken.journal.read_facts("shaken"))
                == shaken.kept.conversation.state.facts
            )
    facts = shaken.kept.conversation.state.facts
    state = build_state(facts)
    for fold in reversed(state.live_folds):
        state.advance_state(Recorded("shaken", state.seq + 1, 0.0, Unfolded(fold.fold)))
    assert body(state.get_view()) == body(without_folds(state.facts).get_view())
    assert len(shaken.kept.folds()) > 10
    await shaken.kept.folding.aclose()
