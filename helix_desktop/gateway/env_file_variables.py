"""Variables in the `.env` files of agents, which their library dotenv reads."""

import re
from collections.abc import Mapping
from pathlib import Path

from helix_desktop.gateway.agent_upstreams import read_text_or_empty

# A line of an `.env` file, with the name of a variable to fill in.
_ENV_FILE_LINE = (
    r"^[ \t]*(?:export[ \t]+)?%s(?:[ \t]*=|:[ \t])[ \t]*"
    r"(?:\"(?P<in_double>[^\"]*)\"|'(?P<in_single>[^']*)'|(?P<plain>[^#\r\n]*))"
)


def read_env_file_variable(file: Path, variable: str) -> str:
    """Return the value of a variable in an `.env` file, without its quotes, or an empty text.

    Agents read such a file with the library dotenv: there may be blanks around the sign, a
    comment behind the value, and of several lines the last one counts.
    """
    text = read_text_or_empty(file)
    value = ""
    for line in re.finditer(_ENV_FILE_LINE % re.escape(variable), text, re.MULTILINE):
        quoted_value = line["in_double"] or line["in_single"]
        value = quoted_value or (line["plain"] or "").strip()
    return value


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
