"""An open workspace: its stores, models and tools, and a session for every open conversation."""

from __future__ import annotations

import asyncio
import gc
import secrets as random
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import tasks
from helix_desktop.engine import budget, large_outputs, policy, recall
from helix_desktop.engine.blocks import Request
from helix_desktop.engine.budget import Meter
from helix_desktop.engine.collaborators import Crew, Heard, Setup
from helix_desktop.engine.contents import tokens_in
from helix_desktop.engine.conversation import Conversation
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Event, FactAppended, Folding, Measured, Queued, ReadAnew, Running, StateChanged
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    ModelRole,
    Recorded,
    Spent,
    Stored,
    SystemSet,
    ToolSpec,
    TurnEnded,
    UserPart,
)
from helix_desktop.engine.policy import DEFAULT_PRESET
from helix_desktop.engine.ports import About, Emptied, ModelClient, Purged, Tokens
from helix_desktop.engine.rows import ConversationRow
from helix_desktop.engine.session import Session
from helix_desktop.engine.steward import Steward
from helix_desktop.engine.view import State
from helix_desktop.errors import HelixError, NotThere, WrongUse
from helix_desktop.project.item import Item
from helix_desktop.store.config import Changes, Settings
from helix_desktop.store.memory import MemoryJournal
from helix_desktop.store.transfer import Report, unheard
from helix_desktop.store.workspace import Workspace
from helix_desktop.tools import on_demand
from helix_desktop.tools.changes import known
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.kit import Kit, Options
from helix_desktop.tools.on_demand import OnDemand
from helix_desktop.tools.permission import Mode, Rule
from helix_desktop.tools.runner import Permissions
from helix_desktop.tools.subagent import Delegation
from helix_desktop.values import dataclass
from helix_desktop.workbench import bring_in, folders, rows, setup, slash
from helix_desktop.workbench.file_changes import FileChanges
from helix_desktop.workbench.hooks import Hooks
from helix_desktop.workbench.models import Access, Models
from helix_desktop.workbench.partial_replies import PartialReplies
from helix_desktop.workbench.planning import Planning
from helix_desktop.workbench.project import Project
from helix_desktop.workbench.rows import Rows
from helix_desktop.workbench.servers import Servers
from helix_desktop.workbench.sessions import Sessions
from helix_desktop.workbench.sharing import Sharing
from helix_desktop.workbench.size_limit import Room
from helix_desktop.workbench.workforce import Workforce

Listener = Callable[[Event], None]
Writer = Callable[[str], ModelClient]
MANY = 10_000
_open: weakref.WeakKeyDictionary[Workspace, Workbench] = weakref.WeakKeyDictionary()


def of(workspace: Workspace) -> Workbench | None:
    """The workbench on this workspace, if this program has one: a command from outside works on the same sessions."""
    return _open.get(workspace)


@dataclass(frozen=True, slots=True)
class Shared:
    """What all workbenches of a program share. `closed`: folders of the program's own that no tool may enter. `fetching`:
    whether agents are offered fetch_url. `instructions`: the user's own, for every workspace; asked for before each step, in a thread.
    `machine`: what other machines call this one; empty: its name in the network.
    """

    access: Access
    closed: tuple[Path, ...] = ()
    sample: Path | None = None  # see Roots
    fetching: bool = False
    instructions: Callable[[], str] = str
    machine: str = ""


class Workbench:
    """Made by `open`. All sessions are heard through `subscribe`."""

    def __init__(self, workspace: Workspace, shared: Shared, kit: Kit, permissions: Permissions) -> None:
        self.workspace = workspace
        self.kit = kit
        self._tasks = tasks.Tasks(workspace.name)
        self.servers = Servers(workspace, shared.access.secrets, self._tasks.spawn)
        self.project = Project(workspace)
        self.hooks = Hooks(workspace, self.project, kit)
        self.planning = Planning(permissions, self.choose_mode)
        self.models = Models(shared.access, lambda: workspace.settings.models)
        self._shared = shared
        self._permissions = permissions
        self.sessions = Sessions()
        self.workforce = Workforce(
            self.project,
            self._open_agent,
            self._tasks.spawn,
            self.sessions.find,
            lambda: setup.limits_of(workspace.settings.limits),
        )
        self._reading = asyncio.Lock()  # while held, no facts change and no conversation is opened
        self._rows = Rows(workspace.journal)
        self.sharing = Sharing(self, shared.access.secrets, shared.machine)
        self._listeners: list[Listener] = []
        self._meters: dict[str, str] = {}  # by conversation: the meter that is about to be saved
        self._instead: dict[str, str] = {}
        self._wide: tuple[str, ...] = ()
        self._writers: dict[str, Writer] = {}
        self._room = Room(workspace, self._tasks.spawn)
        self.changes = FileChanges(self)
        self._partial = PartialReplies(workspace.folder / "partial", self._tasks.spawn, self._last_seq)
        workspace.cache.changed = self._room.look
        workspace.forgetting = self.forget
        workspace.watch(self._room.look)

    @classmethod
    async def open(cls, workspace: Workspace, shared: Shared) -> Workbench:
        """Get the tools ready and the conversations listed."""
        permissions = setup.permissions(workspace.settings)
        owner = tasks.Tasks(f"{workspace.name} commands")
        stores = (workspace.cache, workspace.index, shared.access.tokens)
        roots = [Path(root) for root in workspace.settings.roots]
        options = Options(
            closed=shared.closed,
            sample=shared.sample,
            fetching=shared.fetching,
            caches=workspace.folder / "builds",
            opened=lambda: setup.opened(workspace.settings),
            hidden=lambda: setup.hidden(workspace.settings),
        )
        checkpoints = Checkpoints(
            [root.resolve() for root in roots],
            workspace.cache,
            file=workspace.folder / known.NAME,
            coverage=setup.coverage(workspace.settings.changes),
            closed=shared.closed,
        )
        kit = await Kit.open(
            roots, stores, permissions=permissions, spawn=owner.spawn, options=options, checkpoints=checkpoints
        )
        bench = cls(workspace, shared, kit, permissions)
        permissions.remember = bench._remember
        bench._tell_of_wide_rules()
        try:
            await bench._rows.read()
        except BaseException:
            await bench.aclose()
            raise
        bench.servers.begin()
        bench._tasks.spawn(asyncio.to_thread(shared.access.get_ready), name="get ready for the first message")
        bench._tasks.spawn(bench.changes.prepare(), name="the first checkpoint")
        _open[workspace] = bench
        workspace.linked = bench.sharing.follow_link
        bench.sharing.follow_link()
        bench._room.look()
        return bench

    async def aclose(self) -> None:
        """Stop what runs, in order: sessions, commands, tasks. The caller closes the workspace itself."""
        _open.pop(self.workspace, None)
        self.workspace.forgetting = self.workspace.forget
        self.workforce.close()
        async with AsyncExitStack() as last_first:  # on a full disk as well: no command and no server outlives it
            last_first.push_async_callback(self.kit.aclose)
            last_first.push_async_callback(self._tasks.aclose, limit=1.0)
            last_first.push_async_callback(self.servers.aclose)
            sessions = tuple(self.sessions)
            await asyncio.gather(*(session.aclose() for session in sessions))
            self.workspace.linked = lambda: None
            await self.sharing.end()
            for conversation in tuple(self._meters):
                await self._keep_meter(conversation)

    # --- what it is

    @property
    def id(self) -> str:
        return self.workspace.id

    @property
    def name(self) -> str:
        return self.workspace.name

    @property
    def colour(self) -> str:
        return self.workspace.settings.colour

    @property
    def folders(self) -> Sequence[Path]:
        """Where its tools may work; an imported one has none until the user chooses."""
        return tuple(map(Path, self.workspace.settings.roots))

    @property
    def folder(self) -> Path:
        return next(iter(self.folders), Path.home())

    # --- conversations

    def conversations(self) -> Sequence[ConversationRow]:
        """All of them, the one that changed last first; sub-agents' name their parent."""
        window = self._window()
        return sorted((self._shown(row, window) for row in self._rows), key=lambda row: -row.updated)

    def row(self, conversation: str) -> ConversationRow | None:
        row = self._rows.find(conversation)
        return None if row is None else self._shown(row, self._window())

    def _window(self) -> int:
        """Of the chosen model; 0 where none is known."""
        with suppress(HelixError):
            return self.models.named(self.model).info.window
        return 0

    def _shown(self, row: ConversationRow, window: int) -> ConversationRow:
        """With the machine that wrote there last; at rest measured by the `window` of its next request."""
        machine = self.sharing.machine_of(row.id)
        row = replace(row, machine=machine) if machine else row
        session = self.sessions.find(row.id)
        resting = session is None or session.running in (Running.IDLE, Running.FAILED)
        own = row.agent or row.id in self._instead
        return replace(row, window=window) if window and row.parts and resting and not own else row

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Hear everything of every conversation; call what is returned to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    async def session(self, conversation: str, *, writer: Writer | None = None) -> Session:
        """The one session of a conversation. `writer`: who writes its folds, given the name of its main model, where a
        connected agent works in it.
        """
        if writer is not None:
            self._writers[conversation] = writer
        if self._rows.find(conversation) is None:
            raise NotThere(f"There is no conversation {conversation} in {self.name}.")
        async with self._reading:
            session = self.sessions.find(conversation)
            if session is None:
                opened = await Conversation.open(self.workspace.journal, conversation)
                if opened.state.own_model:
                    self._take_own(conversation, opened.state.own_model)
                if not self.sharing.elsewhere(conversation):
                    await self._partial.recover(opened, self.model_of(conversation), self._shared.access.tokens.count)
                session = self._made(opened)
                if len(session.facts) > MANY:
                    gc.freeze()  # so many facts that last are not looked through again at every collection
            self.sessions.keep(session)
            return session

    async def new_conversation(self, title: str = "", *, agent: str = "", parent: str = "") -> Session:
        return await self.session(await self._begin(ConversationStarted(title=title, parent=parent, agent=agent)))

    async def unbegun(self) -> Session:
        """What a new conversation would be sent, so that the price of its first message is known. Nothing of it is stored."""
        session = self._made(Conversation(MemoryJournal(), "new", State()))
        session.conversation.listeners.clear()
        await self._look_ahead(session)
        return session

    async def look_ahead(self, conversation: str) -> None:
        """Work out what its next request will be sent with, where that has changed since the last: what is shown of it follows."""
        if (session := self.sessions.find(conversation)) is not None:
            await self._look_ahead(session)

    async def _look_ahead(self, session: Session) -> None:
        with suppress(HelixError):  # what fails fails again in the turn, which shows it
            session.look_ahead(await self._settings(session.conversation))

    async def fork(self, conversation: str, at: int = 0, *, agent: str = "", title: str = "") -> Session:
        """A copy of a conversation up to `at` (0: all of it). `agent`: who continues it, if not this program. `title`: empty keeps the
        original's.
        """
        last = (await self.session(conversation)).conversation.state.last_seq
        new = _new_id()
        await self.workspace.journal.fork(conversation, at or last, new)
        if agent:
            await self.workspace.journal.append(
                new, [ConversationStarted(forked_from=conversation, forked_at=at or last, agent=agent)]
            )
        await self._read_again([new])
        session = await self.session(new)
        if not agent:
            await session.settle_fork(title)
        self._rows.measure(new, session.meter())
        return session

    async def side_by_side(self, conversation: str, models: Mapping[str, str]) -> Sequence[Session]:
        """A conversation for each model (with its title), to ask them all the same: forks of one, or new ones where it is empty."""
        for model in models:
            self.models.named(model)
        sessions = []
        for model, title in models.items():
            fresh = self.new_conversation(title) if not conversation else self.fork(conversation, title=title)
            session = await fresh
            await self.use_own_model(session.id, model)
            sessions.append(session)
        return sessions

    async def use_own_model(self, conversation: str, name: str) -> None:
        """A main model for one conversation, also after a restart; empty: the workspace's again."""
        if name:
            self.models.named(name)
        await (await self.session(conversation)).own_model(name)
        self._take_own(conversation, name)

    def _take_own(self, conversation: str, name: str) -> None:
        if name:
            self._instead[conversation] = name
        else:
            self._instead.pop(conversation, None)

    async def child(self, conversation: str) -> Sequence[Recorded]:
        """The facts of a conversation, to look at: a sub-agent's, or one of another day."""
        session = self.sessions.find(conversation)
        return tuple(session.facts) if session is not None else await self.workspace.journal.read(conversation)

    async def _begin(self, started: ConversationStarted) -> str:
        new = _new_id()
        recorded = await self.workspace.journal.append(new, [started])
        self._rows.begin(new, started, recorded[0].time)
        return new

    def _made(self, conversation: Conversation, *, depth: int = 0, only: Sequence[str] = ()) -> Session:
        crew = self._crew(conversation, depth, only)
        steward = Steward(
            conversation,
            cache=crew.cache,
            index=crew.index,
            tokens=crew.tokens,
            clock=crew.clock,
            models=crew.models,
            spawn=crew.spawn,
        )
        conversation.listeners.append(self._heard)
        return Session(conversation, crew, steward)

    def _crew(self, conversation: Conversation, depth: int, only: Sequence[str]) -> Crew:
        async def compact(digest: Digest, keep: str) -> str:
            client = self._client(conversation.id, ModelRole.FAST) or self._client(conversation.id, ModelRole.MAIN)
            if client is None:
                raise WrongUse("No model is available to shorten the content.")
            bills: list[Spent] = []
            answer = await recall.compact(self.workspace.cache, client, digest.hex, keep, bills.append)
            await conversation.append(*bills)
            return answer

        async def history(fold: str, words: str) -> str:
            return await recall.history(
                conversation.state, self.workspace.cache, self._shared.access.tokens, fold, words
            )

        toolbox = self.kit.toolbox(
            compact=compact,
            history=history,
            start_child=self.workforce.delegate,
            place=self.workforce.place(conversation.id, depth),
            more=self.servers.tools,
            only=only,
            on_demand=self._on_demand(conversation),
            others=(*self.project.tools(), *self.planning.tools(depth), *self.workforce.tools()),
            guard=self.hooks,
        )
        return Crew(
            cache=self.workspace.cache,
            index=self.workspace.index,
            tokens=self._shared.access.tokens,
            clock=self._shared.access.clock,
            tools=toolbox,
            withheld=toolbox.withheld,
            happened=self._happened,
            turn_lease=self.sharing.turn_lease,
            models=partial(self._client, conversation.id),
            setup=partial(self._setup, conversation),
            spawn=self._tasks.spawn,
            restore=self.kit.restore,
            settle=self.kit.settle,
            limits=lambda: setup.limits_of(self.workspace.settings.limits),
            spent=self._rows.spent,
            agents_spent=partial(self.workforce.spent, conversation.id),
        )

    async def _happened(self, event: str, conversation: str, values: Mapping[str, Any]) -> Heard:
        row = self._rows.find(conversation)
        if event == "Stop" and row is not None and row.parent:
            event = "SubagentStop"
        await self.project.look_again()
        return await self.hooks.happened(event, conversation, values)

    def _on_demand(self, conversation: Conversation) -> OnDemand:
        """What a conversation's requests may spend on naming tools, by its policy and its model's window."""

        def room() -> on_demand.Room:
            chosen = conversation.policy
            window = budget.window(conversation.state, chosen)
            return on_demand.Room(int(chosen.tools_share * window), chosen.catalogue_tokens)

        def before() -> Sequence[ToolSpec]:
            return conversation.state.settings.tools.tools

        project = self.project
        return OnDemand(
            self._shared.access.tokens, self.kit.finder, room, before, project.catalogues, project.searchable
        )

    async def wire(self, conversation: str, seq: int | None, request: Request) -> tuple[str, Mapping[str, Any]]:
        """The request of a step (None: the next one) as its provider gets it, after the model's name."""
        return await self.models.wire(await self.session(conversation), seq, request, self.model_of(conversation))

    # --- sub-agents

    async def _open_agent(self, started: ConversationStarted, wish: Delegation) -> Session:
        """A conversation for a sub-agent, and the session on it, which has what was delegated and no more."""
        async with self._reading:  # nobody else may open it before it is confined
            new = await self._begin(started)
            self.workforce.belongs(new, wish)
            if model := setup.model_of(self.workforce.role(wish.role), self.workspace.settings.models, self.models):
                self._instead[new] = model
            conversation = await Conversation.open(self.workspace.journal, new)
            session = self._made(conversation, depth=wish.depth, only=wish.tools)
            self.sessions.keep(session)
        return session

    @property
    def tokens(self) -> Tokens:
        """How tokens are counted here."""
        return self._shared.access.tokens

    # --- histories of other programs

    async def bring_in(
        self,
        files: Sequence[Path],
        *,
        kind: str = "",
        wanted: Mapping[str, frozenset[str]] | None = None,
        report: bring_in.Report = bring_in.unheard,
        result: bring_in.Result | None = None,
    ) -> bring_in.Result:
        """Make conversations of them, or add what is new of those that are here. Stopped, it leaves whole conversations, and `result`
        tells which.
        """
        result = result or bring_in.Result(bring_in.new_run())
        ahead = (await self.unbegun()).conversation.ahead.settings
        work = bring_in.Import(self.workspace, self.tokens, kind, self.held, wanted or {}, result, ahead)
        try:
            return await work.read(files, report)
        finally:
            await self._read_again({one.id for one in work.result.imported})
            if work.result.imported:
                self._heard(ReadAnew(work.result.imported[-1].id))

    async def undo_import(self, run: str) -> tuple[int, list[str]]:
        """Take an import back."""
        found = {one.conversation for one in await self.workspace.journal.brought_in()}
        try:
            return await bring_in.undo(self.workspace, run, self.held)
        finally:
            await self._read_again(found)

    @asynccontextmanager
    async def held(self, conversation: str) -> AsyncIterator[None]:
        """Inside, its facts may change: its session, if it has one, is held, and nobody can open it."""
        async with AsyncExitStack() as held:
            await held.enter_async_context(self._reading)
            if (session := self.sessions.find(conversation)) is not None:
                await held.enter_async_context(session.held())
            yield

    # --- conversations other machines have too

    async def grown(self, conversation: str) -> None:
        """It came from another machine, or was continued there, and is not open here."""
        await self._read_again([conversation])
        self._heard(ReadAnew(conversation))

    async def parted(self, conversation: str, branch: str) -> None:
        """Two machines wrote in it: what was written here is now a branch."""
        await self._read_again([conversation, branch])
        self._heard(ReadAnew(branch))
        await self.workspace.index.begin_anew()

    # --- content

    async def forget(self, *, text: str = "", entries: Sequence[Digest] = (), report: Report = unheard) -> Purged:
        """Remove a text, or entries, from the whole workspace for good. Every session is held, and reads changed facts again;
        Refused while one of them works.
        """
        async with self.workspace.still(), self._reading, self.sessions.still():
            await asyncio.to_thread(self._partial.clear)
            purged = await self.workspace.forget(text=text, entries=entries, report=report)
            await self._read_again(purged.conversations)
        return purged

    async def empty_trash(self) -> Emptied:
        """Remove the conversations in the trash for good, with what only they use; Refused while anything works."""
        async with self._reading, self.sessions.still():
            emptied = await self.workspace.empty_trash()
        self._rows.drop(emptied.conversations)
        await self.sessions.close(emptied.conversations)
        self._room.look()
        return emptied

    def over_limit(self) -> int:
        """The bytes the cache takes beyond the user's limit, as last counted; 0 where there is none."""
        return self._room.over

    def watch_limit(self, listener: Callable[[int], object]) -> Callable[[], None]:
        """`listener` is called with the bytes over the limit when it is passed, and with 0 when it no longer is."""
        return self._room.watch(listener)

    async def attach(self, name: str, content: bytes, media_type: str) -> Attachment:
        """Put something the user adds to a message into the cache."""
        stored = await self.workspace.cache.put(content, About("user", name, media_type))
        return Attachment(name, stored, await self._tokens_of(stored, content))

    async def tokens_that_go(self, attachment: Attachment) -> int:
        """Of an attachment that is too large for the model's window an excerpt goes with the message."""
        settings, tokens = self.workspace.settings, self._shared.access.tokens
        chosen = policy.from_fact(setup.policy_fact(settings.preset, settings.policy))
        main = next((model.window for model in self.models.facts() if model.role is ModelRole.MAIN), 0)
        if attachment.tokens <= chosen.oversized_share * (main or chosen.window):
            return attachment.tokens
        shown = await large_outputs.message_excerpt(self.workspace.cache, attachment, chosen)
        return await asyncio.to_thread(tokens.count, shown)

    async def _tokens_of(self, stored: Stored, content: bytes) -> int:
        if not stored.media_type.startswith("text/"):
            return 1_000  # what providers ask for a picture, roughly; the reported usage corrects it
        return await asyncio.to_thread(tokens_in, stored.size, content, self._shared.access.tokens.count)

    async def files(self, prefix: str, limit: int = 20) -> Sequence[str]:
        """Paths below the workspace's folder that hold `prefix`, the shortest first, for completion."""
        found = await asyncio.to_thread(folders.below, self.folder, prefix.lower(), limit)
        return [name for name in found if not self.kit.around.roots.hides(name)]

    def _tell_of_wide_rules(self) -> None:
        """Rules of older versions that allow more than they seem to are shown once."""
        found = setup.wide_rules(self._permissions, self.workspace.settings.shown)
        if found:
            notes: list[str] = []
            for command in found:
                notes.append(  # noqa: PERF401 -- sentences are looked for in what is appended
                    f"The rule {command} also allows other programs. You can remove this rule in Settings > Permissions."
                )
            self._wide = tuple(notes)
            with suppress(HelixError):
                self.workspace.change(lambda now: {"permissions.shown": [*now.shown, *found]})

    async def change(self, changes: Changes) -> None:
        """Set keys of workspace.toml, and let what runs take them over."""
        servers = self.workspace.settings.mcp
        await asyncio.to_thread(self.workspace.change, changes)
        wanted = setup.permissions(self.workspace.settings)
        self._permissions.mode, self._permissions.rules = wanted.mode, wanted.rules
        if self.workspace.settings.mcp != servers:
            await self.servers.configure()
        self.changes.configure()

    # --- what can be chosen, and what is

    @property
    def policy(self) -> str:
        return self.workspace.settings.preset or DEFAULT_PRESET

    @property
    def model(self) -> str:
        return self.workspace.settings.models.get("main", "")

    @property
    def mode(self) -> str:
        return self._permissions.mode.value

    def modes(self) -> Mapping[str, str]:
        """Every mode with what it means."""
        return {
            Mode.READ_ONLY.value: "Read only",
            Mode.PLAN.value: "Plan: change nothing until I approve a plan",
            Mode.ASK.value: "Ask before changes and commands",
            Mode.ALLOW_EDITS.value: "Allow edits, ask before commands",
            Mode.ALLOW_ALL.value: "Allow everything",
        }

    async def choose_policy(self, name: str, values: Mapping[str, Any] | None = None) -> None:
        """A preset, with the values that differ from it."""
        setup.policy_fact(name, values or {})
        await self.change({"policy.preset": name, "policy.values": dict(values or {})})

    async def choose_model(self, name: str, role: str = "main") -> None:
        """`provider/model` for a role; an empty name leaves the role to the main model."""
        if role not in list(ModelRole):
            raise WrongUse(f"{role!r} is not a model role. Available: {', '.join(ModelRole)}.")
        if name:
            self.models.named(name)
        await self.change({f"models.{role}": name or None})

    def use_model(self, conversation: str, name: str) -> None:
        """Another main model for one conversation, until the workbench closes."""
        self.models.named(name)
        self._instead[conversation] = name

    def model_of(self, conversation: str) -> str:
        """The main model of a conversation; empty where none is chosen."""
        return self._instead.get(conversation) or self.model

    async def choose_mode(self, name: str) -> None:
        self._permissions.mode = Mode(name)
        await self.change({"permissions.mode": name})

    def commands(self) -> Sequence[Item]:
        """The slash commands there are now: those of the folders, skills, and prompts of servers."""
        prompts = [
            Item("command", f"{each.server}:{each.name}", Path(each.server), "", "", each.about, trusted=True)
            for each in self.servers.prompts()
        ]
        return (*self.project.now.in_force("command"), *self.project.now.in_force("skill"), *prompts)

    def resources(self) -> Sequence[tuple[str, str, str]]:
        """What the servers offer to be attached: server, address, name."""
        return [(each.server, each.uri, each.name) for each in self.servers.resources()]

    async def attach_resource(self, server: str, uri: str) -> Attachment:
        """A resource of a server, for the next message."""
        found = await self.servers.resource(server, uri)
        if found.images and not found.text.strip():
            kind, data = found.images[0]
            return await self.attach(uri, data, kind)
        return await self.attach(uri, found.text.encode("utf-8", "replace"), "text/plain")

    async def expanded(self, session: Session, parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        """A message that begins with the name of a command, with the command's text in its place; any other as it is."""
        await self.project.look_again()
        return await slash.expanded(self.project.now, session, parts, self._shared.access.tokens, self.servers)

    @property
    def notes(self) -> Sequence[str]:
        """What opening the workspace had to mend, and what its settings hold that means nothing: for the user."""
        return (*self.workspace.notes, *self.workspace.settings.warnings, *self._wide)

    def proposals(self) -> str:
        """What an imported workspace asks to be allowed, as its file has it; empty for nothing."""
        return setup.proposals(self.workspace.settings.proposed)

    async def decide_proposals(self, *, accept: bool) -> None:
        """Put what was imported into force, or drop it. Folders that are not on this machine cannot be taken over."""
        proposed = dict(self.workspace.settings.proposed) if accept else {}
        if "roots" in proposed:
            proposed["roots"] = await asyncio.to_thread(folders.here, proposed["roots"])
        await self.change({**proposed, "proposed": None})

    def spawn(self, work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        """Work that ends with the workbench."""
        return self._tasks.spawn(work, name=name)

    # --- for its sessions

    def _client(self, conversation: str, role: ModelRole) -> ModelClient | None:
        if (writer := self._writers.get(conversation)) is not None:
            main = self.sessions.find(conversation)
            chosen = main.conversation.state.settings.model(ModelRole.MAIN) if main else None
            return writer(chosen.model if chosen else "") if role is ModelRole.MAIN else None
        instead = self._instead.get(conversation)
        return self.models.named(instead) if instead and role is ModelRole.MAIN else self.models.client(role)

    async def _setup(self, conversation: Conversation) -> Setup:
        """For a step, with the notes of hooks."""
        made = await self._settings(conversation)
        return replace(made, notes=(*made.notes, *self.hooks.take_notes(conversation.id)))

    async def _settings(self, conversation: Conversation) -> Setup:
        """Files are read in a thread: a folder may be on a disk that does not answer."""
        settings, tokens = self.workspace.settings, self._shared.access.tokens
        system, (rules, notes) = await asyncio.gather(
            asyncio.to_thread(self._system_prompt, settings),
            self.project.for_step(conversation.id, conversation.state, tokens),
        )
        models = self.models.facts(self._instead.get(conversation.id, ""))
        role = self.workforce.role_of(conversation.state)
        return Setup(
            setup.for_role(system, role, tokens),
            setup.policy_of(role, settings.preset, settings.policy),
            tuple(setup.with_choices(model, settings) for model in models),
            rules,
            (*notes, *self.planning.notes()),
        )

    def _system_prompt(self, settings: Settings) -> SystemSet:
        own = self._shared.instructions()
        return setup.system_prompt(self.name, settings.roots, self.tokens, own, settings.instructions)

    def _remember(self, rule: Rule) -> None:
        """The user chose "always": save the rule in the workspace."""
        self.workspace.change(lambda now: {"permissions.rules": [*now.rules, rule.plain()]})

    def _last_seq(self, conversation: str) -> int:
        session = self.sessions.find(conversation)
        return session.conversation.state.last_seq if session is not None else 0

    def _heard(self, event: Event) -> None:
        self._partial.take(event)
        if isinstance(event, FactAppended):
            self._note(event.recorded)
        elif isinstance(event, StateChanged | Queued | Folding):
            self._keep(event.conversation)
        elif isinstance(event, Measured):
            self._measured(event.conversation)
        self.sharing.heard(event)
        self.hooks.heard(event, self._tasks.spawn)
        self.workforce.heard(event)
        for listener in tuple(self._listeners):
            listener(event)

    def _keep(self, conversation: str) -> None:
        session = self.sessions.find(conversation)
        if session is not None:
            self.sessions.keep(session)

    def _note(self, recorded: Recorded) -> None:
        """Update the list, and save the meter at the end of a turn."""
        session = self.sessions.find(recorded.conversation)
        meter = session.meter() if session else None
        self._rows.take(recorded, meter)
        if session and meter and (isinstance(recorded.fact, TurnEnded) or session.running is Running.IDLE):
            self._write_soon(session, meter)

    def _measured(self, conversation: str) -> None:
        """The list shows what the window does."""
        session, row = self.sessions.find(conversation), self._rows.find(conversation)
        if session is not None and row is not None:
            meter = session.meter()
            if (row.parts, row.window) != (meter.parts, meter.window):
                self._rows.measure(conversation, meter)
                self._write_soon(session, meter)

    def _write_soon(self, session: Session, meter: Meter) -> None:
        if session.id not in self._meters:
            self._tasks.spawn(self._keep_meter(session.id), name="keep the meter")
        self._meters[session.id] = rows.written(meter, session.conversation.state.last_seq, session.agent)

    async def _read_again(self, conversations: Collection[str]) -> None:
        """What the list knows of these."""
        await self._rows.read_again(conversations)
        for conversation in conversations:
            self._measured(conversation)

    async def _keep_meter(self, conversation: str) -> None:
        """The last of those that came together. It is forgotten when it is written: a task that is cancelled leaves it to `aclose`."""
        while meter := self._meters.get(conversation, ""):
            with suppress(HelixError):  # the list computes a meter that is not saved
                await self.workspace.journal.set_meter(conversation, meter)
            if self._meters.get(conversation) == meter:
                del self._meters[conversation]


def _new_id() -> str:
    """Sorts by time, and is unlike any other."""
    return f"{int(time.time() * 1000):012x}{random.token_hex(4)}"
