"""workspace.toml: a workspace's settings, for the program and for editing by hand.

Comments, order and unknown keys survive. A mistake raises ConfigFileMistake with
line, key and expectation. An unknown key that resembles a known one is a warning.
Policy values and MCP servers' tables are not checked here, but where they are used.
"""

import difflib
import json
import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from helix_desktop import atomic_files
from helix_desktop.errors import ConfigFileMistake, NotFound, WrittenByNewerVersion, shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.program_folders import WORKSPACE_SETTINGS_NAME
from helix_desktop.program_settings import find_line_of_key
from helix_desktop.resources import read_table

VERSION = 1
NAME = WORKSPACE_SETTINGS_NAME

_HEAD = """\
# The settings of one Helix Desktop workspace. What you edit holds when it is opened next; comments and keys of
# your own stay. Keys and passwords do not belong here; the program keeps them in the system's keyring.
"""
_PLAIN = str | int | float | bool


@dataclass(frozen=True, slots=True)
class WorkspaceConfig:
    """The settings. What an import `proposed` applies only once the user agrees."""

    name: str = ""
    colour: str = ""
    roots: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    effort: str = ""  # How long the main model thinks, as in `ModelSet.effort`.
    temperature: float | None = None  # The main model's temperature. None: the provider's default.
    top_p: float | None = None
    instructions: str = ""  # The user's instructions, which follow the system prompt.
    preset: str = ""
    policy: Mapping[str, _PLAIN] = field(default_factory=dict)
    mode: str = ""
    rules: tuple[Mapping[str, Any], ...] = ()
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: int = 0  # The cache's maximum size in bytes; 0 means no limit.
    # What checkpoints cover and how long they are kept.
    changes: Mapping[str, Any] = field(default_factory=dict)
    # Whether conversations work in copies, and how copies are set up.
    copies: Mapping[str, _PLAIN] = field(default_factory=dict)
    # The limits at which a turn stops.
    limits: Mapping[str, _PLAIN] = field(default_factory=dict)
    # Rules files that the user trusts, with their SHA-256.
    trusted: Mapping[str, str] = field(default_factory=dict)
    # By MCP tool: its fingerprint when last allowed.
    approved: Mapping[str, str] = field(default_factory=dict)
    # Names of rules, skills, commands, hooks and agents that the user turned off.
    off: tuple[str, ...] = ()
    # The shared store's address, and when a put counts.
    shared: Mapping[str, str] = field(default_factory=dict)
    # Parts of the home that commands may use (`tools/home_access.py`).
    openings: tuple[str, ...] = ()
    readable: tuple[str, ...] = ()  # Further folders that commands may read.
    # Patterns of files that are hidden from agents. None: those of `tools/hidden_files.py`.
    hidden: tuple[str, ...] | None = None
    # Earlier versions noted here of which broad rules the user was told. It is only kept.
    shown: tuple[str, ...] = ()
    proposed: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


# New values by key, or a function that computes them from the current settings.
Changes = Mapping[str, Any] | Callable[[WorkspaceConfig], Mapping[str, Any]]


def _is_whole_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _is_colour(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"(#[0-9A-Fa-f]{6})?|[a-z]+", value))


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _is_list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _is_table_of_tables(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(item, dict) for item in value.values())


# What a value of each kind in `resources/tables/workspace_keys.toml` must be.
_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "text": lambda value: isinstance(value, str),
    "texts": _is_list_of_texts,
    "flag": lambda value: isinstance(value, bool),
    "whole number": _is_whole_number,
    "amount": _is_amount,
    "colour": _is_colour,
    "table": lambda value: isinstance(value, dict),
    "table of tables": _is_table_of_tables,
    "list of tables": _is_list_of_tables,
}
_KEYS = read_table("workspace_keys")
# Top-level keys. Each is also the name of its field in `WorkspaceConfig`.
_TOP_KEYS = (
    "name", "colour", "effort", "temperature", "top_p", "instructions", "mcp", "changes", "copies", "limits", "shared",
)  # fmt: skip
_PERMISSION_LISTS = ("rules", "off", "openings", "readable", "hidden", "shown")
# Code that reads these tables checks their content.
_CHECKED_ELSEWHERE = (
    "policy.values",
    "mcp",
    "proposed",
    "permissions.rules",
    "permissions.trusted",
    "permissions.approved",
)


def parse_workspace_settings(text: str, path: Path) -> WorkspaceConfig:
    """Parse and check the text of a workspace.toml. Errors name the line. An unknown setting is
    only warned of, since it has no effect.
    """
    try:
        # It takes less than a tenth of tomlkit's time, but does not say as well where a mistake is.
        document = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        document = _parse_document(text, path).unwrap()
    version = document.get("version", 0)
    if _is_whole_number(version) and version > VERSION:
        raise WrittenByNewerVersion(
            f"{path} was written by a newer version of Helix Desktop ({version})."
        )
    warnings = _check_known_keys(document, text, path)
    return _settings_from_document(document, warnings)


def _parse_document(text: str, path: Path) -> tomlkit.TOMLDocument:
    """Parse the text with its comments and its order, to change it or to say where a mistake is."""
    try:
        return tomlkit.parse(text)
    except ParseError as error:
        sentence = _sentence_without_place(str(error))
        raise ConfigFileMistake(
            sentence,
            where=f"{path}, line {error.line}",
            remedy="Fix the line and open the workspace again.",
        ) from error
    except TOMLKitError as error:
        sentence = _sentence_without_place(str(error))
        raise ConfigFileMistake(
            sentence,
            where=str(path),
            remedy="Fix the file and open the workspace again.",
        ) from error


def _sentence_without_place(text: str) -> str:
    return re.sub(r" at line \d+ col \d+", "", text).rstrip(".") + "."


def _check_known_keys(document: Mapping[str, Any], text: str, path: Path) -> tuple[str, ...]:
    """Return warnings about keys that are no settings, with the one that was probably meant.
    ConfigFileMistake for a setting whose value is not valid.
    """
    warnings = []
    for dotted_key, value in _walk_keys(document, ""):
        key = _KEYS.get(dotted_key)
        place_in_file = f"{path}, line {find_line_of_key(text, dotted_key)}"
        if key is None:
            suggestion = "."
            similar_key = _similar_key(dotted_key)
            if similar_key:
                suggestion = f". Did you mean {similar_key}?"
            warnings.append(
                f"{place_in_file}: {dotted_key} is not a workspace setting and has no effect{suggestion}"
            )
        elif not _is_valid(value, key):
            raise ConfigFileMistake(
                f"{dotted_key} = {shorten_to_line(repr(value), 60)} is not valid: expected {key['expected']}.",
                where=place_in_file,
                remedy="Fix the line and open the workspace again.",
            )
    return tuple(warnings)


def _is_valid(value: Any, key: Mapping[str, Any]) -> bool:
    if not _CHECKS[key["kind"]](value):
        return False
    if "most" in key and value > key["most"]:
        return False
    return "choices" not in key or value in key["choices"]


def _walk_keys(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    keys: list[tuple[str, Any]] = []
    for name, value in table.items():
        dotted_key = f"{prefix}{name}"
        keys.append((dotted_key, value))
        if isinstance(value, dict) and dotted_key in _KEYS and dotted_key not in _CHECKED_ELSEWHERE:
            keys += _walk_keys(value, f"{dotted_key}.")
    return keys


def _similar_key(dotted_key: str) -> str:
    """Return the setting that a mistyped one resembles: as a whole, or else in its last part, as it
    may be in the wrong table. Empty if none does.
    """
    for key in difflib.get_close_matches(dotted_key, _KEYS, n=1, cutoff=0.6):
        return str(key)
    keys_by_last_part = {key.rpartition(".")[2]: key for key in _KEYS}
    last_part = dotted_key.rpartition(".")[2]
    for name in difflib.get_close_matches(last_part, keys_by_last_part, n=1, cutoff=0.75):
        return str(keys_by_last_part[name])
    return ""


def _settings_from_document(
    document: Mapping[str, Any], warnings: tuple[str, ...]
) -> WorkspaceConfig:
    """Return the settings that a checked document sets. All others keep their defaults: some
    are those of `WorkspaceConfig`, some are given here. `warnings` are handed on.
    """
    permissions = document.get("permissions", {})
    policy = document.get("policy", {})
    limits = document.get("limits", {})
    roots = document.get("roots", ())
    named_models = document.get("models", {})
    models: dict[str, str] = {}
    for role, model_name in named_models.items():
        if isinstance(model_name, str) and model_name:
            models[role] = model_name

    # What is not in the document is not given, so that it keeps the default of the class.
    values: dict[str, Any] = {}
    for name in _TOP_KEYS:
        if name in document:
            values[name] = document[name]
    for name in _PERMISSION_LISTS:
        if name in permissions:
            values[name] = tuple(permissions[name])

    values["roots"] = tuple(roots)
    values["models"] = models
    values["preset"] = policy.get("preset", "")
    values["policy"] = policy.get("values", {})
    values["mode"] = permissions.get("mode", "")
    values["trusted"] = permissions.get("trusted", {})
    values["approved"] = permissions.get("approved", {})
    values["limit"] = limits.get("cache_bytes", 0)
    values["proposed"] = document.get("proposed", {})
    return WorkspaceConfig(**values, warnings=warnings)


def read_workspace_settings(path: Path) -> WorkspaceConfig:
    return parse_workspace_settings(_read_settings_text(path), path)


def _read_settings_text(path: Path) -> str:
    try:
        return atomic_files.read_settings_text(path).replace("\r\n", "\n")
    except FileNotFoundError as error:
        raise NotFound(
            f"{path} is missing.",
            remedy="Restore the file, or import the workspace from an export.",
        ) from error


def new_settings_text(name: str, colour: str, roots: tuple[str, ...]) -> str:
    document = tomlkit.parse(_HEAD)
    document.add("version", tomlkit.item(VERSION))
    document.add("name", tomlkit.item(name))
    document.add("colour", tomlkit.item(colour))
    document.add("roots", tomlkit.item(list(roots)))
    return tomlkit.dumps(document)


def change_workspace_settings(path: Path, changes: Changes) -> WorkspaceConfig:
    """Set dotted keys (None removes one) in the current file, so that edits by hand survive."""
    _read_settings_text(path)  # Reports a missing file before the lock would create the folder.
    with atomic_files.hold_for_change(path):
        text = _read_settings_text(path)
        settings_now = parse_workspace_settings(text, path)  # An invalid file is never overwritten.
        if callable(changes):
            changes = changes(settings_now)
        document = _parse_document(text, path)
        for dotted_key, value in changes.items():
            _set_in_document(document, _split_dotted_key(dotted_key), value)
        changed_text = tomlkit.dumps(document)
        try:
            settings = parse_workspace_settings(changed_text, path)
        except ConfigFileMistake as mistake:  # The requested change is wrong, not the file.
            raise ConfigFileMistake(mistake.mistake, remedy="Nothing was changed.") from mistake
        atomic_files.write_file_atomically(path, changed_text, private=True)
    return settings


def quote_key_part(name: str) -> str:
    """Return a name, of any characters, as a part of a dotted key."""
    return json.dumps(name, ensure_ascii=False)


def _split_dotted_key(dotted_key: str) -> list[str]:
    parts = []
    for part in re.findall(r'"(?:[^"\\]|\\.)*"|[^.]+', dotted_key):
        if part.startswith('"'):
            parts.append(json.loads(part))
        else:
            parts.append(part)
    return parts


def _set_in_document(document: Any, names: list[str], value: Any) -> None:
    """Set a value, or remove it (None). All names but the last are those of tables, each within the
    one before; those that are missing are made.
    """
    table = document
    for name in names[:-1]:
        if name not in table:
            if value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
    last_name = names[-1]
    if value is None:
        table.pop(last_name, None)
    elif isinstance(value, tuple):
        table[last_name] = list(value)
    else:
        table[last_name] = value
