"""What streams is shown from its beginning also to somebody who comes later."""

from __future__ import annotations

from helix_desktop.engine.facts import ModelReplied, Recorded, Stop, Stored, Text, ToolReturned
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    FactAppended,
    ReplyStreamed,
    ToolPrinted,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.session_signals import SHOWN_OUTPUT_CHARACTERS
from helix_desktop.gui.streamed_output import UnfinishedOutput


def heard(*events: Event) -> UnfinishedOutput:
    unfinished = UnfinishedOutput()
    for event in events:
        unfinished.update_unfinished_output(event)
    return unfinished


def test_the_reply_that_streams_is_there_from_its_first_word_and_only_in_its_conversation() -> None:
    unfinished = heard(
        ReplyStreamed("a", TextDelta("one ")),
        ReplyStreamed("b", TextDelta("else")),
        ReplyStreamed("a", TextDelta("two")),
    )
    assert unfinished.unfinished_events_of("a") == (ReplyStreamed("a", TextDelta("one two")),)
    assert unfinished.unfinished_events_of("c") == ()


def test_what_has_become_a_fact_is_told_no_more() -> None:
    stored = Stored(Digest.of_content(b"x"), 1, 1)
    unfinished = heard(
        ReplyStreamed("a", TextDelta("one")),
        FactAppended(Recorded("a", 1, 0.0, ModelReplied((Text("one"),), "m", Stop.CALLS))),
        ToolPrinted("a", "c1", "x"),
        ToolPrinted("a", "c2", "y"),
        FactAppended(Recorded("a", 2, 0.0, ToolReturned("c1", stored, 1))),
    )
    assert unfinished.unfinished_events_of("a") == (ToolPrinted("a", "c2", "y"),)
    unfinished.update_unfinished_output(ActivityChanged("a", ConversationActivity.IDLE))
    assert unfinished.unfinished_events_of("a") == ()


def test_a_command_that_prints_for_ever_takes_little_room() -> None:
    unfinished = heard(*(ToolPrinted("a", "c1", f"{number:1024}") for number in range(1_000)))
    (shown,) = unfinished.unfinished_events_of("a")
    assert isinstance(shown, ToolPrinted)
    assert shown.text.endswith(" 999")
    assert len(shown.text) <= SHOWN_OUTPUT_CHARACTERS
    assert unfinished._batches_by_conversation["a"]["c1"].size <= 2 * SHOWN_OUTPUT_CHARACTERS
