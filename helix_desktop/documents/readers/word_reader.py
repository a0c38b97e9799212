"""Word: headings, paragraphs, lists, tables, text boxes, notes, comments, headers and footers."""

from collections.abc import Iterator, Mapping

from helix_desktop.documents.document_archive import (
    DocumentArchive,
    Element,
    attribute_named,
    child_named,
    descendants_named,
    local_name,
    number_attribute,
    open_document_archive,
    read_relations,
)
from helix_desktop.documents.document_page import DocumentDamaged, DocumentPage
from helix_desktop.documents.section_builder import SectionBuilder
from helix_desktop.documents.text_tables import format_markdown_table

_BREAKS = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-", "softHyphen": ""}
# What was deleted while changes were tracked, and the older twin of a drawing.
_NOT_SHOWN = frozenset({"del", "moveFrom", "Fallback", "instrText", "delText", "txbxContent"})
_NOTES = {"footnotes": "footnote", "endnotes": "endnote", "comments": "comment"}
_MOST_BASE_STYLES = 20
_NO_OUTLINE = 9
_WIDEST_CELL = 100


def read_word_sections(content: bytes) -> Iterator[DocumentPage]:
    """Yield the document's text in sections: its body, then notes and comments, and then
    headers and footers, each kind in a file of its own.
    """
    with open_document_archive(content) as archive:
        main = _find_main_member(archive)
        body = child_named(archive.read_xml(main), "body")
        if body is None:
            raise DocumentDamaged("it has no body")
        relations = dict(read_relations(archive, main).values())
        styles = archive.read_xml_or_none(relations.get("styles", ""))
        heading_levels = _heading_levels_by_style(styles)
        writer = _WordWriter(heading_levels, _list_styles(styles))
        writer.add_word_blocks(body)
        for kind, word in _NOTES.items():
            path_of_notes = relations.get(kind, "")
            notes = archive.read_xml_or_none(path_of_notes)
            writer.add_notes(notes, word)
        for kind, path in read_relations(archive, main).values():
            if kind in ("header", "footer"):
                margin_text = archive.read_xml_or_none(path)
                writer.add_margin_text(margin_text, kind)
        yield from writer.sections.finish_sections()


def _find_main_member(archive: DocumentArchive) -> str:
    for kind, path in read_relations(archive, "").values():
        if kind == "officeDocument":
            return path
    return "word/document.xml"


def _list_styles(styles: Element | None) -> frozenset[str]:
    """Return the paragraph styles that make a paragraph an item of a list."""
    list_styles: set[str] = set()
    for style in descendants_named(styles, "style"):
        if next(descendants_named(style, "numPr"), None) is not None:
            list_styles.add(attribute_named(style, "styleId"))
    return frozenset(list_styles)


def _heading_levels_by_style(styles: Element | None) -> dict[str, int]:
    """Return the heading level of each paragraph style, its own or that of the style below it."""
    levels: dict[str, int] = {}
    bases: dict[str, str] = {}
    for style in descendants_named(styles, "style"):
        name = attribute_named(style, "styleId")
        level = _own_heading_level(style)
        if level:
            levels[name] = level
        base = child_named(style, "basedOn")
        if base is not None:
            bases[name] = attribute_named(base, "val")
    for name in bases:
        ancestor = name
        for _ in range(_MOST_BASE_STYLES):
            if ancestor in levels or ancestor not in bases:
                break
            ancestor = bases[ancestor]
        if ancestor in levels:
            levels[name] = levels[ancestor]
    return levels


def _own_heading_level(style: Element) -> int:
    """Return the heading level that a style itself gives its paragraphs, by its name or
    outline, or 0.
    """
    shown_name = attribute_named(child_named(style, "name"), "val").lower()
    if shown_name == "title":
        return 1
    if shown_name.startswith("heading ") and shown_name[8:].isdigit():
        return int(shown_name[8:])
    outline = next(descendants_named(style, "outlineLvl"), None)
    return _level_of_outline(outline)


def _level_of_outline(outline: Element | None) -> int:
    """Return the heading level, or 0 for a text without one: levels count from 0, and 9 is none."""
    level = number_attribute(outline, "val", _NO_OUTLINE)
    if level >= _NO_OUTLINE:
        return 0
    return level + 1


class _WordWriter:
    """Builds the sections of a document from its XML, with what its styles say of headings and
    lists.
    """

    def __init__(self, levels: Mapping[str, int], list_styles: frozenset[str]) -> None:
        self.sections = SectionBuilder()
        self._levels = levels
        self._list_styles = list_styles

    def add_word_blocks(self, parent: Element) -> None:
        """Add the paragraphs and tables in an element. What only wraps these, such as a change
        that is tracked, is looked into.
        """
        for child in parent:
            match local_name(child):
                case "p":
                    self._add_word_paragraph(child)
                case "tbl":
                    rows = list(_rows_of_word_table(child))
                    self.sections.add_section_block(format_markdown_table(rows))
                case "sdt" | "sdtContent" | "ins" | "moveTo" | "customXml" | "smartTag":
                    self.add_word_blocks(child)

    def add_notes(self, notes: Element | None, word: str) -> None:
        """Add the footnotes, endnotes or comments, each with the mark that stands for it in the
        text.
        """
        if notes is None:
            return
        for note in descendants_named(notes, word):
            text = _join_word_paragraphs(note)
            if text.strip() and attribute_named(note, "type") in ("", "normal"):
                number = attribute_named(note, "id")
                self.sections.add_section_block(f"[^{word}-{number}]: {text.strip()}")

    def add_margin_text(self, margin: Element | None, kind: str) -> None:
        if margin is None:
            return
        text = _join_word_paragraphs(margin)
        if text.strip():
            self.sections.add_section_block(f"[{kind} of the pages] {text.strip()}")

    def _add_word_paragraph(self, paragraph: Element) -> None:
        """Add a paragraph as a heading, an item of a list or a plain one, and then the text
        boxes that are anchored in it.
        """
        properties = child_named(paragraph, "pPr")
        text = _join_word_text(paragraph)
        level = self._heading_level(properties)
        list_depth = self._list_depth(properties)
        if level:
            self.sections.add_section_heading(level, text)
        elif list_depth is not None:
            self.sections.add_list_item(text, list_depth)
        else:
            self.sections.add_section_block(text)
        for box in _outermost_text_boxes(paragraph):
            self.add_word_blocks(box)

    def _heading_level(self, properties: Element | None) -> int:
        if properties is None:
            return 0
        own_level = _level_of_outline(child_named(properties, "outlineLvl"))
        return own_level or self._levels.get(_paragraph_style(properties), 0)

    def _list_depth(self, properties: Element | None) -> int | None:
        """Return how deep in a list a paragraph is, or None if it is not in one."""
        if properties is None:
            return None
        numbering = child_named(properties, "numPr")
        if numbering is not None:
            return number_attribute(child_named(numbering, "ilvl"), "val")
        if _paragraph_style(properties) in self._list_styles:
            return 0
        return None


def _paragraph_style(properties: Element) -> str:
    return attribute_named(child_named(properties, "pStyle"), "val")


def _outermost_text_boxes(parent: Element) -> Iterator[Element]:
    for child in parent:
        if local_name(child) == "txbxContent":
            yield child
        elif local_name(child) != "Fallback":
            yield from _outermost_text_boxes(child)


def _join_word_text(element: Element) -> str:
    """Return the text of a paragraph, without that of boxes that are anchored in it."""
    pieces: list[str] = []
    for child in element:
        name = local_name(child)
        if name in _NOT_SHOWN:
            continue
        if name == "t":
            pieces.append(child.text or "")
        elif name in _BREAKS and name != "tab":
            pieces.append(_BREAKS[name])
        elif name == "tab" and local_name(element) == "r":  # Elsewhere it declares a tab stop.
            pieces.append("\t")
        elif name in ("footnoteReference", "endnoteReference"):
            pieces.append(f"[^{name.removesuffix('Reference')}-{attribute_named(child, 'id')}]")
        else:
            pieces.append(_join_word_text(child))
    return "".join(pieces)


def _join_word_paragraphs(parent: Element) -> str:
    lines = [_join_word_text(paragraph) for paragraph in descendants_named(parent, "p")]
    return "\n".join(line for line in lines if line.strip())


def _rows_of_word_table(table: Element) -> Iterator[list[str]]:
    for child in table:
        if local_name(child) == "tr":
            yield list(_cells_of_row(child))
        elif local_name(child) in ("sdt", "sdtContent", "ins", "customXml"):
            yield from _rows_of_word_table(child)


def _cells_of_row(row: Element) -> Iterator[str]:
    """Yield the texts of a row's cells, with empty ones behind a cell that spans several
    columns, so that the next cells stay in their columns.
    """
    for child in row:
        if local_name(child) in ("sdt", "sdtContent", "customXml"):
            yield from _cells_of_row(child)
        if local_name(child) != "tc":
            continue
        yield _join_word_paragraphs(child)
        span = next(descendants_named(child, "gridSpan"), None)
        width = min(number_attribute(span, "val", 1), _WIDEST_CELL)
        for _ in range(width - 1):
            yield ""
