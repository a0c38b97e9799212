"""What a replay came to, as lines for a terminal and as JSON."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from helix_desktop.replay.figures import Figures, total
from helix_desktop.values import dataclass

_COLUMNS = (
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
class Result:
    """One policy over all sessions."""

    policy: str
    window: int
    sessions: Sequence[Figures]

    @property
    def total(self) -> Figures:
        return total(self.sessions)


def as_json(results: Sequence[Result], *, compared: bool, points: bool = False) -> dict[str, object]:
    """`policy`, `window`, `sessions` and `total`; with a comparison these stand under `policies` by name.

    `points`: each session has the tokens of its requests and its folds as well, to be plotted.
    """
    if not compared:
        return _one(results[0], points=points)
    policies = {result.policy: _one(result, points=points) for result in results}
    return {"window": results[0].window, "policies": policies}


def lines(result: Result) -> list[str]:
    """A heading, a line for each session, and the total."""
    head = f"{result.policy} · window {result.window:,}"
    rows = [head, _row([name for name, _ in _COLUMNS]), *(_row(_cells(one)) for one in result.sessions)]
    return [*rows, _row(_cells(result.total)), *apart(result)]


def side_by_side(results: Sequence[Result]) -> list[str]:
    """The totals of several policies."""
    heading = ["policy", *(name for name, _ in _COLUMNS[1:])]
    rows = [_row([result.policy, *_cells(result.total)[1:]]) for result in results]
    return [f"{len(results[0].sessions)} sessions · window {results[0].window:,}", _row(heading), *rows]


def apart(result: Result) -> list[str]:
    """What the sessions come to that fit in the window as they are, and those that do not: the second save most."""
    groups = {
        "fit in the window": [one for one in result.sessions if one.fits],
        "overflow it": [one for one in result.sessions if not one.fits],
    }
    totals = {name: total(group) for name, group in groups.items() if group}
    return [
        f"{one.sessions} sessions that {name}: {_share(one.effective, one.plain_billed)} of the bill for sending everything, "
        f"plain retention {one.retention_plain:.3f}"
        for name, one in totals.items()
    ]


def shown_folds(folds: Mapping[str, int]) -> str:
    return ", ".join(f"{count} {kind}" for kind, count in folds.items()) or "none"


def _one(result: Result, *, points: bool) -> dict[str, object]:
    return {
        "policy": result.policy,
        "window": result.window,
        "sessions": [
            {"session": one.name, **one.as_json()} | (_points(one) if points else {}) for one in result.sessions
        ],
        "total": result.total.as_json(),
    }


def _points(one: Figures) -> dict[str, object]:
    return {"points": list(one.steps), "marks": [[step, kind] for step, kind in plotted(one)]}


def _cells(one: Figures) -> list[str]:
    back = one.recalls - one.recalls_failed
    return [
        one.name,
        str(len(one.steps)),
        f"{one.sent:,}",
        f"{one.effective:,}",
        f"{one.recalls_billed:,}",
        f"{_share(one.sent, one.plain_sent)} / {_share(one.effective, one.plain_billed)}",
        f"{one.retention:.3f}",
        f"{one.retention_plain:.3f}",
        f"{one.peak_share:.2f}",
        f"{one.median_use:.2f}",
        str(one.overflowed),
        str(one.illegal_requests),
        f"{back}/{one.recalls}",
        str(one.details.get("lost", 0)),
        "same" if one.undo_identical else "NOT",
        f"{one.waited:.1f} s",
        shown_folds(one.folds),
    ]


def plotted(one: Figures) -> Iterator[tuple[int, str]]:
    """The folds as a plot marks them, each kind once for a step; an excerpt takes nothing away and is not marked.

    A step counts from 0 and is the one whose request shows the fold.
    """
    for step, kind in dict.fromkeys((mark.step, mark.kind) for mark in one.marks if mark.kind != "excerpt"):
        if one.steps:
            yield min(step, len(one.steps) - 1), kind


def _share(part: int, whole: int) -> str:
    return f"{part / whole:.3f}" if whole else "-"


def _row(cells: Sequence[str]) -> str:
    placed = []
    for (name, width), cell in zip(_COLUMNS, cells, strict=True):
        text = f"…{cell[1 - width :]}" if 0 < width < len(cell) else cell
        placed.append(text.ljust(width) if name in ("session", "folds") else text.rjust(width))
    return "  ".join(placed).rstrip()
