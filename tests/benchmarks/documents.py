"""Documents: how much of their words is read, and how long a long PDF takes beside the plain
library. The files are written by python-docx, python-pptx and openpyxl, and converted by
LibreOffice, if it is there.
"""

from __future__ import annotations

import asyncio
import io
import random
import re
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import docx
import openpyxl
import pptx
import pypdfium2
from reportlab.pdfgen import canvas

from helix_desktop.documents.document_kinds import PDF, find_document_kind
from helix_desktop.documents.document_reading import read_document_pages
from tests.benchmarks.row import Figure, Row

PAGES = 500
LINES_OF_A_PAGE = 60
FILES = 12
# What LibreOffice makes of which files.
CONVERSIONS = (
    ("odt", "text*.docx"),
    ("pdf", "text*.docx"),
    ("html", "text*.docx"),
    ("epub", "text*.docx"),
    ("odp", "slides*.pptx"),
    ("ods", "sheet*.xlsx"),
    ("xls", "sheet*.xlsx"),
)
Words = Counter[str]


def rows(*, quick: bool) -> list[Row]:
    runs = 3 if quick else 7
    return [*asyncio.run(_rows_of_words(quick=quick)), asyncio.run(_row_of_long_pdf(runs))]


async def _row_of_long_pdf(runs: int) -> Row:
    content = _write_long_pdf()
    ours: list[float] = []
    plain: list[float] = []
    for _run in range(runs):
        started = time.perf_counter()
        _read_plainly(content)
        between = time.perf_counter()
        await read_document_pages("long.pdf", content, PDF)
        ours.append(time.perf_counter() - between)
        plain.append(between - started)
    figure = Figure.of(ours)
    peer = Figure.of(plain)
    return Row(
        f"A PDF of {PAGES} full pages is read",
        "s",
        figure,
        {"pypdfium2 alone": peer},
        "under 3 s, and at most 1.5 times the library alone",
        figure.median <= 3 and figure.median <= 1.5 * peer.median,
    )


def _write_long_pdf() -> bytes:
    chance = random.Random(71)
    out = io.BytesIO()
    paper = canvas.Canvas(out)
    for _page in range(PAGES):
        for line in range(LINES_OF_A_PAGE):
            paper.drawString(50, 800 - 12 * line, _sentence(chance, 12)[:95])
        paper.showPage()
    paper.save()
    return out.getvalue()


def _read_plainly(content: bytes) -> None:
    pdf = pypdfium2.PdfDocument(content)
    for index in range(len(pdf)):
        page = pdf[index]
        text_page = page.get_textpage()
        text_page.get_text_bounded()
        text_page.close()
        page.close()


async def _rows_of_words(*, quick: bool) -> list[Row]:
    files = 2 if quick else FILES
    with tempfile.TemporaryDirectory(prefix="helix-documents-") as folder:
        words_by_name = _write_documents(Path(folder), files)
        if shutil.which("soffice"):
            for ending, pattern in CONVERSIONS:
                _convert(Path(folder), ending, sorted(Path(folder).glob(pattern)))
        shares: dict[str, list[float]] = {}
        for path in sorted(Path(folder).rglob("*")):
            written = words_by_name.get(path.stem)
            if written is None or not path.is_file():
                continue
            content = path.read_bytes()
            kind = find_document_kind(path.name, content)
            if kind is None:
                continue
            document = await read_document_pages(path.name, content, kind)
            read = _count_words(page.text for page in document.pages)
            shares.setdefault(kind.title, []).append((written & read).total() / written.total())
    rows: list[Row] = []
    for title, read_shares in sorted(shares.items()):
        rows.append(
            Row(
                f"Words of {len(read_shares)} files that are read: {title}",
                "%",
                Figure.of([100 * share for share in read_shares]),
                asked="at least 98 %",
                met=min(read_shares) >= 0.98,
            )
        )
    return rows


def _write_documents(folder: Path, files: int) -> dict[str, Words]:
    """Writes texts, presentations and sheets. Returns their words, by the file's name."""
    chance = random.Random(71)
    words_by_name: dict[str, Words] = {}
    for number in range(files):
        words_by_name[f"text{number}"] = _write_text(folder / f"text{number}.docx", chance)
        words_by_name[f"slides{number}"] = _write_slides(folder / f"slides{number}.pptx", chance)
        words_by_name[f"sheet{number}"] = _write_sheet(folder / f"sheet{number}.xlsx", chance)
    return words_by_name


def _write_text(path: Path, chance: random.Random) -> Words:
    document = docx.Document()
    texts: list[str] = []
    for section in range(4):
        texts += [_sentence(chance, 4), *(_sentence(chance, 30) for _ in range(5))]
        document.add_heading(texts[-6], 1 + section % 2)
        for text in texts[-5:]:
            document.add_paragraph(text)
        for _item in range(4):
            texts.append(_sentence(chance, 8))
            document.add_paragraph(texts[-1], style="List Bullet")
        for row in document.add_table(4, 3).rows:
            for cell in row.cells:
                texts.append(_sentence(chance, 2))
                cell.text = texts[-1]
    document.save(str(path))
    return _count_words(texts)


def _write_slides(path: Path, chance: random.Random) -> Words:
    presentation = pptx.Presentation()
    texts: list[str] = []
    for _slide in range(5):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        title = _sentence(chance, 4)
        body = _sentence(chance, 24)
        notes = _sentence(chance, 8)
        slide.shapes[0].text_frame.text = title  # a placeholder
        slide.shapes[1].text_frame.text = body
        slide.notes_slide.notes_text_frame.text = notes
        texts += [title, body, notes]
    presentation.save(str(path))
    return _count_words(texts)


def _write_sheet(path: Path, chance: random.Random) -> Words:
    book = openpyxl.Workbook()
    texts: list[str] = []
    sheet = book.worksheets[0]
    for _row in range(80):
        cells = [_sentence(chance, 2), chance.randrange(10_000), _sentence(chance, 1)]
        sheet.append(cells)
        texts += map(str, cells)
    book.save(path)
    return _count_words(texts)


def _convert(folder: Path, ending: str, files: list[Path]) -> None:
    profile = f"-env:UserInstallation=file://{folder}/profile"
    out = folder / ending
    subprocess.run(
        ["soffice", profile, "--headless", "--convert-to", ending, "--outdir", out, *files],
        check=True,
        capture_output=True,
        timeout=150,
    )


def _sentence(chance: random.Random, length: int) -> str:
    words = ["".join(chance.choices("abcdefghijklmnoprstuvwäöü", k=7)) for _ in range(length)]
    return " ".join(words) + "."


def _count_words(texts: Iterable[str]) -> Words:
    return Counter(re.findall(r"\w+", " ".join(texts)))
