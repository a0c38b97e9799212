"""HTML: what a reader of the page sees, with headings, lists, links and tables."""

import re
from collections.abc import Iterator
from html.parser import HTMLParser

from helix_desktop.documents.document_page import DocumentPage
from helix_desktop.documents.section_builder import SectionBuilder
from helix_desktop.documents.text_tables import format_markdown_table

_UNSEEN = frozenset({"script", "style", "noscript", "template", "svg", "title", "iframe", "object"})
_BLOCKS = frozenset((
    "p", "div", "section", "article", "header", "footer", "main", "nav", "aside", "ul", "ol",
    "pre", "blockquote", "form", "dl", "dt", "dd", "hr", "figure", "figcaption", "address", "body",
    "details", "summary", "fieldset", "caption",
))  # fmt: skip
_CHARSET = re.compile(rb"charset\s*=\s*[\"']?([A-Za-z0-9_-]+)", re.IGNORECASE)
_HEADING = re.compile(r"h([1-6])")
_ENCODINGS_BY_MARK = {
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
}


def read_html_sections(content: bytes) -> Iterator[DocumentPage]:
    yield from read_html_text(decode_html(content)).finish_sections()


def read_html_text(text: str) -> SectionBuilder:
    """Return the text of a page, in sections that are not finished yet."""
    parser = _PageParser()
    parser.feed(text)
    parser.close()
    parser.end_block()
    return parser.sections


def decode_html(content: bytes) -> str:
    """Decode a page by the mark at its start or the encoding that it declares, else as UTF-8."""
    for byte_order_mark, marked_encoding in _ENCODINGS_BY_MARK.items():
        if content.startswith(byte_order_mark):
            return content.decode(marked_encoding, "replace")
    declared = _CHARSET.search(content[:2_048])
    encoding = "utf-8"
    if declared is not None:
        encoding = declared[1].decode("ascii")
    try:
        return content.decode(encoding, "replace")
    except LookupError:
        return content.decode("utf-8", "replace")


class _PageParser(HTMLParser):
    """Collects blocks. Within a table, cells are collected; a table in a cell is part of its text."""

    def __init__(self) -> None:
        """Prepare an empty page. The depths count how many elements of a kind are open around
        the current place: those that are not shown, those with verbatim text, lists and tables.
        """
        super().__init__(convert_charrefs=True)
        self.sections = SectionBuilder()
        self._pieces: list[str] = []
        self._unseen_depth = 0
        self._verbatim_depth = 0
        self._list_depth = 0
        self._is_in_item = False
        self._links: list[str] = []
        self._table_depth = 0
        self._rows: list[list[str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Called by the parser at the start of an element. What is inside elements that are not
        shown is skipped, and in a table, only cells and rows count.
        """
        if tag in _UNSEEN:
            self._unseen_depth += 1
        elif self._unseen_depth:
            return
        elif tag == "table":
            self._start_table()
        elif self._table_depth:
            self._start_in_table(tag)
        else:
            self._start_in_text(tag, dict(attrs))

    def _start_in_text(self, tag: str, attributes: dict[str, str | None]) -> None:
        """Begin an element outside tables: a paragraph or another block, an item of a list, a
        link, or a picture, of which the words that stand for it are kept.
        """
        if tag == "br":
            self._pieces.append("\n")
        elif tag == "li":
            self.end_block()
            self._is_in_item = True
        elif tag == "a":
            self._links.append(attributes.get("href") or "")
        elif tag in _BLOCKS or _HEADING.fullmatch(tag):
            self.end_block()
            if tag in ("ul", "ol"):
                self._list_depth += 1
            elif tag == "pre":
                self._verbatim_depth += 1
        elif tag == "img":
            self._pieces.append(attributes.get("alt") or "")

    def handle_endtag(self, tag: str) -> None:
        """Called by the parser at the end of an element. A heading, block or item that ends is
        added to the text, and the address of a link is written behind its words.
        """
        if tag in _UNSEEN:
            self._unseen_depth = max(0, self._unseen_depth - 1)
        elif self._unseen_depth:
            return
        elif tag == "table":
            self._end_table()
        elif self._table_depth:
            self._end_in_table(tag)
        elif _HEADING.fullmatch(tag):
            text = "".join(self._pieces)
            self._pieces = []
            self.sections.add_section_heading(int(tag[1]), text)
        elif tag == "a" and self._links:
            address = self._links.pop()
            if address.startswith(("http:", "https:", "/")):
                self._pieces.append(f" ({address})")
        elif tag in _BLOCKS or tag == "li":
            self.end_block()
            self._leave_list_or_verbatim_text(tag)

    def _leave_list_or_verbatim_text(self, tag: str) -> None:
        # A page may have more end tags than start tags.
        if tag in ("ul", "ol"):
            self._list_depth = max(0, self._list_depth - 1)
        elif tag == "pre":
            self._verbatim_depth = max(0, self._verbatim_depth - 1)

    def handle_data(self, data: str) -> None:
        if self._unseen_depth:
            return
        if self._verbatim_depth:
            self._pieces.append(data)
        else:
            self._pieces.append(re.sub(r"\s+", " ", data))

    def end_block(self) -> None:
        """Add the text that was collected since the last block: verbatim, as an item of a list,
        or as a paragraph.
        """
        text = "".join(self._pieces)
        self._pieces = []
        if self._verbatim_depth and text.strip():
            self.sections.add_section_block(f"```\n{text.strip()}\n```")
        elif self._verbatim_depth:
            self.sections.add_section_block("")
        elif self._is_in_item:
            self.sections.add_list_item(text, max(0, self._list_depth - 1))
            # If there was no text yet, the item's text comes in the next block.
            if text.strip():
                self._is_in_item = False
        else:
            self.sections.add_section_block(text.strip())

    def _start_table(self) -> None:
        if not self._table_depth:
            self.end_block()
            self._rows = []
        self._table_depth += 1

    def _start_in_table(self, tag: str) -> None:
        """Begin a row or a cell. What a table in a cell has is a part of that cell's text."""
        if self._table_depth > 1 or tag == "br":
            self._pieces.append(" ")
        elif tag == "tr":
            self._end_cell()
            self._rows.append([])
        elif tag in ("td", "th"):
            self._end_cell()
            if not self._rows:
                self._rows.append([])
            self._rows[-1].append("")

    def _end_in_table(self, tag: str) -> None:
        if tag in ("td", "th", "tr") and self._table_depth == 1:
            self._end_cell()
        elif tag in _BLOCKS:
            self._pieces.append(" ")

    def _end_cell(self) -> None:
        """Add the text that was collected to the current cell."""
        text = " ".join("".join(self._pieces).split())
        self._pieces = []
        if not text:
            return
        if self._rows and self._rows[-1]:
            self._rows[-1][-1] = f"{self._rows[-1][-1]} {text}".strip()
        else:
            self.sections.add_section_block(text)  # A caption, or text that stands in no cell.

    def _end_table(self) -> None:
        if self._table_depth == 1:
            self._end_cell()
            rows = [row for row in self._rows if row]
            self.sections.add_section_block(format_markdown_table(rows))
        self._table_depth = max(0, self._table_depth - 1)
