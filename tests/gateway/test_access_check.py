"""Who may come in."""

from __future__ import annotations

import pytest

from helix_desktop.gateway import registration
from helix_desktop.gateway.registration import GatewayRegistration, GatewayRegistrations, new_token

MINE = GatewayRegistration(new_token(), agent="claude")
OTHER = GatewayRegistration(new_token(), agent="codex")
HERE = {"host": "127.0.0.1:4356"}


def test_each_token_opens_its_own_registration() -> None:
    known = GatewayRegistrations(MINE, OTHER)
    assert known.find_or_refuse(HERE, MINE.token) is MINE
    assert known.find_or_refuse({**HERE, registration.TOKEN_HEADER: OTHER.token}, "") is OTHER
    known.replace_all([OTHER])
    assert known.find_or_refuse(HERE, MINE.token) == registration.NOT_ADMITTED


@pytest.mark.parametrize(
    "given",
    ["", "x", MINE.token[:-1], MINE.token + "x", MINE.token.swapcase(), "\ud800"],
    ids=["none", "short", "cut", "longer", "other case", "no text"],  # tokens are random, names of tests are not
)
def test_without_the_token_nobody_comes_in(given: str) -> None:
    assert GatewayRegistrations(MINE).find_or_refuse(HERE, given) == registration.NOT_ADMITTED
    assert GatewayRegistrations(GatewayRegistration("")).find_or_refuse(HERE, given) == registration.NOT_ADMITTED


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
    assert isinstance(GatewayRegistrations(MINE).find_or_refuse(headers, MINE.token), str)
