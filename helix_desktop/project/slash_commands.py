"""Slash commands in files: a prompt with arguments, references to files, and shell lines."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.project.project_item import (
    ProjectItem,
    ProjectReading,
    split_front_matter,
    text_or_empty,
)

PLACES = (".agents/commands", ".claude/commands", ".opencode/command", ".opencode/commands")
_SHELL = re.compile(r"!`([^`\n]+)`")
_FILE = re.compile(r"(?<![\w`@])@([\w~./-][^\s`'\",;:!?)\]]*)")
_ARGUMENT = re.compile(r"\$(ARGUMENTS|\d)\b")
_UNSUPPORTED = ("hooks", "context", "agent", "subtask")


@dataclass(frozen=True, slots=True)
class CommandPrompt:
    """A command's outcome: its words, shell lines to run first, and files to show."""

    text: str
    shell: tuple[str, ...]
    files: tuple[str, ...]

    def with_shell_outputs(self, outputs: dict[str, str]) -> str:
        return _SHELL.sub(lambda found: outputs.get(found[1], found[0]), self.text)


def find_command_files(place: Path, reading: ProjectReading) -> Iterator[ProjectItem]:
    """Yield a folder's commands. Those in subfolders are prefixed by their name:
    `frontend:test`.
    """
    for path, text in reading.read_markdown_files(place):
        name = ":".join(path.relative_to(place).with_suffix("").parts)
        if not re.fullmatch(r"[\w:.-]{1,80}", name):
            continue
        try:
            values, body = split_front_matter(text)
        except InvalidInput as error:
            yield ProjectItem(
                "command", name, path, text, "", own=reading.own, notes=(str(error),), broken=True
            )
            continue
        about = text_or_empty(values.get("description")) or next(
            (line.strip("# ") for line in body.splitlines() if line.strip()), ""
        )
        notes = tuple(
            f"{key} is not supported in a command and does nothing here."
            for key in values
            if key in _UNSUPPORTED
        )
        yield ProjectItem(
            "command", name, path, text, body.strip(), about[:200], reading.own, values, notes
        )


def build_command_prompt(item: ProjectItem, arguments: str) -> CommandPrompt:
    """Fill in a command's arguments, in which nothing counts as a shell line or reference."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()
    shell = tuple(dict.fromkeys(_SHELL.findall(item.body)))
    files = tuple(dict.fromkeys(_FILE.findall(_SHELL.sub(" ", item.body))))
    taken = bool(_ARGUMENT.search(item.body))

    def fill(found: re.Match[str]) -> str:
        if found[1] == "ARGUMENTS":
            return arguments
        number = int(found[1])
        return words[number - 1] if 0 < number <= len(words) else ""

    pieces = _SHELL.split(item.body)  # Plain text and shell lines alternate in this list.
    text = "".join(
        _ARGUMENT.sub(fill, piece) if at % 2 == 0 else f"!`{piece}`"
        for at, piece in enumerate(pieces)
    )
    if arguments.strip() and not taken:
        text = f"{text}\n\n{arguments.strip()}"
    return CommandPrompt(text, shell, files)
