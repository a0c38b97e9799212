"""Agents that shorten old outputs in their own history go on with the same conversation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.failed_fold_attempts import FailedFoldAttempts
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.outputs_shortened_by_agent import RecordedOutput, is_shortened_form
from helix_desktop.gateway.view_entries import ChangedMessage, ChangedPart
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.peers.agent_provider import WRITERS, Calls, Says

Json = Any
USAGE = {"input": 3, "read": 0, "write": 0}
PLACEHOLDERS = {
    "anthropic": "[Old tool result content cleared]",
    "openai-chat": "[Old tool result content cleared]",
    "gemini": "<tool_output_masked>\nOutput: 1\n{first}\n\n... [90 lines omitted] ...\n\n{last}\n\n"
    "Output too large. Full output available at: /tmp/x.txt\n</tool_output_masked>",
}


class Run:
    """A run of an agent that names no session: it looks at numbered files, one in each step."""

    def __init__(self, conversations: LocalAgentConversations, protocol: str, name: str) -> None:
        self.conversations = conversations
        self.protocol = protocol
        self.name = name
        self.wire = WIRE_MODULES[protocol]
        self.units: list[Json] = [self.wire.user_message("look around")]
        self.results: list[int] = []  # Which of the units are outputs.

    def output(self, number: int) -> str:
        return "".join(f"{self.name} {number}: line {line}\n" for line in range(100))

    def call_id(self, number: int) -> str:
        return f"toolu_{self.name}_{number}"

    async def send(self) -> Sent:
        messages = self.wire.parse_messages({"messages": self.units, "contents": self.units})
        chain = compute_message_hashes(self.protocol, messages)
        arrival = Arrival(self.protocol, "an agent", "", "head", "m", "system", TOOLS, chain)
        return await self.conversations.receive_request(arrival, messages)

    async def step(self, number: int) -> Sent:
        """One request, its reply with a call, and the call's output in the history."""
        sent = await self.send()
        call = Calls("Bash", {"command": f"cat {number}"}, self.call_id(number))
        reply = self.wire.parse_reply(
            WRITERS[self.protocol].whole([Says(f"step {number}"), call], USAGE, "1")
        )
        # As the relay does: Gemini's calls have no ids, and are numbered.
        self.units.extend(reply.message.units)
        message = self.wire.parse_messages({"messages": self.units, "contents": self.units})[-1]
        replied = Replied(message.pieces, "m", facts.Stop.CALLS, facts.Usage(10, 0, 0, 1))
        await self.conversations.record_agent_reply(sent.ticket, replied, message.identity_key)
        self.results.append(len(self.units))
        output = self.output(number)
        self.units.append(self.wire.result_message(self.call_id(number), "Bash", output))
        return sent

    def shorten(self, number: int) -> str:
        """Let the agent shorten the output of a step in its history. Return what it is now."""
        lines = self.output(number).splitlines()
        text = PLACEHOLDERS[self.protocol].format(first=lines[1], last=lines[-1])
        self.put(number, text)
        return text

    def put(self, number: int, text: str) -> None:
        unit = self.wire.result_message(self.call_id(number), "Bash", text)
        self.units[self.results[number]] = unit


def outputs_among(recorded_facts: Sequence[facts.Recorded]) -> list[RecordedOutput]:
    outputs: list[RecordedOutput] = []
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.ToolReturned):
            outputs.append(RecordedOutput(recorded.seq, recorded.fact))
    return outputs


@pytest.mark.parametrize("protocol", PLACEHOLDERS)
async def test_an_agent_that_shortens_its_old_outputs_goes_on_with_its_conversation(
    tmp_path: Path, protocol: str
) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        run = Run(conversations, protocol, "one")
        for number in range(5):
            await run.step(number)
        run.shorten(0)
        text = run.shorten(1)
        sent = await run.step(5)
        run.shorten(2)
        await run.step(6)
        last = await run.step(7)

        assert last.ticket.conversation == sent.ticket.conversation
        assert len(made.list_conversations()) == 1
        session = await made.open_session(sent.ticket.conversation)
        state = session.conversation.state
        outputs = outputs_among(state.facts)
        assert len(outputs) == 7, "nothing that was shortened is a new output"
        second_output = outputs[1].returned
        content = await made.workspace.cache.read_content(second_output.output.digest)
        assert content.decode() == run.output(1)
        # It goes on as the agent sends it, and counts as that.
        changed = sent.entries[run.results[1]]
        assert isinstance(changed, ChangedMessage)
        assert changed.parts == (ChangedPart("result", second_output.call, 0, text),)
        fold = state.branch.fold_shown_for_part(facts.PartRef(outputs[1].seq))
        assert fold is not None
        assert fold.text == text
        ledger = state.record.ledger
        assert ledger.whole[-1] == ledger.shown[-1], "the agent's own savings are not ours"
        await conversations.aclose()


@pytest.mark.parametrize("protocol", PLACEHOLDERS)
async def test_it_is_found_again_after_a_restart_and_with_whole_outputs(
    tmp_path: Path, protocol: str
) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        run = Run(conversations, protocol, "one")
        for number in range(5):
            await run.step(number)
        run.shorten(0)
        await run.step(5)
        await conversations.aclose()

        for number in range(2):
            run.conversations = LocalAgentConversations(made, _nobody)
            await run.step(6 + 2 * number)
            if number == 0:
                run.put(0, run.output(0))  # It reads its own file, which has the whole output.
            else:
                run.shorten(0)
                run.shorten(3)
            await run.step(7 + 2 * number)
            await run.conversations.aclose()
        assert len(made.list_conversations()) == 1


@pytest.mark.parametrize("protocol", PLACEHOLDERS)
async def test_another_run_that_begins_alike_is_another_conversation(
    tmp_path: Path, protocol: str
) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        first = Run(conversations, protocol, "one")
        second = Run(conversations, protocol, "two")
        for number in range(4):
            await first.step(number)
        for number in range(4):
            await second.step(number)
        first.shorten(0)
        second.shorten(0)
        second.shorten(1)
        of_first = await first.step(4)
        of_second = await second.step(4)
        assert of_first.ticket.conversation != of_second.ticket.conversation
        for run, sent in ((first, of_first), (second, of_second)):
            session = await made.open_session(sent.ticket.conversation)
            outputs = outputs_among(session.conversation.state.facts)
            assert len(outputs) == 4
            for number, output in enumerate(outputs):
                digest = output.returned.output.digest
                content = await made.workspace.cache.read_content(digest)
                assert content.decode() == run.output(number)
        await conversations.aclose()


async def test_a_fork_of_a_run_does_not_try_again_what_failed_in_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        run = Run(conversations, "anthropic", "one")
        for number in range(3):
            sent = await run.step(number)
        handover, notes = facts.FoldKind.HANDOVER, facts.FoldKind.OBSERVATIONS
        session = await made.open_session(sent.ticket.conversation)
        await session.conversation.append_facts(
            facts.FoldFailed(notes, "no"),
            facts.BreakerClosed(notes),
            facts.FoldFailed(handover, "no"),
        )
        run.put(1, "another output")
        forked = await run.step(3)
        assert forked.ticket.conversation != sent.ticket.conversation
        fork = await made.open_session(forked.ticket.conversation)
        attempts = FailedFoldAttempts(fork.conversation)
        assert (attempts.attempts_of(handover).count, attempts.attempts_of(notes).count) == (1, 0)
        await conversations.aclose()


@pytest.mark.parametrize(
    ("text", "is_form"),
    [
        ("[Old tool result content cleared]", True),
        ("line 0\nline 1\n[18 lines omitted]\nline 19", True),
        ("line 0\nline 1", False),  # a shorter file that another run has read
        ("an error: truncated file" * 100, False),
        ("", False),
    ],
)
def test_a_shortened_form_says_so_and_has_lines_of_the_whole(text: str, is_form: bool) -> None:
    whole = "\n".join(f"line {number}" for number in range(20))
    assert is_shortened_form(whole, text) is is_form
