"""Formats a replay's results as lines for a terminal and as JSON."""

from collections.abc import Iterator, Mapping, Sequence

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.replay.replay_figures import ReplayFigures, sum_figures


@dataclass(frozen=True, slots=True)
class ReportColumn:
    """A column of the table. A `width` of 0 is as wide as its cell."""

    name: str
    width: int
    meaning: str
    is_left_aligned: bool = False


REPORT_COLUMNS = (
    ReportColumn("session", 34, "the recording, or the total of all", is_left_aligned=True),
    ReportColumn("steps", 6, "requests that the agent made"),
    ReportColumn("sent", 12, "tokens in all requests"),
    ReportColumn(
        "effective",
        12,
        "the whole bill, with the system prompt, the tools and recalls, in tokens at the input price",
    ),
    ReportColumn(
        "of recalls",
        10,
        "the part of the bill for recalling what a reply uses but the view no longer shows",
    ),
    ReportColumn(
        "of none", 13, "sent and effective, as shares of the figures for sending everything"
    ),
    ReportColumn(
        "kept",
        6,
        "of the identifiers that were used again, the share that was still in the view",
    ),
    ReportColumn("plain", 6, "the same share without markers and lists of names"),
    ReportColumn("peak", 5, "the size of the largest request, as a share of the context window"),
    ReportColumn("median", 6, "the median size of a request, as a share of the context window"),
    ReportColumn("over", 4, "sessions with a request larger than the context window"),
    ReportColumn("illegal", 7, "requests that a provider would refuse"),
    ReportColumn("recalls", 9, "of the hashes in the view, how many gave back the original"),
    ReportColumn("lost", 5, "details that can no longer be reached"),
    ReportColumn("undo", 5, "whether undoing all folds gives the view without folds"),
    ReportColumn("waited", 7, "the longest time that a turn waited for folds"),
    ReportColumn("folds", 0, "the number of folds of each kind", is_left_aligned=True),
)


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The figures of all sessions that were played under one policy."""

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
    policies = {}
    for result in results:
        policies[result.policy] = _result_as_json(result, with_points=with_points)
    return {"window": results[0].window, "policies": policies}


def report_lines(result: PolicyResult) -> list[str]:
    """Return a heading, a line for each session, the total, and the totals by fit."""
    lines = [f"{result.policy} · window {result.window:,}", _format_heading("session")]
    for figures in result.sessions:
        cells = report_cells(figures)
        lines.append(_format_report_row(cells))
    cells_of_total = report_cells(result.total_figures)
    lines.append(_format_report_row(cells_of_total))
    lines += lines_of_totals_by_fit(result)
    return lines


def comparison_lines(results: Sequence[PolicyResult]) -> list[str]:
    sessions = len(results[0].sessions)
    lines = [f"{sessions} sessions · window {results[0].window:,}", _format_heading("policy")]
    for result in results:
        lines.append(_format_report_row(report_cells(result.total_figures, result.policy)))
    return lines


def lines_of_totals_by_fit(result: PolicyResult) -> list[str]:
    """Return the totals of sessions that fit in the window unfolded, and of others."""
    fitting = [figures for figures in result.sessions if figures.fits_window]
    overflowing = [figures for figures in result.sessions if not figures.fits_window]
    lines = []
    for description, group in (("fit in the window", fitting), ("overflow it", overflowing)):
        if not group:
            continue
        total = sum_figures(group)
        share = _format_share(total.billed_with_recalls, total.plain_billed)
        lines.append(
            f"{total.sessions} sessions that {description}: {share} of the bill for sending everything, "
            f"plain retention {total.share_of_names_outside_markers:.3f}"
        )
    return lines


def legend_lines() -> list[str]:
    return [f"{column.name:<12}{column.meaning}" for column in REPORT_COLUMNS]


def _result_as_json(result: PolicyResult, *, with_points: bool) -> dict[str, object]:
    """Return a policy's figures for each session and in total."""
    sessions = []
    for figures in result.sessions:
        session = {"session": figures.name, **figures.as_json()}
        if with_points:
            session["points"] = list(figures.steps)
            session["marks"] = [[step, kind] for step, kind in plotted_folds(figures)]
        sessions.append(session)
    return {
        "policy": result.policy,
        "window": result.window,
        "sessions": sessions,
        "total": result.total_figures.as_json(),
    }


def report_cells(figures: ReplayFigures, shown_name: str = "") -> Mapping[str, str]:
    """Return a session's cells by column. `shown_name` replaces the session's name."""
    share_sent = _format_share(figures.sent, figures.plain_sent)
    share_billed = _format_share(figures.billed_with_recalls, figures.plain_billed)
    undo = "NOT"
    if figures.undo_identical:
        undo = "same"
    folds = ", ".join(f"{count} {kind}" for kind, count in figures.folds.items())
    answered_recalls = figures.recalls - figures.recalls_failed
    lost_details = figures.details.get("lost", 0)
    return {
        "session": shown_name or figures.name,
        "steps": str(len(figures.steps)),
        "sent": f"{figures.sent:,}",
        "effective": f"{figures.billed_with_recalls:,}",
        "of recalls": f"{figures.recalls_billed:,}",
        "of none": f"{share_sent} / {share_billed}",
        "kept": f"{figures.retained_share:.3f}",
        "plain": f"{figures.share_of_names_outside_markers:.3f}",
        "peak": f"{figures.peak_window_share:.2f}",
        "median": f"{figures.median_window_share:.2f}",
        "over": str(figures.overflowed),
        "illegal": str(figures.illegal_requests),
        "recalls": f"{answered_recalls}/{figures.recalls}",
        "lost": str(lost_details),
        "undo": undo,
        "waited": f"{figures.waited:.1f} s",
        "folds": folds or "none",
    }


def plotted_folds(figures: ReplayFigures) -> Iterator[tuple[int, str]]:
    """Yield each kind of fold once per step, without excerpts, which remove nothing.

    Steps count from 0. A fold's step is the one whose request shows it first.
    """
    if not figures.steps:
        return
    last_step = len(figures.steps) - 1
    plotted_marks = set()
    for mark in figures.marks:
        if mark.kind == "excerpt" or mark in plotted_marks:
            continue
        plotted_marks.add(mark)
        yield min(mark.step, last_step), mark.kind


def _format_share(part: int, total: int) -> str:
    if not total:
        return "-"
    return f"{part / total:.3f}"


def _format_heading(first_column: str) -> str:
    cells = {column.name: column.name for column in REPORT_COLUMNS}
    cells["session"] = first_column
    return _format_report_row(cells)


def _format_report_row(cells: Mapping[str, str]) -> str:
    """Return a row of the table, with each cell as wide as its column."""
    placed: list[str] = []
    for column in REPORT_COLUMNS:
        cell = cells[column.name]
        shown_text = cell
        if 0 < column.width < len(cell):
            # The end of a path tells more than its beginning.
            end_of_cell = cell[1 - column.width :]
            shown_text = f"…{end_of_cell}"
        if column.is_left_aligned:
            placed.append(shown_text.ljust(column.width))
        else:
            placed.append(shown_text.rjust(column.width))
    return "  ".join(placed).rstrip()
