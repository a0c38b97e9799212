"""An agent that replaces its history by its own summary keeps all of it in its conversation."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.content_recall import recall_folded_messages
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.history_summarized_by_agent import find_summary_piece, text_of_summary
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import InsertedText, UnchangedMessage
from helix_desktop.histories.codex_writer import build_codex_lines
from helix_desktop.histories.session_from_facts import (
    build_session_from_facts,
    list_active_compactions,
    origin_of_conversation,
)
from helix_desktop.protocols.gateway_message import Piece, PieceKind, ProtocolMessage, Speaker
from helix_desktop.protocols.protocol_table import WIRE_MODULES
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.session_preparation import SessionPreparation
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.peers.agent_provider import WRITERS, Calls, Says

WIRE = WIRE_MODULES["anthropic"]
RESPONSES = WIRE_MODULES["openai-responses"]
SUMMARY = (
    "This session is being continued from a previous conversation that ran out of context.\n"
    "Summary:\n{text}\nPlease continue."
)


class Session:
    """A session of an agent as it sends it: one request after another."""

    agent = "Claude Code"
    name = "session"
    prefix = "t"  # Of the ids of its calls.
    tools: tuple[facts.ToolSpec, ...] = TOOLS

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
            "anthropic", self.agent, self.name, self.head, "m", "system", self.tools, chain
        )
        sent = await self.conversations.receive_request(arrival, messages)
        unchanged = tuple(UnchangedMessage(position) for position in range(len(messages)))
        assert sent.entries in ((), unchanged), "what the agent sends goes on as it came"
        return sent

    async def answer(self, sent: Sent, says: str, *, makes_call: bool = False) -> None:
        blocks: list[Any] = [Says(says)]
        if makes_call:
            self.calls += 1
            command = f"cat {self.calls} of {self.prefix}"
            blocks.append(Calls("Bash", {"command": command}, f"{self.prefix}{self.calls}"))
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
        call = f"{self.prefix}{self.calls}"
        self.units.append(WIRE.result_message(call, "Bash", f"output of {words}"))
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


async def lines_for_codex(made: Workbench, conversation: str) -> list[Any]:
    """The lines with which Codex would resume a conversation."""
    recorded = await made.read_conversation_facts(conversation)
    digests: list[Any] = []
    for one in recorded:
        if isinstance(one.fact, facts.ToolReturned):
            digests.append(one.fact.output.digest)
        if isinstance(one.fact, facts.UserSaid):
            attached = [part for part in one.fact.parts if isinstance(part, facts.Attachment)]
            digests.extend(part.stored.digest for part in attached)
    contents = await made.workspace.cache.read_contents(digests)
    origin = origin_of_conversation(recorded)
    session = build_session_from_facts(recorded, contents.get, "/x", origin, is_for_same_agent=True)
    return list(build_codex_lines(session, "new", 1.0))


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


async def test_what_opencode_has_summarized_stays_recallable(tmp_path: Path) -> None:
    """Its own question and the model's summary stand there in place of every earlier message."""
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        session.agent = "opencode"
        for number, words in enumerate(["count the files", "and the folders"]):
            await session.work(words)
            session.units = [
                WIRE.user_message("What did we do so far?"),
                {"role": "assistant", "content": f"Summary {number} of what was counted."},
            ]
        session.head = "with other tools"
        sent = await session.work("and the links")
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation

        restored, compactions = await restored_words(made, row.id)
        assert compactions == 2
        assert restored[-1] == "Done: and the links."
        for said in ("count the files", "output of count the files", "Done: and the folders."):
            assert said in restored
        assert "What did we do so far?" not in restored, "opencode said that, not the user"

        opened = await made.open_session(row.id)
        state = opened.conversation.state
        newest_fold = state.live_folds[-1]
        assert "Summary 1 of what was counted." in newest_fold.text
        recalled = await recall_folded_messages(
            state, made.workspace.cache, made.token_counter, newest_fold.fold
        )
        for said in ("count the files", "output of and the folders"):
            assert said in recalled
        found = await recall_folded_messages(
            state, made.workspace.cache, made.token_counter, "", "folders"
        )
        assert "and the folders" in found
        await conversations.aclose()


class SessionOfCodex(Session):
    """A session in Codex's protocol. Its compaction keeps the user's messages."""

    agent = "Codex"

    def __init__(self, conversations: LocalAgentConversations) -> None:
        super().__init__(conversations)
        text = {"type": "input_text", "text": "You may write files."}
        developer = {"type": "message", "role": "developer", "content": [text]}
        environment = RESPONSES.user_message("<environment_context>/w</environment_context>")
        self.units = [developer, environment]

    @property
    def messages(self) -> Sequence[ProtocolMessage]:
        messages: Sequence[ProtocolMessage] = RESPONSES.parse_messages({"input": self.units})
        return messages

    async def ask(self, text: str = "") -> Sent:
        sent = await self.send(text)
        unchanged = tuple(UnchangedMessage(at) for at in range(sent.ticket.messages))
        assert sent.entries in ((), unchanged), "what the agent sends goes on as it came"
        return sent

    async def send(self, text: str = "") -> Sent:
        if text:
            self.units.append(RESPONSES.user_message(text))
        messages = self.messages[1:]  # The instructions before the conversation are no part of it.
        chain = compute_message_hashes("openai-responses", messages)
        arrival = Arrival(
            "openai-responses", self.agent, self.name, self.head, "m", "", self.tools, chain
        )
        return await self.conversations.receive_request(arrival, messages)

    async def answer(self, sent: Sent, says: str, *, makes_call: bool = False) -> None:
        content = [{"type": "output_text", "text": says}]
        self.units.append({"type": "message", "role": "assistant", "content": content})
        if makes_call:
            self.calls += 1
            call = {"type": "function_call", "name": "Bash", "arguments": "{}"}
            self.units.append({**call, "call_id": f"{self.prefix}{self.calls}"})
        reply = RESPONSES.parse_messages({"input": self.units})[-1]
        replied = Replied(reply.pieces, "m", facts.Stop.END, facts.Usage(10, 0, 0, 1))
        await self.conversations.record_agent_reply(sent.ticket, replied, reply.identity_key)

    async def work(self, words: str) -> Sent:
        sent = await self.ask(words)
        await self.answer(sent, "I look.", makes_call=True)
        call = f"{self.prefix}{self.calls}"
        self.units.append(RESPONSES.result_message(call, "Bash", f"output of {words}"))
        sent = await self.ask()
        await self.answer(sent, f"Done: {words}.")
        return sent

    async def compact(self, summary: Any) -> None:
        """Ask for a summary, and keep what the user has said and that in place of all else."""
        before = list(self.units)
        if summary["type"] == "compaction":
            self.units.append({"type": "compaction_trigger"})
            sent = await self.ask()
            reply = RESPONSES.parse_messages({"input": [summary]})[0]
            replied = Replied(reply.pieces, "m", facts.Stop.END, facts.Usage(10, 0, 0, 1))
            await self.conversations.record_agent_reply(sent.ticket, replied, reply.identity_key)
        else:
            sent = await self.ask("Create a handoff summary.")
            await self.answer(sent, summary["content"][0]["text"].splitlines()[-1])
        self.units = before
        kept: list[Any] = []
        for unit in self.units:
            is_of_user = unit.get("role") in ("developer", "user")
            if is_of_user and not _is_summary_of_codex(unit):
                kept.append(unit)
        self.units = [*kept, summary]


def _is_summary_of_codex(unit: Any) -> bool:
    text: str = unit["content"][0]["text"]
    return text.startswith("Another language model")


def sealed_summary(number: int) -> Any:
    return {"type": "compaction", "id": f"cmp_{number}", "encrypted_content": f"sealed {number}"}


def summary_in_words(number: int) -> Any:
    return RESPONSES.user_message(
        "Another language model started to solve this problem and produced a summary of its"
        f" thinking process.\nSummary {number} of what was counted."
    )


@pytest.mark.parametrize("summary", [sealed_summary, summary_in_words])
async def test_what_codex_has_compacted_stays_recallable(tmp_path: Path, summary: Any) -> None:
    """Its kept messages are known already, and nothing of them is written twice."""
    async with bench(tmp_path) as made:
        session = SessionOfCodex(LocalAgentConversations(made, _nobody))
        for number, words in enumerate(["count the files", "and the folders"]):
            await session.work(words)
            await session.compact(summary(number))
        await session.conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        sent = await session.work("and the links")
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation

        restored, compactions = await restored_words(made, row.id)
        assert compactions == 2
        assert restored[-1] == "Done: and the links."
        for said in ("count the files", "output of count the files", "Done: and the folders."):
            assert restored.count(said) == 1
        assert not [said for said in restored if "sealed 0" in said or "handoff" in said]
        assert not [said for said in restored if said.startswith("[block: 29")], "the agent asked"

        opened = await made.open_session(row.id)
        state = opened.conversation.state
        newest_fold = state.live_folds[-1]
        assert "count the files\n\nand the folders" in newest_fold.text
        recalled = await recall_folded_messages(
            state, made.workspace.cache, made.token_counter, newest_fold.fold
        )
        for said in ("count the files", "output of and the folders"):
            assert said in recalled
        found = await recall_folded_messages(
            state, made.workspace.cache, made.token_counter, "", "folders"
        )
        assert "and the folders" in found

        lines = await lines_for_codex(made, row.id)
        behind = lines[max(at for at, line in enumerate(lines) if line["type"] == "compacted") :]
        kept = [item["content"][0]["text"] for item in behind[0]["payload"]["replacement_history"]]
        assert kept[:2] == ["count the files", "and the folders"]
        items = [line["payload"] for line in behind[1:]]
        if summary is sealed_summary:
            assert items[0] == summary(1), "only its provider can read it"
            assert len(kept) == 2
        else:
            assert kept[2:] == [summary(1)["content"][0]["text"]]
        said_behind = [item["content"][0]["text"] for item in items if item.get("role") == "user"]
        assert said_behind == ["and the links"]
        await session.conversations.aclose()


@pytest.mark.parametrize("summary", [sealed_summary, summary_in_words])
@pytest.mark.parametrize("unit_count", [3, 6], ids=["before_reply", "behind_result"])
@pytest.mark.parametrize("is_restarted", [False, True])
async def test_codex_goes_back_before_its_compactions(
    tmp_path: Path, summary: Any, unit_count: int, *, is_restarted: bool
) -> None:
    """The messages that it kept stand before the compactions, too."""
    async with bench(tmp_path) as made:
        session = SessionOfCodex(LocalAgentConversations(made, _nobody))
        await session.work("one")
        first = session.units[:unit_count]
        await session.compact(summary(0))
        await session.work("two")
        await session.compact(summary(1))
        await session.work("three")
        if is_restarted:
            await session.conversations.aclose()
            session.conversations = LocalAgentConversations(made, _nobody)
        session.units = list(first)
        await session.work("another way")
        if is_restarted:
            await session.conversations.aclose()
            session.conversations = LocalAgentConversations(made, _nobody)
        sent = await session.work("and on")
        (row,) = made.list_conversations()
        assert row.id == sent.ticket.conversation
        words, compactions = await restored_words(made, row.id)
        assert compactions == 0
        assert "two" not in words
        assert words.count("one") == 1
        assert words.count("output of one") == (unit_count == 6)
        assert words.count("Done: another way.") == 1
        assert words[-1] == "Done: and on."
        await session.conversations.aclose()


async def fail_to_summarize(*_: object) -> tuple[str, facts.Usage, str]:
    return "", facts.Usage(9, 0, 0, 9), "m"


@pytest.mark.parametrize("summary", [sealed_summary, summary_in_words])
async def test_a_fold_over_a_summary_of_codex_leaves_what_only_its_provider_can_read(
    tmp_path: Path, summary: Any
) -> None:
    async with bench(tmp_path) as made:
        session = SessionOfCodex(LocalAgentConversations(made, fail_to_summarize))
        await session.work("count the files")
        await session.compact(summary(0))
        sent = await session.ask("and the numbers")
        while not any(isinstance(entry, InsertedText) and entry.covered for entry in sent.entries):
            await session.answer(sent, "I look.", makes_call=True)
            call = f"{session.prefix}{session.calls}"
            output = "\n".join(f"{call} has {number * 7919}" for number in range(600))
            session.units.append(RESPONSES.result_message(call, "Bash", output))
            await session.send()
            await session.conversations._tasks.wait_for_all_tasks()
            sent = await session.send()
            shorter = await session.conversations.fold_after_overflow(sent.ticket)
            sent = shorter or sent
        body = {"input": session.units}
        folded = build_folded_body("openai-responses", body, session.messages, sent.entries)
        shown = folded["input"]
        assert shown[0] == session.units[0], "its instructions"
        assert len(shown) < len(session.units)
        assert (summary(0) in shown) == (summary is sealed_summary)

        opened = await made.open_session(sent.ticket.conversation)
        state = opened.conversation.state
        recalled = await recall_folded_messages(
            state, made.workspace.cache, made.token_counter, state.live_folds[-1].fold
        )
        for said in ("count the files", "output of count the files", "and the numbers"):
            assert said in recalled
        await session.conversations.aclose()


def lines_as_codex_writes_them(lines: Sequence[Any]) -> list[Any]:
    """A sealed summary stands within the line of its compaction."""
    written: list[Any] = []
    for line in lines:
        payload = line["payload"]
        if payload.get("type") == "compaction":
            written[-1]["payload"]["replacement_history"].append(payload)
        else:
            written.append(line)
    return written


@pytest.mark.parametrize("summary", [sealed_summary, summary_in_words])
@pytest.mark.parametrize("goes_on_without_wrap", [False, True])
async def test_what_codex_has_compacted_without_wrap_stays_in_its_conversation(
    tmp_path: Path, summary: Any, *, goes_on_without_wrap: bool
) -> None:
    """It was in a branch that was left once the session went on behind wrap."""
    async with bench(tmp_path / "first") as made:
        session = SessionOfCodex(LocalAgentConversations(made, _nobody))
        await session.work("count the files")
        await session.work("and the folders")
        await session.compact(summary(0))
        units = list(session.units)
        await session.work("and the links")
        if goes_on_without_wrap:
            units = list(session.units)
        await session.conversations.aclose()
        (row,) = made.list_conversations()
        lines = lines_as_codex_writes_them(await lines_for_codex(made, row.id))
    if not goes_on_without_wrap:
        kinds = [line["type"] for line in lines]
        lines = lines[: kinds.index("compacted") + 1]
    file = tmp_path / "rollout-2026-11-28T00-00-00-new.jsonl"
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines), "utf-8")

    async with bench(tmp_path / "second") as made:
        preparation = SessionPreparation(copies=tmp_path / "copies")
        await made.import_histories([file], preparation=preparation)
        (row,) = made.list_conversations()
        imported, _ = await restored_words(made, row.id)
        session = SessionOfCodex(LocalAgentConversations(made, _nobody))
        session.name = "new"
        session.prefix = "later"
        session.units = units
        sent = await session.work("and on")
        await session.conversations.aclose()
        assert sent.ticket.conversation == row.id
        restored, compactions = await restored_words(made, row.id)
        assert compactions
        without_sealed = [said for said in restored if not said.startswith("[Attachment: block]")]
        assert without_sealed == [
            *imported,
            "and on",
            "I look.",
            "output of and on",
            "Done: and on.",
        ]
        items = [line["payload"] for line in await lines_for_codex(made, row.id)]
        assert (summary(0) in items) == (summary is sealed_summary), "only its provider can read it"


async def test_a_user_who_asks_what_opencode_asks_begins_no_summary(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        session.agent = "opencode"
        await session.work("What did we do so far?")
        sent = await session.work("and the links")
        words, compactions = await restored_words(made, sent.ticket.conversation)
        assert compactions == 0
        assert words.count("What did we do so far?") == 1
        await conversations.aclose()


async def test_a_question_without_tools_is_paid_beside_the_steps_and_changes_no_tools(
    tmp_path: Path,
) -> None:
    """Codex asks a provider of the user's own so. `cost` said then that the tools had changed."""
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        session.agent = "Codex"
        await session.work("count the files")
        units = list(session.units)
        session.tools = ()
        sent = await session.ask("Create a handoff summary.")
        await session.answer(sent, "All was counted.")
        session.tools = TOOLS
        session.units = [*units[:1], WIRE.user_message("All was counted.")]
        last_sent = await session.ask("and the folders")
        assert last_sent.ticket.conversation == sent.ticket.conversation
        recorded = await made.read_conversation_facts(sent.ticket.conversation)
        assert sum(isinstance(one.fact, facts.ToolsOffered) for one in recorded) == 1
        (spent,) = [one.fact for one in recorded if isinstance(one.fact, facts.Spent)]
        assert spent.usage.input == 10
        words = [
            part.text
            for one in recorded
            if isinstance(one.fact, facts.UserSaid)
            for part in one.fact.parts
            if isinstance(part, facts.Text)
        ]
        assert words == ["count the files", "All was counted.", "and the folders"]
        await conversations.aclose()


async def test_what_a_question_without_tools_has_of_results_is_recorded(tmp_path: Path) -> None:
    """In the middle of a turn they stand in no other request."""
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = Session(conversations)
        session.agent = "Codex"
        sent = await session.ask("count the files")
        await session.answer(sent, "I look.", makes_call=True)
        session.units.append(WIRE.result_message("t1", "Bash", "There are nine."))
        session.tools = ()
        sent = await session.ask("Create a handoff summary.")
        recorded = await made.read_conversation_facts(sent.ticket.conversation)
        (result,) = [one.fact for one in recorded if isinstance(one.fact, facts.ToolReturned)]
        contents = await made.workspace.cache.read_contents([result.output.digest])
        assert contents[result.output.digest] == b"There are nine."
        await conversations.aclose()


PI_SUMMARY = (
    "The conversation history before this point was compacted into the following summary:\n\n"
    "<summary>\n{text}\n</summary>"
)
LONG = " and look at each of them closely, as it was said before" * 5
GEMINI_QUESTION = "First, reason in your scratchpad. Then, generate the updated <state_snapshot>."
QUESTION_OF_COPILOT = (
    "Please create a detailed summary of the conversation so far. The history is being compacted so"
)
SNAPSHOT = "<state_snapshot>{}</state_snapshot>".format("The files were counted, one by one. " * 5)


class UnnamedSession(Session):
    """A session of pi: its requests name no session, and its summary keeps the newest messages."""

    agent = "pi"
    name = ""

    def keep(self, first: int, text: str = "It was counted.") -> None:
        """Begin anew with a summary of all before the message `first`."""
        self.units = [WIRE.user_message(PI_SUMMARY.format(text=text)), *self.units[first:]]


async def words_of(made: Workbench, conversation: str) -> list[str]:
    words, _ = await restored_words(made, conversation)
    return words


async def test_what_an_agent_without_session_keeps_behind_its_summary_names_the_conversation(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as made:
        session = UnnamedSession(LocalAgentConversations(made, _nobody))
        first = await session.work("count the files" + LONG)
        await session.work("and the folders" + LONG)
        session.keep(4)
        await session.conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        await session.work("and the links" + LONG)
        session.keep(5, "Files and folders were counted.")  # From a reply on, within a turn.
        sent = await session.work("and all else")
        (row,) = made.list_conversations()
        assert row.id == first.ticket.conversation == sent.ticket.conversation
        words, compactions = await restored_words(made, row.id)
        assert compactions == 2
        typed = [said for said in words if said.startswith(("count", "and the", "and all"))]
        assert typed == [
            "count the files" + LONG, "and the folders" + LONG, "and the links" + LONG,
            "and all else",
        ]  # fmt: skip
        for said in typed:
            assert words.count(f"output of {said}") == 1, "nothing is lost, and nothing twice"
        # As the next process finds it.
        await session.conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        later = await session.work("go on")
        assert later.ticket.conversation == row.id
        assert (await words_of(made, row.id))[-1] == "Done: go on."
        await session.conversations.aclose()


async def test_a_summary_is_never_joined_to_another_conversation(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        one = UnnamedSession(conversations)
        other = UnnamedSession(conversations)
        other.prefix = "u"
        await one.work("begin")
        await one.work("go on")
        await other.work("begin here")
        await other.work("go on")
        # Both end with the same words, and too few of them to tell one from the other.
        one.units = [WIRE.user_message(PI_SUMMARY.format(text="x")), one.units[-1]]
        await one.work("what now?")
        assert len(made.list_conversations()) == 3

        await other.work("count" + LONG)
        stranger = UnnamedSession(conversations)
        stranger.units = list(other.units)
        stranger.units[-1] = WIRE.user_message("Something else was said at the end." + LONG)
        stranger.keep(4, "Something else was counted.")
        await stranger.work("what now?")
        assert len(made.list_conversations()) == 4

        # With the very end of a conversation it is that one.
        other.keep(4)
        sent = await other.work("what now?")
        assert len(made.list_conversations()) == 4
        assert "begin here" in await words_of(made, sent.ticket.conversation)
        await conversations.aclose()


async def test_a_conversation_goes_on_from_the_summary_that_its_model_wrote(tmp_path: Path) -> None:
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = UnnamedSession(conversations)
        session.agent = "Gemini CLI"
        other = UnnamedSession(conversations)
        other.agent = session.agent
        await session.work("count the files")
        await other.work("count the folders")
        units = list(session.units)
        session.tools = ()
        sent = await session.ask(GEMINI_QUESTION)
        session.tools = TOOLS
        await session.answer(sent, SNAPSHOT)
        assert len(made.list_conversations()) == 2, "to ask for a summary begins nothing"
        acknowledged = WIRE.parse_reply(
            WRITERS["anthropic"].whole(
                [Says("Got it. Thanks for the additional context!")],
                {"input": 0, "read": 0, "write": 0},
                "1",
            )
        )
        session.units = [WIRE.user_message(SNAPSHOT), *acknowledged.message.units]
        sent = await session.work("and the links")
        assert len(made.list_conversations()) == 2
        words = await words_of(made, sent.ticket.conversation)
        assert "count the files" in words
        assert "count the folders" not in words
        assert GEMINI_QUESTION not in words
        assert len(units) < len(words)
        # The same words, which nobody's model wrote here, are a session of its own.
        stranger = UnnamedSession(conversations)
        stranger.agent = session.agent
        stranger.units = [WIRE.user_message(SNAPSHOT.replace("counted", "read"))]
        await stranger.work("go on")
        assert len(made.list_conversations()) == 3
        await conversations.aclose()


async def test_a_conversation_goes_on_from_the_summary_that_was_its_last_reply(
    tmp_path: Path,
) -> None:
    """Copilot CLI asks for it with its tools, as for any step, and keeps nothing behind it."""
    beginning = "Some of the conversation history has been summarized to free up context."
    summary = "The files were counted, one by one. " * 5
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = UnnamedSession(conversations)
        other = UnnamedSession(conversations)
        for each in (session, other):
            each.agent = "Copilot CLI"
        await session.work("count the files")
        await other.work("count the folders")
        sent = await session.ask("Please create a detailed summary of the conversation so far.")
        await session.answer(sent, f"<summary>{summary}</summary>")
        session.units = [WIRE.user_message(f"{beginning}\n<summary>\n{summary}\n</summary>")]
        later = await session.work("and the links")
        assert later.ticket.conversation == sent.ticket.conversation
        words = await words_of(made, sent.ticket.conversation)
        assert "count the files" in words
        assert "count the folders" not in words
        assert "Please create a detailed summary of the conversation so far." not in words
        assert words[-1] == "Done: and the links."
        # A summary that is nobody's last reply begins a session of its own.
        other.units = [WIRE.user_message(f"{beginning}\n<summary>\n{summary[2:]}\n</summary>")]
        await other.work("go on")
        assert len(made.list_conversations()) == 3
        await conversations.aclose()


@pytest.mark.parametrize("is_summary_first", [False, True])
@pytest.mark.parametrize("steps", [1, 2])
async def test_an_agent_that_works_on_while_its_summary_is_written_stays_in_its_conversation(
    tmp_path: Path, steps: int, is_summary_first: bool
) -> None:
    """Copilot CLI asks for its summary beside its next steps, and what it keeps says little: it was
    another conversation.
    """
    beginning = "Some of the conversation history has been summarized to free up context."
    summary = "The files were counted, one by one. " * 5
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = UnnamedSession(conversations)
        session.agent = "Copilot CLI"
        first = await session.ask("count the files")
        await session.answer(first, "I look.", makes_call=True)
        session.units.append(WIRE.result_message("t1", "Bash", "output of step 1"))
        beside = UnnamedSession(conversations)
        beside.agent = session.agent
        beside.units = list(session.units)
        question = await beside.ask(QUESTION_OF_COPILOT)
        if is_summary_first:
            await beside.answer(question, f"<summary>{summary}</summary>")
        for number in range(2, steps + 2):
            step = await session.ask()
            await session.answer(step, f"I look on {number}.", makes_call=True)
            result = WIRE.result_message(f"t{number}", "Bash", f"output of step {number}")
            session.units.append(result)
        if not is_summary_first:
            await beside.answer(question, f"<summary>{summary}</summary>")
        kept = session.units[-2:]
        # The same end behind a summary that nobody's model wrote here is a session of its own.
        stranger = UnnamedSession(conversations)
        stranger.agent = session.agent
        unknown_summary = summary.replace("counted", "read")
        words_before = f"{beginning}\n<summary>\n{unknown_summary}\n</summary>"
        stranger.units = [WIRE.user_message(words_before), *kept]
        sent = await stranger.ask()
        await stranger.answer(sent, "I am another one.")
        assert sent.ticket.conversation != first.ticket.conversation

        words_before = f"{beginning}\n<summary>\n{summary}\n</summary>"
        session.units = [WIRE.user_message(words_before), *kept]
        sent = await session.ask()
        await session.answer(sent, "Done: the files.")
        assert sent.ticket.conversation == first.ticket.conversation
        assert len(made.list_conversations()) == 2
        words = await words_of(made, sent.ticket.conversation)
        for number in range(1, steps + 2):
            assert words.count(f"output of step {number}") == 1, "nothing is lost, nothing is twice"
        assert words.count("count the files") == 1
        assert QUESTION_OF_COPILOT not in words
        assert words[-1] == "Done: the files."
        await conversations.aclose()


async def test_what_cline_has_summarized_stays_in_its_conversation(tmp_path: Path) -> None:
    """Cline asks for its summary beside the conversation, in words of its own."""
    summary = "Context summary:\n\n{text}\n\n## Files\nRead:\n- none\nModified:\n- none"
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        session = UnnamedSession(conversations)
        session.agent = "Cline"
        first = await session.work("count the files" + LONG)
        await session.work("and the folders" + LONG)
        for number in range(2):
            text = summary.format(text=f"They were counted {number}.")
            session.units = [WIRE.user_message(text), *session.units[-4:]]
            await session.work(f"and the links {number}" + LONG)
        (row,) = made.list_conversations()
        assert row.id == first.ticket.conversation
        words, compactions = await restored_words(made, row.id)
        assert compactions == 2
        for said in ("count the files", "and the folders", "and the links 0", "and the links 1"):
            assert words.count(f"output of {said}{LONG}") == 1, "nothing is lost, and nothing twice"
        # A user who begins with these words has typed them.
        typing = UnnamedSession(conversations)
        typing.agent = session.agent
        await typing.work("Context summary:\n\nwhat is that?")
        assert len(made.list_conversations()) == 2
        assert any(one.title == "Context summary:" for one in made.list_conversations())
        await conversations.aclose()


REMINDER = "<system-reminder>\nThe current date is: Saturday.\n</system-reminder>"


def with_reminder(words: str, reminder: str) -> Any:
    unit = WIRE.user_message(words)
    unit["content"] = [{"type": "text", "text": reminder}, {"type": "text", "text": words}]
    return unit


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_conversation_goes_on_although_its_agent_reminds_its_model_of_something_else(
    tmp_path: Path, sessions: int
) -> None:
    """Qwen Code leaves out the date when it resumes a session: each resumption was a second
    conversation. Of two sessions with the same words it cannot be known which one goes on.
    """
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        for number in range(sessions):
            session = UnnamedSession(conversations)
            session.agent = "Qwen Code"
            reminder = REMINDER.replace("Saturday", f"Saturday {number}")
            session.units = [with_reminder("count the files" + LONG, reminder)]
            sent = await session.ask()
            await session.answer(sent, "Done." + LONG)
            await session.work("and the folders")
        await conversations.aclose()
        session.conversations = LocalAgentConversations(made, _nobody)
        session.units[0] = WIRE.user_message("count the files" + LONG)
        later = await session.work("and the links")
        is_same = later.ticket.conversation == sent.ticket.conversation
        assert is_same is (sessions == 1)
        assert len(made.list_conversations()) == (1 if sessions == 1 else 3)
        if is_same:
            words = await words_of(made, sent.ticket.conversation)
            assert words.count("count the files" + LONG) == 1
            assert words[-1] == "Done: and the links."
            # As the next process finds it.
            await session.conversations.aclose()
            session.conversations = LocalAgentConversations(made, _nobody)
            last = await session.work("and all else")
            assert last.ticket.conversation == sent.ticket.conversation
        await session.conversations.aclose()


def test_a_summary_is_what_the_first_tags_that_are_closed_enclose() -> None:
    pick = random.Random(7)
    parts = ("<summary>", "</summary>", "<state_snapshot>", "</state_snapshot>", " a", "b\n", "<")
    tagged = re.compile(r"<(summary|state_snapshot)>(.*?)</\1>", re.DOTALL)
    for _ in range(3_000):
        reply = "".join(pick.choices(parts, k=pick.randrange(9)))
        match = tagged.search(reply)
        expected = match[2] if match else reply
        assert text_of_summary(reply) == expected.strip()


def test_a_snapshot_behind_the_models_notes_is_a_summary() -> None:
    pick = random.Random(7)
    parts = ("<state_snapshot>", "</state_snapshot>", "<notes>", " a", "b\n", "<")
    with_snapshot = re.compile(
        r"\s*<state_snapshot>|\s*<.*<state_snapshot>.*</state_snapshot>\s*\Z", re.DOTALL
    )
    for _ in range(3_000):
        text = "".join(pick.choices(parts, k=pick.randrange(9)))
        piece = Piece(PieceKind.TEXT, text)
        found = find_summary_piece(ProtocolMessage(Speaker.USER, (), (piece,)))
        assert (found is not None) == bool(with_snapshot.match(text)), text


def test_thousands_of_tags_without_an_end_hold_nobody_up() -> None:
    """A reply of 108 KB held every conversation up for 4.7 seconds."""
    before = time.process_time()
    assert text_of_summary("<summary>" * 12_000) == "<summary>" * 12_000
    piece = Piece(PieceKind.TEXT, "<notes>" + "<state_snapshot>" * 12_000)
    assert find_summary_piece(ProtocolMessage(Speaker.USER, (), (piece,))) is None
    assert time.process_time() - before < 0.3
