from __future__ import annotations

import asyncio
import base64
import gzip
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from PySide6.QtCore import QCoreApplication, QDeadlineTimer, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QLabel, QPushButton

from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.preview import svg_worker
from helix_desktop.gui.preview.file_views import WIDEST_COLUMN, parse_csv_rows
from helix_desktop.gui.preview.preview_pane import PreviewPane, format_comment
from helix_desktop.gui.preview.svg_drawing import draw_svg_as_png
from helix_desktop.gui.theme import Theme
from tests.documents import written_documents as written
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.preview.opened_files import OpenedFiles

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='20' height='10'><rect width='9' height='9'/></svg>"


@pytest.fixture
def pane(theme: Theme, doing: BackgroundRunner) -> PreviewPane:
    made = PreviewPane(theme, doing)
    made.resize(500, 700)
    made.show()
    return made


def show(pane: PreviewPane, folder: Path, name: str, content: bytes, line: int = 0) -> None:
    (folder / name).write_bytes(content)
    bench = FakeWorkbench("one", "#0d7d74", folder)
    file = asyncio.run(bench.read_file_for_preview("", name))
    pane.show_file(bench, file, line, line)


def button(pane: PreviewPane, words: str) -> QPushButton:
    return next(each for each in pane.findChildren(QPushButton) if each.text() == words)


def test_a_file_is_shown_at_its_line(pane: PreviewPane, tmp_path: Path) -> None:
    text = "".join(f"line {number}\n" for number in range(1, 501))
    show(pane, tmp_path, "a.py", text.encode(), line=300)
    assert pane.stack.currentWidget() is pane.lines
    assert pane.lines.viewed_lines[299] == "line 300"
    top = pane.lines.verticalScrollBar().value()
    assert top > 0
    show(pane, tmp_path, "b.py", b"x = 1\n")
    assert pane.previewed_paths == ["a.py", "b.py"]
    assert pane.shown_path == "b.py"


@pytest.mark.parametrize(
    ("name", "content", "view"),
    [
        ("a.md", b"# Title\n\nwords", "drawn_text"),
        ("a.csv", b"a,b\n1,2\n", "table"),
        ("a.html", b"<h1>Hi</h1><script>bad()</script>", "html"),
        ("a.docx", written.word(), "drawn_text"),
        ("a.bin", b"\0\1", "_sentence"),
        ("a.py", b"x = 1", "lines"),
    ],
)
def test_each_kind_has_its_view(
    pane: PreviewPane, tmp_path: Path, name: str, content: bytes, view: str
) -> None:
    show(pane, tmp_path, name, content)
    assert pane.stack.currentWidget() is getattr(pane, view)


@pytest.mark.parametrize("page", [2, 6])
def test_a_pdf_is_shown_at_its_page(pane: PreviewPane, tmp_path: Path, page: int) -> None:
    """“terms.pdf, page 2” opened page 1. Only the first four pages are drawn at once."""
    show(pane, tmp_path, "terms.pdf", written.pdf(9), line=page)
    deadline = QDeadlineTimer(10_000)
    while pane.pages.verticalScrollBar().value() == 0 and not deadline.hasExpired():
        QCoreApplication.processEvents()
    label = pane.pages._captions[page - 1]
    total = pane.pages._page_count
    assert label.text() == f"Page {page} of {total}"
    assert pane.pages.verticalScrollBar().value() == label.y() > 0


def test_a_drawn_file_shows_its_source_too(pane: PreviewPane, tmp_path: Path) -> None:
    show(pane, tmp_path, "a.html", b"<h1>Hi</h1>")
    assert pane.html.toPlainText() == "Hi"
    QTest.mouseClick(button(pane, "Source"), Qt.MouseButton.LeftButton)
    assert pane.lines.viewed_lines[0] == "<h1>Hi</h1>"
    show(pane, tmp_path, "b.md", b"# One\n\ntwo\n", line=3)
    assert pane.stack.currentWidget() is pane.lines  # A line was named: it is in the source.


def test_a_mermaid_diagram_is_its_source_and_says_why(pane: PreviewPane, tmp_path: Path) -> None:
    show(pane, tmp_path, "a.mmd", b"flowchart LR\n  a --> b\n")
    assert pane.lines.viewed_lines[1] == "  a --> b"
    assert "needs a browser" in pane._hint.text()
    show(pane, tmp_path, "b.md", b"# One\n\n```mermaid\nflowchart LR\n```\n")
    assert pane.stack.currentWidget() is pane.drawn_text
    assert "needs a browser" in pane._hint.text()
    show(pane, tmp_path, "c.md", b"The word mermaid alone is no diagram.\n")
    assert "browser" not in pane._hint.text()


def test_only_a_changed_file_can_be_shown_in_changes(pane: PreviewPane, tmp_path: Path) -> None:
    """The defect: the link stood under every file, and then said that the file was not changed."""
    pane.has_changed = lambda path: path == "changed.py"
    show(pane, tmp_path, "read.py", b"x = 1\n")
    assert button(pane, "Show in Changes").isHidden()
    show(pane, tmp_path, "changed.py", b"x = 2\n")
    assert button(pane, "Show in Changes").isVisible()
    QTest.mouseClick(button(pane, "read.py"), Qt.MouseButton.LeftButton)
    assert button(pane, "Show in Changes").isHidden()


# Each ended the process, or held the window's thread for more than two seconds.
HOSTILE_PAGES = {
    "tables inside each other": "<table><tr><td>" * 5_000,
    "divisions inside each other": "<div>" * 20_000,
    "tables that a comment seems to close": "<table><tr><td><!--</table>-->" * 300,
    "tables that an attribute seems to close": "<table><tr><td title='</table>'>" * 300,
    "lists inside each other": "<ul><li>" * 20_000,
    "a word": "a" * 300_000,
    "many cells": "<table>" + "<tr><td>a</td><td>a</td></tr>" * 30_000,
    "many rules": "<style>" + "p{color:red}" * 60_000 + "</style>" + "<p>a</p>" * 2_000,
    "a rule of many selectors": "<style>" + "p," * 200_000 + "p{color:red}</style>" + "<p>a</p>" * 9_000,
    "many letters": "word " * 1_000_000,
    "a few very wide cells": "<table>" + "<tr><td colspan=60000>x" * 300,
    "wide cells behind an attribute": "<table>" + "<tr><td title='>' colspan=60000>x" * 300,
    "wide cells in what seems a comment": "<table>" + "<tr><td a='<!--' colspan=60000 b='-->'>x" * 300,
    "wide cells of another spelling": "<table>" + "<tr><td colspan='&#54;0000'>x" * 300,
    "many wide cells": "<table>" + ("<tr>" + "<td a=\"'\" colspan=300>x" * 20) * 300,
    "a long list": "<ul>" + "<li>x" * 15_000,
    "many fonts": "".join(f"<span style='font-family:f{n}'>x</span>" for n in range(9_000)),
    "pictures beside each other": "<img style='float:left' width=3>" * 6_000,
    "tables beside each other": "<style>table{float:right}</style>" + "<table><tr><td>x</table>" * 4_000,
    "pictures beside each other, in entities": "<img style='&#102;loat:right' width=3>x " * 6_000,
    "fonts, in entities": "".join(f"<font f&#97;ce='F{n}'>x</font>" for n in range(9_000)),
    "wide cells, in entities": "<table>" + "<tr><td c&#111;lspan=60000>x" * 300,
    "cells over many rows, in entities": "<table>" + "<tr><td r&#111;wspan=60000>x" * 4_000,
    "lines": "<pre>" + "x\n" * 400_000,
    "tabs": "<pre>" + "\t" * 900_000,
    "letters without spaces": ("ภาษาไทยไม่มีช่องว่าง" * 400 + " ") * 110,
    "emoji": "👩‍💻 " * 200_000,
    "cells over many rows": "<table>" + "<tr><td rowspan=60000>x" * 4_000,
    "tables in tables side by side": ("<table><tr><td>" * 8 + "x" + "</table>" * 8) * 790,
}  # fmt: skip


@pytest.mark.parametrize("page", HOSTILE_PAGES.values(), ids=HOSTILE_PAGES)
def test_a_page_that_would_hold_the_window_is_shown_as_its_source(
    page: str, pane: PreviewPane, tmp_path: Path
) -> None:
    show(pane, tmp_path, "a.html", page.encode())
    assert pane.stack.currentWidget() is pane.lines


def test_a_usual_page_with_tables_in_tables_and_a_picture_in_itself_is_drawn(
    pane: PreviewPane, tmp_path: Path
) -> None:
    row = "<tr><td>a<td><table><tr><td>b</table></tr>"
    picture = f"<img src='data:image/png;base64,{'A' * 50_000}'>"
    row += "<tr><td colspan=4 style='font-family: Arial; float: left'>x"
    page = f"<style>{'p {color: red}' * 100}</style><p>one<p>two<ul><li>a<li>b</ul><table>{row * 200}</table>{picture}"
    show(pane, tmp_path, "a.html", page.encode())
    assert pane.stack.currentWidget() is pane.html


@pytest.mark.parametrize(
    "text",
    [
        "a\n\n" * 10_000,
        "|a|b|\n|-|-|\n" + "|a|b|\n" * 10_000,
        "*a " * 400_000,
        "a" * 900_000,
        "a\u202e" * 90_000,
        "<" * 300_000,
        "*_" * 200_000,
        "http://a.b " * 90_000,
        ("ภาษาไทยไม่มีช่องว่าง" * 400 + " ") * 40,
    ],
    ids=["lines", "table", "large", "word", "marks", "brackets", "stars", "links", "letters"],
)
def test_a_text_that_would_hold_the_window_is_shown_as_its_source(
    text: str, pane: PreviewPane, tmp_path: Path
) -> None:
    show(pane, tmp_path, "a.md", text.encode())
    assert pane.stack.currentWidget() is pane.lines


# All by which a page of HTML can name a file that is to be loaded with it.
NAMES_OF_FILES = """
<link rel=stylesheet type=text/css href="{a}"><style>@import url({a}); @import "{a}"; p {{background: url({a})}}</style>
<body background="{a}"><img src="{a}"><img srcset="{a} 2x"><p style="background-image:url({a})">x</p><img src="{a}" width=9>
<ul style="list-style-image:url({a})"><li>x</ul><table background="{a}"><tr><td background="{a}">x</table>
<iframe src="{a}"></iframe><object data="{a}"></object><embed src="{a}"><video src="{a}" poster="{a}"></video>
<input type=image src="{a}"><script src="{a}"></script><svg><image href="{a}"/></svg><base href="{a}"><p style="border-image: url({a})">x
"""


@pytest.mark.skipif(sys.platform != "linux", reason="how openings are noticed")
@pytest.mark.parametrize("name", ["{}", "file://{}", "FILE:{}", "file://localhost{}", "../{relative}", "file://{}?a#b"])  # fmt: skip
def test_html_loads_no_file_however_it_names_it(
    name: str, pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: Qt read what a page named. A pipe held the window, an endless device ended it, and
    pictures of other folders were shown.
    """
    other = tmp_path / "other.png"
    picture = QImage(3, 3, QImage.Format.Format_RGB32)
    picture.save(str(other))
    relative = os.path.relpath(other, Path.cwd() / "x")
    page = NAMES_OF_FILES.format(a=name.format(other, relative=relative))
    with OpenedFiles(other) as opened:
        show(pane, tmp_path, "a.html", page.encode())
        assert pane.stack.currentWidget() is pane.html
        pane.html.grab()
        assert not opened.is_any_opened()


def test_pictures_that_stand_in_a_page_are_drawn_up_to_a_limit(
    pane: PreviewPane, tmp_path: Path
) -> None:
    assert colour_drawn(pane, tmp_path, 10) == QColor("red")
    before = time.process_time()
    assert colour_drawn(pane, tmp_path, 9_000) != QColor("red")
    assert time.process_time() - before < 1


def colour_drawn(pane: PreviewPane, folder: Path, edge: int) -> QColor:
    """The colour where a page shows twenty red pictures of so many pixels, each small."""
    picture = QImage(edge, edge, QImage.Format.Format_Mono)
    picture.setColorTable([QColor("red").rgb(), QColor("red").rgb()])
    picture.fill(0)
    file = folder / f"{edge}.png"
    picture.save(str(file))
    words = base64.b64encode(file.read_bytes()).decode()
    page = "".join(
        f"<img src='data:image/png;name={number};base64,{words}' width=40 height=40>"
        for number in range(20)
    )
    show(pane, folder, f"{edge}.html", page.encode())
    return pane.html.viewport().grab().toImage().pixelColor(30, 30)


def test_selected_lines_become_a_comment_with_their_place(
    pane: PreviewPane, tmp_path: Path
) -> None:
    show(pane, tmp_path, "a.py", b"one\ntwo\nthree\n")
    written_comments = QSignalSpy(pane.comment_written)
    pane.lines.selection.set_both_ends(TextPosition(1, 0), TextPosition(2, 5))
    pane.lines.selection_changed.emit()
    QTest.mouseClick(button(pane, "Comment on lines 2–3"), Qt.MouseButton.LeftButton)
    assert written_comments.at(0) == ["a.py:2-3\n```\ntwo\nthree\n```\n"]


def test_a_comment_quotes_fences() -> None:
    assert format_comment("a.md", (1, 1), "```py") == "a.md:1\n````\n```py\n````\n"


def test_the_same_file_is_one_tab_and_closing_leaves_none(
    pane: PreviewPane, tmp_path: Path
) -> None:
    closed = QSignalSpy(pane.closed)
    for _ in range(2):
        show(pane, tmp_path, "a.py", b"x")
    assert pane.previewed_paths == ["a.py"]
    for number in range(9):
        show(pane, tmp_path, f"{number}.py", b"x")
    assert len(pane.previewed_paths) == 6
    pane.close_preview()
    assert (pane.previewed_paths, closed.count()) == ([], 1)


def test_a_cell_of_a_million_letters_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: sixteen million letters in a cell held it for more than a minute."""
    before = time.process_time()
    show(pane, tmp_path, "a.csv", b"a,b\n" + b"x" * 2_000_000 + b",y\n")
    pane.table.grab()
    assert time.process_time() - before < 2


def test_a_file_of_very_many_lines_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: thirty million ends of lines held it for more than forty seconds."""
    before = time.process_time()
    show(pane, tmp_path, "a.txt", b"\n" * 3_000_000)
    assert time.process_time() - before < 2
    assert "1,000,000" in " ".join(label.text() for label in pane.findChildren(QLabel))


def test_columns_of_a_table_are_as_wide_as_their_cells(pane: PreviewPane, tmp_path: Path) -> None:
    """An id had room for twenty letters, and each date was cut."""
    cells = b"7,2026-01-31T08:30:00+01:00 in the morning," + b"word " * 200
    show(pane, tmp_path, "a.csv", b"id,lent,remarks\n" + cells + b"\n")
    table = pane.table
    letters = table.fontMetrics().horizontalAdvance("2026-01-31T08:30:00+01:00 in the morning")
    assert table.columnWidth(0) < letters / 2
    assert letters < table.columnWidth(1) < 2 * letters
    assert table.columnWidth(2) == WIDEST_COLUMN


def test_a_table_of_very_many_columns_does_not_hold_the_window(
    pane: PreviewPane, tmp_path: Path
) -> None:
    before = time.process_time()
    show(pane, tmp_path, "a.csv", b"1," * 20_000 + b"\n" + b"2," * 20_000 + b"\n")
    pane.table.grab()
    assert time.process_time() - before < 2


def test_csv_is_read() -> None:
    assert parse_csv_rows('a;b\n"1;1";2\n') == [["a", "b"], ["1;1", "2"]]


async def test_svg_is_drawn_and_names_no_other_file(tmp_path: Path) -> None:
    image = read_picture(await draw_svg_as_png(SVG))
    assert image is not None
    assert (image.width(), image.height()) == (40, 20)
    assert await draw_svg_as_png(b"no picture") == b""
    red = QImage(9, 9, QImage.Format.Format_RGB32)
    red.fill(QColor("red"))
    red.save(str(tmp_path / "red.png"))
    named = SVG.replace(
        b"<rect width='9' height='9'/>",
        f"<image href='{tmp_path}/red.png' width='9' height='9'/>".encode(),
    )
    drawn = read_picture(await draw_svg_as_png(named))
    assert drawn is not None
    assert drawn.pixelColor(4, 4) == QColor("white")


OUTSIDE = "/outside/picture.png"
IMAGE = f"<svg xmlns='http://www.w3.org/2000/svg'><image href='{OUTSIDE}'/></svg>"
SVG_OF_ENEMIES = {
    "plain": IMAGE.encode(),
    "in 16 bits": IMAGE.encode("utf-16"),
    "in 16 bits without a mark": IMAGE.encode("utf-16-le"),
    "in 32 bits": IMAGE.encode("utf-32"),
    "in 32 bits without a mark": IMAGE.encode("utf-32-be"),
    "declared": ('<?xml version="1.0" encoding="UTF-16"?>' + IMAGE).encode("utf-16"),
    "packed": gzip.compress(IMAGE.encode()),
    "in two halves": IMAGE.replace("href", "hrhref='x'ef").encode(),
    "around another one": IMAGE.replace("href=", "href href='x' =").encode(),
    "around an import": IMAGE.replace("href=", "href@import x;=").encode(),
    "around an address": IMAGE.replace("href=", "href url(x)=").encode(),
    "in what seems a part": IMAGE.replace("href", "title='href=\"#' href").replace("/></svg", " alt='\"'/></svg").encode(),
    "behind a part": IMAGE.replace("<image", "<![CDATA[ href='# ]]><image").encode(),
    "in an entity": f"<!DOCTYPE svg [<!ENTITY i \"<image h&#114;ef='{OUTSIDE}'/>\">]><svg>&i;</svg>".encode(),
    "in a style sheet": f'<?xml-stylesheet href="{OUTSIDE}"?>{IMAGE}'.encode(),
    "in itself": f"<svg><image href='data:image/png;base64,{base64.b64encode(IMAGE.encode()).decode()}'/></svg>".encode(),
    "in itself, hidden": f"<svg><image href='data:image/png;base64,iVBORw0KGgo;base64, {base64.b64encode(IMAGE.encode()).decode()}'/></svg>".encode(),
}  # fmt: skip


@pytest.mark.parametrize("svg", SVG_OF_ENEMIES.values(), ids=SVG_OF_ENEMIES)
def test_an_svg_names_no_other_file_however_it_is_written(svg: bytes) -> None:
    """The defect: in another encoding, packed, or put together, the name of a file stayed in it."""
    kept = svg_worker.without_outside_references(svg)
    assert b"\0" not in kept
    assert not kept.startswith(b"\x1f\x8b")
    assert base64.b64encode(IMAGE.encode()) not in kept
    try:
        elements = list(ET.fromstring(kept).iter())  # noqa: S314 -- our own texts
    except ET.ParseError:  # Qt does not read it, either.
        return
    for element in elements:
        references = [value for name, value in element.items() if name.endswith("href")]
        assert OUTSIDE not in references


def parts_in_parts(part: str, drawn: str, count: int = 10) -> bytes:
    """A picture with `count` parts, of which each draws the one before it."""
    parts = [part.format(number=0, inside="<rect width='1' height='1'/>")]
    for number in range(1, count):
        parts.append(part.format(number=number, inside=drawn.format(number=number - 1)))
    last = drawn.format(number=count - 1)
    return f"<svg width='9' height='9'><defs>{''.join(parts)}</defs>{last}</svg>".encode()


LINE = "d='M0 0" + " L1 1" * 300 + "'"
SVG_OF_BILLIONS = {
    "by using": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use href='#a{number}'/>" * 10),
    "by two": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use xlink:href=' #a{number}'/>" * 2, 40),
    "by patterns": parts_in_parts("<pattern id='a{number}'>{inside}</pattern>", "<rect fill='url(#a{number})'/>" * 10),
    "by a style": parts_in_parts("<mask id='a{number}'>{inside}</mask>", "<g style='x:1;mask:url( \"#a{number}\" )'/>" * 10),
    "at points": parts_in_parts("<marker id='a{number}'>{inside}</marker>", f"<path {LINE} marker-mid='url(#a{{number}})'/>", 4),
    "in itself": b"<svg><g id='a'><use href='#a'/></g></svg>",
    "before a mistake": parts_in_parts("<g id='a{number}'>{inside}</g>", "<use href='#a{number}'/>" * 10) + b"<",
}  # fmt: skip


@pytest.mark.parametrize("svg", SVG_OF_BILLIONS.values(), ids=SVG_OF_BILLIONS)
def test_a_small_svg_that_draws_billions_of_shapes_is_known_before_it_is_drawn(svg: bytes) -> None:
    """The defect: it was drawn until the process was ended, after up to 15 seconds."""
    begun = time.process_time()
    assert svg_worker.draws_too_much(svg)
    assert time.process_time() - begun < 3


def test_an_svg_with_many_shapes_or_with_ids_that_are_not_unique_is_drawn() -> None:
    shapes = "<rect id='a' width='1' height='1'/>" * 5_000
    icons = "".join(
        f"<symbol id='i{n}'><path d='M0 0'/></symbol><use href='#i{n}'/>" for n in range(500)
    )
    assert not svg_worker.draws_too_much(f"<svg>{shapes}{icons}</svg>".encode())
    assert not svg_worker.draws_too_much(b"no picture")


def test_what_an_svg_has_itself_stays() -> None:
    entity = '<!DOCTYPE svg [<!ENTITY ns "http://www.w3.org/2000/svg">]>'
    for svg in (
        "<svg><use href='#a'/><rect fill='url(#b)'/></svg>",
        "<svg><image href='data:image/png;base64,iVBORw0KGgoAAAANSUhEUg=='/></svg>",
        f"{entity}<svg xmlns='&ns;'/>",
        "<svg><text>Grüße</text></svg>",
    ):
        assert svg_worker.without_outside_references(svg.encode()).decode() == svg
        assert svg_worker.without_outside_references(svg.encode("utf-16")).decode() == svg


def test_a_narrow_pane_hides_the_oldest_tabs_and_never_the_shown_one(
    pane: PreviewPane, tmp_path: Path
) -> None:
    for number in range(6):
        show(pane, tmp_path, f"a_long_name_of_a_file_{number}.py", b"x")
    pane.resize(300, 600)
    shown = [tab.text() for tab in pane._tab_widgets if not tab.isHidden()]
    assert shown == ["a_long_name_of_a_file_5.py"]
    pane.resize(2_000, 600)
    assert not any(tab.isHidden() for tab in pane._tab_widgets)


@pytest.mark.parametrize(
    ("name", "content", "is_said"),
    [
        ("a.html", b"<h1>Hi</h1>", True),
        ("a.svg", SVG, True),
        ("a.csv", b"a,b\n1,2\n", False),
        ("a.bin", b"\0\1", False),
    ],
)
def test_only_of_what_can_have_scripts_it_is_said_that_none_ran(
    pane: PreviewPane, tmp_path: Path, name: str, content: bytes, is_said: bool
) -> None:
    show(pane, tmp_path, name, content)
    assert bool(pane._hint.text()) is is_said


def process_events_until(is_reached: Callable[[], bool]) -> None:
    time_left = QDeadlineTimer(5_000)
    while not is_reached():
        assert not time_left.hasExpired()
        QCoreApplication.processEvents()


def process_events_until_line(pane: PreviewPane, line: str) -> None:
    process_events_until(lambda: pane.lines.viewed_lines[0] == line)


def test_a_file_that_changes_on_disk_is_shown_as_it_is_now(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """The defect: after an undo in Changes, the preview still showed the file from before it."""
    show(pane, tmp_path, "a.py", b"price = 1\n")
    changed = tmp_path / "a.new"
    for price in (2, 3):  # Undo and redo replace the file, and so does the next one.
        changed.write_text(f"price = {price}\n")
        changed.replace(tmp_path / "a.py")
        process_events_until_line(pane, f"price = {price}")
    (tmp_path / "a.py").unlink()
    process_events_until(lambda: "no longer" in pane._hint.text())
    assert pane.lines.viewed_lines[0] == "price = 3"


def test_a_preview_that_comes_back_reads_its_file_again(pane: PreviewPane, tmp_path: Path) -> None:
    show(pane, tmp_path, "a.py", b"price = 1\n")
    show(pane, tmp_path, "b.py", b"other\n")
    (tmp_path / "a.py").write_text("price = 2\n")
    QTest.mouseClick(button(pane, "a.py"), Qt.MouseButton.LeftButton)
    process_events_until_line(pane, "price = 2")
    pane._watcher.blockSignals(True)  # As on a folder that cannot be watched.
    pane.hide()
    (tmp_path / "a.py").write_text("price = 3\n")
    pane.show()
    process_events_until_line(pane, "price = 3")
