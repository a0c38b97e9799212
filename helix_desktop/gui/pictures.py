"""What is attached to a message, read from the cache for a look: a picture at full size or small, and the tokens that will go."""

from __future__ import annotations

import asyncio
from functools import partial

from PySide6.QtGui import QImage, QPixmap
from PySide6.QtWidgets import QWidget

from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.errors import HelixError
from helix_desktop.gui.background import Doing
from helix_desktop.gui.chat.attachments import Attachments
from helix_desktop.gui.ports import Workbench
from helix_desktop.gui.transcript.content import decoded
from helix_desktop.gui.views.picture import PictureDialog
from helix_desktop.gui.words import tr

LARGEST, SMALL = 16_000, 96  # pixels of the width


def open_(bench: Workbench | None, doing: Doing, stored: Stored, name: str, parent: QWidget) -> None:
    """In a window of its own."""
    if bench is not None:
        work = _read(bench, stored, LARGEST)
        doing.do(
            work, name="open a picture", then=lambda image: PictureDialog(image, name, parent).open(), owner=parent
        )


def look_at(bench: Workbench | None, doing: Doing, held: Attachments, attachment: Attachment) -> None:
    """What the chip of an attachment shows beside its name."""
    if bench is None:
        return
    if attachment.stored.media_type.startswith("image/"):
        work = _read(bench, attachment.stored, SMALL)
        then = partial(_show_small, held, attachment)
        doing.do(work, name="a small picture", then=then, owner=held, failed=lambda _error: None)
    else:
        going = bench.tokens_that_go(attachment)
        then_tokens = partial(held.show_tokens, attachment)
        doing.do(going, name="tokens that go", then=then_tokens, owner=held, failed=lambda _error: None)


def _show_small(held: Attachments, attachment: Attachment, image: QImage) -> None:
    held.show_picture(attachment, QPixmap.fromImage(image))


async def _read(bench: Workbench, stored: Stored, widest: int) -> QImage:
    content = await bench.workspace.cache.read(stored.digest, 0, stored.size)
    image = await asyncio.to_thread(decoded, content, widest)
    if image is None:
        raise HelixError(tr("This image can't be shown: it is damaged, too large, or in an unknown format."))
    return image
