"""A tool call in one line says what it was about and how it went."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.calls import UNREAD
from helix_desktop.engine.events import Stage
from helix_desktop.engine.facts import Decided, Folded, FoldKind, PartRef, ToolCall, ToolReturned
from helix_desktop.gui.transcript.intents import OpenEntry, OpenSubAgent, Recall
from helix_desktop.gui.transcript.item import CallState
from helix_desktop.gui.transcript.tool_lines import Look, about, call_line, called, changed_lines
from tests.gui.transcript.facts import OUTPUT

CALL = ToolCall("c1", "read_file", '{"path": "src/lock/table.rs"}')


def state(**changes: object) -> CallState:
    return CallState(**{"call": CALL, "said": 100.0, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("read_file", '{"path": "src/lock/table.rs", "lines": [1, 2]}', "read_file src/lock/table.rs"),
        ("run_command", '{"command": "cargo test --workspace"}', "cargo test --workspace"),
        ("search", '{"pattern": "LockGuard", "path": "src/"}', "search LockGuard in src/"),
        ("github.list_issues", '{"state": "open"}', "github.list_issues open"),
        ("write_file", '{"path": "a.txt", "text": "' + "x" * 100_000, "write_file a.txt"),
        ("odd", "not json", "odd"),
        ("run_command", '{"command": "a\\nb\\u001b[31m"}', "a b"),
    ],
)
def test_what_a_call_is_about(name: str, arguments: str, words: str) -> None:
    assert called(name, arguments) == words


@given(st.text(max_size=300))
def test_any_arguments_have_a_line(arguments: str) -> None:
    assert "\n" not in about(arguments)


def test_a_marker_can_be_recalled_and_shows_its_hash() -> None:
    fold = Folded("f", FoldKind.MARKER, PartRef(2), "x", 31, 4_812)
    line = call_line(state(returned=ToolReturned("c1", OUTPUT, 4_812), returned_seq=2, fold=fold), 101.0)
    assert line.look is Look.CACHED
    assert line.want == Recall(OUTPUT.digest)
    assert [chip.text for chip in line.chips] == [OUTPUT.digest.short, "4.8K → 31 tokens"]
    assert line.chips[0].want == OpenEntry(OUTPUT.digest)


def test_an_excerpt_says_what_the_agent_asked_to_keep() -> None:
    fold = Folded("f", FoldKind.EXCERPT, PartRef(2), "x", 612, 18_240, asked="failing tests")
    line = call_line(state(returned=ToolReturned("c1", OUTPUT, 18_240), fold=fold), 101.0)
    assert [chip.text for chip in line.chips] == ["kept: the agent asked for “failing tests”", "18.2K → 612"]


def test_how_it_went() -> None:
    assert call_line(state(running=True), 101.2).right == "running… 1.2 s"
    assert call_line(state(running=True, stage=Stage.IN_LINE), 101.2).right == "queued"
    assert call_line(state(running=True, stage=Stage.DONE), 101.2).right == "done"
    assert call_line(state(), 101.2).look is Look.REFUSED
    asked = call_line(state(running=True, waiting=True), 101.2)
    assert (asked.right, asked.spoken) == ("waiting for you", "read_file src/lock/table.rs, waiting for you")
    failed = call_line(state(returned=ToolReturned("c1", OUTPUT, 9, ok=False, exit_code=101)), 102.0)
    assert (failed.look, failed.right) == (Look.FAILED, "exit 101")
    refused = state(returned=ToolReturned("c1", OUTPUT, 9, ok=False), decided=Decided("c1", allowed=False, by="user"))
    assert call_line(refused, 102.0).look is Look.REFUSED
    assert "denied" in call_line(refused, 102.0).spoken
    for returned in (
        ToolReturned("c1", OUTPUT, 9, ok=False, head=UNREAD),
        ToolReturned("c1", OUTPUT, 9, ok=False, stopped=True),
    ):
        stopped = call_line(state(returned=returned), 102.0)
        assert (stopped.look, stopped.right) == (Look.REFUSED, "stopped")
        assert "stopped" in stopped.spoken


def test_changed_lines_of_a_difference() -> None:
    assert changed_lines("--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z\n") == "+2 −1"
    assert changed_lines("- a list\n- of things") == ""


def test_a_running_sub_agent_can_be_opened() -> None:
    delegated = ToolCall("c7", "delegate", '{"task": "count"}')
    for running in (state(call=delegated, running=True), state(call=delegated, running=True, waiting=True)):
        (chip,) = call_line(running, 101.0).chips
        assert chip.want == OpenSubAgent("c7")
    assert call_line(state(call=delegated), 101.0).chips == ()
    assert call_line(state(running=True), 101.0).chips == ()
