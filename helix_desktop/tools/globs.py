"""Finding files by pattern: `*` and `?` inside a name, `**` over folders, `{a,b}` for either."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Sequence
from itertools import islice

from helix_desktop.errors import WrongUse
from helix_desktop.tools.confine import Place, Roots, walk

# Folders nobody means when looking for a file, unless the pattern names them.
UNINTERESTING = frozenset({".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".tox", "target"})
_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_ALTERNATIVES = 64


def find(roots: Roots, place: Place, pattern: str, limit: int) -> list[str]:
    """Paths from `place` that fit, sorted; `limit` at the most."""
    patterns = [tuple(part for part in one.split("/") if part) for one in alternatives(pattern)]
    skip = frozenset(name for name in UNINTERESTING if name not in pattern)
    start = len(place.inside) + 1 if place.inside else 0
    found = (inside for inside, _ in walk(roots, place, skip) if fits_any(inside[start:], patterns))
    return sorted(islice(found, limit))


def fits_any(path: str, patterns: Sequence[tuple[str, ...]]) -> bool:
    parts = tuple(path.split("/"))
    return any(fits(parts, pattern) for pattern in patterns)


def fits(parts: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Component by component; each step keeps the set of pattern positions reached, so no pattern can be slow."""
    reached = _over_stars({0}, pattern)
    for part in parts:
        moved = {
            at if pattern[at] == "**" else at + 1
            for at in reached
            if at < len(pattern) and (pattern[at] == "**" or fnmatch.fnmatchcase(part, pattern[at]))
        }
        reached = _over_stars(moved, pattern)
    return len(pattern) in reached


def alternatives(pattern: str) -> list[str]:
    """`a.{b,c}` as `a.b` and `a.c`."""
    if "\0" in pattern or not pattern.strip("/ "):
        raise WrongUse("Specify a pattern, such as **/*.py.")
    done: list[str] = []
    todo = [pattern]
    while todo:
        one = todo.pop()
        if len(todo) + len(done) > _MOST_ALTERNATIVES:
            raise WrongUse(
                f"The pattern has more than {_MOST_ALTERNATIVES} alternatives.", remedy="Use a simpler pattern."
            )
        if match := _BRACES.search(one):
            todo += [one[: match.start()] + choice + one[match.end() :] for choice in match[1].split(",")]
        else:
            done.append(one)
    return done


def _over_stars(reached: set[int], pattern: tuple[str, ...]) -> set[int]:
    out = set()
    for at in reached:
        step = at
        out.add(step)
        while step < len(pattern) and pattern[step] == "**":
            step += 1
            out.add(step)
    return out
