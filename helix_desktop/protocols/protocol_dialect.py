"""What one provider's protocol is to the client: how to write a request, and how to read its stream.

A dialect only translates. Connections, timeouts, retries and prices are the client's.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, Protocol
from urllib.parse import urlsplit

from helix_desktop.engine.blocks import Delta, Reply, Request
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, Object
from helix_desktop.protocols.event_stream import ServerSentEvent


@dataclass(frozen=True, slots=True)
class ModelAbilities:
    """What a dialect has to know of the model to write a request it will take."""

    max_output: int = 0
    images: bool = True
    tools: bool = True
    reasoning: str = ""  # How effort is sent: "effort", "budget", "adaptive", "level"; "": not at all.
    temperature: bool = True  # True if the model accepts temperature and top_p.


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request as it goes out: the path below the base URL, the dialect's own headers, and the body."""

    path: str
    body: Object
    headers: Mapping[str, str] = field(default_factory=dict)


class ReplyReading(Protocol):
    def feed_event(self, event: ServerSentEvent) -> list[Delta]:
        """The deltas of this event. Raises a ModelFailed when the provider reports an error in the stream, and
        ValueError when the event is not what the protocol knows.
        """
        ...

    @property
    def is_reply_complete(self) -> bool:
        """Whether the provider has said why the reply ended. Nothing that fails after that can take it back."""
        ...

    @property
    def is_stream_over(self) -> bool:
        """Whether nothing more will come (the figures have been sent too)."""
        ...

    def reply_so_far(self, cut: str = "") -> Reply:
        """The reply so far; `cut` says in a sentence why the stream ended before its time."""
        ...


class ProtocolDialect(Protocol):
    """One protocol, set up for one configured provider. `reasoning_tag` marks reasoning that only this provider can read."""

    @property
    def reasoning_tag(self) -> str: ...

    def compile_request(self, request: Request, abilities: ModelAbilities) -> OutgoingRequest: ...

    def build_reply_reader(self, request: Request) -> ReplyReading: ...

    def key_headers(self, key: str) -> Mapping[str, str]: ...

    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """The same request without an optional part that the provider refuses by name, or None."""
        ...


@dataclass(frozen=True, slots=True)
class ProviderEndpoint:
    """Whom a dialect speaks to. `where`: the provider's name in sentences. `key_header`: another name for the key's."""

    base_url: str
    where: str
    key_header: str = ""
    kind: ClassVar[str]

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def reasoning_tag(self) -> str:
        return f"{self.kind} {self.host}"

    def key_headers(self, key: str) -> Mapping[str, str]:
        return {self.key_header: key} if self.key_header else {"authorization": f"Bearer {key}"}


SAMPLING = ("top_p", "temperature")


def sampling_options(request: Request, abilities: ModelAbilities, top_p: str = "top_p") -> Object:
    """What the user set of temperature and the like, for a model that takes it."""
    if not abilities.temperature:
        return {}
    chosen: Object = {"temperature": request.temperature, top_p: request.top_p}
    return {name: value for name, value in chosen.items() if value is not None}


def without_fields(body: Object, *names: str) -> Object:
    return {name: value for name, value in body.items() if name not in names}


def without_refused_option(body: Object, failure: ModelFailed, optional: tuple[str, ...]) -> Object | None:
    """The body without the first optional parameter that the provider's message names, or None."""
    named = next((name for name in optional if name in body and name in failure.what), None)
    return None if named is None else without_fields(body, named)


def find_error_in(value: Json) -> Json:
    """The error an event or a body carries, in the shapes providers use, or None."""
    if not isinstance(value, dict):
        return None
    found = value.get("error")
    return found or None
