"""Exports a conversation as Markdown or JSON. A pure function of its facts.

`content` returns the text of an entry, or None if it cannot be read.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from helix_desktop.engine import fact_encoding, facts
from helix_desktop.engine.agent_additions import split_off_agent_additions
from helix_desktop.engine.code_fences import wrap_in_code_fence
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.answer_author import PROGRAM_AUTHOR, author_of_answer

# Longer arguments of a call are cut to this many characters. The JSON export is complete.
ARGUMENT_CHARACTERS = 200
Content = Callable[[Digest], str | None]


def export_conversation_json(title: str, recorded_facts: Sequence[facts.Recorded]) -> str:
    """Exports every fact in its stored form, which `conversation import` can read."""
    stored: list[object] = []
    for recorded in recorded_facts:
        fields = json.loads(fact_encoding.encode_fact(recorded.fact))
        stored.append(fields | {"seq": recorded.seq, "time": recorded.time})
    document = {"helix": "conversation", "version": 1, "title": title, "facts": stored}
    return json.dumps(document, ensure_ascii=False, indent=1)


def export_conversation_markdown(
    title: str, recorded_facts: Sequence[facts.Recorded], content: Content
) -> str:
    parts = [f"# {' '.join(title.split())}\n"]
    for section in iterate_export_sections(recorded_facts, content):
        if section.kind == "code":
            parts.append(f"**{section.heading}**\n\n{wrap_in_code_fence(section.text)}\n")
        elif section.kind == "fold":
            parts.append(f"---\n\n*{section.heading}*\n")
        else:
            parts.append(f"## {section.heading}\n\n{section.text}\n")
    return "\n".join(parts)


@dataclass(frozen=True, slots=True)
class ExportSection:
    """A section of an export. `kind`: user, said, code or fold."""

    heading: str
    kind: str
    text: str


def iterate_export_sections(
    recorded_facts: Sequence[facts.Recorded], content: Content
) -> Iterator[ExportSection]:
    """Yields the conversation from its first message to its last."""
    calls: dict[str, facts.ToolCall] = {}
    started: facts.ConversationStarted | None = None
    for recorded in recorded_facts:
        fact = recorded.fact
        time = datetime.fromtimestamp(recorded.time, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
        match fact:
            case facts.ConversationStarted():
                started = fact
            case facts.UserSaid():
                author = author_of_answer(started, fact)
                yield from _sections_of_user_message(fact, author, time)
            case facts.ModelReplied():
                for part in fact.parts:
                    if isinstance(part, facts.ToolCall):
                        calls[part.id] = part
                author = author_of_answer(started, fact)
                yield from _sections_of_reply(fact, f"{author} ({fact.model}), {time}")
            case facts.ToolReturned():
                yield _section_of_output(fact, calls.get(fact.call), content)
            case facts.Folded():
                saved = f"{fact.tokens_before:,} → {fact.tokens:,} tokens"
                yield ExportSection(f"{fact.kind.value}: {saved}", "fold", "")


def _section_of_output(
    fact: facts.ToolReturned, call: facts.ToolCall | None, content: Content
) -> ExportSection:
    heading = "Tool"
    if call is not None:
        arguments = shorten_to_line(call.arguments, ARGUMENT_CHARACTERS)
        heading = f"{call.name} {arguments}"
    if fact.stopped:
        heading += " (stopped)"
    elif not fact.ok:
        heading += " (failed)"
    stored = fact.output
    text = fact.head or content(stored.digest) or ""
    if stored.size and not text:
        text = f"[{stored.size:,} bytes, {stored.digest}: removed from the cache since, or damaged]"
    return ExportSection(heading, "code", text)


def _sections_of_reply(fact: facts.ModelReplied, heading: str) -> Iterator[ExportSection]:
    for part in fact.parts:
        if isinstance(part, facts.Text) and part.text.strip():
            yield ExportSection(heading, "said", part.text)
        elif isinstance(part, facts.Reasoning) and part.text.strip():
            yield ExportSection("Reasoning", "code", part.text)


def _sections_of_user_message(
    fact: facts.UserSaid, author: str, time: str
) -> Iterator[ExportSection]:
    """Yields what the agent `author` added to a message, and then what the user wrote."""
    texts = [part.text for part in fact.parts if isinstance(part, facts.Text)]
    users_text = "\n\n".join(texts)
    additions: Sequence[tuple[int, str]] = []
    if author != PROGRAM_AUTHOR:
        users_text, additions = split_off_agent_additions(fact.parts)
    attachment_by_part: dict[int, str] = {}
    for part_number, part in enumerate(fact.parts):
        if isinstance(part, facts.Attachment):
            description = f"[{part.name}, {part.stored.size:,} bytes, {part.stored.digest}]"
            attachment_by_part[part_number] = description
    for part_number, text in additions:
        added_text = text or attachment_by_part.pop(part_number)
        yield ExportSection(f"Added by {author}, {time}", "code", added_text)
    if not users_text and not attachment_by_part and additions:
        return
    paragraphs = [users_text]
    paragraphs.extend(attachment_by_part.values())
    speaker = "You"
    if fact.by:
        speaker = PROGRAM_AUTHOR
    message = "\n\n".join(filter(None, paragraphs))
    yield ExportSection(f"{speaker}, {time}", "user", message)
