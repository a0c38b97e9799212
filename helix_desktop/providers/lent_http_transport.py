"""Sends the requests of an HTTP client through the computer that lends the provider.

Imported when it is needed, as the library takes 9 MB, which a window without a model saves.
"""

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import httpx

from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.lent_providers import LentAnswer, LentProviders, LentRequest

# Headers that belong to one connection. The lender has its own.
_OF_ONE_CONNECTION = frozenset(
    {"host", "connection", "content-length", "transfer-encoding", "accept-encoding", "user-agent"}
)


class LentConnections(ProviderConnections):
    """Connections to a lent provider. All of them lead through its lender."""

    def __init__(self, lent: LentProviders, provider: str, conversations: Sequence[str]) -> None:
        super().__init__()
        self._transport = LentHttpTransport(lent, provider, conversations)

    def direct_or_proxied_client(self, url: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(
            transport=self._transport,
            timeout=None,  # noqa: S113 - the caller limits each wait
            headers={"accept-encoding": "identity"},
        )


class LentHttpTransport(httpx.AsyncBaseTransport):
    """Hands each request to the lender, instead of opening a connection to the provider."""

    def __init__(self, lent: LentProviders, provider: str, conversations: Sequence[str]) -> None:
        self._lent = lent
        self._provider = provider
        self._conversations = conversations

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Wait for the lender, let it send the request, and return the answer once its head has
        come. The body is passed on as it is read.
        """
        headers: list[tuple[str, str]] = []
        for name, value in request.headers.items():
            if name.lower() not in _OF_ONE_CONNECTION:
                headers.append((name, value))
        content = await request.aread()
        lent_request = LentRequest(self._provider, str(request.url), tuple(headers), content)
        lender = await self._lent.wait_for_lender(self._provider, self._conversations)
        async with AsyncExitStack() as closing:
            answer = await closing.enter_async_context(lender.open_lent_answer(lent_request))
            # The answer stays open until its body is closed, which now has to do that.
            body = _LentBody(answer, closing.pop_all())
        # The lender has decompressed the body already.
        shown_headers = {"content-type": answer.response_headers.get("content-type", "")}
        retry_after = answer.response_headers.get("retry-after")
        if retry_after is not None:
            shown_headers["retry-after"] = retry_after
        return httpx.Response(answer.status_code, headers=shown_headers, stream=body)


class _LentBody(httpx.AsyncByteStream):
    def __init__(self, answer: LentAnswer, closing: AsyncExitStack) -> None:
        self._answer = answer
        self._closing = closing

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._answer.body_chunks():
            yield chunk

    async def aclose(self) -> None:
        await self._closing.aclose()
