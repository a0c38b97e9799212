"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import importlib
import pkgutil
import re
import subprocess
import sys

import helix_desktop
from helix_desktop import lazy_pattern


def test_it_does_what_a_compiled_pattern_does() -> None:
    lazy, compiled = lazy_pattern.lazy_pattern(r"(\w)(\d)?", re.IGNORECASE), re.compile(r"(\w)(\d)?", re.IGNORECASE)
    for _ in range(2):
        assert lazy.findall("a1 b") == compiled.findall("a1 b")
        assert lazy.sub("-", "a1 b") == compiled.sub("-", "a1 b")
        assert (lazy.pattern, lazy.flags, lazy.groups) == (compiled.pattern, compiled.flags, compiled.groups)


def test_every_pattern_of_the_package_can_be_compiled() -> None:
    seen = 0
    for module in pkgutil.walk_packages(helix_desktop.__path__, "helix_desktop."):
        spec = module.module_finder.find_spec(module.name, None)
        source = spec.loader.get_source(module.name) if spec and spec.loader else ""  # type: ignore[attr-defined]
        if "lazy_pattern(" not in source or module.name == "helix_desktop.lazy_pattern":
            continue
        for value in vars(importlib.import_module(module.name)).values():
            each = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
            for pattern in each:
                if isinstance(pattern, lazy_pattern.PatternCompiledWhenUsed):
                    assert pattern.pattern
                    seen += 1
    assert seen > 30


def test_the_modules_of_the_window_compile_few_patterns_when_they_are_imported() -> None:
    script = (
        "import re, sys\nmade = []\ncompile_ = re._compile\n"
        "def count(*given):\n    caller = sys._getframe(2).f_globals['__name__']\n"
        "    if caller.startswith('helix_desktop'): made.append(caller)\n    return compile_(*given)\n"
        "re._compile = count\nimport helix_desktop.desktop.window_program\nprint(*made)"
    )
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert len(said.stdout.split()) <= 16, said.stdout
