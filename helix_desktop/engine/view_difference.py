"""The difference of two views: what came into the context, what went out of it, and what took another form.

Views are those of two moments of one conversation, in either order. A fold and what it replaces are one change; so is
the way back, when a fold is undone.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum

from helix_desktop.engine.blocks import Block, View
from helix_desktop.engine.facts import Cover, Span
from helix_desktop.engine.history.covers import first_and_last
from helix_desktop.fast_dataclass import dataclass


class ViewChangeKind(StrEnum):
    CAME = "came"
    WENT = "went"
    CHANGED = "took another form"


@dataclass(frozen=True, slots=True)
class ViewChange:
    """The blocks at one place before and after; one of the two may be empty."""

    before: tuple[Block, ...]
    after: tuple[Block, ...]

    @property
    def change_kind(self) -> ViewChangeKind:
        if not self.before:
            return ViewChangeKind.CAME
        return ViewChangeKind.CHANGED if self.after else ViewChangeKind.WENT

    @property
    def added_tokens(self) -> int:
        """What the view counts more by this change; less than nothing where it was made shorter."""
        return _sum_block_tokens(self.after) - _sum_block_tokens(self.before)


@dataclass(frozen=True, slots=True)
class ViewDifference:
    """All changes in the order of the facts they touch; `before` and `after`: tokens of the views, tools included."""

    changes: tuple[ViewChange, ...]
    before: int
    after: int


def compare_views(before: View, after: View) -> ViewDifference:
    """What has to happen to the first view for the second. Tokens are as counted; the meter's factor corrects them."""
    old, new = _blocks_by_source(before.blocks), _blocks_by_source(after.blocks)
    same = {source for source in old.keys() & new.keys() if _shows_the_same(old[source], new[source])}
    changed = sorted((old.keys() | new.keys()) - same, key=_source_order)
    changes = [
        ViewChange(_blocks_of_sources(old, sources), _blocks_of_sources(new, sources))
        for sources in _group_overlapping_sources(changed)
    ]
    return ViewDifference(tuple(changes), _total_view_tokens(before), _total_view_tokens(after))


def _blocks_by_source(blocks: Iterable[Block]) -> dict[Cover, list[Block]]:
    found: dict[Cover, list[Block]] = defaultdict(list)
    for block in blocks:
        found[block.source].append(block)
    return dict(found)


def _shows_the_same(old: Sequence[Block], new: Sequence[Block]) -> bool:
    """Whether the same is shown: a pin, or the role a kept part has behind a document, makes no difference."""
    return [(block.content, block.fold) for block in old] == [(block.content, block.fold) for block in new]


def _group_overlapping_sources(sources: Sequence[Cover]) -> Iterator[list[Cover]]:
    """The sources, which are in order, that lie under one document or under several that cross; each other by itself."""
    held: list[Cover] = []
    end = 0  # Where the last document ended.
    for source in sources:
        first, last = first_and_last(source)
        if held and first > end:
            yield held
            held = []
        held.append(source)
        end = max(end, last) if isinstance(source, Span) else max(end, first - 1)
    if held:
        yield held


def _blocks_of_sources(blocks: Mapping[Cover, Sequence[Block]], sources: Iterable[Cover]) -> tuple[Block, ...]:
    return tuple(block for source in sources for block in blocks.get(source, ()))


def _source_order(source: Cover) -> tuple[int, int, int]:
    return (source.first, -source.last, 0) if isinstance(source, Span) else (source.seq, 0, source.part)


def _sum_block_tokens(blocks: Iterable[Block]) -> int:
    return sum(block.tokens for block in blocks)


def _total_view_tokens(view: View) -> int:
    return _sum_block_tokens(view.blocks) + view.tools_tokens
