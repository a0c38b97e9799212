"""A picture goes to a model only as every model takes it."""

from __future__ import annotations

import os

import pytest
from PySide6.QtCore import QBuffer, QByteArray, QIODevice
from PySide6.QtGui import QImage, QImageWriter

from helix_desktop.errors import InvalidInput
from helix_desktop.gui.chat.attachment_reading import (
    LARGEST_PICTURE,
    SMALLER,
    encode_png,
    fit_picture_for_models,
)


def noise(width: int, height: int) -> QImage:
    return QImage(os.urandom(width * height * 4), width, height, QImage.Format.Format_RGB32).copy()


def written(picture: QImage, kind: bytes) -> bytes:
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    QImageWriter(buffer, QByteArray(kind)).write(picture)
    return bytes(buffer.data().data())


@pytest.mark.parametrize(("kind", "media_type"), [(b"png", "image/png"), (b"jpg", "image/jpeg")])
def test_what_every_model_takes_stays_byte_for_byte_also_under_a_wrong_name(
    kind: bytes, media_type: str
) -> None:
    content = written(noise(30, 20), kind)
    assert fit_picture_for_models("x.gif", content) == (content, media_type)


def test_another_kind_becomes_a_png() -> None:
    content, media_type = fit_picture_for_models("x.bmp", written(noise(30, 20), b"bmp"))
    assert media_type == "image/png"
    assert QImage.fromData(content).size().toTuple() == (30, 20)


def test_a_large_one_is_made_smaller() -> None:
    content, media_type = fit_picture_for_models("x.png", encode_png(noise(2_400, 1_200)))
    assert len(content) <= LARGEST_PICTURE
    assert media_type in {"image/png", "image/jpeg"}
    assert QImage.fromData(content).size().toTuple() == (SMALLER, SMALLER // 2)


@pytest.mark.parametrize(
    "content",
    [b"", b"no picture", encode_png(QImage(9, 9, QImage.Format.Format_RGB32))[:-30]],
    ids=["empty", "words", "cut short"],
)
def test_what_is_none_is_refused_with_what_to_do(content: bytes) -> None:
    with pytest.raises(InvalidInput, match="The image was not attached"):
        fit_picture_for_models("x.png", content)
