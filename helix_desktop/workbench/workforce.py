"""The agents of a workspace at work: who was delegated what by whom, how far it is, what it costs, and how it is stopped."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import field

from helix_desktop.engine.collaborators import Limits, Spawn
from helix_desktop.engine.events import FactAppended, Running
from helix_desktop.engine.facts import ConversationStarted, ModelReplied, Spent, Stop, Text, TurnEnd, TurnEnded
from helix_desktop.engine.ports import Answer, CallContext, Question
from helix_desktop.engine.rows import AgentRow
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.view import State
from helix_desktop.errors import NotThere, Refused
from helix_desktop.project.agents import may_call, tools_of
from helix_desktop.project.item import Item
from helix_desktop.tools.subagent import Bounds, Child, Delegation, Place, Role, Tree
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, text
from helix_desktop.values import dataclass
from helix_desktop.workbench.project import Project

_CLAUDE: Mapping[str, tuple[str, ...]] = {
    "Read": (ToolName.READ_FILE,),
    "Write": (ToolName.WRITE_FILE,),
    "Edit": (ToolName.EDIT_FILE,),
    "MultiEdit": (ToolName.EDIT_FILE,),
    "Bash": (ToolName.RUN_COMMAND, ToolName.LIST_COMMANDS, ToolName.READ_COMMAND_OUTPUT, ToolName.STOP_COMMAND),
    "Glob": (ToolName.GLOB_FILES, ToolName.LIST_FILES),
    "Grep": (ToolName.SEARCH_FILES,),
    "LS": (ToolName.LIST_FILES,),
    "WebFetch": (ToolName.FETCH_URL,),
    "Task": (ToolName.DELEGATE,),
    "Agent": (ToolName.DELEGATE,),
    "TodoWrite": (ToolName.SET_TODO,),
}
Ask = Callable[[Question], Awaitable[Answer]]
Open = Callable[[ConversationStarted, Delegation], Awaitable[Session]]


@dataclass(slots=True)
class Agent:
    """One that was delegated something. `ended`: seconds since 1970, 0 while it works."""

    id: str
    parent: str
    role: str
    task: str
    session: Session
    began: float
    ended: float = 0.0
    state: str = "waiting"
    cost: float = 0.0
    waits: int = 0  # for how many it has delegated to

    @property
    def label(self) -> str:
        return self.role or "agent"


@dataclass(slots=True)
class Team(Tree):
    """All agents below one conversation of the user's. `working`: how many work now; `freed`: one of them has ended or waits;
    `stops`: how often all were stopped.
    """

    agents: dict[str, Agent] = field(default_factory=dict)
    cost: float = 0.0
    began: float = 0.0
    working: int = 0
    stops: int = 0
    freed: asyncio.Event = field(default_factory=asyncio.Event)

    def free(self, places: int) -> None:
        """Whoever waits looks again."""
        self.working -= places
        self.freed.set()
        self.freed.clear()


@dataclass(slots=True)
class Workforce:
    """`open`: makes a conversation and the session on it, confined to what was delegated."""

    project: Project
    open: Open
    spawn: Spawn
    find: Callable[[str], Session | None]
    limits: Callable[[], Limits]
    listeners: list[Callable[[], None]] = field(default_factory=list)
    _teams: dict[str, Team] = field(default_factory=dict)
    _roots: dict[str, str] = field(default_factory=dict)  # of each agent, the conversation of the user's above it
    _chains: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _closed: bool = False

    # --- the place of a conversation in its tree

    def place(self, conversation: str, depth: int) -> Place:
        """For the tool delegate of a conversation."""
        return Place(depth, self._chains.get(conversation, ()), self.team(conversation), self._bounds, self.roles)

    def team(self, conversation: str) -> Team:
        return self._teams.setdefault(self._roots.get(conversation, conversation), Team())

    def roles(self) -> Mapping[str, Role]:
        return {item.name: Role(item.name, _tools(item), may_call(item)) for item in self.project.now.in_force("agent")}

    def role_of(self, state: State) -> Item | None:
        """The agent's file of a conversation that was delegated to one."""
        begun = state.facts[0].fact if state.facts else None
        return self.role(begun.role) if isinstance(begun, ConversationStarted) else None

    def role(self, name: str) -> Item | None:
        return self.project.now.find("agent", name) if name else None

    def spent(self, conversation: str) -> tuple[float, float]:
        """What the agents of its tree have cost together and may cost; 0: no limit."""
        if conversation not in self._roots:
            return 0.0, 0.0
        return self.team(conversation).cost, self.limits().agents_cost

    def _bounds(self) -> Bounds:
        limits = self.limits()
        return Bounds(limits.agents_depth, limits.agents)

    # --- delegating

    async def delegate(self, wish: Delegation, context: CallContext) -> Child:
        """Run an agent to its end, or begin one in the background."""
        team = self.team(wish.parent)
        team.began = team.began or time.time()
        self._refuse_spent(team)
        agent = await self._begin(wish, team)
        if wish.background:
            self.spawn(self._in_background(agent, wish, context.ask, team), name=f"agent {agent.label}")
            words = f"{agent.label} works in the background; its id is {agent.id}. Its answer comes as a message."
            return Child(agent.id, words)
        async with self._resting(team.agents.get(wish.parent), team):
            return await self._run(agent, wish, context.ask, team)

    def _refuse_spent(self, team: Team) -> None:
        limits = self.limits()
        if limits.agents_cost and team.cost >= limits.agents_cost:
            raise Refused(
                f"The agents in this conversation have cost ${team.cost:.2f}; the limit is ${limits.agents_cost:.2f}."
            )
        if limits.agents_seconds and self._left(team) <= 0:
            raise Refused(
                f"The agents in this conversation have reached their time limit of {limits.agents_seconds:g} s."
            )
        if self._closed:
            raise Refused("The workspace is closing.")

    def _left(self, team: Team) -> float:
        return team.began + self.limits().agents_seconds - time.time()

    async def _begin(self, wish: Delegation, team: Team) -> Agent:
        title = " ".join(wish.task.split())[:60]
        started = ConversationStarted(title=title, parent=wish.parent, parent_call=wish.call, role=wish.role)
        stops = team.stops
        session = await self.open(started, wish)
        state = "waiting" if stops == team.stops else "stopped"
        agent = Agent(session.id, wish.parent, wish.role, title, session, time.time(), state=state)
        team.agents[agent.id] = agent
        self._tell()
        return agent

    def belongs(self, conversation: str, wish: Delegation) -> None:
        """Called as soon as an agent's conversation has its name: from then on it is part of the tree."""
        self._roots[conversation] = self._roots.get(wish.parent, wish.parent)
        self._chains[conversation] = (*self._chains.get(wish.parent, ()), *((wish.role,) if wish.role else ()))

    async def _in_background(self, agent: Agent, wish: Delegation, ask: Ask, team: Team) -> None:
        child = await self._run(agent, wish, ask, team)
        parent = self.find(wish.parent)
        if parent is not None and not self._closed:
            parent.say_for(
                f"agent:{agent.label}", f"[{agent.label} ({agent.id}) has finished. Its answer:]\n\n{child.answer}"
            )

    async def _run(self, agent: Agent, wish: Delegation, ask: Ask, team: Team) -> Child:
        """From its turn to its end."""
        try:
            async with self._at_work(agent, team):
                return await self._work(agent, wish, ask, team)
        finally:
            agent.ended = time.time()
            if agent.state != "stopped":
                agent.state = _end(agent.session)
            self._tell()

    async def _work(self, agent: Agent, wish: Delegation, ask: Ask, team: Team) -> Child:
        """Its questions are asked in the conversation that started it."""
        session, late = agent.session, ""
        if agent.state == "stopped" or self._closed:
            return Child(agent.id, "[It was stopped before it began.]", ok=False)
        agent.state = "working"
        session.ask_instead(ask)
        session.send((Text(f"{wish.context}\n\n{wish.task}".strip()),))
        seconds = self.limits().agents_seconds
        try:
            if seconds:
                await asyncio.wait_for(session.idle(), max(self._left(team), 0.001))
            else:
                await session.idle()
        except TimeoutError:
            agent.state = "stopped"
            late = f"[It ended early: the agents in this conversation have reached their time limit of {seconds:g} s.]"
            session.stop()
            await session.idle()
        except asyncio.CancelledError:
            session.stop()
            await asyncio.shield(session.idle())
            raise
        finally:
            session.ask_instead(None)  # who goes on with it by hand is asked where they are
        child = result_of(session)
        return Child(child.conversation, f"{child.answer}\n{late}".strip(), child.ok and not late)

    @asynccontextmanager
    async def _at_work(self, agent: Agent, team: Team) -> AsyncIterator[None]:
        """One of those that work side by side."""
        try:
            await self._room(agent, team)
            yield
        finally:
            team.free(1)

    @asynccontextmanager
    async def _resting(self, agent: Agent | None, team: Team) -> AsyncIterator[None]:
        """Who waits for the answers of others leaves its place to them."""
        if agent is None:
            yield
            return
        agent.waits += 1
        team.free(agent.waits == 1)
        try:
            yield
        finally:
            agent.waits -= 1
            if not agent.waits:
                await self._room(agent, team)

    async def _room(self, agent: Agent, team: Team) -> None:
        """Take a place, once there is one in the whole tree. One that is stopped takes it at once, to leave."""
        try:
            while agent.state != "stopped" and not self._closed and team.working >= self.limits().agents_at_once:
                await team.freed.wait()
        finally:
            team.working += 1

    # --- the agents that work

    def rows(self, conversation: str) -> Sequence[AgentRow]:
        """All agents below a conversation of the user's, in the order they began."""
        return [_row(agent) for agent in self.team(conversation).agents.values()]

    def stop(self, agent: str) -> None:
        """End one, with all it has delegated itself."""
        found, team = self._find(agent), self.team(agent)
        _end_all([each for each in team.agents.values() if each is found or self._below(each, agent)], team)

    def stop_all(self, conversation: str) -> None:
        """Those too whose conversation is only being made."""
        team = self.team(conversation)
        team.stops += 1
        _end_all(team.agents.values(), team)

    def close(self) -> None:
        """Nothing is begun any more."""
        self._closed = True
        for team in self._teams.values():
            _end_all(team.agents.values(), team)

    def _below(self, agent: Agent, above: str) -> bool:
        agents = self.team(above).agents
        at: Agent | None = agent
        while at is not None:
            if at.parent == above:
                return True
            at = agents.get(at.parent)
        return False

    def _find(self, agent: str) -> Agent:
        found = self._teams.get(self._roots.get(agent, ""), Team()).agents.get(agent)
        if found is None:
            raise NotThere(f"No agent named {agent[:60]!r} is working in this conversation.")
        return found

    def heard(self, event: object) -> None:
        """Add up what the agents cost."""
        if isinstance(event, FactAppended) and event.recorded.conversation in self._roots:
            fact = event.recorded.fact
            if isinstance(fact, ModelReplied | Spent):
                team = self.team(event.recorded.conversation)
                team.cost += fact.usage.cost
                if agent := team.agents.get(event.recorded.conversation):
                    agent.cost += fact.usage.cost
            if isinstance(fact, ModelReplied | TurnEnded):
                self._tell()

    def _tell(self) -> None:
        for listener in tuple(self.listeners):
            listener()

    # --- for the model

    def tools(self) -> tuple[Tool, ...]:
        return (
            Tool("message_agent", "Tell a running agent of yours something.", _MESSAGE, self._message, rare=True),
            Tool("list_agents", "The agents you delegated to: state and cost.", fields(), self._list, rare=True),
            Tool("stop_agent", "Stop a running agent of yours.", _STOP, self._stop, rare=True),
        )

    async def _message(self, args: Arguments, use: Use) -> Result:
        agent = self._own(args.text("agent"), use)
        if agent.ended:
            raise Refused(f"{agent.label} has already finished.", remedy="Delegate again.")
        agent.session.say_for("agent", f"[From the agent that delegated this:]\n\n{args.text('text')}")
        return Result(f"{agent.label} reads it at its next step.", source=agent.label)

    async def _list(self, _: Arguments, use: Use) -> Result:
        own = [row for row in self.rows(use.context.conversation) if row.parent == use.context.conversation]
        lines = [f"{row.id} {row.name}: {row.state}, ${row.cost:.2f}, {row.seconds:.0f} s. {row.task}" for row in own]
        return Result("\n".join(lines) or "No agent was delegated anything here.")

    async def _stop(self, args: Arguments, use: Use) -> Result:
        agent = self._own(args.text("agent"), use)
        self.stop(agent.id)
        return Result(f"{agent.label} was stopped.", source=agent.label)

    def _own(self, agent: str, use: Use) -> Agent:
        """No conversation reaches another one's agents."""
        found = self.team(use.context.conversation).agents.get(agent)
        if found is None or found.parent != use.context.conversation:
            raise NotThere(
                f"You haven't delegated anything to an agent named {agent[:60]!r}.",
                remedy="To see your agents, use list_agents.",
            )
        return found


_MESSAGE = fields("agent", "text", agent=text("Its id"), text=text("What it should know"))
_STOP = fields("agent", agent=text("Its id"))


def _tools(item: Item) -> tuple[str, ...]:
    """The tools an agent's file names, as they are called here; limits in brackets are left to the permissions."""
    found: dict[str, None] = {}
    for said in tools_of(item):
        name = said.partition("(")[0]
        for own in _CLAUDE.get(name, (name,)):
            found[own] = None
        if name.startswith("mcp__"):
            found[name.removeprefix("mcp__") if "__" in name[5:] else f"{name[5:]}__*"] = None
    return tuple(found)


def _row(agent: Agent) -> AgentRow:
    meter = agent.session.meter()
    state = "asking" if agent.session.running is Running.ASKING else agent.state
    seconds = (agent.ended or time.time()) - agent.began
    return AgentRow(
        agent.id, agent.parent, agent.label, agent.task, state, meter.used, meter.window, agent.cost, seconds
    )  # fmt: skip


def _end_all(agents: Iterable[Agent], team: Team) -> None:
    """Those that work and those that wait for their turn."""
    for agent in agents:
        if not agent.ended:
            agent.state = "stopped"
            agent.session.stop()
    team.free(0)


def _end(session: Session) -> str:
    ends = [recorded.fact for recorded in session.facts if isinstance(recorded.fact, TurnEnded)]
    if not ends or ends[-1].reason is TurnEnd.STOPPED:
        return "stopped"
    return "done" if ends[-1].reason is TurnEnd.DONE else "failed"


def result_of(session: Session) -> Child:
    """What a sub-agent's conversation came to: its last words, all parts of them, and whether its last turn was finished."""
    facts = [recorded.fact for recorded in session.facts]
    ends = [fact for fact in facts if isinstance(fact, TurnEnded)]
    replies = [fact for fact in facts if isinstance(fact, ModelReplied)]
    first = len(replies) - 1
    while first > 0 and replies[first - 1].stop is Stop.LENGTH:
        first -= 1
    words = [part.text for reply in replies[max(first, 0) :] for part in reply.parts if isinstance(part, Text)]
    done = bool(ends) and ends[-1].reason is TurnEnd.DONE
    why = f"[It ended early: {ends[-1].reason.value}. {ends[-1].why}]" if ends and not done else ""
    return Child(session.id, f"{''.join(words)}\n{why}".strip(), done)
