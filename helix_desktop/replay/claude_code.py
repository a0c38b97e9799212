"""Sessions of Claude Code: `~/.claude/projects/<project>/<session>.jsonl`, one event per line.

A reply of the model stands in several lines with one `message.id`, one per content block. Lines of sub-agents
(`isSidechain`), summaries, snapshots and other events are not messages of this session and are passed over in silence.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from helix_desktop.replay.recording import RecordedCall, RecordedMessage
from helix_desktop.replay.rows import Row, Unreadable, arguments_of, mapping, string, text_of


def is_one(value: Mapping[str, object]) -> bool:
    """Whether a row is an event of Claude Code."""
    return value.get("type") in ("user", "assistant") and isinstance(value.get("message"), Mapping)


def messages(rows: Sequence[Row], complaints: list[str]) -> list[RecordedMessage]:
    """The messages of the main line of the session."""
    made: list[RecordedMessage] = []
    last_id = ""
    for row in rows:
        if not is_one(row.value) or row.value.get("isSidechain"):
            continue
        inner = mapping(row.value["message"])
        try:
            found = list(_read(inner, reply=row.value["type"] == "assistant"))
        except Unreadable as error:
            complaints.append(row.complaint(error))
            continue
        same = string(inner, "id")
        if found and same and same == last_id and made[-1].role == "assistant":
            made[-1] = _joined(made[-1], found[0])
        else:
            made.extend(found)
        if found:
            last_id = same
    return made


def _read(inner: Mapping[str, object], *, reply: bool) -> Iterator[RecordedMessage]:
    content = inner.get("content")
    blocks = [mapping(block) for block in content] if isinstance(content, list) else []
    if reply:
        yield _reply(content, blocks)
        return
    for block in blocks:
        if block.get("type") == "tool_result":
            answers = string(block, "tool_use_id")
            if not answers:
                raise Unreadable("a tool result names no call")
            yield RecordedMessage("tool", text_of(block.get("content")), answers=answers, ok=not block.get("is_error"))
    said = [block for block in blocks if block.get("type") != "tool_result"]
    text = text_of(said) if isinstance(content, list) else text_of(content)
    if text.strip():
        yield RecordedMessage("user", text)


def _reply(content: object, blocks: Sequence[Mapping[str, object]]) -> RecordedMessage:
    if not isinstance(content, list):
        return RecordedMessage("assistant", text_of(content))
    calls = [
        RecordedCall(string(block, "id"), string(block, "name"), arguments_of(block.get("input")))
        for block in blocks
        if block.get("type") == "tool_use"
    ]
    if not all(call.id and call.name for call in calls):
        raise Unreadable("a call has no id or no name")
    text = "\n".join(string(block, "text") for block in blocks if block.get("type") == "text")
    thinking = "\n".join(string(block, "thinking") for block in blocks if block.get("type") == "thinking")
    return RecordedMessage("assistant", text, tuple(calls), reasoning=thinking)


def _joined(one: RecordedMessage, other: RecordedMessage) -> RecordedMessage:
    """Two lines of one reply."""
    return replace(
        one,
        text="\n".join(text for text in (one.text, other.text) if text),
        calls=(*one.calls, *other.calls),
        reasoning="\n".join(text for text in (one.reasoning, other.reasoning) if text),
    )
