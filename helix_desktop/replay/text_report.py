"""Formats a replay's results as lines for a terminal and as JSON."""

from collections.abc import Iterator, Sequence

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures

REPORT_COLUMNS = (
    ("session", 34),
    ("steps", 6),
    ("sent", 12),
    ("effective", 12),
    ("of recalls", 10),
    ("of none", 13),
    ("kept", 6),
    ("plain", 6),
    ("peak", 5),
    ("median", 6),
    ("over", 4),
    ("illegal", 7),
    ("recalls", 9),
    ("lost", 5),
    ("undo", 5),
    ("waited", 7),
    ("folds", 0),
)
LEGEND = (
    "sent: tokens · effective: what is billed for all of it, in tokens at the input price: with the system prompt and the tools, and with the recalls of "
    "what a reply uses and the view no longer shows (of recalls) · of none: both as shares of the figures for sending everything · kept: identifiers that "
    "appeared again and were still in view; plain: without markers and lists of names · recalls: hashes that gave back the original, of those in a view · lost: details"
)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    policy: str
    window: int
    sessions: Sequence[ReplayFigures]

    @property
    def total_figures(self) -> ReplayFigures:
        return sum_figures(self.sessions)


def results_as_json(results: Sequence[PolicyResult], *, compared: bool, points: bool = False) -> dict[str, object]:
    """Return `policy`, `window`, `sessions` and the total, or in a comparison `policies` by name.

    `points`: include each session's request tokens and folds, for plots.
    """
    if not compared:
        return _result_as_json(results[0], points=points)
    policies = {result.policy: _result_as_json(result, points=points) for result in results}
    return {"window": results[0].window, "policies": policies}


def report_lines(result: PolicyResult) -> list[str]:
    """Return a heading, a line for each session, and the total."""
    head = f"{result.policy} · window {result.window:,}"
    rows = [
        head,
        _format_report_row([name for name, _ in REPORT_COLUMNS]),
        *(_format_report_row(report_cells(one)) for one in result.sessions),
    ]
    return [*rows, _format_report_row(report_cells(result.total_figures)), *lines_by_fit(result)]


def comparison_lines(results: Sequence[PolicyResult]) -> list[str]:
    heading = ["policy", *(name for name, _ in REPORT_COLUMNS[1:])]
    rows = [_format_report_row(report_cells(result.total_figures, result.policy)) for result in results]
    return [f"{len(results[0].sessions)} sessions · window {results[0].window:,}", _format_report_row(heading), *rows]


def lines_by_fit(result: PolicyResult) -> list[str]:
    """Return the totals of sessions that fit in the window unchanged, and of others, which save the most."""
    groups = {
        "fit in the window": [one for one in result.sessions if one.fits_window],
        "overflow it": [one for one in result.sessions if not one.fits_window],
    }
    totals = {name: sum_figures(group) for name, group in groups.items() if group}
    return [
        f"{one.sessions} sessions that {name}: {_format_share(one.billed_with_recalls, one.plain_billed)} of the bill for sending everything, "
        f"plain retention {one.plainly_retained_share:.3f}"
        for name, one in totals.items()
    ]


def _result_as_json(result: PolicyResult, *, points: bool) -> dict[str, object]:
    return {
        "policy": result.policy,
        "window": result.window,
        "sessions": [
            {"session": one.name, **one.as_json()} | (_plot_points(one) if points else {}) for one in result.sessions
        ],
        "total": result.total_figures.as_json(),
    }


def _plot_points(one: ReplayFigures) -> dict[str, object]:
    return {"points": list(one.steps), "marks": [[step, kind] for step, kind in plotted_folds(one)]}


def report_cells(one: ReplayFigures, name: str = "") -> list[str]:
    """Return the columns, under the session's name or another one."""
    back = one.recalls - one.recalls_failed
    return [
        name or one.name,
        str(len(one.steps)),
        f"{one.sent:,}",
        f"{one.billed_with_recalls:,}",
        f"{one.recalls_billed:,}",
        f"{_format_share(one.sent, one.plain_sent)} / {_format_share(one.billed_with_recalls, one.plain_billed)}",
        f"{one.retained_share:.3f}",
        f"{one.plainly_retained_share:.3f}",
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
    """Yield folds as in a plot, each kind once per step, without excerpts, which remove nothing.

    Steps count from 0; a fold's step is the one whose request shows it.
    """
    for step, kind in dict.fromkeys((mark.step, mark.kind) for mark in one.marks if mark.kind != "excerpt"):
        if one.steps:
            yield min(step, len(one.steps) - 1), kind


def _format_share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _format_report_row(cells: Sequence[str]) -> str:
    placed = []
    for (name, width), cell in zip(REPORT_COLUMNS, cells, strict=True):
        text = f"…{cell[1 - width :]}" if 0 < width < len(cell) else cell
        placed.append(text.ljust(width) if name in ("session", "folds") else text.rjust(width))
    return "  ".join(placed).rstrip()
