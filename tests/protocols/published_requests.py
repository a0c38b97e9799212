"""Messages that have every field which the providers' libraries on npm publish, each with a word of its own.

A kind of block comes once with all of its fields, and once with each of those that it may lack. Words are
looked for in what is sent and recorded. So nearly every value is one: also a flag, or a word of a short list.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Json = Any
Place = tuple[str, ...]  # Of each object on the way: its kind, and the field in it.
Maker = Callable[[], Json]
TYPES: Mapping[str, Json] = json.loads(
    Path(__file__).with_name("published_types.json").read_text("utf-8")
)
# These say what the rest is, so they are what is published.
_REAL_VALUES = frozenset({"type", "role", "mimeType", "media_type"})
# A provider accepts one of these.
_ONE_OF: Mapping[str, Sequence[str]] = {
    "Part": ("text", "functionCall", "functionResponse", "inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse"),
    "FunctionResponsePart": ("inlineData", "fileData"),
    "ResponseInputFile": ("file_data", "file_id", "file_url"),
    "ResponseInputFileContent": ("file_data", "file_id", "file_url"),
    "ResponseInputImage": ("file_id", "image_url"),
    "ResponseInputImageContent": ("file_id", "image_url"),
    "ResponseComputerToolCallOutputScreenshot": ("file_id", "image_url"),
    "ChatCompletionContentPart.File.File": ("file_data", "file_id"),
}  # fmt: skip
# What is said of sounds and films.
_OF_MEDIA = ("audioTranscription", "videoMetadata")
_MEDIA_TYPES = ("image/png", "application/pdf", "audio/wav")
_IMAGE_ADDRESSES = ("image_url", "ImageURL.url")
_ENCODED_FIELDS = frozenset({"data", "file_data"})
_WORD = re.compile(r"word\d{5}there|9\d{6}1")
_ENCODED = re.compile(r"JVBERi[A-Za-z0-9+/]+=*")


def words_in(value: Json) -> set[str]:
    """All words in a value, also those that are encoded."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    words = set(_WORD.findall(text))
    for encoded in _ENCODED.findall(text):
        words.update(_WORD.findall(base64.b64decode(encoded).decode()))
    return words


class RequestGenerator:
    """Makes the messages of one protocol, and knows where each word stands."""

    def __init__(self, protocol: str) -> None:
        self.root = TYPES[protocol]["root"]
        self.objects: Mapping[str, Mapping[str, Json]] = TYPES[protocol]["objects"]
        self.place_by_word: dict[str, Place] = {}
        self._numbers = itertools.count(1)
        self._taken_apart = set[tuple[Sequence[str], str]]()

    def list_messages(self) -> list[Json]:
        return [make() for make in self._makers(self.root, (), ())]

    def _word(self, place: Place) -> str:
        word = f"word{next(self._numbers):05}there"
        self.place_by_word[word] = place
        return word

    def _number(self, place: Place) -> int:
        number = 90000001 + 10 * next(self._numbers)
        self.place_by_word[str(number)] = place
        return number

    def _encoded(self, place: Place) -> str:
        return base64.b64encode(f"%PDF {self._word(place)}".encode()).decode()

    def _makers(self, kind: Json, within: tuple[str, ...], place: Place) -> list[Maker]:
        """Return what makes a value of this type: one for each form that it may have."""
        if isinstance(kind, str):
            return self._makers_of_value(kind, place)
        ((form, inner),) = kind.items()
        match form:
            case "or":
                return self._makers_of_alternatives(inner, within, place)
            case "object":
                return self._makers_of_object(inner, within, place)
            case "each":
                makers = self._makers(inner, within, place)
                return [lambda make=make: [make()] for make in makers]  # type: ignore[misc]
            case "map":
                makers = self._makers(inner, within, place)
                return [lambda make=make: {"about": make()} for make in makers]  # type: ignore[misc]
        is_real = _field_of(place) in _REAL_VALUES
        return [lambda: inner if is_real else self._word(place)]

    def _makers_of_value(self, kind: str, place: Place) -> list[Maker]:
        match kind:
            case "null":
                return []
            case "number":
                return [lambda: self._number(place)]
            case "any":
                return [lambda: {"about": self._word(place)}]
        return self._makers_of_text(place)

    def _makers_of_text(self, place: Place) -> list[Maker]:
        field = _field_of(place)
        if field in _REAL_VALUES:
            return [lambda media_type=media_type: media_type for media_type in _MEDIA_TYPES]  # type: ignore[misc]
        if field in _ENCODED_FIELDS and place[-1] != "text.data":
            return [lambda: self._encoded(place)]
        if place[-1].endswith(_IMAGE_ADDRESSES):
            return [
                lambda: self._word(place),
                lambda: f"data:image/png;base64,{self._encoded(place)}",
            ]
        return [lambda: self._word(place)]

    def _makers_of_alternatives(
        self, kinds: Sequence[Json], within: tuple[str, ...], place: Place
    ) -> list[Maker]:
        makers: list[Maker] = []
        words_of_list: list[Maker] = []
        for kind in kinds:
            is_word = isinstance(kind, Mapping) and "is" in kind
            (words_of_list if is_word else makers).extend(self._makers(kind, within, place))
        if _field_of(place) in _REAL_VALUES:
            return [*makers, *words_of_list]
        return [*makers, *words_of_list[:1]]

    def _makers_of_object(self, name: str, within: tuple[str, ...], place: Place) -> list[Maker]:
        if name in within:
            return []  # It can be in itself without an end.
        needed: dict[str, list[Maker]] = {}
        optional: dict[str, list[Maker]] = {}
        kind = self._kind_of_object(name, place)
        for key, field_type in self.objects[name].items():
            field = key.removesuffix("?")
            makers = self._makers(field_type, (*within, name), (*place, f"{kind}.{field}"))
            if makers:
                (optional if key.endswith("?") else needed)[field] = makers
            elif not key.endswith("?"):
                return []
        makers_of_object: list[Maker] = []
        one_of = [field for field in _ONE_OF.get(name, ()) if field in optional]
        for chosen in one_of or [""]:
            fields = dict(needed)
            for field, makers in optional.items():
                if field == chosen or field not in one_of:
                    fields[field] = makers
            makers_of_object.extend(_makers_of_fields(fields))
        # Each field alone, once in each kind of block: another one could hide what becomes of it.
        if (within[1:3], name) not in self._taken_apart:
            self._taken_apart.add((within[1:3], name))
            for field, makers in optional.items():
                makers_of_object.extend(_makers_of_fields({**needed, field: makers}, field))
        return makers_of_object

    def _kind_of_object(self, name: str, place: Place) -> str:
        """Return by what decided_fields.json knows an object, or else the name of its type."""
        for field in ("type", "type?", "role"):
            published = self.objects[name].get(field)
            if isinstance(published, Mapping) and "is" in published:
                return str(published["is"])
        if place and place[-1].startswith("Part."):
            return _field_of(place)
        return name


def _makers_of_fields(fields: Mapping[str, Sequence[Maker]], varied: str = "") -> Iterator[Maker]:
    """Yield so many that each form of each field is in one of them, or each of the varied field."""
    most_forms = max(map(len, fields.values()), default=1)
    if varied:
        most_forms = len(fields[varied])
    for number in range(most_forms):

        def make(number: int = number) -> Json:
            value: dict[str, Json] = {}
            for field, makers in fields.items():
                value[field] = makers[number % len(makers)]()
            return _without_what_does_not_fit(value)

        yield make


def _without_what_does_not_fit(value: dict[str, Json]) -> dict[str, Json]:
    media = value.get("inlineData") or value.get("fileData") or {}
    if not str(media.get("mimeType")).startswith(("audio/", "video/")):
        for field in _OF_MEDIA:
            value.pop(field, None)
    if "text" not in value:
        value.pop("speechMetadata", None)
    return value


def _field_of(place: Place) -> str:
    return place[-1].rpartition(".")[2] if place else ""
