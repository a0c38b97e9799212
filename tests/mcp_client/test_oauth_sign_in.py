"""Signing in to servers over HTTP, against the SDK's own authorization server."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from mcp.server.auth.provider import AuthorizationCode
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl

from helix_desktop.errors import HelixError
from helix_desktop.mcp_client.hosted_server import McpConnectionState
from helix_desktop.mcp_client.oauth_sign_in import (
    StoredSignIn,
    _listen_for_browser,
    _ReturningBrowser,
)
from helix_desktop.mcp_client.server_config import ServerConfig
from helix_desktop.phone_page.own_addresses import list_own_addresses
from helix_desktop.secrets import McpSignIn
from tests.conftest import Expect
from tests.cutting import cut_everywhere
from tests.mcp_client.pointing_server import (
    WAYS,
    BrowserThatComesBack,
    pointing_server,
    victim_on_this_computer,
)
from tests.mcp_client.signing_server import Signing, signing
from tests.mcp_client.world import Here, hosting
from tests.peers.ports import free_port

SECRET = McpSignIn("far").keyring_name


@pytest.fixture(autouse=True)
def _noise(expect: Expect) -> None:
    """What the SDK logs when a connection is closed while something comes, and when
    signing in ends without a token.
    """
    expect("Error parsing SSE message", may_be_missing=True)
    expect("OAuth flow error", may_be_missing=True)


def far(known: Signing) -> ServerConfig:
    return ServerConfig("far", "http", url=known.url, start_seconds=60, call_seconds=60)


def state(here: Here) -> McpConnectionState:
    return here.host.find_hosted_server("far").status.state


class Browser:
    """Goes to the pages it is given and wherever they lead."""

    def __init__(self, before: Callable[[str], None] = lambda _: None) -> None:
        self.pages: list[str] = []
        self.said: list[str] = []
        self._before = before
        self._tasks: list[asyncio.Task[None]] = []

    async def __call__(self, address: str) -> None:
        self.pages.append(address)
        self._before(address)
        self._tasks.append(asyncio.ensure_future(self._go(address)))  # noqa: TID251 -- a browser is no part of the program

    async def _go(self, address: str) -> None:
        # A trial that is about no answer may end, and the servers with it, before the page has come.
        with suppress(httpx2.TransportError):
            async with httpx2.AsyncClient(follow_redirects=True, timeout=60) as client:
                self.said.append((await client.get(address)).text)


async def signed_in(here: Here, browser: Browser) -> None:
    await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
    here.host.find_hosted_server("far").sign_in_with_page(browser)
    await here.until(lambda: state(here) is McpConnectionState.READY)


async def test_no_page_is_opened_and_nobody_registered_until_the_user_asks() -> None:
    async with signing() as known, hosting(far(known)) as here:
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        assert "Sign-in required" in here.host.find_hosted_server("far").status.why
        assert (known.clients, here.secrets, here.host.list_ready_tools()) == ({}, {}, [])
        browser = Browser()
        await signed_in(here, browser)
        (tool,) = here.host.list_ready_tools()
        assert (
            await tool.call_foreign_tool({}, here.context)
        ).text == "only for those who signed in"
        assert browser.said == ["You are signed in. You can close this page."]
        asked = parse_qs(urlsplit(browser.pages[0]).query)
        assert asked["code_challenge_method"] == ["S256"]
        assert urlsplit(asked["redirect_uri"][0]).hostname == "127.0.0.1"
        assert list(here.secrets) == [SECRET]


async def test_a_server_that_wants_a_further_permission_opens_no_page_unasked() -> None:
    async with signing(wants_more=True) as known, hosting(far(known)) as here:
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        assert known.registered == 0
        known.wants_more = False
        here.host.find_hosted_server("far").reconnect_now()
        browser = Browser()
        await signed_in(here, browser)
        known.wants_more = True
        (tool,) = here.host.list_ready_tools()
        with pytest.raises(HelixError, match="stopped during whisper"):
            await tool.call_foreign_tool({}, here.context)
        # A page that the user asks for gets the permission, and what still refuses opens no other.
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        assert len(browser.pages) == 1
        asked_again = Browser()
        here.host.find_hosted_server("far").sign_in_with_page(asked_again)
        await here.until(lambda: state(here) is McpConnectionState.STARTING)
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        assert len(asked_again.pages) == 1
        assert "everything" in parse_qs(urlsplit(asked_again.pages[0]).query)["scope"][0]


async def test_a_page_that_was_not_needed_is_not_opened_later() -> None:
    async with signing() as known, hosting(far(known)) as here:
        await signed_in(here, Browser())
        server = here.host.find_hosted_server("far")
        browser = Browser()
        server.sign_in_with_page(browser)
        await here.until(lambda: state(here) is McpConnectionState.READY)
        known.wants_more = True
        with pytest.raises(HelixError):
            await here.host.list_ready_tools()[0].call_foreign_tool({}, here.context)
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        assert (browser.pages, known.registered) == ([], 1)


async def test_a_server_that_is_tried_out_and_wants_a_sign_in_says_so() -> None:
    async with signing() as known, hosting() as here, asyncio.timeout(60):
        status, tools, _ = await here.host.try_out_server(far(known))
    assert (status.state, list(tools)) == (McpConnectionState.SIGN_IN, [])
    assert "Sign-in required" in status.why


async def test_the_token_is_there_after_a_restart_and_renewed_when_it_has_ended() -> None:
    async with signing() as known:
        async with hosting(far(known)) as here:
            await signed_in(here, Browser())
        async with hosting(far(known), secrets=here.secrets) as again:
            await again.until(lambda: state(again) is McpConnectionState.READY)
        assert (known.refreshed, len(known.clients)) == (0, 1)
        old = json.dumps({**json.loads(here.secrets[SECRET]), "ends": 1.0})
        async with hosting(far(known), secrets={SECRET: old}) as renewed:
            await renewed.until(lambda: state(renewed) is McpConnectionState.READY)
            assert known.refreshed == 1
            tokens = [
                json.loads(each)["tokens"]["access_token"]
                for each in (old, renewed.secrets[SECRET])
            ]
            assert tokens[0] != tokens[1]


@pytest.mark.parametrize(
    "kept", ["no JSON", "[]", "{}", '{"tokens": 5, "client": {"client_id": 7}, "ends": "x"}']
)
async def test_a_token_that_is_none_or_was_taken_back_means_signing_in_again(kept: str) -> None:
    async with signing() as known:
        async with hosting(far(known), secrets={SECRET: kept}) as here:
            await signed_in(here, Browser())
            known.tokens.clear()
            known.refreshing.clear()
            here.host.find_hosted_server("far").reconnect_now()
            await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
            with socket.socket() as taken:  # the port of the first registration
                back = json.loads(here.secrets[SECRET])["client"]["redirect_uris"][0]
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                with suppress(OSError):  # another process has been given it since
                    taken.bind(("127.0.0.1", urlsplit(back).port))
                    taken.listen()
                await signed_in(here, Browser())
        assert len(known.clients) == 2


async def test_who_says_no_is_not_asked_again_by_itself() -> None:
    async with signing(declines=True) as known, hosting(far(known)) as here:
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        browser = Browser()
        here.host.find_hosted_server("far").sign_in_with_page(browser)
        await here.until(lambda: bool(browser.pages))
        await here.until(
            lambda: state(here) in {McpConnectionState.SIGN_IN, McpConnectionState.FAILED}
        )
        assert len(browser.pages) == 1
        assert "refused: access_denied" in here.host.find_hosted_server("far").status.why


async def test_who_came_back_counts_though_the_browser_has_gone_and_comes_twice() -> None:
    class Gone:
        def write(self, data: bytes) -> None: ...

        async def drain(self) -> None:
            raise ConnectionResetError

        def close(self) -> None: ...

    returning = _ReturningBrowser(0)
    returning.expected_states = ["s"]
    for _ in range(2):
        reader = asyncio.StreamReader()
        reader.feed_data(b"GET /signed-in?code=first&state=s HTTP/1.1\r\n\r\n")
        await returning.answer_browser(reader, cast(asyncio.StreamWriter, Gone()))
    assert (await returning.wait_for_authorization_code()).code == "first"


async def test_a_page_that_was_closed_is_given_up_with_a_restart() -> None:
    """It can be waited for during minutes, and is said to be."""

    class Closed(Browser):
        async def _go(self, address: str) -> None:
            pass

    async with signing() as known, hosting(far(known)) as here, asyncio.timeout(60):
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        server = here.host.find_hosted_server("far")
        server.sign_in_with_page(Closed())
        await here.until(lambda: "in your browser" in server.status.why)
        server.reconnect_now()
        await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
        await signed_in(here, Browser())


async def test_a_stranger_cannot_come_back_in_the_users_place() -> None:
    """Another program or page of this machine that finds the port; also what asks for
    nothing at all.
    """
    async with signing() as known, hosting(far(known)) as here:
        heard: list[int] = []

        def stranger(address: str) -> None:
            back = parse_qs(urlsplit(address).query)["redirect_uri"][0]
            with httpx2.Client(timeout=60) as client:
                heard.extend(
                    client.get(f"{back}{more}").status_code
                    for more in (
                        "",
                        "?code=evil",
                        "?code=evil&state=guess",
                        "?error=denied&state=guess",
                    )
                )

        def beside(address: str) -> None:
            tasks.append(asyncio.ensure_future(asyncio.to_thread(stranger, address)))  # noqa: TID251

        tasks: list[asyncio.Future[None]] = []

        class Late(Browser):
            async def _go(self, address: str) -> None:
                await tasks[0]
                await super()._go(address)

        await signed_in(here, Late(beside))
        assert heard == [404, 404, 404, 404]


async def test_a_client_the_user_registered_is_used_as_it_is() -> None:
    async with signing() as known:
        port = free_port()
        known.clients["mine"] = OAuthClientInformationFull(
            client_id="mine",
            client_secret="s",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/signed-in")],
            token_endpoint_auth_method="client_secret_basic",
        )
        given = {"clientId": "mine", "clientSecret": "${secret:mcp/far/mine}", "callbackPort": port}
        config = ServerConfig(
            "far", "http", url=known.url, other={"oauth": given}, start_seconds=60
        )
        async with hosting(config, secrets={"mcp/far/mine": "s"}) as here:
            await signed_in(here, Browser())
        assert list(known.clients) == ["mine"]
        assert "client" not in json.loads(here.secrets[SECRET])


class Thief(Signing):
    """It registers whoever comes at another server, too, and hears which codes are brought to it."""

    other: Signing
    heard: list[str]

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        await super().register_client(client_info)
        await self.other.register_client(client_info)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        self.heard.append(authorization_code)
        return await super().load_authorization_code(client, authorization_code)


async def test_a_server_that_names_the_sign_in_page_of_another_gets_no_code_of_it() -> None:
    """Whoever is signed in there would only see a page flash by."""
    async with signing() as known, signing(kind=Thief) as thief:
        assert isinstance(thief, Thief)
        thief.other = known
        thief.heard = []
        page = f"{known.url.removesuffix('/mcp')}/authorize"
        thief.told_endpoints = {"authorization_endpoint": page}
        async with hosting(far(thief)) as here:
            await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
            server = here.host.find_hosted_server("far")
            browser = Browser()
            server.sign_in_with_page(browser)
            ended = (McpConnectionState.READY, McpConnectionState.FAILED)
            await here.until(lambda: state(here) in ended)
        assert thief.heard == []
        assert browser.pages == []
        assert "belongs to another server" in server.status.why


@pytest.mark.parametrize("way", WAYS)
async def test_a_server_elsewhere_leads_no_sign_in_to_programs_of_this_computer(way: str) -> None:
    """They trust what comes from this computer: some stop or delete something at a request."""
    own_addresses = list_own_addresses()
    if not own_addresses:
        pytest.skip("this computer has no address towards others")
    async with victim_on_this_computer() as victim, pointing_server(own_addresses[0]) as pointing:
        pointing.way = way
        for spelling in ("127.0.0.1", "localhost"):
            pointing.victim_url = f"http://{spelling}:{victim.port}"
            config = ServerConfig("far", "http", url=pointing.url, start_seconds=60)
            async with hosting(config) as here:
                await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
                server = here.host.find_hosted_server("far")
                browser = BrowserThatComesBack()
                server.sign_in_with_page(browser)
                await here.until(lambda: state(here) is not McpConnectionState.STARTING)
            pages = [urlsplit(page).port for page in browser.pages]
            assert (victim.visits, victim.port in pages) == (0, False), spelling
            if way != "redirect":  # It is not followed at all.
                assert "names an address of this computer" in server.status.why, spelling


async def test_two_servers_that_share_a_sign_in_have_tokens_of_their_own() -> None:
    """The second names the first one's page, and says so: it is no thief."""
    async with signing() as known:
        first, second = far(known), replace(far(known), name="further")
        async with hosting(first, second) as here:
            for server in here.host.hosted_servers:
                await here.until(lambda: server.status.state is McpConnectionState.SIGN_IN)  # noqa: B023
                server.sign_in_with_page(Browser())
                await here.until(lambda: server.status.state is McpConnectionState.READY)  # noqa: B023
        kept = [json.loads(value)["tokens"]["access_token"] for value in here.secrets.values()]
        assert len(kept) == 2
        assert kept[0] != kept[1]


async def test_a_secret_of_the_users_is_not_brought_to_another_sign_in() -> None:
    """It belongs to those with whom the user has registered, whatever the server says later."""
    async with signing() as known, signing() as other:
        port = free_port()
        mine = OAuthClientInformationFull(
            client_id="mine",
            client_secret="s",
            redirect_uris=[AnyUrl(f"http://127.0.0.1:{port}/signed-in")],
            token_endpoint_auth_method="client_secret_basic",
        )
        known.clients["mine"] = mine
        other.clients["mine"] = mine
        given = {"clientId": "mine", "clientSecret": "${secret:mcp/far/mine}", "callbackPort": port}
        config = replace(far(known), other={"oauth": given})
        async with hosting(config, secrets={"mcp/far/mine": "s"}) as here:
            await signed_in(here, Browser())
            known.tokens.clear()
            known.refreshing.clear()
            known.told_sign_in = f"{other.url.removesuffix('/mcp')}/"
            here.host.find_hosted_server("far").reconnect_now()
            await here.until(lambda: state(here) is McpConnectionState.SIGN_IN)
            here.host.find_hosted_server("far").sign_in_with_page(Browser())
            await here.until(lambda: state(here) is not McpConnectionState.STARTING)
        assert [
            token.client_id for token in other.tokens.values() if token.client_id == "mine"
        ] == []


async def test_a_token_of_the_users_own_is_sent_as_it_is() -> None:
    async with signing() as known:
        config = ServerConfig(
            "far", "http", url=known.url, headers={"Authorization": "Bearer mine"}, start_seconds=60
        )
        async with hosting(config) as here:
            await here.until(lambda: state(here) is McpConnectionState.FAILED)
            assert known.clients == {}


@pytest.mark.skipif(
    sys.platform == "win32", reason="the open files are counted as POSIX lists them"
)
async def test_a_sign_in_that_is_cut_off_leaves_no_port_open() -> None:
    async def nothing(*_: object) -> None:
        return None

    async def waits() -> int:
        async with _listen_for_browser(
            StoredSignIn(McpSignIn("far"), nothing, nothing, {}), nothing
        ) as returning:
            return returning.port

    async def is_closed() -> None:
        await asyncio.sleep(0)
        assert len(list(Path("/dev/fd").iterdir())) == before

    before = len(list(Path("/dev/fd").iterdir()))
    assert await cut_everywhere(waits, is_closed)
