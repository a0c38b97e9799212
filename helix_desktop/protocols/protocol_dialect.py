"""The interface of a provider's protocol: how to write a request, and how to read its stream.

It only translates. The client handles connections, timeouts, retries and prices.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar
from urllib.parse import urlsplit

from helix_desktop.engine.messages import Request
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json, Object, value_at, without_fields
from helix_desktop.protocols.reply_reader import ReplyReaderBase


@dataclass(frozen=True, slots=True)
class ModelAbilities:
    """What must be known of a model to write a request that it accepts."""

    max_output: int = 0
    images: bool = True
    tools: bool = True
    reasoning: str = (
        ""  # How to send effort: "effort", "budget", "adaptive", "level"; "": not at all.
    )
    temperature: bool = True  # True if the model accepts temperature and top_p.
    window: int = 0  # The window that the server is asked for; 0: it has its own.


@dataclass(frozen=True, slots=True)
class OutgoingRequest:
    """A request to send: its path after the provider's address, the protocol's headers,
    and the body.
    """

    path: str
    body: Object
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ProtocolDialect(ABC):
    """One protocol for one configured provider. `where`: its name in sentences.
    `key_header`: the key's header, if unusual.
    """

    base_url: str
    where: str
    key_header: str = ""
    kind: ClassVar[str]

    @property
    def host(self) -> str:
        return urlsplit(self.base_url).hostname or ""

    @property
    def reasoning_owner(self) -> str:
        """Return the mark of reasoning that only this provider can read."""
        return f"{self.kind} {self.host}"

    def key_headers(self, key: str) -> Mapping[str, str]:
        if self.key_header:
            return {self.key_header: key}
        return {"authorization": f"Bearer {key}"}

    @abstractmethod
    def compile_request(self, request: Request, abilities: ModelAbilities) -> OutgoingRequest: ...

    @abstractmethod
    def build_reply_reader(self, request: Request) -> ReplyReaderBase: ...

    @abstractmethod
    def relax_request(self, body: Object, failure: ModelFailed) -> Object | None:
        """Return the request without an optional part that the provider refuses by
        name, or None.
        """


SAMPLING = ("top_p", "temperature")


def sampling_options(request: Request, abilities: ModelAbilities, top_p: str = "top_p") -> Object:
    """Return temperature and similar settings of the user, if the model accepts them."""
    if not abilities.temperature:
        return {}
    options: Object = {}
    if request.temperature is not None:
        options["temperature"] = request.temperature
    if request.top_p is not None:
        options[top_p] = request.top_p
    return options


def without_refused_option(
    body: Object, failure: ModelFailed, optional: tuple[str, ...]
) -> Object | None:
    """Return the body without the first optional parameter that the provider's message
    names, or None.
    """
    for name in optional:
        if name in body and name in failure.what:
            return without_fields(body, name)
    return None


def find_error_in(value: Json) -> Json:
    """Return the error in an event or body, in any provider's form, or None."""
    return value_at(value, "error") or None
