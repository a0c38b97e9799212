"""A tool call in one line says what it was about and how it went."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import Decided, Folded, FoldKind, PartRef, ToolCall, ToolReturned
from helix_desktop.engine.session_events import CallStage
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED, UNREAD
from helix_desktop.gui.transcript import tool_call_lines
from helix_desktop.gui.transcript.chat_actions import OpenEntry, OpenSubAgent, RecallEntry
from helix_desktop.gui.transcript.tool_call_lines import (
    CallStatus,
    build_call_line,
    call_subject,
    format_call,
    format_diff_counts,
)
from helix_desktop.gui.transcript.transcript_item import ToolCallState
from helix_desktop.gui.translation import set_translations
from tests.gui.transcript.facts import OUTPUT

CALL = ToolCall("c1", "read_file", '{"path": "src/lock/table.rs"}')


def state(**changes: object) -> ToolCallState:
    return ToolCallState(**{"call": CALL, "begun_at": 100.0, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        (
            "read_file",
            '{"path": "src/lock/table.rs", "lines": [1, 2]}',
            "Read src/lock/table.rs",
        ),
        ("run_command", '{"command": "cargo test --workspace"}', "cargo test --workspace"),
        ("search", '{"pattern": "LockGuard", "path": "src/"}', "Search LockGuard in src/"),
        ("github.list_issues", '{"state": "open"}', "github.list_issues open"),
        ("read", '{"title": "Look at shop.py"}', "Look at shop.py"),
        ("read", '{"title": "Read shop.py"}', "Read shop.py"),
        ("read", '{"title": "shop.py"}', "Read shop.py"),
        ("tool", '{"title": "Tidy up \\"all\\" files"}', 'Tidy up "all" files'),
        ("Bash", '{"title": "Bash"}', "Bash"),
        ("create_issue", '{"title": "Look at shop.py"}', "create_issue Look at shop.py"),
        ("read", '{"title": "Look at", "path": "shop.py"}', "Read shop.py"),
        ("write_file", '{"path": "a.txt", "text": "' + "x" * 100_000, "Write a.txt"),
        ("execute", '{"command": "make clean"}', "make clean"),
        ("odd", "not json", "odd"),
        ("read", '{"title": "Read fees.py"}', "Read fees.py"),
        ("read", '{"title": "Reading list"}', "Reading list"),
        ("set_todo", '{"items": [{"text": "Look around"}]}', "Plan steps: Look around"),
        (
            "recall_cached_content",
            '{"hash": "' + "0123456789abcdef" * 4 + '"}',
            "Get stored output 012345…abcdef",
        ),
        ("run_command", '{"command": "a\\nb\\u001b[31m"}', "a b"),
    ],
)
def test_what_a_call_is_about(name: str, arguments: str, words: str) -> None:
    assert format_call(name, arguments) == words


@given(st.text(max_size=300))
def test_any_arguments_have_a_line(arguments: str) -> None:
    assert "\n" not in call_subject(arguments)


def test_a_marker_can_be_recalled_and_shows_its_hash() -> None:
    fold = Folded("f", FoldKind.MARKER, PartRef(2), "x", 31, 4_812)
    line = build_call_line(
        state(returned=ToolReturned("c1", OUTPUT, 4_812), returned_seq=2, fold=fold), 101.0
    )
    assert line.status is CallStatus.CACHED
    assert line.want == RecallEntry(OUTPUT.digest)
    assert [chip.text for chip in line.chips] == [OUTPUT.digest.short_hex, "4.8K → 31 tokens"]
    assert line.chips[0].want == OpenEntry(OUTPUT.digest)


def test_an_output_that_was_shortened_twice_shows_what_it_had_at_first() -> None:
    """It said 416 → 59 of an output of 34,900 tokens that had been an excerpt in between."""
    fold = Folded("f2", FoldKind.MARKER, PartRef(2), "x", 59, 416)
    line = build_call_line(
        state(returned=ToolReturned("c1", OUTPUT, 34_900), returned_seq=2, fold=fold), 101.0
    )
    assert "34.9K → 59 tokens" in [chip.text for chip in line.chips]


def test_an_excerpt_says_what_the_agent_asked_to_keep() -> None:
    fold = Folded("f", FoldKind.EXCERPT, PartRef(2), "x", 612, 18_240, asked="failing tests")
    line = build_call_line(state(returned=ToolReturned("c1", OUTPUT, 18_240), fold=fold), 101.0)
    assert [chip.text for chip in line.chips] == [
        "excerpt: the agent asked for “failing tests”",
        "18.2K → 612 tokens",
    ]


def test_how_it_went() -> None:
    assert build_call_line(state(running=True), 101.2).outcome == "running… 1.2 s"
    assert build_call_line(state(running=True, stage=CallStage.IN_LINE), 101.2).outcome == "queued"
    assert build_call_line(state(running=True, stage=CallStage.DONE), 101.2).outcome == "done"
    assert build_call_line(state(), 101.2).status is CallStatus.REFUSED
    assert build_call_line(state(waiting=True), 101.2).outcome == "needs you", (
        "as after a restart, where it said “not finished” beside the question"
    )
    asked = build_call_line(state(running=True, waiting=True), 101.2)
    assert (asked.outcome, asked.spoken_line) == (
        "needs you",
        "Read src/lock/table.rs, needs you",
    )
    failed = build_call_line(
        state(returned=ToolReturned("c1", OUTPUT, 9, ok=False, exit_code=101)), 102.0
    )
    assert (failed.status, failed.outcome) == (CallStatus.FAILED, "exit 101")
    head = "old_text is not in\nlock.rs\u202e; nothing was changed."
    not_done = state(returned=ToolReturned("c1", OUTPUT, 9, ok=False, head=head))
    line = build_call_line(not_done, 102.0)
    (reason,) = [chip.text for chip in line.chips]
    assert (line.outcome, reason[:26], "\u202e" in reason) == (
        "failed",
        "old_text is not in lock.rs",
        False,
    )
    refused = state(
        returned=ToolReturned("c1", OUTPUT, 9, ok=False),
        decided=Decided("c1", allowed=False, by="user"),
    )
    assert build_call_line(refused, 102.0).status is CallStatus.REFUSED
    assert "denied" in build_call_line(refused, 102.0).spoken_line
    head = "The user denied this call, so it was not run. The user said: Use\nthe other\u202e file."
    instead = ToolReturned("c1", OUTPUT, 9, ok=False, head=head)
    line = build_call_line(
        state(returned=instead, decided=Decided("c1", allowed=False, by="user")), 102.0
    )
    (said,) = [chip.text for chip in line.chips]
    assert (said[:14], "\u202e" in said) == ("“Use the other", False)
    for head, outcome in (
        (UNREAD, "stopped"),
        ("made so far", "stopped"),
        (NOT_BEGUN, "stopped before it ran"),
        (SKIPPED, "not run"),
    ):
        stopped = build_call_line(
            state(returned=ToolReturned("c1", OUTPUT, 9, ok=False, head=head, stopped=True)), 102.0
        )
        assert (stopped.status, stopped.outcome) == (CallStatus.REFUSED, outcome)
        assert outcome in stopped.spoken_line


def test_changed_lines_of_a_difference() -> None:
    assert format_diff_counts("--- a\n+++ b\n@@ -1 +1,2 @@\n-x\n+y\n+z\n") == "+2 −1"
    assert format_diff_counts("- a list\n- of things") == ""


def test_a_running_sub_agent_can_be_opened() -> None:
    delegated = ToolCall("c7", "delegate", '{"task": "count"}')
    for running in (
        state(call=delegated, running=True),
        state(call=delegated, running=True, waiting=True),
    ):
        (chip,) = build_call_line(running, 101.0).chips
        assert chip.want == OpenSubAgent("c7")
    assert build_call_line(state(call=delegated), 101.0).chips == ()
    assert build_call_line(state(running=True), 101.0).chips == ()


def test_a_read_of_some_lines_says_which() -> None:
    """Nine reads of one log stood as nine equal rows."""
    assert (
        call_subject('{"path": "server.log", "first_line": 721, "last_line": 810}')
        == "server.log:721–810"
    )
    assert call_subject('{"path": "server.log", "first_line": 721}') == "server.log:721–"
    assert call_subject('{"path": "server.log", "last_line": 90}') == "server.log:1–90"
    assert call_subject('{"path": "a.py", "text": "{\\"first_line\\": 3}"}') == "a.py"


def test_the_verb_of_another_agents_call_stands_once_in_every_language() -> None:
    """In German, a call was "Lesen Read README.md"."""
    arguments = json.dumps({"title": "Read README.md"})
    assert tool_call_lines.format_call("read", arguments) == "Read README.md"
    set_translations({"Read": "Lesen"})
    try:
        assert tool_call_lines.format_call("read", arguments) == "Lesen README.md"
    finally:
        set_translations({})
