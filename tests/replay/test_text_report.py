"""What a replay came to, as lines and as JSON."""

from __future__ import annotations

import re
from dataclasses import replace

from helix_desktop.replay import text_report
from helix_desktop.replay.replay_figures import FoldMark
from helix_desktop.replay.text_report import PolicyResult
from tests.replay.test_replay_figures import ONE

RESULT = PolicyResult(
    "layered",
    1_000,
    [ONE, replace(ONE, name="a/very/long/name/of/a/session/that/does/not/fit.jsonl")],
)


def test_one_line_per_session_and_a_total() -> None:
    heading, columns, first, second, summed, fitting = text_report.report_lines(RESULT)
    assert heading == "layered · window 1,000"
    assert first.startswith("a ")
    assert second.startswith("…")
    assert "fit.jsonl" in second
    assert summed.startswith("total")
    assert "0.500 / 0.333" in first
    assert fitting.startswith("2 sessions that fit in the window: 0.333")
    assert columns.index("folds") == first.index("3 marker")


def test_policies_side_by_side() -> None:
    _, _, one, other = text_report.comparison_lines([RESULT, PolicyResult("none", 1_000, [ONE])])
    assert one.startswith("layered")
    assert other.startswith("none")


def test_the_legend_explains_every_column_on_a_line_that_fits_a_terminal() -> None:
    columns = text_report.report_lines(RESULT)[1]
    legend = text_report.legend_lines()
    assert "sent        tokens in all requests" in legend
    assert [line[:12].strip() for line in legend] == re.split(r"\s{2,}", columns)
    assert all(line[12:].strip() and len(line) <= 110 for line in legend)


def test_json_of_one_and_of_several() -> None:
    alone = text_report.results_as_json([RESULT], is_comparison=False)
    assert (alone["policy"], alone["window"]) == ("layered", 1_000)
    sessions = alone["sessions"]
    assert isinstance(sessions, list)
    assert sessions[0]["session"] == "a"
    compared = text_report.results_as_json(
        [RESULT, PolicyResult("none", 1_000, [ONE])], is_comparison=True
    )
    policies = compared["policies"]
    assert isinstance(policies, dict)
    assert policies["layered"] == alone
    assert list(policies) == ["layered", "none"]


def test_points_are_there_when_asked_for() -> None:
    marks = (
        FoldMark(0, "excerpt"),
        FoldMark(1, "marker"),
        FoldMark(1, "marker"),
        FoldMark(9, "handover"),
    )
    folding = PolicyResult("layered", 1_000, [replace(ONE, marks=marks)])
    sessions = text_report.results_as_json([folding], is_comparison=False, with_points=True)[
        "sessions"
    ]
    assert isinstance(sessions, list)
    assert sessions[0]["points"] == list(ONE.steps)
    assert sessions[0]["marks"] == [[1, "marker"], [len(ONE.steps) - 1, "handover"]]
