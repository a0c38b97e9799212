"""Writing the document of a fold over a span: the middle one of the three phases, unlocked, rung by rung.

Fast model → model with a long window → in pieces → truncation. A rung that fails, hangs, answers nothing or too little
is left for the next one; what a model wrote is never rejected beyond that: it is cut, filled up and completed with the
details it left out.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from helix_desktop.engine import details, details_entry, laws, transcript
from helix_desktop.engine.ask_model import Asking, plain_request, with_question
from helix_desktop.engine.blocks import Request, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.details import Detail, Source
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    Included,
    ModelRole,
    Pinned,
    Purpose,
    Refolded,
    Span,
    Spent,
    Unfolded,
    Unpinned,
)
from helix_desktop.engine.history.branch import Branch
from helix_desktop.engine.history.covers import overlap
from helix_desktop.engine.history.shown import Item
from helix_desktop.engine.policy import Policy
from helix_desktop.engine.ports import About, Cache, Clock, ModelClient, Tokens
from helix_desktop.engine.strategies import handover, truncation
from helix_desktop.engine.strategies.document import Document, Making, document
from helix_desktop.engine.strategies.plan import Plan, Situation
from helix_desktop.engine.strategies.registry import STRATEGIES
from helix_desktop.engine.transcript import Passage
from helix_desktop.engine.view import State
from helix_desktop.errors import CacheCorrupt, HelixError, ModelFailed, NotThere
from helix_desktop.values import dataclass

LARGEST = 6_000  # tokens of a document
WINDOW_SHARE = 8  # and at most this part of the window
FRAME = 260  # tokens of a document's header and headings
ANSWER = 4_000  # tokens a writer may put out, and at most a quarter of its window
SMALLEST = 400  # tokens below which a document cannot say anything
STRETCH = 0.002  # seconds of the processor between two pauses
ENTRY = "details of a conversation"

Models = Callable[[ModelRole], ModelClient | None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reading:
    """Phase one: everything the writing needs, read without a pause. `seq`: the newest fact then."""

    plan: Plan
    situation: Situation
    branch: Branch
    items: tuple[Item, ...]
    view: View
    seq: int
    shown: int  # tokens of what the span shows now
    kept: int  # of them, what stays behind the document
    todo: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Written:
    """Phase two's result: a fold to append if the covered facts are still the same."""

    fold: Folded
    reading: Reading
    spent: tuple[Spent, ...]


@dataclass(frozen=True, slots=True)
class Rung:
    """One way of getting the text. `role`: whose window counts."""

    name: str
    client: ModelClient
    role: ModelRole
    way: str  # prefix, transcript or pieces


class NothingWritten(ModelFailed):
    """No rung came to a document that saves anything; `spent` is what trying cost."""

    def __init__(self, what: str, *, spent: Sequence[Spent] = ()) -> None:
        super().__init__(what)
        self.spent = tuple(spent)


def spent_on(error: HelixError) -> tuple[Spent, ...]:
    """What an attempt that failed has cost."""
    return error.spent if isinstance(error, NothingWritten) else ()


def read(plan: Plan, situation: Situation) -> Reading:
    """Take down what the span shows. No await in here: nothing can change meanwhile."""
    branch = situation.branch
    items = tuple(branch.visible(plan.span))
    kept = branch.kept_tokens(plan.span, panic=plan.panic)
    shown = sum(item.tokens for item in items)
    view = situation.state.view()
    return Reading(plan, situation, branch, items, view, situation.state.last_seq, shown, kept, branch.todo)


def still_same(reading: Reading, state: State) -> bool:
    """Whether the covered facts are shown as they were when they were read, but for markers made meanwhile."""
    if state.branch is not reading.branch or not reading.branch.may_nest(reading.plan.span):
        return False
    return not any(_touches(recorded.fact, reading) for recorded in state.facts[reading.seq :])


def _touches(fact: Fact, reading: Reading) -> bool:
    """Whether a later fact changes what the document should have said."""
    match fact:
        case Pinned(ref=cover) | Unpinned(ref=cover) | Excluded(ref=cover) | Included(ref=cover):
            return overlap(cover, reading.plan.span)
        case Unfolded(fold=name) | Refolded(fold=name) | DocumentEdited(fold=name):
            return name in reading.branch.folds and overlap(reading.branch.folds[name].cover, reading.plan.span)
        case Folded(cover=Span() as cover):
            return overlap(cover, reading.plan.span)
        case Forgotten():
            return True
    return False


@dataclass(slots=True)
class Writer:
    """Writes documents for one conversation."""

    conversation: Conversation
    cache: Cache
    tokens: Tokens
    clock: Clock
    models: Models
    contents: Contents
    heard_at: float = math.inf  # by the loop's clock: when a model was asked, or last gave a sign of writing

    async def write(self, reading: Reading, fold: str, seconds: float) -> Written:
        """The fold, by the first rung that works. NothingWritten where none does."""
        self.heard_at = math.inf
        limit = self._limit(reading)
        started, spent = self.clock.now(), list[Spent]()
        if too_little := self.too_little(reading):
            raise NothingWritten(too_little)
        found, entry = await self._details(reading)
        making = Making(
            reading.plan,
            fold,
            reading.branch.handovers + 1,
            found,
            entry,
            reading.situation.policy.critical_tokens,
            limit,
        )
        failures = []
        dated = STRATEGIES[reading.plan.kind].dated
        passages = await transcript.passages(reading.branch, reading.plan.span, self.cache, dated=dated)
        for rung in self._rungs(reading):
            try:
                text = await self._text(rung, reading, passages, Asking(spent.append, self._heard), seconds)
                answer = _answer(reading.situation, rung.role)
                made = await self._document(rung, making, text, answer, Asking(spent.append, self._heard), seconds)
            except ModelFailed as error:
                failures.append(f"{rung.name}: {error.what}")
                continue
            except asyncio.CancelledError:
                with suppress(HelixError):
                    await self.conversation.append(*spent)
                raise
            if made.tokens <= limit + FRAME:
                folded = self._folded(reading, making, made, rung.client.model, self.clock.now() - started)
                return Written(folded, reading, tuple(spent))
            failures.append(f"{rung.name}: the text was too long")
        raise NothingWritten("; ".join(failures) or "No model is available to write it.", spent=spent)

    def too_little(self, reading: Reading) -> str:
        """Why a document would not be shorter than what it stands for; empty where it can be."""
        if self._limit(reading) >= SMALLEST:
            return ""
        return f"Folding {reading.shown:,} tokens would not save a tenth of them."

    async def wait_for(self, work: asyncio.Task[T], policy: Policy, seconds: float) -> str:
        """Wait for something this writer is at, as long as a turn does. Why it is not waited for any more; or nothing."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while not work.done():
            left = begun + seconds - loop.time()
            quiet = max(begun, self.heard_at) + policy.panic_silence - loop.time()  # without end until one is asked
            if left <= 0:
                return f"nothing was written within {seconds:.0f} seconds"
            if quiet <= 0:
                return f"there was no response for {policy.panic_silence:g} seconds"
            await asyncio.wait([work], timeout=min(left, quiet, policy.panic_silence))
        return ""

    def _heard(self) -> None:
        self.heard_at = asyncio.get_running_loop().time()

    def let_go(self) -> None:
        """Keep nothing of what was read and written: some of it may have been forgotten."""
        self.contents.clear()

    async def truncate(self, reading: Reading, fold: str) -> Written:
        """The last rung: no model, and no more words than leave the next request its room."""
        limit = max(min(self._limit(reading), _room_left(reading)), SMALLEST)
        found, entry = await self._details(reading)
        critical = min(reading.situation.policy.critical_tokens, limit // 2)
        making = Making(reading.plan, fold, 0, found, entry, critical, limit)
        made = await asyncio.to_thread(document, making, truncation.body(found, reading.todo), self.tokens)
        return Written(self._folded(reading, making, made, "", 0.0), reading, ())

    # --- what it is made of -----------------------------------------------------------------------------------------

    def _limit(self, reading: Reading) -> int:
        """The tokens the document's words may take so that the fold makes progress."""
        policy, window = reading.situation.policy, reading.situation.meter.window
        progress = int(reading.shown * (1 - policy.progress)) - reading.kept - FRAME
        return min(progress, LARGEST, max(window // WINDOW_SHARE, SMALLEST))

    async def _details(self, reading: Reading) -> tuple[list[Detail], Digest]:
        """All that must not be lost, inherited and fresh, and the entry it stands in."""
        before: list[Detail] = []
        seqs: list[int] = []
        for item in reading.items:
            entry = await self._entry(reading.branch, item)
            if entry is None:
                seqs.extend(reading.branch.covered_by(item))
            else:
                before += entry
        sources = await transcript.sources(reading.branch, seqs, self.cache)
        stored = list(transcript.hashes(reading.branch, seqs))
        found, text = await asyncio.to_thread(_gathered, before, sources, stored, reading.todo)
        kept = await self.cache.put(text.encode("utf-8", "replace"), About("handover", ENTRY))
        return found, kept.digest

    async def _entry(self, branch: Branch, item: Item) -> Sequence[Detail] | None:
        """The details of the document that stands there; None for messages, and where the entry is gone."""
        fold = branch.folds.get(item.fold)
        if fold is None or not fold.entries:
            return None
        try:
            text = (await self.cache.get(fold.entries[0])).decode("utf-8", "replace")
        except (NotThere, CacheCorrupt):
            return None
        return await asyncio.to_thread(details_entry.parse, text)

    def _folded(self, reading: Reading, making: Making, made: Document, model: str, seconds: float) -> Folded:
        plan = reading.plan
        return Folded(
            fold=making.fold,
            kind=plan.kind,
            cover=plan.span,
            text=made.text,
            tokens=made.tokens,
            tokens_before=reading.shown,
            batch=making.fold,
            entries=(making.entry,),
            details=made.kept,
            number=making.number if plan.kind is FoldKind.HANDOVER else 0,
            model=model,
            seconds=seconds,
            why=plan.why,
            asked=plan.wish,
            panic=plan.panic,
        )

    # --- the rungs --------------------------------------------------------------------------------------------------

    def _rungs(self, reading: Reading) -> Iterator[Rung]:
        """The ways to try, the one the policy wants first; where a role has no model the main one takes its place."""
        main, fast, long = (self.models(role) for role in ModelRole)
        by_main = STRATEGIES[reading.plan.kind].main_writes(reading.situation, reading.plan.span)
        if main is not None and by_main and not reading.plan.panic:
            yield Rung(f"{main.model} over its own context", main, ModelRole.MAIN, "prefix")
        quick = fast or main
        if quick is not None:
            yield Rung(quick.model, quick, ModelRole.FAST if fast else ModelRole.MAIN, "transcript")
        if long is not None and (quick is None or long.model != quick.model):
            yield Rung(f"{long.model} with its long window", long, ModelRole.LONG, "transcript")
        if quick is not None:
            yield Rung(f"{quick.model} in pieces", quick, ModelRole.FAST if fast else ModelRole.MAIN, "pieces")
        if main is not None and quick is not None and main.model != quick.model:
            yield Rung(main.model, main, ModelRole.MAIN, "transcript")

    async def _text(
        self, rung: Rung, reading: Reading, passages: Sequence[Passage], asking: Asking, seconds: float
    ) -> str:
        question = self._question(reading)
        answer = min(_answer(reading.situation, rung.role), self._limit(reading) * 3 // 2)
        purpose = Purpose(reading.plan.kind.value)
        room = self._room(reading.situation, rung.role)
        if rung.way == "prefix":
            request = with_question(await self._request(reading.view), question, purpose, answer)
            text = _said(await asking.text(rung.client, request, seconds))
            if not handover.in_form(text) and self.tokens.count(text) < SMALLEST:
                raise ModelFailed("The response was not a valid document.")  # it went on with the work
            return text
        pieces = list(_pieces(passages, room if rung.way == "transcript" else min(room, room // 2 + 1)))
        if rung.way == "transcript" and len(pieces) > 1:
            raise ModelFailed(f"The messages to fold don't fit in the window of {rung.client.model}.")
        text = ""
        for piece in pieces:
            material = f"The document so far:\n{text}\n\nWhat came after it:\n{piece}" if text else piece
            text = _said(await asking.text(rung.client, plain_request(material, question, purpose, answer), seconds))
            text = self._first(text[: ANSWER * 8], room // 2)
        return text

    def _first(self, text: str, limit: int) -> str:
        """As much of the text's beginning as takes so many tokens, about."""
        count = self.tokens.count(text)
        return text if count <= limit else text[: len(text) * limit // count]

    def _question(self, reading: Reading) -> str:
        tail = reading.situation.policy.tail_steps
        return STRATEGIES[reading.plan.kind].question(reading.plan, self._limit(reading), tail)

    async def _document(
        self, rung: Rung, making: Making, text: str, answer: int, asking: Asking, seconds: float
    ) -> Document:
        """The text in its form. Sections that are missing are asked for once, then filled from the details."""
        if not STRATEGIES[making.plan.kind].sections:
            return await asyncio.to_thread(document, making, {"": text}, self.tokens)
        found = handover.sections(text)
        lacking = handover.lacking(found)
        if lacking:
            request = plain_request(text, handover.question_for(lacking), Purpose(making.plan.kind.value), answer)
            try:
                more = handover.sections(await asking.text(rung.client, request, seconds))
            except ModelFailed:
                more = {}
            found = {**found, **{name: said for name, said in more.items() if name in lacking and said}}
        return await asyncio.to_thread(document, making, found, self.tokens)

    async def _request(self, view: View) -> Request:
        return laws.request(view, await self.contents.of(view))

    def _room(self, situation: Situation, role: ModelRole) -> int:
        """Counted tokens of material that fit a role's window, with room for the question and the answer."""
        room = _window(situation, role) - _answer(situation, role) - 600
        return max(1_000, int(room / max(situation.meter.factor, 1.0) * 0.95))


def _window(situation: Situation, role: ModelRole) -> int:
    chosen = situation.state.settings.model(role) or situation.state.settings.model(ModelRole.MAIN)
    return chosen.window if chosen and chosen.window > 0 else situation.policy.window


def _answer(situation: Situation, role: ModelRole) -> int:
    """The tokens a writer of this role may put out."""
    return min(ANSWER, _window(situation, role) // 4)


def _room_left(reading: Reading) -> int:
    """Counted tokens that are free in the window once what the span shows is gone, but for what stays of it."""
    meter, state = reading.situation.meter, reading.situation.state
    free = (meter.window - meter.reserve) / meter.factor
    return int(free) - (state.tokens - reading.shown + reading.kept) - FRAME


def _gathered(
    before: Sequence[Detail], sources: Sequence[Source], stored: Sequence[Detail], todo: Sequence[tuple[str, str]]
) -> tuple[list[Detail], str]:
    """The details of earlier entries and of fresh messages, and the entry they make. Long work: beside the loop."""
    fresh = details.collect(sources, between=_Pauses().between)
    found = details.inherited(before, [*fresh, *stored], todo)
    return found, details_entry.entry(found)


class _Pauses:
    """As long as the work before them took: others wait for the interpreter, and hardly anybody for the details."""

    def __init__(self) -> None:
        self._begun = time.thread_time()

    def between(self) -> None:
        took = time.thread_time() - self._begun
        if took > STRETCH:
            time.sleep(took)
            self._begun = time.thread_time()


def _said(text: str) -> str:
    if not text.strip():
        raise ModelFailed("The answer was empty.")
    return text


def _pieces(passages: Sequence[Passage], room: int) -> Iterator[str]:
    """The transcript in pieces of at most `room` tokens, cut between messages where that can be."""
    held: list[str] = []
    left = room
    for passage in passages:
        for part in _split(passage, room):
            if part.tokens > left and held:
                yield "\n\n".join(held)
                held, left = [], room
            held.append(part.text)
            left -= part.tokens
    if held:
        yield "\n\n".join(held)


def _split(passage: Passage, room: int) -> Iterator[Passage]:
    count = -(-passage.tokens // room)
    if count <= 1:
        yield passage
        return
    size = -(-len(passage.text) // count)
    for start in range(0, len(passage.text), size):
        yield replace(passage, text=passage.text[start : start + size], tokens=passage.tokens // count)
