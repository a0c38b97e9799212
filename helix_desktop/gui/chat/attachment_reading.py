"""Reads files, pictures and long texts in a thread, stores them and attaches them to the message.

A picture is first made acceptable for every model: complete, of a known format, within
the strictest size limit.
"""

import asyncio
import mimetypes
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QMimeData, Qt
from PySide6.QtGui import QImage, QImageWriter

from helix_desktop.engine.facts import Attachment
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.picture_reader import detect_picture_format, read_picture
from helix_desktop.gui.translation import tr
from helix_desktop.gui.workbench_types import Workbench

TAKEN = {b"png": "image/png", b"jpeg": "image/jpeg", b"gif": "image/gif", b"webp": "image/webp"}
LARGEST_PICTURE = (
    3_700_000  # The largest picture in bytes. As base64 text, it has five million characters.
)
WIDEST = (
    8_000  # A picture whose longer edge has more pixels than this is scaled down before it is sent.
)
SMALLER = (
    2_000  # The longer edge in pixels of a picture after scaling. Models do not use more than this.
)
_SMOOTH = Qt.TransformationMode.SmoothTransformation


def fit_picture_for_models(name: str, content: bytes) -> tuple[bytes, str]:
    """Shrinks or converts a picture if needed. Returns it with its media type, on any thread."""
    picture = read_picture(content)
    if picture is None:
        raise InvalidInput(
            tr(
                "{name} is damaged, too large, or in an image format Helix Desktop cannot read.",
                name=name,
            ),
            remedy=tr(
                "The image was not attached. Save the image as PNG or JPEG, and attach it again."
            ),
        )
    kind = detect_picture_format(content)
    is_small = len(content) <= LARGEST_PICTURE
    if kind in TAKEN and is_small and max(picture.width(), picture.height()) <= WIDEST:
        return content, TAKEN[kind]
    return _shrink_and_encode(picture)


def encode_png(picture: QImage) -> bytes:
    return _encode_picture(picture, b"png")


def _shrink_and_encode(picture: QImage) -> tuple[bytes, str]:
    if max(picture.width(), picture.height()) > SMALLER:
        picture = picture.scaled(SMALLER, SMALLER, Qt.AspectRatioMode.KeepAspectRatio, _SMOOTH)
    whole = _encode_picture(picture, b"png")
    if len(whole) <= LARGEST_PICTURE:
        return whole, "image/png"
    return _encode_picture(
        picture.convertToFormat(QImage.Format.Format_RGB888), b"jpg"
    ), "image/jpeg"


def _encode_picture(picture: QImage, kind: bytes) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind)).write(picture)
    return bytes(buffer.data().data())


LARGEST = 200 * 1024 * 1024


@dataclass(eq=False)
class AttachmentReader:
    """`attacher` is called when reading starts. It returns what receives the attachments. A
    document may be several: its text, and pictures of its scanned pages.
    """

    doing: BackgroundRunner
    bench: Callable[[], Workbench | None]
    conversation: Callable[[], str]
    attacher: Callable[[], Callable[[Sequence[Attachment]], object]]

    def attach_files(self, files: list[Path]) -> None:
        for file in files:
            self._attach_when_read(file.name, partial(_read_file_for_message, file))

    def attach_dropped_data(self, mime: QMimeData) -> None:
        """Attaches the files or the picture of a drop or of the clipboard."""
        files = [Path(url.toLocalFile()) for url in mime.urls() if url.isLocalFile()]
        if files:
            self.attach_files(files)
        elif mime.hasImage():
            picture = QImage(mime.imageData())

            def encode_dropped_picture(name: str) -> bytes:
                content, _ = fit_picture_for_models(name, encode_png(picture))
                return content

            self._attach_when_read(tr("picture.png"), encode_dropped_picture)

    def attach_long_text(self, text: str, name: str = "") -> None:
        bench = self.bench()
        if bench is None:
            return
        content = text.encode("utf-8", "replace")
        receive = self.attacher()
        self.doing.run_in_background(
            bench.attach_content(name or tr("pasted.txt"), content, "text/plain"),
            then=lambda attachment: receive((attachment,)),
        )

    def _attach_when_read(self, name: str, read: Callable[[str], bytes]) -> None:
        bench = self.bench()
        if bench is None:
            return
        work = _read_and_attach(bench, self.conversation(), name, read)
        self.doing.run_in_background(work, then=self.attacher())


async def _read_and_attach(
    bench: Workbench, conversation: str, name: str, read: Callable[[str], bytes]
) -> Sequence[Attachment]:
    """Reads and attaches content. `read` gets the name, in a thread, and returns the content."""
    content = await asyncio.to_thread(read, name)
    return await bench.attach_file(name, content, conversation)


def _read_file_for_message(file: Path, name: str) -> bytes:
    """Reads a file. A picture is made acceptable for models."""
    content = _read_file_bytes(file)
    guessed = mimetypes.guess_type(name)[0] or ""
    if guessed.startswith("image/") and guessed != "image/svg+xml":
        return fit_picture_for_models(name, content)[0]
    return content


def _read_file_bytes(file: Path) -> bytes:
    try:
        if file.is_dir():
            raise InvalidInput(
                tr("{name} is a folder.", name=file.name),
                remedy=tr("Attach the files in the folder, or mention the folder with @."),
            )
        if not file.is_file() and file.exists():
            raise InvalidInput(
                tr("{name} is a pipe or a device and cannot be attached.", name=file.name)
            )
        if file.stat().st_size > LARGEST:
            raise InvalidInput(
                tr("{name} is larger than 200 MB.", name=file.name),
                remedy=tr("Mention the file with @ instead."),
            )
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(
            tr("{name} could not be read: {why}.", name=file.name, why=error.strerror or error)
        ) from error
