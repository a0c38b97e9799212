from __future__ import annotations

from helix_desktop.tools import fetch_tool


async def test_a_page_is_read_as_a_reader_sees_it() -> None:
    page = b"""<html><head><title>no</title><script>alert(1)</script></head><body><h2>Title</h2>
    <p>One   <b>bold</b>
    word &amp; <a href="https://a.example/x">a link</a></p><style>p{}</style>
    <ul><li>first<li>second</ul><pre>a
      b</pre><table><tr><td>1</td><td>2</td></tr></table></body></html>"""
    assert [
        line.strip() for line in (await fetch_tool.html_as_text(page)).splitlines() if line.strip()
    ] == [
        "## Title",
        "One bold word & a link (https://a.example/x)",
        "- first",
        "- second",
        "```",
        "a",
        "b",
        "```",
        "| 1 | 2 |",
        "| --- | --- |",
    ]


async def test_a_page_that_takes_too_long_is_given_as_it_is(monkeypatch: object) -> None:
    html_seconds = fetch_tool.HTML_SECONDS
    fetch_tool.HTML_SECONDS = 0.0
    try:
        assert await fetch_tool.html_as_text(b"<p>x\xff") == "<p>x\N{REPLACEMENT CHARACTER}"
    finally:
        fetch_tool.HTML_SECONDS = html_seconds
