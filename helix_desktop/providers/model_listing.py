"""Lists a provider's models, merged with the catalogue and the user's corrections."""

from collections.abc import Mapping
from contextlib import suppress
from urllib.parse import quote, urlsplit

from helix_desktop import json_values
from helix_desktop.errors import InvalidInput, NotFound, ProviderKeyRefused
from helix_desktop.protocols.anthropic import anthropic_client
from helix_desktop.protocols.gemini import gemini_client
from helix_desktop.providers import demo_model, local_server_details, provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport
from helix_desktop.providers.json_fetching import fetch_json
from helix_desktop.providers.model_prices import ModelInfo

SECONDS = 20.0
MOST_PAGES = 20
_NO_CHAT = (
    "embed", "whisper", "tts-", "dall-e", "moderation", "rerank", "imagen", "veo-", "sora",
    "-transcribe", "gpt-image",
)  # fmt: skip


async def list_models(
    config: provider_catalog.ProviderConfig,
    key: str | None,
    connections: ProviderConnections,
    seconds: float = SECONDS,
) -> tuple[ModelInfo, ...]:
    """Return a provider's models by name. Raises ModelFailed if the provider can't be asked."""
    said = await fetch_reported_models(config, key, connections, seconds)
    return tuple(
        provider_catalog.describe_model(config, name, reported=said[name]) for name in sorted(said)
    )


async def list_and_save_models(
    configured: ConfiguredProviders,
    provider: str,
    key: str | None,
    connections: ProviderConnections,
) -> tuple[ModelInfo, ...]:
    """Return a provider's models, and save what it said about them."""
    config = configured.find_provider(provider)
    said = await fetch_reported_models(config, key, connections)
    configured.save_reported_models(provider, said)
    return tuple(
        provider_catalog.describe_model(config, name, reported=said[name]) for name in sorted(said)
    )


async def check_provider_address(
    config: provider_catalog.ProviderConfig, connections: ProviderConnections
) -> None:
    """Contact an address without a key, unless it is a well-known provider's. Raises
    what is wrong.
    """
    config = provider_catalog.check_provider_config(config)
    if not provider_catalog.may_carry_key(config.base_url):
        why = f"A key for {config.name} cannot be sent to an http:// address, because anyone on the network could read it."
        raise InvalidInput(why, remedy="Use an https:// address.")
    if config.host in {preset.host for preset in provider_catalog.PRESETS.values()}:
        return
    dialect = provider_catalog.dialect_of_provider(config)
    with suppress(ProviderKeyRefused):  # This is how a provider answers a request without a key.
        transport = provider_catalog.transport_to_provider(config, dialect, "", connections)
        await fetch_json(transport, _models_path(config), SECONDS)


async def fetch_reported_models(
    config: provider_catalog.ProviderConfig,
    key: str | None,
    connections: ProviderConnections,
    seconds: float = SECONDS,
) -> Mapping[str, json_values.Object]:
    """Return what the provider says about each chat model, under the catalogue's names."""
    if config.kind == demo_model.DEMO:
        return {demo_model.DEMO: {}}
    config = provider_catalog.check_provider_config(config)
    dialect = provider_catalog.dialect_of_provider(config)
    transport = provider_catalog.transport_to_provider(
        config, dialect, provider_catalog.require_usable_key(config, key), connections
    )
    items = {
        _name_of_listed_model(item): item
        for item in await _fetch_all_pages(config, transport, seconds)
    }
    names = [name for name in items if name and not _is_for_no_chat(name)]
    details: Mapping[str, json_values.Object] = {}
    if config.is_local:
        details = await local_server_details.fetch_local_details(transport, names, seconds)
    return {name: _reported_details(items[name]) | details.get(name, {}) for name in names}


def _name_of_listed_model(item: json_values.Json) -> str:
    named = json_values.text_at(item, "name").removeprefix("models/")
    return json_values.text_at(item, "id") or named


def _is_for_no_chat(name: str) -> bool:
    return any(word in name.lower() for word in _NO_CHAT)


async def _fetch_all_pages(
    config: provider_catalog.ProviderConfig, transport: ProviderTransport, seconds: float
) -> list[json_values.Json]:
    path = page = _models_path(config)
    items: list[json_values.Json] = []
    for _ in range(MOST_PAGES):
        listed = await fetch_json(transport, page, seconds)
        items += json_values.list_at(listed, "data") or json_values.list_at(listed, "models")
        token = json_values.text_at(listed, "nextPageToken")
        last = (
            json_values.text_at(listed, "last_id")
            if json_values.value_at(listed, "has_more") is True
            else ""
        )
        if not token and not last:
            break
        more = f"pageToken={quote(token)}" if token else f"after_id={quote(last)}"
        page = f"{path}{'&' if '?' in path else '?'}{more}"
    return items


def _models_path(config: provider_catalog.ProviderConfig) -> str:
    versioned = "/v1" in urlsplit(config.base_url).path
    if config.kind == gemini_client.KIND:
        return f"{'' if versioned else '/v1beta'}/models?pageSize=1000"
    if config.kind == anthropic_client.KIND:
        return f"{'' if versioned else '/v1'}/models?limit=1000"
    return "/models"


def _reported_details(item: json_values.Json) -> json_values.Object:
    """Return what a list says about a model, under the catalogue's names."""
    windows = (
        json_values.number_at(item, "context_length"),  # OpenRouter's name for the window's size
        json_values.number_at(item, "max_model_len"),  # vLLM's name for the window's size
        json_values.number_at(item, "inputTokenLimit"),  # Gemini's name for the window's size
        json_values.number_at(item, "max_input_tokens"),  # Anthropic's name for the window's size
        json_values.number_at(item, "context_window"),  # Groq's name for the window's size
        json_values.number_at(item, "max_context_length"),  # Mistral's name for the window's size
        json_values.number_at(item, "meta", "n_ctx"),  # llama.cpp's name for the window's size
    )
    outputs = (
        json_values.number_at(item, "top_provider", "max_completion_tokens"),
        json_values.number_at(item, "outputTokenLimit"),
        json_values.number_at(item, "max_tokens"),
        json_values.number_at(item, "max_completion_tokens"),
    )
    known: json_values.Object = {"window": max(windows), "max_output": max(outputs)}
    known |= _reported_prices(item) | _reported_abilities(item)
    return {name: value for name, value in known.items() if value or value is False}


def _reported_prices(item: json_values.Json) -> json_values.Object:
    """Convert OpenRouter's prices, which are dollars per token, as text."""
    names = {
        "input": "prompt",
        "output": "completion",
        "cache_read": "input_cache_read",
        "cache_write": "input_cache_write",
    }
    prices: json_values.Object = {}
    for ours, theirs in names.items():
        try:
            prices[ours] = round(float(json_values.text_at(item, "pricing", theirs) or 0) * 1e6, 6)
        except ValueError:
            continue
    return {name: price for name, price in prices.items() if isinstance(price, float) and price > 0}


def _reported_abilities(item: json_values.Json) -> json_values.Object:
    inputs = json_values.list_at(item, "architecture", "input_modalities")
    parameters = json_values.list_at(item, "supported_parameters")
    known: json_values.Object = {}
    if inputs:
        known["images"] = "image" in inputs
    if parameters:
        known["tools"] = "tools" in parameters
        known["temperature"] = "temperature" in parameters
        known["reasoning"] = "effort" if "reasoning" in parameters else ""
    return known


async def ask_provider_about_model(
    configured: ConfiguredProviders,
    provider: str,
    model: str,
    key: str | None,
    connections: ProviderConnections,
) -> ModelInfo:
    """Return what is known of a model being chosen: ask the provider, and load it on a
    local server to learn its real window. NotFound if a local server lacks it; other
    providers' lists may be incomplete.
    """
    config = configured.find_provider(provider)
    said = dict(await fetch_reported_models(config, key, connections))
    if config.is_local and model not in said:
        raise NotFound(
            f"{provider} has no model named {model!r}.",
            remedy=f"The provider's models are: {', '.join(sorted(said)[:20]) or 'none'}.",
        )
    if config.is_local and config.kind != demo_model.DEMO:
        said[model] = {**said[model], **await load_local_model(config, said, model, connections)}
    configured.save_reported_models(provider, said)
    return provider_catalog.describe_model(config, model, reported=said.get(model))


async def load_local_model(
    config: provider_catalog.ProviderConfig,
    reported: Mapping[str, json_values.Object],
    model: str,
    connections: ProviderConnections,
) -> json_values.Object:
    """Make a local server load a model, to learn the window with which it runs. Return an
    empty object if the server does not load models when they are needed.
    """
    kind = provider_catalog.local_server_kind(reported.get(model))
    if kind is None or not local_server_details.is_loaded_when_needed(kind):
        return {}
    dialect = provider_catalog.dialect_of_provider(config)
    transport = provider_catalog.transport_to_provider(config, dialect, "", connections)
    root = local_server_details.server_root(transport)
    return await local_server_details.load_model(root, kind, model)
