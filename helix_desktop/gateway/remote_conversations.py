"""Forwards requests to the process that has the workspace open, and serves them there.

Commands reach it the way every command does; this one lasts, and carries one question after the other both ways.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from helix_desktop import running_instance, tasks
from helix_desktop.engine.facts import Usage
from helix_desktop.errors import HelixError, ModelFailed, StoppedByUser
from helix_desktop.gateway.conversations_port import Arrival, AskAgentModel, Replied, Sent, Ticket
from helix_desktop.gateway.local_conversations import UNSENT_MESSAGE, LocalAgentConversations
from helix_desktop.gateway.process_protocol import LastSentValues, decode_line, encode_line

if TYPE_CHECKING:
    from helix_desktop.console import Console
    from helix_desktop.gateway.agent_figures import Figures
    from helix_desktop.gateway.view_entries import Entry
    from helix_desktop.protocols.wire_message import Piece, Wired
    from helix_desktop.workbench.open_workbench import Workbench

log = logging.getLogger(__name__)
ARGUMENTS = ("gateway", "--engine")


class RemoteAgentConversations:
    """Conversations whose workspace is open in another process. `is_ended`: that process has closed."""

    def __init__(self, wire: running_instance.FrameConnection, ask: AskAgentModel) -> None:
        self._ask = ask
        self._lines_to_send: asyncio.Queue[bytes] = asyncio.Queue()
        self._pending_answers: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)
        self._last_values = LastSentValues()
        self._incoming_line = bytearray()
        self._tasks = tasks.OwnedTasks("engine elsewhere")
        self.is_ended = False
        self._tasks.spawn_task(self._run_until_disconnected(wire), name="carry")

    async def _run_until_disconnected(self, wire: running_instance.FrameConnection) -> None:
        try:
            await running_instance.run_at_owner(wire, [*ARGUMENTS], self)
        finally:
            self.is_ended = True
            for future in self._pending_answers.values():
                if not future.done():
                    future.set_exception(StoppedByUser("The program that had the workspace open has closed."))

    async def read_input(self) -> bytes:
        """What is asked next."""
        return await self._lines_to_send.get()

    async def write_output(self, content: bytes) -> None:
        """A part of a line: an answer, or a question from there."""
        self._incoming_line += content
        if not content.endswith(b"\n"):
            return
        kind, number, value = decode_line(self._incoming_line)
        self._incoming_line.clear()
        if kind == "sent":
            same, sent = value
            value = replace(sent, entries=self._last_values.restore_whole(sent.ticket.conversation, same, sent.entries))
        if kind == "ask":
            self._tasks.spawn_task(self._answer_model_question(number, value), name="ask the agent's model")
        elif (future := self._pending_answers.pop(number, None)) is not None and not future.done():
            if kind == "failed":
                future.set_exception(HelixError(value))
            else:
                future.set_result(value)

    async def print_line(self, words: str) -> None:
        """Nothing is said to people here."""

    async def print_error(self, words: str) -> None:
        """What went wrong there goes to the log."""
        log.warning("the engine complains: %s", words)

    async def _answer_model_question(self, number: int, value: Sequence[Any]) -> None:
        try:
            answer: Any = await self._ask(*value)
            await self._lines_to_send.put(encode_line(("answer", number, answer)))
        except HelixError as error:
            await self._lines_to_send.put(encode_line(("failed", number, error.what)))

    async def _call_other_process(self, name: str, *arguments: Any) -> Any:
        if self.is_ended:
            raise StoppedByUser("The program that had the workspace open has closed.")
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_answers[number] = future
        await self._lines_to_send.put(encode_line((name, number, arguments)))
        return await future

    async def receive_request(self, arrival: Arrival, messages: Sequence[Wired]) -> Sent:
        """Sends only the messages that the other process does not have yet."""
        known: int = await self._call_other_process("known", *self._shorten_arrival(arrival))
        found: Sent = await self._call_other_process(
            "arrive", *self._shorten_arrival(arrival), known, tuple(messages[known:])
        )
        return found

    async def preview_request(self, arrival: Arrival, messages: Sequence[Wired]) -> Sequence[Entry]:
        """See Room."""
        found: Sequence[Entry] = await self._call_other_process("look", *self._shorten_arrival(arrival), len(messages))
        return found

    def _shorten_arrival(self, arrival: Arrival) -> tuple[Arrival, int, int]:
        """Returns the arrival with only the new hashes and tools, and how many of each the other process already has."""
        known, chain = self._last_values.split_off_known(f"{arrival.session} chain", arrival.chain)
        same, tools = self._last_values.split_off_known(f"{arrival.session} tools", arrival.tools)
        return replace(arrival, chain=chain, tools=tools), known, same

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[tuple[str, str, str, bool]]:
        """See Room."""
        return list(await self._call_other_process("hidden", ticket, replied, tuple(calls), *filter(None, [refusal])))

    async def record_agent_reply(self, ticket: Ticket, replied: Replied | None, shown: str) -> None:
        """See Room."""
        await self._call_other_process("replied", ticket, replied, shown)

    async def fold_after_overflow(self, ticket: Ticket) -> Sent | None:
        """See Room."""
        found: Sent | None = await self._call_other_process("overflowed", ticket)
        return found

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        """See Room."""
        found: Sequence[Figures] = await self._call_other_process("figures", since)
        return found

    async def aclose(self) -> None:
        """End it."""
        await self._lines_to_send.put(b"")
        await self._tasks.aclose(limit=1)


async def serve_gateway_process(bench: Workbench, console: Console) -> int:
    """Serves a gateway process until it disconnects."""
    far = _GatewayProcessServer(bench, console)
    try:
        while content := await console.read_input():
            far.handle_line(content)
    finally:
        await far.aclose()
    return 0


class _GatewayProcessServer:
    """A room for one gateway process."""

    def __init__(self, bench: Workbench, console: Console) -> None:
        self._console = console
        self._room = LocalAgentConversations(bench, self._ask_gateway_process)
        self._numbers = itertools.count(1)
        self._pending_questions: dict[int, asyncio.Future[Any]] = {}
        self._last_values = LastSentValues()
        self._tasks = tasks.OwnedTasks("engine for a gateway")
        self._writing = asyncio.Lock()

    def handle_line(self, content: bytes) -> None:
        """One question or answer."""
        kind, number, value = decode_line(content)
        if kind in ("known", "arrive", "look"):
            value = self._restore_arrival(*value)
        if kind in ("answer", "failed"):
            future = self._pending_questions.pop(number, None)
            if future is not None and not future.done():
                if kind == "failed":
                    future.set_exception(ModelFailed(value))
                else:
                    future.set_result(value)
            return
        self._tasks.spawn_task(self._answer_call(kind, number, value), name=kind)

    def _restore_arrival(self, arrival: Arrival, known: int, same: int, *more: Any) -> Sequence[Any]:
        chain = self._last_values.restore_whole(f"{arrival.session} chain", known, arrival.chain)
        tools = self._last_values.restore_whole(f"{arrival.session} tools", same, arrival.tools)
        return replace(arrival, chain=chain, tools=tools), *more

    async def _answer_call(self, kind: str, number: int, value: Sequence[Any]) -> None:
        try:
            await self._send_line(("answer", number, await self._run_call(kind, value)))
        except HelixError as error:
            await self._send_line(("failed", number, error.what))
        except Exception as error:
            log.exception("a gateway's question failed")
            await self._send_line(("failed", number, f"a mistake in Helix Desktop ({type(error).__name__})"))

    async def _run_call(self, kind: str, value: Sequence[Any]) -> Any:
        room = self._room
        if kind == "arrive":
            arrival, known, messages = value
            return await room.receive_request(arrival, messages, known_count=known)
        if kind == "look":
            arrival, count = value
            return await room.preview_request(arrival, (UNSENT_MESSAGE,) * count)
        answers: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "known": room.count_known_messages,
            "hidden": room.answer_hidden_calls,
            "replied": room.record_agent_reply,
            "overflowed": room.fold_after_overflow,
            "figures": room.figures_since,
        }
        return await answers[kind](*value)

    async def _ask_gateway_process(self, *question: Any) -> tuple[str, Usage, str]:
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending_questions[number] = future
        await self._send_line(("ask", number, question))
        text, usage, model = await future
        return text, usage, model

    async def _send_line(self, value: tuple[str, int, Any]) -> None:
        async with self._writing:
            if isinstance(sent := value[2], Sent):
                same, entries = self._last_values.split_off_known(sent.ticket.conversation, sent.entries)
                value = ("sent", value[1], (same, replace(sent, entries=entries)))
            await self._console.write_output(encode_line(value))

    async def aclose(self) -> None:
        """Nobody asks any more."""
        for future in self._pending_questions.values():
            future.cancel()
        await self._tasks.aclose(limit=2)
        await self._room.aclose()
