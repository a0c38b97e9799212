"""Finds files by pattern: `*` and `?` inside a name, `**` over folders, `{a,b}` for either."""

import fnmatch
import re
from collections.abc import Sequence
from itertools import islice

from helix_desktop.errors import InvalidInput
from helix_desktop.tools.workspace_roots import RootPath, WorkspaceRoots, walk_files

# These folders are not searched unless the pattern names them.
SKIPPED_FOLDERS = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".tox", "target"}
)
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_ALTERNATIVES = 64


def find_paths_by_glob(
    roots: WorkspaceRoots, place: RootPath, pattern: str, limit: int
) -> list[str]:
    """Return the paths below `place` that match, sorted, at most `limit`."""
    patterns = [tuple(part for part in one.split("/") if part) for one in expand_braces(pattern)]
    skip = frozenset(name for name in SKIPPED_FOLDERS if name not in pattern)
    start = len(place.inside) + 1 if place.inside else 0
    found = (
        inside
        for inside, _ in walk_files(roots, place, skip)
        if fits_any_pattern(inside[start:], patterns)
    )
    return sorted(islice(found, limit))


def fits_any_pattern(path: str, patterns: Sequence[tuple[str, ...]]) -> bool:
    parts = tuple(path.split("/"))
    return any(fits_pattern(parts, pattern) for pattern in patterns)


def fits_pattern(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Match component by component, keeping all pattern positions reached, so that no
    pattern is slow.
    """
    reached = _skip_double_stars({0}, pattern)
    for part in parts:
        moved = {
            at if pattern[at] == "**" else at + 1
            for at in reached
            if at < len(pattern) and (pattern[at] == "**" or fnmatch.fnmatchcase(part, pattern[at]))
        }
        reached = _skip_double_stars(moved, pattern)
    return len(pattern) in reached


def expand_braces(pattern: str) -> list[str]:
    """Expand `a.{b,c}` to `a.b` and `a.c`."""
    if "\0" in pattern or not pattern.strip("/ "):
        raise InvalidInput("Specify a pattern, such as **/*.py.")
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        if len(todo) + len(done) > _MOST_ALTERNATIVES:
            raise InvalidInput(
                f"The pattern has more than {_MOST_ALTERNATIVES} alternatives.",
                remedy="Use a simpler pattern.",
            )
        if match := _BRACES.search(one):
            todo += [
                one[: match.start()] + choice + one[match.end() :] for choice in match[1].split(",")
            ]
        else:
            done.append(one)
    return done


def _skip_double_stars(reached: set[int], pattern: tuple[str, ...]) -> set[int]:
    out = set()
    for at in reached:
        step = at
        out.add(step)
        while step < len(pattern) and pattern[step] == "**":
            step += 1
            out.add(step)
    return out
