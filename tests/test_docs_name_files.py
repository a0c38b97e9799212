"""The written pages name only modules and folders that exist, so that a reader finds
what they are sent to.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOM_PAGES = tuple(path.relative_to(ROOT).as_posix() for path in ROOT.glob("helix_desktop/**/*.md"))
PAGES = ("ARCHITECTURE.md", "SECURITY.md", "README.md", *ROOM_PAGES)
MODULE = re.compile(r"`((?:[\w.-]+/)*\w+\.py)`")
FOLDER = re.compile(r"`((?:[a-z_]+/)+)`")
NOT_OURS = {"dist", "image", "text"}  # what a build writes, and kinds of media
DOTTED = re.compile(r"`(helix_desktop(?:\.[a-z_]+)+)`")


def list_paths() -> set[str]:
    """Every Python file and package folder, each with a slash in front, so that an end
    of a path is a whole name.
    """
    found: set[str] = set()
    for top in ("helix_desktop", "tests", "packaging", "resources"):
        for path in (ROOT / top).rglob("*"):
            if path.suffix == ".py" or (path.is_dir() and not path.name.startswith((".", "__"))):
                found.add("/" + path.relative_to(ROOT).as_posix())
        found.add("/" + top)
    return found


def find_missing_paths(text: str, paths: set[str]) -> list[str]:
    named = [*MODULE.findall(text), *(folder.rstrip("/") for folder in FOLDER.findall(text))]
    missing = [
        name
        for name in named
        if name not in NOT_OURS and not any(path.endswith("/" + name) for path in paths)
    ]
    for name in DOTTED.findall(text):
        path = "/" + name.replace(".", "/")
        if path not in paths and f"{path}.py" not in paths:
            missing.append(name)
    return sorted(set(missing))


@pytest.mark.parametrize("page", PAGES)
def test_every_module_and_folder_named_in_a_page_exists(page: str) -> None:
    assert find_missing_paths((ROOT / page).read_text(encoding="utf-8"), list_paths()) == []


CLASS_OR_TABLE = re.compile(r"`(?:[a-z_]+\.)?(_?[A-Z]\w+)`")


def test_what_it_costs_to_add_something_is_one_line_for_each_kind_and_names_what_exists() -> None:
    """The list named a class `Row` that had been called `EntryRow` for weeks."""
    architecture = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    section = architecture.partition("## To change something\n")[2].partition("\n## ")[0]
    lines = section.strip().splitlines()
    assert [line for line in lines if not line.startswith("- **")] == []
    package = "\n".join(path.read_text("utf-8") for path in ROOT.glob("helix_desktop/**/*.py"))
    defined = set(re.findall(r"(?m)^(?:class )?(\w+)\b(?: =|:|\()", package))
    assert [name for name in CLASS_OR_TABLE.findall(section) if name not in defined] == []


def test_what_is_missing_is_named() -> None:
    text = (
        "`store/` `cli.py`, `store/gone.py`, `lost/` and `helix_desktop.cli`, `helix_desktop.lost`"
    )
    assert find_missing_paths(text, list_paths()) == ["helix_desktop.lost", "lost", "store/gone.py"]
