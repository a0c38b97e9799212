"""The tree of facts: which path leads to a fact, and what held there."""

from __future__ import annotations

import random

from helix_desktop.engine.facts import Excluded, Included, PartRef, Rewound, SystemSet
from helix_desktop.engine.state.fact_tree import FactTree
from helix_desktop.engine.view import build_state
from tests.engine.talk import Talk


def test_a_path_leaves_out_what_rewinds_left_behind() -> None:
    tree = FactTree()
    assert tree.add_rewind(6, 3) == 3
    assert tree.add_rewind(9, 7) == 7
    assert tree.runs_leading_to(5) == [(1, 5)]
    assert tree.runs_leading_to(8) == [(1, 3), (6, 8)]
    assert tree.runs_leading_to(10) == [(1, 3), (6, 7), (9, 10)]
    assert tree.runs_leading_to(0) == []


def test_a_rewind_goes_back_to_an_earlier_fact_or_to_the_start() -> None:
    tree = FactTree()
    assert tree.add_rewind(4, 9) == 3
    assert tree.add_rewind(6, -2) == 0
    assert tree.runs_leading_to(7) == [(6, 7)]


def test_settings_at_a_moment_are_those_set_before_it() -> None:
    talk = Talk()
    talk.user("go")
    first = talk.add(SystemSet("one", 1))
    talk.user("on")
    second = talk.add(SystemSet("two", 1))
    record = talk.state.record
    assert [record.settings_at(seq).system.text for seq in (1, first, second - 1, second)] == [
        "",
        "one",
        "one",
        "two",
    ]


def test_what_was_taken_out_on_any_branch_is_known() -> None:
    talk = Talk()
    talk.user("go")
    outputs = talk.steps(3)
    for seq in outputs:
        talk.add(Excluded(PartRef(seq)))
    talk.add(Included(PartRef(outputs[1])))
    talk.add(Rewound(1))
    assert list(talk.state.record.taken_out_parts()) == [PartRef(outputs[0]), PartRef(outputs[2])]


def test_a_moment_found_by_its_path_is_the_one_that_a_replay_gives() -> None:
    chance = random.Random(7)
    talk = Talk()
    talk.user("go")
    for number in range(60):
        if chance.random() < 0.15:
            talk.add(Rewound(chance.randint(1, talk.state.seq)))
            talk.user(f"again {number}")
        elif chance.random() < 0.2 and talk.state.branch.steps:
            talk.add(Excluded(PartRef(chance.choice(talk.state.branch.order))))
        else:
            talk.step(f"c{number}", tokens=50)
    for seq in range(1, talk.state.seq + 1, 3):
        replayed = build_state(talk.state.facts[:seq]).branch
        found = talk.state.record.folds_at(seq)
        assert list(found.order) == list(replayed.order)
        assert [item.blocks for item in found.items] == [item.blocks for item in replayed.items]
