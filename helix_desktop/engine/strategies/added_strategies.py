"""Ways of saving context that extensions bring: when older messages become a summary, and its text.

What they make are folds of a kind that the program knows, so each can be shown, undone and read by
others when its extension is gone. They are asked in the background, never on the way to a request.
"""

from collections.abc import Sequence
from typing import Protocol

from helix_desktop.engine.facts import FoldKind, Span, ToolCall
from helix_desktop.engine.request_building import is_legal_cut
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.view_items import ViewItem
from helix_desktop.engine.strategies.fold_strategy import (
    FoldPlan,
    FoldSituation,
    find_foldable_span,
)
from helix_desktop.fast_dataclass import dataclass

OFFERED_KIND = FoldKind.HANDOVER  # What an added strategy chooses or writes is a summary.


@dataclass(frozen=True, slots=True)
class FoldableMessage:
    """A message as the model is shown it now. `role`: "user", "assistant", "tool", or "summary" for
    a text that stands in place of messages. `tools`: the names of the tools that it calls.

    `may_be_last`: whether a summary may end with it. A call and its results stay together.
    """

    number: int
    role: str
    tokens: int
    tools: tuple[str, ...] = ()
    may_be_last: bool = True


@dataclass(frozen=True, slots=True)
class FoldableContext:
    """What may become a summary now, the oldest first. The last steps are not in it.

    `used`: the tokens of the next request, with all that is not in the list. `window`: how many
    the model takes.
    """

    messages: tuple[FoldableMessage, ...]
    used: int
    window: int


@dataclass(frozen=True, slots=True)
class ChosenFold:
    """All messages up to the number `last` are to become a summary. `why` is shown to the user."""

    last: int
    why: str


@dataclass(frozen=True, slots=True)
class MessageToFold:
    """A message that becomes part of a summary. `text` is what the model is shown of it."""

    number: int
    role: str
    text: str


class AddedFoldStrategy(Protocol):
    """A strategy as the engine asks it. It checks what it returns, and raises nothing."""

    @property
    def author(self) -> str:
        """What stands beside a summary in place of the model that wrote it."""
        ...

    @property
    def chooses(self) -> bool: ...

    @property
    def writes(self) -> bool: ...

    async def choose_fold(self, context: FoldableContext) -> ChosenFold | None:
        """Return what is to become a summary now, or None."""
        ...

    async def write_summary(self, messages: Sequence[MessageToFold]) -> str:
        """Return the text of a summary. Empty: a model writes it."""
        ...


def no_added_strategies() -> Sequence[AddedFoldStrategy]:
    return ()


def find_foldable_context(situation: FoldSituation) -> FoldableContext | None:
    """Return what an added strategy may choose from now, or None if nothing may be folded."""
    span = find_foldable_span(situation)
    if span is None:
        return None
    branch = situation.branch
    items = branch.items_in_span(span)
    messages: list[FoldableMessage] = []
    for position, item in enumerate(items):
        if not item.blocks:  # The user has excluded it.
            continue
        is_last = position + 1 == len(items)
        # A foldable span ends where a summary may end.
        may_be_last = is_last or is_legal_cut(branch, items[position + 1].first)
        role = role_of_item(item)
        tools = _tools_of_item(item)
        messages.append(FoldableMessage(item.last, role, item.tokens, tools, may_be_last))
    meter = situation.meter
    return FoldableContext(tuple(messages), meter.used, meter.window)


def role_of_item(item: ViewItem) -> str:
    if item.fold:
        return "summary"
    for block in item.blocks:
        return str(block.role)
    return "user"


def _tools_of_item(item: ViewItem) -> tuple[str, ...]:
    names: list[str] = []
    for block in item.blocks:
        if isinstance(block.content, ToolCall):
            names.append(block.content.name)
    return tuple(names)


def plan_chosen_fold(situation: FoldSituation, chosen: ChosenFold) -> FoldPlan | None:
    """Return the plan for what a strategy has chosen, or None if it may not be folded any more: the
    conversation has gone on since the strategy was asked.
    """
    foldable_span = find_foldable_span(situation)
    if foldable_span is None or chosen.last > foldable_span.last:
        return None
    branch = situation.branch
    span = Span(foldable_span.first, chosen.last)
    if not branch.has_message(chosen.last) or span.last < span.first:
        return None
    if not _ends_legally(branch, chosen.last) or not branch.would_fold_nest(span):
        return None
    return FoldPlan(OFFERED_KIND, span, chosen.why)


def _ends_legally(branch: ConversationBranch, last: int) -> bool:
    next_position = branch.message_position(last) + 1
    if next_position >= len(branch.order):
        return False  # The newest message always stays.
    return is_legal_cut(branch, branch.order[next_position])
