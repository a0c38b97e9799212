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
    lists: dict[str, tuple[str, ...]] = {}
    for key, text in read_table(name).items():
        if isinstance(text, str):
            lists[key] = tuple(text.split())
    return lists


def read_schema(name: str) -> str:
    """Returns the SQL that makes the tables of a store."""
    return (resources_folder() / "schemas" / f"{name}.sql").read_text("utf-8")


def read_sql_statements(name: str) -> Mapping[str, str]:
    """Returns the statements of a file of SQL. Each follows a line of two dashes and
    its name; its comment has three.
    """
    lines_of_statement: dict[str, list[str]] = {}
    current: list[str] = []  # Lines before the first name belong to no statement.
    for line in read_schema(name).splitlines():
        if line.startswith("---"):
            continue
        if line.startswith("-- "):
            title = line.removeprefix("-- ")
            current = []
            lines_of_statement[title] = current
        else:
            current.append(line)
    return {title: "\n".join(lines).strip() for title, lines in lines_of_statement.items()}
