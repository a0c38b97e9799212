"""Names a text speaks of most."""

from __future__ import annotations

from helix_desktop.engine.strategies.text_preview import find_frequent_names


def test_of_equal_ones_the_first_met_comes_first() -> None:
    assert (
        find_frequent_names("second_name_here first_name_here second_name_here first_name_here", 60)
        == "second_name_here, first_name_here"
    )


def test_punctuation_at_the_end_is_no_part_of_a_name() -> None:
    assert (
        find_frequent_names("see path/to/the_file.py. path/to/the_file.py/", 60)
        == "path/to/the_file.py"
    )


def test_a_text_without_names() -> None:
    assert find_frequent_names("a b c 1 2 3", 60) == ""


def test_the_end_of_an_identifier_is_not_a_name() -> None:
    """An agent would report it, and it could not be found."""
    assert find_frequent_names("id=2e74bf737a40 83f1ffd2b2c1 b4410ab31a4f", 60) == "b4410ab31a4f"
    cut = "x" * (1 << 15) + "_and_the_rest_of_the_name"
    assert find_frequent_names(cut, 200) == "x" * 81


def test_a_name_behind_a_letter_of_another_script_is_a_name() -> None:
    assert find_frequent_names("打开settings_panel", 60) == "settings_panel"
