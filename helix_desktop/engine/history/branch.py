"""The line of facts the view goes on from: its messages, its folds, and what is shown of them.

A rewind leaves a line and goes on from an earlier point of it, so a line never contains `Rewound`; `view.py` keeps
the tree. Everything here is incremental: a message costs its own blocks, a fold the facts it covers.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from helix_desktop.engine import parts
from helix_desktop.engine.blocks import Block, Kind, Role
from helix_desktop.engine.calls import TEXT_ARGUMENT, Call, Turn, text_key
from helix_desktop.engine.facts import (
    BreakerClosed,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    Folded,
    FoldFailed,
    FoldKind,
    Included,
    ModelReplied,
    PartRef,
    Pinned,
    Reasoning,
    Recorded,
    Refolded,
    Span,
    Stored,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnded,
    Unfolded,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.history.covers import contains, ends, nest, stands_in
from helix_desktop.engine.history.shown import MARKER_TOKENS, Item, Items, becomes_clearable
from helix_desktop.engine.history.shown import MESSAGE_TOKENS as MESSAGE_TOKENS  # noqa: PLC0414  # savings.py looks here

DOCUMENTS = (FoldKind.HANDOVER, FoldKind.TRUNCATION)
OBSERVED = (FoldKind.OBSERVATIONS, FoldKind.REFLECTION)


@dataclass(slots=True)
class Branch(Items):
    """Mutable; only `advance` changes it, and only from facts."""

    messages: dict[int, Recorded] = field(default_factory=dict)
    folds: dict[str, Folded] = field(default_factory=dict)  # every fold that was ever in force here
    live: dict[str, None] = field(default_factory=dict)
    by_span: dict[Span, list[str]] = field(default_factory=dict)  # the live folds over each span; the last one shows
    by_part: dict[PartRef, list[str]] = field(default_factory=dict)  # the same for parts
    ages: dict[str, int] = field(default_factory=dict)  # of two folds over the same, the younger shows
    barred: dict[Cover, str] = field(default_factory=dict)
    kept: dict[str, tuple[PartRef, ...]] = field(default_factory=dict)  # parts a span leaves word for word
    pins: dict[Cover, None] = field(default_factory=dict)
    exclusions: dict[Cover, None] = field(default_factory=dict)
    ids: dict[PartRef, str] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)  # every call by the id it has in requests
    batches: dict[int, tuple[Call, ...]] = field(default_factory=dict)  # the calls of each reply that made some
    results: dict[str, int] = field(default_factory=dict)  # request id of a call → seq of its result
    running_calls: list[Call] = field(default_factory=list)
    turn: Turn = field(default_factory=Turn)
    steps: list[int] = field(default_factory=list)  # the seqs of replies
    step_times: list[float] = field(default_factory=list)
    born: dict[int, int] = field(default_factory=dict)  # of each message: how many steps there had been
    fold_born: dict[str, int] = field(default_factory=dict)
    text_keys: dict[PartRef, str] = field(default_factory=dict)  # of calls that give a text: the file
    newest_text: dict[str, PartRef] = field(default_factory=dict)  # the last such call of each file
    clearable: list[int] = field(default_factory=list)  # tokens a marker could free, by the step they came after
    notes: dict[str, tuple[int, str]] = field(
        default_factory=dict
    )  # by whose it is: the last note, and where it stands
    todo: tuple[tuple[str, str], ...] = ()
    failures: Counter[FoldKind] = field(default_factory=Counter)
    handovers: int = 0
    handover_tokens: int = 0  # what they took together
    last_handover: float = 0.0

    def advance(self, recorded: Recorded) -> None:
        """Take one more fact in. A fact that makes no sense here (an undo of nothing) changes nothing."""
        match recorded.fact:
            case UserSaid() | ModelReplied() | ToolReturned():
                self._message(recorded, recorded.fact)
            case Folded() as fold:
                self._fold(recorded, fold)
            case Unfolded(fold=name) if name in self.live:
                self._unfold(name)
                self.barred[self.folds[name].cover] = name
            case Refolded(fold=name) if name in self.folds and name not in self.live:
                if self.may_nest(self.folds[name].cover):
                    self._live(name)
                    self.barred.pop(self.folds[name].cover, None)
            case DocumentEdited(fold=name, text=text, tokens=tokens) if name in self.folds:
                self.folds[name] = replace(self.folds[name], text=text, tokens=tokens)
                self._refresh(self.folds[name].cover)
            case fact:
                self._other(recorded, fact)

    def _other(self, recorded: Recorded, fact: Fact) -> None:
        match fact:
            case Pinned(ref=ref) if ref not in self.pins:
                self._mark(self.pins, ref)
            case Unpinned(ref=ref) if ref in self.pins:
                self._unmark(self.pins, ref)
            case Excluded(ref=ref) if ref not in self.exclusions and not self._open_reasoning(ref):
                self._mark(self.exclusions, ref)
            case Included(ref=ref) if ref in self.exclusions:
                self._unmark(self.exclusions, ref)
            case TurnEnded():
                self.turn.running = False
            case TodoSet(items=items):
                self.todo = items
            case FoldFailed(kind=kind):
                self.failures[kind] += 1
            case BreakerClosed(kind=kind):
                self.failures[kind] = 0
            case _:
                pass

    # --- messages ---------------------------------------------------------------------------------------------------

    def _message(self, recorded: Recorded, fact: parts.MessageFact) -> None:
        if isinstance(fact, ToolReturned) and not self._answer(recorded.seq, fact):
            return
        if isinstance(fact, ModelReplied):
            self._reply(recorded, fact)
        elif isinstance(fact, UserSaid):
            self._said(recorded.seq, steering=fact.steering)
            if fact.by:
                self.notes[fact.by] = (
                    recorded.seq,
                    "".join(part.text for part in fact.parts if isinstance(part, Text)),
                )
        self.messages[recorded.seq] = recorded
        self.order.append(recorded.seq)
        self.born[recorded.seq] = len(self.steps)
        self.token_sums.append(0)
        self.freed_sums.append(0)
        item = self._item(recorded.seq)
        self.append(item)
        if self.clearable:
            self.clearable[-1] += sum(b.tokens - MARKER_TOKENS for b in item.blocks if becomes_clearable(b))

    def _said(self, seq: int, *, steering: bool) -> None:
        if steering and self.turn.running:
            self.turn.words.append(seq)
        else:
            self.turn = Turn([seq], self.turn.begin, running=True)

    def _reply(self, recorded: Recorded, fact: ModelReplied) -> None:
        """A new reply closes the batch before it: what has not come by now never will."""
        self.running_calls = []
        self.turn.running = True
        self.steps.append(recorded.seq)
        self.step_times.append(recorded.time)
        self.clearable.append(0)
        for index, part in enumerate(fact.parts):
            if isinstance(part, ToolCall):
                ref = PartRef(recorded.seq, index)
                shown = part.id if part.id and part.id not in self.calls else f"call-{recorded.seq}-{index}"
                if shown != part.id:
                    self.ids[ref] = shown
                self.calls[shown] = Call(part.id, shown, ref, part)
                self.running_calls.append(self.calls[shown])
                self._text_given(ref, part)
        if self.running_calls:
            self.batches[recorded.seq] = tuple(self.running_calls)

    def _text_given(self, ref: PartRef, call: ToolCall) -> None:
        """Remember which call gave the newest text of a file."""
        if call.tokens > TEXT_ARGUMENT and (key := text_key(call)):
            self.text_keys[ref] = key
            self.newest_text[key] = ref

    def _answer(self, seq: int, fact: ToolReturned) -> bool:
        """Pair a result with its call; False for one that nobody waits for."""
        for index, call in enumerate(self.running_calls):
            if call.id == fact.call:
                del self.running_calls[index]
                self.results[call.shown] = seq
                if call.shown != fact.call:
                    self.ids[PartRef(seq)] = call.shown
                return True
        return False

    # --- folds ------------------------------------------------------------------------------------------------------

    def _fold(self, recorded: Recorded, fold: Folded) -> None:
        if fold.fold in self.folds or not self._sensible(recorded.seq, fold):
            return
        self.folds[fold.fold] = fold
        self.ages[fold.fold] = len(self.ages)
        self.fold_born[fold.fold] = len(self.steps)
        self.kept[fold.fold] = tuple(self.words_to_keep(fold.cover, panic=fold.panic))
        self._live(fold.fold)
        self.failures[fold.kind] = 0
        if fold.kind is FoldKind.HANDOVER:
            self.handovers += 1
            self.handover_tokens += fold.tokens
            self.last_handover = recorded.time

    def _sensible(self, seq: int, fold: Folded) -> bool:
        """It covers something that is here, crosses no other fold, and is no longer than what it replaces."""
        cover = fold.cover
        if isinstance(cover, PartRef):
            holder = self.messages.get(cover.seq)
            if holder is None or cover.part >= len(parts.parts_of(parts.message(holder))):
                return False
        elif not (cover.first <= cover.last < seq and self.covered(cover)):
            return False
        if not self.may_nest(cover):
            return False
        kept = 0 if isinstance(cover, PartRef) else self.kept_tokens(cover, panic=fold.panic)
        return 0 < fold.tokens + kept <= self.shown_tokens(cover)

    def may_nest(self, cover: Cover) -> bool:
        """Whether a fold of `cover` would nest with every live span, or lie beside it. Where it cuts no item of the view
        in two, what it holds is outermost and held whole, with all that nests in it.
        """
        low, high = self.positions(cover)
        first, last = ends(cover)
        whole = low >= high or (first <= self.items[low].first and self.items[high - 1].last <= last)
        return whole or isinstance(cover, PartRef) or all(nest(cover, span) for span in self.by_span)

    def words_to_keep(self, cover: Cover, *, panic: bool) -> Iterator[PartRef]:
        """What the running turn is about, and what the user has brought back, stays word for word in a longer fold."""
        if isinstance(cover, PartRef):
            return
        if self.turn.running:
            for seq in self.turn.words:
                if cover.first <= seq <= cover.last:
                    count = len(parts.parts_of(parts.message(self.messages[seq])))
                    yield from (PartRef(seq, index) for index in range(count))
        if not panic:
            for ref in self.barred:
                if isinstance(ref, PartRef) and cover.first <= ref.seq <= cover.last:
                    yield ref

    def kept_tokens(self, cover: Span, *, panic: bool) -> int:
        """What would stay of a span behind the document of a fold made now."""
        wanted = set(self.words_to_keep(cover, panic=panic)) | set(self._pinned_parts(cover))
        blocks = (block for seq in sorted({ref.seq for ref in wanted}) for block in self._blocks(seq))
        return sum(block.tokens for block in blocks if block.source in wanted)

    def _live(self, name: str) -> None:
        cover = self.folds[name].cover
        self.live[name] = None
        insort(self._folds_over(cover), name, key=self.ages.__getitem__)
        self._refresh(cover)

    def _unfold(self, name: str) -> None:
        cover = self.folds[name].cover
        del self.live[name]
        self._folds_over(cover).remove(name)
        if isinstance(cover, Span) and not self.by_span[cover]:
            del self.by_span[cover]
        self._refresh(cover)

    def _folds_over(self, cover: Cover) -> list[str]:
        """The live folds over exactly this, the oldest first."""
        if isinstance(cover, PartRef):
            return self.by_part.setdefault(cover, [])
        return self.by_span.setdefault(cover, [])

    def tokens_after(self, name: str) -> int:
        """What the view would count with the fold `name` undone."""
        self._unfold(name)
        tokens = self.total_tokens
        self._live(name)
        return tokens

    # --- pins and exclusions ----------------------------------------------------------------------------------------

    def _mark(self, refs: dict[Cover, None], ref: Cover) -> None:
        refs[ref] = None
        self._refresh(ref)

    def _unmark(self, refs: dict[Cover, None], ref: Cover) -> None:
        del refs[ref]
        self._refresh(ref)

    def is_pinned(self, ref: PartRef) -> bool:
        return stands_in(self.pins, ref)

    def is_excluded(self, ref: PartRef) -> bool:
        return stands_in(self.exclusions, ref)

    def _open_reasoning(self, ref: Cover) -> bool:
        """Reasoning the model still needs back: its tool loop is open. It is taken out whole, later, or not at all."""
        first, last = ends(ref)
        for seq in self.covered(Span(first, last)):
            fact = self.messages[seq].fact
            if seq > self.turn.begin and self.turn.running and isinstance(fact, ModelReplied):
                chosen = fact.parts if isinstance(ref, Span) else fact.parts[ref.part : ref.part + 1]
                if any(isinstance(part, Reasoning) for part in chosen):
                    return True
        return False

    # --- what is shown ----------------------------------------------------------------------------------------------

    def carried(self, first_kept: int) -> int:
        """Of the messages that stand before `first_kept`: their tokens times the steps that carried them. Documents
        are left out, and a part that is a marker by now counts as one.
        """
        tail = [item for item in self.tail(first_kept) if not item.fold]
        tokens = self.plain_tokens - sum(item.tokens for item in tail)
        births = self.token_births - sum(item.tokens * item.born for item in tail)
        return tokens * len(self.steps) - births

    def output(self, seq: int) -> ToolReturned:
        """The output with this number."""
        fact = self.messages[seq].fact
        if not isinstance(fact, ToolReturned):
            raise TypeError(f"number {seq} is no output")
        return fact

    def inside_live(self, span: Span) -> bool:
        """Whether a live span covers all of this one."""
        return any(contains(live, span) for live in self.by_span)

    def step_before(self, seq: int) -> int | None:
        """The last reply before `seq`."""
        position = bisect_left(self.steps, seq)
        return self.steps[position - 1] if position else None

    def part_fold(self, ref: PartRef) -> Folded | None:
        """The live fold that shows for a part."""
        names = self.by_part.get(ref)
        return self.folds[names[-1]] if names else None

    def outer(self, span: Span) -> list[tuple[Span, Folded]]:
        """The outermost live spans inside `span`, in order, each with its fold."""
        if span in self.by_span or span.first == span.last:
            inside = [span] if span in self.by_span else []
        else:
            inside = sorted((live for live in self.by_span if contains(span, live)), key=lambda s: (s.first, -s.last))
        outermost: list[tuple[Span, Folded]] = []
        end = 0
        for cover in inside:
            if cover.first > end:
                outermost.append((cover, self.folds[self.by_span[cover][-1]]))
                end = cover.last
        return outermost

    def _refresh(self, cover: Cover) -> None:
        """Show again whatever stands for the facts of `cover`."""
        low, high = self.positions(cover)
        if low >= high:
            return
        first, last = ends(cover)
        span = Span(min(first, self.items[low].first), max(last, self.items[high - 1].last))
        self.replace(low, high, list(self._build(span)))

    def _build(self, span: Span) -> Iterator[Item]:
        position = span.first
        for cover, fold in self.outer(span):
            yield from map(self._item, self.covered(Span(position, cover.first - 1)))
            yield self._document(fold, cover)
            position = cover.last + 1
        yield from map(self._item, self.covered(Span(position, span.last)))

    def _item(self, seq: int) -> Item:
        blocks = self._blocks(seq)
        return Item(seq, seq, blocks, sum(block.tokens for block in blocks), self.born[seq])

    def _blocks(self, seq: int) -> tuple[Block, ...]:
        return parts.render(self.messages[seq], self.ids, self.part_fold, self.is_pinned, self.is_excluded)

    def _document(self, fold: Folded, cover: Span) -> Item:
        """The fold's text, and behind it the parts inside that stay word for word."""
        kind = Kind.HANDOVER if fold.kind in DOCUMENTS else Kind.OBSERVATIONS
        originals = tuple(Stored(digest, 0) for digest in fold.entries)
        text = Text(fold.text, fold.tokens)
        document = Block(kind, Role.USER, cover, text, fold.tokens, fold.fold, cached=originals)
        gone = any(contains(ref, cover) for ref in self.exclusions)
        blocks = (() if gone else (document,)) + tuple(self._kept_blocks(fold.fold, cover))
        tokens = sum(block.tokens for block in blocks)
        return Item(cover.first, cover.last, blocks, tokens, self.fold_born[fold.fold], fold.fold)

    def _kept_blocks(self, name: str, cover: Span) -> Iterator[Block]:
        wanted = set(self.kept[name]) | set(self._pinned_parts(cover))
        for seq in sorted({ref.seq for ref in wanted}):
            for block in self._blocks(seq):
                if block.source in wanted:
                    yield replace(block, role=Role.USER)

    def _pinned_parts(self, cover: Span) -> Iterator[PartRef]:
        for ref in self.pins:
            first, last = ends(ref)
            if first <= cover.last and cover.first <= last:
                yield from (part for part in self._parts_under(ref) if cover.first <= part.seq <= cover.last)

    def tokens_pinned(self, *more: Cover) -> int:
        """What the pinned parts count, word for word as a pin shows them, with `more` pinned as well."""
        wanted = {part for ref in (*self.pins, *more) for part in self._parts_under(ref) if not self.is_excluded(part)}
        originals = (parts.original(self.messages[part.seq], part.part, self.ids) for part in wanted)
        return sum(block.tokens for block in originals)

    def _parts_under(self, ref: Cover) -> Iterator[PartRef]:
        for seq in self.covered(Span(*ends(ref))):
            count = len(parts.parts_of(parts.message(self.messages[seq])))
            yield from (PartRef(seq, i) for i in range(count) if contains(ref, PartRef(seq, i)))

    # --- counting ---------------------------------------------------------------------------------------------------
