"""The figures page of the help and the README's figures, both made from what `bench
--keep` measured last.

python -m tests.benchmarks.figures              writes resources/help/figures.md and the
                                                marked block of README.md anew
python -m tests.benchmarks.figures --check-age  before a release: fails if a published
                                                figure is not from the code that is published
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from helix_desktop import __version__
from tests.benchmarks import report
from tests.benchmarks.row import Figure, Row, shown

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
LAST = HERE / "last.json"
PAGE = ROOT / "resources" / "help" / "figures.md"
README = ROOT / "README.md"
BEGIN = "<!-- figures -->"
END = "<!-- end of figures -->"

MOST_ROWS = 60  # More rows nobody reads. All rows are in last.json.
MOST_DAYS = 45  # A figure that is published may be this old.
# What each benchmark measures. One that is not named here measures the whole program.
MEASURED_ROOMS = {
    "policies": ("helix_desktop/engine", "helix_desktop/replay"),
    "view": ("helix_desktop/engine",),
}

HEAD = """# Figures

This page has only figures that were measured with the current version, {minor}. Each figure is the median of several runs. The lowest and highest values of each figure are in parentheses, unless the row says otherwise. Other programs were measured with the same data, alternating with Helix Desktop ("ours" in the tables). Times depend on the computer and on what else it does, so the line below each table names the computer, its load, the date and the commit.

To repeat the measurements and update this page, run `python3 packaging/dev.py bench --keep`. All rows, also those of earlier versions, are in `tests/benchmarks/last.json`.
"""


def minor_version(program: str) -> str:
    """0.2 of "0.2.0 (43e3155c)"."""
    return ".".join(program.split(" ", maxsplit=1)[0].split(".")[:2])


def current(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The runs that may be published: those of the current minor version."""
    wanted = minor_version(__version__)
    return [run for run in runs if minor_version(run["machine"]["program"]) == wanted]


def rows_for_page(runs: Sequence[dict[str, Any]]) -> list[tuple[str, Row]]:
    """At most sixty rows with the names of their benchmarks: first goals that are not
    met, then those that are, then the rest.
    """
    rows = [(run["name"], Row.from_json(row)) for run in runs for row in run["rows"]]
    ranks = {False: 0, True: 1, None: 2}
    chosen = sorted(rows, key=lambda named_row: ranks[named_row[1].met])[:MOST_ROWS]
    return [named_row for named_row in rows if named_row in chosen]


def find_old_figures(runs: Sequence[dict[str, Any]], today: datetime) -> list[str]:
    """A sentence for each published figure that is not from the code that is published."""
    problems: list[str] = []
    for run in current(runs):
        machine = run["machine"]
        measured = datetime.strptime(machine["date"], "%Y-%m-%d %H:%M UTC").replace(tzinfo=UTC)
        days = (today - measured).days
        commit = machine["program"].partition("(")[2].rstrip(")")
        if days > MOST_DAYS:
            problems.append(f"{run['name']} was measured {days} days ago.")
        if commit.endswith("-dirty"):
            problems.append(f"{run['name']} was measured on a build with local changes.")
        elif not _is_commit(commit):
            problems.append(f"{run['name']} names the commit {commit}, which does not exist here.")
        elif later := count_later_commits(commit, run["name"]):
            problems.append(
                f"{run['name']} was measured before the last changes to its code (commits: {later})."
            )
    rows_of_benchmark = {run["name"]: rows_by_name(run) for run in current(runs)}
    for benchmark, row_name, _ in QUOTED:
        if row_name not in rows_of_benchmark.get(benchmark, {}):
            problems.append(
                f"README would quote {row_name} of {benchmark}, which was not measured."
            )
    return problems


def rows_by_name(run: Mapping[str, Any]) -> dict[str, Row]:
    rows = [Row.from_json(row) for row in run["rows"]]
    return {row.name: row for row in rows}


def count_later_commits(commit: str, benchmark: str) -> int:
    """How many commits since this one changed what a benchmark measures."""
    rooms = MEASURED_ROOMS.get(benchmark, ("helix_desktop",))
    asked = ["git", "rev-list", "--count", f"{commit}..HEAD", "--", *rooms]
    answer = subprocess.run(asked, cwd=ROOT, capture_output=True, check=True)
    return int(answer.stdout)


def _is_commit(name: str) -> bool:
    asked = ["git", "cat-file", "-e", f"{name}^{{commit}}"]
    return subprocess.run(asked, cwd=ROOT, capture_output=True, check=False).returncode == 0


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
    published = current(runs)
    rows = rows_for_page(published)
    lines = [HEAD.format(minor=minor_version(__version__)), *_missed(rows)]
    for run in published:
        own_rows = [row for name, row in rows if name == run["name"]]
        if own_rows:
            lines += _section(run, own_rows)
    return "\n".join(lines) + "\n"


def _section(run: dict[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    machine = run["machine"]
    yield f"## {run['name']}\n\n{run['measures'][0].upper()}{run['measures'][1:]}.\n"
    yield "\n".join(report.markdown(rows))
    if growth := report.fit_lines(rows):
        yield "\n| how costs grow | |\n|---|---|"
        for line in growth:
            name, _, words = line.rpartition(": ")
            yield f"| {name} | {words} |"
    where = ", ".join(
        machine[name] for name in ("processor", "system", "python") if name in machine
    )
    load = f"load averages at the start {machine['load at the start']}"
    yield f"\nMeasured on {machine['date']} with Helix Desktop {machine['program']} on {where}, {machine['memory']} memory, {load}.\n"


def _missed(rows: Sequence[tuple[str, Row]]) -> Iterator[str]:
    """What was asked for and is not so stands at the top of the page, not in its tables alone."""
    asked = [row for _, row in rows if row.met is not None]
    yield f"{sum(bool(row.met) for row in asked)} of {len(asked)} goals for speed, size and cost are met.\n"
    missed = [(name, row) for name, row in rows if row.met is False]
    if missed:
        yield "The following goals are not met:\n\n| | measured | goal | benchmark |\n|---|---:|---|---|"
        for name, row in missed:
            yield f"| {report.label(row)} | {shown(row.ours.median)} | {row.asked} | {name} |"
        yield ""


# --- the README

# benchmark, row, sentence; {× peer}: ours as a multiple of the peer, or of another row of
# the same run. What is unfavourable stands beside what is favourable.
QUOTED = (
    ("start", "first paint", "The window appears after {ours} ms. A program that only shows an empty window takes {bare Qt window} ms, so this is {× bare Qt window} times as long."),
    ("start", "window complete, stores still opening", "All its parts are there after {ours} ms, {× bare Qt window} times as long; your workspaces are still being opened then."),
    ("start", "memory after start", "At the start, Helix Desktop uses {ours} MB of memory, {× bare Qt window} times as much as the empty window."),
    ("view", "a step after 100,000 messages", "Long conversations stay fast: after 100,000 messages, Helix Desktop adds {ours} ms of processor time to each step, {× a step after 1,000 messages} times as much as after 1,000 messages."),
)  # fmt: skip


def quotes(runs: Sequence[dict[str, Any]]) -> str:
    """The README's block: a few figures in sentences, each with its version, date and load."""
    lines = [BEGIN]
    for run in sorted(current(runs), key=lambda measured: str(measured["name"])):
        rows = rows_by_name(run)
        sentences = [
            _quote(rows, row_name, words)
            for name, row_name, words in QUOTED
            if name == run["name"] and row_name in rows
        ]
        if sentences:
            lines.append(f"- {' '.join(sentences)} ({_where(run['machine'])})")
    link = "[All figures, and how they were measured](resources/help/figures.md)."
    return "\n".join([*lines, "", link, "", END])


def _where(machine: dict[str, str]) -> str:
    """The row of the figures page on which a figure stands, in brackets after it."""
    day = machine["date"].partition(" ")[0]
    load = machine["load at the start"].partition(" ")[0]
    return f"version {machine['program']}, {day}, {machine['processor']}, load {load}"


def _quote(rows: Mapping[str, Row], row_name: str, words: str) -> str:
    """Fill in the values of a sentence about a row: see QUOTED."""
    quoted = rows[row_name]
    figures: dict[str, Figure] = {name: row.ours for name, row in rows.items()}
    figures |= {"ours": quoted.ours, **quoted.peers}
    sentence = words
    for placeholder in re.findall(r"\{([^}]+)\}", words):
        if placeholder.startswith("× "):
            compared = figures[placeholder.removeprefix("× ")]
            value = quoted.ours.median / compared.median
        else:
            value = figures[placeholder].median
        sentence = sentence.replace(f"{{{placeholder}}}", shown(value))
    return sentence


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


def check_age() -> None:
    """Ends with code 1 if a published figure is old. Run before a release."""
    problems = find_old_figures(last(), datetime.now(UTC))
    sys.stdout.writelines(f"{problem}\n" for problem in problems)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    if "--check-age" in sys.argv:
        check_age()
    write()
    sys.stdout.write(f"{PAGE} is made of {len(last())} benchmarks.\n")
