"""A page of HTML that loads nothing but the pictures that stand in the page itself.

Qt reads whatever file a page names as a style sheet or a picture, on the window's thread. A pipe would
hold the window for ever, an endless device fill the memory, and a picture of another folder be shown.
Where it is given nothing for an address, it tries to open the address itself. So it is always given
something: for a picture that is not drawn, an empty one.
"""

import base64
import binascii
from urllib.parse import unquote_to_bytes

from PySide6.QtCore import QByteArray, QObject, Qt, QUrl
from PySide6.QtGui import QImage, QTextDocument

from helix_desktop.gui.common.picture_reader import read_picture

# Of all pictures in one page: they are read on the window's thread.
MOST_PICTURE_PIXELS = 16_000_000
_NO_TEXT = b"\n"


class OfflineDocument(QTextDocument):
    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._pixels_left = MOST_PICTURE_PIXELS

    def loadResource(self, kind: int, address: QUrl | str) -> object:
        if kind != QTextDocument.ResourceType.ImageResource.value:
            return QByteArray(_NO_TEXT)
        picture = read_picture(_content_in_address(QUrl(address)), most_pixels=self._pixels_left)
        if picture is None:
            return _empty_picture()
        self._pixels_left -= picture.width() * picture.height()
        return picture


def _content_in_address(address: QUrl) -> bytes:
    """Returns the content that stands in an address such as `data:image/png;base64,iVBO…`, or nothing."""
    if address.scheme() != "data":
        return b""
    description, _, written_content = address.url().partition(",")
    content = unquote_to_bytes(written_content)
    if not description.endswith(";base64"):
        return content
    try:
        return base64.b64decode(content)
    except binascii.Error:
        return b""


def _empty_picture() -> QImage:
    picture = QImage(1, 1, QImage.Format.Format_ARGB32)
    picture.fill(Qt.GlobalColor.transparent)
    return picture
