"""The engine in another process: the one that has the workspace open, as the window does.

Commands reach it the way every command does; this one lasts, and carries one question after the other both ways.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop import instance, tasks
from helix_desktop.engine.facts import Usage
from helix_desktop.errors import HelixError, ModelFailed, Stopped
from helix_desktop.gateway.arrival import Arrival, Ask, Replied, Sent, Ticket
from helix_desktop.gateway.room import NOT_TOLD, Room
from helix_desktop.gateway.telling import Last, heard, told

if TYPE_CHECKING:
    from helix_desktop.console import Console
    from helix_desktop.gateway.figures import Figures
    from helix_desktop.gateway.shown import Entry
    from helix_desktop.wire.message import Piece, Wired
    from helix_desktop.workbench.bench import Workbench

log = logging.getLogger(__name__)
ARGUMENTS = ("gateway", "--engine")


class FarRoom:
    """A room whose questions are answered elsewhere. `ended` tells whether nobody answers any more."""

    def __init__(self, wire: instance.Wire, ask: Ask) -> None:
        self._ask = ask
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._last = Last()
        self._parts = bytearray()
        self._tasks = tasks.Tasks("engine elsewhere")
        self.ended = False
        self._tasks.spawn(self._carry(wire), name="carry")

    async def _carry(self, wire: instance.Wire) -> None:
        try:
            await instance.hand_over(wire, [*ARGUMENTS], self)
        finally:
            self.ended = True
            for future in self._waiting.values():
                if not future.done():
                    future.set_exception(Stopped("The program that had the workspace open has closed."))

    # --- the console's side

    async def read(self) -> bytes:
        """What is asked next."""
        return await self._out.get()

    async def write(self, content: bytes) -> None:
        """A part of a line: an answer, or a question from there."""
        self._parts += content
        if not content.endswith(b"\n"):
            return
        kind, number, value = heard(self._parts)
        self._parts.clear()
        if kind == "sent":
            same, sent = value
            value = replace(sent, entries=self._last.heard(sent.ticket.conversation, same, sent.entries))
        if kind == "ask":
            self._tasks.spawn(self._asked(number, value), name="ask the agent's model")
        elif (future := self._waiting.pop(number, None)) is not None and not future.done():
            if kind == "failed":
                future.set_exception(HelixError(value))
            else:
                future.set_result(value)

    async def say(self, words: str) -> None:
        """Nothing is said to people here."""

    async def complain(self, words: str) -> None:
        """What went wrong there goes to the log."""
        log.warning("the engine complains: %s", words)

    async def _asked(self, number: int, value: Sequence[Any]) -> None:
        try:
            answer: Any = await self._ask(*value)
            await self._out.put(told(("answer", number, answer)))
        except HelixError as error:
            await self._out.put(told(("failed", number, error.what)))

    async def _call(self, name: str, *arguments: Any) -> Any:
        if self.ended:
            raise Stopped("The program that had the workspace open has closed.")
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        await self._out.put(told((name, number, arguments)))
        return await future

    # --- the room's side

    async def arrive(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent:
        """See Room. Only what is not known there is told."""
        known: int = await self._call("known", *self._short(arrival))
        found: Sent = await self._call("arrive", *self._short(arrival), known, tuple(messages[known:]))
        return found

    async def look(self, arrival: Arrival, messages: Sequence[Wired]) -> Sequence[Entry]:
        """See Room."""
        found: Sequence[Entry] = await self._call("look", *self._short(arrival), len(messages))
        return found

    def _short(self, arrival: Arrival) -> tuple[Arrival, int, int]:
        """With what of its chain and its head was not told before, and how many were."""
        known, chain = self._last.told(f"{arrival.session} chain", arrival.chain)
        same, tools = self._last.told(f"{arrival.session} tools", arrival.tools)
        return replace(arrival, chain=chain, tools=tools), known, same

    async def hidden(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece]
    ) -> list[tuple[str, str, str, bool]]:
        """See Room."""
        return list(await self._call("hidden", ticket, replied, tuple(calls)))

    async def replied(self, ticket: Ticket, replied: Replied | None, shown: str) -> None:
        """See Room."""
        await self._call("replied", ticket, replied, shown)

    async def overflowed(self, ticket: Ticket) -> Sent | None:
        """See Room."""
        found: Sent | None = await self._call("overflowed", ticket)
        return found

    async def figures(self, since: float = 0.0) -> Sequence[Figures]:
        """See Room."""
        found: Sequence[Figures] = await self._call("figures", since)
        return found

    async def aclose(self) -> None:
        """End it."""
        await self._out.put(b"")
        await self._tasks.aclose(limit=1)


async def answer(bench: Workbench, console: Console) -> int:
    """The other end: answer until the gateway goes."""
    far = _Answering(bench, console)
    try:
        while content := await console.read():
            far.take(content)
    finally:
        await far.aclose()
    return 0


class _Answering:
    """A room for one gateway process."""

    def __init__(self, bench: Workbench, console: Console) -> None:
        self._console = console
        self._room = Room(bench, self._ask)
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self._last = Last()
        self._tasks = tasks.Tasks("engine for a gateway")
        self._writing = asyncio.Lock()

    def take(self, content: bytes) -> None:
        """One question or answer."""
        kind, number, value = heard(content)
        if kind in ("known", "arrive", "look"):
            value = self._whole(*value)
        if kind in ("answer", "failed"):
            future = self._asked.pop(number, None)
            if future is not None and not future.done():
                if kind == "failed":
                    future.set_exception(ModelFailed(value))
                else:
                    future.set_result(value)
            return
        self._tasks.spawn(self._answered(kind, number, value), name=kind)

    def _whole(self, arrival: Arrival, known: int, same: int, *more: Any) -> Sequence[Any]:
        chain = self._last.heard(f"{arrival.session} chain", known, arrival.chain)
        tools = self._last.heard(f"{arrival.session} tools", same, arrival.tools)
        return replace(arrival, chain=chain, tools=tools), *more

    async def _answered(self, kind: str, number: int, value: Sequence[Any]) -> None:
        try:
            await self._tell(("answer", number, await self._work(kind, value)))
        except HelixError as error:
            await self._tell(("failed", number, error.what))
        except Exception as error:
            log.exception("a gateway's question failed")
            await self._tell(("failed", number, f"a mistake in Helix Desktop ({type(error).__name__})"))

    async def _work(self, kind: str, value: Sequence[Any]) -> Any:
        room = self._room
        if kind == "arrive":
            arrival, known, messages = value
            return await room.arrive(arrival, messages, told=known)
        if kind == "look":
            arrival, count = value
            return await room.look(arrival, (NOT_TOLD,) * count)
        answers: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "known": room.known,
            "hidden": room.hidden,
            "replied": room.replied,
            "overflowed": room.overflowed,
            "figures": room.figures,
        }
        return await answers[kind](*value)

    async def _ask(self, *question: Any) -> tuple[str, Usage, str]:
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = future
        await self._tell(("ask", number, question))
        text, usage, model = await future
        return text, usage, model

    async def _tell(self, value: tuple[str, int, Any]) -> None:
        async with self._writing:
            if isinstance(sent := value[2], Sent):
                same, entries = self._last.told(sent.ticket.conversation, sent.entries)
                value = ("sent", value[1], (same, replace(sent, entries=entries)))
            await self._console.write(told(value))

    async def aclose(self) -> None:
        """Nobody asks any more."""
        for future in self._asked.values():
            future.cancel()
        await self._tasks.aclose(limit=2)
        await self._room.aclose()
