"""Who works on a conversation: the collaborators a session and its turns are given, and the limits they keep to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from helix_desktop.engine.facts import Fact, FilesChanged, ModelRole, ModelSet, PolicySet, Recorded, RulesSet, SystemSet
from helix_desktop.engine.ports import Clock, ContentCache, ModelClient, SearchIndex, TokenCounter, ToolSet
from helix_desktop.fast_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """Where a turn stops by itself. Money in dollars; 0: no limit. `repeats`: the same call with the same output.
    `agents…`: of all agents below one conversation together, at every depth.
    """

    steps: int = 400
    repeats: int = 5
    turn_cost: float = 0.0
    day_cost: float = 0.0
    workspace_cost: float = 0.0
    agents: int = 32
    agents_depth: int = 2
    agents_at_once: int = 4
    agents_seconds: float = 0.0
    agents_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class StandingNote:
    """What holds word for word from some step on: rules of a folder, a skill, a plan. An empty text takes it back."""

    by: str
    text: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What hooks say of something that happens: why it must not go on, and words for the model."""

    blocks: str = ""
    says: str = ""


async def run_no_hooks(_event: str, _conversation: str, _values: Mapping[str, Any]) -> HookOutcome:
    """Where there are no hooks."""
    return HookOutcome()


@dataclass(frozen=True, slots=True)
class ConversationSetup:
    """What the view depends on besides what is said: compared before every step, appended where it changed."""

    system: SystemSet
    policy: PolicySet
    models: tuple[ModelSet, ...]
    rules: tuple[RulesSet, ...] = ()
    notes: tuple[StandingNote, ...] = ()

    @property
    def settings_facts(self) -> tuple[Fact, ...]:
        """The facts of it that are settings."""
        return (self.system, *self.rules, self.policy, *self.models)


@dataclass(frozen=True, slots=True)
class FileRestoration:
    """What putting files back came to: a sentence for each, and the fact of it."""

    said: Sequence[str] = ()
    fact: FilesChanged | None = None


async def _no_file_changes(_conversation: str) -> Sequence[FilesChanged]:
    return ()


@asynccontextmanager
async def unshared_turn(_conversation: str) -> AsyncIterator[None]:
    """Where no other machine has the conversation."""
    yield


class TaskSpawner(Protocol):
    """Starts a named, owned task; see tasks.py."""

    def __call__(self, work: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]: ...


@dataclass(frozen=True, slots=True)
class SessionCollaborators:
    """`models` gives the client of a role (main, fast, long) or None; `spent` the money of the day and of all time.

    `restore` puts files back as they were before the facts it is given, in the order they happened. `collect_file_changes`: what steps have
    changed in the folders and no result has told. `withheld`: see `ToolsOffered`. `turn_lease`: a turn runs within; Refused where
    another machine works in the conversation.
    """

    cache: ContentCache
    index: SearchIndex
    tokens: TokenCounter
    clock: Clock
    tools: ToolSet
    models: Callable[[ModelRole], ModelClient | None]
    setup: Callable[[], Awaitable[ConversationSetup]]
    spawn: TaskSpawner
    restore: Callable[[Sequence[Recorded]], Awaitable[FileRestoration]]
    limits: Callable[[], TurnLimits] = TurnLimits
    spent: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    agents_spent: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)  # of all agents of the tree, and their limit
    collect_file_changes: Callable[[str], Awaitable[Sequence[FilesChanged]]] = _no_file_changes
    withheld: Callable[[], tuple[int, int]] = lambda: (0, 0)
    run_hooks: Callable[[str, str, Mapping[str, Any]], Awaitable[HookOutcome]] = run_no_hooks
    turn_lease: Callable[[str], AbstractAsyncContextManager[None]] = unshared_turn
