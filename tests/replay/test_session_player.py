"""Recorded sessions through the real engine."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import ToolCall
from helix_desktop.histories.recorded_session import RecordedMessage, RecordedSession
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.stand_in_model import KINDS
from tests.replay.sessions import long_session, play, returned, says, step, user


def sound(figures: ReplayFigures) -> bool:
    """What must hold for every replay."""
    lost = figures.details.get("lost", 0)
    return (figures.illegal_requests, figures.recalls_failed, lost, figures.undo_identical) == (
        0,
        0,
        0,
        True,
    )


def test_without_management_everything_is_sent_every_time() -> None:
    figures = play(long_session(1, 30), "none")
    assert figures.sent == figures.plain_sent
    assert figures.billed == figures.plain_billed
    assert figures.folds == {}
    assert figures.retained_share == 1.0
    assert len(figures.steps) == 32
    assert sound(figures)


def test_the_same_session_gives_the_same_figures() -> None:
    assert play(long_session(2, 30), window=16_000) == play(long_session(2, 30), window=16_000)


@pytest.mark.parametrize("name", ["layered", "helix", "observational"])
@pytest.mark.parametrize("window", [16_000, 64_000])
def test_no_window_overflows(name: str, window: int) -> None:
    figures = play(long_session(3, 60), name, window=window)
    assert figures.overflowed == 0
    assert len(figures.steps) == 62
    assert sound(figures)


def test_folding_costs_less_and_is_seen() -> None:
    figures = play(long_session(4, 90))
    assert figures.billed < 0.85 * figures.plain_billed
    assert figures.sent < 0.7 * figures.plain_sent
    assert figures.folds["marker"] > 10
    assert {mark.kind for mark in figures.marks} == set(figures.folds)


def test_a_large_window_is_no_dearer() -> None:
    billed = [
        play(long_session(5, 70), window=window).billed for window in (128_000, 200_000, 1_000_000)
    ]
    assert billed[1] <= billed[0]
    assert billed[2] <= billed[0]


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_writer_that_lets_one_down_costs_no_turn_and_no_detail(kind: str) -> None:
    figures = play(long_session(6, 40), window=16_000, stand_in=kind)
    assert len(figures.steps) == 42
    assert figures.overflowed == 0
    assert sound(figures)


def test_background_work_costs_the_turn_no_time() -> None:
    figures = play(long_session(7, 110), window=64_000)
    assert figures.folds["handover"] >= 1
    assert figures.waited == 0


def test_admission_waits_ten_seconds_at_the_most() -> None:
    said = [user("read"), *step(1, "long line of words\n" * 3_000), says("done")]
    figures = play(RecordedSession("one", tuple(said)), "observational", stand_in="hangs")
    assert figures.folds == {"excerpt": 1}
    assert figures.waited <= 10
    assert figures.longest_admission <= 10


def test_calls_without_a_result_are_repaired() -> None:
    call = ToolCall("c", "bash", '{"command": "sleep"}')
    said = (user("go"), says("", call), user("stop that"), says("stopped"))
    figures = play(RecordedSession("interrupted", said), "none")
    assert figures.illegal_requests == 0
    assert len(figures.steps) == 2


def test_replies_one_after_the_other_and_empty_ones_are_legal() -> None:
    said = (user("go"), says("one"), says("two"), says(""), says("three"), user(""), says("four"))
    assert play(RecordedSession("monologue", said), "none").illegal_requests == 0


def test_a_session_that_begins_with_a_reply_or_ends_in_results_is_legal() -> None:
    call = ToolCall("c", "read", "{}")
    said = (RecordedMessage("system", "be brief"), says("hello", call), returned("c", "text"))
    assert sound(play(RecordedSession("odd", said)))


def test_repeats_of_the_same_read_are_counted() -> None:
    call = '{"path": "a.py"}'
    said = [user("go")]
    for number in range(4):
        said += [
            says("", ToolCall(f"c{number}", "read", call)),
            returned(f"c{number}", "the same text"),
        ]
    assert play(RecordedSession("repeats", (*said, says("done"))), "none").repeats_served == 3


def test_a_message_larger_than_the_window_is_stored_and_excerpted() -> None:
    said = (user("word " * 40_000), says("I see."), user("and now?"), says("done"))
    figures = play(RecordedSession("huge", said), window=16_000)
    assert figures.overflowed == 0
    assert figures.folds["excerpt"] == 1
    assert sound(figures)


def test_an_output_that_answers_no_call_is_shown_and_not_lost() -> None:
    said = (
        user("look"),
        returned("ghost", "ghost_identifier_99 was seen"),
        *step(1, "text"),
        returned("c1", "twice_told"),
    )
    figures = play(
        RecordedSession("ghosts", (*said, says("done with ghost_identifier_99"))), "none"
    )
    assert sound(figures)
    assert (figures.used, figures.standing) == (1, 1)


def recalled_session(spoken: str) -> RecordedSession:
    """Uses something of its beginning at its end; says some words with each call."""
    session = long_session(4, 90)
    first = step(
        900, " ".join(f"other_word_{n:02}" for n in range(40)) * 18 + " the_first_output_of_all"
    )
    said = [
        RecordedMessage(
            one.role, one.text, one.calls, one.answers, reasoning=spoken if one.calls else ""
        )
        for one in (session.messages[0], *first, *session.messages[1:])
    ]
    return RecordedSession(
        "used again", (*said, user("go on"), says("Now to the_first_output_of_all."))
    )


def test_the_words_of_the_extra_request_are_billed_by_the_recorded_mean() -> None:
    quiet = play(recalled_session(""))
    loud = play(recalled_session("I think about it. " * 100))
    assert quiet.recalled_pages == loud.recalled_pages > 0
    more = loud.recalls_billed - quiet.recalls_billed
    assert more > 400 * 4, (
        "about 400 words more for each request, as output and as what stands in the next"
    )


def test_outputs_may_grow_with_what_is_left_out() -> None:
    session = long_session(4, 60)
    assert play(session, output_growth=0.0375).billed > play(session).billed
    assert play(session, "none", output_growth=0.0375) == play(session, "none")
