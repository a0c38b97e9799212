"""What a session and its turns work with, and their limits: values and functions only."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol, TypeVar

from helix_desktop.engine import facts, ports
from helix_desktop.engine.session_events import ConversationActivity
from helix_desktop.fast_dataclass import dataclass

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TurnLimits:
    """When a turn stops by itself. Money is in dollars; 0 means no limit.

    `repeats`: how often the same call may return the same output. `agents…`: for all agents below
    one conversation together, at every depth.
    """

    steps: int = 400
    repeats: int = 5
    turn_cost: float = 0.0
    conversation_cost: float = 0.0
    day_cost: float = 0.0
    workspace_cost: float = 0.0
    agents: int = 32
    agents_depth: int = 2
    agents_at_once: int = 4
    agents_seconds: float = 0.0
    agents_cost: float = 0.0


@dataclass(frozen=True, slots=True)
class StandingNote:
    """A text that holds from some step on, such as a folder's rules, a skill or a plan.
    Empty withdraws it.
    """

    by: str
    text: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class HookOutcome:
    """What hooks answer to an event: a reason to stop it, and text for the model."""

    blocks: str = ""
    says: str = ""


async def run_no_hooks(_event: str, _conversation: str, _values: Mapping[str, Any]) -> HookOutcome:
    return HookOutcome()


@dataclass(frozen=True, slots=True)
class ConversationSetup:
    """What the view depends on besides messages. Before every step, changes are appended."""

    system: facts.SystemSet
    policy: facts.PolicySet
    models: tuple[facts.ModelSet, ...]
    rules: tuple[facts.RulesSet, ...] = ()
    notes: tuple[StandingNote, ...] = ()

    @property
    def settings_facts(self) -> tuple[facts.Fact, ...]:
        return (self.system, *self.rules, self.policy, *self.models)


async def _no_file_changes(_conversation: str) -> Sequence[facts.FilesChanged]:
    return ()


@dataclass(frozen=True, slots=True)
class QueuedMessage:
    """Waits for the turn's end, or with `steer` for the next step. May rewind first."""

    parts: tuple[facts.UserPart, ...]
    steer: bool
    by: str = ""  # Who wrote it: see `UserSaid.by`.
    rewinds_to: int | None = None
    command_id: str = ""  # See `UserSaid.command`.


@dataclass(frozen=True, slots=True)
class TurnCallbacks:
    """What a turn calls to ask the user, show its state, and take or return steering messages.
    `is_interrupted`: whether one of these is the user's, who does not wait for a reply to end.
    """

    ask: Callable[[ports.PermissionQuestion], Awaitable[ports.PermissionAnswer]]
    steering: Callable[[], Sequence[QueuedMessage]]
    steer_again: Callable[[Sequence[QueuedMessage]], None]
    running: Callable[[ConversationActivity], None]
    end_when_stopped: Callable[[], facts.TurnEnded]
    is_interrupted: Callable[[], bool]


class TaskSpawner(Protocol):
    """Starts a task that has a name and an owner (see concurrency.py)."""

    def __call__(self, work: Coroutine[Any, Any, T], /, *, name: str) -> asyncio.Task[T]: ...


@dataclass(frozen=True, slots=True)
class AgentsCost:
    """The dollars that sub-agents have cost. `below`: all that work for the conversation.

    If it is a sub-agent itself: what the user's turn that it works for has cost, what
    all agents of that conversation have cost, and what these may cost.
    """

    below: float = 0.0
    turn_above: float = 0.0
    whole_team: float = 0.0
    limit_of_team: float = 0.0


@dataclass(frozen=True, slots=True)
class FoldServices:
    """What folding needs. `models` returns the client for a role (main, fast, long) or None."""

    cache: ports.ContentCache
    tokens: ports.TokenCounter
    clock: ports.Clock
    models: Callable[[facts.ModelRole], ports.ModelClient | None]
    spawn: TaskSpawner
    limits: Callable[[], TurnLimits]
    spent: Callable[[], tuple[float, float]]  # Dollars spent today and in all.
    agents_spent: Callable[[], AgentsCost]


@dataclass(frozen=True, slots=True)
class SessionServices(FoldServices):
    """Everything a session works with.

    `collect_file_changes`: returns changes in the folders that no result has reported.
    `withheld`: see `ToolsOffered`. `turn_lease`: held during a turn; refuses while
    another machine works here. `expected_setup`: what `setup` will probably return, without what
    only a step may do, such as loading a model.
    """

    index: ports.SearchIndex
    tools: ports.ToolSet
    setup: Callable[[], Awaitable[ConversationSetup]]
    expected_setup: Callable[[], Awaitable[ConversationSetup]]
    collect_file_changes: Callable[[str], Awaitable[Sequence[facts.FilesChanged]]] = (
        _no_file_changes
    )
    withheld: Callable[[], tuple[int, int]] = lambda: (0, 0)
    run_hooks: Callable[[str, str, Mapping[str, Any]], Awaitable[HookOutcome]] = run_no_hooks
    turn_lease: Callable[[str], AbstractAsyncContextManager[None]] = lambda _: nullcontext()
    # Runs a foreign agent's turn and records it. If None, this program's own agent does the work.
    run_foreign_turn: Callable[[TurnCallbacks], Awaitable[facts.TurnEnded]] | None = None
