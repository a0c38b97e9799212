"""Describes a fold in the same words in the chat, the timeline and the inspector."""

from collections.abc import Iterator, Sequence
from itertools import islice

from helix_desktop.engine.facts import (
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    Span,
    ToolsOffered,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.translation import format_number, tr, translate_name

KIND: dict[FoldKind, ContextKind] = {
    FoldKind.MARKER: ContextKind.OUTPUT,
    FoldKind.EXCERPT: ContextKind.OUTPUT,
    FoldKind.HANDOVER: ContextKind.HANDOVER,
    FoldKind.TRUNCATION: ContextKind.HANDOVER,
}


def context_kind_of_fold(kind: FoldKind) -> ContextKind:
    """Returns the kind of context whose colour a fold has; that of observations by default."""
    return KIND.get(kind, ContextKind.OBSERVATIONS)


def split_agent_compaction(fold: Folded) -> tuple[str, str]:
    """Returns which agent compacted the conversation itself, and its word for what
    started that. Both empty for our folds.
    """
    agent, found, trigger = fold.why.partition(" compacted the conversation here")
    return (agent, trigger.strip(" ()")) if found else ("", "")


def fold_title(fold: Folded, folds: int = 1) -> str:
    if agent := split_agent_compaction(fold)[0]:
        return tr("Compaction by {agent}", agent=agent)
    if fold.kind is FoldKind.HANDOVER:
        return tr("Handover {n}", n=fold.number) if fold.number else tr("Handover")
    one, n = "title of a fold" if folds == 1 else "title of folds", format_number(folds)
    found = translate_name(one, fold.kind, n=n) or translate_name("title of folds", fold.kind, n=n)
    return found or describe_fold_kind(fold.kind).capitalize()


def describe_fold_kind(kind: FoldKind) -> str:
    return translate_name("kind of fold", kind)


def count_covered_messages(fold: Folded, recorded: Sequence[Recorded]) -> int:
    """Counts the messages and replies that a fold covers. A span also contains other facts."""
    cover = fold.cover if isinstance(fold.cover, Span) else Span(fold.cover.seq, fold.cover.seq)
    return sum(
        isinstance(each.fact, UserSaid | ModelReplied)
        for each in recorded[cover.first - 1 : cover.last]
    )


def format_token_change(before: int, after: int) -> str:
    return tr(
        "{before} → {after} tokens",
        before=format_token_count(before),
        after=format_token_count(after),
    )


def describe_token_change(
    fold: Folded, recorded: Sequence[Recorded], seq: int, before: int = 0, after: int = 0
) -> str:
    """Describes how many tokens a fold, the fact `seq`, replaced and by how many.

    For an agent's own compaction: what its requests before and after took. Its
    conversation alone says less than half, because it lacks the agent's tools. What is
    not measured is marked as an estimate.
    """
    before, after = before or fold.tokens_before, after or fold.tokens
    if not split_agent_compaction(fold)[0]:
        return format_token_change(before, after)
    # The agent may have recorded the request for its summary as a step. It is smaller
    # than the one before.
    sent = max(islice(_reported_requests(recorded, range(seq - 2, -1, -1)), 2), default=0)
    then = next(_reported_requests(recorded, range(seq, len(recorded))), 0)
    if sent and then:
        return format_token_change(sent, then)
    less = max(after, sent - before + after)
    first, last = (
        (format_token_count(sent) if sent else f"≈ {format_token_count(before)}"),
        format_token_count(less),
    )
    return tr("{before} → {after} tokens", before=first, after=f"≈ {last}")


def _reported_requests(recorded: Sequence[Recorded], places: range) -> Iterator[int]:
    """Yields the tokens of the agent's requests at these places, up to its next
    compaction or our next request.
    """
    for place in places:
        fact = recorded[place].fact
        if isinstance(fact, ToolsOffered) or (
            isinstance(fact, Folded) and split_agent_compaction(fact)[0]
        ):
            return
        if isinstance(fact, ModelReplied) and fact.usage.input > 0:
            yield fact.usage.input


def has_poor_summary(fold: Folded) -> bool:
    """Whether a model wrote the folded text and left out more than half of the details."""
    by_model = bool(fold.model or split_agent_compaction(fold)[0])
    return by_model and fold.details.kept < fold.details.found / 2


def describe_kept_details(fold: Folded) -> str:
    """Says how many details the model still sees in the folded text. Empty if none were found."""
    details, found = fold.details, format_number(fold.details.found)
    if has_poor_summary(fold):
        kept = format_number(details.kept)
        return tr("the model kept {kept} of {found} details", kept=kept, found=found)
    kept = format_number(details.kept + details.added)
    words = tr("important details in the text: {kept} of {found}", kept=kept, found=found)
    return words if details.found else ""


def describe_fold(fold: Folded, folds: int = 1, change: str = "") -> str:
    """Describes a fold in one sentence across the chat. `change`: the tokens before and
    after all folds of the batch.
    """
    one, n = "what a fold did" if folds == 1 else "what folds did", format_number(folds)
    happened = translate_name(one, fold.kind, n=n) or translate_name(
        "what folds did", fold.kind, n=n
    )
    happened = happened or fold_title(fold, folds)
    if agent := split_agent_compaction(fold)[0]:
        happened = tr("{agent} compacted the conversation here", agent=agent)
    change = change or format_token_change(fold.tokens_before, fold.tokens)
    kept, found = fold.details.kept, fold.details.found
    if has_poor_summary(fold):
        title = fold_title(fold, folds)
        return tr("{title}: the model kept only {kept} of {found} details · {change}", title=title, kept=kept, found=found, change=change)  # fmt: skip
    if agent or fold.kind is FoldKind.TRUNCATION:
        return tr(
            "{happened}: {change}. What was replaced stays here.", happened=happened, change=change
        )
    return tr("{happened}: {change}, and nothing was lost", happened=happened, change=change)
