"""Facts become the items a reader expects, step by step as well as all at once."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Decided,
    FilesChanged,
    Folded,
    FoldKind,
    PartRef,
    Pinned,
    Reasoning,
    Recorded,
    Refolded,
    Rewound,
    Stop,
    Stored,
    Text,
    TodoSet,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.facts import ModelReplied as Replied
from helix_desktop.engine.messages import CallDelta, ReasoningDelta, RetryDelay, TextDelta
from helix_desktop.engine.session_events import CallStage, ConversationActivity
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItem, TranscriptItemKind
from tests.gui.transcript.facts import Told, call


def kinds(items: TranscriptItems) -> list[TranscriptItemKind]:
    return [item.kind for item in items.all]


def grown(facts: list[Recorded]) -> TranscriptItems:
    items = TranscriptItems()
    for recorded in facts:
        items.show_fact(recorded)
    return items


def test_a_turn_in_order() -> None:
    told = Told()
    told.user("do it")
    told.add(Replied((Reasoning("hm", 9), Text("I will."), call(1), call(2)), "m", Stop.CALLS))
    told.returned("c1")
    told.returned("c2", ok=False)
    told.reply("Done.")
    items = grown(told.facts)
    k = TranscriptItemKind
    assert kinds(items) == [k.USER, k.REASONING, k.REPLY, k.CALL, k.CALL, k.REPLY]
    assert [item.is_first_of_answer for item in items.all if item.kind is k.REPLY] == [True, False]
    assert items.tool_call_state(3).returned_seq == 3
    state = items.tool_call_state(4)
    assert state.returned is not None
    assert not state.returned.ok


def test_changes_of_which_nothing_is_left_are_undone_until_they_are_redone() -> None:
    told = Told()
    nothing = Stored(Digest.of_content(b""), 0)
    told.user("do it")
    told.reply("Done.")
    change = FilesChanged(nothing, nothing.digest, nothing.digest, 1, 3, 1, names=("a.py",))
    seqs = [told.add(change).seq, told.add(replace(change, names=("b.py",))).seq]
    told.add(TurnEnded(TurnEnd.DONE))
    items = grown(told.facts)
    line = items.all[-1]
    assert line.kind is TranscriptItemKind.CHANGES
    undo = replace(change, by="undo", undoes=(seqs[0],), is_whole=True)
    assert items.describe_changes_line(line) == line.text == "2 files changed +6 −2"
    for fact, undone in (
        (undo, False),
        (replace(undo, undoes=(seqs[1],), is_whole=False), False),
        (replace(undo, undoes=(seqs[1],)), True),
        (replace(undo, undoes=tuple(seqs), is_whole=False), False),
    ):
        told.add(fact)
        assert items.show_fact(told.facts[-1]).changed_items == {len(items.all) - 1}
        assert items.is_changes_line_undone(line) is undone
        assert grown(told.facts).is_changes_line_undone(line) is undone
        words = items.describe_changes_line(line)
        assert grown(told.facts).describe_changes_line(line) == words
        assert ("+6 −2" in words) is undone, "only the page of the changes knows what is left"
        assert words.endswith("parts were undone or redone since") is not undone


ACTS = st.lists(
    st.sampled_from(
        [
            "user",
            "reply",
            "stopped",
            "call",
            "return",
            "marker",
            "handover",
            "undo",
            "redo",
            "rewind",
            "end",
        ]
    ),
    max_size=30,
)


def tell(told: Told, number: int, act: str) -> None:
    """One fact of some kind, that may refer to others that are there or not."""
    last = len(told.facts)
    acts = {
        "user": lambda: told.user(f"said {number}"),
        "reply": lambda: told.reply(f"answer {number}"),
        "stopped": lambda: told.reply(f"answ {number}", stop=Stop.STOPPED),
        "call": lambda: told.reply("", call(number)),
        "return": lambda: told.returned(f"c{max(number - 1, 0)}"),
        "marker": lambda: told.marker(max(last, 1), f"f{number}", batch=f"b{number // 3}"),
        "handover": lambda: told.handover(1, max(last, 1), f"f{number}"),
        "undo": lambda: told.add(Unfolded(f"f{max(number - 1, 0)}")),
        "redo": lambda: told.add(Refolded(f"f{max(number - 2, 0)}")),
        "rewind": lambda: told.add(Rewound(last // 2)),
        "end": lambda: told.add(TurnEnded(TurnEnd.STOPPED)),
    }
    acts[act]()


@given(ACTS)
def test_step_by_step_is_the_same_as_all_at_once(acts: list[str]) -> None:
    told = Told()
    for number, act in enumerate(acts):
        tell(told, number, act)
    once = TranscriptItems()
    steps = grown(told.facts)
    once.add_many_facts(told.facts)
    assert once.all == steps.all
    assert [once.is_item_hidden(i) for i in range(len(once.all))] == [
        steps.is_item_hidden(i) for i in range(len(steps.all))
    ]
    assert once.history.branch.live == steps.history.branch.live


@given(ACTS)
def test_a_change_names_everything_that_looks_different(acts: list[str]) -> None:
    told = Told()
    items = TranscriptItems()
    told.user("begin")
    items.show_fact(told.facts[-1])
    for number, act in enumerate(acts):
        before = list(items.all)
        looks = [looks_like(items, i) for i in range(len(before))]
        if act in ("call", "reply"):
            recorded = told.reply(
                "words" if act == "reply" else "", *([call(number)] if act == "call" else [])
            )
        elif act == "return":
            recorded = told.returned(f"c{max(number - 1, 0)}")
        elif act == "marker":
            recorded = told.marker(max(len(told.facts), 1), f"f{number}")
        else:
            recorded = told.user("more")
        change = items.show_fact(recorded)
        kept = [
            i for i in range(min(change.first_new, len(before))) if i not in change.changed_items
        ]
        assert all(looks_like(items, i) == looks[i] for i in kept)


def looks_like(items: TranscriptItems, index: int) -> object:
    item = items.all[index]
    return (item, items.tool_call_state(index)) if item.kind is TranscriptItemKind.CALL else item


def test_a_marker_shows_at_its_call_and_goes_when_it_is_undone() -> None:
    told = Told()
    told.reply("", call(1))
    told.returned("c1")
    told.marker(2)
    items = grown(told.facts)
    fold = items.tool_call_state(0).fold
    assert fold is not None
    assert fold.fold == "f"
    change = items.show_fact(told.add(Unfolded("f")))
    assert 0 in change.changed_items
    assert items.tool_call_state(0).fold is None
    items.show_fact(told.add(Refolded("f")))
    assert items.tool_call_state(0).fold is not None


def test_folds_of_a_batch_are_one_line() -> None:
    told = Told()
    told.reply("", call(1), call(2))
    told.returned("c1")
    told.returned("c2")
    told.marker(2, "f1", batch="b")
    told.marker(3, "f2", batch="b")
    items = grown(told.facts)
    assert kinds(items).count(TranscriptItemKind.FOLD) == 1
    assert [fold.fold for fold in items.folds_of_line(2)] == ["f1", "f2"]
    assert items.item_of_fold("f2") == items.item_of_fold("f1") == 2


def test_the_markers_that_a_document_takes_along_are_told_with_it_in_one_line() -> None:
    told = Told()
    told.reply("", call(1))
    told.returned("c1")
    told.handover(1, 2, "h1")
    told.marker(2, "f1", batch="h1")
    items = grown(told.facts)
    assert kinds(items).count(TranscriptItemKind.FOLD) == 1
    assert [fold.fold for fold in items.folds_of_line(items.item_of_fold("h1"))] == ["h1", "f1"]
    assert items.item_of_fold("f1") == items.item_of_fold("h1")


def test_a_rewind_sets_aside_and_restores_the_folds_of_its_time() -> None:
    told = Told()
    told.user("one")
    told.reply("", call(1))
    told.returned("c1")
    told.marker(3)
    told.user("two")
    told.add(Rewound(3))
    told.user("another way")
    items = grown(told.facts)
    assert [items.is_item_hidden(i) for i in range(len(items.all))] == [
        False,
        False,
        True,
        True,
        False,
        False,
    ]
    assert items.tool_call_state(1).fold is None
    index = kinds(items).index(TranscriptItemKind.REWOUND)
    items.toggle_rewound_items(index)
    assert not any(items.is_item_hidden(i) for i in range(len(items.all)))


def test_the_label_of_an_attachment_does_not_change_when_its_message_is_left() -> None:
    """Its "1.3K of 40.9K tokens" became "40.9K tokens" while the message was outside."""
    told = Told()
    told.user("one")
    attachment = Attachment("log.txt", Stored(Digest.of_content(b"log"), 90_000), 40_900)
    told.add(UserSaid((Text("two", 1), attachment)))
    ref = PartRef(len(told.facts), 1)
    told.add(Folded("e", FoldKind.EXCERPT, ref, "short", 1_300, 40_900))
    before = grown(told.facts).fold_of_attachment(ref)
    assert before is not None
    told.add(Rewound(1))
    assert grown(told.facts).fold_of_attachment(ref) == before
    told.add(Rewound(len(told.facts) - 1))
    told.add(Unfolded("e"))
    told.add(Rewound(1))
    assert grown(told.facts).fold_of_attachment(ref) is None


def test_what_a_search_found_among_what_was_replaced_is_opened() -> None:
    told = Told()
    told.user("one")
    told.user("two")
    told.add(Rewound(1))
    told.user("another way")
    items = grown(told.facts)
    assert items.is_item_hidden(1)
    change = items.reveal_hidden_item(1)
    assert change is not None
    assert change.is_visibility_changed
    assert not items.is_item_hidden(1)
    assert items.reveal_hidden_item(1) is None


def test_a_task_that_goes_on_says_once_and_at_its_end_which_files_it_changed() -> None:
    """Each permission left a line about 2 items that were replaced, one of them the line about the
    changed files, which then stood nowhere.
    """
    told = Told()
    told.user("one")
    told.reply("", call(1))
    digest = Digest.of_content(b"")
    told.add(FilesChanged(Stored(digest, 0), digest, digest, files=1, added=3, names=("a.py",)))
    asked_at = len(told.facts)
    told.returned("c1", head=NOT_BEGUN, ok=False)
    told.add(TurnEnded(TurnEnd.STOPPED, "The task needs your permission."))
    told.add(Rewound(asked_at))
    told.returned("c1")
    told.add(TurnEnded(TurnEnd.DONE))
    items = grown(told.facts)
    assert TranscriptItemKind.REWOUND not in kinds(items)
    lines = [
        item.text
        for index, item in enumerate(items.all)
        if item.kind is TranscriptItemKind.CHANGES and not items.is_item_hidden(index)
    ]
    assert lines == ["1 file changed +3 −0"]


def test_a_task_that_goes_on_with_its_calls_does_not_say_that_something_was_replaced() -> None:
    """Each permission that was given in Fleet left a line about 1 item that was replaced."""
    told = Told()
    told.user("one")
    told.reply("", call(1))
    asked_at = len(told.facts)
    for _ in range(2):
        told.returned("c1", head=NOT_BEGUN, ok=False)
        told.add(TurnEnded(TurnEnd.STOPPED, "The task needs your permission."))
        told.add(Rewound(asked_at))
    told.returned("c1")
    items = grown(told.facts)
    assert TranscriptItemKind.REWOUND not in kinds(items)
    shown = [
        type(item.source_fact).__name__
        for index, item in enumerate(items.all)
        if not items.is_item_hidden(index)
    ]
    assert shown == ["UserSaid", "ModelReplied"]


def test_who_returns_from_a_rewind_is_told_of_no_item_that_is_gone() -> None:
    """A line about 1 item stayed at the end: the line of the rewind itself."""
    told = Told()
    told.user("one")
    told.reply("the answer")
    there = len(told.facts)
    told.add(Rewound(1))
    assert TranscriptItemKind.REWOUND in kinds(grown(told.facts))
    told.add(Rewound(there))
    items = grown(told.facts)
    shown = [item.kind for i, item in enumerate(items.all) if not items.is_item_hidden(i)]
    assert shown == [TranscriptItemKind.USER, TranscriptItemKind.REPLY]

    told.user("two")
    told.add(Rewound(1))
    items = grown(told.facts)
    newest = len(items.all) - 1
    assert items.all[newest].kind is TranscriptItemKind.REWOUND
    assert items.rewound_range_of(newest).count == 2, "the answer and the second message"


def test_a_rewind_away_and_back_shows_what_is_live_again() -> None:
    """The defect: the first rewind went on hiding what the second one brought back, and
    the fold counted as undone.
    """
    told = Told()
    told.user("one")
    told.reply("", call(1))
    told.returned("c1")
    told.marker(3)
    told.reply("the answer")
    there = len(told.facts)
    told.add(Pinned(PartRef(1)))
    told.add(Rewound(1))
    told.user("another way")
    told.add(Rewound(there))
    items = grown(told.facts)
    texts = [
        item.source_fact for index, item in enumerate(items.all) if not items.is_item_hidden(index)
    ]
    assert [type(fact).__name__ for fact in texts] == [
        "UserSaid",
        "ModelReplied",
        "Folded",
        "ModelReplied",
        "Rewound",
    ]
    assert "f" in items.history.branch.live
    assert PartRef(1) not in items.history.branch.pins
    last = len(items.all) - 1
    items.toggle_rewound_items(last)
    opened = [index for index in range(len(items.all)) if not items.is_item_hidden(index)]
    assert len(opened) == len(items.all)
    items.toggle_rewound_items(last)
    assert [index for index in range(len(items.all)) if items.is_item_hidden(index)] == [4, 5]


def test_what_is_written_live_becomes_its_fact() -> None:
    told = Told()
    told.user("go")
    items = grown(told.facts)
    items.append_reply_delta(ReasoningDelta("hm"))
    items.append_reply_delta(TextDelta("Hel"))
    items.append_reply_delta(TextDelta("lo"))
    items.append_reply_delta(CallDelta(0, "c1", "read_file", '{"path"'))
    items.append_reply_delta(CallDelta(0, "", "", ': "a"}'))
    assert [item.text for item in items.all[1:3]] == ["hm", "Hello"]
    assert items.live_call_text(3) == ("read_file", '{"path": "a"}')
    change = items.show_fact(told.reply("Hello", call(1)))
    assert change.first_new == 1
    assert kinds(items) == [
        TranscriptItemKind.USER,
        TranscriptItemKind.REPLY,
        TranscriptItemKind.CALL,
    ]
    assert items.all[1].is_first_of_answer


def test_a_fact_in_the_middle_of_a_stream_stands_before_it() -> None:
    told = Told()
    told.user("go")
    items = grown(told.facts)
    items.append_reply_delta(TextDelta("half a"))
    items.show_fact(told.add(TodoSet((("one", "open"),))))
    items.append_reply_delta(TextDelta(" sentence"))
    assert kinds(items) == [
        TranscriptItemKind.USER,
        TranscriptItemKind.PLAN,
        TranscriptItemKind.LIVE_REPLY,
    ]
    assert items.all[2].text == "half a sentence"


def test_waiting_is_said_once_and_gone_with_the_answer() -> None:
    items = TranscriptItems()
    items.append_reply_delta(RetryDelay("overloaded", 12.0))
    items.append_reply_delta(RetryDelay("overloaded", 24.0))
    assert kinds(items) == [TranscriptItemKind.WAITING]
    items.append_reply_delta(TextDelta("now"))
    assert kinds(items) == [TranscriptItemKind.LIVE_REPLY]


def test_who_is_thinking_is_said_until_something_arrives() -> None:
    """Nothing showed that an answer was starting."""
    told = Told()
    told.user("do it")
    items = grown(told.facts)
    k = TranscriptItemKind
    change = items.set_run_state(ConversationActivity.THINKING)
    assert change.first_new == 1
    assert kinds(items) == [k.USER, k.LIVE_NOTE]
    assert items.all[1].text.endswith(" is thinking…")
    items.set_run_state(ConversationActivity.THINKING)
    assert kinds(items) == [k.USER, k.LIVE_NOTE]
    assert items.append_reply_delta(TextDelta("I")).first_new == 1
    assert kinds(items) == [k.USER, k.LIVE_REPLY]
    items.show_fact(told.reply("I will."))
    assert kinds(items) == [k.USER, k.REPLY]
    items.set_run_state(ConversationActivity.THINKING)
    assert items.set_run_state(ConversationActivity.IDLE).first_new == 2
    assert kinds(items) == [k.USER, k.REPLY]


def test_a_foreign_agent_is_said_to_start_before_its_first_answer() -> None:
    told = Told()
    told.add(ConversationStarted(acp_agent="Tiny"))
    told.user("do it")
    items = grown(told.facts)
    items.set_run_state(ConversationActivity.THINKING)
    assert items.all[-1].text == "Starting Tiny…"
    items.show_fact(told.reply("Done."))
    items.set_run_state(ConversationActivity.THINKING)
    assert items.all[-1].text == "Tiny is thinking…"


def test_a_running_call_shows_what_it_prints_and_stops_with_its_result() -> None:
    told = Told()
    told.reply("", call(1))
    items = grown(told.facts)
    items.set_run_state(ConversationActivity.TOOLS)
    items.calls.append_output("c1", "line\n")
    assert items.running_call_items() == [0]
    assert items.tool_call_state(0).running
    assert items.tool_call_state(0).printed_text == "line\n"
    change = items.show_fact(told.returned("c1"))
    assert 0 in change.changed_items
    assert items.running_call_items() == []
    assert items.tool_call_state(0).printed_text == ""


@pytest.mark.parametrize(("seconds_ago", "shown"), [(60.0, 60.0), (3e7, 0.0), (-3_600.0, 0.0)])
def test_a_call_that_runs_already_is_timed_from_its_reply_unless_the_clock_was_set(
    seconds_ago: float, shown: float
) -> None:
    told = Told()
    told.reply("", call(1))
    reply = replace(told.facts[-1], time=time.time() - seconds_ago)
    items = grown([*told.facts[:-1], reply])
    items.set_run_state(ConversationActivity.TOOLS)
    state = items.tool_call_state(0)
    assert time.monotonic() - state.begun_at == pytest.approx(shown, abs=5)
    assert items.tool_call_state(0).begun_at == state.begun_at


def notes(items: TranscriptItems) -> list[str]:
    return [item.text for item in items.all if item.kind is TranscriptItemKind.NOTE]


STOPPED_FOR_MESSAGE = "The reply was stopped here for your message."


def test_a_reply_that_send_now_stopped_says_so() -> None:
    """It ended in the middle of a word, and nothing said why."""
    told = Told()
    told.user("tell me")
    told.reply("Once upon", stop=Stop.STOPPED)
    told.user("shorter")
    told.reply("Once.")
    told.add(TurnEnded(TurnEnd.DONE))
    items = grown(told.facts)
    k = TranscriptItemKind
    assert kinds(items) == [k.USER, k.REPLY, k.NOTE, k.USER, k.REPLY]
    assert notes(items) == [STOPPED_FOR_MESSAGE]
    assert items.all[items.item_of_fact(3)].kind is k.USER
    # The reply stays cut for whoever goes back, and the next message did not cut it.
    items.show_fact(told.add(Rewound(2)))
    items.show_fact(told.user("longer"))
    note = next(at for at, item in enumerate(items.all) if item.kind is k.NOTE)
    assert not items.is_item_hidden(note)
    assert notes(items) == notes(grown(told.facts)) == [STOPPED_FOR_MESSAGE]


def test_only_a_message_in_the_same_turn_has_stopped_a_reply() -> None:
    told = Told()
    told.user("tell me")
    told.reply("Once upon", stop=Stop.STOPPED)
    told.add(TurnEnded(TurnEnd.STOPPED))
    told.user("shorter")
    told.add(Replied((), "m", Stop.STOPPED))  # Nothing of it was seen.
    told.user("still shorter")
    told.reply("Once.")
    told.user("thanks")
    assert notes(grown(told.facts)) == ["Stopped."]


def test_a_message_of_the_program_may_come_before_the_one_that_stopped_a_reply() -> None:
    told = Told()
    told.user("tell me")
    told.reply("Once upon", stop=Stop.STOPPED)
    told.add(UserSaid((Text("done", 1),), by="agent:Reader"))
    told.user("shorter")
    assert notes(grown(told.facts)) == [
        STOPPED_FOR_MESSAGE,
        "The sub-agent “Reader” has finished.",
    ]


def test_an_interrupted_call_does_not_run_for_ever() -> None:
    told = Told()
    told.reply("", call(1))
    told.add(TurnEnded(TurnEnd.STOPPED))
    items = grown(told.facts)
    items.set_run_state(ConversationActivity.TOOLS)
    assert not items.tool_call_state(0).running


def test_a_decision_and_a_pin_belong_to_their_item() -> None:
    told = Told()
    told.reply("", call(1))
    told.add(Decided("c1", allowed=False, by="user", why="too dangerous"))
    items = grown(told.facts)
    decided = items.tool_call_state(0).decided
    assert decided is not None
    assert decided.why == "too dangerous"
    items.show_fact(told.add(Pinned(PartRef(1))))
    assert PartRef(1) in items.history.branch.pins
    items.show_fact(told.add(Unpinned(PartRef(1))))
    assert PartRef(1) not in items.history.branch.pins


def test_the_end_of_a_turn_is_said_only_when_there_is_something_to_say() -> None:
    told = Told()
    told.add(TurnEnded(TurnEnd.DONE))
    told.add(TurnEnded(TurnEnd.FAILED, "The provider answered 500."))
    told.reply("cut", stop=Stop.LENGTH)
    items = grown(told.facts)
    assert kinds(items) == [
        TranscriptItemKind.ERROR,
        TranscriptItemKind.REPLY,
        TranscriptItemKind.NOTE,
    ]
    assert "500" in items.all[0].text


def test_a_fact_is_found_by_its_number() -> None:
    told = Told()
    told.user("one")
    told.reply("two", call(1))
    told.returned("c1")
    items = grown(told.facts)
    assert [items.item_of_fact(seq) for seq in (1, 2, 3)] == [0, 1, 2]
    assert TranscriptItems().item_of_fact(4) == -1
    assert isinstance(items.all[0], TranscriptItem)


def test_a_refusal_is_known_also_when_it_is_recorded_after_the_result() -> None:
    told = Told()
    told.reply("", call(1), call(2))
    told.returned("c1", ok=False)
    told.returned("c2")
    told.add(Decided("c1", allowed=False, by="user"))
    items = grown(told.facts)
    decided = items.tool_call_state(0).decided
    assert decided is not None
    assert not decided.allowed
    assert items.tool_call_state(1).decided is None


def test_a_call_that_is_asked_about_again_after_an_interruption_waits_for_the_user() -> None:
    """The row said "not finished" while the card waited for an answer."""
    told = Told()
    told.reply("", call(1))
    items = grown(told.facts)
    items.calls.mark_running_calls_ended()
    items.set_run_state(ConversationActivity.ASKING)
    assert items.calls.set_call_of_question(7, "c1") == (0,)
    state = items.tool_call_state(0)
    assert (state.waiting, state.running) == (True, True)
    items.calls.mark_call_running_after_answer(7, 5_000.0)
    assert items.tool_call_state(0).running


def test_a_call_that_waits_for_the_user_or_another_does_not_run_and_its_time_begins_when_it_does() -> (
    None
):
    told = Told()
    told.reply("", call(1), call(2))
    items = grown(told.facts)
    items.set_run_state(ConversationActivity.ASKING)
    assert items.calls.set_call_of_question(7, "c1") == (0,)
    assert (items.tool_call_state(0).waiting, items.tool_call_state(1).waiting) == (True, False)
    items.calls.mark_call_running_after_answer(7, 5_000.0)
    state = items.tool_call_state(0)
    assert (state.waiting, state.running, state.begun_at) == (False, True, 5_000.0)
    items.calls.mark_call_running_after_answer(8, 6_000.0)  # of a server that asked by itself
    assert items.calls.set_stage("c2", CallStage.IN_LINE, 6_500.0) == (1,)
    assert items.tool_call_state(1).stage is CallStage.IN_LINE
    assert items.calls.set_stage("c2", CallStage.RUNNING, 7_000.0) == (1,)
    assert (items.tool_call_state(1).stage, items.tool_call_state(1).begun_at) == (
        CallStage.RUNNING,
        7_000.0,
    )
