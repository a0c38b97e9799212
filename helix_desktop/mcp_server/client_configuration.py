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

CLIENTS = (
    "claude-code", "codex", "gemini", "opencode", "pi", "qwen-code", "cursor", "vscode", "goose",
)  # fmt: skip


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
    if client == "codex":
        codex_home = Path(environ.get("CODEX_HOME") or home / ".codex")
        return _build_codex_snippet(command, name, codex_home / "config.toml")
    if client == "goose":
        return _build_goose_snippet(command, name, home)

    plain: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    with_type = {"type": "stdio"} | plain
    for_opencode = {"type": "local", "command": list(command), "enabled": True}
    # Pi's model would otherwise reach the tools only by code that it writes.
    for_pi = plain | {"exposure": "direct"}
    pi_folder = Path(environ.get("PI_CODING_AGENT_DIR") or home / ".pi" / "agent")
    pi_file = str(pi_folder / "mcp.json")
    settings_of_client = {
        "claude-code": _JsonSettings(".mcp.json", "mcpServers", with_type),
        "gemini": _JsonSettings(".gemini/settings.json", "mcpServers", plain),
        "opencode": _JsonSettings("opencode.json", "mcp", for_opencode),
        "pi": _JsonSettings(pi_file, "mcpServers", for_pi),
        "qwen-code": _JsonSettings(".qwen/settings.json", "mcpServers", plain),
        "cursor": _JsonSettings(".cursor/mcp.json", "mcpServers", plain),
        "vscode": _JsonSettings(".vscode/mcp.json", "servers", with_type),
    }
    settings = settings_of_client.get(client)
    if settings is None:
        raise InvalidInput(
            f"{client!r} is not a known program. Choose one of {', '.join(CLIENTS)}."
        )
    snippet = {settings.table: {name: settings.entry}}
    text = json.dumps(snippet, ensure_ascii=False, indent=2)
    file = folder / settings.file  # An absolute path stays what it is.
    return ClientSnippet(client, file, (settings.table, name), settings.entry, text)


@dataclass(frozen=True, slots=True)
class _JsonSettings:
    """The settings of a program that keeps them as JSON: `entry` belongs into `table` of `file`."""

    file: str
    table: str
    entry: dict[str, Any]


def _build_codex_snippet(command: Sequence[str], name: str, file: Path) -> ClientSnippet:
    entry: dict[str, Any] = {"command": command[0], "args": list(command[1:])}
    entry["startup_timeout_sec"] = 60  # Codex's default, 10, is too short on a busy computer.
    text = tomlkit.dumps({"mcp_servers": {name: entry}})
    return ClientSnippet("codex", file, ("mcp_servers", name), entry, text)


def _build_goose_snippet(command: Sequence[str], name: str, home: Path) -> ClientSnippet:
    entry = {
        "name": name,
        "type": "stdio",
        "enabled": True,
        "cmd": command[0],
        "args": list(command[1:]),
        "timeout": 300,
    }
    settings_folder = home / ".config/goose"
    if sys.platform == "win32":
        settings_folder = home / "AppData/Roaming/Block/goose/config"
    lines = ["extensions:", f"  {json.dumps(name)}:"]
    for key, value in entry.items():
        lines.append(f"    {key}: {json.dumps(value)}")
    text = "\n".join(lines)
    return ClientSnippet(
        "goose", settings_folder / "config.yaml", ("extensions", name), entry, text
    )


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


def _add_entry_to_json(text: str, snippet: ClientSnippet) -> str:
    table = snippet.path_in[0]
    servers = parse_commented_json(text, str(snippet.file)).get(table, {})
    if not isinstance(servers, dict):
        raise ConfigFileMistake(f"{snippet.file}: {table} is not a table. Nothing was changed.")
    if snippet.entry in servers.values():
        return text
    return set_commented_json(text, snippet.path_in, snippet.entry)


def _add_entry_to_toml(text: str, snippet: ClientSnippet) -> str:
    table, name = snippet.path_in
    try:
        document = tomlkit.parse(text)
        servers = document.setdefault(table, tomlkit.table(is_super_table=True))
        if snippet.entry not in servers.unwrap().values():
            servers[name] = snippet.entry
    # A table or an entry of another type than expected has none of these methods.
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigFileMistake(
            f"{snippet.file} cannot be read ({error}). Nothing was changed."
        ) from None
    return tomlkit.dumps(document)
