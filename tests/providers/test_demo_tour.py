"""What the tour says and calls, and in which order."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.messages import Message, Role, ToolResult
from helix_desktop.providers import demo_tour
from tests.providers.asking import user
from tests.providers.test_demo_model import DIGEST, NAMES, TOOLS, calls, reply_to, tour, words


def called(messages: Sequence[Message]) -> list[str]:
    return [
        part.name for message in messages for part in message.parts if isinstance(part, ToolCall)
    ]


async def test_the_tour_reads_searches_runs_recalls_and_ends() -> None:
    messages, closing = await tour()
    assert called(messages) == [
        "set_todo", "list_files", "read_file", "read_file", "search_files", "run_command", "run_command",
        "recall_cached_content", "set_todo",
    ]  # fmt: skip
    assert f"record {demo_tour.RECALLED}" in closing
    assert "9 calls" in closing


async def test_it_reads_what_the_listing_names_and_not_what_is_too_long() -> None:
    messages, _ = await tour()
    arguments = [
        part.arguments
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    ]
    assert [json.loads(one)["path"] for one in arguments if "path" in one] == [
        "README.md",
        "notes.txt",
    ]


async def test_the_recall_takes_the_hash_that_stands_in_the_result_and_the_call_says_what_to_keep() -> (
    None
):
    messages, _ = await tour()
    made = {
        part.name: json.loads(part.arguments)
        for message in messages
        for part in message.parts
        if isinstance(part, ToolCall)
    }
    assert made["recall_cached_content"] == {
        "sha256": DIGEST,
        "grep": f"^record {demo_tour.RECALLED} ",
    }
    assert str(demo_tour.WANTED) in made["run_command"]["keep"]


@pytest.mark.parametrize("name", NAMES)
async def test_without_a_tool_the_tour_goes_on(name: str) -> None:
    messages, closing = await tour([tool for tool in TOOLS if tool.name != name])
    assert name not in called(messages)
    assert closing


async def test_in_an_empty_folder_with_no_tools_it_just_says_so() -> None:
    messages, closing = await tour([])
    assert called(messages) == []
    assert "0 calls" in closing


async def test_a_refusal_is_told_not_hidden() -> None:
    _, closing = await tour(refuse="run_command")
    assert "denied: run_command" in closing


async def test_where_it_stands_is_read_from_what_is_still_to_be_seen() -> None:
    """A handover has taken the first half away, and old outputs are markers."""
    messages, _ = await tour()
    at = next(index for index, message in enumerate(messages) if "run_command" in called([message]))
    summary = user("[Conversation History Summary]\nearlier", "tour")
    marked = user(
        ToolResult(
            calls_in(messages[at])[0].id, f'[CACHED] recall_cached_content("{DIGEST}")\nrun_command'
        )
    )
    reply = await reply_to(summary, messages[at], marked)
    assert "record" in calls(reply)[0].arguments


def calls_in(message: Message) -> list[ToolCall]:
    return [part for part in message.parts if isinstance(part, ToolCall)]


async def test_a_note_on_the_way_is_acknowledged_and_the_tour_goes_on() -> None:
    first = await reply_to(user("tour"))
    reply = await reply_to(
        user("tour"),
        Message(Role.ASSISTANT, first.parts),
        user(ToolResult(calls(first)[0].id, "ok"), "be quick"),
    )
    assert "be quick" in words(reply)
    assert calls(reply)[0].name == "list_files"
