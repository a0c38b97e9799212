"""What looks like a key."""

from __future__ import annotations

import pytest

from helix_desktop.histories.leaked_keys import find_keys, mask_key, mask_keys

MADE_UP = [
    "sk-" + "ant-api03-" + "aB3" * 10,
    "ghp_" + "aB3d" * 9,
    "AKIA" + "ABCD1234EFGH5678",
    "AIza" + "aB3d" * 9,
]


@pytest.mark.parametrize("key", MADE_UP)
def test_keys_of_the_usual_makes_are_found_in_any_text(key: str) -> None:
    assert list(find_keys(f"export KEY={key}\nls")) == [key]
    assert key not in mask_key(key)


@pytest.mark.parametrize(
    "begin",
    ["gho_", "github_pat_", "glpat-", "xoxb-", "ASIA", "hf_", "gsk_", "xai-", "ghp_", "sk-"],
)
def test_every_make_is_found_wherever_a_long_text_is_parted(begin: str) -> None:
    key = begin + ("ABCD1234EFGH5678" if begin == "ASIA" else "aB3d" * 9)
    for before in range(65_536 - len(key) - 1, 65_540, 3):
        assert list(find_keys(f"{' ' * before}{key} {key}\n")) == [key, key]


def test_a_private_key_is_found_whole() -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\n" + "QUJD" * 20 + "\n-----END " + "PRIVATE KEY-----"
    assert list(find_keys(f"{key}\n")) == [key]
    assert mask_key(key) == "-----BEGIN " + "PRIVATE KEY-----…"


def test_ordinary_text_has_none_and_each_occurrence_is_found() -> None:
    assert list(find_keys("ask-me, task-force, AKIA, sk-short")) == []
    assert list(find_keys(f"{MADE_UP[0]} {MADE_UP[0]} {MADE_UP[0]}")) == [MADE_UP[0]] * 3


def test_a_masked_key_shows_seven_characters_and_the_last_two() -> None:
    assert mask_key("sk-" + "ant-api03-" + "aB3" * 10) == "sk-ant-…B3"
    assert (
        mask_key("-----BEGIN " + "PRIVATE KEY-----\\nQUJD") == "-----BEGIN " + "PRIVATE KEY-----…"
    )


def test_of_keys_that_begin_alike_nothing_but_the_ends_is_left() -> None:
    short_key = "sk-" + "aB3" * 10
    long_key = short_key + "-xyz99"
    assert mask_keys(f"{short_key} {long_key}.") == "sk-aB3a…B3 sk-aB3a…99."
    assert mask_keys(f"{long_key} {short_key}.") == "sk-aB3a…99 sk-aB3a…B3."


def test_a_private_key_that_is_too_short_or_has_no_end_is_none() -> None:
    begin = "-----BEGIN " + "PRIVATE KEY-----"
    end = "-----END " + "PRIVATE KEY-----"
    assert list(find_keys(begin + "Q" * 39 + end)) == []
    assert list(find_keys(begin + "Q" * 40 + end)) == [begin + "Q" * 40 + end]
    assert list(find_keys(begin + "Q" * 40)) == []
