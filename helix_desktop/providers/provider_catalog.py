"""Lists the providers and how to reach each, and connects one as a ModelClient."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import field, replace
from ipaddress import ip_address
from typing import Protocol
from urllib.parse import SplitResult, urlsplit

from helix_desktop.engine.messages import Request
from helix_desktop.engine.ports import Clock, ModelClient
from helix_desktop.errors import ActionRefused, InvalidInput, NoUsableKeyring, ProviderKeyRefused
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object, text_at
from helix_desktop.protocols.anthropic import anthropic_client
from helix_desktop.protocols.anthropic.anthropic_client import AnthropicMessages
from helix_desktop.protocols.gemini import gemini_client
from helix_desktop.protocols.gemini.gemini_client import GeminiProtocol
from helix_desktop.protocols.ollama.ollama_client import OllamaChat
from helix_desktop.protocols.openai_chat import chat_client
from helix_desktop.protocols.openai_chat.chat_client import OpenAIChat
from helix_desktop.protocols.openai_responses import responses_client
from helix_desktop.protocols.openai_responses.responses_client import OpenAIResponses
from helix_desktop.protocols.protocol_dialect import ProtocolDialect
from helix_desktop.providers import http_transport
from helix_desktop.providers.demo_model import DEMO, DemoModel
from helix_desktop.providers.http_model_client import HttpModelClient, limit_reply
from helix_desktop.providers.known_provider import KnownProvider
from helix_desktop.providers.known_providers import KNOWN_PROVIDERS
from helix_desktop.providers.local_server_details import LocalServerKind, server_root
from helix_desktop.providers.model_prices import ModelInfo, merge_model_knowledge
from helix_desktop.secrets import ProviderKey, environment_variable_name, host_of_address

# For each variable with a key: the variables that name the address which the key is for.
ADDRESS_VARIABLES = {
    "OPENAI_API_KEY": ("OPENAI_BASE_URL", "OPENAI_API_BASE"),
    "ANTHROPIC_API_KEY": ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"),
    "GEMINI_API_KEY": ("GOOGLE_GEMINI_BASE_URL", "GEMINI_API_BASE"),
}
KEY_NOT_ENTERED = "another address"  # Where a host stands if the user has entered a key.
CACHE_SECONDS = 300  # Anthropic's cache lasts this many seconds, OpenAI's at least as many.
_KEY_HEADERS = frozenset(
    {"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie", "proxy-authorization"}
)


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """A provider's configuration. Its key is in the keyring under the provider's name,
    or in the environment.

    `variable`: the usual environment variable for its key. A provider with a variable needs a key.
    """

    name: str
    kind: str = chat_client.KIND
    base_url: str = ""
    variable: str = ""
    key_host: str = ""  # The host for which the user entered the key.
    # The header that carries the key, if it is unusual, such as Azure's "api-key".
    key_header: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    # Parameters added to each address, such as Azure's api-version.
    query: tuple[tuple[str, str], ...] = ()
    patience: http_transport.ProviderPatience = http_transport.ProviderPatience()
    # For each model: the user's corrections, what the provider last said of it, and what
    # refused requests revealed.
    corrections: Mapping[str, Object] = field(default_factory=dict)
    reported: Mapping[str, Object] = field(default_factory=dict)
    learned: Mapping[str, Object] = field(default_factory=dict)

    @property
    def needs_key(self) -> bool:
        return bool(self.variable) and not self.is_local

    @property
    def host(self) -> str:
        return host_of_address(self.base_url)

    @property
    def provider_key(self) -> ProviderKey:
        """Return the key's name for `SecretStorage`. A local server needs no key of a
        well-known provider.
        """
        hosts_of_variable: list[str] = []
        for preset in PRESETS.values():
            if preset.variable and preset.variable == self.variable:
                hosts_of_variable.append(preset.host)
        is_of_well_known_provider = bool(hosts_of_variable)
        return ProviderKey(
            self.name,
            self.host,
            self.key_host,
            self.variable,
            tuple(hosts_of_variable),
            ADDRESS_VARIABLES.get(self.variable, ()),
            is_of_well_known_provider and self.is_local,
        )

    @property
    def is_local(self) -> bool:
        """Whether it is on this machine: no key, no proxy, and nothing leaves it."""
        return self.kind == DEMO or http_transport.is_loopback(self.base_url)


def _build_preset(known: KnownProvider) -> ProviderConfig:
    """Return the usual settings of a provider that the program or an extension declares."""
    return ProviderConfig(
        known.name,
        known.kind,
        known.base_url,
        known.key_variable,
        key_header=known.key_header,
        reported={model: dict(values) for model, values in known.models.items()},
    )


# Those of the program, and those that allowed extensions add. `PROVIDER_TITLES`: how each
# writes its own name.
PRESETS: dict[str, ProviderConfig] = {known.name: _build_preset(known) for known in KNOWN_PROVIDERS}
PROVIDER_TITLES: dict[str, str] = {known.name: known.title for known in KNOWN_PROVIDERS}

# What the window calls a server on this computer that it was given the address of.
_LOCAL_SERVER = re.compile(r"local-([0-9]{1,5})")

DIALECTS: Mapping[str, Callable[[str, str, str], ProtocolDialect]] = {
    chat_client.KIND: OpenAIChat,
    responses_client.KIND: OpenAIResponses,
    anthropic_client.KIND: AnthropicMessages,
    gemini_client.KIND: GeminiProtocol,
}
KINDS = tuple(DIALECTS) + (DEMO,)


def add_known_provider(known: KnownProvider) -> None:
    """Add the provider of an extension. Raises InvalidInput for a name that another one has, and
    for whatever could bring it the key of another one.
    """
    own_variable = environment_variable_name(known.name)
    for preset in PRESETS.values():
        if known.name == preset.name or own_variable == environment_variable_name(preset.name):
            raise InvalidInput(f"There is another provider named {preset.name}.")
    if known.key_variable not in ("", own_variable):
        raise InvalidInput(
            f"The key of the provider {known.name} can only be in the variable {own_variable}."
        )
    config = check_provider_config(_build_preset(known))
    if config.kind == DEMO:
        raise InvalidInput(f"The provider {known.name} cannot be a demonstration.")
    if not config.is_local:
        if urlsplit(config.base_url).scheme != "https":
            raise InvalidInput(f"The address of {known.name} must start with https://.")
        # A key that the keyring has under this name was entered before for something else.
        config = replace(config, key_host=KEY_NOT_ENTERED)
    PRESETS[known.name] = config
    PROVIDER_TITLES[known.name] = known.title


def name_provider_in_sentences(name: str) -> str:
    """Return what people call a provider: its own spelling, or the port of a local server."""
    local_server = _LOCAL_SERVER.fullmatch(name)
    if local_server is not None:
        return f"Local server on port {local_server[1]}"
    return PROVIDER_TITLES.get(name, name)


def remove_known_provider(name: str) -> None:
    del PRESETS[name]
    del PROVIDER_TITLES[name]


def declared_models_of(config: ProviderConfig) -> Mapping[str, Object]:
    """Return what an extension declares of the models of its provider, at that address."""
    preset = PRESETS.get(config.name)
    if preset is None or preset.base_url != config.base_url:
        return {}
    return preset.reported


class SystemClock:
    """The real clock, for the engine's port."""

    def current_time(self) -> float:
        return time.time()

    def steady_time(self) -> float:
        return time.monotonic()

    async def sleep_seconds(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def check_provider_config(config: ProviderConfig) -> ProviderConfig:
    """Return a provider's settings in their usual form, or raise InvalidInput for wrong ones.

    Address and headers must not contain a key, because the settings are stored in a file.
    """
    if config.kind not in KINDS:
        raise InvalidInput(
            f"Unknown provider type: {config.kind!r}.", remedy=f"Choose one of {', '.join(KINDS)}."
        )
    if config.kind == DEMO:
        return config
    parts = _split_base_url(config)
    if parts.username or parts.password or parts.query:
        raise InvalidInput(
            f"The address of {config.name} contains a password or parameters, which would be stored in a file.",
            remedy="Set the key with `provider add --key`, and parameters such as api-version with `--query`.",
        )
    _check_headers(config)
    has_no_path = parts.path in {"", "/"}
    if has_no_path and config.kind in {chat_client.KIND, responses_client.KIND}:
        return replace(config, base_url=f"{config.base_url.rstrip('/')}/v1")
    return config


def _check_headers(config: ProviderConfig) -> None:
    """Raise InvalidInput for headers that cannot be sent, or that would store a key in a file."""
    headers = list(config.headers)
    headers.append((config.key_header, ""))
    for name, value in headers:
        if not _is_legal_header(name, value):
            raise InvalidInput(
                f"{name!r} cannot be used as a header for {config.name}.",
                remedy="Names and values must be plain ASCII.",
            )
    for name, _ in config.headers:
        if name.lower() in _KEY_HEADERS:
            raise InvalidInput(
                f"Saving the header {name} would store a key in a file.",
                remedy="Use --key-header and --key instead.",
            )


def is_provider_address(address: str) -> bool:
    """Whether requests can be sent to this address. It may still be one where no server is."""
    try:
        parts = urlsplit(address)
        host = parts.hostname
        port = parts.port
    except ValueError:
        return False
    if parts.scheme not in {"http", "https"}:
        return False
    has_blanks = any(letter.isspace() for letter in address)
    return bool(host) and port != 0 and not has_blanks


def _split_base_url(config: ProviderConfig) -> SplitResult:
    if not is_provider_address(config.base_url):
        raise InvalidInput(
            f"The address of {config.name} must start with https:// or http://.",
            remedy="For example: https://llm.example.org/v1.",
        )
    return urlsplit(config.base_url)


def _is_legal_header(name: str, value: str) -> bool:
    for text in (name, value):
        if not text.isascii() or not text.isprintable():
            return False
    separators_in_name = set(name) & set(' :;,"()<>@/[]?={}')
    return not separators_in_name


def may_carry_key(url: str) -> bool:
    """Whether a key may be sent there: encrypted, or within this machine or its network."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if parts.scheme == "https" or http_transport.is_loopback(url):
        return True
    try:
        return ip_address(host).is_private
    except ValueError:
        return "." not in host or host.endswith((".local", ".lan", ".internal", ".home.arpa"))


def dialect_of_provider(config: ProviderConfig) -> ProtocolDialect:
    return DIALECTS[config.kind](config.base_url, config.name, config.key_header)


def dialect_of_model(config: ProviderConfig, info: ModelInfo) -> ProtocolDialect:
    """Return the protocol in which this model is asked. Ollama's own is used where the
    server says that it is Ollama, because the other one cannot name a window.
    """
    if info.server == LocalServerKind.OLLAMA and config.kind == chat_client.KIND:
        return OllamaChat(config.base_url, config.name, config.key_header)
    return dialect_of_provider(config)


def connect_model_client(
    config: ProviderConfig,
    model: str | ModelInfo,
    key: str | None = None,
    *,
    connections: http_transport.ProviderConnections | None = None,
    clock: Clock | None = None,
) -> ModelClient:
    """Return a client that asks this model. It sends nothing yet.

    `connections`: those that all models of the program share, and the program closes. Raises
    ProviderKeyRefused if there is no key, or none that may be sent.
    """
    checked = check_provider_config(config)
    clock = clock or SystemClock()
    if isinstance(model, ModelInfo):
        info = model
    else:
        info = describe_model(checked, model)
    if checked.kind == DEMO:
        return DemoModel(info.name, clock.sleep_seconds)

    dialect = dialect_of_model(checked, info)
    clean_key = require_usable_key(checked, key)
    if connections is None:
        connections = http_transport.ProviderConnections(connect=checked.patience.connect)
    transport = transport_to_provider(checked, dialect, clean_key, connections)
    if isinstance(dialect, OllamaChat):
        transport = server_root(transport)
    return HttpModelClient(info, dialect, transport, clock, key=clean_key)


def request_body_of(config: ProviderConfig, info: ModelInfo, request: Request) -> Object:
    """Return a request's body as it is sent. The demonstration's is shown as a chat completion."""
    if config.kind == DEMO:
        dialect: ProtocolDialect = OpenAIChat("", config.name)
    else:
        dialect = dialect_of_model(check_provider_config(config), info)
    limited = limit_reply(replace(request, model=info.id), info)
    return dialect.compile_request(limited, info.abilities).body


def with_base_url(config: ProviderConfig, base_url: str) -> ProviderConfig:
    """Return the provider with another address. A stored key stays that of its host."""
    config_with_address = replace(config, base_url=base_url)
    if config_with_address.host == config.host:
        return config_with_address
    return replace(config_with_address, key_host=config.key_host or config.host)


class KeySource(Protocol):
    """Where keys are kept, such as `secrets.SecretStorage`."""

    async def read_secret(self, secret: ProviderKey) -> str | None: ...


async def find_provider_key(config: ProviderConfig, keys: KeySource) -> str | None:
    """Return a provider's key, or None if there is none.

    A keyring that fails matters only if a key is needed or was entered. Then it raises
    ProviderKeyRefused, as does a key that was entered for another address.
    """
    if config.kind == DEMO:
        return None
    try:
        return await keys.read_secret(config.provider_key)
    except ActionRefused as error:
        raise ProviderKeyRefused(error.what, remedy=error.remedy) from error
    except NoUsableKeyring as error:
        if config.needs_key or config.key_host:
            raise ProviderKeyRefused(error.what, remedy=error.remedy) from error
        return None


def require_usable_key(config: ProviderConfig, key: str | None) -> str:
    """Return the key to send, or an empty string for a provider that needs none.

    Raises ProviderKeyRefused if a key is missing, or if it would go over an open network.
    """
    if not key and config.needs_key:
        raise ProviderKeyRefused(
            f"There is no key for {config.name}.",
            remedy=f"Run `helix-desktop provider add {config.name} --key` to enter the key, or set {config.variable} in the environment.",
        )
    if key and not may_carry_key(config.base_url):
        raise ProviderKeyRefused(
            f"The key for {config.name} was not sent to an http:// address, because anyone on the network could read it.",
            remedy="Use an https:// address.",
        )
    if not key:
        return ""
    return http_transport.strip_and_check_key(key, config.name)


def describe_model(config: ProviderConfig, model: str, reported: Object | None = None) -> ModelInfo:
    """Return what is known of a provider's model: its window, prices and abilities.

    `reported`: what the provider says of it now, if it was just asked.
    """
    if reported is None:
        reported = config.reported.get(model)
    info = merge_model_knowledge(
        config.name,
        model,
        reported=reported,
        learned=config.learned.get(model),
        corrected=config.corrections.get(model),
        is_local=runs_on_this_computer(config),
    )
    abilities = info.abilities
    if info.server == LocalServerKind.OLLAMA:
        # Each request names the window with which Ollama is to run the model.
        abilities = replace(abilities, window=info.window)
    seconds = cache_life_seconds(config, model)
    return replace(info, abilities=abilities, cache_seconds=seconds)


def runs_on_this_computer(config: ProviderConfig) -> bool:
    """Whether the models themselves seem to be here. Local model servers speak Chat
    Completions and need no key; otherwise it is a program that passes requests on.
    """
    if config.kind == DEMO:
        return True
    if config.kind != chat_client.KIND or config.variable or config.key_host:
        return False
    return has_address_of_this_computer(config)


def has_address_of_this_computer(config: ProviderConfig) -> bool:
    """Whether the address seems to be here. Unlike `is_local`, which decides about keys
    and proxies, it does not import the library for requests, which an open window needs
    only once something is sent.
    """
    try:
        host = urlsplit(config.base_url).hostname or ""
        if host == "localhost" or host.endswith(".localhost"):
            return True
        return ip_address(host).is_loopback
    except ValueError:  # It is no address, or a name.
        return False


def local_server_kind(reported: Object | None) -> LocalServerKind | None:
    """Return the kind of local server that reported this of its model."""
    name = text_at(reported, "server")
    if name not in set(LocalServerKind):
        return None
    return LocalServerKind(name)


def cache_life_seconds(config: ProviderConfig, model: str) -> int:
    """Return how many seconds the provider's cache is documented to last after its last
    use, or 0.
    """
    is_anthropic = config.kind == anthropic_client.KIND or model.startswith("anthropic/")
    is_openai = urlsplit(config.base_url).hostname == "api.openai.com"
    if is_anthropic or is_openai:
        return CACHE_SECONDS
    return 0


def transport_to_provider(
    config: ProviderConfig,
    dialect: ProtocolDialect,
    key: str,
    connections: http_transport.ProviderConnections,
) -> http_transport.ProviderTransport:
    """Return how to reach a provider, with its own headers and those that carry the key."""
    headers = dict(config.headers)
    if key:
        headers.update(dialect.key_headers(key))
    return http_transport.ProviderTransport(
        base_url=config.base_url,
        where=name_provider_in_sentences(config.name),
        headers=headers,
        connections=connections,
        patience=config.patience,
        query=config.query,
    )
