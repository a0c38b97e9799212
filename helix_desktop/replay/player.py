"""Plays one recorded session through the real engine: conversation, steward, strategies and laws.

What a person and a model said and what tools returned comes from the recording; what the folds say comes from a
stand-in. One request is made before every recorded reply, ten seconds after the step before.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from helix_desktop.engine import laws
from helix_desktop.engine.blocks import Request
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    ModelRole,
    ModelSet,
    Reasoning,
    ReplyPart,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.policy import Policy
from helix_desktop.engine.ports import About, Cache, Index, Journal, ModelClient, Tokens
from helix_desktop.engine.steward import Steward
from helix_desktop.histories.recording import RecordedMessage, Recording
from helix_desktop.replay.billing import SYSTEM_TOKENS, Ledger, Piece, output_tokens, pieces_of, unmanaged
from helix_desktop.replay.clock import LoopClock
from helix_desktop.replay.counting import Counting
from helix_desktop.replay.figures import Figures
from helix_desktop.replay.observer import Watching
from helix_desktop.replay.standin import Asked, StandIn

T = TypeVar("T")
PAUSE = 10.0  # seconds between steps
HEAD = 2_000
MAIN, FAST = "recorded", "stand-in"
SYSTEM = "You are the agent of a recorded session."


@dataclass(frozen=True, slots=True)
class Terms:
    """What a replay is about besides the session."""

    policy: Policy
    window: int = 128_000
    prices: Prices = Prices(0.1, 1.25, 5.0)
    stand_in: str = "works"


@dataclass(frozen=True, slots=True)
class Stores:
    """Where one replayed conversation lives: the ports in memory, or real ones."""

    journal: Journal
    cache: Cache
    index: Index


class Player:
    """One session under one policy. `play` returns its figures."""

    def __init__(self, recording: Recording, terms: Terms, stores: Stores, tokens: Tokens) -> None:
        self._recording = recording
        self._terms = terms
        self._stores = stores
        self._tokens = Counting(tokens)
        said = [message.text for message in recording.messages if message.role == "system"]
        self._system_text = "\n\n".join([SYSTEM, *said])
        self._system_tokens = SYSTEM_TOKENS + sum(self._tokens.count(text) for text in said)
        self._ledger = Ledger(terms.prices, terms.window)
        self._contents = Contents(stores.cache)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waited = 0.0
        self._waited_now = 0.0
        self._longest_admission = 0.0
        self._repeats = 0
        self._reads: dict[tuple[str, str, bytes], int] = {}
        self._calls: dict[str, tuple[str, str]] = {}

    async def play(self, moved: Callable[[int], None] = lambda _: None) -> Figures:
        """The whole session. `moved` is told of every message, for a progress bar."""
        self._conversation = await Conversation.open(self._stores.journal, "replay")
        self._watching = Watching(self._conversation, self._stores.cache, (MAIN, FAST))
        self._steward = self._new_steward()
        await self._conversation.append(*self._setup())
        try:
            await self._play_all(moved)
            await self._steward.aclose()
            return await self._figures()
        finally:
            for task in list(self._tasks):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _new_steward(self) -> Steward:
        clients: dict[ModelRole, ModelClient] = {
            ModelRole.MAIN: StandIn(MAIN, self._terms.stand_in, self._tokens, self._aside, self._fits),
            ModelRole.FAST: StandIn(FAST, self._terms.stand_in, self._tokens, self._aside, self._fits),
        }
        return Steward(
            self._conversation,
            cache=self._stores.cache,
            index=self._stores.index,
            tokens=self._tokens,
            clock=LoopClock(),
            models=clients.get,
            spawn=self._spawn,
        )

    def _spawn(self, coroutine: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(coroutine, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _setup(self) -> list[Fact]:
        return [
            SystemSet(self._system_text, self._system_tokens),
            ToolsOffered((), 0),
            self._terms.policy.to_fact(),
            self._model(ModelRole.MAIN, MAIN),
            self._model(ModelRole.FAST, FAST),
        ]

    def _model(self, role: ModelRole, name: str) -> ModelSet:
        price = self._terms.prices
        return ModelSet(role, name, self._terms.window, 0, 1.0, price.output, price.read, price.write)

    # --- message after message

    async def _play_all(self, moved: Callable[[int], None]) -> None:
        batch: list[RecordedMessage] = []
        for number, message in enumerate(self._recording.messages, 1):
            if batch and message.role != "tool":
                await self._outputs(batch)
                batch = []
            if message.role == "user":
                await self._said(message)
            elif message.role == "assistant":
                await self._replied(message)
            elif message.role == "tool":
                batch.append(message)
            self._watching.heard(message, self._tokens.count(message.text))
            moved(number)
        if batch:
            await self._outputs(batch)
        await self._end_turn()

    async def _said(self, message: RecordedMessage) -> None:
        await self._end_turn()
        text = message.text or "(nothing)"
        said = UserSaid((Text(text, self._tokens.count(text)),))
        await self._conversation.append(*await self._steward.admit_message(said))

    async def _end_turn(self) -> None:
        """A turn whose last reply called something was interrupted."""
        if not self._conversation.state.branch.turn.running or not self._conversation.state.branch.steps:
            return
        last = self._conversation.fact(self._conversation.state.branch.steps[-1])
        calls = isinstance(last, ModelReplied) and last.stop is Stop.CALLS
        await self._conversation.append(TurnEnded(TurnEnd.STOPPED if calls else TurnEnd.DONE))
        self._waited = max(self._waited, self._waited_now)
        self._waited_now = 0.0
        self._steward.after_turn()

    async def _replied(self, message: RecordedMessage) -> None:
        await asyncio.sleep(PAUSE)
        await self._timed(self._steward.before_step())
        saw = self._conversation.state.last_seq
        view = self._conversation.view()
        request = laws.request(view, await self._contents.of(view))
        await self._watching.step(view, request, message)
        usage = self._ledger.step(self._pieces(request), output_tokens(message, self._tokens.count))
        await self._conversation.append(self._reply(message, usage, saw))

    def _reply(self, message: RecordedMessage, usage: Usage, saw: int) -> ModelReplied:
        parts: list[ReplyPart] = []
        if message.reasoning:
            parts.append(Reasoning(message.reasoning, self._tokens.count(message.reasoning)))
        if message.text:
            parts.append(Text(message.text, self._tokens.count(message.text)))
        for call in message.calls:
            self._calls[call.id] = (call.name, call.arguments)
            tokens = self._tokens.count(call.name) + self._tokens.count(call.arguments)
            parts.append(ToolCall(call.id, call.name, call.arguments, tokens))
        return ModelReplied(tuple(parts), MAIN, Stop.CALLS if message.calls else Stop.END, usage, saw)

    async def _outputs(self, batch: Sequence[RecordedMessage]) -> None:
        """What the last reply's calls returned. What answers no call stands behind it, so that nothing is left out."""
        waiting = [call.id for call in self._conversation.state.branch.running_calls]
        returned, stray = [], []
        for message in batch:
            if message.answers in waiting:
                waiting.remove(message.answers)
                returned.append(await self._returned(message))
            else:
                stray.append(message)
        if returned:
            await self._admitted(returned)
        for message in stray:
            text = f"[An output that answers no call]\n{message.text}"
            said = UserSaid((Text(text, self._tokens.count(text)),), steering=True)
            await self._conversation.append(*await self._steward.admit_message(said))

    async def _admitted(self, returned: Sequence[ToolReturned]) -> None:
        before = self._waited_now
        folds = await self._timed(self._steward.admit(returned, {}))
        self._longest_admission = max(self._longest_admission, self._waited_now - before)
        await self._conversation.append(*returned, *folds)

    async def _returned(self, message: RecordedMessage) -> ToolReturned:
        name, arguments = self._calls.get(message.answers, ("tool", ""))
        stored = await self._stores.cache.put(
            message.text.encode("utf-8", "surrogatepass"), About(name, arguments[:200])
        )
        self._watching.put(stored, message.text)
        key = (name, arguments, stored.digest.raw)
        before = self._conversation.state.last_return_of(stored.digest) if key in self._reads else 0
        self._repeats += before > 0
        self._reads[key] = self._reads.get(key, 0) + 1
        return ToolReturned(
            call=message.answers,
            output=stored,
            tokens=self._tokens.count(message.text),
            ok=message.ok,
            head=message.text if len(message.text) <= HEAD else "",
            repeat_of=before,
        )

    async def _timed(self, work: Awaitable[T]) -> T:
        """What a turn waits for; background work costs it nothing."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        found = await work
        self._waited_now += loop.time() - begun
        return found

    def _aside(self, asked: Asked) -> None:
        pieces = self._pieces(asked.request)
        if asked.client == MAIN:
            self._ledger.cached(pieces, asked.output)
        else:
            self._ledger.aside(pieces, asked.output)

    def _fits(self, request: Request) -> bool:
        return sum(tokens for _, tokens in self._pieces(request)) <= self._terms.window

    def _pieces(self, request: Request) -> Sequence[Piece]:
        own = request.system == self._system_text
        system = self._system_tokens if own else self._tokens.count(request.system)
        return pieces_of(request, system, self._tokens.count)

    # --- the end

    async def _figures(self) -> Figures:
        plain = unmanaged(self._recording.messages, self._terms.prices, self._terms.window, self._tokens.count)
        self._waited = max(self._waited, self._waited_now)
        watched = await self._watching.closed()
        folds = Counter(str(fold.kind) for fold in watched.folds)
        return Figures(
            name=self._recording.name,
            window=self._terms.window,
            steps=tuple(self._ledger.steps),
            sent=self._ledger.sent,
            billed=round(self._ledger.billed),
            cache_read=self._ledger.cache_read,
            peak=self._ledger.peak,
            overflowed=int(self._ledger.overflowed > 0),
            plain_sent=plain.sent,
            plain_billed=round(plain.billed),
            illegal_requests=watched.illegal,
            folds=folds,
            recalls=watched.recalls,
            recalls_failed=watched.recalls_failed,
            details=watched.details,
            fallbacks=watched.fallbacks,
            failed_folds=watched.failed,
            used=watched.used,
            standing=watched.standing,
            undo_identical=watched.undo_identical,
            repeats_served=self._repeats,
            output_tokens=watched.output_tokens,
            output_shown=watched.output_shown,
            waited=self._waited,
            longest_admission=self._longest_admission,
            marks=watched.marks,
        )
