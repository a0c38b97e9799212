"""What is known of each call: which item shows it, what it returned, and whether it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.facts import Decided, ToolCall, ToolReturned
from helix_desktop.engine.session_events import CallStage
from helix_desktop.gui.transcript.tool_call_records import (
    SHOWN_LIVE,
    RecordedResult,
    ToolCallRecord,
    ToolCallRecords,
    is_output_whole_in_fact,
)
from tests.engine.talk import stored

CALL = ToolCall("c1", "run", "{}")
RETURNED = ToolReturned("c1", stored("ä"), 1)
RESULT = RecordedResult(9, RETURNED)


@pytest.fixture
def records() -> ToolCallRecords:
    records = ToolCallRecords()
    records.record_running_call(CALL, 4)
    return records


@pytest.mark.parametrize(("head", "whole"), [("ä", True), ("a", False), ("", False), ("äb", True)])
def test_an_output_is_whole_by_its_bytes(head: str, whole: bool) -> None:
    assert is_output_whole_in_fact(replace(RETURNED, head=head)) is whole


def test_a_call_is_open_until_it_returns(records: ToolCallRecords) -> None:
    assert records.open_items == [4]
    assert records.is_open(CALL, 4)
    assert not records.is_open(CALL, 5)
    assert records.append_output("c1", "text") == (4,)
    records.add_result(4, RESULT)
    assert records.open_items == []
    assert records.item_by_result == {9: 4}
    record = records.record_of_chat_item(4)
    assert (record.results, record.printed) == ((RESULT,), "")
    assert records.append_output("c1", "late") == ()


def test_a_result_of_another_branch_leaves_the_call_open(records: ToolCallRecords) -> None:
    records.add_result(3, RESULT)
    assert records.is_open(CALL, 4)
    records.add_result(3, replace(RESULT, seq=11))
    assert len(records.record_of_chat_item(3).results) == 2


def test_what_nobody_recorded_is_an_empty_record_and_stays_one(records: ToolCallRecords) -> None:
    record = records.record_of_chat_item(99)
    assert record == ToolCallRecord()
    record.printed = "x"
    assert records.record_of_chat_item(99).printed == ""


def test_the_end_of_what_was_printed_is_shown(records: ToolCallRecords) -> None:
    records.append_output("c1", "a" * SHOWN_LIVE)
    records.append_output("c1", "end")
    printed = records.record_of_chat_item(4).printed
    assert len(printed) == SHOWN_LIVE
    assert printed.endswith("aend")


def test_a_decision_belongs_to_a_call_of_the_last_reply(records: ToolCallRecords) -> None:
    decided = Decided("c1", True, "user", "once")
    assert records.set_decision_of_call(decided) == (4,)
    assert records.record_of_chat_item(4).decided is decided
    records.add_result(4, RESULT)
    assert records.set_decision_of_call(replace(decided, allowed=False)) == (4,)
    records.forget_returned_calls_of_last_reply()
    assert records.set_decision_of_call(decided) == ()
    assert records.set_decision_of_call(replace(decided, call="other")) == ()


def test_a_call_runs_from_the_moment_of_the_answer(records: ToolCallRecords) -> None:
    assert records.set_stage("c1", CallStage.IN_LINE, 5.0) == (4,)
    assert records.record_of_chat_item(4).began is None
    assert records.set_call_of_question(7, "c1") == (4,)
    assert records.is_asked_about(CALL)
    assert records.mark_call_running_after_answer(7, 8.0) == (4,)
    assert not records.is_asked_about(CALL)
    record = records.record_of_chat_item(4)
    assert (record.stage, record.began) == (CallStage.RUNNING, 8.0)
    assert records.mark_call_running_after_answer(7, 9.0) == ()
    assert records.set_stage("other", CallStage.RUNNING, 9.0) == ()


def test_what_an_interruption_ended_is_open_again_when_the_turn_goes_on(
    records: ToolCallRecords,
) -> None:
    records.append_output("c1", "half")
    assert records.mark_running_calls_ended() == [4]
    assert records.record_of_chat_item(4).printed == ""
    assert records.open_items == []
    assert records.mark_running_calls_ended() == []
    assert records.set_call_of_question(1, "c1") == (4,)
    assert records.is_open(CALL, 4)


def test_an_id_that_is_used_again_means_the_later_call(records: ToolCallRecords) -> None:
    records.mark_running_calls_ended()
    records.record_running_call(CALL, 6)
    records.add_result(6, RESULT)
    assert records.set_call_of_question(2, "c1") == ()
    assert records.open_items == []
