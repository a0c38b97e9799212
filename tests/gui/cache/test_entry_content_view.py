"""The content of an entry in the shape of its kind, page by page."""

from __future__ import annotations

from PySide6.QtCore import QBuffer, QIODevice
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtTest import QTest

from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.cache.content_shapes import ContentShape
from tests.gui.cache.cache_page_hands import LEFT, Settle, shown
from tests.gui.cache.catalogue import MemoryCatalogue
from tests.gui.fake_desk import Held, now


def test_every_kind_of_content_has_its_shape(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    for number, shape in (
        (2, ContentShape.JSON),
        (3, ContentShape.TEXT),
        (4, ContentShape.HEX),
        (0, ContentShape.TEXT),
    ):
        page.open_entry_by_digest(catalogue.lines[number].stored.digest)
        settle()
        assert page.viewer.content_view.shape is shape
    page.open_entry_by_digest(catalogue.lines[4].stored.digest)
    settle()
    assert shown(page).startswith("00 01 02 03")


def test_a_large_entry_comes_page_by_page(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    large = catalogue.put(b"".join(b"line %07d\n" % i for i in range(300_000)))
    page.open_entry_by_digest(large.stored.digest)
    settle()
    body = page.viewer.content_view
    assert body._page_label.text().startswith("page 1 of 4")
    QTest.mouseClick(body._next_button, LEFT)
    settle()
    assert body._page_label.text().startswith("page 2 of 4")
    number = body._first_lines[1]
    assert body.lines.viewed_lines[1] == f"line {number:07d}"


def test_pages_that_come_late_are_not_shown_as_others(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    line = catalogue.put(
        b"".join(b"line %07d\n" % number for number in range(250_000)), source="long.txt"
    )
    page.open_entry_by_digest(line.stored.digest)
    settle()
    held = page._shown.runner._spawn = Held()
    page.viewer.content_view.turn_page_by(1)
    page.viewer.content_view.turn_page_by(1)
    held.let("read_range", newest=True)
    second = shown(page)
    held.let("read_range")
    page._shown.runner._spawn = now
    held.let()
    assert shown(page) == second


def test_what_is_copied_is_what_is_shown_whatever_its_shape(
    page: CachePage, catalogue: MemoryCatalogue, settle: Settle
) -> None:
    """The text of the entry before is still laid out behind a picture."""
    clipboard = QGuiApplication.clipboard()
    page.open_entry_by_digest(catalogue.lines[0].stored.digest)
    settle()
    for number, text in (
        (2, '{"a": [1, 2, {"b": null}], "c": "text"}'),
        (3, "name,count\nalpha,1\nbeta,2"),
    ):
        page.open_entry_by_digest(catalogue.lines[number].stored.digest)
        settle()
        assert page.viewer.content_view.shape in (ContentShape.JSON, ContentShape.TEXT)
        if page.viewer.content_view.shape is ContentShape.JSON:
            assert shown(page).startswith('{\n  "a": [\n    1,\n')
        page.viewer.copy_shown_content()
        assert clipboard.text() == text
    picture = QImage(3, 2, QImage.Format.Format_RGB32)
    picture.fill(QColor("#0d7d74"))
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    picture.save(buffer, "PNG")  # type: ignore[call-overload]  # Qt takes a str
    line = catalogue.put(bytes(buffer.data().data()), source="x.png", media="image/png")
    page.open_entry_by_digest(line.stored.digest)
    settle()
    assert page.viewer.content_view.shape is ContentShape.IMAGE
    page.viewer.copy_shown_content()
    assert clipboard.image().size() == picture.size()
