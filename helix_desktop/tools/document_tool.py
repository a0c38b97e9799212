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
    ToolArguments,
    ToolOutput,
    ToolResources,
    declare_tool,
)
from helix_desktop.tools.permission import ActionEffect, ToolAction

_HASH = re.compile(r"[0-9a-f]{8,64}")


@dataclass(frozen=True, slots=True)
class _OpenDocument:
    """A document that was read. `content` is empty where only its text was stored."""

    source: str
    text: DocumentText
    kind: DocumentKind | None = None
    content: bytes = b""


async def read_document(args: ToolArguments, use: ToolResources) -> ToolOutput:
    named = args.text_argument("document").strip()
    asked = args.text_argument("pages").strip()
    if _HASH.fullmatch(named):
        document = await _open_stored_document(named, use)
    else:
        document = await _open_file(named, use)
    if not asked:
        return await asyncio.to_thread(_whole_text_or_outline, document, use)
    numbers = document_pages.parse_page_numbers(asked, len(document.text.pages))
    text = document_pages.format_chosen_pages(document.text, numbers)
    images = await _draw_pages_without_text(document, numbers, use)
    return ToolOutput(text, source=f"{document.source}, pages {asked[:40]}", images=images)


async def _open_file(named: str, use: ToolResources) -> _OpenDocument:
    place = use.roots.resolve_path(named)
    shown = use.roots.display_path(place)
    await use.permit(
        ToolAction(ToolName.READ_DOCUMENT, ActionEffect.READ, f"Read {shown}", shown, path=shown)
    )
    content = await asyncio.to_thread(
        workspace_roots.read_whole_file, use.roots, place, document_reading.LARGEST_DOCUMENT
    )
    return await _read_document_bytes(
        use.cache, use.call.name, shown, place.full_path.name, content
    )


async def _open_stored_document(named: str, use: ToolResources) -> _OpenDocument:
    entry = await content_recall.find_entry(use.cache, named)
    content = await use.cache.read_content(entry.stored.digest)
    text = document_pages.parse_document_text(content[:1_000].decode("utf-8", "replace"))
    if text is not None:  # This is the text of an attachment; the original is another entry.
        content = await use.cache.read_content(text.original)
        entry = await content_recall.find_entry(use.cache, text.original.hex)
    name = entry.about.source or named
    return await _read_document_bytes(use.cache, use.call.name, named, name, content)


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
    kind = await asyncio.to_thread(document_kinds.find_document_kind, name, content)
    if kind is None:
        raise InvalidInput(
            f"{source} is not a document that can be read.",
            remedy="Read text files with read_file.",
        )
    document = await document_reading.read_document_pages(name, content, kind)
    original = await cache.store_content(content, EntryOrigin(tool, name, kind.media_type))
    text = document_pages.format_document_text(
        name,
        kind.unit,
        document.unit_count,
        original.digest,
        [(page.title, page.text) for page in document.pages],
    )
    parsed = document_pages.parse_document_text(text)
    if parsed is None:
        raise InvalidInput(f"{source} has no text.")
    return _OpenDocument(source, parsed, kind, content)


def _whole_text_or_outline(document: _OpenDocument, use: ToolResources) -> ToolOutput:
    text = document.text
    whole = document_pages.format_chosen_pages(text, [page.number for page in text.pages])
    if use.tokens.count_tokens(whole) > WHOLE_TOKENS:
        whole = document_pages.format_document_outline(text, document.source, WHOLE_TOKENS)
    return ToolOutput(whole, source=document.source)


async def _draw_pages_without_text(
    document: _OpenDocument, numbers: list[int], use: ToolResources
) -> tuple[Stored, ...]:
    if document.kind is not document_kinds.PDF:
        return ()
    empty = {page.number for page in document.text.pages if not page.text.strip()}
    wanted = [number for number in numbers if number in empty][:MOST_PICTURES_OF_A_CALL]
    if not wanted:
        return ()
    drawn = await document_reading.draw_pages(
        document.source, document.content, document.kind, wanted, PICTURE_EDGE
    )
    images: list[Stored] = []
    for picture in drawn:
        title = f"{document.source}, page {picture.page_number}"
        images.append(await use.store_result(picture.png, title, "image/png"))
    return tuple(images)


TOOLS = (declare_tool(ToolName.READ_DOCUMENT, read_document),)
