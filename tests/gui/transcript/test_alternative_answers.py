"""Several answers to one message: which is shown, where the others end, and no line
about what was set aside.
"""

from __future__ import annotations

from helix_desktop.engine.facts import Excluded, Rewound, Span, Stop, TurnEnd, TurnEnded
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.gui.transcript.items_from_facts import TranscriptItems
from helix_desktop.gui.transcript.transcript_item import TranscriptItemKind
from tests.gui.transcript.facts import Told


def told_twice() -> Told:
    """A message, an answer, and another one."""
    told = Told()
    told.user("why?")
    told.reply("one")
    told.add(TurnEnded(TurnEnd.DONE))
    told.add(Rewound(1, again=True))
    told.reply("two")
    told.add(TurnEnded(TurnEnd.DONE))
    return told


def grown(told: Told) -> TranscriptItems:
    items = TranscriptItems()
    for recorded in told.facts:
        items.show_fact(recorded)
    return items


def shown(items: TranscriptItems) -> list[str]:
    return [
        items.all[index].kind.name
        for index in range(len(items.all))
        if not items.is_item_hidden(index)
    ]


def test_an_answer_asked_for_again_leaves_no_line_and_a_choice() -> None:
    items = grown(told_twice())
    assert shown(items) == ["USER", "REPLY"]
    choice = items.answer_choice_of(len(items.all) - 1)
    assert (choice.number, choice.answer_ends) == (2, (3, 6))
    assert choice.neighbouring_answer_end(-1) == 3
    assert choice.neighbouring_answer_end(1) == 0


def test_back_to_the_first_and_on_and_forth_again() -> None:
    told = told_twice()
    told.add(Rewound(3, again=True))
    told.user("and then?")
    told.reply("so")
    items = grown(told)
    assert shown(items) == ["USER", "REPLY", "USER", "REPLY"]
    assert items.answer_choice_of(1).number == 1
    assert items.answer_choice_of(1).answer_ends == (9, 6)
    assert (
        items.answer_choice_of(len(items.all) - 1).answer_ends == ()
    )  # the second message has one answer
    told.add(Rewound(6, again=True))
    items = grown(told)
    assert shown(items) == ["USER", "REPLY"]
    assert items.answer_choice_of(items.item_of_fact(5)).answer_ends == (9, 10)


def test_a_third_answer() -> None:
    told = told_twice()
    told.add(Rewound(1, again=True))
    told.reply("three")
    choice = grown(told).answer_choice_of(3)
    assert (choice.number, choice.answer_ends) == (3, (3, 6, 8))


def test_a_rewind_by_hand_still_says_so() -> None:
    told = told_twice()
    told.add(Rewound(1))
    assert shown(grown(told)) == ["USER", "REWOUND"]


def broken(told: Told, words: str) -> None:
    seq = told.reply(words, stop=Stop.CUT).seq
    told.add(Excluded(Span(seq, seq)))


def test_a_stream_that_broke_leaves_one_answer() -> None:
    told = Told()
    told.user("tell")
    broken(told, "Once upon")
    broken(told, "Once upon a")
    assert shown(grown(told)) == ["USER", "REPLY", "NOTE"]  # until there is something in its place
    told.reply("Once upon a time.", stop=Stop.CUT)
    told.add(TurnEnded(TurnEnd.FAILED, "The connection was lost."))
    items = grown(told)
    assert [kind for kind in shown(items) if kind == "REPLY"] == ["REPLY"]
    last = next(
        i
        for i in range(len(items.all))
        if items.all[i].kind is TranscriptItemKind.REPLY and not items.is_item_hidden(i)
    )
    assert items.all[last].fact_seq == 6
    assert items.all[last].is_first_of_answer


def test_while_it_is_written_anew_the_broken_one_is_gone_already() -> None:
    from helix_desktop.engine.messages import TextDelta

    told = Told()
    told.user("tell")
    broken(told, "Once upon")
    items = grown(told)
    items.set_run_state(ConversationActivity.THINKING)
    change = items.append_reply_delta(TextDelta("Once"))
    assert change.is_visibility_changed
    assert shown(items) == ["USER", "LIVE_REPLY"]
