"""Who may come in to the gateway, and which conversations are whose."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from helix_desktop.gateway import registration
from helix_desktop.gateway.registration import (
    NOT_ADMITTED,
    GatewayRegistration,
    GatewayRegistrations,
    RegisteredConversations,
    add_token_to_project,
    headers_without_token,
    new_token,
)
from tests.conftest import Expect

MINE = GatewayRegistration(new_token(), agent="claude")
OTHER = GatewayRegistration(new_token(), agent="codex")
HERE = {"host": "127.0.0.1:4356"}


def test_only_the_addresses_of_now_answer_and_none_without_a_token() -> None:
    one, two = GatewayRegistration("one"), GatewayRegistration("two")
    known = GatewayRegistrations(one, GatewayRegistration(""))
    assert known.find_by_token("one") is one
    assert known.find_by_token("") is None
    known.replace_all([two])
    assert (known.find_by_token("one"), known.find_by_token("two")) == (None, two)
    assert new_token() != new_token()
    token = new_token()
    assert len(token) == 32, "24 bytes that nobody guesses"
    assert token == quote(token, safe=""), "a part of a path as it stands"


def test_a_key_goes_to_no_other_process_and_into_no_text() -> None:
    one = GatewayRegistration(
        "token-4711", "http://own.example", key="secret-4711", proxies={"a": "b"}
    )
    told = one.as_json_without_key()
    assert "key" not in told
    assert (told["token"], told["upstream"], told["proxies"]) == (
        "token-4711",
        "http://own.example",
        {"a": "b"},
    )
    assert GatewayRegistration(**told).upstream == one.upstream
    assert "4711" not in repr(one)


def test_the_gateway_that_follows_a_killed_one_knows_whose_conversations_they_are(
    tmp_path: Path, expect: Expect
) -> None:
    file = tmp_path / "conversations.json"
    known = RegisteredConversations(file)
    assert known.find_conversations("one") == {}
    known.remember_conversation_of_token("one", "c1", "w1")
    known.remember_conversation_of_token("one", "c2", "w2")
    known.remember_conversation_of_token("two", "c3", "w1")
    written = file.read_bytes()
    assert b"one" not in written, "no token stands in a file"
    file.unlink()
    known.remember_conversation_of_token("one", "c1", "w1")
    assert not file.exists(), "nothing new is not written again"
    known.remember_conversation_of_token("one", "c1", "w2")
    again = RegisteredConversations(file)
    assert again.find_conversations("one") == {"c1": "w2", "c2": "w2"}
    assert again.find_conversations("two") == {"c3": "w1"}
    assert sorted(one.name for one in tmp_path.iterdir()) == ["conversations.json"]
    file.unlink()
    file.mkdir()
    expect("what a registration's conversations are was not kept: ")
    known.remember_conversation_of_token("three", "c4", "w1")
    assert known.find_conversations("three") == {"c4": "w1"}, (
        "the agent gets its answer though the disk is full"
    )
    file.rmdir()
    for content in ("null", "[]", '{"a": null}', "[[1]]"):
        file.write_text(content)
        RegisteredConversations(file).remember_conversation_of_token("one", "c1", "w1")
    file.write_text("broken")
    assert RegisteredConversations(file).find_conversations("one") == {}
    assert RegisteredConversations().find_conversations("one") == {}


def test_each_token_opens_its_own_registration() -> None:
    known = GatewayRegistrations(MINE, OTHER)
    assert known.find_or_refuse(HERE, MINE.token) is MINE
    assert known.find_or_refuse({**HERE, registration.TOKEN_HEADER: OTHER.token}, "") is OTHER
    known.replace_all([OTHER])
    assert known.find_or_refuse(HERE, MINE.token) == registration.NOT_ADMITTED


@pytest.mark.parametrize(
    "given",
    ["", "x", MINE.token[:-1], MINE.token + "x", MINE.token.swapcase(), "\ud800"],
    ids=[
        "none",
        "short",
        "cut",
        "longer",
        "other case",
        "no text",
    ],  # tokens are random, names of tests are not
)
def test_without_the_token_nobody_comes_in(given: str) -> None:
    assert GatewayRegistrations(MINE).find_or_refuse(HERE, given) == registration.NOT_ADMITTED
    assert (
        GatewayRegistrations(GatewayRegistration("")).find_or_refuse(HERE, given)
        == registration.NOT_ADMITTED
    )


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


def test_codex_sends_the_token_beside_the_users_own_project() -> None:
    """It sends its usual provider no header of ours, but its project from the environment."""
    mine = GatewayRegistration(token="t" * 32)
    registrations = GatewayRegistrations(mine)
    for own_project, rest in (("", ()), ("proj_1", ((b"OpenAI-Project", b"proj_1"),))):
        sent = add_token_to_project(own_project, mine.token)
        headers = {"host": "127.0.0.1:1", "openai-project": sent}
        assert registrations.find_or_refuse(headers, "") is mine
        assert tuple(headers_without_token([(b"OpenAI-Project", sent.encode())])) == rest
    other = {"host": "127.0.0.1:1", "openai-project": "proj_1"}
    assert registrations.find_or_refuse(other, "") == NOT_ADMITTED
    assert list(headers_without_token([(b"openai-project", b"proj_1")])) == [
        (b"openai-project", b"proj_1")
    ]
