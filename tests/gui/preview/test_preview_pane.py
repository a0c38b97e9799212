from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QDeadlineTimer, Qt
from PySide6.QtGui import QAccessible, QColor, QImage
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import QPushButton

from helix_desktop.engine.facts import Attachment, FilesChanged, Recorded, Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session_events import FactAppended
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.common.accessible_roles import install_accessible_roles
from helix_desktop.gui.common.picture_reader import read_picture
from helix_desktop.gui.common.text_selection import TextPosition
from helix_desktop.gui.preview.preview_pane import PreviewPane, format_comment
from helix_desktop.gui.preview.svg_drawing import draw_svg_as_png
from helix_desktop.store.in_memory_stores import MemoryCache
from helix_desktop.workbench.file_preview import read_previewed_attachment
from tests.documents import written_documents as written
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.preview.opened_files import OpenedFiles
from tests.gui.preview.shown_files import show

SVG = b"<svg xmlns='http://www.w3.org/2000/svg' width='20' height='10'><rect width='9' height='9'/></svg>"


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


@pytest.mark.parametrize(("name", "content"), [("a.html", b"<p>Hi"), ("a.pdf", written.pdf(2))])
def test_a_shown_page_says_that_it_has_the_keyboard(
    pane: PreviewPane, tmp_path: Path, name: str, content: bytes
) -> None:
    """The arrows scrolled it, and neither an eye nor a screen reader could tell."""
    install_accessible_roles()
    show(pane, tmp_path, name, content)
    assert QTest.qWaitForWindowActive(pane.window())
    view = pane.stack.currentWidget()
    assert view is not None
    button(pane, "✕").setFocus()
    picture_before = view.grab().toImage()
    view.setFocus(Qt.FocusReason.TabFocusReason)
    assert view.grab().toImage() != picture_before
    interface = QAccessible.queryAccessibleInterface(view)
    assert interface is not None
    assert interface.role() is not QAccessible.Role.Client


def test_the_tabs_are_told_as_a_choice_of_one(pane: PreviewPane, tmp_path: Path) -> None:
    show(pane, tmp_path, "a.py", b"x = 1")
    show(pane, tmp_path, "b.py", b"x = 2")
    for tab in pane._tab_widgets:
        interface = QAccessible.queryAccessibleInterface(tab)
        assert interface is not None
        assert interface.role() is QAccessible.Role.RadioButton
    assert [tab.isChecked() for tab in pane._tab_widgets] == [False, True]


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


def test_what_a_step_changed_is_shown_where_no_file_is_watched(
    pane: PreviewPane, tmp_path: Path
) -> None:
    """In a second window, the panel kept the old content after an edit."""
    show(pane, tmp_path, "a.py", b"price = 1\n")
    pane._watcher.blockSignals(True)  # Nothing is watched of what another process has open.
    (tmp_path / "a.py").write_text("price = 2\n")
    digest = Digest.of_content(b"x")
    change = FilesChanged(Stored(digest, 1), digest, digest, 1)
    pane.read_again_if_files_changed([FactAppended(Recorded("c", 1, 0.0, change))])
    process_events_until_line(pane, "price = 2")


def test_an_attachment_leads_to_the_cache_and_not_to_a_file(
    pane: PreviewPane, tmp_path: Path
) -> None:
    bench = FakeWorkbench("one", "#0d7d74", tmp_path)
    cache = MemoryCache()
    stored = asyncio.run(cache.store_content(b"# Notes", EntryOrigin("user", "notes.md")))
    file = asyncio.run(read_previewed_attachment(cache, Attachment("notes.md", stored)))
    pane.has_changed = lambda _path: True
    pane.show_file(bench, file)
    assert pane.stack.currentWidget() is pane.drawn_text
    assert button(pane, "Open with…").isHidden()
    assert button(pane, "Show in Changes").isHidden()
    wanted = QSignalSpy(pane.entry_wanted)
    button(pane, "Show in Cache").click()
    assert wanted.at(0) == [stored.digest]
    show(pane, tmp_path, "notes.md", b"# In the folder")
    assert pane.previewed_paths == ["notes.md", "notes.md"]
    assert button(pane, "Show in Cache").isHidden()
