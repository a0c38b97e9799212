"""The sub-agents of a workspace: starts and stops them, and knows who delegated what
and what it costs.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.facts import (
    ConversationStarted,
    ModelReplied,
    Recorded,
    Stop,
    Text,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import CLOSED, ConversationActivity
from helix_desktop.engine.session_setup import AgentsCost, TaskSpawner, TurnLimits
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import ActionRefused, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project.agent_descriptions import agents_callable_by, tools_of_agent
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.resources import read_table
from helix_desktop.tools import delegate_tool
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.delegate_tool import AgentPlace, AgentRole, Delegation, DelegationResult
from helix_desktop.workbench.conversation_list_rows import ConversationListRows
from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills

_CLAUDE_TOOLS = {
    name: tuple(ours.split()) for name, ours in read_table("agent_tools")["claude_code"].items()
}
IN_BACKGROUND = "works in the background"
Ask = Callable[[PermissionQuestion], Awaitable[PermissionAnswer]]
Open = Callable[[ConversationStarted, Delegation], Awaitable[Session]]


@dataclass(slots=True)
class DelegatedAgent:
    """An agent with a delegated task. `began` and `ended` are by the monotonic clock;
    `ended` is 0 while it works.
    """

    id: str
    parent: str
    role: str
    task: str
    session: Session
    began: float
    ended: float = 0.0
    state: str = "waiting"
    waits: int = 0  # The number of its calls that wait for other agents.

    @property
    def agent_label(self) -> str:
        return self.role or "agent"


@dataclass(slots=True)
class AgentTeam(delegate_tool.AgentTree):
    """All agents below one conversation of the user's. `freed`: one of them has ended or waits."""

    agents: dict[str, DelegatedAgent] = field(default_factory=dict)
    began: float = 0.0  # By the monotonic clock.
    working: int = 0  # How many are working now.
    stops: int = 0  # How often all were stopped.
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def release_slots(self, slot_count: int) -> None:
        """Free slots, and let agents that wait for one try again."""
        self.working -= slot_count
        self.freed.set()
        self.freed.clear()


@dataclass(frozen=True, slots=True)
class AgentRoles:
    """The agents that files describe, in the workspace's folders and in the user's own."""

    project: WorkspaceRulesAndSkills

    def list_roles(self) -> Mapping[str, AgentRole]:
        roles: dict[str, AgentRole] = {}
        for item in self.project.now.items_in_force("agent"):
            tools = _tools_named_by_role(item)
            roles[item.name] = AgentRole(item.name, tools, agents_callable_by(item))
        return roles

    def role_file_of(self, state: ConversationState) -> ProjectItem | None:
        """Return the file of the agent to which this conversation was delegated, if any."""
        started = _beginning_of(state)
        if started is None:
            return None
        return self.find_role_file(started.role)

    def tools_of_role(self, state: ConversationState) -> tuple[str, ...]:
        """Return the tools that the file of a conversation's agent names. Empty means all tools."""
        item = self.role_file_of(state)
        if item is None:
            return ()
        return _tools_named_by_role(item)

    def find_role_file(self, name: str) -> ProjectItem | None:
        if not name:
            return None
        return self.project.now.find_item("agent", name)


@dataclass(slots=True)
class SubagentRunner:
    """`open` creates a conversation and its session, confined to what was delegated."""

    roles: AgentRoles
    open: Open
    spawn: TaskSpawner
    find: Callable[[str], Session | None]
    limits: Callable[[], TurnLimits]
    describe_copy: Callable[[Session], Awaitable[str]]
    rows: ConversationListRows
    listeners: list[Callable[[], None]] = field(default_factory=list)
    _teams: dict[str, AgentTeam] = field(default_factory=dict)
    # For each agent: the user's conversation at the top.
    _roots: dict[str, str] = field(default_factory=dict)
    # For each agent: the roles of the agents above it and its own.
    _chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _closed: bool = False

    # --- A conversation's place in the tree of agents

    def place_in_tree(self, conversation: str, depth: int) -> AgentPlace:
        chain = self._chains.get(conversation, ())
        team = self.team_of(conversation)
        return AgentPlace(depth, chain, team, self.limits, self.roles.list_roles)

    def team_of(self, conversation: str) -> AgentTeam:
        root = self._roots.get(conversation, conversation)
        return self._teams.setdefault(root, AgentTeam())

    def cost_of_agents_below(self, conversation: str) -> float:
        """Return what the agents below a conversation have ever cost."""
        row = self.rows.find_row(conversation)
        if row is None:
            return 0.0
        return row.whole_cost - row.cost

    def agents_spending(self, conversation: str) -> AgentsCost:
        """Return what the agents below a conversation and beside it have cost."""
        cost_below = self.cost_of_agents_below(conversation)
        root = self._roots.get(conversation, "")
        if not root:
            return AgentsCost(below=cost_below)
        # What the present turn of the user's conversation has cost, for which the agent works.
        cost_of_turn_above = 0.0
        root_session = self.find(root)
        if root_session is not None:
            cost_of_turn_above = root_session.turns.cost_of_turn()
        return AgentsCost(
            below=cost_below,
            turn_above=cost_of_turn_above,
            whole_team=self.cost_of_agents_below(root),
            limit_of_team=self.limits().agents_cost,
        )

    def find_interrupted_agents(self, parent: ConversationState) -> list[str]:
        """Return the agents in the background whose end was not reported, because the
        program ended before.
        """
        reports = _reports_of_agents(parent)
        interrupted: list[str] = []
        for recorded in parent.facts_on_path():
            result = recorded.fact
            if not isinstance(result, ToolReturned) or IN_BACKGROUND not in result.head:
                continue
            agent = result.child
            if agent and agent not in self._roots and f"({agent})" not in reports:
                interrupted.append(agent)
        return interrupted

    # --- Delegating work to a new agent

    async def delegate_to_agent(self, order: Delegation, context: CallContext) -> DelegationResult:
        """Run an agent to its end, or start one in the background."""
        team = self.team_of(order.parent)
        team.began = team.began or time.monotonic()
        root = self._roots.get(order.parent, order.parent)
        self._check_limits(team, self.cost_of_agents_below(root))
        agent = await self._create_agent(order, team)
        if order.background:
            self.spawn(
                self._run_in_background(agent, order, context.ask, team),
                name=f"agent {agent.agent_label}",
            )
            words = f"{agent.agent_label} {IN_BACKGROUND}; its id is {agent.id}. Its answer comes as a message."
            return DelegationResult(agent.id, words)
        async with self._lend_slot_while_waiting(team.agents.get(order.parent), team):
            return await self._run_agent(agent, order, context.ask, team)

    def _check_limits(self, team: AgentTeam, cost: float) -> None:
        limits = self.limits()
        if limits.agents_cost and cost >= limits.agents_cost:
            raise ActionRefused(
                f"The agents in this conversation have cost ${cost:.2f}; the limit is ${limits.agents_cost:.2f}."
            )
        if limits.agents_seconds and self._time_left(team) <= 0:
            raise ActionRefused(
                f"The agents in this conversation have reached their time limit of {limits.agents_seconds:g} s."
            )
        if self._closed:
            raise ActionRefused("The workspace is closing.")

    def _time_left(self, team: AgentTeam) -> float:
        return team.began + self.limits().agents_seconds - time.monotonic()

    async def _create_agent(self, order: Delegation, team: AgentTeam) -> DelegatedAgent:
        """Create an agent's conversation and session, and add it to the team."""
        title = " ".join(order.task.split())[:60]
        started = ConversationStarted(
            title=title, parent=order.parent, parent_call=order.call, role=order.role
        )
        stops_before = team.stops
        session = await self.open(started, order)
        state = "waiting"
        # The user may have stopped all agents while the conversation was being created.
        if team.stops != stops_before:
            state = "stopped"
        agent = DelegatedAgent(
            session.id, order.parent, order.role, title, session, time.monotonic(), state=state
        )
        team.agents[agent.id] = agent
        self._notify_team_listeners()
        return agent

    def add_agent_to_tree(self, conversation: str, order: Delegation) -> None:
        """Add an agent to the tree, once its conversation has an id."""
        self._roots[conversation] = self._roots.get(order.parent, order.parent)
        roles_above = self._chains.get(order.parent, ())
        if order.role:
            self._chains[conversation] = roles_above + (order.role,)
        else:
            self._chains[conversation] = roles_above

    async def _run_in_background(
        self, agent: DelegatedAgent, order: Delegation, ask: Ask, team: AgentTeam
    ) -> None:
        child = await self._run_agent(agent, order, ask, team)
        parent = self.find(order.parent)
        if parent is not None and not self._closed:
            parent.send_on_behalf(
                f"agent:{agent.role or agent.task}",
                f"[{agent.agent_label} ({agent.id}) has finished. Its answer:]\n\n{child.answer}",
            )

    async def _run_agent(
        self, agent: DelegatedAgent, order: Delegation, ask: Ask, team: AgentTeam
    ) -> DelegationResult:
        try:
            async with self._occupy_working_slot(agent, team):
                return await self._run_agent_turn(agent, order, ask, team)
        finally:
            agent.ended = time.monotonic()
            if agent.state != "stopped":
                agent.state = _describe_session_end(agent.session)
            self._notify_team_listeners()

    async def _run_agent_turn(
        self, agent: DelegatedAgent, order: Delegation, ask: Ask, team: AgentTeam
    ) -> DelegationResult:
        """Run an agent's turn. Its questions are asked in the conversation that started it."""
        session = agent.session
        if agent.state == "stopped" or self._closed:
            return DelegationResult(agent.id, "[It was stopped before it began.]", ok=False)
        agent.state = "working"
        session.asked_elsewhere = ask
        task_with_context = f"{order.context}\n\n{order.task}".strip()
        session.send_message((Text(task_with_context),))
        seconds = self.limits().agents_seconds
        late_note = ""
        try:
            if seconds:
                seconds_left = max(self._time_left(team), 0.001)
                await wait_with_limit(session.wait_until_idle(), seconds_left)
            else:
                await session.wait_until_idle()
        except TimeoutError:
            agent.state = "stopped"
            late_note = f"[It ended early: the agents in this conversation have reached their time limit of {seconds:g} s.]"
            session.stop_turn()
            await session.wait_until_idle()
        except asyncio.CancelledError:
            session.stop_turn()
            await asyncio.shield(session.wait_until_idle())
            raise
        finally:
            session.asked_elsewhere = None  # From now on, the user answers its questions.
        result = result_of_agent(session.conversation)
        copy_note = await self.describe_copy(session)
        texts = [text for text in (result.answer, late_note, copy_note) if text]
        answer = "\n".join(texts)
        is_ok = result.ok and not late_note
        return DelegationResult(result.conversation, answer, is_ok)

    @asynccontextmanager
    async def _occupy_working_slot(
        self, agent: DelegatedAgent, team: AgentTeam
    ) -> AsyncIterator[None]:
        try:
            await self._wait_for_slot(agent, team)
            yield
        finally:
            team.release_slots(1)

    @asynccontextmanager
    async def _lend_slot_while_waiting(
        self, agent: DelegatedAgent | None, team: AgentTeam
    ) -> AsyncIterator[None]:
        """Free the agent's place while it waits for other agents."""
        if agent is None:
            yield
            return
        # An agent may wait for several calls at once, and still has only one place.
        agent.waits += 1
        if agent.waits == 1:
            team.release_slots(1)
        try:
            yield
        finally:
            agent.waits -= 1
            if not agent.waits:
                await self._wait_for_slot(agent, team)

    async def _wait_for_slot(self, agent: DelegatedAgent, team: AgentTeam) -> None:
        """Wait for a free place in the tree. A stopped agent gets one at once, so it can end."""
        try:
            while team.working >= self.limits().agents_at_once:
                if agent.state == "stopped" or self._closed:
                    break
                await team.freed.wait()
        finally:
            team.working += 1

    def list_agent_rows(self, conversation: str) -> Sequence[SubagentRow]:
        """Return all agents below a conversation of the user's, in the order they began."""
        team = self.team_of(conversation)
        return [self._build_agent_row(agent) for agent in team.agents.values()]

    def _build_agent_row(self, agent: DelegatedAgent) -> SubagentRow:
        """Return an agent as the list of agents shows it."""
        meter = agent.session.context.next_request_meter()
        state = agent.state
        if agent.session.running is ConversationActivity.ASKING:
            state = "asking"
        row = self.rows.find_row(agent.id)
        cost = 0.0
        if row is not None:
            cost = row.cost
        end_time = agent.ended or time.monotonic()
        return SubagentRow(
            id=agent.id,
            parent=agent.parent,
            name=agent.agent_label,
            task=agent.task,
            state=state,
            used=meter.used,
            window=meter.window,
            cost=cost,
            seconds=end_time - agent.began,
        )

    def stop_agent(self, agent: str) -> None:
        """Stop an agent and all agents below it."""
        team = self.team_of(agent)
        agents_to_end: list[DelegatedAgent] = []
        for other in team.agents.values():
            if other.id == agent or agent in self.rows.ids_above(other.id):
                agents_to_end.append(other)
        _end_agents(agents_to_end, team)

    def stop_all_agents(self, conversation: str) -> None:
        """Stop all agents below a conversation, also those whose conversation is still
        being created.
        """
        team = self.team_of(conversation)
        team.stops += 1
        _end_agents(team.agents.values(), team)

    def close(self) -> None:
        """Stop all agents, and start none from now on."""
        self._closed = True
        for team in self._teams.values():
            _end_agents(team.agents.values(), team, CLOSED)

    def notify_after_step_of_agent(self, recorded: Recorded) -> None:
        if recorded.conversation not in self._roots:
            return
        if isinstance(recorded.fact, ModelReplied | TurnEnded):
            self._notify_team_listeners()

    def _notify_team_listeners(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    def build_agent_tools(self) -> tuple[BuiltInTool, ...]:
        return (
            BuiltInTool(MESSAGE_AGENT, self._run_message_agent),
            BuiltInTool(LIST_AGENTS, self._run_list_agents),
            BuiltInTool(STOP_AGENT, self._run_stop_agent),
        )

    async def _run_message_agent(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        agent = self._require_own_agent(args.text_argument("agent"), use)
        if agent.ended:
            raise ActionRefused(
                f"{agent.agent_label} has already finished.", remedy="Delegate the work again."
            )
        agent.session.send_on_behalf(
            "agent", f"[From the agent that delegated this:]\n\n{args.text_argument('text')}"
        )
        return ToolOutput(
            f"{agent.agent_label} reads it at its next step.", source=agent.agent_label
        )

    async def _run_list_agents(self, _: ToolArguments, use: ToolResources) -> ToolOutput:
        lines: list[str] = []
        for row in self.list_agent_rows(use.context.conversation):
            # Agents of its agents are theirs to deal with.
            if row.parent == use.context.conversation:
                lines.append(
                    f"{row.id} {row.name}: {row.state}, ${row.cost:.2f}, {row.seconds:.0f} s. {row.task}"
                )
        return ToolOutput("\n".join(lines) or "No agent was delegated anything here.")

    async def _run_stop_agent(self, args: ToolArguments, use: ToolResources) -> ToolOutput:
        agent = self._require_own_agent(args.text_argument("agent"), use)
        self.stop_agent(agent.id)
        return ToolOutput(f"{agent.agent_label} was stopped.", source=agent.agent_label)

    def _require_own_agent(self, agent: str, use: ToolResources) -> DelegatedAgent:
        """Return the agent if this conversation delegated to it. Raises NotFound otherwise."""
        team = self.team_of(use.context.conversation)
        own_agent = team.agents.get(agent)
        if own_agent is None or own_agent.parent != use.context.conversation:
            raise NotFound(
                f"You haven't delegated anything to an agent named {agent[:60]!r}.",
                remedy="To see your agents, use list_agents.",
            )
        return own_agent


def _tools_named_by_role(item: ProjectItem) -> tuple[str, ...]:
    """Return our names of the tools in an agent's file. Permissions decide limits in brackets."""
    names: list[str] = []
    for written_name in tools_of_agent(item):
        name = written_name.partition("(")[0]
        names.extend(_CLAUDE_TOOLS.get(name, (name,)))
        # Claude Code writes mcp__server__tool, or mcp__server for all tools of a server.
        if name.startswith("mcp__"):
            name_of_server_tool = name.removeprefix("mcp__")
            if "__" not in name_of_server_tool:
                name_of_server_tool += "__*"
            names.append(name_of_server_tool)
    return tuple(dict.fromkeys(names))


def _beginning_of(state: ConversationState) -> ConversationStarted | None:
    if not state.facts:
        return None
    first_fact = state.facts[0].fact
    if isinstance(first_fact, ConversationStarted):
        return first_fact
    return None


def _reports_of_agents(parent: ConversationState) -> str:
    """Return what a conversation was told when its agents ended."""
    reports: list[str] = []
    for recorded in parent.facts:
        message = recorded.fact
        if not isinstance(message, UserSaid):
            continue
        if not message.by.startswith(("agent:", "interrupted:")):
            continue
        for part in message.parts:
            if isinstance(part, Text):
                reports.append(part.text)
    return "\n".join(reports)


def _end_agents(agents: Iterable[DelegatedAgent], team: AgentTeam, why: str = "") -> None:
    for agent in agents:
        if not agent.ended:
            agent.state = "stopped"
            agent.session.stop_turn(why)
    team.release_slots(0)


def _describe_session_end(session: Session) -> str:
    last_end = session.turns.last_end
    if not last_end or last_end.reason is TurnEnd.STOPPED:
        return "stopped"
    if last_end.reason is TurnEnd.DONE:
        return "done"
    return "failed"


def report_of_interrupted_agent(agent: Conversation) -> UserSaid:
    """Return what the conversation that delegated to it is told after a restart."""
    started = _beginning_of(agent.state) or ConversationStarted()
    name = started.role or "agent"
    sentence = f"{name} ({agent.id}) did not finish, because the program ended. What it did to files is still there. If its task is still needed, delegate the rest again. Its last words:"
    last_words = result_of_agent(agent).answer or "nothing"
    text = f"[{sentence}]\n\n{last_words}"
    by = f"interrupted:{started.role or started.title}"
    return UserSaid((Text(text),), steering=True, by=by)


def result_of_agent(conversation: Conversation) -> DelegationResult:
    """Return a sub-agent's last answer, joined if it was cut by length, and whether its
    last turn finished.
    """
    replies: list[ModelReplied] = []
    last_end: TurnEnded | None = None
    for recorded in conversation.state.facts:
        if isinstance(recorded.fact, ModelReplied):
            replies.append(recorded.fact)
        elif isinstance(recorded.fact, TurnEnded):
            last_end = recorded.fact

    answer = _text_of_last_reply(replies)
    if last_end is None:
        return DelegationResult(conversation.id, answer.strip(), ok=False)
    if last_end.reason is TurnEnd.DONE:
        return DelegationResult(conversation.id, answer.strip(), ok=True)
    note = f"[It ended early: {last_end.reason.value}. {last_end.why}]"
    return DelegationResult(conversation.id, f"{answer}\n{note}".strip(), ok=False)


def _text_of_last_reply(replies: Sequence[ModelReplied]) -> str:
    first = max(0, len(replies) - 1)
    # A reply that was cut at its greatest length goes on in the next one.
    while first > 0 and replies[first - 1].stop is Stop.LENGTH:
        first -= 1
    text = ""
    for reply in replies[first:]:
        text += "".join(part.text for part in reply.parts if isinstance(part, Text))
    return text


MESSAGE_AGENT = ToolDeclaration(
    "message_agent",
    "Tell a running agent of yours something.",
    {
        "type": "object",
        "properties": {
            "agent": {"type": "string", "description": "Its id"},
            "text": {"type": "string", "description": "What it should know"},
        },
        "required": ["agent", "text"],
    },
    is_rare=True,
)
LIST_AGENTS = ToolDeclaration(
    "list_agents",
    "The agents you delegated to: state and cost.",
    {"type": "object", "properties": {}, "required": []},
    is_rare=True,
)
STOP_AGENT = ToolDeclaration(
    "stop_agent",
    "Stop a running agent of yours.",
    {
        "type": "object",
        "properties": {"agent": {"type": "string", "description": "Its id"}},
        "required": ["agent"],
    },
    is_rare=True,
)
