"""A server that wants its users to sign in: the SDK's own resource and authorization
server on a port of this machine.

Whoever comes to the page is signed in at once, as one who is known to it already would be.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import uvicorn
from mcp.server import MCPServer
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send


@dataclass
class Signing(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """What it knows, and what came to it. `lasts`: seconds a token is good for;
    `declines`: nobody is let in.
    """

    lasts: int = 3600
    declines: bool = False
    url: str = ""
    # In its metadata, instead of its own.
    told_endpoints: dict[str, str] = field(default_factory=dict)
    wants_more: bool = False  # It refuses every request, and wants a further permission.
    registered: int = 0
    told_sign_in: str = ""  # The authorization server that it names, if it is another one.
    clients: dict[str, OAuthClientInformationFull] = field(default_factory=dict)
    codes: dict[str, AuthorizationCode] = field(default_factory=dict)
    tokens: dict[str, AccessToken] = field(default_factory=dict)
    refreshing: dict[str, RefreshToken] = field(default_factory=dict)
    refreshed: int = 0
    _number: Any = field(default_factory=count)

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.registered += 1
        self.clients[str(client_info.client_id)] = client_info

    async def authorize(
        self, client: OAuthClientInformationFull, params: AuthorizationParams
    ) -> str:
        back = str(params.redirect_uri)
        if self.declines:
            return construct_redirect_uri(back, error="access_denied", state=params.state)
        code = f"code-{next(self._number)}"
        self.codes[code] = AuthorizationCode(
            code=code, scopes=params.scopes or [], expires_at=time.time() + 60, client_id=str(client.client_id),
            code_challenge=params.code_challenge, redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly, resource=params.resource,
        )  # fmt: skip
        return construct_redirect_uri(back, code=code, state=params.state)

    async def load_authorization_code(
        self, _client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._issue(client, authorization_code.scopes)

    def _issue(self, client: OAuthClientInformationFull, scopes: list[str]) -> OAuthToken:
        name = f"token-{next(self._number)}"
        again = f"again-{next(self._number)}"
        identity = str(client.client_id)
        self.tokens[name] = AccessToken(
            token=name, client_id=identity, scopes=scopes, expires_at=int(time.time()) + self.lasts
        )
        self.refreshing[again] = RefreshToken(token=again, client_id=identity, scopes=scopes)
        return OAuthToken(
            access_token=name, expires_in=self.lasts, refresh_token=again, scope=" ".join(scopes)
        )

    async def load_refresh_token(
        self, _client: OAuthClientInformationFull, refresh_token: str
    ) -> RefreshToken | None:
        return self.refreshing.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        del self.refreshing[refresh_token.token]
        self.refreshed += 1
        return self._issue(client, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.tokens.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.tokens.pop(token.token, None)


def _without_disconnects(app: Starlette) -> ASGIApp:
    """The SDK takes it for a bug of its own when a client goes while its request is read."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientDisconnect):
            await app(scope, receive, send)

    return served


def _with_told_endpoints(app: ASGIApp, known: Signing) -> ASGIApp:
    """As a server that names pages of others in its metadata."""

    async def served(scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        if path == "/mcp" and known.wants_more:
            challenge = 'Bearer error="insufficient_scope", scope="everything"'
            refusal = JSONResponse({}, 403, headers={"WWW-Authenticate": challenge})
            await refusal(scope, receive, send)
            return
        if "oauth-protected-resource" in path and known.told_sign_in:
            resource = {"resource": known.url, "authorization_servers": [known.told_sign_in]}
            await JSONResponse(resource)(scope, receive, send)
            return
        is_metadata = "oauth-authorization-server" in path
        if not is_metadata or not known.told_endpoints:
            await app(scope, receive, send)
            return
        base = known.url.removesuffix("/mcp")
        metadata = {"issuer": f"{base}/", "response_types_supported": ["code"], "code_challenge_methods_supported": ["S256"]}  # fmt: skip
        for name, path in (("authorization", "authorize"), ("token", "token"), ("registration", "register")):  # fmt: skip
            metadata[f"{name}_endpoint"] = f"{base}/{path}"
        await JSONResponse(metadata | known.told_endpoints)(scope, receive, send)

    return served


@asynccontextmanager
async def signing(kind: type[Signing] = Signing, **given: Any) -> AsyncIterator[Signing]:
    """It runs until the end."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        base = f"http://127.0.0.1:{listening.getsockname()[1]}"
        known = kind(url=f"{base}/mcp", **given)
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(base), resource_server_url=AnyHttpUrl(known.url), validate_token_resource=False,
            client_registration_options=ClientRegistrationOptions(enabled=True),
        )  # fmt: skip
        server = MCPServer("signing", auth_server_provider=known, auth=settings)
        server.tool(name="whisper")(lambda: "only for those who signed in")
        running = uvicorn.Server(
            uvicorn.Config(
                _with_told_endpoints(_without_disconnects(server.streamable_http_app()), known),
                log_config=None,
                lifespan="on",
            )
        )
        serving = asyncio.ensure_future(running.serve([listening]))  # noqa: TID251 -- ended below
        try:
            yield known
        finally:
            running.should_exit = True
            await asyncio.wait([serving], timeout=5)
