"""Writes text to a file of the user's choice in a thread."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.translation import tr


async def save_text_file(file: Path, make: Callable[[], str]) -> None:
    def write_whole() -> None:
        content = make().encode("utf-8", "replace")
        write_file_atomically(file.parent.resolve(strict=True) / file.name, content, private=True)

    try:
        await asyncio.to_thread(write_whole)
    except OSError as error:
        words = tr("{file} could not be written: {why}.", file=file, why=error.strerror or error)
        raise StoreFailed(words, remedy=tr("Nothing was lost. Choose another location.")) from error


def file_name_from_title(title: str, otherwise: str) -> str:
    """Returns a title without the signs that some file system refuses, or `otherwise`."""
    signs: list[str] = []
    for sign in title:
        if sign.isalnum() or sign in "-_":
            signs.append(sign)
        else:
            signs.append(" ")
    return " ".join("".join(signs).split()) or otherwise
