"""PDF: the text of each page, its bookmarks as titles, and pages as pictures."""

import struct
import zlib
from collections.abc import Iterator, Sequence

import pypdfium2
from pypdfium2 import raw

from helix_desktop.documents.document_page import (
    DocumentDamaged,
    DocumentNeedsPassword,
    DocumentPage,
    DocumentTooLarge,
    PagePicture,
)

MOST_PAGES = 20_000
BLANK_EDGE = 400  # Pixels of the longer edge of the drawing in which a page is found blank.
LARGEST_PICTURE_BYTES = 3_700_000  # Bytes; the strictest provider takes five million characters.


def read_pdf_pages(content: bytes) -> Iterator[DocumentPage]:
    """Yield the text of each page, with the bookmark that leads to it as its title."""
    pdf = _open_pdf(content)
    titles = _titles_by_page(pdf)
    for index in range(len(pdf)):
        page = pdf[index]
        text_page = page.get_textpage()
        text = text_page.get_text_bounded()
        text_page.close()
        page.close()
        yield DocumentPage(_tidy_page_text(text), titles.get(index, ""), index + 1)


def draw_pdf_pages(content: bytes, page_numbers: Sequence[int], edge: int) -> Iterator[PagePicture]:
    """Yield pictures of pages whose longer edge has this many pixels."""
    pdf = _open_pdf(content)
    for number in page_numbers:
        if not 1 <= number <= len(pdf):
            continue
        page = pdf[number - 1]
        yield PagePicture(number, _draw_page_within_limit(page, edge), _is_blank(page))
        page.close()


def _open_pdf(content: bytes) -> pypdfium2.PdfDocument:
    """Open a PDF. Raise an error that says so if it needs a password, is damaged, or has too
    many pages.
    """
    try:
        pdf = pypdfium2.PdfDocument(content)
    except pypdfium2.PdfiumError as error:
        if raw.FPDF_GetLastError() == raw.FPDF_ERR_PASSWORD or "password" in str(error).lower():
            raise DocumentNeedsPassword(str(error)) from error
        raise DocumentDamaged(str(error)) from error
    if len(pdf) > MOST_PAGES:
        raise DocumentTooLarge(f"{len(pdf)} pages")
    if not len(pdf):
        raise DocumentDamaged("it has no pages")
    return pdf


def _titles_by_page(pdf: pypdfium2.PdfDocument) -> dict[int, str]:
    """Return the first bookmark that leads to each page, by the page's index."""
    titles: dict[int, str] = {}
    try:
        for bookmark in pdf.get_toc(max_depth=3):
            destination = bookmark.get_dest()
            if destination is None:
                continue
            page_index = destination.get_index()
            if page_index is not None:
                titles.setdefault(page_index, " ".join(bookmark.get_title().split())[:120])
    except (pypdfium2.PdfiumError, ValueError):
        return titles  # Damaged bookmarks: the pages are read all the same.
    return titles


def _tidy_page_text(text: str) -> str:
    # PDFium writes U+FFFE where a word was divided at the end of a line.
    joined = text.replace("\ufffe\r\n", "").replace("\ufffe\n", "").replace("\ufffe", "")
    joined = joined.replace("\r\n", "\n").replace("\r", "\n")
    lines = [line.rstrip() for line in joined.split("\n")]
    text_of_page = "\n".join(lines).strip()
    return text_of_page.replace("\0", "")


def _is_blank(page: pypdfium2.PdfPage) -> bool:
    """Whether a page has one colour, drawn at a size at which a line of text is still seen."""
    width, height = page.get_size()
    bitmap = page.render(scale=BLANK_EDGE / max(width, height, 1), grayscale=True)
    pixels = bytes(bitmap.buffer)
    first_row = pixels[: bitmap.width]
    is_one_colour = len(set(first_row)) == 1
    for row_number in range(bitmap.height):
        start = row_number * bitmap.stride  # Behind a row may stand bytes that are no pixels.
        if pixels[start : start + bitmap.width] != first_row:
            is_one_colour = False
            break
    bitmap.close()
    return is_one_colour


def _draw_page_within_limit(page: pypdfium2.PdfPage, edge: int) -> bytes:
    """Return a picture of a page: in colours, or in grey if that is too large, or else at half
    the size.
    """
    width, height = page.get_size()
    scale = edge / max(width, height, 1)
    colour = _encode_png(page.render(scale=scale, rev_byteorder=True))
    if len(colour) <= LARGEST_PICTURE_BYTES:
        return colour
    grey = _encode_png(page.render(scale=scale, grayscale=True))
    if len(grey) <= LARGEST_PICTURE_BYTES:
        return grey
    return _encode_png(page.render(scale=scale / 2, grayscale=True))


def _encode_png(bitmap: pypdfium2.PdfBitmap) -> bytes:
    """Return a drawn page as a PNG file, without a library for pictures.

    A PNG has each row of pixels after a byte for the row's filter (0: none), compressed all
    together, and three chunks: the header, these data and the end.
    """
    channels = bitmap.n_channels
    pixels = bytes(bitmap.buffer)
    rows = bytearray()
    for row_number in range(bitmap.height):
        start = row_number * bitmap.stride
        row = pixels[start : start + bitmap.width * channels]
        if channels == 4:  # The fourth byte of each pixel has no meaning here.
            colours = bytearray(bitmap.width * 3)
            for channel in range(3):
                colours[channel::3] = row[channel::4]
            row = bytes(colours)
        rows += b"\0" + row
    colour_type = 2  # Red, green and blue; 0 is grey.
    if channels == 1:
        colour_type = 0
    header = struct.pack(">IIBBBBB", bitmap.width, bitmap.height, 8, colour_type, 0, 0, 0)
    bitmap.close()
    chunks = (
        _png_chunk(b"IHDR", header),
        _png_chunk(b"IDAT", zlib.compress(bytes(rows), 6)),
        _png_chunk(b"IEND", b""),
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def _png_chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)
