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
    agent, separator, trigger = fold.why.partition(" compacted the conversation here")
    if not separator:
        return "", ""
    return agent, trigger.strip(" ()")


def fold_title(fold: Folded, folds: int = 1) -> str:
    agent = split_agent_compaction(fold)[0]
    if agent:
        return tr("Compaction by {agent}", agent=agent)
    if fold.kind is FoldKind.HANDOVER and fold.number:
        return tr("Summary {n}", n=fold.number)
    if fold.kind is FoldKind.HANDOVER:
        return tr("Summary")
    title = _name_for_count("title of a fold", "title of folds", fold.kind, folds)
    return title or describe_fold_kind(fold.kind).capitalize()


def _name_for_count(one: str, several: str, kind: FoldKind, folds: int) -> str:
    """Returns the name in the table `one` or `several`. Some kinds have the second alone."""
    number = format_number(folds)
    name = ""
    if folds == 1:
        name = translate_name(one, kind, n=number)
    return name or translate_name(several, kind, n=number)


def describe_fold_kind(kind: FoldKind) -> str:
    return translate_name("kind of fold", kind)


def count_covered_messages(fold: Folded, recorded: Sequence[Recorded]) -> int:
    """Counts the messages and replies that a fold covers. A span also contains other facts."""
    cover = fold.cover
    if not isinstance(cover, Span):
        cover = Span(cover.seq, cover.seq)
    covered = recorded[cover.first - 1 : cover.last]
    return sum(isinstance(entry.fact, UserSaid | ModelReplied) for entry in covered)


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
    before = before or fold.tokens_before
    after = after or fold.tokens
    if not split_agent_compaction(fold)[0]:
        return format_token_change(before, after)
    # The agent may have recorded the request for its summary as a step. It is smaller
    # than the one before.
    earlier_requests = _reported_requests(recorded, range(seq - 2, -1, -1))
    request_before = max(islice(earlier_requests, 2), default=0)
    request_after = next(_reported_requests(recorded, range(seq, len(recorded))), 0)
    if request_before and request_after:
        return format_token_change(request_before, request_after)
    words_before = f"≈ {format_token_count(before)}"
    if request_before:
        words_before = format_token_count(request_before)
    estimate_after = max(after, request_before - before + after)
    words_after = f"≈ {format_token_count(estimate_after)}"
    return tr("{before} → {after} tokens", before=words_before, after=words_after)


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
    details = fold.details
    if not details.found:
        return ""
    found = format_number(details.found)
    if has_poor_summary(fold):
        kept = format_number(details.kept)
        return tr("the model kept {kept} of {found} details", kept=kept, found=found)
    kept = format_number(details.kept + details.added)
    return tr("important details in the text: {kept} of {found}", kept=kept, found=found)


def describe_fold(fold: Folded, folds: int = 1, change: str = "") -> str:
    """Describes a fold in one sentence across the chat. `change`: the tokens before and
    after all folds of the batch.
    """
    change = change or format_token_change(fold.tokens_before, fold.tokens)
    if has_poor_summary(fold):
        return tr(
            "{title}: the model kept only {kept} of {found} details · {change}",
            title=fold_title(fold, folds),
            kept=fold.details.kept,
            found=fold.details.found,
            change=change,
        )
    agent = split_agent_compaction(fold)[0]
    if agent:
        happened = tr("{agent} compacted the conversation here", agent=agent)
    else:
        happened = _name_for_count("what a fold did", "what folds did", fold.kind, folds)
        happened = happened or fold_title(fold, folds)
    if agent or fold.kind is FoldKind.TRUNCATION:
        return tr(
            "{happened}: {change}. What was replaced stays here.", happened=happened, change=change
        )
    return tr("{happened}: {change}, and nothing was lost", happened=happened, change=change)
