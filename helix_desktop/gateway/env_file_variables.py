"""Variables in the `.env` files of agents, which their library dotenv reads."""

import re
from collections.abc import Mapping
from pathlib import Path

from helix_desktop.gateway.agent_upstreams import read_text_or_empty

_ENV_FILE_LINE = re.compile(
    r"^[ \t]*(?:export[ \t]+)?(?P<name>[\w.-]+)(?:[ \t]*=|:[ \t])[ \t]*"
    r"(?:\"(?P<in_double>[^\"]*)\"|'(?P<in_single>[^']*)'|(?P<plain>[^#\r\n]*))",
    re.MULTILINE,
)


def read_env_file_variable(file: Path, variable: str) -> str:
    """Return the value of a variable in an `.env` file, or an empty text."""
    return read_env_file_variables(file).get(variable, "")


def read_env_file_variables(file: Path) -> dict[str, str]:
    """Return all variables of an `.env` file, the values without their quotes.

    Agents read such a file with the library dotenv: there may be blanks around the sign, a
    comment behind the value, and of several lines the last one counts.
    """
    values: dict[str, str] = {}
    for line in _ENV_FILE_LINE.finditer(read_text_or_empty(file)):
        quoted_value = line["in_double"] or line["in_single"]
        values[line["name"]] = quoted_value or (line["plain"] or "").strip()
    return values


def set_env_file_variables(text: str, variables: Mapping[str, str]) -> str:
    """Return the content of an `.env` file with these variables, a line each. Other lines stay."""
    lines: list[str] = []
    for line in text.splitlines():
        name = line.removeprefix("export ").partition("=")[0]
        if name not in variables:
            lines.append(line)
    for name, value in variables.items():
        lines.append(f"{name}={value}")
    return "\n".join(lines) + "\n"
