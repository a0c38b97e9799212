"""Turns a file that the user adds to a message into attachments that a model can read.

A document becomes its text, and scanned pages become pictures where the model sees pictures. The
original is stored as well. What no model could read is refused, with what to do instead, so that
nothing is shown and counted that is not sent.
"""

import asyncio
import codecs
import mimetypes
from collections.abc import Callable, Sequence
from pathlib import PurePath

from helix_desktop.documents import document_kinds, document_reading
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.document_page import PagePicture
from helix_desktop.documents.document_reading import ReadDocument
from helix_desktop.documents.scanned_pages import MOST_PICTURES, PICTURE_EDGE
from helix_desktop.engine import facts
from helix_desktop.engine.document_pages import format_document_text
from helix_desktop.engine.ports import ContentCache, EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view_contents import estimate_entry_tokens
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

TEXT_WITHIN = 4_096  # A file counts as text if its first bytes contain no zero byte.
PICTURE_TOKENS = 1_000  # What providers bill for a picture, about; their reports correct it.
_UTF_16_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PICTURE_MARKS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
}
LARGEST_PICTURE = 3_700_000  # Bytes; as base64, five million characters.
_PICTURE_NOTE = "[This page is a picture.]"
_BLANK_NOTE = "[This page is blank.]"


@dataclass(frozen=True, slots=True)
class FileAttachments:
    """Makes attachments of files. `sees_pictures`: whether the model that is written to does."""

    cache: ContentCache
    count_tokens: Callable[[str], int]
    sees_pictures: bool

    async def store_file(self, name: str, content: bytes) -> tuple[facts.Attachment, ...]:
        """Store a file's text and, of a document, its original. Raises InvalidInput for a file
        that cannot be read.
        """
        kind = await asyncio.to_thread(document_kinds.find_document_kind, name, content)
        if kind is not None:
            return await self._attach_document(name, content, kind)
        picture_type = find_picture_type(content)
        if picture_type:
            return (await self._attach_picture_file(name, content, picture_type),)
        text = await asyncio.to_thread(_decode_text_file, name, content)
        media_type = "text/plain"
        guessed_type, _encoding = mimetypes.guess_type(name)
        if guessed_type is not None and guessed_type.startswith("text/"):
            media_type = guessed_type
        return (await self._attach_text(name, text, media_type, None),)

    async def _attach_document(
        self, name: str, content: bytes, kind: DocumentKind
    ) -> tuple[facts.Attachment, ...]:
        """Store a document with its text, and pictures of pages that have no text."""
        document = await document_reading.read_document_pages(name, content, kind)
        page_count = len(document.pages)
        # Only pages of a PDF can be sent as pictures.
        scanned: Sequence[int] = ()
        if kind is document_kinds.PDF:
            scanned = document.numbers_without_text
        if len(scanned) == page_count:
            self._check_scanned_document_can_be_seen(name, document, scanned)
        pictures: Sequence[PagePicture] = ()
        if scanned and self.sees_pictures:
            numbers = scanned[:MOST_PICTURES]
            pictures = await document_reading.draw_pages(name, content, kind, numbers, PICTURE_EDGE)
            are_all_blank = all(picture.is_blank for picture in pictures)
            if are_all_blank and len(pictures) == page_count:
                raise InvalidInput(f"{name} has no text, so it was not attached.")

        original_origin = EntryOrigin("user", name, kind.media_type)
        original = await self.cache.store_content(content, original_origin)
        # In a thread: of 500 pages, it takes longer than a window may stand still.
        encoded_text = await asyncio.to_thread(
            _encode_document_text, name, document, kind, original.digest, pictures
        )
        document_origin = facts.DocumentOrigin(original, kind.unit, document.unit_count)
        attached = [await self._attach_text(name, encoded_text, "text/plain", document_origin)]
        for picture in pictures:
            if not picture.is_blank:
                title = f"{name}, page {picture.page_number}"
                attached.append(await self._attach_picture(title, picture.png, "image/png"))
        return tuple(attached)

    def _check_scanned_document_can_be_seen(
        self, name: str, document: ReadDocument, scanned: Sequence[int]
    ) -> None:
        if not scanned:
            raise InvalidInput(f"{name} has no text, so it was not attached.")
        if not self.sees_pictures:
            raise InvalidInput(
                f"{name} has no text: its pages are pictures, and the model does not see pictures. It was not attached.",
                remedy="Choose a model that sees pictures, or let a scanner's program recognize the text first.",
            )

    async def _attach_text(
        self, name: str, text: bytes, media_type: str, origin: facts.DocumentOrigin | None
    ) -> facts.Attachment:
        stored = await self.cache.store_content(text, EntryOrigin("user", name, media_type))
        tokens = await asyncio.to_thread(
            estimate_entry_tokens, stored.size, text, self.count_tokens
        )
        return facts.Attachment(name, stored, tokens, origin)

    async def _attach_picture_file(
        self, name: str, content: bytes, media_type: str
    ) -> facts.Attachment:
        """Store a picture that the model sees. Raises InvalidInput for one that it
        cannot be sent.
        """
        if not self.sees_pictures:
            raise InvalidInput(
                f"{name} is a picture, and the model does not see pictures. It was not attached.",
                remedy="Choose a model that sees pictures.",
            )
        if len(content) > LARGEST_PICTURE:
            raise InvalidInput(
                f"{name} is larger than models accept (3.7 MB), so it was not attached.",
                remedy="Save it smaller, and attach that.",
            )
        return await self._attach_picture(name, content, media_type)

    async def _attach_picture(self, name: str, content: bytes, media_type: str) -> facts.Attachment:
        stored = await self.cache.store_content(content, EntryOrigin("user", name, media_type))
        return facts.Attachment(name, stored, PICTURE_TOKENS)


def find_picture_type(content: bytes) -> str:
    """Return the media type of a picture that every provider reads, or nothing."""
    if content.startswith(b"RIFF") and content[8:12] == b"WEBP":
        return "image/webp"
    for mark, media_type in _PICTURE_MARKS.items():
        if content.startswith(mark):
            return media_type
    return ""


def _decode_text_file(name: str, content: bytes) -> bytes:
    """Return a text file's content, as UTF-8 if it is UTF-16. Raises InvalidInput for no text."""
    if content.startswith(_UTF_16_MARKS):
        return content.decode("utf-16", "replace").encode("utf-8", "replace")
    ending = PurePath(name).suffix.lower()
    better = document_kinds.UNREAD_ENDINGS.get(ending)
    if better is not None:
        raise InvalidInput(
            f"{name} is in a format that is not read ({ending}), so it was not attached.",
            remedy=f"Save it as {better}, and attach that.",
        )
    if b"\0" in content[:TEXT_WITHIN]:
        raise InvalidInput(
            f"{name} contains neither text nor a picture that a model can read, so it was not attached.",
            remedy="If it is in the workspace's folder, mention it with @: the agent can work with it by commands.",
        )
    return content


def _encode_document_text(
    name: str,
    document: ReadDocument,
    kind: DocumentKind,
    original: Digest,
    pictures: Sequence[PagePicture],
) -> bytes:
    pages = _list_page_texts(document, pictures)
    text = format_document_text(name, kind.unit, document.unit_count, original, pages)
    return text.encode("utf-8", "replace")


def _list_page_texts(
    document: ReadDocument, pictures: Sequence[PagePicture]
) -> list[tuple[str, str]]:
    """Return the title and the text of each page, or what is said of a page without text."""
    blank_pages = {picture.page_number for picture in pictures if picture.is_blank}
    texts: list[tuple[str, str]] = []
    for number, page in enumerate(document.pages, 1):
        note = _PICTURE_NOTE
        if number in blank_pages:
            note = _BLANK_NOTE
        texts.append((page.title, page.text or note))
    return texts
