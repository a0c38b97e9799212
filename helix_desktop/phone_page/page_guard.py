"""Checks every request to the page before anything answers it, and adds headers to every answer.

Each check is a rule with its reason. What is refused is told no more than why.
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Awaitable, Callable, Collection, Mapping, MutableMapping
from typing import Any
from urllib.parse import parse_qsl

from helix_desktop.errors import HelixError
from helix_desktop.phone_page.paired_devices import PairedDevice, PairedDevices

log = logging.getLogger(__name__)
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "helix_page"
COOKIE_SECONDS = 180 * 86_400
LONGEST_BODY = 1 << 20
FORM_SECONDS = 60.0
MOST_FORMS_OF_STRANGERS = 16  # That arrive at the same time. Nobody pairs so many devices at once.
MOST_FIELDS = 20
LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "[::1]"})
# These can be had without being paired.
OPEN_PATHS = frozenset({"/pair", "/style.css", "/page.js", "/icon.svg"})
_ADDRESS_OF_DEVICE = re.compile(r"(/d/[0-9a-f]{32})(/.*)")
HEADERS: Mapping[str, str] = {
    # Nothing is loaded from elsewhere, and no page of another origin shows this one in a frame.
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        "img-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-frame-options": "DENY",
    "x-content-type-options": "nosniff",
    # "no-referrer" would take the origin from forms, too, by which they are checked.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


class RefusedPageRequest(HelixError):
    """A request breaks a rule of the page."""

    def __init__(self, status: int, what: str) -> None:
        super().__init__(what)
        self.status = status


class PageGuard:
    """Lets only paired devices and the page for pairing through to the app.

    The app finds the device in `scope["device"]`, and the fields of a form in `scope["form"]`. The
    device's own path is taken off the address.
    """

    def __init__(
        self, app: App, devices: PairedDevices, own_names: Collection[str], *, is_encrypted: bool
    ) -> None:
        self._app = app
        self._devices = devices
        self._own_names = frozenset(own_names)
        self._scheme = "http"
        if is_encrypted:
            self._scheme = "https"
        self._forms_of_strangers = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                headers = list(message.get("headers", ()))
                for name, value in HEADERS.items():
                    headers.append((name.encode(), value.encode()))
                message["headers"] = headers
            await send(message)

        try:
            await self._check_request(scope, receive)
        except RefusedPageRequest as refused:
            log.info("a request to the page was refused: %s", refused.what)
            await _send_refused_page(send_with_headers, refused)
            return
        await self._app(scope, receive, send_with_headers)

    async def _check_request(self, scope: Scope, receive: Receive) -> None:
        """Raises RefusedPageRequest, or adds the device and the form's fields to the scope."""
        if scope["type"] != "http":
            raise RefusedPageRequest(400, "The page answers only HTTP.")
        headers = _read_headers(scope)
        host = self._check_host(headers)
        method = scope["method"]
        if method not in ("GET", "POST"):
            raise RefusedPageRequest(405, "The page answers only GET and POST.")
        self._check_came_from_own_page(method, host, headers)

        own_path = ""
        match = _ADDRESS_OF_DEVICE.fullmatch(scope["path"])
        if match is not None:
            own_path = match[1]
            scope["path"] = match[2]
        device = self._find_device(own_path, headers)
        if device is None and scope["path"] not in OPEN_PATHS:
            raise RefusedPageRequest(401, "This device is not paired.")
        form: Mapping[str, str] = {}
        if method == "POST":
            form = await self._read_and_check_form(headers, receive, device)
        scope["device"] = device
        scope["form"] = form

    async def _read_and_check_form(
        self, headers: Mapping[str, str], receive: Receive, device: PairedDevice | None
    ) -> Mapping[str, str]:
        """Only the form that pairs a device comes from one that is not paired."""
        if device is None:
            return await self._read_form_of_stranger(headers, receive)
        form = await _read_form_in_time(headers, receive)
        _check_form_token(form, device)
        # It may have been revoked while the form was on its way, which whoever sends it decides.
        if self._find_device(device.own_path, headers) is None:
            raise RefusedPageRequest(401, "This device is not paired.")
        return form

    async def _read_form_of_stranger(
        self, headers: Mapping[str, str], receive: Receive
    ) -> Mapping[str, str]:
        """Slow forms of strangers must leave connections for the devices that are paired."""
        if self._forms_of_strangers >= MOST_FORMS_OF_STRANGERS:
            raise RefusedPageRequest(503, "Too many devices try to be paired. Try again later.")
        self._forms_of_strangers += 1
        try:
            return await _read_form_in_time(headers, receive)
        finally:
            self._forms_of_strangers -= 1

    def _check_host(self, headers: Mapping[str, str]) -> str:
        """A page whose name was made to lead here (DNS rebinding) still sends its own name."""
        host = headers.get("host", "")
        name = host
        before, colon, port = host.rpartition(":")
        if colon and port.isdecimal():
            name = before
        if name.lower() not in self._own_names:
            raise RefusedPageRequest(421, "The page is not reached by this name.")
        return host

    def _check_came_from_own_page(self, method: str, host: str, headers: Mapping[str, str]) -> None:
        """Pages of other origins can make browsers send forms, but not with our origin."""
        # Old browsers do not say which site a request comes from.
        site = headers.get("sec-fetch-site", "same-origin")
        if method == "POST":
            own_origin = f"{self._scheme}://{host}"
            if headers.get("origin") != own_origin or site != "same-origin":
                raise RefusedPageRequest(403, "The form came from another page.")
            return
        is_link_followed = headers.get("sec-fetch-mode") == "navigate"
        if site not in ("same-origin", "none") and not is_link_followed:
            raise RefusedPageRequest(403, "Another page asked for this.")

    def _find_device(self, own_path: str, headers: Mapping[str, str]) -> PairedDevice | None:
        """Returns the device that the path is for, if one of the cookies is its own. A server at
        another port of this computer can set cookies of the same name.
        """
        for cookie in headers.get("cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            if name != COOKIE:
                continue
            device = self._devices.find_device(value)
            if device is not None and device.own_path == own_path:
                return device
        return None


def _read_headers(scope: Scope) -> Mapping[str, str]:
    """Returns headers by name. One that decides about a request must not come twice."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name = raw_name.decode("latin-1").lower()
        if name in headers and name in ("host", "origin", "cookie", "content-type"):
            raise RefusedPageRequest(400, f"The header {name} came twice.")
        headers[name] = raw_value.decode("latin-1").strip()
    return headers


async def _read_form_in_time(headers: Mapping[str, str], receive: Receive) -> Mapping[str, str]:
    """Reads the fields of a form. Who sends it slowly must not hold one of the few connections."""
    try:
        async with asyncio.timeout(FORM_SECONDS):
            return await _read_form(headers, receive)
    except TimeoutError as error:
        raise RefusedPageRequest(408, "The form did not arrive in time.") from error


async def _read_form(headers: Mapping[str, str], receive: Receive) -> Mapping[str, str]:
    """Reads the fields of a form, and refuses one that is too long, before all of it is read."""
    content_type = headers.get("content-type", "").partition(";")[0].strip().lower()
    if content_type != "application/x-www-form-urlencoded":
        raise RefusedPageRequest(415, "This is no form of the page.")

    body = bytearray()
    is_whole = False
    while not is_whole:
        message = await receive()
        if message["type"] != "http.request":
            raise RefusedPageRequest(400, "The form did not arrive whole.")
        body += message.get("body", b"")
        if len(body) > LONGEST_BODY:
            raise RefusedPageRequest(413, "The form is longer than 1 MB. Nothing was sent.")
        is_whole = not message.get("more_body", False)
    try:
        fields = parse_qsl(
            body.decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="strict"
        )
    except ValueError as error:
        raise RefusedPageRequest(400, "The form cannot be read.") from error
    return dict(fields)


def _check_form_token(form: Mapping[str, str], device: PairedDevice) -> None:
    sent_token = form.get("token", "").encode()
    right_token = device.form_token.encode()
    if not hmac.compare_digest(sent_token, right_token):
        raise RefusedPageRequest(403, "The form is not from this page. Load the page again.")


async def _send_refused_page(send: Send, refused: RefusedPageRequest) -> None:
    headers = [(b"content-type", b"text/html; charset=utf-8")]
    text = refused.what
    if refused.status == 401:
        text += ' <a href="/pair">Pair it</a> with a code from the computer.'
    body = f'<!doctype html><title>Helix Desktop</title><link rel="stylesheet" href="/style.css"><script src="/page.js" defer></script><main class="narrow"><p>{text}</p></main>'
    await send({"type": "http.response.start", "status": refused.status, "headers": headers})
    await send({"type": "http.response.body", "body": body.encode()})
