"""Tables become text: Markdown within prose, comma-separated lines for sheets."""

from __future__ import annotations

import pytest

from helix_desktop.documents.text_tables import format_markdown_table, split_rows_into_pages


@pytest.mark.parametrize(
    ("rows", "table"),
    [
        ([], ""),
        ([[], []], ""),
        ([["a"]], "| a |\n| --- |"),
        (
            [["a"], ["b ", " c"], []],
            "| a |  |\n| --- | --- |\n| b | c |\n|  |  |",
        ),
        ([["x|y\nz"]], "| x\\|y<br>z |\n| --- |"),
    ],
)
def test_a_table_is_as_wide_as_its_widest_row(rows: list[list[str]], table: str) -> None:
    assert format_markdown_table(rows) == table


def pages_of(count: int, title: str = "Sheet") -> list[tuple[str, str]]:
    rows = [["name", "n"], *([f"row {number}", str(number)] for number in range(2, count + 1))]
    pages = split_rows_into_pages(rows[:count], title, 3)
    return [(page.title, page.text) for page in pages]


def test_a_sheet_of_one_page_has_neither_row_numbers_nor_its_first_row_twice() -> None:
    assert pages_of(0) == [("Sheet", "")]
    assert pages_of(1) == [("Sheet", "name,n")]
    assert pages_of(3) == [("Sheet", "name,n\nrow 2,2\nrow 3,3")]


def test_a_long_sheet_is_split_and_each_part_says_its_rows_and_columns() -> None:
    pages = pages_of(1_001)
    assert [title for title, _ in pages] == [
        "Sheet, rows 1-500",
        "Sheet, rows 501-1000",
        "Sheet, rows 1001-1001",
    ]
    lines = [text.splitlines() for _, text in pages]
    assert [len(part) for part in lines] == [500, 501, 2]
    assert lines[0][:2] == ["name,n", "row 2,2"]
    assert lines[1][:2] == ["name,n", "row 501,501"]
    assert lines[2] == ["name,n", "row 1001,1001"]
    assert [title for title, _ in pages_of(500, "")] == ["rows 1-500"]


def test_cells_with_commas_and_breaks_stay_cells() -> None:
    (page,) = split_rows_into_pages([["a,b", 'say "x"', "1\n2"]], "", 4)
    assert page.text == '"a,b","say ""x""","1\n2"'
    assert page.unit_number == 4
