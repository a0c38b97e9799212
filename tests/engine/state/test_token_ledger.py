"""Savings: the same steps with and without folds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.context_usage import measure_window
from helix_desktop.engine.facts import (
    BroughtIn,
    ConversationStarted,
    Excluded,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Origin,
    PartRef,
    Purpose,
    Recorded,
    Rewound,
    RulesSet,
    Span,
    Spent,
    Stop,
    SystemSet,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind
from helix_desktop.engine.state.token_ledger import (
    Savings,
    SummaryBaseline,
    TokenLedger,
    newest_fact_seen_by,
)
from helix_desktop.engine.view import build_state
from tests.engine.talk import Talk, stored


def told(*facts: Fact) -> Talk:
    talk = Talk()
    for fact in facts:
        talk.add(fact)
    return talk


def savings(talk: Talk, *, is_priced: bool = False) -> Savings:
    return talk.state.record.ledger.savings_until(talk.state.seq, is_priced=is_priced)


def reply(
    tokens: int, sent: int, cached: int = 0, cost: float = 0.0, stop: Stop = Stop.CALLS
) -> ModelReplied:
    return ModelReplied(
        (ToolCall("1", "look", "{}", tokens),), "m", stop, Usage(sent, cached, 0, tokens, 0, cost)
    )


STEPS: list[Fact] = [
    SystemSet("s", 100),
    UserSaid((Text("u", 6),)),  # 10 with what a message costs
    reply(16, 110),  # sees 110, adds 20
    ToolReturned("1", stored("x"), 996),  # adds 1,000
    reply(6, 2_260, 100),  # sees 1,130
]


def test_where_nothing_is_folded_nothing_is_saved_whatever_the_provider_bills() -> None:
    figures = savings(told(*STEPS))
    assert (figures.steps, figures.sent, figures.without, figures.cache_read) == (
        2,
        2_370,
        2_370,
        100,
    )
    assert figures.saved_share == 0
    assert figures.cache_read_share == pytest.approx(100 / 2_370)


def test_a_fold_saves_in_the_proportion_of_the_two_counted_views() -> None:
    talk = told(*STEPS[:4])
    talk.fold("m", PartRef(4), kind=FoldKind.MARKER, tokens=96)  # 230 instead of 1,130
    talk.add(reply(6, 460))
    figures = savings(talk)
    assert (figures.sent, figures.without) == (110 + 460, 110 + 2_260)
    assert figures.saved_share == pytest.approx(1 - 570 / 2_370)


@pytest.mark.parametrize("stop", [Stop.STOPPED, Stop.END])
def test_a_step_without_a_report_counts_as_what_was_counted_times_the_factor(stop: Stop) -> None:
    talk = told(*STEPS[:4], reply(6, 0, stop=stop))
    figures = savings(talk)
    assert figures.sent == figures.without == 110 + 1_130
    assert figures.saved_share == 0
    talk = told(*STEPS, *(ToolReturned("1", stored("y"), 496), reply(6, 3_280), reply(6, 0)))
    assert talk.state.record.ledger.request_tokens(talk.state.seq) == round(
        talk.state.record.ledger.shown[-2]
        * talk.state.record.ledger.billing_factor("m", talk.state.seq)
    )


def test_figures_of_another_machine_that_make_no_sense_keep_no_conversation_from_opening() -> None:
    most = 2**40 - 1
    talk = told(UserSaid((Text("x", most),)), reply(1, 1), UserSaid((Text("y", 1),)))
    talk.add(Folded("f", FoldKind.MARKER, Span(1, 1), "x", 1, most))
    for _ in range(3):
        talk.add(reply(1, most))
    assert savings(talk).sent == 3 * most + 1


def test_requests_of_unknown_cost_are_counted_without_those_of_other_programs() -> None:
    steps = [ConversationStarted(), *STEPS, BroughtIn(Origin("codex", "a"), "run", 2)]
    assert savings(told(*STEPS, reply(6, 2_300, cost=0.5), reply(6, 2_400))).unpriced == 3
    assert savings(told(*steps, reply(6, 2_300, cost=0.5), reply(6, 2_400))).unpriced == 1
    stopped = told(STEPS[0], reply(1, 0, stop=Stop.STOPPED))
    assert savings(stopped, is_priced=True).unpriced == 1
    assert savings(stopped).unpriced == 0, "a model on this computer costs nothing"


def test_requests_of_strategies_are_sent_and_save_nothing() -> None:
    figures = savings(told(*STEPS, Spent(Purpose.HANDOVER, "fast", Usage(500, cost=0.25))))
    assert (figures.steps, figures.sent, figures.without, figures.paid) == (2, 2_870, 2_370, 0.25)


def by_list(sent: int, cached: int, written: int) -> float:
    """What a request costs by the list prices below."""
    return cached * 0.1 + (sent - cached) * 1.25 + written * 5


LISTED = ModelSet(ModelRole.MAIN, "m", 128_000, 8_000, 1.0, 5.0, 0.1, 1.25)


@pytest.mark.parametrize("share", [1.0, 0.5, 2.0])
def test_money_is_what_was_paid_in_the_proportion_of_what_list_prices_say(share: float) -> None:
    """A provider that bills half of its prices saves nothing: a bill and prices are
    never compared with each other.
    """
    talk = told(LISTED, *STEPS[:2], reply(16, 110, cost=share * by_list(110, 0, 16)), STEPS[3])
    assert savings(talk).paid_without == pytest.approx(savings(talk).paid)
    talk.fold("m", PartRef(5), kind=FoldKind.MARKER, tokens=96)  # 230 instead of 1,130
    talk.add(reply(6, 460, 200, cost=share * by_list(460, 200, 6)))
    figures = savings(talk)
    old = 2_260 * 110 // 1_130  # What the provider would have had in its cache.
    usual = by_list(110, 0, 16) + by_list(2_260, old, 6)
    assert figures.paid_without == pytest.approx(share * usual)
    talk.add(Spent(Purpose.HANDOVER, "m", Usage(500, cost=7.0)))
    talk.add(Spent(Purpose.TITLE, "m", Usage(500, cost=0.0)))
    more = savings(talk)
    assert (more.paid, more.paid_without) == pytest.approx((figures.paid + 7, figures.paid_without))
    assert more.without - figures.without == 500, "a title is asked for without folds, too"


def paid_beside_cache(*cached_tokens: int, pause: float = 1.0) -> Savings:
    """Of a conversation in which each step reads so many cached tokens and an old output was
    shortened before the last step, `pause` seconds after the one before.
    """
    talk = told(LISTED, *STEPS[:2])
    for number, cached in enumerate(cached_tokens):
        seconds = 1.0
        if number == len(cached_tokens) - 1:
            talk.fold("m", PartRef(5), kind=FoldKind.MARKER, tokens=96)
            seconds = pause
        sent = talk.state.counted_tokens
        talk.add(reply(16, sent, cached, cost=by_list(sent, cached, 16)), after=seconds)
        talk.add(ToolReturned("1", stored("x"), 996))
    return savings(talk)


def test_a_provider_that_never_cached_anything_would_not_have_without_folds_either() -> None:
    """A shortened conversation seemed to cost more than it would have in full, because only the
    full one was given a cache.
    """
    figures = paid_beside_cache(0, 0, 0)
    assert figures.saved_tokens == 1_000 - 100
    assert figures.saved_dollars == pytest.approx(900 * 1.25)


def test_after_a_pause_that_no_cache_outlives_it_is_empty_without_folds_too() -> None:
    long_pause = paid_beside_cache(0, 100, 0, pause=400.0)
    assert long_pause.saved_dollars == pytest.approx(900 * 1.25)
    short_pause = paid_beside_cache(0, 100, 0, pause=200.0)
    assert short_pause.saved_dollars < 0, "what was shortened had to be cached anew"


@pytest.mark.parametrize("read_percent", [0, 40, 70, 100])
def test_what_was_saved_does_not_fall_while_nothing_new_is_shortened(read_percent: int) -> None:
    """The defect: a server that reads only a part of what it was sent before seemed to read all of
    it in the conversation without folds, so each further step took something from the savings.
    """
    talk = told(LISTED, *STEPS[:2])
    sent_before = 0
    saved: list[float] = []
    for number in range(12):
        if number == 4:
            talk.fold("m", PartRef(5), kind=FoldKind.MARKER, tokens=96)
        sent = talk.state.counted_tokens
        cached = sent_before * read_percent // 100
        talk.add(reply(16, sent, cached, cost=by_list(sent, cached, 16)))
        talk.add(ToolReturned("1", stored("x"), 996))
        sent_before = sent
        saved.append(savings(talk).saved_dollars)
    after_fold = saved[4:]
    assert after_fold == sorted(after_fold)
    assert after_fold[-1] > after_fold[0]


def test_what_writing_summaries_took_is_known_by_itself() -> None:
    talk = told(*STEPS, Spent(Purpose.HANDOVER, "fast", Usage(500, cost=0.25)))
    talk.add(Spent(Purpose.TITLE, "m", Usage(70, cost=0.5)))
    figures = savings(talk)
    assert (figures.shortening, figures.paid_for_shortening) == (500, 0.25)


@pytest.mark.parametrize("cached", [0, 100, 110])
def test_where_nothing_is_folded_as_much_money_is_paid_whatever_was_in_the_cache(
    cached: int,
) -> None:
    talk = told(LISTED, *STEPS[:2], reply(16, 110, cached=cached, cost=0.3), *STEPS[3:])
    figures = savings(talk)
    assert figures.without == figures.sent
    assert figures.paid_without == pytest.approx(figures.paid)
    more = savings(told(*STEPS, reply(6, 0, stop=Stop.STOPPED)))
    assert (more.paid, more.paid_without) == (0.0, 0.0)


def test_a_rewind_leaves_the_branch_and_a_changed_head_takes_the_old_ones_place() -> None:
    talk = told(*STEPS, Rewound(2), SystemSet("t", 50), RulesSet("A", "r", 7), reply(1, 77))
    assert talk.state.record.ledger.shown[-2:-1].tolist() == [10 + 50 + 7 + 10]
    assert savings(talk).without == 2_370 + 77


def test_what_the_user_took_out_is_no_saving() -> None:
    talk = told(*STEPS[:4], Excluded(PartRef(4)), reply(6, 142))
    assert savings(talk).saved_share == 0


def test_a_moment_has_the_sums_of_its_time() -> None:
    talk = told(*STEPS)
    assert talk.state.past_moment(4).savings_until_moment().sent == 110
    assert talk.state.past_moment(2).savings_until_moment() == Savings(0, 0, 0, 0, 0.0, 0.0)
    assert [talk.state.record.ledger.count_steps(seq) for seq in range(6)] == [0, 0, 0, 1, 1, 2]


def test_a_step_is_what_was_in_the_view_it_answers() -> None:
    """A fold that came while the model wrote is not in the request, and saves nothing of it."""
    talk = told(*STEPS[:4])
    talk.fold("h", Span(2, 4), tokens=5)
    talk.add(ModelReplied((Text("so", 1),), "m", Stop.END, Usage(1_130), saw=4))
    assert savings(talk).saved_share == 0
    assert talk.state.record.ledger.billing_factor("m", talk.state.seq) == 1.0


def test_what_another_program_asked_saves_nothing_here_and_teaches_nothing() -> None:
    origin = Origin("claude-code", "s")
    steps = list(STEPS) + [Spent(Purpose.OTHER, "m", Usage(50, cost=2.0))]
    talk = told(ConversationStarted(origin=origin), *steps[:4])
    talk.fold("marker-1", PartRef(5), kind=FoldKind.MARKER, tokens=40)
    for fact in steps[4:]:
        talk.add(fact)
    before = talk.state.seq
    assert (savings(talk).steps, savings(talk).paid) == (2, 2.0)
    assert savings(talk).saved_share > 0
    talk.add(BroughtIn(origin, "run", 1))
    ledger = talk.state.record.ledger
    now = talk.state.seq
    assert savings(talk) == Savings(0, 0, 0, 0, 0.0, 0.0, paid_before=2.0)
    assert ledger.savings_until(before).steps == 0
    assert (*ledger.last_billed_reply("m", now), ledger.billing_factor("m", now)) == (0, 0, 1.0)
    assert (ledger.request_tokens(4), ledger.count_steps(now)) == (110, 2)
    talk.add(ModelReplied((), "m", Stop.END, Usage(300, 100)))
    own = savings(talk)
    assert (own.steps, own.sent, own.cache_read) == (1, 300, 100)
    assert own.without > 300
    assert ledger.last_billed_reply("m", talk.state.seq)[1] == 300


def test_a_fork_begins_at_nought_and_goes_on_with_what_was_learned() -> None:
    talk = told(ConversationStarted(), *STEPS, Spent(Purpose.OTHER, "m", Usage(50, cost=2.0)))
    learned = talk.state.record.ledger.billing_factor("m", talk.state.seq)
    talk.add(ConversationStarted(forked_from="c", forked_at=talk.state.seq))
    ledger = talk.state.record.ledger
    now = talk.state.seq
    assert savings(talk) == Savings(0, 0, 0, 0, 0.0, 0.0, paid_before=2.0)
    assert ledger.savings_until(now - 2) == Savings(0, 0, 0, 0, 0.0, 0.0)
    assert ledger.billing_factor("m", now) == learned
    talk.add(ModelReplied((), "m", Stop.END, Usage(300, 100, cost=0.25)))
    assert (savings(talk).steps, savings(talk).sent, savings(talk).paid) == (1, 300, 0.25)


@pytest.mark.parametrize(("saw", "expected"), [(0, 8), (3, 3), (8, 8), (9, 8), (77, 8)])
def test_what_a_reply_saw_is_before_it(saw: int, expected: int) -> None:
    assert (
        newest_fact_seen_by(Recorded("c", 9, 0.0, ModelReplied((), "m", Stop.END, saw=saw)))
        == expected
    )


def test_what_a_request_took_and_how_many_steps_there_were_at_each_fact() -> None:
    ledger = told(*STEPS, Spent(Purpose.HANDOVER, "fast", Usage(500))).state.record.ledger
    assert [ledger.request_tokens(seq) for seq in (0, 1, 3, 5, 6)] == [0, 0, 110, 2_260, 500]
    assert [ledger.count_steps(seq) for seq in (0, 3, 5, 6)] == [0, 1, 2, 2]


def test_the_factor_is_learned_from_the_last_nine_sound_reports_that_were_known_then() -> None:
    talk = told(SystemSet("s", 100))
    for billed in (90_000, 50, 100, 110, 120, 130, 140, 150, 160, 170, 180, 290):
        talk.add(ModelReplied((), "m", Stop.END, Usage(billed)))
    ledger = talk.state.record.ledger
    last = ledger.reports["m"].last_reports
    assert [report.factor for report in last(talk.state.seq)] == [
        1.1,
        1.2,
        1.3,
        1.4,
        1.5,
        1.6,
        1.7,
        1.8,
        2.9,
    ]
    assert [(report.seq, report.factor) for report in last(4)] == [(2, 900.0), (3, 0.5), (4, 1.0)]
    assert list(last(1)) == []
    assert ledger.billing_factor("m", talk.state.seq) == 1.4
    assert ledger.billing_factor("m", 3) == 1.0
    assert ledger.billing_factor("claude-9", talk.state.seq) == 1.32


def test_an_estimate_for_the_text_holds_until_reports_correct_it_in_proportion() -> None:
    """Two reports at 1.1 times the estimate for English say the same of a Chinese text."""
    talk = told(SystemSet("s", 100))
    ledger = talk.state.record.ledger
    ledger.set_estimated_factor("m", talk.state.seq, 1.2)
    assert ledger.billing_factor("m", talk.state.seq) == 1.2
    for _ in range(5):
        talk.add(ModelReplied((), "m", Stop.END, Usage(132)))
    assert ledger.billing_factor("m", talk.state.seq) == pytest.approx(1.32)
    ledger.set_estimated_factor("m", talk.state.seq, 1.8)
    assert ledger.billing_factor("m", talk.state.seq) == pytest.approx(1.98)
    assert ledger.billing_factor("m", talk.state.seq - 1) == pytest.approx(1.32)
    assert ledger.billing_factor("other", talk.state.seq) == 1.0


def test_tools_that_a_template_leaves_out_are_missing_once_however_long_the_next_text_is() -> None:
    """Taken for a share, they halved the estimate of a long text, and Ollama cut the request."""
    talk = told(SystemSet("s", 1_000))
    ledger = talk.state.record.ledger
    for _ in range(3):
        ledger.set_estimated_factor("m", talk.state.seq, 1.2)
        talk.add(ModelReplied((), "m", Stop.END, Usage(600)))
    assert ledger.billing_factor("m", talk.state.seq) == pytest.approx(0.6)
    assert ledger.billing_factor("m", talk.state.seq + 1) == pytest.approx(0.6)
    talk.add(SystemSet("s" * 9, 5_000))
    ledger.set_estimated_factor("m", talk.state.seq, 1.2)
    assert ledger.billing_factor("m", talk.state.seq) * 5_000 == pytest.approx(5_400)


@pytest.mark.parametrize("factor", [0.0, -1.0, 30.0])
def test_an_estimate_that_makes_no_sense_is_left_out(factor: float) -> None:
    talk = told(SystemSet("s", 100))
    ledger = talk.state.record.ledger
    ledger.set_estimated_factor("m", talk.state.seq, factor)
    assert ledger.billing_factor("m", talk.state.seq) == 1.0


def test_requests_to_a_free_model_are_not_of_unknown_cost_once_it_has_a_price() -> None:
    talk = told(SystemSet("s", 100), ModelSet(ModelRole.MAIN, "m", 8_192, is_free=True))
    talk.add(ModelReplied((), "m", Stop.END, Usage(100)))
    talk.add(Spent(Purpose.HANDOVER, "m", Usage(50)))
    talk.add(ModelSet(ModelRole.MAIN, "m", 8_192, price_input=1.0))
    talk.add(ModelReplied((), "m", Stop.END, Usage(100, cost=0.02)))
    figures = savings(talk)
    assert (figures.free, figures.unpriced) == (2, 0)
    assert not figures.is_saved_in_dollars
    talk.add(ModelReplied((), "other", Stop.END, Usage(100)))
    assert savings(talk).unpriced == 1


def test_a_report_of_one_token_is_one() -> None:
    talk = told(*STEPS[:3])
    seq = talk.add(reply(0, 1))
    assert talk.state.record.ledger.last_billed_reply("m", seq)[1] == 1
    assert talk.state.record.ledger.last_billed_reply("other", seq)[0] == 0


def test_what_a_second_import_says_reaches_back_to_the_first_at_most() -> None:
    talk = told(ModelSet(ModelRole.MAIN, "m", 128_000), *STEPS)
    talk.add(BroughtIn(Origin("codex", "a"), "one", 2))
    own = talk.add(reply(6, 2_260, 100, cost=1.0))
    again = talk.add(reply(6, 2_260, 100, cost=1.0))
    talk.add(BroughtIn(Origin("codex", "a"), "two", 1))
    assert talk.state.record.ledger.elsewhere == [(2, own - 1), (own - 1, again + 1)]


def test_a_cost_that_only_the_last_step_of_an_import_states_is_stated() -> None:
    talk = told(*STEPS[:2])
    first = talk.add(reply(10, 150))
    talk.add(reply(10, 150, cost=1.0))
    behind = talk.add(BroughtIn(Origin("codex", "a"), "one", first, cost=2.0))
    assert talk.state.record.ledger.unstated == {behind: 0.0}


def test_the_first_fact_of_an_import_is_another_programs() -> None:
    talk = told(*STEPS[:2])
    first = talk.add(reply(10, 150))
    ledger = talk.state.record.ledger
    seq = talk.state.seq
    behind = talk.add(BroughtIn(Origin("codex", "a"), "one", first))
    assert (ledger.last_billed_reply("m", seq)[1], ledger.last_billed_reply("m", behind)[1]) == (
        150,
        0,
    )


def window(tokens: int) -> ModelSet:
    return replace(LISTED, window=tokens)


def folded_outputs(limit: int, steps: int, *, billed: bool = False) -> Talk:
    """Each step brings 996 tokens, of which a marker of 6 stays."""
    talk = told(SystemSet("s", 100), window(limit), UserSaid((Text("u", 6),)))
    for step in range(steps):
        sent = talk.state.counted_tokens
        if billed:
            cached = 100 * bool(step)  # The system prompt, from the second step on.
            talk.add(reply(16, sent, cached, cost=by_list(sent, cached, 16)))
        else:
            talk.add(reply(16, sent))
        seq = talk.add(ToolReturned("1", stored(f"x{step}"), 996))
        talk.fold(f"m{step}", PartRef(seq), kind=FoldKind.MARKER, tokens=6)
    return talk


# So large that 2,400 tokens are left beside the reply and a summary.
FULL_AT_2_400 = 2_823


def test_the_usual_way_out_writes_a_summary_when_the_window_is_full() -> None:
    """Steps of 110, 1,130 and 2,150 counted tokens fit; the fourth needs a summary of a
    tenth of the window first.
    """
    fits = savings(folded_outputs(FULL_AT_2_400, 3))
    more = savings(folded_outputs(FULL_AT_2_400, 4))
    assert fits.without == 110 + 1_130 + 2_150
    assert more.without - fits.without == 2_150 + (
        240 + 1_020
    )  # the summary's request, and what goes on from it
    unknown = savings(folded_outputs(0, 4))
    assert unknown.without == 110 + 1_130 + 2_150 + 3_170


def test_what_leaves_no_room_for_the_reply_and_a_summary_is_not_called_saved() -> None:
    """A window counted as full only where not even the reply had any room left."""

    def told_with_output(counted: int, agent: str = "") -> Savings:
        talk = told(ConversationStarted(agent=agent), window(32_000), UserSaid((Text("u", 100),)))
        talk.add(reply(6, 100))
        message = talk.add(UserSaid((Text("long", counted),)))
        talk.fold("f", PartRef(message), kind=FoldKind.EXCERPT, tokens=500)
        talk.add(reply(6, talk.state.counted_tokens))
        return savings(talk)

    assert told_with_output(26_000).without > 26_000
    assert told_with_output(29_000).saved_tokens == 0, "with 4,800 reserved, it does not fit"
    assert told_with_output(29_000, agent="claude").without > 29_000


def test_what_does_not_fit_by_the_meter_is_not_called_saved_because_a_server_counts_less() -> None:
    """An output of 40.9K tokens in a window of 32K had "saved $0.167 of $0.173"."""
    talk = told(SystemSet("s", 1_400), window(32_000), UserSaid((Text("u", 10),)))
    talk.add(reply(6, 300))
    message = talk.add(UserSaid((Text("long", 40_900),)))
    talk.fold("f", PartRef(message), kind=FoldKind.EXCERPT, tokens=370)
    for billed in (600, 650):
        talk.add(reply(6, billed))
    meter = measure_window(talk.state, preset_policy("layered"))
    assert meter.factor == 1.0, "less than half is not believed"
    assert savings(talk).saved_tokens == 0
    believed = told(SystemSet("s", 1_400), window(32_000), UserSaid((Text("u", 10),)))
    believed.add(reply(6, 900))
    message = believed.add(UserSaid((Text("long", 40_900),)))
    believed.fold("f", PartRef(message), kind=FoldKind.EXCERPT, tokens=370)
    believed.add(reply(6, 1_100))
    assert savings(believed).without > 20_000


def test_what_could_not_have_been_sent_is_never_called_saved() -> None:
    talk = told(SystemSet("s", 100), window(10_000), UserSaid((Text("u", 1_430_000),)))
    talk.fold("f", PartRef(3), kind=FoldKind.EXCERPT, tokens=500)
    talk.add(reply(6, talk.state.counted_tokens))
    assert savings(talk).saved_share == 0
    long = folded_outputs(20_000, 200)
    assert savings(long).without <= 200 * 20_000 * 1.2


def test_no_summary_is_written_for_one_message_that_is_longer_than_the_window() -> None:
    """Nothing that comes before it would make room, so the usual way out shortens it,
    too, and pays for no summary.
    """
    talk = told(SystemSet("s", 100), window(2_400), UserSaid((Text("u", 6),)), reply(16, 110))
    talk.fold(
        "f",
        PartRef(talk.add(UserSaid((Text("long", 1_430_000),)))),
        kind=FoldKind.EXCERPT,
        tokens=496,
    )
    talk.add(reply(6, 630, cached=110, cost=0.25))
    figures = savings(talk)
    assert figures.without == figures.sent == 110 + 630
    assert figures.paid_without == pytest.approx(figures.paid)


def test_the_summary_is_paid_for() -> None:
    """Its request reads what is in the provider's cache, and what it writes is output;
    behind it nothing is in the cache.
    """
    fits, more = (
        savings(folded_outputs(FULL_AT_2_400, steps, billed=True)).paid_without for steps in (3, 4)
    )
    assert more - fits == pytest.approx(2_150 * 0.1 + 240 * 5 + (240 + 1_020) * 1.25 + 16 * 5)


def test_a_rewind_forgets_the_usual_summary() -> None:
    talk = folded_outputs(2_400, 4)
    before = savings(talk).without
    talk.add(Rewound(3))
    talk.add(reply(6, 110))
    assert savings(talk).without - before == 110


def test_what_every_request_has_alike_is_not_multiplied_by_what_folds_left_out() -> None:
    """With Codex, whose requests have much that we do not count, a quarter too much was saved."""
    baseline = SummaryBaseline()
    overhead = 8_000
    rate = 1.1
    whole = 0
    for step in range(12):
        whole += 3_000
        shown = 2_000 + 300 * step
        billed = baseline.bill_step(shown, whole, round(overhead + rate * shown), read=0)
    assert billed.billed.sent == pytest.approx(overhead + rate * whole, rel=0.01)


def test_requests_that_are_too_much_alike_tell_only_their_proportion() -> None:
    baseline = SummaryBaseline()
    for whole in (4_000, 5_000, 6_000, 7_000):
        billed = baseline.bill_step(4_000, whole, 5_000, read=0)
    assert billed.billed.sent == round(7_000 * 5_000 / 4_000)


def test_facts_of_which_nothing_is_known_keep_the_numbers_of_those_after_them() -> None:
    ledger = TokenLedger()
    ledger.append_unknown_facts(3)
    by_kind = list(range(1, len(ContextKind) + 1))
    ledger.append_view_tokens_of_fact(shown=70, whole=90, kinds=by_kind)
    assert (ledger.shown[4], ledger.whole[4]) == (70, 90)
    assert list(ledger.view_tokens_by_kind(4)) == by_kind
    assert list(ledger.view_tokens_by_kind(3)) == [0] * len(ContextKind)
    assert (ledger.shown[3], ledger.whole[3]) == (0, 0)


@pytest.mark.parametrize(
    ("unfolded", "shown", "sent", "billed"),
    [(0, 100, 150, 1.5), (100, 100, 150, 1.5), (-1, 100, 150, 1.5), (200, 100, 150, 1.5)],
)
def test_what_was_never_sent_is_billed_like_what_was(
    unfolded: int, shown: int, sent: int, billed: float
) -> None:
    assert SummaryBaseline()._billed_per_unfolded_token(unfolded, shown, sent) == pytest.approx(
        billed
    )


def test_what_a_rewind_has_left_is_no_part_of_the_next_request() -> None:
    """Of an output that the provider billed at more than the rest, a part stayed in the meter."""
    talk = told(SystemSet("s", 1_000), window(400_000), UserSaid((Text("u", 10),)))
    first_reply = talk.add(reply(6, 1_200))
    meter_before = measure_window(talk.state, preset_policy("layered"))
    talk.add(UserSaid((Text("long", 100_000),)))
    answered = talk.add(reply(6, 250_000))
    talk.add(Rewound(first_reply))
    meter = measure_window(talk.state, preset_policy("layered"))
    assert abs(meter.used - meter_before.used) <= 20
    # Another reply to the same message: its request was just billed.
    talk.add(Rewound(answered - 1, again=True))
    assert measure_window(talk.state, preset_policy("layered")).used == 250_000
    assert not measure_window(talk.state, preset_policy("layered")).is_estimate
    talk.add(Rewound(2))
    assert measure_window(talk.state, preset_policy("layered")).is_estimate


def test_what_was_sent_and_saved_is_the_same_when_the_conversation_is_read_again() -> None:
    """The lab read the conversation again and had 262.6K where the head above it said 261.8K: a
    request without a report was counted by an estimate that nothing had recorded.
    """
    talk = told(*STEPS[:4])
    talk.fold("m", PartRef(4), kind=FoldKind.MARKER, tokens=96)
    ledger = talk.state.record.ledger
    ledger.set_estimated_factor("m", talk.state.seq, 1.4)
    ledger.set_measured_factor("other", talk.state.seq, 1.7)
    talk.add(reply(6, 0, stop=Stop.STOPPED))
    talk.add(ModelReplied((Text("so", 9),), "other", Stop.STOPPED))
    for billed in (900, 1_100, 1_400):
        talk.add(reply(6, billed))
    assert savings(talk) == build_state(talk.facts).savings_until_moment()
