"""A request as it came, and as it is understood: its messages, who asks, and whether recall can be offered."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

from helix_desktop.decompression import DecodedTooLarge, decompress_body
from helix_desktop.gateway import clients
from helix_desktop.gateway.arrival import Arrival
from helix_desktop.gateway.body import leading
from helix_desktop.gateway.reading import Body, Bytes, Readings
from helix_desktop.gateway.registration import Registration
from helix_desktop.gateway.routes import Route
from helix_desktop.gateway.veil import OURS
from helix_desktop.values import dataclass
from helix_desktop.wire import gemini, openai_responses
from helix_desktop.wire.message import Json, Speaker, Tool, Wired

MOST_BODY = 64 << 20
SMALL = 8_000  # bytes of a request without tools that is taken for a side request: a title, a check


@dataclass(frozen=True, slots=True)
class Incoming:
    """A request as it came."""

    method: str
    route: Route
    query: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    headers: Mapping[str, str]
    content: Bytes
    registration: Registration


@dataclass(frozen=True, slots=True)
class Opened:
    """A body that is understood."""

    read: Body
    arrival: Arrival
    adds_tools: bool

    @property
    def wire(self) -> str:
        return self.read.wire

    @property
    def body(self) -> dict[str, Json]:
        return self.read.value

    @property
    def messages(self) -> list[Wired]:
        return self.read.messages

    @property
    def said(self) -> list[Wired]:
        """Without the instructions at the beginning."""
        return self.messages[leading(self.messages) :]


def opened(incoming: Incoming, readings: Readings, *, folds: bool) -> Opened | None:
    """The body, or None for one that passes through: not understood, or a side request. DecodedTooLarge where it stands for
    more than a body may have.
    """
    route = incoming.route
    try:
        content = plain(incoming.content, incoming.headers.get("content-encoding", ""))
        read = readings.read(route.wire, content, clients.session_of(incoming.headers, {}))
    except DecodedTooLarge:
        raise
    except (ValueError, OSError):
        return None
    if read is None or not read.messages or not _manageable(route, read.value):
        return None
    head = read.head
    said = read.messages[leading(read.messages) :]
    if not said or (not head.tools and (len(incoming.content) < SMALL or _is_part(said))):
        return None
    own = any(tool.name.endswith(tuple(OURS)) for tool in head.tools)
    arrival = Arrival(
        wire=route.wire,
        agent=clients.named(route.agent or incoming.registration.agent) or clients.agent_of(incoming.headers),
        session=clients.session_of(incoming.headers, read.value),
        head=_head_hash(head.system, head.tools),
        model=head.model or route.model,
        system=head.system,
        tools=head.tools,
        chain=read.chain,
        fold=folds,
        parent=clients.parent_of(incoming.headers),
    )
    return Opened(read, arrival, adds_tools=folds and bool(head.tools) and not own)


def _is_part(said: Sequence[Wired]) -> bool:
    """Whether the messages are a piece out of a conversation, which a client looks through for something."""
    return said[0].speaker is Speaker.ASSISTANT


def _manageable(route: Route, body: Mapping[str, Json]) -> bool:
    """What the provider keeps for the client is not ours to fold."""
    if route.wire == openai_responses.NAME:
        return not body.get("previous_response_id") and not body.get("conversation") and not body.get("background")
    return route.wire != gemini.NAME or not body.get("cachedContent")


def _head_hash(system: str, tools: Sequence[Tool]) -> str:
    names = "\0".join(sorted(tool.name for tool in tools))
    return hashlib.blake2b(f"{system[:120]}\0{names}".encode("utf-8", "replace"), digest_size=8).hexdigest()


def plain(content: Bytes, encoding: str) -> Bytes:
    """What the bytes say. ValueError for an encoding nobody here reads; DecodedTooLarge past what a body may have."""
    if encoding.strip().lower() in ("", "identity"):
        return content
    return decompress_body(bytes(content), encoding, MOST_BODY)
