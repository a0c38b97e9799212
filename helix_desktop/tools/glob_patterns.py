"""Finds files by pattern: `*` and `?` inside a name, `**` over folders, `{a,b}` for either."""

import fnmatch
import re
from collections.abc import Sequence

from helix_desktop.errors import InvalidInput
from helix_desktop.tools.workspace_roots import RootPath, WorkspaceRoots, walk_files

# These folders are not searched unless the pattern names them.
SKIPPED_FOLDERS = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".tox", "target"}
)
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_ALTERNATIVES = 64


def find_paths_by_glob(
    roots: WorkspaceRoots, root_path: RootPath, pattern: str, limit: int
) -> list[str]:
    """Return the paths below `root_path` that match, sorted, at most `limit`."""
    patterns: list[tuple[str, ...]] = []
    for alternative in expand_braces(pattern):
        parts = [part for part in alternative.split("/") if part]
        patterns.append(tuple(parts))
    skipped = frozenset(name for name in SKIPPED_FOLDERS if name not in pattern)
    prefix = ""
    if root_path.inside:
        prefix = f"{root_path.inside}/"
    paths: list[str] = []
    for path_in_root, _ in walk_files(roots, root_path, skipped):
        if len(paths) == limit:
            break
        if fits_any_pattern(path_in_root.removeprefix(prefix), patterns):
            paths.append(path_in_root)
    return sorted(paths)


def fits_any_pattern(path: str, patterns: Sequence[tuple[str, ...]]) -> bool:
    parts = tuple(path.split("/"))
    return any(fits_pattern(parts, pattern) for pattern in patterns)


def fits_pattern(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether a path fits a pattern; both are given as the names between their slashes.

    The path is read once, name by name. After each, `positions` has all places in the pattern that
    may come next: a `**` may stand for any number of folders, so there can be several. Trying one
    after the other instead would make some patterns very slow.
    """
    positions = _skip_double_stars({0}, pattern)
    for part in parts:
        next_positions: set[int] = set()
        for position in positions:
            if position == len(pattern):
                continue
            if pattern[position] == "**":
                next_positions.add(position)
            elif fnmatch.fnmatchcase(part, pattern[position]):
                next_positions.add(position + 1)
        positions = _skip_double_stars(next_positions, pattern)
    return len(pattern) in positions


def expand_braces(pattern: str) -> list[str]:
    """Expand `a.{b,c}` to `a.b` and `a.c`."""
    if "\0" in pattern or not pattern.strip("/ "):
        raise InvalidInput("Specify a pattern, such as **/*.py.")
    expanded: list[str] = []
    waiting = [pattern]
    while waiting:
        text = waiting.pop()
        if len(waiting) + len(expanded) > _MOST_ALTERNATIVES:
            raise InvalidInput(
                f"The pattern has more than {_MOST_ALTERNATIVES} alternatives.",
                remedy="Use a simpler pattern.",
            )
        braces = _BRACES.search(text)
        if braces is None:
            expanded.append(text)
            continue
        for choice in braces[1].split(","):
            waiting.append(text[: braces.start()] + choice + text[braces.end() :])
    return expanded


def _skip_double_stars(reached: set[int], pattern: tuple[str, ...]) -> set[int]:
    """Add the positions behind each `**` that was reached, as it may stand for no folder."""
    with_skipped = set(reached)
    for start in reached:
        position = start
        while position < len(pattern) and pattern[position] == "**":
            position += 1
            with_skipped.add(position)
    return with_skipped
