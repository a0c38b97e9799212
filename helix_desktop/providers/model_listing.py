"""Lists a provider's models, merged with the catalogue and the user's corrections."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from urllib.parse import quote, urlsplit

from helix_desktop import json_values
from helix_desktop.errors import (
    InvalidInput,
    ModelFailed,
    NotFound,
    ProviderKeyRefused,
    ProviderUnreachable,
)
from helix_desktop.protocols.anthropic import anthropic_client
from helix_desktop.protocols.gemini import gemini_client
from helix_desktop.protocols.provider_failures import (
    ProviderRefusal,
    failure_of_refusal,
    read_refusal_body,
)
from helix_desktop.providers import demo_model, provider_catalog
from helix_desktop.providers.configured_providers import ConfiguredProviders
from helix_desktop.providers.http_transport import ProviderConnections, ProviderTransport
from helix_desktop.providers.model_prices import ModelInfo

SECONDS, LOADING = 20.0, 120.0
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
    items = await _fetch_all_pages(config, transport, seconds)
    details = await _local_details(transport, seconds) if config.is_local else {}
    return {
        name: _reported_details(item) | json_values.object_at(details, name)
        for item in items
        if (
            name := (
                json_values.text_at(item, "id")
                or json_values.text_at(item, "name").removeprefix("models/")
            )
        )
        and not any(word in name.lower() for word in _NO_CHAT)
    }


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


async def fetch_json(transport: ProviderTransport, path: str, seconds: float) -> json_values.Object:
    """Fetch a JSON document. Raises ModelFailed if it is refused or is none."""
    try:
        async with asyncio.timeout(seconds), transport.open_get(path, seconds) as answer:
            status, headers, content = (
                answer.status_code,
                dict(answer.response_headers),
                await answer.read_whole_body(),
            )
    except TimeoutError:
        raise ProviderUnreachable(
            f"{transport.where} did not respond within {seconds:.0f} seconds."
        ) from None
    if status != 200:
        raise failure_of_refusal(
            ProviderRefusal(transport.where, status, read_refusal_body(content), headers)
        )
    if (found := json_values.parse_object(content)) is None:
        raise ModelFailed(
            f"{transport.where} did not return a list of models.", remedy="Check the address."
        )
    return found


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


# --- Asking local servers for details of their models


async def _local_details(transport: ProviderTransport, seconds: float) -> json_values.Object:
    """Return details from Ollama, LM Studio or llama.cpp: the window with which a model runs."""
    root = replace(transport, base_url=transport.base_url.removesuffix("/v1"))
    for path, read in (
        ("/api/v0/models", _parse_lm_studio_models),
        ("/api/ps", _parse_ollama_models),
        ("/props", _parse_llama_cpp_models),
    ):
        try:
            found = await fetch_json(root, path, min(seconds, 5.0))
        except ModelFailed:
            continue
        return dict(read(found))
    return {}


def _parse_lm_studio_models(found: json_values.Object) -> Iterator[tuple[str, json_values.Object]]:
    for item in json_values.list_at(found, "data"):
        loaded = json_values.number_at(item, "loaded_context_length")
        most = json_values.number_at(item, "max_context_length")
        note = (
            "window as loaded in LM Studio"
            if loaded
            else "the model's largest window; it is not loaded yet"
        )
        known: json_values.Object = (
            {"window": loaded or most, "note": note} if loaded or most else {}
        )
        if kind := json_values.text_at(item, "type"):  # Older versions of LM Studio do not say.
            known["images"] = kind == "vlm"
        yield json_values.text_at(item, "id"), known


def _parse_ollama_models(found: json_values.Object) -> Iterator[tuple[str, json_values.Object]]:
    """Yield models in memory, and the windows with which they run. Ollama silently cuts
    longer requests.
    """
    for item in json_values.list_at(found, "models"):
        if window := json_values.number_at(item, "context_length"):
            yield (
                json_values.text_at(item, "name"),
                {"window": window, "note": "window as loaded in Ollama"},
            )


def _parse_llama_cpp_models(found: json_values.Object) -> Iterator[tuple[str, json_values.Object]]:
    window = json_values.number_at(found, "default_generation_settings", "n_ctx")
    alias = json_values.text_at(found, "model_alias") or json_values.text_at(found, "model_path")
    if window:
        yield alias, {"window": window, "note": "window as llama.cpp was started with"}


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
        said[model] = await load_in_ollama(config, model, connections) or said[model]
    configured.save_reported_models(provider, said)
    return provider_catalog.describe_model(config, model, reported=said.get(model))


async def load_in_ollama(
    config: provider_catalog.ProviderConfig, model: str, connections: ProviderConnections
) -> json_values.Object:
    """Make Ollama load a model, to learn its real window. Does nothing for other servers."""
    dialect = provider_catalog.dialect_of_provider(config)
    there = provider_catalog.transport_to_provider(config, dialect, "", connections)
    root = replace(there, base_url=there.base_url.removesuffix("/v1"))
    try:
        if not json_values.text_at(await fetch_json(root, "/api/version", 3.0), "version"):
            return {}  # Some servers answer every path.
        async with (
            asyncio.timeout(LOADING),
            root.open_post(
                "/api/generate", json_values.dump_json({"model": model, "stream": False}), {}
            ) as answer,
        ):
            await answer.read_whole_body()
        return json_values.object_at(
            dict(_parse_ollama_models(await fetch_json(root, "/api/ps", 5.0))), model
        )
    except (ModelFailed, TimeoutError):
        return {}
