"""OpenDocument texts and presentations: headings, lists, tables, notes, and slides."""

from collections.abc import Iterator

from helix_desktop.documents.document_archive import (
    DocumentArchive,
    Element,
    attribute_named,
    child_named,
    descendants_named,
    local_name,
    number_attribute,
    open_document_archive,
)
from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.documents.section_builder import SectionBuilder
from helix_desktop.documents.text_tables import format_markdown_table

_NOT_SHOWN = frozenset({"tracked-changes", "sequence-decls", "forms", "note-citation", "thumbnail"})
_MOST_SPACES = 1_000
_MOST_REPEATS = 1_000  # A sheet's empty columns are one cell that is repeated 16,000 times.


def read_open_document(content: bytes) -> Iterator[DocumentPage]:
    """Yield a text's sections, or a presentation's slides."""
    with open_document_archive(content) as archive:
        archive.check_is_not_encrypted()
        body = child_named(archive.read_xml("content.xml"), "body")
        if body is None or not len(body):
            raise DocumentDamaged("it has no body")
        if local_name(body[0]) == "presentation":
            yield from _read_open_document_slides(body[0])
            return
        writer = _OpenDocumentWriter()
        writer.add_open_document_blocks(body[0])
        writer.add_margins(archive)
        yield from writer.sections.finish_sections()


def _read_open_document_slides(presentation: Element) -> Iterator[DocumentPage]:
    """Yield a presentation's slides. A slide's title is the text in its title frame."""
    slides = [child for child in presentation if local_name(child) == "page"]
    for number, slide in enumerate(slides, 1):
        title = ""
        for frame in descendants_named(slide, "frame"):
            if attribute_named(frame, "class") == "title":
                title = " ".join(_join_open_document_text(frame).split())[:120]
                break
        writer = _OpenDocumentWriter()
        writer.add_open_document_blocks(slide)
        text = "\n\n".join(page.text for page in writer.sections.finish_sections())
        yield DocumentPage(text, title, number)


class _OpenDocumentWriter:
    """Builds the sections of a text, or the text of one slide, from the document's XML."""

    def __init__(self) -> None:
        self.sections = SectionBuilder()

    def add_open_document_blocks(self, parent: Element, depth: int = 0) -> None:
        """Add what is in an element: headings, paragraphs, lists, tables and a slide's notes.
        Of other elements, what is in them is added. `depth`: how deep in lists the element is.
        """
        for child in parent:
            name = local_name(child)
            if name == "h":
                level = number_attribute(child, "outline-level", 1)
                self.sections.add_section_heading(level, _join_open_document_text(child))
            elif name == "p":
                self._add_open_document_paragraph(child)
            elif name == "list":
                self._add_list(child, depth)
            elif name == "table":
                rows = list(_rows_of_open_document_table(child))
                self.sections.add_section_block(format_markdown_table(rows))
            elif name == "notes":  # A slide's notes for the speaker.
                text = _join_open_document_paragraphs(child)
                if text.strip():
                    self.sections.add_section_block(f"Notes: {text}")
            elif name not in _NOT_SHOWN:
                self.add_open_document_blocks(child, depth)

    def add_margins(self, archive: DocumentArchive) -> None:
        """Add the headers and footers of the pages, which are in the document's styles."""
        styles = archive.read_xml_or_none("styles.xml")
        masters = child_named(styles, "master-styles")
        for kind in ("header", "footer"):
            for margin in descendants_named(masters, kind):
                text = _join_open_document_paragraphs(margin)
                if text.strip():
                    self.sections.add_section_block(f"[{kind} of the pages] {text.strip()}")

    def _add_open_document_paragraph(self, paragraph: Element) -> None:
        """Add a paragraph, then its footnotes, and then the text boxes that are anchored in it."""
        self.sections.add_section_block(_join_open_document_text(paragraph))
        for note in descendants_named(paragraph, "note"):
            body = child_named(note, "note-body")
            if body is not None:
                number = attribute_named(note, "id")
                text = _join_open_document_paragraphs(body)
                self.sections.add_section_block(f"[^{number}]: {text}")
        for box in _outermost_boxes(paragraph):
            self.add_open_document_blocks(box)

    def _add_list(self, items: Element, depth: int) -> None:
        """Add the items of a list, and lists within them one level deeper."""
        for item in items:
            for child in item:
                if local_name(child) == "list":
                    self._add_list(child, depth + 1)
                elif local_name(child) in ("p", "h"):
                    self.sections.add_list_item(_join_open_document_text(child), depth)
                else:
                    self.add_open_document_blocks(child, depth)


def _outermost_boxes(parent: Element) -> Iterator[Element]:
    """Yield the text boxes in a paragraph, but not those within another box or a note, which
    come with these.
    """
    for child in parent:
        if local_name(child) == "text-box":
            yield child
        elif local_name(child) != "note":
            yield from _outermost_boxes(child)


def _join_open_document_text(element: Element) -> str:
    """Return the text of a paragraph, without that of its notes and boxes."""
    pieces = [element.text or ""]
    for child in element:
        name = local_name(child)
        if name == "s":
            spaces = number_attribute(child, "c", 1)
            pieces.append(" " * min(spaces, _MOST_SPACES))
        elif name == "tab":
            pieces.append("\t")
        elif name == "line-break":
            pieces.append("\n")
        elif name == "note":
            pieces.append(f"[^{attribute_named(child, 'id')}]")
        elif name == "annotation":
            pieces.append(f"[comment: {_join_open_document_paragraphs(child)}]")
        elif name not in ("text-box", *_NOT_SHOWN):
            pieces.append(_join_open_document_text(child))
        pieces.append(child.tail or "")
    return "".join(pieces)


def _join_open_document_paragraphs(parent: Element) -> str:
    lines: list[str] = []
    for element in parent.iter():
        if local_name(element) in ("p", "h"):
            line = _join_open_document_text(element)
            if line.strip():
                lines.append(line)
    return "\n".join(lines)


def _rows_of_open_document_table(table: Element) -> Iterator[list[str]]:
    """Yield a table's rows as texts. A cell may stand for several equal ones beside each other."""
    for child in table:
        name = local_name(child)
        if name in ("table-header-rows", "table-rows", "table-row-group"):
            yield from _rows_of_open_document_table(child)
        if name != "table-row":
            continue
        cells: list[str] = []
        for cell in child:
            if local_name(cell) not in ("table-cell", "covered-table-cell"):
                continue
            text = _join_open_document_paragraphs(cell)
            repeats = number_attribute(cell, "number-columns-repeated", 1)
            cells += [text] * min(repeats, _MOST_REPEATS)
        yield cells
