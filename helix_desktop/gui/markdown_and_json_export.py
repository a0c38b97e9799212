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

ARGUMENT_CHARACTERS = (
    200  # Longer arguments of a call are cut to this many characters. The JSON export is complete.
)
Content = Callable[[Digest], str | None]


def export_conversation_json(title: str, recorded_facts: Sequence[facts.Recorded]) -> str:
    """Exports every fact in its stored form, which `conversation import` can read."""
    stored = [
        json.loads(fact_encoding.encode_fact(recorded.fact))
        | {"seq": recorded.seq, "time": recorded.time}
        for recorded in recorded_facts
    ]
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
        fact, at = (
            recorded.fact,
            datetime.fromtimestamp(recorded.time, UTC).astimezone().strftime("%Y-%m-%d %H:%M"),
        )
        if isinstance(fact, facts.ConversationStarted):
            started = fact
        elif isinstance(fact, facts.UserSaid):
            yield from _sections_of_user_message(fact, author_of_answer(started, fact), at)
        elif isinstance(fact, facts.ModelReplied):
            calls |= {part.id: part for part in fact.parts if isinstance(part, facts.ToolCall)}
            yield from _sections_of_reply(
                fact, f"{author_of_answer(started, fact)} ({fact.model}), {at}"
            )
        elif isinstance(fact, facts.ToolReturned):
            call = calls.get(fact.call)
            name = (
                f"{call.name} {shorten_to_line(call.arguments, ARGUMENT_CHARACTERS)}"
                if call
                else "Tool"
            )
            stored, text = fact.output, fact.head or content(fact.output.digest) or ""
            if stored.size and not text:
                text = f"[{stored.size:,} bytes, {stored.digest}: removed from the cache since, or damaged]"
            ended = " (stopped)" if fact.stopped else "" if fact.ok else " (failed)"
            yield f"{name}{ended}", "code", text
        elif isinstance(fact, facts.Folded):
            yield f"{fact.kind.value}: {fact.tokens_before:,} → {fact.tokens:,} tokens", "fold", ""


def _sections_of_reply(fact: facts.ModelReplied, head: str) -> Iterator[tuple[str, str, str]]:
    for part in fact.parts:
        if isinstance(part, facts.Text) and part.text.strip():
            yield head, "said", part.text
        elif isinstance(part, facts.Reasoning) and part.text.strip():
            yield "Reasoning", "code", part.text


def _sections_of_user_message(
    fact: facts.UserSaid, author: str, at: str
) -> Iterator[tuple[str, str, str]]:
    """Yields what the agent `author` added to a message, and then what the user wrote."""
    words = "\n\n".join(part.text for part in fact.parts if isinstance(part, facts.Text))
    words, additions = (
        (words, []) if author == PROGRAM_AUTHOR else split_off_agent_additions(fact.parts)
    )
    named = {
        number: f"[{part.name}, {part.stored.size:,} bytes, {part.stored.digest}]"
        for number, part in enumerate(fact.parts)
        if isinstance(part, facts.Attachment)
    }
    for number, text in additions:
        yield f"Added by {author}, {at}", "code", text or named.pop(number)
    if words or named or not additions:
        own = "\n\n".join(filter(None, [words, *named.values()]))
        yield f"{PROGRAM_AUTHOR if fact.by else 'You'}, {at}", "user", own
