"""Reads attachments from the cache for previews: a picture, full or small, or the number of tokens to be sent."""

import asyncio
from functools import partial

from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.attachment_chips import AttachmentChips
from helix_desktop.gui.transcript.content_fetching import decode_scaled_image
from helix_desktop.gui.translation import tr
from helix_desktop.gui.views.picture_dialog import PictureDialog
from helix_desktop.gui.workbench_types import Workbench

LARGEST_WIDTH_PIXELS, THUMBNAIL_WIDTH_PIXELS = 16_000, 96  # pixels of the width


def open_picture_dialog(
    bench: Workbench | None, doing: BackgroundRunner, stored: Stored, name: str, parent: QWidget
) -> None:
    if bench is not None:
        work = _read_stored_image(bench, stored, LARGEST_WIDTH_PIXELS)
        doing.run_in_background(work, then=lambda image: PictureDialog(image, name, parent).open(), owner=parent)


def show_attachment_preview(
    bench: Workbench | None, doing: BackgroundRunner, held: AttachmentChips, attachment: Attachment
) -> None:
    if bench is None:
        return
    if attachment.stored.media_type.startswith("image/"):
        work = _read_stored_image(bench, attachment.stored, THUMBNAIL_WIDTH_PIXELS)
        then = partial(_show_thumbnail, held, attachment)
        doing.run_in_background(work, then=then, owner=held, failed=lambda _error: None)
    else:
        going = bench.tokens_sent_of_attachment(attachment)
        then_tokens = partial(held.show_attachment_tokens, attachment)
        doing.run_in_background(going, then=then_tokens, owner=held, failed=lambda _error: None)


def _show_thumbnail(held: AttachmentChips, attachment: Attachment, image: QImage) -> None:
    held.show_thumbnail(attachment, QPixmap.fromImage(image))


async def _read_stored_image(bench: Workbench, stored: Stored, widest: int) -> QImage:
    content = await bench.workspace.cache.read_range(stored.digest, 0, stored.size)
    image = await asyncio.to_thread(decode_scaled_image, content, widest)
    if image is None:
        raise HelixError(tr("This image can't be shown: it is damaged, too large, or in an unknown format."))
    return image
