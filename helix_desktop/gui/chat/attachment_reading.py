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
from helix_desktop.gui.shown_workspace import ShownWorkspace
from helix_desktop.gui.translation import tr

TAKEN = {b"png": "image/png", b"jpeg": "image/jpeg", b"gif": "image/gif", b"webp": "image/webp"}
# The largest picture in bytes. As base64 text, it has five million characters.
LARGEST_PICTURE = 3_700_000
# A picture whose longer edge has more pixels than this is scaled down before it is sent.
WIDEST = 8_000
# The longer edge in pixels of a picture after scaling. Models do not use more than this.
SMALLER = 2_000
LARGEST = 200 * 1024 * 1024  # The largest file that is attached, in bytes.
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
    picture_format = detect_picture_format(content)
    is_small_file = len(content) <= LARGEST_PICTURE
    is_small_picture = max(picture.width(), picture.height()) <= WIDEST
    if picture_format in TAKEN and is_small_file and is_small_picture:
        return content, TAKEN[picture_format]
    return _shrink_and_encode(picture)


def encode_png(picture: QImage) -> bytes:
    return _encode_picture(picture, b"png")


def _shrink_and_encode(picture: QImage) -> tuple[bytes, str]:
    if max(picture.width(), picture.height()) > SMALLER:
        picture = picture.scaled(SMALLER, SMALLER, Qt.AspectRatioMode.KeepAspectRatio, _SMOOTH)
    png = _encode_picture(picture, b"png")
    if len(png) <= LARGEST_PICTURE:
        return png, "image/png"
    # A photograph is much smaller as JPEG, which has no transparency.
    opaque_picture = picture.convertToFormat(QImage.Format.Format_RGB888)
    return _encode_picture(opaque_picture, b"jpg"), "image/jpeg"


def _encode_picture(picture: QImage, kind: bytes) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind)).write(picture)
    return bytes(buffer.data().data())


@dataclass(eq=False)
class AttachmentReader:
    """`attacher` is called when reading starts. It returns what receives the attachments. A
    document may be several: its text, and pictures of its scanned pages.
    """

    doing: BackgroundRunner
    bench: Callable[[], ShownWorkspace | None]
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
            encode_picture = partial(_encode_dropped_picture, QImage(mime.imageData()))
            self._attach_when_read(tr("picture.png"), encode_picture)

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
    bench: ShownWorkspace, conversation: str, name: str, read: Callable[[str], bytes]
) -> Sequence[Attachment]:
    """Reads and attaches content. `read` gets the name, in a thread, and returns the content."""
    content = await asyncio.to_thread(read, name)
    return await bench.attach_file(name, content, conversation)


def _encode_dropped_picture(picture: QImage, name: str) -> bytes:
    content, _ = fit_picture_for_models(name, encode_png(picture))
    return content


def _read_file_for_message(file: Path, name: str) -> bytes:
    """Reads a file. A picture is made acceptable for models."""
    content = _read_file_bytes(file)
    media_type, _ = mimetypes.guess_type(name)
    if media_type is None or not media_type.startswith("image/"):
        return content
    # An SVG is text, which models read as it is.
    if media_type == "image/svg+xml":
        return content
    fitted_content, _ = fit_picture_for_models(name, content)
    return fitted_content


def _read_file_bytes(file: Path) -> bytes:
    try:
        _refuse_what_cannot_be_attached(file)
        return file.read_bytes()
    except OSError as error:
        raise InvalidInput(
            tr("{name} could not be read: {why}.", name=file.name, why=error.strerror or error)
        ) from error


def _refuse_what_cannot_be_attached(file: Path) -> None:
    """Raises what is wrong with a file that the user wants to attach, and says what to
    do instead.
    """
    if file.is_dir():
        problem = tr("{name} is a folder.", name=file.name)
        remedy = tr("Attach the files in the folder, or mention the folder with @.")
        raise InvalidInput(problem, remedy=remedy)
    # To read from a pipe could wait forever.
    is_pipe_or_device = file.exists() and not file.is_file()
    if is_pipe_or_device:
        problem = tr("{name} is a pipe or a device and cannot be attached.", name=file.name)
        raise InvalidInput(problem)
    if file.stat().st_size > LARGEST:
        problem = tr("{name} is larger than 200 MB.", name=file.name)
        raise InvalidInput(problem, remedy=tr("Mention the file with @ instead."))
