"""A conversation's facts as points and events."""

from __future__ import annotations

from helix_desktop.engine import token_budget
from helix_desktop.engine.facts import DocumentEdited, FoldKind, Refolded, Rewound, Text, Unfolded, UserSaid
from helix_desktop.gui.timeline.conversation_timeline import ConversationTimeline, merge_timeline_events
from tests.gui.timeline.conftest import Written


def story_of(written: Written) -> ConversationTimeline:
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    return story


def used(story: ConversationTimeline, seq: int) -> int:
    """What the meter said when `seq` was the newest fact."""
    then = story.history.past_moment(seq)
    return round(then.counted_tokens * then.main_model_factor())


def test_every_batch_is_one_event(written: Written) -> None:
    story = story_of(written)
    assert [(event.fold_kind, len(event.current_folds)) for event in story.events] == [
        (None, 0),
        (FoldKind.MARKER, 3),
        (FoldKind.HANDOVER, 1),
        (FoldKind.HANDOVER, 1),
    ]
    markers = story.events[1]
    assert (markers.tokens_before_folds, markers.tokens_after_folds) == (15_000, 90)
    assert story.model_window == 128_000
    assert story.events[0].words == "layered"


def test_points_rise_with_steps_and_fall_with_folds(written: Written) -> None:
    story = story_of(written)
    steps = [i for i in range(len(story.points)) if i == 0 or story.steps[i] > story.steps[i - 1]]
    assert [story.points[i] for i in steps] == [20_000, 21_000, 22_000, 40_000, 22_000, 23_000]
    for event in story.events[1:]:
        assert story.points[event.point] < story.points[event.point - 1]
    assert len(story.points) == len(story.seqs) == len(story.times) == len(story.steps)


def test_undo_and_redo_move_the_line_back_and_forth(written: Written) -> None:
    story = story_of(written)
    now = used(story, len(written.facts))
    event = story.find_event_of_fold("h2")
    assert event is not None
    written.add(Unfolded("h2"))
    assert story.read_next_fact(written.facts[-1])
    assert not event.has_fold_in_force
    assert story.points[-1] > now
    written.add(Refolded("h2"))
    story.read_next_fact(written.facts[-1])
    assert event.has_fold_in_force
    assert story.points[-1] == now


def test_a_rewind_goes_back_to_what_was(written: Written) -> None:
    story = story_of(written)
    event = story.events[1]
    written.add(Rewound(8))
    story.read_next_fact(written.facts[-1])
    assert story.points[-1] == used(story, len(written.facts))
    assert story.history.counted_tokens == story.history.past_moment(8).counted_tokens
    assert not event.has_fold_in_force


def test_totals_and_edits(written: Written) -> None:
    story = story_of(written)
    totals = token_budget.compute_savings(story.history)
    assert totals.steps == 6
    assert totals.sent == 20_000 + 21_000 + 22_000 + 40_000 + 22_000 + 23_000
    assert totals.without >= totals.sent
    written.add(DocumentEdited("h2", "mine", 3))
    story.read_next_fact(written.facts[-1])
    assert story.events[-1].current_folds[0].text == "mine"


def test_the_figures_are_those_of_the_users_wording(written: Written) -> None:
    """It is as long as it is, and nobody counted the details in it."""
    story = story_of(written)
    event = story.find_event_of_fold("h2")
    assert event is not None
    assert event.current_folds[0].details.found > 0
    plain = story_of(written)
    written.add(DocumentEdited("h2", "mine", 3))
    story.read_next_fact(written.facts[-1])
    assert (event.tokens_after_folds, event.current_folds[0].details.found) == (3, 0)
    written.add(Unfolded("h2"))
    story.read_next_fact(written.facts[-1])
    plain.read_all_facts(written.facts[-2:])
    assert story.points[-1] == plain.points[-1]  # what it stood for is as long as ever


def test_the_handover_before_is_the_one_it_updates(written: Written) -> None:
    story = story_of(written)
    earlier = story.find_handover_before(story.events[-1])
    assert earlier is not None
    assert earlier.first_fold_id == "h1"
    assert story.find_handover_before(story.events[2]) is None


def test_without_reports_the_facts_add_up() -> None:
    written = Written()
    written.add(UserSaid((Text("x", 100),)))
    written.step(0)
    written.step(0)
    story = story_of(written)
    assert list(story.points) == [137, 169]  # with 4 a message, times what such models bill


def test_stories_are_merged_by_time(written: Written) -> None:
    story = story_of(written)
    times = [event.time for event in merge_timeline_events([story, story])]
    assert times == sorted(times, reverse=True)
