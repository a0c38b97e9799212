"""What shortening has saved is one sentence, and says what it is compared with."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.facts import (
    FoldKind,
    ModelRole,
    ModelSet,
    PartRef,
    Purpose,
    Spent,
    SystemSet,
    Usage,
)
from helix_desktop.engine.state.token_ledger import Savings
from helix_desktop.gui.common.savings_sentences import (
    describe_savings,
    describe_savings_of,
    describe_sum_of_lines,
)
from tests.engine.talk import Talk


def test_a_saving_in_dollars_names_both_sums() -> None:
    figures = Savings(9, 480_000, 2_910_000, 436_800, paid=1.42, paid_without=1.97)
    assert describe_savings(figures) == (
        "Saved about $0.550 of $1.97 in 9 requests (28%), leaving $1.42. "
        "This is compared with sending everything as long as it fits."
    )
    with_agents = describe_savings(figures, agents_cost=0.03)
    assert "$0.550" in with_agents
    assert "of $2.00 in 9 requests" in with_agents
    assert "leaving $1.45." in with_agents


def test_a_saving_without_a_price_is_in_tokens() -> None:
    assert describe_savings(Savings(53, 379_500, 514_100, 0, 0.0, 0.0)) == (
        "Saved about 134.6K of 514.1K tokens in 53 requests (26%), leaving 379.5K. "
        "This is compared with sending everything as long as it fits."
    )
    partly_free = Savings(13, 35_100, 40_800, 0, 0.5, 0.25, free=12)
    assert "about 5.7K of 40.8K tokens" in describe_savings(partly_free)


def test_what_was_saved_before_a_price_was_set_stays_said_in_tokens() -> None:
    before_price = "Saved about 76.4K of 94.6K tokens in 17 requests (81%), leaving 18.2K."
    priced_at_last = Savings(17, 18_200, 94_600, 0, paid=0.0055, paid_without=0.5, unpriced=16)
    assert describe_savings(priced_at_last).startswith(before_price)
    one_stopped = replace(priced_at_last, unpriced=1)
    assert describe_savings(one_stopped).startswith("Saved about $0.49")
    nothing_at_all = replace(priced_at_last, paid_without=0.0055, unpriced=0)
    assert describe_savings(nothing_at_all) == ""


def test_a_loss_says_why() -> None:
    written = Savings(13, 40_800, 35_100, 0, 0.0, 0.0, shortening=9_000)
    assert describe_savings(written).endswith(
        "Requests for summaries took 9K tokens, which later requests must save first."
    )
    longer = Savings(13, 40_800, 35_100, 0, 0.0, 0.0)
    assert describe_savings(longer).startswith("Shortening has cost about 5.7K tokens more so far")
    assert describe_savings(longer).endswith("shorter than what is kept here.")
    cached_anew = Savings(13, 9, 9, 0, paid=0.5, paid_without=0.25)
    assert "charges the full price once for what follows" in describe_savings(cached_anew)
    of_summaries = Savings(13, 9, 9, 0, 0.5, 0.25, paid_for_shortening=0.3)
    assert "Requests for summaries took $0.3" in describe_savings(of_summaries)


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 9_000), st.integers(0, 9_000))
def test_a_gain_and_a_loss_are_both_said_and_never_as_all_of_it(
    sent: int, without: int, cents: int, cents_without: int
) -> None:
    figures = Savings(3, sent, without, 0, cents / 100, cents_without / 100)
    words = describe_savings(figures)
    gained = without - sent
    if cents:
        gained = cents_without - cents
    elif not sent:
        gained = 0
    assert ("Saved about" in words) == (gained > 0)
    assert ("has cost" in words) == (gained < 0)
    assert re.findall(r"\((\d+)%\)", words) != ["100"]


def test_nothing_is_said_where_nothing_was_shortened_and_nothing_saved_where_nothing_was() -> None:
    talk = Talk()
    talk.user("Read it.", tokens=4_000)
    talk.reply("So.", billed=4_010)
    assert describe_savings_of(talk.state) == ""
    figures = Savings(4, 13_100, 13_100, 10_480, paid=0.1 + 0.2, paid_without=0.3 + 1e-12)
    assert describe_savings(figures) == ""


def test_where_nothing_would_have_fitted_that_is_said_instead_of_nothing_saved() -> None:
    """An output that alone was larger than the window was shortened, which “saved nothing”."""
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 16_000))
    talk.user("Read it.", tokens=10)
    output = talk.step("c1", tokens=17_000)
    talk.fold("f1", PartRef(output), kind=FoldKind.MARKER, tokens=60)
    talk.reply("So.", billed=120)
    assert describe_savings_of(talk.state) == (
        "Without shortening, this conversation would not fit into the model's context window."
    )


def test_where_nothing_was_saved_yet_one_sentence_says_why() -> None:
    """It read "has saved nothing compared with a summary only when the window is full", beside
    a line that said "5.3K → 185 tokens in 2 requests · the full text would not have fit".
    """
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 8_192))
    talk.add(SystemSet("You are an agent.", 1_400))
    talk.user("Read it.", tokens=10)
    talk.reply("", "c1", billed=1_900)
    output = talk.output("c1", tokens=5_266)
    talk.fold("f1", PartRef(output), kind=FoldKind.EXCERPT, tokens=185)
    assert describe_savings_of(talk.state) == (
        "So far, shortening has saved nothing: it takes effect from the next request on."
    )
    talk.reply("So.", billed=2_200)
    assert describe_savings_of(talk.state) == (
        "Without shortening, this conversation would not fit into the model's context window."
    )


@given(st.integers(1, 40_000), st.integers(1, 40_000))
def test_what_is_saved_is_the_difference_of_both_sums_as_they_are_shown(
    paid: int, without: int
) -> None:
    """$0.035 instead of $0.117 had saved $0.081."""
    figures = Savings(3, 1, 2, 0, paid / 10_000, without / 10_000)
    amounts = re.findall(r"\$(\d+(?:\.\d+)?)", describe_savings(figures))
    if len(amounts) < 3:
        return
    saved, shown_paid, shown_without = (Decimal(amount) for amount in amounts[:3])
    difference = abs(shown_without - shown_paid)
    if difference:
        # The amount may have fewer decimals than the smaller of the two sums.
        decimals = len(str(saved).partition(".")[2])
        assert abs(saved - difference) <= Decimal(10) ** -decimals / 2


def test_tokens_saved_are_the_difference_of_both_sums_as_they_are_shown() -> None:
    words = describe_savings(Savings(3, 51_040, 1_901_060, 0, 0.0, 0.0))
    assert "about 1.85M of 1.90M tokens in 3 requests" in words
    assert "leaving 51K." in words
    words = describe_savings(Savings(3, 10_149, 20_151, 0, 0.0, 0.0))
    assert "about 10.1K of 20.2K tokens in 3 requests" in words
    assert "leaving 10.1K." in words


def test_what_shortening_took_is_no_loss_where_nothing_would_have_fitted_without_it() -> None:
    """One place said that shortening had cost more, another that nothing would fit without it."""
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 16_000))
    talk.user("Read it.", tokens=10)
    output = talk.step("c1", tokens=17_000)
    talk.fold("f1", PartRef(output), kind=FoldKind.MARKER, tokens=60)
    talk.reply("So.", billed=120)
    talk.add(Spent(Purpose.HANDOVER, "m", Usage(input=2_700)))
    assert describe_savings_of(talk.state) == (
        "Without shortening, this conversation would not fit into the model's context window; "
        "shortening it has taken 2.7K tokens so far."
    )


def test_what_shortening_took_is_what_its_requests_took_and_nothing_else() -> None:
    """Without a summary, "shortening it has taken 3.4K tokens" stood beside "cost nothing": that was
    the difference to a shorter conversation that nobody had.
    """
    talk = Talk()
    talk.add(ModelSet(ModelRole.MAIN, "m", 8_192))
    talk.user("Read it.", tokens=10)
    for number in range(4):
        output = talk.step(f"c{number}", tokens=2_600)
        talk.fold(f"f{number}", PartRef(output), kind=FoldKind.EXCERPT, tokens=1_900)
        for _ in range(4):
            talk.reply("So.", billed=1_900 * (number + 1))
    assert talk.state.savings_until_moment().saved_tokens < 0
    assert describe_savings_of(talk.state) == (
        "Without shortening, this conversation would not fit into the model's context window."
    )


def sum_of_lines(**figures: int) -> str:
    """What stands under the head of the timeline, for a conversation with these figures."""
    held = Savings(9, 0, 0, 0, 0.0, 0.0)
    return describe_sum_of_lines(replace(held, **figures))


def test_what_lies_between_the_lines_and_the_head_is_said() -> None:
    """The lines came to 43.8K beside a head of 39.9K, and to 57.9K beside 42.3K."""
    assert sum_of_lines(sent=30_000, without=73_800, by_folds=43_800) == ""
    assert sum_of_lines(sent=34_000, without=73_900, by_folds=43_800) == (
        "The lines below add up to 43.8K tokens. The model counts this as 39.9K."
    )
    # The head says 17.9K: 29.4K and 47.3K are what it shows.
    assert describe_savings(Savings(9, 29_359, 47_343, 0, 0.0, 0.0)).startswith(
        "Saved about 17.9K "
    )
    assert sum_of_lines(sent=29_359, without=47_343, by_folds=21_838).endswith(" this as 17.9K.")
    assert sum_of_lines(sent=30_000, without=75_400, by_folds=57_900, shortening=12_500) == (
        "The lines below add up to 57.9K tokens, less 12.5K for writing summaries."
    )
    assert sum_of_lines(
        sent=88_900, without=111_500, by_folds=60_000, by_other_summaries=-37_400
    ) == ("The lines below add up to 60K tokens, less 37.4K that would not have fit anyway.")
    assert sum_of_lines(
        sent=9_000, without=8_000, by_folds=500, by_other_summaries=2_000, shortening=3_000
    ) == (
        "The lines below add up to 500 tokens, less 3K for writing summaries, plus 2K for summaries"
        " that were not needed. The model counts this as −1K."
    )
    assert sum_of_lines(sent=9_000, without=8_000, shortening=3_000) == "", "there is no line"
