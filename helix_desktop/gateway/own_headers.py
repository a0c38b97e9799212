"""Finds the names of headers that an agent's settings add to its requests.

A company's address may need them, such as a key of its own. The gateway sends on only
headers that a provider's protocol knows, and these.
"""

import re
from collections.abc import Iterable
from typing import Any

from helix_desktop.gateway.agent_upstreams import AgentSurroundings
from helix_desktop.gateway.known_agent import KnownAgent
from helix_desktop.json_values import object_at

# Each has lines, or parts between commas, of the form `Name: value`.
CUSTOM_HEADERS = (
    "ANTHROPIC_CUSTOM_HEADERS",
    "GEMINI_CLI_CUSTOM_HEADERS",
    "OPENAI_CUSTOM_HEADERS",
    "COPILOT_PROVIDER_HEADERS",
)
_NAME_OF_HEADER = re.compile(r"(?:^|\n|,|\\n)\s*([\w-]+)\s*:")


def find_own_header_names(agent: KnownAgent, where: AgentSurroundings) -> tuple[str, ...]:
    """Return the names in lower case. Their values are not kept."""
    environ = agent.read_environment(where)
    names = set(agent.find_header_names(where))
    for variable in CUSTOM_HEADERS:
        names |= names_of_custom_headers(environ.get(variable, ""))
    return tuple(sorted(name.lower() for name in names))


def names_of_custom_headers(value: str) -> set[str]:
    """Return the names in the value of a variable for headers."""
    return set(_NAME_OF_HEADER.findall(value))


def names_of_model_headers(models: Iterable[Any]) -> set[str]:
    """Return the names of headers that are set for single models."""
    names = set[str]()
    for model in models:
        names.update(object_at(model, "headers"))
    return names
