"""Knows by name which files other programs run later: git, shells, editors, package
managers, other agents.

`extract_runnable_text` extracts the part that can be run, so that other changes do not count.
`autorun_guard.py` handles git's own files.
"""

import configparser
import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from helix_desktop import resources
from helix_desktop.json_values import check_toml_keys, object_at, parse_object
from helix_desktop.tools.workspace_roots import normalise_spelling

_TABLE = resources.read_table("autorun")
_FILES = [name for text in _TABLE["files"].values() for name in text.split()]
# Folders with thousands of installed packages. Nobody opens such a folder as a project.
PACKAGE_FOLDERS = (
    "node_modules",
    "site-packages",
    "dist-packages",
    ".venv",
    "venv",
    ".tox",
    ".nox",
    "__pycache__",
)
SCRIPTS = "package.json"
COMPOSER = "composer.json"
_AUTOMATIC = (
    "install",
    "prepare",
    "publish",
    "pack",
    "version",
    "uninstall",
    "shrinkwrap",
    "rebuild",
    "dependencies",
)
_HOOKS = (
    "husky",
    "lint-staged",
    "simple-git-hooks",
    "gitHooks",
    "pre-commit",
    "pre-push",
    "ghooks",
    "yorkie",
)
MOST_BYTES = 1 << 20
# Files of Python projects, of which linters run code that some settings name.
_LINTER_TABLE = _TABLE["linter_settings"]
_FILES_OF_LINTERS = frozenset(_LINTER_TABLE["files"].split())
_LINTERS = tuple(_LINTER_TABLE["linters"].split())
_RUNNING_SETTINGS = frozenset(_LINTER_TABLE["names"].split())
_MOST_BYTES_OF_SETTINGS = 200_000  # A larger file takes too long to read after each command.


def _has_wildcard(name: str) -> bool:
    return any(sign in name for sign in "*?[")


def _paths_by_last_name(paths: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the paths, each with a slash in front, by the name of the entry itself."""
    paths_by_name: dict[str, tuple[str, ...]] = {}
    for path in map(normalise_spelling, paths):
        name = path.rpartition("/")[2]
        paths_by_name[name] = (*paths_by_name.get(name, ()), f"/{path}")
    return paths_by_name


_EXACT = frozenset(normalise_spelling(name) for name in _FILES if not _has_wildcard(name))
_WILDCARDS = [normalise_spelling(name) for name in _FILES if _has_wildcard(name)]
_PATTERNS = re.compile("|".join(map(fnmatch.translate, _WILDCARDS)))
_FOLDERS = frozenset(map(normalise_spelling, _TABLE["inside"]["folders"].split()))
_BELOW = _paths_by_last_name(_TABLE["inside"]["paths"].split())


def is_autorun_entry(name: str, path: str, *, folder: bool) -> bool:
    """Whether other programs later run the entry, or files in it. `path` is relative to
    its root.
    """
    plain_name = normalise_spelling(name)
    plain_path = "/" + normalise_spelling(path)
    if plain_name in _BELOW and plain_path.endswith(_BELOW[plain_name]):
        return True
    if folder:
        return plain_name in _FOLDERS
    if plain_name in _EXACT or is_only_partly_run(name):
        return True
    return _PATTERNS.match(plain_name) is not None


def is_autorun_path(path: str) -> bool:
    """Whether other programs later run a file that is written to this path, relative to
    its root.
    """
    parts = path.split("/")
    if ".git" in map(normalise_spelling, parts) or is_autorun_entry(parts[-1], path, folder=False):
        return True
    for depth in range(1, len(parts)):
        folder = "/".join(parts[:depth])
        if is_autorun_entry(parts[depth - 1], folder, folder=True):
            return True
    return False


def changes_what_runs(path: str, before: bytes, after: bytes) -> bool:
    """Whether this change to a file makes another program run something else later."""
    if not is_autorun_path(path):
        return False
    name = path.rpartition("/")[2]
    return not is_only_partly_run(name) or bool(extract_runnable_text(name, after, before))


def is_only_partly_run(name: str) -> bool:
    """Whether only a part of such a file is run, which also depends on the file's
    content before.
    """
    plain_name = normalise_spelling(name)
    return plain_name in (SCRIPTS, COMPOSER) or plain_name in _FILES_OF_LINTERS


def extract_runnable_text(name: str, content: bytes, before: bytes | None = None) -> str:
    """Return, for comparison, the text in a file that can be run, or an empty string.
    `before`: the old content.
    """
    plain_name = normalise_spelling(name)
    if plain_name in _FILES_OF_LINTERS:
        return _changed_linter_settings(plain_name, content, before)
    if is_only_partly_run(name):
        return _changed_or_automatic_scripts(content, before)
    if not content.strip():
        return ""
    return hashlib.sha256(content).hexdigest()


def _changed_or_automatic_scripts(content: bytes, before: bytes | None) -> str:
    """Return changed scripts, and new ones that are run automatically. Other new
    scripts run only by name.
    """
    package = parse_object(content or b"{}")
    package_before = parse_object(before or b"{}") or {}
    if package is None:  # It cannot be read, so any change of it counts.
        return hashlib.sha256(content).hexdigest()
    scripts = _running_scripts(object_at(package, "scripts"), object_at(package_before, "scripts"))
    hooks = {}
    for name in _HOOKS:
        if name in package and package[name] != package_before.get(name):
            hooks[name] = package[name]
    if not scripts and not hooks:
        return ""
    return json.dumps([scripts, hooks], sort_keys=True)


def _running_scripts(
    scripts: Mapping[str, object], scripts_before: Mapping[str, object]
) -> dict[str, object]:
    """Return the scripts that count as a change of what runs: those whose text has changed, and
    new ones that are run automatically.
    """
    running = {}
    for name, text in scripts.items():
        if name in scripts_before:
            is_run = scripts_before[name] != text
        else:
            is_run = _is_automatic_script(name, scripts)
        if is_run:
            running[name] = text
    return running


def _is_automatic_script(name: str, scripts: Mapping[str, object]) -> bool:
    """Whether a package manager runs a script by itself, or before or after another one."""
    if any(word in name for word in _AUTOMATIC):
        return True
    if name.startswith(("pre-", "post-")):  # Composer's events, as `post-install-cmd`.
        return True
    for prefix in ("pre", "post"):
        if name.startswith(prefix) and name.removeprefix(prefix) in scripts:
            return True
    return False


# --- Settings of linters


def _changed_linter_settings(plain_name: str, content: bytes, before: bytes | None) -> str:
    """Return changed and new settings by which linters run code."""
    if content == before:
        return ""
    settings = _read_linter_settings(plain_name, content)
    settings_before = _read_linter_settings(plain_name, before or b"") or {}
    if settings is None:  # It cannot be read, so any change of it counts.
        return hashlib.sha256(content).hexdigest()
    changed: dict[str, str] = {}
    for name, value in settings.items():
        if value != settings_before.get(name):
            changed[name] = value
    if not changed:
        return ""
    return json.dumps(changed, sort_keys=True)


def _read_linter_settings(plain_name: str, content: bytes) -> Mapping[str, str] | None:
    """Return the settings that run code, by their place in the file. None if it cannot be read."""
    text = content.decode("utf-8-sig", "replace")
    if not any(linter in text.lower() for linter in _LINTERS) and "\\" not in text:
        return {}  # A name in TOML may be spelled with escapes.
    if len(content) > _MOST_BYTES_OF_SETTINGS:
        return None
    if plain_name.endswith(".toml"):
        return _read_toml_settings(text)
    return _read_ini_settings(text)


def _read_toml_settings(text: str) -> Mapping[str, str] | None:
    import tomllib  # The window starts without it.

    settings: dict[str, str] = {}
    try:
        check_toml_keys(text)
        tools = object_at(tomllib.loads(text), "tool")
        for linter in _LINTERS:
            _add_toml_settings(settings, linter, tools.get(linter))
    except (ValueError, RecursionError):
        return None
    return settings


def _add_toml_settings(settings: dict[str, str], place: str, value: object) -> None:
    """Add what runs code in a table, and in the tables in it."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            _add_toml_settings(settings, f"{place}[{number}]", item)
    if not isinstance(value, dict):
        return
    for name, setting in value.items():
        place_of_setting = f"{place}.{name}"
        if _runs_code(name):
            settings[place_of_setting] = repr(setting)
        else:
            _add_toml_settings(settings, place_of_setting, setting)


def _read_ini_settings(text: str) -> Mapping[str, str] | None:
    # A section for all others is read as one of its own: the parser would copy it into each.
    parser = configparser.ConfigParser(
        strict=False, interpolation=None, allow_no_value=True, default_section=""
    )
    try:
        parser.read_string(text)
    except configparser.Error:
        return None
    settings: dict[str, str] = {}
    for section in parser.sections():
        is_of_linter = any(linter in section.lower() for linter in _LINTERS)
        if not is_of_linter and section != configparser.DEFAULTSECT:
            continue
        runs_all = section.lower().endswith(":local-plugins")
        for name, value in parser.items(section):
            if runs_all or _runs_code(name):
                settings[f"{section}.{name}"] = value or ""
    return settings


def _runs_code(name: str) -> bool:
    return name.lower().replace("_", "-") in _RUNNING_SETTINGS
