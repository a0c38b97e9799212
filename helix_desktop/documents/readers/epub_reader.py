"""EPUB: the chapters of a book, in the order they are read."""

import posixpath
from collections.abc import Iterator
from urllib.parse import unquote

from helix_desktop.documents.document_archive import (
    DocumentArchive,
    Element,
    attribute_named,
    descendants_named,
    open_document_archive,
)
from helix_desktop.documents.document_page import (
    DocumentDamaged,
    DocumentNeedsPassword,
    DocumentPage,
)
from helix_desktop.documents.readers.html_reader import decode_html, read_html_text

_ENCRYPTION = "META-INF/encryption.xml"
_TEXT_ENDINGS = (".xhtml", ".html", ".htm", ".xml")


def read_chapters(content: bytes) -> Iterator[DocumentPage]:
    """Yield a book's chapters. Its file `container.xml` names the package file, which lists the
    chapters in their order.
    """
    with open_document_archive(content) as archive:
        _check_chapters_are_not_encrypted(archive)
        container = archive.read_xml("META-INF/container.xml")
        root_file = next(descendants_named(container, "rootfile"), None)
        package_name = attribute_named(root_file, "full-path")
        package = archive.read_xml(package_name)
        chapter_number = 0
        for member in _members_in_reading_order(package, posixpath.dirname(package_name)):
            if member not in archive.names:
                continue
            chapter_number += 1
            sections = read_html_text(decode_html(archive.read_member(member))).finish_sections()
            text = "\n\n".join(section.text for section in sections)
            yield DocumentPage(text, _first_title(sections), chapter_number)
        if not chapter_number:
            raise DocumentDamaged("it has no chapters")


def _first_title(sections: list[DocumentPage]) -> str:
    for section in sections:
        if section.title:
            return section.title
    return ""


def _members_in_reading_order(package: Element, folder: str) -> Iterator[str]:
    """Yield the names of the chapters' files: the package lists all files by their ids, and
    then the ids in the order of reading.
    """
    paths: dict[str, str] = {}
    for item in descendants_named(package, "item"):
        target = unquote(item.get("href", "").partition("#")[0])
        paths[item.get("id", "")] = posixpath.normpath(posixpath.join(folder, target))
    for reference in descendants_named(package, "itemref"):
        item_id = reference.get("idref", "")
        if item_id in paths:
            yield paths[item_id]


def _check_chapters_are_not_encrypted(archive: DocumentArchive) -> None:
    """Many books encrypt their fonts, which no reader needs. Encrypted chapters cannot be read."""
    encryption = archive.read_xml_or_none(_ENCRYPTION)
    for reference in descendants_named(encryption, "CipherReference"):
        if attribute_named(reference, "URI").lower().endswith(_TEXT_ENDINGS):
            raise DocumentNeedsPassword("its chapters are encrypted")
