"""The rows of a run as a table for a terminal, as Markdown, and as one page with plots."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

from tests.benchmarks import plot
from tests.benchmarks.row import Figure, Fit, Row, fits, shown

STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;max-width:1080px;margin:2em auto;padding:0 1em;color:#1c1c1a;background:#fff}"
    "table{border-collapse:collapse;margin:.6em 0 1.2em}td,th{padding:.25em .8em .25em 0;text-align:right;vertical-align:top;"
    "border-bottom:1px solid #e5e4df}td:first-child,th:first-child{text-align:left}small{color:#6b6a66;display:block}"
    "b.no{color:#a8321f}figure{margin:0 0 1em}figcaption{color:#6b6a66;font-size:13px}"
)


def columns(rows: Sequence[Row]) -> list[str]:
    """The peers' names, in the order they first stand."""
    return list(dict.fromkeys(name for row in rows for name in row.peers))


def table(rows: Sequence[Row]) -> list[str]:
    """Lines for a terminal."""
    peers = columns(rows)
    head = ["", "unit", "ours", *peers, "asked", ""]
    lines = [head] + [_cells(row, peers) for row in rows]
    widths = [max(len(line[at]) for line in lines) for at in range(len(head))]
    return [
        "  ".join(cell.ljust(width) if at < 2 else cell.rjust(width) for at, (cell, width) in enumerate(zip(line, widths, strict=True))).rstrip()
        for line in lines
    ]  # fmt: skip


def _cells(row: Row, peers: Sequence[str]) -> list[str]:
    told = [_figure(row.peers[name]) if name in row.peers else "" for name in peers]
    return [row.name, row.unit, _figure(row.ours), *told, row.asked, verdict(row)]


def _figure(figure: Figure) -> str:
    middle = shown(figure.median)
    least = shown(figure.least)
    most = shown(figure.most)
    if figure.runs < 2 or least == most:
        return middle
    return f"{middle} ({most})" if figure.least == figure.median else f"{middle} ({least}–{most})"


def verdict(row: Row) -> str:
    """Whether what was asked for is so."""
    return "" if row.met is None else "met" if row.met else "NOT MET"


def markdown(rows: Sequence[Row]) -> list[str]:
    peers = columns(rows)
    lines = ["| | " + " | ".join(["ours", *peers, "goal"]) + " |"]
    lines.append("|---|" + "---:|" * (len(peers) + 1) + "---|")
    for row in rows:
        cells = [_figure(row.peers[name]) if name in row.peers else "" for name in peers]
        asked = " — ".join(
            filter(None, (row.asked, verdict(row).replace("NOT MET", "**not met**"), row.note))
        )
        lines.append("| " + " | ".join([label(row), _figure(row.ours), *cells, asked]) + " |")
    return lines


def label(row: Row) -> str:
    """What a row measures, with its unit if it has one."""
    return f"{row.name}, {row.unit}" if row.unit else row.name


def fit_lines(rows: Sequence[Row]) -> list[str]:
    """What growing costs, in words: a line for each series."""
    return [f"{name}: {fit_words(each)}" for name, each in fits(rows).items()]


def fit_words(each: Fit) -> str:
    return f"proportional to size^{each.slope:.2f} (R² = {max(each.share, 0):.2f})"


def page(runs: Sequence[Mapping[str, Any]]) -> str:
    """One page that needs nothing else: the machine, each benchmark's table and plots."""
    parts = "".join(_part(run) for run in runs)
    title = "Helix Desktop: benchmarks"
    return f"<!doctype html><html lang=en><meta charset=utf-8><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{parts}</html>"


def _part(run: Mapping[str, Any]) -> str:
    rows = [Row.from_json(each) for each in run["rows"]]
    machine = "; ".join(f"{name}: {value}" for name, value in run["machine"].items())
    said = f"<p>{html.escape(run['failed'])}</p>" if run["failed"] else ""
    growth = "".join(f"<li>{html.escape(line)}" for line in fit_lines(rows))
    return (
        f"<h2>{html.escape(run['name'])}</h2><p>{html.escape(run['measures'])}<small>{html.escape(machine)}; "
        f"{run['seconds']:.0f} s</small>{said}{_table(rows) if rows else ''}{plot.of(rows)}{f'<ul>{growth}</ul>' if growth else ''}"
    )


def _table(rows: Sequence[Row]) -> str:
    peers = columns(rows)
    head = "".join(f"<th>{html.escape(name)}" for name in ["", "unit", "ours", *peers, "goal", ""])
    body = "".join(
        "<tr>" + "".join(f"<td>{_marked(cell)}" for cell in _cells(row, peers)) + (f"<small>{html.escape(row.note)}</small>" if row.note else "")
        for row in rows
    )  # fmt: skip
    return f"<table><tr>{head}{body}</table>"


def _marked(cell: str) -> str:
    return "<b class=no>not met</b>" if cell == "NOT MET" else html.escape(cell)
