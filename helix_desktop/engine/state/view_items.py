"""The items of the view, each a message or the document of a fold over several messages."""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import field
from operator import attrgetter

from helix_desktop.engine.facts import Cover, PartRef, Span, Text, ToolCall
from helix_desktop.engine.messages import Block, ContextKind, Role
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.fast_dataclass import dataclass

MESSAGE_TOKENS = 4  # Added for each message, in addition to the tokens of its parts.
MARKER_TOKENS = 90  # The usual number of tokens in a marker.
LONG_ARGUMENT = 1_000  # Arguments of more tokens than this count as long under every policy.
SHORT_PART_TOKENS = 120  # Shorter parts are not replaced, as a marker would save too little.
_FIRST = attrgetter("first")
_KINDS = tuple(ContextKind)  # To go through the class itself takes five times as long.


@dataclass(frozen=True, slots=True)
class ViewItem:
    """What the view shows for the facts `first` to `last`: a message, or the document of `fold`."""

    first: int
    last: int
    blocks: tuple[Block, ...]
    tokens: int
    born: int  # How many steps came before this item was created.
    fold: str = ""


@dataclass(slots=True)
class ViewItems:
    """The items in order. `order` has every message, and `items` what is shown of them."""

    order: list[int] = field(default_factory=list)  # The fact numbers of messages, in their order.
    items: list[ViewItem] = field(default_factory=list)
    tokens: Counter[ContextKind] = field(default_factory=Counter)
    shown_messages: int = 0
    # The index of the first item changed since `pop_first_changed_index` was last called.
    changed: int = 0

    @property
    def total_tokens(self) -> int:
        """Return the tokens of everything shown, including each message's own."""
        return self.tokens.total() + MESSAGE_TOKENS * self.shown_messages

    def tokens_by_kind(self, settings_tokens: int) -> tuple[int, ...]:
        """Return all shown tokens by `ContextKind`. What messages add counts as conversation."""
        # This runs for every fact of a conversation that is opened.
        tokens_by_kind: list[int] = []
        for kind in _KINDS:
            tokens = self.tokens[kind]
            if kind is ContextKind.SYSTEM:
                tokens += settings_tokens
            elif kind is ContextKind.CONVERSATION:
                tokens += MESSAGE_TOKENS * self.shown_messages
            tokens_by_kind.append(tokens)
        return tuple(tokens_by_kind)

    def items_from_fact(self, first_seq: int) -> list[ViewItem]:
        return self.items[bisect_left(self.items, first_seq, key=_FIRST) :]

    def shown_tokens(self, cover: Cover) -> int:
        if isinstance(cover, PartRef):
            item = self.items[self.item_position(cover.seq)]
            return sum(block.tokens for block in item.blocks if block.source == cover)
        first, last = self.item_positions(cover)
        return sum(item.tokens for item in self.items[first:last])

    def covered_messages(self, span: Span) -> list[int]:
        start = bisect_left(self.order, span.first)
        end = bisect_right(self.order, span.last)
        return self.order[start:end]

    def pop_first_changed_index(self) -> int:
        first_changed = self.changed
        self.changed = len(self.items)
        return first_changed

    def count_messages(self, span: Span, enough: int) -> int:
        """Return how many messages of the span are in the view, counting up to `enough`."""
        message_count = 0
        for item in self.items_in_span(span):
            if not item.fold:
                message_count += 1
            if message_count >= enough:
                break
        return message_count

    def messages_of_item(self, item: ViewItem) -> list[int]:
        return self.covered_messages(Span(item.first, item.last))

    def items_in_span(self, span: Span) -> list[ViewItem]:
        first, last = self.item_positions(span)
        return self.items[first:last]

    def item_at(self, seq: int) -> ViewItem:
        return self.items[self.item_position(seq)]

    def message_position(self, seq: int) -> int:
        """Return the position of the message `seq` among all messages, or where it would be."""
        return bisect_left(self.order, seq)

    def item_position(self, seq: int) -> int:
        """Return the position of the last item that begins with the message `seq` or before."""
        item_count = bisect_right(self.items, seq, key=_FIRST)
        return max(0, item_count - 1)

    def item_positions(self, cover: Cover) -> tuple[int, int]:
        """Return the first and end position of items that show the facts of `cover`."""
        first, last = first_and_last(cover)
        first_position = self.item_position(first)
        if first_position < len(self.items) and self.items[first_position].last < first:
            first_position += 1  # That item ends before the cover begins.
        end_position = bisect_right(self.items, last, key=_FIRST)
        return first_position, end_position

    def append_item(self, item: ViewItem) -> None:
        """Show another item at the end. Its message is already in `order`."""
        self.items.append(item)
        self.update_sums(item, 1)

    def update_sums(self, item: ViewItem, sign: int) -> None:
        """Add an item to the sums, or subtract it with -1."""
        for block in item.blocks:
            self.tokens[block.kind] += sign * block.tokens
        if item.blocks:
            self.shown_messages += sign

    def replace_items(self, first: int, end: int, new_items: list[ViewItem]) -> None:
        """Show other items in place of those from position `first` to before `end`."""
        self.changed = min(self.changed, first)
        replaces_most = end - first > len(self.items) // 2
        if replaces_most:
            # The rest is counted again, since subtracting most items would delay other streams.
            self.items[first:end] = new_items
            self.clear_sums()
            for item in self.items:
                self.update_sums(item, 1)
            return
        for item in self.items[first:end]:
            self.update_sums(item, -1)
        self.items[first:end] = new_items
        for item in new_items:
            self.update_sums(item, 1)

    def clear_sums(self) -> None:
        self.tokens.clear()
        self.shown_messages = 0


def is_worth_a_marker(block: Block) -> bool:
    """Whether this is an unfolded output or call that is long enough for a marker."""
    if block.tokens <= SHORT_PART_TOKENS or block.pinned:
        return False
    is_shortened_call = bool(block.fold) and not isinstance(block.content, Text)
    if is_shortened_call:
        return False
    if block.role is Role.ASSISTANT:
        return isinstance(block.content, ToolCall)
    return block.role is Role.TOOL and block.kind is ContextKind.OUTPUT


def count_clearable_tokens(blocks: Iterable[Block]) -> int:
    """Return the tokens that markers would free: of outputs and of long arguments."""
    clearable_tokens = 0
    for block in blocks:
        is_output_or_long = block.role is Role.TOOL or block.tokens > LONG_ARGUMENT
        if is_output_or_long and is_worth_a_marker(block):
            clearable_tokens += block.tokens - MARKER_TOKENS
    return clearable_tokens
