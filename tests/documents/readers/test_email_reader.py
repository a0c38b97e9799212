"""E-mails become text: who wrote to whom, what they wrote, and what is attached."""

from __future__ import annotations

from email.message import EmailMessage

import pytest

from helix_desktop.documents.document_page import DocumentDamaged
from helix_desktop.documents.readers.email_reader import read_email


def write_email(text: str, subject: str = "Grüße") -> EmailMessage:
    message = EmailMessage()
    message["From"] = "Ada <ada@example.org>"
    message["Subject"] = subject
    message.set_content(text)
    return message


def test_attachments_are_named_and_attached_emails_are_parts_of_their_own() -> None:
    outer = write_email("See the other one.")
    outer.add_attachment(b"\x89PNG" * 10, maintype="image", subtype="png", filename="plän.png")
    outer.add_attachment(write_email("The first words.", "Before"))
    first, second = read_email(outer.as_bytes())
    assert (first.title, first.unit_number) == ("Grüße", 1)
    assert first.text.startswith("From: Ada <ada@example.org>\nSubject: Grüße\n\nSee the other")
    assert "[Attached: plän.png, image/png, 40 bytes]" in first.text
    assert "The first words." not in first.text
    assert second.title == "Before"
    assert "The first words." in second.text


def test_a_page_is_read_where_there_is_no_plain_text() -> None:
    message = write_email("")
    message.set_content("<p>Only <b>this</b></p><script>steal()</script>", subtype="html")
    (page,) = read_email(message.as_bytes())
    assert page.text.endswith("Only this")


def test_a_text_file_that_is_attached_is_not_the_text() -> None:
    message = EmailMessage()
    message["Subject"] = "x"
    message.add_attachment("secret notes", filename="notes.txt")
    (page,) = read_email(message.as_bytes())
    assert "secret notes" not in page.text
    assert "[Attached: notes.txt" in page.text


@pytest.mark.parametrize(
    "content", [b"", b"hello\nworld", b"\xff\xfe\x00", b"\n\nFrom: a@example.org"]
)
def test_what_is_no_email_is_damaged(content: bytes) -> None:
    with pytest.raises(DocumentDamaged, match="neither a sender nor a subject"):
        list(read_email(content))


def test_damaged_headers_and_unknown_encodings_are_shown_as_they_are() -> None:
    content = (
        b"Subject: =?utf-8?B?====?= =?klingon?Q?x?=\r\n"
        b"From: \xff\xfe\r\nContent-Type: text/plain; charset=klingon\r\n\r\nGr\xc3\xbc\xc3\x9fe"
    )
    (page,) = read_email(content)
    assert "Grüße" in page.text
    assert "klingon" in page.text


def nested_email(depth: int) -> bytes:
    parts = [b"Subject: deep\n"]
    for number in range(depth):
        parts.append(b"Content-Type: multipart/mixed; boundary=b%d\n\n--b%d\n" % (number, number))
    return b"".join(parts)


def test_parts_that_are_nested_too_deeply_are_damage() -> None:
    (page,) = read_email(nested_email(100))
    assert page.title == "deep"
    with pytest.raises(DocumentDamaged, match="nested too deeply"):
        list(read_email(nested_email(5_000)))
