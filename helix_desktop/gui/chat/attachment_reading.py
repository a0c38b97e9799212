"""Reads files, pictures and long texts in a thread, stores them in the cache and attaches them to the message."""

import asyncio
import mimetypes
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path

from PySide6.QtCore import QMimeData
from PySide6.QtGui import QImage

from helix_desktop.engine.facts import Attachment
from helix_desktop.errors import InvalidInput
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.picture_fitting import encode_png, fit_picture_for_models
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbench

Reading = Coroutine[None, None, tuple[str, bytes, str]]  # name, content, media type
LARGEST = 200 * 1024 * 1024
HEAD = 4_096  # The first bytes decide whether a file is text, as they do for models.


class AttachmentReader:
    """`attacher` is called when reading starts and returns what is called with the finished attachment."""

    def __init__(
        self,
        doing: BackgroundRunner,
        bench: Callable[[], Workbench | None],
        attacher: Callable[[], Callable[[Attachment], object]],
    ) -> None:
        self._doing = doing
        self._bench = bench
        self._attacher = attacher

    def attach_files(self, files: list[Path]) -> None:
        for file in files:
            self._read_in_background(_read_picture_or_file(file.name, partial(_read_file_with_media_type, file)))

    def attach_dropped_data(self, mime: QMimeData) -> None:
        """A drop, or the clipboard: files, else a picture."""
        files = [Path(url.toLocalFile()) for url in mime.urls() if url.isLocalFile()]
        if files:
            self.attach_files(files)
        elif mime.hasImage():
            picture = QImage(mime.imageData())
            self._read_in_background(
                _read_picture_or_file(tr("picture.png"), lambda name: fit_picture_for_models(name, encode_png(picture)))
            )

    def attach_long_text(self, text: str) -> None:
        self._read_in_background(
            _read_picture_or_file(tr("pasted.txt"), lambda _name: (text.encode("utf-8", "replace"), "text/plain"))
        )

    def _read_in_background(self, reading: Reading) -> None:
        bench = self._bench()
        if bench is None:
            reading.close()
        else:
            self._doing.run_in_background(_store_attachment(bench, reading), then=self._attacher())


async def _store_attachment(bench: Workbench, reading: Reading) -> Attachment:
    name, content, media_type = await reading
    return await bench.attach_content(name, content, media_type)


async def _read_picture_or_file(name: str, content: Callable[[str], tuple[bytes, str]]) -> tuple[str, bytes, str]:
    return name, *await asyncio.to_thread(content, name)


def _read_file_with_media_type(file: Path, name: str) -> tuple[bytes, str]:
    """Reads a file and decides its media type: a picture, text (whatever its name says), or other bytes."""
    content = _read_file_bytes(file)
    guessed = mimetypes.guess_type(name)[0] or ""
    if guessed.startswith("image/") and guessed != "image/svg+xml":
        return fit_picture_for_models(name, content)
    if guessed.startswith("text/") or b"\0" not in content[:HEAD]:
        return content, guessed if guessed.startswith("text/") else "text/plain"
    return content, guessed or "application/octet-stream"


def _read_file_bytes(file: Path) -> bytes:
    try:
        if file.is_dir():
            raise InvalidInput(
                tr("{name} is a folder.", name=file.name),
                remedy=tr("Attach the files in it, or mention the folder with @."),
            )
        if not file.is_file() and file.exists():
            raise InvalidInput(
                tr("{name} is a pipe or a device and can't be attached.", name=file.name),
                remedy=tr("Attach the files in it, or mention the folder with @."),
            )
        if file.stat().st_size > LARGEST:
            raise InvalidInput(
                tr("{name} is larger than 200 MB.", name=file.name), remedy=tr("Mention it with @ instead.")
            )
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(tr("Couldn't read {name}: {why}.", name=file.name, why=error.strerror or error)) from error
