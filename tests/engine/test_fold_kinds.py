"""Every kind of fold is declared, and belongs to one group."""

from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.fold_kinds import (
    FOLD_KINDS,
    KINDS_OF_NOTES,
    KINDS_OF_PARTS,
    KINDS_OF_SUMMARIES,
    KINDS_WRITTEN_BY_MODEL,
)
from helix_desktop.engine.strategies.all_strategies import STRATEGIES


def test_every_kind_is_declared_and_in_one_group() -> None:
    assert set(FOLD_KINDS) == set(FoldKind)
    groups = (KINDS_OF_PARTS, KINDS_OF_NOTES, KINDS_OF_SUMMARIES)
    assert sum(len(group) for group in groups) == len(FoldKind)
    names = [declared.plain_name for declared in FOLD_KINDS.values()]
    assert len(set(names)) == len(names)


def test_every_kind_that_stands_for_messages_has_a_strategy() -> None:
    assert set(STRATEGIES) == KINDS_OF_NOTES | KINDS_OF_SUMMARIES
    assert set(STRATEGIES) > KINDS_WRITTEN_BY_MODEL
