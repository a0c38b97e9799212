from __future__ import annotations

import pytest
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.facts import Attachment, DocumentOrigin, Stored
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.chat.attachment_chips import (
    AttachmentChips,
    decode_message_parts,
    encode_message_parts,
)
from helix_desktop.gui.common.document_figures import describe_attachment_size
from helix_desktop.gui.theme import Theme

STORED = Stored(Digest.of_content(b"text"), 4, 1, "text/plain")
ORIGINAL = Stored(Digest.of_content(b"original"), 900, 0, "application/pdf")


def document(unit: str, count: int) -> Attachment:
    return Attachment("a.pdf", STORED, 9_200, DocumentOrigin(ORIGINAL, unit, count))


@pytest.mark.parametrize(
    ("attachment", "said"),
    [
        (document("page", 14), "14 pages · 9.2K tokens"),
        (document("sheet", 1), "1 sheet · 9.2K tokens"),
        (document("slide", 3), "3 slides · 9.2K tokens"),
        (document("part", 3), "9.2K tokens"),
        (Attachment("a.txt", STORED, 20), "20 tokens"),
    ],
)
def test_a_chip_says_pages_and_tokens(attachment: Attachment, said: str) -> None:
    assert describe_attachment_size(attachment) == said


def test_a_draft_keeps_where_a_document_came_from() -> None:
    attached = document("page", 14)
    assert decode_message_parts(encode_message_parts((attached,))) == (attached,)


def test_that_only_an_excerpt_is_sent_is_said_before_sending(theme: Theme) -> None:
    """The chip had two figures and no word on why there were two."""
    chips = AttachmentChips(theme)
    attachment = Attachment("output", STORED, 40_900)
    chips.add_attachment(attachment)
    chips.show_attachment_tokens(attachment, 1_300)
    chip = chips.findChildren(QPushButton)[-1]
    assert "excerpt, 1.3K of 40.9K tokens" in chip.text()
    assert "can ask for the rest" in chip.toolTip()
