"""Helix Desktop: work with AI agents for hours without the context window in the way."""

# ruff: noqa: PTH100, PTH109, PTH117, PTH120 -- runs before anything else is imported:
# pathlib would be looked for in the very folders that go

import os
import sys

__version__ = "0.2.0"


def _stop_importing_from_current_folder() -> None:
    """Keeps modules in the current folder and in folders of PYTHONPATH from being imported.

    `python -m` puts the current folder first, and a project's PYTHONPATH often names its sources. A
    file there may have the name of a library that we use. If the package itself comes from
    PYTHONPATH, as in nix-shell, only relative folders are removed.
    """
    package_folder = os.path.dirname(os.path.abspath(__file__))
    here = os.path.dirname(package_folder)
    python_path = os.environ.get("PYTHONPATH", "")
    named = [path for path in python_path.split(os.pathsep) if path]
    absolute_paths = [os.path.abspath(path) for path in named]
    if here in absolute_paths:
        named = [path for path in named if not os.path.isabs(path)]
    try:
        current = os.getcwd()
    except OSError:  # The current folder has been deleted.
        current = ""
    unsearched = {"", current, *map(os.path.abspath, named)} - {here}
    sys.path[:] = [path for path in sys.path if path not in unsearched]


# Tests of an extension import us to check it, and must find their own package in its folder.
# Where the program itself is started, nothing can have imported pytest before.
_is_imported_by_tests = "pytest" in sys.modules
if not getattr(sys, "frozen", False) and not _is_imported_by_tests:
    _stop_importing_from_current_folder()

# Importing httpx would also import its command line, with 80 modules of rich, click and
# pygments: .07 s and 4 MB.
sys.modules["httpx._main"] = None  # type: ignore[assignment]  # As if it were not installed, which httpx allows for.
