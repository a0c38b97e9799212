"""Calls that follow one another: one line for those that went well, and never a failure or a question behind it."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import ModelReplied, Reasoning, Rewound, Stop, ToolReturned
from helix_desktop.engine.view import state_of
from helix_desktop.gui.transcript.boxes import Toggle
from helix_desktop.gui.transcript.groups import SMALLEST
from helix_desktop.gui.transcript.item import ItemKind
from helix_desktop.gui.transcript.layout import group_words
from helix_desktop.gui.transcript.pane import TranscriptPane
from helix_desktop.gui.transcript.projection import Items
from tests.gui.transcript.facts import OUTPUT, Told, call


def worked(told: Told, numbers: range, *, failing: int = -1) -> None:
    for number in numbers:
        told.reply("", call(number))
        told.add(ToolReturned(f"c{number}", OUTPUT, 10, ok=number != failing, seconds=2.0))


def grown(told: Told) -> Items:
    items = Items()
    for recorded in told.facts:
        items.advance(recorded)
    return items


def shown(items: Items) -> list[int]:
    return [index for index in range(len(items.all)) if not items.hidden(index)]


def test_calls_that_are_done_stand_behind_one_line() -> None:
    told = Told()
    told.user("go")
    worked(told, range(7), failing=3)
    told.reply("Done.")
    items = grown(told)
    assert shown(items) == [0, 1, 4, 8]  # the message, the line on the first call, the failure, the answer
    group = items.group(1)
    assert group is not None
    assert group_words(group) == "7 tool calls · 14 s · 1 failed"
    items.open_group(1)
    assert shown(items) == list(range(9))


def test_two_calls_and_those_that_run_or_wait_stand_by_themselves() -> None:
    told = Told()
    told.user("go")
    worked(told, range(2))
    assert shown(grown(told)) == [0, 1, 2]
    worked(told, range(2, 4))
    told.reply("", call(9))  # asks, or runs: it has no result yet
    items = grown(told)
    assert shown(items) == [0, 1, 5]
    items.asked(1, "c9")
    assert not items.hidden(5)


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
    assert kinds == [ItemKind.USER, ItemKind.REASONING, ItemKind.REPLY, ItemKind.CALL]


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
    once, steps = Items(), grown(told)
    once.extend(told.facts)
    assert [once.hidden(i) for i in range(len(once.all))] == [steps.hidden(i) for i in range(len(steps.all))]
    for index, item in enumerate(once.all):
        if item.kind is ItemKind.CALL and not once.set_aside(index):
            returned = once.call(index).returned
            assert not once.hidden(index) or (returned is not None and returned.ok)
    assert sorted(once.grouped(0)) == [i for i in range(len(once.all)) if once.hidden(i) and not once.set_aside(i)]


def test_the_line_opens_with_a_click_and_what_is_looked_for_opens_it(
    pane: TranscriptPane, settle: Callable[[], None]
) -> None:
    told = Told()
    told.user("go")
    worked(told, range(SMALLEST + 2))
    told.reply("Done.")
    pane.open(state_of(told.facts))
    settle()
    view = pane.view
    whole = view.column.total
    laid = view.column.whole(1)
    toggle = next(laid.spot(spot)[0].act for spot in laid.spots())
    assert isinstance(toggle, Toggle)
    view.do(toggle)
    settle()
    assert view.column.total > whole + 4 * 38
    view.do(toggle)
    settle()
    assert view.column.total == whole
    pane.show_seq(told.facts[5].seq)
    assert not view.items.hidden(3)


def test_what_comes_while_it_works_keeps_the_readers_place(pane: TranscriptPane, settle: Callable[[], None]) -> None:
    from helix_desktop.engine.events import FactAppended

    told = Told()
    for _ in range(12):
        told.user("a message\n\n" * 4)
    state = state_of(told.facts)
    pane.open(state)
    settle()
    pane.view.verticalScrollBar().setValue(120)
    pane.view._gesture(1)
    settle()
    top = pane.place()
    before = len(told.facts)
    worked(told, range(5))
    pane.hear([FactAppended(recorded) for recorded in told.facts[before:]])
    settle()
    assert pane.place() == top
