"""Asks an extension's format of histories, and checks the sessions that it reads.

The journal stores a time as a fraction and finds it damaged if it was a whole number, so every
value gets exactly the type that its class declares.
"""

import math
from collections.abc import Generator, Iterable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine.fact_encoding import require_valid_time
from helix_desktop.engine.facts import Reasoning, Text, ToolCall, Usage
from helix_desktop.errors import InvalidInput
from helix_desktop.extensions.extension_interfaces import ExtensionHistoryFormat
from helix_desktop.extensions.installed_extensions import describe_failed_extension
from helix_desktop.extensions.limited_calls import ExtensionFailed, message_of, printable_text
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.added_formats import AddedReading
from helix_desktop.histories.recorded_session import (
    HistoryUnreadable,
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
    RecordedSession,
)

RECOGNIZING_SECONDS = 10.0
READING_SECONDS = 120.0  # For one file.
CHECKED_TYPES = (
    RecordedSession, RecordedMessage, RecordedPicture, RecordedCompaction, ToolCall, Text,
    Reasoning, Usage,
)  # fmt: skip
# A field's type is a class, or the name of one.
PLAIN_TYPES: Mapping[object, type] = {
    float: float, "float": float, int: int, "int": int, bool: bool, "bool": bool,
    bytes: bytes, "bytes": bytes, Usage: Usage, "Usage": Usage,
}  # fmt: skip
ROLES = ("system", "user", "assistant", "tool", "failure")


@dataclass(frozen=True, slots=True)
class HistoryFormatOfExtension:
    """A format as the program asks it: for a limited time, and counting its failures."""

    extension: RunningExtension
    declared: ExtensionHistoryFormat

    def recognizes_file(self, path: Path, beginning: bytes) -> bool:
        """Raises InvalidInput if the format failed."""
        if self.extension.stopped_because:
            return False
        function = f"looking at a file for {self.declared.program}"
        try:
            return self.extension.run_and_count(
                lambda: bool(self.declared.recognizes(path, beginning)),
                RECOGNIZING_SECONDS,
                function,
            )
        except ExtensionFailed as error:
            raise InvalidInput(f"{error.what}.") from error

    def read_history_file_of_extension(self, path: Path) -> AddedReading:
        """Return the checked sessions of a file. Raises InvalidInput if it cannot be read."""
        extension = self.extension
        if extension.stopped_because:
            raise InvalidInput(
                f"{path} was not read, because the extension {extension.installed.name} was switched off."
            )
        function = f"reading a history of {self.declared.program}"
        try:
            reading = extension.run_and_count(
                lambda: self._read_and_check(path), READING_SECONDS, function
            )
        except ExtensionFailed as error:
            sentence = f"{path} cannot be read: {error.what}."
            if extension.stopped_because:
                sentence += f" {describe_failed_extension(extension.installed, error.what)}"
            raise InvalidInput(sentence) from error
        if reading.unreadable_because:
            raise InvalidInput(f"{path} cannot be read: {reading.unreadable_because}.")
        return reading

    def _read_and_check(self, path: Path) -> AddedReading:
        try:
            return read_and_check_sessions(self.declared, path)
        except HistoryUnreadable as error:
            return AddedReading(unreadable_because=message_of(error).rstrip("."))


def read_and_check_sessions(declared: ExtensionHistoryFormat, path: Path) -> AddedReading:
    """Return the sessions, and the texts between them, which say what was left out of the file.

    Raises HistoryUnreadable if the format does, and ExtensionFailed for a wrong value. A generator
    that is left after a wrong value is ended here, on the thread that may hold its database.
    """
    items = declared.read(path)
    try:
        return _check_read_sessions(items, declared.kind)
    finally:
        if isinstance(items, Generator):
            items.close()


def _check_read_sessions(items: Iterable[Any], kind: str) -> AddedReading:
    sessions: list[RecordedSession] = []
    left_out: list[str] = []
    identities: set[str] = set()
    for item in items:
        if type(item) is str:
            left_out.append(printable_text(item))
            continue
        if type(item) is not RecordedSession:
            raise ExtensionFailed(
                f"the format {kind} returned {type(item).__name__} instead of a RecordedSession"
            )
        session = _check_session(item, kind)
        if session.session in identities:
            raise ExtensionFailed(
                f"the format {kind} returned two sessions with the identity {session.session[:80]!r}"
            )
        identities.add(session.session)
        sessions.append(session)
    return AddedReading(tuple(sessions), tuple(left_out))


def _check_session(session: RecordedSession, kind: str) -> RecordedSession:
    checked: RecordedSession = _copy_with_exact_types(session, kind)
    if checked.kind not in ("", kind):
        raise ExtensionFailed(
            f"the format {kind} returned a session of the kind {checked.kind[:80]!r}"
        )
    if not checked.session:
        raise ExtensionFailed(
            f"the format {kind} returned a session without an identity (`session`), by which it is found when it is read again"
        )
    for message in checked.messages:
        if message.role not in ROLES:
            raise ExtensionFailed(
                f"the format {kind} returned a message whose role is none of {', '.join(ROLES)}"
            )
    return replace(checked, kind=kind)


def _copy_with_exact_types(thing: Any, kind: str) -> Any:
    values: dict[str, object] = {}
    for field in fields(thing):
        name = f"{type(thing).__name__}.{field.name}"
        value = getattr(thing, field.name)
        if _is_type_of_list(field.type):
            values[field.name] = _exact_items(name, field.type, value, kind)
        else:
            values[field.name] = _exact_value(name, field.type, value, kind)
    return type(thing)(**values)


def _is_type_of_list(declared_type: object) -> bool:
    return str(declared_type).startswith("tuple[")


def _exact_items(name: str, declared_type: object, value: object, kind: str) -> object:
    """Return the items of a list as a tuple."""
    if type(value) not in (tuple, list):
        raise ExtensionFailed(
            f"the format {kind} gave {name} a value of the type {type(value).__name__} instead of a list"
        )
    items: list[object] = []
    for item in value:  # type: ignore[attr-defined]
        # A declared type reads "tuple[helix_desktop.engine.facts.ToolCall, ...]".
        words_of_type = str(declared_type).replace("[", ".").replace(",", " ").replace(".", " ")
        if type(item).__name__ not in words_of_type.split():
            raise ExtensionFailed(
                f"the format {kind} gave {name} an item of the type {type(item).__name__}"
            )
        if type(item) in CHECKED_TYPES:
            items.append(_copy_with_exact_types(item, kind))
        else:
            items.append(_exact_value(name, type(item), item, kind))
    return tuple(items)


def _exact_value(name: str, declared_type: object, value: object, kind: str) -> object:
    wanted_type = PLAIN_TYPES.get(declared_type, str)  # A role is declared as a Literal.
    is_whole_number_for_fraction = wanted_type is float and type(value) is int
    if type(value) is not wanted_type and not is_whole_number_for_fraction:
        raise ExtensionFailed(
            f"the format {kind} gave {name} a value of the type {type(value).__name__} instead of {wanted_type.__name__}"
        )
    if wanted_type is Usage:
        return _copy_with_exact_types(value, kind)
    if wanted_type is not float:
        return value
    number = float(str(value))
    if not math.isfinite(number):
        raise ExtensionFailed(f"the format {kind} gave {name} the value {number}")
    if name.endswith(".time"):
        _check_time(name, number, kind)
    return number


def _check_time(name: str, time: float, kind: str) -> None:
    try:
        require_valid_time(time)
    except ValueError as error:
        raise ExtensionFailed(
            f"the format {kind} gave {name} the value {time:.0f}, which is no time in seconds since 1970"
        ) from error
