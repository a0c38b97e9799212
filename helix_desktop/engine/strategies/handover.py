"""Handover: a document with six sections replaces what it covers. Later ones update
earlier ones.
"""

from collections.abc import Mapping, Sequence

from helix_desktop.engine import context_usage, fold_economics
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet, Span
from helix_desktop.engine.fold_economics import HandoverPlan
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.prompt_cache_terms import prices_of_main_model
from helix_desktop.engine.strategies.fold_strategy import (
    FoldPlan,
    FoldSituation,
    FoldStrategy,
    find_foldable_span,
)
from helix_desktop.engine.strategies.markers import measure_fold_experience

TITLE = "[Conversation History Summary]"
SECTIONS = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)
EXPECTED_TOKENS = 3_000  # The expected number of tokens in a document, until one has been written.
SHARE_BEFORE_PAUSE = 0.4  # Before a pause, a handover needs only this share of the usual context.
NOTHING_TO_REPORT = "Nothing to report."
FENCE = "```"  # Models often wrap a whole document in such fences, which are removed.
_HEADING_MARKS = " \t#*_:.()0123456789"  # Characters that models put around headings.


def find_due_handover(situation: FoldSituation) -> FoldPlan | None:
    """Return a plan if the policy wants a handover now: it pays, or the window is almost full."""
    policy = situation.policy
    meter = situation.meter
    if not is_handover_allowed(situation):
        return None
    is_full = meter.used >= context_usage.tokens_at_which_handover_must_start(meter, policy)
    is_large = meter.used >= least_tokens_for_paying_handover(situation)
    may_pay = policy.handover == "pays" and is_large
    if not is_full and not may_pay:
        return None
    span = find_foldable_span(situation)
    if span is None or _covers_too_few_messages(situation, span):
        return None
    if not is_full:
        return _handover_that_pays(situation, span)
    if meter.used_share > 1:
        why = "the next request is too long for this model"
    else:
        why = f"the context window is {meter.used_share:.0%} full"
    return FoldPlan(FoldKind.HANDOVER, span, why)


def is_handover_allowed(situation: FoldSituation) -> bool:
    """Whether the policy wants summaries, and there was none a short time ago."""
    is_wanted = situation.policy.handover in ("share", "pays")
    return is_wanted and not _is_cooling_down(situation)


def _covers_too_few_messages(situation: FoldSituation, span: Span) -> bool:
    fewest = situation.policy.handover_facts
    return situation.branch.count_messages(span, fewest) < fewest


def _is_cooling_down(situation: FoldSituation) -> bool:
    """Whether the policy does not want another summary so soon after the last one."""
    last_handover = situation.branch.last_handover
    if last_handover <= 0:
        return False
    # The difference is negative if the computer's clock has been set back.
    seconds_since = situation.now - last_handover
    return 0 <= seconds_since < situation.policy.handover_cooldown


def least_tokens_for_paying_handover(situation: FoldSituation) -> float:
    """Return from which size a handover may pay. Before a pause, less is enough."""
    policy = situation.policy
    least = fold_economics.least_context_for_handover(
        situation.meter.window, policy.handover_floor_tokens, policy.handover_floor_share
    )
    if not situation.is_pausing:
        return least
    return min(least, policy.handover_floor_tokens * SHARE_BEFORE_PAUSE)


def _handover_that_pays(situation: FoldSituation, span: Span) -> FoldPlan | None:
    """Plan a handover once carrying its span has cost as much as the handover would.

    Carrying means to send messages again with each step. All costs are in input tokens: a cost of
    1,000 is what 1,000 input tokens cost that are not cached.
    """
    prices = prices_of_main_model(situation.state)
    branch = situation.branch
    factor = situation.meter.factor
    first_kept = span.last + 1
    tokens_kept = sum(item.tokens for item in branch.items_from_fact(first_kept))
    covered_tokens = round((branch.total_tokens - tokens_kept) * factor)
    tokens_carried_so_far = round(branch.carried_token_steps(first_kept) * factor)
    paid_so_far = fold_economics.carrying_cost(tokens_carried_so_far, prices)
    freed_tokens = covered_tokens - expected_document_tokens(situation)
    saved_by_step = fold_economics.carrying_cost(freed_tokens, prices)

    writing_cost = expected_fold_cost(situation, span)
    if situation.is_pausing:
        rewriting_cost = fold_economics.expected_rewriting_cost(freed_tokens, prices)
        # After the pause all is written again anyway, so there is less to repay.
        payback_share = fold_economics.PAYBACK_SHARE
    else:
        rewriting_cost = 0.0
        payback_share = fold_economics.HANDOVER_PAYBACK_SHARE
    whole_cost = writing_cost + _expected_recalls_cost(situation) - rewriting_cost
    experience = measure_fold_experience(situation)
    if not fold_economics.handover_pays(
        paid_so_far, saved_by_step, whole_cost, experience, payback_share
    ):
        return None
    why = f"keeping these messages has cost {paid_so_far:,.0f} input tokens so far, and a summary would cost {writing_cost:,.0f}"
    if rewriting_cost:
        why += "; after this pause, they would have to be written to the provider's cache again"
    return FoldPlan(FoldKind.HANDOVER, span, why)


def _expected_recalls_cost(situation: FoldSituation) -> float:
    """Return what the recalls that a summary leads to cost by a system prompt and tools of more
    than the usual size, which each of them sends once more.
    """
    system_tokens = situation.meter.parts[ContextKind.SYSTEM]
    unusual_tokens = max(0, system_tokens - fold_economics.USUAL_SETTINGS_TOKENS)
    return fold_economics.carrying_cost(
        fold_economics.RECALLS_OF_HANDOVER * unusual_tokens, prices_of_main_model(situation.state)
    )


def should_main_model_write(situation: FoldSituation, span: Span) -> bool:
    """Whether the main model writes, because the user chose that or it is cheaper."""
    by_main, by_fast = _costs_by_main_and_fast_model(situation, span)
    if by_fast is None or situation.policy.handover_writer == "main":
        return True
    return situation.policy.handover_writer == "cheapest" and by_main <= by_fast


def expected_fold_cost(situation: FoldSituation, span: Span) -> float:
    """Return a fold's cost in fresh input tokens: writing it, and caching what follows again."""
    by_main, by_fast = _costs_by_main_and_fast_model(situation, span)
    if by_fast is not None and not should_main_model_write(situation, span):
        return by_fast
    return by_main


def most_expected_writing_cost(
    situation: FoldSituation, span: Span, most_tokens: int, *, of_transcript: bool, is_cold: bool
) -> float:
    """Return what the request for a fold's document costs in fresh input tokens if the document
    is as long as it may be. `of_transcript` and `is_cold`: nothing is cached.
    """
    main_prices = prices_of_main_model(situation.state)
    plan = HandoverPlan(context=situation.meter.used, stays=0, summary=most_tokens)
    fast_model = situation.state.settings.model_for_role(ModelRole.FAST)
    is_written_by_main = not of_transcript and should_main_model_write(situation, span)
    if fast_model is not None and not is_written_by_main:
        fast_prices = fold_economics.relative_prices(fast_model)
        scale = _fast_price_share(situation, fast_model)
        return fold_economics.document_writing_cost(plan, main_prices, fast_prices, scale=scale)
    if of_transcript or is_cold:
        return fold_economics.document_writing_cost(plan, main_prices, main_prices)
    return fold_economics.document_writing_cost(plan, main_prices)


def _costs_by_main_and_fast_model(
    situation: FoldSituation, span: Span
) -> tuple[float, float | None]:
    """Return what a fold costs if each of them writes it; None if there is no fast model."""
    meter = situation.meter
    main_prices = prices_of_main_model(situation.state)
    items_kept = situation.branch.items_from_fact(span.last + 1)
    tokens_kept = sum(item.tokens for item in items_kept)
    plan = HandoverPlan(
        context=meter.used,
        stays=round(tokens_kept * meter.factor),
        summary=expected_document_tokens(situation),
    )
    by_main = fold_economics.handover_cost(plan, main_prices)

    fast_model = situation.state.settings.model_for_role(ModelRole.FAST)
    if fast_model is None:
        return by_main, None
    fast_prices = fold_economics.relative_prices(fast_model)
    scale = _fast_price_share(situation, fast_model)
    by_fast = fold_economics.handover_cost(plan, main_prices, fast_prices, scale=scale)
    return by_main, by_fast


def _fast_price_share(situation: FoldSituation, fast: ModelSet) -> float:
    """Return the fast model's input price as a share of the main model's, or 1 if unknown."""
    main = situation.state.settings.model_for_role(ModelRole.MAIN)
    if main is None or main.price_input <= 0 or fast.price_input <= 0:
        return 1.0
    return fast.price_input / main.price_input


def expected_document_tokens(situation: FoldSituation) -> int:
    """Return the handovers' mean size, or the usual size, up to a tenth of the window."""
    branch = situation.branch
    expected = EXPECTED_TOKENS
    if branch.handovers:
        expected = round(branch.handover_tokens / branch.handovers)
    return min(expected, situation.meter.window // 10)


def handover_question(plan: FoldPlan, limit: int, tail: int) -> str:
    """Return the question for the writer, which follows the conversation or its transcript."""
    names = "\n".join(f"## {name}" for name in SECTIONS)
    return (
        f"Write a handover document about this conversation up to number {plan.span.last}, which is all but its last {tail} "
        "steps, for a colleague who goes on with the work and sees only this document and these last steps. Do not "
        "call tools and do not go on with the work; answer with the document alone, in at most "
        f"{min(limit, EXPECTED_TOKENS) * 3 // 5} words, with exactly these six headings:\n{names}\n"
        "Be exact: paths, names, commands, values, error messages and decisions word for word. Give sources: the "
        "[number] of a message where numbers are shown, or a hash. State what the user demanded in the user's own "
        f"words. If there is an earlier summary, carry over what still holds.{plan.sentence_of_wish}"
    )


def missing_sections_question(missing: Sequence[str]) -> str:
    """Return the question for sections missing in a first answer, asked once."""
    names = "\n".join(f"## {name}" for name in missing)
    return f"These sections of the handover document are missing. Answer with them alone:\n{names}"


def split_handover_sections(text: str) -> dict[str, str]:
    """Split the document that a model wrote into its sections.

    Text before the first known heading counts as Completed Work.
    """
    lines_by_section: dict[str, list[str]] = {}
    section = ""
    for line in _strip_code_fence(text.splitlines()):
        section_of_heading = _section_of_heading(line)
        if section_of_heading:
            section = section_of_heading
            lines_by_section.setdefault(section, [])
        elif line.strip() and TITLE not in line:
            lines_by_section.setdefault(section, []).append(line.rstrip())
    lines_without_heading = lines_by_section.pop("", [])
    if lines_without_heading:
        lines_of_completed_work = lines_by_section.get("Completed Work", [])
        lines_by_section["Completed Work"] = lines_without_heading + lines_of_completed_work
    return {name: "\n".join(lines).strip() for name, lines in lines_by_section.items()}


def _strip_code_fence(lines: list[str]) -> list[str]:
    """Remove a code fence around the document: one that begins before its first heading.

    If the fence's end is missing, because the document was cut off, only its beginning goes.
    """
    headings = [number for number, line in enumerate(lines) if _section_of_heading(line)]
    fences = [number for number, line in enumerate(lines) if line.startswith(FENCE)]
    first_heading = min(headings, default=0)
    if not fences or fences[0] > first_heading:
        return lines
    fences_of_document = {fences[0]}
    # Of an odd number of fences, the one that would close the document is missing.
    if len(fences) % 2 == 0:
        fences_of_document.add(fences[-1])
    return [line for number, line in enumerate(lines) if number not in fences_of_document]


def has_handover_heading(text: str) -> bool:
    return any(_section_of_heading(line) for line in text.splitlines())


def find_missing_sections(sections: Mapping[str, str]) -> list[str]:
    return [name for name in SECTIONS if not sections.get(name)]


def _section_of_heading(line: str) -> str:
    """Return the section that a line is the heading of, or nothing."""
    words = line.strip(_HEADING_MARKS).casefold()
    for name in SECTIONS:
        if name.casefold() == words:
            return name
    return ""


STRATEGY = FoldStrategy(
    FoldKind.HANDOVER,
    TITLE,
    find_due_handover,
    find_foldable_span,
    handover_question,
    name=lambda number: f"Handover {number}",
    sections=True,
    main_writes=should_main_model_write,
)
