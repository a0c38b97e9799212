from __future__ import annotations

import pytest

from helix_desktop.engine.facts import DetailsKept, Folded, FoldKind, Span
from helix_desktop.gui.common.fold_descriptions import (
    describe_kept_details,
    describe_reason,
    has_poor_summary,
)


@pytest.mark.parametrize(
    ("kind", "model", "details", "words", "is_poor"),
    [
        (FoldKind.HANDOVER, "m", DetailsKept(), "", False),
        (
            FoldKind.HANDOVER,
            "m",
            DetailsKept(42, 38, 3, 1),
            "important details in the text: 41 of 42",
            False,
        ),
        (
            FoldKind.HANDOVER,
            "m",
            DetailsKept(8, 0, 7, 1),
            "important details in the text: 7 of 8",
            False,
        ),
        (
            FoldKind.HANDOVER,
            "m",
            DetailsKept(8, 1, 0, 7),
            "only 1 of 8 important details are in the text",
            True,
        ),
        (
            FoldKind.HANDOVER,
            "",
            DetailsKept(8, 0, 7, 1),
            "important details in the text: 7 of 8",
            False,
        ),
        (
            FoldKind.TRUNCATION,
            "",
            DetailsKept(501, 0, 0, 501),
            "important details in the text: 0 of 501",
            False,
        ),
    ],
)
def test_only_what_the_model_still_sees_counts_as_kept(
    kind: FoldKind, model: str, details: DetailsKept, words: str, is_poor: bool
) -> None:
    """The badge "8 of 8" stood in green over a summary that had kept none, "501 of 501" over no
    summary at all, and "only 2 of 36" in red where the program had added all the others.
    """
    fold = Folded("f", kind, Span(1, 2), "text", 9, 99, details=details, model=model)
    assert describe_kept_details(fold) == words
    assert has_poor_summary(fold) == is_poor


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        ("", ""),
        ("requested by the user", "Requested by the user."),
        ("The model said so.", "The model said so."),
        (
            "for i in $(seq 3): 40,859 tokens, over 25% of the context window",
            "The attachment “for i in $(seq 3)” has 40,859 tokens, over 25% of the context window.",
        ),
    ],
)
def test_a_reason_is_a_sentence(why: str, sentence: str) -> None:
    assert (
        describe_reason(Folded("f", FoldKind.HANDOVER, Span(1, 2), "t", 9, 99, why=why)) == sentence
    )
