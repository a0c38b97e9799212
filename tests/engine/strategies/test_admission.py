"""Admission's plain functions: what is held back, how an answer is read, what an excerpt says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import policy
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.strategies import admission
from helix_desktop.engine.strategies.admission import (
    COMPACT,
    FULL,
    PREVIEW,
    Choice,
    always_whole,
    choices,
    excerpt,
    held_back,
    wants_all,
)
from tests.engine.talk import stored

LAYERED = policy.preset("layered")


def batch(*sizes: int) -> list[ToolReturned]:
    return [ToolReturned(f"c{index}", stored(str(index)), size) for index, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([4_000], []),
        ([4_001], [0]),
        ([4_000, 4_000, 4_000], []),
        ([4_000, 3_000, 3_999, 1_500], [0]),
        ([100] * 119, []),
        ([100] * 200, []),
        ([20_000, 500, 30_000], [0, 2]),
        ([], []),
    ],
)
def test_what_is_held_back(sizes: list[int], held: list[int]) -> None:
    assert held_back(batch(*sizes), LAYERED, 128_000, 1.0) == held


@given(st.lists(st.integers(1, 5_000), max_size=12), st.integers(4_000, 1_000_000), st.booleans())
def test_a_batch_that_is_always_whole_is_never_held_back(sizes: list[int], window: int, commands: bool) -> None:
    held = held_back(batch(*sizes), LAYERED, window, 1.0, range(len(sizes)) if commands else ())
    assert not held or sum(sizes) > always_whole(LAYERED, window)


def test_the_output_of_a_command_has_a_limit_of_its_own() -> None:
    strict = LAYERED.with_values({"admission_command_tokens": 2_000})
    assert held_back(batch(2_500, 2_500), strict, 128_000, 1.0, [1]) == [1]
    assert held_back(batch(2_500), policy.preset("observational"), 128_000, 1.0, [0]) == []
    assert held_back(batch(900), strict, 32_000, 1.0, [0]) == [0]


@pytest.mark.parametrize("tool", ["bash", "run", "run_tests", "execute_command", "shell", "my_terminal", "tool_run"])
def test_tools_that_run_commands(tool: str) -> None:
    assert admission.is_command(batch(1)[0], tool)


@pytest.mark.parametrize("tool", ["read", "view_file", "trunk_list", "prune", "web_search", ""])
def test_tools_that_do_not(tool: str) -> None:
    assert not admission.is_command(batch(1)[0], tool)
    assert admission.is_command(ToolReturned("a", stored("x"), 5, exit_code=0), tool)


def test_the_limit_counts_what_the_model_bills_and_shrinks_with_a_small_window() -> None:
    assert held_back(batch(3_500), LAYERED, 128_000, 1.32) == [0]
    assert held_back(batch(1_500), LAYERED, 32_000, 1.0) == [0]


def test_an_answer_is_read_in_the_forms_models_give_it() -> None:
    for answer in (
        "1: compact: the failing tests\n2: preview\n3: full",
        "1. Compact - the failing tests\n2) PREVIEW\n- 3: full",
        "Here is my choice:\n`1: compact: the failing tests`\n`2: preview`\n`3: full`",
        '{"1": "compact: the failing tests", "2": "preview", "3": "full"}',
        '```json\n{"1": "compact: the failing tests", "2": "preview", "3": "full"}\n```',
        '[{"number": 1, "choice": "compact", "keep": "the failing tests"}, {"number": 3, "choice": "full"}]',
    ):
        read = choices(answer, [1, 2, 3], [3])
        assert read == {1: Choice(COMPACT, "the failing tests"), 2: Choice(PREVIEW), 3: read[3]}, answer
        assert read[3].what == FULL


@pytest.mark.parametrize(
    "answer", ["", "whatever you think", "{broken", "[1, 2]", "null", "9: full", "1: compact", "1: compact:  "]
)
def test_an_answer_that_cannot_be_read_counts_as_preview(answer: str) -> None:
    assert choices(answer, [1, 2], [1, 2]) == {1: Choice(PREVIEW), 2: Choice(PREVIEW)}


def test_full_where_it_would_not_fit_counts_as_preview() -> None:
    assert choices("1: full\n2: full", [1, 2], [2])[1] == Choice(PREVIEW)


def test_full_is_offered_only_where_it_may_be() -> None:
    previews = {1: ("read a", "lines of a"), 2: ("read b", "lines of b")}
    assert "only for 2" in admission.question(previews, [2])
    assert "full" not in admission.question(previews, [])
    assert "lines of a" in admission.question(previews, [])


@pytest.mark.parametrize(
    "keep",
    ["all", "Everything.", "the whole file", "full output", "all of it", "the entire file", "full text", "keep all"],
)
def test_words_for_all_of_it(keep: str) -> None:
    assert wants_all(keep)


@pytest.mark.parametrize(
    "keep",
    [
        "",
        "all failing tests and their messages",
        "the names",
        "full traceback",
        "the whole story of the error",
        "the full list of names of the failing tests",
    ],
)
def test_words_for_some_of_it(keep: str) -> None:
    assert not wants_all(keep)


def test_an_excerpt_says_how_long_the_whole_is_and_how_to_get_it() -> None:
    content = stored("line\n" * 1_000)
    text = excerpt(content, 5_000, "the preview")
    assert text.startswith("[EXCERPT of 5,000 tokens, 1,001 lines, 5.0 KB (preview); the whole: recall_cached_content(")
    assert text.endswith("the preview")
    assert content.digest.hex in text
    assert "compacted: the numbers" in excerpt(content, 5_000, "42", asked="the\nnumbers")
