"""What a command prints of a workspace on another computer, and what is refused before it connects."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from types import SimpleNamespace

import pytest

from helix_desktop.commands import running_elsewhere
from helix_desktop.engine.facts import ConversationChanged, ModelReplied, Text
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from tests.commands.conftest import Helix
from tests.commands.test_ask_as_client import (
    OpenWorkspace,
    RecordingConsole,
    SuccessiveHosts,
    opened,
)
from tests.workbench.conftest import desks, folder

__all__ = ["desks", "folder", "opened"]


class ComputerOfTest:
    """`OtherComputer`, whose host is in this process. Keeps what was lent."""

    address = SimpleNamespace(target="testbox")

    def __init__(self, hosts: SuccessiveHosts) -> None:
        self._hosts = hosts
        self.lent: list[tuple[str, str]] = []

    def connect(self) -> AbstractAsyncContextManager[RemoteWorkspaceHost]:
        return self._hosts.connect()

    async def lend_key(self, conversation: str, provider: str) -> None:
        self.lent.append((conversation, provider))


class Elsewhere:
    """A command that was typed here, for the workspace that is open there."""

    def __init__(self, opened: OpenWorkspace, computer: ComputerOfTest) -> None:
        self.opened = opened
        self.bench = opened.bench
        self.session = opened.session
        self.computer = computer
        self.console = RecordingConsole()

    async def say(self, text: str) -> None:
        self.session.send_message((Text(text),))
        await self.session.wait_until_idle()

    async def run(self, name: str, conversation: str = "", **options: object) -> str:
        """Return what is printed of a command with these options."""
        given = {"json": False, "provider": "", "limit": 0, "start": 0, **options}
        arguments = Namespace(conversation=conversation or self.session.id, **given)
        run = getattr(running_elsewhere, name)
        self.console.output = ""
        assert await run(arguments, self.computer, self.console) == 0
        return self.console.output


@pytest.fixture
async def elsewhere(opened: OpenWorkspace) -> AsyncIterator[Elsewhere]:
    hosts = SuccessiveHosts()
    hosts.open_with(opened.bench)
    yield Elsewhere(opened, ComputerOfTest(hosts))
    await hosts.aclose()


async def test_conversations_are_listed_as_here_without_the_trash(elsewhere: Elsewhere) -> None:
    await elsewhere.say("what is in README.md?")
    newer = await elsewhere.bench.start_conversation("Newer")
    newer.send_message((Text("hello"),))
    await newer.wait_until_idle()
    thrown_away = await elsewhere.bench.start_conversation("Thrown away")
    await thrown_away.conversation.append_facts(ConversationChanged(trashed=True))
    lines = (await elsewhere.run("_print_conversation_list")).splitlines()
    assert [line.split()[0] for line in lines] == [newer.id, elsewhere.session.id]
    listed = json.loads(await elsewhere.run("_print_conversation_list", json=True))
    assert [row["title"] for row in listed] == ["Newer", "Killed"]


async def test_a_conversation_is_printed_as_here(elsewhere: Elsewhere) -> None:
    await elsewhere.say("hello there")
    printed = await elsewhere.run("_print_conversation")
    assert "hello there" in printed
    facts = [recorded.fact for recorded in elsewhere.session.all_facts]
    (reply,) = [fact for fact in facts if isinstance(fact, ModelReplied)]
    (part,) = reply.parts
    assert isinstance(part, Text)
    assert part.text in printed
    with pytest.raises(NotFound, match="conversation"):
        await elsewhere.run("_print_conversation", "nothing")


async def test_the_key_of_the_conversations_own_provider_is_lent(elsewhere: Elsewhere) -> None:
    await elsewhere.say("hello")
    printed = await elsewhere.run("_lend_key")
    assert elsewhere.computer.lent == [(elsewhere.session.id, "demo")]
    assert "testbox holds your key for demo in its memory" in printed
    named = json.loads(await elsewhere.run("_lend_key", provider="other", json=True))
    assert named == {
        "conversation": elsewhere.session.id,
        "provider": "other",
        "machine": "testbox",
    }
    assert elsewhere.computer.lent[1:] == [(elsewhere.session.id, "other")]


async def test_of_a_conversation_without_a_key_none_can_be_taken_back(elsewhere: Elsewhere) -> None:
    with pytest.raises(NotFound, match="No key is lent for this conversation"):
        await elsewhere.run("_take_key_back")


async def test_without_a_model_nobody_knows_whose_key_is_meant(opened: OpenWorkspace) -> None:
    hosts = SuccessiveHosts()
    hosts.open_with(opened.bench)
    elsewhere = Elsewhere(opened, ComputerOfTest(hosts))
    try:
        with pytest.raises(InvalidInput, match="has not asked a model yet"):
            await elsewhere.run("_lend_key")
    finally:
        await hosts.aclose()
    assert elsewhere.computer.lent == []


@pytest.mark.parametrize("option", ["acp", "copy", "copy_with_changes", "choose"])
def test_what_ask_cannot_do_there_is_refused_before_anything_is_sent(option: str) -> None:
    given = dict.fromkeys(("acp", "copy", "copy_with_changes", "choose"), "")
    running_elsewhere._refuse_options_for_here(Namespace(**given))
    with pytest.raises(InvalidInput, match=f"--{option.replace('_', '-')} cannot be used"):
        running_elsewhere._refuse_options_for_here(Namespace(**{**given, option: "x"}))


def test_a_command_that_works_here_alone_says_which_ones_work_there(
    helix: Helix, tmp_path: Path
) -> None:
    code, out, err = helix(
        "--home", tmp_path, "--host", "ssh://testbox/work", "cache", "list", "-w", "Work"
    )
    assert (code, out) == (2, "")
    assert "This cannot be run on another computer from here yet." in err
    assert "`conversation list`" in err
