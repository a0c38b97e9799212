"""Which folds, pins and exclusions are in force, and what they show, now or at a past moment.

Of two folds over the same facts, the newer one is shown, and a span within another live
span is hidden. An exclusion beats a pin, and a pin beats a fold. What a longer fold
keeps word for word follows its document.
"""

from bisect import bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import partial

from helix_desktop.engine import message_blocks
from helix_desktop.engine.facts import (
    Cover,
    DetailsKept,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    Included,
    PartRef,
    Pinned,
    Recorded,
    Refolded,
    Span,
    Stored,
    Text,
    Unfolded,
    Unpinned,
)
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.state.fold_covers import cover_contains, first_and_last, is_covered_by_any
from helix_desktop.engine.state.view_items import MESSAGE_TOKENS, ViewItem, ViewItems
from helix_desktop.fast_dataclass import dataclass

DOCUMENTS = (FoldKind.HANDOVER, FoldKind.TRUNCATION)
RECALLED = (FoldKind.MARKER, FoldKind.EXCERPT)
# A fact that changed what is shown: its number, the fact, and the parts that a new fold
# keeps whole.
Effect = tuple[int, Fact, tuple[PartRef, ...]]


@dataclass(slots=True)
class LiveFolds(ViewItems):
    """`facts`: those of the conversation. `order`: the messages of this branch."""

    facts: list[Recorded] = field(default_factory=list)
    ids: dict[PartRef, str] = field(
        default_factory=dict
    )  # New ids for calls whose own id is empty or not unique.
    folds: dict[str, Folded] = field(
        default_factory=dict
    )  # Every fold that was ever in force here.
    live: dict[str, None] = field(default_factory=dict)
    # The live folds over each span. The last of them is shown.
    by_span: dict[Span, list[str]] = field(default_factory=dict)
    by_part: dict[PartRef, list[str]] = field(
        default_factory=dict
    )  # The live folds over each part.
    # When each fold was made. Of two folds over the same parts, the newer one is shown.
    ages: dict[str, int] = field(default_factory=dict)
    barred: dict[Cover, str] = field(
        default_factory=dict
    )  # Covers of undone folds, which no strategy folds again.
    kept: dict[str, tuple[PartRef, ...]] = field(
        default_factory=dict
    )  # The parts that each fold leaves unchanged.
    pins: dict[Cover, None] = field(default_factory=dict)
    exclusions: dict[Cover, None] = field(default_factory=dict)
    steps: list[int] = field(
        default_factory=list
    )  # The fact numbers of the replies; of a past moment, none.
    fold_born: dict[str, int] = field(default_factory=dict)

    def message_at(self, seq: int) -> Recorded:
        return self.facts[seq - 1]

    def has_message(self, seq: int) -> bool:
        at = self.message_position(seq)
        return at < len(self.order) and self.order[at] == seq

    def apply_fold_change(self, fact: Fact, kept: tuple[PartRef, ...] = ()) -> Cover | None:
        """Apply a change that has an effect. Return what must be shown again."""
        match fact:
            case Folded(fold=name, cover=cover):
                self.folds[name], self.ages[name], self.kept[name] = fact, len(self.ages), kept
                self._activate_fold(name)
                return cover
            case Unfolded(fold=name):
                return self._deactivate_fold(name)
            case Refolded(fold=name):
                self._activate_fold(name)
                self.barred.pop(self.folds[name].cover, None)
                return self.folds[name].cover
            case DocumentEdited(fold=name, text=text, tokens=tokens):
                # The user wrote this text, so which details it keeps has not been checked.
                self.folds[name] = replace(
                    self.folds[name], text=text, tokens=tokens, details=DetailsKept()
                )
                return self.folds[name].cover
        return self._apply_pin_or_exclusion(fact)

    def _apply_pin_or_exclusion(self, fact: Fact) -> Cover | None:
        match fact:
            case Pinned(ref=ref):
                self.pins[ref] = None
            case Unpinned(ref=ref):
                del self.pins[ref]
            case Excluded(ref=ref):
                self.exclusions[ref] = None
            case Included(ref=ref):
                del self.exclusions[ref]
            case _:
                return None
        return ref

    def _activate_fold(self, name: str) -> None:
        self.live[name] = None
        insort(self._folds_over(self.folds[name].cover), name, key=self.ages.__getitem__)

    def _deactivate_fold(self, name: str) -> Cover:
        cover = self.folds[name].cover
        del self.live[name]
        self._folds_over(cover).remove(name)
        if isinstance(cover, Span) and not self.by_span[cover]:
            del self.by_span[cover]
        self.barred[cover] = name
        return cover

    def is_pinned(self, ref: PartRef) -> bool:
        return bool(self.pins) and is_covered_by_any(self.pins, ref)

    def is_excluded(self, ref: PartRef) -> bool:
        return bool(self.exclusions) and is_covered_by_any(self.exclusions, ref)

    def is_inside_live_fold(self, span: Span) -> bool:
        return any(cover_contains(live, span) for live in self.by_span)

    def fold_shown_for_part(self, ref: PartRef, without: str = "") -> Folded | None:
        """Return the fold shown for a part. `without`: as if this fold were undone."""
        return self._youngest_fold(self.by_part.get(ref, ()), without) if self.by_part else None

    def outermost_folds(self, span: Span, without: str = "") -> list[tuple[Span, Folded]]:
        if span.first == span.last or (span in self.by_span and not without):
            inside = [span] if span in self.by_span else []
        else:
            within = (live for live in self.by_span if cover_contains(span, live))
            inside = sorted(within, key=lambda each: (each.first, -each.last))
        outermost: list[tuple[Span, Folded]] = []
        end = span.first - 1
        for cover in inside:
            fold = self._youngest_fold(self.by_span[cover], without) if cover.first > end else None
            if fold is not None:
                outermost.append((cover, fold))
                end = cover.last
        return outermost

    @property
    def live_folds(self) -> tuple[Folded, ...]:
        """Return the active folds, oldest first, including those covered by longer ones."""
        return tuple(
            sorted((self.folds[name] for name in self.live), key=lambda fold: self.ages[fold.fold])
        )

    def view_tokens_without_fold(self, name: str) -> int:
        low, high = self.item_positions(self.folds[name].cover)
        if name not in self.live or low >= high:
            return self.total_tokens
        span = Span(self.items[low].first, self.items[high - 1].last)
        more = count_item_tokens(self.build_items(span, name)) - count_item_tokens(
            self.items[low:high]
        )
        return self.total_tokens + more

    def _youngest_fold(self, names: Sequence[str], without: str) -> Folded | None:
        left = [name for name in names if name != without] if without else names
        return self.folds[left[-1]] if left else None

    def _folds_over(self, cover: Cover) -> list[str]:
        """Return the live folds over exactly this cover, oldest first."""
        if isinstance(cover, PartRef):
            return self.by_part.setdefault(cover, [])
        return self.by_span.setdefault(cover, [])

    def build_items(self, span: Span, without: str = "") -> Iterator[ViewItem]:
        position = span.first
        for cover, fold in self.outermost_folds(span, without):
            before = self.covered_messages(Span(position, cover.first - 1))
            yield from (self.build_message_item(seq, without) for seq in before)
            yield self._build_document_item(fold, cover)
            position = cover.last + 1
        yield from (
            self.build_message_item(seq, without)
            for seq in self.covered_messages(Span(position, span.last))
        )

    def build_message_item(self, seq: int, without: str = "") -> ViewItem:
        """Build a message as shown if no span hides it."""
        blocks = self.shown_blocks(seq, without)
        return ViewItem(
            seq, seq, blocks, sum(block.tokens for block in blocks), bisect_right(self.steps, seq)
        )

    def shown_blocks(self, seq: int, without: str = "") -> tuple[Block, ...]:
        fold_of = (
            partial(self.fold_shown_for_part, without=without)
            if without
            else self.fold_shown_for_part
        )
        return self._render_blocks(seq, fold_of)

    def blocks_without_folds(self, seq: int) -> tuple[Block, ...]:
        """Return a message without folds. Exclusions still hold."""
        return self._render_blocks(seq, lambda _: None)

    def _render_blocks(
        self, seq: int, fold_of: Callable[[PartRef], Folded | None]
    ) -> tuple[Block, ...]:
        message = self.message_at(seq)
        return message_blocks.render_message_blocks(
            message, self.ids, fold_of, self.is_pinned, self.is_excluded
        )

    def tokens_without_folds(self, cover: Cover) -> int:
        bare = map(self.blocks_without_folds, self.covered_messages(Span(*first_and_last(cover))))
        return sum(
            MESSAGE_TOKENS + sum(block.tokens for block in blocks) for blocks in bare if blocks
        )

    def _build_document_item(self, fold: Folded, cover: Span) -> ViewItem:
        """Build an item with a fold's text, followed by the parts that it keeps word for word."""
        kind = ContextKind.HANDOVER if fold.kind in DOCUMENTS else ContextKind.OBSERVATIONS
        originals = tuple(Stored(digest, 0) for digest in fold.entries)
        text = Text(fold.text, fold.tokens)
        document = Block(kind, Role.USER, cover, text, fold.tokens, fold.fold, cached=originals)
        gone = any(cover_contains(ref, cover) for ref in self.exclusions)
        blocks = (() if gone else (document,)) + tuple(self._kept_blocks(fold.fold, cover))
        tokens = sum(block.tokens for block in blocks)
        return ViewItem(
            cover.first, cover.last, blocks, tokens, self.fold_born.get(fold.fold, 0), fold.fold
        )

    def _kept_blocks(self, name: str, cover: Span) -> Iterator[Block]:
        wanted = set(self.kept[name]) | set(self.pinned_parts(cover))
        for seq in sorted({ref.seq for ref in wanted}):
            for block in self.shown_blocks(seq):
                if block.source in wanted:
                    yield replace(block, role=Role.USER)

    def pinned_parts(self, cover: Span) -> Iterator[PartRef]:
        for ref in self.pins:
            first, last = first_and_last(ref)
            if first <= cover.last and cover.first <= last:
                yield from (
                    part for part in self.parts_within(ref) if cover.first <= part.seq <= cover.last
                )

    def parts_within(self, ref: Cover) -> Iterator[PartRef]:
        for seq in self.covered_messages(Span(*first_and_last(ref))):
            count = len(
                message_blocks.parts_of(message_blocks.require_message(self.message_at(seq)))
            )
            yield from (
                PartRef(seq, i) for i in range(count) if cover_contains(ref, PartRef(seq, i))
            )


def count_item_tokens(items: Iterable[ViewItem]) -> int:
    """Return the items' tokens, including each message's own."""
    return sum(item.tokens + (MESSAGE_TOKENS if item.blocks else 0) for item in items)
