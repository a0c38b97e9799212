"""What is declared of each kind of fold: what it stands for, and who writes its text.

Whoever treats kinds differently asks here. When a fold of a kind is made is declared by its
strategy, and how it looks in the window by `gui/common/fold_descriptions.py`.
"""

from collections.abc import Mapping
from enum import Enum

from helix_desktop.engine.facts import FoldKind
from helix_desktop.fast_dataclass import dataclass


class FoldGroup(Enum):
    """What a fold stands for: one part of a message, as a line or an excerpt, or messages, as dated
    notes or as a summary.
    """

    LINE = 0
    EXCERPT = 1
    NOTES = 2
    SUMMARY = 3


@dataclass(frozen=True, slots=True)
class DeclaredFoldKind:
    """`plain_name`: what people read instead of the kind's own name."""

    kind: FoldKind
    group: FoldGroup
    plain_name: str
    is_written_by_model: bool = False


FOLD_KINDS: Mapping[FoldKind, DeclaredFoldKind] = {
    declared.kind: declared
    for declared in (
        DeclaredFoldKind(FoldKind.MARKER, FoldGroup.LINE, "old outputs"),
        DeclaredFoldKind(FoldKind.EXCERPT, FoldGroup.EXCERPT, "excerpts"),
        DeclaredFoldKind(
            FoldKind.OBSERVATIONS, FoldGroup.NOTES, "dated notes", is_written_by_model=True
        ),
        DeclaredFoldKind(
            FoldKind.REFLECTION, FoldGroup.NOTES, "fewer notes", is_written_by_model=True
        ),
        DeclaredFoldKind(FoldKind.HANDOVER, FoldGroup.SUMMARY, "summary", is_written_by_model=True),
        DeclaredFoldKind(FoldKind.TRUNCATION, FoldGroup.SUMMARY, "truncation"),
    )
}


def kinds_of_groups(*groups: FoldGroup) -> frozenset[FoldKind]:
    kinds: list[FoldKind] = []
    for declared in FOLD_KINDS.values():
        if declared.group in groups:
            kinds.append(declared.kind)
    return frozenset(kinds)


# These stand for one part, whose original is recalled by its hash.
KINDS_OF_PARTS = kinds_of_groups(FoldGroup.LINE, FoldGroup.EXCERPT)
KINDS_OF_NOTES = kinds_of_groups(FoldGroup.NOTES)
KINDS_OF_SUMMARIES = kinds_of_groups(FoldGroup.SUMMARY)
KINDS_WRITTEN_BY_MODEL = frozenset(
    declared.kind for declared in FOLD_KINDS.values() if declared.is_written_by_model
)
