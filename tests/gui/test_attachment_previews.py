"""What is attached is seen before it goes: a picture small and at full size, the tokens that go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.attachment_previews import PictureDialog
from helix_desktop.gui.chat.attachment_reading import encode_png
from helix_desktop.gui.main_window import MainWindow
from tests.gui import story
from tests.gui.fake_catalogue import FakeCatalogue
from tests.gui.fake_desk import FakeSession, FakeWorkbench

if TYPE_CHECKING:
    import pytest


def picture(width: int, height: int) -> bytes:
    image = QImage(width, height, QImage.Format.Format_RGB32)
    image.fill(QColor("#0d7d74"))
    return encode_png(image)


def buttons(window: MainWindow) -> list[QPushButton]:
    return window.chat.composer.attachments.findChildren(QPushButton)


def test_a_picture_is_small_in_the_message_and_opens_at_full_size(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = picture(2_000, 400)
    stored = Stored(Digest.of_content(content), len(content), 0, "image/png")

    async def read(_self: object, _digest: Digest, start: int, length: int) -> bytes:
        return content[start : start + length]

    monkeypatch.setattr(FakeCatalogue, "read_range", read)
    window.chat.composer.attachments.add_attachment(Attachment("plot.png", stored, 1_000))
    small = [button for button in buttons(window) if not button.icon().isNull()]
    assert [button.accessibleName() for button in small] == ["Open plot.png at full size"]
    small[0].click()
    dialog = window.findChild(PictureDialog)
    assert dialog is not None
    assert dialog.picture.pixmap().width() == 2_000
    dialog.close()


def test_the_chip_counts_what_goes(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    text = next(iter(story.CONTENT.values()))
    window.chat.composer.attachments.add_attachment(
        Attachment("long.log", story.stored(text), 938_200)
    )
    assert [button.text() for button in buttons(window) if button.isVisible()][-1:] == [
        "long.log · excerpt, 2K of 938.2K tokens  ✕"
    ]
