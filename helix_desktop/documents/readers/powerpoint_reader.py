"""PowerPoint: the text, tables, charts and notes of each slide, in the order they are shown."""

from collections.abc import Iterator
from itertools import zip_longest

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
from helix_desktop.documents.text_tables import format_markdown_table

_TITLES = frozenset({"title", "ctrTitle"})
_DEEPEST_INDENT = 8
_MAIN = "ppt/presentation.xml"


def read_slides(content: bytes) -> Iterator[DocumentPage]:
    """Yield the slides in the order that the presentation lists them. It names each by a
    relation, and the relation names the slide's file in the archive.
    """
    with open_document_archive(content) as archive:
        main = archive.read_xml(_MAIN)
        relations = read_relations(archive, _MAIN)
        entries = list(descendants_named(child_named(main, "sldIdLst"), "sldId"))
        slide_number = 0
        for entry in entries:
            # Two attributes are called id; the relation's is the one with a namespace.
            relation_attributes = [key for key in entry.attrib if key.endswith("}id")]
            if not relation_attributes:
                continue
            relation_id = entry.attrib[relation_attributes[0]]
            if relation_id not in relations:
                continue
            slide_number += 1
            _, member = relations[relation_id]
            yield _read_slide(archive, member, slide_number)
        if entries and not slide_number:
            raise DocumentDamaged("none of its slides is there")


def _read_slide(archive: DocumentArchive, member: str, slide_number: int) -> DocumentPage:
    """Return a slide's text with its title first, then tables, charts and notes."""
    slide = archive.read_xml(member)
    title = ""
    blocks: list[str] = []
    for shape in _shapes_in(slide):
        if local_name(shape) == "tbl":
            blocks.append(_format_slide_table(shape))
            continue
        text = _join_slide_paragraphs(shape)
        if not text.strip():
            continue
        if not title and _is_title(shape):
            title = " ".join(text.split())
            blocks.insert(0, f"# {title}")
        else:
            blocks.append(text)
    for kind, path in read_relations(archive, member).values():
        blocks += _blocks_beside_slide(archive, kind, path)
    return DocumentPage("\n\n".join(blocks), title[:120], slide_number)


def _format_slide_table(table: Element) -> str:
    rows: list[list[str]] = []
    for row in descendants_named(table, "tr"):
        rows.append([_join_slide_paragraphs(cell) for cell in descendants_named(row, "tc")])
    return format_markdown_table(rows)


def _shapes_in(parent: Element) -> Iterator[Element]:
    """Yield shapes with text, and tables, also those within groups."""
    for child in parent:
        name = local_name(child)
        if name in ("sp", "tbl", "cxnSp"):
            yield child
        elif name != "Fallback":
            yield from _shapes_in(child)


def _is_title(shape: Element) -> bool:
    placeholder = next(descendants_named(shape, "ph"), None)
    return placeholder is not None and attribute_named(placeholder, "type") in _TITLES


def _join_slide_paragraphs(parent: Element) -> str:
    """Return the text of all paragraphs in a shape or cell, those of lists indented by their
    level.
    """
    lines: list[str] = []
    for paragraph in descendants_named(parent, "p"):
        pieces: list[str] = []
        for inner in paragraph.iter():
            if local_name(inner) == "t":
                pieces.append(inner.text or "")
            elif local_name(inner) == "br":
                pieces.append("\n")
        text = "".join(pieces)
        if not text.strip():
            continue
        indent = number_attribute(child_named(paragraph, "pPr"), "lvl")
        if indent:
            text = f"{'  ' * min(indent, _DEEPEST_INDENT)}- {text}"
        lines.append(text)
    return "\n".join(lines)


def _blocks_beside_slide(archive: DocumentArchive, kind: str, path: str) -> list[str]:
    """Return the text of what a slide shows or carries in members of its own."""
    if kind not in ("notesSlide", "chart", "diagramData"):
        return []
    part_of_slide = archive.read_xml_or_none(path)
    if part_of_slide is None:
        return []
    if kind == "chart":
        return [_format_chart(part_of_slide)]
    if kind == "diagramData":
        text = _join_slide_paragraphs(part_of_slide)
    else:
        text = f"Notes: {_notes_text(part_of_slide)}"
    if not text.removeprefix("Notes: ").strip():
        return []
    return [text]


def _notes_text(notes: Element) -> str:
    """Return the speaker's notes, without the placeholder that repeats the slide's number."""
    texts: list[str] = []
    for shape in _shapes_in(notes):
        placeholder = next(descendants_named(shape, "ph"), None)
        kind = attribute_named(placeholder, "type")
        if kind not in ("sldNum", "dt", "hdr", "ftr", "sldImg"):
            texts.append(_join_slide_paragraphs(shape))
    return "\n".join(text for text in texts if text.strip())


def _format_chart(chart: Element) -> str:
    """Return a chart's title, and its series as a table with the categories in the first column."""
    title = next(descendants_named(chart, "title"), None)
    heading = ""
    if title is not None:
        heading = _join_slide_paragraphs(title)
    columns: list[list[str]] = []
    for series in descendants_named(chart, "ser"):
        category = child_named(series, "cat")
        values = child_named(series, "val")
        name = child_named(series, "tx")
        if not columns:
            categories = [""]
            categories += _cached_values(category)
            columns.append(categories)
        column = [" ".join(_cached_values(name))]
        column += _cached_values(values)
        columns.append(column)
    rows = [list(row) for row in zip_longest(*columns, fillvalue="")]
    table = format_markdown_table(rows)
    return f"Chart: {heading}\n{table}".strip()


def _cached_values(parent: Element | None) -> list[str]:
    if parent is None:
        return []
    return [value.text or "" for value in descendants_named(parent, "v")]
