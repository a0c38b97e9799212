"""Handover: a document with six sections takes the place of what it covers; a later one updates the earlier one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from helix_desktop.engine import budget, economics
from helix_desktop.engine.economics import Handover
from helix_desktop.engine.facts import FoldKind, ModelRole, ModelSet, Span
from helix_desktop.engine.strategies.plan import Plan, Situation, Strategy, foldable

TITLE = "[Conversation History Summary]"
SECTIONS = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)
EXPECTED = 3_000  # tokens of a document, until there is one to learn from
EARLY = 0.05  # of the window: how much before the reserve is touched
NOTHING = "Nothing to report."

FENCE = "```"
_AROUND = " \t#*_:.()0123456789"  # what models put around a heading


def due(situation: Situation) -> Plan | None:
    """A handover that the policy wants now: it pays, or the window is nearly full."""
    policy, branch, meter = situation.policy, situation.branch, situation.meter
    if policy.handover not in ("share", "pays"):
        return None
    full = meter.used >= latest(situation)
    if not full and (policy.handover == "share" or meter.used < floor(situation)):
        return None
    if (
        branch.last_handover and 0 <= situation.now - branch.last_handover < policy.handover_cooldown
    ):  # a clock may go back
        return None
    span = foldable(situation)
    if span is None or branch.count_messages(span, policy.handover_facts) < policy.handover_facts:
        return None
    if full:
        return Plan(FoldKind.HANDOVER, span, f"the window is {meter.utilization:.0%} full")
    return _when_it_pays(situation, span)


def latest(situation: Situation) -> float:
    """Where a handover is started at the latest: before the next request would not fit, so that no turn waits."""
    meter = situation.meter
    return min(situation.policy.handover_share * meter.window, meter.window - meter.reserve - meter.window * EARLY)


def floor(situation: Situation) -> float:
    """The context below which no handover is written for gain."""
    policy = situation.policy
    return economics.handover_floor(situation.meter.window, policy.handover_floor_tokens, policy.handover_floor_share)


def _when_it_pays(situation: Situation, span: Span) -> Plan | None:
    """Rent or buy: what was paid for carrying what it would cover has reached what a handover costs now."""
    price = budget.prices(situation.state.settings.model(ModelRole.MAIN))
    paid = economics.rent(round(situation.branch.carried(span.last + 1) * situation.meter.factor), price)
    costs = cost(situation, span)
    patience = economics.handover_patience(situation.meter.used, situation.meter.window)
    if not economics.handover_pays(paid, costs, patience):
        return None
    why = f"keeping these messages has cost {paid:,.0f} input tokens so far, and a handover would cost {costs:,.0f}"
    return Plan(FoldKind.HANDOVER, span, why)


def cost(situation: Situation, span: Span) -> float:
    """What a handover of the span costs now by the writer it would have, in input tokens of the main model."""
    by_main, by_fast = _costs(situation, span)
    return by_main if main_writes(situation, span) or by_fast is None else by_fast


def main_writes(situation: Situation, span: Span) -> bool:
    """Whether the main model is the one to write: chosen by the user, or the cheaper of the two."""
    by_main, by_fast = _costs(situation, span)
    if by_fast is None or situation.policy.handover_writer == "main":
        return True
    return situation.policy.handover_writer == "cheapest" and by_main <= by_fast


def _costs(situation: Situation, span: Span) -> tuple[float, float | None]:
    price = budget.prices(situation.state.settings.model(ModelRole.MAIN))
    tail = sum(item.tokens for item in situation.branch.tail(span.last + 1))
    planned = Handover(situation.meter.used, round(tail * situation.meter.factor), expected(situation))
    fast = situation.state.settings.model(ModelRole.FAST)
    if fast is None:
        return economics.handover_cost(planned, price), None
    by_fast = economics.handover_cost(planned, price, budget.prices(fast), scale=_scale(situation, fast))
    return economics.handover_cost(planned, price), by_fast


def _scale(situation: Situation, fast: ModelSet) -> float:
    """The fast model's input price as a share of the main model's; 1 where one of them is unknown."""
    main = situation.state.settings.model(ModelRole.MAIN)
    if main is None or main.price_input <= 0 or fast.price_input <= 0:
        return 1.0
    return fast.price_input / main.price_input


def expected(situation: Situation) -> int:
    """What a document will take: the mean of those there were."""
    branch = situation.branch
    mean = round(branch.handover_tokens / branch.handovers) if branch.handovers else EXPECTED
    return min(mean, situation.meter.window // 10)


# --- words -----------------------------------------------------------------------------------------------------------


def question(span: Span, tail: int, *, wish: str = "", limit: int = EXPECTED) -> str:
    """What the writer is asked, behind the conversation or its transcript."""
    names = "\n".join(f"## {name}" for name in SECTIONS)
    wanted = f"\nThe user asks to keep in particular: {wish}" if wish else ""
    return (
        f"Write a handover document about this conversation up to number {span.last}, which is all but its last {tail} "
        "steps, for a colleague who goes on with the work and sees only this document and these last steps. Do not "
        "call tools and do not go on with the work; answer with the document alone, in at most "
        f"{limit * 3 // 5} words, with exactly these six headings:\n{names}\n"
        "Be exact: paths, names, commands, values, error messages and decisions word for word. Give sources: the "
        "[number] of a message where numbers are shown, or a hash. State what the user demanded in the user's own "
        f"words. If there is an earlier summary, carry over what still holds.{wanted}"
    )


def question_for(missing: Sequence[str]) -> str:
    """Asked once, for the sections a first answer left out."""
    names = "\n".join(f"## {name}" for name in missing)
    return f"These sections of the handover document are missing. Answer with them alone:\n{names}"


def sections(text: str) -> dict[str, str]:
    """The document's sections by name; text under no known heading counts as Completed Work."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in _unfenced(text.splitlines()):
        heading = _section(line)
        if heading:
            name = heading
            found.setdefault(name, [])
        elif line.strip() and TITLE not in line:
            found.setdefault(name, []).append(line.rstrip())
    stray = found.pop("", [])
    if stray:
        found["Completed Work"] = [*stray, *found.get("Completed Work", [])]
    return {name: "\n".join(lines).strip() for name, lines in found.items()}


def _unfenced(lines: list[str]) -> list[str]:
    """Without the code fence that models put around a whole document; one that is open at its end was cut off."""
    begins = next((i for i, line in enumerate(lines) if _section(line)), 0)
    fences = [i for i, line in enumerate(lines) if line.startswith(FENCE)]
    if not fences or fences[0] > begins:
        return lines
    around = {fences[0], *(fences[-1:] if len(fences) % 2 == 0 else ())}
    return [line for i, line in enumerate(lines) if i not in around]


def in_form(text: str) -> bool:
    """Whether there is any of the six headings in it."""
    return any(_section(line) for line in text.splitlines())


def lacking(found: Mapping[str, str]) -> list[str]:
    """The sections that are not there or say nothing."""
    return [name for name in SECTIONS if not found.get(name)]


def _section(line: str) -> str:
    said = line.strip(_AROUND).casefold()
    return next((name for name in SECTIONS if name.casefold() == said), "")


def _asked(plan: Plan, limit: int, tail: int) -> str:
    return question(plan.span, tail, wish=plan.wish, limit=min(limit, EXPECTED))


STRATEGY = Strategy(
    FoldKind.HANDOVER, TITLE, due, foldable, _asked,
    name=lambda number: f"Handover {number}", sections=True, main_writes=main_writes,
)  # fmt: skip
