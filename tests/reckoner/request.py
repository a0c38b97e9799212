"""What a request says at a moment, piece by piece, and its digest: from the definition alone."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    ModelRole,
    Reasoning,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from tests.reckoner.journal import Conversation, settings
from tests.reckoner.moment import NOTE, Item, Moment, Shown, moment, view

PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
INTERRUPTED = (
    "[No result: the run was interrupted before this call ended. It may have had effects; check before repeating.]"
)
GO_ON = "(Your reply above was cut off. Go on from where it ended.)"
BEGIN = "(The conversation goes on here.)"
GONE = "[This content is not available.]"

Piece = str | bytes
Part = list[Piece]


def digest(c: Conversation, n: int) -> str:
    found = hashlib.sha256()
    for piece in pieces(c, n):
        data = piece.encode() if isinstance(piece, str) else piece
        found.update(len(data).to_bytes(8, "big") + data)
    return found.hexdigest()


def pieces(c: Conversation, n: int) -> Iterator[Piece]:
    set_last = settings(c, n)
    texts = [set_last.system.text] if set_last.system and set_last.system.text else []
    texts += [f"Rules of this workspace, from {path}:\n\n{fact.text}" for path, (_, fact) in set_last.rules.items()]
    main = set_last.models.get(ModelRole.MAIN)
    yield from ("request 1", "\n\n".join(texts), main.effort if main else "")
    for tool in set_last.tools.tools if set_last.tools else ():
        yield from ("tool", tool.name, tool.description, tool.schema)
    for role, parts in messages(c, moment(c, n)):
        yield from ("message", role)
        for part in parts:
            yield from part


# --- messages --------------------------------------------------------------------------------------------------------


@dataclass
class Draft:
    """Messages as they come: role and parts. `reply`: the one whose part was written last."""

    messages: list[tuple[str, list[Part]]] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    held: list[Part] = field(default_factory=list)
    reply: int = 0

    @property
    def last(self) -> str:
        return self.messages[-1][0] if self.messages else ""


def messages(c: Conversation, now: Moment) -> list[tuple[str, list[Part]]]:
    draft = Draft()
    for item in view(now):
        for shown in item.shown:
            _write(draft, c, now, item, shown)
    _interrupt(draft)
    _drop_thoughts(draft)
    if draft.last == "assistant":
        _add(draft, "user", [["text", GO_ON]])
    if not draft.messages:
        _add(draft, "user", [["text", BEGIN]])
    return draft.messages


def _write(draft: Draft, c: Conversation, now: Moment, item: Item, shown: Shown) -> None:
    message = now.messages[shown.ref.seq] if shown.ref else None
    if item.fold is not None or isinstance(message, UserSaid):
        said = _said(c, now, shown)
        if draft.waiting:
            draft.held += said
        elif said:
            _add(draft, "user", said)
    elif isinstance(message, ModelReplied):
        _write_reply(draft, now, shown)
    else:
        _write_result(draft, c, now, shown)


def _write_reply(draft: Draft, now: Moment, shown: Shown) -> None:
    assert shown.ref is not None
    if draft.reply != shown.ref.seq:
        _interrupt(draft)
        _drop_thoughts(draft)
        if draft.last == "assistant":
            _add(draft, "user", [["text", GO_ON]])
        draft.reply = shown.ref.seq
    if not draft.messages:
        _add(draft, "user", [["text", BEGIN]])
    part = _replied(now, shown)
    _add(draft, "assistant", [part])
    if part[0] == "call":
        draft.waiting.append(str(part[1]))


def _write_result(draft: Draft, c: Conversation, now: Moment, shown: Shown) -> None:
    assert shown.ref is not None
    fact = now.messages[shown.ref.seq]
    assert isinstance(fact, ToolReturned)
    call = _call_of(now, shown.ref.seq)
    if shown.ref.part:
        if shown.how == "whole":
            for part in draft.messages[-1][1] if draft.messages else ():
                if part[:2] == ["result", call]:
                    part.extend(_content(c, fact.images[shown.ref.part - 1]))
    elif call in draft.waiting:
        draft.waiting.remove(call)
        text = _output(c, fact, shown)
        said = text if text.strip() else "(no output)"
        _add(draft, "user", [["result", call, said, "ok" if fact.ok else "failed"]])
    if not draft.waiting:
        _release(draft)


def _interrupt(draft: Draft) -> None:
    """Calls that still wait get a result; then what was held back comes."""
    if draft.waiting:
        _add(draft, "user", [["result", call, INTERRUPTED, "failed"] for call in draft.waiting])
        draft.waiting = []
    _release(draft)


def _release(draft: Draft) -> None:
    held, draft.held = draft.held, []
    if held:
        _add(draft, "user", held)


def _drop_thoughts(draft: Draft) -> None:
    """A message of reasoning alone is left out."""
    if draft.messages and all(part[0] == "reasoning" for part in draft.messages[-1][1]):
        draft.messages.pop()


def _add(draft: Draft, role: str, parts: Iterable[Part]) -> None:
    if role == "user":
        _drop_thoughts(draft)
    if draft.last == role:
        draft.messages[-1][1].extend(parts)
    else:
        draft.messages.append((role, list(parts)))


# --- parts -----------------------------------------------------------------------------------------------------------


def _said(c: Conversation, now: Moment, shown: Shown) -> list[Part]:
    """A part as the user says it: the user's own, a document, or what stands behind one."""
    if shown.ref is None:
        return _text(shown.fold.fact.text if shown.fold else "")
    message = now.messages[shown.ref.seq]
    if isinstance(message, ToolReturned):
        return _kept_output(c, now, message, shown)
    part = message.parts[shown.ref.part]
    if isinstance(part, ToolCall):
        name, arguments = _legal(part, shown)
        return [["text", f"[Kept word for word: call of {name}]\n{arguments}"]]
    if shown.fold is not None:
        return _text(shown.fold.fact.text)
    if isinstance(part, Attachment):
        found = _content(c, part.stored)
        return [found if found[0] == "image" else ["text", f"[Attachment: {part.name}]\n{found[1]!s}"]]
    return _text(part.text) if isinstance(part, Text) else []


def _kept_output(c: Conversation, now: Moment, fact: ToolReturned, shown: Shown) -> list[Part]:
    assert shown.ref is not None
    if shown.how != "whole":
        return _text(NOTE if shown.how == "note" else shown.fold.fact.text if shown.fold else "")
    found = _content(c, (fact.output, *fact.images)[shown.ref.part])
    call = _call_of(now, shown.ref.seq)
    return [found if found[0] == "image" else ["text", f"[Kept word for word: output of call {call}]\n{found[1]!s}"]]


def _text(text: str) -> list[Part]:
    return [["text", text]] if text.strip() else []


def _replied(now: Moment, shown: Shown) -> Part:
    assert shown.ref is not None
    reply = now.messages[shown.ref.seq]
    assert isinstance(reply, ModelReplied)
    part = reply.parts[shown.ref.part]
    if isinstance(part, ToolCall):
        name, arguments = _legal(part, shown)
        if part.via:
            name, arguments = part.via, f'{{"name": {json.dumps(name)}, "arguments": {arguments}}}'
        return ["call", now.ids[shown.ref], name, arguments]
    if shown.fold is not None:
        return ["text", shown.fold.fact.text]
    if isinstance(part, Reasoning):
        return ["reasoning", part.text, part.opaque, part.provider]
    return ["text", part.text]


def _output(c: Conversation, fact: ToolReturned, shown: Shown) -> str:
    if shown.how == "note":
        return NOTE
    return shown.fold.fact.text if shown.fold else str(_content(c, fact.output)[1])


def _call_of(now: Moment, seq: int) -> str:
    return now.ids[next(ref for ref, answer in now.answers.items() if answer == seq)]


def _content(c: Conversation, stored: Stored) -> Part:
    """What is stored, as a model is shown it: a picture, or text."""
    content = c.contents.get(stored.digest)
    if content is None:
        return ["text", GONE]
    if stored.media_type in PICTURES:
        return ["image", stored.media_type, content]
    if b"\0" in content[:4096] and not stored.media_type.startswith("text/"):
        return ["text", f"[{len(content):,} bytes of {stored.media_type}; not text]"]
    return ["text", content.decode("utf-8", "replace").replace("\0", "\u2400")]


# --- calls -----------------------------------------------------------------------------------------------------------


def _legal(call: ToolCall, shown: Shown) -> tuple[str, str]:
    """Name and arguments as they are in a request, without `via`."""
    name = re.sub("[^A-Za-z0-9_-]", "_", call.name)[:64] or "unnamed"
    if shown.how == "note":
        return name, json.dumps({"note": NOTE})
    arguments = _arguments(call.arguments)
    return name, _cleared(arguments, shown.fold.fact.text) if shown.fold else arguments


def _arguments(written: str) -> str:
    if isinstance(_read(written, strict=True), dict):
        return written
    found = _read(written, strict=False)
    if isinstance(found, str):
        found = _read(found, strict=False)
    if not isinstance(found, dict):
        found = {"malformed": written} if written.strip() else {}
    return json.dumps(found, ensure_ascii=False)


def _cleared(arguments: str, text: str) -> str:
    """A fold's text for the first long value, a few words for the others."""
    values: dict[str, Any] = json.loads(arguments)
    stands = False
    for key, value in values.items():
        if len(value if isinstance(value, str) else json.dumps(value)) > 400:
            values[key] = "[CACHED] in the same entry" if stands else text
            stands = True
    if text not in values.values():
        values["cached"] = text
    return json.dumps(values, ensure_ascii=False)


def _read(text: str, *, strict: bool) -> Any:
    """JSON, without NaN and Infinity; None where it is none. `strict`: no control characters in strings."""

    def none(name: str) -> Any:
        raise ValueError(name)

    try:
        return json.loads(text, strict=strict, parse_constant=none)
    except (ValueError, RecursionError):
        return None
