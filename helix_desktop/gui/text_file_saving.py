"""Writes text to a file of the user's choice in a thread."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.translation import tr

# File systems take 255 bytes. An ending and what a temporary file's name adds need some of them.
_LONGEST_NAME_BYTES = 180


async def save_text_file(file: Path, build_text: Callable[[], str]) -> None:
    """Builds the text and writes it, or raises StoreFailed."""
    try:
        await asyncio.to_thread(_build_and_write, file, build_text)
    except OSError as error:
        reason = error.strerror or error
        message = tr("{file} could not be written: {why}.", file=file, why=reason)
        remedy = tr("Nothing was lost. Choose another location.")
        raise StoreFailed(message, remedy=remedy) from error


def _build_and_write(file: Path, build_text: Callable[[], str]) -> None:
    content = build_text().encode("utf-8", "replace")
    folder = file.parent.resolve(strict=True)
    write_file_atomically(folder / file.name, content, private=True)


def file_name_from_title(title: str, otherwise: str) -> str:
    """Returns the beginning of a title without the characters that some file system refuses,
    or `otherwise`.
    """
    characters: list[str] = []
    for character in title:
        if character.isalnum() or character in "-_":
            characters.append(character)
        else:
            characters.append(" ")
    # Several characters in a row that were refused become one space.
    title_words = "".join(characters).split()
    # A letter of which only some bytes are left is dropped.
    beginning = " ".join(title_words).encode()[:_LONGEST_NAME_BYTES].decode("utf-8", "ignore")
    return beginning.rstrip() or otherwise
