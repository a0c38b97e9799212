"""A desk in memory: workspaces, conversations, sessions that answer what a test tells
them to. Real facts, real views.

Nothing here waits for anything, so a test can run its coroutines to the end at once (`now`).
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import getcoroutinelocals, iscoroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from helix_desktop.acp_client.acp_agents import ListedAcpAgent, add_agent_line
from helix_desktop.acp_client.agent_choices import AgentChoice
from helix_desktop.documents.document_kinds import PDF
from helix_desktop.documents.document_page import PagePicture
from helix_desktop.documents.document_reading import draw_pages
from helix_desktop.engine import context_policy, context_usage, request_building
from helix_desktop.engine.conversation_context import NeededSummary
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
    ModelSet,
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
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.list_rows import SubagentRow
from helix_desktop.engine.message_cost_forecast import (
    MessageCostForecast,
    NextMessageEstimate,
    estimate_next_message,
    forecast_message_cost,
)
from helix_desktop.engine.message_queue import MessageQueue
from helix_desktop.engine.messages import ContextKind, Request, RetryDelay, TextDelta, View
from helix_desktop.engine.ports import (
    ClosedSearchResult,
    EmptyTrashResult,
    ForgetResult,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.request_costs import RequestCost, explain_costs_of_last_turn
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    Event,
    FactAppended,
    FoldProgress,
    QuestionAnswered,
    QuestionAsked,
    ReplyStreamed,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.state.token_ledger import newest_fact_seen_by
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.errors import (
    ActionRefused,
    HelixError,
    InvalidInput,
    ModelFailed,
    NotFound,
    SharedStoreUnreachable,
    StoreFailed,
)
from helix_desktop.gui.common.running_states import WORKING_STATES
from helix_desktop.histories import openai_chat_export
from helix_desktop.histories.conversation_restoring import (
    RestoredSession,
    RestoreRequest,
    build_restored_session,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.project.project_item import ProjectItem
from helix_desktop.store.imported_proposals import ImportedQuestion
from helix_desktop.store.workspace_settings import WorkspaceConfig
from helix_desktop.tools.workspace_roots import WorkspaceRoots
from helix_desktop.workbench.conversation_sharing import SharingStatus
from helix_desktop.workbench.copy_files import CopyStatus, FolderCopy
from helix_desktop.workbench.document_attachments import find_picture_type
from helix_desktop.workbench.file_preview import (
    PreviewedFile,
    read_previewed_attachment,
    read_previewed_file,
)
from tests.gui import story
from tests.gui.fake_catalogue import FakeCatalogue
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_setup import FakeServers
from tests.gui.stand_in import StandIn

Listener = Callable[[Event], None]


class Now:
    """A spawn that runs each coroutine to its end before it returns; what one starts is
    run after it.
    """

    def __init__(self) -> None:
        self._waiting: deque[Coroutine[Any, Any, Any]] = deque()
        self._busy = False

    def cancel(self) -> bool:
        """It is over already."""
        return False

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Nobody asks: what it ran has ended."""

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
    """A spawn that keeps what it is given until the test says which of it is done:
    `let("open")` by a word of its name or its texts.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[str, Coroutine[Any, Any, Any]]] = []
        self.stopped = 0

    def cancel(self) -> bool:
        self.stopped += 1
        return True

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """Nobody asks: what is let go runs to its end."""

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> Held:
        inner = getcoroutinelocals(work).get("work")
        given = getcoroutinelocals(inner).values() if iscoroutine(inner) else ()
        texts = [each if isinstance(each, str) else getattr(each, "__name__", "") for each in given]
        self._waiting.append((" ".join(filter(None, [name, *texts])), work))
        return self

    def let(self, word: str = "", *, newest: bool = False) -> None:
        """The oldest (or newest) with this word in its name; all there is without one."""
        named = [each for each in self._waiting if word in each[0]][:: -1 if newest else 1]
        for name, work in named[: 1 if word else None]:
            self._waiting.remove((name, work))
            now(work, name=name)


class UncountedTokens:
    def count_tokens(self, text: str) -> int:
        return 0


class FakeSession(StandIn):
    """Keeps facts and tells events. `answers` are taken one by one; without any, a turn
    stays open until told.
    """

    progress: FoldProgress | None = None
    next_try: RetryDelay | None = None
    fold_cost: float | None = 0.03
    first_price = 0.0  # known once it is ready
    agents_cost = 0.0
    rewrite: context_usage.PendingRewrite | None = None
    unpriced = ""
    needed_summary: NeededSummary | None = None

    def __init__(
        self, conversation: str, facts: Sequence[Recorded] = (), tell: Listener | None = None
    ) -> None:
        self.id = conversation
        self.running = ConversationActivity.IDLE
        self.why = ""
        # The real queue: where a message stands in it is what the window shows.
        heard = SimpleNamespace(id=conversation, notify_listeners=self.tell)
        self.queue = MessageQueue(cast("Any", heard), UncountedTokens())
        self.questions: dict[int, PermissionQuestion] = {}
        self.given: dict[int, PermissionAnswer] = {}
        self.answers: list[str] = []
        self.done: list[str] = []
        self.price = 0.0
        self.saves = 0.0
        self.state = build_state(facts)
        self._numbers = itertools.count(1)
        self._listeners: list[Listener] = []
        self._upwards = tell

    @property
    def conversation(self) -> FakeSession:
        return self

    context = folding = turns = conversation

    @property
    def kind_in_progress(self) -> FoldKind | None:
        return None if self.progress is None else self.progress.kind

    def subscribe_to_events(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def tell(self, event: Event) -> None:
        if isinstance(event, FoldProgress):
            self.progress = None if event.done else event
        for listener in [*self._listeners, *filter(None, [self._upwards])]:
            listener(event)

    def append(self, *facts: Fact) -> None:
        for fact in facts:
            recorded = Recorded(self.id, self.state.seq + 1, time.time(), fact)
            self.state.advance_state(recorded)
            self.tell(FactAppended(recorded))

    def set_running(self, running: ConversationActivity, why: str = "") -> None:
        self.running = running
        self.why = why
        self.tell(ActivityChanged(self.id, running, why))

    def ask(self, question: PermissionQuestion) -> int:
        number = next(self._numbers)
        self.questions[number] = question
        self.tell(QuestionAsked(self.id, number, question))
        self.set_running(ConversationActivity.ASKING, question.title)
        return number

    # --- the commands

    def send_message(
        self, parts: tuple[UserPart, ...], *, steer: bool = False, command_id: str = ""
    ) -> None:
        if self.running is not ConversationActivity.IDLE:
            self.queue.add_message(parts, steer=steer, command_id=command_id)
            return
        self.append(UserSaid(parts, command=command_id))
        self.set_running(ConversationActivity.THINKING)
        if self.answers:
            self.finish(self.answers.pop(0))

    def finish(self, text: str) -> None:
        """The model's answer, and the end of the turn."""
        self.tell(ReplyStreamed(self.id, TextDelta(text)))
        self.append(ModelReplied((Text(text, len(text) // 4),), story.MODEL, Stop.END))
        self.set_running(ConversationActivity.IDLE)
        if self.queue:
            message = self.queue.pop_next_message()
            self.send_message(message.parts, command_id=message.command_id)

    def stop_turn(self) -> None:
        self.done.append("stop")
        self.set_running(ConversationActivity.IDLE)

    def resume_turn(self) -> None:
        self.done.append("resume")
        self.set_running(ConversationActivity.THINKING)

    def answer_question(self, number: int, answer: PermissionAnswer) -> None:
        if self.questions.pop(number, None) is not None:
            self.given[number] = answer
            self.tell(QuestionAnswered(self.id, number))
            self.set_running(ConversationActivity.TOOLS)

    def view(self) -> View:
        return self.state.get_view()

    async def moment_at(self, seq: int) -> Moment:
        return self.state.past_moment(seq)

    @property
    def policy(self) -> context_policy.Policy:
        return context_policy.policy_from_fact(self.state.settings.policy)

    def current_meter(self) -> context_usage.WindowMeter:
        return context_usage.measure_window(self.state, self.policy)

    def next_request_meter(self, instead_of: int = 0) -> context_usage.WindowMeter:
        if not instead_of:
            return self.current_meter()
        return context_usage.measure_window_without_end(self.state, self.policy, instead_of)

    def model_whose_cost_cannot_be_limited(self) -> str:
        return self.unpriced

    def pending_rewrite(self) -> context_usage.PendingRewrite | None:
        return self.rewrite

    async def explain_costs_of_last_turn(self) -> Sequence[RequestCost]:
        return explain_costs_of_last_turn(self.state)

    def cost_of_agents(self) -> float:
        return self.agents_cost

    def next_message_cost(self, instead_of: int = 0) -> context_usage.NextMessageCost | None:
        return context_usage.estimate_next_message_cost(self.state, self.policy, before=instead_of)

    def message_cost_forecast(self) -> MessageCostForecast | None:
        return forecast_message_cost(self.state)

    def estimate_next_message(
        self, parts: Sequence[UserPart], *, instead_of: int = 0
    ) -> NextMessageEstimate:
        counted_tokens = 0
        for part in parts:
            counted_tokens += part.tokens
            if isinstance(part, Text):
                counted_tokens += len(part.text) // 4
        return estimate_next_message(
            self.expected_state, self.policy, counted_tokens, time.time(), before=instead_of
        )

    @property
    def expected_state(self) -> ConversationState:
        return self.state

    def look_ahead(self) -> None:
        self.price = self.price or self.first_price

    def estimate_cost_of_sending(self, parts: Sequence[UserPart], *, instead_of: int = 0) -> float:
        return self.price

    def estimate_needed_summary(self) -> NeededSummary | None:
        return self.needed_summary

    def estimate_saving_of_markers(self) -> float:
        return self.saves

    def describe_next_fold(self) -> str:
        return "Next: a handover, when 108,800 tokens are reached."

    async def recall_as_attachment(
        self, digest: Digest, *, lines: tuple[int, int] | None = None
    ) -> Attachment:
        text = story.CONTENT[digest]
        return Attachment(digest.short_hex, story.stored(text), len(text) // 4)

    def forecast_fold_on_demand(self, kind: FoldKind) -> context_usage.FoldForecast | None:
        if kind is FoldKind.MARKER:
            return context_usage.FoldForecast(sent=0, freed=900, dollars=0.0)
        return context_usage.FoldForecast(sent=8_800, freed=2_000, dollars=self.fold_cost)

    def cancel_fold_in_work(self) -> None:
        self.done.append("stop the fold")

    async def fold_on_request(self, kind: FoldKind, *, wish: str = "") -> None:
        self.done.append(f"fold {kind}")

    async def unfold(self, fold: str) -> None:
        self.done.append(f"undo {fold}")
        self.append(Unfolded(fold))

    async def refold(self, fold: str) -> None:
        self.done.append(f"redo {fold}")
        self.append(Refolded(fold))

    def refuse_while_running(self, action: str) -> None:
        if self.running in WORKING_STATES:
            raise ActionRefused(
                f"Cannot {action} while the agent is working.", remedy="Stop the agent first (Esc)."
            )

    async def rewind_to(self, seq: int) -> None:
        self.append(Rewound(seq))

    async def edit_and_resend(
        self, seq: int, parts: tuple[UserPart, ...], *, command_id: str = ""
    ) -> None:
        self.append(Rewound(seq - 1))
        self.send_message(parts, command_id=command_id)

    async def edit_fold_text(self, fold: str, text: str) -> None:
        self.append(DocumentEdited(fold, text, len(text) // 4))

    async def rebuild_request(self, seq: int | None = None) -> Request:
        then = (
            self.state
            if seq is None
            else self.state.past_moment(newest_fact_seen_by(self.state.facts[seq - 1]))
        )
        view = then.get_view()
        stored = [getattr(block.content, "stored", block.content) for block in view.blocks]
        return request_building.build_request(
            view, {one: story.CONTENT[one.digest] for one in stored if isinstance(one, Stored)}
        )

    def matches_sent_request(self, seq: int, request: Request) -> bool | None:
        return None

    async def exclude_part(self, ref: Cover) -> None:
        self.append(Excluded(ref))

    async def include_part(self, ref: Cover) -> None:
        self.append(Included(ref))

    async def pin_part(self, ref: Cover) -> None:
        self.append(Pinned(ref))

    async def unpin_part(self, ref: Cover) -> None:
        self.append(Unpinned(ref))

    async def ask_again(self, seq: int = 0) -> None:
        self.done.append(f"regenerate {seq}" if seq else "regenerate")

    def retry_immediately(self) -> None:
        self.done.append("try now")

    async def switch_to_answer(self, end: int) -> None:
        self.append(Rewound(end, again=True))

    async def set_title(self, title: str) -> None:
        self.append(ConversationChanged(title=title))

    async def set_archived(self, *, archived: bool = True) -> None:
        self.append(ConversationChanged(archived=archived))

    async def set_trashed(self, *, trashed: bool = True) -> None:
        self.append(ConversationChanged(trashed=trashed))

    async def set_pinned(self, *, pinned: bool = True) -> None:
        self.append(ConversationChanged(pinned=pinned))


def parts(
    system: int = 0, handover: int = 0, observations: int = 0, talk: int = 0, output: int = 0
) -> dict[ContextKind, int]:
    """Shares of the window in per cent, as tokens."""
    return {
        kind: share * 1_280
        for kind, share in zip(
            ContextKind, (system, handover, observations, talk, output), strict=True
        )
    }


class FakeSharing:
    """A workspace that is not shared, until `share`. `conversations_written_elsewhere`:
    the machines that write, by conversation.
    """

    def __init__(self) -> None:
        self.sharing_state = SharingStatus()
        self.synced_sessions = SimpleNamespace(branch_by_conversation=dict[str, str]())
        self.writing: dict[str, str] = {}
        self.secrets: dict[str, list[str]] = {}  # By conversation.
        self.listeners: list[Callable[[], object]] = []
        self.refusing = ""

    def stand(self, standing: SharingStatus) -> None:
        self.sharing_state = standing
        for listener in tuple(self.listeners):
            listener()

    def watch_sharing(self, listener: Callable[[], object]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    def other_machine_writing(self, conversation: str) -> str:
        return self.writing.get(conversation, "")

    async def take_over_conversation(self, conversation: str) -> None:
        self.writing.pop(conversation, None)
        if self.refusing:
            raise SharedStoreUnreachable(self.refusing)

    async def find_secrets_of_conversation(self, conversation: str) -> list[str]:
        return self.secrets.get(conversation, [])

    async def measure_shared_amount(self) -> tuple[int, int, int]:
        return 12, 345, 6_700_000

    async def test_store_address(self, address: str) -> str:
        if self.refusing:
            raise SharedStoreUnreachable(self.refusing)
        return f"PostgreSQL 15.6 at {address}"

    async def start_sharing_at(self, address: str) -> None:
        if self.refusing:
            raise SharedStoreUnreachable(self.refusing)
        self.stand(SharingStatus("in step", address=address))

    async def read_key_for_joining(self) -> str:
        return "helix1-key"

    async def stop_sharing(self) -> str:
        self.stand(SharingStatus())
        return ""


@dataclass(frozen=True)
class FakeBrought:
    """`new`: those the user has not seen yet."""

    items: Sequence[ProjectItem]
    new: Sequence[ProjectItem]

    def items_to_ask_about(self) -> Sequence[ProjectItem]:
        return self.new


class FakeProject:
    """What the folder of a workspace brings."""

    def __init__(self, bench: FakeWorkbench) -> None:
        self._bench = bench

    def read_project_folders(self) -> FakeBrought:
        rules = self._bench.rules
        trusted = self._bench.trusted
        return FakeBrought(rules, [each for each in rules if each not in trusted])

    async def reread_project_folders(self) -> FakeBrought:
        return self.read_project_folders()

    async def trust_items(self, *items: ProjectItem) -> None:
        self._bench.trusted += items

    async def switch_item(self, key: str, *, on: bool) -> None:
        self._bench.switched.append((key, on))


class FakeWorkforce:
    """The agents of a workspace, whichever conversation they belong to."""

    def __init__(self, bench: FakeWorkbench) -> None:
        self._bench = bench

    def list_agent_rows(self, conversation: str) -> Sequence[SubagentRow]:
        return self._bench.team

    def stop_agent(self, agent: str) -> None:
        self._bench.switched.append((agent, False))

    def stop_all_agents(self, conversation: str) -> None:
        self._bench.switched.append((conversation, False))


class FakeSizeLimit:
    """`heard`: the listeners, whom a test may tell a size."""

    def __init__(self) -> None:
        self.excess_bytes = 0
        self.heard: list[Callable[[int], object]] = []

    def watch_cache_size(self, listener: Callable[[int], object]) -> Callable[[], None]:
        self.heard.append(listener)
        return lambda: self.heard.remove(listener)


class FakeCopies(StandIn):
    """Says what was brought back, and how."""

    def __init__(self) -> None:
        self.brought_back: list[tuple[str, str, str]] = []
        self.in_other_copies: dict[str, Sequence[str]] = {}
        self.conflicts: Sequence[str] = ()
        self.not_brought_back: Sequence[str] = ("README.md",)

    def find_copy(self, name: str) -> FolderCopy | None:
        return FolderCopy(name, Path(name), is_whole=True)

    async def read_status_of_copies(self) -> Mapping[str, CopyStatus]:
        return {
            name: CopyStatus(overlaps=dict.fromkeys(each, "x"))
            for name, each in self.in_other_copies.items()
        }

    async def list_files_not_brought_back(self, copy: FolderCopy) -> Sequence[str]:
        return self.not_brought_back

    async def find_conflicts(self, copy: FolderCopy) -> Sequence[str]:
        return self.conflicts

    async def bring_back(
        self, copy: FolderCopy, way: str, message: str = "", conflicts: str = "leave"
    ) -> tuple[str, ...]:
        self.brought_back.append((copy.id, f"{way} {conflicts}".removesuffix(" leave"), message))
        return (
            ("The copy was deleted.",)
            if way == "discard"
            else ("There are no changes to bring back.",)
        )


class FakeAcpAgents:
    """The foreign agents on this computer."""

    def __init__(self) -> None:
        self.name = "Gemini CLI"
        self.chosen: list[tuple[str, str]] = []
        self.choices = {
            "mode": AgentChoice("mode", "Mode", "plan", {"plan": "Plan & think", "yolo": ""})
        }
        self.names: tuple[str, ...] = ("Codex", "Gemini CLI")
        self.found_agents = [
            ListedAcpAgent(
                "Gemini CLI", "gemini", is_installed=True, sign_in_command="gemini login"
            )
        ]
        self.removed: list[str] = []
        self.fails = False

    async def list_agent_names(self) -> list[str]:
        return list(self.names)

    async def describe_agents(self) -> list[ListedAcpAgent]:
        own_agents = [ListedAcpAgent("Mine", "my-agent --acp", is_installed=True, is_own=True)]
        if "Mine" in self.removed:
            own_agents = []
        missing = ListedAcpAgent("Codex", "codex-acp", is_installed=False, install_command="npm i")
        return list(own_agents) + self.found_agents + [missing]

    async def test_agent(self, name: str) -> None:
        if self.fails:
            raise ModelFailed(f"{name} stopped working: it ended with exit code 1.")

    def own_lines_with_agent(self, name: str, command_line: str) -> str:
        return add_agent_line("Mine = my-agent --acp", name, command_line)

    def own_lines_without_agent(self, name: str) -> str:
        self.removed.append(name)
        return ""

    async def start_agent(self, _conversation: object) -> FakeAcpAgents:
        return self

    def list_agent_commands(self, _conversation: str) -> dict[str, str]:
        return {"memory": "Shows what is kept"}

    async def choose_agent_option(self, _conversation: object, identity: str, value: str) -> None:
        self.chosen.append((identity, value))


class FakeRelay:
    """Writes conversations for other agents from what the stand-in's sessions hold;
    folds nothing.
    """

    def __init__(self, bench: FakeWorkbench) -> None:
        self._bench = bench
        self.is_too_long = False

    async def prepare_session_for_agent(
        self, asked: RestoreRequest, *, may_fold: bool = True
    ) -> RestoredSession:
        facts = await self._bench.read_conversation_facts(asked.conversation)
        contents = await self._bench.workspace.cache.read_contents(
            openai_chat_export.digests_needed_for_export(facts)
        )
        return replace(
            build_restored_session(facts, contents.get, asked),
            fits=may_fold or not self.is_too_long,
        )

    def add_mcp_server(self, agent: str, _folder: Path, _places: HistoryPlaces) -> str:
        return f"The MCP server helix-w was added to {agent}."


class FakeModels:
    """Those of the roles, as they are chosen."""

    def __init__(self) -> None:
        self.chosen: list[ModelSet] = []
        self.with_assumed_window: set[str] = set()

    def is_window_assumed(self, name: str) -> bool:
        return name in self.with_assumed_window

    def model_facts(self) -> Sequence[ModelSet]:
        return self.chosen


class FakeWorkbench(StandIn):
    """One workspace. Its rows follow what its sessions record."""

    slash_commands = property(lambda self: self)

    def __init__(self, name: str, colour: str, folder: Path, rows: Sequence[Row] = ()) -> None:
        self.id = name
        self.name = name
        self.settings = WorkspaceConfig(colour=colour)
        self.main_folder = self.first_folder = folder
        self.allowed_folders: Sequence[Path] = (folder,)
        self.policy_name = "layered"
        self.main_model_name = story.MODEL
        self.permission_mode = "ask"
        self.everything_allowed_until = 0.0
        self.allowed_by_rules: dict[str, Sequence[str]] = {}
        self.rules_by_conversation: dict[str, list[Mapping[str, Any]]] = {}
        self.rows = {row.id: row for row in rows}
        self.sessions: dict[str, FakeSession] = {}
        self.rules: list[ProjectItem] = []
        self.named: list[ProjectItem] = []
        self.team: list[SubagentRow] = []
        self.switched: list[tuple[str, bool]] = []
        self.trusted: list[ProjectItem] = []
        self.opening_notes: tuple[str, ...] = ()
        self.proposed = ""
        self.busy = False
        self.forgotten: list[str] = []
        self.size_limit = FakeSizeLimit()
        self.workspace = FakeCatalogue()
        self.mcp_servers = FakeServers()
        self.written: list[tuple[str, Any]] = []
        self.file_changes = FakeChanges()
        self.copies = FakeCopies()
        self.models = FakeModels()
        self.sharing = self.sharing_setup = FakeSharing()
        self.decided: list[bool] = []
        self.own: dict[str, str] = {}
        self.attached: list[tuple[str, bytes]] = []
        self.forked_at: list[int] = []  # The last fact of each fork, or 0 for all of them.
        self.acp = FakeAcpAgents()
        self.relay = FakeRelay(self)
        self._listeners: list[Listener] = []
        self._numbers = itertools.count(1)

    def subscribe_to_events(self, listener: Listener) -> Callable[[], None]:
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        return self.workspace.watch_settings(listener)

    def running_state_of(self, conversation: str) -> ConversationActivity:
        session = self.sessions.get(conversation)
        return session.running if session else ConversationActivity.IDLE

    @property
    def contents(self) -> Any:
        return self.workspace.cache

    @property
    def catalogue(self) -> Any:
        return self.workspace

    def list_conversations(self) -> Sequence[Row]:
        return list(self.rows.values())

    def conversation_row(self, conversation: str) -> Row | None:
        return self.rows.get(conversation)

    def conversations_above(self, conversation: str) -> list[str]:
        found = [conversation]
        while (
            (row := self.rows.get(found[-1])) is not None and row.parent and row.parent not in found
        ):
            found.append(row.parent)
        return found[1:]

    async def read_newest_facts(self, conversation: str) -> Sequence[Recorded]:
        return ()

    def find_opening_session(self, conversation: str) -> FakeSession | None:
        return self.sessions.get(conversation)

    async def open_session(self, conversation: str) -> FakeSession:
        if conversation not in self.rows:
            raise NotFound(f"There is no conversation {conversation} in this workspace.")
        if conversation not in self.sessions:
            told = story.recorded() if conversation == story.CONVERSATION else _begin(conversation)
            self.sessions[conversation] = FakeSession(conversation, told, self._heard)
        return self.sessions[conversation]

    async def start_conversation(self, title: str = "", *, identity: str = "") -> FakeSession:
        name = identity or f"new-{next(self._numbers)}"
        self.rows[name] = Row(name, title, time.time(), parts(4))
        return await self.open_session(name)

    async def start_conversation_in_copy(
        self, title: str = "", *, with_changes: bool = False, identity: str = ""
    ) -> FakeSession:
        session = await self.start_conversation(title, identity=identity)
        self.rows[session.id] = replace(
            self.rows[session.id], copy="main with changes" if with_changes else "main"
        )
        session.conversation.state.own_copy = session.id
        return session

    async def start_users_conversation(
        self, identity: str = "", *, acp_agent: str = ""
    ) -> FakeSession:
        session = await self.start_conversation(identity=identity)
        session.conversation.state.acp_agent = acp_agent
        return session

    def file_changes_of(self, conversation: str) -> FakeChanges:
        assert not conversation or conversation in self.sessions
        return self.file_changes

    async def open_draft_session(self) -> FakeSession:
        session = FakeSession("new", _begin("new"), lambda *_: None)
        session.look_ahead()
        return session

    async def predict_next_request(self, conversation: str) -> None:
        self.sessions[conversation].look_ahead()

    async def fork_conversation(
        self, conversation: str, last_seq: int = 0, *, title: str = "", in_copy: bool = False
    ) -> FakeSession:
        self.forked_at.append(last_seq)
        name = f"fork-{next(self._numbers)}"
        origin = self.rows[conversation]
        copy = "main" if in_copy else origin.copy
        self.rows[name] = replace(
            origin, id=name, title=title or origin.title, updated=time.time(), agent="", copy=copy
        )
        return await self.open_session(name)

    def model_of_conversation(self, conversation: str) -> str:
        return self.own.get(conversation, self.main_model_name)

    async def save_conversation_model(self, conversation: str, name: str) -> None:
        self.own[conversation] = name or self.main_model_name

    async def attach_content(self, name: str, content: bytes, media_type: str) -> Attachment:
        self.attached.append((name, content))
        return Attachment(
            name, Stored(Digest.of_content(content), len(content), 0, media_type), len(content) // 4
        )

    async def count_sent_tokens(
        self,
        attachment: Attachment,
        conversation: str = "",
        *,
        parts: Sequence[UserPart] = (),
        instead_of: int = 0,
    ) -> int:
        return min(attachment.tokens, 2_000)

    async def read_conversation_facts(self, conversation: str) -> Sequence[Recorded]:
        return (await self.open_session(conversation)).state.facts

    async def complete_file_paths(self, prefix: str, limit: int = 20) -> Sequence[str]:
        known = ("src/lock/manager.rs", "src/lock/table.rs", "tests/upgrade.rs", "Cargo.lock")
        return [name for name in known if prefix.casefold() in name.casefold()][:limit]

    def next_imported_question(self) -> ImportedQuestion | None:
        if not self.proposed:
            return None
        return ImportedQuestion("permissions", self.proposed, {})

    async def decide_imported_question(self, question: ImportedQuestion, *, accept: bool) -> None:
        assert question.text == self.proposed
        self.decided.append(accept)
        self.proposed = ""

    def list_slash_commands(self, conversation: str = "") -> Sequence[ProjectItem]:
        return self.named

    async def expand_command_message(
        self, session: Any, parts: tuple[UserPart, ...]
    ) -> tuple[UserPart, ...]:
        return (Text("expanded"),) + tuple(parts[1:])

    async def attach_file(
        self, name: str, content: bytes, conversation: str = ""
    ) -> tuple[Attachment, ...]:
        kind = find_picture_type(content) or "text/plain"
        return (await self.attach_content(name, content, kind),)

    async def read_file_for_preview(self, conversation: str, written_path: str) -> PreviewedFile:
        return await read_previewed_file(
            WorkspaceRoots.from_folders([self.main_folder]), written_path
        )

    async def read_attachment_for_preview(self, attachment: Attachment) -> PreviewedFile:
        return await read_previewed_attachment(self.contents, attachment)

    async def draw_document_pages(
        self, file: PreviewedFile, page_numbers: Sequence[int], edge: int
    ) -> list[PagePicture]:
        return await draw_pages(file.shown_path, file.content, PDF, page_numbers, edge)

    async def attach_server_resource(self, server: str, uri: str) -> tuple[Attachment, ...]:
        return (await self.attach_content(uri, f"{server} {uri}".encode(), "text/plain"),)

    @property
    def project(self) -> FakeProject:
        return FakeProject(self)

    @property
    def workforce(self) -> FakeWorkforce:
        return FakeWorkforce(self)

    sandbox_kind = "bubblewrap"

    def describe_permission_modes(self) -> Mapping[str, str]:
        return {"ask": "Ask before commands", "plan": "Read only", "all": "Allow everything"}

    def list_uses_allowed_in(self, conversations: Iterable[str]) -> Mapping[str, Sequence[str]]:
        in_any_conversation = self.allowed_by_rules.get("", ())
        return {
            conversation: self.allowed_by_rules.get(conversation, in_any_conversation)
            for conversation in conversations
        }

    def list_rules_by_conversation(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        return self.rules_by_conversation

    def remove_rule_of_conversation(self, conversation: str, rule: Mapping[str, Any]) -> None:
        self.rules_by_conversation[conversation].remove(rule)

    async def request_as_sent(
        self, conversation: str, seq: int | None, request: Request
    ) -> tuple[str, Mapping[str, Any]]:
        return self.main_model_name, {
            "model": self.main_model_name,
            "messages": [message.role.value for message in request.messages],
        }

    async def empty_conversation_trash(self, ids_instead: Collection[str] = ()) -> EmptyTrashResult:
        is_gone = (lambda row: row.id in ids_instead) if ids_instead else (lambda row: row.trashed)
        gone = tuple(row.id for row in self.rows.values() if is_gone(row))
        self.rows = {name: row for name, row in self.rows.items() if name not in gone}
        return EmptyTrashResult(gone, 3, 5_000_000)

    async def forget_content(
        self,
        *,
        text: str = "",
        entries: Sequence[Digest] = (),
        report: Callable[[int, int], None] = lambda _done, _of: None,
    ) -> ForgetResult:
        report(1, 4)
        if self.busy:
            raise ActionRefused("The agent works in this workspace.", remedy="Stop it first.")
        self.forgotten.append(text)
        if text == "nowhere":
            return ForgetResult((), 0, (), 0)
        return ForgetResult(
            tuple(story.CONTENT)[:2], 3, ("a",), 1, ("It stands in notes, line 2: edit that.",)
        )

    async def change_settings(self, changes: Mapping[str, Any]) -> None:
        for key, value in changes.items():
            self.written.append((key, value))
            if key == "permissions.rules":
                self.workspace.settings.rules = value

    async def choose_context_policy(
        self, name: str, values: Mapping[str, Any] | None = None
    ) -> None:
        self.policy_name = name
        self.workspace.settings.preset = name
        self.workspace.settings.policy = dict(values or {})

    async def choose_model_for_role(self, name: str, role: str = "main") -> None:
        self.workspace.settings.models[role] = name
        if role == "main":
            self.main_model_name = name
        for listener in tuple(self.workspace.watching):
            listener()

    async def choose_permission_mode(self, name: str) -> None:
        self.permission_mode = name

    def _heard(self, event: Event) -> None:
        if isinstance(event, FactAppended):
            row = self.rows[event.recorded.conversation]
            fact = event.recorded.fact
            if isinstance(fact, ConversationChanged):
                changed = {n: getattr(fact, n) for n in ("title", "pinned", "archived", "trashed")}
                row = replace(
                    row, **{n: value for n, value in changed.items() if value is not None}
                )
            self.rows[row.id] = replace(row, updated=event.recorded.time)
        for listener in self._listeners:
            listener(event)


def _begin(conversation: str) -> Sequence[Recorded]:
    facts = (ConversationStarted(),) + tuple(story.facts()[1:4])
    return [Recorded(conversation, seq, time.time(), fact) for seq, fact in enumerate(facts, 1)]


@dataclass(frozen=True)
class Came:
    id: str
    name: str
    left_out: Sequence[str]


class FakeTaskLists(StandIn):
    """The tasks of all workspaces, as far as the window asks of them before its fleet is opened."""

    tasks_that_need_user = 0

    async def count_tasks_that_need_user(self) -> int:
        return self.tasks_that_need_user


class FakeDesk(StandIn):
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
        self.opened: list[FakeWorkbench] = []
        self.fleet = FakeTaskLists()

    def opened_workbenches(self) -> Sequence[FakeWorkbench]:
        return self.opened

    def list_workspaces(self, *, trashed: bool = False) -> Sequence[FakeWorkbench]:
        return list((self.trashed if trashed else self.benches).values())

    async def open_workspace(self, workspace: str) -> FakeWorkbench:
        if workspace not in self.benches:
            raise NotFound(f"There is no workspace {workspace}.")
        if self.benches[workspace] not in self.opened:
            self.opened.append(self.benches[workspace])
        return self.benches[workspace]

    async def search_closed_workspace(self, workspace: str, words: str) -> ClosedSearchResult:
        if workspace in self.unsearched:
            raise self.unsearched[workspace]
        hits = await self.benches[workspace].workspace.search_index(words)
        return ClosedSearchResult(
            hits, {story.CONVERSATION: "Extract the lock manager"}, workspace in self.behind
        )

    async def create_workspace(self, name: str, folder: Path) -> FakeWorkbench:
        self.benches[name] = FakeWorkbench(name, "#6b4fa0", folder)
        return self.benches[name]

    async def join_workspace(
        self, address: str, key: str, name: str, folder: Path
    ) -> FakeWorkbench:
        if key != "helix1-key":
            raise InvalidInput(
                "This is not the key of a shared workspace, or part of the key is missing."
            )
        bench = await self.create_workspace(name, folder)
        bench.sharing.sharing_state = SharingStatus("in step", address=address)
        return bench

    async def rename_workspace(self, workspace: str, name: str) -> None:
        self.benches[workspace].name = name

    async def recolour_workspace(self, workspace: str, colour: str) -> None:
        self.benches[workspace].settings = WorkspaceConfig(colour=colour)

    async def trash_workspace(self, *, workspace: str) -> None:
        self.trashed[workspace] = self.benches.pop(workspace)

    async def restore_workspace(self, workspace: str) -> None:
        self.benches[workspace] = self.trashed.pop(workspace)

    async def delete_workspace(self, workspace: str) -> None:
        del self.trashed[workspace]

    async def reopen_workspace(self, workspace: str) -> FakeWorkbench:
        return self.benches[workspace]

    async def set_workspace_folders(self, workspace: str, folders: Sequence[Path]) -> FakeWorkbench:
        bench = self.benches[workspace]
        bench.main_folder = bench.first_folder = folders[0]
        bench.allowed_folders = folders
        return bench

    async def export_workspace(
        self, workspace: str, path: Path, report: Callable[[int, int], None]
    ) -> Sequence[str]:
        report(50, 100)
        if not path.parent.is_dir():
            raise StoreFailed(
                f"{path} could not be written.", remedy="Choose another folder or file name."
            )
        path.write_text(workspace)
        return self.damaged

    async def import_workspace(
        self, path: Path, name: str = "", report: Callable[[int, int], None] = lambda _d, _t: None
    ) -> Came:
        if not path.exists():
            raise NotFound(f"{path} does not exist.")
        made = await self.create_workspace(name or path.stem, Path.home())
        made.proposed = self.imports
        made.allowed_folders = ()
        return Came(made.id, made.name, self.left_out)

    async def aclose(self) -> None:
        self.benches.clear()


def _workbenches(at: float) -> list[FakeWorkbench]:
    hour = 3_600
    day = 86_400
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
