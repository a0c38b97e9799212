"""The hosts of all workspaces that some process has open, and what is followed in them for the page.

Conversations are followed once, however many devices look at them. A workspace that nobody has open
is opened by a process of its own, which goes on when the page ends, and gives way to the window.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from functools import partial

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError, NotFound
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.workspace_host.followed_conversation import FollowedConversation
from helix_desktop.workspace_host.host_connection import connect_to_host
from helix_desktop.workspace_host.host_interface import (
    ConversationFollower,
    HostListRow,
    ListFollower,
    WorkspaceHost,
)
from helix_desktop.workspace_host.kept_host import HostStarter

log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
VIEWER_SECONDS = 15.0  # A page that is open says again and again that it is.
MOST_WATCHED = 8  # Conversations that stay followed, although nobody looks at them now.


class ChangeSignal:
    """Wakes all who wait for the next change."""

    def __init__(self) -> None:
        self.version = 0
        self._next = asyncio.Event()

    def announce_change(self) -> None:
        self.version += 1
        self._next.set()
        self._next = asyncio.Event()

    async def wait_for_later_version(self, seen_version: int, seconds: float) -> None:
        """Returns when there is a later version, or after so many seconds."""
        if self.version != seen_version:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._next.wait()


class WatchedConversation:
    """A conversation as the page shows it, kept up to date while its host lives."""

    def __init__(self) -> None:
        self.shown = FollowedConversation()
        self.changed = ChangeSignal()
        self.error: HelixError | None = None
        self.watchers = 0  # Pages that are open at a device.
        self._task: asyncio.Task[None] | None = None

    def start_following_host(
        self, tasks: OwnedTasks, host: WorkspaceHost, conversation: str
    ) -> None:
        work = self.follow_until_host_ends(host, conversation)
        self._task = tasks.spawn_task(work, name="follow a conversation")

    def stop_following_host(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def follow_until_host_ends(self, host: WorkspaceHost, conversation: str) -> None:
        try:
            follower = await host.follow_conversation(conversation)
            try:
                await self._apply_events_until_cancelled(follower)
            finally:
                await follower.close_follower()
        except HelixError as error:
            self.error = error
            self.changed.announce_change()

    async def _apply_events_until_cancelled(self, follower: ConversationFollower) -> None:
        while True:
            for event in await follower.next_events():
                self.shown.apply_event(event)
            self.changed.announce_change()


class ConnectedWorkspace:
    """A workspace that some process has open, with the rows of its list."""

    def __init__(self, known: KnownWorkspace, host: WorkspaceHost) -> None:
        self.known = known
        self.host = host
        self.rows: dict[str, HostListRow] = {}
        self.watched: dict[str, WatchedConversation] = {}

    def take_rows(self, rows: Sequence[HostListRow]) -> None:
        for listed in rows:
            if listed.is_deleted:
                self.rows.pop(listed.row.id, None)
            else:
                self.rows[listed.row.id] = listed

    def stop_following_unwatched(self) -> None:
        """Stops following conversations that nobody has looked at for longest."""
        surplus = max(0, len(self.watched) - MOST_WATCHED)
        # What was looked at last stands at the end.
        longest_unseen = list(self.watched.items())[:surplus]
        for conversation, watched in longest_unseen:
            if watched.watchers == 0:
                del self.watched[conversation]
                watched.stop_following_host()


class OpenHosts:
    """`command` starts this program."""

    def __init__(self, places: ProgramFolders, command: Sequence[str]) -> None:
        self._places = places
        self._command = list(command)
        self._known = AllWorkspaces(places.workspaces_folder)
        self._connected: dict[str, ConnectedWorkspace] = {}
        self._tasks = OwnedTasks("page for phones")
        self._connecting = asyncio.Lock()
        self.list_changed = ChangeSignal()
        self._is_looked_at = asyncio.Event()
        self._looked_at_until = 0.0

    def start_looking(self) -> None:
        self._tasks.spawn_task(self._look_until_cancelled(), name="look for open workspaces")

    async def aclose(self) -> None:
        await self._tasks.aclose(limit=2)
        for workspace in list(self._connected.values()):
            await workspace.host.close_host()

    def connected_workspaces(self) -> Mapping[str, ConnectedWorkspace]:
        return self._connected

    def get_connected(self, workspace: str) -> ConnectedWorkspace:
        connected = self._connected.get(workspace)
        if connected is None:
            raise NotFound("This workspace is not open now.", remedy="Open it from the list.")
        return connected

    async def list_closed_workspaces(self) -> Sequence[KnownWorkspace]:
        known_workspaces = await asyncio.to_thread(self._known.list_workspaces)
        return [known for known in known_workspaces if known.id not in self._connected]

    async def connect_to_open_workspaces(self) -> None:
        """Connects to those that have been opened since."""
        async with self._connecting:
            for known in await self.list_closed_workspaces():
                try:
                    host = await connect_to_host(self._places.run, known.id)
                except HelixError as error:
                    log.info("a workspace could not be reached: %s", error.what)
                    continue
                if host is not None:
                    await self._follow_list_of(ConnectedWorkspace(known, host))

    async def _follow_list_of(self, connected: ConnectedWorkspace) -> None:
        """Adds a workspace with all its rows, and keeps them up to date from then on."""
        try:
            follower = await connected.host.follow_list()
            connected.take_rows(await follower.next_rows())
        except HelixError as error:
            log.info("a workspace was closed while it was read: %s", error.what)
            await connected.host.close_host()
            return
        except asyncio.CancelledError:  # The page ends, and nobody else knows of this connection.
            await connected.host.close_host()
            raise
        self._connected[connected.known.id] = connected
        self.list_changed.announce_change()
        self._tasks.spawn_task(
            self._keep_rows_up_to_date(connected, follower), name="follow a list"
        )

    async def open_in_own_process(self, workspace: str) -> None:
        """Has a process open a workspace that nobody has open, and waits until it answers."""
        known = await asyncio.to_thread(self._known.find_known_workspace, workspace)
        await self.connect_to_open_workspaces()
        if known.id in self._connected:
            return
        starter = HostStarter(self._places.run, known.id, self._command)
        host = await starter.connect_or_start(partial(connect_to_host, self._places.run, known.id))
        async with self._connecting:
            if known.id in self._connected:  # Somebody else was faster.
                await host.close_host()
            else:
                await self._follow_list_of(ConnectedWorkspace(known, host))

    def watch_conversation(
        self, connected: ConnectedWorkspace, conversation: str
    ) -> WatchedConversation:
        """Returns what is followed already, or begins to follow it."""
        # Taken out and put back, so that it stands at the end as the one looked at last.
        watched = connected.watched.pop(conversation, None)
        if watched is None or watched.error is not None:
            watched = WatchedConversation()
            watched.start_following_host(self._tasks, connected.host, conversation)
        connected.watched[conversation] = watched
        connected.stop_following_unwatched()
        return watched

    def note_viewer(self) -> None:
        """Says that a device looks at the list now."""
        self._looked_at_until = asyncio.get_running_loop().time() + VIEWER_SECONDS
        self._is_looked_at.set()

    async def _look_until_cancelled(self) -> None:
        """Looks for workspaces that have been opened, but only while somebody looks at the list."""
        while True:
            await self._is_looked_at.wait()
            await self.connect_to_open_workspaces()
            await asyncio.sleep(LOOK_SECONDS)
            if asyncio.get_running_loop().time() > self._looked_at_until:
                self._is_looked_at.clear()

    async def _keep_rows_up_to_date(
        self, connected: ConnectedWorkspace, follower: ListFollower
    ) -> None:
        try:
            while True:
                connected.take_rows(await follower.next_rows())
                self.list_changed.announce_change()
        except HelixError as error:
            log.info("a workspace has been closed elsewhere: %s", error.what)
        finally:
            self._connected.pop(connected.known.id, None)
            self.list_changed.announce_change()
            await connected.host.close_host()
