"""The rows of lists of conversations."""

from __future__ import annotations

from helix_desktop.engine.list_rows import ConversationListRow


def test_the_cost_of_a_conversation_is_with_its_agents() -> None:
    assert ConversationListRow("c", "t", 0.0, cost=2.0, agents_cost=3.0).whole_cost == 5.0


def test_what_a_foreign_agent_reports_and_the_gateway_counted_is_paid_once() -> None:
    reported = ConversationListRow("c", "t", 0.0, cost=2.0, agents_cost=3.0, acp_agent="gemini")
    assert reported.whole_cost == 3.0
