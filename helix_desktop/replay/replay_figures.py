"""Computes a replay's figures for one session under one policy, and for several sessions."""

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any

from helix_desktop.fast_dataclass import dataclass

COUNTED = ("found", "kept", "added", "entry", "lost")
# A total has the largest value of these figures, and the sum of the others.
_LARGEST = ("peak", "plain_peak", "waited", "longest_admission")
_NOT_SUMMED = (*_LARGEST, "window", "head_tokens", "sessions")
# `--json` shows these figures in another form or omits them.
_SHOWN_OTHERWISE = {"window", "peak", "plain_peak", "plain_sent", "plain_billed", "at_limit_billed", "used", "standing", "standing_plain", "sessions"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class FoldMark:
    """A fold in a plot of a session: at which step it was made, and its kind."""

    step: int
    kind: str


@dataclass(frozen=True, slots=True)
class ReplayFigures:
    """`used` counts identifiers that were used again, `standing` those of them in the
    view, and `standing_plain` those that are not only in a marker or a list of names.
    `overflowed` counts sessions with a request larger than the window, and `fallbacks`
    folds that failed or needed another writer. `waited` is the longest time in seconds
    that a turn waited for folds, and `longest_admission` for one batch of outputs.
    `plain_…` applies to sending everything every time. `billed` excludes recalls.
    `recalls_billed` is the cost of requesting them and of their results, and
    `searches_billed` the part of it for what only a summary mentions. All include the
    head.
    """

    name: str
    window: int
    steps: Sequence[int]  # The number of tokens in each step's request.
    sent: int
    billed: int
    cache_read: int
    peak: int
    overflowed: int
    plain_sent: int
    plain_billed: int
    at_limit_billed: int = 0  # What sending everything costs if a full window is summarised.
    illegal_requests: int = 0
    folds: Mapping[str, int] = field(default_factory=dict)
    recalls: int = 0
    recalls_failed: int = 0
    details: Mapping[str, int] = field(default_factory=dict)
    fallbacks: int = 0
    used: int = 0
    standing: int = 0
    standing_plain: int = 0
    recalls_billed: int = 0
    searches_billed: int = 0
    recalled_pages: int = 0
    recall_requests: int = 0  # Pages that are asked for together are one request.
    head_tokens: int = 0
    plain_peak: int = 0
    undo_identical: bool = True
    repeats_served: int = 0
    output_tokens: int = 0  # The number of tokens in all complete tool outputs.
    waited: float = 0.0
    longest_admission: float = 0.0
    marks: Sequence[FoldMark] = ()
    sessions: int = 1
    # If this is a total, the sessions that it was computed from.
    of: "Sequence[ReplayFigures]" = ()

    @property
    def retained_share(self) -> float:
        return self._share_of_used(self.standing)

    @property
    def share_of_names_outside_markers(self) -> float:
        """Return how many of the identifiers used again the view shows outside markers."""
        return self._share_of_used(self.standing_plain)

    def _share_of_used(self, shown: int) -> float:
        if not self.used:
            return 1.0
        return shown / self.used

    @property
    def billed_with_recalls(self) -> int:
        """Return everything that is billed, including the head and recalls."""
        return self.billed + self.recalls_billed

    @property
    def bill_share(self) -> float:
        """Return the bill as a share of sending everything that can be sent."""
        return self.billed_with_recalls / max(1, self.at_limit_billed or self.plain_billed)

    @property
    def fits_window(self) -> bool:
        return self.plain_peak <= self.window

    @property
    def median_window_share(self) -> float:
        """Return the median size of a step's request as a share of the window."""
        if not self.steps:
            return 0.0
        return statistics.median(self.steps) / self.window

    @property
    def peak_window_share(self) -> float:
        return self.peak / self.window

    def as_json(self) -> dict[str, object]:
        """Return the values for `--json`. All except shares are integers."""
        counts: dict[str, int] = {}
        for name in _names_of_integer_fields():
            if name not in _SHOWN_OTHERWISE:
                counts[name] = getattr(self, name)
        return {
            "steps": len(self.steps),
            **counts,
            "undo_identical": self.undo_identical,
            "effective": self.billed_with_recalls,
            "peak": round(self.peak_window_share, 4),
            "folds": dict(self.folds),
            "markers": self.folds.get("marker", 0),
            "details": {name: self.details.get(name, 0) for name in COUNTED},
            "retention": round(self.retained_share, 4),
            "retention_plain": round(self.share_of_names_outside_markers, 4),
            "median_use": round(self.median_window_share, 4),
            "waited_seconds": round(self.waited, 1),
            "longest_admission_seconds": round(self.longest_admission, 1),
            "none": {
                "sent": self.plain_sent,
                "billed": self.plain_billed,
                "billed_with_compaction_at_limit": self.at_limit_billed,
            },
        } | self._figures_by_fit()

    def _figures_by_fit(self) -> dict[str, object]:
        """Return a total's figures for sessions that fit in the window unfolded, and others."""
        if not self.of:
            return {}
        fitting = [session for session in self.of if session.fits_window]
        overflowing = [session for session in self.of if not session.fits_window]
        return {"fitting": _brief_figures(fitting), "overflowing": _brief_figures(overflowing)}


def _names_of_integer_fields() -> list[str]:
    return [figure.name for figure in fields(ReplayFigures) if figure.type is int]


def _brief_figures(group: Sequence[ReplayFigures]) -> dict[str, object]:
    """Return the most telling totals of a group of sessions."""
    if not group:
        return {"sessions": 0}
    total = replace(sum_figures(group), of=())
    names = ("steps", "billed", "effective", "recalls_billed", "searches_billed", "retention", "retention_plain", "details", "none")  # fmt: skip
    brief: dict[str, object] = {"sessions": len(group)}
    for name, figure in total.as_json().items():
        if name in names:
            brief[name] = figure
    return brief


def sum_figures(sessions: Sequence[ReplayFigures]) -> ReplayFigures:
    """Return the totals of several sessions, in the form of one session's figures.

    Most figures are added up. Of the largest request and the longest waits, the largest counts.
    """
    folds: Counter[str] = Counter()
    details: Counter[str] = Counter()
    steps: list[int] = []
    for session in sessions:
        folds.update(session.folds)
        details.update(session.details)
        steps += session.steps
    totals: dict[str, Any] = {}
    for name in _names_of_integer_fields():
        if name not in _NOT_SUMMED:
            totals[name] = sum(getattr(session, name) for session in sessions)
    for name in _LARGEST:
        totals[name] = max(getattr(session, name) for session in sessions)
    first_session = sessions[0]
    is_undo_identical = all(session.undo_identical for session in sessions)
    return ReplayFigures(
        name="total",
        window=first_session.window,
        steps=steps,
        folds=folds,
        details=details,
        head_tokens=first_session.head_tokens,
        of=tuple(sessions),
        undo_identical=is_undo_identical,
        sessions=len(sessions),
        **totals,
    )
