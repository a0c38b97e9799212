"""Which kind of document a file is: by its content first, then by its name."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from helix_desktop.documents import document_kinds as kinds
from helix_desktop.documents.document_kinds import (
    AddedDocumentKind,
    DocumentKind,
    add_document_kind,
    find_document_kind,
    find_kind_by_ending,
    is_office_file_with_password,
    remove_document_kind,
)
from helix_desktop.errors import InvalidInput
from tests.documents import written_documents as written

OLE_MARK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
ENCRYPTED = "EncryptedPackage".encode("utf-16-le")
DRAWING = DocumentKind("drawing", "Drawing", (".draw",), "page", "drawing:read", "image/x-drawing")


def added(kind: DocumentKind) -> AddedDocumentKind:
    return AddedDocumentKind(kind, folders=("/extension",), check_unchanged=lambda: None)


@pytest.fixture
def drawings() -> Iterator[None]:
    add_document_kind(added(DRAWING))
    yield
    remove_document_kind(DRAWING.name)


def test_an_encrypted_office_file_has_the_other_container_and_the_name_of_what_is_in_it() -> None:
    assert is_office_file_with_password(OLE_MARK + ENCRYPTED)
    assert not is_office_file_with_password(OLE_MARK + b"an old Word file")
    assert not is_office_file_with_password(b"a text about " + ENCRYPTED)


def test_an_old_office_file_is_what_its_name_says_and_nothing_else_is() -> None:
    assert find_document_kind("a.xls", OLE_MARK) is kinds.OLD_EXCEL
    assert find_document_kind("a.docx", OLE_MARK) is kinds.WORD
    assert find_document_kind("a.pptx", OLE_MARK) is kinds.POWERPOINT
    assert find_document_kind("a.xlsx", OLE_MARK) is kinds.EXCEL
    assert find_document_kind("a.html", OLE_MARK) is None
    assert find_document_kind("a.msg", OLE_MARK) is None


def test_a_pdf_is_known_by_its_mark_within_the_first_bytes_whatever_it_is_called() -> None:
    assert find_document_kind("a.txt", b"junk before it %PDF-1.7") is kinds.PDF
    far_from_the_start = b" " * 2_000 + b"%PDF-1.7"
    assert find_document_kind("a.txt", far_from_the_start) is None


def test_the_name_decides_for_texts_unless_the_content_is_none() -> None:
    assert find_document_kind("a.CSV", b"a,b\n") is kinds.CSV
    assert find_document_kind("a.htm", b"<p>hello") is kinds.HTML
    assert find_document_kind("a.ipynb", b"{}") is kinds.NOTEBOOK
    assert find_document_kind("a.csv", b"\0\1\2") is None
    for mark in (b"\xff\xfe", b"\xfe\xff"):
        assert find_document_kind("a.csv", mark + b"a\0,\0") is kinds.CSV, "UTF-16 has zeros"
    # Anything else under the name of a document is a damaged one, which its reader says.
    assert find_document_kind("a.docx", b"\0\1\2") is kinds.WORD
    assert find_document_kind("a.py", b"print()") is None
    zeros_far_behind = b"a,b\n" * 1_100 + b"\0"
    assert find_document_kind("a.csv", zeros_far_behind) is kinds.CSV


def test_an_archive_is_known_by_its_members_whatever_it_is_called() -> None:
    open_document = written.zipped({"mimetype": f"{kinds.ODT.media_type}\n"})
    assert find_document_kind("a.bin", open_document) is kinds.ODT
    for folder, kind in (("word", kinds.WORD), ("ppt", kinds.POWERPOINT), ("xl", kinds.EXCEL)):
        content = written.zipped({f"{folder}/part.xml": "<a/>"})
        assert find_document_kind("a.bin", content) is kind
    program = written.zipped({"mimetype": "application/java", "Main.class": "x"})
    assert find_document_kind("a.docx", program) is None, "an archive of something else"


def test_a_torn_archive_is_still_called_a_document_where_a_name_in_it_says_so() -> None:
    word = written.zipped({"word/document.xml": "<a/>"})
    assert find_document_kind("a.bin", word[:40]) is kinds.WORD
    # The first member of a book is not compressed.
    torn_book = b"PK\x03\x04\x14\0mimetype" + kinds.EPUB.media_type.encode()
    assert find_document_kind("a.bin", torn_book) is kinds.EPUB
    assert find_document_kind("a.bin", b"PK\x03\x04 and nothing") is None


@pytest.mark.usefixtures("drawings")
def test_an_added_kind_is_found_by_its_ending_also_for_an_archive() -> None:
    archive = written.zipped({"page.svg": "<svg/>"})
    assert find_kind_by_ending("plan.DRAW") is DRAWING
    assert find_document_kind("plan.draw", archive) is DRAWING
    assert find_document_kind("plan.xlsx", archive) is None
    found = kinds.find_added_document_kind("drawing")
    assert found is not None
    assert found.kind is DRAWING
    remove_document_kind("drawing")
    assert find_document_kind("plan.draw", archive) is None


@pytest.mark.usefixtures("drawings")
def test_a_kind_takes_no_name_and_no_ending_of_another() -> None:
    same_name = DocumentKind("drawing", "Other", (".other",), "page", "x:y", "a/b")
    with pytest.raises(InvalidInput, match="named 'drawing'"):
        add_document_kind(added(same_name))
    same_ending = DocumentKind("other", "Other", (".other", ".draw"), "page", "x:y", "a/b")
    with pytest.raises(InvalidInput, match=r"end in \.draw are already read as Drawing"):
        add_document_kind(added(same_ending))
    assert kinds.list_document_kinds() == [*kinds.KINDS, DRAWING]
