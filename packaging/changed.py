"""Which tests a change can break: those that mirror a changed module first, then those
of the modules that import it.

Reads imports as text, so it needs nothing but the checkout, and sees what is not committed yet.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

IMPORT = re.compile(
    r"^\s*(?:from|import) (helix_desktop[\w.]*)(?: import (?:\(([^)]*)\)|(.*)))?", re.MULTILINE
)


def affected_tests(root: Path, changed: Iterable[str]) -> list[str]:
    """Test files, nearest to the change first: changed or mirrored ones, then those
    that import a changed module, then the mirrored ones of modules that import it.
    """
    changed = list(changed)
    modules = {
        _module_name(path)
        for path in changed
        if path.startswith("helix_desktop/") and path.endswith(".py")
    }
    package = {
        path: _imported_modules(root / path) for path in _python_files(root, "helix_desktop")
    }
    tests = {path: _imported_modules(root / path) for path in _python_files(root, "tests")}
    importers = [path for path, names in package.items() if names & modules]
    wanted = [
        *(path for path in changed if path.startswith("tests/")),
        *(_mirrored_test(path) for path in changed),
        *(path for path, names in tests.items() if names & modules),
        *(_mirrored_test(path) for path in importers),
    ]
    return [
        path
        for path in dict.fromkeys(wanted)
        if Path(path).name.startswith("test_") and (root / path).is_file()
    ]


def changed_files(root: Path, base: str) -> list[str]:
    """Everything that differs from `base`, committed or not, and what git does not track yet."""
    commands = (
        ["git", "diff", "--name-only", base],
        ["git", "ls-files", "--others", "--exclude-standard"],
    )
    printed = (
        subprocess.run(one, cwd=root, capture_output=True, text=True, check=True).stdout
        for one in commands
    )
    return [path for text in printed for path in text.splitlines()]


def _python_files(root: Path, folder: str) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / folder).rglob("*.py"))


def _module_name(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _mirrored_test(path: str) -> str:
    """`helix_desktop/engine/view.py` is tested by `tests/engine/test_view.py`."""
    folder, _, name = path.rpartition("/")
    return f"{folder.replace('helix_desktop', 'tests', 1)}/test_{name}"


def _imported_modules(path: Path) -> set[str]:
    """The modules a file imports, also inside its functions; `from a import b` counts
    as a and as a.b.
    """
    found: set[str] = set()
    for module, one, several in IMPORT.findall(path.read_text(encoding="utf-8")):
        found.add(module)
        found.update(f"{module}.{name}" for name in re.findall(r"\w+", one or several))
    return found
