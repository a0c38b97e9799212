"""What a task of a fleet is: the work to do, its state, and what came of it.

The list of tasks (`fleet_task_list`) says only who has a task. What was done for it is
in the journal, in the conversation with the task's id.
"""

import re
from dataclasses import asdict, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

_SECONDS_BY_UNIT = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


class FleetTaskState(StrEnum):
    """`DEAD_LETTER`: given back so often that a person has to look. It has not failed,
    so the tasks that wait for it still wait.
    """

    WAITING = "waiting"
    RUNNING = "running"
    NEEDS_YOU = "needs-you"
    DEAD_LETTER = "dead-letter"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({FleetTaskState.DONE, FleetTaskState.FAILED, FleetTaskState.CANCELLED})


@dataclass(frozen=True, slots=True)
class FleetTaskOrder:
    """The work to do. `allowed`: permissions besides its worker's. `budget`: dollars;
    0: no limit.
    """

    text: str
    agent: str = ""
    model: str = ""
    allowed: tuple[str, ...] = ()
    budget: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetTaskResult:
    """`why` it is in its state, and its cost in dollars. `asked`: what nobody could allow.

    `rules`: each covers it and what is like it; the best one comes first. `rule_folders`: for an
    edit, the folder that each of them covers. `access`: where a command would run.
    """

    why: str = ""
    answer: str = ""
    cost: float = 0.0
    asked: str = ""
    access: str = ""
    rules: tuple[str, ...] = ()
    rule_folders: tuple[str, ...] = ()


UNREADABLE = FleetTaskResult(
    "This task cannot be read. The task is damaged, or a newer version of Helix Desktop added it."
)


@dataclass(frozen=True, slots=True)
class NewFleetTask:
    """A task to add. `key`: only one task with the same key is added.
    `deadline_seconds`: from now; 0: none.
    """

    order: FleetTaskOrder
    key: str = ""
    priority: int = 0
    after: tuple[str, ...] = ()
    deadline_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class FleetTask:
    """A task in the list. `id` is also its conversation's.

    `claims`: the number of claims, and of the newest lease. `setbacks`: how often it
    was given back because of something that may pass. `position`: grows with each
    added task. `open_needs`: how many tasks it still waits for.
    """

    id: str
    state: FleetTaskState
    priority: int
    added: float
    worker: str
    claims: int
    deadline_seconds: float  # The seconds left; 0: no deadline.
    order: FleetTaskOrder
    result: FleetTaskResult = field(default_factory=FleetTaskResult)
    setbacks: int = 0
    position: int = 0
    open_needs: int = 0


@dataclass(frozen=True, slots=True)
class FleetTaskCounts:
    """`by_state`: all states. `by_worker`: the tasks that each worker has. `dollars`:
    the cost of all tasks so far. `changes`: differs after any change of a task.
    """

    by_state: dict[str, int]
    by_worker: dict[str, int]
    dollars: float
    changes: int


@dataclass(frozen=True, slots=True)
class TaskRetention:
    """How long, and how many, ended tasks stay in the list."""

    seconds: float = 90 * 86_400.0
    tasks: int = 1_000_000


def task_as_json(task: FleetTask) -> dict[str, Any]:
    """Return the task for `--json`. Its conversation has the same id."""
    conversation = ""
    if task.claims:  # Before its first claim, a task has no conversation.
        conversation = task.id
    description: dict[str, Any] = {"id": task.id, "state": task.state.value}
    description |= asdict(task.result)
    description |= {
        "conversation": conversation,
        "worker": task.worker,
        "claims": task.claims,
        "setbacks": task.setbacks,
        "open_needs": task.open_needs,
        "priority": task.priority,
        "added": task.added,
        "deadline_seconds": task.deadline_seconds,
    }
    description |= asdict(task.order)
    description["allow"] = description.pop("allowed")  # As the option of `task add` is called.
    return description


def parse_deadline_seconds(text: str) -> float:
    """Return in how many seconds a deadline such as `8h` is, or 0 for an empty one."""
    if not text:
        return 0.0
    try:
        duration = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text)
        if duration is not None:
            seconds = float(duration[1]) * _SECONDS_BY_UNIT[duration[2]]
        else:
            moment = datetime.fromisoformat(text).astimezone()
            seconds = (moment - datetime.now(UTC)).total_seconds()
    except (ValueError, OverflowError) as error:
        raise InvalidInput(
            f"{text} is not a time.", remedy="For example: 2030-01-31T18:00, 90m, 8h or 2d."
        ) from error
    if seconds <= 0:
        raise InvalidInput(f"The deadline {text} has passed.", remedy="Nothing was added.")
    return seconds
