"""The tool fetch_url: one page from the internet, off by default, asked for by its address.

Names are looked up once and the connection goes to the address that was checked, so that a name cannot turn into a
machine of the local network between the two. A redirect is a fetch of its own: the rules judge every host on the way, and a private
address is asked for each time. What comes compressed is decompressed within the limit of a page.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from helix_desktop.decompression import OFFERED, BodyDecompressor, DecodedTooLarge, UnreadableCoding
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import Refused, Unreachable, WrongUse
from helix_desktop.tools.html import as_text
from helix_desktop.tools.permission import Action, Effect
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields, flag, text
from helix_desktop.values import dataclass

if TYPE_CHECKING:
    import httpx

LARGEST = 20 * 1024 * 1024
SECONDS = 60
MOST_REDIRECTS = 5
_WEB_PORTS = {"http": 80, "https": 443}
_READABLE = ("text/", "application/json", "application/xml", "application/xhtml", "application/javascript")


@dataclass(frozen=True, slots=True)
class Target:
    """Where a request really goes: the address was checked and is the one that is connected to."""

    url: httpx.URL
    address: str
    private: bool


async def fetch_url(args: Arguments, use: Use) -> Result:
    import httpx

    url = _url(args.text("url").strip())
    try:
        async with asyncio.timeout(SECONDS), httpx.AsyncClient(trust_env=False, timeout=20) as client:
            return await _fetched(client, use, url, raw=args.flag("raw"))
    except TimeoutError:
        raise Unreachable(f"{url.host} did not respond within {SECONDS} s.") from None
    except httpx.HTTPError as error:
        raise Unreachable(f"{url} could not be fetched: {error or type(error).__name__}.") from None


async def _fetched(client: httpx.AsyncClient, use: Use, url: httpx.URL, *, raw: bool) -> Result:
    permitted: set[str] = set()
    for _ in range(MOST_REDIRECTS + 1):
        target = await _target(url)
        if target.private or url.host not in permitted:
            await _permit(use, target)
            permitted.add(url.host)
        direct = url.copy_with(host=target.address)
        headers = {"Host": url.netloc.decode("ascii"), "User-Agent": "helix-desktop", "Accept-Encoding": OFFERED}
        named = {"sni_hostname": url.host}
        async with client.stream("GET", direct, headers=headers, extensions=named) as response:
            if not response.has_redirect_location:
                return await _answered(url, response, raw=raw)
            url = _url(str(url.join(response.headers["location"])))
    raise Refused(f"{url} redirected too many times: more than {MOST_REDIRECTS}.")


async def _answered(url: httpx.URL, response: httpx.Response, *, raw: bool) -> Result:
    kind = response.headers.get("content-type", "").partition(";")[0].strip().lower() or "text/plain"
    if not kind.startswith(_READABLE):
        raise WrongUse(f"{url} has the type {kind}, which is not text.")
    body = b"".join([piece async for piece in _limited(response, url)])
    if "html" in kind and not raw:
        body = (await as_text(body)).encode()
    head = b"" if response.is_success else f"[{response.status_code} {response.reason_phrase}]\n".encode()
    return Result(head + body, source=str(url), ok=response.is_success)


async def _limited(response: httpx.Response, url: httpx.URL) -> AsyncIterator[bytes]:
    try:
        body = BodyDecompressor(response.headers.get("content-encoding", ""), LARGEST)
        async for piece in response.aiter_raw(1 << 16):
            yield await asyncio.to_thread(body.feed, piece)
    except DecodedTooLarge as error:
        yield error.decoded + f"\n[cut: pages are read up to {LARGEST:,} bytes]\n".encode()
    except UnreadableCoding as error:
        raise WrongUse(f"{url} cannot be read: {error}.") from None


def _url(text_: str) -> httpx.URL:
    import httpx

    try:
        url = httpx.URL(text_)
    except (httpx.InvalidURL, UnicodeError) as error:
        raise WrongUse(f"{text_[:100]!r} is not an address: {error}.") from None
    if url.scheme not in _WEB_PORTS or not url.host:
        raise WrongUse(f"{text_[:100]!r} is not an http or https address.")
    if url.userinfo:
        raise WrongUse("Addresses that contain a user name or a password are not fetched.")
    return url


async def _target(url: httpx.URL) -> Target:
    """Look the name up, once."""
    loop = asyncio.get_running_loop()
    port = url.port or _WEB_PORTS[url.scheme]
    try:
        rows = await loop.getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Unreachable(f"No computer named {url.host} was found, or there is no network connection.") from None
    addresses = [str(row[4][0]) for row in rows]
    public = [address for address in addresses if is_public(address)]
    if len(public) == len(addresses):
        return Target(url, public[0], private=False)
    return Target(url, next(address for address in addresses if not is_public(address)), private=True)


_OPEN_IPV6 = ipaddress.ip_network("2000::/3")  # all that is given out for the open internet


def is_public(address: str) -> bool:
    """Whether it is a machine of the open internet, whichever way the address is written."""
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv4Address):
        return found.is_global and not found.is_multicast
    inner = found.ipv4_mapped or found.sixtofour
    if inner is not None:
        return is_public(str(inner))
    return found in _OPEN_IPV6 and found.is_global and not found.is_multicast


async def _permit(use: Use, target: Target) -> None:
    danger = f"{target.url.host} is a device on your local network ({target.address})" if target.private else ""
    title = f"Fetch from {target.url.host}"
    await use.permit(
        Action(
            ToolName.FETCH_URL,
            Effect.FETCH,
            title,
            str(target.url),
            path=target.url.host,
            danger=danger,
            strict=target.private,
        )
    )


TOOLS = (
    Tool(
        ToolName.FETCH_URL,
        "Fetch a page or a file from the internet as text.",
        fields("url", url=text("The address"), raw=flag("The page's source, not its text")),
        fetch_url,
    ),
)
