"""What a model writes becomes the blocks a reader expects, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.transcript.chunks import chunks
from helix_desktop.gui.transcript.markdown import (
    Block,
    Code,
    Paragraph,
    Rule,
    Span,
    Style,
    Table,
    blocks,
    joined,
    plain,
    references,
)


def parsed(text: str) -> list[Block]:
    defined = references(text)
    return [block for chunk in chunks(text) for block in blocks(text, chunk, defined)]


def test_styles_and_links() -> None:
    (block,) = parsed("a **b** *c* `d` ~~e~~ [f](http://g)")
    assert isinstance(block, Paragraph)
    assert [span for span in block.spans if span.text.strip()] == [
        Span("a "),
        Span("b", Style.BOLD),
        Span("c", Style.ITALIC),
        Span("d", Style.CODE),
        Span("e", Style.STRUCK),
        Span("f", Style.PLAIN, "http://g"),
    ]


def test_a_bare_address_is_a_link_without_the_full_stop() -> None:
    (block,) = parsed("See https://example.org/a.")
    assert isinstance(block, Paragraph)
    assert block.spans[1] == Span("https://example.org/a", Style.PLAIN, "https://example.org/a")
    assert joined(block.spans) == "See https://example.org/a."


def test_a_reference_defined_elsewhere_is_found() -> None:
    block = parsed("See [it][1].\n\nMore.\n\n[1]: http://there")[0]
    assert isinstance(block, Paragraph)
    assert Span("it", Style.PLAIN, "http://there") in block.spans


def test_lists_tasks_and_code_inside_them() -> None:
    found = parsed("- one\n- [x] done\n- [ ] open\n  ```py\n  x = 1\n  ```\n\n3. three\n4. four")
    assert [(b.marker, b.indent) for b in found if isinstance(b, Paragraph)] == [
        ("•", 1),
        ("☑", 1),
        ("☐", 1),
        ("3.", 1),
        ("4.", 1),
    ]
    assert Code("x = 1", "py", 1) in found


def test_headings_quotes_rules() -> None:
    found = parsed("## Head\n\n> said\n\n---")
    assert found == [
        Paragraph((Span("Head"),), heading=2),
        Paragraph((Span("said"),), quote=1),
        Rule(),
    ]


def test_a_table_in_pieces_has_every_row_once() -> None:
    text = "| a | b |\n|:--|--:|\n" + "".join(f"| {i} | x |\n" for i in range(95))
    tables = parsed(text)
    assert all(isinstance(each, Table) for each in tables)
    rows = [joined(row[0]) for each in tables if isinstance(each, Table) for row in each.rows]
    assert rows == ["a", *map(str, range(95))]
    assert isinstance(tables[0], Table)
    assert tables[0].aligned == ("left", "right")


def test_mark_up_is_text_and_a_picture_only_a_link() -> None:
    (block,) = parsed("<img src=x onerror=alert(1)> ![cat](http://tracker/cat.png)")
    assert isinstance(block, Paragraph)
    assert "<img src=x onerror=alert(1)>" in joined(block.spans)
    assert block.spans[-1] == Span("[picture: cat]", Style.PLAIN, "http://tracker/cat.png")


def test_a_dangerous_address_is_no_link() -> None:
    (block,) = parsed("[click](javascript:alert(1))")
    assert isinstance(block, Paragraph)
    assert all(not span.link for span in block.spans)


def test_a_fence_keeps_its_text_and_an_open_one_too() -> None:
    assert parsed("~~~ Rust x\nfn a() {}\n\n~~~") == [Code("fn a() {}\n", "rust")]
    assert parsed("```py\nx = 1\n") == [Code("x = 1", "py")]
    assert parsed("```\n```") == [Code("", "")]


def test_a_line_too_long_to_parse_is_shown_as_it_stands() -> None:
    found = parsed("[" * 50_000)
    assert "".join(plain(each) for each in found) == "[" * 50_000


@given(st.text(alphabet="ab *_`[]()#->|\n~!<1.", max_size=120))
def test_any_text_is_parsed(text: str) -> None:
    for block in parsed(text):
        assert isinstance(plain(block), str)


def test_what_a_person_types_keeps_its_backslashes() -> None:
    """A pattern of sed was drawn as a formula."""
    text = r"Run sed 's/\(a\)/\1/' and show \[x\], C:\*.txt and $a_1$."
    (chunk,) = chunks(text)
    (shown,) = blocks(text, chunk, breaks=True)
    assert plain(shown) == text
