"""The inspector shows what the session would send, now and at any step, and changes it
only by commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    Cover,
    Excluded,
    FoldKind,
    Included,
    Pinned,
    Text,
    Unpinned,
    UserSaid,
)
from helix_desktop.engine.messages import (
    ContextKind,
    Request,
    TextDelta,
)
from helix_desktop.engine.session_events import FactAppended, FoldProgress, ReplyStreamed
from helix_desktop.gui import sentence_translation
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.inspector.context_inspector import ContextInspector
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.basic_boxes import LayoutBox, ToggleSection
from helix_desktop.gui.transcript.chat_actions import ChatIntent, OpenFold, ShowInChat
from tests.gui import story
from tests.gui.fake_desk import FakeSession, now

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
        "These sizes are estimates; the model probably counts more  +",
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
    assert panel.slider.accessibleName() == panel.slider.toolTip() == "Show an earlier step"
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
    session.next_fold = "Being shortened: summary."
    panel.update_inspector_from_events(
        [FoldProgress(story.CONVERSATION, FoldKind.HANDOVER, "requested by the user")]
    )
    settle()
    words = panel.view.all_text()
    assert words.count("Being shortened: summary.") == 1
    assert "requested by the user" not in words
    assert session.next_fold in words
    session.next_fold = "A summary when the window is 80% full."
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


def test_tools_and_largest_parts_open_by_a_click(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    """There were twenty figures in one column."""
    assert "Included above" not in panel.view.all_text()
    panel._carry_out_box_action(ToggleSection(("tools",)))
    settle()
    assert "Included above" in panel.view.all_text()
    panel._carry_out_box_action(ToggleSection(("tools",)))
    settle()
    assert "Included above" not in panel.view.all_text()
    text = panel.view.all_text()
    assert text.index("Coming up") < text.index("This session")


def test_the_largest_parts_are_one_line_each(
    panel: ContextInspector, session: Commanded, settle: Settle
) -> None:
    """The beginning of the system's text stood there in seven lines."""
    panel._carry_out_box_action(ToggleSection(("largest",)))
    panel._carry_out_box_action(ToggleSection(("blocks",)))
    settle()
    boxes = [box for box in panel.view._stack.boxes if opens_menu_of_part(box)]
    assert len(boxes) > 3
    assert len({box.height for box in boxes}) == 1


def opens_menu_of_part(box: LayoutBox) -> bool:
    acts = [spot.act for spot in box.hot_spots]
    return any(isinstance(act, ToggleSection) and act.key[0] == "block" for act in acts)
