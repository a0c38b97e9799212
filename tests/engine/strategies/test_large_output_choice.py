"""Admission's plain functions: what is held back, how an answer is read, what an excerpt says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine import context_policy
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.large_output_shortener import most_tokens_always_shown_whole
from helix_desktop.engine.strategies import large_output_choice
from helix_desktop.engine.strategies.large_output_choice import (
    COMPACT,
    FULL,
    PREVIEW,
    OutputChoice,
    asks_for_everything,
    find_outputs_to_shorten,
    format_excerpt,
    parse_output_choices,
)
from tests.engine.talk import stored

LAYERED = context_policy.preset_policy("layered")


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
    assert find_outputs_to_shorten(batch(*sizes), LAYERED, 128_000, 1.0) == held


@given(st.lists(st.integers(1, 5_000), max_size=12), st.integers(4_000, 1_000_000), st.booleans())
def test_a_batch_that_is_always_whole_is_never_held_back(
    sizes: list[int], window: int, commands: bool
) -> None:
    held = find_outputs_to_shorten(
        batch(*sizes), LAYERED, window, 1.0, range(len(sizes)) if commands else ()
    )
    assert not held or sum(sizes) > most_tokens_always_shown_whole(LAYERED, window)


def test_the_output_of_a_command_has_a_limit_of_its_own() -> None:
    strict = LAYERED.with_thresholds({"admission_command_tokens": 2_000})
    assert find_outputs_to_shorten(batch(2_500, 2_500), strict, 128_000, 1.0, [1]) == [1]
    assert (
        find_outputs_to_shorten(
            batch(2_500), context_policy.preset_policy("observational"), 128_000, 1.0, [0]
        )
        == []
    )
    assert find_outputs_to_shorten(batch(900), strict, 32_000, 1.0, [0]) == [0]


def test_in_a_short_conversation_commands_have_no_limit_of_their_own() -> None:
    tools = ["run_command", "read_file"]
    assert large_output_choice.find_command_outputs_to_limit(
        batch(1, 1), tools, 8_000, 128_000
    ) == [0]
    assert (
        large_output_choice.find_command_outputs_to_limit(batch(1, 1), tools, 7_999, 128_000) == []
    )
    assert large_output_choice.find_command_outputs_to_limit(batch(1, 1), tools, 500, 2_000) == [0]
    # The long system prompt of another agent does not make a conversation long.
    assert large_output_choice.find_command_outputs_to_limit(
        batch(1, 1), tools, 8_000, 128_000, 1_900
    ) == [0]
    assert (
        large_output_choice.find_command_outputs_to_limit(
            batch(1, 1), tools, 25_000, 128_000, 17_415
        )
        == []
    )
    assert large_output_choice.find_command_outputs_to_limit(
        batch(1, 1), tools, 26_000, 128_000, 17_415
    ) == [0]


@pytest.mark.parametrize(
    "tool", ["bash", "run", "run_tests", "execute_command", "shell", "my_terminal", "tool_run"]
)
def test_tools_that_run_commands(tool: str) -> None:
    assert large_output_choice.is_command_output(batch(1)[0], tool)


@pytest.mark.parametrize("tool", ["read", "view_file", "trunk_list", "prune", "web_search", ""])
def test_tools_that_do_not(tool: str) -> None:
    assert not large_output_choice.is_command_output(batch(1)[0], tool)
    assert large_output_choice.is_command_output(
        ToolReturned("a", stored("x"), 5, exit_code=0), tool
    )


def test_the_limit_counts_what_the_model_bills_and_shrinks_with_a_small_window() -> None:
    assert find_outputs_to_shorten(batch(3_500), LAYERED, 128_000, 1.32) == [0]
    assert find_outputs_to_shorten(batch(1_500), LAYERED, 32_000, 1.0) == [0]


def test_an_answer_is_read_in_the_forms_models_give_it() -> None:
    for answer in (
        "1: compact: the failing tests\n2: preview\n3: full",
        "1. Compact - the failing tests\n2) PREVIEW\n- 3: full",
        "Here is my choice:\n`1: compact: the failing tests`\n`2: preview`\n`3: full`",
        '{"1": "compact: the failing tests", "2": "preview", "3": "full"}',
        '```json\n{"1": "compact: the failing tests", "2": "preview", "3": "full"}\n```',
        '[{"number": 1, "choice": "compact", "keep": "the failing tests"}, {"number": 3, "choice": "full"}]',
        '{"1": {"choice": "compact", "keep": "the failing tests"}, "3": {"choice": "full"}}',
        "Output 1: compact: the failing tests.\n**Output 2**: preview\nOutput 3: full",
    ):
        read = parse_output_choices(answer, [1, 2, 3], [3])
        assert read == {
            1: OutputChoice(COMPACT, "the failing tests"),
            2: OutputChoice(PREVIEW),
            3: read[3],
        }, answer
        assert read[3].what == FULL


@pytest.mark.parametrize("keep", ["/etc/hosts", ".env", "-v and its help", "the errors"])
def test_what_is_to_be_kept_is_read_from_its_first_character(keep: str) -> None:
    choice = OutputChoice(COMPACT, keep)
    assert parse_output_choices(f"1: compact: {keep}.", [1], [])[1] == choice
    single = f'{{"number": 1, "choice": "compact", "keep": "{keep}"}}'
    assert parse_output_choices(single, [1], [])[1] == choice


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "whatever you think",
        "{broken",
        "[1, 2]",
        "null",
        "9: full",
        "1: compact",
        "1: compact:  ",
    ],
)
def test_an_answer_that_cannot_be_read_counts_as_preview(answer: str) -> None:
    assert parse_output_choices(answer, [1, 2], [1, 2]) == {
        1: OutputChoice(PREVIEW),
        2: OutputChoice(PREVIEW),
    }


def test_an_output_number_of_5_000_digits_chooses_nothing() -> None:
    answer = f"{'9' * 5_000}: full\n1: full"
    assert large_output_choice.parse_output_choices(answer, [1], [1])[1].what == "full"


def test_full_where_it_would_not_fit_counts_as_preview() -> None:
    assert parse_output_choices("1: full\n2: full", [1, 2], [2])[1] == OutputChoice(PREVIEW)


def test_full_is_offered_only_where_it_may_be() -> None:
    previews = {1: ("read a", "lines of a"), 2: ("read b", "lines of b")}
    assert "only for 2" in large_output_choice.output_choice_question(previews, [2])
    assert "full" not in large_output_choice.output_choice_question(previews, [])
    assert "lines of a" in large_output_choice.output_choice_question(previews, [])


@pytest.mark.parametrize(
    "keep",
    [
        "all",
        "Everything.",
        "the whole file",
        "full output",
        "all of it",
        "the entire file",
        "full text",
        "keep all",
    ],
)
def test_words_for_all_of_it(keep: str) -> None:
    assert asks_for_everything(keep)


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
    assert not asks_for_everything(keep)


def test_an_excerpt_says_how_long_the_whole_is_and_how_to_get_it() -> None:
    content = stored("line\n" * 1_000)
    text = format_excerpt(content, 5_000, "the preview")
    assert text.startswith(
        "[EXCERPT of 5,000 tokens, 1,001 lines, 5.0 KB (preview); the whole: recall_cached_content("
    )
    assert text.endswith("the preview")
    assert content.digest.hex in text
    assert "compacted: the numbers" in format_excerpt(content, 5_000, "42", asked="the\nnumbers")
