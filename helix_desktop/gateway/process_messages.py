"""Encodes messages between the agent's process and the journal's process as lines of JSON.

A history is sent once. Of what is repeated with every request, only the difference is sent.
"""

import asyncio
import dataclasses
import functools
import itertools
import logging
import typing
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from enum import EnumType
from typing import Any

import orjson

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.agent_documents import AgentDocument
from helix_desktop.engine.facts import ToolSpec, Usage
from helix_desktop.engine.prompt_cache_marks import count_equal_first_blocks
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_cost_and_savings import Figures
from helix_desktop.gateway.conversations_port import Arrival, Replied, Sent, Ticket
from helix_desktop.gateway.view_entries import (
    ChangedMessage,
    ChangedPart,
    HiddenReply,
    HiddenResult,
    InsertedText,
    UnchangedMessage,
)
from helix_desktop.protocols.gateway_message import Piece, ProtocolMessage

# By the names in messages, which stay as they are: the other process may be of another version.
_CLASSES_BY_NAME: Mapping[str, type] = {
    "Arrival": Arrival,
    "As": UnchangedMessage,
    "Changed": ChangedMessage,
    "Document": AgentDocument,
    "Figures": Figures,
    "Hidden": HiddenReply,
    "Part": ChangedPart,
    "Piece": Piece,
    "Replied": Replied,
    "Returned": HiddenResult,
    "Says": InsertedText,
    "Sent": Sent,
    "Ticket": Ticket,
    "Tool": ToolSpec,
    "Usage": Usage,
    "Wired": ProtocolMessage,
}
_NAMES_BY_CLASS = {kind: name for name, kind in _CLASSES_BY_NAME.items()}
MOST_HELD_VALUES = 64  # The maximum number of names whose last value is kept.
_ANSWERS = frozenset({"answer", "failed", "sent"})
log = logging.getLogger(__name__)

Tuple = tuple[Any, ...]


class LastSentValues:
    """The last value sent under each name, kept at both ends so that only differences are sent."""

    def __init__(self) -> None:
        self._values_by_name: OrderedDict[str, Tuple] = OrderedDict()

    def split_known_start(self, name: str, value: Tuple) -> tuple[int, Tuple]:
        """Return how many first items are as last time, and the rest."""
        last_value = self._values_by_name.get(name, ())
        known_count = count_equal_first_blocks(last_value, value)
        self._remember_value(name, value)
        return known_count, value[known_count:]

    def restore_value(self, name: str, known_count: int, rest: Tuple) -> Tuple:
        """Return the value of which the other process sent only the rest."""
        last_value = self._values_by_name.get(name, ())
        value = last_value[:known_count] + tuple(rest)
        self._remember_value(name, value)
        return value

    def _remember_value(self, name: str, value: Tuple) -> None:
        self._values_by_name[name] = value
        self._values_by_name.move_to_end(name)
        if len(self._values_by_name) > MOST_HELD_VALUES:
            self._values_by_name.popitem(last=False)


@dataclass(slots=True, eq=False)
class ProcessQuestions:
    """Questions and answers between two processes, a line each; either may ask."""

    tasks: OwnedTasks
    send: Callable[[tuple[str, int, Any]], Awaitable[None]]
    answer: Callable[[str, Sequence[Any]], Awaitable[Any]]
    failure: type[HelixError]
    _numbers: Iterator[int] = dataclasses.field(default_factory=lambda: itertools.count(1))
    _pending: dict[int, asyncio.Future[Any]] = dataclasses.field(default_factory=dict)

    async def ask(self, kind: str, value: Any) -> Any:
        """Send a question and return its answer. Raises `failure` if the other process failed."""
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._pending[number] = future
        await self.send((kind, number, value))
        return await future

    def handle_message(self, kind: str, number: int, value: Any) -> None:
        """Take a question, which is answered in a task, or the answer to one of ours."""
        if kind not in _ANSWERS:
            self.tasks.spawn_task(self._answer_incoming_question(kind, number, value), name=kind)
            return
        future = self._pending.pop(number, None)
        if future is None or future.done():  # Nobody waits for it any more.
            return
        if kind == "failed":
            future.set_exception(self.failure(value))
        else:
            future.set_result(value)

    async def _answer_incoming_question(self, kind: str, number: int, value: Sequence[Any]) -> None:
        """Answer a question of the other process, or tell it why that failed."""
        try:
            answer = await self.answer(kind, value)
            await self.send(("answer", number, answer))
        except HelixError as error:
            await self.send(("failed", number, error.what))
        except Exception as error:
            log.exception("a question of another process failed")
            reason = f"a mistake in Helix Desktop ({type(error).__name__})"
            await self.send(("failed", number, reason))

    def fail_all_questions(self, error: HelixError) -> None:
        """Let all that wait for an answer fail, as none will come."""
        for future in self._pending.values():
            if not future.done():
                future.set_exception(error)


def encode_line(value: Any) -> bytes:
    """Encode a value as a line of JSON; dataclasses are named. A message's own JSON
    stays where it came in.
    """
    return orjson.dumps(_to_json_value(value), option=orjson.OPT_APPEND_NEWLINE)


def decode_line(content: bytes | bytearray) -> Any:
    return _from_json_value(orjson.loads(content))


def _to_json_value(value: Any) -> Any:
    """Return a value as JSON knows it. A dataclass becomes an object that says its class."""
    if isinstance(value, str):  # First, as a long history has thousands of digests.
        return value
    if isinstance(value, ProtocolMessage):
        pieces = [_to_json_value(piece) for piece in value.pieces]
        return {"is": "Wired", "speaker": value.speaker, "units": [], "pieces": pieces}
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        encoded = {"is": _NAMES_BY_CLASS[kind]}
        for name in value.__slots__:
            encoded[name] = _to_json_value(getattr(value, name))
        return encoded
    if isinstance(value, list | tuple):
        return [_to_json_value(item) for item in value]
    if isinstance(value, dict):
        return {key: _to_json_value(item) for key, item in value.items()}
    return value


def _from_json_value(value: Any) -> Any:
    """Return what `_to_json_value` was given, with tuples for lists.

    An object that names one of our classes ("is") becomes an object of that class. Fields that
    this version does not know are left out.
    """
    if isinstance(value, list):
        return tuple(_from_json_value(item) for item in value)
    if not isinstance(value, dict):
        return value
    if value.get("is") not in _CLASSES_BY_NAME:
        return {key: _from_json_value(item) for key, item in value.items()}
    kind = _CLASSES_BY_NAME[value["is"]]
    enums_by_field = _enum_fields(kind)
    fields: dict[str, Any] = {}
    for name, item in value.items():
        # A newer version may send fields that this one does not have.
        if name not in kind.__slots__:  # type: ignore[attr-defined]
            continue
        decoded = _from_json_value(item)
        if name in enums_by_field:
            fields[name] = enums_by_field[name](decoded)
        else:
            fields[name] = decoded
    return kind(**fields)


@functools.cache
def _enum_fields(kind: type) -> Mapping[str, EnumType]:
    """Return the fields of a class that are enums, which JSON has as texts."""
    enums_by_field: dict[str, EnumType] = {}
    for name, hint in typing.get_type_hints(kind).items():
        if isinstance(hint, EnumType):
            enums_by_field[name] = hint
    return enums_by_field
