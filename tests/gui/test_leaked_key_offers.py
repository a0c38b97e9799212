"""Keys in a conversation that another agent has written are offered to be forgotten."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtWidgets import QMessageBox

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.gui.main_window import MainWindow
from tests.gui.fake_desk import FakeSession, FakeWorkbench
from tests.gui.test_conversation_exporting import press


def test_keys_in_a_recorded_conversation_are_offered_once_to_be_forgotten(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    """Only an import offered this: a recorded conversation with three keys showed
    nothing at all.
    """
    key = "ghp_" + "aB3d" * 9
    session.append(UserSaid((Text(f"my key is {key}", 8),)))
    window.sides.show_session_or_new(session)
    assert window.notices.isHidden(), "the user's own conversation"
    bench.rows[session.id] = replace(bench.rows[session.id], recorded_from="Claude Code")
    window.sides.show_session_or_new(session)
    assert (
        window.notices.shown_text
        == "This conversation contains text that looks like passwords or other secrets: ghp_aB3…3d"
    )
    window.notices.run_notice_action()
    question = window.findChildren(QMessageBox)[-1]
    assert "ghp_aB3…3d" in question.text()
    assert key not in question.text()
    state_file = window.state_file
    state_file.remember_value("draft", bench.id, session.id, value={"text": f"use {key}"})
    state_file.remember_value("history", bench.id, value=[f"use {key}", "other"])
    press(window, "Forget them")
    assert bench.forgotten == [key]
    draft = state_file.get_remembered("draft", bench.id, session.id, default=dict[str, str]())
    history = state_file.get_remembered("history", bench.id, default=list[str]())
    assert (draft, history) == ({"text": "use "}, ["use ", "other"])
    assert window.notices.shown_text == "1 secret was removed."
    window.notices.hide()
    window.sides.show_session_or_new(session)
    assert window.notices.isHidden(), "it is offered once"


def test_the_notice_about_keys_goes_and_comes_back_with_its_conversation(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    """It said "This conversation" for ten minutes, whichever conversation was shown."""
    session.append(UserSaid((Text("my key is ghp_" + "aB3d" * 9, 8),)))
    bench.rows[session.id] = replace(bench.rows[session.id], recorded_from="Claude Code")
    window.sides.show_session_or_new(session)
    about_keys = window.notices.shown_text
    assert about_keys.startswith(
        "This conversation contains text that looks like passwords or other secrets"
    )

    window.window_actions["new"].trigger()
    assert window.notices.isHidden(), "an empty conversation is shown"
    window.sides.show_session_or_new(session)
    assert window.notices.shown_text == about_keys

    window.notices.show_notice("Saved.")
    window.window_actions["new"].trigger()
    window.notices._close_notice_unless_in_use()
    assert window.notices.isHidden(), "it waited behind another notice"

    window.sides.show_session_or_new(session)
    window.notices._dismiss_notice()
    window.window_actions["new"].trigger()
    window.sides.show_session_or_new(session)
    assert window.notices.isHidden(), "the user has dismissed it"
