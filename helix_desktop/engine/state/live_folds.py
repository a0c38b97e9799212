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
from helix_desktop.engine.fold_kinds import KINDS_OF_SUMMARIES
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.state.fold_covers import (
    cover_contains,
    covers_overlap,
    first_and_last,
    is_covered_by_any,
)
from helix_desktop.engine.state.view_items import MESSAGE_TOKENS, ViewItem, ViewItems
from helix_desktop.fast_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class FoldEffect:
    """A fact that changed what is shown. `kept_parts`: those that a new fold keeps whole."""

    seq: int
    fact: Fact
    kept_parts: tuple[PartRef, ...]


@dataclass(slots=True)
class LiveFolds(ViewItems):
    """The folds, pins and exclusions of one branch, and what they show of its messages.

    A fold is live while it is in force, and not undone. Folds are known by their names.
    `facts`: those of the conversation. `order`: the messages of this branch.
    """

    facts: list[Recorded] = field(default_factory=list)
    # New ids for calls whose own id is empty or not unique.
    ids: dict[PartRef, str] = field(default_factory=dict)
    # Every fold that was ever in force here.
    folds: dict[str, Folded] = field(default_factory=dict)
    # The names of the live folds.
    live: dict[str, None] = field(default_factory=dict)
    # The live folds over each span. The last of them is shown.
    by_span: dict[Span, list[str]] = field(default_factory=dict)
    # The live folds over each part.
    by_part: dict[PartRef, list[str]] = field(default_factory=dict)
    # When each fold was made. Of two folds over the same parts, the newer one is shown.
    ages: dict[str, int] = field(default_factory=dict)
    # Covers of undone folds, which no strategy folds again.
    barred: dict[Cover, str] = field(default_factory=dict)
    # The parts that each fold leaves unchanged.
    kept: dict[str, tuple[PartRef, ...]] = field(default_factory=dict)
    pins: dict[Cover, None] = field(default_factory=dict)
    exclusions: dict[Cover, None] = field(default_factory=dict)
    # The fact numbers of the replies; of a past moment, none.
    steps: list[int] = field(default_factory=list)
    fold_born: dict[str, int] = field(default_factory=dict)

    def message_at(self, seq: int) -> Recorded:
        return self.facts[seq - 1]

    def has_message(self, seq: int) -> bool:
        position = self.message_position(seq)
        return position < len(self.order) and self.order[position] == seq

    def count_parts(self, seq: int) -> int:
        """Return how many parts the message `seq` has."""
        message = message_blocks.require_message(self.message_at(seq))
        return len(message_blocks.parts_of(message))

    def apply_fold_change(self, fact: Fact, kept_parts: tuple[PartRef, ...] = ()) -> Cover | None:
        """Apply a change that has an effect: a fold, its undoing, its redoing, the user's own text
        for it, a pin or an exclusion. Return the messages whose showing it changes.
        """
        match fact:
            case Folded(fold=name, cover=cover):
                self.folds[name] = fact
                self.ages[name] = len(self.ages)
                self.kept[name] = kept_parts
                self._activate_fold(name)
                return cover
            case Unfolded(fold=name):
                return self._deactivate_fold(name)
            case Refolded(fold=name):
                fold = self.folds[name]
                self._activate_fold(name)
                self.barred.pop(fold.cover, None)
                return fold.cover
            case DocumentEdited(fold=name, text=text, tokens=tokens):
                fold = self.folds[name]
                # The user wrote this text, so which details it keeps has not been checked.
                self.folds[name] = replace(fold, text=text, tokens=tokens, details=DetailsKept())
                return fold.cover
        return self._apply_pin_or_exclusion(fact)

    def _apply_pin_or_exclusion(self, fact: Fact) -> Cover | None:
        """Add or remove a pin or an exclusion, and return what it is about."""
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
        folds_over_cover = self._folds_over(self.folds[name].cover)
        insort(folds_over_cover, name, key=self.ages.__getitem__)

    def _deactivate_fold(self, name: str) -> Cover:
        """Undo a fold, and note that no strategy may fold the same again. Return its cover."""
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
        if not self.by_part:
            return None
        return self._youngest_fold(self.by_part.get(ref, ()), without)

    def outermost_folds(self, span: Span, without: str = "") -> list[tuple[Span, Folded]]:
        """Return the folds shown within a span that are not inside others, with their covers.

        Of several folds over the same messages, the youngest is shown. `without`: as if this fold
        were undone.
        """
        outermost: list[tuple[Span, Folded]] = []
        last_covered = span.first - 1
        for cover in self._live_spans_within(span, without):
            is_inside_fold_before = cover.first <= last_covered
            if is_inside_fold_before:
                continue
            fold = self._youngest_fold(self.by_span[cover], without)
            if fold is not None:
                outermost.append((cover, fold))
                last_covered = cover.last
        return outermost

    def _live_spans_within(self, span: Span, without: str) -> list[Span]:
        """Return the live spans within `span` from the first on, longer ones before those inside
        them. If a fold of all of it is shown, the others need not be searched.
        """
        if span in self.by_span and not without:
            return [span]
        if span.first == span.last and span not in self.by_span:
            return []
        within = [live for live in self.by_span if cover_contains(span, live)]
        return sorted(within, key=lambda live: (live.first, -live.last))

    @property
    def live_folds(self) -> tuple[Folded, ...]:
        """Return the active folds, oldest first, including those covered by longer ones."""
        names = sorted(self.live, key=self.ages.__getitem__)
        return tuple(self.folds[name] for name in names)

    def view_tokens_without_fold(self, name: str) -> int:
        """Return how long the view would be if a fold were undone."""
        first_position, end_position = self.item_positions(self.folds[name].cover)
        if name not in self.live or first_position >= end_position:
            return self.total_tokens
        items = self.items[first_position:end_position]
        tokens_with_fold = count_item_tokens(items)
        span_of_items = Span(items[0].first, items[-1].last)
        tokens_without_fold = count_item_tokens(self.build_items(span_of_items, name))
        return self.total_tokens + tokens_without_fold - tokens_with_fold

    def _youngest_fold(self, names: Sequence[str], without: str) -> Folded | None:
        """Return the last of these folds, or of those other than `without`."""
        for name in reversed(names):
            if not without or name != without:
                return self.folds[name]
        return None

    def _folds_over(self, cover: Cover) -> list[str]:
        """Return the live folds over exactly this cover, oldest first."""
        if isinstance(cover, PartRef):
            return self.by_part.setdefault(cover, [])
        return self.by_span.setdefault(cover, [])

    def build_items(self, span: Span, without: str = "") -> Iterator[ViewItem]:
        """Yield what the model is shown of a span in order: messages, and in place of those that
        a fold covers its document.
        """
        next_seq = span.first
        for cover, fold in self.outermost_folds(span, without):
            for seq in self.covered_messages(Span(next_seq, cover.first - 1)):
                yield self.build_message_item(seq, without)
            yield self._build_document_item(fold, cover)
            next_seq = cover.last + 1
        for seq in self.covered_messages(Span(next_seq, span.last)):
            yield self.build_message_item(seq, without)

    def build_message_item(self, seq: int, without: str = "") -> ViewItem:
        """Build a message as shown if no span hides it."""
        blocks = self.shown_blocks(seq, without)
        tokens = sum(block.tokens for block in blocks)
        steps_before = bisect_right(self.steps, seq)
        return ViewItem(seq, seq, blocks, tokens, steps_before)

    def shown_blocks(self, seq: int, without: str = "") -> tuple[Block, ...]:
        if without:
            return self._build_blocks_of_message(
                seq, partial(self.fold_shown_for_part, without=without)
            )
        return self._build_blocks_of_message(seq, self.fold_shown_for_part)

    def blocks_without_folds(self, seq: int) -> tuple[Block, ...]:
        """Return a message without our folds. Exclusions, and what the agent itself shortens,
        still hold.
        """
        return self._build_blocks_of_message(seq, self._agent_fold_of_part)

    def _agent_fold_of_part(self, ref: PartRef) -> Folded | None:
        """Return the fold by which the connected agent itself shortens a part, if there is one."""
        if not self.by_part:
            return None
        for name in reversed(self.by_part.get(ref, ())):
            if self.folds[name].is_by_agent:
                return self.folds[name]
        return None

    def _build_blocks_of_message(
        self, seq: int, fold_of: Callable[[PartRef], Folded | None]
    ) -> tuple[Block, ...]:
        message = self.message_at(seq)
        return message_blocks.build_message_blocks(
            message, self.ids, fold_of, self.is_pinned, self.is_excluded
        )

    def tokens_without_folds(self, cover: Cover) -> int:
        """Count the tokens of the covered messages as if no fold of ours shortened them. The
        agent's own summary counts instead of what it stands for.
        """
        tokens = 0
        first, last = first_and_last(cover)
        agent_summaries = self._summaries_by_agent(Span(first, last))
        for summary_cover, fold in agent_summaries.items():
            if not any(cover_contains(excluded, summary_cover) for excluded in self.exclusions):
                tokens += MESSAGE_TOKENS + fold.tokens
        for seq in self.covered_messages(Span(first, last)):
            if is_covered_by_any(agent_summaries, PartRef(seq)):
                continue
            blocks = self.blocks_without_folds(seq)
            if blocks:
                tokens += MESSAGE_TOKENS + sum(block.tokens for block in blocks)
        return tokens

    def _summaries_by_agent(self, span: Span) -> dict[Cover, Folded]:
        """Return the connected agent's own summaries that stand for something of a span, by what
        they cover. A later one has the earlier ones in itself.
        """
        summaries: dict[Cover, Folded] = {}
        for cover in sorted(self.by_span, key=lambda live: live.first - live.last):
            fold = self._youngest_fold(self.by_span[cover], without="")
            if fold is None or not fold.is_by_agent or not covers_overlap(cover, span):
                continue
            if not is_covered_by_any(summaries, PartRef(cover.first)):
                summaries[cover] = fold
        return summaries

    def _build_document_item(self, fold: Folded, cover: Span) -> ViewItem:
        """Build an item with a fold's text, followed by the parts that it keeps word for word."""
        blocks: list[Block] = []
        is_excluded = any(cover_contains(excluded, cover) for excluded in self.exclusions)
        if not is_excluded:
            blocks.append(_build_document_block(fold, cover))
        blocks += self._kept_blocks(fold.fold, cover)
        tokens = sum(block.tokens for block in blocks)
        step_when_made = self.fold_born.get(fold.fold, 0)
        return ViewItem(cover.first, cover.last, tuple(blocks), tokens, step_when_made, fold.fold)

    def _kept_blocks(self, name: str, cover: Span) -> Iterator[Block]:
        """Yield the parts that stay beside a fold's document: those it keeps, and pinned ones."""
        kept_parts = set(self.kept[name])
        kept_parts.update(self.pinned_parts(cover))
        for seq in sorted({part.seq for part in kept_parts}):
            for block in self.shown_blocks(seq):
                if block.source in kept_parts:
                    # They follow the document, which is a message of the user.
                    yield replace(block, role=Role.USER)

    def pinned_parts(self, cover: Span) -> Iterator[PartRef]:
        """Yield the pinned parts within a span. A pin may reach beyond it."""
        for ref in self.pins:
            first, last = first_and_last(ref)
            if last < cover.first or cover.last < first:
                continue
            for part in self.parts_within(ref):
                if cover.first <= part.seq <= cover.last:
                    yield part

    def parts_within(self, ref: Cover) -> Iterator[PartRef]:
        """Yield every part of the covered messages, or the one part that `ref` is."""
        first, last = first_and_last(ref)
        for seq in self.covered_messages(Span(first, last)):
            for index in range(self.count_parts(seq)):
                part = PartRef(seq, index)
                if cover_contains(ref, part):
                    yield part


def _build_document_block(fold: Folded, cover: Span) -> Block:
    """Return a fold's text as a message of the user, with the stored originals that it names."""
    kind = ContextKind.OBSERVATIONS
    if fold.kind in KINDS_OF_SUMMARIES:
        kind = ContextKind.HANDOVER
    originals = tuple(Stored(digest, 0) for digest in fold.entries)
    text = Text(fold.text, fold.tokens)
    return Block(kind, Role.USER, cover, text, fold.tokens, fold.fold, cached=originals)


def count_item_tokens(items: Iterable[ViewItem]) -> int:
    """Return the items' tokens, including each message's own."""
    tokens = 0
    for item in items:
        tokens += item.tokens
        if item.blocks:
            tokens += MESSAGE_TOKENS
    return tokens
