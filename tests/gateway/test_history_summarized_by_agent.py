"""An agent that replaces its history by its own summary keeps all of it in its conversation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import UnchangedMessage
from helix_desktop.histories.session_from_facts import (
    build_session_from_facts,
    list_active_compactions,
    origin_of_conversation,
)
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.workbench.open_workbench import Workbench
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.peers.agent_provider import WRITERS, Calls, Says

WIRE = WIRE_MODULES["anthropic"]
SUMMARY = (
    "This session is being continued from a previous conversation that ran out of context.\n"
    "Summary:\n{text}\nPlease continue."
)


class Session:
    """A session of an agent as it sends it: one request after another."""

    def __init__(self, conversations: LocalAgentConversations, *, head: str = "head") -> None:
        self.conversations = conversations
        self.head = head
        self.units: list[Any] = []
        self.calls = 0

    async def ask(self, text: str = "") -> Sent:
        if text:
            self.units.append(WIRE.user_message(text))
        messages = WIRE.parse_messages({"messages": self.units})
        chain = compute_message_hashes("anthropic", messages)
        arrival = Arrival(
            "anthropic", "Claude Code", "session", self.head, "m", "system", TOOLS, chain
        )
        sent = await self.conversations.receive_request(arrival, messages)
        unchanged = tuple(UnchangedMessage(position) for position in range(len(messages)))
        assert sent.entries in ((), unchanged), "what the agent sends goes on as it came"
        return sent

    async def answer(self, sent: Sent, says: str, *, makes_call: bool = False) -> None:
        blocks: list[Any] = [Says(says)]
        if makes_call:
            self.calls += 1
            blocks.append(Calls("Bash", {"command": f"cat {self.calls}"}, f"t{self.calls}"))
        usage = {"input": 3, "read": 0, "write": 0}
        reply = WIRE.parse_reply(WRITERS["anthropic"].whole(blocks, usage, "1"))
        self.units.extend(reply.message.units)
        message = WIRE.parse_messages({"messages": self.units})[-1]
        replied = Replied(message.pieces, "m", facts.Stop.END, facts.Usage(10, 0, 0, 1))
        await self.conversations.record_agent_reply(sent.ticket, replied, message.identity_key)

    async def work(self, words: str) -> Sent:
        """A turn with one call."""
        sent = await self.ask(words)
        await self.answer(sent, "I look.", makes_call=True)
        self.units.append(WIRE.result_message(f"t{self.calls}", "Bash", f"output of {words}"))
        sent = await self.ask()
        await self.answer(sent, f"Done: {words}.")
        return sent

    async def summarize(self, text: str) -> None:
        """Ask for a summary as the agent does, and begin anew from it."""
        sent = await self.ask("Your task is to create a detailed summary.")
        await self.answer(sent, f"<summary>{text}</summary>")
        self.units = [WIRE.user_message(SUMMARY.format(text=text))]


async def restored_words(made: Workbench, conversation: str) -> tuple[list[str], int]:
    """What is given back of a conversation, and how many compactions it has."""
    recorded = await made.read_conversation_facts(conversation)
    digests = [one.fact.output.digest for one in recorded if isinstance(one.fact, facts.ToolReturned)]  # fmt: skip
    contents = await made.workspace.cache.read_contents(digests)
    origin = origin_of_conversation(recorded)
    session = build_session_from_facts(recorded, contents.get, "/x", origin)
    assert len(list_active_compactions(recorded)) == len(session.compactions)
    return [message.text for message in session.messages], len(session.compactions)


async def test_the_words_before_a_summary_of_the_agents_come_back(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        await session.work("count the files")
        await session.work("and the folders")
        await session.summarize("All was counted.")
        sent = await session.work("and the links")
        words, compactions = await restored_words(made, sent.ticket.conversation)
        assert compactions == 1
        for said in ("count the files", "output of count the files", "and the folders"):
            assert said in words
        assert "Your task is to create a detailed summary." not in words, "the agent asked that"
        assert words[-1] == "Done: and the links."

        opened = await made.open_session(sent.ticket.conversation)
        state = opened.conversation.state
        (fold,) = state.live_folds
        assert fold.why == "Claude Code compacted the conversation here"
        ledger = state.record.ledger
        assert ledger.whole[-1] == ledger.shown[-1], "the agent's own savings are not ours"
        await conversations.aclose()


async def test_a_second_summary_a_restart_and_other_tools_stay_one_conversation(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        session = Session(LocalAgentConversations(made, _nobody))
        await session.work("one")
        await session.summarize("One was done.")
        await session.conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        session.head = "with other tools"
        await session.work("two")
        await session.summarize("One and two were done.")
        await session.conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        sent = await session.work("three")
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation
        words, compactions = await restored_words(made, row.id)
        assert compactions == 2
        assert [said for said in words if said in ("one", "two", "three")] == [
            "one", "two", "three",
        ]  # fmt: skip
        await session.conversations.aclose()


async def test_a_summary_that_is_longer_than_what_it_stands_for_takes_its_place(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        await session.work("go")
        await session.summarize("It was like this. " * 400)
        sent = await session.work("on")
        words, compactions = await restored_words(made, sent.ticket.conversation)
        assert compactions == 1
        assert "go" in words
        await conversations.aclose()


async def test_an_agent_that_goes_back_before_its_summary_goes_on_there(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        await session.work("one")
        before = list(session.units)
        await session.summarize("One was done.")
        await session.work("two")
        session.units = before
        sent = await session.work("another way")
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation
        words, compactions = await restored_words(made, row.id)
        assert compactions == 0
        assert "two" not in words
        assert words[-1] == "Done: another way."
        await conversations.aclose()


async def test_a_session_that_begins_with_a_summary_has_the_users_words_as_its_title(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        session.units = [WIRE.user_message(SUMMARY.format(text="All was counted."))]
        session.units.append({"role": "assistant", "content": "Go on."})
        await session.ask("and the links")
        (row,) = made.list_conversations()
        assert row.title == "and the links"
        await conversations.aclose()
