"""The inspector shows what the session would send, now and at any step, and changes it
only by commands.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    Cover,
    Excluded,
    FoldKind,
    Included,
    Pinned,
    Text,
    ToolCall,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import (
    ContextKind,
    Message,
    Request,
    Role,
    TextDelta,
    ToolResult,
)
from helix_desktop.engine.session_events import FactAppended, FoldProgress, ReplyStreamed
from helix_desktop.engine.strategies import handover
from helix_desktop.gui import sentence_translation
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.inspector.context_inspector import ContextInspector
from helix_desktop.gui.inspector.request_dialog import RequestDialog, format_request_as_text
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import ToggleSection
from helix_desktop.gui.transcript.chat_actions import ChatIntent, OpenFold, ShowInChat
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench, now

Settle = Callable[[], None]


class Commanded(FakeSession):
    """Pins and exclusions are appended, requests are made, as the real session does."""

    next_fold = "Next: a handover, when 108,800 tokens are reached."

    def describe_next_fold(self) -> str:
        return self.next_fold

    async def pin_part(self, ref: Cover) -> None:
        self.append(Pinned(ref))

    async def unpin_part(self, ref: Cover) -> None:
        self.append(Unpinned(ref))

    async def exclude_part(self, ref: Cover) -> None:
        self.append(Excluded(ref))

    async def include_part(self, ref: Cover) -> None:
        self.append(Included(ref))

    async def rebuild_request(self, seq: int | None = None) -> Request:
        return request_building.build_request(
            (self.state if seq is None else self.state.past_moment(seq - 1)).get_view(), {}
        )


@pytest.fixture
def session() -> Commanded:
    return Commanded(story.CONVERSATION, story.recorded())


@pytest.fixture
def settle() -> Callable[[], None]:
    def run() -> None:
        for _ in range(40):
            QApplication.processEvents()

    return run


@pytest.fixture
def panel(theme: Theme, session: Commanded, settle: Settle) -> Iterator[ContextInspector]:
    made = ContextInspector(theme, BackgroundRunner(now))
    made._refresh_timer.setInterval(0)
    made.resize(300, 1_200)
    made.show()
    session.subscribe_to_events(lambda event: made.update_inspector_from_events([event]))
    made.inspect_conversation(session)
    settle()
    yield made
    made.close()


def act(panel: ContextInspector, name: str) -> None:
    """Do what the place with this name does."""
    stack = panel.view._stack
    spot = next(s for s in stack.list_hot_spots() if name in stack.hot_spot_and_rect(s)[0].name)
    panel.view.perform_box_action(stack.hot_spot_and_rect(spot)[0].act)


def choose(panel: ContextInspector, block: str, words: str) -> None:
    """An action of a block's menu."""
    number = next(part.number for part in panel._parts if block in part.shown_name.words)
    menu = panel.build_block_menu(number)
    next(action for action in menu.actions() if words in action.text()).trigger()


def test_it_shows_the_sessions_own_meter(panel: ContextInspector, session: Commanded) -> None:
    text = panel.view.all_text()
    meter = session.context.next_request_meter()
    # What the replies of the story report is not in proportion to their texts.
    assert "Context · ≈ 43.5K of 128K" in text
    assert abs(meter.used - 43_500) < 100
    system = meter.counted[ContextKind.SYSTEM]
    outputs = meter.counted[ContextKind.OUTPUT]
    for line in (
        f"System and tools  {format_token_count(system)}",
        "Summary 3  8.6K",
        f"Tool outputs  {format_token_count(outputs)}",
        "More by the model's own count  +",
    ):
        assert line in text
    assert session.folding.describe_next_fold() in text


def test_what_comes_next_is_told_in_the_users_language(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    sentence_translation.install_sentence_table(
        {session.folding.describe_next_fold(): "接下来：交接文档"}
    )
    try:
        panel._show_chosen_step()
        settle()
        assert "接下来：交接文档" in panel.view.all_text()
    finally:
        sentence_translation.install_sentence_table({})


def test_at_an_earlier_step_it_shows_what_was_seen(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    panel.slider.setValue(1)
    settle()
    step = panel._steps[1]
    then = session.state.past_moment(step.seq - 1)
    assert [part.block for part in panel._parts] == list(then.get_view().blocks)
    assert panel._step.text().startswith("Step 2 of 3")
    assert panel._now_button.isVisible()
    panel._go_to_present()
    settle()
    assert [part.block for part in panel._parts] == list(session.view().blocks)


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
    act(panel, "texts, calls and outputs")
    settle()
    stack = panel.view._stack
    names = [stack.hot_spot_and_rect(spot)[0].name for spot in stack.list_hot_spots()]
    heading = next(at for at, name in enumerate(names) if "texts, calls and outputs" in name)
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


def test_blocks_are_listed_and_can_be_pinned(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    act(panel, "texts, calls and outputs")
    settle()
    choose(panel, "The guard must never", "Pin")
    settle()
    assert isinstance(session.state.facts[-1].fact, Pinned)
    assert any(part.block.pinned for part in panel._parts)
    choose(panel, "The guard must never", "Unpin")
    settle()
    assert isinstance(session.state.facts[-1].fact, Unpinned)


def test_what_is_left_out_can_be_taken_in_again(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    act(panel, "texts, calls and outputs")
    settle()
    choose(panel, "Edit", "Exclude")
    settle()
    excluded = session.state.facts[-1].fact
    assert isinstance(excluded, Excluded)
    act(panel, "excluded")
    settle()
    assert session.state.facts[-1].fact == Included(excluded.ref)


def test_a_fold_is_restored_and_opened(panel: ContextInspector, session: Commanded) -> None:
    wanted: list[ChatIntent] = []
    panel.intent_requested.connect(wanted.append)
    choose(panel, "Summary 3", "Restore")
    choose(panel, "Summary 3", "Show what was shortened")
    choose(panel, "The guard", "Show in chat")
    assert session.done == ["undo fold-3"]
    assert wanted == [OpenFold("fold-3"), ShowInChat(story.CONVERSATION, 14)]


def test_what_is_being_folded_is_said_once(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    session.next_fold = "Being shortened: summary (requested by the user)."
    panel.update_inspector_from_events(
        [FoldProgress(story.CONVERSATION, FoldKind.HANDOVER, "requested by the user")]
    )
    settle()
    words = panel.view.all_text()
    assert words.count("requested by the user") == 1
    assert session.next_fold in words
    session.next_fold = "Nothing needs shortening yet."
    panel.update_inspector_from_events(
        [FoldProgress(story.CONVERSATION, FoldKind.HANDOVER, done=True)]
    )
    settle()
    assert "Being shortened" not in panel.view.all_text()


def test_it_is_live(panel: ContextInspector, session: Commanded, settle: Settle) -> None:
    before = len(panel._parts)
    session.append(UserSaid((Text("One more.", 4),)))
    settle()
    assert len(panel._parts) == before + 1


def test_without_a_conversation_it_says_what_will_be_here(theme: Theme, settle: Settle) -> None:
    made = ContextInspector(theme, BackgroundRunner(now))
    made.inspect_conversation(None)
    settle()
    assert "appears here" in made.view.all_text()
    assert made.slider.isHidden()  # there is nothing to go through
    made.update_inspector_from_events([FactAppended(story.recorded()[0])])


def test_a_menu_of_nothing_is_empty(panel: ContextInspector) -> None:
    assert panel.build_block_menu(999).isEmpty()


def test_while_an_answer_streams_nothing_is_worked_out_anew(
    panel: ContextInspector, session: Commanded, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole view would be looked through eight times a second for nothing."""
    parts = panel._parts
    session.tell(ReplyStreamed(session.id, TextDelta("a word")))
    settle()
    assert panel._parts is parts
    steps = len(panel._steps)
    panel.update_inspector_from_events([FactAppended(recorded) for recorded in session.state.facts])
    settle()
    assert panel._parts is not parts
    assert len(panel._steps) == steps


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


def test_tools_and_largest_parts_open_by_a_click(
    panel: ContextInspector, session: Commanded
) -> None:
    """There were twenty figures in one column."""
    assert "Included above" not in panel.view.all_text()
    panel._carry_out_box_action(ToggleSection(("tools",)))
    assert "Included above" in panel.view.all_text()
    panel._carry_out_box_action(ToggleSection(("tools",)))
    assert "Included above" not in panel.view.all_text()
    text = panel.view.all_text()
    assert text.index("Coming up") < text.index("This session")
