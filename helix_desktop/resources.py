"""Finds the files that ship with the program: `resources/` beside the package, or
inside an installed one.
"""

import json
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any


def resources_folder() -> Path:
    package = Path(__file__).parent
    bundled = Path(getattr(sys, "_MEIPASS", package)) / "resources"
    for place in (package.parent / "resources", package / "resources", bundled):
        if place.is_dir():
            return place
    raise FileNotFoundError(f"the resources folder is missing beside {package}")


def read_json_resource(name: str) -> Any:
    """Returns what a JSON file contains: `name` is its path in `resources`."""
    return json.loads((resources_folder() / name).read_text("utf-8"))


@cache
def read_table(name: str) -> Mapping[str, Any]:
    """Returns a table of `resources/tables`. Where a table has a list of words, they
    are one text with blanks.
    """
    import tomllib  # The window starts without it.

    return tomllib.loads((resources_folder() / "tables" / f"{name}.toml").read_text("utf-8"))


def read_word_lists(name: str) -> Mapping[str, tuple[str, ...]]:
    """Returns the lists of words in a table, without its tables inside."""
    return {
        key: tuple(text.split()) for key, text in read_table(name).items() if isinstance(text, str)
    }


def read_schema(name: str) -> str:
    """Returns the SQL that makes the tables of a store."""
    return (resources_folder() / "schemas" / f"{name}.sql").read_text("utf-8")


def read_sql_statements(name: str) -> Mapping[str, str]:
    """Returns the statements of a file of SQL. Each follows a line of two dashes and
    its name; its comment has three.
    """
    lines = [
        line for line in read_schema(name).splitlines(keepends=True) if not line.startswith("---")
    ]
    pieces = "".join(("\n", *lines)).split("\n-- ")[1:]
    return {title: text.strip() for title, _, text in (piece.partition("\n") for piece in pieces)}
