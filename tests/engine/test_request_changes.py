"""What changed between two requests, and from which fact on."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import (
    ConversationStarted,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Forgotten,
    Included,
    PartRef,
    Pinned,
    Recorded,
    Refolded,
    Rewound,
    RulesSet,
    Span,
    SystemSet,
    Text,
    TodoSet,
    ToolsOffered,
    ToolSpec,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.request_changes import (
    Cause,
    CauseKind,
    ChangePlace,
    find_changes_between_requests,
    find_first_changed_seq,
    first_seq_in_piece,
)

HANDOVER = Folded("h", FoldKind.HANDOVER, Span(3, 8), "text", 5, 100, batch="b")
READ = ToolSpec("read", "Reads a file", '{"type": "object", "properties": {}}')
SAME_READ = ToolSpec("read", "Reads a file", '{"properties": {}, "type": "object"}')
WRITE = ToolSpec("write", "Writes", "not json")


def changes(*new: Fact, before: tuple[Fact, ...] = ()) -> list[ChangePlace]:
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(before + new, 1)]
    return find_changes_between_requests(recorded, [], [], len(before), len(recorded))


@pytest.mark.parametrize(
    ("fact", "place"),
    [
        (SystemSet("x", 1), 0),
        (ToolsOffered((), 0), 0),
        (Rewound(4), 5),
        (Rewound(-1), 1),
        (HANDOVER, 3),
        (Excluded(PartRef(7, 1)), 7),
        (Included(Span(2, 4)), 2),
        (Unfolded("h"), 3),
        (Refolded("h"), 3),
        (DocumentEdited("h", "x", 1), 3),
        (Unfolded("unknown"), None),
        (TodoSet(()), None),
    ],
)
def test_the_first_fact_that_is_shown_differently(fact: Fact, place: int | None) -> None:
    assert find_first_changed_seq(fact, {"h": HANDOVER}) == place


@pytest.mark.parametrize(
    ("fact", "place", "detail"),
    [
        (Rewound(4), 5, "to 4"),
        (Pinned(PartRef(6)), 6, "pinned 6"),
        (Forgotten(), 1, "forgotten"),
        (ConversationStarted(forked_from="other", forked_at=9), 10, "to 9"),
        (Excluded(PartRef(7)), 7, "excluded 7"),
        (Unfolded("h"), 3, "unfolded h"),
    ],
)
def test_what_a_person_changes_is_an_edit(fact: Fact, place: int, detail: str) -> None:
    (change,) = changes(fact, before=(HANDOVER,))
    assert change == ChangePlace(place, Cause(CauseKind.EDIT, detail), 2.0)


def test_what_changes_nothing_that_is_sent_is_no_change() -> None:
    assert changes(TodoSet(()), UserSaid((Text("go on"),)), ConversationStarted("a title")) == []


def test_folds_of_a_batch_bear_the_name_of_its_first() -> None:
    markers = [
        Folded(f"m{seq}", FoldKind.MARKER, PartRef(seq), "x", 5, 100, batch="b") for seq in (4, 6)
    ]
    found = changes(*markers)
    assert [(one.place, one.cause.describe_cause()) for one in found] == [
        (4, "fold: m4"),
        (6, "fold: m4"),
    ]


def test_the_bytes_that_differ_in_the_system_prompt_or_a_rules_file_are_named() -> None:
    old = (SystemSet("The day is Monday.", 5), RulesSet("AGENTS.md", "Never.", 2))
    (prompt,) = changes(SystemSet("The day is Tuesday.", 5), before=old)
    assert prompt.cause == Cause(CauseKind.SYSTEM, "bytes 11 to 15")
    (rules,) = changes(RulesSet("AGENTS.md", "Never. Ever.", 3), before=old)
    assert rules.cause == Cause(CauseKind.SYSTEM, "AGENTS.md bytes 6 to 12")
    (first,) = changes(RulesSet("b/AGENTS.md", "New", 1), before=old)
    assert first.cause.detail == "b/AGENTS.md bytes 0 to 3"


@pytest.mark.parametrize(
    ("before", "now", "cause"),
    [
        ((READ,), (READ,), None),
        ((READ,), (SAME_READ,), Cause(CauseKind.ORDER, "of the tools")),
        ((READ, WRITE), (WRITE, READ), Cause(CauseKind.ORDER, "of the tools")),
        ((READ,), (READ, WRITE), Cause(CauseKind.TOOLS, "+write")),
        ((READ, WRITE), (READ,), Cause(CauseKind.TOOLS, "−write")),
        ((WRITE,), (ToolSpec("write", "Writes!", "not json"),), Cause(CauseKind.TOOLS, "~write")),
        ((WRITE,), (ToolSpec("write", "Writes", "[" * 2_000),), Cause(CauseKind.TOOLS, "~write")),
        (
            (),
            tuple(ToolSpec(f"t{n}", "", "{}") for n in range(5)),
            Cause(CauseKind.TOOLS, "+t0, +t1, +t2 and 2 more"),
        ),
    ],
)
def test_tools_that_differ_are_named(
    before: tuple[ToolSpec, ...], now: tuple[ToolSpec, ...], cause: Cause | None
) -> None:
    found = find_changes_between_requests(
        [], [ToolsOffered(before, 0)], [ToolsOffered(now, 0)], 0, 0
    )
    assert found == ([ChangePlace(-1, cause)] if cause else [])


def test_the_place_of_a_piece_of_a_request() -> None:
    system = Block(ContextKind.SYSTEM, Role.SYSTEM, PartRef(9), Text("x"), 1)
    handover = Block(ContextKind.HANDOVER, Role.USER, Span(3, 8), Text("x"), 1)
    assert [first_seq_in_piece(one) for one in (ToolsOffered((), 0), system, handover)] == [
        -1,
        0,
        3,
    ]
