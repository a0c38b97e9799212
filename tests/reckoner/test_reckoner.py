"""Trials made by hand from the sentences of the definition; each case says what it must come to."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    ConversationStarted,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    ModelReplied,
    ModelRole,
    ModelSet,
    PartRef,
    Pinned,
    Purpose,
    Reasoning,
    Recorded,
    Refolded,
    Rewound,
    RulesSet,
    Span,
    Spent,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from tests.reckoner import figures, places, request
from tests.reckoner.journal import Conversation, conversation, settings, way
from tests.reckoner.moment import Shown, moment, view


def of(*facts: Fact, contents: dict[Any, bytes] | None = None) -> Conversation:
    return Conversation(facts, contents or {})


def said(text: str = "words", tokens: int = 10, *, steering: bool = False) -> UserSaid:
    return UserSaid((Text(text, tokens),), steering=steering)


def replied(
    *parts: Text | Reasoning | ToolCall, model: str = "m", saw: int = 0, **usage: int
) -> ModelReplied:
    return ModelReplied(parts or (Text("answer", 20),), model, Stop.END, Usage(**usage), saw=saw)


def call(name: str = "a", tokens: int = 15) -> ToolCall:
    return ToolCall(name, "read", '{"path": "x"}', tokens)


def returned(name: str = "a", tokens: int = 100, **more: Any) -> ToolReturned:
    digest: Any = "d" * 64
    return ToolReturned(name, Stored(digest, 9), tokens, **more)


def folded(name: str, cover: Cover, tokens: int = 5, **more: Any) -> Folded:
    kind = more.pop("kind", FoldKind.HANDOVER)
    return Folded(
        name, kind, cover, f"text of {name}", tokens, more.pop("tokens_before", 50), **more
    )


END = TurnEnded(TurnEnd.DONE)


def seen(c: Conversation, n: int = 0) -> list[list[str]]:
    """The view in short: for each item its parts as number.part:how, a document by its
    fold's name.
    """
    return [[_short(each) for each in item.shown] for item in view(moment(c, n or len(c.facts)))]


def _short(each: Shown) -> str:
    if each.ref is None:
        return each.fold.fact.fold if each.fold else ""
    return f"{each.ref.seq}.{each.ref.part}:{each.how}"


def counts(c: Conversation) -> list[int]:
    return [figures.counted(c, n) for n in range(len(c.facts) + 1)]


# --- the way and the settings


def test_the_way_goes_over_rewinds() -> None:
    c = of(said(), replied(), said(), Rewound(2), said(), Rewound(4), Rewound(99), Rewound(-3))
    assert way(c, 3) == [1, 2, 3]
    assert way(c, 5) == [1, 2, 4, 5]
    assert way(c, 6) == [1, 2, 4, 6]  # back to the rewind itself
    assert way(c, 7) == [1, 2, 4, 6, 7]  # never past the fact before it
    assert way(c, 8) == [8]
    assert list(moment(c, 5).messages) == [1, 2, 5]


def test_numbers_of_purged_facts_stay_free() -> None:
    c = conversation([Recorded("c", 1, 0, said()), Recorded("c", 3, 0, said())])
    assert way(c, 3) == [1, 2, 3]
    assert list(moment(c, 3).messages) == [1, 3]


def test_settings_count_on_any_way() -> None:
    c = of(
        ConversationStarted("first"),
        SystemSet("system", 7),
        ToolsOffered((), 30),
        RulesSet("a", "rule", 1),
        RulesSet("b", "rule", 2),
        ConversationChanged(title="second"),
        Rewound(0),
        ConversationStarted(),
    )
    assert settings(c, 8).title == "second"
    assert figures.counted(c, 8) == 7 + 30 + 11 + 12


def test_rules_keep_their_place_and_come_last_again() -> None:
    c = of(
        RulesSet("a", "x", 1),
        RulesSet("b", "x", 1),
        RulesSet("a", "x", 1),
        RulesSet("b", "y", 1),
        RulesSet("a", "", 0),
        RulesSet("a", "x", 1),
    )
    order = [
        [(path, number) for path, (number, _) in settings(c, n).rules.items()] for n in (3, 4, 5, 6)
    ]
    assert order == [[("a", 1), ("b", 2)], [("a", 1), ("b", 4)], [("b", 4)], [("b", 4), ("a", 6)]]


def test_a_system_prompt_without_text_counts_nothing() -> None:
    assert figures.counted(of(SystemSet("", 7)), 1) == 0


# --- messages, calls, turns


def test_a_result_goes_to_the_first_waiting_call() -> None:
    c = of(
        replied(call(), call()),
        returned(),
        returned(),
        returned(),
        replied(call("b")),
        replied(),
        returned("b"),
    )
    now = moment(c, 7)
    assert list(now.messages) == [1, 2, 3, 5, 6]
    assert now.answers == {PartRef(1, 0): 2, PartRef(1, 1): 3}


def test_ids_in_requests() -> None:
    c = of(replied(call(), call(), call("")), replied(call("b"), call()))
    assert list(moment(c, 2).ids.values()) == ["a", "call-1-1", "call-1-2", "b", "call-2-1"]


def test_words_of_the_turn() -> None:
    c = of(said(), said(steering=True), replied(), said(steering=True), END, said(steering=True))
    turns = [(moment(c, n).words, moment(c, n).running) for n in range(1, 7)]
    assert turns == [
        ([1], True),
        ([1, 2], True),
        ([1, 2], True),
        ([1, 2, 4], True),
        ([1, 2, 4], False),
        ([6], True),
    ]


def test_what_parts_count() -> None:
    image: Any = Stored("i" * 64, 9, media_type="image/png")  # type: ignore[arg-type]
    c = of(
        UserSaid(
            (Text(" \n", 3), Text("x", 1), Attachment("i", image), Attachment("i", image, 70))
        ),
        said(" ", 5),
        replied(call("a", 2)),
        returned(tokens=40, images=(image, image)),
    )
    assert counts(c)[1:] == [1675, 1675, 1681, 1681 + 44 + 3200]


# --- folds


def test_a_fold_over_a_part() -> None:
    c = of(
        said(),
        replied(call()),
        returned(),
        folded("f", PartRef(3), 100),
        folded("g", PartRef(3), 100),
    )
    assert counts(c) == [0, 14, 33, 137, 137, 137]
    assert seen(c) == [["1.0:whole"], ["2.0:whole"], ["3.0:handover"]]
    assert list(moment(c, 5).folds) == ["f", "g"]  # the younger shows


@pytest.mark.parametrize(
    "fold",
    [
        folded("f", PartRef(3), 101),  # more than is shown
        folded("f", PartRef(3), 0),
        folded("f", PartRef(3, 1)),  # no such part
        folded("f", PartRef(9)),
        folded("f", Span(1, 4)),  # does not end before the fact
        folded("f", Span(3, 2)),
        folded("f", Span(-5, 0)),  # holds no message
        folded("f", Span(1, 1), 1),  # the running turn's words are kept: 11 of 10
    ],
)
def test_folds_without_effect(fold: Folded) -> None:
    assert moment(of(said(), replied(call()), returned(), fold), 4).folds == {}


def test_a_name_is_new_once_on_the_way() -> None:
    c = of(
        said(),
        folded("f", PartRef(1), 99),
        folded("f", PartRef(1), 1),
        folded("f", PartRef(1), 1),
        Rewound(1),
    )
    assert moment(c, 4).folds["f"].seq == 3  # the one without effect changed nothing
    assert moment(c, 5).folds == {}


def test_a_document_leaves_the_words_of_a_running_turn() -> None:
    c = of(
        said(),
        replied(),
        said(),
        replied(call()),
        returned(),
        folded("f", Span(1, 5)),
        END,
        Unfolded("f"),
    )
    assert seen(c, 6) == [["f", "3.0:whole"]]
    assert figures.counted(c, 6) == 5 + 10 + 4
    assert seen(c, 7) == [["f", "3.0:whole"]]  # settled when it was made
    assert len(seen(c, 8)) == 5


@pytest.mark.parametrize(("panic", "shown"), [(False, ["g", "2.0:whole"]), (True, ["g"])])
def test_undo_bars_keep_a_part_but_in_panic(*, panic: bool, shown: list[str]) -> None:
    c = of(
        said(),
        replied(),
        END,
        folded("f", PartRef(2)),
        Unfolded("f"),
        folded("g", Span(1, 3), panic=panic),
    )
    assert seen(c) == [shown]


def test_refolding_takes_the_bar_off() -> None:
    c = of(
        said(), replied(), END, folded("f", PartRef(2)), Unfolded("f"), Unfolded("f"), Refolded("f")
    )
    assert moment(c, 6).bars == {PartRef(2)}
    assert moment(c, 7).bars == set()
    assert seen(c)[1] == ["2.0:handover"]


def test_pins_count_at_each_moment() -> None:
    c = of(
        said(), replied(), END, folded("e", PartRef(2)), folded("f", Span(1, 3)), Pinned(Span(2, 2))
    )
    assert seen(c, 5) == [["f"]]
    assert seen(c, 6) == [["f", "2.0:whole"]]  # pinned parts are shown whole, whatever folds them


def test_kept_parts_count_against_a_fold() -> None:
    facts = (said(), replied(), END, Pinned(PartRef(2)))
    assert moment(of(*facts, folded("f", Span(1, 3), 10)), 5).in_force == {"f"}  # 10 + 20 <= 30
    assert moment(of(*facts, folded("f", Span(1, 3), 11)), 5).in_force == set()


def test_spans_nest() -> None:
    facts = (said(), replied(), said(), replied(), END, folded("f", Span(2, 3), 9))
    cross = folded("g", Span(3, 4), 1)
    around = folded("g", Span(1, 4), 1)
    assert moment(of(*facts, cross), 7).in_force == {"f"}
    assert seen(of(*facts, around)) == [["g"]]
    assert seen(of(*facts, folded("g", Span(2, 2), 1))) == [
        ["1.0:whole"],
        ["f"],
        ["4.0:whole"],
    ]  # hidden
    assert seen(of(*facts, folded("g", Span(2, 3), 1))) == [["1.0:whole"], ["g"], ["4.0:whole"]]
    assert seen(of(*facts, Unfolded("f"), cross, Refolded("f")))[2:] == [["g"]]  # it nests no more


def test_an_edited_document_and_its_rewind() -> None:
    c = of(
        said(),
        folded("f", PartRef(1)),
        DocumentEdited("f", "mine", 70),
        DocumentEdited("x", "", 0),
        Rewound(2),
    )
    assert counts(c) == [0, 14, 9, 74, 74, 9]


# --- exclusions


def test_excluded_calls_and_outputs_show_a_note() -> None:
    c = of(
        said(),
        replied(Text("x", 9), call()),
        returned(),
        END,
        Excluded(Span(2, 3)),
        Included(Span(2, 2)),
    )
    assert seen(c) == [["1.0:whole"], ["2.1:note"], ["3.0:note"]]
    assert figures.counted(c, 6) == 14 + 12 + 12  # a part of a cover takes nothing back


def test_reasoning_goes_together_and_not_while_the_turn_runs() -> None:
    thought = replied(Reasoning("a", 5), Text("x", 1), Reasoning("b", 6))
    c = of(said(), thought, Excluded(PartRef(2)), Excluded(Span(1, 2)), END, Excluded(PartRef(2)))
    assert counts(c) == [0, 14, 30, 30, 30, 30, 19]


def test_an_exclusion_around_a_document() -> None:
    c = of(
        said(),
        replied(call()),
        returned(),
        END,
        folded("f", Span(1, 3)),
        Pinned(PartRef(3)),
        Excluded(Span(1, 3)),
    )
    assert seen(c, 6) == [["f", "3.0:whole"]]
    assert seen(c) == [["3.0:note"]]
    assert figures.counted(c, 7) == 12
    assert figures.counted(c, 6, folding=False) == 137


# --- figures


def test_the_factor() -> None:
    facts: list[Fact] = [said(tokens=96)]
    assert figures.factor(of(*facts), "Claude x", 1) == 1.32
    facts += [replied(Text(" ", 0), input=200, saw=1)]  # 2 of what was counted
    assert figures.factor(of(*facts), "m", 2) == 1  # of 1, 1, 2
    facts += [replied(Text(" ", 0), input=300, saw=1), replied(Text(" ", 0), input=900, saw=1)]
    assert (
        figures.factor(of(*facts), "m", 4) == 1.5
    )  # of 1, 1, 2, 3: what is out of bounds is left out
    assert figures.factor(of(*facts), "n", 4) == 1


def test_what_was_sent_and_saved() -> None:
    c = of(
        said(tokens=96),
        folded("f", PartRef(1), 46),
        replied(input=80, cache_read=3, output=7),
        Rewound(1),
        replied(Text("y", 5), saw=9),
        Spent(Purpose.TITLE, "m", Usage(input=11, cost=0.5)),
    )
    assert (figures.saw(c, 3), figures.saw(c, 5)) == (2, 4)
    assert (figures.sent(c, 3), figures.without_folds(c, 3)) == (80, 160)
    assert (figures.sent(c, 5), figures.without_folds(c, 5)) == (100, 100)
    total = figures.sums(c, 6)
    assert (total.steps, total.sent, total.without, total.cache_read, total.paid) == (
        2,
        191,
        271,
        3,
        0.5,
    )
    assert total.saved == 1 - 191 / 271


def test_money_without_folds() -> None:
    c = of(
        ModelSet(ModelRole.MAIN, "m", 1, price_output=4, price_cache_read=1, price_cache_write=2),
        said(tokens=96),
        replied(Text("x", 96), input=100, output=10, cost=2),
        replied(input=400, cost=1),
    )
    assert figures.money_without_folds(c, 4) == pytest.approx(3), "nothing is folded"


def test_texts_are_counted_in_their_facts() -> None:
    assert figures.miscounted(of(said("abc", 3), said("abc", 4), END), 3, len) == [2]


# --- places


def test_the_outline_of_a_request() -> None:
    c = of(
        said(),
        replied(call(), call()),
        returned(),
        said("more", steering=True),
        returned(),
        folded("f", PartRef(3)),
        contents={"d" * 64: b"content"},
    )
    lines = [(each.who, each.lines[0].text, each.lines[0].id) for each in places.outline(c, 6)]
    assert lines == [
        ("user", "words", ""),
        ("model", '{"path": "x"}', "a"),
        ("tool", "text of f", "a"),
        ("tool", "content", "call-2-1"),
        ("user", "more", ""),
    ]


def test_the_chat_hides_what_was_rewound() -> None:
    c = of(said(), replied(call()), said(), Rewound(2), returned(), Rewound(1), said())
    assert [row.seq for row in places.chat(c, 7)] == [1, 6, 7]
    behind = places.chat(c, 7)[1].hidden
    assert [row.seq for row in behind] == [2, 4, 5]
    assert [row.seq for row in behind[1].hidden] == [3]
    assert [places.result(c, PartRef(2), n) for n in (7, 5, 4)] == [
        5,
        5,
        0,
    ]  # at 7 the call is not on the way


def test_a_batch_in_chat_and_timeline() -> None:
    c = of(
        said(tokens=50),
        said(tokens=50),
        folded("f", PartRef(1), batch="b", tokens_before=50),
        folded("g", PartRef(2), batch="b", tokens_before=50),
        Unfolded("f"),
        Unfolded("g"),
    )
    assert [places.struck(c, 3, n) for n in (5, 6)] == [False, True]
    assert places.chat_items(c, 6)[2:] == [(3, "fold", 0)]
    points = [(point.seq, point.figure) for point in places.timeline(c, 6)]
    assert points == [(3, 18), (5, 63), (6, 108)]  # nothing stands before the first point
    assert places.fold_rows(c, 5) == [places.FoldRow((3, 4), 50, 5, in_force=True)]
    assert not places.fold_rows(c, 6)[0].in_force


def test_an_excerpt_has_no_point_before_it() -> None:
    c = of(
        said(tokens=50), folded("f", PartRef(1), kind=FoldKind.EXCERPT), folded("g", PartRef(1), 1)
    )
    assert [(point.seq, point.figure) for point in places.timeline(c, 3)] == [(2, 9), (3, 5)]


def test_the_inspector_is_of_the_moment_seen() -> None:
    c = of(SystemSet("s", 7), ToolsOffered((), 30), said(), SystemSet("t", 70), replied(saw=3))
    kinds, used = places.meter(c, figures.saw(c, 5))
    assert (kinds[places.SYSTEM], kinds[places.CONVERSATION], used) == (37, 14, 51)


def test_the_digest_of_a_request() -> None:
    c = of(SystemSet("sys", 1), ModelSet(ModelRole.MAIN, "m", 9, effort="high"), said("é"))
    pieces = [b"request 1", b"sys", b"high", b"message", b"user", b"text", "é".encode()]
    data = b"".join(len(piece).to_bytes(8, "big") + piece for piece in pieces)
    assert request.digest(c, 3) == hashlib.sha256(data).hexdigest()
