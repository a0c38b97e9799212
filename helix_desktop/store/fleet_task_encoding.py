"""How a task is stored in a row: its order and its result are JSON, encrypted where
computers share the list.
"""

import json
import math
from contextlib import suppress
from dataclasses import asdict, fields, replace
from typing import Any

from helix_desktop.engine.fact_encoding import CONVERSATION_ID, LATEST_TIME
from helix_desktop.errors import HelixError
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.fleet_tasks import (
    UNREADABLE,
    FleetTask,
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
)
from helix_desktop.store.shared.row_encryption import RowCipher

_DEADLINE_SECONDS = "CASE WHEN deadline > 0 THEN deadline - {now} ELSE 0 END"
_LAST_COLUMNS = f"{_DEADLINE_SECONDS}, sealed, result, reason, setbacks, position"
# What is read of a task in the live table, and of one in the history, which no worker has.
COLUMNS = f"id, state, priority, added, worker, claims, {_LAST_COLUMNS}, open_needs"
ENDED_COLUMNS = f"id, state, priority, added, '', claims, {_LAST_COLUMNS}, 0"

# What the list itself decided. The database cannot encrypt a sentence, so it notes a word.
WHY_BY_REASON = {
    "needs": "This task was waiting for a task that failed or was cancelled.",
    "lost": (
        "The task was started again and again, and each time its worker stopped responding."
        " To run the task again, choose “Run again” in the Fleet window, or use `task retry`."
    ),
}


# What decoding may raise: others with the key wrote the content, maybe with a newer version.
_ERRORS_OF_FOREIGN_CONTENT = (
    HelixError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    OverflowError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class _TaskRow:
    """`COLUMNS`, as the database returns them."""

    id: str
    state: str
    priority: int
    added: float
    worker: str
    claims: int
    deadline_seconds: float
    sealed: bytes
    result: bytes
    reason: str
    setbacks: int
    position: int
    open_needs: int


class FleetTaskCodec:
    """Encodes and decodes tasks' content. `seal` encrypts it, or None."""

    def __init__(self, seal: RowCipher | None) -> None:
        self._seal = seal

    def encode_order(self, task: str, order: FleetTaskOrder) -> bytes:
        return self._encode("task", task, order)

    def encode_result(self, task: str, result: FleetTaskResult) -> bytes:
        return self._encode("task result", task, result)

    def _encode(self, kind: str, task: str, value: FleetTaskOrder | FleetTaskResult) -> bytes:
        text = json.dumps(asdict(value), ensure_ascii=False)
        content = text.encode("utf-8", "replace")
        if self._seal is None:
            return content
        name = self._seal.keyed_row_name(kind, task.encode())
        return self._seal.encrypt_row(name, content)

    def _decode(self, kind: str, task: str, content: bytes) -> dict[str, Any]:
        if self._seal is not None:
            name = self._seal.keyed_row_name(kind, task.encode())
            content = self._seal.decrypt_row(name, content)
        decoded: dict[str, Any] = json.loads(content)
        return decoded

    def decode_row(self, values: tuple[Any, ...]) -> FleetTask:
        """Decode a task. An unreadable one counts as failed with `UNREADABLE`, and does
        not affect others.
        """
        row = _TaskRow(*values)
        with suppress(*_ERRORS_OF_FOREIGN_CONTENT):
            task = self._decode_sound_row(row)
            if _is_sound(task):
                return task
        return _build_unreadable_task(row)

    def _decode_sound_row(self, row: _TaskRow) -> FleetTask:
        values = self._decode("task", row.id, row.sealed)
        values["allowed"] = tuple(values["allowed"])  # JSON has no tuples.
        order = FleetTaskOrder(**values)
        result_values = self._decode("task result", row.id, row.result)
        result = _parse_task_result(result_values)
        if row.reason:
            result = replace(result, why=WHY_BY_REASON[row.reason], asked="")
        return FleetTask(
            id=row.id,
            state=FleetTaskState(row.state),
            priority=row.priority,
            added=row.added,
            worker=row.worker,
            claims=row.claims,
            deadline_seconds=row.deadline_seconds,
            order=order,
            result=result,
            setbacks=row.setbacks,
            position=row.position,
            open_needs=row.open_needs,
        )


def _build_unreadable_task(row: _TaskRow) -> FleetTask:
    state = FleetTaskState.FAILED
    if row.state == FleetTaskState.CANCELLED:
        state = FleetTaskState.CANCELLED
    empty_order = FleetTaskOrder("")
    return FleetTask(
        id=row.id,
        state=state,
        priority=row.priority,
        added=0.0,
        worker="",
        claims=row.claims,
        deadline_seconds=0.0,
        order=empty_order,
        result=UNREADABLE,
        position=row.position,
    )


def _parse_task_result(values: dict[str, Any]) -> FleetTaskResult:
    """What is not known here was written by another version, and only says more of the same."""
    known_names = {item.name for item in fields(FleetTaskResult)}
    known = {name: value for name, value in values.items() if name in known_names}
    for name in ("rules", "rule_folders"):
        known[name] = tuple(known.get(name, ()))  # JSON has no tuples.
    return FleetTaskResult(**known)


def _is_sound(task: FleetTask) -> bool:
    """Whether each field has the kind of value that the program itself writes."""
    if CONVERSATION_ID.fullmatch(task.id) is None:
        return False
    if not 0 <= task.added < LATEST_TIME:
        return False

    order = task.order
    result = task.result
    for number in (task.deadline_seconds, order.budget, result.cost):
        if not math.isfinite(number):
            return False

    texts = [order.text, order.agent, order.model, result.why, result.answer, result.asked]
    texts.extend((*order.allowed, *result.rules, *result.rule_folders))
    return all(isinstance(text, str) for text in texts)
