"""A workspace's host in another process, as its client sees it over a stream of frames."""

import asyncio
import itertools
import logging
from contextlib import suppress
from typing import Any

from helix_desktop import __version__, errors
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.providers.lent_providers import ProviderLender
from helix_desktop.workspace_host import forwarded_lending, host_wire
from helix_desktop.workspace_host.byte_streams import ByteStream
from helix_desktop.workspace_host.host_interface import (
    CommandResult,
    ConversationEvent,
    FactsAdded,
    HistoryReplaced,
    HostCommand,
    HostListRow,
    new_command_id,
)
from helix_desktop.workspace_host.wire_errors import rebuild_error

log = logging.getLogger(__name__)
GREETING_SECONDS = 30.0  # The other side may have to open its workspace first.
MOST_UNREAD_EVENTS = 10_000
LONG_FRAME = 16 << 10
FRAMES_AT_ONCE = 50  # To decode as many short ones takes a millisecond or two.
HOST_GONE = "The program that has the workspace open has closed the connection."
CONNECTION_CLOSED = "The connection to the workspace was closed."


class RemoteWorkspaceHost:
    """A `WorkspaceHost` at the other end of a stream. Create one with `connect_over_stream`."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = stream
        self._reader = host_wire.FrameReader()
        self._numbers = itertools.count(1)
        self._answers: dict[int, asyncio.Future[Any]] = {}
        self._followers: dict[int, RemoteConversationFollower | RemoteListFollower] = {}
        self._tasks = OwnedTasks("client of a workspace host")
        self._greeting: asyncio.Future[host_wire.Greeting] = (
            asyncio.get_running_loop().create_future()
        )
        self._lending: forwarded_lending.AnswersToHost | None = None
        self._ended: errors.HelixError | None = None
        self.has_ended = asyncio.Event()

    @classmethod
    async def connect_over_stream(cls, stream: ByteStream) -> "RemoteWorkspaceHost":
        """Greets the host and waits for its greeting. OwnerEnded or BrokenStream if none comes."""
        host = cls(stream)
        host._tasks.spawn_task(host._receive_until_ended(), name="receive")
        try:
            await stream.write_bytes(
                host_wire.encode_frame(host_wire.Greeting(host_wire.PROTOCOL_VERSION, __version__))
            )
            async with asyncio.timeout(GREETING_SECONDS):
                await asyncio.shield(host._greeting)
        except TimeoutError:
            await host.close_host()
            raise errors.OwnerEnded(
                "The program that has the workspace open does not answer.", remedy="Try again."
            ) from None
        except BaseException:
            await host.close_host()
            raise
        return host

    @property
    def workspace(self) -> str:
        return self._greeting.result().workspace

    @property
    def workspace_name(self) -> str:
        return self._greeting.result().name

    async def run_host_command(self, command: HostCommand, command_id: str = "") -> CommandResult:
        number = next(self._numbers)
        message = host_wire.RunCommand(number, command_id or new_command_id(), command)
        result: CommandResult = await self._ask_host(number, message)
        return result

    async def read_content_range(self, digest: Digest, start: int, length: int) -> bytes:
        number = next(self._numbers)
        message = host_wire.ReadRange(number, digest.raw, start, length)
        content: bytes = await self._ask_host(number, message)
        if len(content) > length:
            raise host_wire.BrokenStream("The other side sent more content than was asked for.")
        return content

    async def follow_conversation(
        self, conversation: str, after: int = 0, *, newest_first: bool = False
    ) -> "RemoteConversationFollower":
        follower = RemoteConversationFollower(self, conversation, after)
        await follower.start_following(newest_first=newest_first)
        return follower

    async def follow_list(self) -> "RemoteListFollower":
        follower = RemoteListFollower(self)
        follower.number = self.register_follower(follower)
        await self.begin_following(host_wire.FollowList(follower.number))
        return follower

    async def lend_providers(self, lender: ProviderLender) -> None:
        """Answers the host's requests to these providers from here, as long as it is connected."""
        self._lending = forwarded_lending.AnswersToHost(lender, self._send_to_host, self._tasks)
        providers = tuple(lender.providers)
        offer = host_wire.LendProviders(lender.computer, providers, lender.conversation)
        await self._send_to_host(offer)

    async def close_host(self) -> None:
        self._end(errors.OwnerEnded(CONNECTION_CLOSED))
        await self._stream.close_stream()
        await self._tasks.aclose(limit=1)

    # --- For the followers

    def register_follower(self, follower: "RemoteConversationFollower | RemoteListFollower") -> int:
        number = next(self._numbers)
        self._followers[number] = follower
        return number

    async def begin_following(
        self, request: host_wire.FollowConversation | host_wire.FollowList
    ) -> None:
        """Asks the host to tell a registered follower its news. If that fails, or nobody waits
        for it any more, the follower is no longer registered.
        """
        try:
            await self._ask_host(request.number, request)
        except errors.HelixError:
            self._followers.pop(request.number, None)
            raise
        except asyncio.CancelledError:
            # The host may have begun already, and would go on for a follower that nobody reads.
            with suppress(errors.HelixError):
                await self.stop_following(request.number)
            raise

    async def stop_following(self, number: int) -> None:
        follower = self._followers.pop(number, None)
        if follower is not None and self._ended is None:
            await self._send_to_host(host_wire.StopFollowing(number))

    def raise_if_ended(self) -> None:
        if self._ended is not None:
            # It is raised for each caller, and would otherwise keep the traces of all of them.
            raise self._ended.with_traceback(None)

    # --- Sending and receiving

    async def _ask_host(self, number: int, message: host_wire.WireMessage) -> Any:
        self.raise_if_ended()
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._answers[number] = answer
        try:
            await self._send_to_host(message)
            return await answer
        finally:
            self._answers.pop(number, None)
            # The line may have ended while the question was written: that is raised already.
            if answer.done() and not answer.cancelled():
                answer.exception()

    async def _send_to_host(self, message: host_wire.WireMessage) -> None:
        try:
            await self._stream.write_bytes(host_wire.encode_frame(message))
        except OSError as error:
            # A line may break in one direction only. Those who follow must hear of it, too.
            self._end(errors.OwnerEnded(HOST_GONE, remedy="Try again."))
            raise errors.OwnerEnded(HOST_GONE, remedy="Try again.") from error

    async def _receive_until_ended(self) -> None:
        """Handles the host's messages. However that ends, all who wait for the host are told."""
        try:
            await self._receive_messages()
            # In the middle of a message or not: either way, the line is broken.
            self._end(errors.OwnerEnded(HOST_GONE, remedy="Try again."))
        except errors.HelixError as error:
            self._end(error)
        except OSError as error:
            log.info("the line to a workspace's host broke: %s", error)
            self._end(errors.OwnerEnded(HOST_GONE, remedy="Try again."))
        except Exception:
            log.exception("what a workspace's host sent could not be handled")
            self._end(errors.OwnerEnded(CONNECTION_CLOSED, remedy="Try again."))
        await self._stream.close_stream()

    async def _receive_messages(self) -> None:
        while piece := await self._stream.read_bytes():
            frames = self._reader.pop_whole_frames(piece)
            for number, frame in enumerate(frames, 1):
                self._handle_host_message(host_wire.decode_host_message(frame))
                # Many pieces may have come already. A window must paint between long messages,
                # and between many short ones.
                if len(frame) > LONG_FRAME or number % FRAMES_AT_ONCE == 0:
                    await asyncio.sleep(0)

    def _handle_host_message(self, message: host_wire.HostMessage) -> None:
        if not self._greeting.done():
            self._take_over_greeting(message)
            return
        match message:
            case host_wire.CommandDone():
                self._set_answer(message.number, message.result)
            case host_wire.RangeRead():
                self._set_answer(message.number, message.content)
            case host_wire.RequestFailed():
                self._handle_failure(message)
            case host_wire.RowsChanged():
                self._handle_rows(message)
            case host_wire.FactsSent() | host_wire.PackedFactsSent() | host_wire.EventSent():
                self._handle_event(message)
            case host_wire.OpenStream() | host_wire.CloseStream():
                self._handle_lending(message)
            case host_wire.Greeting():
                raise host_wire.BrokenStream("The other side greeted twice.")

    def _take_over_greeting(self, message: host_wire.HostMessage) -> None:
        """The first message is a greeting, or says why the host takes no clients."""
        if isinstance(message, host_wire.RequestFailed):
            raise rebuild_error(message.kind, message.what, message.remedy)
        greeting = host_wire.check_greeting(message)
        self._greeting.set_result(greeting)

    def _set_answer(self, number: int, value: Any) -> None:
        answer = self._answers.get(number)
        if answer is not None and not answer.done():
            answer.set_result(value)

    def _handle_failure(self, message: host_wire.RequestFailed) -> None:
        error = rebuild_error(message.kind, message.what, message.remedy)
        if message.number == 0:  # It is about the connection, which the host closes now.
            raise error
        answer = self._answers.get(message.number)
        if answer is not None and not answer.done():
            answer.set_exception(error)
            return
        follower = self._followers.pop(message.number, None)
        if follower is not None:
            follower.fail(error)

    def _handle_rows(self, message: host_wire.RowsChanged) -> None:
        follower = self._followers.get(message.number)
        if isinstance(follower, RemoteListFollower):
            follower.receive_rows(message.rows, message.settings_changes)

    def _handle_event(self, message: host_wire.FactsMessage | host_wire.EventSent) -> None:
        # Decoded even if its follower has gone: a host that sends what cannot be read is
        # disconnected at once, and not only when somebody happens to follow.
        event = host_wire.decode_event(message)
        follower = self._followers.get(message.number)
        if isinstance(follower, RemoteConversationFollower):
            follower.receive_event(event)

    def _handle_lending(self, message: host_wire.OpenStream | host_wire.CloseStream) -> None:
        if self._lending is None:
            raise host_wire.BrokenStream(
                "The other side asked for a provider that nobody lent to it."
            )
        self._lending.handle_host_message(message)

    def _end(self, error: errors.HelixError) -> None:
        if self._ended is not None:
            return
        self._ended = error
        self.has_ended.set()
        if not self._greeting.done():
            self._greeting.set_exception(error)
            self._greeting.exception()  # It is raised where the connection is opened.
        for answer in self._answers.values():
            if not answer.done():
                answer.set_exception(error)
        for follower in self._followers.values():
            follower.fail(error)
        self._followers.clear()
        if self._lending is not None:
            self._lending.stop_answering()


class RemoteConversationFollower:
    """Events of a conversation, in order. A reader that is too slow loses events, never facts.

    Facts up to `_last_received` have arrived, and those up to `_last_taken` were given to the
    reader; what lies between waits in `_events`. If too much waits, it is dropped, and the follower
    is behind: it ignores what arrives, until the reader has taken the rest. Then it follows
    anew from `_last_taken`, so that the host sends again what was dropped.
    """

    def __init__(self, host: RemoteWorkspaceHost, conversation: str, after: int) -> None:
        self._host = host
        self._conversation = conversation
        self._number = 0
        self._last_received = after
        self._last_taken = after
        self._events: list[ConversationEvent] = []
        self._has_news = asyncio.Event()
        self._is_behind = False
        self._error: errors.HelixError | None = None

    async def start_following(self, *, newest_first: bool = False) -> None:
        self._last_received = self._last_taken
        self._is_behind = False  # Events may arrive before the host's answer.
        self._number = self._host.register_follower(self)
        request = host_wire.FollowConversation(
            self._number, self._conversation, self._last_taken, newest_first
        )
        try:
            await self._host.begin_following(request)
        except BaseException:
            self._fall_behind()  # So the next reader tries again, and does not wait for nothing.
            raise

    async def next_events(self) -> tuple[ConversationEvent, ...]:
        while not self._events:
            if self._error is not None:
                raise self._error.with_traceback(None)
            if self._is_behind:
                await self._host.stop_following(self._number)
                await self.start_following()
                continue
            self._has_news.clear()
            await self._has_news.wait()
        events = tuple(self._events)
        self._events = []
        if not self._is_behind:
            self._last_taken = self._last_received
        return events

    async def close_follower(self) -> None:
        await self._host.stop_following(self._number)

    def receive_event(self, event: ConversationEvent) -> None:
        if self._is_behind:
            return
        if isinstance(event, HistoryReplaced):
            # Neither what the reader has taken still holds, nor what waits for it.
            self._last_received = 0
            self._last_taken = 0
            self._events.clear()
        elif isinstance(event, FactsAdded):
            self._check_numbers(event)
        if len(self._events) >= MOST_UNREAD_EVENTS:
            self._fall_behind()
        else:
            self._events.append(event)
        self._has_news.set()

    def _fall_behind(self) -> None:
        """Drops what waits, which the host sends again from the last fact that was taken. Only
        that the history was replaced is kept, because the host says it once.
        """
        is_replaced = bool(self._events) and isinstance(self._events[0], HistoryReplaced)
        self._events = []
        if is_replaced:
            self._events.append(HistoryReplaced())
        self._is_behind = True

    def _check_numbers(self, event: FactsAdded) -> None:
        for recorded in event.facts:
            if recorded.conversation != self._conversation:
                raise host_wire.BrokenStream("The other side sent facts of another conversation.")
            if recorded.seq != self._last_received + 1:
                raise host_wire.BrokenStream(
                    f"The other side sent the fact {recorded.seq} after {self._last_received}."
                )
            self._last_received = recorded.seq

    def fail(self, error: errors.HelixError) -> None:
        self._error = error
        self._has_news.set()


class RemoteListFollower:
    """Rows of the list that have changed. Of a row that changes twice, only the last is told.
    `settings_changes`: as the host has counted them.
    """

    def __init__(self, host: RemoteWorkspaceHost) -> None:
        self._host = host
        self.number = 0
        self.settings_changes = 0
        self._changed: dict[str, HostListRow] = {}
        self._has_rows = False
        self._has_news = asyncio.Event()
        self._error: errors.HelixError | None = None

    async def next_rows(self) -> tuple[HostListRow, ...]:
        while not self._has_rows:
            if self._error is not None:
                raise self._error.with_traceback(None)
            self._has_news.clear()
            await self._has_news.wait()
        rows = tuple(self._changed.values())
        self._changed = {}
        self._has_rows = False
        return rows

    async def close_follower(self) -> None:
        await self._host.stop_following(self.number)

    def receive_rows(self, rows: tuple[HostListRow, ...], settings_changes: int) -> None:
        self.settings_changes = settings_changes
        for listed in rows:
            self._changed[listed.row.id] = listed
        self._has_rows = True
        self._has_news.set()

    def fail(self, error: errors.HelixError) -> None:
        self._error = error
        self._has_news.set()
