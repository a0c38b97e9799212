"""The figures and names the inspector shows, computed from a view. No widgets."""

import re
from collections.abc import Callable, Sequence
from functools import cached_property, partial

from helix_desktop.engine import facts
from helix_desktop.engine.fold_economics import relative_prices
from helix_desktop.engine.messages import Block, ContextKind
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_dollars
from helix_desktop.gui.common.fold_descriptions import fold_title
from helix_desktop.gui.context_meter import context_kind_name, format_token_count
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.translation import format_number, format_percent, tr

PER_MILLION = 1_000_000
_MARKDOWN_MARKS = re.compile(
    r"^#+ |`|\*\*|\$\$", re.MULTILINE
)  # Markdown marks, which a plain label would show.


@dataclass(frozen=True)
class ListedBlock:
    """A block of the view, as the inspector lists it. `cost`: the dollars for which a request reads
    it from the provider's cache, as all but its first do, or 0.
    """

    number: int
    block: Block
    tokens: int
    cost: float
    find_name: Callable[[Block], tuple[str, bool]]

    @cached_property
    def name_and_is_code(self) -> tuple[str, bool]:
        """The block's name, computed when first shown, since most blocks never are."""
        return self.find_name(self.block)


def list_view_blocks(state: Moment) -> list[ListedBlock]:
    """Lists every block of the view in order, with the token counts that all pages show."""
    chosen = state.settings.model_for_role(facts.ModelRole.MAIN)
    price = relative_prices(chosen).read * chosen.price_input / PER_MILLION if chosen else 0.0
    name, blocks = partial(name_block, state=state), enumerate(state.get_view().blocks)
    price *= state.billed_per_counted_token()
    return [
        ListedBlock(number, block, block.tokens, block.tokens * price, name)
        for number, block in blocks
    ]


def name_block(block: Block, state: Moment) -> tuple[str, bool]:
    fold = state.find_fold(block.fold) if block.fold else None
    if fold is not None and isinstance(fold.cover, facts.Span):
        return fold_title(fold), False
    seq = block.source.seq if isinstance(block.source, facts.PartRef) else block.source.last
    if block.kind is ContextKind.OUTPUT:
        answered = state.record.answered.get(seq)
        return format_call(answered.call.name, answered.call.arguments) if answered else tr(
            "output {n}", n=seq
        ), True
    what = block.content
    if isinstance(what, facts.ToolCall):
        return format_call(what.name, what.arguments), True
    if isinstance(what, facts.Attachment):
        return make_safe_text(what.name), True
    if isinstance(what, facts.Text | facts.Reasoning):
        words = " ".join(make_safe_text(_MARKDOWN_MARKS.sub("", what.text[:200])).split())
        return words or context_kind_name(block.kind), False
    return context_kind_name(block.kind), False


def largest_blocks(all_parts: Sequence[ListedBlock]) -> list[ListedBlock]:
    loose = [
        part
        for part in all_parts
        if part.block.kind in (ContextKind.CONVERSATION, ContextKind.OUTPUT)
    ]
    return sorted(loose, key=lambda part: -part.tokens)[:3]


def newest_handover_name(state: Moment) -> str:
    """Returns the title of the newest handover in force, or the kind's name if there is none."""
    branch = state.branch
    spans = (branch.folds[name] for names in branch.by_span.values() for name in names)
    handovers = [fold for fold in spans if fold.kind is facts.FoldKind.HANDOVER]
    if not handovers:
        return context_kind_name(ContextKind.HANDOVER)
    return fold_title(max(handovers, key=lambda fold: branch.ages[fold.fold]))


def build_savings_rows(figures: Savings, agents_cost: float = 0.0) -> list[tuple[str, str, bool]]:
    """Returns rows of words, figure and whether to highlight the figure."""
    rows = [(tr("Sent"), format_token_count(figures.sent), False)]
    if figures.without != figures.sent:
        rows.insert(
            0,
            (tr("If summarized only when full"), f"≈ {format_token_count(figures.without)}", False),
        )
    if figures.cache_read:
        rows.append(
            (
                tr("Read from the provider's cache"),
                _format_saved_share(figures.cache_read_share),
                False,
            )
        )
    if round(figures.paid_before, 3):
        rows.append((tr("Cost before import or fork"), format_dollars(figures.paid_before), False))
    if figures.paid or figures.unpriced or round(agents_cost, 3):
        rows.append((tr("Cost so far"), format_dollars(figures.paid + agents_cost), False))
    if round(agents_cost, 3):
        rows.append((tr("Of this, sub-agents"), format_dollars(agents_cost), False))
    if figures.unpriced:
        rows.append(
            (tr("Not included: requests of unknown cost"), format_number(figures.unpriced), False)
        )
    if figures.paid > 0:
        if round(dollars := figures.paid_without - figures.paid, 6) > 0:
            share = _format_saved_share(dollars / figures.paid_without)
            rows.append((tr("Saved"), f"{share} · {format_dollars(dollars)}", True))
    elif (
        figures.sent and figures.saved_share > 0
    ):  # `sent` is 0 for a stopped reply, which reports no tokens.
        rows.append(
            (
                tr("Saved"),
                tr("{share} of the tokens", share=_format_saved_share(figures.saved_share)),
                True,
            )
        )
    return rows


def _format_saved_share(share: float) -> str:
    """Formats a share, never as 100 % unless it is all."""
    return format_percent(min(share, 1 if share >= 1 else 0.99))
