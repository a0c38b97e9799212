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
