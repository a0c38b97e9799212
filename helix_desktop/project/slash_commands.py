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

COMMAND_FOLDERS = (
    ".agents/commands",
    ".claude/commands",
    ".opencode/command",
    ".opencode/commands",
)
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


def find_command_files(folder: Path, reading: ProjectReading) -> Iterator[ProjectItem]:
    """Yield a folder's commands. Those in subfolders are prefixed by their name:
    `frontend:test`.
    """
    for path, text in reading.read_markdown_files(folder):
        path_as_name = path.relative_to(folder).with_suffix("")
        name = ":".join(path_as_name.parts)
        if not re.fullmatch(r"[\w:.-]{1,80}", name):
            continue
        try:
            values, body = split_front_matter(text)
        except InvalidInput as error:
            yield ProjectItem(
                "command", name, path, text, "", own=reading.own, notes=(str(error),), broken=True
            )
            continue
        description = text_or_empty(values.get("description")) or _first_line_of_words(body)
        notes = []
        for key in values:
            if key in _UNSUPPORTED:
                notes.append(f"{key} is not supported in a command and does nothing here.")
        yield ProjectItem(
            kind="command",
            name=name,
            path=path,
            text=text,
            body=body.strip(),
            about=description[:200],
            own=reading.own,
            values=values,
            notes=tuple(notes),
        )


def _first_line_of_words(body: str) -> str:
    for line in body.splitlines():
        if line.strip():
            return line.strip("# ")
    return ""


def build_command_prompt(item: ProjectItem, arguments: str) -> CommandPrompt:
    """Fill in a command's arguments, in which nothing counts as a shell line or reference."""
    try:
        words = shlex.split(arguments)
    except ValueError:
        words = arguments.split()

    def fill_in_argument(reference: re.Match[str]) -> str:
        if reference[1] == "ARGUMENTS":
            return arguments
        number = int(reference[1])
        if 0 < number <= len(words):
            return words[number - 1]
        return ""

    pieces = []
    # Plain text and shell lines alternate.
    for number, piece in enumerate(_SHELL.split(item.body)):
        if number % 2 == 1:
            pieces.append(f"!`{piece}`")
        else:
            pieces.append(_ARGUMENT.sub(fill_in_argument, piece))
    text = "".join(pieces)
    takes_arguments = _ARGUMENT.search(item.body) is not None
    if arguments.strip() and not takes_arguments:
        text = f"{text}\n\n{arguments.strip()}"
    shell_lines = dict.fromkeys(_SHELL.findall(item.body))
    files = dict.fromkeys(_FILE.findall(_SHELL.sub(" ", item.body)))
    return CommandPrompt(text, tuple(shell_lines), tuple(files))
