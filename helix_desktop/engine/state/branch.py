"""The branch of facts that the view shows: its messages and folds, and figures for decisions.

A rewind leaves a branch and goes on from an earlier point, so a branch has no
`Rewound`; `fact_tree.py` keeps the tree. Updates are cheap: a message costs its own
blocks, and a fold the facts it covers.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import field

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.state.fenwick_tree import FenwickTree
from helix_desktop.engine.state.fold_covers import covers_nest, first_and_last
from helix_desktop.engine.state.live_folds import Effect, LiveFolds, count_item_tokens
from helix_desktop.engine.state.view_items import (
    ViewItem,
    count_clearable_tokens,
    is_worth_a_marker,
)
from helix_desktop.engine.tool_call_parsing import CurrentTurn, PendingCall
from helix_desktop.fast_dataclass import dataclass

OBSERVED = (facts.FoldKind.OBSERVATIONS, facts.FoldKind.REFLECTION)
CHANGES = (
    facts.Unfolded, facts.Refolded, facts.DocumentEdited, facts.Pinned, facts.Unpinned,
    facts.Excluded, facts.Included,
)  # fmt: skip


@dataclass(slots=True)
class ConversationBranch(LiveFolds):
    """Changes only by `advance_branch`, and only by facts."""

    calls: dict[str, PendingCall] = field(
        default_factory=dict
    )  # Every call, by the id that requests use for it.
    # For the fact number of each result, on all branches: the call that it answers.
    answered: dict[int, PendingCall] = field(default_factory=dict)
    running_calls: list[PendingCall] = field(default_factory=list)
    turn: CurrentTurn = field(default_factory=CurrentTurn)
    step_times: list[float] = field(default_factory=list)
    unfolded: int = 0  # How many tokens the view would have without any folds.
    plain_tokens: int = 0  # The tokens of the view's messages, without the documents of folds.
    token_births: int = 0  # Of all items: their tokens times the number of their first step.
    # The tokens of each item in the view, by the fact number of its first message.
    token_sums: FenwickTree = field(default_factory=FenwickTree)
    # The tokens that markers could free in each message, judged only by the length of its parts.
    freed_sums: FenwickTree = field(default_factory=FenwickTree)
    plain_outputs: list[int] = field(
        default_factory=list
    )  # Fact numbers of messages with a part worth a marker.
    # For each step: the tokens that markers could free in its reply and in the messages after it.
    clearable: list[int] = field(default_factory=list)
    notes: dict[str, tuple[int, str]] = field(
        default_factory=dict
    )  # By author (`by`): the last note and its number.
    todo: tuple[tuple[str, str], ...] = ()
    handovers: int = 0
    handover_tokens: int = 0  # The sum of the tokens of all handovers.
    last_handover: float = 0.0

    def advance_branch(self, recorded: facts.Recorded) -> Effect | None:
        """Apply a fact. Return its effect if it changed something shown."""
        fact = recorded.fact
        if isinstance(fact, facts.UserSaid | facts.ModelReplied | facts.ToolReturned):
            self._add_message(recorded, fact)
        elif isinstance(fact, facts.Folded):
            return self._add_fold(recorded, fact)
        elif isinstance(fact, CHANGES):
            if self._would_change_anything(fact):
                return self._apply_effect(recorded.seq, fact)
        else:
            self._apply_fact_without_message(fact)
        return None

    def _would_change_anything(self, new_fact: facts.Fact) -> bool:
        match new_fact:
            case facts.Unfolded(fold=name):
                return name in self.live
            case facts.Refolded(fold=name):
                return (
                    name in self.folds
                    and name not in self.live
                    and self.would_fold_nest(self.folds[name].cover)
                )
            case facts.DocumentEdited(fold=name):
                return name in self.folds
        return self._would_mark_change_anything(new_fact)

    def _would_mark_change_anything(self, fact: facts.Fact) -> bool:
        match fact:
            case facts.Pinned(ref=ref):
                return ref not in self.pins
            case facts.Unpinned(ref=ref):
                return ref in self.pins
            case facts.Excluded(ref=ref):
                return ref not in self.exclusions and not self._covers_needed_reasoning(ref)
            case facts.Included(ref=ref):
                return ref in self.exclusions
        return False

    def _apply_effect(
        self, seq: int, fact: facts.Fact, kept: tuple[facts.PartRef, ...] = ()
    ) -> Effect:
        about = fact.ref if isinstance(fact, facts.Excluded | facts.Included) else None
        before = self.tokens_without_folds(about) if about is not None else 0
        if (cover := self.apply_fold_change(fact, kept)) is not None:
            self._rebuild_items_of(cover)
        if about is not None:
            self.unfolded += self.tokens_without_folds(about) - before
        return seq, fact, kept

    def _apply_fact_without_message(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TurnEnded():
                self.turn.running = False
            case facts.TodoSet(items=items):
                self.todo = items

    # --- Adding messages, replies and results

    def _add_message(self, recorded: facts.Recorded, fact: message_blocks.MessageFact) -> None:
        if isinstance(fact, facts.ToolReturned) and not self._pair_result_with_call(
            recorded.seq, fact
        ):
            return
        if isinstance(fact, facts.ModelReplied):
            self._add_reply(recorded, fact)
        elif isinstance(fact, facts.UserSaid):
            if fact.steering and self.turn.running:
                self.turn.words.append(recorded.seq)
            else:
                self.turn = CurrentTurn([recorded.seq], self.turn.first_seq, running=True)
            if fact.by:
                text = "".join(part.text for part in fact.parts if isinstance(part, facts.Text))
                self.notes[fact.by] = (recorded.seq, text)
        self.order.append(recorded.seq)
        self.token_sums.append_number(0)
        self.freed_sums.append_number(0)
        item = self.build_message_item(recorded.seq)
        self.append_item(item)
        self.unfolded += count_item_tokens([item])
        if self.clearable:
            self.clearable[-1] += count_clearable_tokens(item.blocks)

    def _add_reply(self, recorded: facts.Recorded, fact: facts.ModelReplied) -> None:
        """Add a reply, which closes the batch before it: missing results will never come."""
        self.running_calls = []
        self.turn.running = True
        self.steps.append(recorded.seq)
        self.step_times.append(recorded.time)
        self.clearable.append(0)
        for index, part in enumerate(fact.parts):
            if isinstance(part, facts.ToolCall):
                ref = facts.PartRef(recorded.seq, index)
                shown = (
                    part.id
                    if part.id and part.id not in self.calls
                    else f"call-{recorded.seq}-{index}"
                )
                if shown != part.id:
                    self.ids[ref] = shown
                self.calls[shown] = PendingCall(part.id, shown, ref, part)
                self.running_calls.append(self.calls[shown])

    def calls_of_reply(self, seq: int) -> list[PendingCall]:
        """Return the calls of the message `seq`, if it is a reply. They are not held
        for each, as most are read once.
        """
        fact = self.message_at(seq).fact
        parts = enumerate(fact.parts if isinstance(fact, facts.ModelReplied) else ())
        calls = (
            (facts.PartRef(seq, at), part.id)
            for at, part in parts
            if isinstance(part, facts.ToolCall)
        )
        return [self.calls[self.ids.get(ref, name)] for ref, name in calls]

    def _pair_result_with_call(self, seq: int, fact: facts.ToolReturned) -> bool:
        """Pair a result with its call. Return False if no call waits for it."""
        for index, call in enumerate(self.running_calls):
            if call.id == fact.call:
                del self.running_calls[index]
                self.answered[seq] = call
                if call.shown != fact.call:
                    self.ids[facts.PartRef(seq)] = call.shown
                return True
        return False

    def excerpt_shown_instead(self, seq: int) -> str:
        """Return the excerpt of an output if the model was never shown the whole, or an
        empty string.
        """
        steps = bisect_left(self.steps, seq)
        folds = (self.folds[name] for name in self.by_part.get(facts.PartRef(seq), ()))
        excerpts = (fold for fold in folds if fold.kind is facts.FoldKind.EXCERPT)
        return next((fold.text for fold in excerpts if self.fold_born[fold.fold] <= steps), "")

    # --- Adding, checking and removing folds

    def _add_fold(self, recorded: facts.Recorded, fold: facts.Folded) -> Effect | None:
        if fold.fold in self.folds or not self.is_valid_fold(recorded.seq, fold):
            return None
        self.fold_born[fold.fold] = len(self.steps)
        if fold.kind is facts.FoldKind.HANDOVER:
            self.handovers += 1
            self.handover_tokens += fold.tokens
            self.last_handover = recorded.time
        return self._apply_effect(
            recorded.seq, fold, tuple(self.parts_kept_verbatim(fold.cover, panic=fold.panic))
        )

    def is_valid_fold(self, seq: int, fold: facts.Folded) -> bool:
        """Whether it covers something here, crosses no other fold, and makes the view no longer."""
        cover = fold.cover
        if isinstance(cover, facts.PartRef):
            if not self.has_message(cover.seq) or cover.part >= len(
                message_blocks.parts_of(message_blocks.require_message(self.message_at(cover.seq)))
            ):
                return False
        elif not (0 < cover.first <= cover.last < seq and self.covered_messages(cover)):
            return False
        if not self.would_fold_nest(cover):
            return False
        kept = (
            0
            if isinstance(cover, facts.PartRef)
            else self.count_tokens_kept_beside_fold(cover, panic=fold.panic)
        )
        return 0 < fold.tokens + kept <= self.shown_tokens(cover)

    def would_fold_nest(self, cover: facts.Cover) -> bool:
        """Whether a fold of `cover` would contain, be inside, or be beside every live span."""
        low, high = self.item_positions(cover)
        first, last = first_and_last(cover)
        whole = low >= high or (
            first <= self.items[low].first and self.items[high - 1].last <= last
        )
        return (
            whole
            or isinstance(cover, facts.PartRef)
            or all(covers_nest(cover, span) for span in self.by_span)
        )

    def parts_kept_verbatim(self, cover: facts.Cover, *, panic: bool) -> Iterator[facts.PartRef]:
        """Yield parts that a longer fold keeps word for word: the turn's subject, and
        what users restored.
        """
        if isinstance(cover, facts.PartRef):
            return
        if self.turn.running:
            for seq in self.turn.words:
                if cover.first <= seq <= cover.last:
                    count = len(
                        message_blocks.parts_of(
                            message_blocks.require_message(self.message_at(seq))
                        )
                    )
                    yield from (facts.PartRef(seq, index) for index in range(count))
        if not panic:
            for ref in self.barred:
                if isinstance(ref, facts.PartRef) and cover.first <= ref.seq <= cover.last:
                    yield ref

    def count_tokens_kept_beside_fold(self, cover: facts.Span, *, panic: bool) -> int:
        """Return the tokens of a span that would stay besides a document made now."""
        wanted = set(self.parts_kept_verbatim(cover, panic=panic)) | set(self.pinned_parts(cover))
        blocks = (
            block for seq in sorted({ref.seq for ref in wanted}) for block in self.shown_blocks(seq)
        )
        return sum(block.tokens for block in blocks if block.source in wanted)

    def _covers_needed_reasoning(self, ref: facts.Cover) -> bool:
        """Whether the model still needs the reasoning, because some of its calls are open."""
        first, last = first_and_last(ref)
        for seq in self.covered_messages(facts.Span(first, last)):
            fact = self.message_at(seq).fact
            if (
                seq > self.turn.first_seq
                and self.turn.running
                and isinstance(fact, facts.ModelReplied)
            ):
                chosen = (
                    fact.parts
                    if isinstance(ref, facts.Span)
                    else fact.parts[ref.part : ref.part + 1]
                )
                if any(isinstance(part, facts.Reasoning) for part in chosen):
                    return True
        return False

    def update_sums(self, item: ViewItem, sign: int) -> None:
        LiveFolds.update_sums(self, item, sign)
        position = self.message_position(item.first)
        self.token_sums.change_number(position, sign * item.tokens)
        if item.fold:
            return
        self.plain_tokens += sign * item.tokens
        self.token_births += sign * item.tokens * item.born
        if not (worth := [block for block in item.blocks if is_worth_a_marker(block)]):
            return
        self.freed_sums.change_number(position, sign * count_clearable_tokens(worth))
        if sign > 0:
            insort(self.plain_outputs, item.first)
        else:
            del self.plain_outputs[bisect_left(self.plain_outputs, item.first)]

    def clear_sums(self) -> None:
        LiveFolds.clear_sums(self)
        self.token_sums.clear_numbers()
        self.freed_sums.clear_numbers()
        self.plain_tokens = self.token_births = 0
        self.plain_outputs.clear()

    def carried_token_steps(self, first_kept: int) -> int:
        """Return the tokens before `first_kept` times the steps that sent them, without
        documents.
        """
        tail = [item for item in self.items_from_fact(first_kept) if not item.fold]
        tokens = self.plain_tokens - sum(item.tokens for item in tail)
        births = self.token_births - sum(item.tokens * item.born for item in tail)
        return tokens * len(self.steps) - births

    def tool_output_at(self, seq: int) -> facts.ToolReturned:
        fact = self.message_at(seq).fact
        if not isinstance(fact, facts.ToolReturned):
            raise TypeError(f"number {seq} is no output")
        return fact

    def last_reply_before(self, seq: int) -> int | None:
        position = bisect_left(self.steps, seq)
        return self.steps[position - 1] if position else None

    def _rebuild_items_of(self, cover: facts.Cover) -> None:
        low, high = self.item_positions(cover)
        if low >= high:
            return
        first, last = first_and_last(cover)
        span = facts.Span(min(first, self.items[low].first), max(last, self.items[high - 1].last))
        self.replace_items(low, high, list(self.build_items(span)))

    def count_pinned_tokens(self, *more: facts.Cover) -> int:
        """Return the tokens of pinned parts, with `more` pinned, too."""
        wanted = {
            part
            for ref in (*self.pins, *more)
            for part in self.parts_within(ref)
            if not self.is_excluded(part)
        }
        originals = (
            message_blocks.build_original_block(self.message_at(part.seq), part, self.ids)
            for part in wanted
        )
        return sum(block.tokens for block in originals)
