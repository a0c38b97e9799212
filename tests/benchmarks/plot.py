"""Plots as SVG, without anything but text: lines over size for a series, bars where
ours stands beside peers.
"""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from tests.benchmarks.row import Figure, Row, shown

OURS = "#1f5fa8"
OTHERS = ("#8a6d1d", "#7a3f8f", "#2e7d5b", "#a8511f", "#5c5b57", "#9a2f55")
WIDE = 460
HIGH = 240
LEFT = 62
BELOW = 34


def of(rows: Sequence[Row]) -> str:
    """Every plot these rows give."""
    series: dict[str, list[Row]] = {}
    for row in rows:
        if row.series and row.at > 0:
            series.setdefault(row.series, []).append(row)
    lines = [
        _lines(name, sorted(each, key=lambda row: row.at))
        for name, each in series.items()
        if len(each) > 1
    ]
    bars = [
        _bars(row)
        for row in rows
        if row.peers and not (row.series and len(series.get(row.series, ())) > 1)
    ]
    return "".join(lines + bars)


def _lines(name: str, rows: Sequence[Row]) -> str:
    """Both axes logarithmic, so that a power of size is a straight line."""
    curves: dict[str, list[tuple[float, Figure]]] = {"ours": [(row.at, row.ours) for row in rows]}
    for row in rows:
        for peer, figure in row.peers.items():
            curves.setdefault(peer, []).append((row.at, figure))
    values = _values_above_zero(curves.values())
    if not values:
        return ""
    low = math.floor(math.log10(min(values)))
    high = math.ceil(math.log10(max(values)) + 1e-9)
    first = math.log10(rows[0].at)
    last = math.log10(rows[-1].at)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - first) / ((last - first) or 1)
        up = (math.log10(max(y, 10**low)) - low) / ((high - low) or 1)
        return LEFT + across * (WIDE - LEFT - 90), HIGH - BELOW - up * (HIGH - BELOW - 12)

    drawn: list[str] = []
    for power in range(low, high + 1):
        _, height = place(rows[0].at, 10.0**power)
        drawn.append(_grid(height, f"{10.0**power:g}"))
    for row in rows:
        across, _ = place(row.at, 1)
        drawn.append(
            f'<text x="{across:.0f}" y="{HIGH - 16}" text-anchor="middle">{row.at:,.0f}</text>'
        )
    for (label, curve), colour in zip(curves.items(), (OURS, *OTHERS), strict=False):
        points: list[tuple[float, float, float, float]] = []
        for size, figure in curve:
            across, median = place(size, figure.median)
            _, least = place(size, figure.least)
            _, most = place(size, figure.most)
            points.append((across, median, least, most))
        drawn.append(_curve(label, points, colour))
    return _figure("".join(drawn), HIGH, f"{name}, {rows[0].unit}, over size")


def _values_above_zero(curves: Iterable[Sequence[tuple[float, Figure]]]) -> list[float]:
    values: list[float] = []
    for curve in curves:
        for _, figure in curve:
            values += [figure.least, figure.median, figure.most]
    return [value for value in values if value > 0]


def _curve(label: str, points: Sequence[tuple[float, float, float, float]], colour: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y, _, _ in points)
    spread = "".join(f'<path d="M{x:.1f} {least:.1f}V{most:.1f}"/>' for x, _, least, most in points)
    dots = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y, _, _ in points)
    x, y = points[-1][:2]
    return (
        f'<g stroke="{colour}" fill="none" stroke-width="1.6"><polyline points="{path}"/>{spread}</g>'
        f'<g fill="{colour}">{dots}<text x="{x + 7:.0f}" y="{y + 4:.0f}">{html.escape(label)}</text></g>'
    )


def _grid(y: float, label: str) -> str:
    return (
        f'<path d="M{LEFT} {y:.1f}H{WIDE - 86}" stroke="#e5e4df"/>'
        f'<text x="{LEFT - 6}" y="{y + 4:.0f}" text-anchor="end">{label}</text>'
    )


def _bars(row: Row) -> str:
    bars: Mapping[str, Figure] = {"ours": row.ours, **row.peers}
    most = max(figure.most for figure in bars.values()) or 1.0
    drawn = []
    for at, (label, figure) in enumerate(bars.items()):
        y = 4 + at * 21
        wide = figure.median / most * 250
        colour = OURS if label == "ours" else "#bdbbb3"
        drawn.append(
            f'<text x="130" y="{y + 13}" text-anchor="end">{html.escape(label[:20])}</text>'
            f'<rect x="138" y="{y}" width="{wide:.1f}" height="16" rx="2" fill="{colour}"/>'
            f'<path d="M{138 + figure.least / most * 250:.1f} {y + 8}H{138 + figure.most / most * 250:.1f}" stroke="#1c1c1a"/>'
            f'<text x="{146 + figure.most / most * 250:.0f}" y="{y + 13}">{shown(figure.median)}</text>'
        )
    return _figure("".join(drawn), 8 + 21 * len(bars), f"{row.name}, {row.unit}")


def _figure(inside: str, high: int, caption: str) -> str:
    return (
        f'<figure><svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {high}" width="{WIDE}" height="{high}" '
        f'font-size="11" font-family="system-ui,sans-serif" fill="#1c1c1a" role="img">{inside}</svg>'
        f"<figcaption>{html.escape(caption)}</figcaption></figure>"
    )
