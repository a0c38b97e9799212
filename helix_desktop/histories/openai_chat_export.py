"""Exports a conversation for other programs: its messages in order, or OpenAI chat completions.

All functions are pure. The export contains everything, also what folds hide from the model.
Calls without a result get one that says so, so that other programs can continue.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.engine.request_building import INTERRUPTED, with_plain_name
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.json_values import parse_json_or_none

ReadContent = Callable[[Digest], bytes | None]
Line = Mapping[str, Any]


def digests_needed_for_export(recorded_facts: Sequence[facts.Recorded]) -> list[Digest]:
    found: dict[Digest, None] = {}
    for recorded in build_state(recorded_facts).facts_on_path():
        if isinstance(recorded.fact, facts.ToolReturned):
            found |= dict.fromkeys(
                [recorded.fact.output.digest, *(one.digest for one in recorded.fact.images)]
            )
        elif isinstance(recorded.fact, facts.UserSaid):
            found |= dict.fromkeys(
                part.stored.digest
                for part in recorded.fact.parts
                if isinstance(part, facts.Attachment)
            )
    return list(found)


def list_messages_in_order(recorded_facts: Sequence[facts.Recorded]) -> Iterator[facts.Recorded]:
    """Yield messages and results, with the results of a reply directly after it."""
    waiting: dict[str, facts.Recorded] = {}
    held: list[facts.Recorded] = []
    for recorded in build_state(recorded_facts).facts_on_path():
        fact = recorded.fact
        if isinstance(fact, facts.ToolReturned):
            if waiting.pop(fact.call, None) is not None:
                yield recorded
            if not waiting:
                yield from held
                held = []
        elif isinstance(fact, facts.UserSaid) and waiting:
            held.append(recorded)
        elif isinstance(fact, facts.UserSaid | facts.ModelReplied):
            if isinstance(fact, facts.ModelReplied):
                yield from _build_results_of_unanswered_calls(waiting)
                yield from held
                held = []
                waiting = {
                    part.id: recorded for part in fact.parts if isinstance(part, facts.ToolCall)
                }
            yield recorded
    yield from _build_results_of_unanswered_calls(waiting)
    yield from held


def _build_results_of_unanswered_calls(
    replies_by_call: Mapping[str, facts.Recorded],
) -> Iterator[facts.Recorded]:
    for call, reply in replies_by_call.items():
        stored = facts.Stored(Digest.of_content(INTERRUPTED.encode()), len(INTERRUPTED))
        yield facts.Recorded(
            reply.conversation,
            reply.seq,
            reply.time,
            facts.ToolReturned(call, stored, 0, ok=False, head=INTERRUPTED),
        )


def text_of_exported_result(fact: facts.ToolReturned, read_content: ReadContent) -> str:
    found = read_content(fact.output.digest)
    return fact.head or (
        found.decode("utf-8", "replace")
        if found is not None
        else f"[{fact.output.digest}: not available]"
    )


def text_of_exported_attachment(part: facts.Attachment, read_content: ReadContent) -> str:
    data = read_content(part.stored.digest)
    return f"[Attachment: {part.name}]\n{data.decode('utf-8', 'replace') if data is not None else '[not available]'}"


def parse_arguments_object(arguments: str) -> Line:
    value = parse_json_or_none(arguments or "{}")
    return value if isinstance(value, dict) else {"malformed_arguments": arguments}


# --- OpenAI's Chat Completions format


def last_system_prompt(recorded_facts: Sequence[facts.Recorded]) -> str:
    said = (
        one.fact.text for one in reversed(recorded_facts) if isinstance(one.fact, facts.SystemSet)
    )
    return next(filter(None, said), "")


def export_openai_lines(
    recorded_facts: Sequence[facts.Recorded], read_content: ReadContent
) -> Iterator[Line]:
    if system := last_system_prompt(recorded_facts):
        yield {"role": "system", "content": system}
    for recorded in list_messages_in_order(recorded_facts):
        fact = recorded.fact
        if isinstance(fact, facts.ModelReplied):
            yield _openai_reply_message(fact)
        elif isinstance(fact, facts.ToolReturned):
            yield {
                "role": "tool",
                "tool_call_id": fact.call,
                "content": text_of_exported_result(fact, read_content),
            }
        elif isinstance(fact, facts.UserSaid):
            yield {"role": "user", "content": _openai_user_content(fact, read_content)}


def _openai_reply_message(fact: facts.ModelReplied) -> Line:
    made = [with_plain_name(part) for part in fact.parts if isinstance(part, facts.ToolCall)]
    functions = ({"name": call.name, "arguments": call.arguments} for call in made)
    calls = [
        {"id": call.id, "type": "function", "function": one}
        for call, one in zip(made, functions, strict=True)
    ]
    text = "\n".join(part.text for part in fact.parts if isinstance(part, facts.Text))
    said: Line = {"role": "assistant", "content": text or None}
    return {**said, "tool_calls": calls} if calls else said


def _openai_user_content(fact: facts.UserSaid, read_content: ReadContent) -> str | list[Line]:
    texts = [
        part.text
        if isinstance(part, facts.Text)
        else text_of_exported_attachment(part, read_content)
        for part in fact.parts
        if not _is_picture_attachment(part)
    ]
    shown = [
        part.stored
        for part in fact.parts
        if isinstance(part, facts.Attachment) and _is_picture_attachment(part)
    ]
    found = [
        (stored.media_type, data)
        for stored in shown
        if (data := read_content(stored.digest)) is not None
    ]
    urls = [f"data:{kind};base64,{base64.b64encode(data).decode('ascii')}" for kind, data in found]
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    text = "\n".join(texts)
    return [{"type": "text", "text": text}, *pictures] if pictures else text


def _is_picture_attachment(part: object) -> bool:
    return isinstance(part, facts.Attachment) and part.stored.media_type.startswith("image/")
