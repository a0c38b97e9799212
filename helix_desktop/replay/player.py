"""Plays one recorded session through the real engine: conversation, steward, strategies and laws.

What a person and a model said and what tools returned comes from the recording; what the folds say comes from a
stand-in. One request is made before every recorded reply, when it was made, or ten seconds after the step before. Where
the reply uses what the view no longer shows, the pages that hold it are recalled first, and that is billed.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from helix_desktop.engine import laws, recall
from helix_desktop.engine.blocks import Request, ToolResult, View
from helix_desktop.engine.contents import Contents
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.economics import Prices
from helix_desktop.engine.facts import (
    Fact,
    ModelRole,
    ModelSet,
    Reasoning,
    ReplyPart,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolsOffered,
    Usage,
)
from helix_desktop.engine.following import Following, Output, Written
from helix_desktop.engine.policy import Policy
from helix_desktop.engine.ports import Cache, Index, Journal, ModelClient, Tokens
from helix_desktop.engine.steward import Steward
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.histories.recording import RecordedCall, RecordedMessage, Recording
from helix_desktop.replay.billing import (
    HEAD_TOKENS,
    Brought,
    Caching,
    Ledger,
    Piece,
    output_tokens,
    pieces_of,
    times,
    unmanaged,
)
from helix_desktop.replay.clock import LoopClock
from helix_desktop.replay.counting import Counting
from helix_desktop.replay.figures import Figures
from helix_desktop.replay.misses import Page, Recalls, rounds
from helix_desktop.replay.observer import Watching
from helix_desktop.replay.standin import Asked, StandIn
from helix_desktop.values import dataclass

T = TypeVar("T")
Answered = tuple[str, dict[str, str], str]  # the call of a recall: tool, arguments, output
RECALLED = "recalled-"  # how the ids of recalls begin that the recorded agent would have made
SEARCHED = f"{RECALLED}search-"
MAIN, FAST = "recorded", "stand-in"
SYSTEM = "You are the agent of a recorded session."


@dataclass(frozen=True, slots=True)
class Terms:
    """What a replay is about besides the session. `head`: tokens of system prompt and tools, in every request;
    `recalls`: how what a reply misses is recalled and billed.
    """

    policy: Policy
    window: int = 128_000
    prices: Prices = Prices(0.1, 1.25, 5.0)
    stand_in: str = "works"
    head: int = HEAD_TOKENS
    caching: Caching = Caching()
    recalls: Recalls = Recalls.NAMED


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
        self._system_tokens = terms.head + sum(self._tokens.count(text) for text in said)
        self._ledger = Ledger(terms.prices, terms.window, terms.caching)
        self._times = times(recording.messages)
        self._recalled = 0
        self._contents = Contents(stores.cache)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._waited = 0.0
        self._waited_now = 0.0
        self._longest_admission = 0.0

    async def play(self, moved: Callable[[int], None] = lambda _: None) -> Figures:
        """The whole session. `moved` is told of every message, for a progress bar."""
        self._conversation = await Conversation.open(self._stores.journal, "replay")
        self._watching = Watching(self._conversation, self._stores.cache, (MAIN, FAST), self._tokens)
        self._steward = self._new_steward()
        self._following = Following(
            self._conversation,
            self._steward,
            self._stores.cache,
            self._tokens,
            waiting=self._timed,
            stored=self._watching.put,
        )
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
        await self._following.said((Text(message.text or "(nothing)"),))

    async def _end_turn(self) -> None:
        if await self._following.end_turn():
            self._waited = max(self._waited, self._waited_now)
            self._waited_now = 0.0

    async def _replied(self, message: RecordedMessage) -> None:
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, next(self._times) - loop.time()))
        view, request = await self._next()
        await self._watching.step(view, request, message)
        if pages := await self._watching.missed(view, message, self._terms.recalls):
            request = await self._recall(request, pages)
        saw, pieces = self._conversation.state.last_seq, self._pieces(request)
        output = output_tokens(message, self._tokens.count)
        usage = self._ledger.step(pieces, output, loop.time(), _why)
        await self._following.replied(self._reply(message, usage), saw)

    async def _next(self) -> tuple[View, Request]:
        """What the next request shows, after what the steward does before it."""
        view = await self._following.next_view()
        return view, laws.request(view, await self._contents.of(view))

    async def _recall(self, request: Request, pages: Sequence[Page]) -> Request:
        """The agent asks for the pages one after the other, as the tools hand them out, and they stand in the view from
        here on. Returns the request that follows.
        """
        for calls in [*await self._by_hash(pages), *await self._by_search(pages)]:
            await self._asked(request, calls)
            view, request = await self._next()
            await self._watching.sees(view, request)
        return request

    async def _by_hash(self, pages: Sequence[Page]) -> list[list[Answered]]:
        """Of the entries the view names."""
        at_once = rounds([page for page in pages if page.named])
        return [[await self._page(page) for page in together] for together in at_once]

    async def _page(self, page: Page) -> Answered:
        asked = dict(page.asked)
        lines, words = asked.get("lines", ""), asked.get("find", "")
        text = await recall.recall(self._stores.cache, self._tokens, page.entry, lines=lines, words=words)
        return ToolName.RECALL, {"sha256": page.entry} | asked, text

    async def _by_search(self, pages: Sequence[Page]) -> list[list[Answered]]:
        """Of what only a summary stands for: its passages, and the page where these are not enough."""
        wanted = [page for page in pages if not page.named]
        searched = [await self._searched(min(page.holds, key=lambda one: (" " in one, one))) for page in wanted]
        shown = "".join(text for _, _, text in searched)
        read: list[Answered] = [
            (ToolName.RECALL_HISTORY, {"fold": page.entry}, page.text)
            for page in wanted
            if any(one not in shown for one in page.holds)
        ]
        return [calls for calls in (searched, read) if calls]

    async def _searched(self, words: str) -> Answered:
        text = await recall.history(self._conversation.state, self._stores.cache, self._tokens, "", words)
        return ToolName.RECALL_HISTORY, {"find": words}, text

    async def _asked(self, request: Request, calls: Sequence[Answered]) -> None:
        """A request that is answered with these calls, and what they bring: tool, arguments, output."""
        asks = Brought.SEARCHED if calls[0][0] == ToolName.RECALL_HISTORY else Brought.RECALLED
        begins = SEARCHED if asks is Brought.SEARCHED else RECALLED
        named = [
            RecordedCall(f"{begins}{self._recalled + n}", tool, json.dumps(of)) for n, (tool, of, _) in enumerate(calls)
        ]
        self._recalled += len(named)
        reply = RecordedMessage("assistant", "", tuple(named))
        output = output_tokens(reply, self._tokens.count)
        now = asyncio.get_running_loop().time()
        usage = self._ledger.recall(self._pieces(request), output, now, asks=asks, why=_why)
        await self._following.replied(self._reply(reply, usage), self._conversation.state.last_seq)
        await self._outputs(
            [RecordedMessage("tool", text, answers=call.id) for call, (_, _, text) in zip(named, calls, strict=True)]
        )

    @staticmethod
    def _reply(message: RecordedMessage, usage: Usage) -> Written:
        parts: list[ReplyPart] = [Reasoning(message.reasoning)] if message.reasoning else []
        if message.text:
            parts.append(Text(message.text))
        parts.extend(ToolCall(call.id, call.name, call.arguments) for call in message.calls)
        return Written(tuple(parts), MAIN, Stop.CALLS if message.calls else Stop.END, usage)

    async def _outputs(self, batch: Sequence[RecordedMessage]) -> None:
        before = self._waited_now
        await self._following.returned([Output(message.answers, message.text, message.ok) for message in batch])
        self._longest_admission = max(self._longest_admission, self._waited_now - before)

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
            self._ledger.cached(pieces, asked.output, asyncio.get_running_loop().time(), _why)
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
        terms, messages = self._terms, self._recording.messages
        plain = unmanaged(messages, Ledger(terms.prices, terms.window, terms.caching), self._tokens.count, terms.head)
        self._waited = max(self._waited, self._waited_now)
        watched = await self._watching.closed()
        folds = Counter(str(fold.kind) for fold in watched.folds)
        return Figures(
            name=self._recording.name,
            window=self._terms.window,
            steps=tuple(self._ledger.steps),
            sent=self._ledger.sent,
            billed=round(self._ledger.billed - self._ledger.recalls),
            recalls_billed=round(self._ledger.recalls),
            searches_billed=round(self._ledger.searches),
            recalled_pages=self._recalled,
            head_tokens=self._terms.head,
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
            standing_plain=watched.standing_plain,
            plain_peak=plain.peak,
            undo_identical=watched.undo_identical,
            repeats_served=self._following.repeats,
            output_tokens=watched.output_tokens,
            output_shown=watched.output_shown,
            waited=self._waited,
            longest_admission=self._longest_admission,
            marks=watched.marks,
        )


def _why(part: object) -> Brought:
    """Why a part of a request is there."""
    name = part.call if isinstance(part, ToolResult) else part.id if isinstance(part, ToolCall) else ""
    if name.startswith(SEARCHED):
        return Brought.SEARCHED
    return Brought.RECALLED if name.startswith(RECALLED) else Brought.NO
