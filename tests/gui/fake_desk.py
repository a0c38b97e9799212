"""A desk in memory: workspaces, conversations, sessions that answer what a test tells them to. Real facts, real views.

It implements gui/ports.py. Nothing here waits for anything, so a test can run its coroutines to the end at once (`now`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helix_desktop.engine import budget, laws, policy
from helix_desktop.engine.blocks import Kind, Request, TextDelta, View
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.events import Answered, Asked, Event, FactAppended, Queued, Running, StateChanged, Streamed
from helix_desktop.engine.facts import (
    Attachment,
    ConversationChanged,
    ConversationStarted,
    Cover,
    DocumentEdited,
    Excluded,
    Fact,
    FoldKind,
    Included,
    ModelReplied,
    Pinned,
    Recorded,
    Refolded,
    Rewound,
    Stop,
    Stored,
    Text,
    Unfolded,
    Unpinned,
    UserPart,
    UserSaid,
)
from helix_desktop.engine.history.ledger import saw_of
from helix_desktop.engine.history.moment import Moment
from helix_desktop.engine.ports import Answer, Emptied, Found, Purged, Question
from helix_desktop.engine.rows import AgentRow
from helix_desktop.engine.rows import ConversationRow as Row
from helix_desktop.engine.view import State, state_of
from helix_desktop.errors import Away, HelixError, NotThere, Refused, StoreFailed, WrongUse
from helix_desktop.project.item import Item
from helix_desktop.workbench.sharing import Standing
from tests.gui import story
from tests.gui.fake_catalogue import FakeCatalogue
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_setup import FakeServers

Listener = Callable[[Event], None]


class Now:
    """A spawn that runs each coroutine to its end before it returns; what one starts is run after it."""

    def __init__(self) -> None:
        self._waiting: deque[Coroutine[Any, Any, Any]] = deque()
        self._busy = False

    def cancel(self) -> bool:
        """It is over already."""
        return False

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> Now:
        self._waiting.append(work)
        if self._busy:
            return self
        self._busy = True
        try:
            while self._waiting:
                asyncio.run(self._waiting.popleft())
        finally:
            self._busy = False
        return self


now = Now()


class Held:
    """A spawn that keeps what it is given until the test says which of it is done: `let("open")` by a word of its name."""

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self.stopped = 0

    def cancel(self) -> bool:
        self.stopped += 1
        return True

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> Held:
        self._waiting.append((name, work))
        return self

    def let(self, word: str = "", *, newest: bool = False) -> None:
        """The oldest (or newest) with this word in its name; all there is without one."""
        named = [each for each in self._waiting if word in each[0]][:: -1 if newest else 1]
        for name, work in named[: 1 if word else None]:
            self._waiting.remove((name, work))
            now(work, name=name)


@dataclass(frozen=True)
class Waiting:
    parts: tuple[UserPart, ...]
    steer: bool


class FakeSession:
    """Keeps facts and tells events. `answers` are taken one by one; without any, a turn stays open until told."""

    first_price = 0.0  # known once it is ready

    def __init__(self, conversation: str, facts: Sequence[Recorded] = (), tell: Listener | None = None) -> None:
        self.id = conversation
        self.running = Running.IDLE
        self.why = ""
        self.queue: list[Waiting] = []
        self.questions: dict[int, Question] = {}
        self.given: dict[int, Answer] = {}
        self.answers: list[str] = []
        self.done: list[str] = []
        self.price, self.saves = 0.0, 0.0
        self.state = state_of(facts)
        self._numbers = itertools.count(1)
        self._listeners: list[Listener] = []
        self._upwards = tell

    @property
    def conversation(self) -> FakeSession:
        return self

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: Event) -> None:
        for listener in [*self._listeners, *filter(None, [self._upwards])]:
            listener(event)

    def append(self, *facts: Fact) -> None:
        for fact in facts:
            recorded = Recorded(self.id, self.state.last_seq + 1, time.time(), fact)
            self.state.advance(recorded)
            self.tell(FactAppended(recorded))

    def set_running(self, running: Running, why: str = "") -> None:
        self.running, self.why = running, why
        self.tell(StateChanged(self.id, running, why))

    def ask(self, question: Question) -> int:
        number = next(self._numbers)
        self.questions[number] = question
        self.tell(Asked(self.id, number, question))
        self.set_running(Running.ASKING, question.title)
        return number

    # --- the commands

    def send(self, parts: tuple[UserPart, ...], *, steer: bool = False) -> None:
        if self.running is not Running.IDLE:
            self.queue.append(Waiting(parts, steer))
            self._tell_queue()
            return
        self.append(UserSaid(parts))
        self.set_running(Running.THINKING)
        if self.answers:
            self.finish(self.answers.pop(0))

    def finish(self, text: str) -> None:
        """The model's answer, and the end of the turn."""
        self.tell(Streamed(self.id, TextDelta(text)))
        self.append(ModelReplied((Text(text, len(text) // 4),), story.MODEL, Stop.END))
        self.set_running(Running.IDLE)
        if self.queue:
            waiting = self.queue.pop(0)
            self._tell_queue()
            self.send(waiting.parts)

    def stop(self) -> None:
        self.done.append("stop")
        self.set_running(Running.IDLE)

    def resume(self) -> None:
        self.done.append("resume")
        self.set_running(Running.THINKING)

    def answer(self, number: int, answer: Answer) -> None:
        if self.questions.pop(number, None) is not None:
            self.given[number] = answer
            self.tell(Answered(self.id, number))
            self.set_running(Running.TOOLS)

    def unqueue(self, index: int) -> tuple[UserPart, ...]:
        taken = self.queue.pop(index)
        self._tell_queue()
        return taken.parts

    def view(self) -> View:
        return self.state.view()

    async def moment(self, seq: int) -> Moment:
        return self.state.at(seq)

    def meter(self) -> budget.Meter:
        return budget.meter(self.state, policy.from_fact(self.state.settings.policy))

    def next_message(self) -> budget.NextMessage | None:
        return budget.next_message(self.state, policy.from_fact(self.state.settings.policy))

    @property
    def ahead(self) -> State:
        return self.state

    def look_ahead(self) -> None:
        self.price = self.price or self.first_price

    def price_with(self, parts: Sequence[UserPart], *, instead_of: int = 0) -> float:
        return self.price

    def fold_first(self) -> float:
        return self.saves

    def forecast(self) -> str:
        return "Next: a handover, when 108,800 tokens are reached."

    async def recall(self, digest: Digest, *, lines: tuple[int, int] | None = None) -> Attachment:
        text = story.CONTENT[digest]
        return Attachment(digest.short, story.stored(text), len(text) // 4)

    async def fold_now(self, kind: FoldKind, *, wish: str = "") -> None:
        self.done.append(f"fold {kind}")

    async def undo(self, fold: str) -> None:
        self.done.append(f"undo {fold}")
        self.append(Unfolded(fold))

    async def redo(self, fold: str) -> None:
        self.done.append(f"redo {fold}")
        self.append(Refolded(fold))

    async def rewind(self, seq: int, *, restore_files: bool = False) -> Sequence[str]:
        self.append(Rewound(seq))
        return ["src/lock/manager.rs is as it was."] if restore_files else []

    async def edit_and_resend(self, seq: int, parts: tuple[UserPart, ...]) -> None:
        self.append(Rewound(seq - 1))
        self.send(parts)

    async def edit_document(self, fold: str, text: str) -> None:
        self.append(DocumentEdited(fold, text, len(text) // 4))

    async def request_at(self, seq: int | None = None) -> Request:
        then = self.state if seq is None else self.state.at(saw_of(self.state.facts[seq - 1]))
        view = then.view()
        stored = [getattr(block.content, "stored", block.content) for block in view.blocks]
        return laws.request(view, {one: story.CONTENT[one.digest] for one in stored if isinstance(one, Stored)})

    def is_as_sent(self, seq: int, request: Request) -> bool | None:
        return None

    async def exclude(self, ref: Cover) -> None:
        self.append(Excluded(ref))

    async def include(self, ref: Cover) -> None:
        self.append(Included(ref))

    async def pin(self, ref: Cover) -> None:
        self.append(Pinned(ref))

    async def unpin(self, ref: Cover) -> None:
        self.append(Unpinned(ref))

    async def regenerate(self, seq: int = 0) -> None:
        self.done.append(f"regenerate {seq}" if seq else "regenerate")

    def try_now(self) -> None:
        self.done.append("try now")

    async def choose_answer(self, end: int) -> None:
        self.append(Rewound(end, again=True))

    async def rename(self, title: str) -> None:
        self.append(ConversationChanged(title=title))

    async def archive(self, *, archived: bool = True) -> None:
        self.append(ConversationChanged(archived=archived))

    async def trash(self, *, trashed: bool = True) -> None:
        self.append(ConversationChanged(trashed=trashed))

    async def pin_conversation(self, *, pinned: bool = True) -> None:
        self.append(ConversationChanged(pinned=pinned))

    def _tell_queue(self) -> None:
        self.tell(Queued(self.id, tuple(waiting.parts for waiting in self.queue)))


def parts(system: int = 0, handover: int = 0, observations: int = 0, talk: int = 0, output: int = 0) -> dict[Kind, int]:
    """Shares of the window in per cent, as tokens."""
    return {
        kind: share * 1_280 for kind, share in zip(Kind, (system, handover, observations, talk, output), strict=True)
    }


class FakeSharing:
    """A workspace that is not shared, until `share`. `writing`: the machines that write, by conversation."""

    def __init__(self) -> None:
        self.standing = Standing()
        self.branches: dict[str, str] = {}
        self.writing: dict[str, str] = {}
        self.listeners: list[Callable[[], object]] = []
        self.refusing = ""

    def stand(self, standing: Standing) -> None:
        self.standing = standing
        for listener in tuple(self.listeners):
            listener()

    def watch(self, listener: Callable[[], object]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def elsewhere(self, conversation: str) -> str:
        return self.writing.get(conversation, "")

    async def take_over(self, conversation: str) -> None:
        self.writing.pop(conversation, None)
        if self.refusing:
            raise Away(self.refusing)

    async def amount(self) -> tuple[int, int, int]:
        return 12, 345, 6_700_000

    async def test(self, address: str) -> str:
        if self.refusing:
            raise Away(self.refusing)
        return f"PostgreSQL 15.6 at {address}"

    async def share(self, address: str) -> None:
        if self.refusing:
            raise Away(self.refusing)
        self.stand(Standing("in step", address=address))

    async def key(self) -> str:
        return "helix1-key"

    async def unshare(self) -> str:
        self.stand(Standing())
        return ""


@dataclass(frozen=True)
class FakeBrought:
    """`new`: those the user has not seen yet."""

    items: Sequence[Item]
    new: Sequence[Item]

    def asking(self) -> Sequence[Item]:
        return self.new


class FakeProject:
    """What the folder of a workspace brings."""

    def __init__(self, bench: FakeWorkbench) -> None:
        self._bench = bench

    def look(self) -> FakeBrought:
        rules, trusted = self._bench.rules, self._bench.trusted
        return FakeBrought(rules, [each for each in rules if each not in trusted])

    async def look_again(self) -> FakeBrought:
        return self.look()

    async def trust(self, *items: Item) -> None:
        self._bench.trusted += items

    async def switch(self, key: str, *, on: bool) -> None:
        self._bench.switched.append((key, on))


class FakeWorkforce:
    """The agents of a workspace, whichever conversation they belong to."""

    def __init__(self, bench: FakeWorkbench) -> None:
        self._bench = bench

    def rows(self, conversation: str) -> Sequence[AgentRow]:
        return self._bench.team

    def stop(self, agent: str) -> None:
        self._bench.switched.append((agent, False))

    def stop_all(self, conversation: str) -> None:
        self._bench.switched.append((conversation, False))


class FakeWorkbench:
    """One workspace. Its rows follow what its sessions record."""

    def __init__(self, name: str, colour: str, folder: Path, rows: Sequence[Row] = ()) -> None:
        self.id = name
        self.name = name
        self.colour = colour
        self.folder = folder
        self.folders: Sequence[Path] = (folder,)
        self.policy, self.model, self.mode = "layered", story.MODEL, "ask"
        self.rows = {row.id: row for row in rows}
        self.sessions: dict[str, FakeSession] = {}
        self.rules: list[Item] = []
        self.named: list[Item] = []
        self.team: list[AgentRow] = []
        self.switched: list[tuple[str, bool]] = []
        self.trusted: list[Item] = []
        self.notes: tuple[str, ...] = ()
        self.proposed = ""
        self.over = 0
        self.busy = False
        self.forgotten: list[str] = []
        self.limit_heard: list[Callable[[int], object]] = []
        self.workspace = FakeCatalogue()
        self.servers = FakeServers()
        self.written: list[tuple[str, Any]] = []
        self.changes = FakeChanges()
        self.sharing = FakeSharing()
        self.decided: list[bool] = []
        self.own: dict[str, str] = {}
        self.attached: list[tuple[str, bytes]] = []
        self._listeners: list[Listener] = []
        self._numbers = itertools.count(1)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def conversations(self) -> Sequence[Row]:
        return list(self.rows.values())

    def row(self, conversation: str) -> Row | None:
        return self.rows.get(conversation)

    async def session(self, conversation: str) -> FakeSession:
        if conversation not in self.rows:
            raise NotThere(f"There is no conversation {conversation} in this workspace.")
        if conversation not in self.sessions:
            told = story.recorded() if conversation == story.CONVERSATION else _begin(conversation)
            self.sessions[conversation] = FakeSession(conversation, told, self._heard)
        return self.sessions[conversation]

    async def new_conversation(self, title: str = "") -> FakeSession:
        name = f"new-{next(self._numbers)}"
        self.rows[name] = Row(name, title, time.time(), parts(4))
        return await self.session(name)

    async def unbegun(self) -> FakeSession:
        session = FakeSession("new", _begin("new"), lambda *_: None)
        session.look_ahead()
        return session

    async def look_ahead(self, conversation: str) -> None:
        self.sessions[conversation].look_ahead()

    async def fork(self, conversation: str, at: int = 0, *, title: str = "") -> FakeSession:
        name = f"fork-{next(self._numbers)}"
        origin = self.rows[conversation]
        self.rows[name] = replace(origin, id=name, title=title or origin.title, updated=time.time(), agent="")
        return await self.session(name)

    async def side_by_side(self, conversation: str, models: Mapping[str, str]) -> Sequence[FakeSession]:
        sessions = []
        for model, title in models.items():
            fresh = self.fork(conversation, title=title) if conversation else self.new_conversation(title)
            session = await fresh
            self.own[session.id] = model
            sessions.append(session)
        return sessions

    def model_of(self, conversation: str) -> str:
        return self.own.get(conversation, self.model)

    async def use_own_model(self, conversation: str, name: str) -> None:
        self.own[conversation] = name or self.model

    async def attach(self, name: str, content: bytes, media_type: str) -> Attachment:
        self.attached.append((name, content))
        return Attachment(name, Stored(Digest.of(content), len(content), 0, media_type), len(content) // 4)

    async def tokens_that_go(self, attachment: Attachment) -> int:
        return min(attachment.tokens, 2_000)

    async def child(self, conversation: str) -> Sequence[Recorded]:
        return (await self.session(conversation)).state.facts

    async def files(self, prefix: str, limit: int = 20) -> Sequence[str]:
        known = ("src/lock/manager.rs", "src/lock/table.rs", "tests/upgrade.rs", "Cargo.lock")
        return [name for name in known if prefix.casefold() in name.casefold()][:limit]

    def proposals(self) -> str:
        return self.proposed

    async def decide_proposals(self, *, accept: bool) -> None:
        self.decided.append(accept)
        self.proposed = ""

    def commands(self) -> Sequence[Item]:
        return self.named

    async def expanded(self, session: Any, parts: tuple[UserPart, ...]) -> tuple[UserPart, ...]:
        return (Text("expanded"), *parts[1:])

    def resources(self) -> Sequence[tuple[str, str, str]]:
        return [("docs", "docs://style", "The style guide")]

    async def attach_resource(self, server: str, uri: str) -> Attachment:
        return await self.attach(uri, f"{server} {uri}".encode(), "text/plain")

    @property
    def project(self) -> FakeProject:
        return FakeProject(self)

    @property
    def workforce(self) -> FakeWorkforce:
        return FakeWorkforce(self)

    def modes(self) -> Mapping[str, str]:
        return {"ask": "Ask before commands", "plan": "Read only", "all": "Allow everything"}

    async def wire(self, conversation: str, seq: int | None, request: Request) -> tuple[str, Mapping[str, Any]]:
        return self.model, {"model": self.model, "messages": [message.role.value for message in request.messages]}

    def over_limit(self) -> int:
        return self.over

    def watch_limit(self, listener: Callable[[int], object]) -> Callable[[], None]:
        self.limit_heard.append(listener)
        return lambda: self.limit_heard.remove(listener)

    async def empty_trash(self) -> Emptied:
        gone = tuple(row.id for row in self.rows.values() if row.trashed)
        self.rows = {name: row for name, row in self.rows.items() if name not in gone}
        return Emptied(gone, 3, 5_000_000)

    async def forget(
        self,
        *,
        text: str = "",
        entries: Sequence[Digest] = (),
        report: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> Purged:
        report(1, 4)
        if self.busy:
            raise Refused("The agent works in this workspace.", remedy="Stop it first.")
        self.forgotten.append(text)
        if text == "nowhere":
            return Purged((), 0, (), 0)
        return Purged(tuple(story.CONTENT)[:2], 3, ("a",), 1, ("It stands in notes, line 2: edit that.",))

    async def change(self, changes: Mapping[str, Any]) -> None:
        for key, value in changes.items():
            self.written.append((key, value))
            if key == "permissions.rules":
                self.workspace.settings.rules = value

    async def choose_policy(self, name: str, values: Mapping[str, Any] | None = None) -> None:
        self.policy = name
        self.workspace.settings.preset, self.workspace.settings.policy = name, dict(values or {})

    async def choose_model(self, name: str, role: str = "main") -> None:
        self.workspace.settings.models[role] = name
        if role == "main":
            self.model = name
        for listener in tuple(self.workspace.watching):
            listener()

    async def choose_mode(self, name: str) -> None:
        self.mode = name

    def _heard(self, event: Event) -> None:
        if isinstance(event, FactAppended):
            row, fact = self.rows[event.recorded.conversation], event.recorded.fact
            if isinstance(fact, ConversationChanged):
                changed = {n: getattr(fact, n) for n in ("title", "pinned", "archived", "trashed")}
                row = replace(row, **{n: value for n, value in changed.items() if value is not None})
            self.rows[row.id] = replace(row, updated=event.recorded.time)
        for listener in self._listeners:
            listener(event)


def _begin(conversation: str) -> Sequence[Recorded]:
    facts = (ConversationStarted(), *story.facts()[1:4])
    return [Recorded(conversation, seq, time.time(), fact) for seq, fact in enumerate(facts, 1)]


@dataclass(frozen=True)
class Came:
    id: str
    name: str
    left_out: Sequence[str]


class FakeDesk:
    """Three workspaces, the first one full."""

    def __init__(self, *, empty: bool = False) -> None:
        made = [] if empty else _workbenches(time.time())
        self.benches = {bench.id: bench for bench in made}
        self.trashed: dict[str, FakeWorkbench] = {}
        self.imports = ""
        self.unsearched: dict[str, HelixError] = {}
        self.behind: set[str] = set()
        self.left_out: Sequence[str] = ()
        self.damaged: Sequence[str] = ()

    def workspaces(self, *, trashed: bool = False) -> Sequence[FakeWorkbench]:
        return list((self.trashed if trashed else self.benches).values())

    async def open(self, workspace: str) -> FakeWorkbench:
        if workspace not in self.benches:
            raise NotThere(f"There is no workspace {workspace}.")
        return self.benches[workspace]

    async def search_closed(self, workspace: str, words: str) -> Found:
        if workspace in self.unsearched:
            raise self.unsearched[workspace]
        hits = await self.benches[workspace].workspace.search(words)
        return Found(hits, {story.CONVERSATION: "Extract the lock manager"}, workspace in self.behind)

    async def create(self, name: str, folder: Path) -> FakeWorkbench:
        self.benches[name] = FakeWorkbench(name, "#6b4fa0", folder)
        return self.benches[name]

    async def join(self, address: str, key: str, name: str, folder: Path) -> FakeWorkbench:
        if key != "helix1-key":
            raise WrongUse("This is not the key of a shared workspace, or part of the key is missing.")
        bench = await self.create(name, folder)
        bench.sharing.standing = Standing("in step", address=address)
        return bench

    async def rename(self, workspace: str, name: str) -> None:
        self.benches[workspace].name = name

    async def recolour(self, workspace: str, colour: str) -> None:
        self.benches[workspace].colour = colour

    async def trash(self, *, workspace: str) -> None:
        self.trashed[workspace] = self.benches.pop(workspace)

    async def restore(self, workspace: str) -> None:
        self.benches[workspace] = self.trashed.pop(workspace)

    async def delete(self, workspace: str) -> None:
        del self.trashed[workspace]

    async def reopen(self, workspace: str) -> FakeWorkbench:
        return self.benches[workspace]

    async def set_folders(self, workspace: str, folders: Sequence[Path]) -> FakeWorkbench:
        bench = self.benches[workspace]
        bench.folder, bench.folders = folders[0], folders
        return bench

    async def export(self, workspace: str, path: Path, report: Callable[[int, int], None]) -> Sequence[str]:
        report(50, 100)
        if not path.parent.is_dir():
            raise StoreFailed(f"{path} could not be written.", remedy="Choose another place.")
        path.write_text(workspace)
        return self.damaged

    async def import_(
        self, path: Path, name: str = "", report: Callable[[int, int], None] = lambda _d, _t: None
    ) -> Came:
        if not path.exists():
            raise NotThere(f"{path} does not exist.")
        made = await self.create(name or path.stem, Path.home())
        made.proposed, made.folders = self.imports, ()
        return Came(made.id, made.name, self.left_out)

    async def aclose(self) -> None:
        self.benches.clear()


def _workbenches(at: float) -> list[FakeWorkbench]:
    hour, day = 3_600, 86_400
    rows = (
        Row(story.CONVERSATION, "Extract the lock manager", at, parts(4, 9, 0, 8, 13)),
        Row("flaky", "Flaky test in test_store", at - hour, parts(4, 0, 0, 12, 30)),
        Row("argparse", "Port CLI to argparse", at - 3 * hour, parts(4, 0, 0, 6)),
        Row("review", "Review of PR 418", at - 3 * day, parts(4, 0, 18, 10)),
        Row("memory", "Memory profile of indexer", at - 4 * day, parts(4, 12, 0, 0, 9)),
    )
    home = Path.home() / "code"
    return [
        FakeWorkbench("storage-engine", "#0d7d74", home / "storage-engine", rows),
        FakeWorkbench("parser", "#8b5e3c", home / "parser"),
        FakeWorkbench("infra", "#4a5fa5", home / "infra"),
    ]
