"""Describes folds in sentences and splits their documents. No widgets."""

import re
from collections.abc import Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.answer_author import agent_of_conversation
from helix_desktop.gui.common import fold_descriptions
from helix_desktop.gui.common.figure_formats import DAY_SECONDS, format_dollars, format_duration
from helix_desktop.gui.common.fold_descriptions import count_covered_messages, describe_token_change
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.sentence_translation import translate_sentences
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, TimelineEvent
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.translation import format_count, tr
from helix_desktop.histories.program_names import SHOWN_BY_OTHER

MAX_NAMED_CALLS = 2  # The maximum number of calls that a title names.
LEAST_DOLLARS = 0.0005  # In dollars. Smaller amounts are not mentioned.
LONGEST_LINE, MARK_LINES = (
    90,
    3,
)  # The maximum number of characters in a tooltip's line, and of lines in a tooltip.

_HEADING = re.compile(r"^#{1,3}[ \t]+(.+?)[ \t]*#*$")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_SOURCE = re.compile(r"\[(\d{1,7})\](?!\()")


def describe_event_title(event: TimelineEvent) -> str:
    """Returns the title of an event in the list; an excerpt is named by its call."""
    if not event.current_folds:
        begun = event.history.facts[event.seq - 1].fact
        is_fork = isinstance(begun, facts.ConversationStarted) and begun.forked_from
        return tr("Fork created") if is_fork else tr("Conversation started")
    if event.fold_kind is facts.FoldKind.EXCERPT and (named := _name_covered_calls(event)):
        more = len(event.current_folds) - len(named)
        rest = format_count(more, "and {n} more", "and {n} more") if more else ""
        what = " ".join(filter(None, [", ".join(named), rest]))
        if agent := _agent_that_shortened_output(event):
            return tr("Excerpt by {agent}: {what}", agent=agent, what=what)
        return tr("Excerpt: {what}", what=what)
    return fold_descriptions.fold_title(event.current_folds[0], len(event.current_folds))


def _agent_that_shortened_output(event: TimelineEvent) -> str:
    """Returns the agent that showed its model an excerpt itself; empty if the excerpt is ours."""
    is_agents = event.made_folds[0].why == SHOWN_BY_OTHER
    return agent_of_conversation(event.history.facts) or tr("Agent") if is_agents else ""


def _name_covered_calls(event: TimelineEvent) -> list[str]:
    """Names the calls or attachments that an event's folds cover, as many as fit in a title."""
    covers = [fold.cover for fold in event.made_folds[:MAX_NAMED_CALLS]]
    names = [name_covered_part(event, ref) for ref in covers if isinstance(ref, facts.PartRef)]
    return list(filter(None, names))


def name_covered_part(event: TimelineEvent, ref: facts.PartRef) -> str:
    """Names what a fold covers: a call by its line, an attachment by its name. Empty
    for anything else.
    """
    recorded_facts = event.history.facts
    fact = recorded_facts[ref.seq - 1].fact if 0 < ref.seq <= len(recorded_facts) else None
    if isinstance(fact, facts.UserSaid):
        part = fact.parts[ref.part] if ref.part < len(fact.parts) else None
        return part.name if isinstance(part, facts.Attachment) else tr("your message")
    answered = event.history.record.answered.get(ref.seq)
    return format_call(answered.call.name, answered.call.arguments) if answered else ""


def describe_event_briefly(event: TimelineEvent, window: int) -> str:
    """Returns the second line of the list."""
    if not event.current_folds:
        begun = [
            one.fact for one in event.history.facts[:20] if isinstance(one.fact, facts.ModelSet)
        ]
        then = (fact.window for fact in begun if fact.role is facts.ModelRole.MAIN)
        window = window and next(
            filter(None, then), window
        )  # As it was when the conversation began.
        named = tr("{name} preset", name=event.words) if event.words else ""
        parts = [
            dict(list_policy_choices()).get(event.words, named),
            tr("{n} context window", n=format_token_count(window)) if window else "",
        ]
        return " · ".join(part for part in parts if part)
    fold = event.current_folds[0]
    parts = [_describe_change_of_event(event), describe_saving(event)]
    if fold.kind is facts.FoldKind.EXCERPT:
        parts.append(
            tr("kept: “{words}”", words=fold.asked[:60]) if fold.asked else tr("excerpt kept")
        )
    elif fold.kind in (facts.FoldKind.OBSERVATIONS, facts.FoldKind.REFLECTION):
        notes, high = fold.text.count("\n- "), fold.text.count("!!!")
        parts.append(
            format_count(notes, "{n} note", "{n} notes") + ", " + tr("{n} high priority", n=high)
        )
    elif fold.kind is not facts.FoldKind.MARKER:
        parts += [
            format_count(
                count_covered_messages(fold, event.history.facts), "{n} message", "{n} messages"
            ),
            fold_descriptions.describe_kept_details(fold),
        ]
    return " · ".join(part for part in parts if part)


def _describe_change_of_event(event: TimelineEvent) -> str:
    before, after = event.tokens_before_folds, event.tokens_after_folds
    return describe_token_change(
        event.current_folds[0], event.history.facts, event.seq, before, after
    )


def describe_saving(event: TimelineEvent) -> str:
    """Describes what the folds of an event have saved until now, in money if prices are known."""
    dollars, tokens = event.saved_dollars, round(event.saved_tokens)
    if abs(dollars) < LEAST_DOLLARS if dollars else tokens <= 0:
        return ""
    if dollars <= -LEAST_DOLLARS:
        return tr("cost {amount} so far", amount=format_dollars(-dollars))
    if dollars >= LEAST_DOLLARS:
        return tr("saved {amount} so far", amount=format_dollars(dollars))
    return tr("saved {n} tokens so far", n=format_token_count(tokens))


def describe_timeline(story: ConversationTimeline, agents: float = 0.0) -> str:
    """`agents`: the dollars that sub-agents have cost."""
    if not story.points:
        return ""
    seconds = story.times[-1] - story.times[0]
    parts = [
        format_count(round(seconds / DAY_SECONDS), "{n} day", "{n} days")
        if seconds >= 1.5 * DAY_SECONDS
        else format_duration(seconds),
        format_count(story.steps[-1], "{n} step", "{n} steps"),
    ]
    paid, before = story.costs_at_point(-1)
    is_before = round(before, 3) and not round(paid, 3)
    paid, before = (0.0, before + agents) if is_before else (paid + agents, before)
    if paid:
        parts.append(format_dollars(paid))
    elif lacks_price(story.history):
        parts.append(tr("the price is not known"))
    return ", ".join([*parts, *_describe_earlier_cost(before)])


def describe_costs_at_point(story: ConversationTimeline, point: int) -> str:
    paid, before = story.costs_at_point(point)
    here = [tr("{cost} so far", cost=format_dollars(paid))] if paid else []
    return ", ".join([*here, *_describe_earlier_cost(before)])


def _describe_earlier_cost(before: float) -> list[str]:
    cost = format_dollars(before)
    return [tr("{cost} before import or fork", cost=cost)] if round(before, 3) else []


def describe_marked_fact(history: ConversationState, seq: int) -> str:
    fact = history.facts[seq - 1].fact
    match fact:
        case facts.UserSaid(parts=parts):
            names = (part.name for part in parts if isinstance(part, facts.Attachment))
            words = " ".join(filter(None, [split_off_agent_additions(parts)[0], *names]))
        case facts.FilesChanged(names=names, files=files):
            rest = (
                format_count(files - len(names), "and {n} more", "and {n} more")
                if files > len(names)
                else ""
            )
            words = " ".join(filter(None, [", ".join(names), rest]))
        case facts.ToolReturned(ok=True, changes=(_, *_) as changes):
            words = ", ".join(change.path for change in changes)
        case facts.ToolReturned(head=head):
            answered = history.record.answered.get(seq)
            words = f"{format_call(answered.call.name, answered.call.arguments) if answered else ''}\n{head}"
        case facts.TurnEnded(why=why):
            words = translate_sentences(why)
        case _:
            return ""
    return make_safe_text(
        "\n".join(line[:LONGEST_LINE] for line in words.strip().splitlines()[:MARK_LINES])
    )


def describe_fold_figures(event: TimelineEvent) -> str:
    fold = event.current_folds[0]
    parts = [_describe_change_of_event(event)]
    if fold.kind not in (facts.FoldKind.MARKER, facts.FoldKind.EXCERPT):
        parts.append(
            format_count(
                count_covered_messages(fold, event.history.facts), "{n} message", "{n} messages"
            )
        )
    if fold.seconds:
        parts.append(format_duration(fold.seconds))
    agent, trigger = fold_descriptions.split_agent_compaction(fold)
    if agent:
        parts.append(
            {"manual": tr("requested by the user"), "auto": tr("automatic")}.get(trigger, trigger)
        )
        if fold.fold in event.history.branch.barred.values():
            undone = tr(
                "undone only here; choose “Continue in {agent}…” to go on with all messages in it",
                agent=agent,
            )
            parts.append(undone)
    elif not _agent_that_shortened_output(event):
        parts.append(fold.model or tr("no model"))
        parts.append(
            tr("because the request would not fit") if fold.panic else tr("in the background")
        )
    return " · ".join(filter(None, parts))


def describe_fold_details(event: TimelineEvent) -> str:
    found = event.current_folds[0].details
    if not found.found:
        return ""
    return tr(
        "Important details found: {found}. The model kept {kept} of them. Helix Desktop added {added} to the document and {entry} to a cache entry.",
        found=found.found,
        kept=found.kept,
        added=found.added,
        entry=found.entry,
    )


def split_document_sections(text: str) -> list[tuple[str, str]]:
    """Splits a document into headings and bodies. Text before the first heading has an
    empty one.
    """
    found: list[tuple[str, list[str]]] = [("", [])]
    for each in text.splitlines():
        if heading := _HEADING.match(each):
            found.append((heading.group(1), []))
        else:
            found[-1][1].append(each)
    pairs = [(name, "\n".join(lines).strip()) for name, lines in found]
    return [(name, body) for name, body in pairs if name or body]


def find_entries_named_in_document(text: str) -> list[Digest]:
    seen = dict.fromkeys(match.group() for match in _HASH.finditer(text))
    return [Digest.from_hex(each) for each in seen]


def link_hashes_and_messages(text: str) -> str:
    """Turns hashes and message numbers into links that the panel can follow."""
    text = _HASH.sub(lambda match: f"`{match.group()[:4]}…{match.group()[-4:]}`", text)
    return _SOURCE.sub(lambda match: f"[{match.group(1)}](helix-seq:{match.group(1)})", text)


def align_document_sections(
    older: Sequence[tuple[str, str]], newer: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """Puts the sections of two documents in the same order, for a comparison."""
    old, new = dict(older), dict(newer)
    names = [*new, *(name for name in old if name not in new)]
    texts = []
    for document in (old, new):
        # Each sentence is put on its own line, so that a comparison marks sentences
        # instead of paragraphs.
        bodies = {
            name: re.sub(r"(?<=[.;!?]) +(?=\S)", "\n", document.get(name, "")) for name in names
        }
        texts.append(
            "\n\n".join(f"## {name}\n{body}" if name else body for name, body in bodies.items())
        )
    return texts[0], texts[1]
