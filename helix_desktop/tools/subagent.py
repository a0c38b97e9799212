"""The tool delegate: a part of the work for a conversation of its own; only its result comes back."""

from __future__ import annotations

import fnmatch
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from helix_desktop.engine.ports import CallContext
from helix_desktop.engine.tool_names import RECALLS, ToolName
from helix_desktop.errors import Refused, WrongUse
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, flag, text
from helix_desktop.values import dataclass

DEEPEST = 2
MOST_IN_ALL = 32
_LONGEST_TASK = 100_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """What all agents below one conversation of the user's may come to together."""

    depth: int = DEEPEST
    number: int = MOST_IN_ALL


@dataclass(slots=True)
class Tree:
    """How many agents a conversation of the user's has started, at every depth."""

    started: int = 0


@dataclass(frozen=True, slots=True)
class Role:
    """An agent described in a file. `tools`: the only ones it gets, patterns too, all when empty; `calls`: whom it may call."""

    name: str
    tools: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Place:
    """The place of a conversation in its tree. `chain`: the roles from the top down to itself."""

    depth: int = 0
    chain: tuple[str, ...] = ()
    tree: Tree = field(default_factory=Tree)
    bounds: Callable[[], Bounds] = Bounds
    roles: Callable[[], Mapping[str, Role]] = dict

    @property
    def role(self) -> str:
        return self.chain[-1] if self.chain else ""


@dataclass(frozen=True, slots=True)
class Delegation:
    """What a sub-agent is asked. `tools`: the only ones it gets, all when empty. `depth`: of the new conversation."""

    parent: str
    call: str
    task: str
    context: str
    tools: tuple[str, ...]
    depth: int
    role: str = ""
    background: bool = False


@dataclass(frozen=True, slots=True)
class Child:
    """What became of it: its conversation, and the distilled result."""

    conversation: str
    answer: str
    ok: bool = True


StartChild = Callable[[Delegation, CallContext], Awaitable[Child]]


class Delegating:
    """The delegations of one conversation."""

    def __init__(self, start_child: StartChild, *, place: Place | None, names: Callable[[], frozenset[str]]) -> None:
        self._start = start_child
        self._place = place or Place()
        self._names = names

    async def delegate(self, args: Arguments, use: Use) -> Result:
        """Run it to its end; cancelling stops the child."""
        wish = self._wish(args, use)
        self._place.tree.started += 1
        child = await self._start(wish, use.context)
        title = " ".join(wish.task.split())[:100]
        answer = child.answer or "[it came back without a result]"
        return Result(answer, source=title, ok=child.ok, child=child.conversation)

    def _wish(self, args: Arguments, use: Use) -> Delegation:
        self._refuse_beyond_limits()
        task, context = args.text("task").strip(), args.text("context")
        if not task or len(task) + len(context) > _LONGEST_TASK:
            raise WrongUse(
                f"Specify a task. The task and its context together can be up to {_LONGEST_TASK:,} characters long."
            )
        tools = tuple(dict.fromkeys(str(name) for name in args.items("tools")))
        if unknown := [name for name in tools if name not in self._names()]:
            raise WrongUse(
                f"There is no tool {unknown[0][:60]!r}.", remedy="To give the agent all tools, omit `tools`."
            )
        role = self._role(args.text("agent").strip())
        return Delegation(
            use.context.conversation, use.call.id, task, context, self._tools(role, tools), self._place.depth + 1,
            role.name if role else "", args.flag("background"),
        )  # fmt: skip

    def _refuse_beyond_limits(self) -> None:
        bounds = self._place.bounds()
        if self._place.depth >= bounds.depth:
            depth = self._place.depth
            raise Refused(f"A sub-agent at this depth ({depth}) can't delegate further.", remedy="Do it yourself.")
        if self._place.tree.started >= bounds.number:
            raise Refused(
                f"{bounds.number} sub-agents have already been started in this conversation, so no more can be started."
            )

    def _role(self, name: str) -> Role | None:
        """The agent that is asked for by name."""
        roles = self._place.roles()
        own = roles.get(self._place.role)
        if not name:
            if own is not None:
                raise Refused(
                    f"{own.name} may only call: {', '.join(own.calls) or 'nobody'}.", remedy="Specify one of them."
                )
            return None
        if name not in roles:
            known = ", ".join(roles) or "none"
            raise WrongUse(
                f"There is no agent {name[:60]!r}.",
                remedy=f"Available: {known}. To use an agent without a role, omit `agent`.",
            )
        if name in self._place.chain:
            way = " → ".join([*self._place.chain, name])
            raise Refused(f"This would create a loop: {way}.", remedy="Do the work yourself, or say what is missing.")
        if own is not None and name not in own.calls:
            raise Refused(f"{own.name} may only call: {', '.join(own.calls) or 'nobody'}.")
        return roles[name]

    def _tools(self, role: Role | None, wanted: tuple[str, ...]) -> tuple[str, ...]:
        """Of the tools there are here, those the agent's file and the call both name; never more than are there."""
        if role is None or not role.tools:
            return wanted
        named = {name for name in self._names() if any(fnmatch.fnmatchcase(name, each) for each in role.tools)}
        kept = named | (self._names() & {*RECALLS, *((ToolName.DELEGATE,) if role.calls else ())})
        return tuple(sorted(kept & set(wanted) if wanted else kept)) or ("none",)

    def tools(self) -> tuple[Tool, ...]:
        own = self._place.roles().get(self._place.role)
        if self._place.depth >= self._place.bounds().depth or (own is not None and not own.calls):
            return ()
        return (Tool(ToolName.DELEGATE, _ABOUT, _SCHEMA, self.delegate),)


_ABOUT = "Give an independent task to a sub-agent. It knows only what you write here; only its answer comes back."
_SCHEMA = fields(
    "task",
    task=text("What to do, and what the answer must contain"),
    context=text(),
    tools={"type": "array", "items": {"type": "string"}},
    agent=text("An agent of this workspace, by name"),
    background=flag("Its answer comes later as a message"),
)
