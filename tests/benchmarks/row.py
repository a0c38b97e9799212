"""What a benchmark says: rows of figures, each of several runs and beside its peers' of
the same run.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Figure:
    """The median of several runs with the least and the most of them."""

    median: float
    least: float
    most: float
    runs: int = 1

    @classmethod
    def of(cls, taken: Sequence[float]) -> Figure:
        return cls(statistics.median(taken), min(taken), max(taken), len(taken))


@dataclass(frozen=True, slots=True)
class Row:
    """`asked`: the figure an issue asks for, in its words; `met`: whether it is (None:
    nothing is asked).

    Rows of one `series` differ by `at` (a size) alone: they are drawn as a line, and a
    fit is made of them.
    """

    name: str
    unit: str
    ours: Figure
    peers: Mapping[str, Figure] = field(default_factory=dict)
    asked: str = ""
    met: bool | None = None
    series: str = ""
    at: float = 0.0
    note: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Row:
        peers = {name: Figure(**each) for name, each in value["peers"].items()}
        return cls(**{**value, "ours": Figure(**value["ours"]), "peers": peers})


@dataclass(frozen=True, slots=True)
class Fit:
    """cost = factor * size ** slope: 0 costs the same at any size, 1 grows with it.
    `share`: what of the spread it explains.
    """

    slope: float
    factor: float
    share: float


def fit(points: Sequence[tuple[float, float]]) -> Fit:
    """The straight line through the logarithms of size and cost; two points at least,
    all above zero.
    """
    xs = [math.log(x) for x, _ in points]
    ys = [math.log(y) for _, y in points]
    line = statistics.linear_regression(xs, ys)
    middle = statistics.mean(ys)
    whole = sum((y - middle) ** 2 for y in ys)
    left = sum((y - line.intercept - line.slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    return Fit(line.slope, math.exp(line.intercept), 1 - left / whole if whole else 1.0)


def fits(rows: Sequence[Row]) -> dict[str, Fit]:
    """A fit for every series of three sizes or more."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.series and row.at > 0 and row.ours.median > 0:
            found.setdefault(row.series, []).append((row.at, row.ours.median))
    return {name: fit(points) for name, points in found.items() if len({x for x, _ in points}) > 2}


def shown(value: float) -> str:
    """Three digits that matter, no more; thousands apart."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else str(value)
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{min(places, 4)}f}"
