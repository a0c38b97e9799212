"""Makes a picture acceptable for every model: complete, of a known format, within the strictest size limit.

A picture that cannot be read must not go into a message: the provider would refuse every request of that conversation.
"""

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, Qt
from PySide6.QtGui import QImage, QImageReader, QImageWriter

from helix_desktop.errors import InvalidInput
from helix_desktop.gui.translation import tr

TAKEN = {b"png": "image/png", b"jpeg": "image/jpeg", b"gif": "image/gif", b"webp": "image/webp"}
LARGEST = 3_700_000  # In bytes; this becomes five million characters of base64.
WIDEST = 8_000  # The longest edge that is sent, in pixels.
SMALLER = 2_000  # A larger picture is scaled to this longest edge. Models use no more.
MOST_PIXELS = 100_000_000
_SMOOTH = Qt.TransformationMode.SmoothTransformation


def fit_picture_for_models(name: str, content: bytes) -> tuple[bytes, str]:
    """Returns the picture, shrunk or converted if necessary, and its media type. Raises InvalidInput if
    it is no picture. Safe on any thread.

    May run on any thread.
    """
    kind, picture = _decode_picture(content)
    if picture.isNull():
        raise InvalidInput(
            tr("{name} is damaged, too large, or in an image format Helix Desktop can't read.", name=name),
            remedy=tr("The image was not attached. Save it as PNG or JPEG and try again."),
        )
    if kind in TAKEN and len(content) <= LARGEST and max(picture.width(), picture.height()) <= WIDEST:
        return content, TAKEN[kind]
    return _shrink_and_encode(picture)


def encode_png(picture: QImage) -> bytes:
    return _encode_picture(picture, b"png")


def _decode_picture(content: bytes) -> tuple[bytes, QImage]:
    """Decodes the whole picture and its format; a truncated one counts as unreadable."""
    buffer = QBuffer()
    buffer.setData(QByteArray(content))
    buffer.open(QIODevice.OpenModeFlag.ReadOnly)
    reader = QImageReader(buffer)
    reader.setDecideFormatFromContent(True)
    reader.setAutoTransform(True)
    kind, size = bytes(reader.format().data()), reader.size()
    if size.isValid() and size.width() * size.height() > MOST_PIXELS:
        return kind, QImage()
    return kind, reader.read()


def _shrink_and_encode(picture: QImage) -> tuple[bytes, str]:
    if max(picture.width(), picture.height()) > SMALLER:
        picture = picture.scaled(SMALLER, SMALLER, Qt.AspectRatioMode.KeepAspectRatio, _SMOOTH)
    whole = _encode_picture(picture, b"png")
    if len(whole) <= LARGEST:
        return whole, "image/png"
    return _encode_picture(picture.convertToFormat(QImage.Format.Format_RGB888), b"jpg"), "image/jpeg"


def _encode_picture(picture: QImage, kind: bytes) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind)).write(picture)
    return bytes(buffer.data().data())
