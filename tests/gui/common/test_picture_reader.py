"""Pictures from outside: read by their first bytes, scaled, bounded; never SVG."""

from __future__ import annotations

from pathlib import Path

import pytest
from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QImage, QImageWriter

import helix_desktop
from helix_desktop.gui.common.picture_reader import detect_picture_format, read_picture

SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"><rect width="9" height="9"/></svg>'


def encoded(kind: bytes, width: int = 30, height: int = 20) -> bytes:
    image = QImage(width, height, QImage.Format.Format_RGB32)
    image.fill(0)
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind)).write(image)
    return bytes(buffer.data().data())


@pytest.mark.parametrize("kind", [b"png", b"jpeg", b"webp", b"bmp"])
def test_pictures_made_of_pixels_are_read(kind: bytes) -> None:
    image = read_picture(encoded(kind))
    assert image is not None
    assert (image.width(), image.height()) == (30, 20)
    assert detect_picture_format(encoded(kind)) == kind


@pytest.mark.parametrize(
    "content",
    [SVG, b"<?xml version='1.0'?>" + SVG, b" \n" + SVG, b"%PDF-1.4", b"not a picture", b""],
)
@pytest.mark.parametrize("beginning", [b"", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM"])
def test_a_drawing_is_never_read_whatever_it_says_it_is(content: bytes, beginning: bytes) -> None:
    """It opened the files that it names, and a small one held the whole program for
    half a minute.
    """
    assert read_picture(beginning + content) is None
    assert read_picture(beginning + content, 100) is None


def test_a_picture_that_claims_to_be_huge_is_not_read() -> None:
    assert (
        read_picture(b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\xff\xff\0\0\xff\xff\x08\x06\0\0\0") is None
    )


def test_a_wide_or_high_picture_is_scaled_down() -> None:
    wide = read_picture(encoded(b"png", 3_000, 30), 1_440)
    high = read_picture(encoded(b"png", 1_440, 20_000), 1_440)
    assert wide is not None
    assert high is not None
    assert wide.width() == 1_440
    assert high.width() * high.height() <= 12_100_000


def test_no_other_place_reads_pictures() -> None:
    package = Path(helix_desktop.__file__).parent
    readers = ("QImageReader", "fromData(", "loadFromData", "QMovie", "QPixmap(str")
    found = {
        path.name
        for path in package.rglob("*.py")
        if any(each in path.read_text("utf-8") for each in readers)
    }
    assert found == {"picture_reader.py"}
