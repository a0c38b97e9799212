from __future__ import annotations

import time

import pytest

from helix_desktop.errors import WrongUse
from helix_desktop.tools import globs
from helix_desktop.tools.confine import Roots
from tests.tools.world import World


@pytest.mark.parametrize(
    ("pattern", "path", "fits"),
    [
        ("*.py", "a.py", True),
        ("*.py", "b/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("src/**", "src/x/y", True),
        ("src/**/test_*", "src/test_a", True),
        ("src/**/test_*", "other/test_a", False),
        ("a/**/b/**/c", "a/x/b/y/z/c", True),
        ("a/**/b/**/c", "a/x/y/c", False),
        ("?.py", "ab.py", False),
        ("[ab].py", "a.py", True),
    ],
)
def test_patterns(pattern: str, path: str, *, fits: bool) -> None:
    assert globs.fits(tuple(path.split("/")), tuple(pattern.split("/"))) is fits


def test_braces_are_alternatives() -> None:
    assert sorted(globs.alternatives("{a,b}/*.{c,d}")) == ["a/*.c", "a/*.d", "b/*.c", "b/*.d"]
    assert globs.alternatives("a{b}") == ["a{b}"]
    with pytest.raises(WrongUse, match="alternatives"):
        globs.alternatives("{a,b}" * 12)
    with pytest.raises(WrongUse, match="Specify a pattern"):
        globs.alternatives("  ")


def test_no_pattern_is_slow() -> None:
    started = time.process_time()
    assert not globs.fits(("a",) * 200, ("**", "a") * 100 + ("b",))
    assert not globs.fits(("a" * 250,), ("*a" * 100 + "b",))
    assert time.process_time() - started < 1


async def test_what_nobody_looks_for_is_left_out_unless_it_is_named(here: World) -> None:
    for name in ("a.js", "node_modules/b/b.js", ".git/c.js", "src/d.js"):
        here.write(name, "")
    roots = Roots.of([here.folder])
    assert globs.find(roots, roots.place("."), "**/*.js", 10) == ["a.js", "src/d.js"]
    assert globs.find(roots, roots.place("."), "node_modules/**/*.js", 10) == ["node_modules/b/b.js"]
    assert globs.find(roots, roots.place("src"), "*.js", 10) == ["src/d.js"]
