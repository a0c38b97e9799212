"""The figures and names the inspector shows, computed from a view. No widgets."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from helix_desktop.engine import facts
from helix_desktop.engine.fold_economics import relative_prices
from helix_desktop.engine.message_cost_forecast import NextMessageEstimate
from helix_desktop.engine.messages import Block, ContextKind
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.fold_descriptions import fold_title
from helix_desktop.gui.common.savings_sentences import format_saved_share
from helix_desktop.gui.context_meter import (
    context_kind_name,
    describe_token_count,
    format_token_count,
)
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.translation import format_number, tr

PER_MILLION = 1_000_000
MOST_LARGEST = 3
# Markdown marks, which a plain label would show.
_MARKDOWN_MARKS = re.compile(r"^#+ |`|\*\*|\$\$", re.MULTILINE)


@dataclass(frozen=True)
class BlockName:
    """What a block is called. `is_code`: it is shown in the code font."""

    words: str
    is_code: bool = False


@dataclass(frozen=True)
class ListedBlock:
    """A block of the view, as the inspector lists it.

    `cost`: the dollars that each further request pays for the block, if the provider still has it
    in its cache. 0 if no price is known.
    """

    number: int
    block: Block
    tokens: int
    cost: float
    find_name: Callable[[Block], BlockName]

    @cached_property
    def shown_name(self) -> BlockName:
        """The block's name, computed when first shown, since most blocks never are."""
        return self.find_name(self.block)


def list_view_blocks(state: Moment) -> list[ListedBlock]:
    """Lists every block of the view in order, with the token counts that all pages show."""
    dollars_per_token = _dollars_per_cached_token(state)
    find_name = partial(name_block, state=state)
    listed: list[ListedBlock] = []
    for number, block in enumerate(state.get_view().blocks):
        cost = block.tokens * dollars_per_token
        listed.append(ListedBlock(number, block, block.tokens, cost, find_name))
    return listed


def _dollars_per_cached_token(state: Moment) -> float:
    """Returns the price of reading a token that we count from the provider's cache, or 0."""
    model = state.settings.model_for_role(facts.ModelRole.MAIN)
    if model is None:
        return 0.0
    price_of_billed_token = relative_prices(model).read * model.price_input / PER_MILLION
    return price_of_billed_token * state.billed_per_counted_token()


def name_block(block: Block, state: Moment) -> BlockName:
    if block.fold:
        fold = state.find_fold(block.fold)
        if fold is not None and isinstance(fold.cover, facts.Span):
            return BlockName(fold_title(fold))
    if block.kind is ContextKind.OUTPUT:
        return BlockName(_name_output(block, state), is_code=True)
    content = block.content
    if isinstance(content, facts.ToolCall):
        return BlockName(format_call(content.name, content.arguments), is_code=True)
    if isinstance(content, facts.Attachment):
        return BlockName(make_safe_text(content.name), is_code=True)
    beginning = ""
    if isinstance(content, facts.Text | facts.Reasoning):
        beginning = _plain_beginning(content.text)
    return BlockName(beginning or context_kind_name(block.kind))


def _plain_beginning(text: str) -> str:
    without_marks = _MARKDOWN_MARKS.sub("", text[:200])
    return " ".join(make_safe_text(without_marks).split())


def _name_output(block: Block, state: Moment) -> str:
    _first_seq, last_seq = first_and_last(block.source)
    answered = state.record.answered.get(last_seq)
    if answered is None:
        return tr("output {n}", n=str(last_seq))
    return format_call(answered.call.name, answered.call.arguments)


def largest_blocks(all_parts: Sequence[ListedBlock]) -> list[ListedBlock]:
    """Returns the largest parts of the whole context, the largest first, each name once.

    A call and its output have the same name: of these, the larger is listed.
    """
    by_size = sorted(all_parts, key=lambda part: part.tokens, reverse=True)
    largest: dict[str, ListedBlock] = {}
    for part in by_size:
        if len(largest) == MOST_LARGEST:
            break
        largest.setdefault(part.shown_name.words, part)
    return list(largest.values())


def name_shown_handovers(state: Moment) -> str:
    """Returns the title of the summary that the model sees, or the kind's name if there is none
    or more than one: the tokens beside it are those of all.
    """
    shown: dict[str, facts.Folded] = {}
    for item in state.branch.items:
        fold = state.branch.folds.get(item.fold)
        if fold is not None and fold.kind is facts.FoldKind.HANDOVER:
            shown[fold.fold] = fold
    if len(shown) > 1:
        return tr("Summaries")
    for fold in shown.values():
        return fold_title(fold)
    return context_kind_name(ContextKind.HANDOVER)


@dataclass(frozen=True)
class CostRow:
    words: str
    figure: str


def build_sent_rows(figures: Savings) -> list[CostRow]:
    """Returns how many tokens were sent, and how much of it the provider charged less for."""
    rows = [CostRow(tr("Sent"), format_token_count(figures.sent))]
    if figures.cache_read:
        share = format_saved_share(figures.cache_read_share)
        rows.append(CostRow(tr("Resent at a reduced price"), share))
    return rows


def build_next_message_row(
    estimate: NextMessageEstimate, *, is_assumed_free: bool = False
) -> CostRow:
    """Returns what the next message costs, or only its tokens where no price is known."""
    figure = tr("about {amount}", amount=describe_token_count(estimate.tokens))
    if is_assumed_free:
        figure = f"{figure} · {tr('assumed free')}"
    if estimate.dollars:
        figure = tr("about {amount}", amount=format_dollars(estimate.dollars))
    return CostRow(tr("Next message"), figure)


def describe_next_message(estimate: NextMessageEstimate) -> list[str]:
    """Says what else the figure of the next message is made of: what the context holds stands above
    it already.
    """
    parts: list[str] = []
    if estimate.is_forecast:
        parts.append(tr("with all requests, as usual in this conversation"))
    if estimate.message:
        parts.append(tr("{n} of your message", n=describe_token_count(estimate.message)))
    return parts


def build_cost_rows(figures: Savings, agents_cost: float = 0.0) -> list[CostRow]:
    """Returns what was paid. What is not known or nothing is left out."""
    rows: list[CostRow] = []
    if round(figures.paid_before, 3):
        paid_before = format_dollars(figures.paid_before)
        label_of_cost_before = tr("Cost before import or duplication")
        rows.append(CostRow(label_of_cost_before, paid_before))
    has_agents_cost = bool(round(agents_cost, 3))  # Less than a tenth of a cent is left out.
    if figures.paid or figures.unpriced or has_agents_cost:
        whole_cost = format_dollars(figures.paid + agents_cost)
        label_of_cost = tr("Cost so far")
        rows.append(CostRow(label_of_cost, whole_cost))
    if has_agents_cost:
        label_of_agents = tr("Of this, sub-agents")
        rows.append(CostRow(label_of_agents, format_dollars(agents_cost)))
    if figures.unpriced:
        requests = format_number(figures.unpriced)
        label_of_unpriced = tr("Not included: requests whose cost is unknown")
        rows.append(CostRow(label_of_unpriced, requests))
    return rows
