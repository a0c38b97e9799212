"""Describes folds in sentences and splits their documents. No widgets."""

import re
from collections.abc import Mapping, Sequence

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.fold_kinds import KINDS_OF_NOTES, KINDS_WRITTEN_BY_MODEL
from helix_desktop.engine.message_cost_forecast import ContextAfterUndo
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.token_ledger import LEAST_DOLLARS
from helix_desktop.engine.view import ConversationState
from helix_desktop.gui.answer_author import agent_of_conversation
from helix_desktop.gui.common import fold_descriptions
from helix_desktop.gui.common.figure_formats import DAY_SECONDS, format_dollars, format_duration
from helix_desktop.gui.common.fold_descriptions import describe_token_change
from helix_desktop.gui.common.policy_names import list_policy_choices
from helix_desktop.gui.common.savings_sentences import (
    LineOfTimeline,
    find_roundings_of_lines,
    format_share_of_line,
    share_of_line,
)
from helix_desktop.gui.context_meter import (
    describe_token_count,
)
from helix_desktop.gui.model_setup_port import lacks_price
from helix_desktop.gui.sentence_translation import join_sentences, translate_sentences
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineEvent,
    TimelineRewind,
)
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.status_lines import describe_fact_if_needed
from helix_desktop.gui.transcript.tool_call_lines import format_call
from helix_desktop.gui.translation import format_count, format_number, format_percent, tr
from helix_desktop.histories.program_names import SHOWN_BY_OTHER

MAX_NAMED_CALLS = 2  # The maximum number of calls that a title names.
LONGEST_LINE = 90  # The maximum number of characters in a tooltip's line.
MARK_LINES = 3  # The maximum number of lines in a tooltip.

_HEADING = re.compile(r"^#{1,3}[ \t]+(.+?)[ \t]*#*$")
_HASH = re.compile(r"\b[0-9a-f]{64}\b")
_SENTENCE_END = re.compile(r"(?<=[.;!?]) +(?=\S)")
_SOURCE = re.compile(r"\[(\d{1,7})\](?!\()")


def describe_event_title(event: TimelineEvent) -> str:
    """Returns the title of an event in the list; an excerpt is named by its call."""
    folds = event.counted_folds
    match event.happened:
        case facts.FoldFailed(kind=kind):
            return _title_of_failure(kind)
        case TimelineRewind() as rewind:
            return _title_of_rewind(rewind)
    if not folds:
        return _title_of_start(event)
    named_calls: list[str] = []
    if event.fold_kind is facts.FoldKind.EXCERPT:
        named_calls = _name_covered_calls(event)
    if not named_calls:
        return fold_descriptions.fold_title(folds[0], len(folds))

    names = ", ".join(named_calls)
    unnamed_count = len(folds) - len(named_calls)
    if unnamed_count:
        names += " " + format_count(unnamed_count, "and {n} more", "and {n} more")
    agent = _agent_that_shortened_output(event)
    if agent:
        return tr("Excerpt by {agent}: {what}", agent=agent, what=names)
    return tr("Excerpt: {what}", what=names)


def _title_of_start(event: TimelineEvent) -> str:
    started = event.history.facts[event.seq - 1].fact  # Numbers of facts begin at 1.
    if isinstance(started, facts.ConversationStarted) and started.forked_from:
        return tr("Duplicate created")
    return tr("Conversation started")


def _title_of_failure(kind: facts.FoldKind) -> str:
    if kind is facts.FoldKind.HANDOVER:
        return tr("No summary was written")
    if kind in KINDS_OF_NOTES:
        return tr("No notes were written")
    return tr("Nothing was shortened")


def _title_of_rewind(rewind: TimelineRewind) -> str:
    if rewind.is_return:
        return tr("Returned to earlier messages")
    if rewind.again:
        return tr("Another answer requested")
    return tr("Rewound to an earlier message")


def _agent_that_shortened_output(event: TimelineEvent) -> str:
    """Returns the agent that showed its model an excerpt itself; empty if the excerpt is ours."""
    first_fold = event.made_folds[0]
    if first_fold.why != SHOWN_BY_OTHER and not first_fold.is_by_agent:
        return ""
    return agent_of_conversation(event.history.facts) or tr("Agent")


def _name_covered_calls(event: TimelineEvent) -> list[str]:
    """Names the calls or attachments that an event's folds cover, as many as fit in a title."""
    names = []
    for fold in event.counted_folds[:MAX_NAMED_CALLS]:
        if isinstance(fold.cover, facts.PartRef):
            name = name_covered_part(event, fold.cover)
            if name:
                names.append(name)
    return names


def name_covered_part(event: TimelineEvent, ref: facts.PartRef) -> str:
    """Names what a fold covers: a call by its line, an attachment by its name. Empty
    for anything else.
    """
    recorded_facts = event.history.facts
    if not 0 < ref.seq <= len(recorded_facts):
        return ""
    fact = recorded_facts[ref.seq - 1].fact
    if isinstance(fact, facts.UserSaid):
        if ref.part < len(fact.parts):
            part = fact.parts[ref.part]
            if isinstance(part, facts.Attachment):
                return part.name
        return tr("your message")
    return _format_call_of_result(event.history, ref.seq)


def describe_event_briefly(event: TimelineEvent) -> str:
    """Returns the second line of the list: one figure. The panel says more of the chosen row."""
    match event.happened:
        case facts.FoldFailed(kind=kind):
            return describe_cost_of_failure(event, kind)
        case TimelineRewind() if event.history.acp_agent:
            return ""
        case TimelineRewind() as rewind:
            return fold_descriptions.format_token_change(rewind.tokens_before, rewind.tokens_after)
    if not event.current_folds:
        return _describe_start_briefly(event)
    fold = event.current_folds[0]
    parts = [describe_effect(event)]
    if fold.kind is facts.FoldKind.EXCERPT and fold.asked:
        parts.append(tr("kept: “{words}”", words=fold.asked[:60]))
    if fold_descriptions.has_poor_summary(fold):
        parts.append(tr("most important details are missing"))
    return " · ".join(parts)


def _describe_start_briefly(event: TimelineEvent) -> str:
    """Names the preset as it was when the conversation began."""
    # The setting is of no use to an agent that keeps its own context.
    if not event.words or event.history.acp_agent:
        return ""
    preset = dict(list_policy_choices()).get(event.words)
    if preset is None:
        preset = tr("{name} preset", name=event.words)
    return tr("Setting for long conversations: {name}", name=preset)


def _describe_observations(text: str) -> str:
    notes = format_count(text.count("\n- "), "{n} note", "{n} notes")
    return notes + ", " + tr("{n} high priority", n=text.count("!!!"))


def _describe_change_of_event(event: TimelineEvent) -> str:
    return describe_token_change(
        event.current_folds[0],
        event.history.facts,
        event.seq,
        event.tokens_before_folds,
        event.tokens_after_folds,
    )


def describe_effect(event: TimelineEvent) -> str:
    """Returns the line's share of what the head says was saved, so that the lines add up to it. How
    much shorter the folds made what they cover, as long as that has neither saved nor taken anything.
    """
    change = _describe_change_of_event(event)
    if _is_compaction_by_agent(event):
        return change
    saved = event.saved
    share = _describe_share_of_event(event, saved.tokens)
    if share:
        return share
    if not saved.requests_in_all and _waits_for_request(event):
        return tr("{change} from the next request on", change=change)
    if saved.requests and not saved.counted and not event.made_folds[0].is_by_agent:
        return f"{change} · {tr('the full text would not have fit')}"
    return change


def _describe_share_of_event(event: TimelineEvent, kept_out: int) -> str:
    """Returns what a line saved, less what writing it took. Empty if it is nothing."""
    figures = event.history.savings_until_moment()
    share = share_of_line(figures, kept_out, _writing_paid_here(event)) + event.rounding
    amount = format_share_of_line(figures, share)
    if not amount:
        return ""
    if share > 0:
        # Without the number of requests, readers subtracted the one figure from the size of the text.
        requests = format_count(event.saved.counted, "{n} request", "{n} requests")
        return tr("saved about {amount} in {requests}", amount=amount, requests=requests)
    if kept_out:
        return tr("writing it took {amount} more than it has saved", amount=amount)
    return tr("writing it took {amount}", amount=amount)


def let_lines_add_up(events: Sequence[TimelineEvent], agents_cost: float = 0.0) -> None:
    """Rounds the figures of all rows of a conversation so that they add up to the head as shown."""
    if not events:
        return
    figures = events[0].history.savings_until_moment()
    lines: list[LineOfTimeline] = []
    for event in events:
        writing = _writing_paid_here(event)
        if event.made_folds:
            lines.append(LineOfTimeline(share_of_line(figures, event.saved.tokens, writing)))
        else:
            taken = float(writing.input)
            if figures.is_saved_in_dollars:
                taken = writing.cost
            lines.append(LineOfTimeline(-taken, is_fixed=True))
    roundings = find_roundings_of_lines(figures, lines, agents_cost)
    for event, rounding in zip(events, roundings, strict=True):
        event.rounding = rounding


def _writing_paid_here(event: TimelineEvent) -> facts.Usage:
    """Returns what the folds' requests took, or nothing if another conversation paid for them."""
    if event.history.record.ledger.was_paid_elsewhere(event.seq):
        return facts.Usage()
    return event.writing


def _waits_for_request(event: TimelineEvent) -> bool:
    """Whether a shortening is in force, and no request is being answered."""
    is_answering = event.history.branch.turn.running
    return event.has_fold_in_force and not is_answering


def describe_cost_of_failure(event: TimelineEvent, kind: facts.FoldKind) -> str:
    """Says what is known of it. A model that was asked in vain may have cost something that its
    server did not report. Empty where no model is asked.
    """
    writing = _describe_writing(event)
    if writing:
        return tr("the attempt took {amount}", amount=writing)
    if kind in KINDS_WRITTEN_BY_MODEL:
        return tr("no cost was reported")
    return ""


def describe_what_happened(event: TimelineEvent) -> list[str]:
    """Explains a row that stands for no shortened place: an attempt that failed, or a rewind."""
    match event.happened:
        case facts.FoldFailed() as failure:
            why = describe_fact_if_needed(failure)
            nothing_changed = tr("What the model sees did not change.")
            sentences = [why, nothing_changed]
            cost = describe_cost_of_failure(event, failure.kind)
            if cost:
                sentences.append(tr("{words}.", words=cost[0].upper() + cost[1:]))
            return sentences
        case TimelineRewind(is_return=True):
            return [
                tr(
                    "From here on, the conversation continues from messages that an earlier rewind left behind."
                )
            ]
        case TimelineRewind():
            goes_on = tr("From here on, the conversation continues from an earlier message.")
            can_return = tr(
                "What came after that message stays here, and the chat offers to return to it."
            )
            return [f"{goes_on} {can_return}"]
    return []


def _is_compaction_by_agent(event: TimelineEvent) -> bool:
    agent, _trigger = fold_descriptions.split_agent_compaction(event.current_folds[0])
    return bool(agent)


def _describe_writing(event: TimelineEvent) -> str:
    """Returns what the requests that wrote the folds took, in money if their price is known."""
    if event.writing.cost >= LEAST_DOLLARS:
        return format_dollars(event.writing.cost)
    if event.writing.input:
        return describe_token_count(event.writing.input)
    return ""


def describe_timeline(story: ConversationTimeline, dollars_of_agents: float = 0.0) -> str:
    """Returns the page's heading. `dollars_of_agents`: what sub-agents have cost."""
    if not story.points:
        return ""
    duration = story.times[-1] - story.times[0]
    parts = [
        _describe_length(duration),
        format_count(story.steps[-1], "{n} step", "{n} steps"),
    ]
    paid_here, paid_before = story.costs_until_now()
    # Sub-agents of an imported conversation were paid where it was imported from.
    is_paid_elsewhere = bool(round(paid_before, 3)) and not round(paid_here, 3)
    if is_paid_elsewhere:
        paid_here = 0.0
        paid_before += dollars_of_agents
    else:
        paid_here += dollars_of_agents
    if paid_here:
        parts.append(format_dollars(paid_here))
    elif lacks_price(story.history):
        parts.append(tr("the price is not known"))
    parts.extend(_describe_earlier_cost(paid_before))
    return ", ".join(parts)


def _describe_length(seconds: float) -> str:
    if seconds >= 1.5 * DAY_SECONDS:
        return format_count(round(seconds / DAY_SECONDS), "{n} day", "{n} days")
    return format_duration(seconds)


def describe_costs_at_point(story: ConversationTimeline, point: int) -> str:
    paid_here, paid_before = story.costs_at_point(point)
    parts = []
    if paid_here:
        parts.append(tr("{cost} so far", cost=format_dollars(paid_here)))
    parts.extend(_describe_earlier_cost(paid_before))
    return ", ".join(parts)


def _describe_earlier_cost(dollars_paid_before: float) -> list[str]:
    if not round(dollars_paid_before, 3):
        return []
    return [tr("{cost} before import or fork", cost=format_dollars(dollars_paid_before))]


def describe_marked_fact(history: ConversationState, seq: int) -> str:
    """Returns the tooltip of a mark below the chart: a few short lines."""
    match history.facts[seq - 1].fact:
        case facts.FoldFailed(kind=kind) as failure:
            words = f"{_title_of_failure(kind)}\n{describe_fact_if_needed(failure)}"
        case facts.Rewound():
            words = tr("Rewind")
        case _:
            words = _words_of_fact(history, seq).strip()
    lines = [line[:LONGEST_LINE] for line in words.splitlines()[:MARK_LINES]]
    return make_safe_text("\n".join(lines))


def _list_changed_files(names: Sequence[str], file_count: int) -> str:
    """Returns the names, and how many more files there are: a fact names only the first ones."""
    listed_names = ", ".join(names)
    unnamed_count = file_count - len(names)
    if unnamed_count <= 0:
        return listed_names
    others = format_count(unnamed_count, "and {n} more", "and {n} more")
    return f"{listed_names} {others}"


def _words_of_fact(history: ConversationState, seq: int) -> str:
    """Returns the words by which a person recognises a fact, for the label at its mark
    in the chart.
    """
    match history.facts[seq - 1].fact:
        case facts.UserSaid(parts=parts):
            own_words, _additions = split_off_agent_additions(parts)
            words = [own_words]
            for part in parts:
                if isinstance(part, facts.Attachment):
                    words.append(part.name)
            return " ".join(filter(None, words))
        case facts.FilesChanged(names=names, files=files):
            return _list_changed_files(names, files)
        case facts.ToolReturned(ok=True, changes=(_, *_) as changes):
            return ", ".join(change.path for change in changes)
        case facts.ToolReturned(head=head):
            call = _format_call_of_result(history, seq)
            return f"{call}\n{head}"
        case facts.TurnEnded(why=why):
            return translate_sentences(why)
    return ""


def _format_call_of_result(history: ConversationState, seq: int) -> str:
    answered = history.record.answered.get(seq)
    if answered is None:
        return ""
    return format_call(answered.call.name, answered.call.arguments)


def describe_fold_figures(event: TimelineEvent) -> str:
    fold = event.current_folds[0]
    figures = [_describe_change_of_event(event)]
    if fold.kind in KINDS_OF_NOTES:
        figures.append(_describe_observations(fold.text))
    figures += _describe_author_of_fold(event, fold)
    return " · ".join(figure for figure in figures if figure)


def _describe_author_of_fold(event: TimelineEvent, fold: facts.Folded) -> list[str]:
    """Says which model wrote the fold and why then, or which agent compacted by itself."""
    agent, trigger = fold_descriptions.split_agent_compaction(fold)
    if agent:
        figures = [_describe_compaction_trigger(trigger)]
        if fold.fold in event.history.branch.barred.values():
            undone_here = tr(
                "undone only here; choose “Continue in {agent}…” to go on with all messages in it",
                agent=agent,
            )
            figures.append(undone_here)
        return figures
    if _agent_that_shortened_output(event):
        return []
    # Lines and excerpts are always written without a model, so nothing is said of them.
    author_and_reason: list[str] = []
    if fold.model:
        author_and_reason.append(tr("written by {model}", model=fold.model))
    if fold.panic:
        author_and_reason.append(tr("because the request would not fit"))
    return author_and_reason


def _describe_compaction_trigger(trigger: str) -> str:
    """Says who began an agent's own compaction, in the agent's word if it is not known."""
    if trigger == "manual":
        return tr("requested by the user")
    if trigger == "auto":
        return tr("automatic")
    return trigger


def describe_context_after_undo(after: ContextAfterUndo) -> str:
    """Says how full the context is after an Undo, and what the next message then costs."""
    if after.adds_nothing:
        return tr(
            "Undo adds nothing to the context now, because a summary stands in place of this text."
        )
    if not after.fits:
        return tr(
            "Undo would leave no room for the reply and a summary, so this cannot be undone now."
        )
    share = format_percent(after.used_share)
    sentences = [tr("After Undo, the context would be about {share} full.", share=share)]
    if after.behind_summary:
        sentences.append(
            tr("Some of these texts add nothing, because a summary stands in their place.")
        )
    if after.dollars >= LEAST_DOLLARS:
        sentences.append(
            tr(
                "The next message would then cost about {price}.",
                price=format_dollars(after.dollars),
            )
        )
    if after.is_shortened_again:
        sentences.append(
            tr("That is so much that the next message would first be shortened again.")
        )
    return join_sentences(*sentences)


def describe_fold_details(event: TimelineEvent) -> str:
    """Returns what the head of the panel does not say: the requests, what writing took, and what
    became of important details.
    """
    sentences: list[str] = []
    saved = event.saved
    if saved.requests_in_all:
        sentences.append(
            format_count(
                saved.requests_in_all,
                "{n} request had the shorter text.",
                "{n} requests had the shorter text.",
            )
        )
    missed = saved.requests - saved.counted
    if missed > 0 and saved.counted:
        sentences.append(
            tr("In {n} of them, the full text would not have fit.", n=format_number(missed))
        )
    if saved.counted:
        sentences.append(
            tr(
                "What was saved is the sum over these requests, as the model counts, compared with sending everything as long as it fits."
            )
        )
    writing = _describe_writing(event)
    if writing:
        sentences.append(tr("Writing it took {amount}.", amount=writing))
    if writing and saved.counted:
        sentences.append(tr("That is already subtracted from what was saved."))
    details = event.current_folds[0].details
    if details.found:
        sentences.append(
            tr(
                "Important details found: {found}. The model kept {kept} of them. Helix Desktop added {added} to the summary and {entry} to a stored text beside it.",
                found=details.found,
                kept=details.kept,
                added=details.added,
                entry=details.entry,
            )
        )
    return join_sentences(*sentences)


def split_document_sections(text: str) -> list[tuple[str, str]]:
    """Splits a document into headings and bodies. Text before the first heading has an
    empty one.
    """
    sections: list[tuple[str, str]] = []
    heading = ""
    lines: list[str] = []
    for line in text.splitlines():
        matched = _HEADING.match(line)
        if matched is None:
            lines.append(line)
            continue
        sections.append((heading, "\n".join(lines).strip()))
        heading = matched.group(1)
        lines = []
    sections.append((heading, "\n".join(lines).strip()))
    return [section for section in sections if any(section)]


def find_entries_named_in_document(text: str) -> list[Digest]:
    hashes = dict.fromkeys(_HASH.findall(text))  # Each once, in the order of the text.
    return [Digest.from_hex(hex_digits) for hex_digits in hashes]


def shorten_hashes(text: str, quote: str = "") -> str:
    """Returns the text with the first and last four digits of each hash, between `quote`s."""
    return _HASH.sub(lambda match: f"{quote}{match.group()[:4]}…{match.group()[-4:]}{quote}", text)


def link_hashes_and_messages(text: str) -> str:
    """Turns hashes and message numbers into links that the panel can follow."""
    with_short_hashes = shorten_hashes(text, quote="`")
    return _SOURCE.sub(_link_to_message, with_short_hashes)


def _link_to_message(source: re.Match[str]) -> str:
    """Returns the link to a message, by a name that says where it leads."""
    number = source.group(1)
    return f"[{tr('message {n}', n=number)}](helix-seq:{number})"


def align_document_sections(
    older: Sequence[tuple[str, str]], newer: Sequence[tuple[str, str]]
) -> tuple[str, str]:
    """Puts the sections of two documents in the same order, for a comparison."""
    names = [name for name, _ in newer]
    names += [name for name, _ in older if name not in names]
    return _join_sections(dict(older), names), _join_sections(dict(newer), names)


def _join_sections(bodies: Mapping[str, str], names: Sequence[str]) -> str:
    """Writes a document with these sections, one sentence on each line: a comparison then
    marks sentences instead of paragraphs.
    """
    texts: list[str] = []
    for name in names:
        body = _SENTENCE_END.sub("\n", bodies.get(name, ""))
        if name:
            texts.append(f"## {name}\n{body}")
        else:
            texts.append(body)
    return "\n\n".join(texts)
