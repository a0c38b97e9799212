"""What came, went and took another form between two moments."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.blocks import Block, View
from helix_desktop.engine.facts import FoldKind, PartRef, Pinned, Rewound, Span, SystemSet, ToolsOffered, Unfolded
from helix_desktop.engine.view_difference import ViewChange, ViewChangeKind, compare_views
from tests.engine.talk import Talk
from tests.engine.test_properties import SCRIPTS, played


def worked() -> Talk:
    talk = Talk()
    talk.user("Look at them.")
    talk.steps(3, tokens=900)
    return talk


def hows(changes: tuple[ViewChange, ...]) -> list[ViewChangeKind]:
    return [change.change_kind for change in changes]


def test_what_was_said_since_came() -> None:
    talk = worked()
    before = talk.view()
    talk.reply("All is well.", tokens=20)
    found = compare_views(before, talk.view())
    assert hows(found.changes) == [ViewChangeKind.CAME]
    assert found.changes[0].after[0].tokens == found.after - found.before == 20


def test_an_output_that_became_a_marker_took_another_form() -> None:
    talk = worked()
    before = talk.view()
    talk.fold("marker-1", PartRef(3), kind=FoldKind.MARKER, tokens=60)
    found = compare_views(before, talk.view())
    (change,) = found.changes
    assert change.change_kind is ViewChangeKind.CHANGED
    assert (change.before[0].tokens, change.after[0].tokens, change.added_tokens) == (900, 60, -840)
    assert (found.before, found.after) == (before_tokens(before), before_tokens(before) - 840)


def before_tokens(view: View) -> int:
    return sum(block.tokens for block in view.blocks) + view.tools_tokens


def test_a_document_and_what_it_stands_for_are_one_change_and_so_is_its_undo() -> None:
    talk = worked()
    before = talk.view()
    talk.fold("marker-1", PartRef(3), kind=FoldKind.MARKER, tokens=60)
    talk.fold("handover-2", Span(1, 5), tokens=100)
    after = talk.view()
    (change,) = compare_views(before, after).changes
    assert [block.source for block in change.before] == [
        PartRef(seq) for seq in (2, 3, 4, 5)
    ]  # what the turn is about stays
    assert [block.fold for block in change.after] == ["handover-2"]
    talk.add(Unfolded("handover-2"))
    (marker,) = compare_views(before, talk.view()).changes
    assert marker.after[0].fold == "marker-1"
    (back,) = compare_views(after, before).changes
    assert (back.before, back.after) == (change.after, change.before)


def test_a_later_document_takes_the_earlier_one_in() -> None:
    talk = worked()
    talk.fold("handover-1", Span(1, 3), tokens=100)
    before = talk.view()
    talk.fold("handover-2", Span(1, 5), tokens=90)
    (change,) = compare_views(before, talk.view()).changes
    assert [block.fold for block in change.before] == ["handover-1", "", ""]  # and two calls behind it
    assert [block.fold for block in change.after] == ["handover-2"]


def test_a_pin_alone_makes_no_difference_and_what_a_rewind_left_behind_went() -> None:
    talk = worked()
    before = talk.view()
    talk.add(Pinned(PartRef(3)))
    assert compare_views(before, talk.view()).changes == ()
    talk.add(Rewound(5))
    found = compare_views(before, talk.view())
    assert hows(found.changes) == [ViewChangeKind.WENT, ViewChangeKind.WENT]


def test_other_settings_are_seen_and_tools_are_counted() -> None:
    talk = worked()
    before = talk.view()
    talk.add(SystemSet("Be careful.", 3))
    talk.add(ToolsOffered((), 40))
    found = compare_views(before, talk.view())
    assert hows(found.changes) == [ViewChangeKind.CAME]
    assert found.after - found.before == 43


@given(SCRIPTS, st.integers(0, 60), st.integers(0, 60))
@settings(max_examples=200)
def test_the_changes_lead_from_any_view_to_any_other(script: list[tuple[str, int, int]], one: int, other: int) -> None:
    talk = played(script)
    before, after = talk.state.past_moment(one).take_view(), talk.state.past_moment(other).take_view()
    found = compare_views(before, after)
    standing = Counter(map(shown, before.blocks))
    for change in found.changes:
        standing.subtract(map(shown, change.before))
        standing.update(map(shown, change.after))
    assert +standing == Counter(map(shown, after.blocks))
    assert not -standing
    assert compare_views(after, after).changes == ()
    assert {(change.before, change.after) for change in compare_views(after, before).changes} == {
        (change.after, change.before) for change in found.changes
    }


def shown(block: Block) -> tuple[object, ...]:
    return (block.source, block.content, block.fold)
