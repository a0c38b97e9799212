from __future__ import annotations

import time

import pytest

from helix_desktop.errors import InvalidInput
from helix_desktop.tools import glob_patterns
from helix_desktop.tools.workspace_roots import WorkspaceRoots
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
    assert glob_patterns.fits_pattern(tuple(path.split("/")), tuple(pattern.split("/"))) is fits


def test_braces_are_alternatives() -> None:
    assert sorted(glob_patterns.expand_braces("{a,b}/*.{c,d}")) == [
        "a/*.c",
        "a/*.d",
        "b/*.c",
        "b/*.d",
    ]
    assert glob_patterns.expand_braces("a{b}") == ["a{b}"]
    with pytest.raises(InvalidInput, match="alternatives"):
        glob_patterns.expand_braces("{a,b}" * 12)
    with pytest.raises(InvalidInput, match="Specify a pattern"):
        glob_patterns.expand_braces("  ")


def test_no_pattern_is_slow() -> None:
    started = time.process_time()
    assert not glob_patterns.fits_pattern(("a",) * 200, ("**", "a") * 100 + ("b",))
    assert not glob_patterns.fits_pattern(("a" * 250,), ("*a" * 100 + "b",))
    assert time.process_time() - started < 1


async def test_what_nobody_looks_for_is_left_out_unless_it_is_named(here: World) -> None:
    for name in ("a.js", "node_modules/b/b.js", ".git/c.js", "src/d.js"):
        here.write(name, "")
    roots = WorkspaceRoots.from_folders([here.folder])
    assert glob_patterns.find_paths_by_glob(roots, roots.resolve_path("."), "**/*.js", 10) == [
        "a.js",
        "src/d.js",
    ]
    assert glob_patterns.find_paths_by_glob(
        roots, roots.resolve_path("."), "node_modules/**/*.js", 10
    ) == ["node_modules/b/b.js"]
    assert glob_patterns.find_paths_by_glob(roots, roots.resolve_path("src"), "*.js", 10) == [
        "src/d.js"
    ]
