"""Chunks cover a text in order, whatever it is, and what was cut before stays the same
when the text grows.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.gui.transcript.markdown_chunks import LIST_PIECE, LONGEST, split_markdown_chunks

LINES = st.sampled_from(
    [
        "word",
        "",
        "- item",
        "  more",
        "1. one",
        "# head",
        "```py",
        "```",
        "~~~",
        "| a | b |",
        "|---|---|",
        "> said",
        "    code",
        "---",
    ]
)
TEXTS = st.lists(LINES, max_size=25).map("\n".join)


def sources(text: str) -> list[str]:
    return [text[each.start : each.end].strip("\n") for each in split_markdown_chunks(text)]


@given(TEXTS)
def test_nothing_is_lost_but_blank_lines(text: str) -> None:
    covered = [False] * len(text)
    last = 0
    for each in split_markdown_chunks(text):
        assert each.start >= last
        assert each.end > each.start
        covered[each.start : each.end] = [True] * (each.end - each.start)
        last = each.end
    assert all(done or sign.isspace() for done, sign in zip(covered, text, strict=True))


@given(TEXTS, TEXTS)
def test_all_but_the_last_two_chunks_stay_when_the_text_grows(text: str, more: str) -> None:
    before = list(split_markdown_chunks(text))
    after = list(split_markdown_chunks(text + more))
    assert after[: max(0, len(before) - 2)] == before[:-2]


def test_paragraphs_lists_and_fences() -> None:
    text = "One\ntwo\n\n- a\n- b\n\n  still b\n\nAfter\n```py\nx = 1\n\ny = 2\n```\nEnd"
    assert sources(text) == [
        "One\ntwo",
        "- a\n- b\n\n  still b",
        "After",
        "```py\nx = 1\n\ny = 2\n```",
        "End",
    ]


def test_a_fence_in_a_list_stays_in_it() -> None:
    text = "- a\n\n  ```\n  x\n\n  y\n  ```\n- b"
    assert len(sources(text)) == 1


def test_a_long_table_comes_in_pieces_that_carry_the_head() -> None:
    text = "| a | b |\n|---|---|\n" + "".join(f"| {i} | x |\n" for i in range(100)) + "\nafter"
    found = list(split_markdown_chunks(text))
    assert [each.is_table_continuation for each in found] == [False, True, True, True, True, False]
    assert found[1].head.startswith("| a | b |")


def test_a_long_list_comes_in_pieces_cut_between_its_items() -> None:
    item = "- an item\n  that goes on\n  - with one below it\n"
    found = sources(item * 100 + "\nafter")
    assert len(found) > 3
    assert all(each.startswith("- an item") for each in found[:-1])
    assert all(len(each) < LIST_PIECE + 2 * len(item) for each in found)


def test_a_numbered_list_is_not_cut_so_that_its_numbers_go_on() -> None:
    assert len(sources("1. an item of the list\n" * 100)) == 1


def test_a_line_without_end_is_one_chunk_found_at_once() -> None:
    found = list(split_markdown_chunks("x" * 1_000_000))
    assert found[0].end <= 50 * LONGEST
    assert found[-1].end == 1_000_000
