"""Opens workspaces for the gateway when they are first requested, here or where they
are already open.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from helix_desktop import concurrency, running_instance
from helix_desktop.errors import NotFound, StoreBusy
from helix_desktop.gateway.conversations_port import AgentConversations, AskAgentModel
from helix_desktop.gateway.local_conversations import LocalAgentConversations
from helix_desktop.gateway.remote_conversations import RemoteAgentConversations
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.store.all_workspaces import AllWorkspaces
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.all_workbenches import WorkspaceService, open_single_workbench

USUAL_WORKSPACE_NAME = "Connected agents"
OPEN_TIMEOUT_SECONDS = 5.0  # Long enough for a command that uses the workspace only for a moment.
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
        self._conversations_by_id: dict[str, AgentConversations] = {}
        self._ids_by_name: dict[str, str] = {}  # Ids of open workspaces, by requested name.
        self._stacks_by_id: dict[
            str, AsyncExitStack
        ] = {}  # Closes each workspace, least recently used first.
        self._request_counts: Counter[str] = Counter()  # How many requests use each workspace.
        self._lock = asyncio.Lock()
        self._tasks = concurrency.OwnedTasks("workspaces of the gateway")
        self._ask = ask

    async def open_usual_if_known(self) -> None:
        """Open it before the first request, if it exists. It is only created for a
        request, as lists show it.
        """
        await asyncio.to_thread(
            self._known.find_known_workspace, self._usual or USUAL_WORKSPACE_NAME
        )
        async with self.hold_workspace_open(""):
            pass

    @asynccontextmanager
    async def hold_workspace_open(self, name: str) -> AsyncIterator[AgentConversations]:
        """Yield a workspace's engine, which stays open meanwhile. Without a name, the
        usual workspace.
        """
        wanted = name or self._usual or USUAL_WORKSPACE_NAME
        room = await self._find_or_open_conversations(wanted)
        identity = self._ids_by_name[wanted]
        self._request_counts[identity] += 1
        if (stack := self._stacks_by_id.pop(identity, None)) is not None:
            self._stacks_by_id[identity] = stack
        try:
            yield room
        finally:
            self._request_counts[identity] -= 1
            if len(self._stacks_by_id) > OPEN_AT_MOST:
                self._tasks.spawn_task(self._close_idle_workspaces(), name="close idle workspaces")

    async def _close_idle_workspaces(self) -> None:
        async with self._lock:
            idle = [
                identity for identity in self._stacks_by_id if not self._request_counts[identity]
            ]
            for identity in idle[: max(0, len(self._stacks_by_id) - OPEN_AT_MOST)]:
                room, stack = (
                    self._conversations_by_id.pop(identity, None),
                    self._stacks_by_id.pop(identity),
                )
                _released.pop(identity, None)
                if room is not None:
                    await room.aclose()
                await stack.aclose()

    async def _find_or_open_conversations(self, workspace: str) -> AgentConversations:
        found = self._conversations_by_id.get(self._ids_by_name.get(workspace, ""))
        if found is not None and not (
            isinstance(found, RemoteAgentConversations) and found.is_ended
        ):
            return found
        async with self._lock:
            identity = await self._find_workspace_id(workspace)
            found = self._conversations_by_id.get(identity)
            if found is None or (isinstance(found, RemoteAgentConversations) and found.is_ended):
                found = self._conversations_by_id[identity] = await self._open_here_or_connect(
                    identity
                )
            self._ids_by_name[workspace] = identity
        return found

    def list_open_conversations(self) -> tuple[AgentConversations, ...]:
        return tuple(self._conversations_by_id.values())

    async def _find_workspace_id(self, name_or_id: str) -> str:
        try:
            return (await asyncio.to_thread(self._known.find_known_workspace, name_or_id)).id
        except NotFound:
            if name_or_id != USUAL_WORKSPACE_NAME:
                raise
            return (
                await asyncio.to_thread(self._known.create_stored_workspace, USUAL_WORKSPACE_NAME)
            ).id

    async def _open_here_or_connect(self, identity: str) -> AgentConversations:
        until = asyncio.get_running_loop().time() + OPEN_TIMEOUT_SECONDS
        while True:
            try:
                return await self._open_in_this_process(identity)
            except StoreBusy:
                if (
                    wire := await running_instance.connect_to_owner(self._where.run, identity)
                ) is not None:
                    room = RemoteAgentConversations(wire, self._ask)
                    if await room.serves_agents():
                        return room
                if asyncio.get_running_loop().time() > until:
                    raise
                await asyncio.sleep(0.1)

    async def _open_in_this_process(self, identity: str) -> AgentConversations:
        async with AsyncExitStack() as undo:
            workspace = await self._known.open_stored_workspace(identity)
            undo.push_async_callback(workspace.aclose)
            bench = await undo.enter_async_context(open_single_workbench(workspace, self._where))
            if (serving := await self._serve(workspace)) is not None:
                undo.push_async_callback(serving.finish_requests)
            self._stacks_by_id[identity] = undo.pop_all()
        counting = asyncio.to_thread(bench.token_counter.count_tokens, USUAL_WORKSPACE_NAME)
        self._tasks.spawn_task(counting, name="load the vocabulary")
        _released[identity] = lambda: self._tasks.spawn_task(
            self._close_for_other_process(identity), name="let a workspace go"
        )
        return LocalAgentConversations(bench, self._ask)

    async def _close_for_other_process(self, identity: str) -> None:
        """Close a workspace because another process, such as the window, wants to open it."""
        async with self._lock:
            self._conversations_by_id.pop(identity, None)
            if (stack := self._stacks_by_id.pop(identity, None)) is not None:
                await stack.aclose()
            await asyncio.sleep(running_instance.GIVEN_WAY_SECONDS)

    async def aclose(self) -> None:
        await self._tasks.aclose(limit=2)
        for room in self._conversations_by_id.values():
            await room.aclose()
        for stack in self._stacks_by_id.values():
            await stack.aclose()


_released: dict[str, Callable[[], object]] = {}


def set_release_handler(workspace: str, release: Callable[[], object]) -> Callable[[], object]:
    """Call `release` when another process wants the workspace; it may raise
    ActionRefused. Call the result once closed.
    """
    _released[workspace] = release
    return lambda: _released.pop(workspace, None)


def close_for_other_process(workspace: str) -> int:
    """Close a workspace that a gateway or worker here has open, for another process.
    Return the exit code.
    """
    if (release := _released.get(workspace)) is None:
        return 1
    release()
    _released.pop(workspace, None)
    return 0
