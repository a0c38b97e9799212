"""What the replay lab asks for, and what comes back; `desktop/replay_lab.play` is the real one."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.gui.ports import Workbench
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be played, and through what."""

    conversations: Sequence[str]
    files: Sequence[Path]
    policies: Sequence[str]
    window: int


@dataclass(frozen=True, slots=True)
class Course:
    """One policy over one conversation: the tokens of each step's request, and its folds as (step from 0, kind)."""

    name: str
    steps: Sequence[int]
    folds: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class Played:
    """One policy over everything. `billed` in tokens at the input price, recalls and tools included; `plain_…`: without any folding."""

    policy: str
    steps: int
    sent: int
    billed: int
    plain_billed: int
    peak: float
    kept: float
    folds: Mapping[str, int]
    courses: Sequence[Course]

    @property
    def cost(self) -> float:
        """As a share of sending everything every time."""
        return self.billed / self.plain_billed if self.plain_billed else 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Every policy over the same conversations in the same order; `page`: all of it as HTML, to be saved."""

    played: Sequence[Played]
    window: int
    page: str


class Play(Protocol):
    """`desktop.replay_lab.play`."""

    def __call__(
        self, bench: Workbench, wanted: Wanted, report: Callable[[int, int], None]
    ) -> Coroutine[Any, Any, Outcome]: ...
