"""The form in which messages of all protocols are read: a role, and pieces with their
places in the JSON.
"""

import hashlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field
from enum import StrEnum
from operator import attrgetter
from typing import Any

from helix_desktop.engine.agent_documents import AgentDocument, read_agent_document
from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import (
    first_text,
    format_json_value,
    list_at,
    object_at,
    parse_json_or_none,
    text_at,
    without_fields,
)

Json = Any
Path = tuple[int | str, ...]
SLICE = 1 << 18
IMAGE_ADDRESS = "data:image/"
# Characters of a block that this program does not read, and of a text in it, which are recorded.
MOST_CHARACTERS_OF_BLOCK = 20_000
MOST_WORDS_OF_BLOCK = 2_000
# Parts of a result that have words, but none that are its text. A document is one of them if its
# file is not all that it has.
_PARTS_WITH_WORDS = frozenset({"search_result", "browser_state", "document", "input_file", "file"})
# Parts of a result that are pictures. Where the part has only an address, the provider has the picture.
_PICTURES = frozenset({"image", "input_image", "image_url"})


class Speaker(StrEnum):
    """A message's speaker. Results of calls are the user's, whatever their role in the protocol."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


class PieceKind(StrEnum):
    """A piece's kind. `OTHER`: a block unknown to this program, sent on as it came."""

    TEXT = "text"
    REASONING = "reasoning"
    CALL = "call"
    RESULT = "result"
    IMAGE = "image"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a message. `path`: where the piece is in the message's units.

    `outlives_folds`: it goes on where it stood, although a fold (a shorter text) takes the
    place of its message. `images`: those in the result of a call, as addresses that have all of
    them (`data:…`). `documents`: those in the result of a call.
    """

    kind: PieceKind
    text: str
    path: Path = ()
    id: str = ""
    name: str = ""
    ok: bool = True
    media_type: str = ""
    outlives_folds: bool = False
    images: tuple[str, ...] = ()
    documents: tuple[AgentDocument, ...] = ()

    @property
    def has_own_text(self) -> bool:
        """Whether it has a text that a fold can shorten, and is no picture or other block."""
        return self.kind not in (PieceKind.IMAGE, PieceKind.OTHER)


@dataclass(frozen=True, slots=True)
class ProtocolMessage:
    """A message: its JSON values (several in OpenAI's Responses), and the pieces they contain."""

    speaker: Speaker
    units: tuple[Json, ...]
    pieces: tuple[Piece, ...]

    def pieces_of_kind(self, kind: PieceKind) -> list[Piece]:
        return [piece for piece in self.pieces if piece.kind is kind]

    @property
    def identity_key(self) -> str:
        """Return a short text by which the message is known again in a later request.

        Clients change details of what they send again, such as white space. So a reply with
        calls is known by these, another reply by its letters, and what the user says by all
        of it.
        """
        digest = hashlib.blake2b(self.speaker.encode(), digest_size=16)
        if self.speaker is not Speaker.ASSISTANT:
            for piece in self.pieces:
                _add_to_digest(digest, f"{piece.kind}\0{piece.id}\0", piece.text)
            return digest.hexdigest()

        calls = self.pieces_of_kind(PieceKind.CALL)
        if calls:
            for call in calls:
                _add_to_digest(digest, f"{call.name}\0{call.id}")
            return digest.hexdigest()

        # Clients join, split and trim a reply's texts.
        digest.update(b"\1")
        for piece in self.pieces_of_kind(PieceKind.TEXT):
            for part in slice_text(piece.text):
                letters = "".join(part.split())
                digest.update(letters.encode("utf-8", "surrogatepass"))
        return digest.hexdigest()


def _add_to_digest(digest: Any, *texts: str) -> None:
    """Add texts, with a mark before them, so that they differ from others of the same letters."""
    digest.update(b"\1")
    for text in texts:
        for part in slice_text(text):
            digest.update(part.encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, slots=True)
class WireReply:
    """A model's whole reply as the provider wrote it."""

    message: ProtocolMessage
    stop: Stop
    usage: Usage = Usage()
    model: str = ""


@dataclass(frozen=True, slots=True)
class RequestHead:
    """`effort`: the requested thinking as JSON, or an empty string."""

    model: str
    system: str
    tools: tuple[ToolSpec, ...]
    effort: str = ""


@dataclass(frozen=True, slots=True)
class PieceEdit:
    """A change to the piece at a position of a message. `text`: None removes the piece."""

    position: int
    text: str | None


# The ids that calls get here if their protocol has none.
NUMBERED_CALL_ID = re.compile(r"call-\d+")


@dataclass(slots=True)
class CallNumbering:
    """Numbers calls in protocols without call ids."""

    call_count: int = 0
    # The names and ids of calls that have no results yet.
    calls_without_result: list[tuple[str, str]] = field(default_factory=list)

    def assign_call_number(self, name: str) -> str:
        """Return an id for the next call, which is of this tool."""
        self.call_count += 1
        call_id = f"call-{self.call_count}"
        self.calls_without_result.append((name, call_id))
        return call_id

    def pop_oldest_open_call(self, name: str) -> str:
        """Return the id of the oldest call of this tool that has no result yet, which it gets now."""
        for position, (called_name, call_id) in enumerate(self.calls_without_result):
            if called_name == name:
                del self.calls_without_result[position]
                return call_id
        return ""


def slice_text(text: str) -> Iterator[str]:
    """Yield a text in parts, because processing 30 MB at once would block other threads."""
    for start in range(0, len(text), SLICE):
        yield text[start : start + SLICE]


# A text without a type is one, too. Any other part is kept, although it may have a text.
PLAIN_TEXT_TYPES = frozenset({"", "text", "input_text", "output_text"})


def text_of_content(content: Json) -> str:
    """Return the texts of a content, which is a text, a part or a list of both."""
    if isinstance(content, str):
        return content
    parts = content
    if isinstance(content, Mapping):
        parts = [content]
    if not isinstance(parts, Sequence):
        return ""
    texts: list[str] = []
    for part in parts:
        text = part
        if isinstance(part, Mapping):
            text = part.get("text")
        if isinstance(text, str):
            texts.append(text)
    return "\n".join(texts)


def documents_of_content(content: Json) -> tuple[AgentDocument, ...]:
    """Return the documents in a result's content: those that are there as whole files, and what
    else has words that are no text of the result.
    """
    if not isinstance(content, list):
        return ()
    documents: list[AgentDocument] = []
    for part in map(object_at, content):
        document = read_agent_document(part)
        if document is None and text_at(part, "type") in _PARTS_WITH_WORDS:
            document = _read_part_with_words(part)
        if document is None:
            document = _read_picture_elsewhere(part)
        if document is not None:
            documents.append(document)
    return tuple(documents)


def _read_part_with_words(part: Mapping[str, Json]) -> AgentDocument:
    """Return a part of a result as a document, so that it can be recalled behind a fold."""
    name = text_at(part, "title") or text_at(part, "type").replace("_", " ")
    text = format_json_value(without_fields(part, "cache_control"))
    return AgentDocument(f"{name}.json", "application/json", text=text)


def _read_picture_elsewhere(part: Mapping[str, Json]) -> AgentDocument | None:
    """Return where a picture is that the part itself does not have, or None if it is none."""
    address = ""
    if text_at(part, "type") in _PICTURES:
        address_in_part = text_at(part, "image_url") or text_at(part, "image_url", "url")
        address_in_source = first_text(object_at(part, "source"), "url", "file_id")
        address = address_in_part or address_in_source or text_at(part, "file_id")
    elif "type" not in part:  # Gemini's parts have none.
        file_data = object_at(part, "fileData") or object_at(part, "file_data")
        address = first_text(file_data, "fileUri", "file_uri")
    if not address or address.startswith(IMAGE_ADDRESS):
        return None
    return AgentDocument("picture", "image/*", address=address)


def images_of_content(content: Json) -> tuple[str, ...]:
    """Return the images in a result's content, each as an address that has all of it."""
    if not isinstance(content, list):
        return ()
    addresses: list[str] = []
    for part in map(object_at, content):
        source = object_at(part, "source")
        if text_at(part, "type") == "image" and text_at(source, "type") == "base64":
            address = format_data_address(text_at(source, "media_type"), text_at(source, "data"))
        else:
            address = text_at(part, "image_url") or text_at(part, "image_url", "url")
        if address.startswith(IMAGE_ADDRESS):
            addresses.append(address)
    return tuple(addresses)


def format_data_address(media_type: str, encoded_content: str) -> str:
    """Return an address that has the whole content, which is encoded as base64."""
    return f"data:{media_type};base64,{encoded_content}"


def read_data_address(address: str) -> tuple[str, str] | None:
    """Return the media type and the encoded content of an address that has all of it, or None."""
    media_type, encoding, data = address.removeprefix("data:").partition(";base64,")
    if address.startswith("data:") and encoding:
        return media_type, data
    return None


def format_effort_settings(*settings: Json) -> str:
    """Return a request's settings for the length of thinking as one text."""
    return " ".join(format_json_value(setting) for setting in settings if setting)


def parse_tool(value: Mapping[str, Json], schema: Json, default_name: str = "") -> ToolSpec:
    """Return a tool as a client offers it. `default_name`: used if it has none."""
    return ToolSpec(
        text_at(value, "name") or default_name,
        text_at(value, "description"),
        format_json_value(schema),
    )


def piece_of_part(
    part: Mapping[str, Json], image_url: str, path: Path, folded: Collection[str]
) -> Piece:
    """Return a part of a content as a piece: a text, an image, or something unknown.

    Only an image whose address has it all (`data:…`) is one here. `folded`: the types of parts
    for which a fold, a shorter text, may stand.
    """
    outlives_folds = text_at(part, "type") not in folded
    if isinstance(part.get("text"), str):
        return Piece(PieceKind.TEXT, part["text"], path, outlives_folds=outlives_folds)
    image = read_data_address(image_url)
    if image is not None:
        media_type, data = image
        return Piece(PieceKind.IMAGE, data, path, media_type=media_type)
    return unknown_piece(part, path, outlives_folds=outlives_folds)


def unknown_piece(
    value: Mapping[str, Json], path: Path, call: str = "", *, outlives_folds: bool = False
) -> Piece:
    """Return a piece for a block that this program does not read, without its cache mark.

    `call`: the provider's own call that it is, or that it answers.
    """
    text = format_json_value(without_fields(value, "cache_control"))
    return Piece(PieceKind.OTHER, text, path, call, outlives_folds=outlives_folds)


def words_of_piece(piece: Piece) -> str:
    """Return the words by which a part of a reply is recorded that has no text of its own."""
    if piece.kind is PieceKind.IMAGE:
        shortened_data = _shorten_text(piece.text, MOST_WORDS_OF_BLOCK)
        return f"[{format_json_value({'image': piece.media_type, 'data': shortened_data})}]"
    return words_of_block(piece.text)


def words_of_block(text: str) -> str:
    """Return the words by which a block of a reply that this program does not read is recorded.

    A fold may stand for the block later, so all of its fields are there. Of a long text in it, such
    as a picture, only the beginning is, and how much is missing.
    """
    if len(text) <= MOST_WORDS_OF_BLOCK:
        return f"[{text}]"
    shortened = _shorten_texts(parse_json_or_none(text))
    words = format_json_value(shortened)
    if shortened is None:  # It is no JSON.
        words = text
    return f"[{_shorten_text(words, MOST_CHARACTERS_OF_BLOCK)}]"


def _shorten_texts(value: Json) -> Json:
    if isinstance(value, str):
        return _shorten_text(value, MOST_WORDS_OF_BLOCK)
    if isinstance(value, Mapping):
        return {name: _shorten_texts(field) for name, field in value.items()}
    if isinstance(value, list):
        return [_shorten_texts(item) for item in value]
    return value


def _shorten_text(text: str, most_characters: int) -> str:
    if len(text) <= most_characters:
        return text
    missing = len(text) - most_characters
    return f"{text[:most_characters]}… ({missing:,} more characters were not recorded)"


def edit_pieces(
    message: ProtocolMessage,
    edits: Sequence[PieceEdit],
    find_field: Callable[[Json, Piece, str], tuple[Path, Json]],
) -> list[Json]:
    """Return the message's JSON with some pieces changed or removed. All else stays as it came.

    `find_field` is the protocol's: it returns the field in which a piece has its text, and the
    field's new value.
    """
    units: Any = list(message.units)
    # From the last to the first, so that the paths of the others stay right.
    for edit in sorted(edits, key=attrgetter("position"), reverse=True):
        piece = message.pieces[edit.position]
        if edit.text is None:
            units = copy_with_change(units, _path_to_remove(units, piece.path), None)
        else:
            field_path, new_value = find_field(units, piece, edit.text)
            units = copy_with_change(units, piece.path + field_path, new_value)
    return list(units)


def _path_to_remove(units: Sequence[Json], path: Path) -> Path:
    """Return the path of a part, or of its list if it is the only one there: no provider accepts
    an empty list.
    """
    list_path = path[:-1]
    if list_path and len(list_at(units, *list_path)) == 1:
        return list_path
    return path


def replace_text_in_content(content: Json, text: str, part_type: str) -> Json:
    """Replace a content's text, keeping its form (string or list) and all that is no text.

    What the texts said besides their words, such as a mark for the provider's cache, is
    said of the new one.
    """
    if not isinstance(content, list):
        return text
    new_part: dict[str, Json] = {}
    other_parts: list[Json] = []
    for part in content:
        has_text = isinstance(part, Mapping) and isinstance(part.get("text"), str)
        if has_text and text_at(part, "type") in PLAIN_TEXT_TYPES:
            new_part.update(part)
        else:
            other_parts.append(part)
    new_part.update({"type": part_type, "text": text})
    other_parts.insert(0, new_part)
    return other_parts


def join_added_messages(
    units: Sequence[tuple[Json, bool]],
    field_name: str,
    parts_of: Callable[[Json], list[Json]],
    is_result: Callable[[Json], bool],
) -> list[Json]:
    """Merge neighbours of one role if one of them was added here (`True`). Results come first.

    `field_name` is where a message has its parts. `parts_of` and `is_result` are the
    protocol's: a message's parts, and whether a part is the result of a call.
    """
    joined: list[Json] = []
    last_is_added = False  # Whether the last of `joined` is, or has in it, what was added here.
    for unit, is_added in units:
        is_one_added = is_added or last_is_added
        if not joined or not is_one_added or not _can_join(joined[-1], unit, field_name):
            joined.append(unit)
            last_is_added = is_added
            continue

        all_parts = parts_of(joined[-1]) + parts_of(unit)
        results = [part for part in all_parts if is_result(part)]
        other_parts = [part for part in all_parts if not is_result(part)]
        joined_message = dict(joined[-1])
        joined_message[field_name] = results + other_parts
        joined[-1] = joined_message
        last_is_added = True
    return joined


def _can_join(first: Json, second: Json, field_name: str) -> bool:
    """Whether two messages can be sent as one."""
    if text_at(first, "role") != text_at(second, "role"):
        return False
    # A message that says more than its parts, such as a setting, stays one of its own.
    plain_fields = {"role", field_name}
    has_other_fields = bool((first.keys() | second.keys()) - plain_fields)
    return not has_other_fields


def copy_with_change(value: Json, path: Path, new_value: Json) -> Json:
    """Return a copy of `value` with `new_value` (None: nothing) at `path`. Everything else
    is shared.
    """
    if not path:
        return new_value
    first_step: Any = path[0]
    path_below = path[1:]
    copy: Any
    if isinstance(value, list | tuple):
        copy = list(value)
    else:
        copy = dict(value)
    if new_value is None and not path_below:
        del copy[first_step]
    else:
        copy[first_step] = copy_with_change(value[first_step], path_below, new_value)
    return copy
