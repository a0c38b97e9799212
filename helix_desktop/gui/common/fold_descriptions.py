"""Describes a fold in the same words in the chat, the timeline and the inspector."""

from collections.abc import Sequence

from helix_desktop.engine.facts import Folded, FoldKind, ModelReplied, Recorded, Span, UserSaid
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.translation import format_count, format_number, tr, translate_name

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
    """Returns which agent compacted the conversation itself, and its word for what started that. Both empty for our folds."""
    agent, found, trigger = fold.why.partition(" compacted the conversation here")
    return (agent, trigger.strip(" ()")) if found else ("", "")


def fold_title(fold: Folded, folds: int = 1) -> str:
    if agent := split_agent_compaction(fold)[0]:
        return tr("Compaction by {agent}", agent=agent)
    if fold.kind is FoldKind.HANDOVER:
        return tr("Handover {n}", n=fold.number) if fold.number else tr("Handover")
    titles = {
        FoldKind.MARKER: format_count(
            folds, "Reduced {n} tool output to one line", "Reduced {n} tool outputs to one line each"
        ),
        FoldKind.EXCERPT: format_count(
            folds, "Shortened {n} tool output to an excerpt", "Shortened {n} tool outputs to excerpts"
        ),
        FoldKind.OBSERVATIONS: tr("Condensed older messages into a dated list of observations"),
        FoldKind.REFLECTION: tr("Merged the observations about older messages"),
        FoldKind.TRUNCATION: tr("Truncated"),
    }
    return titles.get(fold.kind, describe_fold_kind(fold.kind).capitalize())


def describe_fold_kind(kind: FoldKind) -> str:
    return translate_name("kind of fold", kind)


def count_covered_messages(fold: Folded, recorded: Sequence[Recorded]) -> int:
    """Counts the messages and replies that a fold covers. A span also contains other facts."""
    cover = fold.cover if isinstance(fold.cover, Span) else Span(fold.cover.seq, fold.cover.seq)
    return sum(isinstance(each.fact, UserSaid | ModelReplied) for each in recorded[cover.first - 1 : cover.last])


def format_token_change(before: int, after: int) -> str:
    return tr("{before} → {after} tokens", before=format_token_count(before), after=format_token_count(after))


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


def describe_fold(fold: Folded, folds: int = 1, before: int = 0, after: int = 0) -> str:
    """Describes a fold in one sentence across the chat. `before` and `after`: the tokens of all folds of the batch."""
    happened = {
        FoldKind.HANDOVER: tr("Older messages were replaced with a handover document"),
        FoldKind.MARKER: format_count(
            folds, "{n} older output was reduced to one line", "{n} older outputs were reduced to one line each"
        ),
        FoldKind.OBSERVATIONS: tr("Older messages were condensed into a dated list of observations"),
        FoldKind.REFLECTION: tr("The notes (observations) that replace older messages were merged"),
        FoldKind.TRUNCATION: tr("The oldest messages are no longer sent"),
    }.get(fold.kind, fold_title(fold, folds))
    if agent := split_agent_compaction(fold)[0]:
        happened = tr("{agent} compacted the conversation here", agent=agent)
    change = format_token_change(before or fold.tokens_before, after or fold.tokens)
    kept, found = fold.details.kept, fold.details.found
    if has_poor_summary(fold):
        title = fold_title(fold, folds)
        return tr("{title}: the model kept only {kept} of {found} details · {change}", title=title, kept=kept, found=found, change=change)  # fmt: skip
    if agent or fold.kind is FoldKind.TRUNCATION:
        return tr("{happened}: {change}. What was replaced stays here.", happened=happened, change=change)
    return tr("{happened}: {change}, and nothing was lost", happened=happened, change=change)
