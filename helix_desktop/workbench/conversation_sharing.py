"""Keeps the conversations of an open workspace in step with other machines, with one
writer for each.
"""

import asyncio
import platform
import time as clock
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Protocol

from helix_desktop.concurrency import OwnedTasks, wait_with_limit
from helix_desktop.engine.session_events import ConversationReplaced, FactAppended
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, NotFound, SharedStoreUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.store.async_stores import allow_any_writer
from helix_desktop.store.shared import store_address as addresses
from helix_desktop.store.shared.conversation_sync import ConversationSync, OpenConversations
from helix_desktop.store.shared.postgres_heads import heads_of_connection
from helix_desktop.store.shared.shared_store_link import SENT_AGAIN, SHARED, SharedStoreLink
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.open_sessions import OpenSessions
from helix_desktop.workbench.shared_store_setup import unshare_workspace
from helix_desktop.workbench.worker_claims import WorkerClaim, WorkerClaims

EXCHANGE_SECONDS = (
    1.0  # While the store can be reached, facts are exchanged after this many seconds.
)
# While the store is out of reach, the pause between attempts grows up to this many
# seconds.
LONGEST_PAUSE_SECONDS = 10.0
LAST_SEND_SECONDS = (
    0.8  # When the workspace closes, the last facts must be sent within this many seconds.
)
TURN_PATIENCE = 8.0  # A turn waits this many seconds for the store before it begins without it.
SEND_PATIENCE = 20.0  # At its end, a turn gives the store this many seconds to receive all facts.
GATHERING_SECONDS = 0.05  # Facts that are appended within this many seconds are sent together.

Changed = Callable[[], object]
Connect = Callable[[], Awaitable[ConversationSync]]


@dataclass(frozen=True, slots=True)
class SharingStatus:
    """`state`: "off", "starting", "in step", "waiting", "away" (since `since`) or
    "refused" (`why` says what the user has to do). `waiting`: how many facts and
    entries other machines do not have yet.
    """

    state: str = "off"
    waiting: int = 0
    since: float = 0.0
    why: str = ""
    address: str = ""


class SharedWorkbench(Protocol):
    workspace: StoredWorkspace
    sessions: OpenSessions
    claims: WorkerClaims
    tasks: OwnedTasks

    async def reread_replaced_conversation(self, conversation: str) -> None: ...
    async def move_to_branch(self, conversation: str, branch: str) -> None: ...


class WorkspaceSharing:
    """Syncs an open workspace's conversations from `start_conversation_sync` on."""

    def __init__(self, bench: SharedWorkbench, machine: str) -> None:
        self._bench = bench
        self.synced_sessions = SyncedSessions(bench)
        self.machine_name = machine or platform.node() or "another computer"
        self._conversations: ConversationSync | None = None
        self._listeners: list[Changed] = []
        self._has_news_to_send = asyncio.Event()
        # Conversations whose turn began while no other machine had the lease.
        self._working_conversations: set[str] = set()
        # Facts of other machines are fetched this often, and also before each turn.
        self.fetch_seconds = EXCHANGE_SECONDS
        self._last_fetch_time = float("-inf")
        self._connect: Connect | None = None
        self._connecting_lock = asyncio.Lock()
        self._sending_lock = asyncio.Lock()
        self._next_send: asyncio.Task[None] | None = None  # The next exchange, until it begins.
        self._task: asyncio.Task[None] | None = None
        self._machine_by_conversation: dict[str, str] = {}
        self._count_waiting_entries: Callable[[], int] = lambda: 0
        self.sharing_state = SharingStatus()
        self.unsent = UnsentFacts(bench.claims)

    def watch_sharing(self, listener: Changed) -> Callable[[], None]:
        """Call `listener` when the state of sharing or a writer changes. Returns how to stop."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def other_machine_writing(self, conversation: str) -> str:
        """Return the machine that writes there now, or an empty string if this one may."""
        if self._conversations is None or conversation in self._working_conversations:
            return ""
        return self._conversations.leases.find_machine_writing(conversation)

    def other_machine_of_last_write(self, conversation: str) -> str:
        """Return the other machine that wrote there last, or an empty string if it was this one."""
        if self._conversations is None:
            return ""
        return self._conversations.leases.last_other_machine(conversation)

    async def take_over_conversation(self, conversation: str) -> None:
        """Continue here. If the store is away, this is done as far as possible, and
        then the error is raised.
        """
        conversations = await self._connect_if_conversations_shared()
        if conversations is None:
            return
        # It must be asked before: once the lease is taken over, no other machine has it.
        machine = self.other_machine_writing(conversation)
        if not machine:
            machine = self.other_machine_of_last_write(conversation)
        try:
            await conversations.take_over_lease(conversation)
        except SharedStoreUnreachable as error:
            raise SharedStoreUnreachable(
                f"The shared store is not responding, so {machine} cannot know that you are continuing here.",
                remedy="You can still continue the conversation on this computer. If both computers write to the conversation, both versions are kept.",
            ) from error
        finally:
            self._notify_sharing_listeners()

    async def sync_conversations_now(self) -> None:
        """Send and fetch what is new. Raises the error that prevents it."""
        await self.fetch_facts_of_others()
        await self._send_facts_now()

    async def _send_facts_now(self) -> None:
        if self._next_send is None or self._next_send.done():
            self._next_send = self._bench.tasks.spawn_task(
                self._send_after_current_send(), name="send what is new"
            )
        await asyncio.shield(self._next_send)

    async def _send_after_current_send(self) -> None:
        """Send after the current exchange, which may have begun too early. Waiters share it."""
        async with self._sending_lock:
            # From here on, a caller may have facts that this exchange no longer reads:
            # it must start another one.
            self._next_send = None
            conversations = await self._connect_if_conversations_shared()
            if conversations is not None:
                await conversations.send_new_facts()

    async def fetch_facts_of_others(self) -> None:
        """Fetch and apply what others wrote. Raises the error that prevents it."""
        conversations = await self._connect_if_conversations_shared()
        if conversations is not None:
            await conversations.fetch_new_facts()

    async def acquire_lease_for_turn(self, conversation: str) -> None:
        """Fetch what others wrote, and keep them from writing. Refused while one of them does."""
        self.synced_sessions.starting.add(conversation)
        try:
            async with asyncio.timeout(TURN_PATIENCE):
                conversations = await self._connect_if_conversations_shared()
                if conversations is not None:
                    await conversations.acquire_turn_lease(conversation)
        except TimeoutError as error:
            raise SharedStoreUnreachable(
                "The shared store is taking too long to respond.", remedy="Try again later."
            ) from error
        finally:
            self.synced_sessions.starting.discard(conversation)

    @asynccontextmanager
    async def hold_turn_lease(self, conversation: str) -> AsyncIterator[None]:
        """Hold the lease during a turn. If the store is away, the turn runs all the same,
        unless its work only counts once the store has it: then it fails.
        """
        link = self._bench.workspace.link
        must_reach_store = link is not None and link.acknowledge == SHARED
        if must_reach_store or self.sharing_state.state != "away":
            try:
                await self.acquire_lease_for_turn(conversation)
                if not self.unsent.may_write_more_facts():
                    await self.wait_until_sent()
            except ActionRefused:
                raise
            except HelixError:
                if must_reach_store:
                    raise
        yield
        if must_reach_store:
            await self.wait_until_sent()

    async def count_facts_not_sent(self, *, was_sent: bool = False) -> int:
        """Count facts that the others do not have yet. `was_sent`: all that can be sent
        has been sent.
        """
        conversations = self._conversations
        # Read before counting, because facts may be written while the other thread counts.
        written = self.unsent.written
        if conversations is None:
            return 0
        waiting = await conversations.thread.run_work(conversations.sync_state.count_facts_to_send)
        self.unsent.set_unsent_counts(waiting, written, was_sent=was_sent)
        return sum(waiting.values())

    async def wait_until_sent(self) -> None:
        """Wait until the store has all facts. SharedStoreUnreachable if that takes too long."""
        try:
            await wait_with_limit(self._send_facts_now(), SEND_PATIENCE)
        except TimeoutError as error:
            raise _unconfirmed_error() from error

    async def fetch_before_recording(self, conversation: str) -> None:
        """Fetch what other workers have written since a worker of this computer died, and
        keep them from writing, before what it left behind is recorded. Raises
        ActionRefused while one of them works there.
        """
        if not await self._bench.workspace.was_written_by_worker(conversation):
            return
        await self.acquire_lease_for_turn(conversation)
        conversations = self._conversations
        if conversations is not None:
            note = conversations.sync_state.note_facts_of_worker
            await conversations.thread.run_work(note, conversation, FACTS_LEFT_BEHIND)

    async def ensure_sent(self, conversation: str) -> bool:
        """Wait until the store has the conversation's facts. False if another machine
        writes in it, so that what was written here is a branch. Raises
        SharedStoreUnreachable if the store does not answer.
        """
        if self._connect is None:
            sharing_is_being_stopped = self._bench.workspace.link is not None
            if sharing_is_being_stopped:
                raise _unconfirmed_error()
            return True
        conversations = await self._connect_if_conversations_shared()
        if conversations is None:
            return True
        run_in_store_thread = conversations.thread.run_work
        sync_state = conversations.sync_state
        try:
            row = await run_in_store_thread(conversations.journal.conversation_row, conversation)
        except NotFound:  # Nothing has been written in it yet.
            return True
        # Sending may move this conversation's facts to a branch, so its end is read before.
        last_seq = row.last_seq
        progress = await run_in_store_thread(sync_state.read_shared_progress, conversation)
        if progress.writer != sync_state.machine or progress.seq < last_seq:
            await self.wait_until_sent()
            progress = await run_in_store_thread(sync_state.read_shared_progress, conversation)
        is_own = progress.writer == sync_state.machine
        if is_own and conversation not in self.synced_sessions.branch_by_conversation:
            if progress.seq < last_seq:
                raise _unconfirmed_error()
            return True
        return False

    async def stop_sharing(self) -> str:
        """Stop sharing from this machine, and delete nothing. Returns a sentence if the
        store was not told.
        """
        await self.stop_conversation_sync()
        return await unshare_workspace(self._bench.workspace)

    def start_conversation_sync(
        self, connect: Connect, *, address: str = "", entries: Callable[[], int] = lambda: 0
    ) -> None:
        """Sync once `connect` succeeds. `entries` returns how many contents wait to be sent."""
        self._count_waiting_entries = entries
        self._connect = connect
        self.sharing_state = SharingStatus("starting", address=address)
        self._bench.workspace.journal.asked = self._hold_while_writing
        self._task = self._bench.tasks.spawn_task(self._sync_until_cancelled(), name="keep in step")
        self._notify_sharing_listeners()

    def start_or_stop_with_link(self) -> None:
        """Start or stop the sync when the workspace has got a link to a shared store,
        or lost it.
        """
        workspace = self._bench.workspace
        link = workspace.link
        if link is not None and self._task is None:
            connect = partial(_connect_through_link, workspace, link, self.machine_name)
            self.start_conversation_sync(connect, address=link.url, entries=lambda: link.waiting)
        elif link is None and self._task is not None:
            self._bench.tasks.spawn_task(self.stop_conversation_sync(), name="share no more")

    async def stop_conversation_sync(self, *, limit_seconds: float = LAST_SEND_SECONDS) -> None:
        """Send the last facts and release the leases. What cannot be sent in time is
        sent at the next start.
        """
        # All fields are cleared before the first wait, so that syncing can be started
        # again while this one ends.
        task = self._task
        self._task = None
        self._connect = None
        conversations = self._conversations
        self._conversations = None
        was_reached = self.sharing_state.state in ("in step", "waiting")
        if task is not None:
            task.cancel()
            await asyncio.wait([task], timeout=limit_seconds)
        if conversations is not None and was_reached:
            with suppress(HelixError, TimeoutError):
                await wait_with_limit(conversations.send_and_release_leases(), limit_seconds)
        if self._task is None:  # Otherwise, syncing has been started again in the meantime.
            self._bench.workspace.journal.asked = allow_any_writer
            self.sharing_state = SharingStatus()
        self._notify_sharing_listeners()

    def send_soon_after_fact(self, event: object) -> None:
        """Let facts be sent soon after they are appended."""
        if isinstance(event, FactAppended | ConversationReplaced):
            self._has_news_to_send.set()

    @asynccontextmanager
    async def _hold_while_writing(self, conversation: str, count: int) -> AsyncIterator[None]:
        """Let facts be written. Raises ActionRefused if another machine writes there,
        unless a turn has begun.
        """
        may_wait = partial(self._may_wait_for_room, conversation)
        async with self.unsent.reserve_facts(count, may_wait, self._has_news_to_send.set):
            claim = self._bench.claims.find_claim(conversation)
            if claim is not None:
                await self._prepare_for_facts_of_worker(claim, conversation, count)
            machine = self.other_machine_writing(conversation)
            if machine:
                raise ActionRefused(
                    f"{machine} is working in this conversation.",
                    remedy="To take over the conversation, choose “Continue here”.",
                )
            session = self._bench.sessions.find_open_session(conversation)
            if session is not None and not session.is_idle:
                self._working_conversations.add(conversation)
            yield

    async def _prepare_for_facts_of_worker(
        self, claim: WorkerClaim, conversation: str, count: int
    ) -> None:
        """Make sure that what a worker writes next cannot split the conversation if the
        worker hangs or dies: others have all that it wrote before, and it still has the
        lease. What it writes next only counts once others have it.
        """
        if self._may_wait_for_room(conversation):
            await claim.ensure_sent(conversation)
        if self._conversations is not None:
            note = self._conversations.sync_state.note_facts_of_worker
            await self._conversations.thread.run_work(note, conversation, count)
        # Last, since a worker that hung for long must not write beside the one that took over.
        await claim.ensure_may_write()

    def _may_wait_for_room(self, conversation: str) -> bool:
        """Whether writing may wait. Not while others' facts are added, as nothing is sent then."""
        if self._connect is None:
            return False
        # Only a worker's facts wait. What a user does here is stored at once.
        claim = self._bench.claims.find_claim(conversation)
        if claim is None or claim.is_ending():
            return False
        session = self._bench.sessions.find_open_session(conversation)
        if session is None:
            return True
        return not session.is_idle and conversation not in self.synced_sessions.starting

    async def _sync_until_cancelled(self) -> None:
        """Exchange facts again and again: soon after new ones, otherwise after a pause,
        which grows while the store is away.
        """
        pause = EXCHANGE_SECONDS
        while True:
            self._has_news_to_send.clear()
            was_reached = await self._sync_once()
            if was_reached:
                pause = EXCHANGE_SECONDS
                pause_after_news = GATHERING_SECONDS
            else:
                # News do not reach the store either, so they must not make attempts quick.
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)
                pause_after_news = EXCHANGE_SECONDS
            with suppress(TimeoutError):
                await wait_with_limit(self._has_news_to_send.wait(), pause)
            if self._has_news_to_send.is_set():
                await asyncio.sleep(pause_after_news)

    async def _connect_if_conversations_shared(self) -> ConversationSync | None:
        """Connect as `_connect_conversations` does. None also if the store holds only content."""
        if not addresses.holds_conversations(self.sharing_state.address):
            return None
        return await self._connect_conversations()

    async def _connect_conversations(self) -> ConversationSync | None:
        """Return the connection, made if necessary, or None if nothing is shared."""
        async with self._connecting_lock:
            if self._conversations is None and self._connect is not None:
                conversations = await self._connect()
                conversations.open_conversations = self.synced_sessions
                conversations.on_new_entries = self._prefetch_new_entries
                await conversations.read_known_writers()
                self._conversations = conversations
                self._notify_sharing_listeners()
            return self._conversations

    def _prefetch_new_entries(self, entries: Collection[Digest]) -> None:
        """Fetch the content now, because the store may be out of reach later."""
        prefetching = self._bench.workspace.cache.prefetch_content(entries)
        self._bench.tasks.spawn_task(prefetching, name="fetch what came")

    async def _sync_once(self) -> bool:
        """Exchange facts once. Returns whether the store was reached."""
        still_working = set[str]()
        for conversation in self._working_conversations:
            session = self._bench.sessions.find_open_session(conversation)
            if session is not None and not session.is_idle:
                still_working.add(conversation)
        self._working_conversations = still_working
        try:
            conversations = await self._connect_conversations()
            if conversations is not None:
                await conversations.renew_leases(tuple(self._working_conversations))
                if clock.monotonic() >= self._last_fetch_time + self.fetch_seconds:
                    await conversations.fetch_new_facts()
                    self._last_fetch_time = clock.monotonic()
                await conversations.send_new_facts()
        except SharedStoreUnreachable as error:
            await self._set_sharing_status("away", str(error))
            return False
        except HelixError as error:
            await self._set_sharing_status("refused", str(error))
            return False
        await self._set_sharing_status("")
        return True

    def unreadable_conversation_reason(self) -> str:
        """Say why a conversation in the store could not be read. Empty if all could be read."""
        if self._conversations is None:
            return ""
        return _first_complaint(self._conversations)

    async def _set_sharing_status(self, problem: str, why: str = "") -> None:
        """Set the status after an exchange. `problem` is "away", "refused", or empty if
        all went well.
        """
        conversations = self._conversations
        before = self.sharing_state
        waiting = self._count_waiting_entries()
        writing = self._machine_by_conversation
        if conversations is not None:
            waiting += await self.count_facts_not_sent(was_sent=not problem)
            writing = conversations.leases.conversations_written_elsewhere()
            why = why or self.unreadable_conversation_reason()
        state = problem
        since = 0.0
        if problem:
            # The same problem goes on since it was seen first.
            since = before.since
            if before.state != problem:
                since = clock.time()
        elif waiting:
            state = "waiting"
        else:
            state = "in step"
        status = SharingStatus(state, waiting, since, why, before.address)
        if status != before or writing != self._machine_by_conversation:
            self.sharing_state = status
            self._machine_by_conversation = writing
            self._notify_sharing_listeners()

    def _notify_sharing_listeners(self) -> None:
        for listener in tuple(self._listeners):
            listener()


def _unconfirmed_error() -> SharedStoreUnreachable:
    return SharedStoreUnreachable(
        "The shared store did not confirm in time that it received the conversation.",
        remedy="The conversation is stored on this computer and is waiting to be sent.",
    )


async def sync_closed_workspace(workspace: StoredWorkspace) -> str:
    """Sync a workspace that is not open. Returns why a conversation could not be read, if any."""
    if workspace.link is None:
        return ""
    conversations = await _connect_through_link(workspace, workspace.link, platform.node())
    await conversations.read_known_writers()
    await conversations.sync_once()
    await conversations.send_and_release_leases()
    return _first_complaint(conversations)


def _first_complaint(conversations: ConversationSync) -> str:
    for complaint in conversations.complaints.values():
        return complaint
    return ""


async def _connect_through_link(
    workspace: StoredWorkspace, link: SharedStoreLink, machine: str
) -> ConversationSync:
    """Connect through the link, so that content is sent before the facts that refer to it."""
    connection = await link.ensure_connected()
    heads = heads_of_connection(connection)
    if heads is None:
        raise NotFound(
            "This shared store can share content, but not conversations.",
            remedy="To share conversations too, use PostgreSQL.",
        )
    conversations = await workspace.build_conversation_sync(connection, heads, machine)

    async def send_entry_contents(entries: Collection[Digest]) -> None:
        if entries:
            await link.send_waiting_content()

    conversations.send_content = send_entry_contents
    conversations.send_last_again = partial(link.send_waiting_content, resend_count=SENT_AGAIN)
    conversations.learn_forgotten = link.learn_what_others_forgot
    link.list_other_used_rows = partial(
        conversations.thread.run_work, conversations.sync_state.needed_segment_names
    )
    return conversations


# More facts than that a worker that died leaves to be recorded at the next start.
FACTS_LEFT_BEHIND = 8
MOST_UNSENT_FACTS = 5_000  # With more, no turn begins while the store can be reached.
# Facts reserved for each task, because a stopped turn must record its end at once.
ENDING_FACTS = 4
_LOOK_SECONDS = 0.05


class UnsentFacts:
    """An upper bound of unsent facts: those counted last, those `written` since, and
    those of the `_line` of waiting writers. Nobody waits for facts that the store
    refuses, in conversations without a worker (`_stuck`).
    """

    def __init__(self, claims: WorkerClaims) -> None:
        self._claims = claims
        self.written = 0
        self._written_at_count = 0
        self._stuck = 0
        self._counted: Mapping[str, int] = {}
        # By writer, in the order in which they came: how many facts it wants to write.
        self._line: dict[object, int] = {}

    def set_unsent_counts(self, unsent: Mapping[str, int], written: int, *, was_sent: bool) -> None:
        """Set what was unsent in each conversation after `written` facts. `was_sent`:
        nothing more can be sent.
        """
        if was_sent:
            # What was sent and is still counted as before, the store does not accept.
            unchanged_counts = unsent.items() & self._counted.items()
            self._stuck = 0
            for conversation, count in unchanged_counts:
                if self._claims.find_claim(conversation) is None:
                    self._stuck += count
        # A slow count may end after a later one.
        if written >= self._written_at_count:
            self._counted = unsent
            self._written_at_count = written

    def may_write_more_facts(self, last_writer: object = None) -> bool:
        """Whether all in the line, up to `last_writer`, may write. What exceeds the limit goes
        alone.
        """
        writer_count = 0
        wanted_facts = 0
        for writer, fact_count in self._line.items():
            writer_count += 1
            wanted_facts += fact_count
            if writer is last_writer:
                break
        counted = sum(self._counted.values()) - self._stuck
        unsent = counted + self.written - self._written_at_count
        limit = MOST_UNSENT_FACTS - ENDING_FACTS * len(self._claims.held)
        if unsent + wanted_facts <= limit:
            return True
        return unsent <= 0 and writer_count <= 1

    @asynccontextmanager
    async def reserve_facts(
        self, count: int, may_wait: Callable[[], bool], send: Callable[[], object]
    ) -> AsyncIterator[None]:
        """Reserve room for facts to be written. Waits in turn for room while
        `may_wait`; `send` sends unsent facts.
        """
        writer = object()
        self._line[writer] = count
        try:
            while may_wait() and not self.may_write_more_facts(writer):
                send()
                await asyncio.sleep(_LOOK_SECONDS)
            yield
        finally:
            del self._line[writer]
            self.written += count


class SyncedSessions(OpenConversations):
    """The sessions of an open workspace, as the sync with other machines uses them."""

    def __init__(self, bench: SharedWorkbench) -> None:
        self._bench = bench
        # Conversations in which a turn waits for facts from other machines.
        self.starting: set[str] = set()
        # If two machines wrote in a conversation, this is the fork with the facts from
        # this machine.
        self.branch_by_conversation: dict[str, str] = {}

    async def append_facts_of_others(
        self, conversation: str, work: Callable[[], Awaitable[None]]
    ) -> None:
        """Append them, through the session if the conversation is open. Refused while it works."""
        session = self._bench.sessions.find_open_session(conversation)
        if session is None:
            await work()
            await self._bench.reread_replaced_conversation(conversation)
            return
        if not session.is_idle and conversation not in self.starting:
            raise ActionRefused("The agent is working in this conversation.")
        await session.conversation.append_foreign_facts(work)

    @asynccontextmanager
    async def hold_for_change(self, conversation: str) -> AsyncIterator[None]:
        session = self._bench.sessions.find_open_session(conversation)
        if session is not None and conversation in self.starting:
            async with session.conversation.block_appending():
                yield
            return
        if session is not None and not session.is_idle:
            raise ActionRefused("The agent is working in this conversation.")
        async with self._bench.sessions.hold_conversation(conversation):
            yield

    def on_local_facts_moved(self, conversation: str, new_conversation: str) -> None:
        if new_conversation != conversation:
            self.branch_by_conversation[conversation] = new_conversation
        self._bench.tasks.spawn_task(
            self._bench.move_to_branch(conversation, new_conversation), name="list a branch"
        )
