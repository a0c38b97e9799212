"""One configured model: sends requests, tries again where that helps, and reads the reply from the stream.

Another try is made only while nothing of the reply has been shown. A stream that breaks later is a Reply with CUT and
what came; a stream that ends without a reason is one too, never a complete answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace

from helix_desktop.engine.blocks import Delta, Reply, Request, Waiting
from helix_desktop.engine.facts import Usage
from helix_desktop.engine.ports import Clock
from helix_desktop.errors import ModelFailed, Overloaded, Unreachable
from helix_desktop.providers.dialect import Dialect, Post, Reading
from helix_desktop.providers.failures import Refusal, failure_of, read_body
from helix_desktop.providers.models import ModelInfo, cost
from helix_desktop.providers.sse import Event, EventTooLong, Parser
from helix_desktop.providers.transport import (
    LONGEST_REFUSAL,
    Answer,
    Broken,
    NobodyThere,
    Patience,
    Transport,
    is_loopback,
)
from helix_desktop.providers.wire import dump_body, own_reasoning
from helix_desktop.tasks import Tasks
from helix_desktop.values import dataclass

SHORTEST_KEY = 8  # shorter ones are words, put in for servers that want anything at all
MOST_RELAXED = 4  # optional parameters taken off one after the other


@dataclass(frozen=True, slots=True)
class Client:
    """A ModelClient over HTTP. `info` carries the window and prices; `key` is used to keep it out of messages."""

    info: ModelInfo
    dialect: Dialect
    transport: Transport
    clock: Clock
    key: str = ""
    spread: Callable[[], float] = random.random

    @property
    def model(self) -> str:
        return self.info.name

    async def stream(self, request: Request) -> AsyncGenerator[Delta]:
        post = await asyncio.to_thread(self._compile, request)
        attempt, relaxed = 1, 0
        while True:
            failure: ModelFailed | None = None
            try:
                async with aclosing(self._once(post, request)) as deltas:
                    async for delta in deltas:
                        yield delta
            except ModelFailed as error:
                failure = error
            if failure is None:
                return
            body = self.dialect.relax(post.body, failure) if relaxed < MOST_RELAXED else None
            if body is not None:
                post, relaxed = replace(post, body=body), relaxed + 1
                continue
            pause = self._pause(failure, attempt)
            woken = asyncio.Event()
            yield Waiting(failure.what, round(pause, 1), woken.set)
            await self._rest(pause, woken)
            attempt += 1

    async def _rest(self, pause: float, woken: asyncio.Event) -> None:
        """The pause, or as much of it as nobody cuts short."""
        tasks = Tasks("waiting")
        try:
            tasks.spawn(self.clock.sleep(pause), name="pause").add_done_callback(lambda _: woken.set())
            await woken.wait()
        finally:
            await tasks.aclose()

    def _compile(self, request: Request) -> Post:
        return self.dialect.compile(own_reasoning(replace(request, model=self.info.id)), self.info.abilities)

    async def _once(self, post: Post, request: Request) -> AsyncGenerator[Delta]:
        """One try: the deltas and the Reply; or the failure, which only comes while nothing has been shown."""
        reading = self.dialect.reading(request)
        content = await asyncio.to_thread(dump_body, post.body)
        shown, cut = False, ""
        try:
            async with self.transport.post(post.path, content, post.headers) as answer:
                await self._check(answer)
                async with aclosing(_events(answer)) as events:
                    async for event in events:
                        for delta in self._feed(reading, event):
                            shown = True
                            yield delta
                        if reading.complete:
                            answer.end_soon()
                        if reading.over:
                            break
        except ModelFailed as failure:
            failure = self._scrubbed(failure)
            if not shown and not reading.complete:
                raise failure from None
            cut = failure.what
        if not reading.complete and not cut:
            cut = reading.reply().why
            if not shown:
                raise Unreachable(cut)
        yield self._priced(reading.reply("" if reading.complete else cut))

    async def _check(self, answer: Answer) -> None:
        if answer.status == 200 and not answer.is_page:
            return
        if answer.status == 200:
            raise Broken(f"{self.transport.where} returned a web page.", remedy="Check the base URL.")
        body = read_body(await answer.whole(LONGEST_REFUSAL))
        raise failure_of(Refusal(self.transport.where, answer.status, body, answer.headers, self.info.id))

    def _feed(self, reading: Reading, event: Event) -> list[Delta]:
        try:
            return reading.feed(event)
        except ValueError as error:
            raise Unreachable(f"{self.transport.where} sent data that couldn't be read.") from error

    def _pause(self, failure: ModelFailed, attempt: int) -> float:
        """Seconds before the next try; raises the failure when there is none.

        The pauses double, spread by a quarter so that many clients do not come back together.
        """
        patience = self.transport.patience
        failure = self._scrubbed(failure)
        if attempt >= _tries(failure, patience, local=is_loopback(self.transport.base_url)):
            raise failure
        asked = failure.retry_after if isinstance(failure, Overloaded) else None
        if asked is not None and asked > patience.longest_wait:
            raise ModelFailed(
                f"{failure.what} The provider asks you to wait {asked / 60:.0f} minutes.",
                remedy="Continue later, or use another model.",
            )
        if asked is not None:
            return asked + (0.1 + 0.1 * asked) * self.spread()
        pause = min(patience.longest_pause, patience.first_pause * 2.0 ** (attempt - 1))
        return float(pause * (0.75 + 0.5 * self.spread()))

    def _scrubbed(self, failure: ModelFailed) -> ModelFailed:
        """The failure without the key, which some providers quote."""
        if len(self.key) >= SHORTEST_KEY and self.key in failure.what:
            failure.what = failure.what.replace(self.key, "•••")
            failure.args = (failure.what,)
        return failure

    def _priced(self, reply: Reply) -> Reply:
        """Under the name the model is configured by: what is learned of a model is learned under that name."""
        return replace(reply, model=self.info.name, usage=priced(reply.usage, self.info))


def _tries(failure: ModelFailed, patience: Patience, *, local: bool) -> int:
    if isinstance(failure, Broken):
        return 1
    if isinstance(failure, Overloaded):
        return patience.attempts
    if isinstance(failure, NobodyThere) and local:
        return patience.attempts_local
    if isinstance(failure, Unreachable):
        return patience.attempts_unreachable
    return 1


def priced(usage: Usage, info: ModelInfo) -> Usage:
    """With its cost from the catalogue, where the provider has not told the cost itself."""
    return usage if usage.cost else replace(usage, cost=cost(usage, info.prices))


async def _events(answer: Answer) -> AsyncGenerator[Event]:
    """The events of a stream. A server that answers with one JSON document is taken at its word: one event."""
    if not answer.is_stream:
        yield Event((await answer.whole()).decode("utf-8", errors="replace"))
        return
    parser = Parser()
    async with aclosing(answer.chunks()) as chunks:
        async for chunk in chunks:
            try:
                events = parser.feed(chunk)
            except EventTooLong as error:
                raise Unreachable(f"The server sent {error}.") from error
            for event in events:
                yield event
