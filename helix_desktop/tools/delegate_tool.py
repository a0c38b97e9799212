"""The tool delegate: a new conversation does a part of the work and returns only its result."""

import fnmatch
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field

from helix_desktop.engine.ports import CallContext
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.engine.tool_names import RECALLS, ToolName
from helix_desktop.errors import ActionRefused, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import built_in_tool

_LONGEST_TASK = 100_000


@dataclass(slots=True)
class AgentTree:
    """Counts the agents, at every depth, that one of the user's conversations has started."""

    started_count: int = 0


@dataclass(frozen=True, slots=True)
class AgentRole:
    """An agent that a file describes. Its tools must fit `tool_patterns`, unless that is empty."""

    name: str
    tool_patterns: tuple[str, ...] = ()
    callable_agents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AgentPlace:
    """A conversation's place in its tree. `chain`: the roles from the top down to its own."""

    depth: int = 0
    chain: tuple[str, ...] = ()
    tree: AgentTree = field(default_factory=AgentTree)
    limits: Callable[[], TurnLimits] = TurnLimits
    roles: Callable[[], Mapping[str, AgentRole]] = dict

    @property
    def current_role(self) -> str:
        if not self.chain:
            return ""
        return self.chain[-1]


@dataclass(frozen=True, slots=True)
class Delegation:
    """A sub-agent's task. `tools`: all that it gets, or empty for no limit. `depth`: of
    its conversation.
    """

    parent: str
    call: str
    task: str
    context: str
    tools: tuple[str, ...]
    depth: int
    role: str = ""
    background: bool = False
    isolated: bool = False  # True if the sub-agent works in a private copy of the folders.


@dataclass(frozen=True, slots=True)
class DelegationResult:
    conversation: str
    answer: str
    ok: bool = True


StartChild = Callable[[Delegation, CallContext], Awaitable[DelegationResult]]


class AgentDelegation:
    """The tool of one conversation by which its agent gives work to sub-agents."""

    def __init__(
        self,
        start_child: StartChild,
        *,
        place: AgentPlace | None,
        names: Callable[[], frozenset[str]],
    ) -> None:
        """`start_child` runs a sub-agent to its end. `names` returns the tools that there are."""
        self._start = start_child
        self._place = place or AgentPlace()
        self._names = names

    async def delegate_task(
        self, args: built_in_tool.ToolArguments, resources: built_in_tool.ToolResources
    ) -> built_in_tool.ToolOutput:
        """Run the task to its end. Cancelling this stops the sub-agent."""
        delegation = self._parse_delegation(args, resources)
        self._place.tree.started_count += 1
        child = await self._start(delegation, resources.context)
        title = " ".join(delegation.task.split())[:100]
        answer = child.answer or "[it came back without a result]"
        return built_in_tool.ToolOutput(answer, source=title, ok=child.ok, child=child.conversation)

    def _parse_delegation(
        self, args: built_in_tool.ToolArguments, resources: built_in_tool.ToolResources
    ) -> Delegation:
        """Return what a sub-agent is to do, by the arguments of a call. InvalidInput or
        ActionRefused if there may be no further sub-agent, or the task, a tool or the role
        cannot be.
        """
        self._check_delegation_bounds()
        task = args.text_argument("task").strip()
        context = args.text_argument("context")
        length = len(task) + len(context)
        if not task or length > _LONGEST_TASK:
            raise InvalidInput(
                f"Specify a task. The task and its context together can be up to {_LONGEST_TASK:,} characters long."
            )
        named_tools = self._parse_tool_names(args)
        named_role = args.text_argument("agent").strip()
        role = self._find_allowed_role(named_role)
        role_name = ""
        if role is not None:
            role_name = role.name
        tools = self._choose_subagent_tools(role, named_tools)
        runs_in_background = args.flag_argument("background")
        is_isolated = args.flag_argument("isolate")
        return Delegation(
            parent=resources.context.conversation,
            call=resources.call.id,
            task=task,
            context=context,
            tools=tools,
            depth=self._place.depth + 1,
            role=role_name,
            background=runs_in_background,
            isolated=is_isolated,
        )

    def _parse_tool_names(self, args: built_in_tool.ToolArguments) -> tuple[str, ...]:
        """Return the tools that the call names, each once. InvalidInput if there is no such tool."""
        names: list[str] = []
        for argument in args.list_argument("tools"):
            name = str(argument)
            if name not in self._names():
                raise InvalidInput(
                    f"There is no tool {name[:60]!r}.",
                    remedy="To give the agent all tools, omit `tools`.",
                )
            if name not in names:
                names.append(name)
        return tuple(names)

    def _check_delegation_bounds(self) -> None:
        """Refuse a sub-agent that would be too deep among those that started one another, or
        one too many.
        """
        limits = self._place.limits()
        if self._place.depth >= limits.agents_depth:
            depth = self._place.depth
            raise ActionRefused(
                f"A sub-agent at this depth ({depth}) cannot delegate further.",
                remedy="Do the work yourself.",
            )
        if self._place.tree.started_count >= limits.agents:
            raise ActionRefused(
                f"{limits.agents} sub-agents have already been started in this conversation, so no more can be started."
            )

    def _find_allowed_role(self, name: str) -> AgentRole | None:
        """Return the role of this name, or None for an agent without one."""
        roles = self._place.roles()
        own_role = roles.get(self._place.current_role)
        if not name:
            if own_role is None:
                return None
            raise ActionRefused(
                f"{own_role.name} may only call: {', '.join(own_role.callable_agents) or 'nobody'}.",
                remedy="Specify one of these agents.",
            )
        if name not in roles:
            role_names = ", ".join(roles) or "none"
            raise InvalidInput(
                f"There is no agent named {name[:60]!r}.",
                remedy=f"Available: {role_names}. To use an agent without a role, omit `agent`.",
            )
        if name in self._place.chain:
            loop_of_agents = " → ".join(self._place.chain + (name,))
            raise ActionRefused(
                f"This would create a loop: {loop_of_agents}.",
                remedy="Do the work yourself, or say what is missing.",
            )
        if own_role is not None and name not in own_role.callable_agents:
            raise ActionRefused(
                f"{own_role.name} may only call: {', '.join(own_role.callable_agents) or 'nobody'}."
            )
        return roles[name]

    def _choose_subagent_tools(
        self, role: AgentRole | None, requested_tools: tuple[str, ...]
    ) -> tuple[str, ...]:
        """Choose those tools that both the agent's file and the call name, and that exist here."""
        if role is None or not role.tool_patterns:
            return requested_tools
        # Recalling folded content is no power of its own, so every agent can do it.
        always_given = set(RECALLS)
        if role.callable_agents:
            always_given.add(ToolName.DELEGATE)
        chosen_tools = []
        for name in sorted(self._names()):
            is_given = name in always_given or _fits_any_pattern(name, role.tool_patterns)
            if is_given and (not requested_tools or name in requested_tools):
                chosen_tools.append(name)
        # An empty list would mean all tools.
        return tuple(chosen_tools) or ("none",)

    def build_delegate_tool(self) -> tuple[built_in_tool.BuiltInTool, ...]:
        """Return the tool, or nothing for an agent that can delegate to nobody."""
        own_role = self._place.roles().get(self._place.current_role)
        if own_role is not None and not own_role.callable_agents:
            return ()
        if self._place.depth >= self._place.limits().agents_depth:
            return ()
        return (built_in_tool.BuiltInTool(DELEGATE, self.delegate_task),)


def _fits_any_pattern(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)


DELEGATE = built_in_tool.ToolDeclaration(
    ToolName.DELEGATE,
    "Give an independent task to a sub-agent. It knows only what you write here; only its answer comes back.",
    {
        "type": "object",
        "properties": {
            "task": {
                "type": "string",
                "description": "What to do, and what the answer must contain",
            },
            "context": {"type": "string"},
            "tools": {"type": "array", "items": {"type": "string"}},
            "agent": {"type": "string", "description": "An agent of this workspace, by name"},
            "background": {"type": "boolean", "description": "Its answer comes later as a message"},
            "isolate": {"type": "boolean", "description": "It works in a copy of the folders"},
        },
        "required": ["task"],
    },
)
