"""Knows by name which files other programs run later: git, shells, editors, package
managers, other agents.

`extract_runnable_text` extracts the part that can be run, so that other changes do not count.
`autorun_guard.py` handles git's own files.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping, Sequence

from helix_desktop import resources
from helix_desktop.json_values import object_at, parse_object
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
    if plain_name in _EXACT or plain_name in (SCRIPTS, COMPOSER):
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
    return normalise_spelling(name) in (SCRIPTS, COMPOSER)


def extract_runnable_text(name: str, content: bytes, before: bytes | None = None) -> str:
    """Return, for comparison, the text in a file that can be run, or an empty string.
    `before`: the old content.
    """
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
