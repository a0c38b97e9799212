"""The page's addresses. Only `PageGuard` calls them: the device and the form are checked before."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.errors import ActionRefused, HelixError, InvalidInput, NotFound
from helix_desktop.phone_page import page_rendering
from helix_desktop.phone_page.open_hosts import ConnectedWorkspace, OpenHosts, WatchedConversation
from helix_desktop.phone_page.page_guard import COOKIE, COOKIE_SECONDS
from helix_desktop.phone_page.page_rendering import ConversationPlace, ListedWorkspace
from helix_desktop.phone_page.paired_devices import PairedDevice, PairedDevices
from helix_desktop.resources import resources_folder
from helix_desktop.workspace_host.host_interface import AnswerQuestion, SendMessage, StopTurn

CAUGHT_UP_SECONDS = 30.0
EVENT_PAUSE_SECONDS = 0.25  # Changes within this time are sent together.
HEARTBEAT_SECONDS = 5.0  # A device that was revoked is told so after this time at the latest.
HEARTBEAT = ": still here\n\n"  # A comment, which browsers ignore.
MOST_EVENT_STREAMS = 64
LONGEST_COMMAND_ID = 64
ONLY_LOOKS = "This device may only look."
Answer = Callable[[Request], Awaitable[Response]]


class PhonePage:
    """`machine`: what this computer is called on the page."""

    def __init__(
        self, devices: PairedDevices, hosts: OpenHosts, machine: str, *, is_encrypted: bool
    ) -> None:
        self._devices = devices
        self._hosts = hosts
        self._machine = machine
        self._is_encrypted = is_encrypted
        self._event_streams = 0
        self.app = Starlette(routes=self._list_routes())

    def _list_routes(self) -> list[Route]:
        conversation = "/w/{workspace}/c/{conversation}"
        pages: dict[str, Answer] = {
            "/": self.show_list,
            "/events": self.send_list_events,
            "/pair": self.show_pairing_page,
            conversation: self.show_conversation,
            f"{conversation}/events": self.send_conversation_events,
        }
        forms: dict[str, Answer] = {
            "/pair": self.handle_pairing_form,
            "/w/{workspace}/open": self.handle_open_form,
            f"{conversation}/send": self.handle_message_form,
            f"{conversation}/stop": self.handle_stop_form,
            f"{conversation}/answer": self.handle_answer_form,
        }
        routes = [
            Route("/style.css", partial(_send_file, "page/style.css", "text/css")),
            Route("/page.js", partial(_send_file, "page/page.js", "text/javascript")),
            Route("/icon.svg", partial(_send_file, "icons/helix.svg", "image/svg+xml")),
        ]
        for path, show_page in pages.items():
            routes.append(Route(path, self._answer(show_page)))
        for path, handle_form in forms.items():
            routes.append(Route(path, self._answer(handle_form), methods=["POST"]))
        return routes

    def _answer(self, answer: Answer) -> Answer:
        """Returns the same, with errors as pages."""
        return partial(_answer_or_show_error, answer)

    # --- Pairing

    async def show_pairing_page(self, _request: Request) -> Response:
        return HTMLResponse(page_rendering.build_pairing_page())

    async def handle_pairing_form(self, request: Request) -> Response:
        form = request.scope["form"]
        code = form.get("code", "")
        name = form.get("name", "")
        try:
            device, cookie = await asyncio.to_thread(self._devices.pair_device, code, name)
        except (ActionRefused, InvalidInput) as error:
            page = page_rendering.build_pairing_page(str(error))
            return HTMLResponse(page, status_code=403)
        response = RedirectResponse(f"{device.own_path}/", status_code=303)
        response.set_cookie(
            COOKIE,
            cookie,
            path=device.own_path,
            max_age=COOKIE_SECONDS,
            httponly=True,
            samesite="strict",
            secure=self._is_encrypted,
        )
        return response

    # --- The list

    async def show_list(self, request: Request) -> Response:
        device = await self._note_device(request)
        await self._hosts.connect_to_open_workspaces()
        workspaces = await self._list_workspaces()
        list_html = page_rendering.build_list(workspaces, device)
        return HTMLResponse(page_rendering.build_list_page(list_html, device))

    async def _list_workspaces(self) -> list[ListedWorkspace]:
        workspaces: list[ListedWorkspace] = []
        for connected in self._hosts.connected_workspaces().values():
            known = connected.known
            rows = tuple(connected.rows.values())
            workspaces.append(ListedWorkspace(known.id, known.name, rows))
        for closed in await self._hosts.list_closed_workspaces():
            workspaces.append(ListedWorkspace(closed.id, closed.name, is_open=False))
        return workspaces

    async def send_list_events(self, request: Request) -> Response:
        device = await self._note_device(request)
        return self._stream_events(self._list_events(device))

    async def _list_events(self, device: PairedDevice) -> AsyncIterator[str]:
        """Yields the list whenever it differs from the one that was sent last."""
        last_sent_html = ""
        list_changed = self._hosts.list_changed
        while self._is_still_paired(device):
            self._hosts.note_viewer()
            # Read before the list, so that a change while it is built is not missed.
            version = list_changed.version
            workspaces = await self._list_workspaces()
            list_html = page_rendering.build_list(workspaces, device)
            if list_html != last_sent_html:
                last_sent_html = list_html
                yield _format_event({"list": list_html})
            else:
                yield HEARTBEAT
            await asyncio.sleep(EVENT_PAUSE_SECONDS)
            await list_changed.wait_for_later_version(version, HEARTBEAT_SECONDS)

    async def handle_open_form(self, request: Request) -> Response:
        device = await self._check_may_allow(request)
        await self._hosts.open_in_own_process(request.path_params["workspace"])
        return RedirectResponse(f"{device.own_path}/", status_code=303)

    # --- A conversation

    async def show_conversation(self, request: Request) -> Response:
        await self._note_device(request)
        place, _, watched = await self._find_conversation(request)
        page = page_rendering.build_conversation_page(place, watched.shown)
        return HTMLResponse(page)

    async def send_conversation_events(self, request: Request) -> Response:
        await self._note_device(request)
        place, _, watched = await self._find_conversation(request)
        return self._stream_events(self._conversation_events(place, watched))

    async def _conversation_events(
        self, place: ConversationPlace, watched: WatchedConversation
    ) -> AsyncIterator[str]:
        """Yields the parts of the page that changed, until the host ends or the device is revoked."""
        sent_parts: dict[str, str] = {}
        watched.watchers += 1
        try:
            while self._is_still_paired(place.device) and watched.error is None:
                version = watched.changed.version
                parts = page_rendering.build_changed_parts(place, watched.shown, sent_parts)
                if parts:
                    yield _format_event(parts)
                else:
                    yield HEARTBEAT
                await asyncio.sleep(EVENT_PAUSE_SECONDS)
                await watched.changed.wait_for_later_version(version, HEARTBEAT_SECONDS)
        finally:
            watched.watchers -= 1

    async def handle_message_form(self, request: Request) -> Response:
        await self._check_may_allow(request)
        place, connected, _ = await self._find_conversation(request)
        form = request.scope["form"]
        command_id = form.get("id", "")[:LONGEST_COMMAND_ID]
        command = SendMessage(place.conversation, form.get("text", ""))
        await connected.host.run_host_command(command, command_id)
        address = place.address
        if command_id:
            # The page has kept the words until now.
            address = f"{address}?{urlencode({'sent': command_id})}"
        return RedirectResponse(address, status_code=303)

    async def handle_stop_form(self, request: Request) -> Response:
        await self._check_may_allow(request)
        place, connected, _ = await self._find_conversation(request)
        await connected.host.run_host_command(StopTurn(place.conversation))
        return RedirectResponse(place.address, status_code=303)

    async def handle_answer_form(self, request: Request) -> Response:
        """Allows once or denies. The fingerprint is of the words that this device was shown."""
        device = await self._check_may_allow(request)
        place, connected, watched = await self._find_conversation(request)
        form = request.scope["form"]
        try:
            number = int(form.get("number", ""))
        except ValueError as error:
            raise InvalidInput("This is no question of the page.") from error
        is_allowed = form.get("answer") == "allow"
        words = form.get("words", "")
        answer = PermissionAnswer(is_allowed, scope="once", words=words, device=device.name)
        if is_allowed:
            question = watched.shown.questions.get(number)
            _check_can_be_allowed(question, answer)
        fingerprint = form.get("fingerprint", "")
        command = AnswerQuestion(place.conversation, number, fingerprint, answer)
        await connected.host.run_host_command(command)
        return RedirectResponse(place.address, status_code=303)

    async def _find_conversation(
        self, request: Request
    ) -> tuple[ConversationPlace, ConnectedWorkspace, WatchedConversation]:
        """Returns a conversation once all its facts are there. NotFound if nobody has it open."""
        workspace = request.path_params["workspace"]
        conversation = request.path_params["conversation"]
        connected = self._hosts.connected_workspaces().get(workspace)
        if connected is None:
            await self._hosts.connect_to_open_workspaces()
            connected = self._hosts.get_connected(workspace)
        watched = self._hosts.watch_conversation(connected, conversation)
        loop = asyncio.get_running_loop()
        deadline = loop.time() + CAUGHT_UP_SECONDS
        while not watched.shown.has_caught_up:
            if watched.error is not None:
                raise watched.error
            if loop.time() > deadline:
                raise NotFound("The conversation could not be read in time.", remedy="Try again.")
            await watched.changed.wait_for_later_version(watched.changed.version, 1.0)
        place = ConversationPlace(
            workspace,
            connected.known.name,
            self._machine,
            conversation,
            request.scope["device"],
        )
        return place, connected, watched

    # --- Devices

    async def _note_device(self, request: Request) -> PairedDevice:
        device: PairedDevice = request.scope["device"]
        await asyncio.to_thread(self._devices.note_use, device)
        return device

    async def _check_may_allow(self, request: Request) -> PairedDevice:
        device = await self._note_device(request)
        if not device.may_allow:
            raise ActionRefused(ONLY_LOOKS, remedy="Pair it again without --look-only.")
        return device

    def _is_still_paired(self, device: PairedDevice) -> bool:
        paired_ids = {paired.id for paired in self._devices.list_devices()}
        return device.id in paired_ids

    def _stream_events(self, events: AsyncIterator[str]) -> Response:
        if self._event_streams >= MOST_EVENT_STREAMS:
            raise ActionRefused("Too many pages are open.", remedy="Close some of them.")
        return StreamingResponse(self._count_stream(events), media_type="text/event-stream")

    async def _count_stream(self, events: AsyncIterator[str]) -> AsyncIterator[str]:
        self._event_streams += 1
        try:
            async for event in events:
                yield event
        finally:
            self._event_streams -= 1


def _check_can_be_allowed(question: PermissionQuestion | None, answer: PermissionAnswer) -> None:
    """Refuses what the page did not offer, and an answer that allows and says what to do instead."""
    if question is None or not page_rendering.is_answerable_on_page(question):
        raise ActionRefused("This can be allowed on the computer only, or no longer.")
    if answer.words.strip():
        raise InvalidInput(
            "You wrote what to do instead, and pressed Allow once. Nothing was allowed.",
            remedy="Press Deny to send your words, or delete them.",
        )


async def _answer_or_show_error(answer: Answer, request: Request) -> Response:
    try:
        return await answer(request)
    except HelixError as error:
        status = 409
        if isinstance(error, NotFound):
            status = 404
        elif isinstance(error, ActionRefused) and error.what == ONLY_LOOKS:
            status = 403
        form = request.scope.get("form", {})
        typed_words = form.get("text") or form.get("words") or ""
        device = request.scope["device"]
        page = page_rendering.build_error_page(str(error), device, typed_words)
        return HTMLResponse(page, status_code=status)


async def _send_file(name: str, media_type: str, _request: Request) -> Response:
    file = resources_folder() / name
    content = await asyncio.to_thread(file.read_text, "utf-8")
    return Response(content, media_type=media_type)


def _format_event(parts: Any) -> str:
    return f"data: {json.dumps(parts)}\n\n"
