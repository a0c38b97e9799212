"""The configuration other programs need to use builtin_context_cache: shown, or written into theirs with consent."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, InvalidInput, StoreFailed
from helix_desktop.fast_dataclass import dataclass

CLIENTS = ("claude-code", "cursor", "vscode", "goose")


@dataclass(frozen=True, slots=True)
class ClientSnippet:
    """What stands where for one program. `entry` goes under `path_in` of the JSON file `file`; goose's is YAML."""

    client: str
    file: Path
    path_in: tuple[str, ...]
    entry: dict[str, Any]
    text: str


def build_client_snippet(client: str, command: Sequence[str], name: str, *, folder: Path, home: Path) -> ClientSnippet:
    """For a workspace served by `command`. `folder`: the project, for programs that keep it there."""
    program, *arguments = command
    plain: dict[str, Any] = {"command": program, "args": arguments}
    if client == "claude-code":
        return _build_json_snippet(client, folder / ".mcp.json", ("mcpServers", name), {"type": "stdio", **plain})
    if client == "cursor":
        return _build_json_snippet(client, folder / ".cursor" / "mcp.json", ("mcpServers", name), plain)
    if client == "vscode":
        return _build_json_snippet(
            client, folder / ".vscode" / "mcp.json", ("servers", name), {"type": "stdio", **plain}
        )
    if client == "goose":
        settings = {"name": name, "type": "stdio", "enabled": True, "cmd": program, "args": arguments, "timeout": 300}
        return ClientSnippet(
            client, _goose_config_file(home), ("extensions", name), settings, _format_as_yaml(name, settings)
        )
    raise InvalidInput(f"{client!r} is not a known program. Choose one of {', '.join(CLIENTS)}.")


def _build_json_snippet(client: str, file: Path, path_in: tuple[str, str], entry: dict[str, Any]) -> ClientSnippet:
    text = json.dumps({path_in[0]: {path_in[1]: entry}}, ensure_ascii=False, indent=2)
    return ClientSnippet(client, file, path_in, entry, text)


def _goose_config_file(home: Path) -> Path:
    if sys.platform == "win32":
        return home / "AppData" / "Roaming" / "Block" / "goose" / "config" / "config.yaml"
    return home / ".config" / "goose" / "config.yaml"


def _format_as_yaml(name: str, settings: dict[str, Any]) -> str:
    lines = ["extensions:", f"  {json.dumps(name)}:"]
    return "\n".join([*lines, *(f"    {key}: {json.dumps(value)}" for key, value in settings.items())])


def write_client_snippet(found: ClientSnippet) -> bool:
    """Put it into the program's file, beside what is there. False where it stands there already.

    Only JSON without comments is written: anything else is left to the person, untouched.
    """
    if found.client == "goose":
        raise InvalidInput(
            f"{found.file} is a YAML file with your own comments, so it was not changed.",
            remedy="Add these lines yourself.",
        )
    whole = _read_client_config(found.file)
    outer, name = found.path_in
    servers = whole.setdefault(outer, {})
    if not isinstance(servers, dict):
        raise ConfigFileMistake(f"{found.file}: {outer} is not a table. Nothing was written.")
    if servers.get(name) == found.entry:
        return False
    servers[name] = found.entry
    atomic_files.write_file_atomically(found.file, json.dumps(whole, ensure_ascii=False, indent=2) + "\n")
    return True


def _read_client_config(file: Path) -> dict[str, Any]:
    try:
        if not file.exists():
            return {}
        whole = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise StoreFailed(f"{file} cannot be read: {error.strerror}; nothing was written.") from error
    except ValueError as error:
        remedy = "Add these lines yourself."
        raise ConfigFileMistake(f"{file} is not valid JSON ({error}); nothing was written.", remedy=remedy) from None
    if not isinstance(whole, dict):
        raise ConfigFileMistake(f"{file} does not contain a JSON object. Nothing was written.")
    return whole
