"""Documents by real writers become text with their pages and tables. Hostile ones end in a sentence."""

from __future__ import annotations

import subprocess
import sys
import zipfile

import pytest

from helix_desktop.documents import document_reading
from helix_desktop.documents.document_kinds import find_document_kind
from helix_desktop.documents.document_reading import ReadDocument, draw_pages, read_document_pages
from helix_desktop.errors import InvalidInput
from tests.documents import written_documents as written

SLIDE_THAT_IS_MISSING = """
<presentation xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships">
  <sldIdLst><sldId id="256" r:id="rId1"/></sldIdLst>
</presentation>
"""


async def read(name: str, content: bytes) -> ReadDocument:
    kind = find_document_kind(name, content)
    assert kind is not None
    return await read_document_pages(name, content, kind)


async def refused(name: str, content: bytes) -> str:
    with pytest.raises(InvalidInput) as failure:
        await read(name, content)
    assert failure.value.remedy
    return failure.value.what


@pytest.mark.parametrize("name", written.DOCUMENTS)
async def test_every_kind_becomes_text_with_its_words_and_cells(name: str) -> None:
    document = await read(name, written.DOCUMENTS[name]())
    text = "\n".join(f"{page.title}\n{page.text}" for page in document.pages)
    assert written.TITLE in text
    for row in written.CELLS if name != "report.ipynb" else ():
        line = next(line for line in text.splitlines() if row[0] in line.split(",")[0])
        assert all(cell in line for cell in row)
    # A sheet of values has no sentences, and the library that writes PDFs knows ASCII only.
    if name not in ("report.ods", "report.pdf"):
        assert written.SENTENCE in text.replace('"', "")
    assert "steal" not in text


async def test_a_pdf_keeps_its_pages_and_their_bookmarks() -> None:
    document = await read("report.pdf", written.pdf(pages=3))
    assert [page.title for page in document.pages] == ["Chapter 1", "Chapter 2", "Chapter 3"]
    assert document.unit_count == 3
    assert "page 2" in document.pages[1].text


async def test_a_word_file_keeps_sections_lists_tables_and_what_stands_at_the_foot() -> None:
    document = await read("report.docx", written.word())
    assert [page.title for page in document.pages] == [written.TITLE, "What follows"]
    assert "- first of a list" in document.pages[0].text
    assert "| before | 31 |" in document.pages[0].text
    assert "Words at the foot" in document.pages[1].text


async def test_what_was_deleted_while_changes_were_tracked_is_not_read() -> None:
    body = (
        "<document><body><p><r><t>stays</t></r><del><r><delText>gone</delText></r></del>"
        "<ins><r><t> added</t></r></ins></p></body></document>"
    )
    document = await read("report.docx", written.word_with_body(body))
    assert document.pages[0].text == "stays added"


async def test_slides_have_titles_tables_and_notes() -> None:
    document = await read("report.pptx", written.powerpoint())
    assert [page.title for page in document.pages] == [written.TITLE, "Timings"]
    assert "Notes: Words for the speaker" in document.pages[0].text
    assert "| before | 31 |" in document.pages[1].text


async def test_the_title_of_a_slide_is_as_long_as_a_list_can_show() -> None:
    document = await read("report.pptx", written.powerpoint(title="T" * 200))
    assert document.pages[0].title == "T" * 120
    assert "T" * 200 in document.pages[0].text


async def test_a_presentation_without_a_slide_is_not_said_to_be_damaged() -> None:
    document = await read("new.pptx", written.empty_powerpoint())
    assert document.pages == ()


async def test_words_on_both_sides_of_a_line_break_in_a_slide_are_apart() -> None:
    document = await read("report.pptx", written.powerpoint(title="one\vtwo"))
    assert document.pages[0].title == "one two"


async def test_text_of_a_page_that_was_set_as_it_is_stays_so() -> None:
    page = b"<html><body><p>So:</p><pre>def f():\n    return 1\n</pre><p>Then.</p></body></html>"
    document = await read("page.html", page)
    assert document.pages[0].text == "So:\n\n```\ndef f():\n    return 1\n```\n\nThen."


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process")
def test_the_process_that_reads_documents_has_little_time_and_writes_nothing() -> None:
    code = (
        "import resource; from helix_desktop.documents import document_worker as worker;"
        "worker._limit_reading_process();"
        "print(resource.getrlimit(resource.RLIMIT_CPU)[0] == worker.CPU_SECONDS,"
        "resource.getrlimit(resource.RLIMIT_FSIZE), resource.getrlimit(resource.RLIMIT_CORE))"
    )
    printed = subprocess.check_output([sys.executable, "-c", code], text=True)
    assert printed.strip() == "True (0, 0) (0, 0)"


async def test_a_long_sheet_is_several_parts_and_each_names_the_columns() -> None:
    document = await read("report.xlsx", written.excel(rows=1_200))
    assert document.unit_count == 2
    assert [page.title for page in document.pages] == [
        f"{written.TITLE}, rows 1-500",
        f"{written.TITLE}, rows 501-1000",
        f"{written.TITLE}, rows 1001-1203",
        "Second",
    ]
    assert all(page.text.startswith("when,ms\n") for page in document.pages[:3])
    assert document.pages[3].text.splitlines()[2] == ",3"  # 3.0 is how a sheet stores 3.


async def test_a_book_is_read_in_its_order() -> None:
    document = await read("report.epub", written.epub())
    assert [page.title for page in document.pages] == [written.TITLE, "Second"]


async def test_a_kind_is_found_by_content_before_the_name() -> None:
    for name in ("report.txt", "report", "report.docx"):
        found = find_document_kind(name, written.pdf())
        assert found is not None
        assert found.name == "pdf"
    assert find_document_kind("notes.txt", b"plain words") is None
    assert find_document_kind("picture.png", b"\x89PNG\r\n\x1a\n") is None
    assert find_document_kind("archive.zip", written.zipped({"a.txt": "x"})) is None


async def test_pages_are_drawn_as_pictures() -> None:
    content = written.scanned_pdf()
    kind = find_document_kind("scan.pdf", content)
    assert kind is not None
    assert (await read("scan.pdf", content)).numbers_without_text == (1, 2)
    pictures = await draw_pages("scan.pdf", content, kind, [2, 9], 300)
    assert [picture.page_number for picture in pictures] == [2]
    assert pictures[0].png.startswith(b"\x89PNG\r\n\x1a\n")


async def test_what_has_a_password_is_said() -> None:
    said = await refused("secret.pdf", written.pdf(password="secret"))
    assert said == "secret.pdf is protected with a password, so it cannot be read."
    office = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600) + "EncryptedPackage".encode("utf-16-le")
    )
    assert "password" in await refused("secret.docx", office)
    manifest = "<manifest><file-entry><encryption-data/></file-entry></manifest>"
    members = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "META-INF/manifest.xml": manifest,
        "content.xml": "x",
    }
    assert "password" in await refused("secret.odt", written.zipped(members))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.pdf", b"%PDF-1.7 and nothing else", "damaged"),
        ("a.docx", b"these are no zipped bytes", "damaged"),
        ("a.docx", written.word()[:2_000], "damaged"),
        ("a.docx", written.entity_bomb(), "damaged"),
        ("a.docx", written.deep_document(), "read"),
        ("a.xlsx", written.excel()[:1_500], "damaged"),
        ("a.ipynb", b"{not json", "damaged"),
        ("a.pptx", written.zipped({"ppt/presentation.xml": SLIDE_THAT_IS_MISSING}), "damaged"),
    ],
)
async def test_what_cannot_be_read_is_said_and_ends(name: str, content: bytes, said: str) -> None:
    assert said in await refused(name, content)


async def test_a_file_that_unpacks_to_far_more_is_too_large() -> None:
    assert "too large" in await refused("a.docx", written.bomb())


async def test_damaged_bytes_never_end_in_anything_but_text_or_a_sentence() -> None:
    for name, build in written.DOCUMENTS.items():
        content = bytearray(build())
        for place in range(0, len(content), max(len(content) // 7, 1)):
            content[place] ^= 0xFF
        kind = find_document_kind(name, bytes(content))
        if kind is None:
            continue
        try:
            assert (await read_document_pages(name, bytes(content), kind)).kind is kind
        except InvalidInput as failure:
            assert failure.what.startswith(name)  # noqa: PT017 -- both ends are right


async def test_a_reader_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_reading, "TIME_LIMIT_SECONDS", 0.001)
    assert "reading was stopped" in await refused("slow.pdf", written.pdf())


async def test_a_member_that_says_it_is_smaller_than_it_is_cannot_grow() -> None:
    content = written.word_with_body(b"<document><body>" + b"x" * 100_000 + b"</body></document>")
    size = (100_034).to_bytes(4, "little")
    assert content.count(size) >= 1
    lying = content.replace(size, (10).to_bytes(4, "little"))
    with pytest.raises((InvalidInput, zipfile.BadZipFile)):
        await read("lying.docx", lying)


async def test_an_empty_file_is_said_to_be_empty_and_not_damaged() -> None:
    assert await refused("report.docx", b"") == "report.docx is empty."


async def test_the_text_of_a_box_is_read_once_though_word_writes_it_twice() -> None:
    """For older programs, the same box stands behind it in another form (`Fallback`)."""
    box = "<txbxContent><p><r><t>in the box</t></r></p></txbxContent>"
    nested = f"<r><AlternateContent><Choice><shape>{box}</shape></Choice><Fallback>{box}</Fallback></AlternateContent></r>"
    body = f"<document><body><p><r><t>before</t></r>{nested}</p><p><r><t>after</t></r></p></body></document>"
    document = await read("report.docx", written.word_with_body(body))
    lines = document.pages[0].text.split()
    assert lines.count("box") == 1
    assert lines[0] == "before"
    assert lines[-1] == "after"
