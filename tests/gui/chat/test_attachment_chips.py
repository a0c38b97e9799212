from __future__ import annotations

import pytest
from PySide6.QtGui import QPixmap
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


def test_another_model_gets_other_tokens_of_an_attachment(theme: Theme) -> None:
    """The chip went on to say the excerpt of the model that had been chosen before."""
    chips = AttachmentChips(theme)
    attachment = Attachment("output", STORED, 40_900)
    stored_picture = Stored(Digest.of_content(b"picture"), 7, 0, "image/png")
    picture = Attachment("p.png", stored_picture, 1_000)
    chips.show_attachments([attachment, picture])
    chips.count_again_if_other_room(("small", 32_000))
    chips.show_attachment_tokens(attachment, 1_300)
    asked: list[Attachment] = []
    chips.unknown.connect(asked.append)
    chips.count_again_if_other_room(("small", 32_000))
    assert asked == []
    chips.count_again_if_other_room(("large", 1_000_000))
    assert asked == [attachment]
    chips.show_attachment_tokens(attachment, attachment.tokens)
    assert chips.attached_token_count == 40_900 + 1_000
    assert not [chip for chip in buttons_in_order(chips) if "excerpt" in chip.text()]


def numbered_file(number: int) -> Attachment:
    stored = Stored(Digest.of_content(b"%d" % number), 4, 1, "text/plain")
    return Attachment(f"file-{number}.txt", stored, 2)


def buttons_in_order(chips: AttachmentChips) -> list[QPushButton]:
    flow = chips.layout()
    assert flow is not None
    buttons: list[QPushButton] = []
    for index in range(flow.count()):
        item = flow.itemAt(index)
        assert item is not None
        button = item.widget()
        assert isinstance(button, QPushButton)
        buttons.append(button)
    return buttons


def test_a_file_that_comes_leaves_the_chips_of_the_others_alone(theme: Theme) -> None:
    """Eleven files built sixty-six chips, and the window stood for 41 to 62 ms."""
    chips = AttachmentChips(theme)
    chips.resize(640, 120)
    asked: list[Attachment] = []
    chips.unknown.connect(asked.append)
    files = [numbered_file(number) for number in range(11)]
    for attachment in files:
        shown_before = buttons_in_order(chips)
        chips.add_attachment(attachment)
        assert buttons_in_order(chips)[:-1] == shown_before
    names = [button.text().partition(" ")[0] for button in buttons_in_order(chips)]
    assert names == [attachment.name for attachment in files]
    assert asked == files


def test_what_becomes_known_or_is_removed_changes_its_own_chip_alone(theme: Theme) -> None:
    chips = AttachmentChips(theme)
    first, second, third = (numbered_file(number) for number in range(3))
    chips.show_attachments([first, second, third])
    first_chip, _, third_chip = buttons_in_order(chips)

    chips.show_thumbnail(second, QPixmap(4, 4))
    shown = buttons_in_order(chips)
    assert [shown[0], shown[3]] == [first_chip, third_chip]
    assert not shown[1].icon().isNull()
    assert "file-1.txt" in shown[2].text()

    shown[2].click()
    assert buttons_in_order(chips) == [first_chip, third_chip]
    chips.show_attachments([third, first])
    assert buttons_in_order(chips) == [third_chip, first_chip]


def test_no_chip_is_cut_in_a_narrow_message_box(theme: Theme) -> None:
    """Beside another conversation, the ends of the chips were out of sight, and the ✕ with them."""
    chips = AttachmentChips(theme)
    attachment = Attachment("minutes of the meeting & of all that came of it.txt", STORED, 40_900)
    chips.add_attachment(attachment)
    chips.show_attachment_tokens(attachment, 1_300)
    chips.resize(900, 60)
    chips.show()
    chip = chips.findChildren(QPushButton)[-1]
    whole = chip.text()
    for width in (380, 320, 280):
        chips.resize(width, 60)
        assert chip.sizeHint().width() <= width
        assert chip.text().startswith("min")
        assert chip.text().endswith("txt · excerpt, 1.3K of 40.9K tokens  ✕")
    chips.resize(900, 60)
    assert chip.text() == whole
    chips.close()
