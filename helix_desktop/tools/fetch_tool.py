"""The tool fetch_url, which is off by default. It fetches one page from the internet.

A host is looked up only once it is permitted, as that already sends its name out. The
connection goes to the address that was checked, so that the name cannot turn into a
machine in the local network. Rules judge every redirect as a fetch of its own, and the
user is asked about each private address.
"""

from __future__ import annotations

import asyncio
import codecs
import ipaddress
import re
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from helix_desktop.decompression import (
    OFFERED_CODINGS,
    BodyDecompressor,
    DecodedTooLarge,
    UnreadableCoding,
)
from helix_desktop.documents.document_kinds import HTML
from helix_desktop.documents.document_reading import read_document_pages
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import ActionRefused, InvalidInput, ProviderUnreachable
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import built_in_tool
from helix_desktop.tools.permission import ActionEffect, ToolAction

if TYPE_CHECKING:
    import httpx

HTML_SECONDS = 10.0
LARGEST = 20 * 1024 * 1024
SECONDS = 60
MOST_REDIRECTS = 5
_WEB_PORTS = {"http": 80, "https": 443}
# Rules for hosts are patterns, so a host's name must not contain special characters.
_HOST = re.compile(r"[\w.:%-]+")
_READABLE = (
    "text/",
    "application/json",
    "application/xml",
    "application/xhtml",
    "application/javascript",
)


async def html_as_text(page: bytes) -> str:
    """Return a page's readable text, or its source if it cannot be read in time."""
    try:
        async with asyncio.timeout(HTML_SECONDS):
            document = await read_document_pages("page.html", page, HTML)
    except (TimeoutError, InvalidInput):
        return page.decode("utf-8", "replace")
    return "\n\n".join(section.text for section in document.pages) + "\n"


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """Where a request really goes. The connection uses exactly the address that was checked."""

    url: httpx.URL
    address: str
    is_private: bool


async def fetch_url(
    args: built_in_tool.ToolArguments, resources: built_in_tool.ToolResources
) -> built_in_tool.ToolOutput:
    """Fetch a page. The tool `fetch_url`. Errors of the network say what the server did not do."""
    import httpx

    url = _parse_web_address(args.text_argument("url").strip())
    try:
        async with (
            asyncio.timeout(SECONDS),
            httpx.AsyncClient(trust_env=False, timeout=20) as client,
        ):
            return await _fetch_through_redirects(
                client, resources, url, raw=args.flag_argument("raw")
            )
    except TimeoutError:
        raise ProviderUnreachable(f"{url.host} did not respond within {SECONDS} s.") from None
    except httpx.HTTPError as error:
        raise ProviderUnreachable(
            f"{url} could not be fetched: {error or type(error).__name__}."
        ) from None


async def _fetch_through_redirects(
    client: httpx.AsyncClient, resources: built_in_tool.ToolResources, url: httpx.URL, *, raw: bool
) -> built_in_tool.ToolOutput:
    """Fetch a page, following redirects. The user is asked for each new host before its name is
    looked up, and again if it turns out to be in a private network.

    The connection goes to the very address that was looked up, so that the name cannot lead
    somewhere else a moment later.
    """
    permitted: set[str] = set()
    next_url = url
    for _ in range(MOST_REDIRECTS + 1):
        host = next_url.host
        if host not in permitted and not _numeric_address(host):
            await _ask_to_fetch(resources, FetchTarget(next_url, "", is_private=False))
            permitted.add(host)
        target = await _find_fetch_target(next_url)
        if target.is_private or host not in permitted:
            await _ask_to_fetch(resources, target)
            permitted.add(host)

        url_with_address = next_url.copy_with(host=target.address)
        host_and_port = next_url.netloc.decode("ascii")
        headers = {
            "Host": host_and_port,
            "User-Agent": "helix-desktop",
            "Accept-Encoding": OFFERED_CODINGS,
        }
        # The server proves who it is by its name, although it is reached by its address.
        extensions = {"sni_hostname": host}
        async with client.stream(
            "GET", url_with_address, headers=headers, extensions=extensions
        ) as response:
            if not response.has_redirect_location:
                return await _result_of_response(next_url, response, raw=raw)
            location = next_url.join(response.headers["location"])
            next_url = _parse_web_address(str(location))
    raise ActionRefused(f"{next_url} redirected too many times: more than {MOST_REDIRECTS}.")


async def _result_of_response(
    url: httpx.URL, response: httpx.Response, *, raw: bool
) -> built_in_tool.ToolOutput:
    """Return a page for the agent: its text, or with `raw` its source. An error of the server
    is named above what it sent.
    """
    content_type = response.headers.get("content-type", "")
    media_type = content_type.partition(";")[0].strip().lower() or "text/plain"
    if not media_type.startswith(_READABLE):
        raise InvalidInput(f"{url} has the type {media_type}, which is not text.")
    sent_body = b"".join([piece async for piece in _body_pieces_cut_at_limit(response, url)])
    body = await asyncio.to_thread(_as_utf8, sent_body, response.charset_encoding or "")
    if "html" in media_type and not raw:
        marked_body = body
        if body != sent_body:
            # The page may still name its old encoding, and a mark comes before that.
            marked_body = codecs.BOM_UTF8 + body
        body = (await html_as_text(marked_body)).encode()
    if not response.is_success:
        status = f"[{response.status_code} {response.reason_phrase}]\n"
        body = status.encode() + body
    return built_in_tool.ToolOutput(body, source=str(url), ok=response.is_success)


def _as_utf8(body: bytes, encoding: str) -> bytes:
    """Return a text in UTF-8, if the server named another encoding that is known."""
    with suppress(LookupError, UnicodeError):
        if encoding and codecs.lookup(encoding).name not in ("utf-8", "ascii"):
            return body.decode(encoding, "replace").encode()
    return body


async def _body_pieces_cut_at_limit(
    response: httpx.Response, url: httpx.URL
) -> AsyncIterator[bytes]:
    """Yield the decompressed body. What is longer than the limit is cut there, and says so."""
    try:
        body = BodyDecompressor(response.headers.get("content-encoding", ""), LARGEST)
        async for piece in response.aiter_raw(1 << 16):
            yield await asyncio.to_thread(body.decode_piece, piece)
        body.require_end()
    except DecodedTooLarge as error:
        yield bytes(error.decoded) + f"\n[cut: pages are read up to {LARGEST:,} bytes]\n".encode()
    except UnreadableCoding as error:
        raise InvalidInput(f"{url} cannot be read: {error}.") from None


def _parse_web_address(text: str) -> httpx.URL:
    """Parse an address of the web. Raises InvalidInput for any other, and for one with a
    password.
    """
    import httpx

    try:
        url = httpx.URL(text)
        host = url.host
    except (httpx.InvalidURL, UnicodeError) as error:
        raise InvalidInput(f"{text[:100]!r} is not an address: {error}.") from None
    if url.scheme not in _WEB_PORTS or not _HOST.fullmatch(host):
        raise InvalidInput(f"{text[:100]!r} is not an http or https address.")
    if url.userinfo:
        raise InvalidInput("Addresses that contain a user name or a password are not fetched.")
    return url


def _numeric_address(host: str) -> str:
    """Return the address if the host is one in any notation, or this machine. Empty for
    a name to look up.
    """
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return "localhost"
    if ":" in name:
        return name
    try:
        return socket.inet_ntoa(socket.inet_aton(name))
    except OSError:
        return ""


async def _find_fetch_target(url: httpx.URL) -> FetchTarget:
    """Return the address that a host's name leads to, and whether it is in a private network."""
    loop = asyncio.get_running_loop()
    host = _numeric_address(url.host) or url.host
    port = url.port or _WEB_PORTS[url.scheme]
    try:
        rows = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise ProviderUnreachable(
            f"No computer named {url.host} was found, or there is no network connection."
        ) from None
    addresses = [str(row[4][0]) for row in rows]
    # With one private address among them, the name counts as private.
    for address in addresses:
        if not is_public_address(address):
            return FetchTarget(url, address, is_private=True)
    return FetchTarget(url, addresses[0], is_private=False)


_OPEN_IPV6 = ipaddress.ip_network("2000::/3")  # All IPv6 addresses of the public internet.


def is_public_address(text: str) -> bool:
    """Whether this is a public internet address, in any notation."""
    address = ipaddress.ip_address(text.partition("%")[0])
    if isinstance(address, ipaddress.IPv4Address):
        return address.is_global and not address.is_multicast
    inner_address = address.ipv4_mapped or address.sixtofour
    if inner_address is not None:
        return is_public_address(str(inner_address))
    return address in _OPEN_IPV6 and address.is_global and not address.is_multicast


async def _ask_to_fetch(resources: built_in_tool.ToolResources, target: FetchTarget) -> None:
    host = target.url.host
    action = ToolAction(
        ToolName.FETCH_URL, ActionEffect.FETCH, f"Fetch from {host}", str(target.url), path=host
    )
    if target.is_private:
        reason = f"{host} is a device on your local network ({target.address})"
        action = replace(action, reason_to_ask=reason, asks_in_every_mode=True)
    await resources.permit(action)


FETCH_URL = built_in_tool.ToolDeclaration(
    ToolName.FETCH_URL,
    "Fetch a page or a file from the internet as text.",
    {
        "type": "object",
        "properties": {
            "url": {"type": "string", "description": "The address"},
            "raw": {"type": "boolean", "description": "The page's source, not its text"},
        },
        "required": ["url"],
    },
)
TOOLS = (built_in_tool.BuiltInTool(FETCH_URL, fetch_url),)
