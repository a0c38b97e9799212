"""Which providers there are, how each is spoken to, and how a configured one becomes a ModelClient."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from urllib.parse import urlsplit

from helix_desktop.engine.ports import Clock, ModelClient
from helix_desktop.errors import BadKey, WrongUse
from helix_desktop.providers import openai_chat
from helix_desktop.providers.client import Client
from helix_desktop.providers.dialect import Dialect
from helix_desktop.providers.models import ModelInfo, look_up
from helix_desktop.providers.openai_chat import OpenAIChat
from helix_desktop.providers.transport import Connections, Patience, Transport, checked_key, is_loopback
from helix_desktop.providers.wire import Object

_FORBIDDEN_HEADERS = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization"}
)


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider as configured. It holds no key: `key` is the name under which the keyring or the environment has it."""

    name: str
    kind: str = openai_chat.KIND
    base_url: str = ""
    key: str = ""
    key_header: str = ""  # for servers that take the key under another header: Azure's "api-key"
    headers: tuple[tuple[str, str], ...] = ()
    query: tuple[tuple[str, str], ...] = ()  # Azure's api-version
    patience: Patience = Patience()
    corrections: Mapping[str, Object] = field(default_factory=dict)  # model → fields that replace the catalogue's

    @property
    def needs_key(self) -> bool:
        return bool(self.key) and not is_loopback(self.base_url)


PRESETS: Mapping[str, ProviderConfig] = {
    config.name: config
    for config in (
        ProviderConfig("openai", "openai-responses", "https://api.openai.com/v1", "OPENAI_API_KEY"),
        ProviderConfig("anthropic", "anthropic", "https://api.anthropic.com", "ANTHROPIC_API_KEY"),
        ProviderConfig("gemini", "gemini", "https://generativelanguage.googleapis.com", "GEMINI_API_KEY"),
        ProviderConfig("openrouter", "openai-chat", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
        ProviderConfig("deepseek", "openai-chat", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
        ProviderConfig("mistral", "openai-chat", "https://api.mistral.ai/v1", "MISTRAL_API_KEY"),
        ProviderConfig("xai", "openai-chat", "https://api.x.ai/v1", "XAI_API_KEY"),
        ProviderConfig("groq", "openai-chat", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
        ProviderConfig("ollama", "openai-chat", "http://127.0.0.1:11434/v1"),
        ProviderConfig("lmstudio", "openai-chat", "http://127.0.0.1:1234/v1"),
        ProviderConfig("llamacpp", "openai-chat", "http://127.0.0.1:8080/v1"),
        ProviderConfig("vllm", "openai-chat", "http://127.0.0.1:8000/v1"),
    )
}


class SystemClock:
    """The real clock, behind the engine's port."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def checked(config: ProviderConfig) -> ProviderConfig:
    """The configuration, or WrongUse saying what is wrong with it. Secrets have no place in a base URL or a header."""
    if config.kind == "demo":
        return config
    if config.kind not in KINDS:
        raise WrongUse(f"There is no kind of provider {config.kind!r}.", remedy=f"Choose one of {', '.join(KINDS)}.")
    parts = urlsplit(config.base_url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise WrongUse(
            f"The base URL of {config.name} must be an address beginning with https:// or http://, not {config.base_url!r}."
        )
    if parts.username or parts.password or parts.query:
        raise WrongUse(
            f"The base URL of {config.name} carries a password or parameters.",
            remedy="Set a key with `provider add --key`, and parameters such as api-version with --query.",
        )
    secret = next((name for name, _ in config.headers if name.lower() in _FORBIDDEN_HEADERS), None)
    if secret:
        raise WrongUse(
            f"The header {secret} would keep a key in a file.", remedy="Use --key-header and set the key itself."
        )
    if config.key and parts.scheme == "http" and not is_loopback(config.base_url):
        raise WrongUse(
            f"The key of {config.name} would go over the network unencrypted.", remedy="Use an https:// address."
        )
    return config


def dialect_of(config: ProviderConfig) -> Dialect:
    """How this provider is spoken to."""
    return KINDS[config.kind](config)


def _chat(config: ProviderConfig) -> Dialect:
    return OpenAIChat(config.base_url, config.name, config.key_header)


KINDS = {openai_chat.KIND: _chat}


def connect(
    config: ProviderConfig,
    model: str | ModelInfo,
    key: str | None = None,
    *,
    connections: Connections | None = None,
    clock: Clock | None = None,
) -> ModelClient:
    """A client for one model of a configured provider. Nothing is sent yet.

    `connections` are shared by a program's clients and closed by it; without them the client has its own.
    """
    config = checked(config)
    info = model if isinstance(model, ModelInfo) else model_info(config, model)
    if config.needs_key and not key:
        raise BadKey(
            f"There is no key for {config.name}.",
            remedy=f"`helix-desktop provider add {config.name} --key` asks for it.",
        )
    dialect = dialect_of(config)
    clean = checked_key(key, config.name) if key else ""
    transport = transport_of(config, dialect, clean, connections or Connections(connect=config.patience.connect))
    return Client(info, dialect, transport, clock or SystemClock(), key=clean)


def model_info(config: ProviderConfig, model: str, reported: Object | None = None) -> ModelInfo:
    """What is known of a model of this provider, with the user's corrections."""
    return look_up(config.name, model, reported=reported, corrected=config.corrections.get(model))


def transport_of(config: ProviderConfig, dialect: Dialect, key: str, connections: Connections) -> Transport:
    headers = dict(config.headers) | (dict(dialect.credentials(key)) if key else {})
    return Transport(config.base_url, config.name, headers, connections, config.patience, config.query)


def with_url(config: ProviderConfig, base_url: str) -> ProviderConfig:
    return replace(config, base_url=base_url)
