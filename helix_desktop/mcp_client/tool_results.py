"""Turns a tool's result into text and pictures. A server's words are data, and our
additions are marked.
"""

import base64
import binascii
import json
from dataclasses import field
from typing import Any

from helix_desktop.documents.document_kinds import find_document_kind
from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import ForeignToolResult
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_IMAGE = 10 << 20


@dataclass(slots=True)
class ServerContent:
    """What a server gave, as far as it was read: texts, pictures and other files."""

    texts: list[str] = field(default_factory=list)
    images: list[tuple[str, bytes]] = field(default_factory=list)
    files: list[tuple[str, bytes]] = field(default_factory=list)

    def append_part(self, part: Any) -> None:
        match getattr(part, "type", ""):
            case "text":
                self.texts.append(part.text)
            case "image":
                self._append_binary_part(part.data, part.mime_type, "picture", "")
            case "audio":
                size = len(part.data) * 3 // 4
                self.texts.append(f"[sound, {part.mime_type}, {size:,} bytes: not shown]")
            case "resource_link":
                about = f": {part.description}" if part.description else ""
                self.texts.append(f"[link to the resource {part.uri} ({part.name}){about}]")
            case "resource":
                self.append_resource(part.resource)

    def append_resource(self, inner: Any) -> None:
        """Append what a server gives to read, after its address."""
        if getattr(inner, "text", None) is not None:
            self.texts.append(f"[resource {inner.uri}]\n{inner.text}")
            return
        address = str(inner.uri)
        kind = inner.mime_type or "application/octet-stream"
        name = address.rpartition("/")[2] or address
        self._append_binary_part(inner.blob, kind, f"resource {address}", name)

    def _append_binary_part(self, data: str, kind: str, what: str, file_name: str) -> None:
        try:
            content = base64.b64decode(data, validate=True)
        except (binascii.Error, ValueError):
            self.texts.append(f"[{what}: its data is damaged]")
            return
        described = f"{what}, {kind}, {len(content):,} bytes"
        if kind in IMAGES and len(content) <= LARGEST_IMAGE:
            self.images.append((kind, content))
            self.texts.append(f"[{described}]")
        elif file_name and find_document_kind(file_name, content) is not None:
            self.files.append((file_name, content))
            self.texts.append(f"[{described}]")
        else:
            self.texts.append(f"[{described}: not shown]")


def convert_tool_result(result: Any) -> ForeignToolResult:
    given = ServerContent()
    for part in result.content:
        given.append_part(part)
    structured = getattr(result, "structured_content", None)
    if structured is not None and not any(
        _repeats_structured(text, structured) for text in given.texts
    ):
        given.texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    text = "\n".join(given.texts) or ("[no text]" if given.images else "[no output]")
    is_ok = not getattr(result, "is_error", False)
    return ForeignToolResult(text, is_ok, tuple(given.images), tuple(given.files))


def _repeats_structured(text: str, structured: Any) -> bool:
    """Whether a text repeats the structured result, completely or as its only value."""
    is_only_value = isinstance(structured, dict) and list(structured.values()) == [text]
    return is_only_value or bool(structured is not None and parse_json_or_none(text) == structured)


def build_tool_spec(server: str, tool: Any) -> ToolSpec:
    """Return a server's tool as offered: with the server's name before its own, and its
    schema unchanged.
    """
    schema = tool.input_schema if isinstance(tool.input_schema, dict) else {}
    description = f"[{server}] {(tool.description or tool.title or tool.name)[:8_000]}"
    return ToolSpec(
        build_tool_name(server, tool.name), description, json.dumps(schema, ensure_ascii=False)
    )


def describe_whole_tool(tool: Any) -> str:
    """Return all that a server says of a tool, of which no part may change unasked. Icons
    and `_meta` are for programs, and may differ each time.
    """
    parts = {"name", "title", "description", "input_schema", "output_schema", "annotations"}
    described: str = tool.model_dump_json(include=parts)
    return described


def build_tool_name(server: str, tool: str) -> str:
    """Return a name of up to 64 legal characters. A digest tells similar names apart."""
    import hashlib
    import re

    plain = f"{server}__{tool}"
    name = re.sub(r"[^A-Za-z0-9_-]", "_", plain)
    is_own = (
        "__" not in server and not server.endswith("_") and not re.search(r"_[0-9a-f]{8}$", name)
    )
    if len(name) <= 64 and name == plain and is_own:
        return name
    return f"{name[:55]}_{hashlib.sha256(f'{server}/{tool}'.encode('utf-8', 'replace')).hexdigest()[:8]}"
