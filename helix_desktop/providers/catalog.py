"""Which providers there are, how each is spoken to, and how a configured one becomes a ModelClient."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from helix_desktop.engine.blocks import Request
from helix_desktop.engine.ports import Clock, ModelClient
from helix_desktop.errors import BadKey, NoKeyring, Refused, WrongUse
from helix_desktop.providers import anthropic, gemini, openai_chat, openai_responses
from helix_desktop.providers.anthropic import Anthropic
from helix_desktop.providers.client import Client
from helix_desktop.providers.demo import DEMO, Demo
from helix_desktop.providers.dialect import Dialect
from helix_desktop.providers.gemini import Gemini
from helix_desktop.providers.models import ModelInfo, look_up
from helix_desktop.providers.openai_chat import OpenAIChat
from helix_desktop.providers.openai_responses import OpenAIResponses
from helix_desktop.providers.transport import Connections, Patience, Transport, checked_key, is_loopback
from helix_desktop.providers.wire import Object
from helix_desktop.secrets import ProviderKey
from helix_desktop.values import dataclass

_PORTS = {"https": 443, "http": 80}
CACHE_SECONDS = 300  # Anthropic's cache, and the least OpenAI says
_KEY_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider as configured. It holds no key: that is in the keyring under the provider's name, or in the environment.

    `variable`: the environment variable people use for this provider's key; a provider that has one needs a key.
    """

    name: str
    kind: str = openai_chat.KIND
    base_url: str = ""
    variable: str = ""
    key_host: str = ""  # the host the key was entered for
    key_header: str = ""  # for servers that take the key under another header: Azure's "api-key"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()  # Azure's api-version
    patience: Patience = Patience()
    corrections: Mapping[str, Object] = field(default_factory=dict)  # model → what the user knows better
    reported: Mapping[str, Object] = field(default_factory=dict)  # model → what the provider last said about it
    learned: Mapping[str, Object] = field(default_factory=dict)  # model → what its refusals taught

    @property
    def needs_key(self) -> bool:
        return bool(self.variable) and not self.is_local

    @property
    def host(self) -> str:
        """Where its key goes: the host of its address, with the port where that is not the usual one."""
        try:
            parts = urlsplit(self.base_url)
            port = "" if parts.port in (None, _PORTS.get(parts.scheme)) else f":{parts.port}"
        except ValueError:
            return ""
        return f"{parts.hostname or ''}{port}"

    @property
    def key(self) -> ProviderKey:
        """Whose key it is, for `Secrets`."""
        return ProviderKey(self.name, self.host, self.key_host, self.variable)

    @property
    def is_local(self) -> bool:
        """On this machine: no key, no proxy, nothing leaves it."""
        return self.kind == DEMO or is_loopback(self.base_url)


PRESETS: Mapping[str, ProviderConfig] = {
    config.name: config
    for config in (
        ProviderConfig("openai", openai_responses.KIND, "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ProviderConfig("anthropic", anthropic.KIND, "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ProviderConfig("gemini", gemini.KIND, "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        ProviderConfig("openrouter", openai_chat.KIND, "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ProviderConfig("deepseek", openai_chat.KIND, "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        ProviderConfig("mistral", openai_chat.KIND, "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        ProviderConfig("xai", openai_chat.KIND, "https://api.x.ai/v1", "XAI_API_KEY"),
        ProviderConfig("groq", openai_chat.KIND, "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ProviderConfig("ollama", openai_chat.KIND, "http://127.0.0.1:11434/v1"),
        ProviderConfig("lmstudio", openai_chat.KIND, "http://127.0.0.1:1234/v1"),
        ProviderConfig("llamacpp", openai_chat.KIND, "http://127.0.0.1:8080/v1"),
        ProviderConfig("vllm", openai_chat.KIND, "http://127.0.0.1:8000/v1"),
        ProviderConfig(DEMO, DEMO),
    )
}

DIALECTS: Mapping[str, Callable[[str, str, str], Dialect]] = {
    openai_chat.KIND: OpenAIChat,
    openai_responses.KIND: OpenAIResponses,
    anthropic.KIND: Anthropic,
    gemini.KIND: Gemini,
}
KINDS = (*DIALECTS, DEMO)


class SystemClock:
    """The real clock, behind the engine's port."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def checked(config: ProviderConfig) -> ProviderConfig:
    """The configuration made regular, or WrongUse saying what is wrong with it. A URL or a header is no place for a key."""
    if config.kind not in KINDS:
        raise WrongUse(f"Unknown provider type: {config.kind!r}.", remedy=f"Choose one of {', '.join(KINDS)}.")
    if config.kind == DEMO:
        return config
    parts = _parts_of(config)
    if parts.username or parts.password or parts.query:
        raise WrongUse(
            f"The base URL of {config.name} contains a password or parameters, which would be stored in a file.",
            remedy="Set the key with provider add --key, and parameters such as api-version with --query.",
        )
    odd = next(
        (name for name, value in (*config.headers, (config.key_header, "")) if not _is_header(name, value)), None
    )
    if odd is not None:
        raise WrongUse(
            f"{odd!r} can't be used as a header for {config.name}.", remedy="Names and values must be plain ASCII."
        )
    secret = next((name for name, _ in config.headers if name.lower() in _KEY_HEADERS), None)
    if secret:
        raise WrongUse(
            f"Saving the header {secret} would store a key in a file.", remedy="Use --key-header and --key instead."
        )
    bare = parts.path in {"", "/"} and config.kind in {openai_chat.KIND, openai_responses.KIND}
    return replace(config, base_url=f"{config.base_url.rstrip('/')}/v1") if bare else config


def _parts_of(config: ProviderConfig) -> SplitResult:
    try:
        parts = urlsplit(config.base_url)
        good = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        good = False
    if not good:
        raise WrongUse(
            f"The base URL of {config.name} must start with https:// or http://.",
            remedy="For example: https://llm.example.org/v1.",
        )
    return parts


def _is_header(name: str, value: str) -> bool:
    plain = all(text.isascii() and (text.isprintable() or not text) for text in (name, value))
    return plain and not set(name) & set(' :;,"()<>@/[]?={}')


def may_carry_key(url: str) -> bool:
    """Whether a key may go there: encrypted, or no further than this machine or its own network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or is_loopback(url):
        return True
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


def dialect_of(config: ProviderConfig) -> Dialect:
    """How this provider is spoken to."""
    return DIALECTS[config.kind](config.base_url, config.name, config.key_header)


def connect(
    config: ProviderConfig,
    model: str | ModelInfo,
    key: str | None = None,
    *,
    connections: Connections | None = None,
    clock: Clock | None = None,
) -> ModelClient:
    """A client for one model of a configured provider. Nothing is sent yet.

    `connections` are shared by a program's clients, and closed by it; without them the client has its own.
    """
    config = checked(config)
    clock = clock or SystemClock()
    info = model if isinstance(model, ModelInfo) else model_info(config, model)
    if config.kind == DEMO:
        return Demo(info.name, clock.sleep)
    dialect, clean = dialect_of(config), usable_key(config, key)
    transport = transport_of(config, dialect, clean, connections or Connections(connect=config.patience.connect))
    return Client(info, dialect, transport, clock, key=clean)


def wire_form(config: ProviderConfig, info: ModelInfo, request: Request) -> Object:
    """The body a request goes out as: "what the model saw". The demonstration reads requests as they are; for it, they are
    shown as chat completions.
    """
    dialect = OpenAIChat("", config.name) if config.kind == DEMO else dialect_of(checked(config))
    return dialect.compile(replace(request, model=info.id), info.abilities).body


def moved(config: ProviderConfig, base_url: str) -> ProviderConfig:
    """At another address; a key that is kept stays the one of the host it was entered for."""
    there = replace(config, base_url=base_url)
    return there if there.host == config.host else replace(there, key_host=config.key_host or config.host)


class Keys(Protocol):
    """Where keys are kept; `secrets.Secrets` is one."""

    async def get(self, secret: ProviderKey) -> str | None: ...


async def key_for(config: ProviderConfig, keys: Keys) -> str | None:
    """The key of a provider, if there is one. A keyring that does not answer matters only where a key is needed, and is
    then a BadKey with its own sentence; so is a key that was entered for another address. The demonstration has none.
    """
    if config.kind == DEMO:
        return None
    try:
        return await keys.get(config.key)
    except Refused as error:
        raise BadKey(error.what, remedy=error.remedy) from error
    except NoKeyring as error:
        if config.needs_key:
            raise BadKey(error.what, remedy=error.remedy) from error
        return None


def usable_key(config: ProviderConfig, key: str | None) -> str:
    """The key to send, empty where none is needed; BadKey says why there is none that could be sent."""
    if not key and config.needs_key:
        raise BadKey(
            f"There is no key for {config.name}.",
            remedy=f"Run `helix-desktop provider add {config.name}` to enter it, or set {config.variable} in the environment.",
        )
    if key and not may_carry_key(config.base_url):
        raise BadKey(
            f"The key for {config.name} was not sent, because with http://, anyone on the network could read it.",
            remedy="Use an https:// address.",
        )
    return checked_key(key, config.name) if key else ""


def model_info(config: ProviderConfig, model: str, reported: Object | None = None) -> ModelInfo:
    """What is known of a model: the user's corrections, what its refusals taught, what the provider's list says, the catalogue."""
    listed = config.reported.get(model) if reported is None else reported
    info = look_up(
        config.name, model, reported=listed, learned=config.learned.get(model), corrected=config.corrections.get(model)
    )
    return replace(info, cache_seconds=cache_life(config, model))


def cache_life(config: ProviderConfig, model: str) -> int:
    """The seconds a provider keeps a prompt in its cache after the last use, at least, as it documents; 0: it does not say."""
    documented = config.kind == anthropic.KIND or urlsplit(config.base_url).hostname == "api.openai.com"
    return CACHE_SECONDS if documented or model.startswith("anthropic/") else 0


def transport_of(config: ProviderConfig, dialect: Dialect, key: str, connections: Connections) -> Transport:
    """The way to this provider, with its headers and its key."""
    headers = dict(config.headers) | (dict(dialect.credentials(key)) if key else {})
    return Transport(config.base_url, config.name, headers, connections, config.patience, config.query)
