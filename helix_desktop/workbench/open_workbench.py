"""An open workspace: its stores, models and tools, and a session for every open conversation."""

import asyncio
import time
import weakref
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from helix_desktop import concurrency
from helix_desktop.documents.document_kinds import PDF
from helix_desktop.documents.document_page import PagePicture
from helix_desktop.documents.document_reading import draw_pages
from helix_desktop.engine import content_recall, facts, session_events
from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.context_policy import DEFAULT_PRESET
from helix_desktop.engine.conversation import Conversation, new_conversation_id
from helix_desktop.engine.forgotten_text_forms import TextForms
from helix_desktop.engine.list_rows import ConversationListRow
from helix_desktop.engine.message_queue import with_text_tokens
from helix_desktop.engine.messages import Request
from helix_desktop.engine.newest_facts import collect_newest_facts
from helix_desktop.engine.ports import (
    AskedProgram,
    ContentReader,
    EmptyTrashResult,
    EntryOrigin,
    ForgetResult,
    ModelClient,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_setup import (
    ConversationSetup,
    HookOutcome,
    SessionServices,
    TurnLimits,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.view import ConversationState
from helix_desktop.engine.view_contents import estimate_entry_tokens
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.extensions.added_fold_strategies import list_added_fold_strategies
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.pending_copies import delete_failed_copies
from helix_desktop.store.fleet_task_files import forget_text_in_tasks
from helix_desktop.store.fleet_tasks import TaskRetention
from helix_desktop.store.imported_proposals import ImportedQuestion, list_imported_questions
from helix_desktop.store.in_memory_stores import MemoryJournal
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.store.workspace_export import Report, ignore_progress
from helix_desktop.store.workspace_settings import Changes, WorkspaceConfig
from helix_desktop.tools.changes import interrupted_steps, known_state_file
from helix_desktop.tools.changes.checkpoints import Checkpoints
from helix_desktop.tools.delegate_tool import Delegation
from helix_desktop.tools.home_access import CommandOpenings
from helix_desktop.tools.permission import (
    ActionEffect,
    PermissionMode,
    PermissionRule,
    ToolAction,
    list_asked_programs,
    list_uses_allowed_by_rules,
)
from helix_desktop.tools.timed_allowance import ALLOW_ALL_FOR_AN_HOUR
from helix_desktop.tools.toolbox import ForeignTool, Toolbox, WorkspacePermissions
from helix_desktop.tools.workspace_tools import WorkspaceToolOptions, WorkspaceTools
from helix_desktop.workbench import fleet_tools, history_imports, system_prompt_and_settings
from helix_desktop.workbench.acp_conversations import AcpConversations
from helix_desktop.workbench.cache_size_limit import CacheSizeLimit
from helix_desktop.workbench.conversation_list_rows import ConversationListRows, ConversationMeters
from helix_desktop.workbench.conversation_relay import ConversationRelay
from helix_desktop.workbench.conversation_sharing import WorkspaceSharing
from helix_desktop.workbench.copy_files import FolderCopy
from helix_desktop.workbench.document_attachments import FileAttachments
from helix_desktop.workbench.file_preview import (
    PreviewedFile,
    read_previewed_attachment,
    read_previewed_file,
)
from helix_desktop.workbench.folder_copies import RepositoryCopies
from helix_desktop.workbench.hook_runner import HookRunner
from helix_desktop.workbench.mcp_servers import WorkspaceMcpServers
from helix_desktop.workbench.message_queue_files import MessageQueueFiles
from helix_desktop.workbench.model_roles import ChosenModel, ModelAccess, WorkspaceModels
from helix_desktop.workbench.open_questions import (
    FOLDER,
    OpenQuestions,
    record_unanswered_questions,
)
from helix_desktop.workbench.open_sessions import OpenSessions
from helix_desktop.workbench.partial_replies import PartialReplies
from helix_desktop.workbench.pending_questions import PendingQuestions
from helix_desktop.workbench.plan_mode import PlanMode
from helix_desktop.workbench.rules_and_skills import WorkspaceRulesAndSkills
from helix_desktop.workbench.session_intake import RepliesUnderWay
from helix_desktop.workbench.session_preparation import SessionPreparation
from helix_desktop.workbench.shared_store_setup import WorkspaceSharingSetup
from helix_desktop.workbench.slash_expansion import SlashCommands
from helix_desktop.workbench.subagents import (
    AgentRoles,
    SubagentRunner,
    report_of_interrupted_agent,
)
from helix_desktop.workbench.system_prompt_and_settings import build_system_prompt, model_of_role
from helix_desktop.workbench.undo_and_change_list import FileChanges
from helix_desktop.workbench.worker_claims import WorkerClaims

Listener = Callable[[session_events.Event], None]
# Takes the name of a conversation's main model.
BuildFoldWriter = Callable[[str], ModelClient]
MOST_LISTED_PATHS = 20_000
SECONDS_BETWEEN_LOOKS_AT_ALLOWANCE = 5.0
# How often it is looked whether a process has ended that asked a model before this one opened the workspace.
SECONDS_BETWEEN_LOOKS = 2.0
_open_workbenches: weakref.WeakKeyDictionary[StoredWorkspace, "Workbench"] = (
    weakref.WeakKeyDictionary()
)


def workbench_of(workspace: StoredWorkspace) -> "Workbench | None":
    """Return the program's workbench of the workspace, if any, so that commands use the
    same sessions.
    """
    return _open_workbenches.get(workspace)


@dataclass(frozen=True, slots=True)
class ProgramDependencies:
    """What all workbenches share. `closed`: the program's own folders, which no tool
    may enter. `fetching`: whether agents are offered fetch_url. `instructions` returns
    the user's own, and runs in a thread before each step. `machine`: this machine's
    name for others, if not its network name.
    """

    access: ModelAccess
    closed: tuple[Path, ...] = ()
    # This folder is open even though it is inside a closed one (see `WorkspaceRoots`).
    sample: Path | None = None
    fetching: bool = False
    instructions: Callable[[], str] = str
    machine: str = ""
    # Returns the setting that lists the user's foreign agents.
    acp_agents: Callable[[], str] = str
    # Registers an agent at the gateway.
    register_route: Callable[..., dict[str, Any] | None] = lambda *_: None
    extensions: LoadedExtensions | None = None
    task_retention: TaskRetention = TaskRetention()
    # Where the recorder keeps copies of other agents' files.
    pending_copies: Path | None = None


class Workbench:
    """Created by `open_workbench`. `subscribe_to_events` reports the events of all sessions."""

    def __init__(
        self,
        workspace: StoredWorkspace,
        shared: ProgramDependencies,
        kit: WorkspaceTools,
        permissions: WorkspacePermissions,
    ) -> None:
        self.workspace = workspace
        self.kit = kit
        self.tasks = concurrency.OwnedTasks(workspace.name)
        self.mcp_servers = WorkspaceMcpServers(
            workspace, shared.access.secrets, self.tasks.spawn_task
        )
        self.project = WorkspaceRulesAndSkills(workspace)
        self.hooks = HookRunner(workspace, self.project, kit)
        self._rows = ConversationListRows(workspace.journal)
        self.conversations_above = self._rows.ids_above
        self.claims = WorkerClaims(self.hooks, self.conversations_above)
        self.planning = PlanMode(permissions, self.choose_permission_mode)
        self.models = WorkspaceModels(shared.access, workspace)
        self._shared = shared
        self.token_counter = shared.access.tokens
        self._permissions = permissions
        self.sessions = OpenSessions()
        self.replies_under_way = RepliesUnderWay()
        self.copies = RepositoryCopies(self, self._open_tools_of_copy)
        self.workforce = SubagentRunner(
            AgentRoles(self.project),
            self._create_subagent_session,
            self.tasks.spawn_task,
            self.sessions.find_open_session,
            self._turn_limits,
            self.copies.describe_copy_of_agent,
            self._rows,
        )
        self._meters = ConversationMeters(
            self._rows, workspace.journal, self.sessions, self.tasks.spawn_task
        )
        self.sharing = WorkspaceSharing(self, shared.machine)
        self.task_retention = shared.task_retention
        self.sharing_setup = WorkspaceSharingSetup(workspace, shared.access.secrets)
        self._listeners: list[Listener] = []
        self._checked_settings: WorkspaceConfig | None = None
        self._mistake_in_policy = ""
        # The main models of conversations that do not use the workspace's.
        self._model_by_conversation: dict[str, str] = {}
        # For conversations in which a connected agent works: whose model writes its folds.
        self._fold_writer_builders: dict[str, BuildFoldWriter] = {}
        self.size_limit = CacheSizeLimit(workspace, self.tasks.spawn_task)
        self.file_changes = FileChanges(self)
        self.relay = ConversationRelay(workspace, self.token_counter, partial(nullcontext, self))
        register_route = partial(shared.register_route, self)
        self.acp = AcpConversations(
            shared.acp_agents, register_route, self.tasks.spawn_task, self.copies.tools_of_copy
        )
        self.slash_commands = SlashCommands(
            self.project, self.mcp_servers, self.acp, workspace.cache, self.token_counter
        )
        self._partial = PartialReplies(
            workspace.folder / "partial", self.tasks.spawn_task, self.sessions
        )
        self._pending_questions = PendingQuestions(workspace.folder / "partial")
        self.queue_files = MessageQueueFiles(
            workspace.folder / "partial", self.sessions.find_open_session
        )
        # Records by estimate what is held of ended gateways' questions.
        self.record_held_questions: Callable[[], Awaitable[None]] | None = None
        workspace.cache.changed = self.size_limit.count_cache_size_soon
        workspace.content_forgetter = self.forget_content
        workspace.watch_settings(self.size_limit.count_cache_size_soon)

    @classmethod
    async def open_workbench(
        cls,
        workspace: StoredWorkspace,
        shared: ProgramDependencies,
        *,
        holds_questions: bool = False,
    ) -> "Workbench":
        """Prepare the tools and list the conversations.

        `holds_questions`: what ended gateways asked is left to who serves agents here.
        """
        permissions = system_prompt_and_settings.parse_permissions(workspace.settings)
        roots = [Path(root) for root in workspace.settings.roots]
        kit = await _open_folder_tools(workspace, shared, permissions, roots)
        bench = cls(workspace, shared, kit, permissions)
        permissions.save_rule = partial(system_prompt_and_settings.save_permission_rule, workspace)
        permissions.tell_unsaved_rule = workspace.notify_settings_watchers
        try:
            # A read-only journal, for example, does not keep the workspace from being opened.
            if not holds_questions:
                with suppress(HelixError):
                    await record_unanswered_questions(workspace)
                bench.tasks.spawn_task(
                    bench._record_questions_of_gateway_before(),
                    name="record what a gateway had asked",
                )
            await bench._rows.read_all_rows()
            await asyncio.to_thread(bench.copies.list_copies)
            bench.mcp_servers.start_configured_servers()
            bench.tasks.spawn_task(
                asyncio.to_thread(shared.access.prepare_model_access),
                name="get ready for the first message",
            )
            bench.tasks.spawn_task(
                bench.file_changes.prepare_checkpoints(), name="the first checkpoint"
            )
            bench.tasks.spawn_task(
                bench.copies.record_interrupted_steps(), name="record steps in copies"
            )
            _open_workbenches[workspace] = bench
            workspace.linked = bench.sharing.start_or_stop_with_link
            bench.sharing.start_or_stop_with_link()
            bench.size_limit.count_cache_size_soon()
            await bench.copies.finish_interrupted_work()
        except BaseException:
            await bench.aclose()
            raise
        return bench

    async def aclose(self) -> None:
        """Stop what runs, in order: sessions, servers, agents, tasks, commands. The
        caller closes the workspace.
        """
        _open_workbenches.pop(self.workspace, None)
        self.workspace.content_forgetter = self.workspace.forget_content
        self.workforce.close()
        # All commands and servers are ended, even if a full disk makes a step fail.
        # The stack calls what was pushed last first.
        async with AsyncExitStack() as exit_stack:
            exit_stack.push_async_callback(self.kit.aclose)
            exit_stack.push_async_callback(self.copies.aclose)
            exit_stack.push_async_callback(self.tasks.aclose, limit=1.0)
            exit_stack.push_async_callback(self.acp.end_all_agents)
            exit_stack.push_async_callback(self.mcp_servers.aclose)
            closings = [session.aclose() for session in self.sessions]
            await asyncio.gather(*closings)
            self.workspace.linked = lambda: None
            await self.sharing.stop_conversation_sync()
            await self._meters.save_unsaved_meters()

    # --- The workspace's properties

    @property
    def id(self) -> str:
        return self.workspace.id

    @property
    def name(self) -> str:
        return self.workspace.name

    @property
    def allowed_folders(self) -> Sequence[Path]:
        """Return where its tools may work: nowhere in an imported workspace until the
        user chooses.
        """
        return tuple(Path(root) for root in self.workspace.settings.roots)

    @property
    def main_folder(self) -> Path:
        folders = self.allowed_folders
        if folders:
            return folders[0]
        return Path.home()

    # --- Listing, opening and changing conversations

    def list_conversations(self) -> Sequence[ConversationListRow]:
        """Return all conversations, last changed first. Those of sub-agents name their parent."""
        window = self._chosen_window_tokens()
        rows = [self._complete_row(row, window) for row in self._rows]
        rows.sort(key=lambda row: row.updated, reverse=True)
        return rows

    def has_conversation(self, conversation: str) -> bool:
        return self._rows.find_row(conversation) is not None

    def conversation_row(self, conversation: str) -> ConversationListRow | None:
        row = self._rows.find_row(conversation)
        if row is None:
            return None
        return self._complete_row(row, self._chosen_window_tokens())

    def _chosen_window_tokens(self) -> int:
        """Return the window of the chosen model, or 0 if it is unknown."""
        with suppress(HelixError):
            return self.models.model_by_name(self.main_model_name).info.window
        return 0

    def _complete_row(self, row: ConversationListRow, window: int) -> ConversationListRow:
        """Add the machine that wrote there last, its copy, and the `window` of an idle
        one's next request.
        """
        session = self.sessions.find_open_session(row.id)
        # A copy is named like the conversation for which it was made.
        copy_name = row.id
        if session is not None:
            copy_name = session.conversation.state.own_copy

        completed_row = row
        machine = self.sharing.other_machine_of_last_write(row.id)
        copy_label = self.copies.labels.get(copy_name, "")
        if machine or copy_label:
            overlaps = tuple(self.copies.overlaps.get(copy_name, ()))
            completed_row = replace(row, machine=machine, copy=copy_label, overlaps=overlaps)

        # A conversation of a foreign agent or with a model of its own does not use the
        # chosen model's window.
        has_own_window = bool(row.agent) or row.id in self._model_by_conversation
        shows_window = bool(window and row.parts) and not has_own_window
        if shows_window and _is_resting(session):
            completed_row = replace(completed_row, window=window)
        return completed_row

    def subscribe_to_events(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with the events of all conversations. Returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def watch_settings(self, listener: Callable[[], object]) -> Callable[[], None]:
        """Call `listener` when a setting of the workspace has changed. Returns how to stop."""
        return self.workspace.watch_settings(listener)

    def running_state_of(self, conversation: str) -> session_events.ConversationActivity:
        session = self.sessions.find_open_session(conversation)
        if session is None:
            return session_events.ConversationActivity.IDLE
        return session.running

    @property
    def contents(self) -> ContentReader:
        return self.workspace.cache

    @property
    def catalogue(self) -> StoredWorkspace:
        """Its stored outputs are the workspace's own."""
        return self.workspace

    def text_of_reply_in_progress(self, conversation: str) -> str:
        """Return what a model has written of a reply that is not a fact yet."""
        return self._partial.text_in_progress(conversation)

    async def record_questions_of_ended_processes(self) -> None:
        """Record by estimate what the questions cost whose processes have ended."""
        if self.record_held_questions is not None:
            await self.record_held_questions()
        else:
            await record_unanswered_questions(self.workspace, self._open_conversation_of_question)

    async def _open_conversation_of_question(self, name: str) -> Conversation | None:
        if not self.has_conversation(name):
            return None
        session = await self.open_session(name)
        return session.conversation

    async def _record_questions_of_gateway_before(self) -> None:
        """Record the questions of a gateway that had the workspace open before, if it is killed
        before it is connected to this process. From then on, its connection shows when it ends.
        """
        questions = OpenQuestions(self.workspace.folder / FOLDER)
        while self.record_held_questions is None and await asyncio.to_thread(questions.has_notes):
            await asyncio.sleep(SECONDS_BETWEEN_LOOKS)
            with suppress(HelixError):
                await self.record_questions_of_ended_processes()

    async def open_session(
        self, conversation: str, *, writer: BuildFoldWriter | None = None
    ) -> Session:
        """Return the conversation's session, which is opened if it is not open yet.

        `writer`: builds the model client that writes its folds, if a connected agent
        works in it.
        """
        if writer is not None:
            self._fold_writer_builders[conversation] = writer
        if self._rows.find_row(conversation) is None:
            raise NotFound(f"There is no conversation {conversation} in {self.name}.")
        async with self.sessions.opening:
            session = self.sessions.find_open_session(conversation)
            if session is None:
                session = await self._open_stored_conversation(conversation)
            self.sessions.keep_session_open(session)
            return session

    async def _open_stored_conversation(self, name: str) -> Session:
        """Open a conversation's session as it was left, also by a program that was
        killed.
        """
        conversation = await Conversation.open(self.workspace.journal, name)
        state = conversation.state
        if state.own_model:
            self._apply_conversation_model(name, state.own_model)
        asks_again = await self._recover_interrupted_turn(conversation)
        await self.copies.get_or_open_tools(state.own_copy)
        allowed_tools = self.workforce.roles.tools_of_role(state)
        session = self._build_session(conversation, allowed=allowed_tools)
        session.asks_again = asks_again
        if not session.agent:
            self.queue_files.restore_queue(session)
        return session

    async def _recover_interrupted_turn(self, opened: Conversation) -> bool:
        """Record what was on the way when the program ended. Returns whether a question
        is asked again.
        """
        # Facts that are written beside another machine's would become a branch.
        if self.sharing.other_machine_writing(opened.id):
            return False
        model = self.model_of_conversation(opened.id)
        await self._partial.recover_texts(opened, model, self.workspace.cache, self.token_counter)
        await self._report_interrupted_agents(opened)
        if opened.state.agent:
            return False
        return await self._pending_questions.recover_questions(
            opened, self.workspace.cache, self.token_counter
        )

    async def _report_interrupted_agents(self, parent: Conversation) -> None:
        """Say in a conversation which of its agents in the background ended with the program."""
        parents = {row.parent for row in self._rows}
        if parent.id not in parents:
            return
        for agent in self.workforce.find_interrupted_agents(parent.state):
            with suppress(NotFound):  # It was deleted for good.
                agents_conversation = await Conversation.open(self.workspace.journal, agent)
                model = self.model_of_conversation(agent)
                await self._partial.recover_texts(
                    agents_conversation, model, self.workspace.cache, self.token_counter
                )
                report = report_of_interrupted_agent(agents_conversation)
                parts = [with_text_tokens(part, self.token_counter) for part in report.parts]
                counted_report = replace(report, parts=tuple(parts))
                await parent.append_facts(counted_report)

    async def start_conversation(
        self,
        title: str = "",
        *,
        agent: str = "",
        parent: str = "",
        role: str = "",
        identity: str = "",
        acp_agent: str = "",
    ) -> Session:
        """Create a conversation and open it.

        `role`: the workspace's agent that works in it. `identity`: the id to use instead of a
        new one. `acp_agent`: the foreign agent that works in it.
        """
        started = facts.ConversationStarted(
            title=title, parent=parent, agent=agent, role=role, acp_agent=acp_agent
        )
        conversation = await self._create_conversation(started, identity)
        return await self.open_session(conversation)

    async def start_users_conversation(self, identity: str = "", *, acp_agent: str = "") -> Session:
        """Start a conversation for the user, in a copy of the folders if the settings say so."""
        if self.workspace.settings.copies.get("always"):
            return await self.start_conversation_in_copy(
                with_changes=True, identity=identity, acp_agent=acp_agent
            )
        return await self.start_conversation(identity=identity, acp_agent=acp_agent)

    async def start_conversation_in_copy(
        self,
        title: str = "",
        *,
        with_changes: bool = False,
        identity: str = "",
        acp_agent: str = "",
    ) -> Session:
        """Copy the folders and start a conversation that works there.

        `with_changes`: the copy includes what is not committed yet.
        """
        conversation = identity or new_conversation_id()
        await self.copies.create_copy(conversation, with_changes=with_changes)
        # A copy is named like the conversation for which it is made.
        started = facts.ConversationStarted(title, copy=conversation, acp_agent=acp_agent)
        await self._create_conversation(started, conversation)
        return await self.open_session(conversation)

    def _copy_of_open_conversation(self, conversation: str) -> str:
        """Return an empty string for the workspace's own folders."""
        session = self.sessions.find_open_session(conversation)
        if session is None:
            return ""
        return session.conversation.state.own_copy

    def file_changes_of(self, conversation: str) -> FileChanges:
        copy = self._copy_of_open_conversation(conversation)
        if not copy:
            return self.file_changes
        return FileChanges(self, self.copies.tools_of_copy(copy))

    async def read_file_for_preview(self, conversation: str, written_path: str) -> PreviewedFile:
        """Read a file of the conversation's folders that a text names. Raises an error with a
        sentence if it is not there, or is not for reading.
        """
        copy = ""
        if conversation:
            copy = self._copy_of_open_conversation(conversation)
        roots = self.copies.tools_of_copy(copy).resources.roots
        return await read_previewed_file(roots, written_path)

    async def read_attachment_for_preview(self, attachment: facts.Attachment) -> PreviewedFile:
        return await read_previewed_attachment(self.contents, attachment)

    async def draw_document_pages(
        self, file: PreviewedFile, page_numbers: Sequence[int], edge: int
    ) -> list[PagePicture]:
        return await draw_pages(file.shown_path, file.content, PDF, page_numbers, edge)

    async def open_draft_session(self) -> Session:
        """Return a session without a stored conversation, to show what its first
        message would cost.
        """
        session = self._build_session(Conversation(MemoryJournal(), "new", ConversationState()))
        session.conversation.listeners.clear()
        await self._predict_request_of(session)
        return session

    async def predict_next_request(self, conversation: str) -> None:
        """Compute the settings of the next request, and report them if they have changed."""
        session = self.sessions.find_open_session(conversation)
        if session is not None:
            await self._predict_request_of(session)

    async def _predict_request_of(self, session: Session) -> None:
        with suppress(HelixError):  # The turn will meet this error again and show it.
            session.preview_setup(await self._build_expected_setup(session.conversation))

    async def fork_conversation(
        self,
        conversation: str,
        last_seq: int = 0,
        *,
        agent: str = "",
        title: str = "",
        in_copy: bool = False,
    ) -> Session:
        """Fork a conversation after `last_seq` (0: its end). `agent`: who continues it,
        if not this program. An empty `title` keeps the original's. `in_copy`: it works
        in a new copy of the folders.
        """
        original_session = await self.open_session(conversation)
        original = original_session.conversation.state
        fork_seq = last_seq or original.seq
        fork = new_conversation_id()

        copy_of_fork = await self._copy_name_if_there(original.own_copy)
        if in_copy:
            new_copy = await self.copies.create_copy(fork, with_changes=True, parent=copy_of_fork)
            copy_of_fork = new_copy.id

        journal = self.workspace.journal
        await journal.fork_conversation(conversation, fork_seq, fork)
        if agent:
            started = facts.ConversationStarted(
                forked_from=conversation, forked_at=fork_seq, agent=agent
            )
            await journal.append_to_journal(fork, [started])
        if copy_of_fork != original.own_copy:
            await journal.append_to_journal(fork, [facts.ConversationChanged(copy=copy_of_fork)])

        await self._meters.reread_rows_and_meters([fork])
        session = await self.open_session(fork)
        if not agent:
            await session.finish_new_fork(title)
        self._rows.update_row_meter(fork, session.context.next_request_meter())
        return session

    async def _copy_name_if_there(self, copy_name: str) -> str:
        """Return an empty string, for the workspace's own folders, if the copy was discarded or
        is on another machine.
        """
        copy = await asyncio.to_thread(self.copies.find_copy, copy_name)
        if copy is None:
            return ""
        return copy.id

    async def save_conversation_model(self, conversation: str, name: str) -> None:
        """Set one conversation's main model for good. An empty name means the workspace's again."""
        if name:
            self.models.model_by_name(name)
        session = await self.open_session(conversation)
        await self.append_conversation_model(session.conversation, name)

    async def append_conversation_model(self, conversation: Conversation, name: str) -> None:
        """Record an open conversation's main model, as `save_conversation_model` does."""
        await conversation.append_facts(facts.ConversationChanged(model=name))
        self._apply_conversation_model(conversation.id, name)

    def _apply_conversation_model(self, conversation: str, name: str) -> None:
        if name:
            self._model_by_conversation[conversation] = name
        else:
            self._model_by_conversation.pop(conversation, None)

    async def read_conversation_facts(self, conversation: str) -> Sequence[facts.Recorded]:
        """Return a conversation's facts, without opening a session if there is none."""
        session = self.sessions.find_open_session(conversation)
        if session is not None:
            return tuple(session.all_facts)
        return await self.workspace.journal.read_facts(conversation)

    async def read_newest_facts(
        self, conversation: str, *, also_if_open: bool = False
    ) -> Sequence[facts.Recorded]:
        """Return the newest messages of a long conversation, to be shown while it is being opened.

        Nothing is returned of a short one. One that is open already only has to be drawn, so nothing
        is returned of it either, unless its agent works, which can be stopped, or `also_if_open`.
        """
        session = self.sessions.find_open_session(conversation)
        rests_open = session is not None and not session.is_working
        if rests_open and not also_if_open:
            return ()
        journal = self.workspace.journal
        row = await journal.find_conversation(conversation)
        return await collect_newest_facts(partial(journal.read_facts, conversation), row.last_seq)

    def find_opening_session(self, conversation: str) -> Session | None:
        """Return a session that is open already, while its messages are being drawn."""
        return self.sessions.find_open_session(conversation)

    async def _create_conversation(
        self, started: facts.ConversationStarted, identity: str = ""
    ) -> str:
        """Record the first fact of a new conversation, and return the conversation's id."""
        conversation = identity or new_conversation_id()
        if started.acp_agent:
            # The name is recorded as the list of agents has it.
            connectable_agent = await self.acp.find_agent(started.acp_agent)
            started = replace(started, acp_agent=connectable_agent.agent.name)
        (recorded,) = await self.workspace.journal.append_to_journal(conversation, [started])
        self._rows.add_new_row(conversation, started, recorded.time)
        return conversation

    def _build_session(
        self, conversation: Conversation, *, depth: int = 0, allowed: Sequence[str] = ()
    ) -> Session:
        services = self._build_session_services(conversation, depth, allowed)
        conversation.listeners.append(self._on_event)
        folding = ConversationFolding(conversation, services, list_added_fold_strategies)
        return Session(conversation, services, folding)

    def _build_session_services(
        self, conversation: Conversation, depth: int, allowed_tools: Sequence[str]
    ) -> SessionServices:
        """Return all that a session uses of its workspace."""
        kit = self.copies.tools_of_copy(conversation.state.own_copy)
        toolbox = self._build_toolbox(conversation, kit, depth, allowed_tools)
        find_model_client = partial(self._model_client_for, conversation.id)
        find_limits = partial(self._limits_of_conversation, conversation.id)
        sum_spending_of_agents = partial(self.workforce.agents_spending, conversation.id)
        build_step_setup = partial(self._build_step_setup, conversation)
        build_expected_setup = partial(self._build_expected_setup, conversation)
        run_foreign_turn = None
        if conversation.state.acp_agent:
            run_foreign_turn = partial(self.acp.run_conversation_turn, conversation, kit, toolbox)
        return SessionServices(
            cache=self.workspace.cache,
            index=self.workspace.index,
            tokens=self.token_counter,
            clock=self._shared.access.clock,
            tools=toolbox,
            withheld=toolbox.withheld_definition_totals,
            run_hooks=self._run_event_hooks,
            turn_lease=self.sharing.hold_turn_lease,
            models=find_model_client,
            setup=build_step_setup,
            expected_setup=build_expected_setup,
            spawn=self.tasks.spawn_task,
            collect_file_changes=kit.collect_unfinished_changes,
            limits=find_limits,
            spent=self._rows.cost_today_and_ever,
            agents_spent=sum_spending_of_agents,
            run_foreign_turn=run_foreign_turn,
        )

    def _build_toolbox(
        self,
        conversation: Conversation,
        kit: WorkspaceTools,
        depth: int,
        allowed_tools: Sequence[str],
    ) -> Toolbox:
        """Return the tools of a conversation. `depth`: how many agents are above it."""
        other_tools = list(self.project.skill_tools())
        other_tools += self.planning.plan_tools(depth)
        other_tools += self.workforce.build_agent_tools()
        other_tools.append(self.copies.build_apply_tool())
        other_tools += fleet_tools.build_fleet_tools(self.workspace, self.claims)
        compact_entry = partial(self._compact_stored_entry, conversation.id)
        recall_history = partial(
            content_recall.recall_folded_messages,
            conversation.state,
            self.workspace.cache,
            self.token_counter,
        )
        tools_on_demand = self.project.build_tools_on_demand(
            conversation, self.token_counter, self.kit.finder
        )
        place_in_tree = self.workforce.place_in_tree(conversation.id, depth)
        return kit.build_toolbox(
            compact=compact_entry,
            history=recall_history,
            start_child=self.workforce.delegate_to_agent,
            place=place_in_tree,
            more=self._list_foreign_tools,
            allowed_tools=allowed_tools,
            on_demand=tools_on_demand,
            others=tuple(other_tools),
            guard=self.claims,
        )

    async def _compact_stored_entry(self, conversation: str, digest: Digest, purpose: str) -> str:
        """Have a model shorten a stored content to what is needed for `purpose`."""
        client = self._model_client_for(conversation, facts.ModelRole.FAST)
        if client is None:
            client = self._model_client_for(conversation, facts.ModelRole.MAIN)
        if client is None:
            raise InvalidInput("No model is available to shorten the content.")
        # The cost is added to the conversation's.
        session = await self.open_session(conversation)
        inquiry = session.folding.spending.build_model_inquiry()
        return await content_recall.compact_entry(
            self.workspace.cache, client, digest.hex, purpose, inquiry
        )

    def _turn_limits(self) -> TurnLimits:
        return system_prompt_and_settings.parse_turn_limits(self.workspace.settings.limits)

    def _limits_of_conversation(self, conversation: str) -> TurnLimits:
        """Return the limits of a turn, which a task of the fleet may lower."""
        return self.claims.limit_conversation_cost(conversation, self._turn_limits())

    async def _open_tools_of_copy(self, copy: FolderCopy) -> WorkspaceTools:
        return await _open_folder_tools(
            self.workspace, self._shared, self._permissions, copy.root_folders, copy
        )

    async def _run_event_hooks(
        self, event: str, conversation: str, values: Mapping[str, Any]
    ) -> HookOutcome:
        """Run the hooks for an event, and in a new copy the user's set-up command
        before them.
        """
        row = self._rows.find_row(conversation)
        if event == "Stop" and row is not None and row.parent:
            event = "SubagentStop"
        await self.project.reread_project_folders()
        set_up_text = ""
        if event == "SessionStart":
            # In a new copy, the user's set-up command runs before the hooks.
            set_up_text = await self.copies.run_set_up_command(conversation)
        outcome = await self.hooks.run_hooks_for_event(event, conversation, values)
        if not set_up_text:
            return outcome
        if not outcome.says:
            return replace(outcome, says=set_up_text)
        return replace(outcome, says=f"{set_up_text}\n{outcome.says}")

    async def request_as_sent(
        self, conversation: str, seq: int | None, request: Request
    ) -> tuple[str, Mapping[str, Any]]:
        """Return a step's model and request as the provider gets it. `seq`: None for
        the next one.
        """
        session = await self.open_session(conversation)
        model = self.model_of_conversation(conversation)
        return await self.models.request_body_as_sent(session, seq, request, model)

    # --- Sessions of sub-agents

    async def _create_subagent_session(
        self, started: facts.ConversationStarted, delegation: Delegation
    ) -> Session:
        """Create a sub-agent's conversation, and a session with what was delegated and no more."""
        agent = new_conversation_id()
        copy_name = self._copy_of_open_conversation(delegation.parent)
        if delegation.isolated or self.workspace.settings.copies.get("always"):
            copy = await self.copies.create_copy(agent, with_changes=True, parent=copy_name)
            copy_name = copy.id
        await self.copies.get_or_open_tools(copy_name)
        # The conversation's tools must be limited before anybody opens it.
        async with self.sessions.opening:
            await self._create_conversation(replace(started, copy=copy_name), agent)
            self.workforce.add_agent_to_tree(agent, delegation)
            role_file = self.workforce.roles.find_role_file(delegation.role)
            model = model_of_role(role_file, self.workspace.settings.models, self.models)
            if model:
                self._model_by_conversation[agent] = model
            conversation = await Conversation.open(self.workspace.journal, agent)
            session = self._build_session(
                conversation, depth=delegation.depth, allowed=delegation.tools
            )
            self.sessions.keep_session_open(session)
        return session

    # --- Importing conversations of other programs

    async def import_histories(
        self,
        files: Sequence[Path],
        *,
        preparation: SessionPreparation = SessionPreparation(),  # noqa: B008 - it cannot be changed
        report: history_imports.Report = ignore_progress,
        result: history_imports.ImportResult | None = None,
    ) -> history_imports.ImportResult:
        """Import conversations, or what is new in them. If stopped, it leaves whole
        ones, named in `result`.
        """
        if result is None:
            result = history_imports.ImportResult(history_imports.new_import_name())
        draft = await self.open_draft_session()
        expected_settings = draft.conversation.expected_state.settings
        history_import = history_imports.HistoryImport(
            self.workspace,
            self.token_counter,
            replace(preparation, settings=expected_settings),
            self.sessions.hold_conversation,
            result,
            self._is_reply_under_way,
        )
        try:
            return await history_import.import_files(files, report)
        finally:
            imported_ids = [conversation.id for conversation in history_import.result.imported]
            await self._meters.reread_rows_and_meters(set(imported_ids))
            self._tell_changed_rows(imported_ids)
            if imported_ids:
                self._on_event(session_events.ConversationReplaced(imported_ids[-1]))

    def _is_reply_under_way(self, conversation: str) -> bool:
        """Whether a connected agent waits for a reply there, or a foreign agent works in it."""
        if self.replies_under_way.is_reply_under_way(conversation):
            return True
        session = self.sessions.find_open_session(conversation)
        if session is None or not session.conversation.state.acp_agent:
            return False
        return not session.is_idle

    async def undo_import_run(self, run: str) -> tuple[int, list[str]]:
        """Undo what `history_imports.undo_import` can of an import, and update the list."""
        # Read before the undoing, which deletes conversations.
        import_facts = await self.workspace.journal.facts_about_imports()
        imported = {import_fact.conversation for import_fact in import_facts}
        try:
            return await history_imports.undo_import(
                self.workspace, run, self.sessions.hold_conversation
            )
        finally:
            await self._meters.reread_rows_and_meters(imported)
            self._tell_changed_rows(imported)

    def _tell_changed_rows(self, conversations: Iterable[str]) -> None:
        """Let all who show the list look at these rows again. Some may be there no more."""
        for conversation in conversations:
            self._on_event(session_events.MeterChanged(conversation))

    # --- Conversations that other machines write too, and forgetting

    async def reread_replaced_conversation(self, conversation: str) -> None:
        """Update the list after another machine created or continued a conversation
        that is not open here.
        """
        await self._meters.reread_rows_and_meters([conversation])
        self._on_event(session_events.ConversationReplaced(conversation))

    async def move_to_branch(self, conversation: str, branch: str) -> None:
        """Update the list after two machines wrote in a conversation: what was written
        here is now a branch.
        """
        await self._meters.reread_rows_and_meters([conversation, branch])
        self._on_event(session_events.ConversationReplaced(branch))
        await self.workspace.index.rebuild_in_background()

    async def forget_content(
        self, *, text: str = "", entries: Sequence[Digest] = (), report: Report = ignore_progress
    ) -> ForgetResult:
        """Remove a text or entries from the whole workspace for good. Sessions are paused and
        read changed facts again. Raises ActionRefused while one of them works.
        """
        async with (
            self.workspace.pause_sharing(),
            self.sessions.opening,
            self.sessions.hold_all_sessions_still(),
        ):
            outside_facts = 0
            if text:
                outside_facts += await asyncio.to_thread(self._partial.forget_text, text)
                if self._shared.pending_copies is not None:
                    has_text = TextForms(text).occurs_in_bytes
                    outside_facts += await asyncio.to_thread(
                        delete_failed_copies, self._shared.pending_copies, has_text
                    )
                outside_facts += self.queue_files.forget_text(text)
                outside_facts += await asyncio.to_thread(self._pending_questions.forget_text, text)
            changed_tasks, tasks_elsewhere = await forget_text_in_tasks(self.workspace, text)
            result = await self.workspace.forget_content(text=text, entries=entries, report=report)
            await self._meters.reread_rows_and_meters(result.conversations)
        return replace(
            result,
            facts=result.facts + changed_tasks,
            elsewhere=tuple(result.elsewhere) + tuple(tasks_elsewhere),
            outside_facts=result.outside_facts + outside_facts,
        )

    async def empty_conversation_trash(self, ids_instead: Collection[str] = ()) -> EmptyTrashResult:
        """Delete the trash, or only these, for good, with what only they use. Refused
        while a session works.
        """
        async with self.sessions.opening, self.sessions.hold_all_sessions_still():
            emptied = await self.workspace.delete_conversations_for_good(ids_instead)
        self._rows.remove_conversation_rows(emptied.conversations)
        await self.sessions.close_sessions(emptied.conversations)
        self.queue_files.delete_queues_of(emptied.conversations)
        self._tell_changed_rows(emptied.conversations)
        self.size_limit.count_cache_size_soon()
        return emptied

    async def take_back_new_conversation(self, conversation: str) -> None:
        """Delete a conversation that was started for something that could not be recorded."""
        if self.workspace.settings.shared.get("url"):
            return  # Other machines may have it already.
        await self.sessions.close_sessions([conversation])
        await self.workspace.delete_new_conversation(conversation)
        self._rows.remove_conversation_rows([conversation])
        self._tell_changed_rows([conversation])

    async def release_unused_conversations(self, names: Collection[str]) -> None:
        """Remove from this disk those that the shared store has completely and nobody works in."""
        async with self.workspace.pause_sharing(), self.sessions.opening:
            unused: list[str] = []
            for conversation in names:
                is_open = self.sessions.find_open_session(conversation) is not None
                is_claimed = self.claims.find_claim(conversation) is not None
                if not is_open and not is_claimed:
                    unused.append(conversation)
            released = await self.workspace.release_conversations(unused)
            self._rows.remove_conversation_rows(released)

    async def attach_content(self, name: str, content: bytes, media_type: str) -> facts.Attachment:
        """Store something that the user adds to a message."""
        origin = EntryOrigin("user", name, media_type)
        stored = await self.workspace.cache.store_content(content, origin)
        tokens = await self._count_stored_tokens(stored, content)
        return facts.Attachment(name, stored, tokens)

    async def attach_file(
        self, name: str, content: bytes, conversation: str = ""
    ) -> tuple[facts.Attachment, ...]:
        """Store a file that the user adds to a message: a text, a picture, or a document as its
        text. Raises InvalidInput for what the conversation's model cannot read.
        """
        files = FileAttachments(
            self.workspace.cache,
            self.token_counter.count_tokens,
            self._conversation_sees_pictures(conversation),
        )
        return await files.store_file(name, content)

    def _conversation_sees_pictures(self, conversation: str) -> bool:
        """Whether pictures can be sent. False only where it is known that they cannot."""
        if conversation:
            session = self.sessions.find_open_session(conversation)
            if session is not None and session.conversation.state.acp_agent:
                return True  # A foreign agent says itself which pictures it takes.
        with suppress(HelixError):
            model = self.models.model_by_name(self.model_of_conversation(conversation))
            return model.info.abilities.images
        return True

    async def count_sent_tokens(
        self,
        attachment: facts.Attachment,
        conversation: str = "",
        *,
        parts: Sequence[facts.UserPart] = (),
        instead_of: int = 0,
    ) -> int:
        """Return how many tokens are sent of an attachment. Of one that is too large, only an
        excerpt is sent.

        `conversation`: where it is sent, or an empty string for a new one. `parts`: the whole
        message. `instead_of`: an earlier message that it replaces.
        """
        session = self.sessions.find_open_session(conversation)
        if session is None:
            session = await self.open_draft_session()
        else:
            session.expect_setup(await self._build_expected_setup(session.conversation))
        return await session.context.count_sent_tokens(
            attachment, parts or (attachment,), instead_of=instead_of
        )

    async def _count_stored_tokens(self, stored: facts.Stored, content: bytes) -> int:
        if not stored.media_type.startswith("text/"):
            # Providers bill a picture as about this many tokens. Their usage reports
            # correct the figure.
            return 1_000
        return await asyncio.to_thread(
            estimate_entry_tokens, stored.size, content, self.token_counter.count_tokens
        )

    async def complete_file_paths(self, prefix: str, limit: int = 20) -> Sequence[str]:
        """Return paths below the workspace's folder that contain `prefix`, shortest first."""
        paths = await asyncio.to_thread(find_paths_below, self.main_folder, prefix.lower(), limit)
        roots = self.kit.resources.roots
        return [path for path in paths if not roots.is_hidden_inside(path)]

    async def change_settings(self, changes: Changes) -> None:
        """Change keys of workspace.toml and apply them to what is running."""
        mcp_servers_before = self.workspace.settings.mcp
        await asyncio.to_thread(self.workspace.change_settings, changes)
        permissions = system_prompt_and_settings.parse_permissions(self.workspace.settings)
        # Another mode, wherever it was chosen, ends the hour in which everything is allowed.
        if permissions.mode is not self._permissions.mode:
            self._permissions.allowance.end_hour()
        # Changed in place, because all tools, also those of copies, have this object.
        self._permissions.mode = permissions.mode
        self._permissions.rules = permissions.rules
        if self.workspace.settings.mcp != mcp_servers_before:
            await self.mcp_servers.apply_server_settings()
        self.file_changes.apply_checkpoint_settings()

    @property
    def policy_mistake(self) -> str:
        """Return what is wrong with the policy in workspace.toml, and what that means for connected
        agents. Empty if nothing is wrong. Each request of an agent asks for it, so that the same
        settings are checked once.
        """
        settings = self.workspace.settings
        if settings is not self._checked_settings:
            self._checked_settings = settings
            self._mistake_in_policy = system_prompt_and_settings.find_policy_mistake(settings)
        if not self._mistake_in_policy:
            return ""
        return f"{self._mistake_in_policy} Correct it in {self.workspace.settings_file} and open the workspace again. Until then, requests of connected agents are recorded and not shortened."

    @property
    def policy_name(self) -> str:
        return self.workspace.settings.preset or DEFAULT_PRESET

    @property
    def main_model_name(self) -> str:
        return self.workspace.settings.models.get("main", "")

    @property
    def permission_mode(self) -> str:
        if self._permissions.allowance.is_hour_running():
            return ALLOW_ALL_FOR_AN_HOUR
        return self._permissions.mode.value

    @property
    def everything_allowed_until(self) -> float:
        """Return when the hour in which everything is allowed ends, or 0."""
        if not self._permissions.allowance.is_hour_running():
            return 0.0
        return self._permissions.allowance.end_date

    def list_uses_allowed_in(self, conversations: Iterable[str]) -> Mapping[str, Sequence[str]]:
        """Return what rules allow in each of these conversations although the mode asks, as
        `list_uses_allowed_by_rules` names it. A name that is empty: in a new conversation.
        """
        # Who watches the settings is told before the tools have the new rules.
        saved = system_prompt_and_settings.parse_permissions(self.workspace.settings)
        allowed_uses: dict[str, Sequence[str]] = {}
        for conversation in conversations:
            own_rules = self._permissions.rules_by_conversation.get(conversation, ())
            allowed_uses[conversation] = list_uses_allowed_by_rules(
                saved.rules + own_rules,
                self._permissions.mode_in_force,
                sandboxed=self._permissions.sandboxed,
            )
        return allowed_uses

    def list_rules_by_conversation(self) -> Mapping[str, Sequence[Mapping[str, Any]]]:
        """Return what the user allowed for single conversations. It ends when the workspace is
        closed.
        """
        tables_by_conversation: dict[str, Sequence[Mapping[str, Any]]] = {}
        for conversation, rules in self._permissions.rules_by_conversation.items():
            tables_by_conversation[conversation] = [rule.as_rule_table() for rule in rules]
        return tables_by_conversation

    def remove_rule_of_conversation(self, conversation: str, rule: Mapping[str, Any]) -> None:
        """From now on, the user is asked again in this conversation before what the rule allows."""
        self._permissions.remove_rule_of_conversation(
            conversation, PermissionRule.parse_permission_rule(rule)
        )

    def list_programs_of_command(self, command: str) -> tuple[AskedProgram, ...]:
        """Return what a command line would start, where another process asks for it, as a task
        does.
        """
        action = ToolAction(
            ToolName.RUN_COMMAND, ActionEffect.RUN, title="", preview=command, command=command
        )
        return list_asked_programs(action, self._permissions.rules)

    @property
    def sandbox_kind(self) -> str:
        """Return "bubblewrap", "Landlock" or "none": what commands run in on this computer."""
        return self.copies.tools_of_copy("").sandbox.kind.value

    def describe_permission_modes(self) -> Mapping[str, str]:
        return {
            PermissionMode.READ_ONLY.value: "Read only",
            PermissionMode.PLAN.value: "Plan: change nothing until I approve a plan",
            PermissionMode.ASK.value: "Ask before changes and commands",
            PermissionMode.ALLOW_EDITS.value: "Allow edits, ask before commands",
            ALLOW_ALL_FOR_AN_HOUR: "Allow everything for an hour",
            PermissionMode.ALLOW_ALL.value: "Allow everything",
        }

    async def choose_context_policy(
        self, name: str, values: Mapping[str, Any] | None = None
    ) -> None:
        system_prompt_and_settings.build_policy_fact(name, values or {})
        await self.change_settings({"policy.preset": name, "policy.values": dict(values or {})})

    async def choose_model_for_role(self, name: str, role: str = "main") -> None:
        """Choose a `provider/model` for a role. An empty name leaves the role to the main model."""
        if role not in list(facts.ModelRole):
            raise InvalidInput(
                f"{role!r} is not a model role. Available: {', '.join(facts.ModelRole)}."
            )
        if name:
            self.models.model_by_name(name)
        await self.change_settings({f"models.{role}": name or None})

    def set_model_until_closed(self, conversation: str, name: str) -> None:
        """Set another main model for one conversation until the workbench closes."""
        self.models.model_by_name(name)
        self._model_by_conversation[conversation] = name

    def model_of_conversation(self, conversation: str) -> str:
        """Return the main model of a conversation, or an empty string if none is chosen."""
        return self._model_by_conversation.get(conversation) or self.main_model_name

    async def choose_permission_mode(self, name: str) -> None:
        if name == ALLOW_ALL_FOR_AN_HOUR:
            await self._allow_everything_for_an_hour()
            return
        self._permissions.mode = PermissionMode(name)
        self._permissions.allowance.end_hour()
        await self.change_settings({"permissions.mode": name})
        self._permissions.allow_what_chosen_mode_allows()

    async def _allow_everything_for_an_hour(self) -> None:
        """Allow everything without saving it. After the hour, the saved mode is in force again."""
        # The hour must end in a mode that asks.
        if self._permissions.mode is PermissionMode.ALLOW_ALL:
            await self.change_settings({"permissions.mode": PermissionMode.ASK.value})
        self._permissions.allowance.begin_hour()
        self._permissions.allow_what_chosen_mode_allows()
        self.workspace.notify_settings_watchers()
        self.tasks.spawn_task(
            self._notify_when_allowance_ends(), name="end of the hour that allows everything"
        )

    async def _notify_when_allowance_ends(self) -> None:
        """Let the window show the saved mode once the hour is over. It is looked at often, because
        a computer that slept wakes up after the end. No decision waits for this.
        """
        seconds_left = self.everything_allowed_until - time.time()
        while seconds_left > 0:
            await asyncio.sleep(min(seconds_left, SECONDS_BETWEEN_LOOKS_AT_ALLOWANCE))
            seconds_left = self.everything_allowed_until - time.time()
        self.workspace.notify_settings_watchers()

    async def attach_server_resource(self, server: str, uri: str) -> tuple[facts.Attachment, ...]:
        """Attach what a server offers to read: its text, its pictures and its documents."""
        mcp_server = await self.mcp_servers.find_server(server)
        resource = await mcp_server.fetch_resource(uri)
        attached: list[facts.Attachment] = []
        for media_type, picture in resource.images:
            attached.append(await self.attach_content(uri, picture, media_type))
        for name, content in resource.files:
            attached += await self.attach_file(name, content)
        if not attached:
            text = resource.text.encode("utf-8", "replace")
            attached.append(await self.attach_content(uri, text, "text/plain"))
        return tuple(attached)

    def _list_foreign_tools(self) -> Sequence[ForeignTool]:
        """Return the tools of the user's MCP servers and extensions, as they are now."""
        tools = list(self.mcp_servers.list_offered_server_tools())
        if self._shared.extensions is None:
            return tools
        # A rule for the tools of a server must not hold for those of an extension of its name.
        beginnings_of_servers = tuple(f"{name}__" for name in self.workspace.settings.mcp)
        for tool in self._shared.extensions.list_tools():
            if not tool.spec.name.startswith(beginnings_of_servers):
                tools.append(tool)
        return tools

    @property
    def opening_notes(self) -> Sequence[str]:
        """Return sentences about what was repaired at opening, and about unknown settings."""
        notes = list(self.workspace.notes)
        notes.extend(self.workspace.settings.warnings)
        notes.extend(filter(None, [self.policy_mistake]))
        notes.extend(self.copies.notes)
        if self._shared.extensions is not None:
            notes.extend(self._shared.extensions.complaints)
        return tuple(notes)

    def next_imported_question(self) -> ImportedQuestion | None:
        """Return what is to be asked next about an imported workspace, or None."""
        questions = list_imported_questions(self.workspace.settings.proposed)
        if not questions:
            return None
        return questions[0]

    async def decide_imported_question(self, question: ImportedQuestion, *, accept: bool) -> None:
        """Apply what this question asks for, or discard it. Folders that are not on this
        machine are left out.
        """
        undecided_settings = dict(self.workspace.settings.proposed)
        for key, value in question.settings.items():
            if undecided_settings.pop(key, None) != value:
                raise ActionRefused(
                    "The imported settings have changed since they were shown. Nothing was changed."
                )

        changes: dict[str, Any] = {}
        if accept:
            changes.update(question.settings)
        if "roots" in changes:
            folders = [str(folder) for folder in changes["roots"]]
            changes["roots"] = await asyncio.to_thread(_folders_on_this_machine, folders)

        if list_imported_questions(undecided_settings):
            changes["proposed"] = undecided_settings
        else:
            changes["proposed"] = None
        await self.change_settings(changes)

    def _model_client_for(self, conversation: str, role: facts.ModelRole) -> ModelClient | None:
        build_fold_writer = self._fold_writer_builders.get(conversation)
        if build_fold_writer is not None:
            # A connected agent has one model, which also writes its folds.
            if role is not facts.ModelRole.MAIN:
                return None
            return build_fold_writer(self._recorded_main_model(conversation))
        client: ModelClient | None
        model_name = self._model_by_conversation.get(conversation)
        if model_name and role is facts.ModelRole.MAIN:
            client = self.models.model_by_name(model_name)
        else:
            client = self.models.client_for_role(role)
        if isinstance(client, ChosenModel):
            conversations = (conversation, *self.conversations_above(conversation))
            return replace(client, conversations=conversations)
        return client

    def _recorded_main_model(self, conversation: str) -> str:
        """Return the main model of an open conversation as its facts name it, or an empty string."""
        session = self.sessions.find_open_session(conversation)
        if session is None:
            return ""
        model = session.conversation.state.settings.model_for_role(facts.ModelRole.MAIN)
        if model is None:
            return ""
        return model.model

    async def _build_step_setup(self, conversation: Conversation) -> ConversationSetup:
        await self.claims.ensure_may_act(conversation.id)
        self.copies.check_copy_is_there(conversation.state.own_copy)
        await self.copies.put_back_after_merge(conversation.state.own_copy)
        await self.models.update_local_model(
            self._model_by_conversation.get(conversation.id, ""), may_load=True
        )
        setup = await self._build_conversation_settings(conversation)
        hook_notes = self.hooks.pop_hook_notes(conversation.id)
        return replace(setup, notes=setup.notes + hook_notes)

    async def _build_expected_setup(self, conversation: Conversation) -> ConversationSetup:
        """Return what the next request will probably have, without loading a model for it."""
        await self.models.update_local_model(
            self._model_by_conversation.get(conversation.id, ""), may_load=False
        )
        return await self._build_conversation_settings(conversation)

    async def _build_conversation_settings(self, conversation: Conversation) -> ConversationSetup:
        """Build them with files read in a thread, because a disk may not answer."""
        settings = self.workspace.settings
        tokens = self.token_counter
        reading_system_prompt = asyncio.to_thread(
            self._build_system_prompt, settings, conversation.state.own_copy
        )
        reading_rules = self.project.rules_and_notes_for_step(
            conversation.id, conversation.state, tokens
        )
        system_prompt, (rules, notes) = await asyncio.gather(reading_system_prompt, reading_rules)
        notes_of_plan_mode = self.planning.plan_mode_notes()

        own_model = self._model_by_conversation.get(conversation.id, "")
        models: list[facts.ModelSet] = []
        for model in self.models.model_facts(own_model):
            chosen_model = system_prompt_and_settings.apply_model_choices(model, settings)
            models.append(chosen_model)

        role = self.workforce.roles.role_file_of(conversation.state)
        system = system_prompt_and_settings.system_prompt_for_role(system_prompt, role, tokens)
        policy = system_prompt_and_settings.policy_of_role(role, settings.preset, settings.policy)
        return ConversationSetup(
            system=system,
            policy=policy,
            models=tuple(models),
            rules=rules,
            notes=notes + notes_of_plan_mode,
        )

    def _build_system_prompt(self, settings: WorkspaceConfig, copy: str) -> facts.SystemSet:
        users_instructions = self._shared.instructions()
        roots: Sequence[str] = settings.roots
        if copy:
            folders_of_copy = self.copies.tools_of_copy(copy).resources.roots.folders
            roots = [str(folder) for folder in folders_of_copy]
        return build_system_prompt(
            self.name, roots, self.token_counter, users_instructions, settings.instructions
        )

    def _on_event(self, event: session_events.Event) -> None:
        """Update what depends on an event, and pass it on to all who listen."""
        self._partial.update_partial_reply(event)
        self._pending_questions.update_pending_questions(event)
        self.queue_files.update_queue_file(event)
        match event:
            case session_events.FactAppended():
                self._update_after_fact(event.recorded)
            case (
                session_events.ActivityChanged()
                | session_events.MessagesQueued()
                | session_events.FoldProgress()
            ):
                session = self.sessions.find_open_session(event.conversation)
                if session is not None:
                    self.sessions.keep_session_open(session)
            case session_events.MeterChanged():
                self._meters.update_shown_meter(event.conversation)
        self.sharing.send_soon_after_fact(event)
        self.hooks.run_observing_hooks(event, self.tasks.spawn_task)
        for listener in tuple(self._listeners):
            listener(event)

    def _update_after_fact(self, recorded: facts.Recorded) -> None:
        """Update the rows, the tools and the sub-agents after a fact was appended."""
        self._meters.update_row_after_fact(recorded)
        fact = recorded.fact
        if isinstance(fact, facts.FilesChanged):
            own_copy = self._copy_of_open_conversation(recorded.conversation)
            self.copies.tools_of_copy(own_copy).forget_recorded_change(fact)
            if own_copy:
                self.tasks.spawn_task(
                    self._update_rows_of_changed_copy(own_copy), name="find overlaps"
                )
        self.workforce.notify_after_step_of_agent(recorded)
        if hasattr(fact, "usage"):
            # The cost of the conversations above includes what was paid here.
            for conversation_above in self._rows.ids_above(recorded.conversation):
                self._on_event(session_events.MeterChanged(conversation_above))

    async def _update_rows_of_changed_copy(self, own_copy: str) -> None:
        """Show in the rows of all copies which of them have changed the same files."""
        await self.copies.refresh_changed_files(own_copy)
        for row in tuple(self._rows):
            if row.id in self.copies.labels:
                self._on_event(session_events.MeterChanged(row.id))


@dataclass(frozen=True, slots=True)
class _SettingsForTools:
    """What tools ask of the workspace's present settings. `borrowed`: folders with git objects of
    the original, which commands in a copy also read.
    """

    workspace: StoredWorkspace
    borrowed: tuple[str, ...]

    def command_openings(self) -> CommandOpenings:
        settings = self.workspace.settings
        readable_folders = list(settings.readable)
        for folder in self.borrowed:
            # An agent in the user's folders may have put a link in the place of git's folder.
            if not Path(folder).is_symlink() and not Path(folder).parent.is_symlink():
                readable_folders.append(folder)
        return CommandOpenings(settings.openings, tuple(readable_folders))

    def hidden_patterns(self) -> tuple[str, ...]:
        return system_prompt_and_settings.parse_hidden_patterns(self.workspace.settings)


async def _open_folder_tools(
    workspace: StoredWorkspace,
    shared: ProgramDependencies,
    permissions: WorkspacePermissions,
    roots: Sequence[Path],
    copy: FolderCopy | None = None,
) -> WorkspaceTools:
    """Open the tools for these folders. `copy`: if they are of a copy, which also reads
    git objects of the repository that it was made from.
    """
    object_folders: list[str] = []
    if copy is None:
        # This folder is open even though it is inside a closed one.
        opened_folder = shared.sample
        checkpoints = _build_checkpoints_of_workspace(workspace, roots, shared.closed)
    else:
        opened_folder = copy.folder
        checkpoints = _build_checkpoints_of_copy(workspace, roots, copy)
        for repository in copy.repositories:
            object_folders.extend(repository.objects)
    checkpoints.record_changes = partial(_record_interrupted_changes, workspace)
    settings = _SettingsForTools(workspace, tuple(object_folders))
    options = WorkspaceToolOptions(
        closed_paths=shared.closed,
        sample_folder=opened_folder,
        offers_fetch=shared.fetching,
        caches=workspace.folder / "builds",
        opened=settings.command_openings,
        hidden=settings.hidden_patterns,
    )

    stores = (workspace.cache, workspace.index, shared.access.tokens)
    owner = concurrency.OwnedTasks(f"{workspace.name} commands")
    return await WorkspaceTools.open_workspace_tools(
        roots,
        stores,
        permissions=permissions,
        spawn=owner.spawn_task,
        options=options,
        checkpoints=checkpoints,
    )


def _build_checkpoints_of_workspace(
    workspace: StoredWorkspace, roots: Sequence[Path], closed_folders: Sequence[Path]
) -> Checkpoints:
    return Checkpoints(
        [root.resolve() for root in roots],
        workspace.cache,
        file=workspace.folder / known_state_file.NAME,
        stores=workspace.folder,
        steps_file=workspace.folder / interrupted_steps.NAME,
        coverage=system_prompt_and_settings.parse_coverage(workspace.settings.changes),
        closed=closed_folders,
    )


def _build_checkpoints_of_copy(
    workspace: StoredWorkspace, roots: Sequence[Path], copy: FolderCopy
) -> Checkpoints:
    """Build the checkpoints of a copy. They keep no known state of its files on the disk."""
    coverage = system_prompt_and_settings.parse_coverage(workspace.settings.changes)
    return Checkpoints(
        [root.resolve() for root in roots],
        workspace.cache,
        file=None,
        stores=workspace.folder,
        steps_file=copy.folder / interrupted_steps.NAME,
        # Changes to a copy are found by its checkpoints, so they are never off.
        coverage=replace(coverage, off=False),
        closed=(),
    )


async def _record_interrupted_changes(
    workspace: StoredWorkspace, conversation: str, changes: facts.FilesChanged
) -> None:
    """Append what a step had changed when the program was killed, unless that is recorded."""
    bench = workbench_of(workspace)
    if bench is None:
        return
    with suppress(NotFound):  # The conversation may have been deleted meanwhile.
        await bench.sharing.fetch_before_recording(conversation)
        for recorded in await bench.read_conversation_facts(conversation):
            earlier_changes = recorded.fact
            if not isinstance(earlier_changes, facts.FilesChanged):
                continue
            is_same_call = earlier_changes.call == changes.call
            # It was recorded just before the program was killed.
            if is_same_call and earlier_changes.difference.digest == changes.difference.digest:
                return
        await bench.file_changes.append_change_fact(conversation, changes)


def _folders_on_this_machine(folders: Sequence[str]) -> list[str]:
    return [folder for folder in folders if Path(folder).is_dir()]


def _is_resting(session: Session | None) -> bool:
    """Whether no turn runs in a conversation. It is not open if it has no session."""
    if session is None:
        return True
    activity = session_events.ConversationActivity
    return session.running in (activity.IDLE, activity.FAILED)


def find_paths_below(folder: Path, wanted: str, limit: int) -> list[str]:
    """Return paths containing `wanted`, shortest first, of the first 20,000 that are not hidden."""
    matching_paths: list[str] = []
    folders_to_list = [folder]
    path_count = 0
    # Folders near the top are listed first, because their paths are the shortest.
    while folders_to_list and path_count < MOST_LISTED_PATHS and len(matching_paths) < limit * 5:
        next_folder = folders_to_list.pop(0)
        try:
            paths = sorted(next_folder.iterdir())
        except OSError:  # It cannot be read.
            continue
        path_count += len(paths)
        for path in paths:
            if not _may_be_mentioned(path):
                continue
            if path.is_dir():
                folders_to_list.append(path)
            relative_path = path.relative_to(folder).as_posix()
            if wanted in relative_path.lower():
                matching_paths.append(relative_path)
    matching_paths.sort()
    matching_paths.sort(key=len)
    return matching_paths[:limit]


def _may_be_mentioned(path: Path) -> bool:
    if path.name.startswith(".") or path.is_symlink():
        return False
    # Nobody mentions what an interpreter compiled.
    return path.name != "__pycache__" and path.suffix != ".pyc"
