"""A failure as a card: what happened, why, and buttons, as long as it is the last thing
that happened.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from PySide6.QtGui import QFontMetricsF

from helix_desktop.engine.facts import FoldKind, TurnEnd, TurnEnded
from helix_desktop.engine.messages import RetryDelay
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    FactAppended,
    FoldProgress,
    ReplyStreamed,
)
from helix_desktop.engine.turn_loop import turn_end_of_error
from helix_desktop.engine.view import build_state
from helix_desktop.errors import (
    ContextTooLong,
    HelixError,
    ModelOverloaded,
    NoCreditLeft,
    ProviderKeyRefused,
    ProviderUnreachable,
    StoreFull,
    UnknownModel,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript.chat_actions import (
    ChatIntent,
    ConversationAct,
)
from helix_desktop.gui.transcript.drawing_style import DrawingStyle
from helix_desktop.gui.transcript.failure_cards import (
    CardButton,
    FailureCardBox,
    failure_title_and_actions,
)
from helix_desktop.gui.transcript.markdown_blocks import TextStyle, backticks_to_code_spans
from helix_desktop.gui.transcript.safe_text import without_backticks
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane
from tests.gui.transcript.facts import Told

Settle = Callable[[], None]


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (ProviderKeyRefused("No."), ConversationAct.OPEN_KEY_SETTINGS),
        (NoCreditLeft("No."), ConversationAct.OPEN_MODEL_CHOOSER),
        (UnknownModel("No."), ConversationAct.OPEN_MODEL_CHOOSER),
        (ContextTooLong("No."), ConversationAct.OPEN_MODEL_CHOOSER),
        (ModelOverloaded("No."), ConversationAct.CONTINUE_TURN),
        (ProviderUnreachable("No."), ConversationAct.CONTINUE_TURN),
        (StoreFull("No."), ConversationAct.CONTINUE_TURN),
        (HelixError("No."), ConversationAct.CONTINUE_TURN),
    ],
)
def test_every_failure_has_a_title_and_a_way_on(error: HelixError, way: ChatIntent) -> None:
    end = turn_end_of_error(error)
    title, buttons = failure_title_and_actions(end.cause)
    assert title
    assert all(button.label for button in buttons)
    assert [button.action for button in buttons] == list(
        dict.fromkeys((way, ConversationAct.CONTINUE_TURN))
    )  # what helped is tried
    assert (title == "Something went wrong") == (type(error) is HelixError)


def card(pane: TranscriptPane) -> FailureCardBox:
    index = len(pane.view.items.all) - 1
    box = pane.view.column.lay_out_fully(index).boxes[0]
    assert isinstance(box, FailureCardBox)
    return box


def test_the_button_is_there_until_something_else_happens(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = Told()
    told.user("go")
    told.add(TurnEnded(TurnEnd.FAILED, "The server says 401. Run `helix-desktop key set`.", "key"))
    pane.open_transcript(build_state(told.facts))
    settle()
    assert (
        card(pane).text
        == "There is no usable API key. The server says 401. Run `helix-desktop key set`."
    )
    assert [hot.act for hot in card(pane).hot_spots] == [
        ConversationAct.OPEN_KEY_SETTINGS,
        ConversationAct.CONTINUE_TURN,
    ]
    one, two = (hot.place for hot in card(pane).hot_spots)
    assert one.right() < two.left()
    pane.view.apply_events([ActivityChanged("c", ConversationActivity.THINKING)])
    past = pane.view.column.lay_out_fully(1).boxes[0]
    assert not isinstance(past, FailureCardBox), "the red card stayed after “Try again”"
    assert past.text.startswith("There is no usable API key: The server says 401.")
    assert past.hot_spots == []
    pane.view.apply_events([ActivityChanged("c", ConversationActivity.IDLE)])
    assert [hot.name for hot in card(pane).hot_spots] == ["Set the key…", "Try again"]
    pane.view.apply_events([FactAppended(told.user("again"))])
    first = pane.view.column.lay_out_fully(1).boxes[0]
    assert first.hot_spots == []


def test_a_pause_counts_down_and_can_be_cut_short(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.user("go")
    pane.open_transcript(build_state(told.facts))
    now = [100.0]
    pane.view.column.page.now = lambda: now[0]
    pane.view.apply_events([ReplyStreamed("c", RetryDelay("The provider is busy.", 12.0))])
    settle()
    assert card(pane)._title == "Retrying in 12 s"
    now[0] = 105.0
    pane.view._update_elapsed_times()
    assert card(pane)._title == "Retrying in 7 s"
    assert pane.view._clock.isActive()
    found: list[ChatIntent] = []
    pane.intent_requested.connect(found.append)
    pane.view.perform_box_action(card(pane).hot_spots[0].act)
    assert found == [ConversationAct.RETRY_MODEL_NOW]


def test_what_a_message_waits_for_is_said_with_why_it_takes_longer_and_how_to_go_on(
    pane: TranscriptPane, settle: Settle
) -> None:
    """The defect: "demo-small is thinking…" stood there, though the model had not been asked."""
    told = Told()
    told.user("go")
    pane.open_transcript(build_state(told.facts))
    now = [100.0]
    pane.view.column.page.now = lambda: now[0]
    pane.view.apply_events([ActivityChanged("c", ConversationActivity.THINKING)])
    background = FoldProgress("c", FoldKind.HANDOVER)
    pane.view.apply_events([background])
    assert pane.view.items.all[-1].text.endswith(" is thinking…"), "nothing waits for this one"
    awaited = replace(background, is_update=True, is_waited_for=True)
    failed = replace(awaited, retry_why="peer says: internal error.", retry_seconds=12.0)
    waits = "Your message waits until the older messages are summarized."

    pane.view.apply_events([awaited])
    settle()
    assert (card(pane).text, len(pane.view.items.all)) == (waits, 2)
    assert [hot.name for hot in card(pane).hot_spots] == ["Go on without a summary"]
    now[0] = 105.0
    pane.view._update_elapsed_times()
    assert card(pane)._title == waits

    pane.view.apply_events([failed])
    settle()
    assert card(pane).text == f"Retrying in 12 s. peer says: internal error. {waits}"
    assert [hot.name for hot in card(pane).hot_spots] == ["Try now", "Go on without a summary"]
    now[0] = 110.0
    pane.view._update_elapsed_times()
    assert card(pane)._title == "Retrying in 7 s"
    found: list[ChatIntent] = []
    pane.intent_requested.connect(found.append)
    for hot in card(pane).hot_spots:
        pane.view.perform_box_action(hot.act)
    assert found == [ConversationAct.RETRY_MODEL_NOW, ConversationAct.STOP_FOLD]

    pane.view.apply_events([awaited])
    settle()
    assert card(pane).text == waits
    pane.view.apply_events([replace(background, done=True)])
    assert pane.view.items.all[-1].text.endswith(" is thinking…")
    assert len(pane.view.items.all) == 2


def test_in_the_middle_of_a_turn_the_work_waits_and_no_message(
    pane: TranscriptPane, settle: Settle
) -> None:
    told = Told()
    told.user("go")
    told.reply("I look.")
    pane.open_transcript(build_state(told.facts))
    pane.view.apply_events([ActivityChanged("c", ConversationActivity.THINKING)])
    pane.view.apply_events([FoldProgress("c", FoldKind.HANDOVER, is_waited_for=True)])
    settle()
    assert card(pane).text == "The work goes on once the older messages are summarized."


def test_backticks_are_no_part_of_a_sentence() -> None:
    spans = backticks_to_code_spans("Run `ollama serve` first.")
    assert [(span.text, span.style) for span in spans] == [
        ("Run ", TextStyle.PLAIN),
        ("ollama serve", TextStyle.CODE),
        (" first.", TextStyle.PLAIN),
    ]
    assert (
        without_backticks("Run `ollama serve` first, `not this.")
        == "Run ollama serve first, `not this."
    )


def test_a_long_explanation_is_not_squeezed_beside_wide_buttons(theme: Theme) -> None:
    """In a window of 900 pixels it stood in five lines of two words each, beside the buttons."""
    buttons = [
        CardButton("Try now", ConversationAct.RETRY_MODEL_NOW),
        CardButton("Go on without a summary", ConversationAct.STOP_FOLD),
    ]
    explanation = "peer says: internal error. " * 4
    ink = DrawingStyle(theme)
    narrow = FailureCardBox(ink, 520.0, "Retrying in 1 s", explanation, buttons, failed=False)
    assert narrow._explanation is not None
    assert narrow._explanation.width > 480
    assert narrow.hot_spots[0].place.top() > narrow._title_height + narrow._explanation.height
    wide = FailureCardBox(ink, 900.0, "Retrying in 1 s", explanation, buttons, failed=False)
    assert wide.hot_spots[0].place.top() < wide._title_height, "there is room beside it"


@pytest.mark.parametrize("width", [300.0, 420.0, 720.0])
def test_buttons_never_cover_the_title(theme: Theme, width: float) -> None:
    """The defect: side by side, the buttons stood on the title."""
    buttons = [
        CardButton("Choose another model…", ConversationAct.OPEN_MODEL_CHOOSER),
        CardButton("Try again", ConversationAct.CONTINUE_TURN),
    ]
    ink = DrawingStyle(theme)
    title = "Your account with the provider has no credit left"
    card = FailureCardBox(ink, width, title, "It said so.", buttons, failed=True)
    title_end = 12 + QFontMetricsF(ink.name).horizontalAdvance(title)
    assert [spot.name for spot in card.hot_spots] == [button.label for button in buttons]
    for spot in card.hot_spots:
        assert spot.place.bottom() <= card.height
        beside = spot.place.top() < 12 + card._title_height
        assert not beside or spot.place.left() >= min(title_end, width)
