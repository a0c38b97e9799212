"""Serves one client of a workspace's host over a stream of frames, until either side closes it."""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from helix_desktop import __version__
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput
from helix_desktop.workspace_host import forwarded_lending, host_wire
from helix_desktop.workspace_host.byte_streams import ByteStream
from helix_desktop.workspace_host.host_interface import CommandResult
from helix_desktop.workspace_host.local_workspace_host import LocalWorkspaceHost

log = logging.getLogger(__name__)
MOST_FOLLOWERS = 64
MOST_RUNNING_REQUESTS = 256
BUG = "The program that has the workspace open failed because of a bug. Details are in its log."


async def serve_host_client(host: LocalWorkspaceHost, stream: ByteStream) -> None:
    """Answers the client until it leaves. A client that is not understood is told so and closed."""
    server = _HostServer(host, stream)
    try:
        await server.answer_client_messages()
    except host_wire.BrokenStream as error:
        log.warning("a client of the workspace was not understood: %s", error.what)
        await server.send_last_error(error)
    except ConnectionError:
        log.info("a client of the workspace has gone")
    finally:
        await server.aclose()


class _HostServer:
    def __init__(self, host: LocalWorkspaceHost, stream: ByteStream) -> None:
        self._host = host
        self._stream = stream
        self._reader = host_wire.FrameReader()
        self._requests = OwnedTasks("requests of a client")
        self._running_requests = 0
        self._following = OwnedTasks("what a client follows")
        self._follow_tasks: dict[int, Any] = {}
        self._lender = forwarded_lending.RemoteLender(self._send_to_client, self._dismiss_lender)
        self._stop_lending: Callable[[], None] | None = None
        self._has_greeted = False

    async def answer_client_messages(self) -> None:
        greeting = host_wire.Greeting(
            host_wire.PROTOCOL_VERSION,
            __version__,
            self._host.workspace,
            self._host.workspace_name,
        )
        await self._stream.write_bytes(host_wire.encode_frame(greeting))
        while True:
            piece = await self._stream.read_bytes()
            if not piece:
                self._reader.check_ends_whole()
                return
            for frame in self._reader.pop_whole_frames(piece):
                self._handle_client_message(host_wire.decode_client_message(frame))

    def _handle_client_message(self, message: host_wire.ClientMessage) -> None:
        if not self._has_greeted:
            host_wire.check_greeting(message)
            self._has_greeted = True
            return
        match message:
            case host_wire.StopFollowing():
                self._stop_following(message.number)
            case host_wire.FollowConversation() | host_wire.FollowList():
                self._start_following(message)
            case host_wire.RunCommand() | host_wire.ReadRange():
                self._start_request(message)
            case host_wire.LendProviders():
                self._begin_lending(message)
            case host_wire.StreamOpened() | host_wire.StreamPiece() | host_wire.StreamEnded():
                self._lender.handle_client_message(message)
            case _:
                raise host_wire.BrokenStream("The other side greeted twice.")

    def _begin_lending(self, message: host_wire.LendProviders) -> None:
        if self._stop_lending is not None:
            raise host_wire.BrokenStream("The client lent its providers twice.")
        self._lender.computer = message.computer
        self._lender.providers = message.providers
        self._lender.conversation = message.conversation
        self._stop_lending = self._host.accept_lender(self._lender)

    def _dismiss_lender(self) -> None:
        """The lender leaves when it is told. It is asked for nothing any more."""
        reason = ActionRefused("The user has taken the key back.")
        self._requests.spawn_task(self.send_last_error(reason), name="dismiss a lender")

    # --- Requests with one answer

    def _start_request(self, message: host_wire.RunCommand | host_wire.ReadRange) -> None:
        if self._running_requests >= MOST_RUNNING_REQUESTS:
            raise host_wire.BrokenStream(
                f"The client has more than {MOST_RUNNING_REQUESTS} requests at once."
            )
        self._running_requests += 1
        self._requests.spawn_task(self._answer_client_request(message), name="answer a client")

    async def _answer_client_request(
        self, message: host_wire.RunCommand | host_wire.ReadRange
    ) -> None:
        try:
            answer = await self._run_client_request(message)
        except HelixError as error:
            answer = _describe_error(message.number, error)
        except Exception:  # Whatever goes wrong, the client must be told.
            log.exception("a client's request failed")
            answer = host_wire.RequestFailed(message.number, "HelixError", BUG)
        finally:
            self._running_requests -= 1
        with suppress(ConnectionError):  # The client has gone. What it asked for is done.
            await self._send_to_client(answer)

    async def _run_client_request(
        self, message: host_wire.RunCommand | host_wire.ReadRange
    ) -> host_wire.WireMessage:
        if isinstance(message, host_wire.RunCommand):
            result = await self._host.run_host_command(message.command, message.command_id)
            return host_wire.CommandDone(message.number, result)
        try:
            digest = Digest(message.digest)
        except ValueError as error:
            raise InvalidInput("A digest has 32 bytes.") from error
        content = await self._host.read_content_range(digest, message.start, message.length)
        return host_wire.RangeRead(message.number, content)

    # --- Following

    def _start_following(
        self, message: host_wire.FollowConversation | host_wire.FollowList
    ) -> None:
        if len(self._follow_tasks) >= MOST_FOLLOWERS or message.number in self._follow_tasks:
            raise host_wire.BrokenStream(f"The client follows more than {MOST_FOLLOWERS} things.")
        work = self._follow_until_stopped(message)
        self._follow_tasks[message.number] = self._following.spawn_task(work, name="follow")

    def _stop_following(self, number: int) -> None:
        task = self._follow_tasks.pop(number, None)
        if task is not None:
            task.cancel()

    async def _follow_until_stopped(
        self, message: host_wire.FollowConversation | host_wire.FollowList
    ) -> None:
        try:
            if isinstance(message, host_wire.FollowList):
                await self._forward_list(message.number)
            else:
                await self._forward_conversation(message)
        except ConnectionError:
            log.info("a client that followed a conversation has gone")
        except HelixError as error:
            self._follow_tasks.pop(message.number, None)
            await self._send_to_client(_describe_error(message.number, error))

    async def _forward_conversation(self, message: host_wire.FollowConversation) -> None:
        follower = await self._host.follow_conversation(
            message.conversation, message.after, newest_first=message.newest_first
        )
        try:
            is_followed = host_wire.CommandDone(message.number, CommandResult())
            await self._send_to_client(is_followed)
            while True:
                events = await follower.next_events()
                frames = [host_wire.encode_host_event(message.number, event) for event in events]
                await self._stream.write_bytes(b"".join(frames))
        finally:
            await follower.close_follower()

    async def _forward_list(self, number: int) -> None:
        follower = await self._host.follow_list()
        try:
            await self._send_to_client(host_wire.CommandDone(number, CommandResult()))
            while True:
                rows = await follower.next_rows()
                changed = host_wire.RowsChanged(number, rows, follower.settings_changes)
                await self._send_to_client(changed)
        finally:
            await follower.close_follower()

    async def _send_to_client(self, message: host_wire.WireMessage) -> None:
        await self._stream.write_bytes(host_wire.encode_frame(message))

    async def send_last_error(self, error: HelixError) -> None:
        """Tells a client why the connection is closed. Number 0 is no request's."""
        try:
            await self._send_to_client(_describe_error(0, error))
        except ConnectionError:
            log.info("the client has gone before it was told why")

    async def aclose(self) -> None:
        # This may be cancelled, too, and the stream must be closed all the same.
        if self._stop_lending is not None:
            self._stop_lending()
        self._lender.end_lending()
        try:
            await self._following.aclose(limit=1)
            await self._requests.aclose(limit=1)
        finally:
            await self._stream.close_stream()


def _describe_error(number: int, error: HelixError) -> host_wire.RequestFailed:
    return host_wire.RequestFailed(number, type(error).__name__, error.what, error.remedy)
