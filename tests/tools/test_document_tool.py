"""The tool that shows documents as text: whole, some pages, an outline, or pictures."""

from __future__ import annotations

import pytest

from helix_desktop.engine.document_pages import format_document_text
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.tools.document_tool import read_document_as_text
from tests.documents import written_documents as written
from tests.tools.world import World


async def read(here: World, document: str, pages: str = "") -> str:
    return await here.said("read_document", document=document, pages=pages)


async def test_a_short_document_is_shown_whole_and_pages_by_their_numbers(here: World) -> None:
    here.write("report.pdf", written.pdf(pages=3))
    whole = await read(here, "report.pdf")
    for number in (1, 2, 3):
        assert f"page {number}" in whole
    some = await read(here, "report.pdf", "2-3")
    assert "Chapter 2" in some
    assert "Chapter 3" in some
    assert "Chapter 1" not in some


async def test_what_is_no_document_is_refused_with_the_tool_for_it(here: World) -> None:
    here.write("a.py", "print()")
    assert "a.py is not a document that can be read" in await read(here, "a.py")
    assert "does not exist" in await read(here, "nowhere.pdf")


async def test_a_stored_document_is_read_by_its_hash_or_by_that_of_its_text(here: World) -> None:
    content = written.html()
    original = await here.cache.store_content(content, EntryOrigin("fetch", "page.html"))
    by_hash = await read(here, original.digest.hex[:16])
    assert written.TITLE in by_hash
    text = format_document_text("page.html", "section", 1, original.digest, [("Title", "words")])
    stored_text = await here.cache.store_content(text.encode(), EntryOrigin("attached", "page"))
    assert await read(here, stored_text.digest.hex[:16]) == by_hash.replace(
        original.digest.hex[:16], stored_text.digest.hex[:16]
    )


async def test_scanned_pages_are_pictures_and_pages_with_text_are_none(here: World) -> None:
    here.write("scan.pdf", written.scanned_pdf(pages=2))
    here.write("text.pdf", written.pdf(pages=2))
    scanned = await here.run("read_document", document="scan.pdf", pages="1-2")
    assert [image.media_type for image in scanned.images] == ["image/png", "image/png"]
    one = await here.run("read_document", document="scan.pdf", pages="2")
    assert len(one.images) == 1
    with_text = await here.run("read_document", document="text.pdf", pages="1-2")
    assert with_text.images == ()


async def test_a_document_of_a_server_is_its_text_or_why_it_has_none(here: World) -> None:
    text = await read_document_as_text(here.cache, "srv__get", "report.html", written.html())
    assert written.TITLE in text
    (stored,) = (entry for _, entry in here.cache.all_contents())
    assert stored.about == EntryOrigin("srv__get", "report.html", "text/html")
    refused = await read_document_as_text(here.cache, "srv__get", "a.bin", b"\0\1")
    assert refused.startswith("[a.bin is not a document that can be read.")


@pytest.mark.parametrize("pages", ["0", "4", "x"])
async def test_pages_that_are_not_there_are_refused(here: World, pages: str) -> None:
    here.write("report.pdf", written.pdf(pages=3))
    outcome = await here.run("read_document", document="report.pdf", pages=pages)
    assert not outcome.ok
