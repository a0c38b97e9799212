"""The model of a fleet's trial. It knows what a model knows: the request that it is shown.

Each of a task's calls has a number, which stands in its command: `task-7:12`. The next call is
the one after the highest number in sight. So a call whose end was not seen counts as made, and so
do calls that a fold has taken out of sight, as long as something in the request names the last
one. Counting the results instead would make folded calls again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.benchmarks.fleet import _content
from tests.faults.fleet_trial_worker import CLAIMS_FOLDER, WORKER_VARIABLE
from tests.peers.chat_server import refused, reply
from tests.peers.peer import Answer, Seen

THREE_CALLS = (0, 0, 0)  # How much each call of a task prints.
LEDGER_TASKS = 20  # So many tasks write to one file.
# In what the model is told of a call that was cut off, or stopped by its worker before
# or while it ran.
UNCERTAIN = re.compile(
    "It may have had effects|was not run|before it had ended|was stopped before it was done"
)
FOLD = "[Conversation History Summary]"
HEADINGS = (
    "Project Background",
    "Technical Details",
    "Completed Work",
    "Current Issues",
    "TODO Items",
    "User Preferences",
)


def read_sessions(folder: Path) -> list[tuple[int, ...]]:
    """Of each recorded session how much its calls printed."""
    found = []
    for file in sorted(folder.rglob("*.jsonl")):
        messages = [
            json.loads(line)
            for line in file.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
        found.append(
            tuple(len(_content(message)) for message in messages if message.get("role") == "tool")
        )
    return [each for each in found if each]


@dataclass
class FleetTrialModel:
    """`sessions`: as many calls as one of them has, in turn, are made for each task."""

    sessions: Sequence[tuple[int, ...]] = (THREE_CALLS,)
    uncertain: set[str] = field(default_factory=set)  # Calls of which it was told so.
    failures: list[str] = field(default_factory=list)
    requests_after_folds: int = 0

    def session_of(self, name: str) -> tuple[int, ...]:
        return self.sessions[_number_of(name) % len(self.sessions)]

    def answer(self, seen: Seen) -> Answer:
        try:
            return self._answer(seen.body)
        except Exception as error:  # noqa: BLE001 (it is the top of a request, and the trial shows it)
            # The worker would only see a connection that ends, and try again.
            self.failures.append(f"{type(error).__name__}: {error}")
            return refused(400, "the trial's model failed")

    def _answer(self, body: dict[str, Any]) -> Answer:
        messages = body["messages"]
        name = _find_task_name(messages)
        made = _find_last_call(messages, name)
        if not body.get("tools"):
            return reply(_summarize(name, made))
        is_folded = any(FOLD in str(message["content"]) for message in messages[1:])
        if is_folded:
            self.requests_after_folds += 1
            if not made:
                raise ValueError(f"nothing in a folded request says what {name} has done")
        self._note_uncertain_calls(messages, name)
        session = self.session_of(name)
        if made >= len(session):
            return reply(f"{name} is done")
        return _call(name, made + 1, prints=session[made])

    def _note_uncertain_calls(self, messages: list[dict[str, Any]], name: str) -> None:
        number_by_call: dict[str, int] = {}
        for message in messages:
            for call in message.get("tool_calls") or ():
                number_by_call[call["id"]] = _highest_number(name, call["function"]["arguments"])
            if message["role"] == "tool" and UNCERTAIN.search(str(message["content"])):
                self.uncertain.add(f"{name}:{number_by_call[message['tool_call_id']]}")


def _number_of(name: str) -> int:
    return int(name.removeprefix("task-"))


def _find_task_name(messages: list[dict[str, Any]]) -> str:
    """The task that the user gave, and none that a summary mentions besides."""
    said_by_user = " ".join(
        str(message["content"]) for message in messages if message["role"] == "user"
    )
    (name,) = set(re.findall(r"Do (task-\d+)", said_by_user))
    return str(name)


def _find_last_call(messages: list[dict[str, Any]], name: str) -> int:
    """The highest number of a call in sight, or 0."""
    texts = [str(message["content"]) for message in messages]
    for message in messages:
        texts += [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return _highest_number(name, "\n".join(texts))


def _highest_number(name: str, text: str) -> int:
    return max((int(number) for number in re.findall(rf"{name}:(\d+)", text)), default=0)


def _call(name: str, number: int, *, prints: int) -> Answer:
    output = ""
    if prints:
        output = f"; yes 'some output' | head -c {prints}"
    # The ledger names the worker that did it, and the last claim that was made of the task here.
    line = f"{name}:{number} ${WORKER_VARIABLE} $(tail -n 1 {CLAIMS_FOLDER}/{name}.txt)"
    command = f'echo "{line}" >> {ledger_of(name)}{output}'
    return reply(calls=[("run_command", {"command": command})])


def ledger_of(name: str) -> str:
    """The file in which a task writes what it did, with the tasks beside it."""
    return f"ledger/{_number_of(name) // LEDGER_TASKS}.txt"


def _summarize(name: str, made: int) -> str:
    text = {
        "Completed Work": f"- Calls up to {name}:{made} were made.",
        "User Preferences": f"- Do {name}",
    }
    return "\n".join(f"## {heading}\n{text.get(heading, '- Nothing.')}" for heading in HEADINGS)
