"""The branch of facts that the view shows: its messages and folds, and figures for decisions.

A rewind leaves a branch and goes on from an earlier point, so a branch has no
`Rewound`; `fact_tree.py` keeps the tree. Updates are cheap: a message costs its own
blocks, and a fold the facts it covers.
"""

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import field
from itertools import chain

from helix_desktop.engine import facts, message_blocks
from helix_desktop.engine.state.fenwick_tree import FenwickTree
from helix_desktop.engine.state.fold_covers import covers_nest, first_and_last
from helix_desktop.engine.state.live_folds import FoldEffect, LiveFolds, count_item_tokens
from helix_desktop.engine.state.view_items import (
    MESSAGE_TOKENS,
    ViewItem,
    count_clearable_tokens,
    is_worth_a_marker,
)
from helix_desktop.engine.tool_call_parsing import CurrentTurn, PendingCall
from helix_desktop.fast_dataclass import dataclass

CHANGES = (
    facts.Unfolded, facts.Refolded, facts.DocumentEdited, facts.Pinned, facts.Unpinned,
    facts.Excluded, facts.Included,
)  # fmt: skip


@dataclass(slots=True)
class ConversationBranch(LiveFolds):
    """Changes only by `advance_branch`, and only by facts."""

    # Every call, by the id that requests use for it.
    calls: dict[str, PendingCall] = field(default_factory=dict)
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
    # Fact numbers of messages with a part worth a marker.
    plain_outputs: list[int] = field(default_factory=list)
    # For each step: the tokens that markers could free in its reply and in the messages after it.
    clearable: list[int] = field(default_factory=list)
    # By author (`by`): the last note and its number.
    notes: dict[str, tuple[int, str]] = field(default_factory=dict)
    todo: tuple[tuple[str, str], ...] = ()
    handovers: int = 0
    handover_tokens: int = 0  # The sum of the tokens of all handovers.
    last_handover: float = 0.0

    def advance_branch(self, recorded: facts.Recorded) -> FoldEffect | None:
        """Follow the conversation by one fact: a message, a fold, or another change of what is
        shown. Return the effect of a change, by which a past moment can be computed again.
        """
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
        """Whether a change has an effect here: a fold can be undone only once, for example."""
        match new_fact:
            case facts.Unfolded(fold=name):
                return name in self.live
            case facts.Refolded(fold=name):
                if name not in self.folds or name in self.live:
                    return False
                return self.would_fold_nest(self.folds[name].cover)
            case facts.DocumentEdited(fold=name):
                return name in self.folds
        return self._would_mark_change_anything(new_fact)

    def _would_mark_change_anything(self, fact: facts.Fact) -> bool:
        """Whether a pin or an exclusion, or taking one back, has an effect here.

        What is pinned is always sent word for word, and what is excluded is never sent.
        """
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
        self, seq: int, fact: facts.Fact, kept_parts: tuple[facts.PartRef, ...] = ()
    ) -> FoldEffect:
        """Apply a change that has an effect, and show again what it concerns."""
        tokens_before = self._tokens_changed_without_folds(fact)
        cover = self.apply_fold_change(fact, kept_parts)
        if cover is not None:
            self._rebuild_items_of(cover)
        self.unfolded += self._tokens_changed_without_folds(fact) - tokens_before
        return FoldEffect(seq, fact, kept_parts)

    def _tokens_changed_without_folds(self, fact: facts.Fact) -> int:
        """Return the tokens, without our folds, of what a fact changes even there: what it
        excludes or includes, and what the agent shortens itself. 0 for any other fact.
        """
        match fact:
            case facts.Excluded(ref=ref) | facts.Included(ref=ref):
                return self.tokens_without_folds(ref)
            case facts.Folded(cover=cover, is_by_agent=True):
                return self.tokens_without_folds(cover)
            case facts.Unfolded(fold=name) | facts.Refolded(fold=name):
                fold = self.folds[name]
                if fold.is_by_agent:
                    return self.tokens_without_folds(fold.cover)
        return 0

    def _apply_fact_without_message(self, fact: facts.Fact) -> None:
        match fact:
            case facts.TurnEnded():
                self.turn.running = False
            case facts.TodoSet(items=items):
                self.todo = items

    # --- Adding messages, replies and results

    def _add_message(self, recorded: facts.Recorded, fact: message_blocks.MessageFact) -> None:
        """Show another message at the end, and add it to all running sums."""
        if isinstance(fact, facts.ToolReturned):
            # Providers reject a result without a call.
            if not self._pair_result_with_call(recorded.seq, fact):
                return
        elif isinstance(fact, facts.ModelReplied):
            self._add_reply(recorded, fact)
        else:
            self._add_user_message(recorded.seq, fact)
        self.order.append(recorded.seq)
        self.token_sums.append_number(0)
        self.freed_sums.append_number(0)
        item = self.build_message_item(recorded.seq)
        self.append_item(item)
        self.unfolded += count_item_tokens([item])
        if self.clearable:
            self.clearable[-1] += count_clearable_tokens(item.blocks)

    def _add_user_message(self, seq: int, fact: facts.UserSaid) -> None:
        """Begin a turn with a message, or add one that was sent while the agent works to it.

        A message of the program, which names its author, is also kept as the last note of that
        author.
        """
        if fact.steering and self.turn.running:
            self.turn.words.append(seq)
        else:
            self.turn = CurrentTurn([seq], self.turn.first_seq, running=True)
        if fact.by:
            texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
            self.notes[fact.by] = (seq, "".join(texts))

    def _add_reply(self, recorded: facts.Recorded, fact: facts.ModelReplied) -> None:
        """Add a reply, which closes the batch before it: missing results will never come."""
        self.running_calls = []
        self.turn.running = True
        self.steps.append(recorded.seq)
        self.step_times.append(recorded.time)
        self.clearable.append(0)
        for index, part in enumerate(fact.parts):
            if isinstance(part, facts.ToolCall):
                self._add_call(facts.PartRef(recorded.seq, index), part)

    def _add_call(self, ref: facts.PartRef, call: facts.ToolCall) -> None:
        # Some models give no ids, or the same ones again, which other providers reject.
        id_in_requests = call.id
        if not call.id or call.id in self.calls:
            id_in_requests = f"call-{ref.seq}-{ref.part}"
            self.ids[ref] = id_in_requests
        pending = PendingCall(call.id, id_in_requests, ref, call)
        self.calls[id_in_requests] = pending
        self.running_calls.append(pending)

    def calls_of_reply(self, seq: int) -> list[PendingCall]:
        """Return the calls of the message `seq`, if it is a reply. They are not held
        for each, as most are read once.
        """
        fact = self.message_at(seq).fact
        if not isinstance(fact, facts.ModelReplied):
            return []
        calls: list[PendingCall] = []
        for index, part in enumerate(fact.parts):
            if isinstance(part, facts.ToolCall):
                id_in_requests = self.ids.get(facts.PartRef(seq, index), part.id)
                calls.append(self.calls[id_in_requests])
        return calls

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
        steps_before = bisect_left(self.steps, seq)
        for name in self.by_part.get(facts.PartRef(seq), ()):
            fold = self.folds[name]
            is_excerpt = fold.kind is facts.FoldKind.EXCERPT
            if is_excerpt and self.fold_born[name] <= steps_before:
                return fold.text
        return ""

    # --- Adding, checking and removing folds

    def _add_fold(self, recorded: facts.Recorded, fold: facts.Folded) -> FoldEffect | None:
        """Show a fold's text in place of what it covers, unless that is not possible here."""
        if fold.fold in self.folds or not self.is_valid_fold(recorded.seq, fold):
            return None
        self.fold_born[fold.fold] = len(self.steps)
        if fold.kind is facts.FoldKind.HANDOVER and not fold.is_by_agent:
            self.handovers += 1
            self.handover_tokens += fold.tokens
            self.last_handover = recorded.time
        kept_parts = tuple(self.parts_kept_verbatim(fold.cover, panic=fold.panic))
        return self._apply_effect(recorded.seq, fold, kept_parts)

    def is_valid_fold(self, seq: int, fold: facts.Folded) -> bool:
        """Whether a fold covers something here, crosses no other fold, and does not make what is
        shown longer.

        It covers one part of a message, or the messages from the first to the last of a span.
        """
        cover = fold.cover
        if isinstance(cover, facts.PartRef):
            if not self.has_message(cover.seq) or cover.part >= self.count_parts(cover.seq):
                return False
            tokens_after = fold.tokens
        else:
            if not 0 < cover.first <= cover.last < seq or not self.covered_messages(cover):
                return False
            kept_tokens = self.count_tokens_kept_beside_fold(cover, panic=fold.panic)
            tokens_after = fold.tokens + kept_tokens
        if not self.would_fold_nest(cover):
            return False
        if fold.is_by_agent and isinstance(cover, facts.Span):
            return True  # The agent's own summary is what it sends, however long it is.
        return 0 < tokens_after <= self.shown_tokens(cover)

    def would_fold_nest(self, cover: facts.Cover) -> bool:
        """Whether a fold of `cover` would contain, be inside, or be beside every live span."""
        if isinstance(cover, facts.PartRef):
            return True
        # Usually the cover begins and ends with items, and then no span has to be compared.
        first_position, end_position = self.item_positions(cover)
        if first_position >= end_position:
            return True
        begins_with_item = cover.first <= self.items[first_position].first
        ends_with_item = self.items[end_position - 1].last <= cover.last
        if begins_with_item and ends_with_item:
            return True
        return all(covers_nest(cover, span) for span in self.by_span)

    def parts_kept_verbatim(self, cover: facts.Cover, *, panic: bool) -> Iterator[facts.PartRef]:
        """Yield the parts that a fold of a span keeps word for word: what the user has asked for
        in the running turn, and outputs whose fold the user has undone.

        In panic, when the next request would not fit otherwise, the latter are not kept.
        """
        if isinstance(cover, facts.PartRef):
            return
        covered_seqs = range(cover.first, cover.last + 1)
        if self.turn.running:
            for seq in self.turn.words:
                if seq not in covered_seqs:
                    continue
                for index in range(self.count_parts(seq)):
                    yield facts.PartRef(seq, index)
        if panic:
            return
        for ref in self.barred:
            if isinstance(ref, facts.PartRef) and ref.seq in covered_seqs:
                yield ref

    def count_tokens_kept_beside_fold(self, cover: facts.Span, *, panic: bool) -> int:
        """Return the tokens of a span that would stay besides a document made now."""
        kept_parts = set(self.parts_kept_verbatim(cover, panic=panic))
        kept_parts.update(self.pinned_parts(cover))
        tokens = 0
        for seq in {part.seq for part in kept_parts}:
            for block in self.shown_blocks(seq):
                if block.source in kept_parts:
                    tokens += block.tokens
        return tokens

    def count_tokens_replaced_by_fold(self, cover: facts.Span, *, panic: bool) -> int:
        """Return the tokens of a span in whose place a document made now would stand: what it shows,
        less what stays besides the document. The view then differs by these and the document's.
        """
        shown_tokens = count_item_tokens(self.items_in_span(cover))
        # What stays is in one message with the document.
        tokens_beside_text = self.count_tokens_kept_beside_fold(cover, panic=panic) + MESSAGE_TOKENS
        return shown_tokens - tokens_beside_text

    def _covers_needed_reasoning(self, ref: facts.Cover) -> bool:
        """Whether the model still needs the reasoning, because some of its calls are open."""
        if not self.turn.running:
            return False
        first, last = first_and_last(ref)
        for seq in self.covered_messages(facts.Span(first, last)):
            fact = self.message_at(seq).fact
            if seq <= self.turn.first_seq or not isinstance(fact, facts.ModelReplied):
                continue
            covered_parts = fact.parts
            if isinstance(ref, facts.PartRef):
                covered_parts = fact.parts[ref.part : ref.part + 1]
            if any(isinstance(part, facts.Reasoning) for part in covered_parts):
                return True
        return False

    def update_sums(self, item: ViewItem, sign: int) -> None:
        """Add an item to the sums, or subtract it with -1. Documents are not in all of them."""
        LiveFolds.update_sums(self, item, sign)
        position = self.message_position(item.first)
        self.token_sums.change_number(position, sign * item.tokens)
        if item.fold:
            return
        self.plain_tokens += sign * item.tokens
        self.token_births += sign * item.tokens * item.born
        clearable_blocks = [block for block in item.blocks if is_worth_a_marker(block)]
        if not clearable_blocks:
            return
        self.freed_sums.change_number(position, sign * count_clearable_tokens(clearable_blocks))
        if sign > 0:
            insort(self.plain_outputs, item.first)
        else:
            del self.plain_outputs[bisect_left(self.plain_outputs, item.first)]

    def clear_sums(self) -> None:
        LiveFolds.clear_sums(self)
        self.token_sums.clear_numbers()
        self.freed_sums.clear_numbers()
        self.plain_tokens = 0
        self.token_births = 0
        self.plain_outputs.clear()

    def carried_token_steps(self, first_kept: int) -> int:
        """Return how many tokens were sent in all with the messages before `first_kept`: their
        tokens times the steps that have sent them, without documents of folds.
        """
        # Each token was sent by all steps but those before its message, which it has missed.
        tokens = self.plain_tokens
        missed_steps = self.token_births
        for item in self.items_from_fact(first_kept):
            if not item.fold:
                tokens -= item.tokens
                missed_steps -= item.tokens * item.born
        return tokens * len(self.steps) - missed_steps

    def tool_output_at(self, seq: int) -> facts.ToolReturned:
        fact = self.message_at(seq).fact
        if not isinstance(fact, facts.ToolReturned):
            raise TypeError(f"number {seq} is no output")
        return fact

    def last_reply_before(self, seq: int) -> int | None:
        position = bisect_left(self.steps, seq)
        if position == 0:
            return None
        return self.steps[position - 1]

    def _rebuild_items_of(self, cover: facts.Cover) -> None:
        """Build the items again that show something of a cover, after what is shown changed."""
        first_position, end_position = self.item_positions(cover)
        if first_position >= end_position:
            return
        # A cover may begin or end within an item, such as a longer fold that is now undone.
        cover_first, cover_last = first_and_last(cover)
        rebuilt_span = facts.Span(
            first=min(cover_first, self.items[first_position].first),
            last=max(cover_last, self.items[end_position - 1].last),
        )
        rebuilt_items = list(self.build_items(rebuilt_span))
        self.replace_items(first_position, end_position, rebuilt_items)

    def count_pinned_tokens(self, *more: facts.Cover) -> int:
        """Return the tokens of pinned parts, with `more` pinned, too."""
        # A part may be within several pins.
        pinned_parts: set[facts.PartRef] = set()
        for cover in chain(self.pins, more):
            pinned_parts.update(self.parts_within(cover))
        tokens = 0
        for part in pinned_parts:
            if not self.is_excluded(part):
                message = self.message_at(part.seq)
                tokens += message_blocks.build_original_block(message, part, self.ids).tokens
        return tokens
