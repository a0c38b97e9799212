"""E-mails as mail programs save them (`.eml`): who wrote to whom, the text, and what is attached.

An attached e-mail is a part of its own. Pictures and other attachments are named, not read.
"""

from collections.abc import Iterator
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from email.message import Message
from email.parser import BytesParser

from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.documents.readers.html_reader import read_html_text

_SHOWN_HEADERS = ("From", "To", "Cc", "Date", "Subject")
_LONGEST_HEADER = 2_000
MOST_EMAILS = 200  # So many attached e-mails are read.


def read_email(content: bytes) -> Iterator[DocumentPage]:
    """Yield an e-mail, and then those that are attached to it."""
    try:
        message = BytesParser().parsebytes(content)
        emails = list(_list_emails(message))
    except RecursionError as error:
        raise DocumentDamaged("its parts are nested too deeply") from error
    if not any(message[name] for name in _SHOWN_HEADERS):
        raise DocumentDamaged("it has neither a sender nor a subject")
    for number, email in enumerate(emails[:MOST_EMAILS], 1):
        subject = _read_header(email, "Subject")
        yield DocumentPage(_format_email(email), subject, number)


def _list_emails(message: Message) -> Iterator[Message]:
    """Yield a message, and all that are attached to it or to one of these."""
    yield message
    for part in message.walk():
        attached = None
        if part.get_content_type() == "message/rfc822" and part.is_multipart():
            attached = part.get_payload(0)
        if isinstance(attached, Message):
            yield attached


def _format_email(email: Message) -> str:
    lines: list[str] = []
    for name in _SHOWN_HEADERS:
        value = _read_header(email, name)
        if value:
            lines.append(f"{name}: {value}")
    parts = list(_list_own_parts(email))
    text = _text_of_first(parts, "text/plain") or _text_of_first(parts, "text/html")
    lines.append("")
    lines.append(text.strip())
    for part in parts:
        file_name = part.get_filename()
        if file_name:
            size = len(_content_of_part(part))
            lines.append(
                f"[Attached: {_decode_words(file_name)}, {part.get_content_type()}, {size} bytes]"
            )
    return "\n".join(lines)


def _list_own_parts(email: Message) -> Iterator[Message]:
    """Yield the parts that are no e-mails, without those of attached e-mails."""
    if email.get_content_type() == "message/rfc822":
        return
    if not email.is_multipart():
        yield email
        return
    for part in email.get_payload():
        if isinstance(part, Message):
            yield from _list_own_parts(part)


def _text_of_first(parts: list[Message], content_type: str) -> str:
    """Return the text of the first part of a type that is not attached as a file."""
    for part in parts:
        if part.get_content_type() == content_type and not part.get_filename():
            text = _decode_part(part)
            if content_type == "text/html":
                pages = read_html_text(text).finish_sections()
                return "\n\n".join(page.text for page in pages)
            return text
    return ""


def _decode_part(part: Message) -> str:
    content = _content_of_part(part)
    try:
        return content.decode(part.get_content_charset() or "utf-8", "replace")
    except LookupError:  # Nobody knows this encoding.
        return content.decode("utf-8", "replace")


def _content_of_part(part: Message) -> bytes:
    content = part.get_payload(decode=True)
    if isinstance(content, bytes):
        return content
    return b""


def _read_header(email: Message, name: str) -> str:
    value = email[name]
    if value is None:
        return ""
    return " ".join(_decode_words(str(value)).split())


def _decode_words(text: str) -> str:
    """Return a header with its encoded words decoded, or as it stands if they are damaged."""
    text = text[:_LONGEST_HEADER]
    try:
        return str(make_header(decode_header(text)))
    except (HeaderParseError, LookupError, ValueError):
        return text
