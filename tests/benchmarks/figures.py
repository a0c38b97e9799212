"""The figures page of the help and the README's figures, both made from what `bench
--keep` measured last.

python -m tests.benchmarks.figures      writes resources/help/figures.md and the marked
block of README.md anew
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks import report
from tests.benchmarks.row import Figure, Row, shown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LAST = HERE / "last.json"
PAGE = ROOT / "resources" / "help" / "figures.md"
README = ROOT / "README.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"

HEAD = """# Figures

To repeat the measurements on this page and update it, run `python3 packaging/dev.py bench --keep`. Each figure is the median of several runs. The lowest and highest values of each figure are in parentheses, unless the row says otherwise. Other programs were measured with the same data, alternating with Helix Desktop ("ours" in the tables). Times depend on the computer, so the line below each table describes the computer that was used. The load averages show how busy this computer was. On a busy computer, the comparison with other programs is more reliable than the times.
"""


def keep(runs: Sequence[dict[str, Any]], file: Path = LAST) -> None:
    """These runs take the place of earlier ones of the same name, and the page and the
    README are written anew.
    """
    kept = {run["name"]: run for run in last(file)} | {
        run["name"]: run for run in runs if not run["failed"]
    }
    file.write_text(
        json.dumps([kept[name] for name in sorted(kept)], indent=1, ensure_ascii=False) + "\n",
        encoding="utf-8",
    )
    write()


def last(file: Path = LAST) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        json.loads(file.read_text(encoding="utf-8")) if file.exists() else []
    )
    return found


def page(runs: Sequence[dict[str, Any]]) -> str:
    """The figures page as Markdown."""
    return (
        "\n".join([HEAD, *_missed(runs), *(line for run in runs for line in _section(run))]) + "\n"
    )


def _section(run: dict[str, Any]) -> Iterator[str]:
    rows = [Row.from_json(each) for each in run["rows"]]
    machine = run["machine"]
    yield f"## {run['name']}\n\n{run['measures'][0].upper()}{run['measures'][1:]}.\n"
    yield "\n".join(report.markdown(rows))
    if growth := report.fit_lines(rows):
        lines = (
            f"| {name} | {words} |" for name, _, words in (line.rpartition(": ") for line in growth)
        )
        yield "\n".join(("\n| how costs grow | |\n|---|---|", *lines))
    where = ", ".join(
        machine[name] for name in ("processor", "system", "python") if name in machine
    )
    load = f"load averages at the start {machine['load at the start']}"
    yield f"\nMeasured on {machine['date']} with Helix Desktop {machine['program']} on {where}, {machine['memory']} memory, {load}.\n"


def _missed(runs: Sequence[dict[str, Any]]) -> Iterator[str]:
    """What was asked for and is not so stands at the top of the page, not in its tables alone."""
    rows = [(run["name"], Row.from_json(each)) for run in runs for each in run["rows"]]
    asked = [row for _, row in rows if row.met is not None]
    yield f"{sum(bool(row.met) for row in asked)} of {len(asked)} goals for speed, size and cost are met.\n"
    missed = [(name, row) for name, row in rows if row.met is False]
    if missed:
        yield "The following goals are not met:\n\n| | measured | goal | benchmark |\n|---|---:|---|---|"
        for name, row in missed:
            yield f"| {report.label(row)} | {shown(row.ours.median)} | {row.asked} | {name} |"
        yield ""


# --- the README

# benchmark, row, sentence; {× peer}: ours as a multiple of the peer; {range of peer}:
# from the least to the most; {percent less}: ours is a share
QUOTED = (
    ("start", "first paint", "The window appears about as fast as an empty one: after {range of ours} ms, compared with {range of bare Qt window} ms."),
    ("start", "memory after start", "At the start, Helix Desktop uses {ours} MB of memory; an empty window uses {bare Qt window} MB."),
    ("view", "a step after 100,000 messages", "Long conversations stay fast: after 100,000 messages, Helix Desktop adds {ours} ms to each step."),
    ("policies", "bill with `layered` (cache read 0.1, write 1.25)", "Ten recorded sessions together cost {percent less}% less than if everything had been sent. Long sessions save the most; short sessions may save nothing."),
)  # fmt: skip


def quotes(runs: Sequence[dict[str, Any]]) -> str:
    """The README's block: a few figures in sentences, for what was measured."""
    rows = {(run["name"], row["name"]): Row.from_json(row) for run in runs for row in run["rows"]}
    told = [_quote(rows[name, row], words) for name, row, words in QUOTED if (name, row) in rows]
    where = next(
        (
            f"processor: {run['machine']['processor']}; load average: {run['machine']['load at the start'].split()[0]}"
            for run in runs
        ),
        "",
    )
    return "\n".join(
        [
            BEGIN,
            *(f"- {line}" for line in told),
            "",
            f"Medians ({where}). [All figures, and how they were measured](resources/help/figures.md).",
            "",
            END,
        ]
    )


def _quote(row: Row, words: str) -> str:
    figures: dict[str, Figure] = {"ours": row.ours, **row.peers}

    def value(match: re.Match[str]) -> str:
        if match[1].startswith("range of "):
            figure = figures[match[1].removeprefix("range of ")]
            return f"{figure.least:.0f} to {figure.most:.0f}"
        if match[1] == "percent less":
            return f"{(1 - row.ours.median) * 100:.3g}"
        one, times, other = match[1].partition("× ")
        if times:
            return shown(figures[one.strip() or "ours"].median / figures[other].median)
        return shown(figures[one].median)

    return re.sub(r"\{([^}]+)\}", value, words)


def block(text: str) -> str:
    """The marked block of a README, or nothing."""
    return (
        text[text.index(BEGIN) : text.index(END) + len(END)]
        if BEGIN in text and END in text
        else ""
    )


def write() -> None:
    runs = last()
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(runs), encoding="utf-8")
    text = README.read_text(encoding="utf-8")
    if old := block(text):
        README.write_text(text.replace(old, quotes(runs)), encoding="utf-8")


if __name__ == "__main__":
    write()
    sys.stdout.write(f"{PAGE} is made of {len(last())} benchmarks.\n")
