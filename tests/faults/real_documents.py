"""Documents as other programs write them, attached to a message: their words are read, tables keep
their cells, and what is counted is what goes over the wire of each protocol.

    python -m tests.faults.real_documents [--sets 5] [--seed 1] [--no-wire]

A set is one file of each kind from each writer: LibreOffice, LaTeX, pandoc, AbiWord (those that are
installed) and libraries, and scanners' pages as pictures, with and without recognized words. Then
come files with a password, damaged ones, and hostile ones: bombs, scripts, and links to a server
that listens and to a file of the system. Each is attached to a message, and what cannot be read is
refused with a sentence and counted nowhere.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import json
import logging
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path

import docx
import openpyxl
import pptx
import xlsxwriter  # type: ignore[import-untyped]
from PIL import Image, ImageDraw
from reportlab.lib.utils import ImageReader
from reportlab.pdfgen import canvas

from helix_desktop.documents.document_kinds import PDF, find_document_kind
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.errors import InvalidInput
from helix_desktop.workbench import Workbench
from tests.documents import written_documents
from tests.faults.network import _desk
from tests.faults.store_report import report
from tests.providers.asking import PROTOCOLS, Protocol

HERE = Path(__file__).parents[2]
LEAST = 0.98
LONGEST = 60.0
LEFT_OVER = {".tex", ".aux", ".log", ".png"}
FILES_OF_SLIDES = {
    "library.pptx", "libreoffice-library.odp", "libreoffice-pptx.pdf", "libreoffice-again.pptx",
}  # fmt: skip
Words = Counter[str]


@dataclass
class Written:
    """A file, the words that were written into it, and the rows of its table."""

    path: Path
    words: Words
    rows: list[list[str]]


@dataclass
class Source:
    """What a text, a presentation or a sheet says."""

    headings: list[str]
    paragraphs: list[str]
    rows: list[list[str]]

    def shorten_for_slides(self) -> Source:
        """What fits on slides: what stands below a slide's edge is in no PDF of them."""
        paragraphs = [" ".join(text.split()[:35]) for text in self.paragraphs[:4]]
        return Source(self.headings, paragraphs, self.rows)

    def count_words(self) -> Words:
        texts = [*self.headings, *self.paragraphs]
        for row in self.rows:
            texts += row
        return count_words(texts)


def count_words(texts: Iterable[str]) -> Words:
    return Counter(re.findall(r"\w+", " ".join(texts)))


def list_vocabulary() -> list[str]:
    """Words of three languages, from this project's own documents and translations."""
    text = (HERE / "ARCHITECTURE.md").read_text(encoding="utf-8")
    english = sorted(set(re.findall(r"\b[a-z]{3,14}\b", text)))
    german = ["für", "Änderung", "größer", "Straße", "Übersicht", "möglich", "Fluß", "Zähler"]
    return [*english, *german * 6]


def build_source(chance: random.Random, vocabulary: Sequence[str]) -> Source:
    def sentence(length: int) -> str:
        return " ".join(chance.choices(vocabulary, k=length)).capitalize() + "."

    def cell(row: int) -> str:
        return f"{chance.choice(vocabulary)} {chance.randrange(10, 99)}{row}"

    return Source(
        [sentence(4).rstrip(".") for _ in range(4)],
        [sentence(chance.randint(20, 60)) for _ in range(16)],
        [[cell(row) for _ in range(4)] for row in range(chance.randint(5, 12))],
    )


def write_word_file(source: Source, path: Path) -> None:
    document = docx.Document()
    for number, heading in enumerate(source.headings):
        document.add_heading(heading, 1 + number % 2)
        for text in source.paragraphs[number * 4 : number * 4 + 4]:
            document.add_paragraph(text)
    table = document.add_table(len(source.rows), 4)
    for row, cells in zip(table.rows, source.rows, strict=True):
        for cell, text in zip(row.cells, cells, strict=True):
            cell.text = text
    document.save(str(path))


def write_html(source: Source, path: Path) -> None:
    parts = ["<!doctype html><html><head><meta charset='utf-8'><title>t</title></head><body>"]
    for number, heading in enumerate(source.headings):
        parts.append(f"<h{1 + number % 2}>{heading}</h{1 + number % 2}>")
        parts += [f"<p>{text}</p>" for text in source.paragraphs[number * 4 : number * 4 + 4]]
    rows = ["".join(f"<td>{cell}</td>" for cell in row) for row in source.rows]
    parts.append("<table>" + "".join(f"<tr>{row}</tr>" for row in rows) + "</table></body></html>")
    path.write_text("\n".join(parts), encoding="utf-8")


def write_latex(source: Source, path: Path) -> None:
    parts = [
        r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}",
        r"\usepackage{lmodern}\begin{document}",
    ]
    for number, heading in enumerate(source.headings):
        parts.append(rf"\section*{{{heading}}}")
        parts += [f"{text}\n" for text in source.paragraphs[number * 4 : number * 4 + 4]]
    rows = [" & ".join(row) + r" \\" for row in source.rows]
    parts += [r"\begin{tabular}{llll}", *rows, r"\end{tabular}", r"\end{document}"]
    path.write_text("\n".join(parts), encoding="utf-8")


def write_slides(source: Source, path: Path) -> None:
    presentation = pptx.Presentation()
    for number, heading in enumerate(source.headings):
        slide = presentation.slides.add_slide(presentation.slide_layouts[1])
        slide.shapes[0].text_frame.text = heading
        slide.shapes[1].text_frame.text = source.paragraphs[number]
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    table = slide.shapes.add_table(len(source.rows), 4, 0, 0, 8_000_000, 4_000_000).table
    for row, cells in enumerate(source.rows):
        for column, text in enumerate(cells):
            table.cell(row, column).text = text
    presentation.save(str(path))


def write_sheet(source: Source, path: Path) -> None:
    book = openpyxl.Workbook()
    sheet = book.worksheets[0]
    for row in source.rows:
        sheet.append(row)
    texts = book.create_sheet("Texts")
    for text in [*source.headings, *source.paragraphs]:
        texts.append([text])
    book.save(path)


def write_other_sheet(source: Source, path: Path) -> None:
    book = xlsxwriter.Workbook(str(path))
    sheet = book.add_worksheet()
    lines = [*source.rows, *([text] for text in [*source.headings, *source.paragraphs])]
    for number, line in enumerate(lines):
        sheet.write_row(number, 0, line)
    book.close()


def write_csv(source: Source, path: Path, chance: random.Random) -> None:
    lines = [*source.rows, *([text] for text in [*source.headings, *source.paragraphs])]
    out = io.StringIO()
    csv.writer(out, delimiter=chance.choice(",;\t")).writerows(lines)
    path.write_text(out.getvalue(), encoding=chance.choice(("utf-8", "utf-8-sig", "utf-16")))


def write_notebook(source: Source, path: Path) -> None:
    cells: list[dict[str, object]] = []
    for number, text in enumerate([*source.headings, *source.paragraphs]):
        lines = text.splitlines(keepends=True)
        cells.append({"cell_type": "markdown", "metadata": {}, "source": lines})
        if number == 2:
            table = [" | ".join(row) + "\n" for row in source.rows]
            output = {"output_type": "stream", "name": "stdout", "text": table}
            cells.append(
                {
                    "cell_type": "code", "metadata": {}, "execution_count": 1, "source": ["show()"],
                    "outputs": [output],
                }
            )  # fmt: skip
    notebook = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    path.write_text(json.dumps(notebook), encoding="utf-8")


def write_email(source: Source, path: Path) -> None:
    message = EmailMessage()
    message["Subject"] = source.headings[0]
    message["From"] = "a@example.org"
    message["To"] = "b@example.org"
    rows = [" | ".join(row) for row in source.rows]
    message.set_content("\n\n".join([*source.headings[1:], *source.paragraphs, *rows]))
    path.write_bytes(message.as_bytes())


def write_scan(source: Source, path: Path, *, recognized: bool) -> None:
    """Pages as a scanner makes them: a picture of each, with or without its words behind it."""
    paper = canvas.Canvas(str(path))
    lines = [*source.headings, *source.paragraphs, *(" ".join(row) for row in source.rows)]
    for start in range(0, len(lines), 12):
        picture = Image.new("L", (1240, 1754), 245)
        pencil = ImageDraw.Draw(picture)
        for number, line in enumerate(lines[start : start + 12]):
            pencil.text((80, 100 + 60 * number), line[:150], fill=20)
        paper.drawImage(ImageReader(picture), 0, 0, 595, 842)
        if recognized:
            hidden = paper.beginText(40, 800)
            hidden.setFont("Helvetica", 8)
            hidden.setTextRenderMode(3)
            for line in lines[start : start + 12]:
                for part in textwrap.wrap(line, 90):
                    hidden.textLine(part)
            paper.drawText(hidden)
        paper.showPage()
    paper.save()


def write_all(
    folder: Path, sets: int, chance: random.Random, vocabulary: Sequence[str]
) -> list[Written]:
    """Files of each kind from each writer that is installed, of several texts."""
    sources = [build_source(chance, vocabulary) for _ in range(sets)]
    for number, source in enumerate(sources):
        _write_own(folder / str(number), source, chance)
    _convert_all(folder, sources)
    files = []
    for number, source in enumerate(sources):
        words = source.count_words()
        only_rows = count_words(cell for row in source.rows for cell in row)
        for path in sorted((folder / str(number)).iterdir()):
            expected = words
            if path.name == "scan.pdf":
                expected = Counter()
            elif path.name in FILES_OF_SLIDES:
                expected = source.shorten_for_slides().count_words()
            elif path.name == "libreoffice-openpyxl.csv":
                expected = only_rows  # Of a workbook, a CSV file has the first sheet alone.
            if path.suffix not in LEFT_OVER:
                files.append(Written(path, expected, source.rows))
    return files


def _write_own(folder: Path, source: Source, chance: random.Random) -> None:
    folder.mkdir()
    own: dict[str, Callable[[Source, Path], None]] = {
        "library.docx": write_word_file, "library.html": write_html,
        "openpyxl.xlsx": write_sheet, "xlsxwriter.xlsx": write_other_sheet, "library.ipynb": write_notebook,
        "library.eml": write_email, "latex.tex": write_latex,
    }  # fmt: skip
    for name, write in own.items():
        write(source, folder / name)
    write_slides(source.shorten_for_slides(), folder / "library.pptx")
    write_csv(source, folder / "library.csv", chance)
    write_scan(source, folder / "recognized.pdf", recognized=True)
    write_scan(source, folder / "scan.pdf", recognized=False)


def _convert_all(folder: Path, sources: Sequence[Source]) -> None:
    folders = [folder / str(number) for number in range(len(sources))]
    if shutil.which("soffice"):
        for name, endings in (
            ("library.docx", ("odt", "pdf", "html", "epub", "docx")),
            ("library.pptx", ("odp", "pdf", "pptx")),
            ("openpyxl.xlsx", ("ods", "xls", "csv", "xlsx")),
        ):
            for ending in endings:
                _convert_with_libreoffice(folders, name, ending)
    for each in folders:
        if shutil.which("pandoc"):
            for ending in ("docx", "odt", "epub", "html", "pptx", "ipynb"):
                _run(["pandoc", "-s", "library.html", "-o", f"pandoc.{ending}"], each)
        if shutil.which("pdflatex"):
            _run(["pdflatex", "-interaction=batchmode", "latex.tex"], each)
        if shutil.which("abiword"):
            for ending in ("odt", "html", "docx"):
                _run(["abiword", f"--to={ending}", "-o", f"abiword.{ending}", "library.docx"], each)


def _convert_with_libreoffice(folders: Sequence[Path], name: str, ending: str) -> None:
    """The files of all folders at once: a start of LibreOffice takes some seconds."""
    home = folders[0].parent
    given = home / "given"
    made = home / "made"
    given.mkdir()
    for folder in folders:
        shutil.copy(folder / name, given / f"{folder.name}{Path(name).suffix}")
    _run(
        ["soffice", f"-env:UserInstallation=file://{home}/profile", "--headless", "--convert-to", ending,
         "--outdir", made, *sorted(given.iterdir())],
        home,
    )  # fmt: skip
    stem, _, kind = name.rpartition(".")
    target = f"libreoffice-{stem}.{ending}" if kind != ending else f"libreoffice-again.{ending}"
    if ending == "pdf":
        target = f"libreoffice-{kind}.pdf"
    for folder in folders:
        result = made / f"{folder.name}.{ending}"
        if result.is_file():
            result.rename(folder / target)
    shutil.rmtree(given)
    shutil.rmtree(made, ignore_errors=True)


def _run(command: Sequence[str | Path], folder: Path) -> None:
    subprocess.run(command, cwd=folder, check=False, capture_output=True, timeout=150)


def write_locked_files(folder: Path, files: Iterable[Written]) -> Iterator[tuple[Path, bool]]:
    """PDFs with a password, and those that anybody may open and nobody may change."""
    if not shutil.which("qpdf"):
        return
    pdfs = [file.path for file in files if file.path.name == "latex.pdf"]
    for path in pdfs:
        for length, user in (("128", "secret"), ("256", "secret"), ("128", ""), ("256", "")):
            target = folder / f"locked-{path.parent.name}-{length}-{bool(user)}.pdf"
            aes = ["--use-aes=y"] if length == "128" else []
            _run(["qpdf", "--encrypt", user, "owner", length, *aes, "--", path, target], folder)
            if target.is_file():
                yield target, bool(user)


def harm_file(content: bytes, chance: random.Random) -> bytes:
    harmed = bytearray(content)
    kind = chance.choice(("cut", "flips", "zeros"))
    if kind == "cut":
        return bytes(harmed[: chance.randrange(10, len(harmed))])
    if kind == "flips":
        for _ in range(chance.randint(1, 60)):
            harmed[chance.randrange(len(harmed))] ^= 1 << chance.randrange(8)
        return bytes(harmed)
    start = chance.randrange(len(harmed))
    end = min(len(harmed), start + 2000)
    harmed[start:end] = bytes(end - start)
    return bytes(harmed)


def list_hostile_files(port: int) -> dict[str, bytes]:
    """Bombs, and files that name a server that listens and a file of the system."""
    there = f"http://127.0.0.1:{port}/x"
    links = (
        f'<html><head><link rel="stylesheet" href="{there}"><script src="{there}"></script>'
        f'<meta http-equiv="refresh" content="0;url={there}"><base href="file:///etc/"></head><body>'
        f'<script>document.write("zauberwort")</script><img src="{there}"><iframe src="passwd">'
        f'</iframe><object data="file:///etc/passwd"></object><p>seen</p></body></html>'
    )
    entity = f'<!DOCTYPE w [<!ENTITY e SYSTEM "file:///etc/passwd"><!ENTITY h SYSTEM "{there}">]>'
    body = (
        '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
        "<w:body><w:p><w:r><w:t>seen &e; &h;</w:t></w:r></w:p></w:body></w:document>"
    )
    script = f"app.launchURL('{there}'); this.getURL('{there}')"
    return {
        "bomb.docx": written_documents.bomb(),
        "entities.docx": written_documents.entity_bomb(),
        "deep.docx": written_documents.deep_document(),
        "links.html": links.encode(),
        "links.xhtml": f'<?xml version="1.0"?>{entity}<html><p>seen &e; &h;</p></html>'.encode(),
        "links.docx": written_documents.word_with_body(f"{entity}{body}"),
        "links.epub": written_documents.zipped(
            {
                "mimetype": "application/epub+zip",
                "META-INF/container.xml": '<container><rootfiles><rootfile full-path="../../etc/passwd"/>'
                "</rootfiles></container>",
            }
        ),
        "links.eml": f"Subject: x\nContent-Type: text/html\n\n{links}".encode(),
        "links.ipynb": json.dumps(
            {
                "cells": [
                    {"cell_type": "markdown", "source": [f"![x]({there}) <img src='file:///etc/passwd'>"]}
                ],
                "nbformat": 4,
            }
        ).encode(),
        "script.pdf": write_script_pdf(script),
        "links.csv": f'=WEBSERVICE("{there}"),=cmd|\'/c calc\'!A1\n'.encode(),
    }  # fmt: skip


def write_script_pdf(script: str) -> bytes:
    out = io.BytesIO()
    paper = canvas.Canvas(out)
    paper.drawString(50, 700, "seen")
    paper.linkURL("file:///etc/passwd", (0, 0, 100, 100))
    paper.showPage()
    paper.save()
    action = f"/OpenAction << /S /JavaScript /JS ({script}) >> /Type /Catalog".encode()
    return out.getvalue().replace(b"/Type /Catalog", action, 1)


class Listener:
    """A server that counts who comes."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def count_visits(self) -> int:
        visits = 0
        while True:
            try:
                connection, _address = self._socket.accept()
            except BlockingIOError:
                return visits
            connection.close()
            visits += 1


async def run_trials(home: Path, arguments: argparse.Namespace, found: Counter[str]) -> None:
    chance = random.Random(arguments.seed)
    vocabulary = list_vocabulary()
    files = await asyncio.to_thread(write_all, home, arguments.sets, chance, vocabulary)
    found["files"] = len(files)
    locked = list(await asyncio.to_thread(lambda: list(write_locked_files(home, files))))
    protocols = PROTOCOLS[:1] if arguments.no_wire else PROTOCOLS
    for protocol in protocols:
        with protocol.peer(default=protocol.reply("Read.")) as peer:
            place = home / protocol.kind
            (place / "folder").mkdir(parents=True)
            desk = _desk(place)
            desk.configured.save_provider(protocol.config(peer))
            bench = await desk.create_workspace("Documents", place / "folder")
            await bench.choose_model_for_role("peer/scripted")
            for file in files:
                await _try_file(bench, protocol, peer, file, found)
            if protocol is PROTOCOLS[0]:
                await _try_locked_files(bench, locked, found)
                await _try_damaged_files(bench, files, chance, found)
                await _try_hostile_files(bench, found)
            await desk.aclose()
        sys.stdout.write(f"{protocol.kind}: sent\n")
        sys.stdout.flush()


async def _try_file(
    bench: Workbench, protocol: Protocol, peer: object, file: Written, found: Counter[str]
) -> None:
    """Attach it, send it, and compare what is said of it with what went."""
    name = file.path.name
    content = file.path.read_bytes()
    kind = find_document_kind(name, content)
    where = f"{protocol.kind}, {file.path.parent.name}/{name}"
    if kind is None:
        found[f"LOST {where}: no kind of document"] += 1
        return
    session = await bench.start_conversation()
    try:
        attached = await bench.attach_file(name, content, session.id)
    except InvalidInput as error:
        found[f"LOST {where}: {error.what}"] += 1
        return
    session.send_message((Text("Read it"), *attached))
    await asyncio.wait_for(session.wait_until_idle(), LONGEST)
    sent = "\n".join(list_texts(peer.requests[-1].body))  # type: ignore[attr-defined]
    found[f"{kind.title}" if protocol is PROTOCOLS[0] else "sent by another protocol"] += 1
    if not file.words:
        pictures = sent.count("iVBORw0KGgo")
        if pictures != len(attached) - 1 or not pictures:
            found[f"LOST {where}: {pictures} pictures sent of {len(attached) - 1}"] += 1
        return
    read = count_words([sent])
    share = (file.words & read).total() / file.words.total()
    if share < LEAST:
        missing = list((file.words - read).elements())[:8]
        found[f"LOST {where}: {share:.1%} of the words, without {missing}"] += 1
    if share < 1 and protocol is PROTOCOLS[0]:
        found["files with less than all words"] += 1
    _compare_rows(file, kind is PDF, sent, where, found)
    await _compare_counts(bench, session.all_facts, sent, where, found)


def list_texts(value: object) -> Iterator[str]:
    """Every text of a request's body."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from list_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from list_texts(each)


def _compare_rows(file: Written, is_pdf: bool, sent: str, where: str, found: Counter[str]) -> None:
    """Each cell is there whole, and but for PDFs, those of a row stand in one line in their order."""
    lines = [re.sub(r"\s+", " ", line) for line in sent.splitlines()]
    for row in file.rows:
        in_order = re.compile(".*?".join(re.escape(cell) for cell in row))
        is_one_line = any(in_order.search(line) for line in lines)
        found["rows"] += 1
        if is_one_line:
            continue
        if is_pdf:
            found["rows of PDFs that are several lines"] += 1
        else:
            found[f"LOST {where}: the row {row} is not one line"] += 1
        missing = [cell for cell in row if cell not in " ".join(lines)]
        if missing:
            found[f"LOST {where}: the cells {missing}"] += 1


async def _compare_counts(
    bench: Workbench, facts: Iterable[object], sent: str, where: str, found: Counter[str]
) -> None:
    """What the chip and the meter count of the document is in the request, word for word."""
    (said,) = (each.fact for each in facts if isinstance(each.fact, UserSaid))  # type: ignore[attr-defined]
    for part in said.parts:
        stored = getattr(part, "stored", None)
        if stored is None or stored.media_type != "text/plain":
            continue
        text = (await bench.workspace.cache.read_content(stored.digest)).decode()
        counted_words = count_words([text])
        not_sent = counted_words - count_words([sent])
        own_count = bench.token_counter.count_tokens(text)
        found["counts compared"] += 1
        if not_sent:
            found[f"LOST {where}: counted and not sent: {list(not_sent.elements())[:8]}"] += 1
        if abs(part.tokens - own_count) > max(20, own_count * 0.02):
            found[f"LOST {where}: {part.tokens} tokens are said, {own_count} are sent"] += 1


async def _try_locked_files(
    bench: Workbench, locked: Iterable[tuple[Path, bool]], found: Counter[str]
) -> None:
    for path, has_password in locked:
        found["with a password" if has_password else "that may not be changed"] += 1
        try:
            await bench.attach_file(path.name, path.read_bytes())
        except InvalidInput as error:
            if not has_password:
                found[f"LOST {path.name} needs no password: {error.what}"] += 1
            elif "password" not in error.what:
                found[f"LOST {path.name}: {error.what}"] += 1
        else:
            if has_password:
                found[f"LOST {path.name} was read without its password"] += 1


async def _try_damaged_files(
    bench: Workbench, files: Sequence[Written], chance: random.Random, found: Counter[str]
) -> None:
    for file in files:
        content = harm_file(file.path.read_bytes(), chance)
        found["damaged"] += 1
        try:
            async with asyncio.timeout(LONGEST):
                attached = await bench.attach_file(file.path.name, content)
        except InvalidInput as error:
            found["damaged and refused"] += 1
            if len(error.what) < 20:
                found[f"LOST {file.path.name} was refused with {error.what!r}"] += 1
        except Exception as error:  # noqa: BLE001 - each is one that the window would show
            found[f"LOST {file.path}, damaged: {error!r}"[:300]] += 1
        else:
            found["damaged and read"] += bool(attached)


async def _try_hostile_files(bench: Workbench, found: Counter[str]) -> None:
    listener = Listener()
    for name, content in list_hostile_files(listener.port).items():
        found["hostile"] += 1
        try:
            async with asyncio.timeout(LONGEST):
                attached = await bench.attach_file(name, content)
        except InvalidInput as error:
            found["hostile and refused"] += 1
            if len(error.what) < 20:
                found[f"LOST {name} was refused with {error.what!r}"] += 1
            continue
        except Exception as error:  # noqa: BLE001
            found[f"LOST {name}: {error!r}"[:300]] += 1
            continue
        for part in attached:
            text = (await bench.workspace.cache.read_content(part.stored.digest)).decode(
                "utf-8", "replace"
            )
            if "root:" in text:
                found[f"LOST {name} brought a file of the system"] += 1
    visits = listener.count_visits()
    found["visits to a named server"] += visits
    if visits:
        found[f"LOST {visits} visits to a server that a document names"] += 1


def run(arguments: argparse.Namespace, found: Counter[str]) -> None:
    home = Path(tempfile.mkdtemp(prefix="helix-real-documents-"))
    try:
        asyncio.run(run_trials(home, arguments, found))
    finally:
        shutil.rmtree(home, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-wire", action="store_true", help="one protocol alone")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    return report("real documents", arguments.seed, lambda found: run(arguments, found))


if __name__ == "__main__":
    sys.exit(main())
