"""Writes facts as JSON and reads them back: `{"fact": ..., "version": ..., fields}`.
Stored bytes never change.

Defaults are left out, so a field added later with a default reads from old journals and
writes nothing new. A shape that changes otherwise raises its entry in VERSIONS and adds
a step to UPGRADES.
"""

import dataclasses
import functools
import json
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

from helix_desktop.engine import facts
from helix_desktop.engine.facts import Fact
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import JournalCorrupt, WrittenByNewerVersion
from helix_desktop.json_values import has_more_values

KINDS: Mapping[str, type] = {kind.__name__: kind for kind in typing.get_args(Fact)}
# Fields may hold one of several of these, so their JSON says which.
_TAGGED: Mapping[str, type] = {
    "Text": facts.Text,
    "Attachment": facts.Attachment,
    "Reasoning": facts.Reasoning,
    "ToolCall": facts.ToolCall,
    "Span": facts.Span,
    "PartRef": facts.PartRef,
}
_JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
_PLAIN = {str, int, float, bool, type(None)}  # Types that JSON represents directly.
# Faster than `json.loads`, because it does not skip white space.
_PARSE_JSON = json.JSONDecoder().raw_decode
VERSIONS: Mapping[str, int] = {}
# The ID of a conversation from elsewhere, which is also used in file names and links.
CONVERSATION_ID = re.compile(r"(?!\.)[A-Za-z0-9._-]{1,80}")
LATEST_TIME = 1e11  # A later time, in seconds since 1970, cannot be shown as a date everywhere.
_Read = Callable[[typing.Any], object]
_Check = Callable[[typing.Any], bool]
_LONG_FACT = 1 << 20
# Of a fact from elsewhere. As objects in memory, many small values take a hundred times their JSON.
_MOST_VALUES = 500_000
_AMOUNT_LIMIT = 2**40  # Millions of such numbers have a sum of 64 bits.
# An exit code is negative for a signal, a file time has nanoseconds, and a fork could
# get a window below 0.
_ANY_NUMBER = frozenset({"exit_code", "modified", "window"})


def _is_storable_count(content: typing.Any) -> bool:
    return type(content) is int and 0 <= content < _AMOUNT_LIMIT


def _is_storable_amount(content: typing.Any) -> bool:
    if type(content) not in {int, float}:
        return False
    return bool(abs(content) < _AMOUNT_LIMIT)  # Not true of what is no number.


_PLAIN_CHECKS: Mapping[typing.Any, _Check] = {
    # Digests and enums are text, too, and check it themselves.
    str: lambda content: type(content) is str,
    bool: lambda content: type(content) is bool,
    int: _is_storable_count,
    float: _is_storable_amount,
    types.NoneType: lambda content: content is None,
}
UPGRADES: Mapping[tuple[str, int], Callable[[dict[str, object]], dict[str, object]]] = {}


def require_valid_time(time: typing.Any) -> float:
    """Return a time from elsewhere. Raises ValueError if it cannot be shown as a date."""
    if not 0 <= float(time) < LATEST_TIME:
        raise ValueError("a time is out of range")
    return float(time)


def require_storable_amount(amount: typing.Any) -> int:
    """Return a size or count from elsewhere. Raises ValueError if SQLite could not store it."""
    if not 0 <= amount < _AMOUNT_LIMIT:
        raise ValueError("a number is out of range")
    return int(amount)


def encode_fact(fact: Fact) -> str:
    """Encode a fact as one line of JSON, with keys in declared order."""
    kind = type(fact).__name__
    body: dict[str, object] = {"fact": kind, "version": VERSIONS.get(kind, 1)}
    body.update(_encode_fields_unlike_default(fact))
    text = _JSON.encode(body)
    if text.isascii():
        return text
    # Half of a surrogate pair, as some tools print, cannot be stored as UTF-8.
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def decode_fact(text: str, *, is_foreign: bool = False) -> Fact:
    """Decode a fact of any version. Raises WrittenByNewerVersion or JournalCorrupt. `is_foreign`:
    it is from another machine or a file, so every value is checked against its field's type.
    """
    is_long = is_foreign and len(text) > _LONG_FACT
    if is_long and has_more_values(text.encode("utf-8", "replace"), _MOST_VALUES):
        raise JournalCorrupt(f"A record holds more than {_MOST_VALUES:,} values.")
    try:
        body = _parse_fact_json(text)
        kind = body.pop("fact")
        version = body.pop("version")
        known_version = VERSIONS.get(kind, 1)
        is_newer = kind not in KINDS or version > known_version
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise JournalCorrupt("A record in the journal cannot be read.") from error
    if is_newer:
        raise WrittenByNewerVersion(
            f"This journal contains a record ({kind}, version {version}) from a newer version of Helix Desktop."
        )
    try:
        while version < known_version:
            body = UPGRADES[kind, version](body)
            version += 1
        if is_foreign:
            _check_foreign_body(KINDS[kind], body, text)
        return typing.cast(Fact, _build_dataclass_consuming_body(KINDS[kind], body))
    except (TypeError, ValueError, KeyError, AttributeError, RecursionError) as error:
        raise JournalCorrupt(f"A record in the journal ({kind}) cannot be read.") from error


def _parse_fact_json(text: str) -> typing.Any:
    value, end = _PARSE_JSON(text)
    if end < len(text):
        raise ValueError("there is more text after the JSON value")
    return value


def _check_foreign_body(kind: type, body: dict[str, object], text: str) -> None:
    if not _present_fields_fit_types(kind, body):
        raise ValueError("a value has another type than its field")
    if "\\u" in text:
        _JSON.encode(body).encode()  # Raises for half of a surrogate pair.


def _present_fields_fit_types(kind: type, body: typing.Any) -> bool:
    """Whether present values have their fields' types, and any tag is this kind's name."""
    if type(body) is not dict or body.get("is", kind.__name__) != kind.__name__:
        return False
    for name, fits_type in _field_checks(kind):
        if name in body and not fits_type(body[name]):
            return False
    return True


@functools.cache
def _field_checks(kind: type) -> Sequence[tuple[str, _Check]]:
    """Return the names of a class's fields, each with a check of its JSON value."""
    checks: dict[str, _Check] = {}
    for name, hint in typing.get_type_hints(kind).items():
        check = _build_check_for_type(hint)
        if name in _ANY_NUMBER:
            check = functools.partial(_is_integer_or_fits, check)
        checks[name] = check
    return list(checks.items())


def _is_integer_or_fits(fits: _Check, content: typing.Any) -> bool:
    is_integer_of_64_bits = type(content) is int and abs(content) < 2**63
    return is_integer_of_64_bits or fits(content)


def _build_check_for_type(hint: typing.Any) -> _Check:
    """Return a check of whether a JSON value represents a value of this type, as a field of a
    fact declares it: a tuple, a union, another dataclass or a plain type.
    """
    is_tuple = typing.get_origin(hint) is tuple
    inner_hints = typing.get_args(hint)
    inner_checks: list[_Check] = []
    for inner_hint in inner_hints:
        if inner_hint is not Ellipsis:
            inner_checks.append(_build_check_for_type(inner_hint))
    if is_tuple and Ellipsis in inner_hints:
        return functools.partial(_is_list_of_any_length, inner_checks[0])
    if is_tuple:
        return functools.partial(_is_list_of_these, inner_checks)
    is_union = bool(inner_checks)
    if is_union:
        return functools.partial(_fits_any, inner_checks)
    if dataclasses.is_dataclass(hint) and hint is not Digest:
        return functools.partial(_present_fields_fit_types, typing.cast(type, hint))
    return _PLAIN_CHECKS.get(hint, _PLAIN_CHECKS[str])


def _fits_any(checks: Sequence[_Check], content: typing.Any) -> bool:
    return any(fits(content) for fits in checks)


def _is_list_of_any_length(fits: _Check, content: typing.Any) -> bool:
    return type(content) is list and all(map(fits, content))


def _is_list_of_these(checks: Sequence[_Check], content: typing.Any) -> bool:
    """Whether a value is a list whose items fit one check each. Raises ValueError if there
    are more or fewer items.
    """
    if type(content) is not list:
        return False
    return all(fits(item) for fits, item in zip(checks, content, strict=True))


def _encode_fields_unlike_default(value: object) -> dict[str, object]:
    """Return a value's fields as JSON has them, without those that have their default."""
    encoded: dict[str, object] = {}
    kind: type = type(value)
    for name, default in _fields_with_defaults(kind):
        content = getattr(value, name)
        if content == default:
            continue
        # Most fields are plain. Encoding those by a call takes twice as long.
        if type(content) in _PLAIN:
            encoded[name] = content
        else:
            encoded[name] = _encode_value(content)
    return encoded


@functools.cache
def _fields_with_defaults(kind: type) -> Sequence[tuple[str, object]]:
    """Return the fields and their defaults. A missing default is a value that equals nothing."""
    declared_fields = dataclasses.fields(typing.cast(typing.Any, kind))
    return [(field.name, field.default) for field in declared_fields]


def _encode_value(value: object) -> object:
    """Return what represents a value in JSON."""
    match value:
        case Digest():
            return value.hex
        case tuple():
            return [_encode_value(item) for item in value]
        case StrEnum():
            return value.value
        case str() | int() | float() | None:
            return value
    fields = _encode_fields_unlike_default(value)
    name = type(value).__name__
    if name not in _TAGGED:
        return fields
    tagged: dict[str, object] = {"is": name}
    tagged.update(fields)
    return tagged


def _build_dataclass_consuming_body(kind: type, body: dict[str, object]) -> object:
    """Build the value, replacing decoded fields in `body`. Unknown fields are ignored."""
    names, decoders = _find_known_fields_and_decoders(kind)
    for name, decode in decoders:
        content = body.get(name)
        if content is not None:
            body[name] = decode(content)
    if body.keys() <= names:
        return kind(**body)
    # A newer version may have added fields, which this one does without.
    known_fields = {name: body[name] for name in body.keys() & names}
    return kind(**known_fields)


@functools.cache
def _find_known_fields_and_decoders(
    kind: type,
) -> tuple[frozenset[str], Sequence[tuple[str, _Read]]]:
    """Return the fields' names, and decoders for those with another form in JSON."""
    hints = typing.get_type_hints(kind)
    decoders: list[tuple[str, _Read]] = []
    for name, hint in hints.items():
        decode = _build_decoder_for_type(hint)
        if decode is not None:
            decoders.append((name, decode))
    return frozenset(hints), decoders


def _build_decoder_for_type(hint: typing.Any) -> _Read | None:
    """Return a function that converts a JSON value to this type, or None if it can stay
    as it is.
    """
    origin = typing.get_origin(hint)
    inner_hints = [inner for inner in typing.get_args(hint) if inner is not types.NoneType]
    if origin is tuple:
        return _build_decoder_for_tuple(inner_hints)
    if origin in (typing.Union, types.UnionType):
        return _build_decoder_for_union(inner_hints)
    if hint is Digest:
        return Digest.from_hex
    if dataclasses.is_dataclass(hint):
        return functools.partial(_build_dataclass_consuming_body, typing.cast(type, hint))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return hint
    return None


def _build_decoder_for_union(inner_hints: Sequence[typing.Any]) -> _Read | None:
    """Return a decoder for the types other than None."""
    if len(inner_hints) > 1:
        return _decode_tagged
    return _build_decoder_for_type(inner_hints[0])


def _build_decoder_for_tuple(inner_hints: Sequence[typing.Any]) -> _Read:
    if inner_hints[-1] is Ellipsis:
        decode_item = _build_decoder_for_type(inner_hints[0]) or _decode_unchanged
        return functools.partial(_decode_tuple_of_any_length, decode_item)
    decoders: list[_Read] = []
    for inner_hint in inner_hints:
        decode_item = _build_decoder_for_type(inner_hint) or _decode_unchanged
        decoders.append(decode_item)
    return functools.partial(_decode_tuple_of_these, decoders)


def _decode_tuple_of_any_length(decode_item: _Read, content: typing.Any) -> object:
    items: list[object] = []
    for item in content:
        if item is None:
            items.append(None)
        else:
            items.append(decode_item(item))
    return tuple(items)


def _decode_tuple_of_these(decoders: Sequence[_Read], content: typing.Any) -> object:
    pairs = zip(decoders, content, strict=True)
    return tuple([decode(item) for decode, item in pairs])


def _decode_unchanged(content: object) -> object:
    return content


def _decode_tagged(content: typing.Any) -> object:
    """Decode a value by its tag, "is". Plain values of several types are unchanged."""
    if not isinstance(content, dict):
        return content
    kind = _TAGGED[content.pop("is")]
    return _build_dataclass_consuming_body(kind, content)
