"""workspace.toml: a workspace's settings, for the program and for hands.

Comments, order and unknown keys survive. A mistake is a ConfigMistake with the line, the key and what was expected;
a key that is not known but looks like one that is, is a warning. The policy's values and the MCP servers' tables are
taken as they are: who uses them checks them.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import tomlkit
from tomlkit.exceptions import ParseError, TOMLKitError

from helix_desktop import durable
from helix_desktop.errors import ConfigMistake, NewerVersion, NotThere, StoreFailed, WrongUse
from helix_desktop.values import dataclass

VERSION = 1
NAME = "workspace.toml"

_HEAD = """\
# The settings of one Helix Desktop workspace. What you edit holds when it is opened next; comments and keys of
# your own stay. Keys and passwords never belong in here; the program keeps them in the system's keyring.
"""
_PLAIN = str | int | float | bool


@dataclass(frozen=True, slots=True)
class Settings:
    """What workspace.toml says. `proposed` came with an import and is not in force until the user agrees."""

    name: str = ""
    colour: str = ""
    roots: tuple[str, ...] = ()
    models: Mapping[str, str] = field(default_factory=dict)
    effort: str = ""  # how long the main model is to think; engine.facts.ModelSet
    temperature: float | None = None  # of the main model; None: the provider's own
    top_p: float | None = None
    instructions: str = ""  # the user's own, behind the system prompt
    preset: str = ""
    policy: Mapping[str, _PLAIN] = field(default_factory=dict)
    mode: str = ""
    rules: tuple[Mapping[str, Any], ...] = ()
    mcp: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    limit: int = 0  # bytes the cache may take; 0: no limit
    changes: Mapping[str, Any] = field(default_factory=dict)  # what checkpoints cover, and how long they are kept
    limits: Mapping[str, _PLAIN] = field(default_factory=dict)  # where a turn stops by itself; engine.crew.Limits
    trusted: Mapping[str, str] = field(default_factory=dict)  # rules files the user agreed to, and their SHA-256
    approved: Mapping[str, str] = field(default_factory=dict)  # MCP tools as the user last allowed them, by fingerprint
    off: tuple[str, ...] = ()  # rules, skills, commands, hooks and agents of the folders that the user switched off
    shared: Mapping[str, str] = field(default_factory=dict)  # the store other machines share, and when a put counts
    openings: tuple[str, ...] = ()  # what of the home commands with the network may use, by name; tools/openings.py
    readable: tuple[str, ...] = ()  # more folders that commands may read
    hidden: tuple[str, ...] | None = None  # patterns of files that no agent sees; None: tools/hidden_files.py has them
    shown: tuple[str, ...] = ()  # rules that allow other programs as well, and that the user was told of
    proposed: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


Changes = Mapping[str, Any] | Callable[[Settings], Mapping[str, Any]]  # the second: made from what stands there now


@dataclass(frozen=True, slots=True)
class _Key:
    """One key that is known: what it holds, in words for people and as a check."""

    expected: str
    fits: Callable[[Any], bool]


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def _table(value: Any) -> bool:
    return isinstance(value, dict)


def _tables(value: Any) -> bool:
    return _table(value) and all(isinstance(item, dict) for item in value.values())


def _list_of_tables(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, dict) for item in value)


def _whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _amount(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value >= 0


def _colour(value: Any) -> bool:
    return isinstance(value, str) and bool(re.fullmatch(r"(#[0-9A-Fa-f]{6})?|[a-z]+", value))


EFFORTS = ("", "low", "medium", "high")
_KEYS: Mapping[str, _Key] = {
    "version": _Key("a whole number", _whole),
    "name": _Key('a text, like name = "Thesis"', _text),
    "colour": _Key('a colour, like colour = "#7aa2f7"', _colour),
    "roots": _Key('a list of folders, like roots = ["/home/me/project"]', _texts),
    "models": _Key("a table with main, fast and long", _table),
    "models.main": _Key('the name of a model, like main = "anthropic/claude"', _text),
    "models.fast": _Key('the name of a model, like fast = "openai/mini"', _text),
    "models.long": _Key('the name of a model, like long = "google/pro"', _text),
    "effort": _Key('"low", "medium" or "high", like effort = "high"', lambda value: value in EFFORTS),
    "temperature": _Key("a number from 0 to 2, like temperature = 0.7", lambda value: _amount(value) and value <= 2),
    "top_p": _Key("a number from 0 to 1, like top_p = 0.9", lambda value: _amount(value) and value <= 1),
    "instructions": _Key('a text, like instructions = "Answer briefly."', _text),
    "policy": _Key("a table with a preset and values", _table),
    "policy.preset": _Key('the name of a preset, like preset = "layered"', _text),
    "policy.values": _Key("a table of values, like handover_at = 0.85", _table),
    "permissions": _Key("a table with a mode and rules", _table),
    "permissions.mode": _Key('the name of a mode, like mode = "ask"', _text),
    "permissions.rules": _Key("tables that begin with [[permissions.rules]]", _list_of_tables),
    "mcp": _Key("a table for each server, like [mcp.github]", _tables),
    "shared": _Key("a table with url and acknowledge", _table),
    "shared.url": _Key('the address of a shared store, like url = "postgresql://me@host/helix"', _text),
    "shared.acknowledge": _Key(
        '"local" or "shared", like acknowledge = "local"', lambda value: value in ("local", "shared")
    ),
    "limits": _Key("a table with cache_bytes", _table),
    "limits.cache_bytes": _Key("a number of bytes, like cache_bytes = 5_000_000_000, or 0 for no limit", _whole),
    "limits.steps": _Key("a whole number of steps, like steps = 400", _whole),
    "limits.repeats": _Key("a whole number, like repeats = 5", _whole),
    "limits.turn_cost": _Key("dollars, like turn_cost = 2.5, or 0 for no limit", _amount),
    "limits.day_cost": _Key("dollars, like day_cost = 20, or 0 for no limit", _amount),
    "limits.workspace_cost": _Key("dollars, like workspace_cost = 100, or 0 for no limit", _amount),
    "limits.agents": _Key("a whole number of agents below one conversation, like agents = 32", _whole),
    "limits.agents_depth": _Key("a whole number, like agents_depth = 2", _whole),
    "limits.agents_at_once": _Key("a whole number of agents that work side by side, like agents_at_once = 4", _whole),
    "limits.agents_seconds": _Key("seconds for all agents of a conversation, or 0 for no limit", _amount),
    "limits.agents_cost": _Key("dollars for all agents of a conversation, or 0 for no limit", _amount),
    "changes": _Key("a table with leave_out and keep_days", _table),
    "changes.leave_out": _Key('a list of names, like leave_out = ["node_modules/", "*.iso"]', _texts),
    "changes.keep_days": _Key("a whole number of days, like keep_days = 30", _whole),
    "changes.most_files": _Key("a number of files, like most_files = 200_000, or 0 for no limit", _whole),
    "changes.most_bytes": _Key("a number of bytes, like most_bytes = 5_000_000_000, or 0 for no limit", _whole),
    "changes.off": _Key("true or false", lambda value: isinstance(value, bool)),
    "permissions.trusted": _Key("a table of rules files and their SHA-256", _table),
    "permissions.approved": _Key("a table of MCP tools and what they were when you allowed them", _table),
    "permissions.shown": _Key(
        "a list of commands of rules that allow other programs as well, once you were told", _texts
    ),
    "permissions.openings": _Key('a list of names, like openings = ["ssh", "docker"]', _texts),
    "permissions.readable": _Key('a list of folders, like readable = ["~/data"]', _texts),
    "permissions.hidden": _Key('a list of patterns, like hidden = [".env", "*.pem", "secrets/"]', _texts),
    "permissions.off": _Key("a list of paths of rules, skills, commands, hooks and agents that are not used", _texts),
    "proposed": _Key("a table the program made from an import", _table),
}
_OPEN = (
    "policy.values",
    "mcp",
    "proposed",
    "permissions.rules",
    "permissions.trusted",
)  # what is inside is not ours to check


def parse(text: str, path: Path) -> Settings:
    """The settings in `text`; ConfigMistake names the line."""
    try:
        document = tomlkit.parse(text).unwrap()
    except ParseError as error:
        raise ConfigMistake(
            _sentence(str(error)),
            where=f"{path}, line {error.line}",
            remedy="Fix the line and open the workspace again.",
        ) from error
    except TOMLKitError as error:
        raise ConfigMistake(
            _sentence(str(error)), where=str(path), remedy="Fix the file and open the workspace again."
        ) from error
    if _whole(document.get("version")) and document["version"] > VERSION:
        raise NewerVersion(
            f"{path} was written by a newer version of Helix Desktop ({document['version']}).",
            remedy="Update Helix Desktop. Nothing was changed.",
        )
    warnings = _check(document, text, path)
    return _settings(document, warnings)


def _sentence(text: str) -> str:
    return re.sub(r" at line \d+ col \d+", "", text).rstrip(".") + "."


def _check(document: Mapping[str, Any], text: str, path: Path) -> tuple[str, ...]:
    warnings = []
    for dotted, value in _walk(document, ""):
        key = _KEYS.get(dotted)
        where = f"{path}, line {line_of(text, dotted)}"
        if key is None:
            near = _near(dotted)
            hint = f". Did you mean {near}?" if near else "."
            warnings.append(f"{where}: {dotted} is not a workspace setting and has no effect{hint}")
        elif not key.fits(value):
            raise ConfigMistake(
                f"{dotted} = {_shown(value)} is not valid: expected {key.expected}.",
                where=where,
                remedy="Fix the line and open the workspace again.",
            )
    return tuple(warnings)


def _walk(table: Mapping[str, Any], prefix: str) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in table.items():
        dotted = f"{prefix}{name}"
        found.append((dotted, value))
        if isinstance(value, dict) and dotted in _KEYS and dotted not in _OPEN:
            found += _walk(value, f"{dotted}.")
    return found


def _near(dotted: str) -> str:
    close = difflib.get_close_matches(dotted, _KEYS, n=1, cutoff=0.6)
    if not close:
        last = {key.rpartition(".")[2]: key for key in _KEYS}
        close = [last[name] for name in difflib.get_close_matches(dotted.rpartition(".")[2], last, n=1, cutoff=0.75)]
    return close[0] if close else ""


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def line_of(text: str, dotted: str) -> int:
    """The line a key stands in, counted from 1: as `[a.b]`, as `c = ` below it, or as `a.b.c = `."""
    table = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\[?\s*([^\]]+?)\s*\]\]?", line):
            table = re.sub(r"[\s\"']", "", head[1])
            if table == dotted or table.startswith(f"{dotted}."):
                return number
        elif (key := re.match(r"\s*([\w\-.\"' ]+?)\s*=", line)) is not None:
            name = re.sub(r"[\s\"']", "", key[1])
            full = f"{table}.{name}" if table else name
            if full == dotted or full.startswith(f"{dotted}.") or dotted.startswith(f"{full}."):
                return number
    return 1


def _settings(document: Mapping[str, Any], warnings: tuple[str, ...]) -> Settings:
    policy = document.get("policy", {})
    permissions = document.get("permissions", {})
    return Settings(
        name=document.get("name", ""),
        colour=document.get("colour", ""),
        roots=tuple(document.get("roots", ())),
        models={role: name for role, name in document.get("models", {}).items() if isinstance(name, str) and name},
        effort=document.get("effort", ""),
        temperature=document.get("temperature"),
        top_p=document.get("top_p"),
        instructions=document.get("instructions", ""),
        preset=policy.get("preset", ""),
        policy=policy.get("values", {}),
        mode=permissions.get("mode", ""),
        rules=tuple(permissions.get("rules", ())),
        mcp=document.get("mcp", {}),
        limit=document.get("limits", {}).get("cache_bytes", 0),
        changes=document.get("changes", {}),
        limits=document.get("limits", {}),
        trusted=permissions.get("trusted", {}),
        approved=permissions.get("approved", {}),
        off=tuple(permissions.get("off", ())),
        shared=document.get("shared", {}),
        openings=tuple(permissions.get("openings", ())),
        readable=tuple(permissions.get("readable", ())),
        hidden=tuple(permissions["hidden"]) if "hidden" in permissions else None,
        shown=tuple(permissions.get("shown", ())),
        proposed=document.get("proposed", {}),
        warnings=warnings,
    )


def read(path: Path) -> Settings:
    """The settings in the file."""
    return parse(_text_of(path), path)


def _text_of(path: Path) -> str:
    try:
        return durable.read(path).decode("utf-8").replace("\r\n", "\n")
    except WrongUse as error:
        raise ConfigMistake(error.what, remedy=error.remedy) from error
    except FileNotFoundError as error:
        raise NotThere(
            f"{path} is missing.", remedy="Restore the file, or import the workspace from an export."
        ) from error
    except UnicodeDecodeError as error:
        raise ConfigMistake(f"{path} is not UTF-8 text.", remedy="Save it as UTF-8.") from error
    except OSError as error:
        raise StoreFailed(f"{path} cannot be read: {error.strerror}.") from error


def fresh(name: str, colour: str, roots: tuple[str, ...]) -> str:
    """The text of a new workspace's file."""
    document = tomlkit.parse(_HEAD)
    document.add("version", tomlkit.item(VERSION))
    document.add("name", tomlkit.item(name))
    document.add("colour", tomlkit.item(colour))
    document.add("roots", tomlkit.item(list(roots)))
    return tomlkit.dumps(document)


def change(path: Path, changes: Changes) -> Settings:
    """Set dotted keys (None takes one out) in the file as it stands now, so that edits by hand meanwhile survive. A name
    with a dot in it is quoted, as in TOML.
    """
    text = _text_of(path)
    now = parse(text, path)  # never write over a file with a mistake in it
    document = tomlkit.parse(text)
    for dotted, value in (changes(now) if callable(changes) else changes).items():
        _put(document, _names(dotted), value)
    changed = tomlkit.dumps(document)
    try:
        settings = parse(changed, path)
    except ConfigMistake as mistake:  # in what was asked for, not in the file
        raise ConfigMistake(mistake.mistake, remedy="Nothing was changed.") from mistake
    durable.write(path, changed, private=True)
    return settings


def quoted(name: str) -> str:
    """A name of any letters, as a part of a dotted key."""
    return json.dumps(name, ensure_ascii=False)


def _names(dotted: str) -> list[str]:
    parts = re.findall(r'"(?:[^"\\]|\\.)*"|[^.]+', dotted)
    return [json.loads(part) if part.startswith('"') else part for part in parts]


def _put(table: Any, names: list[str], value: Any) -> None:
    *outer, last = names
    for name in outer:
        if name not in table:
            if value is None:
                return
            table[name] = tomlkit.table()
        table = table[name]
    if value is None:
        table.pop(last, None)
    else:
        table[last] = list(value) if isinstance(value, tuple) else value
