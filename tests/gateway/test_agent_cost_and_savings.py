"""What an agent's conversation sent, and what it would have sent: the figures a user
reads of it.
"""

from __future__ import annotations

import pytest

from helix_desktop.engine import facts
from helix_desktop.engine.view import build_state
from helix_desktop.gateway.agent_cost_and_savings import compute_agent_figures
from helix_desktop.protocols.hidden_calls import HIDDEN_TOOLS


def recorded(*more: facts.Fact) -> list[facts.Recorded]:
    chosen = facts.ModelSet(
        facts.ModelRole.MAIN, "anthropic/m", 200_000, price_input=2.0, price_output=10.0
    )
    return [
        facts.Recorded("c", seq, 100.0 * seq, fact) for seq, fact in enumerate([chosen, *more], 1)
    ]


def reply(sent: int, *parts: facts.ReplyPart, read: int = 0) -> facts.ModelReplied:
    return facts.ModelReplied(
        parts or (facts.Text("well"),), "anthropic/m", facts.Stop.END, facts.Usage(input=sent, output=10, cache_read=read, cost=0.01)
    )  # fmt: skip


def test_figures_of_a_conversation_and_of_its_last_part() -> None:
    question = facts.UserSaid((facts.Text("go on"),))
    state = build_state(
        recorded(question, reply(1_000), question, reply(1_500, read=900), question, reply(2_000))
    )
    whole = compute_agent_figures("c", state)
    assert (whole.conversation, whole.requests, whole.sent, whole.cache_read, whole.recalls) == (
        "c",
        3,
        4_500,
        900,
        0,
    )
    assert whole.without == 4_500, "nothing was folded"
    assert whole.paid == pytest.approx(0.03), "what was billed"
    assert whole.paid_without == pytest.approx(whole.paid), "also if the prices say something else"
    assert (whole.agent, whole.title) == (state.agent, state.title)
    late = compute_agent_figures("c", state, since=450.0)
    assert (late.requests, late.sent, late.cache_read) == (2, 3_500, 900)
    assert compute_agent_figures("c", state, since=500.0).requests == 2, "the moment itself counts"
    assert compute_agent_figures("c", state, since=501.0).requests == 1
    gone = compute_agent_figures("c", state, since=10_000.0)
    assert (gone.requests, gone.sent, gone.paid, gone.paid_without) == (0, 0, 0.0, 0.0)


def test_a_hidden_recall_counts_as_sent_and_never_in_what_it_would_have_been() -> None:
    question, hidden = facts.UserSaid((facts.Text("go on"),)), next(iter(HIDDEN_TOOLS))
    calls = [
        facts.ToolCall("1", hidden, "{}"),
        facts.ToolCall("2", hidden, "{}"),
        facts.ToolCall("3", "Bash", "{}"),
    ]
    state = build_state(recorded(question, reply(1_000, *calls), question, reply(1_500)))
    figures = compute_agent_figures("c", state)
    assert (figures.sent, figures.without, figures.recalls) == (2_500, 1_500, 2)
    assert figures.paid > 0
    assert figures.paid_without < figures.paid


def test_where_all_that_was_sent_belongs_to_recalls_nothing_would_have_been_sent() -> None:
    question, hidden = facts.UserSaid((facts.Text("go on"),)), next(iter(HIDDEN_TOOLS))
    state = build_state(recorded(question, reply(1_000, facts.ToolCall("1", hidden, "{}"))))
    figures = compute_agent_figures("c", state)
    assert (figures.requests, figures.sent, figures.without, figures.recalls) == (1, 1_000, 0, 1)
    assert (figures.paid > 0, figures.paid_without) == (True, 0.0)


def test_a_model_without_a_price_costs_nothing_either_way() -> None:
    chosen = facts.ModelSet(facts.ModelRole.MAIN, "anthropic/m", 200_000)
    said = facts.ModelReplied(
        (facts.Text("well"),), "anthropic/m", facts.Stop.END, facts.Usage(input=1_000, output=10)
    )
    question = facts.UserSaid((facts.Text("go on"),))
    said_in_turn: list[facts.Fact] = [chosen, question, said]
    rows = [facts.Recorded("c", seq, 1.0 * seq, fact) for seq, fact in enumerate(said_in_turn, 1)]
    figures = compute_agent_figures("c", build_state(rows))
    assert (figures.sent, figures.without, figures.paid, figures.paid_without) == (
        1_000,
        1_000,
        0.0,
        0.0,
    )


def test_a_conversation_without_a_request_has_figures_of_nothing() -> None:
    figures = compute_agent_figures(
        "c", build_state(recorded(facts.UserSaid((facts.Text("go on"),))))
    )
    assert (figures.requests, figures.sent, figures.without, figures.recalls) == (0, 0, 0, 0)
    assert (figures.paid, figures.paid_without) == (0.0, 0.0)


def test_requests_that_would_not_have_fit_are_counted() -> None:
    chosen = facts.ModelSet(facts.ModelRole.MAIN, "local/m", 1_000)
    long_question = facts.UserSaid((facts.Text("a word and another " * 400, tokens=1_600),))
    short_question = facts.UserSaid((facts.Text("go on"),))
    said: list[facts.Fact] = [
        chosen,
        short_question,
        reply(50),
        long_question,
        reply(900),
        short_question,
        reply(900),
    ]
    rows = [facts.Recorded("c", seq, 100.0 * seq, fact) for seq, fact in enumerate(said, 1)]
    state = build_state(rows)
    assert compute_agent_figures("c", state).too_large == 2
    assert compute_agent_figures("c", state, since=600.0).too_large == 1
    assert compute_agent_figures("c", build_state(rows[:3])).too_large == 0
