"""Members of a document that is a ZIP archive, within limits, as bytes and as XML."""

import io
import posixpath
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from xml.etree import ElementTree as ET

from helix_desktop.decompression import open_foreign_archive, read_archive_member
from helix_desktop.documents.document_kinds import MOST_MEMBERS
from helix_desktop.documents.document_page import (
    DocumentDamaged,
    DocumentNeedsPassword,
    DocumentTooLarge,
)

Element = ET.Element
LARGEST_MEMBER_BYTES = 64 << 20
MOST_BYTES_READ = 256 << 20  # All members that are read, unpacked.
LONGEST_NUMBER = 9  # Digits of a number in an attribute. Python refuses to read 5,000.
_DECLARATIONS_WITHIN = 1 << 16


class DocumentArchive:
    """An open document. What is read of it is counted, however often a member is named."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self._archive = archive
        self._bytes_left = MOST_BYTES_READ
        self.names = frozenset(archive.namelist())

    def read_member(self, name: str) -> bytes:
        """Return the unpacked content of a file in the archive. Raise DocumentTooLarge before
        unpacking if it is too large, alone or with what was read before.
        """
        if name not in self.names:
            raise DocumentDamaged(f"it has no {name}")
        declared_bytes = self._archive.getinfo(name).file_size
        if declared_bytes > min(LARGEST_MEMBER_BYTES, self._bytes_left):
            raise DocumentTooLarge(name)
        content = read_archive_member(self._archive, name, LARGEST_MEMBER_BYTES)
        self._bytes_left -= len(content)
        return content

    def read_xml(self, name: str) -> Element:
        return parse_foreign_xml(self.read_member(name))

    def read_xml_or_none(self, name: str) -> Element | None:
        if name not in self.names:
            return None
        return self.read_xml(name)

    def check_is_not_encrypted(self) -> None:
        """Raise DocumentNeedsPassword if an OpenDocument file says that its members are encrypted."""
        manifest = "META-INF/manifest.xml"
        if manifest in self.names and b"encryption-data" in self.read_member(manifest):
            raise DocumentNeedsPassword("its members are encrypted")

    def check_unpacked_size(self) -> None:
        """Raise DocumentTooLarge if the members together unpack to more than is read. For
        libraries that unpack the archive themselves.
        """
        unpacked_bytes = sum(member.file_size for member in self._archive.infolist())
        if unpacked_bytes > MOST_BYTES_READ:
            raise DocumentTooLarge("its members")


@contextmanager
def open_document_archive(content: bytes) -> Iterator[DocumentArchive]:
    """Open a document that is a ZIP archive. The library's errors, also those of later reading,
    become those that say what is wrong with the document.
    """
    try:
        with open_foreign_archive(io.BytesIO(content), MOST_MEMBERS) as archive:
            yield DocumentArchive(archive)
    except zipfile.BadZipFile as error:
        reason = str(error)
        if any(words in reason for words in ("larger than", "too large", "more than")):
            raise DocumentTooLarge(reason) from error
        raise DocumentDamaged(reason) from error
    except RuntimeError as error:  # The library's answer to an encrypted member.
        raise DocumentNeedsPassword(str(error)) from error


def parse_foreign_xml(content: bytes) -> Element:
    """Parse XML that declares no entities. Office programs write none, and entities that contain
    each other are the usual bomb.
    """
    if b"<!ENTITY" in content[:_DECLARATIONS_WITHIN]:
        raise DocumentDamaged("it declares entities")
    try:
        return ET.fromstring(content)  # noqa: S314 -- in the limited process, see above
    except ET.ParseError as error:
        raise DocumentDamaged(str(error)) from error


def local_name(element: Element) -> str:
    """Return a tag without its namespace, which two editions of the same format spell apart."""
    if not isinstance(element.tag, str):  # A comment, or an instruction to a program.
        return ""
    return element.tag.rpartition("}")[2]


def attribute_named(element: Element | None, name: str) -> str:
    """Return an attribute by its name without a namespace, or an empty text. Of no element, as of
    one that was looked for and is not there, every attribute is empty.
    """
    if element is None:
        return ""
    for key, value in element.attrib.items():
        if key.rpartition("}")[2] == name:
            return value
    return ""


def number_attribute(element: Element | None, name: str, otherwise: int = 0) -> int:
    """Return an attribute that is a whole number, or `otherwise`."""
    value = attribute_named(element, name)
    if not value.isdecimal() or len(value) > LONGEST_NUMBER:
        return otherwise
    return int(value)


def child_named(element: Element | None, name: str) -> Element | None:
    if element is None:
        return None
    for child in element:
        if local_name(child) == name:
            return child
    return None


def descendants_named(element: Element | None, name: str) -> Iterator[Element]:
    if element is None:
        return
    for descendant in element.iter():
        if local_name(descendant) == name:
            yield descendant


def read_relations(archive: DocumentArchive, member: str) -> dict[str, tuple[str, str]]:
    """Return a member's relations in an Office file: the last word of the type and the member's
    name, by id. Relations that lead out of the document are left out: nothing is fetched.
    """
    folder, name = posixpath.split(member)
    listing = archive.read_xml_or_none(f"{folder}/_rels/{name}.rels")
    relations: dict[str, tuple[str, str]] = {}
    if listing is None:
        return relations
    for relation in listing:
        if relation.get("TargetMode") == "External":
            continue
        path = relation.get("Target", "")
        if not path.startswith("/"):
            path = posixpath.normpath(posixpath.join(folder, path))
        kind = relation.get("Type", "").rpartition("/")[2]
        relations[relation.get("Id", "")] = (kind, path.lstrip("/"))
    return relations
