"""Defines what the replay lab asks for and what comes back; `desktop/replay_process.py` implements it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.window_ports import WorkbenchPort


@dataclass(frozen=True, slots=True)
class ReplaySelection:
    """What the user chose to replay: conversations, files, policies and a window size."""

    conversations: Sequence[str]
    files: Sequence[Path]
    policies: Sequence[str]
    window: int


@dataclass(frozen=True, slots=True)
class ConversationReplay:
    """One policy over one conversation: the tokens of each step's request, and its folds as (step from 0, kind)."""

    name: str
    steps: Sequence[int]
    folds: Sequence[tuple[int, str]] = ()


@dataclass(frozen=True, slots=True)
class PolicyOutcome:
    """The result of one policy over all conversations. `billed` counts tokens at the input price,
    including recalls and tools; `plain_billed` is the same without folding.
    """

    policy: str
    steps: int
    sent: int
    billed: int
    plain_billed: int
    peak: float
    kept_share: float
    folds: Mapping[str, int]
    conversation_replays: Sequence[ConversationReplay]

    @property
    def cost_share(self) -> float:
        return self.billed / self.plain_billed if self.plain_billed else 1.0


@dataclass(frozen=True, slots=True)
class ReplayOutcome:
    """Every policy over the same conversations in the same order; `page`: all of it as HTML, to be saved."""

    policy_outcomes: Sequence[PolicyOutcome]
    window: int
    page: str


class RunReplay(Protocol):
    """Replays the selection; `desktop/replay_process.py` implements it."""

    def __call__(
        self, bench: WorkbenchPort, wanted: ReplaySelection, report: Callable[[int, int], None]
    ) -> Coroutine[Any, Any, ReplayOutcome]: ...
