"""Documents in agents' messages: stored with their text, and never JSON or base64 for a model."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.messages import Message, ToolResult
from helix_desktop.engine.request_building import build_request
from helix_desktop.engine.view_contents import ViewContents
from helix_desktop.gateway.conversation_matching import compute_message_hashes
from helix_desktop.gateway.conversations_port import Arrival, Replied
from helix_desktop.gateway.folded_request import build_folded_body
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.view_entries import ChangedMessage, ChangedPart
from helix_desktop.histories import claude_code_writer, codex_writer
from helix_desktop.histories.openai_chat_export import digests_needed_for_export
from helix_desktop.histories.session_from_facts import (
    build_session_from_facts,
    origin_of_conversation,
)
from helix_desktop.protocols.protocol_table import MESSAGE_FIELDS, WIRE_MODULES
from helix_desktop.workbench.open_workbench import Workbench
from tests.documents import written_documents
from tests.faults.gateway_histories import TOOLS, _nobody, bench
from tests.gateway.running import PROTOCOLS
from tests.peers.agent_provider import WRITERS, Calls, Says

Json = Any
PDF = written_documents.pdf(1)
ENCODED = base64.b64encode(PDF).decode()
SESSION_ID = "0199aaaa-bbbb-7ccc-8ddd-eeeeeeeeeeee"
ADDRESS = f"data:application/pdf;base64,{ENCODED}"
DOCUMENTS: dict[str, Json] = {
    "anthropic": {
        "type": "document",
        "title": "plan.pdf",
        "source": {"type": "base64", "media_type": "application/pdf", "data": ENCODED},
    },
    "openai-responses": {"type": "input_file", "filename": "plan.pdf", "file_data": ADDRESS},
    "openai-chat": {"type": "file", "file": {"filename": "plan.pdf", "file_data": ADDRESS}},
    "gemini": {
        "inlineData": {
            "mimeType": "application/pdf",
            "data": ENCODED,
            "displayName": "plan.pdf",
        }
    },
}
all_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


def attached(protocol: str) -> Json:
    """A message of the user with words and a document."""
    unit = WIRE_MODULES[protocol].user_message("read this")
    field = "parts" if protocol == "gemini" else "content"
    parts = unit[field]
    if isinstance(parts, str):
        parts = [{"type": "text", "text": parts}]
    return {**unit, field: [*parts, DOCUMENTS[protocol]]}


def result_with_document(protocol: str) -> Json:
    """The result of a call with a text and a document beside it."""
    wire: Any = WIRE_MODULES[protocol]
    unit = wire.result_message("call-1", "Read", "PDF file read")
    document = DOCUMENTS[protocol]
    if protocol == "anthropic":
        (block,) = unit["content"]
        block["content"] = [{"type": "text", "text": block["content"]}, document]
    elif protocol == "openai-responses":
        unit["output"] = [{"type": "input_text", "text": unit["output"]}, document]
    elif protocol == "openai-chat":
        unit["content"] = [{"type": "text", "text": unit["content"]}, document]
    else:
        (part,) = unit["parts"]
        part["functionResponse"]["parts"] = [document]
    return unit


async def recorded(made: Workbench, protocol: str) -> tuple[str, list[Json]]:
    """A conversation with an attached document and one in a result, and its messages."""
    wire: Any = WIRE_MODULES[protocol]
    conversations = LocalAgentConversations(made, _nobody)
    units = [attached(protocol)]

    async def ask() -> Any:
        body = {MESSAGE_FIELDS[protocol]: units}
        messages = wire.parse_messages(body)
        chain = compute_message_hashes(protocol, messages)
        arrival = Arrival(protocol, "An agent", "session", "head", "m", "system", TOOLS, chain)
        return await conversations.receive_request(arrival, messages)

    sent = await ask()
    blocks = [Says("I read."), Calls("Read", {"file": "plan.pdf"}, "call-1")]
    reply = wire.parse_reply(
        WRITERS[protocol].whole(blocks, {"input": 3, "read": 0, "write": 0}, "1")
    )
    units.extend(reply.message.units)
    message = wire.parse_messages({MESSAGE_FIELDS[protocol]: units})[-1]
    replied = Replied(message.pieces, "m", facts.Stop.CALLS, facts.Usage(10, 0, 0, 1))
    await conversations.record_agent_reply(sent.ticket, replied, message.identity_key)
    units.append(result_with_document(protocol))
    sent = await ask()
    await conversations.aclose()
    return sent.ticket.conversation, units


async def words_for_model(made: Workbench, conversation: str) -> tuple[str, list[ToolResult]]:
    """What another model is sent of the conversation: the user's words, and the results."""
    session = await made.open_session(conversation)
    view = session.conversation.current_view()
    contents = await ViewContents(made.workspace.cache).read_view_contents(view)
    request = build_request(view, contents)
    words: list[str] = []
    results: list[ToolResult] = []
    for message in request.messages:
        assert isinstance(message, Message)
        for part in message.parts:
            if isinstance(part, ToolResult):
                results.append(part)
            elif isinstance(part, facts.Text):
                words.append(part.text)
    return "\n".join(words), results


@all_protocols
async def test_a_document_of_an_agent_is_its_text_for_another_model(
    tmp_path: Path, protocol: str
) -> None:
    async with bench(tmp_path) as made:
        conversation, _ = await recorded(made, protocol)
        words, results = await words_for_model(made, conversation)
        assert "read this" in words
        assert "[Text of the document plan.pdf, 1 page. The original: " in words
        assert written_documents.ASCII_SENTENCE in words
        (result,) = results
        assert result.text.startswith("PDF file read\n[Text of the document plan.pdf")
        everything = words + result.text
        assert ENCODED[:200] not in everything
        assert '"type"' not in everything


@all_protocols
async def test_a_document_is_given_back_as_itself_or_as_its_text(
    tmp_path: Path, protocol: str
) -> None:
    async with bench(tmp_path) as made:
        conversation, _ = await recorded(made, protocol)
        recorded_facts = await made.read_conversation_facts(conversation)
        digests = digests_needed_for_export(recorded_facts)
        contents = await made.workspace.cache.read_contents(digests)
        origin = origin_of_conversation(recorded_facts)
        for is_for_same_agent in (False, True):
            session = build_session_from_facts(
                recorded_facts, contents.get, "/x", origin, is_for_same_agent=is_for_same_agent
            )
            claude = str(list(claude_code_writer.FORMAT.build_lines(session, SESSION_ID, 1.0)))
            assert claude.count("'type': 'document'") == 1 + is_for_same_agent
            assert claude.count(ENCODED) == 1 + is_for_same_agent
            codex = str(list(codex_writer.FORMAT.build_lines(session, SESSION_ID, 1.0)))
            assert codex.count("[Text of the document plan.pdf, 1 page.") >= 2
            assert ENCODED[:200] not in codex


@all_protocols
def test_a_fold_of_a_document_is_a_text_in_its_place(protocol: str) -> None:
    """A text within the document's own block is refused by every provider."""
    wire: Any = WIRE_MODULES[protocol]
    body = {MESSAGE_FIELDS[protocol]: [attached(protocol)]}
    messages = wire.parse_messages(body)
    entry = ChangedMessage(0, (ChangedPart("said", "", 1, "in short"),))
    folded = build_folded_body(protocol, body, messages, [entry])
    (unit,) = folded[MESSAGE_FIELDS[protocol]]
    parts = unit["parts" if protocol == "gemini" else "content"]
    word = "input_text" if protocol == "openai-responses" else "text"
    assert parts[1] in ({"text": "in short"}, {"type": word, "text": "in short"})
    assert ENCODED[:200] not in str(folded)


@all_protocols
def test_a_fold_of_a_result_leaves_its_document(protocol: str) -> None:
    wire: Any = WIRE_MODULES[protocol]
    body = {MESSAGE_FIELDS[protocol]: [result_with_document(protocol)]}
    messages = wire.parse_messages(body)
    call = messages[0].pieces[0].id
    entry = ChangedMessage(0, (ChangedPart("result", call, 0, "in short"),), (call,))
    folded = build_folded_body(protocol, body, messages, [entry])
    assert "in short" in str(folded)
    assert "PDF file read" not in str(folded)
    assert ENCODED in str(folded)


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "document", "source": {"type": "text", "data": "all"}}, "document.txt]\nall"),
        ({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}}, "https://x/a.pdf"),
        ({"type": "input_file", "file_id": "file-1"}, "file-1"),
        ({"type": "file", "file": {"file_id": "file-2"}}, "file-2"),
        ({"fileData": {"fileUri": "gs://x", "mimeType": "application/pdf"}}, "gs://x"),
    ],
)  # fmt: skip
async def test_what_a_provider_has_of_a_document_is_said(
    tmp_path: Path, part: Json, words: str
) -> None:
    wire: Any = WIRE_MODULES["anthropic"]
    unit = {"role": "user", "content": [{"type": "text", "text": "read this"}, part]}
    async with bench(tmp_path) as made:
        conversations = LocalAgentConversations(made, _nobody)
        messages = wire.parse_messages({"messages": [unit]})
        chain = compute_message_hashes("anthropic", messages)
        arrival = Arrival("anthropic", "An agent", "session", "head", "m", "system", TOOLS, chain)
        sent = await conversations.receive_request(arrival, messages)
        said, _ = await words_for_model(made, sent.ticket.conversation)
        assert words in said
        assert "{" not in said
        await conversations.aclose()
