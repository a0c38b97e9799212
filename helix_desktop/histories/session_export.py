"""A conversation as other programs read it: a session of Claude Code, and messages as OpenAI's chat completions take them.

Pure: facts in, values out. All that was said and done stands in it, whatever folds show the model; what was never answered gets a
result that says so, so that what reads it may go on.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from helix_desktop.engine.digest import Digest
from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    Reasoning,
    Recorded,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.legal_messages import INTERRUPTED, with_plain_name
from helix_desktop.engine.view import build_state

Content = Callable[[Digest], bytes | None]
Line = Mapping[str, Any]
_NAMES = uuid.UUID("6c0f5b1e-8f0e-4c55-9d55-0b7a3a0d7f11")
FORMATS = ("claude-code", "openai")


def entries_needed_for_export(facts: Sequence[Recorded]) -> list[Digest]:
    """The entries an export needs."""
    found: dict[Digest, None] = {}
    for recorded in build_state(facts).facts_on_path():
        if isinstance(recorded.fact, ToolReturned):
            found |= dict.fromkeys([recorded.fact.output.digest, *(one.digest for one in recorded.fact.images)])
        elif isinstance(recorded.fact, UserSaid):
            found |= dict.fromkeys(part.stored.digest for part in recorded.fact.parts if isinstance(part, Attachment))
    return list(found)


def list_said_and_done(facts: Sequence[Recorded]) -> Iterator[Recorded]:
    """What was said and done on the line, every batch of calls whole before anything else is said."""
    waiting: dict[str, Recorded] = {}
    held: list[Recorded] = []
    for recorded in build_state(facts).facts_on_path():
        fact = recorded.fact
        if isinstance(fact, ToolReturned):
            if waiting.pop(fact.call, None) is not None:
                yield recorded
            if not waiting:
                yield from held
                held = []
        elif isinstance(fact, UserSaid) and waiting:
            held.append(recorded)
        elif isinstance(fact, UserSaid | ModelReplied):
            if isinstance(fact, ModelReplied):
                yield from _results_for_unanswered(waiting)
                yield from held
                held = []
                waiting = {part.id: recorded for part in fact.parts if isinstance(part, ToolCall)}
            yield recorded
    yield from _results_for_unanswered(waiting)
    yield from held


def _results_for_unanswered(waiting: Mapping[str, Recorded]) -> Iterator[Recorded]:
    for call, reply in waiting.items():
        stored = Stored(Digest.of_content(INTERRUPTED.encode()), len(INTERRUPTED))
        yield Recorded(
            reply.conversation, reply.seq, reply.time, ToolReturned(call, stored, 0, ok=False, head=INTERRUPTED)
        )


def text_of_exported_result(fact: ToolReturned, content: Content) -> str:
    found = content(fact.output.digest)
    return fact.head or (
        found.decode("utf-8", "replace") if found is not None else f"[{fact.output.digest}: not available]"
    )


# --- Claude Code ------------------------------------------------------------------------------------------------------


def export_session_id(conversation: str) -> str:
    """The name of the session: the same in every export."""
    return str(uuid.uuid5(_NAMES, conversation))


def claude_code_lines(facts: Sequence[Recorded], content: Content, folder: str) -> Iterator[Line]:
    """The lines of a session, for `~/.claude/projects/<folder>/<session>.jsonl`."""
    before = None
    for number, recorded in enumerate(list_said_and_done(facts)):
        fact = recorded.fact
        name = str(uuid.uuid5(_NAMES, f"{recorded.conversation} {number}"))
        kind = "assistant" if isinstance(fact, ModelReplied) else "user"
        blocks = (
            _claude_export_reply(fact) if isinstance(fact, ModelReplied) else list(_claude_export_user(fact, content))
        )
        if not blocks:
            continue
        yield {
            "parentUuid": before,
            "isSidechain": False,
            "userType": "external",
            "cwd": folder,
            "sessionId": export_session_id(recorded.conversation),
            "version": "2.0.0",
            "type": kind,
            "message": _claude_export_message(fact, name, blocks),
            "uuid": name,
            "timestamp": datetime.fromtimestamp(recorded.time, UTC)
            .isoformat(timespec="milliseconds")
            .replace("+00:00", "Z"),
        }
        before = name


def _claude_export_message(fact: object, name: str, blocks: list[Line]) -> Line:
    if not isinstance(fact, ModelReplied):
        return {"role": "user", "content": blocks}
    usage = fact.usage
    fresh = max(0, usage.input - usage.cache_read - usage.cache_write)
    told = {
        "input_tokens": fresh,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }
    reason = "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"
    about = {"id": f"msg_{name}", "type": "message", "role": "assistant", "model": fact.model, "stop_reason": reason}
    return {**about, "stop_sequence": None, "content": blocks, "usage": {**told, "output_tokens": usage.output}}


def _claude_export_reply(fact: ModelReplied) -> list[Line]:
    blocks: list[Line] = []
    for part in fact.parts:
        if isinstance(part, Text) and part.text.strip():
            blocks.append({"type": "text", "text": part.text})
        elif isinstance(part, Reasoning) and part.provider.startswith("anthropic ") and part.opaque:
            blocks.append(json.loads(part.opaque))
        elif isinstance(part, ToolCall):
            blocks.append(
                {
                    "type": "tool_use",
                    "id": part.id,
                    "name": with_plain_name(part).name,
                    "input": arguments_object(part.arguments),
                }
            )
    return blocks if any(block["type"] in ("text", "tool_use") for block in blocks) else []


def _claude_export_user(fact: object, content: Content) -> Iterator[Line]:
    if isinstance(fact, ToolReturned):
        text = {"type": "text", "text": text_of_exported_result(fact, content) or "(no output)"}
        pictures = [block for image in fact.images if (block := _picture_block(image, content)) is not None]
        yield {"type": "tool_result", "tool_use_id": fact.call, "content": [text, *pictures], "is_error": not fact.ok}
    elif isinstance(fact, UserSaid):
        for part in fact.parts:
            if isinstance(part, Text) and part.text.strip():
                yield {"type": "text", "text": part.text}
            elif isinstance(part, Attachment):
                yield _picture_block(part.stored, content) or {
                    "type": "text",
                    "text": text_of_exported_attachment(part, content),
                }


def _picture_block(stored: Stored, content: Content) -> Line | None:
    data = content(stored.digest) if stored.media_type.startswith("image/") else None
    if data is None:
        return None
    source = {"type": "base64", "media_type": stored.media_type, "data": base64.b64encode(data).decode("ascii")}
    return {"type": "image", "source": source}


def text_of_exported_attachment(part: Attachment, content: Content) -> str:
    data = content(part.stored.digest)
    return f"[Attachment: {part.name}]\n{data.decode('utf-8', 'replace') if data is not None else '[not available]'}"


def arguments_object(arguments: str) -> Line:
    try:
        value = json.loads(arguments or "{}")
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"malformed_arguments": arguments}


# --- OpenAI's chat completions ----------------------------------------------------------------------------------------


def openai_lines(facts: Sequence[Recorded], content: Content, _folder: str = "") -> Iterator[Line]:
    """The messages, one a line."""
    system = next((one.fact.text for one in reversed(facts) if isinstance(one.fact, SystemSet) and one.fact.text), "")
    if system:
        yield {"role": "system", "content": system}
    for recorded in list_said_and_done(facts):
        fact = recorded.fact
        if isinstance(fact, ModelReplied):
            yield _openai_export_reply(fact)
        elif isinstance(fact, ToolReturned):
            yield {"role": "tool", "tool_call_id": fact.call, "content": text_of_exported_result(fact, content)}
        elif isinstance(fact, UserSaid):
            yield {"role": "user", "content": _openai_export_user(fact, content)}


def _openai_export_reply(fact: ModelReplied) -> Line:
    calls = [
        {
            "id": part.id,
            "type": "function",
            "function": {"name": with_plain_name(part).name, "arguments": part.arguments},
        }
        for part in fact.parts
        if isinstance(part, ToolCall)
    ]
    text = "\n".join(part.text for part in fact.parts if isinstance(part, Text))
    said: Line = {"role": "assistant", "content": text or None}
    return {**said, "tool_calls": calls} if calls else said


def _openai_export_user(fact: UserSaid, content: Content) -> str | list[Line]:
    texts = [
        part.text if isinstance(part, Text) else text_of_exported_attachment(part, content)
        for part in fact.parts
        if not _is_picture_attachment(part)
    ]
    urls = [
        _picture_data_url(part.stored, content)
        for part in fact.parts
        if isinstance(part, Attachment) and _is_picture_attachment(part)
    ]
    pictures = [{"type": "image_url", "image_url": {"url": url}} for url in urls if url]
    text = "\n".join(texts)
    return [{"type": "text", "text": text}, *pictures] if pictures else text


def _is_picture_attachment(part: object) -> bool:
    return isinstance(part, Attachment) and part.stored.media_type.startswith("image/")


def _picture_data_url(stored: Stored, content: Content) -> str:
    data = content(stored.digest)
    return f"data:{stored.media_type};base64,{base64.b64encode(data).decode('ascii')}" if data is not None else ""
