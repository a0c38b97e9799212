"""Documents written by the libraries that other programs use, and hostile ones made by hand."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Mapping
from email.message import EmailMessage

import docx
import openpyxl
import pptx
from odf import opendocument
from odf.style import Style
from odf.table import Table, TableCell, TableRow
from odf.text import H, P
from pptx.util import Inches
from reportlab.lib import pdfencrypt
from reportlab.pdfgen import canvas

TITLE = "Where the locks wait"
SENTENCE = "A shard is held while its owner waits; Grüße aus Köln, 漢字."
ASCII_SENTENCE = "A shard is held while its owner waits."
CELLS = (("when", "ms"), ("before", "31"), ("after", "13"))


def pdf(pages: int = 3, password: str = "") -> bytes:
    out = io.BytesIO()
    encryption = pdfencrypt.StandardEncryption(password) if password else None
    paper = canvas.Canvas(out, encrypt=encryption)
    for number in range(1, pages + 1):
        paper.bookmarkPage(f"page{number}")
        paper.addOutlineEntry(f"Chapter {number}", f"page{number}")
        paper.drawString(80, 760, f"{TITLE}, page {number}")
        paper.drawString(80, 740, ASCII_SENTENCE)
        for row, cells in enumerate(CELLS):
            for column, cell in enumerate(cells):
                paper.drawString(80 + 120 * column, 700 - 20 * row, cell)
        paper.showPage()
    paper.save()
    return out.getvalue()


def scanned_pdf(pages: int = 2) -> bytes:
    """Pages that show shapes and no text, as a scanner's do."""
    out = io.BytesIO()
    paper = canvas.Canvas(out)
    for number in range(1, pages + 1):
        paper.rect(100, 100, 200, 100 * number, fill=1)
        paper.showPage()
    paper.save()
    return out.getvalue()


def pdf_with_blank_page() -> bytes:
    """A page with text, a blank one, and one with a small mark and no text."""
    out = io.BytesIO()
    paper = canvas.Canvas(out)
    paper.drawString(80, 760, ASCII_SENTENCE)
    paper.showPage()
    paper.showPage()
    paper.rect(300, 300, 9, 9, fill=1)
    paper.showPage()
    paper.save()
    return out.getvalue()


def word() -> bytes:
    document = docx.Document()
    document.add_heading(TITLE, 1)
    document.add_paragraph(SENTENCE)
    document.add_paragraph("first of a list", style="List Bullet")
    table = document.add_table(rows=len(CELLS), cols=2)
    for row, cells in zip(table.rows, CELLS, strict=True):
        for place, cell in zip(row.cells, cells, strict=True):
            place.text = cell
    document.add_heading("What follows", 2)
    document.add_paragraph("The last words.")
    document.sections[0].footer.paragraphs[0].text = "Words at the foot"
    return _saved(document.save)


def powerpoint(title: str = TITLE) -> bytes:
    slides = pptx.Presentation()
    first = slides.slides.add_slide(slides.slide_layouts[1])
    first.shapes.title.text = title
    first.placeholders[1].text = SENTENCE
    first.notes_slide.notes_text_frame.text = "Words for the speaker"
    second = slides.slides.add_slide(slides.slide_layouts[5])
    second.shapes.title.text = "Timings"
    size = (Inches(1), Inches(2), Inches(4), Inches(2))
    table = second.shapes.add_table(len(CELLS), 2, *size).table
    for row, cells in enumerate(CELLS):
        for column, cell in enumerate(cells):
            table.cell(row, column).text = cell
    return _saved(slides.save)


def empty_powerpoint() -> bytes:
    return _saved(pptx.Presentation().save)


def excel(rows: int = 0) -> bytes:
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = TITLE
    for cells in CELLS:
        sheet.append(list(cells))
    for number in range(rows):
        sheet.append([f"row {number}", number])
    second = book.create_sheet("Second")
    second["B2"] = SENTENCE
    second["B3"] = 3.0
    return _saved(book.save)


def open_document_text() -> bytes:
    document = opendocument.OpenDocumentText()
    heading = Style(name="Heading 1", family="paragraph")
    document.styles.addElement(heading)
    document.text.addElement(H(outlinelevel=1, stylename=heading, text=TITLE))
    document.text.addElement(P(text=SENTENCE))
    document.text.addElement(_open_document_table())
    return _saved(document.save)


def open_document_sheet() -> bytes:
    document = opendocument.OpenDocumentSpreadsheet()
    document.spreadsheet.addElement(_open_document_table())
    return _saved(document.save)


def epub() -> bytes:
    chapter = f"<html><body><h1>{TITLE}</h1><p>{SENTENCE}</p>{_html_table()}</body></html>"
    return zipped(
        {
            "mimetype": "application/epub+zip",
            "META-INF/container.xml": '<container><rootfiles><rootfile full-path="OEBPS/book.opf"/>'
            "</rootfiles></container>",
            "OEBPS/book.opf": '<package><manifest><item id="b" href="two.xhtml"/>'
            '<item id="a" href="one.xhtml"/></manifest>'
            '<spine><itemref idref="a"/><itemref idref="b"/></spine></package>',
            "OEBPS/one.xhtml": chapter,
            "OEBPS/two.xhtml": "<html><body><h1>Second</h1><p>The last words.</p></body></html>",
        }
    )


def html() -> bytes:
    page = (
        f"<html><head><title>x</title><script>steal()</script></head><body><h1>{TITLE}</h1>"
        f"<p>{SENTENCE}</p>{_html_table()}<ul><li>one</li><li>two</li></ul></body></html>"
    )
    return page.encode()


def notebook() -> bytes:
    cells = [
        {"cell_type": "markdown", "source": [f"# {TITLE}\n", SENTENCE]},
        {
            "cell_type": "code",
            "source": "print(1 + 1)",
            "outputs": [{"output_type": "stream", "text": ["2\n"]}],
        },
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}).encode()


def csv() -> bytes:
    lines = [";".join(cells) for cells in CELLS]
    return "\n".join([*lines, f'"{TITLE}";"{SENTENCE}"']).encode("utf-8-sig")


def email() -> bytes:
    message = EmailMessage()
    message["From"] = "Ada <ada@example.org>"
    message["To"] = "Grace <grace@example.org>"
    message["Subject"] = TITLE
    rows = "\n".join(", ".join(cells) for cells in CELLS)
    message.set_content(f"{SENTENCE}\n\n{rows}\n")
    message.add_alternative(html().decode(), subtype="html")
    return message.as_bytes()


def zipped(members: Mapping[str, str | bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


def word_with_body(body: str | bytes) -> bytes:
    """A Word file whose only member is its body."""
    return zipped({"word/document.xml": body})


def bomb() -> bytes:
    """A Word file of some hundred kilobytes whose body unpacks to 300 MB. Written in a
    second: only by the test that needs it, not while the tests are collected.
    """
    return word_with_body(b"<document><body>" + b" " * (300 << 20) + b"</body></document>")


def entity_bomb() -> bytes:
    entities = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10 if n else "ha"}">' for n in range(12))
    return word_with_body(
        f"<!DOCTYPE d [{entities}]><document><body><p><r><t>&e11;</t></r></p></body></document>"
    )


def deep_document() -> bytes:
    depth = 50_000
    return word_with_body(f"<document><body>{'<p>' * depth}{'</p>' * depth}</body></document>")


DOCUMENTS: Mapping[str, Callable[[], bytes]] = {
    "report.pdf": pdf,
    "report.docx": word,
    "report.pptx": powerpoint,
    "report.xlsx": excel,
    "report.odt": open_document_text,
    "report.ods": open_document_sheet,
    "report.epub": epub,
    "report.html": html,
    "report.ipynb": notebook,
    "report.csv": csv,
    "report.eml": email,
}


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    out = io.BytesIO()
    save(out)
    return out.getvalue()


def _html_table() -> str:
    rows = ("".join(f"<td>{cell}</td>" for cell in cells) for cells in CELLS)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _open_document_table() -> Table:
    table = Table(name=TITLE)
    for cells in CELLS:
        row = TableRow()
        for cell in cells:
            place = TableCell(valuetype="string")
            place.addElement(P(text=cell))
            row.addElement(place)
        table.addElement(row)
    return table
