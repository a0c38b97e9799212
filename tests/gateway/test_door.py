"""Who may come in."""

from __future__ import annotations

import pytest

from helix_desktop.gateway import door
from helix_desktop.gateway.registration import Registration, Registrations, new_token

MINE = Registration(new_token(), agent="claude")
OTHER = Registration(new_token(), agent="codex")
HERE = {"host": "127.0.0.1:4356"}


def test_each_token_opens_its_own_registration() -> None:
    known = Registrations(MINE, OTHER)
    assert door.admitted(HERE, known, MINE.token) is MINE
    assert door.admitted({**HERE, door.TOKEN_HEADER: OTHER.token}, known, "") is OTHER
    known.replace([OTHER])
    assert door.admitted(HERE, known, MINE.token) == door.NOT_ADMITTED


@pytest.mark.parametrize(
    "given",
    ["", "x", MINE.token[:-1], MINE.token + "x", MINE.token.swapcase(), "\ud800"],
    ids=["none", "short", "cut", "longer", "other case", "no text"],  # tokens are random, names of tests are not
)
def test_without_the_token_nobody_comes_in(given: str) -> None:
    assert door.admitted(HERE, Registrations(MINE), given) == door.NOT_ADMITTED
    assert door.admitted(HERE, Registrations(Registration("")), given) == door.NOT_ADMITTED


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "page.example"},
        {"host": "127.0.0.1", "origin": "https://page.example"},
        {"host": "127.0.0.1", "sec-fetch-site": "cross-site"},
        {"host": "[::1"},
        {},
    ],
)
def test_another_host_and_a_page_are_refused_with_the_token_too(headers: dict[str, str]) -> None:
    assert isinstance(door.admitted(headers, Registrations(MINE), MINE.token), str)
