"""An undo is told with the turns that it undoes, whenever it was done."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.changes import turn_changes
from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    FilesChanged,
    ModelReplied,
    Origin,
    Recorded,
    Stop,
    Stored,
    Text,
    ToolCall,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest


def _turns(*facts: Fact) -> list[tuple[str, list[int], int]]:
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    return [
        (turn.turn_numbers, [source.seq for source in turn.sources], turn.end)
        for turn in turn_changes.group_changes_by_turn(recorded)
    ]


def _said() -> UserSaid:
    return UserSaid((Text("do it", 2),))


def _changed(*undoes: int) -> FilesChanged:
    digest = Digest.of_content(b"")
    return FilesChanged(
        Stored(digest, 0), digest, digest, by="undo" if undoes else "command", undoes=undoes
    )


TWO = (_said(), _changed(), _said(), _changed())


@pytest.mark.parametrize(
    ("more", "turns"),
    [
        ((), [("1", [2], 2), ("2", [4], 4)]),
        ((_changed(2),), [("1", [2, 5], 2), ("2", [4], 5)]),
        ((_changed(4),), [("1", [2], 2), ("2", [4, 5], 5)]),
        ((_changed(2, 4),), [("1–2", [2, 4, 5], 5)]),
        (
            (_changed(2, 4), _said(), _changed(), _changed(2, 4)),
            [("1–2", [2, 4, 5, 8], 5), ("3", [7], 8)],
        ),
    ],
)
def test_an_undo_belongs_to_the_turns_that_it_undoes(
    more: tuple[Fact, ...], turns: list[tuple[str, list[int], int]]
) -> None:
    assert _turns(*TWO, *more) == turns


@pytest.mark.parametrize(("by", "turn"), [("command", 0), ("tool", 0), ("background", 1)])
def test_what_is_recorded_after_a_kill_belongs_to_the_turn_of_its_call(by: str, turn: int) -> None:
    """A command in the background goes on in the next turn, so there it is that turn's."""
    called = ModelReplied((ToolCall("1", "run_command", "{}"),), "demo", Stop.CALLS)
    later = replace(_changed(), call="1", by=by)
    sources = [sources for _, sources, _ in _turns(_said(), called, _said(), _changed(), later)]
    assert sources == [[5], [4]] if turn == 0 else [[], [4, 5]]


def test_what_an_agent_added_begins_no_turn() -> None:
    """The defect: a reminder of Claude Code was a turn of its own, named after it."""
    reminder = "<system-reminder>\nToday is the 24th.\n</system-reminder>"
    added = UserSaid((Text(reminder),))
    said = UserSaid((Text(f"{reminder}\ndo it"),))
    start = ConversationStarted(origin=Origin("claude-code", "s"))
    facts: list[Fact] = [start, said, added, _changed()]
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    (turn,) = turn_changes.group_changes_by_turn(recorded)
    assert (turn.title, [source.seq for source in turn.sources]) == ("do it", [4])
    assert _turns(UserSaid((Text(reminder),)), _changed()) == [("1", [2], 2)]
