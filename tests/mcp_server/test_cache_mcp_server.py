from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import mcp
import pytest
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.mcp_server import cache_mcp_server
from helix_desktop.mcp_server.offered_tools import OFFERS
from tests.conftest import Expect
from tests.mcp_server.world import LOG, served


@asynccontextmanager
async def connected(mode: str = "auto") -> AsyncIterator[tuple[mcp.Client, Digest]]:
    on, digest = await served()
    async with mcp.Client(cache_mcp_server.build_cache_server(on), mode=mode, cache=None) as client:
        yield client, digest


def text(result: Any) -> str:
    return "".join(part.text for part in result.content)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_the_tools_are_listed_with_schemas_and_annotations(mode: str) -> None:
    async with connected(mode) as (client, _):
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == {
        "recall_cached_content",
        "search_cached_content",
        "compact_cached_content",
        "recall_history",
        "list_cached_content",
        "put_cached_content",
        "add_task",
        "show_tasks",
        "cache_stats",
    }
    for tool in tools.values():
        Draft202012Validator.check_schema(tool.input_schema)
        Draft202012Validator.check_schema(tool.output_schema)
        assert tool.annotations is not None
        assert tool.annotations.destructive_hint is False
    changing = [
        name
        for name, tool in tools.items()
        if tool.annotations and not tool.annotations.read_only_hint
    ]
    assert changing == ["put_cached_content", "add_task"]
    at_once = {name for name, tool in tools.items() if tool.meta == {"anthropic/alwaysLoad": True}}
    assert at_once == {
        "recall_cached_content",
        "recall_history",
    }  # Claude Code defers others until it searches


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


async def test_an_unknown_tool_is_a_protocol_error() -> None:
    async with connected() as (client, _):
        with pytest.raises(mcp.MCPError, match="There is no tool 'nope'"):
            await client.call_tool("nope", {})


async def test_entries_and_handovers_are_resources(expect: Expect) -> None:
    expect("a resource was refused")
    async with connected() as (client, digest):
        listed = {item.uri: item for item in (await client.list_resources()).resources}
        assert listed["helix://handover/c1/f1"].name == "Handover 1 of Work"
        (content,) = (await client.read_resource(f"helix://entry/{digest.hex}")).contents
        assert content.text == LOG.decode()  # type: ignore[union-attr]
        (handover,) = (await client.read_resource("helix://handover/c1/f1")).contents
        assert handover.text == "## Completed Work\nIt is done."  # type: ignore[union-attr]
        binary = next(
            uri for uri, item in listed.items() if item.mime_type == "application/octet-stream"
        )
        (blob,) = (await client.read_resource(binary)).contents
        assert base64.b64decode(blob.blob) == b"\xff\x00binary"  # type: ignore[union-attr]
        assert len((await client.list_resource_templates()).resource_templates) == 2
        for uri in (
            "helix://entry/" + "0" * 64,
            "helix://entry/../x",
            "helix://handover/c1/f9",
            "file:///etc/passwd",
            "helix://",
        ):
            with pytest.raises(mcp.MCPError) as refused:
                await client.read_resource(uri)
            assert refused.value.error.data == {"uri": uri}


async def test_an_entry_too_large_for_a_resource_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, expect: Expect
) -> None:
    expect("a resource was refused")
    monkeypatch.setattr(cache_mcp_server, "LARGEST_RESOURCE", 100)
    async with connected() as (client, digest):
        with pytest.raises(mcp.MCPError, match="recall_cached_content"):
            await client.read_resource(f"helix://entry/{digest.hex}")


async def test_structured_results_are_json_in_the_text_as_well() -> None:
    async with connected() as (client, _):
        result = await client.call_tool("cache_stats", {})
    assert json.loads(text(result)) == result.structured_content == {"workspace": "w", "entries": 2}
