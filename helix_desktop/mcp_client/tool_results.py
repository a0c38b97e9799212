"""Turns a tool's result into text and pictures. A server's words are data, and our
additions are marked.
"""

import base64
import binascii
import hashlib
import json
import re
from dataclasses import field
from typing import Any

from helix_desktop.documents.document_kinds import find_document_kind
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import ForeignToolResult
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import has_more_values, parse_json_or_none

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_IMAGE = 10 << 20
MOST_VALUES = 500_000  # Of the texts of a result that are compared with its structured part.
LONGEST_TOOL_NAME = 64  # In characters. Some providers refuse longer names.
LONGEST_DESCRIPTION = 8_000  # In characters. The end of a longer description is left out.
_ILLEGAL_IN_NAME = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_AT_END = re.compile(r"_[0-9a-f]{8}$")


@dataclass(slots=True)
class ServerContent:
    """What a server gave, as far as it was read: texts, pictures and other files."""

    texts: list[str] = field(default_factory=list)
    images: list[tuple[str, bytes]] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)

    def append_part(self, part: Any) -> None:
        """Append a part of a result. Kinds that are not known are left out."""
        kind = getattr(part, "type", "")
        if kind == "text":
            self.texts.append(part.text)
        elif kind == "image":
            self._append_binary_part(part.data, part.mime_type, "picture", file_name="")
        elif kind == "audio":
            size = len(part.data) * 3 // 4  # Four characters of base64 stand for three bytes.
            self.texts.append(f"[sound, {part.mime_type}, {size:,} bytes: not shown]")
        elif kind == "resource_link":
            description = ""
            if part.description:
                description = f": {part.description}"
            self.texts.append(f"[link to the resource {part.uri} ({part.name}){description}]")
        elif kind == "resource":
            self.append_resource(part.resource)

    def append_resource(self, resource: Any) -> None:
        """Append what a server gives to read, after its address."""
        address = str(resource.uri)
        if getattr(resource, "text", None) is not None:
            self.texts.append(f"[resource {address}]\n{resource.text}")
            return
        media_type = resource.mime_type or "application/octet-stream"
        file_name = address.rpartition("/")[2] or address
        self._append_binary_part(resource.blob, media_type, f"resource {address}", file_name)

    def _append_binary_part(
        self, data: str, media_type: str, description: str, file_name: str
    ) -> None:
        """Append a picture or a document, or only a note if it can be shown as neither."""
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.texts.append(f"[{description}: its data is damaged]")
            return
        full_description = f"{description}, {media_type}, {len(content):,} bytes"
        if media_type in IMAGES and len(content) <= LARGEST_IMAGE:
            self.images.append((media_type, content))
            self.texts.append(f"[{full_description}]")
        elif file_name and find_document_kind(file_name, content) is not None:
            self.files.append((file_name, content))
            self.texts.append(f"[{full_description}]")
        else:
            self.texts.append(f"[{full_description}: not shown]")


def convert_tool_result(result: Any) -> ForeignToolResult:
    """Return a server's result in the form in which the model gets it.

    Its texts become one, in which a note stands for each picture and file.
    """
    content = ServerContent()
    for part in result.content:
        content.append_part(part)
    structured = getattr(result, "structured_content", None)
    if structured is not None:
        # Most servers give the same once more as text, for clients that know no structured results.
        if not _repeats_structured(content.texts, structured):
            content.texts.append(json.dumps(structured, ensure_ascii=False, indent=1))

    text = "\n".join(content.texts)
    if not text and content.images:
        text = "[no text]"
    elif not text:
        text = "[no output]"
    is_ok = not getattr(result, "is_error", False)
    return ForeignToolResult(text, is_ok, tuple(content.images), tuple(content.files))


def _repeats_structured(texts: list[str], structured: Any) -> bool:
    """Whether one of the texts repeats the structured result, completely or as its only value."""
    is_single_value = isinstance(structured, dict) and len(structured) == 1
    if is_single_value and next(iter(structured.values())) in texts:
        return True
    # A server may give a hundred thousand texts. All together are parsed like one message.
    most_values_of_each = MOST_VALUES // max(len(texts), 1)
    for text in texts:
        has_too_many = has_more_values(text.encode("utf-8", "replace"), most_values_of_each)
        if not has_too_many and parse_json_or_none(text) == structured:
            return True
    return False


def build_tool_spec(server: str, tool: Any) -> ToolSpec:
    """Return a server's tool as offered: with the server's name before its own, and its
    schema unchanged.
    """
    schema: dict[str, Any] = {}
    if isinstance(tool.input_schema, dict):
        schema = tool.input_schema
    description = tool.description or tool.title or tool.name
    return ToolSpec(
        name=build_tool_name(server, tool.name),
        description=f"[{server}] {description[:LONGEST_DESCRIPTION]}",
        schema=json.dumps(schema, ensure_ascii=False),
    )


def describe_whole_tool(tool: Any) -> str:
    """Return all that a server says of a tool, of which no part may change unasked. Icons
    and `_meta` are for programs, and may differ each time.
    """
    parts = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
    described: str = tool.model_dump_json(include=parts)
    return described


def build_tool_name(server: str, tool: str) -> str:
    """Return the name under which the model calls a server's tool: `server__tool`.

    Providers allow 64 characters of a few kinds. Where the name has to be changed for that, or
    could be that of another tool, it ends with a digest of the real name.
    """
    whole_name = f"{server}__{tool}"
    legal_name = _ILLEGAL_IN_NAME.sub("_", whole_name)
    # Two servers, or a name with a digest, must not be able to make one name.
    is_ambiguous = "__" in server or server.endswith("_") or _DIGEST_AT_END.search(legal_name)
    is_legal = legal_name == whole_name and len(whole_name) <= LONGEST_TOOL_NAME
    if is_legal and not is_ambiguous:
        return legal_name
    digest = hashlib.sha256(f"{server}/{tool}".encode("utf-8", "replace")).hexdigest()
    ending = f"_{digest[:8]}"
    return legal_name[: LONGEST_TOOL_NAME - len(ending)] + ending
