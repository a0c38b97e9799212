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
    whole = {"helix": "conversation", "version": 1, "title": title, "facts": stored}
    return json.dumps(whole, ensure_ascii=False, indent=1)


def export_conversation_markdown(
    title: str, recorded_facts: Sequence[facts.Recorded], content: Content
) -> str:
    parts = [f"# {' '.join(title.split())}\n"]
    for head, kind, text in iterate_export_sections(recorded_facts, content):
        if kind == "code":
            parts.append(f"**{head}**\n\n{wrap_in_code_fence(text)}\n")
        elif kind == "fold":
            parts.append(f"---\n\n*{head}*\n")
        else:
            parts.append(f"## {head}\n\n{text}\n")
    return "\n".join(parts)


def iterate_export_sections(
    recorded_facts: Sequence[facts.Recorded], content: Content
) -> Iterator[tuple[str, str, str]]:
    """Yields the conversation as (heading, kind, text). Kinds: user, said, code, fold."""
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
                yield f"{fact.kind.value}: {saved}", "fold", ""


def _section_of_output(
    fact: facts.ToolReturned, call: facts.ToolCall | None, content: Content
) -> tuple[str, str, str]:
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
    return heading, "code", text


def _sections_of_reply(fact: facts.ModelReplied, heading: str) -> Iterator[tuple[str, str, str]]:
    for part in fact.parts:
        if isinstance(part, facts.Text) and part.text.strip():
            yield heading, "said", part.text
        elif isinstance(part, facts.Reasoning) and part.text.strip():
            yield "Reasoning", "code", part.text


def _sections_of_user_message(
    fact: facts.UserSaid, author: str, time: str
) -> Iterator[tuple[str, str, str]]:
    """Yields what the agent `author` added to a message, and then what the user wrote."""
    own_text = "\n\n".join(part.text for part in fact.parts if isinstance(part, facts.Text))
    additions: Sequence[tuple[int, str]] = []
    if author != PROGRAM_AUTHOR:
        own_text, additions = split_off_agent_additions(fact.parts)
    attachments: dict[int, str] = {}  # By the number of the part.
    for number, part in enumerate(fact.parts):
        if isinstance(part, facts.Attachment):
            attachments[number] = f"[{part.name}, {part.stored.size:,} bytes, {part.stored.digest}]"
    for number, text in additions:
        yield f"Added by {author}, {time}", "code", text or attachments.pop(number)
    if own_text or attachments or not additions:
        own = "\n\n".join(filter(None, [own_text, *attachments.values()]))
        speaker = "You"
        if fact.by:
            speaker = PROGRAM_AUTHOR
        yield f"{speaker}, {time}", "user", own
