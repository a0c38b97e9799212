"""The kinds of documents that are read, one declaration for each, and how a file's kind is found.

A file's content decides before its name does, because a report saved as `report.txt` by
mistake is still a PDF. Formats that are plain text (HTML, notebooks, CSV) have no mark in
their content, so their name decides.
"""

import io
import zipfile
from collections.abc import Callable
from pathlib import PurePath

from helix_desktop.decompression import open_foreign_archive
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass

MOST_MEMBERS = 20_000  # A presentation of 2,000 slides has about 10,000 members.
_PDF_MARK_WITHIN = 1_024  # Some scanners write a line before the mark.
_OLE_MARK = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Old Office files, and new ones with a password.
_ENCRYPTED_PACKAGE = "EncryptedPackage".encode("utf-16-le")


@dataclass(frozen=True, slots=True)
class DocumentKind:
    """A format. `unit` is what its pages are called: "page", "section", "slide", "sheet", "chapter",
    "cell" or "part". `reader` names a function as "module:function". It gets the document's bytes
    and yields its pages, in the limited process of `document_worker.py`.

    How the program's own kinds are recognized by their content: `is_plain_text`, which a file with
    zeros is not; a ZIP archive with the member `mimetype` (`names_itself`) or with a folder
    (`archive_folder`); `is_ole`: an old Office file, or one with a password.
    """

    name: str
    title: str
    endings: tuple[str, ...]
    unit: str
    reader: str
    media_type: str
    is_plain_text: bool = False
    names_itself: bool = False
    archive_folder: str = ""
    is_ole: bool = False


_READERS = "helix_desktop.documents.readers"

PDF = DocumentKind(
    "pdf", "PDF", (".pdf",), "page", f"{_READERS}.pdf_reader:read_pdf_pages", "application/pdf"
)
WORD = DocumentKind(
    "docx",
    "Word",
    (".docx", ".docm", ".dotx"),
    "section",
    f"{_READERS}.word_reader:read_word_sections",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    archive_folder="word/",
    is_ole=True,
)
POWERPOINT = DocumentKind(
    "pptx",
    "PowerPoint",
    (".pptx", ".pptm", ".ppsx"),
    "slide",
    f"{_READERS}.powerpoint_reader:read_slides",
    "application/vnd.openxmlformats-officedocument.presentationml.presentation",
    archive_folder="ppt/",
    is_ole=True,
)
EXCEL = DocumentKind(
    "xlsx",
    "Excel",
    (".xlsx", ".xlsm", ".xlsb"),
    "sheet",
    f"{_READERS}.spreadsheet_reader:read_sheets",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    archive_folder="xl/",
    is_ole=True,
)
OLD_EXCEL = DocumentKind(
    "xls",
    "Excel",
    (".xls",),
    "sheet",
    f"{_READERS}.spreadsheet_reader:read_sheets",
    "application/vnd.ms-excel",
    is_ole=True,
)
ODT = DocumentKind(
    "odt",
    "OpenDocument text",
    (".odt", ".ott"),
    "section",
    f"{_READERS}.open_document_reader:read_open_document",
    "application/vnd.oasis.opendocument.text",
    names_itself=True,
)
ODP = DocumentKind(
    "odp",
    "OpenDocument presentation",
    (".odp",),
    "slide",
    f"{_READERS}.open_document_reader:read_open_document",
    "application/vnd.oasis.opendocument.presentation",
    names_itself=True,
)
ODS = DocumentKind(
    "ods",
    "OpenDocument spreadsheet",
    (".ods",),
    "sheet",
    f"{_READERS}.spreadsheet_reader:read_sheets",
    "application/vnd.oasis.opendocument.spreadsheet",
    names_itself=True,
)
EPUB = DocumentKind(
    "epub",
    "EPUB",
    (".epub",),
    "chapter",
    f"{_READERS}.epub_reader:read_chapters",
    "application/epub+zip",
    names_itself=True,
)
HTML = DocumentKind(
    "html",
    "HTML",
    (".html", ".htm", ".xhtml"),
    "section",
    f"{_READERS}.html_reader:read_html_sections",
    "text/html",
    is_plain_text=True,
)
NOTEBOOK = DocumentKind(
    "ipynb",
    "notebook",
    (".ipynb",),
    "cell",
    f"{_READERS}.notebook_reader:read_notebook_cells",
    "application/x-ipynb+json",
    is_plain_text=True,
)
CSV = DocumentKind(
    "csv",
    "CSV",
    (".csv", ".tsv"),
    "part",
    f"{_READERS}.csv_reader:read_csv_rows",
    "text/csv",
    is_plain_text=True,
)
EMAIL = DocumentKind(
    "eml",
    "e-mail",
    (".eml",),
    "part",
    f"{_READERS}.email_reader:read_email",
    "message/rfc822",
    is_plain_text=True,
)
KINDS = (
    PDF,
    WORD,
    POWERPOINT,
    EXCEL,
    OLD_EXCEL,
    ODT,
    ODP,
    ODS,
    EPUB,
    HTML,
    NOTEBOOK,
    CSV,
    EMAIL,
)
# Formats that no reader takes, with the format to save them in instead.
UNREAD_ENDINGS = {
    ".doc": "docx",
    ".rtf": "docx",
    ".pages": "docx",
    ".ppt": "pptx",
    ".key": "pptx",
    ".numbers": "xlsx",
    ".mobi": "epub",
    ".azw3": "epub",
    ".djvu": "PDF",
    ".xps": "PDF",
    ".ps": "PDF",
}


@dataclass(frozen=True, slots=True)
class AddedDocumentKind:
    """A kind that an extension declares. `folders`: where its reader's module is found.

    `check_unchanged` raises InvalidInput if the extension's files are not those that the user
    allowed. It is called before each document, because the reader is loaded anew for each.
    """

    kind: DocumentKind
    folders: tuple[str, ...]
    check_unchanged: Callable[[], None]


_added: dict[str, AddedDocumentKind] = {}


def add_document_kind(added: AddedDocumentKind) -> None:
    """Add a kind. Raises InvalidInput for a name or an ending that another kind has."""
    kind = added.kind
    for other in list_document_kinds():
        if other.name == kind.name:
            raise InvalidInput(f"There is another kind of document named {kind.name!r}.")
        for ending in kind.endings:
            if ending in other.endings:
                raise InvalidInput(f"Files that end in {ending} are already read as {other.title}.")
    _added[kind.name] = added


def remove_document_kind(name: str) -> None:
    _added.pop(name, None)


def find_added_document_kind(name: str) -> AddedDocumentKind | None:
    return _added.get(name)


def list_document_kinds() -> list[DocumentKind]:
    """Return the program's own kinds, and then those of extensions."""
    kinds = list(KINDS)
    for added in _added.values():
        kinds.append(added.kind)
    return kinds


def find_document_kind(name: str, content: bytes) -> DocumentKind | None:
    """Return the kind of a file, or None if it is plain text, a picture or something else."""
    if b"%PDF-" in content[:_PDF_MARK_WITHIN]:
        return PDF
    if content.startswith(b"PK\x03\x04"):
        return _find_kind_of_archive(content) or _find_added_kind_by_ending(name)
    kind_by_ending = find_kind_by_ending(name)
    if content.startswith(_OLE_MARK):
        if kind_by_ending is not None and kind_by_ending.is_ole:
            return kind_by_ending
        return None
    # A file that is called .docx but contains anything else is damaged, which its reader says.
    is_utf16 = content.startswith((b"\xff\xfe", b"\xfe\xff"))
    has_zeros = b"\0" in content[:4_096]
    is_other_content = has_zeros and not is_utf16
    if kind_by_ending is not None and kind_by_ending.is_plain_text and is_other_content:
        return None
    return kind_by_ending


def find_kind_by_ending(name: str) -> DocumentKind | None:
    ending = PurePath(name).suffix.lower()
    for kind in list_document_kinds():
        if ending in kind.endings:
            return kind
    return None


def _find_added_kind_by_ending(name: str) -> DocumentKind | None:
    kind = find_kind_by_ending(name)
    if kind is not None and kind.name in _added:
        return kind
    return None


def is_office_file_with_password(content: bytes) -> bool:
    """Whether this is an Office file that was encrypted: another container around the archive."""
    return content.startswith(_OLE_MARK) and _ENCRYPTED_PACKAGE in content


def _find_kind_of_archive(content: bytes) -> DocumentKind | None:
    """Tell by the members of a ZIP archive which kind of document it is, or None.

    OpenDocument files and books name their kind in a member `mimetype`. Office files have a
    folder that tells it.
    """
    try:
        with open_foreign_archive(io.BytesIO(content), MOST_MEMBERS) as archive:
            names = archive.namelist()
            mimetype = b""
            if "mimetype" in names:
                mimetype = archive.read("mimetype")[:200]
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return _find_kind_of_unreadable_archive(content)
    declared = mimetype.decode("ascii", "replace").strip()
    for kind in KINDS:
        if kind.names_itself and declared == kind.media_type:
            return kind
    for kind in KINDS:
        folder = kind.archive_folder
        if folder and any(name.startswith(folder) for name in names):
            return kind
    return None


def _find_kind_of_unreadable_archive(content: bytes) -> DocumentKind | None:
    """Guess by the names of members that stand in the bytes, so that a damaged report is called a
    damaged report and not an unknown file.
    """
    for kind in KINDS:
        if kind.archive_folder and kind.archive_folder.encode() in content:
            return kind
    beginning = content[:_PDF_MARK_WITHIN]
    for kind in KINDS:
        if kind.names_itself and kind.media_type.encode() in beginning:
            return kind
    return None
