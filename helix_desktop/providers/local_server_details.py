"""Asks a model server on this computer what it is, and with which window its models run.

Servers are told apart by what they answer, not by their port: each has one path that
the others do not have. A window that no server states is never guessed large, because
Ollama and LM Studio silently cut the beginning of what does not fit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from enum import StrEnum

from helix_desktop import json_values
from helix_desktop.errors import ModelFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object
from helix_desktop.providers.http_transport import ProviderTransport
from helix_desktop.providers.json_fetching import fetch_json, fetch_json_by_post

ANSWER_SECONDS = 5.0  # A server that takes longer to describe itself is busy with a prompt.
LOADING_SECONDS = 120.0
# Ollama loads a model with 4,096 tokens if nobody asks for more, which the tools of an
# agent fill. The memory for 8,192 is about 1 GB for a model of 8 billion parameters.
LEAST_OLLAMA_WINDOW = 8_192
MOST_DESCRIBED = 30  # Ollama is asked about each model, so only about so many.


class LocalServerKind(StrEnum):
    """The servers that say who they are. The values are their names in sentences."""

    OLLAMA = "Ollama"
    LM_STUDIO = "LM Studio"
    LLAMA_CPP = "llama.cpp"
    LLAMAFILE = "llamafile"
    VLLM = "vLLM"
    KOBOLDCPP = "KoboldCpp"
    JAN = "Jan"


Details = dict[str, Object]


@dataclass(frozen=True, slots=True)
class _KnownServer:
    """How a kind of server is recognised and asked. `path`: what the others do not have."""

    kind: LocalServerKind
    path: str
    is_recognised_by: Callable[[Object], bool]
    fetch_details: Callable[[ProviderTransport, Sequence[str], float], Awaitable[Details]]


def server_root(transport: ProviderTransport) -> ProviderTransport:
    """Return the transport to the server's own paths, which are beside `/v1`."""
    return replace(transport, base_url=transport.base_url.rstrip("/").removesuffix("/v1"))


async def identify_local_server(root: ProviderTransport, seconds: float) -> LocalServerKind | None:
    """Return the kind of server at an address, or None if it is none of those known.

    It is asked for a path that only one kind has, for each kind, and known by its answer.
    """
    # All are asked at once, as most servers do not answer to the questions for others.
    seconds_for_each = min(seconds, ANSWER_SECONDS)
    questions = [_answers_as(root, server, seconds_for_each) for server in _SERVERS]
    answers = await asyncio.gather(*questions)
    for server, is_recognised in zip(_SERVERS, answers, strict=True):
        if is_recognised:
            return server.kind
    return None


async def fetch_local_details(
    transport: ProviderTransport, models: Sequence[str], seconds: float
) -> Details:
    """Return what the server says of each of these models, under the catalogue's names."""
    root = server_root(transport)
    kind = await identify_local_server(root, seconds)
    if kind is None:
        return {}
    details = await fetch_details_of_kind(root, kind, models, min(seconds, ANSWER_SECONDS))
    details_with_server: Details = {}
    for model in models:
        details_of_model = dict(details.get(model, {}))
        details_of_model["server"] = kind.value
        details_with_server[model] = details_of_model
    return details_with_server


async def fetch_details_of_kind(
    root: ProviderTransport, kind: LocalServerKind, models: Sequence[str], seconds: float
) -> Details:
    """Return what a server of a known kind says now. A failure leaves models out."""
    try:
        return await _SERVER_OF_KIND[kind].fetch_details(root, models, seconds)
    except ModelFailed:
        return {}


async def load_model(root: ProviderTransport, kind: LocalServerKind, model: str) -> Object:
    """Make a server load a model, and return what it says of the model then.

    Nothing else tells the window with which Ollama and LM Studio run it. Other servers have
    loaded their model when they start.
    """
    body: Object = {"model": model, "stream": False}
    try:
        if kind is LocalServerKind.OLLAMA:
            await fetch_json_by_post(root, "/api/generate", body, LOADING_SECONDS)
        elif kind is LocalServerKind.LM_STUDIO:
            body["messages"] = [{"role": "user", "content": "Hello"}]
            body["max_tokens"] = 1
            await fetch_json_by_post(root, "/v1/chat/completions", body, LOADING_SECONDS)
    except ModelFailed:
        return {}  # The request itself will meet this error again, and show it.
    details = await fetch_details_of_kind(root, kind, (model,), ANSWER_SECONDS)
    return details.get(model, {})


def is_loaded_when_needed(kind: LocalServerKind) -> bool:
    return kind in (LocalServerKind.OLLAMA, LocalServerKind.LM_STUDIO)


# --- What each server says


async def _answers_as(root: ProviderTransport, server: _KnownServer, seconds: float) -> bool:
    """Whether a server is of this kind, by its answer at the path that others do not have."""
    try:
        answer = await fetch_json(root, server.path, seconds)
    except ModelFailed:
        return False
    return server.is_recognised_by(answer)


def _has_version(answer: Object) -> bool:
    return bool(json_values.text_at(answer, "version"))


def _is_koboldcpp(answer: Object) -> bool:
    return json_values.text_at(answer, "result") == "KoboldCpp"


def _is_lm_studio(answer: Object) -> bool:
    """Whether a list of models has what only LM Studio says of them."""
    models = json_values.list_at(answer, "data")
    for model in models:
        if json_values.text_at(model, "state"):
            return True
        if json_values.number_at(model, "max_context_length"):
            return True
    return False


def _is_llama_cpp(answer: Object) -> bool:
    return json_values.number_at(answer, "default_generation_settings", "n_ctx") > 0


def _is_llamafile(answer: Object) -> bool:
    if not _is_llama_cpp(answer):
        return False
    build = json_values.text_at(answer, "build_info")
    model_path = json_values.text_at(answer, "model_path")
    return "llamafile" in build or "llamafile" in model_path


def _is_jan(answer: Object) -> bool:
    return "Jan" in json_values.text_at(answer, "info", "title")


async def _fetch_ollama_details(
    root: ProviderTransport, models: Sequence[str], seconds: float
) -> Details:
    """Ask Ollama which models are in memory, and then about each of these models."""
    list_of_loaded = await fetch_json(root, "/api/ps", seconds)
    loaded_models: dict[str, json_values.Json] = {}
    for item in json_values.list_at(list_of_loaded, "models"):
        loaded_models[json_values.text_at(item, "name")] = item

    described_models = models[:MOST_DESCRIBED]
    questions = [_describe_ollama_model(root, model, seconds) for model in described_models]
    descriptions = await asyncio.gather(*questions)
    details: Details = {}
    for model, description in zip(described_models, descriptions, strict=True):
        loaded_model = loaded_models.get(model) or loaded_models.get(f"{model}:latest")
        details[model] = _with_ollama_window(description, loaded_model)
    return details


async def _describe_ollama_model(root: ProviderTransport, model: str, seconds: float) -> Object:
    """Return what Ollama says of a model, whether it is in memory or not."""
    try:
        answer = await fetch_json_by_post(root, "/api/show", {"model": model}, seconds)
    except ModelFailed:
        return {}
    description: Object = {}
    family = json_values.text_at(answer, "model_info", "general.architecture")
    largest = json_values.number_at(answer, "model_info", f"{family}.context_length")
    if largest:
        description["largest_window"] = largest
    parameters = json_values.text_at(answer, "parameters")
    own_window = re.search(r"^num_ctx\s+(\d{1,12})$", parameters, re.MULTILINE)
    if own_window:
        description["own_window"] = int(own_window[1])
    abilities = json_values.list_at(answer, "capabilities")
    if abilities:
        description["tools"] = "tools" in abilities
        description["images"] = "vision" in abilities
        if "thinking" in abilities:
            description["reasoning"] = "effort"
    return description


def _with_ollama_window(description: Object, loaded: json_values.Json) -> Object:
    """Return a model's description with the window that Ollama is to be asked for.

    Each request names it, so the model runs with no other. A model that is in memory keeps
    its window, since another one would load it again. `loaded`: what Ollama says of it then.
    """
    own_window = json_values.number_at(description, "own_window") or LEAST_OLLAMA_WINDOW
    running_window = json_values.number_at(loaded, "context_length")
    wanted_window = own_window
    if running_window:
        least_window = min(own_window, LEAST_OLLAMA_WINDOW)
        wanted_window = max(running_window, least_window)
    largest_window = json_values.number_at(description, "largest_window") or wanted_window
    details = json_values.without_fields(description, "own_window")
    details["window"] = min(wanted_window, largest_window)
    if not running_window:
        details["note"] = "window that Ollama is asked for; the model is not loaded yet"
        return details

    details["is_loaded"] = True
    details["note"] = "window as loaded in Ollama"
    memory = json_values.number_at(loaded, "size")
    if memory:
        details["note"] = f"window as loaded in Ollama, with {memory / 1e9:.1f} GB of memory"
    return details


async def _fetch_lm_studio_details(
    root: ProviderTransport, _models: Sequence[str], seconds: float
) -> Details:
    """Ask LM Studio for its list, which says of each model whether it is loaded."""
    details: Details = {}
    answer = await fetch_json(root, "/api/v0/models", seconds)
    for item in json_values.list_at(answer, "data"):
        loaded = json_values.number_at(item, "loaded_context_length")
        largest = json_values.number_at(item, "max_context_length")
        model_details: Object = {}
        if loaded:
            model_details["window"] = loaded
            model_details["note"] = "window as loaded in LM Studio"
            model_details["is_loaded"] = True
        if largest:
            model_details["largest_window"] = largest
        kind = json_values.text_at(item, "type")
        if kind:  # Older versions of LM Studio do not say.
            model_details["images"] = kind == "vlm"
        abilities = json_values.list_at(item, "capabilities")
        if abilities:
            model_details["tools"] = "tool_use" in abilities
        details[json_values.text_at(item, "id")] = model_details
    return details


async def _fetch_llama_cpp_details(
    root: ProviderTransport, models: Sequence[str], seconds: float
) -> Details:
    """Ask llama.cpp or llamafile for its window. It runs one model, under whatever name it is
    asked for.
    """
    answer = await fetch_json(root, "/props", seconds)
    model_details: Object = {
        "window": json_values.number_at(answer, "default_generation_settings", "n_ctx"),
        "note": "window as llama.cpp was started with",
        "is_loaded": True,
    }
    sees_images = json_values.value_at(answer, "modalities", "vision")
    if isinstance(sees_images, bool):
        model_details["images"] = sees_images
    template = json_values.text_at(answer, "chat_template")
    states_tools = json_values.value_at(answer, "chat_template_caps", "supports_tools")
    if isinstance(states_tools, bool):
        model_details["tools"] = states_tools
    elif template:
        model_details["tools"] = "tools" in template
    return dict.fromkeys(models, model_details)


async def _fetch_koboldcpp_details(
    root: ProviderTransport, models: Sequence[str], seconds: float
) -> Details:
    """Ask KoboldCpp for its window. It runs one model, under whatever name it is asked for."""
    answer = await fetch_json(root, "/api/extra/true_max_context_length", seconds)
    window = json_values.number_at(answer, "value")
    if not window:
        return {}
    model_details: Object = {"window": window, "note": "window as KoboldCpp was started with"}
    version = await fetch_json(root, "/api/extra/version", seconds)
    sees_images = json_values.value_at(version, "vision")
    if isinstance(sees_images, bool):
        model_details["images"] = sees_images
    model_details["is_loaded"] = True
    return dict.fromkeys(models, model_details)


async def _fetch_vllm_details(
    root: ProviderTransport, _models: Sequence[str], seconds: float
) -> Details:
    """Ask vLLM for its list, which says with which window each model runs."""
    details: Details = {}
    answer = await fetch_json(root, "/v1/models", seconds)
    for item in json_values.list_at(answer, "data"):
        window = json_values.number_at(item, "max_model_len")
        if not window:
            continue
        note = "window as vLLM was started with"
        model_details: Object = {"window": window, "note": note, "is_loaded": True}
        details[json_values.text_at(item, "id")] = model_details
    return details


async def _no_details(_root: ProviderTransport, _models: Sequence[str], _seconds: float) -> Details:
    return {}


# In this order, because KoboldCpp answers Ollama's paths too, and a llamafile is a llama.cpp.
_SERVERS = (
    _KnownServer(
        LocalServerKind.KOBOLDCPP, "/api/extra/version", _is_koboldcpp, _fetch_koboldcpp_details
    ),
    _KnownServer(
        LocalServerKind.LM_STUDIO, "/api/v0/models", _is_lm_studio, _fetch_lm_studio_details
    ),
    _KnownServer(LocalServerKind.OLLAMA, "/api/version", _has_version, _fetch_ollama_details),
    _KnownServer(LocalServerKind.LLAMAFILE, "/props", _is_llamafile, _fetch_llama_cpp_details),
    _KnownServer(LocalServerKind.LLAMA_CPP, "/props", _is_llama_cpp, _fetch_llama_cpp_details),
    _KnownServer(LocalServerKind.JAN, "/openapi.json", _is_jan, _no_details),
    _KnownServer(LocalServerKind.VLLM, "/version", _has_version, _fetch_vllm_details),
)
_SERVER_OF_KIND = {server.kind: server for server in _SERVERS}
