"""Finds the host to which a ChatGPT workspace must send Codex's requests.

A workspace of a government, or one whose data must stay in a region, has a host of its own.
Codex asks for it only when it knows that it talks to ChatGPT, which it does not behind the
gateway. So the gateway asks with the login of the request, as Codex would.
"""

import asyncio
import hashlib
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from urllib.parse import urlsplit

import httpx
import orjson

from helix_desktop.errors import ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gateway.agent_upstreams import CODEX_SUBSCRIPTION_PATH
from helix_desktop.gateway.provider_reply_bodies import read_raw_body
from helix_desktop.json_values import list_at, object_at, text_at
from helix_desktop.protocols.gateway_message import Json

log = logging.getLogger(__name__)

ACCOUNT_HEADER = "chatgpt-account-id"
REGION_HEADER = "x-openai-account-routing-override"
# The workspaces of these hosts may name another one of them, and no other.
TRUSTED_DOMAINS = ("chatgpt.com", "openai.com")
NO_CONSTRAINT = "NO_CONSTRAINT"
_ACCOUNTS_PATH = "/wham/accounts/check"
_ASK_SECONDS = 15.0
_KNOWN_SECONDS = 3_600.0  # After an hour, the workspace is asked for again.
_MOST_KNOWN = 32


@dataclass(frozen=True, slots=True)
class WorkspaceRoute:
    """`region`: the value of the header that ChatGPT wants with each request, or empty."""

    base_url: str
    region: str = ""


@dataclass(frozen=True, slots=True)
class _RouteAnswer:
    """What ChatGPT said of a workspace, and when, by this process's clock."""

    answered_at: float
    route: WorkspaceRoute


class CodexWorkspaceRoutes:
    """The routes of the workspaces that asked lately. Logins are kept only as hashes."""

    def __init__(self) -> None:
        # By the hash of a login. The one that was used last comes last.
        self._answers: OrderedDict[bytes, _RouteAnswer] = OrderedDict()
        self._asking = asyncio.Lock()

    async def find_route(
        self, base_url: str, headers: Mapping[str, str], client: httpx.AsyncClient
    ) -> WorkspaceRoute:
        """Return where a request of a Codex that is signed in with ChatGPT goes.

        ChatGPT is asked once for each login, and the answer is remembered for an hour.
        `base_url`: where it goes without a workspace, or with another provider.
        """
        account = headers.get(ACCOUNT_HEADER, "")
        login = headers.get("authorization", "")
        if not account or not _is_chatgpt(base_url):
            return WorkspaceRoute(base_url)
        login_hash = hashlib.sha256(f"{base_url}\n{account}\n{login}".encode()).digest()
        known_route = self._find_known_route(login_hash)
        if known_route is not None:
            return known_route
        async with self._asking:
            # Another request may have asked meanwhile.
            known_route = self._find_known_route(login_hash)
            if known_route is not None:
                return known_route
            route = await _ask_for_route(base_url, account, login, client)
            self._answers[login_hash] = _RouteAnswer(time.monotonic(), route)
            if len(self._answers) > _MOST_KNOWN:
                self._answers.popitem(last=False)
            return route

    def _find_known_route(self, login_hash: bytes) -> WorkspaceRoute | None:
        answer = self._answers.get(login_hash)
        if answer is None or time.monotonic() - answer.answered_at > _KNOWN_SECONDS:
            return None
        self._answers.move_to_end(login_hash)
        return answer.route


async def _ask_for_route(
    base_url: str, account: str, login: str, client: httpx.AsyncClient
) -> WorkspaceRoute:
    """Ask ChatGPT where this account's requests go. Raises ProviderUnreachable if it does not say."""
    url = base_url.removesuffix("/codex") + _ACCOUNTS_PATH
    headers = {"authorization": login, ACCOUNT_HEADER: account, "accept-encoding": "identity"}
    try:
        async with (
            asyncio.timeout(_ASK_SECONDS),
            client.stream("GET", url, headers=headers) as reply,
        ):
            content = bytes(await read_raw_body(reply.aiter_raw()))
    except (httpx.HTTPError, TimeoutError) as error:
        raise _unknown_workspace(type(error).__name__) from error
    if reply.status_code >= 500:
        raise _unknown_workspace(f"status {reply.status_code}")
    if reply.status_code >= 400:
        # The login is refused, or there are no workspaces: the provider itself says so.
        return WorkspaceRoute(base_url)
    return _route_of_account(base_url, _account_in_reply(content, account))


def _account_in_reply(content: bytes, account: str) -> Mapping[str, Json]:
    """Return what a reply says of one account. It is empty if nothing is said of it."""
    try:
        accounts = object_at(orjson.loads(content)).get("accounts")
    except orjson.JSONDecodeError:
        return {}
    if isinstance(accounts, Mapping):  # Older replies: by id, each within an envelope.
        entries = [object_at(envelope, "account") for envelope in accounts.values()]
    else:
        entries = list_at(accounts)
    for entry in entries:
        if account in (text_at(entry, "id"), text_at(entry, "account_id")):
            return object_at(entry)
    return {}


def _route_of_account(base_url: str, account: Mapping[str, Json]) -> WorkspaceRoute:
    """Return where an account's requests go, by the fields that ChatGPT says of it."""
    region = text_at(account, "account_routing_override")
    if region == NO_CONSTRAINT:
        region = ""
    origin = text_at(account, "workspace_backend_origin")
    if origin in ("", NO_CONSTRAINT):
        return WorkspaceRoute(base_url, region)

    # The login is sent there, so nothing but a plain address of a trusted host will do.
    parts = urlsplit(origin)
    is_plain_address = parts.scheme == "https" and parts.path in ("", "/") and not parts.query
    has_user_name = bool(parts.username)
    is_trusted = _is_trusted_host(parts.hostname or "")
    if not is_plain_address or has_user_name or not is_trusted:
        raise _unknown_workspace("it names a host that cannot be used")
    return WorkspaceRoute(f"https://{parts.netloc}{urlsplit(base_url).path}", region)


def _is_chatgpt(base_url: str) -> bool:
    return base_url.startswith("https://") and base_url.endswith(CODEX_SUBSCRIPTION_PATH)


def _is_trusted_host(host: str) -> bool:
    for domain in TRUSTED_DOMAINS:
        if host == domain or host.endswith(f".{domain}"):
            return True
    return False


def _unknown_workspace(reason: str) -> ProviderUnreachable:
    log.info("the host of a ChatGPT workspace could not be found: %s", reason)
    return ProviderUnreachable(
        f"ChatGPT did not say which host your workspace uses ({reason}). Nothing was sent.",
        remedy="Try again later.",
    )
