"""Reads attachments for previews: a picture, a thumbnail, or the number of tokens to be sent."""

import asyncio
from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QLabel, QWidget

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.errors import HelixError
from helix_desktop.gui.chat.chat_page import ChatPage
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.widgets import TransientDialog, build_scroll_area
from helix_desktop.gui.rows_and_columns import build_column
from helix_desktop.gui.shown_workspace import ShownWorkspace
from helix_desktop.gui.translation import tr
from helix_desktop.gui.window_parts import WindowParts

LARGEST_WIDTH_PIXELS = 16_000  # Wider pictures are shown smaller.
THUMBNAIL_WIDTH_PIXELS = 96


class PictureDialog(TransientDialog):
    """A dialog as large as the picture or the screen, with scroll bars if necessary.
    Escape closes it.
    """

    def __init__(self, image: QImage, name: str, parent: QWidget) -> None:
        super().__init__(name, parent)
        width = image.width()
        height = image.height()
        self.picture = QLabel(self)
        self.picture.setPixmap(QPixmap.fromImage(image))
        self.picture.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.picture.setAccessibleName(tr("Image, {w} × {h}", w=width, h=height))
        area = build_scroll_area(self.picture, self)
        # This lets the arrow keys scroll the picture.
        area.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        area.setAccessibleName(name)
        build_column(area, owner=self, margins=0)
        self.resize(width + 24, height + 24)


def open_picture_dialog(parts: WindowParts, stored: Stored, name: str) -> None:
    bench = parts.showing.workspace
    if bench is None:
        return

    def show_read_picture(image: QImage) -> None:
        PictureDialog(image, name, parts.widget).open()

    reading = _read_stored_image(bench, stored, LARGEST_WIDTH_PIXELS)
    parts.run_for_window(reading, then=show_read_picture)


def show_thumbnail_or_token_count(
    parts: WindowParts, side: ChatPage, attachment: Attachment
) -> None:
    """Shows on the chip of an attachment a small picture of it, or how many tokens of it the model
    gets that the conversation uses.
    """
    bench = parts.showing.workspace
    if bench is None:
        return
    composer = side.composer
    chips = composer.attachments
    # A chip without a preview is still a chip, so an error is not shown.
    run = partial(parts.runner.run_in_background, owner=chips, failed=lambda _error: None)
    is_image = attachment.stored.media_type.startswith("image/")
    if not is_image:
        show_tokens = partial(chips.show_attachment_tokens, attachment)
        conversation = ""
        if side.session is not None:
            conversation = side.session.id
        counting = bench.count_sent_tokens(
            attachment,
            conversation,
            parts=composer.message_parts(),
            instead_of=composer.replaced_message,
        )
        run(counting, then=show_tokens)
        return

    def show_read_picture(image: QImage) -> None:
        chips.show_thumbnail(attachment, QPixmap.fromImage(image))

    reading = _read_stored_image(bench, attachment.stored, THUMBNAIL_WIDTH_PIXELS)
    run(reading, then=show_read_picture)


async def _read_stored_image(bench: ShownWorkspace, stored: Stored, widest: int) -> QImage:
    content = await bench.contents.read_range(stored.digest, 0, stored.size)
    image = await asyncio.to_thread(read_picture, content, widest)
    if image is None:
        raise HelixError(
            tr("This image cannot be shown: it is damaged, too large, or in an unknown format.")
        )
    return image
