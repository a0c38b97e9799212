from __future__ import annotations

import base64
import re
import time
from types import SimpleNamespace as Made
from typing import Any

import mcp_types as types
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.ports import ForeignToolResult
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.mcp_client.tool_results import build_tool_name, convert_tool_result


def result(*content: Any, structured: Any = None, error: bool = False) -> Any:
    return Made(content=content, structured_content=structured, is_error=error)


def text(words: str) -> types.TextContent:
    return types.TextContent(text=words)


PICTURE = base64.b64encode(b"picture").decode()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (result(text("a"), text("b")), ForeignToolResult("a\nb")),
        (result(text("no"), error=True), ForeignToolResult("no", ok=False)),
        (result(), ForeignToolResult("[no output]")),
        (result(text('{"a": 1}'), structured={"a": 1}), ForeignToolResult('{"a": 1}')),
        (result(text("x\n"), structured={"content": "x\n"}), ForeignToolResult("x\n")),
        (result(structured={"a": 1}), ForeignToolResult('{\n "a": 1\n}')),
        (
            result(types.ImageContent(data=PICTURE, mime_type="image/png")),
            ForeignToolResult("[picture, image/png, 7 bytes]", images=(("image/png", b"picture"),)),
        ),
        (
            result(types.ImageContent(data="?", mime_type="image/png")),
            ForeignToolResult("[picture: its data is damaged]"),
        ),
        (
            result(types.ImageContent(data=PICTURE, mime_type="image/svg+xml")),
            ForeignToolResult("[picture, image/svg+xml, 7 bytes: not shown]"),
        ),
        (
            result(types.ResourceLink(name="n", uri="file:///a", description="d")),
            ForeignToolResult("[link to the resource file:///a (n): d]"),
        ),
        (
            result(
                types.EmbeddedResource(resource=types.TextResourceContents(uri="a:b", text="t"))
            ),
            ForeignToolResult("[resource a:b]\nt"),
        ),
        (
            result(
                types.EmbeddedResource(resource=types.BlobResourceContents(uri="a:b", blob=PICTURE))
            ),
            ForeignToolResult("[resource a:b, application/octet-stream, 7 bytes: not shown]"),
        ),
    ],
)
def test_results_become_text_and_pictures(given: Any, expected: ForeignToolResult) -> None:
    assert convert_tool_result(given) == expected


def test_a_result_of_very_many_texts_is_converted_at_once() -> None:
    """Each text was compared with all values of the structured part."""
    structured = {f"k{number}": 0 for number in range(50_000)}
    texts = [text("[]")] * 50_000
    began = time.process_time()
    converted = convert_tool_result(result(*texts, structured=structured))
    assert time.process_time() - began < 2
    assert '"k0": 0' in converted.text


def test_names_are_those_every_provider_takes_and_no_two_are_alike() -> None:
    names = [
        build_tool_name("srv", tool)
        for tool in ("read", "read/x", "read.x", "é", "x" * 100, "x" * 101)
    ]
    assert names[0] == "srv__read"
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in names)


_NAMES = st.text(alphabet="a_", min_size=1, max_size=5)


@given(_NAMES, _NAMES, _NAMES)
def test_two_tools_never_have_one_name_and_none_has_a_name_of_ours(
    first: str, second: str, third: str
) -> None:
    pairs = {
        (f"{first}__{second}", third),
        (first, f"{second}__{third}"),
        (f"{first}_", second),
        (first, f"_{second}"),
    }
    names = {build_tool_name(*pair) for pair in pairs}
    assert len(names) == len(pairs)
    assert not names & set(ToolName)


def test_a_tool_cannot_be_named_like_the_shortened_one_of_another_server() -> None:
    theirs = build_tool_name("a__b", "c")
    assert build_tool_name("a", "b__c") == "a__b__c"
    assert theirs != "a__b__c"
    assert build_tool_name("a", theirs.removeprefix("a__")) != theirs
