"""Knows by name which files other programs run later: git, shells, editors, package
managers, other agents.

`extract_runnable_text` extracts the part that can be run, so that other changes do not count.
`autorun_guard.py` handles git's own files.
"""

import fnmatch
import hashlib
import json
import re
from collections.abc import Mapping

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


_EXACT = frozenset(normalise_spelling(name) for name in _FILES if not set(name) & set("*?["))
_PATTERNS = re.compile(
    "|".join(
        fnmatch.translate(normalise_spelling(name)) for name in _FILES if set(name) & set("*?[")
    )
)
_FOLDERS = frozenset(map(normalise_spelling, _TABLE["inside"]["folders"].split()))
_BELOW: dict[str, tuple[str, ...]] = {}
for _each in map(normalise_spelling, _TABLE["inside"]["paths"].split()):
    _BELOW[_each.rpartition("/")[2]] = (*_BELOW.get(_each.rpartition("/")[2], ()), "/" + _each)


def is_autorun_entry(name: str, path: str, *, folder: bool) -> bool:
    """Whether other programs later run the entry, or files in it. `path` is relative to
    its root.
    """
    name = normalise_spelling(name)
    if name in _BELOW and ("/" + normalise_spelling(path)).endswith(_BELOW[name]):
        return True
    if folder:
        return name in _FOLDERS
    return name in _EXACT or name in (SCRIPTS, COMPOSER) or _PATTERNS.match(name) is not None


def is_autorun_path(path: str) -> bool:
    """Whether other programs later run a file that is written to this path, relative to
    its root.
    """
    parts = path.split("/")
    above = ("/".join(parts[: at + 1]) for at in range(len(parts) - 1))
    if ".git" in map(normalise_spelling, parts) or is_autorun_entry(parts[-1], path, folder=False):
        return True
    return any(
        is_autorun_entry(part, inside, folder=True)
        for part, inside in zip(parts, above, strict=False)
    )


def changes_what_runs(path: str, before: bytes, after: bytes) -> bool:
    """Whether this change to a file makes another program run something else later."""
    name = path.rpartition("/")[2]
    return is_autorun_path(path) and (
        not is_only_partly_run(name) or bool(extract_runnable_text(name, after, before))
    )


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
    return hashlib.sha256(content).hexdigest() if content.strip() else ""


def _changed_or_automatic_scripts(content: bytes, before: bytes | None) -> str:
    """Return changed scripts, and new ones that are run automatically. Other new
    scripts run only by name.
    """
    now, old = parse_object(content or b"{}"), parse_object(before or b"{}")
    if now is None:
        return hashlib.sha256(content).hexdigest()
    scripts, had = object_at(now, "scripts"), object_at(old, "scripts")
    kept = {
        name: text
        for name, text in scripts.items()
        if (_is_automatic_script(name, scripts) and name not in had) or had.get(name, text) != text
    }
    hooks = {
        name: now[name] for name in _HOOKS if name in now and now[name] != (old or {}).get(name)
    }
    return json.dumps([kept, hooks], sort_keys=True) if kept or hooks else ""


def _is_automatic_script(name: str, scripts: Mapping[str, object]) -> bool:
    if any(word in name for word in _AUTOMATIC) or (
        "-" in name and name.startswith(("pre-", "post-"))
    ):
        return True
    return name.startswith(("pre", "post")) and any(
        name.removeprefix(each) in scripts for each in ("pre", "post")
    )
