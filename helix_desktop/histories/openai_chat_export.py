"""Exports a conversation for other programs: its messages in order, or OpenAI chat completions.

All functions are pure. The export contains everything, also what folds hide from the model.
Calls without a result get one that says so, so that other programs can continue.
"""

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from helix_desktop.engine import facts
from helix_desktop.engine.agent_additions import is_agent_block, words_for_agent_block
from helix_desktop.engine.request_building import INTERRUPTED, with_plain_name
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import build_state
from helix_desktop.json_values import parse_json_or_none

ReadContent = Callable[[Digest], bytes | None]
Line = Mapping[str, Any]


def digests_needed_for_export(recorded_facts: Sequence[facts.Recorded]) -> list[Digest]:
    digests: list[Digest] = []
    for recorded in build_state(recorded_facts).facts_on_path():
        if isinstance(recorded.fact, facts.ToolReturned):
            digests.append(recorded.fact.output.digest)
            for image in recorded.fact.images:
                digests.append(image.digest)
        elif isinstance(recorded.fact, facts.UserSaid):
            for part in recorded.fact.parts:
                if isinstance(part, facts.Attachment):
                    digests.append(part.stored.digest)
                    if part.document is not None:
                        digests.append(part.document.original.digest)
    return list(dict.fromkeys(digests))


def list_messages_in_order(recorded_facts: Sequence[facts.Recorded]) -> Iterator[facts.Recorded]:
    """Yield messages and results, with the results of a reply directly after it."""
    reply_by_call: dict[str, facts.Recorded] = {}  # Of the calls that have no result yet.
    messages_meanwhile: list[facts.Recorded] = []  # What the user has said before the results.
    for recorded in build_state(recorded_facts).facts_on_path():
        fact = recorded.fact
        if isinstance(fact, facts.ToolReturned):
            if reply_by_call.pop(fact.call, None) is not None:
                yield recorded
            if not reply_by_call:
                yield from messages_meanwhile
                messages_meanwhile = []
        elif isinstance(fact, facts.UserSaid) and reply_by_call:
            messages_meanwhile.append(recorded)
        elif isinstance(fact, facts.UserSaid):
            yield recorded
        elif isinstance(fact, facts.ModelReplied):
            yield from _build_results_of_unanswered_calls(reply_by_call)
            yield from messages_meanwhile
            messages_meanwhile = []
            reply_by_call = {}
            for part in fact.parts:
                if isinstance(part, facts.ToolCall):
                    reply_by_call[part.id] = recorded
            yield recorded
    yield from _build_results_of_unanswered_calls(reply_by_call)
    yield from messages_meanwhile


def _build_results_of_unanswered_calls(
    replies_by_call: Mapping[str, facts.Recorded],
) -> Iterator[facts.Recorded]:
    digest = Digest.of_content(INTERRUPTED.encode())
    stored = facts.Stored(digest, len(INTERRUPTED))
    for call, reply in replies_by_call.items():
        interrupted = facts.ToolReturned(call, stored, 0, ok=False, head=INTERRUPTED)
        yield facts.Recorded(reply.conversation, reply.seq, reply.time, interrupted)


def text_of_exported_result(fact: facts.ToolReturned, read_content: ReadContent) -> str:
    """Return the text of a result, with the texts of the documents in it."""
    texts = [text_of_exported_output(fact, read_content)]
    texts.extend(texts_of_documents(fact, read_content))
    return "\n".join(text for text in texts if text)


def texts_of_documents(fact: facts.ToolReturned, read_content: ReadContent) -> list[str]:
    """Return the texts of the documents that a result has beside its own text."""
    texts: list[str] = []
    for stored in fact.images:
        content = read_content(stored.digest)
        if stored.media_type.startswith("text/") and content is not None:
            texts.append(content.decode("utf-8", "replace"))
    return texts


def text_of_exported_output(fact: facts.ToolReturned, read_content: ReadContent) -> str:
    if fact.head:
        return fact.head
    content = read_content(fact.output.digest)
    if content is None:
        return f"[{fact.output.digest}: not available]"
    return content.decode("utf-8", "replace")


def text_of_exported_attachment(part: facts.Attachment, read_content: ReadContent) -> str:
    content = read_content(part.stored.digest)
    text = "[not available]"
    if content is not None:
        text = content.decode("utf-8", "replace")
        if is_agent_block(part):
            words = words_for_agent_block(text)
            if words is not None:
                return words
    return f"[Attachment: {part.name}]\n{text}"


def parse_arguments_object(arguments: str) -> Line:
    value = parse_json_or_none(arguments or "{}")
    if not isinstance(value, dict):
        return {"malformed_arguments": arguments}
    return value


# --- OpenAI's Chat Completions format


def last_system_prompt(recorded_facts: Sequence[facts.Recorded]) -> str:
    for recorded in reversed(recorded_facts):
        if isinstance(recorded.fact, facts.SystemSet) and recorded.fact.text:
            return recorded.fact.text
    return ""


def export_openai_lines(
    recorded_facts: Sequence[facts.Recorded], read_content: ReadContent
) -> Iterator[Line]:
    """Yield the conversation as messages of the Chat Completions API."""
    system = last_system_prompt(recorded_facts)
    if system:
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
    """Return a reply as a message: its texts, and its calls in a field of their own."""
    calls: list[Line] = []
    texts: list[str] = []
    for part in fact.parts:
        if isinstance(part, facts.ToolCall):
            call = with_plain_name(part)
            function = {"name": call.name, "arguments": call.arguments}
            calls.append({"id": call.id, "type": "function", "function": function})
        elif isinstance(part, facts.Text):
            texts.append(part.text)
    message: dict[str, Any] = {"role": "assistant", "content": "\n".join(texts) or None}
    if calls:
        message["tool_calls"] = calls
    return message


def _openai_user_content(fact: facts.UserSaid, read_content: ReadContent) -> str | list[Line]:
    """Return what the user said: a text, or a text and the pictures after it, if there are any.

    Other attachments are described in the text. Pictures whose bytes are missing are left out.
    """
    texts: list[str] = []
    pictures: list[Line] = []
    for part in fact.parts:
        if isinstance(part, facts.Text):
            texts.append(part.text)
        elif not _is_picture_attachment(part):
            texts.append(text_of_exported_attachment(part, read_content))
        else:
            content = read_content(part.stored.digest)
            if content is not None:
                data = base64.b64encode(content).decode("ascii")
                url = f"data:{part.stored.media_type};base64,{data}"
                pictures.append({"type": "image_url", "image_url": {"url": url}})
    text = "\n".join(texts)
    if not pictures:
        return text
    text_part: Line = {"type": "text", "text": text}
    return [text_part] + pictures


def _is_picture_attachment(part: facts.Attachment) -> bool:
    return part.stored.media_type.startswith("image/")
