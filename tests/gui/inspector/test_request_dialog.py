"""A request as the model and as the provider gets it."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import Text, ToolCall
from helix_desktop.engine.messages import Message, Request, Role, ToolResult
from helix_desktop.engine.strategies import handover
from helix_desktop.gui.inspector.context_inspector import ContextInspector
from helix_desktop.gui.inspector.request_dialog import RequestDialog, format_request_as_text
from helix_desktop.gui.theme import Theme
from tests.gui import story
from tests.gui.fake_desk import FakeWorkbench
from tests.gui.inspector.test_context_inspector import (
    Commanded,
    Settle,
    act,
    panel,
    session,
    settle,
)

__all__ = ["panel", "session", "settle"]


def test_the_request_is_the_sessions(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    act(panel, "Show the request")
    settle()
    (dialog,) = [
        w for w in QApplication.topLevelWidgets() if isinstance(w, RequestDialog) and w.isVisible()
    ]
    assert dialog.windowTitle() == "Next request"
    wanted = format_request_as_text(request_building.build_request(session.view(), {}))
    dialog.view.select_all_text()
    assert dialog.view.selected_text() == "\n".join(wanted), "copied without the added breaks"
    assert any("The guard must never" in line for line in wanted)


def test_the_request_is_shown_as_the_provider_gets_it_too(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    bench = FakeWorkbench("w", "#0d7d74", Path("/w"))
    bench.sessions[session.id] = session
    panel.inspect_conversation(session, bench)
    settle()
    act(panel, "Show the request")
    settle()
    (dialog,) = [
        w for w in QApplication.topLevelWidgets() if isinstance(w, RequestDialog) and w.isVisible()
    ]
    dialog.form.setCurrentText(f"As sent to {story.MODEL}")
    dialog.view.select_all_text()
    assert json.loads(dialog.view.selected_text())["model"] == story.MODEL


def test_a_request_can_be_searched_is_wrapped_and_closes(theme: Theme) -> None:
    """Ctrl+F did nothing while the choice box had the focus, and lines ran out to the right."""
    lines = ["── 1 · You ──", "word " * 60 + "needle", "x" * 500, "a Needle again"]
    dialog = RequestDialog(theme, "Next request", "1 message", {"Readable": lines})
    dialog.show()
    assert QTest.qWaitForWindowActive(dialog)
    dialog.view._wrap_again_if_width_changed()
    widest = max(len(row.text) for row in dialog.view._text_rows)
    assert widest <= dialog.view._letters_per_row
    assert dialog.view.horizontalScrollBar().maximum() == 0

    dialog.form.setFocus()
    QTest.keyClick(dialog.form, Qt.Key.Key_F, Qt.KeyboardModifier.ControlModifier)
    assert dialog.find_bar.field.hasFocus()
    QTest.keyClicks(dialog.find_bar.field, "needle")
    assert dialog.find_bar.counts.text() == "1 of 2"
    assert dialog.view.selected_text() == "needle"
    QTest.keyClick(dialog.find_bar.field, Qt.Key.Key_Return)
    assert dialog.find_bar.counts.text() == "2 of 2"
    assert dialog.view.selected_text() == "Needle"
    QTest.keyClick(dialog.find_bar.field, Qt.Key.Key_Escape)
    assert dialog.isVisible()
    assert not dialog.find_bar.isVisible()
    (close_button,) = [
        button for button in dialog.findChildren(QPushButton) if button.text() == "Close"
    ]
    close_button.click()
    assert not dialog.isVisible()


def test_tab_into_it_shows_where_it_is(panel: ContextInspector) -> None:
    panel.view.clearFocus()
    panel.view.setFocus(Qt.FocusReason.TabFocusReason)
    assert panel.view._spot == (0, panel.view._stack.list_hot_spots()[0])


def test_the_blocks_stand_under_their_heading(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    act(panel, "All texts, calls and outputs")
    settle()
    stack = panel.view._stack
    names = [stack.hot_spot_and_rect(spot)[0].name for spot in stack.list_hot_spots()]
    heading = next(at for at, name in enumerate(names) if "All texts, calls and outputs" in name)
    assert panel._parts[0].shown_name.words in names[heading + 1]


def test_what_the_provider_gets_is_written_beside_the_painting_thread(
    panel: ContextInspector, session: Commanded, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[int] = set()

    class Body(dict[str, Any]):
        def items(self) -> Any:
            seen.add(threading.get_ident())
            return super().items()

    async def wire(_conversation: str, _seq: int | None, _request: Request) -> tuple[str, Body]:
        return story.MODEL, Body(model=story.MODEL)

    bench = FakeWorkbench("w", "#0d7d74", Path("/w"))
    bench.sessions[session.id] = session
    monkeypatch.setattr(bench, "request_as_sent", wire)
    panel.inspect_conversation(session, bench)
    settle()
    act(panel, "Show the request")
    settle()
    assert seen
    assert threading.get_ident() not in seen


def test_a_readable_request_names_who_says_each_message() -> None:
    """Outputs of tools stood under "user", as if the user had written them."""
    request = Request(
        model="local/tiny",
        system="Be brief.",
        messages=(
            Message(Role.USER, (Text("list"),)),
            Message(Role.ASSISTANT, (ToolCall("c1", "run_command", "{}"),)),
            Message(Role.USER, (ToolResult("c1", "a.txt"),)),
        ),
    )
    heads = [line for line in format_request_as_text(request) if line.startswith("──")]
    assert heads == ["── system ──", "── 1 · You ──", "── 2 · Agent ──", "── 3 · Tool outputs ──"]


def test_a_readable_request_does_not_give_a_summary_to_the_user() -> None:
    """The defect: the program's own summary was headed "1 · You"."""
    summary = f"{handover.TITLE} Summary of the conversation up to here"
    request = Request(
        model="local/tiny",
        system="Be brief.",
        messages=(Message(Role.USER, (Text(summary), Text("go on"))),),
    )
    lines = format_request_as_text(request)[2:]
    assert lines == ["── 1 · Summary ──", summary, "── 1 · You ──", "go on"]
