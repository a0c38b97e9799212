"""Several answers to one message: which is shown, where the others end, and no line about what was set aside."""

from __future__ import annotations

from helix_desktop.engine.events import Running
from helix_desktop.engine.facts import Excluded, Rewound, Span, Stop, TurnEnd, TurnEnded
from helix_desktop.gui.transcript.item import ItemKind
from helix_desktop.gui.transcript.projection import Items
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


def grown(told: Told) -> Items:
    items = Items()
    for recorded in told.facts:
        items.advance(recorded)
    return items


def shown(items: Items) -> list[str]:
    return [items.all[index].kind.name for index in range(len(items.all)) if not items.hidden(index)]


def test_an_answer_asked_for_again_leaves_no_line_and_a_choice() -> None:
    items = grown(told_twice())
    assert shown(items) == ["USER", "REPLY"]
    choice = items.answers(len(items.all) - 1)
    assert (choice.number, choice.ends) == (2, (3, 6))
    assert choice.beside(-1) == 3
    assert choice.beside(1) == 0


def test_back_to_the_first_and_on_and_forth_again() -> None:
    told = told_twice()
    told.add(Rewound(3, again=True))
    told.user("and then?")
    told.reply("so")
    items = grown(told)
    assert shown(items) == ["USER", "REPLY", "USER", "REPLY"]
    assert items.answers(1).number == 1
    assert items.answers(1).ends == (9, 6)
    assert items.answers(len(items.all) - 1).ends == ()  # the second message has one answer
    told.add(Rewound(6, again=True))
    items = grown(told)
    assert shown(items) == ["USER", "REPLY"]
    assert items.answers(items.at_seq(5)).ends == (9, 10)


def test_a_third_answer() -> None:
    told = told_twice()
    told.add(Rewound(1, again=True))
    told.reply("three")
    choice = grown(told).answers(3)
    assert (choice.number, choice.ends) == (3, (3, 6, 8))


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
    last = next(i for i in range(len(items.all)) if items.all[i].kind is ItemKind.REPLY and not items.hidden(i))
    assert items.all[last].seq == 6
    assert items.all[last].head


def test_while_it_is_written_anew_the_broken_one_is_gone_already() -> None:
    from helix_desktop.engine.blocks import TextDelta

    told = Told()
    told.user("tell")
    broken(told, "Once upon")
    items = grown(told)
    items.state(Running.THINKING)
    change = items.stream(TextDelta("Once"))
    assert change.hidden
    assert shown(items) == ["USER", "LIVE_REPLY"]
