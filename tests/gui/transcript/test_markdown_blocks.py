"""What a model writes becomes the blocks a reader expects, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.transcript.markdown_blocks import (
    Block,
    CodeBlock,
    ParagraphBlock,
    RuleBlock,
    StyledSpan,
    TableBlock,
    TextStyle,
    block_as_plain_text,
    find_link_reference_lines,
    join_span_texts,
    parse_markdown_blocks,
)
from helix_desktop.gui.transcript.markdown_chunks import split_markdown_chunks


def parsed(text: str) -> list[Block]:
    defined = find_link_reference_lines(text)
    return [
        block
        for chunk in split_markdown_chunks(text)
        for block in parse_markdown_blocks(text, chunk, defined)
    ]


def test_styles_and_links() -> None:
    (block,) = parsed("a **b** *c* `d` ~~e~~ [f](http://g)")
    assert isinstance(block, ParagraphBlock)
    assert [span for span in block.spans if span.text.strip()] == [
        StyledSpan("a "),
        StyledSpan("b", TextStyle.BOLD),
        StyledSpan("c", TextStyle.ITALIC),
        StyledSpan("d", TextStyle.CODE),
        StyledSpan("e", TextStyle.STRUCK),
        StyledSpan("f", TextStyle.PLAIN, "http://g"),
    ]


def test_a_bare_address_is_a_link_without_the_full_stop() -> None:
    (block,) = parsed("See https://example.org/a.")
    assert isinstance(block, ParagraphBlock)
    assert block.spans[1] == StyledSpan(
        "https://example.org/a", TextStyle.PLAIN, "https://example.org/a"
    )
    assert join_span_texts(block.spans) == "See https://example.org/a."


def test_a_reference_defined_elsewhere_is_found() -> None:
    block = parsed("See [it][1].\n\nMore.\n\n[1]: http://there")[0]
    assert isinstance(block, ParagraphBlock)
    assert StyledSpan("it", TextStyle.PLAIN, "http://there") in block.spans


def test_lists_tasks_and_code_inside_them() -> None:
    found = parsed("- one\n- [x] done\n- [ ] open\n  ```py\n  x = 1\n  ```\n\n3. three\n4. four")
    assert [(b.marker, b.indent) for b in found if isinstance(b, ParagraphBlock)] == [
        ("•", 1),
        ("☑", 1),
        ("☐", 1),
        ("3.", 1),
        ("4.", 1),
    ]
    assert CodeBlock("x = 1", "py", 1) in found


def test_headings_quotes_rules() -> None:
    found = parsed("## Head\n\n> said\n\n---")
    assert found == [
        ParagraphBlock((StyledSpan("Head"),), heading=2),
        ParagraphBlock((StyledSpan("said"),), quote=1),
        RuleBlock(),
    ]


def test_a_table_in_pieces_has_every_row_once() -> None:
    text = "| a | b |\n|:--|--:|\n" + "".join(f"| {i} | x |\n" for i in range(95))
    tables = parsed(text)
    assert all(isinstance(each, TableBlock) for each in tables)
    rows = [
        join_span_texts(row[0])
        for each in tables
        if isinstance(each, TableBlock)
        for row in each.rows
    ]
    assert rows == ["a", *map(str, range(95))]
    assert isinstance(tables[0], TableBlock)
    assert tables[0].aligned == ("left", "right")


def test_mark_up_is_text_and_a_picture_only_a_link() -> None:
    (block,) = parsed("<img src=x onerror=alert(1)> ![cat](http://tracker/cat.png)")
    assert isinstance(block, ParagraphBlock)
    assert "<img src=x onerror=alert(1)>" in join_span_texts(block.spans)
    assert block.spans[-1] == StyledSpan(
        "[picture: cat]", TextStyle.PLAIN, "http://tracker/cat.png"
    )


def test_a_dangerous_address_is_no_link() -> None:
    (block,) = parsed("[click](javascript:alert(1))")
    assert isinstance(block, ParagraphBlock)
    assert all(not span.link for span in block.spans)


def test_a_fence_keeps_its_text_and_an_open_one_too() -> None:
    assert parsed("~~~ Rust x\nfn a() {}\n\n~~~") == [CodeBlock("fn a() {}\n", "rust")]
    assert parsed("```py\nx = 1\n") == [CodeBlock("x = 1", "py")]
    assert parsed("```\n```") == [CodeBlock("", "")]


def test_a_line_too_long_to_parse_is_shown_as_it_stands() -> None:
    found = parsed("[" * 50_000)
    assert "".join(block_as_plain_text(each) for each in found) == "[" * 50_000


@given(st.text(alphabet="ab *_`[]()#->|\n~!<1.", max_size=120))
def test_any_text_is_parsed(text: str) -> None:
    for block in parsed(text):
        assert isinstance(block_as_plain_text(block), str)


def test_what_a_person_types_is_no_heading() -> None:
    """A screenful of pasted output was drawn in large bold letters."""
    text = "# make test\nok\n--\n*args and __init__\n==\n***\n~~x~~"
    shown = [
        block
        for chunk in split_markdown_chunks(text)
        for block in parse_markdown_blocks(text, chunk, breaks=True)
    ]
    assert not [block for block in shown if not isinstance(block, ParagraphBlock) or block.heading]
    assert "\n".join(map(block_as_plain_text, shown)) == text


def test_what_a_person_types_keeps_its_backslashes() -> None:
    """A pattern of sed was drawn as a formula."""
    text = r"Run sed 's/\(a\)/\1/' and show \[x\], C:\*.txt and $a_1$."
    (chunk,) = split_markdown_chunks(text)
    (shown,) = parse_markdown_blocks(text, chunk, breaks=True)
    assert block_as_plain_text(shown) == text


def test_a_gap_of_many_blanks_is_one_blank_but_not_in_code() -> None:
    """A quoted line of pytest's was torn apart by half a screen in the card of a task."""
    (block,) = parsed("It said: ." + 60 * " " + "[100%] and `a" + 3 * " " + "b`")
    assert isinstance(block, ParagraphBlock)
    assert join_span_texts(block.spans) == "It said: . [100%] and a   b"
