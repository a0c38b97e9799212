"""A conversation's facts as points and events."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.context_usage import measure_window
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Decided,
    DocumentEdited,
    Fact,
    FilesChanged,
    Folded,
    FoldFailed,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    PolicySet,
    Purpose,
    Recorded,
    Refolded,
    Rewound,
    Span,
    Spent,
    Stop,
    Stored,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    ToolsOffered,
    TurnEnd,
    TurnEnded,
    Unfolded,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.fold_savings import SavedByFolds
from helix_desktop.engine.view import build_state
from helix_desktop.gateway.agent_cost_and_savings import compute_agent_figures
from helix_desktop.gui.context_meter import describe_token_count, format_token_count
from helix_desktop.gui.timeline import fold_sentences
from helix_desktop.gui.timeline.conversation_timeline import (
    ConversationTimeline,
    TimelineLane,
    _stack_kinds_up_to_total,
    find_last_seq_of_event,
    group_timeline_events,
    merge_timeline_events,
)
from helix_desktop.gui.translation import format_count
from tests.gui import story as story_model
from tests.gui.timeline.conftest import Written
from tests.reckoner.histories import history

SUM = "What was saved is the sum over these requests, as the model counts, compared with sending everything as long as it fits."
SUBTRACTED = "That is already subtracted from what was saved."


def story_of(written: Written) -> ConversationTimeline:
    story = ConversationTimeline()
    story.read_all_facts(written.facts)
    return story


def used(story: ConversationTimeline, seq: int) -> int:
    """What the meter said when `seq` was the newest fact."""
    then = story.history.past_moment(seq)
    return round(then.counted_tokens * then.billed_per_counted_token())


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
    assert story.points[-1] == measure_window(story.history, preset_policy("layered")).used
    assert 21_000 < story.points[-1] < 22_000, "the bill of the last request that is not left"
    assert story.history.counted_tokens == story.history.past_moment(8).counted_tokens
    assert not event.has_fold_in_force


def test_totals_and_edits(written: Written) -> None:
    story = story_of(written)
    totals = story.history.savings_until_moment()
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


def test_costs_of_sub_agents_are_said_to_be_left_out(written: Written) -> None:
    assert not story_of(written).has_subagents
    returned = next(one.fact for one in written.facts if isinstance(one.fact, ToolReturned))
    written.add(replace(returned, child="helper"))
    assert story_of(written).has_subagents


def test_stories_are_merged_by_time(written: Written) -> None:
    story = story_of(written)
    times = [event.time for event in merge_timeline_events([story, story])]
    assert times == sorted(times, reverse=True)


def test_the_kinds_lie_on_each_other_up_to_what_was_sent(written: Written) -> None:
    story = story_of(written)
    system, *_, whole = story.layers
    assert all(sent <= height for sent, height in zip(story.points, whole, strict=True))
    assert all(0 < low <= high for low, high in zip(system, whole, strict=True))
    assert all(
        lower <= higher
        for rows in zip(*story.layers, strict=True)
        for lower, higher in itertools.pairwise(rows)
    )


@pytest.mark.parametrize("agent", ["", "claude"])
@given(
    first=st.integers(1_700, 2_600),
    steps=st.lists(st.tuples(st.integers(40, 900), st.integers(50, 200)), min_size=1, max_size=6),
)
@settings(max_examples=12, deadline=None)
def test_the_same_system_prompt_and_tools_are_drawn_equally_high_whatever_is_billed(
    agent: str, first: int, steps: list[tuple[int, int]]
) -> None:
    """The defect: with each step, they fell, as the text after them was billed below our count."""
    written = Written()
    written.add(ConversationStarted("", "", "", origin=Origin(kind=agent)))
    written.add(SystemSet("You are an agent.", 1_400))
    written.add(UserSaid((Text("Hello.", 50),)))
    written.step(first)
    billed = first
    for counted, percent in steps:
        written.add(UserSaid((Text("More.", counted),)))
        billed += counted * percent // 100
        written.step(billed)
    systems = story_of(written).layers[0]
    if not agent:
        assert set(systems) == {systems[0]}
    assert min(systems) == systems[0] > 0


def test_a_kind_is_as_high_as_the_panel_of_the_meter_says() -> None:
    """For the same request, the panel said 1.5K for system and tools, and the chart 2.0K."""
    written = Written()
    written.add(ConversationStarted("", "", ""))
    written.add(SystemSet("You are an agent.", 1_400))
    written.add(UserSaid((Text("Hello.", 50),)))
    written.step(2_000)
    story = story_of(written)
    counted = measure_window(story.history, preset_policy("layered")).counted
    assert story.layers[0][0] == counted[ContextKind.SYSTEM]
    *_, of_all_kinds, whole = (layer[0] for layer in story.layers)
    assert of_all_kinds < whole == 2_000


def test_the_chart_is_as_high_as_the_meter_says_where_the_model_counts_fewer() -> None:
    """After an Undo, the chart stood at 48K above its own line of 85%, and the meter at 26K."""
    written = Written()
    written.add(ConversationStarted("", "", ""))
    written.add(ModelSet(ModelRole.MAIN, story_model.MODEL, 32_000))
    written.add(SystemSet("You are an agent.", 1_400))
    for billed in (350, 900, 1_500):
        written.add(UserSaid((Text("Hello.", 300),)))
        written.step(billed)
    story = story_of(written)
    assert list(story.layers[-1]) == list(story.points)
    assert story.points[-1] == 1_500
    assert story.layers[0][-1] == 1_400, "what the panel of the meter says"
    for point, seq in enumerate(story.seqs):
        moment = story.history.past_moment(seq - 1)
        meter_before = story.history.record.ledger.billed_view_tokens(
            story_model.MODEL, seq, moment.counted_tokens
        )
        assert story.points[point] == meter_before, "also of a report that the meter ignores"
    meter = measure_window(story.history, preset_policy("layered"))
    assert story.layers[-1][-1] <= meter.used < sum(meter.counted.values())


def test_a_row_says_what_writing_it_took() -> None:
    """What it saved was said as a share of the whole, which fell with each later row."""
    written = Written()
    written.add(UserSaid((Text("go", 10),)))
    for number in range(4):
        written.output(number)
    written.step(40_000)
    written.add(Spent(Purpose.HANDOVER, "fast", Usage(input=20_000, output=800, cost=0.25)))
    written.handover(1)
    written.step(22_000)
    (event,) = story_of(written).events
    effect = fold_sentences.describe_effect(event)
    assert effect.endswith("writing it took $0.249 more than it has saved")
    assert fold_sentences.describe_fold_details(event).startswith(
        f"1 request had the shorter text. {SUM} Writing it took $0.250. {SUBTRACTED}"
    )
    before = replace(event)
    written.step(23_000)
    (event,) = story_of(written).events
    assert fold_sentences.describe_fold_details(event).startswith(
        f"2 requests had the shorter text. {SUM} Writing it took $0.250. {SUBTRACTED}"
    )
    assert (event.tokens_after_folds, event.writing) == (before.tokens_after_folds, before.writing)


def test_what_a_failed_attempt_took_is_said_once_and_not_of_the_next_summary(
    written: Written,
) -> None:
    """The row said $0.035 of a summary that cost $0.006: a failed one before it was counted."""
    ledger = build_state(written.facts).record.ledger
    paid_before = ledger.dollars_until(len(written.facts))
    written.add(Spent(Purpose.HANDOVER, "main", Usage(input=33_000, output=47, cost=0.0284)))
    failed = written.add(FoldFailed(FoldKind.HANDOVER, "The model's reply was not a summary"))
    written.step(23_000)
    written.add(Spent(Purpose.HANDOVER, "main", Usage(input=6_000, output=97, cost=0.0065)))
    excerpted = written.output(9)
    written.add(Folded("e", FoldKind.EXCERPT, PartRef(excerpted), "short", 30, 5_000))
    written.handover(3)
    story = story_of(written)
    failure, excerpt, summary = story.events[-3:]
    assert isinstance(failure.happened, FoldFailed)
    assert fold_sentences.describe_event_title(failure) == "No summary was written"
    brief = fold_sentences.describe_event_briefly(failure)
    assert brief == "the attempt took $0.028"
    assert excerpt.writing == Usage(), "written without a model, while a summary was"
    assert "Writing it took $0.0065." in fold_sentences.describe_fold_details(summary)
    paid = story.history.record.ledger.dollars_until(len(written.facts)) - paid_before
    paid_for_steps = 0.02
    assert failure.writing.cost + summary.writing.cost == pytest.approx(paid - paid_for_steps)
    errors = story.marks[TimelineLane.ERRORS]
    assert list(errors.seqs) == [failed]
    words = fold_sentences.describe_marked_fact(story.history, failed)
    assert words == "No summary was written\nSummary: The model's reply was not a summary."


@pytest.mark.parametrize(
    ("kind", "words"), [(FoldKind.HANDOVER, "no cost was reported"), (FoldKind.TRUNCATION, "")]
)
def test_an_attempt_of_which_no_cost_is_known_is_not_said_to_cost_nothing(
    written: Written, kind: FoldKind, words: str
) -> None:
    """A server that answers nothing may have billed the request; only a cut asks no model."""
    written.add(FoldFailed(kind, "there was no response for 15 seconds"))
    failure = story_of(written).events[-1]
    assert fold_sentences.describe_event_briefly(failure) == words
    in_panel = " ".join(fold_sentences.describe_what_happened(failure))
    assert in_panel.endswith("No cost was reported." if words else "did not change.")


def test_a_rewind_and_a_return_have_rows_and_marks(written: Written) -> None:
    """The area of the chart dropped and rose again without a mark."""
    left = len(written.facts)
    rewound = written.add(Rewound(8))
    written.add(UserSaid((Text("Otherwise.", 3),)))
    written.step(9_000)
    returned = written.add(Rewound(left))
    story = story_of(written)
    back, forth = story.events[-2:]
    assert fold_sentences.describe_event_title(back) == "Rewound to an earlier message"
    assert fold_sentences.describe_event_title(forth) == "Returned to earlier messages"
    now = format_token_count(measure_window(story.history, preset_policy("layered")).used)
    assert fold_sentences.describe_event_briefly(forth).endswith(f" → {now} tokens")
    seqs = story.marks[TimelineLane.YOU].seqs
    assert list(seqs)[-3::2] == [rewound, returned]
    assert fold_sentences.describe_marked_fact(story.history, rewound) == "Rewind"
    assert [forth.point, story.points[forth.point]] == [len(story.points) - 1, story.points[-1]]


def test_what_only_takes_back_that_a_turn_was_stopped_is_no_rewind(written: Written) -> None:
    rows = len(story_of(written).events)
    last = len(written.facts)
    written.add(TurnEnded(TurnEnd.STOPPED))
    written.add(Rewound(last))
    assert len(story_of(written).events) == rows


def test_a_fold_is_in_no_request_before_it() -> None:
    written = Written()
    written.add(UserSaid((Text("go", 10),)))
    for number in range(4):
        written.output(number)
    written.step(40_000)
    written.handover(1)
    for tokens in (22_000, 23_000, 24_000):
        written.step(tokens)
    written.handover(2)
    written.step(23_000)
    first, second = story_of(written).events
    assert (first.saved.requests, second.saved.requests) == (4, 1)


def test_an_undo_changes_no_line_of_the_time_before_it(written: Written) -> None:
    """Requests that were sent with a summary were counted for the excerpts below it, once the
    summary was undone and the page read the conversation again.
    """
    before = story_of(written)
    lines_before = [fold_sentences.describe_effect(event) for event in before.folded_events]
    written.add(Unfolded("h2"))
    written.step(23_000)
    after = story_of(written)
    lines_after = [fold_sentences.describe_effect(event) for event in after.folded_events]
    assert lines_after[-1] == lines_before[-1], "undone, it is in no more requests"


def test_a_page_that_reads_the_conversation_again_says_the_same_of_an_undone_row(
    written: Written,
) -> None:
    """Read again with the whole history at hand, a row that was undone since lost its requests."""
    written.add(Unfolded("h2"))
    written.step(23_000)
    anew = story_of(written)
    again = ConversationTimeline(anew.history)
    again.read_all_facts(written.facts)
    assert [event.saved for event in again.folded_events] == [
        event.saved for event in anew.folded_events
    ]
    assert again.folded_events[-1].saved.requests > 0


def test_a_summary_that_is_being_written_or_was_not_made_changes_no_earlier_line(
    written: Written,
) -> None:
    story = story_of(written)
    before = [fold_sentences.describe_effect(event) for event in story.folded_events]
    written.add(Spent(Purpose.HANDOVER, "fast", Usage(input=20_000, output=800, cost=0.25)))
    story = story_of(written)
    assert [fold_sentences.describe_effect(event) for event in story.folded_events] == before


@given(st.integers(1_000, 90_000), st.integers(1, 999), st.integers(1, 9), st.integers(0, 99_999))
def test_a_row_never_takes_back_what_it_said_when_more_requests_come(
    before: int, after: int, requests: int, writing: int
) -> None:
    digest = Stored(Digest.of_content(b"long"), 4, before)
    told: list[Fact] = [
        UserSaid((Text("Read it.", 3),)),
        ModelReplied((ToolCall("c", "read_file", "{}", 2),), "m", Stop.CALLS),
        ToolReturned("c", digest, before, head="long"),
    ]
    if writing:
        told.append(Spent(Purpose.ADMISSION, "m", Usage(input=writing)))
    told.append(Folded("f", FoldKind.EXCERPT, PartRef(3), "short", after, before))
    told += [ModelReplied((Text("So.", 2),), "m", Stop.END)] * requests
    story = ConversationTimeline()
    story.read_all_facts(Recorded("a", seq, seq, fact) for seq, fact in enumerate(told, 1))
    (event,) = story.folded_events
    assert event.saved == SavedByFolds((before - after) * requests, requests, requests, requests)
    words = fold_sentences.describe_effect(event)
    saved = (before - after) * requests
    amount = describe_token_count(abs(saved - writing))
    if saved > writing:
        counted = format_count(requests, "{n} request", "{n} requests")
        assert words == f"saved about {amount} in {counted}"
    elif saved and saved < writing:
        assert words == f"writing it took {amount} more than it has saved"
    elif saved < writing:
        assert words == f"writing it took {amount}"
    else:
        assert words == f"{format_token_count(before)} → {format_token_count(after)} tokens"


def test_panel_timeline_and_agents_say_the_same_of_histories_made_by_chance() -> None:
    folded = 0
    for seed in range(240):
        recorded = history(seed, most=20).recorded()
        state = build_state(recorded)
        story = ConversationTimeline()
        figures = compute_agent_figures("c", state)
        story.read_all_facts(recorded)
        totals = state.savings_until_moment()
        asked = {"paid": totals.paid, "without": totals.paid_without, "sent": totals.sent}
        assert {
            "paid": figures.paid,
            "without": figures.paid_without,
            "sent": figures.sent,
        } == pytest.approx(asked)
        if story.points:
            assert story.costs_at_point(-1)[0] <= totals.paid + 1e-9
        for_folds = [one.fact for one in recorded if isinstance(one.fact, Folded | Spent)]
        folded += bool(for_folds)
        if not for_folds:
            assert totals.without == totals.sent, f"history {seed}"
            assert totals.paid_without == pytest.approx(totals.paid), f"history {seed}"
    assert 50 < folded < 220


def test_messages_changes_and_errors_have_their_lanes(written: Written) -> None:
    said = written.add(UserSaid((Text("Run the tests.", 4),)))
    call = ToolCall("last", "run_command", '{"command": "cargo test"}', 10)
    written.step(24_000, call)
    failed = written.add(
        ToolReturned(
            call.id, Stored(Digest.of_content(b"red"), 3, 1), 5, ok=False, head="1 test failed"
        )
    )
    refused = ToolCall("refused", "run_command", '{"command": "rm -rf src"}', 10)
    stopped = replace(refused, id="stopped")
    written.step(25_000, refused, stopped)
    for each in (refused, stopped):
        text = Stored(Digest.of_content(b"no"), 2, 1)
        written.add(ToolReturned(each.id, text, 5, ok=False, head="no", stopped=each is stopped))
    written.add(Decided(refused.id, allowed=False, by="user"))
    changed = written.add(
        FilesChanged(Stored(Digest.of_content(b"d"), 3, 1), Digest.of_content(b"a"), Digest.of_content(b"b"), 3, names=("src/lib.rs",))
    )  # fmt: skip
    story = story_of(written)
    seqs_of_lanes = [list(marks.seqs) for marks in story.marks.values()]
    assert seqs_of_lanes == [[5, said], [changed], [failed]]
    describe = fold_sentences.describe_marked_fact
    assert describe(story.history, said) == "Run the tests."
    assert describe(story.history, changed) == "src/lib.rs and 2 more"
    assert describe(story.history, failed) == "cargo test\n1 test failed"


def test_files_that_another_agent_wrote_have_their_lane(written: Written) -> None:
    calls = [
        ToolCall("a", "Write", '{"file_path": "/app/solve.py", "content": "x"}', 10),
        ToolCall("b", "Read", '{"file_path": "/app/solve.py"}', 10),
        ToolCall("c", "Bash", '{"command": "touch notes.txt"}', 10),
        ToolCall(
            "d", "write_file", '{"path": "a.py", "content": "x"}', 10
        ),  # our own has its changes beside it
    ]
    written.step(24_000, *calls)
    returned = [
        written.add(ToolReturned(call.id, Stored(Digest.of_content(b"ok"), 2, 1), 5, head="done"))
        for call in calls
    ]
    story = story_of(written)
    changed = list(story.marks[TimelineLane.FILES].seqs)
    assert changed == [returned[0], returned[2]]
    assert (
        fold_sentences.describe_marked_fact(story.history, returned[0])
        == "Write /app/solve.py\ndone"
    )


def test_what_an_imported_conversation_cost_is_spread_over_its_steps() -> None:
    written = Written()
    written.add(ConversationStarted("Elsewhere"))
    for tokens in (10_000, 30_000):
        written.add(ModelReplied((Text("words", 20),), "m", Stop.END, Usage(input=tokens)))
    written.add(BroughtIn(Origin("claude-code", "1"), "run", 2, 10, 1, cost=0.4))
    story = story_of(written)
    assert [round(dollars, 2) for dollars in story.dollars] == [0.1, 0.4]
    assert (
        fold_sentences.describe_timeline(story)
        == "1 min 00 s, 2 steps, $0.400 before import or fork"
    )
    assert fold_sentences.describe_timeline(story, 0.05).endswith(
        " 2 steps, $0.450 before import or fork"
    )
    written.add(ModelReplied((Text("words", 20),), "m", Stop.END, Usage(input=9, cost=1e-9)))
    assert "$0," not in fold_sentences.describe_timeline(story_of(written)), (
        "a recorded one began with $0"
    )


@pytest.mark.parametrize("each", [0.0, 2.0])
def test_the_timeline_and_the_meters_panel_tell_one_cost(each: float) -> None:
    """The meter said $0.048 and the timeline $167.90 of an imported conversation."""
    written = Written()
    written.add(ConversationStarted("Elsewhere"))
    for _ in range(2):
        written.add(
            ModelReplied((Text("words", 20),), "m", Stop.END, Usage(input=10_000, cost=each))
        )
    written.add(BroughtIn(Origin("claude-code", "1"), "run", 2, 10, 1, cost=4.0))
    written.add(ModelReplied((Text("here", 20),), "m", Stop.END, Usage(input=10_000, cost=0.048)))
    story = story_of(written)
    savings = story.history.savings_until_moment()
    assert (round(savings.paid, 9), round(savings.paid_before, 9)) == (0.048, 4.0)
    assert fold_sentences.describe_timeline(story).endswith(
        "3 steps, $0.048, $4.00 before import or fork"
    )
    assert fold_sentences.describe_timeline(story, 0.05).endswith(
        "3 steps, $0.098, $4.00 before import or fork"
    )
    assert (
        fold_sentences.describe_costs_at_point(story, 2)
        == "$0.048 so far, $4.00 before import or fork"
    )
    assert fold_sentences.describe_costs_at_point(story, 1) == "$4.00 before import or fork"


def test_a_long_list_has_a_row_for_what_follows_each_other(written: Written) -> None:
    few = story_of(written).events
    assert group_timeline_events(few) == few
    for number in range(40):
        name = f"more-{number}"
        written.add(Folded(name, FoldKind.MARKER, PartRef(5), "[CACHED]", 30, 900, batch=name))
    rows = group_timeline_events(story_of(written).events)
    assert [len(row.made_folds) for row in rows] == [0, 3, 1, 1, 40]
    assert rows[-1].last_time - rows[-1].time == 39 * 60


def test_the_last_fold_of_a_row_is_found_behind_other_facts_and_before_its_undo() -> None:
    """The defects: only four facts for each fold were looked at, and an undo counted as the
    fold, so that a comparison showed what the model saw after it.
    """
    written = Written()
    written.add(ConversationStarted())
    first = written.add(Folded("a", FoldKind.MARKER, PartRef(5), "[CACHED]", 30, 900, batch="a"))
    for number in range(12):
        written.output(number)
    last = written.add(Folded("b", FoldKind.MARKER, PartRef(7), "[CACHED]", 30, 900, batch="b"))
    written.add(Unfolded("b"))
    event = story_of(written).events[1]
    row = replace(event, made_folds=event.made_folds + story_of(written).events[2].made_folds)
    assert event.seq == first
    assert find_last_seq_of_event(event, written.facts) == first
    assert find_last_seq_of_event(row, written.facts) == last


def test_token_counts_that_make_no_sense_are_drawn_within_the_chart() -> None:
    most = 2**40 - 1
    replied = ModelReplied((Text("y", 1),), "m", Stop.END, Usage(input=most))
    facts: list[Fact] = [SystemSet("x", most), UserSaid((Text("x", 1 - most),)), replied]
    recorded = [Recorded("c", seq, float(seq), fact) for seq, fact in enumerate(facts, 1)]
    story = ConversationTimeline()
    story.read_all_facts(recorded)
    for heights in zip(*story.layers, strict=True):
        assert all(0 <= height <= heights[-1] for height in heights[:-1]), heights


def test_a_message_is_marked_at_the_step_that_answers_it() -> None:
    """It stood at the step before, and the second message on top of the first."""
    facts: list[Fact] = []
    for number in range(3):
        facts.append(UserSaid((Text(f"question {number}", 4),)))
        facts.append(ModelReplied((Text("y", 1),), "m", Stop.END, Usage(input=10)))
    facts.append(UserSaid((Text("not answered yet", 4),)))
    story = ConversationTimeline()
    story.read_all_facts(Recorded("c", seq, seq, fact) for seq, fact in enumerate(facts, 1))
    assert story.marks[TimelineLane.YOU].points.tolist() == [0, 1, 2, 2]
    assert story.marks[TimelineLane.YOU].seqs.tolist() == [1, 3, 5, 7]


def test_what_an_agent_added_is_no_message_of_the_user() -> None:
    """The defect: a reminder of Claude Code stood in the user's lane, and its text was
    shown as the user's words.
    """
    reminder = "<system-reminder>\nToday is the 24th.\n</system-reminder>"
    said = "Mend it."
    messages = [UserSaid((Text(reminder),)), UserSaid((Text(reminder), Text(said)))]
    for start, seqs in (
        (ConversationStarted(origin=Origin("claude-code", "s")), [3]),
        (ConversationStarted(), [2, 3]),
    ):
        story = ConversationTimeline()
        facts: list[Fact] = [start, *messages]
        story.read_all_facts(Recorded("c", seq, seq, fact) for seq, fact in enumerate(facts, 1))
        assert story.marks[TimelineLane.YOU].seqs.tolist() == seqs
        assert fold_sentences.describe_marked_fact(story.history, 3) == said


def compacted_by_its_agent(own: tuple[Fact, ...] = ()) -> list[Recorded]:
    """Two requests of an agent, the one that wrote its summary, its compaction, and
    perhaps what followed.
    """
    call = ToolCall("a", "Bash", "{}", 10)
    begun: list[Fact] = [
        ConversationStarted(origin=Origin("claude-code", "s")),
        UserSaid((Text("go", 96),)),
        ModelReplied((Text("x", 90), call), "claude-opus", Stop.CALLS, Usage(input=19_160)),
        ToolReturned("a", Stored(Digest.of_content(b"out"), 3, 1), 10_000, head="out"),
        ModelReplied((Text("y", 90),), "claude-opus", Stop.END, Usage(input=36_246)),
        ModelReplied((Text("<summary>", 90),), "claude-opus", Stop.END, Usage(input=30_000)),
        Folded("h1", FoldKind.HANDOVER, Span(2, 6), "sum", 194, 21_365, why="Claude Code compacted the conversation here (manual)"),
        *own,
    ]  # fmt: skip
    return [Recorded("c", seq, 60.0 * seq, fact) for seq, fact in enumerate(begun, 1)]


AFTER_COMPACTION: tuple[Fact, ...] = (
    UserSaid((Text("Continue from where you left off.", 7),), steering=True),
    ModelReplied((Text("No response requested.", 4),), "<synthetic>", Stop.END),
    UserSaid((Text("more", 3),)),
    ModelReplied((Text("z", 90),), "claude-opus", Stop.END, Usage(input=23_383)),
)


def test_of_a_recorded_conversation_only_what_its_agent_measured_is_drawn() -> None:
    """The defect: 36.2K, 21.4K, 194, 5.5K, 23.4K; only the first and the last were
    requests. One step had no request.
    """
    recorded = compacted_by_its_agent(AFTER_COMPACTION)
    for history_is_read_before in (True, False):
        story = ConversationTimeline(build_state(recorded) if history_is_read_before else None)
        story.read_all_facts(recorded)
        assert list(story.points) == [19_160, 36_246, 30_000, 23_383]
        assert list(story.steps) == [1, 2, 3, 4]
        assert story.events[-1].point == 2  # where it fell from
        undone = Recorded("c", len(recorded) + 1, 900.0, Unfolded("h1"))
        assert story.read_next_fact(undone)
        assert len(story.points) == 4


def test_a_compaction_is_measured_by_the_requests_before_and_after_it() -> None:
    """The defect: "21.4K → 194 tokens" for a request of 36.2K and the next of 23.4K."""
    for own, words in (
        (AFTER_COMPACTION, "36.2K → 23.4K tokens"),
        ((), "36.2K → ≈ 15.1K tokens"),  # The next request is not known yet.
        ((SystemSet("ours", 5), ToolsOffered((), 4), *AFTER_COMPACTION), "36.2K → ≈ 15.1K tokens"),
    ):
        story = ConversationTimeline()
        story.read_all_facts(compacted_by_its_agent(own))
        compaction = story.events[1]
        assert fold_sentences.describe_event_briefly(compaction) == words
        assert (
            fold_sentences.describe_fold_figures(compaction) == f"{words} · requested by the user"
        )
    story = ConversationTimeline()
    unmeasured = [
        replace(one, fact=replace(one.fact, usage=Usage()))
        if isinstance(one.fact, ModelReplied)
        else one
        for one in compacted_by_its_agent(AFTER_COMPACTION)
    ]
    story.read_all_facts(unmeasured)
    assert fold_sentences.describe_event_briefly(story.events[1]).startswith(
        "≈ 21.4K → ≈ 194 tokens"
    )


def test_what_a_request_had_beside_the_recorded_conversation_is_its_system_prompt_and_tools() -> (
    None
):
    """The defect: 19.2K of "Conversation", then 23.1K of "Tool outputs", of which 125 were one."""
    story = ConversationTimeline()
    story.read_all_facts(compacted_by_its_agent())
    system, _, _, conversation, _, _ = ([*layer] for layer in story.layers)
    assert [low // 1_000 for low in system[:2]] == [
        19,
        22,
    ]  # The output is 10,000 times what such models bill.
    assert conversation[1] - system[1] == pytest.approx(270, abs=30)


def test_our_own_requests_in_a_recorded_conversation_are_drawn_with_our_folds() -> None:
    own: tuple[Fact, ...] = (
        ToolsOffered((), 900),
        ModelReplied((Text("w", 90),), "m", Stop.END),
        Unfolded("h1"),
    )
    story = ConversationTimeline()
    story.read_all_facts(compacted_by_its_agent(own))
    assert list(story.seqs) == [3, 5, 6, 9, 10]


def test_after_undo_here_the_requests_of_the_agent_are_still_those_of_its_compacted_conversation() -> (
    None
):
    more = ModelReplied((Text("z", 90),), "claude-opus", Stop.END, Usage(input=23_500))
    layers = []
    for undone in ((), (Unfolded("h1"),), (Unfolded("h1"), Refolded("h1"))):
        story = ConversationTimeline()
        story.read_all_facts(compacted_by_its_agent((*AFTER_COMPACTION, *undone, more)))
        layers.append([layer[-1] for layer in story.layers])
    assert layers[0] == layers[1] == layers[2]
    assert layers[0][0] > 22_000


def test_a_kind_that_is_not_in_the_view_takes_no_room() -> None:
    written = Written()
    written.add(UserSaid((Text("x", 100),)))
    written.add(ModelReplied((Text("y", 10),), "m", Stop.END))
    story = story_of(written)
    assert (story.layers[0][-1], story.points[-1] > 100) == (0, True)


@pytest.mark.parametrize(
    ("kind", "points_of_fold"), [(FoldKind.HANDOVER, 2), (FoldKind.EXCERPT, 1)]
)
def test_the_line_falls_where_a_fold_began_but_not_for_what_was_never_sent_whole(
    kind: FoldKind, points_of_fold: int
) -> None:
    written = Written()
    written.add(ConversationStarted("x"))
    written.add(UserSaid((Text("x", 100),)))
    written.output(1)
    before = len(story_of(written).points)
    cover = PartRef(len(written.facts)) if kind is FoldKind.EXCERPT else Span(2, len(written.facts))
    written.add(Folded("f", kind, cover, "short", 5, 5_000))
    story = story_of(written)
    assert len(story.points) == before + points_of_fold
    assert story.points[-1] < used(story, len(written.facts) - 1)


def test_of_a_recorded_request_a_kind_that_is_not_in_it_takes_no_room() -> None:
    story = ConversationTimeline()
    story.read_all_facts(compacted_by_its_agent())
    system, handover, observations, conversation, outputs, _ = (layer[0] for layer in story.layers)
    assert system == handover == observations
    assert observations < conversation == outputs


@pytest.mark.parametrize(("count", "rows"), [(29, 29), (30, 1)])
def test_a_list_is_long_from_thirty_rows_on(written: Written, count: int, rows: int) -> None:
    story = story_of(written)
    marker = next(one for one in story.events if one.fold_kind is FoldKind.MARKER)
    events = [replace(marker, time=float(n), writing=Usage(n, cost=1.0)) for n in range(count)]
    grouped = group_timeline_events(events)
    assert len(grouped) == rows
    if rows == 1:
        assert (grouped[0].time, grouped[0].last_time) == (0.0, 29.0)
        assert grouped[0].writing == Usage(sum(range(30)), cost=30.0)
        assert len(grouped[0].made_folds) == 30 * len(marker.made_folds)


def test_what_is_no_part_or_of_another_kind_has_a_row_of_its_own(written: Written) -> None:
    story = story_of(written)
    marker = next(one for one in story.events if one.fold_kind is FoldKind.MARKER)
    handover = next(one for one in story.events if one.fold_kind is FoldKind.HANDOVER)
    summaries = [handover] * 30
    assert group_timeline_events(summaries) == summaries
    mixed = [marker, handover, marker] * 10
    kinds = [row.fold_kind for row in group_timeline_events(mixed)]
    assert kinds == [FoldKind.MARKER, FoldKind.HANDOVER] * 10 + [FoldKind.MARKER]


@pytest.mark.parametrize(
    ("by_kind", "tokens", "system", "heights"),
    [
        ([10, 30, 60], 190, 10, [10, 70, 190, 190]),  # The others take twice what was counted.
        ([10, 0, 0], 190, 10, [190, 190, 190, 190]),
        ([10, 30, 60], 190, 500, [190, 190, 190, 190]),
        ([10, 30, 60], 190, -5, [0, 63, 190, 190]),
        ([0, 1, 0], 100, 0, [0, 100, 100, 100]),
    ],
)
def test_kinds_are_stacked_in_proportion_up_to_what_was_billed(
    by_kind: list[int], tokens: int, system: int, heights: list[int]
) -> None:
    assert _stack_kinds_up_to_total(by_kind, tokens, system) == heights


def test_a_timeline_without_anything_knows_no_window_and_no_summary(written: Written) -> None:
    empty = ConversationTimeline()
    assert empty.model_window == 0
    assert empty.find_event_of_fold("h1") is None
    assert empty.costs_until_now() == (0.0, 0.0)
    story = story_of(written)
    assert story.model_window == 128_000
    first = story.find_event_of_fold("h1")
    second = story.find_event_of_fold("h2")
    assert first is not None
    assert second is not None
    assert story.find_handover_before(second) is first
    assert story.find_handover_before(first) is None
    assert story.find_handover_before(replace(first)) is None


def test_what_is_read_says_whether_the_chart_or_the_list_has_changed() -> None:
    written = Written()
    story = ConversationTimeline()

    def read(fact: Fact) -> tuple[bool, int]:
        before = story.change_count
        written.add(fact)
        return story.read_next_fact(written.facts[-1]), story.change_count - before

    assert read(ConversationStarted("Extract")) == (True, 1)
    assert read(PolicySet("layered")) == (False, 0)
    assert story.events[0].words == "layered"
    assert read(PolicySet("none")) == (False, 0)
    assert story.events[0].words == "layered", "the conversation began with it"
    assert read(SystemSet("You are Helix.", 500)) == (False, 0)
    assert read(UserSaid((Text("go", 10),))) == (True, 0)
    assert list(story.marks[TimelineLane.YOU].points) == [0]
    reply = ModelReplied((Text("x", 20),), "m", Stop.END, Usage(input=1_000, cost=0.5))
    assert read(reply) == (True, 0)
    assert list(story.points) == [1_000]
    assert list(story.dollars) == [0.5]
    assert list(story.steps) == [1]
    assert read(Unfolded("nobody")) == (True, 1)


@pytest.mark.parametrize(
    ("fact", "lane"),
    [
        (TurnEnded(TurnEnd.FAILED, "It broke."), TimelineLane.ERRORS),
        (TurnEnded(TurnEnd.STOPPED), None),
        (TurnEnded(TurnEnd.DONE), None),
        (ToolReturned("c", Stored(Digest(bytes(32)), 1), 1, ok=False), TimelineLane.ERRORS),
        (ToolReturned("c", Stored(Digest(bytes(32)), 1), 1, ok=False, stopped=True), None),
        (ToolReturned("c", Stored(Digest(bytes(32)), 1), 1), None),
    ],
)
def test_a_fact_is_marked_in_the_lane_where_it_belongs(
    fact: Fact, lane: TimelineLane | None
) -> None:
    written = Written()
    written.step(1_000)
    seq = written.add(fact)
    story = story_of(written)
    marked = {one: list(marks.seqs) for one, marks in story.marks.items() if len(marks.seqs)}
    if lane is None:
        assert marked == {}
    else:
        assert marked == {lane: [seq]}


def test_an_imported_cost_is_spread_by_what_each_step_sent() -> None:
    written = Written()
    for tokens in (1_000, 3_000, 6_000):
        written.add(ModelReplied((Text("x", 20),), "m", Stop.END, Usage(input=tokens)))
    story = story_of(written)
    story._spread_imported_cost(2, 9.0)
    assert list(story.dollars) == pytest.approx([0.0, 3.0, 9.0])
    story._spread_imported_cost(99, 9.0)
    assert list(story.dollars) == pytest.approx([0.0, 3.0, 9.0])


def test_a_request_that_nobody_reported_is_as_high_as_the_meter_estimates_it(
    written: Written,
) -> None:
    story = ConversationTimeline()
    written.add(ModelSet(ModelRole.MAIN, "local", 32_000))
    story.read_all_facts(written.facts)
    ledger = story.history.record.ledger
    ledger.set_estimated_factor("local", story.history.seq, 1.5)
    estimated = ledger.billed_view_tokens("local", story.history.seq, story.history.counted_tokens)
    written.add(ModelReplied((Text("So.", 2),), "local", Stop.END))
    story.read_next_fact(written.facts[-1])
    assert story.points[-1] == estimated
