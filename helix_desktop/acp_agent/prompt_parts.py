"""Turns what an editor sends into the parts of a message of the user."""

import base64
import binascii
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import schema

from helix_desktop.engine.facts import Text, UserPart
from helix_desktop.errors import InvalidInput
from helix_desktop.workbench import Workbench

PROMPT_IMAGES = ("image/png", "image/jpeg", "image/gif", "image/webp")


async def build_user_parts(bench: Workbench, blocks: Sequence[Any]) -> tuple[UserPart, ...]:
    """The parts in their order. Content goes into the cache; of a linked file the agent learns the name, and reads it by its rules."""
    return tuple([await _convert_prompt_block(bench, block) for block in blocks])


async def _convert_prompt_block(bench: Workbench, block: Any) -> UserPart:
    match block:
        case schema.TextContentBlock():
            return Text(block.text)
        case schema.ResourceContentBlock():
            return Text(f"[{block.name}]({name_of_uri(block.uri)})")
        case schema.ImageContentBlock():
            return await _attach_bytes(bench, name_of_uri(block.uri or "image"), block.data, block.mime_type)
        case schema.EmbeddedResourceContentBlock(resource=schema.TextResourceContents() as text):
            return await bench.attach_content(name_of_uri(text.uri), text.text.encode("utf-8", "replace"), "text/plain")
        case schema.EmbeddedResourceContentBlock():
            kind = block.resource.mime_type or ""
            return await _attach_bytes(bench, name_of_uri(block.resource.uri), block.resource.blob, kind)
    raise InvalidInput("This kind of content cannot be sent to the agent.", remedy="Send text, images or files.")


async def _attach_bytes(bench: Workbench, name: str, data: str, kind: str) -> UserPart:
    if kind not in PROMPT_IMAGES and not kind.startswith("text/"):
        raise InvalidInput(f"{name} has a type that models do not read ({kind[:60]}).")
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise InvalidInput(f"{name} is not valid base64.") from error
    return await bench.attach_content(name, content, kind if kind in PROMPT_IMAGES else "text/plain")


def name_of_uri(uri: str) -> str:
    """A file's path; any other address as it is."""
    parts = urlsplit(uri)
    return str(PurePosixPath(unquote(parts.path))) if parts.scheme == "file" else uri
