"""Sends notices to the address that the user named: ntfy, gotify, or anything that takes a text."""

import asyncio
import json
import logging
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx

from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.webhook_notices import Notice, NoticeChooser
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import (
    KEYS_IN_FILE,
    PAGE_WEBHOOK,
    PAGE_WEBHOOK_CONTENT,
    ProgramSettings,
)
from helix_desktop.providers.http_transport import build_http_client, is_loopback
from helix_desktop.providers.provider_catalog import is_provider_address, may_carry_key
from helix_desktop.secrets import SecretStorage, WebhookToken

log = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
LOOK_SECONDS_WITHOUT_ADDRESS = 10.0
ANSWER_SECONDS = 20.0
PAUSES_BEFORE_TRIES = (0.0, 5.0, 30.0)
TITLE = "Helix Desktop"


def check_webhook_address(address: str) -> None:
    """Raises InvalidInput for an address to which nothing may be sent."""
    if not is_provider_address(address):
        raise InvalidInput(
            "The address of the webhook must start with https:// or http://.",
            remedy="For example: https://ntfy.sh/a-name-that-nobody-guesses.",
        )
    parts = urlsplit(address)
    if parts.username or parts.password or parts.query:
        raise InvalidInput(
            "The address of the webhook contains a password or a token, which would be stored in a file.",
            remedy="Leave it out, and run `helix-desktop resident page webhook --token` to enter it.",
        )
    if not may_carry_key(address):
        raise InvalidInput(
            "Anyone on the network could read notices that are sent to an http:// address.",
            remedy="Use an https:// address.",
        )


@dataclass(frozen=True, slots=True)
class WebhookRequest:
    content: bytes
    headers: Mapping[str, str]


async def _post_webhook_request(address: str, request: WebhookRequest) -> int:
    """Returns the status. The body of the answer is left unread, because it may be endless."""
    headers = dict(request.headers)
    client = build_http_client(uses_environment=not is_loopback(address))
    try:
        async with client.stream(
            "POST", address, content=request.content, headers=headers
        ) as answer:
            return answer.status_code
    finally:
        await client.aclose()


def build_webhook_request(address: str, text: str, token: str) -> WebhookRequest:
    """Builds JSON for gotify, whose addresses end with /message. Others, as ntfy, take the text itself."""
    if urlsplit(address).path.endswith("/message"):
        values = {"title": TITLE, "message": text, "priority": 5}
        headers_for_gotify = {"content-type": "application/json"}
        if token:
            headers_for_gotify["x-gotify-key"] = token
        content = json.dumps(values).encode()
        return WebhookRequest(content, headers_for_gotify)
    headers = {"content-type": "text/plain; charset=utf-8", "title": TITLE}
    if token:
        headers["authorization"] = f"Bearer {token}"
    return WebhookRequest(text.encode("utf-8", "replace"), headers)


class Webhook:
    """The settings are read for each notice, so a change counts at once."""

    def __init__(self, places: ProgramFolders, secrets: SecretStorage | None = None) -> None:
        self._places = places
        self._secrets = secrets or _open_secrets(places)

    def read_address(self) -> str:
        settings = ProgramSettings(self._places.settings_file)
        return settings[PAGE_WEBHOOK].strip()

    async def send_notice(self, notice: Notice) -> None:
        """HelixError says why it could not be sent."""
        settings = ProgramSettings(self._places.settings_file)
        address = settings[PAGE_WEBHOOK].strip()
        check_webhook_address(address)
        token = await self._secrets.read_secret(WebhookToken(address)) or ""
        text = notice.text(has_content=settings[PAGE_WEBHOOK_CONTENT])
        request = build_webhook_request(address, text, token)
        host = urlsplit(address).hostname
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                status = await _post_webhook_request(address, request)
        except (httpx.HTTPError, OSError) as error:  # TimeoutError is an OSError, too.
            reason = str(error) or "no answer"
            raise HelixError(
                f"The notice could not be sent to {host}: {reason}.",
                remedy="Check the address of the webhook.",
            ) from error
        if status >= 300:
            raise HelixError(
                f"{host} did not take the notice (status {status}).",
                remedy="Check the address and the token of the webhook.",
            )


def _open_secrets(places: ProgramFolders) -> SecretStorage:
    settings = ProgramSettings(places.settings_file)
    return SecretStorage(places.key_file, consent=lambda: settings[KEYS_IN_FILE])


async def send_notices_until_cancelled(webhook: Webhook, hosts: OpenHosts) -> None:
    """Watches all workspaces that are open, as long as the user has named a webhook."""
    chooser = NoticeChooser()
    while True:
        try:
            address = await asyncio.to_thread(webhook.read_address)
        except HelixError as error:
            log.info("the webhook is not known: %s", error.what)
            address = ""
        if not address:
            await asyncio.sleep(LOOK_SECONDS_WITHOUT_ADDRESS)
            continue
        await hosts.connect_to_open_workspaces()
        now = time.monotonic()
        connected_workspaces = dict(hosts.connected_workspaces())
        notices = chooser.choose_notices_of_closed(connected_workspaces.keys(), now)
        for workspace, connected in connected_workspaces.items():
            rows = list(connected.rows.values())
            notices += chooser.choose_notices(workspace, rows, now)
        for notice in notices:
            await _send_or_log(webhook, notice)
        await asyncio.sleep(LOOK_SECONDS)


async def _send_or_log(webhook: Webhook, notice: Notice) -> None:
    for pause in PAUSES_BEFORE_TRIES:
        await asyncio.sleep(pause)
        try:
            await webhook.send_notice(notice)
        except InvalidInput as error:
            log.warning("a notice was not sent: %s", error.what)
            return
        except HelixError as error:
            log.warning("a notice was not sent: %s", error.what)
        else:
            return
