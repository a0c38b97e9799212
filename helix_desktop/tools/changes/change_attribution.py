"""The steps that are open, and which of the changes found belong to which step."""

import asyncio
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from sys import maxsize
from typing import IO

from helix_desktop.engine.changes import folder_state
from helix_desktop.engine.changes.folder_state import PathChange
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.fast_dataclass import dataclass


@dataclass(slots=True, eq=False)
class OpenStep:
    """One step, such as a call of a tool, from the state of the files at its start to its end: an
    undo takes back what changed between the two. `goes_on`: its command runs in the background.
    """

    call: str
    conversation: str
    changed_by: str
    since_check: int  # The number of the last check of all files before this step.
    checkpoint: Digest
    left_out: frozenset[str] = frozenset()  # Paths that were not covered even before the step.
    # What a file tool will change, as shown. None: all that changes is the step's.
    only: Sequence[str] | None = None
    begun: int = field(default_factory=time.time_ns)  # In nanoseconds since 1970.
    met: set[str] = field(default_factory=set)  # Folders in which something has changed since then.
    goes_on: bool = False  # Even after the call.
    is_between_turns: bool = False  # Begun outside a turn, so its changes look like the user's.
    held_space: IO[bytes] | None = None  # Space on the disk for its record.
    claimed: Sequence[PathChange] = ()  # Its changes until its record is made.
    # A command may end as its call does.
    ending: asyncio.Lock = field(default_factory=asyncio.Lock)

    def release_space(self) -> None:
        if self.held_space is not None:
            self.held_space.close()


@dataclass(frozen=True, slots=True)
class PathsOfTool:
    """What an open step of a file tool changes: its own are changes there that a check found after
    `since_check`, the last one before the step.
    """

    since_check: int
    paths: set[str]


class OpenSteps:
    """A step owns changes found between its start and its end that no other step has claimed."""

    def __init__(self) -> None:
        self.checks = 0
        self.unclaimed: dict[int, dict[str, PathChange]] = {}  # Changes by check and path.
        self.open: list[OpenStep] = []
        # The journals of their conversations lack them yet.
        self.unrecorded: list[tuple[OpenStep, FilesChanged]] = []

    def record_check(self, folders: Iterable[str], changes: Collection[PathChange]) -> None:
        """Record the changes of another check. `folders`: those that differ."""
        self.checks += 1
        for step in self.open:
            step.met.update(folders)
        if changes and self.open:
            self.unclaimed[self.checks] = {change.path: change for change in changes}

    def claim_unowned_changes(
        self,
        since_check: int,
        paths: set[str] | None,
        last_check: int = maxsize,
        left_to_tools: Sequence[PathsOfTool] = (),
    ) -> tuple[PathChange, ...]:
        """Return changes found since a check that no step has claimed, and claim them
        for this step.

        A check compares all files with the state before it. `paths`: only changes there are claimed.
        `last_check`: later ones belong to others. `left_to_tools`: what file tools that run now
        change; they claim it when they end.
        """
        claimed: list[PathChange] = []
        for check, changes in self.unclaimed.items():
            if not since_check < check <= last_check:
                continue
            paths_of_tools: set[str] = set()
            for tool in left_to_tools:
                if check > tool.since_check:
                    paths_of_tools |= tool.paths
            for path in list(changes):
                if _is_among(path, paths) and not _is_among(path, paths_of_tools):
                    claimed.append(changes.pop(path))
        merged, _ = folder_state.merge_changes_and_find_paths_changed_by_others(claimed)
        return merged

    def forget_recorded_change(self, fact: FilesChanged) -> None:
        self.unrecorded = [
            (step, recorded) for step, recorded in self.unrecorded if recorded is not fact
        ]

    def continue_in_background(self, call: str, conversation: str) -> OpenStep | None:
        """Let a call's step go on with its command in the background, and return it."""
        for step in self.open_steps_of_conversation(conversation):
            if step.call == call and not step.goes_on:
                step.changed_by = "background"
                step.goes_on = True
                return step
        return None

    def disown_next_changes(self, conversation: str) -> None:
        """Let changes up to the next check belong to no step, since users work between turns."""
        for step in self.open_steps_of_conversation(conversation):
            if step.is_between_turns:
                step.since_check = self.checks + 1
                step.is_between_turns = False

    def first_check_of_calls(self) -> int:
        """Return the first check whose changes belong to a running call, not to a
        background command.
        """
        checks = [step.since_check for step in self.open if step.changed_by == "command"]
        return min(checks, default=maxsize)

    def close_open_step(self, closed_step: OpenStep) -> None:
        closed_step.release_space()
        self.open = [step for step in self.open if step is not closed_step]
        # What was found before the oldest open step began is claimed by nobody any more.
        checks_at_begin = [step.since_check for step in self.open]
        oldest_check = min(checks_at_begin, default=self.checks)
        for check in list(self.unclaimed):
            if check <= oldest_check:
                del self.unclaimed[check]

    def open_steps_of_conversation(self, conversation: str) -> tuple[OpenStep, ...]:
        return tuple(step for step in self.open if step.conversation == conversation)


def _is_among(path: str, paths: set[str] | None) -> bool:
    """Whether it is one of the paths, or a folder above one. None: every path is."""
    if paths is None or path in paths:
        return True
    prefix = f"{path}/"
    return any(other_path.startswith(prefix) for other_path in paths)
