"""Describes a fold in the same words in the chat, the timeline and the inspector."""

import re
from collections.abc import Container, Sequence

from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    Span,
    ToolsOffered,
    UserSaid,
)
from helix_desktop.engine.fold_kinds import FOLD_KINDS, FoldGroup
from helix_desktop.engine.messages import ContextKind
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.translation import format_number, tr, translate_name
from helix_desktop.histories.program_names import COMPACTED_HERE

_CONTEXT_KINDS: dict[FoldGroup, ContextKind] = {
    FoldGroup.LINE: ContextKind.OUTPUT,
    FoldGroup.EXCERPT: ContextKind.OUTPUT,
    FoldGroup.NOTES: ContextKind.OBSERVATIONS,
    FoldGroup.SUMMARY: ContextKind.HANDOVER,
}


_REASON_THAT_BEGINS_WITH_NAME = re.compile(
    r"^(?!the attachment “)(.+): ([\d,]+ tokens, over \d+% of the context window)$", re.DOTALL
)


def context_kind_of_fold(kind: FoldKind) -> ContextKind:
    """Returns the kind of context whose colour a fold has."""
    return _CONTEXT_KINDS[FOLD_KINDS[kind].group]


def split_agent_compaction(fold: Folded) -> tuple[str, str]:
    """Returns which agent compacted the conversation itself, and its word for what
    started that. Both empty for our folds.
    """
    agent, separator, trigger = fold.why.partition(COMPACTED_HERE)
    if not separator:
        return "", ""
    return agent, trigger.strip(" ()")


def fold_title(fold: Folded, fold_count: int = 1) -> str:
    agent, _trigger = split_agent_compaction(fold)
    if agent:
        return tr("Compaction by {agent}", agent=agent)
    if fold.kind is FoldKind.HANDOVER and fold.number:
        return tr("Summary {n}", n=fold.number)
    if fold.kind is FoldKind.HANDOVER:
        return tr("Summary")
    title = _name_for_count("title of a fold", "title of folds", fold.kind, fold_count)
    return title or describe_fold_kind(fold.kind).capitalize()


def _name_for_count(table_for_one: str, table_for_several: str, kind: FoldKind, count: int) -> str:
    """Returns the name in one of two tables. Some kinds have a name in the second alone."""
    number = format_number(count)
    name = ""
    if count == 1:
        name = translate_name(table_for_one, kind, n=number)
    return name or translate_name(table_for_several, kind, n=number)


def select_counted_folds(folds: Sequence[Folded], live: Container[str]) -> Sequence[Folded]:
    """Returns the folds of a line that its number and sizes are of: those in force. All of them if
    the line is struck through, because nothing of the first one's kind is in force.
    """
    in_force = [fold for fold in folds if fold.fold in live]
    if any(fold.kind is folds[0].kind for fold in in_force):
        return in_force
    return folds


def describe_fold_kind(kind: FoldKind) -> str:
    return translate_name("kind of fold", kind)


def count_covered_messages(fold: Folded, recorded: Sequence[Recorded]) -> int:
    """Counts the messages and replies that a fold covers. A span also contains other facts."""
    cover = fold.cover
    if not isinstance(cover, Span):
        cover = Span(cover.seq, cover.seq)
    count = 0
    for entry in recorded[cover.first - 1 : cover.last]:
        if isinstance(entry.fact, UserSaid | ModelReplied):
            count += 1
    return count


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
    tokens_before = before or fold.tokens_before
    tokens_after = after or fold.tokens
    agent, _trigger = split_agent_compaction(fold)
    if not agent:
        return format_token_change(tokens_before, tokens_after)

    # The agent may have recorded the request for its summary as a step. It is smaller
    # than the one before.
    earlier_places = range(seq - 2, -1, -1)  # The fact `seq` stands at the place before.
    later_places = range(seq, len(recorded))
    request_before = max(_reported_requests(recorded, earlier_places, most=2), default=0)
    request_after = max(_reported_requests(recorded, later_places, most=1), default=0)
    if request_before and request_after:
        return format_token_change(request_before, request_after)

    words_before = f"≈ {format_token_count(tokens_before)}"
    if request_before:
        words_before = format_token_count(request_before)
    estimate_after = max(tokens_after, request_before - tokens_before + tokens_after)
    words_after = f"≈ {format_token_count(estimate_after)}"
    return tr("{before} → {after} tokens", before=words_before, after=words_after)


def _reported_requests(recorded: Sequence[Recorded], places: range, *, most: int) -> list[int]:
    """Returns the tokens of the agent's first requests at these places, up to its next
    compaction or our next request.
    """
    tokens: list[int] = []
    for place in places:
        fact = recorded[place].fact
        if _ends_requests_of_agent(fact) or len(tokens) == most:
            break
        if isinstance(fact, ModelReplied) and fact.usage.input > 0:
            tokens.append(fact.usage.input)
    return tokens


def _ends_requests_of_agent(fact: Fact) -> bool:
    if isinstance(fact, ToolsOffered):
        return True
    if not isinstance(fact, Folded):
        return False
    agent, _trigger = split_agent_compaction(fact)
    return bool(agent)


def has_poor_summary(fold: Folded) -> bool:
    """Whether a model wrote the folded text and more than half of the details are not in it, even
    after the program added what it could.
    """
    agent, _trigger = split_agent_compaction(fold)
    is_written_by_model = bool(fold.model or agent)
    details_in_text = fold.details.kept + fold.details.added
    return is_written_by_model and details_in_text < fold.details.found / 2


def describe_kept_details(fold: Folded) -> str:
    """Says how many details the model still sees in the folded text. Empty if none were found."""
    details = fold.details
    if not details.found:
        return ""
    found = format_number(details.found)
    kept = format_number(details.kept + details.added)
    if has_poor_summary(fold):
        return tr(
            "only {kept} of {found} important details are in the text", kept=kept, found=found
        )
    return tr("important details in the text: {kept} of {found}", kept=kept, found=found)


def describe_reason(fold: Folded) -> str:
    """Returns why the fold was made, as a sentence. Empty if that was not recorded."""
    # Earlier versions began with the attachment's name, which got a capital letter.
    why = _REASON_THAT_BEGINS_WITH_NAME.sub(r"the attachment “\1” has \2", fold.why)
    reason = translate_sentences(why).strip()
    if not reason:
        return ""
    reason = reason[0].upper() + reason[1:]
    if reason[-1] in ".!?。":
        return reason
    return tr("{words}.", words=reason)


def describe_fold(fold: Folded, fold_count: int = 1, change: str = "") -> str:
    """Describes a fold in one sentence across the chat. `change`: the tokens before and
    after all folds of the batch.
    """
    change = change or format_token_change(fold.tokens_before, fold.tokens)
    if has_poor_summary(fold):
        return tr(
            "{title}: {details} · {change}",
            title=fold_title(fold, fold_count),
            details=describe_kept_details(fold),
            change=change,
        )
    agent, _trigger = split_agent_compaction(fold)
    if agent:
        happened = tr("{agent} compacted the conversation here", agent=agent)
    else:
        happened = _name_for_count("what a fold did", "what folds did", fold.kind, fold_count)
    if not happened:
        happened = fold_title(fold, fold_count)
    # Not "nothing was lost": of the important details, a summary may have only most.
    return tr(
        "{happened}: {change}. What was replaced stays here.", happened=happened, change=change
    )
