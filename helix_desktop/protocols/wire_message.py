"""The common form of a message of every protocol: a role, and pieces that know their position in the JSON."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Any

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.fast_dataclass import dataclass

Json = Any
Path = tuple[int | str, ...]
SLICE = 1 << 18


class Speaker(StrEnum):
    """Who says a message. Results of calls are `tool`, whatever role the protocol gives them."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class PieceKind(StrEnum):
    """What a piece is. `OTHER`: a block this program does not know; it goes on as it came."""

    TEXT = "text"
    REASONING = "reasoning"
    CALL = "call"
    RESULT = "result"
    IMAGE = "image"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Piece:
    """One part of a message. `text`: of a call its arguments as JSON, of an image its base64. `id`: of the call, also in its
    result; `path`: where the piece stands in the units of its message.
    """

    kind: PieceKind
    text: str
    path: Path = ()
    id: str = ""
    name: str = ""
    ok: bool = True
    media_type: str = ""


@dataclass(frozen=True, slots=True)
class Wired:
    """One message: the JSON values it came as (several items in OpenAI's Responses) and what they say."""

    speaker: Speaker
    units: tuple[Json, ...]
    pieces: tuple[Piece, ...]

    def pieces_of_kind(self, kind: PieceKind) -> list[Piece]:
        """The pieces of one kind, in order."""
        return [piece for piece in self.pieces if piece.kind is kind]

    @property
    def identity_key(self) -> str:
        """What makes it the same message: the calls of a reply, or its words; of others all they say. Reasoning, marks for the
        provider's cache and white space are no part of it, because clients change them.
        """
        calls, words = self.pieces_of_kind(PieceKind.CALL), False
        if self.speaker is Speaker.ASSISTANT and calls:
            said: Iterable[Iterable[str]] = ((f"{call.name}\0{call.id}",) for call in calls)
        elif self.speaker is Speaker.ASSISTANT:
            said, words = ((piece.text for piece in self.pieces_of_kind(PieceKind.TEXT)),), True
        else:
            said = ((f"{piece.kind}\0{piece.id}\0", piece.text) for piece in self.pieces)
        digest = hashlib.blake2b(self.speaker.encode(), digest_size=16)
        for texts in said:
            digest.update(b"\1")
            for part in (part for text in texts for part in slice_text(text)):
                digest.update(("".join(part.split()) if words else part).encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


@dataclass(frozen=True, slots=True)
class WireReply:
    """A whole reply of a model as the provider wrote it."""

    message: Wired
    stop: Stop
    usage: Usage = Usage()
    model: str = ""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """What stands before the messages of a request."""

    model: str
    system: str
    tools: tuple[Tool, ...]


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool as the client offers it."""

    name: str
    description: str = ""
    schema: str = ""


@dataclass(frozen=True, slots=True)
class PieceEdit:
    """One piece of a message shown as something else. `at`: its place among the pieces; `text` None: left out."""

    at: int
    text: str | None


@dataclass(slots=True)
class CallNumbering:
    """Numbers the calls of a protocol that gives them no ids."""

    given: int = 0
    waiting: list[tuple[str, str]] = field(default_factory=list)  # name and id of calls without a result

    def number_call(self, name: str) -> str:
        self.given += 1
        self.waiting.append((name, f"call-{self.given}"))
        return self.waiting[-1][1]

    def call_of_result(self, name: str) -> str:
        """The oldest call of that name that has no result yet."""
        for at, (called, number) in enumerate(self.waiting):
            if called == name:
                del self.waiting[at]
                return number
        return ""


def slice_text(text: str) -> Iterator[str]:
    """A text in parts: work on one of 30 MB at a stretch would hold all other threads up."""
    return (text[at : at + SLICE] for at in range(0, len(text), SLICE))


def text_of_content(content: Json) -> str:
    """Text of a content that is a string, or a list of parts with a text."""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of_content([content])
    if isinstance(content, Sequence):
        found = (
            part if isinstance(part, str) else part.get("text") for part in content if isinstance(part, str | Mapping)
        )
        return "\n".join(text for text in found if isinstance(text, str))
    return ""


def copy_with_change(value: Json, path: Path, fresh: Json) -> Json:
    """A copy of `value` with `fresh` at `path`; what is not on the way is shared. `fresh` None: taken out."""
    if not path:
        return fresh
    step: Any = path[0]
    rest = path[1:]
    copy: Any = list(value) if isinstance(value, list | tuple) else dict(value)
    if fresh is None and not rest:
        del copy[step]
    else:
        copy[step] = copy_with_change(value[step], rest, fresh)
    return copy
