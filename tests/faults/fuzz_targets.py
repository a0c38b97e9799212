"""What is fuzzed: every parser that reads what others wrote. Only what a parser
documents may come out of it.

Each target takes bytes, and has a small corpus that shows the fuzzer what the format is about.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.messages import Request
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError
from helix_desktop.gui.transcript.markdown_blocks import (
    block_as_plain_text,
    find_link_reference_lines,
    parse_markdown_blocks,
)
from helix_desktop.gui.transcript.markdown_chunks import split_markdown_chunks
from helix_desktop.histories import history_reading as histories
from helix_desktop.mcp_client import server_config as mcp_config
from helix_desktop.protocols.anthropic.anthropic_client import AnthropicMessages
from helix_desktop.protocols.event_stream import EventStreamParser
from helix_desktop.protocols.gemini.gemini_client import GeminiProtocol
from helix_desktop.protocols.openai_chat.chat_client import OpenAIChat
from helix_desktop.protocols.openai_responses.responses_client import OpenAIResponses
from helix_desktop.protocols.protocol_dialect import ProtocolDialect
from helix_desktop.store import workspace_settings
from helix_desktop.tools.argument_schema import fit_arguments_to_schema, parse_argument_text
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.peers.peer import Answer

SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "lines": {"type": "integer"}},
    "required": ["path"],
}
REQUEST = Request("m", "Be brief.", ())


@dataclass(frozen=True, slots=True)
class Target:
    """`run` raises where something is wrong."""

    run: Callable[[bytes], None]
    corpus: tuple[bytes, ...]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def sse(data: bytes) -> None:
    """The events are the same however the bytes are cut."""
    whole = EventStreamParser().feed_bytes(data)
    parser = EventStreamParser()
    pieces = [
        event for at in range(0, len(data), 3) for event in parser.feed_bytes(data[at : at + 3])
    ]
    assert pieces == whole, "cut into pieces, the stream reads differently"


def reading(dialect: ProtocolDialect) -> Callable[[bytes], None]:
    """A reading takes any event; what has been read gives a reply at any moment."""

    def run(data: bytes) -> None:
        stream = dialect.build_reply_reader(REQUEST)
        for event in EventStreamParser().feed_bytes(data):
            try:
                stream.feed_event(event)
            except (HelixError, ValueError):
                break
        reply = stream.reply_so_far("" if stream.is_reply_complete else "the stream was cut")
        for part in reply.parts:
            if isinstance(part, ToolCall):
                assert part.id, "a call without an id"

    return run


def arguments(data: bytes) -> None:
    """Arguments as a model wrote them: an object that fits, or a sentence for the model."""
    try:
        values = parse_argument_text(_text(data))
        checked = fit_arguments_to_schema(values, SCHEMA, "read_file")
    except HelixError:
        return
    assert isinstance(checked["path"], str)


def workspace_toml(data: bytes) -> None:
    try:
        workspace_settings.parse_workspace_settings(_text(data), Path("workspace.toml"))
    except HelixError:
        return


def imports(data: bytes) -> None:
    """A recorded session in anybody's form, or none."""
    with tempfile.TemporaryDirectory(prefix="helix-fuzz-") as folder:
        path = Path(folder) / "session.jsonl"
        path.write_bytes(data)
        try:
            histories.read_history_file(path)
        except HelixError:
            return


def markdown(data: bytes) -> None:
    """Chunks cover the text without a gap, and each becomes blocks."""
    text = _text(data)
    end = 0
    defined = find_link_reference_lines(text)
    for chunk in split_markdown_chunks(text):
        assert chunk.start >= end, "chunks overlap"
        assert not text[end : chunk.start].strip(), "text between two chunks is lost"
        end = chunk.end
        for block in parse_markdown_blocks(text, chunk, defined):
            block_as_plain_text(block)
    assert not text[end:].strip(), "the end of the text is lost"


def digests(data: bytes) -> None:
    try:
        digest = Digest.from_hex(_text(data))
    except ValueError:
        return
    assert Digest.from_hex(digest.hex) == digest


def mcp(data: bytes) -> None:
    """A pasted configuration: servers that can be written down and read again, or a sentence."""
    try:
        pasted = mcp_config.parse_pasted_text(_text(data))
    except HelixError:
        return
    for server in pasted.servers:
        again = mcp_config.parse_server_table(server.name, server.as_settings_table())
        assert again == server, "written down and read again, it is another server"


def _bytes(*answers: Answer) -> tuple[bytes, ...]:
    return tuple(
        b"".join(piece for piece in answer.pieces if isinstance(piece, bytes)) for answer in answers
    )


def _said(server: object) -> tuple[bytes, ...]:
    calls = [("read_file", {"path": "a.py"}), ("run", '{"broken": ')]
    return _bytes(server.reply("Hello, «world»"), server.reply("Look:", calls=calls))  # type: ignore[attr-defined]


_SESSION = "\n".join(
    json.dumps(line)
    for line in (
        {"role": "user", "content": "go"},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "1", "function": {"name": "read", "arguments": "{}"}}],
        },
        {"role": "tool", "tool_call_id": "1", "content": "text"},
        {
            "type": "assistant",
            "message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        },
        {"type": "response_item", "payload": {"type": "message", "role": "user", "content": []}},
    )
).encode()
_PAGE = b"# T\n\n- a\n  1. b\n\n| a | b |\n|---|:-:|\n| 1 | `2` |\n\n```py\nx = 1\n```\n> q **b** _i_ [l](http://a) ![p](x)\n[l]: /u\n<b>h</b>\n- [ ] t\n"
_SERVERS = b'{"mcpServers": {"git": {"command": "uvx", "args": ["mcp-server-git"], "env": {"TOKEN": "secret"}}}}'

TARGETS: Mapping[str, Target] = {
    "sse": Target(sse, (b"data: a\n\n", b"\xef\xbb\xbfevent: x\r\ndata: 1\rdata: 2\r\n\r\n: c\n\n", *_said(chat_server))),
    "openai_chat": Target(reading(OpenAIChat("", "peer")), _said(chat_server)),
    "openai_responses": Target(reading(OpenAIResponses("", "peer")), _said(responses_server)),
    "anthropic": Target(reading(AnthropicMessages("", "peer")), _said(anthropic_server)),
    "gemini": Target(reading(GeminiProtocol("", "peer")), _said(gemini_server)),
    "arguments": Target(arguments, (b'{"path": "a", "lines": 3}', b'{"path": ["a"], "lines": "3"}', b"[" * 60)),
    "workspace_toml": Target(workspace_toml, (workspace_settings.new_settings_text("A", "#1f5fa8", ("/a",)).encode(), b"[models]\nmain = 1\n")),
    "imports": Target(imports, (_SESSION, b'{"messages": [{"role": "user", "content": "a"}]}', b"[1, null]")),
    "markdown": Target(markdown, (_PAGE, b"*" * 40 + b"[" * 40, b"- " * 30)),
    "digests": Target(digests, (b"ab" * 32, b"AB" * 32, "٣".encode() * 32)),
    "mcp": Target(mcp, (_SERVERS, b"https://a.example/mcp", b"npx -y @a/b", b'"x": {"url": "http://a", "headers": {"A": "b"}},')),
}  # fmt: skip
