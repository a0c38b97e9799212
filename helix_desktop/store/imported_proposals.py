"""What an imported workspace asks for, as questions: each is decided alone, the dangerous ones first.

An export is a file from somebody else. In one question about all of it, long harmless instructions
would push a server's command line out of sight.
"""

import shlex
from collections.abc import Mapping
from typing import Any

import tomlkit

from helix_desktop.fast_dataclass import dataclass

# Which settings of an import count only once the user agrees, by the question that asks for them,
# in the order of the questions.
_KEYS_BY_TOPIC = {
    "programs": ("mcp", "copies"),
    "permissions": ("permissions", "roots"),
    "settings": ("models", "limits", "changes", "instructions"),
}
PROPOSED_KEYS = tuple(key for keys in _KEYS_BY_TOPIC.values() for key in keys)


@dataclass(frozen=True, slots=True)
class ImportedQuestion:
    """`topic`: programs, permissions or settings. `text`: everything that would apply, exactly."""

    topic: str
    text: str
    settings: Mapping[str, Any]


def list_imported_questions(proposed: Mapping[str, Any]) -> list[ImportedQuestion]:
    """Returns the questions in their order. What no question asks for is left out."""
    questions: list[ImportedQuestion] = []
    for topic, keys in _KEYS_BY_TOPIC.items():
        settings = {key: proposed[key] for key in keys if proposed.get(key)}
        if not settings:
            continue
        lines: list[str] = []
        if topic == "programs":
            lines += _list_programs(settings)
            lines.append("")
        lines.append(tomlkit.dumps(settings).strip())
        questions.append(ImportedQuestion(topic, "\n".join(lines), settings))
    return questions


def _list_programs(settings: Mapping[str, Any]) -> list[str]:
    """Returns what would be started or contacted, a line for each. It stands before the
    settings, where nothing can push it out of sight.
    """
    lines = []
    servers = settings.get("mcp")
    if isinstance(servers, Mapping):
        for name, server in servers.items():
            lines.append(f"{name}: {_describe_server(server)}")
    copies = settings.get("copies")
    if isinstance(copies, Mapping) and copies.get("set_up"):
        lines.append(f"copies: {copies['set_up']}")
    return lines


def _describe_server(server: object) -> str:
    """The command line or the address, whatever kinds of values the file has in their place."""
    if not isinstance(server, Mapping):
        return str(server)
    values = [server.get("command")]
    arguments = server.get("args", [])
    if isinstance(arguments, list):
        values += arguments
    else:
        values.append(arguments)
    words = [str(value) for value in values if value is not None]

    command_line = shlex.join(words)
    address = str(server.get("url") or "")
    if command_line and address:
        return f"{command_line} {address}"
    return command_line or address
