"""Notices arrive at what stands for ntfy and gotify, and nothing else is sent."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import Text
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.phone_page import webhook_notices
from helix_desktop.phone_page.open_hosts import OpenHosts
from helix_desktop.phone_page.webhook import (
    Webhook,
    check_webhook_address,
    send_notices_until_cancelled,
)
from helix_desktop.phone_page.webhook_notices import Notice, NoticeKind
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import PAGE_WEBHOOK, PAGE_WEBHOOK_CONTENT, ProgramSettings
from helix_desktop.secrets import SecretKeeper, SecretStorage, WebhookToken
from helix_desktop.workbench import Workbench
from tests.peers.peer import Answer, Peer, Seen, json_answer

NOTICE = Notice(NoticeKind.WAITS, "Title: run tests")


class Listener(Peer):
    """Takes what is posted, as ntfy does."""


def webhook_to(where: ProgramFolders, address: str, *, content: bool = False) -> Webhook:
    settings = ProgramSettings(where.settings_file)
    settings.change_setting(PAGE_WEBHOOK, address)
    settings.change_setting(PAGE_WEBHOOK_CONTENT, content)
    return Webhook(where, SecretStorage(where.key_file, environ={}, keyring=EmptyKeyring))


class EmptyKeyring:
    """A keyring that holds nothing."""

    def get_password(self, service: str, username: str) -> str | None:
        return None

    def set_password(self, service: str, username: str, password: str) -> None: ...
    def delete_password(self, service: str, username: str) -> None: ...


async def test_ntfy_is_sent_the_text_alone(where: ProgramFolders) -> None:
    with Listener(default=json_answer({})) as server:
        await webhook_to(where, f"{server.base_url}/topic").send_notice(NOTICE)
        (seen,) = server.requests
    assert (seen.method, seen.path) == ("POST", "/topic")
    assert seen.content == b"An agent needs you."
    assert seen.headers["title"] == "Helix Desktop"
    assert "authorization" not in seen.headers


async def test_content_is_sent_only_if_the_user_says_so(where: ProgramFolders) -> None:
    with Listener(default=json_answer({})) as server:
        await webhook_to(where, f"{server.base_url}/topic", content=True).send_notice(NOTICE)
        (seen,) = server.requests
    assert seen.content == b"An agent needs you. Title: run tests"


async def test_gotify_is_sent_json_and_its_token(where: ProgramFolders) -> None:
    with Listener(default=json_answer({})) as server:
        address = f"{server.base_url}/message"
        secrets = SecretStorage(where.key_file, environ={}, keyring=EmptyKeyring)
        token = WebhookToken(address)
        await secrets.store_secret_at(token, "tok-1", where=SecretKeeper.SESSION)
        webhook_to(where, address)
        await Webhook(where, secrets).send_notice(NOTICE)
        (seen,) = server.requests
    assert seen.headers["x-gotify-key"] == "tok-1"
    assert json.loads(seen.content) == {
        "title": "Helix Desktop",
        "message": "An agent needs you.",
        "priority": 5,
    }


async def test_a_token_is_not_sent_to_another_address(where: ProgramFolders) -> None:
    with Listener(default=json_answer({})) as server:
        secrets = SecretStorage(where.key_file, environ={}, keyring=EmptyKeyring)
        token = WebhookToken("https://gotify.example.org/message")
        await secrets.store_secret_at(token, "tok-1", where=SecretKeeper.SESSION)
        webhook_to(where, f"{server.base_url}/message")
        await Webhook(where, secrets).send_notice(NOTICE)
        (seen,) = server.requests
    assert "tok-1" not in str(seen.headers)


async def test_what_is_not_taken_is_said(where: ProgramFolders) -> None:
    with Listener(default=json_answer({}, 403)) as server:
        webhook = webhook_to(where, f"{server.base_url}/topic")
        with pytest.raises(HelixError, match="did not take the notice \\(status 403\\)"):
            await webhook.send_notice(NOTICE)
    with pytest.raises(HelixError, match=r"could not be sent to 127\.0\.0\.1"):
        await webhook.send_notice(NOTICE)


@pytest.mark.parametrize(
    "address",
    [
        "ntfy.sh/topic",
        "ftp://ntfy.sh/topic",
        "http://ntfy.sh/topic",
        "https://me:secret@ntfy.sh/topic",
        "https://gotify.example.org/message?token=secret",
        "file:///etc/passwd",
    ],
)
def test_an_address_that_would_lose_a_secret_is_refused(address: str) -> None:
    with pytest.raises(InvalidInput):
        check_webhook_address(address)


async def test_an_agent_that_waits_is_told_and_its_workspace_is_followed(
    where: ProgramFolders,
    bench: Workbench,
    hosts: OpenHosts,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(webhook_notices, "WAITING_SECONDS", 0.0)
    tasks = OwnedTasks("notices of a test")
    has_arrived = threading.Event()

    def take_notice(_: Seen) -> Answer:
        has_arrived.set()
        return json_answer({})

    with Listener(default=take_notice) as server:
        webhook = webhook_to(where, f"{server.base_url}/topic")
        tasks.spawn_task(send_notices_until_cancelled(webhook, hosts), name="send")
        session = await bench.start_conversation("Waits")
        session.send_message((Text("write b.txt: text"),))
        assert await asyncio.to_thread(has_arrived.wait, 60)
        assert server.requests[0].content == b"An agent needs you."
        await tasks.aclose(limit=5)
