"""Lists a provider's models, merged with the catalogue and the user's corrections."""

from collections.abc import Mapping
from contextlib import suppress
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
    reported = await fetch_reported_models(config, key, connections, seconds)
    return _describe_reported_models(config, reported)


async def list_and_save_models(
    configured: ConfiguredProviders,
    provider: str,
    key: str | None,
    connections: ProviderConnections,
) -> tuple[ModelInfo, ...]:
    """Return a provider's models, and save what it said about them."""
    config = configured.find_provider(provider)
    reported = await fetch_reported_models(config, key, connections)
    configured.save_reported_models(provider, reported)
    return _describe_reported_models(config, reported)


def _describe_reported_models(
    config: provider_catalog.ProviderConfig, reported: Mapping[str, json_values.Object]
) -> tuple[ModelInfo, ...]:
    """Return the models by name, with what the catalogue and the user know of each."""
    models: list[ModelInfo] = []
    for name in sorted(reported):
        models.append(provider_catalog.describe_model(config, name, reported=reported[name]))
    return tuple(models)


async def check_provider_address(
    config: provider_catalog.ProviderConfig, connections: ProviderConnections
) -> None:
    """Check an address that the user entered, before a key is sent there. Raises what is wrong.

    It is asked for its models without a key. A well-known provider's needs no check.
    """
    checked = provider_catalog.check_provider_config(config)
    if not provider_catalog.may_carry_key(checked.base_url):
        raise InvalidInput(
            f"A key for {checked.name} cannot be sent to an http:// address, because anyone on the network could read it.",
            remedy="Use an https:// address.",
        )
    for preset in provider_catalog.PRESETS.values():
        if checked.host == preset.host:
            return
    dialect = provider_catalog.dialect_of_provider(checked)
    with suppress(ProviderKeyRefused):  # This is how a provider answers a request without a key.
        transport = provider_catalog.transport_to_provider(checked, dialect, "", connections)
        await fetch_json(transport, _models_path(checked), SECONDS)


async def fetch_reported_models(
    config: provider_catalog.ProviderConfig,
    key: str | None,
    connections: ProviderConnections,
    seconds: float = SECONDS,
) -> Mapping[str, json_values.Object]:
    """Return what a provider says of each chat model, by the model's name.

    The values have the names that our catalogue of models uses, such as `window`. An
    extension may declare more models than the provider lists. A local server is then asked
    about each of its models.
    """
    if config.kind == demo_model.DEMO:
        return {demo_model.DEMO: {}}
    checked = provider_catalog.check_provider_config(config)
    dialect = provider_catalog.dialect_of_provider(checked)
    usable_key = provider_catalog.require_usable_key(checked, key)
    transport = provider_catalog.transport_to_provider(checked, dialect, usable_key, connections)

    declared = provider_catalog.declared_models_of(checked)
    reported: dict[str, json_values.Object] = dict(declared)
    items = await _fetch_model_items(checked, transport, seconds, has_other_models=bool(declared))
    for item in items:
        name = _name_of_listed_model(item)
        if name and not _is_for_no_chat(name):
            reported[name] = {**declared.get(name, {}), **_reported_details(item)}
    if not checked.is_local:
        return reported

    names = list(reported)
    details = await local_server_details.fetch_local_details(transport, names, seconds)
    for name in names:
        reported[name] |= details.get(name, {})
    return reported


async def _fetch_model_items(
    config: provider_catalog.ProviderConfig,
    transport: ProviderTransport,
    seconds: float,
    *,
    has_other_models: bool,
) -> list[json_values.Json]:
    """Return the models in the provider's list, as it describes them.

    `has_other_models`: an extension declares some. Then the provider may have no list at all.
    """
    try:
        return await _fetch_all_pages(config, transport, seconds)
    except (ProviderKeyRefused, ProviderUnreachable):
        raise
    except ModelFailed:
        if has_other_models:
            return []
        raise


def _name_of_listed_model(item: json_values.Json) -> str:
    """Return the name by which a model is asked for. Gemini's list has it under another field."""
    model_id = json_values.text_at(item, "id")
    if model_id:
        return model_id
    return json_values.text_at(item, "name").removeprefix("models/")


def _is_for_no_chat(name: str) -> bool:
    """Whether a model's name says that it is for something else, such as speech."""
    lowercase_name = name.lower()
    return any(word in lowercase_name for word in _NO_CHAT)


async def _fetch_all_pages(
    config: provider_catalog.ProviderConfig, transport: ProviderTransport, seconds: float
) -> list[json_values.Json]:
    """Return all models in a provider's list, which may have several pages."""
    path_of_list = _models_path(config)
    separator = "?"
    if "?" in path_of_list:
        separator = "&"
    path_of_page = path_of_list
    items: list[json_values.Json] = []
    for _ in range(MOST_PAGES):  # A server could name a next page for ever.
        answer = await fetch_json(transport, path_of_page, seconds)
        items.extend(json_values.list_at(answer, "data") or json_values.list_at(answer, "models"))
        parameter = _parameter_of_next_page(answer)
        if not parameter:
            break
        path_of_page = f"{path_of_list}{separator}{parameter}"
    return items


def _parameter_of_next_page(answer: json_values.Json) -> str:
    """Return what asks for the page after this one, or an empty string after the last."""
    token = json_values.text_at(answer, "nextPageToken")
    if token:
        return f"pageToken={quote(token)}"
    if json_values.value_at(answer, "has_more") is not True:
        return ""
    last_id = json_values.text_at(answer, "last_id")
    if not last_id:
        return ""
    return f"after_id={quote(last_id)}"


def _models_path(config: provider_catalog.ProviderConfig) -> str:
    """Return the path of the list. A base URL may name the protocol's version or not."""
    names_version = "/v1" in urlsplit(config.base_url).path
    if config.kind == gemini_client.KIND:
        path = "/models?pageSize=1000"
        if not names_version:
            path = f"/v1beta{path}"
        return path
    if config.kind == anthropic_client.KIND:
        path = "/models?limit=1000"
        if not names_version:
            path = f"/v1{path}"
        return path
    return "/models"


# Where servers say how large a model's window is, and how long a reply may be.
_PATHS_OF_WINDOW = (
    ("context_length",),  # OpenRouter
    ("max_model_len",),  # vLLM
    ("inputTokenLimit",),  # Gemini
    ("max_input_tokens",),  # Anthropic
    ("context_window",),  # Groq
    ("max_context_length",),  # Mistral
    ("meta", "n_ctx"),  # llama.cpp
)
_PATHS_OF_MAX_OUTPUT = (
    ("top_provider", "max_completion_tokens"),
    ("outputTokenLimit",),
    ("max_tokens",),
    ("max_completion_tokens",),
)


def _reported_details(item: json_values.Json) -> json_values.Object:
    """Return what a list says about a model, under the catalogue's names."""
    windows = [json_values.number_at(item, *path) for path in _PATHS_OF_WINDOW]
    outputs = [json_values.number_at(item, *path) for path in _PATHS_OF_MAX_OUTPUT]
    all_details: json_values.Object = {"window": max(windows), "max_output": max(outputs)}
    all_details.update(_reported_prices(item))
    all_details.update(_reported_abilities(item))
    # An empty value would override what the catalogue knows. False is an answer.
    details: json_values.Object = {}
    for name, value in all_details.items():
        if value or value is False:
            details[name] = value
    return details


def _reported_prices(item: json_values.Json) -> json_values.Object:
    """Return OpenRouter's prices as dollars for a million tokens. It states them for each token,
    as text.
    """
    names = {
        "input": "prompt",
        "output": "completion",
        "cache_read": "input_cache_read",
        "cache_write": "input_cache_write",
    }
    prices: json_values.Object = {}
    for ours, theirs in names.items():
        text = json_values.text_at(item, "pricing", theirs)
        try:
            price_of_token = float(text or 0)
        except ValueError:
            continue
        if 0 < price_of_token < json_values.LARGEST_NUMBER:
            prices[ours] = round(price_of_token * 1e6, 6)
    return prices


def _reported_abilities(item: json_values.Json) -> json_values.Object:
    """Return what a list says of a model's abilities, where it says anything."""
    inputs = json_values.list_at(item, "architecture", "input_modalities")
    parameters = json_values.list_at(item, "supported_parameters")
    abilities: json_values.Object = {}
    if inputs:
        abilities["images"] = "image" in inputs
    if parameters:
        abilities["tools"] = "tools" in parameters
        abilities["temperature"] = "temperature" in parameters
        abilities["reasoning"] = ""
        if "reasoning" in parameters:
            abilities["reasoning"] = "effort"
    return abilities


async def ask_provider_about_model(
    configured: ConfiguredProviders,
    provider: str,
    model: str,
    key: str | None,
    connections: ProviderConnections,
) -> ModelInfo:
    """Ask a provider about the model that the user chooses, and return what is known then.

    A local server loads the model, which shows its real window. Raises NotFound if a local
    server lacks the model. The lists of other providers may be incomplete.
    """
    config = configured.find_provider(provider)
    reported = dict(await fetch_reported_models(config, key, connections))
    if config.is_local and model not in reported:
        some_names = sorted(reported)[:20]
        listed_names = ", ".join(some_names) or "none"
        raise NotFound(
            f"{provider} has no model named {model!r}.",
            remedy=f"The provider's models are: {listed_names}.",
        )
    if config.is_local and config.kind != demo_model.DEMO:
        details_once_loaded = await load_local_model(config, reported, model, connections)
        reported[model] = {**reported[model], **details_once_loaded}
    configured.save_reported_models(provider, reported)
    reported_of_model = reported.get(model)
    return provider_catalog.describe_model(config, model, reported=reported_of_model)


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
