"""Truncation: no model, but the plan, the details, and every hash."""

from __future__ import annotations

from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.strategies import truncation
from tests.engine.strategies.test_markers import situation
from tests.engine.talk import Talk


def test_everything_before_the_tail_or_before_what_is_asked() -> None:
    talk = Talk()
    talk.user("go")
    talk.steps(12)
    branch = talk.state.branch
    plan = truncation.plan_truncation(situation(talk))
    assert plan is not None
    assert plan.kind is FoldKind.TRUNCATION
    assert plan.panic
    assert plan.span == Span(1, branch.steps[-8] - 1)
    deeper = truncation.plan_truncation(situation(talk), branch.steps[-1])
    assert deeper is not None
    assert deeper.span == Span(1, branch.steps[-1] - 1)
    assert truncation.plan_truncation(situation(Talk())) is None


def test_the_plan_stands_in_it() -> None:
    body = truncation.fill_truncation_sections((("write tests", "open"), ("read", "done")))
    assert body["TODO Items"] == "- [ ] write tests\n- [x] read"
    assert truncation.fill_truncation_sections(())["TODO Items"] == ""
