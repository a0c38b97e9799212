"""The models a provider says it has, merged with what the catalogue knows and the user corrected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import replace
from urllib.parse import quote, urlsplit

from helix_desktop.errors import ModelFailed, NotThere, Unreachable
from helix_desktop.providers import anthropic, demo, gemini
from helix_desktop.providers.catalog import ProviderConfig, checked, dialect_of, model_info, transport_of, usable_key
from helix_desktop.providers.configured import Configured
from helix_desktop.providers.dialect import without
from helix_desktop.providers.failures import Refusal, failure_of, read_body
from helix_desktop.providers.models import ModelInfo
from helix_desktop.providers.transport import Connections, Transport
from helix_desktop.providers.wire import Json, Object, dump, get, list_at, number_at, object_at, parse_object, text_at

SECONDS, LOADING = 20.0, 120.0
MOST_PAGES = 20
_NO_CHAT = (
    "embed",
    "whisper",
    "tts-",
    "dall-e",
    "moderation",
    "rerank",
    "imagen",
    "veo-",
    "sora",
    "-transcribe",
    "gpt-image",
)


async def models(
    config: ProviderConfig, key: str | None, connections: Connections, seconds: float = SECONDS
) -> tuple[ModelInfo, ...]:
    """All models of a configured provider, by name. Raises a ModelFailed when the provider cannot be asked."""
    said = await reported(config, key, connections, seconds)
    return tuple(model_info(config, name, reported=said[name]) for name in sorted(said))


async def refreshed(
    configured: Configured, provider: str, key: str | None, connections: Connections
) -> tuple[ModelInfo, ...]:
    """All models of a provider, and what it said about them kept for the next time."""
    config = configured.get(provider)
    said = await reported(config, key, connections)
    configured.remember(provider, said)
    return tuple(model_info(config, name, reported=said[name]) for name in sorted(said))


async def reported(
    config: ProviderConfig, key: str | None, connections: Connections, seconds: float = SECONDS
) -> Mapping[str, Object]:
    """What the provider says about each model that can talk, under the catalogue's names."""
    if config.kind == demo.DEMO:
        return {demo.DEMO: {}}
    config = checked(config)
    dialect = dialect_of(config)
    transport = transport_of(config, dialect, usable_key(config, key), connections)
    items = await _all(config, transport, seconds)
    details = await _local_details(transport, seconds) if config.is_local else {}
    return {name: object_at(details, name) or _said(item) for item in items if _talks(name := _name(item))}


def _talks(name: str) -> bool:
    return bool(name) and not any(word in name.lower() for word in _NO_CHAT)


async def _all(config: ProviderConfig, transport: Transport, seconds: float) -> list[Json]:
    """All pages of the list."""
    path = page = _path(config)
    items: list[Json] = []
    for _ in range(MOST_PAGES):
        listed = await ask(transport, page, seconds)
        items += list_at(listed, "data") or list_at(listed, "models")
        token = text_at(listed, "nextPageToken")
        last = text_at(listed, "last_id") if get(listed, "has_more") is True else ""
        if not token and not last:
            break
        more = f"pageToken={quote(token)}" if token else f"after_id={quote(last)}"
        page = f"{path}{'&' if '?' in path else '?'}{more}"
    return items


def _path(config: ProviderConfig) -> str:
    versioned = "/v1" in urlsplit(config.base_url).path
    if config.kind == gemini.KIND:
        return f"{'' if versioned else '/v1beta'}/models?pageSize=1000"
    if config.kind == anthropic.KIND:
        return f"{'' if versioned else '/v1'}/models?limit=1000"
    return "/models"


async def ask(transport: Transport, path: str, seconds: float) -> Object:
    """One JSON document; a ModelFailed when it is refused or is none."""
    try:
        async with asyncio.timeout(seconds), transport.get(path, seconds) as answer:
            status, headers, content = answer.status, dict(answer.headers), await answer.whole()
    except TimeoutError:
        raise Unreachable(f"{transport.where} did not respond within {seconds:.0f} seconds.") from None
    if status != 200:
        raise failure_of(Refusal(transport.where, status, read_body(content), headers))
    found = parse_object(content)
    if found is None:
        raise ModelFailed(f"{transport.where} did not return a list of models.", remedy="Check the base URL.")
    return found


def _name(item: Json) -> str:
    return text_at(item, "id") or text_at(item, "name").removeprefix("models/")


def _said(item: Json) -> Object:
    """What a list says about a model, under the catalogue's names."""
    windows = (
        number_at(item, "context_length"),  # OpenRouter
        number_at(item, "max_model_len"),  # vLLM
        number_at(item, "inputTokenLimit"),  # Gemini
        number_at(item, "max_input_tokens"),  # Anthropic
        number_at(item, "context_window"),  # Groq
        number_at(item, "max_context_length"),  # Mistral
        number_at(item, "meta", "n_ctx"),  # llama.cpp
    )
    outputs = (
        number_at(item, "top_provider", "max_completion_tokens"),
        number_at(item, "outputTokenLimit"),
        number_at(item, "max_tokens"),
        number_at(item, "max_completion_tokens"),
    )
    known: Object = {"window": max(windows), "max_output": max(outputs), **_prices(item), **_abilities(item)}
    return {name: value for name, value in known.items() if value or value is False}


def _prices(item: Json) -> Object:
    """OpenRouter gives dollars per token, as text."""
    names = {
        "input": "prompt",
        "output": "completion",
        "cache_read": "input_cache_read",
        "cache_write": "input_cache_write",
    }
    prices: Object = {}
    for ours, theirs in names.items():
        try:
            prices[ours] = round(float(text_at(item, "pricing", theirs) or 0) * 1e6, 6)
        except ValueError:
            continue
    return {name: price for name, price in prices.items() if isinstance(price, float) and price > 0}


def _abilities(item: Json) -> Object:
    inputs = list_at(item, "architecture", "input_modalities")
    parameters = list_at(item, "supported_parameters")
    known: Object = {}
    if inputs:
        known["images"] = "image" in inputs
    if parameters:
        known["tools"] = "tools" in parameters
        known["temperature"] = "temperature" in parameters
        known["reasoning"] = "effort" if "reasoning" in parameters else ""
    return known


# --- local servers: what is really loaded ----------------------------------------------------------------------------


async def _local_details(transport: Transport, seconds: float) -> Object:
    """What Ollama, LM Studio and llama.cpp tell beside the list: the window a model really runs with."""
    root = replace(transport, base_url=transport.base_url.removesuffix("/v1"))
    for path, read in (("/api/v0/models", _lm_studio), ("/api/ps", _ollama), ("/props", _llama_cpp)):
        try:
            found = await ask(root, path, min(seconds, 5.0))
        except ModelFailed:
            continue
        return dict(read(found))
    return {}


def _lm_studio(found: Object) -> Iterator[tuple[str, Object]]:
    for item in list_at(found, "data"):
        loaded, most = number_at(item, "loaded_context_length"), number_at(item, "max_context_length")
        note = "window as loaded in LM Studio" if loaded else "the model's largest window; it is not loaded yet"
        known: Object = {"window": loaded or most, "note": note}
        if kind := text_at(item, "type"):  # older servers do not say what a model can do
            known["images"] = kind == "vlm"
        yield text_at(item, "id"), known if loaded or most else without(known, "window")


def _ollama(found: Object) -> Iterator[tuple[str, Object]]:
    """Only models in memory are listed here, each with the window it runs with; Ollama cuts what is longer, silently."""
    for item in list_at(found, "models"):
        window = number_at(item, "context_length")
        if window:
            yield text_at(item, "name"), {"window": window, "note": "window as loaded in Ollama"}


def _llama_cpp(found: Object) -> Iterator[tuple[str, Object]]:
    window = number_at(found, "default_generation_settings", "n_ctx")
    alias = text_at(found, "model_alias") or text_at(found, "model_path")
    if window:
        yield alias, {"window": window, "note": "window as llama.cpp was started with"}


async def learned(
    configured: Configured, provider: str, model: str, key: str | None, connections: Connections
) -> ModelInfo:
    """What is known of a model somebody is choosing: asked of the provider, and for a server on this machine loaded, to
    learn the window it really runs with. NotThere when a local server has no such model; other providers' lists may
    lack models that can be used.
    """
    config = configured.get(provider)
    said = dict(await reported(config, key, connections))
    if config.is_local and model not in said:
        raise NotThere(
            f"{provider} has no model {model!r}.",
            remedy=f"These values can be overridden: {', '.join(sorted(said)[:20]) or 'none'}.",
        )
    if config.is_local and config.kind != demo.DEMO:
        said[model] = await load(config, model, connections) or said[model]
    configured.remember(provider, said)
    return model_info(config, model, reported=said.get(model))


async def load(config: ProviderConfig, model: str, connections: Connections) -> Object:
    """Have Ollama load a model, to learn the window it really runs with. Nothing where the server is another one."""
    dialect = dialect_of(config)
    there = transport_of(config, dialect, "", connections)
    root = replace(there, base_url=there.base_url.removesuffix("/v1"))
    try:
        await ask(root, "/api/version", 3.0)
        async with (
            asyncio.timeout(LOADING),
            root.post("/api/generate", dump({"model": model, "stream": False}), {}) as answer,
        ):
            await answer.whole()
        return object_at(dict(_ollama(await ask(root, "/api/ps", 5.0))), model)
    except (ModelFailed, TimeoutError):
        return {}
