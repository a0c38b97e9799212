"""What streams is shown from its beginning also to somebody who comes later."""

from __future__ import annotations

from helix_desktop.engine.blocks import TextDelta
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Event, FactAppended, Running, StateChanged, Streamed, ToolShowed
from helix_desktop.engine.facts import ModelReplied, Recorded, Stop, Stored, Text, ToolReturned
from helix_desktop.gui.bridge import SHOWN
from helix_desktop.gui.streaming import Unfinished


def heard(*events: Event) -> Unfinished:
    unfinished = Unfinished()
    for event in events:
        unfinished.take(event)
    return unfinished


def test_the_reply_that_streams_is_there_from_its_first_word_and_only_in_its_conversation() -> None:
    unfinished = heard(
        Streamed("a", TextDelta("one ")), Streamed("b", TextDelta("else")), Streamed("a", TextDelta("two"))
    )
    assert unfinished.of("a") == (Streamed("a", TextDelta("one two")),)
    assert unfinished.of("c") == ()


def test_what_has_become_a_fact_is_told_no_more() -> None:
    stored = Stored(Digest.of(b"x"), 1, 1)
    unfinished = heard(
        Streamed("a", TextDelta("one")),
        FactAppended(Recorded("a", 1, 0.0, ModelReplied((Text("one"),), "m", Stop.CALLS))),
        ToolShowed("a", "c1", "x"),
        ToolShowed("a", "c2", "y"),
        FactAppended(Recorded("a", 2, 0.0, ToolReturned("c1", stored, 1))),
    )
    assert unfinished.of("a") == (ToolShowed("a", "c2", "y"),)
    unfinished.take(StateChanged("a", Running.IDLE))
    assert unfinished.of("a") == ()


def test_a_command_that_prints_for_ever_takes_little_room() -> None:
    unfinished = heard(*(ToolShowed("a", "c1", f"{number:1024}") for number in range(1_000)))
    (shown,) = unfinished.of("a")
    assert isinstance(shown, ToolShowed)
    assert shown.text.endswith(" 999")
    assert len(shown.text) <= SHOWN
    assert unfinished._of["a"]["c1"].size <= 2 * SHOWN
