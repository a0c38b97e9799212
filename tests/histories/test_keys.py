"""What looks like a key."""

from __future__ import annotations

import pytest

from helix_desktop.histories.keys import Keys, found, masked

MADE_UP = ["sk-" + "ant-api03-" + "aB3" * 10, "ghp_" + "aB3d" * 9, "AKIA" + "ABCD1234EFGH5678", "AIza" + "aB3d" * 9]


@pytest.mark.parametrize("key", MADE_UP)
def test_keys_of_the_usual_makes_are_found_in_any_text(key: str) -> None:
    assert list(found(f"export KEY={key}\nls")) == [key]
    assert key not in masked(key)


def test_a_private_key_is_found_whole() -> None:
    key = "-----BEGIN " + "PRIVATE KEY-----\n" + "QUJD" * 20 + "\n-----END " + "PRIVATE KEY-----"
    assert list(found(f"{key}\n")) == [key]
    assert masked(key) == "-----BEGIN " + "PRIVATE KEY-----…"


def test_ordinary_text_has_none_and_each_place_is_counted() -> None:
    assert list(found("ask-me, task-force, AKIA, sk-short")) == []
    keys = Keys()
    for key in found(f"{MADE_UP[0]} {MADE_UP[0]} {MADE_UP[0]}"):
        keys.note("a", key)
    assert keys.places == {MADE_UP[0]: {"a": 3}}
