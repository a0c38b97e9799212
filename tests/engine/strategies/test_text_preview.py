"""Previews: worth reading, and never long, whatever the text is."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.strategies.text_preview import build_preview, find_frequent_names


def test_first_and_last_lines_and_the_lines_that_look_like_errors() -> None:
    lines = [f"line {number}" for number in range(2_000)]
    lines[1_000] = "ValueError: something in the middle"
    shown = build_preview("\n".join(lines), 500)
    assert "line 0\n" in shown
    assert "line 1999" in shown
    assert "ValueError: something in the middle" in shown
    assert "lines left out" in shown
    assert "line 1500" not in shown


def test_lines_that_look_like_errors_are_counted_if_not_all_are_shown() -> None:
    lines = [f"line {number}" for number in range(6_000)]
    for number in range(900, 6_000, 900):
        lines[number] = (
            f"2026-11-26 01:06:23 ERROR the connection number {number} was closed by the other side"
        )
    assert "Lines that look like errors (2 of 6 found):" in build_preview("\n".join(lines), 300)
    assert "Lines that look like errors:" in build_preview("\n".join(lines), 3_000)


def test_the_shape_of_json_and_of_a_table() -> None:
    data = json.dumps({"users": [{"name": "a", "age": 1}] * 500, "next": None})
    assert "JSON: {users: list of 500 x object of 2, next: NoneType}" in build_preview(data, 300)
    table = "name,age,city\n" + "a,1,b\n" * 900
    assert "Table of 3 columns: name,age,city" in build_preview(table, 300)
    assert "JSON" not in build_preview("{not json" * 900, 300)


def test_a_short_text_is_shown_whole() -> None:
    assert build_preview("one\ntwo", 500) == "one\ntwo"
    assert build_preview(" \n ", 500) == "(nothing but space)"


@pytest.mark.parametrize("tokens", [0, 5, 20, 50])
def test_every_line_is_shown_or_counted(tokens: int) -> None:
    text = "\n \r\n".join(f"line {number}" for number in range(40))
    shown = build_preview(text, tokens)
    counted = re.search(r"… (\d+) lines left out …", shown)
    assert counted is not None
    assert shown.count("line ") + int(counted[1]) == 40


def test_names_are_told_of_a_text_without_lines_alone() -> None:
    calls = [f"call_the_function{number % 3}(argument)" for number in range(900)]
    assert "Names in it" in build_preview(" ".join(calls), 500)
    assert "Names in it" not in build_preview("\n".join(["def one_function_of_it():", *calls]), 500)


def test_headings_and_signatures_stand_with_their_lines() -> None:
    lines = [f"    some_work({number})" for number in range(900)]
    lines[100] = "class Table:"
    lines[500] = "    def merge_with(self, other):"
    shown = build_preview("\n".join(lines), 500)
    assert "101: class Table:" in shown
    assert "501: def merge_with(self, other):" in shown


def test_what_the_call_was_for_is_shown() -> None:
    lines = [f"    value_of({number})" for number in range(900)]
    lines[450] = "    frozen_total = 12"
    text = "\n".join(lines)
    assert "451: frozen_total = 12" in build_preview(text, 500, "Where is frozen_total set?")
    assert "451:" not in build_preview(text, 500, "Where is the other one set?")


def test_names_are_the_most_frequent_and_fit_the_room() -> None:
    text = "short rather_long_name " + "most_frequent_name " * 5
    assert find_frequent_names(text, 100) == "most_frequent_name, rather_long_name"
    assert find_frequent_names(text, 22) == "most_frequent_name"
    assert find_frequent_names(text, 5) == ""


@given(st.text(max_size=3_000), st.integers(1, 40))
def test_a_preview_is_never_long_and_the_same_every_time(text: str, times: int) -> None:
    shown = build_preview(text * times, 200)
    assert len(shown) < 200 * 4 * 2
    assert shown == build_preview(text * times, 200)
    assert "\0" not in shown


def test_the_last_lines_have_a_title_also_behind_a_line_that_begins_with_a_bracket() -> None:
    """Behind an error such as "[ERROR] …", they seemed to belong to the list of errors."""
    lines = [f"step {number} of the work is done" for number in range(400)]
    lines[200] = "[ERROR] step 200 failed"
    rows = build_preview("\n".join(lines), 300).splitlines()
    assert rows[rows.index("[ERROR] step 200 failed") + 1] == "Last lines:"
