from __future__ import annotations

import pytest

from helix_desktop.engine.facts import (
    ConversationChanged,
    ConversationStarted,
    Fact,
    ModelReplied,
    Purpose,
    Recorded,
    Spent,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    Usage,
    UserSaid,
)
from helix_desktop.store.conversation_rows import (
    COLUMNS,
    StoredConversation,
    advance_row,
    build_empty_row,
)


def after(*facts: Fact) -> StoredConversation:
    return advance_row(
        build_empty_row("c", 1.0),
        (Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)),
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (
            (ConversationStarted("T", parent="p", parent_call="1"),),
            {"title": "T", "parent": "p", "parent_call": "1"},
        ),
        (
            (UserSaid((Text(" a\n b "), Text("c"))), UserSaid((Text("later"),))),
            {"begins": "a b c", "last_seq": 2, "updated": 2.0},
        ),
        ((UserSaid((Text("x" * 900),)),), {"begins": "x" * 120}),
        (
            (
                UserSaid((Text("<environment_context>x</environment_context>"),)),
                UserSaid((Text("<system-reminder>x</system-reminder>\nMend it"),)),
            ),
            {"begins": "Mend it", "last_seq": 2, "updated": 2.0},
        ),
        (
            (ConversationChanged(title="N"), ConversationChanged(pinned=True)),
            {"title": "N", "pinned": True},
        ),
        (
            (ConversationChanged(archived=True), ConversationChanged(archived=False)),
            {"archived": False},
        ),
        ((TurnEnded(TurnEnd.DONE), TurnEnded(TurnEnd.FAILED)), {"turns": 2}),
        (
            (
                ModelReplied((), "m", Stop.END, Usage(10, output=3, cost=0.5)),
                Spent(Purpose.OTHER, "m", Usage(1, output=1, cost=0.25)),
            ),
            {"sent": 11, "written": 4, "cost": 0.75},
        ),
        (
            (
                ConversationStarted("T"),
                ConversationChanged(trashed=True),
                ConversationStarted(forked_from="b", forked_at=2),
            ),
            {"title": "T", "trashed": False, "forked_from": "b", "forked_at": 2},
        ),
    ],
)
def test_a_row_follows_its_facts(facts: tuple[Fact, ...], expected: dict[str, object]) -> None:
    row = after(*facts)
    assert {name: getattr(row, name) for name in expected} == expected


def test_a_row_comes_back_from_its_columns() -> None:
    row = after(ConversationStarted("T"), ConversationChanged(pinned=True))
    assert StoredConversation.from_columns((*row.column_values(), "")) == row
    assert len(row.column_values()) == len(COLUMNS)
    assert after(ConversationStarted("bad \ud800")).column_values()[4] == "bad ?"
