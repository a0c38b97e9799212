from __future__ import annotations

import base64
import re
from types import SimpleNamespace as Made
from typing import Any

import mcp_types as types
import pytest

from helix_desktop.mcp_host.results import HostResult, converted, tool_name


def result(*content: Any, structured: Any = None, error: bool = False) -> Any:
    return Made(content=content, structured_content=structured, is_error=error)


def text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


PICTURE = base64.b64encode(b"picture").decode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(text("a"), text("b")), HostResult("a\nb")),
        (result(text("no"), error=True), HostResult("no", ok=False)),
        (result(), HostResult("[no output]")),
        (result(text('{"a": 1}'), structured={"a": 1}), HostResult('{"a": 1}')),
        (result(text("x\n"), structured={"content": "x\n"}), HostResult("x\n")),
        (result(structured={"a": 1}), HostResult('{\n "a": 1\n}')),
        (
            result(types.ImageContent(data=PICTURE, mime_type="image/png")),
            HostResult("[picture, image/png, 7 bytes]", images=(("image/png", b"picture"),)),
        ),
        (result(types.ImageContent(data="?", mime_type="image/png")), HostResult("[picture: its data is damaged]")),
        (
            result(types.ImageContent(data=PICTURE, mime_type="image/svg+xml")),
            HostResult("[picture, image/svg+xml, 7 bytes: not shown]"),
        ),
        (
            result(types.ResourceLink(name="n", uri="file:///a", description="d")),
            HostResult("[link to the resource file:///a (n): d]"),
        ),
        (
            result(types.EmbeddedResource(resource=types.TextResourceContents(uri="a:b", text="t"))),
            HostResult("[resource a:b]\nt"),
        ),
        (
            result(types.EmbeddedResource(resource=types.BlobResourceContents(uri="a:b", blob=PICTURE))),
            HostResult("[resource a:b, application/octet-stream, 7 bytes: not shown]"),
        ),
    ],
)
def test_results_become_text_and_pictures(given: Any, expected: HostResult) -> None:
    assert converted(given) == expected


def test_names_are_those_every_provider_takes_and_no_two_are_alike() -> None:
    names = [tool_name("srv", tool) for tool in ("read", "read/x", "read.x", "é", "x" * 100, "x" * 101)]
    assert names[0] == "srv__read"
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)
