"""A conversation as it was is what the engine says it was, and only the last question
is answered.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QObject

from helix_desktop.engine.facts import Recorded, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.span_text_and_detail_sources import read_short_outputs
from helix_desktop.engine.state.moment import Moment
from helix_desktop.engine.view import build_state
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.common.past_moments import (
    PastMomentLoader,
    facts_shown_whole,
    format_view_as_text,
)
from helix_desktop.gui.theme import Theme
from helix_desktop.store.in_memory_stores import MemoryCache
from tests.gui import story
from tests.gui.fake_desk import FakeSession, Held


@pytest.mark.parametrize("order", [(3, 9, 16), (16, 9, 3), (9, 9, 1)])
def test_any_step_in_any_order(theme: Theme, order: tuple[int, ...]) -> None:
    session = FakeSession("c", story.recorded())
    held = Held()
    owner = QObject()
    found = list[Moment]()
    past = PastMomentLoader(BackgroundRunner(held), owner)
    for seq in order:
        past.compute_moment_at(session, seq, found.append)
        held.let()
        assert found[-1].get_view() == build_state(session.state.facts[:seq]).get_view()


def test_a_later_question_takes_the_place_of_an_earlier_one(theme: Theme) -> None:
    session = FakeSession("c", story.recorded())
    held = Held()
    owner = QObject()
    found = list[Moment]()
    past = PastMomentLoader(BackgroundRunner(held), owner)
    past.compute_moment_at(session, 3, found.append)
    past.compute_moment_at(session, 5, found.append)
    held.let()
    past.compute_moment_at(session, 7, found.append)
    past.cancel_pending_question()
    held.let()
    assert [moment.seq for moment in found] == [5]


def test_a_view_as_text_names_every_block(theme: Theme) -> None:
    state = build_state(story.recorded())
    text = format_view_as_text(state.get_view(), {})
    assert text.count("── ") >= len(state.get_view().blocks)
    assert "You are Helix." in text
    assert "Summary" in text


async def test_a_view_as_text_has_short_outputs_that_the_facts_do_not_hold(theme: Theme) -> None:
    cache = MemoryCache()
    await cache.store_content(story.TABLE.encode(), EntryOrigin("read_file", "shard.rs"))
    recorded = [_without_output_text(each) for each in story.recorded()]
    first = next(each.seq for each in recorded if isinstance(each.fact, ToolReturned))
    view = build_state(recorded[:first]).get_view()
    texts = await read_short_outputs(facts_shown_whole(view, recorded), cache)
    assert story.TABLE in format_view_as_text(view, texts)
    assert "[stored output " in format_view_as_text(view, {})


def _without_output_text(recorded: Recorded) -> Recorded:
    """The fact as a long history holds it."""
    return (
        replace(recorded, fact=replace(recorded.fact, head=""))
        if isinstance(recorded.fact, ToolReturned)
        else recorded
    )
