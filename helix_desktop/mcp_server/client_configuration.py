"""The settings with which other programs use builtin_context_cache, to be shown or written."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomlkit

from helix_desktop import atomic_files
from helix_desktop.commented_json import parse_commented_json, set_commented_json
from helix_desktop.errors import ConfigFileMistake, InvalidInput, StoreFailed
from helix_desktop.fast_dataclass import dataclass

CLIENTS = ("claude-code", "codex", "gemini", "opencode", "pi", "cursor", "vscode", "goose")


@dataclass(frozen=True, slots=True)
class ClientSnippet:
    """A program's settings: `entry` belongs at `path_in` in `file`, which is JSON, TOML
    or goose's YAML.
    """

    client: str
    file: Path
    path_in: tuple[str, str]
    entry: dict[str, Any]
    text: str


def build_client_snippet(
    client: str,
    command: Sequence[str],
    workspace: str,
    *,
    folder: Path,
    home: Path,
    environ: Mapping[str, str] = os.environ,
) -> ClientSnippet:
    """Build the settings to use `command` as a server. Some programs keep them in the
    project's `folder`.
    """
    name = f"helix-{workspace}"  # Settings for all folders hold servers of several workspaces.
    program, *arguments = command
    plain: dict[str, Any] = {"command": program, "args": arguments}
    stdio = {"type": "stdio", **plain}
    if client == "codex":
        file = Path(environ.get("CODEX_HOME") or home / ".codex") / "config.toml"
        plain["startup_timeout_sec"] = 60  # Codex's default, 10, is too short on a busy computer.
        return ClientSnippet(
            client,
            file,
            ("mcp_servers", name),
            plain,
            tomlkit.dumps({"mcp_servers": {name: plain}}),
        )
    if client == "goose":
        settings = {
            "name": name,
            "type": "stdio",
            "enabled": True,
            "cmd": program,
            "args": arguments,
            "timeout": 300,
        }
        inside = ".config/goose"
        if sys.platform == "win32":
            inside = "AppData/Roaming/Block/goose/config"
        lines = ["extensions:", f"  {json.dumps(name)}:"]
        lines += [f"    {key}: {json.dumps(value)}" for key, value in settings.items()]
        text = "\n".join(lines)
        return ClientSnippet(
            client, home / inside / "config.yaml", ("extensions", name), settings, text
        )
    of_pi = Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
    places: Mapping[str, tuple[str, str, dict[str, Any]]] = {
        "claude-code": (".mcp.json", "mcpServers", stdio),
        "gemini": (".gemini/settings.json", "mcpServers", plain),
        "opencode": (
            "opencode.json",
            "mcp",
            {"type": "local", "command": list(command), "enabled": True},
        ),
        # Its model would otherwise reach the tools only by code that it writes.
        "pi": (str(of_pi / "mcp.json"), "mcpServers", {**plain, "exposure": "direct"}),
        "cursor": (".cursor/mcp.json", "mcpServers", plain),
        "vscode": (".vscode/mcp.json", "servers", stdio),
    }
    if client not in places:
        raise InvalidInput(
            f"{client!r} is not a known program. Choose one of {', '.join(CLIENTS)}."
        )
    inside, table, entry = places[client]
    text = json.dumps({table: {name: entry}}, ensure_ascii=False, indent=2)
    return ClientSnippet(client, folder / inside, (table, name), entry, text)


def add_snippet_if_missing(snippet: ClientSnippet) -> bool:
    """Add the entry to the program's settings file. Return False if it was already there."""
    if snippet.client == "goose":
        raise InvalidInput(
            f"{snippet.file} is a YAML file with your own comments, so it was not changed.",
            remedy="Add these lines yourself.",
        )
    text = ""
    try:
        if snippet.file.exists():
            text = snippet.file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise StoreFailed(
            f"{snippet.file} cannot be read: {error}. Nothing was changed."
        ) from error
    if snippet.file.suffix == ".toml":
        changed = _add_entry_to_toml(text, snippet)
    else:
        changed = _add_entry_to_json(text, snippet)
    if changed == text:
        return False
    atomic_files.write_file_atomically(snippet.file, changed)
    return True


def _add_entry_to_json(text: str, found: ClientSnippet) -> str:
    outer = found.path_in[0]
    servers = parse_commented_json(text, str(found.file)).get(outer, {})
    if not isinstance(servers, dict):
        raise ConfigFileMistake(f"{found.file}: {outer} is not a table. Nothing was changed.")
    if found.entry in servers.values():
        return text
    return set_commented_json(text, found.path_in, found.entry)


def _add_entry_to_toml(text: str, found: ClientSnippet) -> str:
    outer, name = found.path_in
    try:
        document = tomlkit.parse(text)
        servers = document.setdefault(outer, tomlkit.table(is_super_table=True))
        if found.entry not in servers.unwrap().values():
            servers[name] = found.entry
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigFileMistake(
            f"{found.file} cannot be read ({error}). Nothing was changed."
        ) from None
    return tomlkit.dumps(document)
