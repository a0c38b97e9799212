"""A request of a moment and its digest, written from store/FORMATS.md alone, without
sight of the engine.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    ModelRole,
    PartRef,
    Reasoning,
    Stop,
    Stored,
    ToolCall,
    ToolReturned,
)
from tests.reckoner.journal import Conversation, Settings, settings
from tests.reckoner.moment import NOTE, Item, Moment, Shown, moment, view

CONTINUE = "Continue."
CUT_OFF = "(Your reply above was cut off. Go on from where it ended.)"
GOES_ON = "(The conversation goes on here.)"
INTERRUPTED = "[No result: the run was interrupted before this call ended. It may have had effects; check before repeating.]"
NO_OUTPUT = "(no output)"
SAME_ENTRY = "[CACHED] in the same entry"
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
LONG = 400
LOOKED_AT = 4096
LONGEST_NAME = 64

Piece = str | bytes
Part = tuple[Piece, ...]  # the word for its sort, then what the digest takes of it
Object = dict[str, Any]


def digest(c: Conversation, n: int) -> str:
    sha = hashlib.sha256()
    for piece in pieces(c, n):
        data = piece if isinstance(piece, bytes) else piece.encode("utf-8", "surrogatepass")
        sha.update(len(data).to_bytes(8, "big") + data)
    return sha.hexdigest()


def pieces(c: Conversation, n: int) -> Iterator[Piece]:
    now = settings(c, n)
    main = now.models.get(ModelRole.MAIN)
    yield from ("request 1", _system_text(now), main.effort if main else "")
    for tool in now.tools.tools if now.tools else ():
        yield from ("tool", tool.name, tool.description, tool.schema)
    for said in messages(c, moment(c, n)):
        yield from ("message", said.role)
        for part in said.parts:
            yield from part


def _system_text(now: Settings) -> str:
    prompt = [now.system.text] if now.system and now.system.text else []
    rules = [
        f"Rules of this workspace, from {path}:\n\n{fact.text}"
        for path, (_, fact) in now.rules.items()
    ]
    return "\n\n".join(prompt + rules)


# --- the messages


@dataclass
class Said:
    role: str
    parts: list[Part]

    def is_reasoning_alone(self) -> bool:
        return self.role == "assistant" and all(part[0] == "reasoning" for part in self.parts)


@dataclass
class Draft:
    said: list[Said] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)  # the ids of calls
    held: list[Part] = field(default_factory=list)
    reply: int = 0  # the last one of which a part was added
    ended: bool = False  # that one, by itself

    def add(self, role: str, part: Part) -> None:
        if not self.said or self.said[-1].role != role:
            self.said.append(Said(role, []))
        self.said[-1].parts.append(part)

    def user_says(self, parts: list[Part]) -> None:
        if self.waiting:
            self.held += parts
            return
        if parts:
            self.drop_reasoning()
        for part in parts:
            self.add("user", part)

    def release(self) -> None:
        if not self.waiting:
            held, self.held = self.held, []
            self.user_says(held)

    def drop_reasoning(self) -> None:
        if self.said and self.said[-1].is_reasoning_alone():
            self.said.pop()

    def close(self) -> None:
        for call in self.waiting:
            self.add("user", ("result", call, INTERRUPTED, "failed"))
        self.waiting = []
        self.release()

    def answer(self) -> None:
        """The user says something where the last message is the assistant's, or where
        there is none.
        """
        self.close()
        self.drop_reasoning()
        if not self.said:
            self.add("user", ("text", GOES_ON))
        elif self.said[-1].role == "assistant":
            self.add("user", ("text", CONTINUE if self.ended else CUT_OFF))


def messages(c: Conversation, now: Moment) -> list[Said]:
    draft = Draft()
    for item in view(now):
        for shown in item.shown:
            _write(draft, c, now, item, shown)
    draft.answer()
    return draft.said


def _write(draft: Draft, c: Conversation, now: Moment, item: Item, shown: Shown) -> None:
    message = now.messages[shown.ref.seq] if shown.ref and not item.fold else None
    if isinstance(message, ModelReplied):
        _write_reply(draft, now, shown, ended=message.stop is Stop.END)
    elif isinstance(message, ToolReturned):
        _write_result(draft, c, now, shown)
    else:
        part = _says(c, now, shown)
        if part[0] != "reasoning" and not (part[0] == "text" and not str(part[1]).strip()):
            draft.user_says([part])


def _write_reply(draft: Draft, now: Moment, shown: Shown, *, ended: bool) -> None:
    assert shown.ref
    if draft.reply != shown.ref.seq:
        draft.answer()
        draft.reply = shown.ref.seq
        draft.ended = ended
    part = _replied(now, shown)
    draft.add("assistant", part)
    if part[0] == "call":
        draft.waiting.append(str(part[1]))


def _write_result(draft: Draft, c: Conversation, now: Moment, shown: Shown) -> None:
    fact, ref = _result(now, shown)
    call = _answered(now, ref.seq)
    if shown.sort == "output":
        if call not in draft.waiting:
            return
        draft.waiting.remove(call)
        draft.add("user", ("result", call, *_output(c, fact, shown), "ok" if fact.ok else "failed"))
    if shown.how == "whole":
        stored = fact.images[ref.part - 1] if ref.part else fact.output
        content = _content(c, stored)
        if content[0] == "image":
            _join_picture(draft, call, content)
        elif ref.part and stored.media_type.startswith("text/"):
            _join_text_of_document(draft, call, str(content[1]))
    draft.release()


def _join_picture(draft: Draft, call: str, picture: Part) -> None:
    """A picture joins the result of its call in the last message."""
    parts = draft.said[-1].parts if draft.said else []
    for i, part in enumerate(parts):
        if part[:2] == ("result", call):
            parts[i] = (*part, *picture)


def _join_text_of_document(draft: Draft, call: str, text: str) -> None:
    """The text of a document stands behind the text of its result, or in its place if it is empty."""
    parts = draft.said[-1].parts if draft.said else []
    for i, part in enumerate(parts):
        if part[:2] == ("result", call):
            before, *rest = part[2:]
            joined = text if before == NO_OUTPUT else f"{before!s}\n{text}"
            parts[i] = ("result", call, joined, *rest)


# --- the parts


def _replied(now: Moment, shown: Shown) -> Part:
    part = _part(now, shown)
    if isinstance(part, ToolCall):
        assert shown.ref
        return ("call", now.ids[shown.ref], *_call(part, shown))
    if shown.fold:
        return ("text", shown.fold.fact.text)
    if isinstance(part, Reasoning):
        return ("reasoning", part.text, part.opaque, part.provider)
    return ("text", part.text)


def _says(c: Conversation, now: Moment, shown: Shown) -> Part:
    """What the user says of a part of `UserSaid`, of a document, or of what stands behind one."""
    if shown.fold and shown.sort != "call":
        return ("text", shown.fold.fact.text)
    if shown.sort in ("output", "image") and isinstance(
        now.messages[shown.ref.seq if shown.ref else 0], ToolReturned
    ):
        return _kept_result(c, now, shown)
    part = _part(now, shown)
    if isinstance(part, ToolCall):
        return (
            "text",
            f"[Kept word for word: call of {_name(part.name)}]\n{_arguments(part, shown)}",
        )
    if isinstance(part, Attachment):
        content = _content(c, part.stored)
        return (
            content
            if content[0] == "image"
            else ("text", f"[Attachment: {part.name}]\n{content[1]!s}")
        )
    return ("reasoning",) if isinstance(part, Reasoning) else ("text", part.text)


def _kept_result(c: Conversation, now: Moment, shown: Shown) -> Part:
    fact, ref = _result(now, shown)
    if shown.how == "note":
        return ("text", NOTE)
    content = _content(c, fact.images[ref.part - 1] if ref.part else fact.output)
    if content[0] == "image":
        return content
    return (
        "text",
        f"[Kept word for word: output of call {_answered(now, ref.seq)}]\n{content[1]!s}",
    )


def _part(now: Moment, shown: Shown) -> Any:
    assert shown.ref
    message = now.messages[shown.ref.seq]
    assert not isinstance(message, ToolReturned)
    return message.parts[shown.ref.part]


def _result(now: Moment, shown: Shown) -> tuple[ToolReturned, PartRef]:
    assert shown.ref
    fact = now.messages[shown.ref.seq]
    assert isinstance(fact, ToolReturned)
    return fact, shown.ref


def _answered(now: Moment, result: int) -> str:
    return next(now.ids[call] for call, seq in now.answers.items() if seq == result)


def _output(c: Conversation, fact: ToolReturned, shown: Shown) -> Part:
    if shown.fold or shown.how == "note":
        text = shown.fold.fact.text if shown.fold else NOTE
    else:
        content = _content(c, fact.output)
        text = str(content[1]) if content[0] == "text" else ""
    return (text if text.strip() else NO_OUTPUT,)


def _content(c: Conversation, stored: Stored) -> Part:
    data = c.contents[stored.digest]
    if stored.media_type in PICTURES:
        return ("image", stored.media_type, data)
    if b"\0" in data[:LOOKED_AT] and not stored.media_type.startswith("text/"):
        return ("text", f"[{len(data):,} bytes of {stored.media_type}; not text]")
    return ("text", data.decode("utf-8", "replace").replace("\0", "\u2400"))


# --- calls


def _name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name)[:LONGEST_NAME] or "unnamed"


def _call(call: ToolCall, shown: Shown) -> tuple[str, str]:
    arguments = _arguments(call, shown)
    if not call.via:
        return _name(call.name), arguments
    return _name(call.via), f'{{"name": {_json(_name(call.name))}, "arguments": {arguments}}}'


def _arguments(call: ToolCall, shown: Shown) -> str:
    if shown.how == "note":
        return _json({"note": NOTE})
    if shown.fold:
        return _json(_shortened(json.loads(_legal(call.arguments)), shown.fold.fact.text))
    return _legal(call.arguments)


def _legal(arguments: str) -> str:
    if isinstance(_read(arguments), dict):
        return arguments
    found = _read(arguments, strict=False)
    if isinstance(found, str):
        found = _read(found, strict=False)
    if isinstance(found, dict):
        return _json(found)
    return _json({"malformed": arguments} if arguments.strip() else {})


def _read(text: str, *, strict: bool = True) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(constant)

    def number(written: str) -> float:
        if math.isinf(float(written)):
            refuse(written)
        return float(written)

    try:
        return json.loads(text, strict=strict, parse_constant=refuse, parse_float=number)
    except (ValueError, RecursionError):
        return None


def _json(value: Object | str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shortened(values: Object, text: str) -> Object:
    shortened = {}
    put = False
    for key, value in values.items():
        written = value if isinstance(value, str) else json.dumps(value)
        shortened[key] = value if len(written) <= LONG else SAME_ENTRY if put else text
        put = put or len(written) > LONG
    return shortened if text in shortened.values() else {**shortened, "cached": text}
