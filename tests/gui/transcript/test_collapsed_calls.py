"""Calls that follow one another: one line for those that went well, and never a failure
or a question behind it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
    Rewound,
    Stop,
    ToolReturned,
    Unfolded,
)
from helix_desktop.engine.view import build_state
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.collapsed_calls import SMALLEST, CallGroup
from helix_desktop.gui.transcript.item_boxes import describe_call_group
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.facts import OUTPUT, Told, call


def worked(told: Told, numbers: range, *, failing: int = -1) -> None:
    for number in numbers:
        told.reply("", call(number))
        told.add(ToolReturned(f"c{number}", OUTPUT, 10, ok=number != failing, seconds=2.0))


def grown(told: Told) -> TranscriptItems:
    items = TranscriptItems()
    for recorded in told.facts:
        items.show_fact(recorded)
    return items


def shown(items: TranscriptItems) -> list[int]:
    return [index for index in range(len(items.all)) if not items.is_item_hidden(index)]


def test_calls_that_are_done_stand_behind_one_line() -> None:
    told = Told()
    told.user("go")
    worked(told, range(7), failing=3)
    told.reply("Done.")
    items = grown(told)
    assert shown(items) == [
        0,
        1,
        4,
        8,
    ]  # the message, the line on the first call, the failure, the answer
    group = items.groups.group_headed_by(1)
    assert group is not None
    assert describe_call_group(group) == "Read ×7 · 14 s · 1 failed"
    items.toggle_call_group(1)
    assert shown(items) == list(range(9))


def test_the_line_of_a_group_says_that_an_output_behind_it_is_shortened() -> None:
    """Only an open group showed it, and shortening is what nobody may miss."""
    told = Told()
    told.user("go")
    worked(told, range(4))
    seq_of_second_result = 5
    excerpt = Folded("f", FoldKind.EXCERPT, PartRef(seq_of_second_result), "x", 3, 10)
    told.add(excerpt)
    items = grown(told)
    group = items.groups.group_headed_by(1)
    assert group is not None
    count = items.count_excerpts_in_group(group)
    assert describe_call_group(group, count) == "Read ×4 · 8.0 s · 1 shortened"
    undone = told.add(Unfolded("f"))
    changes = items.show_fact(undone)
    assert group.first in changes.changed_items
    assert items.count_excerpts_in_group(group) == 0


def test_the_line_of_a_group_names_the_tools_that_were_called() -> None:
    """As the pictures of the design show it; "5 tool calls" said nothing of what the
    agent had done.
    """
    group = CallGroup(
        0, 9, done=9, tools=Counter(read_file=4, search_files=2, list_files=2, fetch=1)
    )
    assert (
        describe_call_group(group)
        == "Read ×4, Search files ×2, List files ×2, Fetch web page · 9 tool calls"
    )
    assert describe_call_group(CallGroup(0, 3, done=3, tools=Counter(["a\u202eb"]))) != "a\u202eb"


def test_two_calls_and_those_that_run_or_wait_stand_by_themselves() -> None:
    told = Told()
    told.user("go")
    worked(told, range(2))
    assert shown(grown(told)) == [0, 1, 2]
    worked(told, range(2, 4))
    told.reply("", call(9))  # asks, or runs: it has no result yet
    items = grown(told)
    assert shown(items) == [0, 1, 5]
    items.calls.set_call_of_question(1, "c9")
    assert not items.is_item_hidden(5)


def test_reasoning_between_calls_goes_with_them_and_words_end_a_group() -> None:
    told = Told()
    told.user("go")
    for number in range(3):
        told.add(ModelReplied((Reasoning("hm", 9), call(number)), "m", Stop.CALLS))
        told.returned(f"c{number}")
    told.reply("A word.")
    worked(told, range(5, 8))
    items = grown(told)
    kinds = [items.all[index].kind for index in shown(items)]
    assert kinds == [
        TranscriptItemKind.USER,
        TranscriptItemKind.REASONING,
        TranscriptItemKind.REPLY,
        TranscriptItemKind.CALL,
    ]


def tell(told: Told, number: int, act: str) -> None:
    match act:
        case "user":
            told.user(f"said {number}")
        case "reply":
            told.reply(f"answer {number}")
        case "call":
            told.reply("", call(number))
        case "return" | "fail":
            told.returned(f"c{number - 1}", ok=act == "return")
        case _:
            told.add(Rewound(len(told.facts) // 2, again=True))


ACTS = st.lists(st.sampled_from(["user", "reply", "call", "return", "fail", "rewind"]), max_size=40)


@given(ACTS)
def test_however_it_came_the_same_is_hidden_and_never_what_needs_a_look(acts: list[str]) -> None:
    told = Told()
    told.user("begin")
    for number, act in enumerate(acts):
        tell(told, number, act)
    once = TranscriptItems()
    steps = grown(told)
    once.add_many_facts(told.facts)
    count = len(once.all)
    hidden = [index for index in range(count) if once.is_item_hidden(index)]
    assert len(steps.all) == count
    assert hidden == [index for index in range(count) if steps.is_item_hidden(index)]
    collapsed = [index for index in hidden if not once.is_hidden_as_replaced(index)]
    assert sorted(once.groups.collapsed_items_from(0)) == collapsed
    for index in collapsed:
        if once.all[index].kind is TranscriptItemKind.CALL:
            returned = once.tool_call_state(index).returned
            assert returned is not None
            assert returned.ok


def test_the_line_opens_with_a_click_and_what_is_looked_for_opens_it(
    pane: TranscriptPane, settle: Callable[[], None]
) -> None:
    told = Told()
    told.user("go")
    worked(told, range(SMALLEST + 2))
    told.reply("Done.")
    pane.open_transcript(build_state(told.facts))
    settle()
    view = pane.view
    whole = view.column.total_height
    laid = view.column.lay_out_fully(1)
    toggle = next(laid.hot_spot_and_rect(spot)[0].act for spot in laid.list_hot_spots())
    assert isinstance(toggle, ToggleSection)
    view.perform_box_action(toggle)
    settle()
    assert view.column.total_height > whole + 4 * 38
    view.perform_box_action(toggle)
    settle()
    assert view.column.total_height == whole
    pane.scroll_to_fact(told.facts[5].seq)
    assert not view.items.is_item_hidden(3)


def test_what_comes_while_it_works_keeps_the_readers_place(
    pane: TranscriptPane, settle: Callable[[], None]
) -> None:
    from helix_desktop.engine.session_events import FactAppended

    told = Told()
    for _ in range(12):
        told.user("a message\n\n" * 4)
    state = build_state(told.facts)
    pane.open_transcript(state)
    settle()
    pane.view.verticalScrollBar().setValue(120)
    pane.view.scrolling._follow_if_scrolled_to_end(1)
    settle()
    top = pane.view.reading_position()
    before = len(told.facts)
    worked(told, range(5))
    pane.view.apply_events([FactAppended(recorded) for recorded in told.facts[before:]])
    settle()
    assert pane.view.reading_position() == top
