"""Finds the names of headers that an agent's settings add to its requests.

A company's address may need them, such as a key of its own. The gateway sends on only
headers that a provider's protocol knows, and these.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from helix_desktop.gateway.agent_upstreams import (
    AgentSurroundings,
    find_gemini_env_file,
    read_agent_environment,
    read_codex_settings,
    read_env_file_variable,
    read_opencode_settings,
    read_pi_providers,
)
from helix_desktop.json_values import object_at, objects_at

# Each has lines, or parts between commas, of the form `Name: value`.
CUSTOM_HEADERS = ("ANTHROPIC_CUSTOM_HEADERS", "GEMINI_CLI_CUSTOM_HEADERS", "OPENAI_CUSTOM_HEADERS")
_NAME_OF_HEADER = re.compile(r"(?:^|[\n,])\s*([\w-]+)\s*:")


def find_own_header_names(agent: str, where: AgentSurroundings) -> tuple[str, ...]:
    """Return the names in lower case. Their values are not kept."""
    names = _names_in_environment(read_agent_environment(agent, where))
    if agent == "codex":
        names |= _names_in_codex_settings(where)
    elif agent == "gemini":
        names |= _names_in_gemini_env_file(where)
    elif agent == "opencode":
        names |= _names_in_opencode_settings(where)
    elif agent == "pi":
        names |= _names_in_pi_settings(where)
    return tuple(sorted(name.lower() for name in names))


def _names_in_environment(environ: Mapping[str, str]) -> set[str]:
    names = set[str]()
    for variable in CUSTOM_HEADERS:
        names.update(_NAME_OF_HEADER.findall(environ.get(variable, "")))
    return names


def _names_in_gemini_env_file(where: AgentSurroundings) -> set[str]:
    """Return the names of headers in the `.env` file that Gemini CLI reads into its environment."""
    file = find_gemini_env_file(where)
    if file is None:
        return set()
    headers = read_env_file_variable(file, "GEMINI_CLI_CUSTOM_HEADERS")
    return set(_NAME_OF_HEADER.findall(headers))


def _names_in_codex_settings(where: AgentSurroundings) -> set[str]:
    """Return the names of headers that Codex's providers set."""
    names = set[str]()
    for layer in read_codex_settings(where):
        for provider in object_at(layer.settings, "model_providers").values():
            names.update(object_at(provider, "http_headers"))
            names.update(object_at(provider, "env_http_headers"))
    return names


def _names_in_opencode_settings(where: AgentSurroundings) -> set[str]:
    """Return the names of headers that opencode's providers and models set."""
    names = set[str]()
    for layer in read_opencode_settings(where):
        for provider in object_at(layer.settings, "provider").values():
            names.update(object_at(provider, "options", "headers"))
            names.update(_names_of_models(object_at(provider, "models").values()))
    return names


def _names_in_pi_settings(where: AgentSurroundings) -> set[str]:
    names = set[str]()
    for provider in read_pi_providers(where).values():
        names.update(object_at(provider, "headers"))
        names.update(_names_of_models(objects_at(provider, "models")))
    return names


def _names_of_models(models: Iterable[Any]) -> set[str]:
    """Return the names of headers that are set for single models."""
    names = set[str]()
    for model in models:
        names.update(object_at(model, "headers"))
    return names
