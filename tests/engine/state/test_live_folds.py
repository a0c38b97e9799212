"""Which folds, pins and exclusions are in force, and what they show."""

from __future__ import annotations

from dataclasses import replace

from helix_desktop.engine.facts import (
    DocumentEdited,
    Excluded,
    Folded,
    FoldKind,
    Included,
    PartRef,
    Pinned,
    Refolded,
    Rewound,
    Span,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Unpinned,
)
from tests.engine.talk import Talk


def worked(steps: int = 8) -> tuple[Talk, list[int]]:
    talk = Talk()
    talk.user("go")
    return talk, talk.steps(steps)


def shown(talk: Talk) -> list[str]:
    return [block.fold for block in talk.view().blocks if block.fold]


def test_of_two_folds_over_the_same_part_the_newer_is_shown_and_an_undo_shows_the_older() -> None:
    talk, outputs = worked()
    part = PartRef(outputs[0])
    talk.fold("old", part, kind=FoldKind.EXCERPT, tokens=50)
    talk.fold("new", part, kind=FoldKind.MARKER)
    branch = talk.state.branch
    assert shown(talk) == ["new"]
    talk.add(Unfolded("new"))
    assert shown(talk) == ["old"]
    talk.add(Refolded("new"))
    assert shown(talk) == ["new"]
    fold = branch.fold_shown_for_part(part)
    assert fold is not None
    assert fold.fold == "new"
    without = branch.fold_shown_for_part(part, without="new")
    assert without is not None
    assert without.fold == "old"
    assert branch.fold_shown_for_part(PartRef(outputs[1])) is None


def test_a_longer_span_hides_the_shorter_one_within_it() -> None:
    talk, _ = worked()
    talk.fold("short", Span(2, 5))
    talk.fold("long", Span(1, 9))
    branch = talk.state.branch
    assert [(cover, fold.fold) for cover, fold in branch.outermost_folds(Span(1, 17))] == [
        (Span(1, 9), "long")
    ]
    assert shown(talk) == ["long"]
    assert branch.is_inside_live_fold(Span(3, 4))
    assert not branch.is_inside_live_fold(Span(8, 12))
    assert [fold.fold for fold in branch.live_folds] == ["short", "long"]
    talk.add(Unfolded("long"))
    assert shown(talk) == ["short"]
    assert branch.barred == {Span(1, 9): "long"}


def test_an_exclusion_beats_a_pin_and_a_pin_beats_a_fold() -> None:
    talk, outputs = worked()
    part = PartRef(outputs[0])
    talk.fold("m", part, kind=FoldKind.MARKER)
    talk.add(Pinned(part))
    assert shown(talk) == []
    assert talk.state.branch.is_pinned(part)
    talk.add(Excluded(part))
    texts = [str(block.content) for block in talk.view().blocks if block.source == part]
    assert not any("digest" in text for text in texts)
    assert talk.state.branch.is_excluded(part)
    talk.add(Included(part))
    talk.add(Unpinned(part))
    assert shown(talk) == ["m"]
    assert not talk.state.branch.is_pinned(part)


def test_pinned_parts_stand_behind_the_document_that_covers_them() -> None:
    talk, outputs = worked()
    talk.add(Pinned(PartRef(outputs[1])))
    talk.fold("h", Span(1, outputs[3]))
    blocks = talk.view().blocks
    sources = [block.source for block in blocks]
    assert blocks[0].fold == "h"
    assert sources[1:3] == [PartRef(1), PartRef(outputs[1])]  # the words of the running turn, too
    branch = talk.state.branch
    assert list(branch.pinned_parts(Span(1, outputs[3]))) == [PartRef(outputs[1])]
    assert list(branch.pinned_parts(Span(outputs[4], outputs[5]))) == []


def test_the_tokens_of_the_view_without_a_fold_are_those_after_its_undo() -> None:
    talk, outputs = worked()
    talk.fold("m", PartRef(outputs[2]), kind=FoldKind.MARKER)
    talk.fold("h", Span(1, outputs[3]))
    for name in ("h", "m"):
        expected = talk.state.branch.view_tokens_without_fold(name)
        talk.add(Unfolded(name))
        assert talk.state.branch.total_tokens == expected
        talk.add(Refolded(name))


def test_the_users_wording_of_a_document_is_shown_and_its_details_are_not_checked() -> None:
    talk, _ = worked()
    talk.fold("h", Span(1, 9))
    talk.add(DocumentEdited("h", "in my words", 3))
    assert talk.state.branch.folds["h"].text == "in my words"
    assert talk.view().blocks[0].tokens == 3
    talk.add(DocumentEdited("unknown", "x", 1))
    assert "unknown" not in talk.state.branch.folds


def test_undoing_every_fold_gives_the_view_without_them() -> None:
    talk, outputs = worked()
    plain = talk.view().blocks
    talk.fold("m1", PartRef(outputs[0]), kind=FoldKind.MARKER)
    talk.fold("h", Span(1, outputs[2]))
    talk.fold("m2", PartRef(outputs[4]), kind=FoldKind.MARKER)
    for name in ("m1", "h", "m2"):
        talk.add(Unfolded(name))
    assert talk.view().blocks == plain


def test_a_rewind_brings_back_the_folds_of_then() -> None:
    talk, outputs = worked()
    before = talk.state.seq
    talk.fold("m", PartRef(outputs[0]), kind=FoldKind.MARKER)
    talk.add(Rewound(before))
    assert shown(talk) == []


def test_an_agents_own_summary_counts_as_what_is_sent_however_long_it_is() -> None:
    talk = Talk()
    first = talk.user("go", tokens=10)
    talk.reply("done", tokens=20)
    talk.add(TurnEnded(TurnEnd.DONE))
    last = talk.state.branch.order[-1]
    ours = Folded("handover-1", FoldKind.HANDOVER, Span(first, last), "long", 500, 30)
    talk.add(ours)
    assert not talk.state.branch.live, "ours never makes longer what is sent"
    talk.add(replace(ours, is_by_agent=True))
    talk.user("on", tokens=10)
    branch = talk.state.branch
    assert list(branch.live) == ["handover-1"]
    assert branch.handovers == 0, "it says nothing of ours"
    assert branch.unfolded == branch.total_tokens
    talk.add(Unfolded("handover-1"))
    assert branch.unfolded == branch.total_tokens
