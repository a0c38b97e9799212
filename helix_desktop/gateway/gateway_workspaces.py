"""Opens workspaces for the gateway when they are first requested, here or where they
are already open.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

from helix_desktop import concurrency, running_instance
from helix_desktop.console import QuietConsole
from helix_desktop.errors import HelixError, NotFound, StoppedByUser, StoreBusy
from helix_desktop.gateway.conversations_port import AgentConversations, AskAgentModel
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.moving_conversations import MovingConversations
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.all_workbenches import WorkspaceService, open_single_workbench
from helix_desktop.workbench.open_questions import FOLDER, OpenQuestions
from helix_desktop.workbench.unread_requests import unread_requests_of_workspace

USUAL_WORKSPACE_NAME = "Connected agents"
OPEN_TIMEOUT_SECONDS = 5.0  # Long enough for a command that uses the workspace only for a moment.
# A workspace that was open until now is waited for longer: on a busy computer, who opens it next may need
# some time, and what is not recorded meanwhile is recorded only with the agent's next request.
REOPEN_TIMEOUT_SECONDS = 15.0
OPEN_PAUSE_SECONDS = 0.1  # The pause before another try.
# A window that wants a workspace waits this long for what is being recorded in it.
RECORDING_END_SECONDS = 2.0
OPEN_AT_MOST = 8  # If more workspaces than this are open, unused ones are closed.
ServeWorkspaceCommands = Callable[[StoredWorkspace], Awaitable[WorkspaceService | None]]


class GatewayWorkspaces:
    """Opens workspaces when first requested, here or where they are open. Few stay open unused."""

    def __init__(
        self, where: ProgramFolders, usual: str, serve: ServeWorkspaceCommands, ask: AskAgentModel
    ) -> None:
        self._where = where
        self._usual = usual
        self._serve = serve
        self._known = AllWorkspaces(where.workspaces_folder)
        self._is_closing = False
        # Where each workspace is open now, and what requests get, which follows it.
        self._conversations_by_id: dict[str, AgentConversations] = {}
        self._moving_conversations_by_id: dict[str, MovingConversations] = {}
        self._ids_by_name: dict[str, str] = {}  # Ids of open workspaces, by requested name.
        # Closes each workspace, least recently used first.
        self._stacks_by_id: dict[str, AsyncExitStack] = {}
        self._request_counts: Counter[str] = Counter()  # How many requests use each workspace.
        self._lock = asyncio.Lock()
        self._tasks = concurrency.OwnedTasks("workspaces of the gateway")
        self._ask = ask

    async def open_usual_if_known(self) -> None:
        """Open the usual workspace before the first request. Raises NotFound if there is none:
        it is created only for a request, since lists would show it.
        """
        usual_name = self._usual or USUAL_WORKSPACE_NAME
        await asyncio.to_thread(self._known.find_known_workspace, usual_name)
        async with self.hold_workspace_open(""):
            pass

    @asynccontextmanager
    async def hold_workspace_open(self, name: str) -> AsyncIterator[AgentConversations]:
        """Yield the conversations of a workspace, which is opened if it is not open, and stays
        open meanwhile, here or in a window. Without a name, this is the usual workspace.
        """
        requested_name = name or self._usual or USUAL_WORKSPACE_NAME
        await self._find_or_open_conversations(requested_name, OPEN_TIMEOUT_SECONDS)
        identity = self._ids_by_name[requested_name]
        self._request_counts[identity] += 1
        stack = self._stacks_by_id.pop(identity, None)
        if stack is not None:  # Put back at the end, as the one used last.
            self._stacks_by_id[identity] = stack
        try:
            yield self._moving_conversations_by_id[identity]
        finally:
            self._request_counts[identity] -= 1
            if len(self._stacks_by_id) > OPEN_AT_MOST:
                self._tasks.spawn_task(self._close_idle_workspaces(), name="close idle workspaces")

    async def _close_idle_workspaces(self) -> None:
        """Close the workspaces that were used longest ago, if too many are open."""
        async with self._lock:
            idle: list[str] = []
            for identity in self._stacks_by_id:
                if not self._request_counts[identity]:
                    idle.append(identity)
            too_many = max(0, len(self._stacks_by_id) - OPEN_AT_MOST)
            for identity in idle[:too_many]:
                conversations = self._conversations_by_id.pop(identity, None)
                stack = self._stacks_by_id.pop(identity)
                _release_handlers.pop(identity, None)
                if conversations is not None:
                    await conversations.aclose()
                await stack.aclose()

    async def _find_conversations_again(self, identity: str) -> AgentConversations:
        """Return the conversations of a workspace that was open, wherever it is now."""
        return await self._find_or_open_conversations(identity, REOPEN_TIMEOUT_SECONDS)

    async def _find_or_open_conversations(
        self, workspace: str, most_seconds: float
    ) -> AgentConversations:
        """Return a workspace's conversations, which are opened if they are not open yet."""
        if self._is_closing:
            raise StoppedByUser("The gateway is closing.")
        known_identity = self._ids_by_name.get(workspace, "")
        conversations = self._get_live_conversations(known_identity)
        if conversations is not None:
            return conversations
        # Only one is opened at a time, so that two requests do not open the same one twice.
        async with self._lock:
            identity = await self._find_workspace_id(workspace)
            conversations = self._get_live_conversations(identity)
            if conversations is None:
                conversations = await self._open_here_or_connect(identity, most_seconds)
                self._conversations_by_id[identity] = conversations
            if identity not in self._moving_conversations_by_id:
                find_open_conversations = partial(self._find_conversations_again, identity)
                folder = self._where.workspaces_folder / identity
                questions = OpenQuestions(folder / FOLDER)
                unread_requests = unread_requests_of_workspace(folder)
                moving_conversations = MovingConversations(
                    find_open_conversations, questions, unread_requests
                )
                self._moving_conversations_by_id[identity] = moving_conversations
            self._ids_by_name[workspace] = identity
        return conversations

    def _get_live_conversations(self, identity: str) -> AgentConversations | None:
        """Return a workspace's conversations unless the process that had it open has ended."""
        conversations = self._conversations_by_id.get(identity)
        if isinstance(conversations, RemoteAgentConversations) and conversations.is_ended:
            return None
        return conversations

    def list_open_conversations(self) -> tuple[AgentConversations, ...]:
        open_conversations: list[AgentConversations] = []
        for identity in self._conversations_by_id:
            if self._get_live_conversations(identity) is not None:
                open_conversations.append(self._moving_conversations_by_id[identity])
        return tuple(open_conversations)

    async def _find_workspace_id(self, name_or_id: str) -> str:
        """Return a workspace's id. The usual one is created if it does not exist yet."""
        try:
            workspace = await asyncio.to_thread(self._known.find_known_workspace, name_or_id)
        except NotFound:
            if name_or_id != USUAL_WORKSPACE_NAME:
                raise
            workspace = await asyncio.to_thread(
                self._known.create_stored_workspace, USUAL_WORKSPACE_NAME
            )
        return workspace.id

    async def _open_here_or_connect(self, identity: str, most_seconds: float) -> AgentConversations:
        """Open a workspace in this process, or connect to the process that has it open.

        A command has a workspace only for a moment, and serves no agents: it is waited for. The MCP
        server that an agent has started itself has it until the agent ends, and lets go of it.
        """
        give_up_at = asyncio.get_running_loop().time() + most_seconds
        while True:
            try:
                return await self._open_in_this_process(identity)
            except StoreBusy:
                owner = await running_instance.connect_to_owner(self._where.run, identity)
                if owner is not None:
                    conversations = RemoteAgentConversations(owner, self._ask)
                    if await conversations.serves_agents():
                        return conversations
                    await self._ask_to_let_go(identity)
                if asyncio.get_running_loop().time() > give_up_at:
                    raise
                await asyncio.sleep(OPEN_PAUSE_SECONDS)

    async def _ask_to_let_go(self, identity: str) -> None:
        """Ask the process that has a workspace open to be a client of this one instead, if it serves
        a client that can go on anywhere.
        """
        with suppress(HelixError, OSError):
            owner = await running_instance.connect_to_owner(self._where.run, identity)
            if owner is not None:
                release = ["gateway", "--release"]
                await running_instance.run_at_owner(owner, release, QuietConsole())

    async def _open_in_this_process(self, identity: str) -> AgentConversations:
        """Open a workspace here, and serve the commands that other processes send to it."""
        # If a step fails, the stack undoes those before it. Else it is kept, to close the
        # workspace later.
        async with AsyncExitStack() as closing:
            workspace = await self._known.open_stored_workspace(identity)
            closing.push_async_callback(workspace.aclose)
            opening = open_single_workbench(workspace, self._where, holds_questions=True)
            bench = await closing.enter_async_context(opening)
            serving = await self._serve(workspace)
            if serving is not None:
                closing.push_async_callback(serving.finish_requests)
            self._stacks_by_id[identity] = closing.pop_all()

        # The first text that is counted loads the vocabulary, so that no request waits for it.
        counting = asyncio.to_thread(bench.token_counter.count_tokens, USUAL_WORKSPACE_NAME)
        self._tasks.spawn_task(counting, name="load the vocabulary")
        _release_handlers[identity] = partial(self._begin_to_close, identity)
        return LocalAgentConversations(bench, self._ask)

    def _begin_to_close(self, identity: str) -> None:
        closing = self._close_for_other_process(identity)
        self._tasks.spawn_task(closing, name="let a workspace go")

    async def _close_for_other_process(self, identity: str) -> None:
        """Close a workspace because another process, such as the window, wants to open it."""
        async with self._lock:
            conversations = self._conversations_by_id.pop(identity, None)
            if conversations is not None:
                await self._finish_recording(identity, conversations)
            stack = self._stacks_by_id.pop(identity, None)
            if stack is not None:
                await stack.aclose()
            await asyncio.sleep(running_instance.GIVEN_WAY_SECONDS)

    async def _finish_recording(self, identity: str, conversations: AgentConversations) -> None:
        """Wait for what is being recorded. What takes longer goes on in the other process, as far
        as a request is still under way, and else with the next request.
        """
        moving_conversations = self._moving_conversations_by_id[identity]
        with suppress(TimeoutError):
            async with asyncio.timeout(RECORDING_END_SECONDS):
                await moving_conversations.wait_for_calls(conversations)
                await conversations.aclose()

    async def aclose(self) -> None:
        self._is_closing = True
        await self._tasks.aclose(limit=2)
        for conversations in self._conversations_by_id.values():
            await conversations.aclose()
        for stack in self._stacks_by_id.values():
            await stack.aclose()


_release_handlers: dict[str, Callable[[], object]] = {}  # By workspace.


def set_release_handler(workspace: str, release: Callable[[], object]) -> Callable[[], object]:
    """Call `release` when another process wants the workspace; it may raise
    ActionRefused. Call the result once closed.
    """
    _release_handlers[workspace] = release
    return lambda: _release_handlers.pop(workspace, None)


def close_for_other_process(workspace: str) -> int:
    """Close a workspace that a gateway or worker here has open, for another process.
    Return the exit code.
    """
    release = _release_handlers.get(workspace)
    if release is None:
        return 1
    release()
    _release_handlers.pop(workspace, None)
    return 0
