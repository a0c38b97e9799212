"""The session the tests of the window use, beside the real one: the same commands
append the same facts.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from helix_desktop.engine.automatic_folding import ConversationFolding
from helix_desktop.engine.conversation_context import ConversationContext
from helix_desktop.engine.facts import (
    ConversationChanged,
    DocumentEdited,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Span,
    Text,
    Unfolded,
    UserSaid,
)
from helix_desktop.engine.message_queue import TurnRunner
from helix_desktop.engine.session import Session
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.conversation_sharing import WorkspaceSharing
from helix_desktop.workbench.mcp_servers import WorkspaceMcpServers
from helix_desktop.workbench.shared_store_setup import WorkspaceSharingSetup
from helix_desktop.workbench.slash_expansion import SlashCommands
from helix_desktop.workbench.undo_and_change_list import FileChanges
from tests.engine.agent import World, calls, says, world
from tests.engine.test_session import told
from tests.gui.fake_changes import FakeChanges
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeSharing, FakeWorkbench
from tests.gui.fake_setup import FakeServers

Act = Callable[[Session], Awaitable[object]]
COMMANDS: dict[str, Act] = {
    "rename": lambda session: session.set_title("another"),
    "archive": lambda session: session.set_archived(),
    "trash": lambda session: session.set_trashed(),
    "pin conversation": lambda session: session.set_pinned(),
    "pin": lambda session: session.context.pin_part(PartRef(5)),
    "unpin": lambda session: session.context.unpin_part(PartRef(5)),
    "exclude": lambda session: session.context.exclude_part(Span(6, 7)),
    "include": lambda session: session.context.include_part(Span(6, 7)),
    "undo": lambda session: session.folding.unfold("marker-1"),
    "redo": lambda session: session.folding.refold("marker-2"),
    "edit a document": lambda session: session.context.edit_fold_text("marker-1", "worded anew"),
    "rewind": lambda session: session.rewind_to(5),
    "choose an answer": lambda session: session.switch_to_answer(6),
}


async def begun() -> World:
    at = await world(calls("look"), says("done"))
    await told(at, "hello")
    output = next(one.seq for one in at.session.all_facts if isinstance(one.fact, ModelReplied)) + 1
    for name in ("marker-1", "marker-2"):
        await at.session.conversation.append_facts(
            Folded(name, FoldKind.MARKER, PartRef(output), "short", 1, 3)
        )
    await at.session.conversation.append_facts(Unfolded("marker-2"))
    return at


def uncounted(fact: Fact) -> Fact:
    """The words of a test are counted in another way than those of the fake."""
    return replace(fact, tokens=0) if isinstance(fact, DocumentEdited) else fact


@pytest.mark.parametrize("name", COMMANDS)
async def test_a_command_appends_what_the_real_session_appends(name: str) -> None:
    at = await begun()
    fake = FakeSession("c1", at.session.all_facts)
    before = len(at.facts)
    await COMMANDS[name](at.session)
    await COMMANDS[name](fake)
    appended = [uncounted(one.fact) for one in at.session.all_facts[before:]]
    assert appended
    assert [uncounted(one.fact) for one in fake.state.facts[before:]] == appended


async def test_a_message_is_sent_and_answered_alike() -> None:
    at = await world(says("hello yourself"))
    fake = FakeSession("c1")
    fake.answers = ["hello yourself"]
    await told(at, "hello")
    fake.send_message((Text("hello"),))
    said = [
        [
            (type(fact), [part.text for part in fact.parts if isinstance(part, Text)])
            for fact in facts
            if isinstance(fact, UserSaid | ModelReplied)
        ]
        for facts in (at.facts, [one.fact for one in fake.state.facts])
    ]
    assert said[0] == said[1]
    assert at.session.running == fake.running
    assert [
        fact for fact in at.facts if isinstance(fact, ConversationChanged)
    ]  # the title, which the fake has from its story


@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (FakeSession, Session),
        (FakeSession, ConversationContext),
        (FakeSession, ConversationFolding),
        (FakeSession, TurnRunner),
        (FakeWorkbench, Workbench),
        (FakeWorkbench, SlashCommands),
        (FakeDesk, Workbenches),
        (FakeChanges, FileChanges),
        (FakeSharing, WorkspaceSharing),
        (FakeSharing, WorkspaceSharingSetup),
        (FakeServers, WorkspaceMcpServers),
    ],
)
def test_the_methods_of_a_fake_are_called_as_those_of_the_real_class(
    fake: type, real: type
) -> None:
    """Stand-ins fit everywhere for the type checker, so this is what notices a changed
    signature.
    """
    shared = [
        name
        for name, _ in inspect.getmembers(fake, inspect.isfunction)
        if hasattr(real, name) and name[0] != "_"
    ]
    assert shared
    for name in shared:
        takes = inspect.signature(getattr(real, name)).parameters
        for argument in inspect.signature(getattr(fake, name)).parameters.values():
            assert takes[argument.name].kind == argument.kind, (name, argument)
        assert inspect.iscoroutinefunction(getattr(fake, name)) == inspect.iscoroutinefunction(
            getattr(real, name)
        ), name
