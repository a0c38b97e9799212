"""Looking for a newer version, against real HTTP on this machine."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from PySide6.QtWidgets import QWidget

from helix_desktop import __version__
from helix_desktop.desktop.update_check import UpdateCheck, is_newer_version
from helix_desktop.gui.frame.notices import Notices
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.window_memory import WindowMemory
from helix_desktop.providers.http_transport import ProviderConnections
from tests.peers.peer import Answer, Peer, Seen, json_answer


class Releases(Peer):
    """What a place of publication says; the same each time."""

    def __init__(self, said: Answer) -> None:
        super().__init__()
        self.said = said

    def listing(self, seen: Seen) -> Answer:
        return self.said


@pytest.fixture
async def updates(theme: Theme, memory: WindowMemory) -> AsyncIterator[UpdateCheck]:
    parent, connections = QWidget(), ProviderConnections()
    yield UpdateCheck(lambda: "", memory, connections, Notices(theme, parent))
    await connections.aclose()


async def said(updates: UpdateCheck, answer: Answer, *, quiet: bool = False) -> tuple[str, list[Seen]]:
    """What the window tells after one look, and what was asked."""
    with Releases(answer) as server:
        asking = UpdateCheck(lambda: f"{server.base_url}/latest", updates.memory, updates.connections, updates.notices)
        await asking.check_for_update(quiet=quiet)
        return updates.notices.shown_text, server.requests


@pytest.mark.parametrize(
    ("version", "newer"),
    [
        ("0.1.1", True),
        ("0.10", True),
        ("1", True),
        ("0.1.0", False),
        ("0.1", False),
        ("0.0.9", False),
        ("0.1.0.0", False),
    ],
)
def test_versions_are_compared_by_their_numbers(version: str, newer: bool) -> None:
    assert is_newer_version(version, "0.1.0") is newer


async def test_a_newer_version_is_told_once_a_day_and_nothing_of_the_user_is(updates: UpdateCheck) -> None:
    release = json_answer({"tag_name": "v99.1", "html_url": "https://example.org/99"})
    text, requests = await said(updates, release, quiet=True)
    assert text == f"Version 99.1 is available. You have {__version__}."
    (asked,) = requests
    assert (asked.method, asked.path, asked.content) == ("GET", "/latest", b"")
    assert set(asked.headers) <= {"host", "accept", "accept-encoding", "connection", "user-agent"}
    assert updates.memory.get_remembered("updates", "asked", default=0.0) > 0


async def test_who_asked_by_hand_is_told_that_there_is_none(updates: UpdateCheck) -> None:
    release = json_answer({"tag_name": __version__})
    assert (await said(updates, release, quiet=True))[0] == ""
    assert (await said(updates, release))[0] == f"Helix Desktop {__version__} is up to date."


@pytest.mark.parametrize(
    "answer",
    [
        json_answer({"message": "Not Found"}, 404),
        json_answer({}),
        json_answer([]),
        json_answer({"tag_name": None}),
        json_answer({"tag_name": "<b>newest</b>"}),
        Answer(200, (b"<html>a page</html>",), content_type="text/html"),
        Answer(200, (json.dumps("v1").encode(),)),
        Answer(200, (b"[" * 100_000,)),
    ],
)
async def test_an_answer_that_is_none_is_a_sentence_for_who_asked_and_nothing_else(
    updates: UpdateCheck, answer: Answer
) -> None:
    assert (await said(updates, answer, quiet=True))[0] == ""
    assert "the address of newer versions" in (await said(updates, answer))[0]


@pytest.mark.parametrize("address", ["", "no address", "ftp://example.org", "http://127.0.0.1:9"])
async def test_nothing_is_asked_without_an_address_and_a_wrong_one_is_said(updates: UpdateCheck, address: str) -> None:
    asking = UpdateCheck(lambda: address, updates.memory, updates.connections, updates.notices)
    await asking.check_for_update()
    assert ("the address of newer versions" in updates.notices.shown_text) is bool(address)
