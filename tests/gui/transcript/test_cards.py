"""A failure as a card: what happened, why, and buttons, as long as it is the last thing that happened."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from helix_desktop.engine.blocks import Waiting
from helix_desktop.engine.events import FactAppended, Running, StateChanged, Streamed
from helix_desktop.engine.facts import TurnEnd, TurnEnded
from helix_desktop.engine.turn import failed
from helix_desktop.engine.view import state_of
from helix_desktop.errors import BadKey, ContextTooLong, HelixError, Overloaded, StoreFull, UnknownModel, Unreachable
from helix_desktop.gui.transcript.cards import CardBox, card_of
from helix_desktop.gui.transcript.intents import ChooseModel, GoOn, SetKey, TryNow, Want
from helix_desktop.gui.transcript.markdown import Style, coded, uncoded
from helix_desktop.gui.transcript.pane import TranscriptPane
from tests.gui.transcript.facts import Told

Settle = Callable[[], None]


@pytest.mark.parametrize(
    ("error", "way"),
    [
        (BadKey("No."), SetKey()),
        (UnknownModel("No."), ChooseModel()),
        (ContextTooLong("No."), ChooseModel()),
        (Overloaded("No."), GoOn()),
        (Unreachable("No."), GoOn()),
        (StoreFull("No."), GoOn()),
        (HelixError("No."), GoOn()),
    ],
)
def test_every_failure_has_a_title_and_a_way_on(error: HelixError, way: Want) -> None:
    end = failed(error)
    title, ways = card_of(end.cause)
    assert title
    assert all(words for words, _ in ways)
    assert [act for _, act in ways] == list(dict.fromkeys((way, GoOn())))  # what helped is tried
    assert (title == "Something went wrong") == (type(error) is HelixError)


def card(pane: TranscriptPane) -> CardBox:
    index = len(pane.view.items.all) - 1
    box = pane.view.column.whole(index).boxes[0]
    assert isinstance(box, CardBox)
    return box


def test_the_button_is_there_until_something_else_happens(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.user("go")
    told.add(TurnEnded(TurnEnd.FAILED, "The server says 401. Run `helix-desktop key set`.", "key"))
    pane.open(state_of(told.facts))
    settle()
    assert card(pane).text == "The API key doesn't work. The server says 401. Run `helix-desktop key set`."
    assert [hot.act for hot in card(pane).hots] == [SetKey(), GoOn()]
    one, two = (hot.place for hot in card(pane).hots)
    assert one.right() < two.left()
    pane.hear([StateChanged("c", Running.THINKING)])
    assert card(pane).hots == []
    pane.hear([StateChanged("c", Running.IDLE)])
    assert [hot.name for hot in card(pane).hots] == ["Set the key…", "Try again"]
    pane.hear([FactAppended(told.user("again"))])
    first = pane.view.column.whole(1).boxes[0]
    assert first.hots == []


def test_a_pause_counts_down_and_can_be_cut_short(pane: TranscriptPane, settle: Settle) -> None:
    told = Told()
    told.user("go")
    pane.open(state_of(told.facts))
    now = [100.0]
    pane.view.column.page.now = lambda: now[0]
    pane.hear([Streamed("c", Waiting("The provider is busy.", 12.0))])
    settle()
    assert card(pane)._title == "Trying again in 12 s"
    now[0] = 105.0
    pane.view._tick()
    assert card(pane)._title == "Trying again in 7 s"
    assert pane.view._clock.isActive()
    found: list[Want] = []
    pane.wanted.connect(found.append)
    pane.view.do(card(pane).hots[0].act)
    assert found == [TryNow()]


def test_backticks_are_no_part_of_a_sentence() -> None:
    spans = coded("Run `ollama serve` first.")
    assert [(span.text, span.style) for span in spans] == [
        ("Run ", Style.PLAIN),
        ("ollama serve", Style.CODE),
        (" first.", Style.PLAIN),
    ]
    assert uncoded("Run `ollama serve` first, `not this.") == "Run ollama serve first, `not this."
