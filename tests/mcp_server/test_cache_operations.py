"""What each tool of the MCP server returns, and the sentence for what it cannot."""

from __future__ import annotations

from typing import Any

import mcp
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from helix_desktop.engine.facts import (
    ConversationStarted,
    ModelReplied,
    Rewound,
    Stop,
    ToolCall,
    ToolReturned,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.mcp_server.cache_mcp_server import build_cache_server
from helix_desktop.mcp_server.cache_operations import list_content, recall_content, search_content
from helix_desktop.mcp_server.offered_tools import OFFERS
from tests.conftest import Expect
from tests.mcp_server.test_cache_mcp_server import connected, text
from tests.mcp_server.world import Journal, served


async def test_every_result_fits_its_schema() -> None:
    calls: dict[str, dict[str, Any]] = {
        "search_cached_content": {"query": "line"},
        "compact_cached_content": {"keep": "all"},
        "recall_history": {"fold": "f1"},
        "put_cached_content": {"content": "x"},
        "add_task": {"text": "Do it"},
    }
    async with connected() as (client, digest):
        for offer in OFFERS:
            takes_hash = (
                {"sha256": digest.hex} if "sha256" in offer.input_schema["properties"] else {}
            )
            result = await client.call_tool(offer.name, {**takes_hash, **calls.get(offer.name, {})})
            assert not result.is_error, text(result)
            Draft202012Validator(offer.output_schema).validate(result.structured_content)


async def test_recall_by_lines_by_pattern_and_by_a_short_hash() -> None:
    async with connected() as (client, digest):
        said = await client.call_tool(
            "recall_cached_content", {"sha256": digest.hex[:8], "lines": "5-6"}
        )
        assert text(said) == "[lines 5-6 of 2,000]\nline 5\nline 6"
        assert said.structured_content["sha256"] == digest.hex
        said = await client.call_tool(
            "recall_cached_content", {"sha256": digest.hex, "grep": "line 1999"}
        )
        assert text(said) == "line 1999"


async def test_what_is_put_from_outside_is_found_and_marked() -> None:
    async with connected() as (client, _):
        put = await client.call_tool(
            "put_cached_content", {"content": "needle here", "tool": "read_file", "source": "x\ny"}
        )
        hits = (
            await client.call_tool("search_cached_content", {"query": "needle"})
        ).structured_content["hits"]
    assert [(hit["sha256"], hit["tool"], hit["source"]) for hit in hits] == [
        (put.structured_content["sha256"], "outside:read_file", "x y")
    ]


async def test_folded_messages_come_back_word_for_word(expect: Expect) -> None:
    expect("there is no fold 'f9'")
    async with connected() as (client, _):
        said = text(await client.call_tool("recall_history", {"fold": "f1", "conversation": "c1"}))
        assert "Do it, never quickly." in said
        part = await client.call_tool("recall_history", {"fold": "f1", "find": "quickly"})
        assert "never quickly" in text(part)
        assert (await client.call_tool("recall_history", {"fold": "f9"})).is_error


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("recall_cached_content", {"sha256": "0" * 64}, "No entry has the hash"),
        ("recall_cached_content", {"sha256": "../../etc/passwd"}, "is not a hash"),
        ("recall_cached_content", {"sha256": "a" * 10_000_000}, "too long"),
        ("recall_cached_content", {}, "'sha256' is a required property"),
        ("recall_cached_content", {"sha256": 5}, "is not of type 'string'"),
        ("recall_cached_content", {"sha256": "abcd", "more": 1}, "unexpected"),
        ("recall_cached_content", {"sha256": "abcd", "lines": "x"}, "No entry"),
        ("search_cached_content", {"query": " "}, "query is needed"),
        ("put_cached_content", {"content": ""}, "1 to"),
        ("list_cached_content", {"limit": 10_000}, "greater than the maximum"),
    ],
)
async def test_bad_input_is_an_error_with_a_sentence_and_logged(
    tool: str, arguments: dict[str, Any], words: str, expect: Expect
) -> None:
    expect("refused")
    async with connected() as (client, _):
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    assert words in text(result)
    assert len(text(result)) < 600


async def test_what_was_left_says_so() -> None:
    workspace, _ = await served()
    stored = await workspace.cache.store_content(b"walnut = 1", EntryOrigin("read_file", "plan"))
    call = ToolCall("c1", "read_file", "{}")
    reply = ModelReplied((call,), "m", Stop.CALLS)
    journal = workspace.journal
    assert isinstance(journal, Journal)
    await journal.append_to_journal("c2", [ConversationStarted(title="Left"), reply])
    await journal.append_to_journal("c2", [ToolReturned("c1", stored, 3)])

    async def recalled_and_found() -> tuple[str, Any, Any]:
        recalled = await recall_content(workspace, sha256=stored.digest.hex)
        found = await search_content(workspace, query="walnut")
        listed = await list_content(workspace)
        (entry,) = [e for e in listed["entries"] if e["sha256"] == stored.digest.hex]
        return recalled["text"], found["hits"][0].get("note"), entry.get("note")

    async def resource_descriptions_and_texts() -> list[str]:
        uri = f"helix://entry/{stored.digest.hex}"
        async with mcp.Client(build_cache_server(workspace), cache=None) as client:
            resources = (await client.list_resources()).resources
            (resource,) = [each for each in resources if each.uri == uri]
            contents = (await client.read_resource(uri)).contents
        texts = [each.text for each in contents if isinstance(each, mcp.types.TextResourceContents)]
        return [str(resource.description), *texts]

    assert await recalled_and_found() == ("walnut = 1", None, None)
    assert await resource_descriptions_and_texts() == ["1 line, 1 token", "walnut = 1"]
    await journal.append_to_journal("c2", [Rewound(1)])
    left = "from a part of a conversation that was left"
    assert await recalled_and_found() == (f"[{left}]\nwalnut = 1", left, left)
    described = await resource_descriptions_and_texts()
    assert described == [f"1 line, 1 token, {left}", "walnut = 1", f"[{left}]\n"]
