"""The inspector shows what the session would send, now and at any step, and changes it only by commands."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication

from helix_desktop.engine import laws
from helix_desktop.engine.blocks import Request, TextDelta
from helix_desktop.engine.events import FactAppended, Folding, Streamed
from helix_desktop.engine.facts import Cover, Excluded, FoldKind, Included, Pinned, Text, Unpinned, UserSaid
from helix_desktop.gui import engine_sentences
from helix_desktop.gui.background import Doing
from helix_desktop.gui.inspector.panel import Inspector
from helix_desktop.gui.inspector.request import RequestDialog, as_lines
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.intents import OpenFold, ShowInChat, Want
from tests.gui import story
from tests.gui.fake_desk import FakeSession, FakeWorkbench, now

Settle = Callable[[], None]


class Commanded(FakeSession):
    """Pins and exclusions are appended, requests are made, as the real session does."""

    async def pin(self, ref: Cover) -> None:
        self.append(Pinned(ref))

    async def unpin(self, ref: Cover) -> None:
        self.append(Unpinned(ref))

    async def exclude(self, ref: Cover) -> None:
        self.append(Excluded(ref))

    async def include(self, ref: Cover) -> None:
        self.append(Included(ref))

    async def request_at(self, seq: int | None = None) -> Request:
        return laws.request((self.state if seq is None else self.state.at(seq - 1)).view(), {})


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
def panel(theme: Theme, session: Commanded, settle: Settle) -> Iterator[Inspector]:
    made = Inspector(theme, Doing(now))
    made._soon.setInterval(0)
    made.resize(300, 1_200)
    made.show()
    session.subscribe(lambda event: made.hear([event]))
    made.open(session)
    settle()
    yield made
    made.close()


def act(panel: Inspector, name: str) -> None:
    """Do what the place with this name does."""
    stack = panel.view._stack
    spot = next(s for s in stack.spots() if name in stack.spot(s)[0].name)
    panel.view._act(stack.spot(spot)[0])


def choose(panel: Inspector, block: str, words: str) -> None:
    """An action of a block's menu."""
    number = next(part.number for part in panel._parts if block in part.name)
    menu = panel.menu_of(number)
    next(action for action in menu.actions() if words in action.text()).trigger()


def test_it_shows_the_sessions_own_meter(panel: Inspector, session: Commanded) -> None:
    text = panel.view.text()
    meter = session.meter()
    assert "Context · ≈ 43.5K of 128K" in text
    assert abs(meter.used - 43_500) < 100
    for line in ("System and tools  5.1K", "Handover 3  11.4K", "Tool outputs  16.8K"):
        assert line in text
    assert session.forecast() in text


def test_what_comes_next_is_told_in_the_users_language(panel: Inspector, session: Commanded, settle: Settle) -> None:
    engine_sentences.take({session.forecast(): "接下来：交接文档"})
    try:
        panel._refresh()
        settle()
        assert "接下来：交接文档" in panel.view.text()
    finally:
        engine_sentences.take({})


def test_at_an_earlier_step_it_shows_what_was_seen(panel: Inspector, session: Commanded, settle: Settle) -> None:
    panel.slider.setValue(1)
    settle()
    step = panel._steps[1]
    then = session.state.at(step.seq - 1)
    assert [part.block for part in panel._parts] == list(then.view().blocks)
    assert panel._step.text().startswith("Step 2 of 3")
    assert panel._now.isVisible()
    panel._to_now()
    settle()
    assert [part.block for part in panel._parts] == list(session.view().blocks)


def test_the_request_is_the_sessions(panel: Inspector, session: Commanded, settle: Settle) -> None:
    act(panel, "Show the request")
    settle()
    (dialog,) = [w for w in QApplication.topLevelWidgets() if isinstance(w, RequestDialog) and w.isVisible()]
    wanted = as_lines(laws.request(session.view(), {}))
    assert [dialog.view.lines[i] for i in range(len(dialog.view.lines))] == wanted
    assert any("The guard must never" in line for line in wanted)


def test_the_request_is_shown_as_the_provider_gets_it_too(panel: Inspector, session: Commanded, settle: Settle) -> None:
    bench = FakeWorkbench("w", "#0d7d74", Path("/w"))
    bench.sessions[session.id] = session
    panel.open(session, bench)
    settle()
    act(panel, "Show the request")
    settle()
    (dialog,) = [w for w in QApplication.topLevelWidgets() if isinstance(w, RequestDialog) and w.isVisible()]
    dialog.form.setCurrentText(f"As sent to {story.MODEL}")
    shown = "\n".join(dialog.view.lines[i] for i in range(len(dialog.view.lines)))
    assert json.loads(shown)["model"] == story.MODEL


def test_tab_into_it_shows_where_it_is(panel: Inspector) -> None:
    panel.view.clearFocus()
    panel.view.setFocus(Qt.FocusReason.TabFocusReason)
    assert panel.view._spot == panel.view._stack.spots()[0]


def test_the_blocks_stand_under_their_heading(panel: Inspector, session: Commanded, settle: Settle) -> None:
    act(panel, "blocks, in order")
    settle()
    stack = panel.view._stack
    names = [stack.spot(spot)[0].name for spot in stack.spots()]
    heading = next(at for at, name in enumerate(names) if "blocks, in order" in name)
    assert panel._parts[0].name in names[heading + 1]


def test_what_the_provider_gets_is_written_beside_the_painting_thread(
    panel: Inspector, session: Commanded, settle: Settle, monkeypatch: pytest.MonkeyPatch
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
    monkeypatch.setattr(bench, "wire", wire)
    panel.open(session, bench)
    settle()
    act(panel, "Show the request")
    settle()
    assert seen
    assert threading.get_ident() not in seen


def test_blocks_are_listed_and_can_be_pinned(panel: Inspector, session: Commanded, settle: Settle) -> None:
    act(panel, "blocks, in order")
    settle()
    choose(panel, "The guard must never", "Pin")
    settle()
    assert isinstance(session.state.facts[-1].fact, Pinned)
    assert any(part.block.pinned for part in panel._parts)
    choose(panel, "The guard must never", "Unpin")
    settle()
    assert isinstance(session.state.facts[-1].fact, Unpinned)


def test_what_is_left_out_can_be_taken_in_again(panel: Inspector, session: Commanded, settle: Settle) -> None:
    act(panel, "blocks, in order")
    settle()
    choose(panel, "edit_file", "Exclude")
    settle()
    excluded = session.state.facts[-1].fact
    assert isinstance(excluded, Excluded)
    act(panel, "excluded")
    settle()
    assert session.state.facts[-1].fact == Included(excluded.ref)


def test_a_fold_is_restored_and_opened(panel: Inspector, session: Commanded) -> None:
    wanted: list[Want] = []
    panel.wanted.connect(wanted.append)
    choose(panel, "Handover 3", "Restore")
    choose(panel, "Handover 3", "Open the fold")
    choose(panel, "The guard", "Show in chat")
    assert session.done == ["undo fold-3"]
    assert wanted == [OpenFold("fold-3"), ShowInChat(story.CONVERSATION, 14)]


def test_what_is_being_folded_is_said(panel: Inspector, settle: Settle) -> None:
    panel.hear([Folding(story.CONVERSATION, FoldKind.HANDOVER, "it pays")])
    settle()
    assert "In progress: handover. it pays" in panel.view.text()
    panel.hear([Folding(story.CONVERSATION, FoldKind.HANDOVER, done=True)])
    settle()
    assert "In progress" not in panel.view.text()


def test_it_is_live(panel: Inspector, session: Commanded, settle: Settle) -> None:
    before = len(panel._parts)
    session.append(UserSaid((Text("One more.", 4),)))
    settle()
    assert len(panel._parts) == before + 1


def test_without_a_conversation_it_says_what_will_be_here(theme: Theme, settle: Settle) -> None:
    made = Inspector(theme, Doing(now))
    made.open(None)
    settle()
    assert "appears here" in made.view.text()
    assert made.slider.isHidden()  # there is nothing to go through
    made.hear([FactAppended(story.recorded()[0])])


def test_a_menu_of_nothing_is_empty(panel: Inspector) -> None:
    assert panel.menu_of(999).isEmpty()


def test_while_an_answer_streams_nothing_is_worked_out_anew(
    panel: Inspector, session: Commanded, settle: Settle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole view would be looked through eight times a second for nothing."""
    parts = panel._parts
    session.tell(Streamed(session.id, TextDelta("a word")))
    settle()
    assert panel._parts is parts
    steps = len(panel._steps)
    panel.hear([FactAppended(recorded) for recorded in session.state.facts])
    settle()
    assert panel._parts is not parts
    assert len(panel._steps) == steps
