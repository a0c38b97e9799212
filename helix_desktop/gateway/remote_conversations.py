"""Forwards requests to the process that has the workspace open, and serves them there.

The connection is made like a command's, but it stays open and carries questions in both directions.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any

from helix_desktop import running_instance
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.console import Console
from helix_desktop.engine.facts import Usage
from helix_desktop.errors import HelixError, ModelFailed, StoppedByUser
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.conversations_port import (
    Arrival,
    AskAgentModel,
    HiddenCallAnswer,
    Replied,
    Sent,
    Ticket,
)
from helix_desktop.gateway.local_conversations import UNSENT_MESSAGE, LocalAgentConversations
from helix_desktop.gateway.process_messages import (
    LastSentValues,
    ProcessQuestions,
    decode_line,
    encode_line,
)
from helix_desktop.protocols.gateway_message import Piece, ProtocolMessage
from helix_desktop.workbench.open_questions import NO_NOTES
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.unread_requests import NOTHING_KEPT

log = logging.getLogger(__name__)
ARGUMENTS = ("gateway", "--engine")
CLOSED = "The program that had the workspace open has closed."
DISTANT_FUTURE = 1e12  # In seconds since 1970.


class RemoteAgentConversations:
    """Conversations of a workspace that another process has open. `is_ended`: that
    process has closed.
    """

    def __init__(self, connection: running_instance.FrameConnection, ask: AskAgentModel) -> None:
        self._ask_agent_model = ask
        self.questions = NO_NOTES
        self.unread_requests = NOTHING_KEPT
        self._lines_to_send: asyncio.Queue[bytes] = asyncio.Queue()
        self._last_values = LastSentValues()
        self._incoming_line = bytearray()
        self._questions = ProcessQuestions(
            tasks=OwnedTasks("engine elsewhere"),
            send=self._send_line,
            answer=self._answer_other_process,
            failure=HelixError,
        )
        self.is_ended = False
        self._exit_code = 0
        running = self._run_until_disconnected(connection)
        self._questions.tasks.spawn_task(running, name="carry")

    async def _run_until_disconnected(self, connection: running_instance.FrameConnection) -> None:
        """Run the engine as a command of the other process, until one of both ends."""
        try:
            self._exit_code = await running_instance.run_at_owner(connection, list(ARGUMENTS), self)
        finally:
            self.is_ended = True
            self._questions.fail_all_questions(StoppedByUser(CLOSED))

    async def _answer_other_process(self, _kind: str, question: Sequence[Any]) -> Any:
        """Ask the agent's model, which is all that the other process may want from here."""
        return await self._ask_agent_model(*question)

    async def serves_agents(self) -> bool:
        """Return False if the other process has the workspace open only for a moment."""
        with suppress(HelixError):
            await self.figures_since(DISTANT_FUTURE)  # No conversation has any of that time.
        return self._exit_code != running_instance.LATER

    async def read_input(self) -> bytes:
        return await self._lines_to_send.get()

    async def write_output(self, content: bytes) -> None:
        """Take a part of a line: an answer or a question from the other process."""
        self._incoming_line += content
        if not content.endswith(b"\n"):
            return
        kind, number, value = decode_line(self._incoming_line)
        self._incoming_line.clear()
        if kind != "sent":
            self._questions.handle_message(kind, number, value)
            return
        # Of this answer, only the entries that differ from the last one were sent.
        known_entries, sent = value
        conversation = sent.ticket.conversation
        entries = self._last_values.restore_value(conversation, known_entries, sent.entries)
        self._questions.handle_message(kind, number, replace(sent, entries=entries))

    async def print_line(self, words: str) -> None:
        """Do nothing: this connection has no output for people."""

    async def print_error(self, words: str) -> None:
        """Log the other process's error."""
        log.warning("the engine complains: %s", words)

    async def _send_line(self, value: tuple[str, int, Any]) -> None:
        """Send a question or an answer to the gateway. Of folded requests, only new entries are
        sent.
        """
        await self._lines_to_send.put(encode_line(value))

    async def _call_other_process(self, name: str, *arguments: Any) -> Any:
        if self.is_ended:
            raise StoppedByUser(CLOSED)
        return await self._questions.ask(name, arguments)

    async def count_known_messages(self, arrival: Arrival) -> int:
        shortened = self._shorten_arrival(arrival)
        return int(await self._call_other_process("known", *shortened))

    async def find_conversation_asked_about(self, agent: str, session: str, text: str) -> str:
        return str(await self._call_other_process("about", agent, session, text))

    async def receive_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        """Send only messages that the other process lacks."""
        known_count = await self.count_known_messages(arrival)
        shortened = self._shorten_arrival(arrival)
        new_messages = tuple(messages[known_count:])
        sent: Sent = await self._call_other_process("arrive", *shortened, known_count, new_messages)
        return sent

    async def preview_request(self, arrival: Arrival, messages: Sequence[ProtocolMessage]) -> Sent:
        shortened = self._shorten_arrival(arrival)
        sent: Sent = await self._call_other_process("look", *shortened, len(messages))
        return sent

    def _shorten_arrival(self, arrival: Arrival) -> tuple[Arrival, int, int]:
        """Return the arrival with only new hashes and tools, and how many of each are
        already known there.
        """
        split = self._last_values.split_known_start
        known_hashes, new_hashes = split(f"{arrival.session} chain", arrival.chain)
        known_tools, new_tools = split(f"{arrival.session} tools", arrival.tools)
        return replace(arrival, chain=new_hashes, tools=new_tools), known_hashes, known_tools

    async def answer_hidden_calls(
        self, ticket: Ticket, replied: Replied, calls: Sequence[Piece], refusal: str = ""
    ) -> list[HiddenCallAnswer]:
        question: list[Any] = [ticket, replied, tuple(calls)]
        if refusal:  # Older versions do not know of it.
            question.append(refusal)
        answers = await self._call_other_process("hidden", *question)
        return [HiddenCallAnswer(*answer) for answer in answers]

    async def record_agent_reply(
        self, ticket: Ticket, replied: Replied | None, shown_key: str
    ) -> None:
        await self._call_other_process("replied", ticket, replied, shown_key)

    async def fold_after_overflow(self, ticket: Ticket, window: int = 0) -> Sent | None:
        question: list[Any] = [ticket]
        if window:  # Older versions do not know of it.
            question.append(window)
        shorter: Sent | None = await self._call_other_process("overflowed", *question)
        return shorter

    async def record_unanswered_requests(self) -> None:
        """Do nothing: the other process records them once their gateway is gone."""

    async def figures_since(self, since: float = 0.0) -> Sequence[Figures]:
        return list(await self._call_other_process("figures", since))

    async def aclose(self) -> None:
        """Close the connection, which ends the other end, too."""
        await self._questions.tasks.aclose(limit=1)


async def serve_gateway_process(bench: Workbench, console: Console) -> int:
    """Serve the gateway that has connected to this process, until it disconnects."""
    async with aclosing(_GatewayProcessServer(bench, console)) as server:
        line = await console.read_input()
        while line:
            server.handle_line(line)
            line = await console.read_input()
    return 0


class _GatewayProcessServer:
    """Runs the engine here for a gateway in another process, which asks a line at a time."""

    def __init__(self, bench: Workbench, console: Console) -> None:
        self._console = console
        self._conversations = LocalAgentConversations(bench, self._ask_gateway_process)
        self._last_values = LastSentValues()
        self._questions = ProcessQuestions(
            tasks=OwnedTasks("engine for a gateway"),
            send=self._send_line,
            answer=self._run_call,
            failure=ModelFailed,
        )
        self._writing = asyncio.Lock()

    def handle_line(self, content: bytes) -> None:
        """Take a question of the gateway, or its answer to one of ours."""
        kind, number, value = decode_line(content)
        if kind in ("known", "arrive", "look"):
            value = self._restore_arrival(*value)
        self._questions.handle_message(kind, number, value)

    def _restore_arrival(
        self, arrival: Arrival, known_hashes: int, known_tools: int, *more: Any
    ) -> Sequence[Any]:
        """Return the arguments of a question with all hashes and tools of its arrival."""
        restore = self._last_values.restore_value
        chain = restore(f"{arrival.session} chain", known_hashes, arrival.chain)
        tools = restore(f"{arrival.session} tools", known_tools, arrival.tools)
        return replace(arrival, chain=chain, tools=tools), *more

    async def _run_call(self, kind: str, value: Sequence[Any]) -> Any:
        """Answer a question of the gateway by a call of the engine here."""
        conversations = self._conversations
        if kind == "arrive":
            arrival, known_count, messages = value
            return await conversations.receive_request(arrival, messages, known_count=known_count)
        if kind == "look":
            arrival, message_count = value
            # A preview needs only the number of messages, so they are not sent.
            messages = (UNSENT_MESSAGE,) * message_count
            return await conversations.preview_request(arrival, messages)
        methods: Mapping[str, Callable[..., Awaitable[Any]]] = {
            "known": conversations.count_known_messages,
            "about": conversations.find_conversation_asked_about,
            "hidden": conversations.answer_hidden_calls,
            "replied": conversations.record_agent_reply,
            "overflowed": conversations.fold_after_overflow,
            "figures": conversations.figures_since,
        }
        return await methods[kind](*value)

    async def _ask_gateway_process(self, *question: Any) -> tuple[str, Usage, str]:
        """Ask the agent's model, which only the gateway's process can reach."""
        text, usage, model = await self._questions.ask("ask", question)
        return text, usage, model

    async def _send_line(self, message: tuple[str, int, Any]) -> None:
        """Send a question or an answer to the gateway. Of folded requests, only the entries that
        it does not know from the last one are sent.
        """
        kind, number, value = message
        async with self._writing:
            if not isinstance(value, Sent):
                await self._console.write_output(encode_line((kind, number, value)))
                return
            known_entries, new_entries = self._last_values.split_known_start(
                value.ticket.conversation, value.entries
            )
            shortened = (known_entries, replace(value, entries=new_entries))
            await self._console.write_output(encode_line(("sent", number, shortened)))

    async def aclose(self) -> None:
        """End all questions, and close the conversations once they are recorded."""
        self._questions.fail_all_questions(StoppedByUser("The gateway is no longer running."))
        await self._questions.tasks.aclose(limit=2)
        await self._conversations.record_unanswered_requests()
        await self._conversations.aclose()
