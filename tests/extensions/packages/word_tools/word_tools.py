"""A tool, a command and an action of the palette that count words."""

from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from helix_desktop.extensions.extension_interfaces import (
    ActionPlace,
    Extension,
    ExtensionAction,
    ExtensionCommand,
    ExtensionTool,
)


def describe_words(text: str) -> str:
    words = text.split()
    most_common = Counter(words).most_common(3)
    lines = [f"{count} {word}" for word, count in most_common]
    return f"{len(words)} words\n" + "\n".join(lines)


async def count_words(arguments: Mapping[str, Any]) -> str:
    return describe_words(str(arguments["text"]))


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("file", type=Path, help="the file whose words are counted")


def print_words(arguments: Namespace) -> int:
    print(describe_words(arguments.file.read_text("utf-8")))  # noqa: T201 - as a command does
    return 0


def count_words_of_readme(place: ActionPlace) -> str:
    readme = Path(place.folder) / "README.md"
    if not readme.is_file():
        return f"There is no README.md in {place.folder or 'this workspace'}."
    return describe_words(readme.read_text("utf-8"))


extension = Extension(
    title="Words",
    tools=[
        ExtensionTool(
            name="count_words",
            description="Count the words of a text, and name the most common ones.",
            schema={
                "type": "object",
                "properties": {"text": {"type": "string", "description": "The text"}},
                "required": ["text"],
            },
            run=count_words,
        )
    ],
    commands=[
        ExtensionCommand(
            noun="count-words",
            sentence="count the words of a file",
            add_arguments=add_arguments,
            run=print_words,
        )
    ],
    actions=[ExtensionAction(title="Count the words of README.md", run=count_words_of_readme)],
)
