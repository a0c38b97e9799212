"""Opens pictures from outside: from models, tools, histories, files.

Only pixel formats are read. Qt would also read SVG and PDF, whatever name and media type say; these
can open other files, and a small one can take for ever.
"""

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize
from PySide6.QtGui import QImage, QImageReader

_MOST_PIXELS = 100_000_000
_MOST_SHOWN_PIXELS = 60_000_000
_MOST_SCALED_PIXELS = 12_000_000  # About 48 MB of memory, even if the picture is very tall.
_BEGINNINGS = (
    (b"\x89PNG\r\n\x1a\n", b"png"),
    (b"\xff\xd8\xff", b"jpeg"),
    (b"GIF8", b"gif"),
    (b"BM", b"bmp"),
)


def detect_picture_format(content: bytes) -> bytes:
    """Returns Qt's name of the format, by its first bytes. Empty if the format is not supported."""
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return b"webp"
    for beginning, name in _BEGINNINGS:
        if content.startswith(beginning):
            return name
    return b""


def read_picture(
    content: bytes, widest: int = 0, *, most_pixels: int = _MOST_PIXELS
) -> QImage | None:
    """Reads a picture and scales it down to `widest`. None if it is unreadable or huge.
    Runs on any thread.
    """
    picture_format = detect_picture_format(content)
    if not picture_format:
        return None
    data = QByteArray(content)
    buffer = QBuffer(data)
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer, QByteArray(picture_format))
    reader.setAutoDetectImageFormat(False)
    reader.setAutoTransform(True)

    size = reader.size()
    pixels = size.width() * size.height()
    if not size.isValid() or not 0 < pixels <= most_pixels:
        return None
    if widest and pixels > _MOST_SHOWN_PIXELS:
        return None
    if widest:
        scale_to_width = widest / size.width()
        # The square root, because both edges are scaled.
        scale_to_memory = (_MOST_SCALED_PIXELS / pixels) ** 0.5
        scale = min(scale_to_width, scale_to_memory)
        if scale < 1.0:
            width = max(1, round(size.width() * scale))
            height = max(1, round(size.height() * scale))
            reader.setScaledSize(QSize(width, height))
    image = reader.read()
    if image.isNull():
        return None
    return image
