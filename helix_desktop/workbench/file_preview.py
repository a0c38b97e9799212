"""Finds and reads a file for the preview: a path as somebody wrote it, within the folders."""

import asyncio
import re
from dataclasses import replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from helix_desktop.documents import document_kinds
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.document_reading import read_document_pages
from helix_desktop.engine.facts import Attachment, Stored
from helix_desktop.engine.hidden_characters import is_mostly_text
from helix_desktop.engine.ports import ContentReader
from helix_desktop.errors import HelixError, InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import file_text, workspace_roots
from helix_desktop.tools.workspace_roots import RootPath, WorkspaceRoots

LARGEST_PREVIEW = 32 << 20
_MOST_LOOKED_AT = 20_000  # Files of a folder, to find one by the end of its path.
_MOST_NAMED = 3
_BEGINNING_OF_RELATIVE_PATH = re.compile(r"\A(?:\.{0,2}/)+")


class PreviewKind(StrEnum):
    """How a file is shown."""

    TEXT = "text"
    MARKDOWN = "markdown"
    PICTURE = "picture"
    SVG = "svg"
    PAGES = "pages"
    TABLE = "table"
    HTML = "html"
    DOCUMENT = "document"
    OTHER = "other"


_KINDS_BY_ENDING = {
    ".md": PreviewKind.MARKDOWN, ".markdown": PreviewKind.MARKDOWN, ".svg": PreviewKind.SVG,
    ".csv": PreviewKind.TABLE, ".tsv": PreviewKind.TABLE, ".html": PreviewKind.HTML,
    ".htm": PreviewKind.HTML, ".png": PreviewKind.PICTURE, ".jpg": PreviewKind.PICTURE,
    ".jpeg": PreviewKind.PICTURE, ".gif": PreviewKind.PICTURE, ".webp": PreviewKind.PICTURE,
    ".bmp": PreviewKind.PICTURE, ".ico": PreviewKind.PICTURE,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class PreviewedFile:
    """A file as it was read. `text`: of a text, its own, and of a document, what was read from it.
    `page_count`: a PDF's pages. `stored`: what was read instead of a file, if it is an attachment;
    it has no path then.
    """

    shown_path: str
    full_path: Path
    kind: PreviewKind
    content: bytes
    text: str = ""
    page_count: int = 0
    stored: Stored | None = None

    @property
    def is_drawn_picture(self) -> bool:
        return self.kind in (PreviewKind.PICTURE, PreviewKind.SVG)


async def read_previewed_file(roots: WorkspaceRoots, written_path: str) -> PreviewedFile:
    """Read a file for the preview, and the pages of a document. A path that names no file, or
    several, raises an error.
    """
    try:
        path = await asyncio.to_thread(_find_written_path, roots, written_path)
        content = await asyncio.to_thread(
            workspace_roots.read_whole_file, roots, path, LARGEST_PREVIEW
        )
    except HelixError as error:
        error.remedy = ""  # It tells an agent with which tools it can go on.
        raise
    preview = await _read_previewed_content(roots.display_path(path), content)
    return replace(preview, full_path=path.full_path)


async def read_previewed_attachment(
    contents: ContentReader, attachment: Attachment
) -> PreviewedFile:
    """Read what was attached for the preview: of a document, the document and not its text."""
    stored = attachment.stored
    if attachment.document is not None:
        stored = attachment.document.original
    if stored.size > LARGEST_PREVIEW:
        raise InvalidInput(f"{attachment.name} is too large to be shown from here.")
    content = await contents.read_content(stored.digest)
    preview = await _read_previewed_content(attachment.name, content)
    is_unnamed_picture = stored.media_type.startswith("image/") and not preview.is_drawn_picture
    if is_unnamed_picture:
        preview = replace(preview, kind=PreviewKind.PICTURE, text="")
    return replace(preview, stored=stored)


async def _read_previewed_content(shown_path: str, content: bytes) -> PreviewedFile:
    document_kind = await asyncio.to_thread(document_kinds.find_document_kind, shown_path, content)
    kind = _choose_preview_kind(shown_path, content, document_kind)
    has_pages = document_kind is not None and kind in (PreviewKind.PAGES, PreviewKind.DOCUMENT)
    is_plain_picture = kind is PreviewKind.PICTURE and document_kind is None

    text = ""
    page_count = 0
    if document_kind is not None and has_pages:
        document = await read_document_pages(shown_path, content, document_kind)
        text = "\n\n".join(page.text for page in document.pages)
        page_count = len(document.pages)
    elif kind is not PreviewKind.OTHER and not is_plain_picture:
        text = _decode_preview_text(content)
    return PreviewedFile(shown_path, Path(), kind, content, text, page_count)


def _choose_preview_kind(
    name: str, content: bytes, document_kind: DocumentKind | None
) -> PreviewKind:
    """Return how a file is shown, by what it contains and then by the ending of its
    name.
    """
    if document_kind is document_kinds.PDF:
        return PreviewKind.PAGES
    by_ending = _KINDS_BY_ENDING.get(PurePosixPath(name).suffix.lower())
    if by_ending is not None:
        return by_ending
    is_shown_as_text = document_kind is None or document_kind is document_kinds.NOTEBOOK
    if not is_shown_as_text:
        return PreviewKind.DOCUMENT
    # Every second byte of an ordinary text in UTF-16 is zero.
    is_utf_16 = file_text.detect_encoding(content) != "utf-8"
    if not is_utf_16 and not is_mostly_text(content):
        return PreviewKind.OTHER
    return PreviewKind.TEXT


def _decode_preview_text(content: bytes) -> str:
    encoding = file_text.detect_encoding(content)
    return content.decode(encoding, "replace").removeprefix("\ufeff")


def _find_written_path(roots: WorkspaceRoots, written_path: str) -> RootPath:
    """Return the file that a path means: as it stands, without what a difference puts before it, or
    the only file whose path ends so. Raises NotFound if there is none.
    """
    first_error: HelixError | None = None
    for spelling in _spellings_of(written_path):
        try:
            path = roots.resolve_path(spelling)
            if not _names_a_folder(roots, path):
                return path
            first_error = first_error or InvalidInput(f"{spelling} is a folder.")
        except HelixError as error:
            first_error = first_error or error
    candidates = _find_by_end_of_path(roots, written_path)
    if len(candidates) == 1:
        return candidates[0]
    if candidates:
        names = ", ".join(roots.display_path(path) for path in candidates[:_MOST_NAMED])
        raise InvalidInput(f"Several files are called {written_path}: {names}.")
    raise first_error or NotFound(f"There is no file {written_path} in this workspace.")


def _spellings_of(written_path: str) -> list[str]:
    """Return what a path may mean, each once: as it stands, and without the `a/` or `b/` that a
    difference puts before it.
    """
    with_slashes = written_path.replace("\\", "/")
    spellings = [written_path, with_slashes, with_slashes.removeprefix("./")]
    for prefix in ("a/", "b/"):
        if with_slashes.startswith(prefix):
            spellings.append(with_slashes.removeprefix(prefix))
    return list(dict.fromkeys(spellings))


def _names_a_folder(roots: WorkspaceRoots, path: RootPath) -> bool:
    workspace_roots.stat_path(roots, path)  # Raises an error if nothing is there.
    return path.full_path.is_dir()


def _find_by_end_of_path(roots: WorkspaceRoots, written_path: str) -> list[RootPath]:
    """Return files whose path ends in what is written, which may be relative to another
    folder.
    """
    with_slashes = written_path.replace("\\", "/")
    # A name may itself begin with a dot, as .github does.
    end_of_path = _BEGINNING_OF_RELATIVE_PATH.sub("", with_slashes)
    if not end_of_path:
        return []
    matches: list[RootPath] = []
    file_count = 0
    for folder in roots.folders:
        for path_in_folder, _ in workspace_roots.walk_files(roots, RootPath(folder, "")):
            file_count += 1
            if file_count > _MOST_LOOKED_AT:
                return matches
            if f"/{path_in_folder}".endswith(f"/{end_of_path}"):
                matches.append(RootPath(folder, path_in_folder))
    return matches
