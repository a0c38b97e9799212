"""Turns a tool's result into text and pictures. A server's words are data, and our
additions are marked.
"""

import base64
import binascii
import json
from typing import Any

from helix_desktop.engine.facts import ToolSpec
from helix_desktop.engine.ports import ForeignToolResult
from helix_desktop.json_values import parse_json_or_none

IMAGES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
LARGEST_IMAGE = 10 << 20


def convert_tool_result(result: Any) -> ForeignToolResult:
    texts: list[str] = []
    images: list[tuple[str, bytes]] = []
    for part in result.content:
        append_result_part(part, texts, images)
    structured = getattr(result, "structured_content", None)
    if structured is not None and not any(_repeats_structured(text, structured) for text in texts):
        texts.append(json.dumps(structured, ensure_ascii=False, indent=1))
    text = "\n".join(texts) or ("[no text]" if images else "[no output]")
    return ForeignToolResult(text, not getattr(result, "is_error", False), tuple(images))


def append_result_part(part: Any, texts: list[str], images: list[tuple[str, bytes]]) -> None:
    kind = getattr(part, "type", "")
    if kind == "text":
        texts.append(part.text)
    elif kind == "image":
        _append_binary_part(part.data, part.mime_type, "picture", texts, images)
    elif kind == "audio":
        texts.append(f"[sound, {part.mime_type}, {len(part.data) * 3 // 4:,} bytes: not shown]")
    elif kind == "resource_link":
        about = f": {part.description}" if part.description else ""
        texts.append(f"[link to the resource {part.uri} ({part.name}){about}]")
    elif kind == "resource":
        append_resource_content(part.resource, texts, images)


def append_resource_content(inner: Any, texts: list[str], images: list[tuple[str, bytes]]) -> None:
    """Append what a server gives to read, after its address."""
    if getattr(inner, "text", None) is not None:
        texts.append(f"[resource {inner.uri}]\n{inner.text}")
    else:
        _append_binary_part(
            inner.blob,
            inner.mime_type or "application/octet-stream",
            f"resource {inner.uri}",
            texts,
            images,
        )


def _append_binary_part(
    data: str, kind: str, what: str, texts: list[str], images: list[tuple[str, bytes]]
) -> None:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        texts.append(f"[{what}: its data is damaged]")
        return
    if kind in IMAGES and len(content) <= LARGEST_IMAGE:
        images.append((kind, content))
        texts.append(f"[{what}, {kind}, {len(content):,} bytes]")
    else:
        texts.append(f"[{what}, {kind}, {len(content):,} bytes: not shown]")


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
