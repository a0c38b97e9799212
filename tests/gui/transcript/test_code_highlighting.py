"""Code is coloured by its language, and text that could take long is left alone."""

from __future__ import annotations

import pytest

from helix_desktop.gui import colours
from helix_desktop.gui.transcript.code_highlighting import (
    LONGEST_LINE,
    MOST,
    highlight_code,
    highlight_language_of,
)


def test_runs_name_what_they_colour() -> None:
    text = 'def f(x):  # note\n    return "a" + 1\n'
    runs = {
        text[start : start + length]: name for start, length, name in highlight_code(text, "python")
    }
    assert runs["def"] == "code_keyword"
    assert runs["f"] == "code_name"
    assert runs["# note"] == "code_comment"
    assert runs["1"] == "code_number"
    assert set(runs.values()) <= {name for name in colours.LIGHT if name.startswith("code_")}


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("x = 1", "no such language"),
        ("x = 1", ""),
        ("x" * (LONGEST_LINE + 1), "python"),
        ("x\n" * MOST, "python"),
    ],
)
def test_what_is_left_alone(text: str, language: str) -> None:
    assert list(highlight_code(text, language)) == []


def test_the_language_of_a_file() -> None:
    assert highlight_language_of("src/lock/table.rs") == "rust"
    assert highlight_language_of("x", "application/json") == "json"
    assert highlight_language_of("x.unknownthing") == ""
    assert highlight_language_of("no extension") == ""
