"""The common form of a message of every protocol: a role, and pieces that know their position in the JSON."""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from operator import itemgetter
from typing import Any

from helix_desktop.engine.facts import Stop, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import format_json_value, list_at, object_at, text_at, without_fields

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
    """One part of a message. `text`: of a call its arguments as JSON, of an image its base64. `id`:
    of the call, also in its result; `path`: where the piece stands in the units of its message.
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
        return [piece for piece in self.pieces if piece.kind is kind]

    @property
    def identity_key(self) -> str:
        """What makes it the same message: the calls of a reply, or its words; of others all they say. Reasoning, marks
        for the provider's cache and white space are no part of it, because clients change them.
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
    """`effort`: how the request asks for thinking, as JSON; empty: as the model is used to."""

    model: str
    system: str
    tools: "tuple[Tool, ...]"
    effort: str = ""


@dataclass(frozen=True, slots=True)
class Tool:
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
    waiting: list[tuple[str, str]] = field(default_factory=list)  # Names and ids of calls that have no result so far.

    def assign_call_number(self, name: str) -> str:
        self.given += 1
        self.waiting.append((name, f"call-{self.given}"))
        return self.waiting[-1][1]

    def number_of_oldest_open_call(self, name: str) -> str:
        for at, (called, number) in enumerate(self.waiting):
            if called == name:
                del self.waiting[at]
                return number
        return ""


def slice_text(text: str) -> Iterator[str]:
    """A text in parts: work on one of 30 MB at a stretch would hold all other threads up."""
    return (text[at : at + SLICE] for at in range(0, len(text), SLICE))


def text_of_content(content: Json) -> str:
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


def read_effort(*asked: Json) -> str:
    """The settings of a request that tell how long the model is to think, as one text."""
    return " ".join(format_json_value(one) for one in asked if one)


def read_tool(value: Mapping[str, Json], schema: Json, name: str = "") -> Tool:
    """A tool as a client offers it. `name`: of one that has none."""
    return Tool(text_at(value, "name") or name, text_at(value, "description"), format_json_value(schema))


def piece_of_image_url(url: str, path: Path) -> Piece | None:
    """The image in a `data:` address; None for any other."""
    if not url.startswith("data:") or ";base64," not in url:
        return None
    media, _, data = url[5:].partition(";base64,")
    return Piece(PieceKind.IMAGE, data, path, media_type=media)


def unknown_piece(value: Mapping[str, Json], path: Path) -> Piece:
    """A block this program does not know. The mark of the provider's cache is no part of it."""
    return Piece(PieceKind.OTHER, format_json_value(without_fields(value, "cache_control")), path)


def edit_pieces(
    wired: Wired, edits: Sequence[PieceEdit], field_of: Callable[[Json, Piece, str], tuple[Path, Json]]
) -> list[Json]:
    """The message with some pieces replaced. `field_of`: the field that holds a piece's text, and what to write."""
    units: Any = list(wired.units)
    for edit in sorted(edits, key=lambda edit: -edit.at):
        piece = wired.pieces[edit.at]
        below, fresh = ((), None) if edit.text is None else field_of(units, piece, edit.text)
        path = (*piece.path, *below)
        if fresh is None and len(path) > 1 and len(list_at(units, *path[:-1])) == 1:
            path = path[:-1]  # No provider accepts an empty list of parts.
        units = copy_with_change(units, path, fresh)
    return list(units)


def replace_text_in_content(before: Json, text: str, kind: str) -> Json:
    """A content as it was: a string, or a list; its pictures stay."""
    if not isinstance(before, list):
        return text
    return [{"type": kind, "text": text}, *(part for part in before if "text" not in object_at(part))]


def join_added_messages(
    units: Sequence[tuple[Json, bool]],
    field_name: str,
    parts_of: Callable[[Json], list[Json]],
    result: Callable[[Json], bool],
) -> list[Json]:
    """Messages of one role made one where one of them was added here (`True`); results come first in theirs."""
    if not any(map(itemgetter(1), units)):
        return list(map(itemgetter(0), units))
    out: list[tuple[Json, bool]] = []
    for unit, added in units:
        if out and (added or out[-1][1]) and text_at(out[-1][0], "role") == text_at(unit, "role"):
            parts = sorted([*parts_of(out[-1][0]), *parts_of(unit)], key=lambda part: not result(part))
            out[-1] = ({**out[-1][0], field_name: parts}, True)
        else:
            out.append((unit, added))
    return [unit for unit, _ in out]


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
