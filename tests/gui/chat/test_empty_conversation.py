"""What an empty conversation says, and the first steps that it offers."""

from __future__ import annotations

import asyncio

from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.gui.frame.connect_model_panel import DEMO_MODEL
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.tools.permission import PermissionMode
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.test_main_window import write


def test_an_empty_conversation_says_what_is_true_in_each_permission_mode(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    said = {}
    for mode in PermissionMode:
        asyncio.run(bench.choose_permission_mode(mode))
        window.parts.requests.choices_changed.emit()
        said[mode] = window.chat.empty._words.text()
    assert "You are asked before anything is changed" in said[PermissionMode.ASK]
    assert [mode for mode, words in said.items() if "before anything" in words] == [
        PermissionMode.ASK
    ]
    assert "not asked" in said[PermissionMode.ALLOW_ALL]
    assert len(set(said.values())) == len(PermissionMode)


def test_of_another_makers_agent_it_does_not_say_that_it_asks_first(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """It said "You are asked before anything is changed", which such an agent decides itself."""
    session = asyncio.run(bench.start_conversation(""))
    session.append(ConversationStarted(acp_agent="Echo agent"))
    window.sides.go_to_conversation(session.id)
    words = window.chat.empty._words.text()
    assert words == "The agent runs with your permissions, as it would in a terminal."
    window.sides.begin_new_conversation()
    assert "You are asked before anything is changed" in window.chat.empty._words.text()


def test_a_new_conversation_says_that_it_takes_the_model_chosen_last(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """After a small model was tried once, new conversations took it without a word."""
    window.sides.begin_new_conversation()
    bench.main_model_name = "local/small"
    window.parts.requests.choices_changed.emit()
    words = window.chat.empty._words.text()
    assert words.endswith("New conversations begin with the model chosen last: small.")
    bench.main_model_name = DEMO_MODEL
    window.parts.requests.choices_changed.emit()
    assert "chosen last" not in window.chat.empty._words.text()


def test_an_opened_conversation_without_a_message_offers_first_steps_until_something_is_said(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    session = asyncio.run(bench.start_conversation(""))
    window.sides.go_to_conversation(session.id)
    assert window.current_session is session
    assert window.chat.empty.isVisible()
    write(window, "Hello")
    window.chat.bridge.emit_waiting_events()
    assert window.chat.transcript.isVisible()
    window.sides.begin_new_conversation()
    window.sides.go_to_conversation(session.id)
    assert window.chat.transcript.isVisible()
