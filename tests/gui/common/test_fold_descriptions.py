from __future__ import annotations

import pytest

from helix_desktop.engine.facts import DetailsKept, Folded, FoldKind, Span
from helix_desktop.gui.common.fold_descriptions import (
    describe_fold,
    describe_kept_details,
    fold_title,
    has_poor_summary,
)


@pytest.mark.parametrize(
    ("kind", "model", "details", "words", "is_poor"),
    [
        (FoldKind.HANDOVER, "m", DetailsKept(), "", False),
        (FoldKind.HANDOVER, "m", DetailsKept(42, 38, 3, 1), "important details in the text: 41 of 42", False),
        (FoldKind.HANDOVER, "m", DetailsKept(8, 0, 7, 1), "the model kept 0 of 8 details", True),
        (FoldKind.HANDOVER, "m", DetailsKept(8, 3, 4, 1), "the model kept 3 of 8 details", True),
        (FoldKind.HANDOVER, "m", DetailsKept(8, 4, 3, 1), "important details in the text: 7 of 8", False),
        (FoldKind.HANDOVER, "", DetailsKept(8, 0, 7, 1), "important details in the text: 7 of 8", False),
        (FoldKind.TRUNCATION, "", DetailsKept(501, 0, 0, 501), "important details in the text: 0 of 501", False),
    ],
)
def test_only_what_the_model_still_sees_counts_as_kept(
    kind: FoldKind, model: str, details: DetailsKept, words: str, is_poor: bool
) -> None:
    """The badge "8 of 8" stood in green over a summary that had kept none, and "501 of 501" over no summary at all."""
    fold = Folded("f", kind, Span(1, 2), "text", 9, 99, details=details, model=model)
    assert describe_kept_details(fold) == words
    assert has_poor_summary(fold) == is_poor


@pytest.mark.parametrize(
    ("kind", "folds", "title", "happened"),
    [
        (FoldKind.MARKER, 1, "Reduced 1 tool output to one line", "1 older output was reduced to one line"),
        (
            FoldKind.MARKER,
            2,
            "Reduced 2 tool outputs to one line each",
            "2 older outputs were reduced to one line each",
        ),
        (FoldKind.EXCERPT, 1, "Shortened 1 tool output to an excerpt", "Shortened 1 tool output to an excerpt"),
        (FoldKind.EXCERPT, 2, "Shortened 2 tool outputs to excerpts", "Shortened 2 tool outputs to excerpts"),
        (FoldKind.TRUNCATION, 1, "Truncated", "The oldest messages are no longer sent"),
    ],
)
def test_one_output_and_several_are_told_apart(kind: FoldKind, folds: int, title: str, happened: str) -> None:
    fold = Folded("f", kind, Span(1, 2), "text", 9, 99)
    assert fold_title(fold, folds) == title
    assert describe_fold(fold, folds).startswith(happened)
