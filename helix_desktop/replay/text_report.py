"""Formats a replay's results as lines for a terminal and as JSON."""

from collections.abc import Iterator, Sequence

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures
from helix_desktop.resources import read_json_resource

# The heading and the width of each column, and what it shows.
REPORT_COLUMNS = read_json_resource("replay_columns.json")


@dataclass(frozen=True, slots=True)
class PolicyResult:
    policy: str
    window: int
    sessions: Sequence[ReplayFigures]

    @property
    def total_figures(self) -> ReplayFigures:
        return sum_figures(self.sessions)


def results_as_json(
    results: Sequence[PolicyResult], *, is_comparison: bool, with_points: bool = False
) -> dict[str, object]:
    """Return one policy's results, or in a comparison those of each policy by its name.

    `with_points`: include each session's request tokens and folds, for plots.
    """
    if not is_comparison:
        return _result_as_json(results[0], with_points=with_points)
    policies = {
        result.policy: _result_as_json(result, with_points=with_points) for result in results
    }
    return {"window": results[0].window, "policies": policies}


def report_lines(result: PolicyResult) -> list[str]:
    """Return a heading, a line for each session, the total, and the totals by fit."""
    head = f"{result.policy} · window {result.window:,}"
    rows = [
        head,
        _format_report_row([name for name, *_ in REPORT_COLUMNS]),
        *(_format_report_row(report_cells(one)) for one in result.sessions),
    ]
    return [
        *rows,
        _format_report_row(report_cells(result.total_figures)),
        *lines_of_totals_by_fit(result),
    ]


def comparison_lines(results: Sequence[PolicyResult]) -> list[str]:
    heading = ["policy", *(name for name, *_ in REPORT_COLUMNS[1:])]
    rows = [
        _format_report_row(report_cells(result.total_figures, result.policy)) for result in results
    ]
    return [
        f"{len(results[0].sessions)} sessions · window {results[0].window:,}",
        _format_report_row(heading),
        *rows,
    ]


def lines_of_totals_by_fit(result: PolicyResult) -> list[str]:
    """Return the totals of sessions that fit in the window unfolded, and of others."""
    groups = {
        "fit in the window": [one for one in result.sessions if one.fits_window],
        "overflow it": [one for one in result.sessions if not one.fits_window],
    }
    totals = {name: sum_figures(group) for name, group in groups.items() if group}
    return [
        f"{one.sessions} sessions that {name}: {_format_share(one.billed_with_recalls, one.plain_billed)} of the bill for sending everything, "
        f"plain retention {one.share_of_names_outside_markers:.3f}"
        for name, one in totals.items()
    ]


def legend_lines() -> list[str]:
    return [f"{name:<12}{meaning}" for name, _, meaning in REPORT_COLUMNS]


def _result_as_json(result: PolicyResult, *, with_points: bool) -> dict[str, object]:
    return {
        "policy": result.policy,
        "window": result.window,
        "sessions": [
            {"session": one.name, **one.as_json()}
            | (
                {"points": list(one.steps), "marks": list(map(list, plotted_folds(one)))}
                if with_points
                else {}
            )
            for one in result.sessions
        ],
        "total": result.total_figures.as_json(),
    }


def report_cells(one: ReplayFigures, shown_name: str = "") -> list[str]:
    """Return the cells of a session's row. `shown_name` replaces the session's name."""
    back = one.recalls - one.recalls_failed
    return [
        shown_name or one.name,
        str(len(one.steps)),
        f"{one.sent:,}",
        f"{one.billed_with_recalls:,}",
        f"{one.recalls_billed:,}",
        f"{_format_share(one.sent, one.plain_sent)} / {_format_share(one.billed_with_recalls, one.plain_billed)}",
        f"{one.retained_share:.3f}",
        f"{one.share_of_names_outside_markers:.3f}",
        f"{one.peak_window_share:.2f}",
        f"{one.median_window_share:.2f}",
        str(one.overflowed),
        str(one.illegal_requests),
        f"{back}/{one.recalls}",
        str(one.details.get("lost", 0)),
        "same" if one.undo_identical else "NOT",
        f"{one.waited:.1f} s",
        ", ".join(f"{count} {kind}" for kind, count in one.folds.items()) or "none",
    ]


def plotted_folds(one: ReplayFigures) -> Iterator[tuple[int, str]]:
    """Yield each kind of fold once per step, without excerpts, which remove nothing.

    Steps count from 0. A fold's step is the one whose request shows it first.
    """
    for step, kind in dict.fromkeys(
        (mark.step, mark.kind) for mark in one.marks if mark.kind != "excerpt"
    ):
        if one.steps:
            yield min(step, len(one.steps) - 1), kind


def _format_share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _format_report_row(cells: Sequence[str]) -> str:
    placed = []
    for (name, width, _), cell in zip(REPORT_COLUMNS, cells, strict=True):
        text = f"…{cell[1 - width :]}" if 0 < width < len(cell) else cell
        placed.append(text.ljust(width) if name in ("session", "folds") else text.rjust(width))
    return "  ".join(placed).rstrip()
