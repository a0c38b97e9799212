"""What shortening has saved is one sentence, and says what it is compared with."""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal

import pytest
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
    describe_both_sums,
    describe_savings,
    describe_savings_of,
    share_of_line,
)
from tests.engine.talk import Talk


def test_a_saving_in_dollars_is_one_amount_and_both_sums_are_the_tooltip() -> None:
    figures = Savings(9, 480_000, 2_910_000, 436_800, paid=1.42, paid_without=1.97)
    assert describe_savings(figures) == (
        "Saved about $0.550 (28%), compared with sending everything as long as it fits."
    )
    assert describe_both_sums(figures) == "9 requests: $1.42, instead of about $1.97"
    assert "$0.550" in describe_savings(figures, agents_cost=0.03)
    with_agents = describe_both_sums(figures, agents_cost=0.03)
    assert with_agents == "9 requests: $1.45, instead of about $2.00"


def test_a_saving_without_a_price_is_in_tokens() -> None:
    figures = Savings(53, 379_500, 514_100, 0, 0.0, 0.0)
    assert describe_savings(figures) == (
        "Saved about 134.6K tokens (26%), compared with sending everything as long as it fits."
    )
    sums = "53 requests: 379.5K tokens, instead of about 514.1K tokens"
    assert describe_both_sums(figures) == sums
    partly_free = Savings(13, 35_100, 40_800, 0, 0.5, 0.25, free=12)
    assert "about 5.7K tokens" in describe_savings(partly_free)


def test_what_was_saved_before_a_price_was_set_stays_said_in_tokens() -> None:
    before_price = "Saved about 76.4K tokens (81%)"
    priced_at_last = Savings(17, 18_200, 94_600, 0, paid=0.0055, paid_without=0.5, unpriced=16)
    assert describe_savings(priced_at_last).startswith(before_price)
    one_stopped = replace(priced_at_last, unpriced=1)
    assert describe_savings(one_stopped).startswith("Saved about $0.49")
    nothing_at_all = replace(priced_at_last, paid_without=0.0055, unpriced=0)
    assert describe_savings(nothing_at_all) == ""


def test_a_loss_says_why() -> None:
    must_be_saved = "What requests for summaries took must be saved by later requests first."
    written = Savings(13, 40_800, 35_100, 0, 0.0, 0.0, shortening=9_000)
    assert describe_savings(written).endswith(must_be_saved)
    longer = Savings(13, 40_800, 35_100, 0, 0.0, 0.0)
    assert describe_savings(longer).startswith("Shortening has cost about 5.7K tokens more so far")
    assert describe_savings(longer).endswith("shorter than what is kept here.")
    cached_anew = Savings(13, 9, 9, 0, paid=0.5, paid_without=0.25)
    assert "charges the full price once for what follows" in describe_savings(cached_anew)
    of_summaries = Savings(13, 9, 9, 0, 0.5, 0.25, paid_for_shortening=0.3)
    assert describe_savings(of_summaries).endswith(must_be_saved)


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
    words = f"{describe_savings(figures)} {describe_both_sums(figures)}"
    amounts = re.findall(r"\$(\d+(?:\.\d+)?)", words)
    if len(amounts) < 3:
        return
    saved, shown_paid, shown_without = (Decimal(amount) for amount in amounts[:3])
    difference = abs(shown_without - shown_paid)
    if difference:
        # The amount may have fewer decimals than the smaller of the two sums.
        decimals = len(str(saved).partition(".")[2])
        assert abs(saved - difference) <= Decimal(10) ** -decimals / 2


def test_tokens_saved_are_the_difference_of_both_sums_as_they_are_shown() -> None:
    large = Savings(3, 51_040, 1_901_060, 0, 0.0, 0.0)
    assert "about 1.85M tokens" in describe_savings(large)
    assert describe_both_sums(large).endswith(": 51K tokens, instead of about 1.90M tokens")
    small = Savings(3, 10_149, 20_151, 0, 0.0, 0.0)
    assert "about 10.1K tokens" in describe_savings(small)
    assert describe_both_sums(small).endswith(": 10.1K tokens, instead of about 20.2K tokens")


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


@given(
    st.integers(1, 10**6),
    st.integers(1, 10**6),
    st.lists(st.tuples(st.integers(0, 90_000), st.integers(0, 9_000)), min_size=1, max_size=9),
    st.booleans(),
)
def test_the_shares_of_all_lines_come_to_what_was_saved(
    sent: int, without: int, lines: list[tuple[int, int]], is_priced: bool
) -> None:
    """The lines added up to 57.8K, less 12.5K, and the model counted 42.3K."""
    writing = [Usage(input=taken, cost=taken / 100 * is_priced) for _kept_out, taken in lines]
    shortening = sum(usage.input for usage in writing)
    figures = Savings(
        9,
        sent,
        without,
        0,
        paid=sent / 100 * is_priced,
        paid_without=without / 100 * is_priced,
        shortening=shortening,
        paid_for_shortening=sum(usage.cost for usage in writing),
        by_folds=sum(kept_out for kept_out, _taken in lines),
    )
    assert figures.is_saved_in_dollars is is_priced
    shares = [
        share_of_line(figures, kept_out, usage)
        for (kept_out, _taken), usage in zip(lines, writing, strict=True)
    ]
    saved = figures.saved_dollars if is_priced else figures.saved_tokens
    taken = figures.paid_for_shortening if is_priced else shortening
    if figures.by_folds and saved + taken > 0:
        assert sum(shares) == pytest.approx(saved, abs=1e-3)
    else:
        # No line has saved anything, so each says only what writing it took.
        assert sum(shares) == pytest.approx(-taken, abs=1e-3)
