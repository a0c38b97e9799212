"""The window as a person uses it, on a desk in memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDropEvent, QGuiApplication, QKeySequence
from PySide6.QtTest import QSignalSpy, QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QApplication,
    QLabel,
    QMenu,
    QMessageBox,
    QPlainTextEdit,
    QPushButton,
    QWidget,
)

from helix_desktop.engine.cache_entry_rows import EntrySort
from helix_desktop.engine.fact_encoding import decode_fact, encode_fact
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Stop,
    Text,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.list_rows import ConversationListRow as Row
from helix_desktop.engine.ports import ClosedSearchResult, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import (
    CLOSED,
    ActivityChanged,
    ConversationActivity,
    ConversationReplaced,
    QuestionAnswered,
)
from helix_desktop.engine.view import build_state
from helix_desktop.errors import InvalidInput, StoreBusy, StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.completion_list import CompletionRequest
from helix_desktop.gui.chat.composer import ALLOW_ALL, ALLOW_ALL_FOR_AN_HOUR
from helix_desktop.gui.common.figure_formats import format_time_of_day
from helix_desktop.gui.conversation_starting import AgentChoiceDialog
from helix_desktop.gui.frame.window_layout import NARROW_WINDOW_WIDTH
from helix_desktop.gui.main_window import MainWindow
from helix_desktop.gui.model_actions import ModelActions
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.search_suggestions import offer_slash_commands
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.fold_now_dialog import FoldNowDialog
from helix_desktop.gui.transcript.chat_actions import ActOnMessage, MessageAct
from helix_desktop.program_settings import ProgramSettings
from tests.gui import story
from tests.gui.fake_desk import FakeDesk, FakeSession, FakeWorkbench
from tests.gui.fake_setup import FakeSetup
from tests.turns import qt_works

FILE = Attachment("notes.txt", story.stored("ok\n"), 3)
OPENING = ("open-folder", "import-workspace", "join-workspace")
COMMAND = PermissionQuestion(
    story.call(9, "run_command", command="cargo test"), "Run a command", "cargo test"
)


def titles(window: MainWindow) -> list[str]:
    lines = window.sidebar.list.lines
    return [str(lines.index(at).data()) for at in range(lines.rowCount())]


def said(session: FakeSession) -> list[str]:
    facts = [recorded.fact for recorded in session.state.facts]
    return [
        part.text
        for fact in facts
        if isinstance(fact, UserSaid)
        for part in fact.parts
        if isinstance(part, Text)
    ]


def write(window: MainWindow, text: str) -> None:
    window.chat.composer.text.setFocus()
    QTest.keyClicks(window.chat.composer.text, text)
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)


def test_it_opens_where_it_was_left(window: MainWindow) -> None:
    assert window.windowTitle() == "Extract the lock manager — storage-engine — Helix Desktop"
    assert titles(window)[:2] == ["Today", "Extract the lock manager"]
    assert window.sidebar.list.selected_conversation_id() == story.CONVERSATION
    assert window.chat.composer._figures.text() == "≈ 34% full · $0.060"


def test_a_window_made_with_large_text_fits_again_with_usual_text(
    theme: Theme, state_file: WindowStateFile, settings: ProgramSettings, doing: BackgroundRunner
) -> None:
    theme.set_zoom(2.0)
    window = MainWindow(theme, state_file, settings, doing)
    theme.set_zoom(1.0)
    timeline = window.pages.timeline
    inside = timeline._lower.parentWidget()  # The timeline itself may be narrower: it scrolls.
    assert inside is not None
    sides = (window.pages.inspector, inside, timeline.panel, window.pages.cache.viewer)
    assert [side.minimumWidth() for side in sides] == [220, 260, 260, 300]


def test_the_list_is_asked_for_once_when_it_is_shown_anew(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ten thousand conversations each time takes milliseconds."""
    lists = iter([bench.list_conversations()])
    monkeypatch.setattr(bench, "list_conversations", lambda: next(lists))
    window.sides.refresh_conversations()
    assert next(lists, None) is None


def test_nothing_can_be_shortened_where_another_agent_works(
    window: MainWindow, session: FakeSession
) -> None:
    """What that agent sends is its own affair. The defect: "Shorten first" was offered there."""
    names = ("fold-marker", "fold-observations", "fold-reflection", "fold-handover", "show-request")
    assert all(window.window_actions[name].isEnabled() for name in names)
    session.append(ConversationStarted(acp_agent="Echo agent"))
    session.append(ModelSet(ModelRole.MAIN, "Echo agent", 50_000))
    window.chat.bridge.emit_waiting_events()
    window.window_actions.update_enabled()
    assert not any(window.window_actions[name].isEnabled() for name in names)
    assert not window.chat.composer.context_button.isVisible()
    window.context_panel_opener.toggle_context_panel()
    assert not window.context_panel.isVisible()


def test_up_takes_the_newest_queued_message_back_instead_of_copying_it(
    window: MainWindow, session: FakeSession
) -> None:
    session.set_running(ConversationActivity.THINKING)
    window.chat.bridge.emit_waiting_events()
    text = window.chat.composer.text
    for words in ("first", "second"):
        text.setPlainText(words)
        window.chat.composer.send_composed_message(steer=False)
        window.chat.bridge.emit_waiting_events()
    QTest.keyClick(text, Qt.Key.Key_Up)
    window.chat.bridge.emit_waiting_events()
    assert text.toPlainText() == "second"
    assert [waiting.parts for waiting in session.queue] == [(Text("first"),)]
    text.clear()
    QTest.keyClick(text, Qt.Key.Key_Up)
    window.chat.bridge.emit_waiting_events()
    assert text.toPlainText() == "first"
    assert session.queue == []
    text.clear()
    QTest.keyClick(text, Qt.Key.Key_Up)  # Nothing waits now: what was sent before is brought back.
    assert text.toPlainText() == "second"


def test_escape_closes_the_nearest_thing_before_it_stops_anything(
    window: MainWindow, session: FakeSession
) -> None:
    """With the find bar open it stopped a running summary, and the bar stayed open."""
    assert QTest.qWaitForWindowActive(window)
    session.set_running(ConversationActivity.TOOLS)
    window.chat.bridge.emit_waiting_events()
    composer_text = window.chat.composer.text
    search_field = window.sidebar.search
    find_bar = window.chat.transcript.bar

    window.window_actions["find"].trigger()
    QTest.keyClick(find_bar.field, Qt.Key.Key_Escape)
    assert not find_bar.isVisible()

    window.window_actions["find"].trigger()
    composer_text.setFocus()
    QTest.keyClick(composer_text, Qt.Key.Key_Escape)
    assert not find_bar.isVisible()
    assert composer_text.hasFocus()

    QTest.keyClicks(composer_text, "/ne")
    completion = composer_text.completion
    assert completion is not None
    assert completion.isVisible()
    QTest.keyClick(composer_text, Qt.Key.Key_Escape)
    assert not completion.isVisible()

    search_field.setFocus()
    search_field.setText("word")
    QTest.keyClick(search_field, Qt.Key.Key_Escape)
    assert search_field.text() == ""

    window.switch_to_page("cache")
    cache_field = window.pages.cache.bar.field
    cache_field.setFocus()
    cache_field.setText("word")
    QTest.keyClick(cache_field, Qt.Key.Key_Escape)
    assert cache_field.text() == ""

    assert session.done == []
    QTest.keyClick(cache_field, Qt.Key.Key_Escape)
    assert session.done == [], "the agent's conversation is not what the person looks at"


@pytest.mark.parametrize("page", ["changes", "cache", "timeline", "inspector"])
def test_escape_on_another_page_leaves_the_agent_at_work(
    window: MainWindow, session: FakeSession, page: str
) -> None:
    """The defect: somebody read the changes while the agent waited in the chat for an answer."""
    assert QTest.qWaitForWindowActive(window)
    session.set_running(ConversationActivity.ASKING)
    window.chat.bridge.emit_waiting_events()
    window.switch_to_page(page)
    QTest.keyClick(window, Qt.Key.Key_Escape)
    window.sidebar.list.setFocus()
    QTest.keyClick(window.sidebar.list, Qt.Key.Key_Escape)
    assert session.done == []

    window.window_actions["stop"].trigger()
    assert session.done == ["stop"], "the command works from everywhere"


def test_escape_beside_the_chat_leaves_the_agent_at_work(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    session.set_running(ConversationActivity.TOOLS)
    window.chat.bridge.emit_waiting_events()
    for widget in (window.sidebar.list, window.top.findChildren(QPushButton)[0]):
        widget.setFocus()
        QTest.keyClick(widget, Qt.Key.Key_Escape)
    assert session.done == []
    window.chat.transcript.view.setFocus()
    QTest.keyClick(window.chat.transcript.view, Qt.Key.Key_Escape)
    assert session.done == ["stop"]


def test_a_question_is_answered_from_the_keyboard_wherever_the_focus_is(
    window: MainWindow, session: FakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.gui.chat.permission_card.READING", 0.0)
    assert QTest.qWaitForWindowActive(window)
    number = session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    assert window.chat.approvals.isVisible()
    QApplication.processEvents()
    QTest.keyClick(window, Qt.Key.Key_Y, Qt.KeyboardModifier.AltModifier)
    assert session.given == {number: PermissionAnswer(allowed=True, scope="once")}
    window.chat.bridge.emit_waiting_events()
    assert not window.chat.approvals.isVisible()


def test_a_question_does_not_take_the_focus_from_somebody_writing(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    window.chat.composer.text.setFocus()
    QTest.keyClicks(window.chat.composer.text, "half a sent")
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer.text.hasFocus()


def test_a_question_takes_the_focus_from_nobody(window: MainWindow, session: FakeSession) -> None:
    """The next word somebody types, or Enter pressed by habit, must not answer it."""
    assert QTest.qWaitForWindowActive(window)
    window.chat.composer.text.setFocus()
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer.text.hasFocus()


def press(window: MainWindow, words: str) -> None:
    """The button of the last question with these words."""
    box = window.findChildren(QMessageBox)[-1]
    next(each for each in box.buttons() if each.text().replace("&", "") == words).click()


def use_agent(window: MainWindow, name: str) -> None:
    """The button of the list of agents that begins with this one."""
    dialog = window.findChildren(AgentChoiceDialog)[-1]
    buttons = dialog.findChildren(QPushButton)
    next(each for each in buttons if each.accessibleName() == f"Use: {name}").click()


def test_a_conversation_with_another_agent_is_begun_with_one_of_those_that_are_there(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.window_actions["new-acp"].trigger()
    use_agent(window, "Gemini CLI")
    assert window.current_session is not None
    assert bench.sessions[window.current_session.id].conversation.state.acp_agent == "Gemini CLI"
    assert window.top.model.text() == "Agent: Gemini CLI ▾"
    models = ModelActions(window.parts, window.top, window.sides, FakeSetup())
    models.open_model_chooser()
    menu = window.top.model.findChild(QMenu)
    assert menu is not None
    below = menu.actions()[0].menu()
    assert isinstance(below, QMenu)
    assert menu.actions()[0].text() == "Mode: Plan && think"
    assert [(action.text(), action.isChecked()) for action in below.actions()] == [
        ("Plan && think", True),
        ("yolo", False),
    ]
    below.actions()[1].trigger()
    assert bench.acp.chosen == [("mode", "yolo")]
    menu.close()


def test_where_no_other_agent_is_on_the_computer_it_is_said(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    bench.acp.found_agents = []
    bench.acp.removed = ["Mine"]
    window.window_actions["new-acp"].trigger()
    dialog = window.findChildren(AgentChoiceDialog)[-1]
    said = [label.text() for label in dialog.findChildren(QLabel)]
    assert said[0].startswith(
        "No agent that supports the Agent Client Protocol was found on this computer."
    )
    assert "Not found on this computer" in said
    assert {"Codex", "npm i"} <= set(said)
    assert not [each for each in dialog.findChildren(QPushButton) if each.text() == "Use"]


def test_the_list_of_agents_says_how_to_sign_in_and_how_the_others_are_installed(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    """Of the agents that were not installed, nothing was said."""
    window.window_actions["new-acp"].trigger()
    dialog = window.findChildren(AgentChoiceDialog)[-1]
    said = [label.text() for label in dialog.findChildren(QLabel) if label.isVisible()]
    in_order = ["Mine", "Gemini CLI", "gemini login", "Not found on this computer", "npm i"]
    assert [words for words in said if words in in_order] == in_order
    assert not any(words in said for words in ("codex-acp", "gemini"))
    copies = [each for each in dialog.findChildren(QPushButton) if each.text() == "Copy"]
    copies[-1].click()
    assert QGuiApplication.clipboard().text() == "npm i"


def test_commands_of_another_agent_are_offered_and_need_no_model_of_ours(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.window_actions["new-acp"].trigger()
    use_agent(window, "Gemini CLI")
    bench.main_model_name = ""
    text = window.chat.composer.text
    text.setFocus()
    QTest.keyClicks(text, "/mem")
    QTest.keyClick(text, Qt.Key.Key_Return)
    assert text.toPlainText() == "/memory "
    QTest.keyClicks(text, "now")
    QTest.keyClick(text, Qt.Key.Key_Return)
    assert window.current_session is not None
    facts = window.current_session.conversation.state.facts
    assert [each.fact.parts for each in facts if isinstance(each.fact, UserSaid)] == [
        (Text("/memory now"),)
    ]


def test_the_head_names_the_copy_of_a_conversation_and_of_its_fork(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    assert window.top.copy.text() == ""
    window.window_actions["fork-copy"].trigger()
    assert window.current_session is not None
    assert bench.rows[window.current_session.id].copy == "main"
    assert window.top.copy.text() == "copy of main · Bring back…"
    for page in ("chat", "changes"):
        window.switch_to_page(page)
        window.top.copy.click()
        assert "Apply as uncommitted changes" in click_way(window, "Cancel")
        QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)


@pytest.mark.parametrize(
    ("name", "done"),
    [
        ("regenerate", "regenerate"),
        ("resume", "resume"),
        ("fold-marker", "fold marker"),
    ],
)
def test_actions_reach_the_conversation(
    window: MainWindow, session: FakeSession, name: str, done: str
) -> None:
    window.window_actions[name].trigger()
    assert session.done == [done]


def test_on_a_page_that_cannot_be_searched_everything_is(window: MainWindow) -> None:
    window.switch_to_page("timeline")
    window.window_actions["find"].trigger()
    assert window.palette_box.isVisible()


def test_the_palette_finds_actions_conversations_and_messages(window: MainWindow) -> None:
    window.window_actions["palette"].trigger()
    found = {find.text: find for find in window.palette_box._model.items}
    assert {"Extract the lock manager", "parser", "New conversation"} <= found.keys()
    assert found["New conversation"].key == "Ctrl+N"
    window.palette_box.line.setText("Shard")
    window.search.search_everywhere("Shard")
    assert any(find.kind == "entry" for find in window.palette_box._model.items)
    assert any(find.kind == "message" for find in window.palette_box._model.items)


def test_the_palette_finds_what_the_menu_of_workspaces_has(window: MainWindow) -> None:
    window.palette_box.open_palette("ssh")
    assert "Open a folder on another computer…" in [
        find.text for find in window.palette_box._model.items
    ]


def test_the_palette_says_what_is_wrong_with_a_filter(window: MainWindow) -> None:
    window.palette_box.open_palette("Shard before:banana")
    window.search.search_everywhere("Shard before:banana")
    shown = [find.text for find in window.palette_box._model.items]
    assert shown == ["“banana” is not a date. Write a date as 2026-03-31, 2026-03 or 2026."]


def test_every_open_workspace_is_searched(window: MainWindow, desk: FakeDesk) -> None:
    window.workspaces.go_to_workspace("parser")
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    items = window.palette_box._model.items
    places = [find.workspace for find in items if find.kind in ("entry", "message")]
    assert "storage-engine" in places
    assert places[0] == "", "the shown workspace stands first"
    assert "In storage-engine:" in [find.text for find in items]


def test_closed_workspaces_are_searched_too_and_one_that_cannot_be_is_named(
    window: MainWindow, desk: FakeDesk
) -> None:
    desk.unsearched["infra"] = StoreBusy("infra is open in another program.")
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    finds = [find for find in window.palette_box._model.items if find.kind != "action"]
    assert any(find.kind == "entry" and find.workspace == "parser" for find in finds)
    assert ("Not searched: this workspace is open in another program", "infra") in [
        (f.text, f.note) for f in finds
    ]
    desk.unsearched = {"parser": StoreFailed("It cannot be read.")}
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    assert any(
        find.text.startswith("Not searched: this workspace cannot be read")
        for find in window.palette_box._model.items
    )
    assert window.palette_box._model.items[-1].text.startswith("Not searched")
    desk.behind = {"infra"}
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    late = [
        find.note
        for find in window.palette_box._model.items
        if find.text.startswith("Not fully searched")
    ]
    assert late == ["infra"]
    title = "Extract the lock manager"
    message = next(
        find for find in finds if find.workspace == "parser" and find.note.endswith(title)
    )
    message.act()
    assert window.current_workbench is desk.benches["parser"]


def test_a_workspace_that_an_import_opened_is_searched_as_one_that_is_open_here(
    window: MainWindow, desk: FakeDesk
) -> None:
    desk.opened.append(desk.benches["infra"])
    desk.unsearched["infra"] = StoreBusy("infra is open in another program.")
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    finds = [find for find in window.palette_box._model.items if find.kind != "action"]
    assert not any(find.text.startswith("Not searched") for find in finds)
    assert any(find.kind == "entry" and find.workspace == "infra" for find in finds)


def test_letters_typed_at_a_tab_or_a_tile_go_into_the_message(window: MainWindow) -> None:
    tabs = [each for each in window.top.findChildren(QAbstractButton) if each.isVisible()]
    for number, button in enumerate(tabs + window.rail.findChildren(QAbstractButton)):
        button.setFocus()
        QTest.keyClicks(button, "word")
        assert window.chat.composer.text.toPlainText() == "word" * (number + 1)
    window.switch_to_page("changes")
    QTest.keyClicks(tabs[0], "word")
    assert window.chat.composer.text.toPlainText() == "word" * (number + 1)
    window.chat.composer.text.clear()


def test_a_search_nobody_waits_for_any_more_opens_no_further_workspace(
    window: MainWindow, desk: FakeDesk
) -> None:
    asked: list[str] = []

    async def asks(workspace: str, words: str) -> ClosedSearchResult:
        asked.append(workspace)
        window.palette_box.line.setText("other words")
        return ClosedSearchResult()

    desk.search_closed_workspace = asks  # type: ignore[method-assign]
    window.palette_box.open_palette("Shard")
    window.search.search_everywhere("Shard")
    assert asked == ["parser"]


def test_an_answer_that_was_cut_off_says_so_once(window: MainWindow, session: FakeSession) -> None:
    steps = window.chat.turn_end_help
    session.append(
        UserSaid((Text("Go on."),)), ModelReplied((Text("Half of"),), story.MODEL, Stop.CUT)
    )
    steps.show_last_turn_end(session)
    assert steps.isVisibleTo(window)
    assert steps._words.text() == ""


def test_an_error_is_a_notice_with_what_to_do(window: MainWindow) -> None:
    window.background_runner.failed.emit(
        InvalidInput(
            "Cannot rewind while the agent is working.", remedy="Stop the agent first (Esc)."
        )
    )
    assert (
        window.notices.shown_text
        == "Cannot rewind while the agent is working. Stop the agent first (Esc)."
    )


def own_messages(session: FakeSession) -> list[int]:
    """The fact numbers of the user's messages."""
    return [each.seq for each in session.state.facts if isinstance(each.fact, UserSaid)]


def texts_for_model(session: FakeSession) -> list[str]:
    """The texts of the user's messages in the view of which the next request is built."""
    blocks = session.state.get_view().blocks
    return [block.content.text for block in blocks if isinstance(block.content, Text)]


def rewind(window: MainWindow, seq: int) -> None:
    window.chat_actions.carry_out_intent(ActOnMessage(MessageAct.REWIND, seq))
    click_way(window, "Rewind")


def click_way(window: MainWindow, words: str) -> str:
    """Press a button of the open question, and return the question."""
    (box,) = [each for each in window.findChildren(QMessageBox) if each.isVisible()]
    text = box.text()
    next(each for each in box.buttons() if each.text().replace("&", "") == words).click()
    return text


def test_quitting_asks_once_while_agents_work(window: MainWindow, session: FakeSession) -> None:
    done: list[str] = []

    def quit_window() -> None:
        window.quit_or_ask(lambda: done.append("quit"), lambda: done.append("hidden"))

    quit_window()
    assert done == ["quit"]
    session.tell(ActivityChanged(session.id, ConversationActivity.TOOLS))
    window.workspaces.shown_activity._bridge.emit_waiting_events()
    for _ in range(2):
        quit_window()
    assert click_way(window, "Cancel").startswith("1 agent is still working.")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert done == ["quit"]
    quit_window()
    click_way(window, "Close the window only")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert done == ["quit", "hidden"]
    quit_window()
    click_way(window, "Stop and quit")
    assert done == ["quit", "hidden", "quit"]


def test_a_restart_asks_while_agents_work_in_this_window_or_another(
    window: MainWindow, session: FakeSession
) -> None:
    done: list[str] = []

    def restart(working_elsewhere: int) -> None:
        window.restart_or_ask(lambda: done.append("restarted"), working_elsewhere)

    restart(0)
    assert done == ["restarted"]
    restart(1)
    assert click_way(window, "Cancel").startswith("In another window, 1 agent is still working.")
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    session.tell(ActivityChanged(session.id, ConversationActivity.TOOLS))
    window.workspaces.shown_activity._bridge.emit_waiting_events()
    restart(0)
    assert done == ["restarted"]
    assert click_way(window, "Stop and restart").startswith("1 agent is still working.")
    assert done == ["restarted", "restarted"]


def test_quitting_just_after_a_stop_does_not_ask_about_the_agent_that_was_stopped(
    window: MainWindow, session: FakeSession
) -> None:
    done: list[str] = []
    session.set_running(ConversationActivity.TOOLS)
    window.workspaces.shown_activity._bridge.emit_waiting_events()
    window.chat.bridge.emit_waiting_events()
    window.window_actions["stop"].trigger()
    window.quit_or_ask(lambda: done.append("quit"), lambda: done.append("hidden"))
    assert done == ["quit"]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("/compact", " Did you mean /shorten?"),
        ("/handover", " Did you mean /shorten?"),
        ("/forkk now", " Did you mean /fork?"),
        ("/qqq", ""),
    ],
)
@pytest.mark.parametrize("is_new", [False, True])
def test_an_unknown_command_is_asked_about_and_not_sent(
    window: MainWindow, session: FakeSession, text: str, meant: str, *, is_new: bool
) -> None:
    if is_new:
        window.sides.begin_new_conversation()
    write(window, text)
    asked = f"There is no command {text.split(maxsplit=1)[0]}.{meant}"
    before = list(said(session))
    assert click_way(window, "Cancel") == asked
    assert (said(session), window.chat.composer.text.toPlainText()) == (before, text)
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    QTest.keyClick(window.chat.composer.text, Qt.Key.Key_Return)
    assert click_way(window, "Send as text") == asked
    assert said(cast("FakeSession", window.current_session))[-1] == text


@pytest.mark.parametrize(
    ("way", "words"), [("key", "about $0.030"), ("command", "about $0.030"), ("free", "no model")]
)
def test_a_fold_that_a_model_writes_is_asked_about_with_its_price(
    window: MainWindow, session: FakeSession, way: str, words: str
) -> None:
    if way == "command":
        offers = offer_slash_commands(window.window_actions, CompletionRequest("/", "shorten", 0))
        window.search.act_on_chosen_completion(offers[0])
    else:
        window.window_actions["fold-handover"].trigger()
    (dialog,) = window.findChildren(FoldNowDialog)
    assert session.done == []
    assert dialog.kind.currentData() == FoldKind.HANDOVER
    if way == "free":
        dialog.kind.setCurrentIndex(dialog.kind.count() - 1)
    assert words in dialog.forecast.text()
    dialog.accept()
    assert session.done == ["fold marker" if way == "free" else "fold handover"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("own/scripted", "The price is not known"),
        ("ollama/llama", "sends about 8.8K tokens to a model"),
    ],
)
def test_a_fold_without_a_price_says_why(
    window: MainWindow, session: FakeSession, model: str, words: str
) -> None:
    session.fold_cost = None
    session.append(ModelSet(ModelRole.MAIN, model, 32_000))
    window.window_actions["fold-observations"].trigger()
    (dialog,) = window.findChildren(FoldNowDialog)
    assert dialog.kind.currentData() == FoldKind.OBSERVATIONS
    assert words in dialog.forecast.text()
    dialog.reject()
    assert session.done == []


@pytest.mark.parametrize(
    ("own", "count"),
    [
        (ConversationActivity.TOOLS, "1 agent is"),  # It waits for its sub-agent.
        (ConversationActivity.ASKING, "1 agent is"),  # Its sub-agent asks.
        (ConversationActivity.IDLE, "1 agent is"),
        (ConversationActivity.THINKING, "2 agents are"),
    ],
)
def test_quitting_counts_an_agent_and_not_the_conversation_that_waits_for_it(
    window: MainWindow,
    bench: FakeWorkbench,
    session: FakeSession,
    own: ConversationActivity,
    count: str,
) -> None:
    bench.rows["child"] = Row("child", "C", 0.0, parent=session.id)
    for name, state in (("child", ConversationActivity.TOOLS), (session.id, own)):
        bench._heard(ActivityChanged(name, state))
    window.workspaces.shown_activity._bridge.emit_waiting_events()
    window.quit_or_ask(lambda: None, lambda: None)
    assert click_way(window, "Cancel").startswith(count)


def test_what_was_forgotten_leaves_the_window_at_once(
    window: MainWindow, session: FakeSession
) -> None:
    secret = "The guard must never"
    session.state = build_state(
        replace(each, fact=decode_fact(encode_fact(each.fact).replace(secret, "[forgotten]")))
        for each in session.state.facts
    )
    session.tell(ConversationReplaced(session.id))
    window.chat.bridge.emit_waiting_events()
    view = window.chat.transcript.view
    view.select_all_text()
    assert secret not in view.selected_text()
    assert "[forgotten]" in view.selected_text()


def test_layout_is_remembered_per_workspace(window: MainWindow) -> None:
    window.toggle_sidebar()
    window.switch_to_page("timeline")
    window.workspaces.go_to_workspace("parser")
    assert window.is_sidebar_shown
    assert window.showing.page == "chat"
    window.workspaces.go_to_workspace("storage-engine")
    assert not window.is_sidebar_shown
    assert window.showing.page == "timeline"


def test_sidebar_and_inspector_have_their_widths(window: MainWindow) -> None:
    assert window._splitter.sizes()[2] == 0, "the inspector is closed until it is asked for"
    window.toggle_side_panel()
    sizes = window._splitter.sizes()
    assert (sizes[0], sizes[2]) == (251, 299)
    assert window.rail.width() == 56


def test_a_tight_window_gives_the_inspector_s_room_to_the_chat_until_asked(
    window: MainWindow,
) -> None:
    window.resize(1024, 640)
    assert window.width() < NARROW_WINDOW_WIDTH
    assert not window.is_side_panel_shown
    window.toggle_side_panel()
    assert window.is_side_panel_shown
    assert window._splitter.sizes()[1] >= 360


def test_after_the_side_panel_was_closed_the_message_is_written_on(window: MainWindow) -> None:
    window.toggle_side_panel()
    window.pages.inspector.close_button.setFocus()
    window.pages.inspector.close_button.click()
    assert not window.is_side_panel_shown
    assert window.focusWidget() is window.chat.composer.text


def test_after_the_agent_was_stopped_the_message_is_written_on(window: MainWindow) -> None:
    composer = window.chat.composer
    composer.show_run_state(ConversationActivity.TOOLS)
    composer._stop.setFocus()
    assert window.focusWidget() is composer._stop
    composer.show_run_state(ConversationActivity.IDLE)
    assert window.focusWidget() is composer.text


def test_escape_in_the_message_box_closes_the_preview(window: MainWindow) -> None:
    """The defect: Escape closed it only where the preview itself had the focus."""
    window.show_preview(window.pages.preview)
    box = window.sides.current.composer.text
    box.setFocus()
    assert not window.window_actions["stop"].isEnabled()
    QTest.keyClick(box, Qt.Key.Key_Escape)
    assert not window.is_preview_shown


def test_escape_in_the_preview_closes_it_while_the_agent_works(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    session.set_running(ConversationActivity.TOOLS)
    window.chat.bridge.emit_waiting_events()
    preview = window.pages.preview
    window.show_preview(preview)
    preview.lines.setFocus()
    QTest.keyClick(preview.lines, Qt.Key.Key_Escape)
    assert not window.is_preview_shown
    assert session.done == []


def test_what_another_window_forgets_goes_from_the_message_box_too(
    window: MainWindow, session: FakeSession, state_file: WindowStateFile
) -> None:
    """The defect: the next key wrote the forgotten text into the drafts again."""
    window.sides.go_to_conversation("flaky", beside=True)
    window.sides.go_to_other_side()
    boxes = [side.composer.text for side in window.sides.sides]
    for box in boxes:
        box.setPlainText("the secret is hunter2")
    state_file.write_state_file()
    other_window = WindowStateFile(state_file._file.with_name("window-2.json"))
    other_window.forget_remembered_text("hunter2", within="storage-engine")
    QTest.keyClicks(boxes[0], "!")
    state_file.start_waiting_write()
    qt_works(1)
    assert [box.toPlainText() for box in boxes] == ["the secret is "] * 2
    state_file.write_state_file()
    files = state_file._file.parent.glob("window*")
    assert "hunter2" not in "".join(file.read_text() for file in files)


def test_letters_nobody_else_wants_are_a_message(window: MainWindow, session: FakeSession) -> None:
    """Whoever read back, or was asked something meanwhile, just goes on writing."""
    composer = window.chat.composer.text
    window.chat.transcript.view.setFocus()
    QTest.keyClicks(window.chat.transcript.view, "Al")
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    allow = next(
        each
        for each in window.chat.approvals.findChildren(QPushButton)
        if each.text() == "Allow once"
    )
    QTest.keyClicks(allow, "so")
    assert composer.toPlainText() == "Also"
    assert window.chat.approvals.isVisible()


def test_a_file_that_falls_anywhere_on_the_chat_is_attached_and_no_notice_covers_it(
    window: MainWindow, tmp_path: Path
) -> None:
    composer = window.chat.composer
    place = QPoint(200, 200)
    (tmp_path / "notes.txt").write_text("Use tabs.")
    dropped = QMimeData()
    dropped.setUrls(
        [QUrl.fromLocalFile(str(tmp_path / name)) for name in ("notes.txt", "missing.txt")]
    )
    copy = Qt.DropAction.CopyAction
    left = Qt.MouseButton.LeftButton
    none = Qt.KeyboardModifier.NoModifier
    entering = QDragEnterEvent(place, copy, dropped, left, none)
    QApplication.sendEvent(window.chat, entering)
    assert entering.isAccepted()
    QApplication.sendEvent(window.chat, QDropEvent(QPointF(place), copy, dropped, left, none))
    QApplication.processEvents()
    assert "missing.txt" in window.notices.shown_text
    assert [each.name for each in composer.attachments.listed_attachments] == ["notes.txt"]
    over = window.notices.mapToGlobal(QPoint(0, window.notices.height())).y()
    assert over <= composer.mapToGlobal(QPoint(0, 0)).y()


def test_slash_commands_and_mentions_are_offered(window: MainWindow) -> None:
    window.window_actions.set_action_handler("tour", lambda: None)
    QTest.keyClicks(window.chat.composer.text, "/short")
    popup = window.chat.composer.text.completion
    assert popup is not None
    assert [popup.item(at).text().split()[0] for at in range(popup.count())] == [
        "/shorten",
        "/old-outputs",
    ]
    window.chat.composer.text.clear()
    QTest.keyClicks(window.chat.composer.text, "see @lock/t")
    assert [popup.item(at).text() for at in range(popup.count())] == ["src/lock/table.rs"]


@pytest.mark.parametrize(
    ("reason", "page", "buttons"),
    [
        (TurnEnd.SPENDING_LIMIT, "limits", ["Limits…", "Continue"]),
        (TurnEnd.STEP_LIMIT, "limits", ["Limits…", "Continue"]),
        (TurnEnd.FAILED, "", []),
        (TurnEnd.DONE, "", []),
    ],
)
def test_where_a_turn_ended_by_itself_there_is_a_way_on(
    window: MainWindow, session: FakeSession, reason: TurnEnd, page: str, buttons: list[str]
) -> None:
    why = "Today has cost $1.20; the limit is $1.00."
    session.append(TurnEnded(reason, why))
    session.set_running(ConversationActivity.FAILED if buttons else ConversationActivity.IDLE, why)
    window.chat.bridge.emit_waiting_events()
    way_on = window.chat.turn_end_help
    wanted = QSignalSpy(window.parts.requests.settings_wanted)
    shown = [each for each in way_on.findChildren(QPushButton) if each.isVisible()]
    assert [each.text() for each in shown] == buttons
    assert why not in way_on._words.text(), "the transcript says it"
    if buttons:
        QTest.mouseClick(shown[0], Qt.MouseButton.LeftButton)
        assert wanted.at(0) == [page]
    session.set_running(ConversationActivity.THINKING)
    window.chat.bridge.emit_waiting_events()
    assert not way_on.isVisible()


@pytest.mark.parametrize("running", [ConversationActivity.IDLE, ConversationActivity.FAILED])
def test_a_message_that_could_not_be_recorded_can_be_sent_again(
    window: MainWindow, session: FakeSession, running: ConversationActivity
) -> None:
    """The turn has left no fact: the disk was full, or it was stopped before it began."""
    session.append(TurnEnded(TurnEnd.DONE))
    session.set_running(ConversationActivity.THINKING)
    write(window, "Second.")
    session.set_running(
        running, why="The disk is full." if running is ConversationActivity.FAILED else ""
    )
    window.chat.bridge.emit_waiting_events()
    way_on = window.chat.turn_end_help
    shown = [each for each in way_on.findChildren(QPushButton) if each.isVisible()]
    assert [each.text() for each in shown] == ["Continue"]
    assert way_on._words.text().startswith(
        "The disk is full. " if running is ConversationActivity.FAILED else "Nothing is lost."
    )
    QTest.mouseClick(shown[0], Qt.MouseButton.LeftButton)
    assert session.done[-1] == "resume"


def test_a_turn_that_closing_the_window_stopped_can_be_continued(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(TurnEnded(TurnEnd.STOPPED, CLOSED))
    session.set_running(ConversationActivity.IDLE)
    window.chat.bridge.emit_waiting_events()
    shown = [
        each for each in window.chat.turn_end_help.findChildren(QPushButton) if each.isVisible()
    ]
    assert [each.text() for each in shown] == ["Continue"]
    QTest.mouseClick(shown[0], Qt.MouseButton.LeftButton)
    assert session.done[-1] == "resume"


def test_messages_that_wait_after_a_stop_are_sent_by_going_on(
    window: MainWindow, session: FakeSession
) -> None:
    write(window, "First.")
    write(window, "Second.")
    session.append(TurnEnded(TurnEnd.STOPPED))
    session.set_running(ConversationActivity.IDLE)
    window.chat.bridge.emit_waiting_events()
    shown = [
        each for each in window.chat.turn_end_help.findChildren(QPushButton) if each.isVisible()
    ]
    assert [each.text() for each in shown] == ["Continue"]
    session.queue.take_back_queued(0)
    window.chat.bridge.emit_waiting_events()
    assert not window.chat.turn_end_help.isVisible()


def test_a_turn_that_the_programs_end_broke_off_can_be_gone_on_with(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(UserSaid((Text("Count."),)))
    window.sides.show_session_or_new(session)
    shown = [
        each for each in window.chat.turn_end_help.findChildren(QPushButton) if each.isVisible()
    ]
    assert [each.text() for each in shown] == ["Continue"]
    QTest.mouseClick(shown[0], Qt.MouseButton.LeftButton)
    window.chat.bridge.emit_waiting_events()
    assert session.done[-1] == "resume"
    assert not window.chat.turn_end_help.isVisible()


def test_the_cache_page_says_quietly_that_its_limit_is_passed(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    window.switch_to_page("cache")
    over = window.pages.cache.over_limit_button
    wanted = QSignalSpy(window.parts.requests.settings_wanted)
    assert not over.isVisible()
    for tell in bench.size_limit.heard:
        tell(12_000_000)
    assert over.text() == "12.0 MB over the limit"
    QTest.mouseClick(over, Qt.MouseButton.LeftButton)
    assert wanted.at(0) == ["storage"]
    for tell in bench.size_limit.heard:
        tell(0)
    assert not over.isVisible()


def test_a_question_that_goes_by_itself_leaves_the_keyboard_to_the_composer(
    window: MainWindow, session: FakeSession
) -> None:
    assert QTest.qWaitForWindowActive(window)
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    card = window.chat.approvals.visible_card
    assert card is not None
    card.focus_first_control()
    assert not window.chat.composer.text.hasFocus()
    session.questions.clear()  # a stop takes it back
    session.tell(QuestionAnswered(session.id, 1))
    window.chat.bridge.emit_waiting_events()
    assert window.chat.composer.text.hasFocus()


def test_a_call_that_waits_for_the_user_says_so_also_to_somebody_who_comes_back(
    window: MainWindow, session: FakeSession
) -> None:
    session.append(
        UserSaid((Text("Test."),)), ModelReplied((COMMAND.call,), story.MODEL, Stop.CALLS)
    )
    number = session.ask(COMMAND)
    window.window_actions["new"].trigger()
    window.sides.show_session_or_new(session)
    items = window.chat.transcript.view.items
    assert items.tool_call_state(len(items.all) - 1).waiting
    session.answer_question(number, PermissionAnswer(allowed=True))
    window.chat.bridge.emit_waiting_events()
    state = items.tool_call_state(len(items.all) - 1)
    assert (state.waiting, state.running) == (False, True)


def test_names_that_others_gave_are_no_mark_up_and_no_keys(
    window: MainWindow, desk: FakeDesk
) -> None:
    parser = desk.benches["parser"]
    parser.name = "R&D <b>x</b>"
    parser.main_model_name = "p/<b>m</b>"
    parser.allowed_folders = [Path("/home/<b>x</b>")]
    window.workspaces.go_to_workspace("parser")
    window.workspaces.refresh_workspaces()
    labels = [label for label in window.findChildren(QLabel) if "<b>" in label.text()]
    assert {label.textFormat() for label in labels} == {Qt.TextFormat.PlainText}
    tips = [
        widget.toolTip() for widget in window.findChildren(QWidget) if "b&gt;" in widget.toolTip()
    ]
    assert len(tips) == 3
    assert not [widget for widget in window.findChildren(QWidget) if "<b>" in widget.toolTip()]
    assert not [
        button
        for button in window.rail.findChildren(QAbstractButton)
        if not button.shortcut().isEmpty()
    ]


def test_the_cache_s_columns_and_divider_survive_a_restart(
    window: MainWindow,
    theme: Theme,
    state_file: WindowStateFile,
    settings: ProgramSettings,
    doing: BackgroundRunner,
    desk: FakeDesk,
) -> None:
    window.switch_to_page("cache")
    window.pages.cache._split.setSizes([200, 500])
    window.pages.cache.table.horizontalHeader().moveSection(3, 1)
    window.pages.cache.table.horizontalHeader().setSortIndicator(1, Qt.SortOrder.AscendingOrder)
    sizes = window.pages.cache._split.sizes()
    window.save_window_state()
    again = MainWindow(theme, state_file, settings, doing)
    again.workspaces.set_workspaces_and_start(desk)
    again.resize(1440, 900)
    again.switch_to_page("cache")
    again.show()
    assert again.pages.cache._split.sizes() == sizes
    assert again.pages.cache.table.horizontalHeader().visualIndex(3) == 1
    assert again.pages.cache.model.sort_by is EntrySort.TOOL


def test_a_changed_shortcut_is_named_wherever_it_stands(
    window: MainWindow, session: FakeSession
) -> None:
    window.window_actions.change_shortcut_and_return_robbed_title("palette", QKeySequence("Ctrl+J"))
    window.window_actions.change_shortcut_and_return_robbed_title(
        "allow-once", QKeySequence("Alt+J")
    )
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    window.window_actions.change_shortcut_and_return_robbed_title("find", QKeySequence("Ctrl+Y"))
    assert window.sidebar.search._key.text() == "Ctrl J"
    assert window.pages.cache.bar._hint.text() == "Ctrl Y"
    hints = [button.toolTip() for button in window.chat.approvals.findChildren(QPushButton)]
    assert "Allow once (Alt+J)" in hints


def test_leaving_the_box_that_finds_everything_gives_the_keyboard_back(
    window: MainWindow, session: FakeSession
) -> None:
    session.ask(COMMAND)
    window.chat.bridge.emit_waiting_events()
    card = window.chat.approvals.visible_card
    assert card is not None
    card.focus_first_control()
    assert card.isAncestorOf(window.focusWidget())
    window.window_actions["palette"].trigger()
    QTest.keyClick(window.palette_box.line, Qt.Key.Key_Escape)
    assert card.isAncestorOf(window.focusWidget())


@pytest.mark.parametrize(
    ("width", "height", "zoom"),
    [(880, 520, 1.0), (1024, 640, 1.5), (880, 520, 1.5), (894, 448, 1.0), (704, 386, 1.0)],
)
def test_a_question_can_be_read_and_answered_in_a_small_window(
    window: MainWindow, session: FakeSession, theme: Theme, width: int, height: int, zoom: float
) -> None:
    window.resize(width, height)
    change = "--- a\n+++ b\n" + "".join(f"+line {number}\n" for number in range(40))
    session.ask(
        replace(
            COMMAND,
            title="Create some/file.txt",
            why="this workspace asks before changes",
            preview=change,
        )
    )
    window.chat.bridge.emit_waiting_events()
    theme.set_zoom(2.0)  # and it stays right at another
    qt_works(20)
    theme.set_zoom(zoom)
    qt_works(20)
    card = window.chat.approvals.visible_card
    assert card is not None
    (preview,) = card.findChildren(QPlainTextEdit)
    buttons = card.findChildren(QPushButton) + window.chat.composer.findChildren(QPushButton)
    for button in buttons:
        if button.isVisible():
            assert button.width() >= button.sizeHint().width(), button.text()
            assert button.height() >= button.sizeHint().height(), button.text()
    right = max(
        button.mapTo(card, button.rect().bottomRight()).x()
        for button in card.findChildren(QPushButton)
    )
    assert right <= card.width() - 14
    below = min(button.mapTo(card, QPoint(0, 0)).y() for button in card.findChildren(QPushButton))
    assert preview.geometry().bottom() < below
    assert preview.height() >= preview.fontMetrics().lineSpacing() * 2
    assert (
        card.mapTo(window, QPoint(0, card.height())).y()
        <= window.chat.composer.mapTo(window, QPoint(0, 0)).y()
    )
    theme.set_zoom(1.0)


@pytest.mark.parametrize(("width", "height"), [(894, 448), (704, 386)])
def test_a_laptop_at_150_or_200_per_cent_has_room_for_what_sends(
    window: MainWindow, session: FakeSession, width: int, height: int
) -> None:
    """The smallest window was larger than the screen, and Send, the meter and the model lay outside."""
    window.resize(width, height)
    qt_works(20)
    assert (window.width(), window.height()) == (width, height)
    composer = window.chat.composer
    composer.text.setPlainText("next")
    qt_works(20)
    controls = [composer._send, composer.context_button, window.top.model]
    for control in controls:
        assert control.isVisible()
        bottom_right = control.mapTo(window, control.rect().bottomRight())
        assert bottom_right.x() < width, control
        assert bottom_right.y() < height, control


def test_allowing_everything_is_confirmed_and_shows(
    window: MainWindow, bench: FakeWorkbench
) -> None:
    before = bench.permission_mode
    for button in ("Cancel", "Allow everything"):
        window.chat.composer.mode_chosen.emit(ALLOW_ALL)
        (box,) = window.findChildren(QMessageBox)
        assert bench.permission_mode == before
        next(each for each in box.buttons() if each.text().replace("&", "") == button).click()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    assert bench.permission_mode == ALLOW_ALL
    assert window.chat.composer._mode.property("look") == "danger-chip"


def test_each_side_says_what_rules_allow_in_its_conversation(
    window: MainWindow, bench: FakeWorkbench, session: FakeSession
) -> None:
    bench.allowed_by_rules = {"": ("edits",), session.id: ("edits", "some commands")}
    for tell_change in tuple(bench.workspace.watching):
        tell_change()
    assert window.chat.composer._mode_words == "Ask, but allow edits and some commands"
    window.sides.begin_new_conversation()
    assert window.chat.composer._mode_words == "Ask, but allow edits"
    assert "Already allowed: edits." in window.chat.empty._words.text()


def test_an_hour_of_everything_is_confirmed_and_its_end_is_said_all_the_time(
    window: MainWindow, bench: FakeWorkbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    modes = {"ask": "Ask", ALLOW_ALL_FOR_AN_HOUR: "Allow everything for an hour"}
    monkeypatch.setattr(bench, "describe_permission_modes", lambda: modes)
    window.chat.composer.mode_chosen.emit(ALLOW_ALL_FOR_AN_HOUR)
    (box,) = window.findChildren(QMessageBox)
    assert bench.permission_mode == "ask"
    bench.everything_allowed_until = 1_700_000_000.0
    next(each for each in box.buttons() if each.text() == "Allow for an hour").click()
    assert bench.permission_mode == ALLOW_ALL_FOR_AN_HOUR
    end = format_time_of_day(1_700_000_000.0)
    assert window.chat.composer._mode_words == f"Allow everything until {end}"
    assert f"Allow everything until {end}" in window.window().windowTitle()
    assert window.chat.composer._mode.property("look") == "danger-chip"
