"""Who works on a conversation: the collaborators a session and its turns are given, and the limits they keep to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, TypeVar

from helix_desktop.engine.facts import Fact, FilesChanged, ModelRole, ModelSet, PolicySet, Recorded, RulesSet, SystemSet
from helix_desktop.engine.ports import Cache, Clock, Index, ModelClient, Tokens, Tools
from helix_desktop.values import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Limits:
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
class Note:
    """What holds word for word from some step on: rules of a folder, a skill, a plan. An empty text takes it back."""

    by: str
    text: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class Heard:
    """What hooks say of something that happens: why it must not go on, and words for the model."""

    blocks: str = ""
    says: str = ""


async def nothing_heard(_event: str, _conversation: str, _values: Mapping[str, Any]) -> Heard:
    """Where there are no hooks."""
    return Heard()


@dataclass(frozen=True, slots=True)
class Setup:
    """What the view depends on besides what is said: compared before every step, appended where it changed."""

    system: SystemSet
    policy: PolicySet
    models: tuple[ModelSet, ...]
    rules: tuple[RulesSet, ...] = ()
    notes: tuple[Note, ...] = ()

    @property
    def settings(self) -> tuple[Fact, ...]:
        """The facts of it that are settings."""
        return (self.system, *self.rules, self.policy, *self.models)


@dataclass(frozen=True, slots=True)
class Restored:
    """What putting files back came to: a sentence for each, and the fact of it."""

    said: Sequence[str] = ()
    fact: FilesChanged | None = None


async def _nothing(_conversation: str) -> Sequence[FilesChanged]:
    return ()


@asynccontextmanager
async def unshared_turn(_conversation: str) -> AsyncIterator[None]:
    """Where no other machine has the conversation."""
    yield


class Spawn(Protocol):
    """Starts a named, owned task; see tasks.py."""

    def __call__(self, work: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]: ...


@dataclass(frozen=True, slots=True)
class Crew:
    """`models` gives the client of a role (main, fast, long) or None; `spent` the money of the day and of all time.

    `restore` puts files back as they were before the facts it is given, in the order they happened. `settle`: what steps have
    changed in the folders and no result has told. `withheld`: see `ToolsOffered`. `turn_lease`: a turn runs within; Refused where
    another machine works in the conversation.
    """

    cache: Cache
    index: Index
    tokens: Tokens
    clock: Clock
    tools: Tools
    models: Callable[[ModelRole], ModelClient | None]
    setup: Callable[[], Awaitable[Setup]]
    spawn: Spawn
    restore: Callable[[Sequence[Recorded]], Awaitable[Restored]]
    limits: Callable[[], Limits] = Limits
    spent: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    agents_spent: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)  # of all agents of the tree, and their limit
    settle: Callable[[str], Awaitable[Sequence[FilesChanged]]] = _nothing
    withheld: Callable[[], tuple[int, int]] = lambda: (0, 0)
    happened: Callable[[str, str, Mapping[str, Any]], Awaitable[Heard]] = nothing_heard
    turn_lease: Callable[[str], AbstractAsyncContextManager[None]] = unshared_turn
