"""The tool read_document: the text of a PDF, Word file, spreadsheet and other documents, by pages.

It reads files of the workspace and stored entries, such as the original of an attachment. Pages
without text, such as scanned ones, are shown as pictures.
"""

import asyncio
import re

from helix_desktop.documents import document_kinds, document_reading
from helix_desktop.documents.document_kinds import DocumentKind
from helix_desktop.documents.scanned_pages import MOST_PICTURES_OF_A_CALL, PICTURE_EDGE
from helix_desktop.engine import content_recall, document_pages
from helix_desktop.engine.content_recall import WHOLE_TOKENS
from helix_desktop.engine.document_pages import DocumentText
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import ContentCache, EntryOrigin
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import workspace_roots
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)

_HASH = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class _OpenDocument:
    """A document that was read. `content` is empty where only its text was stored."""

    source: str
    text: DocumentText
    kind: DocumentKind | None = None
    content: bytes = b""


async def read_document(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """The tool: show the text of a document, or of the pages that the call names. A document
    that is too long is shown as a list of its pages.
    """
    name_or_hash = args.text_argument("document").strip()
    wanted_pages = args.text_argument("pages").strip()
    if _HASH.fullmatch(name_or_hash):
        document = await _open_stored_document(name_or_hash, resources)
    else:
        document = await _open_file(name_or_hash, resources)
    if not wanted_pages:
        return await asyncio.to_thread(_whole_text_or_outline, document, resources)
    page_numbers = document_pages.parse_page_numbers(wanted_pages, len(document.text.pages))
    text = document_pages.format_chosen_pages(document.text, page_numbers)
    images = await _draw_pages_without_text(document, page_numbers, resources)
    return ToolOutput(text, source=f"{document.source}, pages {wanted_pages[:40]}", images=images)


async def _open_file(path_text: str, resources: ToolResources) -> _OpenDocument:
    """Read a document of the workspace, after asking for permission to read it."""
    root_path = await resources.permit_reading(path_text, ToolName.READ_DOCUMENT, "Read {}")
    content = await asyncio.to_thread(
        workspace_roots.read_whole_file,
        resources.roots,
        root_path,
        document_reading.LARGEST_DOCUMENT_BYTES,
    )
    displayed_path = resources.roots.display_path(root_path)
    file_name = root_path.full_path.name
    return await _read_document_bytes(
        resources.cache, resources.call.name, displayed_path, file_name, content
    )


async def _open_stored_document(hash_prefix: str, resources: ToolResources) -> _OpenDocument:
    """Read a document of the cache again. An entry may be the text of an attachment, which
    names the entry with the original.
    """
    entry = await content_recall.find_entry(resources.cache, hash_prefix)
    content = await resources.cache.read_content(entry.stored.digest)
    text = document_pages.parse_document_text(content[:1_000].decode("utf-8", "replace"))
    if text is not None:  # This is the text of an attachment; the original is another entry.
        content = await resources.cache.read_content(text.original)
        entry = await content_recall.find_entry(resources.cache, text.original.hex)
    name = entry.about.source or hash_prefix
    return await _read_document_bytes(
        resources.cache, resources.call.name, hash_prefix, name, content
    )


async def read_document_as_text(cache: ContentCache, tool: str, name: str, content: bytes) -> str:
    """Return the text of a document that a tool brought, or why it cannot be read."""
    try:
        document = await _read_document_bytes(cache, tool, name, name, content)
    except InvalidInput as error:
        return f"[{error}]"
    pages = document.text.pages
    return document_pages.format_chosen_pages(document.text, [page.number for page in pages])


async def _read_document_bytes(
    cache: ContentCache, tool: str, source: str, name: str, content: bytes
) -> _OpenDocument:
    """Read a document of any kind as pages of text. Its original is stored first, as the text says
    where to find it.
    """
    kind = await asyncio.to_thread(document_kinds.find_document_kind, name, content)
    if kind is None:
        raise InvalidInput(
            f"{source} is not a document that can be read.",
            remedy="Read text files with read_file.",
        )
    document = await document_reading.read_document_pages(name, content, kind)
    origin = EntryOrigin(tool, name, kind.media_type)
    original = await cache.store_content(content, origin)
    titles_and_texts = [(page.title, page.text) for page in document.pages]
    text = document_pages.format_document_text(
        name, kind.unit, document.unit_count, original.digest, titles_and_texts
    )
    parsed = document_pages.parse_document_text(text)
    if parsed is None:
        raise InvalidInput(f"{source} has no text.")
    return _OpenDocument(source, parsed, kind, content)


def _whole_text_or_outline(document: _OpenDocument, resources: ToolResources) -> ToolOutput:
    text = document.text
    shown_text = document_pages.format_chosen_pages(text, [page.number for page in text.pages])
    if resources.tokens.count_tokens(shown_text) > WHOLE_TOKENS:
        shown_text = document_pages.format_document_outline(text, document.source, WHOLE_TOKENS)
    return ToolOutput(shown_text, source=document.source)


async def _draw_pages_without_text(
    document: _OpenDocument, page_numbers: list[int], resources: ToolResources
) -> tuple[Stored, ...]:
    """Return pictures of those of the pages that have no text, such as scanned ones, up to a number
    for each call. Only pages of a PDF are drawn.
    """
    if document.kind is not document_kinds.PDF:
        return ()
    pages_without_text = {page.number for page in document.text.pages if not page.text.strip()}
    pages_to_draw = [number for number in page_numbers if number in pages_without_text]
    if not pages_to_draw:
        return ()
    pictures = await document_reading.draw_pages(
        document.source,
        document.content,
        document.kind,
        pages_to_draw[:MOST_PICTURES_OF_A_CALL],
        PICTURE_EDGE,
    )
    images: list[Stored] = []
    for picture in pictures:
        title = f"{document.source}, page {picture.page_number}"
        images.append(await resources.store_result(picture.png, title, "image/png"))
    return tuple(images)


READ_DOCUMENT = ToolDeclaration(
    ToolName.READ_DOCUMENT,
    "Read a PDF, Word, PowerPoint, Excel, OpenDocument, EPUB, HTML, notebook, CSV or e-mail (.eml) file as text: an outline, or some pages. Scanned pages are shown as pictures.",
    {
        "type": "object",
        "properties": {
            "document": {"type": "string", "description": "A path, or the hash of a stored entry"},
            "pages": {
                "type": "string",
                "description": "Such as 3-7 or 1, 4; left out: the whole, or the outline of a long document",
            },
        },
        "required": ["document"],
    },
    is_rare=True,
)
TOOLS = (BuiltInTool(READ_DOCUMENT, read_document),)
