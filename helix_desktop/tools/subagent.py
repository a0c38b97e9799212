"""The tool delegate: a part of the work for a conversation of its own; only its result comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from helix_desktop.engine.ports import CallContext
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import Refused, WrongUse
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, text

DEEPEST = 2
MOST_AT_ONCE = 4
MOST_IN_ALL = 32
_LONGEST_TASK = 100_000


@dataclass(frozen=True, slots=True)
class Delegation:
    """What a sub-agent is asked. `tools`: the only ones it gets, all when empty. `depth`: of the new conversation."""

    parent: str
    call: str
    task: str
    context: str
    tools: tuple[str, ...]
    depth: int


@dataclass(frozen=True, slots=True)
class Child:
    """What became of it: its conversation, and the distilled result."""

    conversation: str
    answer: str
    ok: bool = True


StartChild = Callable[[Delegation, CallContext], Awaitable[Child]]


class Delegating:
    """The delegations of one conversation: how many run, how many there were, how deep it stands itself."""

    def __init__(
        self, start_child: StartChild, *, depth: int = 0, names: Callable[[], frozenset[str]] = frozenset
    ) -> None:
        self._start = start_child
        self._depth = depth
        self._names = names
        self._started = 0
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    async def delegate(self, args: Arguments, use: Use) -> Result:
        """Run it to its end. More than a few at once wait for their turn; cancelling stops the child."""
        wish = self._wish(args, use)
        self._started += 1
        async with self._room:
            child = await self._start(wish, use.context)
        title = " ".join(wish.task.split())[:100]
        return Result(
            child.answer or "[it came back without a result]",
            source=title,
            ok=child.ok,
            child=child.conversation,
            note=title,
        )

    def _wish(self, args: Arguments, use: Use) -> Delegation:
        if self._depth >= DEEPEST:
            raise Refused(f"A sub-agent this deep ({self._depth}) delegates no further.", remedy="Do it yourself.")
        if self._started >= MOST_IN_ALL:
            raise Refused(f"{MOST_IN_ALL} sub-agents were started in this conversation; there are no more.")
        task, context = args.text("task").strip(), args.text("context")
        if not task or len(task) + len(context) > _LONGEST_TASK:
            raise WrongUse(f"A task is needed, of up to {_LONGEST_TASK:,} characters with its context.")
        tools = tuple(dict.fromkeys(str(name) for name in args.items("tools")))
        if unknown := [name for name in tools if name not in self._names()]:
            raise WrongUse(f"There is no tool {unknown[0][:60]!r} to give away.", remedy="Leave tools out to give all.")
        return Delegation(use.context.conversation, use.call.id, task, context, tools, self._depth + 1)

    def tools(self) -> tuple[Tool, ...]:
        return (Tool(ToolName.DELEGATE, _ABOUT, _SCHEMA, self.delegate),) if self._depth < DEEPEST else ()


_ABOUT = (
    "Give a task that needs much reading to a sub-agent. It knows only what you write here; only its answer comes back. "
    "Several run side by side."
)
_SCHEMA = fields(
    "task",
    task=text(),
    context=text(),
    tools={"type": "array", "items": {"type": "string"}, "description": "All when left out"},
)
