"""The figures of the help and of the README are those that were measured last; and what
makes them.
"""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from helix_desktop import __version__
from tests.benchmarks import adapted, figures, fleet, report
from tests.benchmarks.__main__ import benchmarks
from tests.benchmarks.row import Figure, Row, fit, shown

ROW = Row(
    "put",
    "µs",
    Figure(2, 1, 3, 5),
    {"lmdb": Figure(4, 4, 4)},
    "≤ 3 µs",
    met=True,
    series="put",
    at=10,
)


def test_the_page_of_the_help_is_what_was_measured_last() -> None:
    assert figures.PAGE.read_text(encoding="utf-8") == figures.page(figures.last())


def test_the_readme_quotes_what_was_measured_last() -> None:
    assert figures.block(figures.README.read_text(encoding="utf-8")) == figures.quotes(
        figures.last()
    )


def run_measured(program: str, rows: int, date: str = "2026-11-20 10:00 UTC") -> dict[str, Any]:
    machine = {
        "date": date,
        "program": program,
        "processor": "AMD EPYC, 2 cores",
        "memory": "8 GB",
        "load at the start": "0.5 0.4 0.3",
    }
    all_rows = [replace(ROW, name=f"put {number}").as_json() for number in range(rows)]
    return {"name": program, "measures": "a thing", "machine": machine, "rows": all_rows}


def test_only_the_current_versions_figures_are_published_and_no_more_than_a_person_reads() -> None:
    runs = [run_measured(f"{__version__} (abc)", 90), run_measured("0.1.0 (def)", 5)]
    page = figures.page(runs)
    assert "0.1.0" not in page
    assert page.count("| put ") == figures.MOST_ROWS == 60
    assert figures.page(figures.last()).count("\n| ") < 100


def test_each_figure_of_the_readme_says_on_what_it_was_measured() -> None:
    run = run_measured(f"{__version__} (43e3155c)", 1)
    quoted = replace(ROW, name="a step after 100,000 messages")
    shorter = replace(ROW, name="a step after 1,000 messages", ours=Figure(0.5, 0.5, 0.5))
    run |= {"name": "view", "rows": [shorter.as_json(), quoted.as_json()]}
    lines = [line for line in figures.quotes([run]).split("\n") if line.startswith("- ")]
    assert len(lines) == 1
    assert "adds 2.00 ms of processor time to each step, 4.00 times as much" in lines[0]
    assert all(re.search(r"\(version 0\.2\.\d+ \(\w+\), 20\d\d-.*load \d", line) for line in lines)


@pytest.mark.parametrize(
    ("program", "date", "words"),
    [
        (f"{__version__} (43e3155c)", "2025-01-01 10:00 UTC", "days ago"),
        (f"{__version__} (43e3155c-dirty)", "2026-11-20 10:00 UTC", "local changes"),
        (f"{__version__} (0123456789)", "2026-11-20 10:00 UTC", "does not exist"),
    ],
)
def test_the_check_before_a_release_fails_on_an_old_row(
    program: str, date: str, words: str
) -> None:
    today = datetime(2026, 11, 27, tzinfo=UTC)
    problems = figures.find_old_figures([run_measured(program, 1, date)], today)
    assert any(words in problem for problem in problems)


def test_the_check_before_a_release_fails_if_what_was_measured_has_changed_since(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shallow clone has no earlier commits, so these are of a repository of its own."""

    def git(*arguments: str) -> str:
        named = ["git", "-c", "user.name=A", "-c", "user.email=a@b.invalid", *arguments]
        return subprocess.run(named, cwd=tmp_path, capture_output=True, check=True).stdout.decode()

    def commit(name: str) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("changed")
        git("add", ".")
        git("commit", "-qm", name)
        return git("rev-parse", "--short", "HEAD").strip()

    def find_problems(measured_at: str) -> list[str]:
        run = run_measured(f"{__version__} ({measured_at})", 1) | {"name": "view"}
        problems = figures.find_old_figures([run], datetime(2026, 11, 27, tzinfo=UTC))
        return [problem for problem in problems if "README" not in problem]

    monkeypatch.setattr(figures, "ROOT", tmp_path)
    git("init", "-q")
    first = commit("helix_desktop/engine/view.py")
    commit("helix_desktop/gui/window.py")
    assert find_problems(first) == []
    commit("helix_desktop/engine/session.py")
    assert find_problems(first) == [
        "view was measured before the last changes to its code (commits: 1)."
    ]


def test_a_quoted_row_that_was_not_measured_is_not_left_out_without_a_word() -> None:
    """The slow figure of the start was once renamed, and vanished from the README."""
    quoted = [replace(ROW, name=row_name).as_json() for _, row_name, _ in figures.QUOTED[:1]]
    run = run_measured(f"{__version__} (43e3155c)", 1) | {"name": "start", "rows": quoted}
    problems = figures.find_old_figures([run], datetime(2026, 11, 27, tzinfo=UTC))
    for benchmark, row_name, _ in figures.QUOTED[1:]:
        sentence = f"README would quote {row_name} of {benchmark}, which was not measured."
        assert sentence in problems


def test_every_row_that_the_readme_would_quote_was_measured() -> None:
    measured = {run["name"]: figures.rows_by_name(run) for run in figures.current(figures.last())}
    for benchmark, row_name, _ in figures.QUOTED:
        assert row_name in measured[benchmark]


def test_what_a_benchmark_measures_is_said_in_a_whole_sentence() -> None:
    measures = {benchmark.name: benchmark.measures for benchmark in benchmarks()}
    assert measures["view"].endswith("making the folds that are due")
    assert not [words for words in measures.values() if words.endswith((":", ",", " the", " in"))]


def test_the_page_on_a_fleet_is_computed_from_what_was_measured_last() -> None:
    assert fleet.PAGE.read_text(encoding="utf-8") == fleet.page(fleet.SIZES, fleet.rates())


def test_every_run_that_is_kept_says_on_what_machine_with_what_load() -> None:
    for run in figures.last():
        assert {"date", "processor", "python", "load at the start"} <= set(run["machine"]), run[
            "name"
        ]
        assert run["rows"]


def test_a_row_survives_json() -> None:
    assert Row.from_json(json.loads(json.dumps(ROW.as_json()))) == ROW


@pytest.mark.parametrize(("power", "factor"), [(0.0, 3.0), (1.0, 2.0), (1.5, 0.1)])
def test_a_fit_finds_the_power(power: float, factor: float) -> None:
    found = fit([(size, factor * size**power) for size in (1_000, 10_000, 100_000)])
    assert (round(found.slope, 6), round(found.factor, 6)) == (power, factor)


@pytest.mark.parametrize(
    ("value", "words"),
    [(0, "0"), (0.01234, "0.0123"), (1.234, "1.23"), (12.34, "12.3"), (1234.5, "1,234")],
)
def test_three_digits_that_matter_are_shown(value: float, words: str) -> None:
    assert shown(value) == words


def test_a_table_says_what_is_met_and_what_is_not() -> None:
    missed = Row("get", "µs", Figure(9, 9, 9), asked="≤ 3 µs", met=False)
    lines = report.table([ROW, missed])
    assert lines[1].split() == ["put", "µs", "2.00", "(1.00–3.00)", "4.00", "≤", "3", "µs", "met"]
    assert lines[2].endswith("NOT MET")
    assert "**not met**" in report.markdown([missed])[-1]


def test_the_page_with_plots_stands_alone() -> None:
    rows = [
        Row(f"put at {at}", "µs", Figure(at, at, at), series="put", at=at) for at in (10, 100, 1000)
    ]
    run = {
        "name": "a",
        "measures": "b",
        "machine": {},
        "seconds": 1,
        "failed": "",
        "rows": [r.as_json() for r in [*rows, ROW]],
    }
    made = report.page([run])
    assert made.count("<svg") == 1
    assert "http" not in made.replace("http://www.w3.org/2000/svg", "")
    assert "proportional to size^" in made


def test_every_benchmark_is_found_once() -> None:
    names = [one.name for one in benchmarks()]
    assert len(set(names)) == len(names)
    assert {
        "growth",
        "loop",
        "mcp",
        "start",
        "store_put",
        "store_million",
        "tokens",
        "view",
        "gui_transcript",
    } <= set(names)


def test_what_the_chat_benchmark_prints_becomes_rows() -> None:
    said = (
        "10,000 messages (1 facts, 2 MB of facts)\n  opened and painted in 120 ms\n"
        "  scroll up                          median   3.00   p99  17.00   longest   20.00 ms"
        "   of the processor: median   2.00   p99   9.00   longest   11.00 ms\n"
        "  memory grew by 30 MB over the facts and an empty window\n"
        "  a line of 1 MB                    as a fact   10.0 (  9.0)   streamed  120.0 ( 80.0)   scrolled    3.0 (  2.0)\n"
    )
    rows = {row.name: row.met for row in adapted.gui_transcript(said)}
    assert rows == {
        "opened with 10,000 messages": True,
        "scroll up, 10,000 messages": False,
        "memory for 10,000 messages": True,
        "longest gap: a line of 1 MB": False,
    }


def test_what_the_store_benchmark_says_becomes_rows() -> None:
    both = {"put": [1.2, 1, 2], "get": [1.6, 1, 2]}
    peers = {name: {"put": [1.0, 1, 1], "get": [1.0, 1, 1]} for name in ("parts", "diskcache")}
    peers["diskcache"] = {"put": [9.0, 9, 9], "get": [9.0, 9, 9]}
    said = json.dumps(
        {"stores": {"2 KB": {"ours": both, **peers}}, "port": {"through the port": 3.0}}
    )
    assert [row.met for row in adapted.store_put(said)] == [True, False, None]


def test_what_the_policies_say_becomes_rows() -> None:
    one = {
        "effective": 40, "recalls_billed": 5, "searches_billed": 2, "head_tokens": 1_900, "sent": 20, "retention_plain": 0.9, "peak": 0.45,
        "fitting": {"sessions": 1, "effective": 30, "none": {"billed": 50}}, "overflowing": {"sessions": 0}, "median_use": 0.2, "overflowed": 0, "illegal_requests": 0,
        "recalls_failed": 0, "details": {"lost": 1},
    }  # fmt: skip
    others = {
        "no management": {**one, "effective": 100, "sent": 100},
        "none": {**one, "effective": 99},
        "a peer": {**one, "effective": 39},
    }
    named = {**one, "effective": 43, "retention_plain": 0.95}
    headed = {
        "layered": {**one, "effective": 50, "head_tokens": 17_000},
        "a peer": {**one, "effective": 70},
    }
    tables = {
        "prices": {"layered": one, adapted.NAMED: named, **others},
        "more prices": {"layered": one, **others},
    }
    tables[f"{adapted.HEADS_OF}a peer 2.1"] = headed
    rows = adapted.policies(json.dumps(tables))
    assert [row.name for row in rows if row.met is False] == [
        "bill with `layered` (prices)",
        "`layered`: effective tokens, as a share of sending everything, if the agent knows which page to recall",
        "`layered`: details lost",
        "bill with `layered` (more prices)",
    ]
    assert rows[0].peers["a peer"].median == 0.39
    assert rows[1].peers["a peer"].median == 0.9
    assert adapted.NAMED not in rows[0].peers
    assert rows[-1].name == "bill with the system prompt and tools of a peer 2.1, 17,000 tokens"
    assert (rows[-1].ours.median, rows[-1].peers["a peer"].median) == (0.5, 0.7)


def test_what_the_cache_page_prints_becomes_rows() -> None:
    said = (
        "1,000,000 entries: page shown in 80 ms, gaps: p99  3.0, longest  12.0 ms\n"
        "  sorted by size      in   600 ms, gaps: p99  20.0, longest  30.0 ms\n"
        "  memory grew by 30 MB\n"
    )
    assert {row.name: row.met for row in adapted.gui_cache(said)} == {
        "page shown": True,
        "page shown: event-loop delay": True,
        "sorted by size": False,
        "sorted by size: event-loop delay": False,
        "memory growth": True,
    }


def test_what_the_timeline_prints_becomes_rows() -> None:
    said = (
        "50,000 steps, 5,000 folds, 105,003 facts: read in 90 ms (longest gap 60.0 ms), drawn in 95 ms\n"
        "  zoomed                   median   2.18   p99   2.94   longest   4.87 ms\n"
    )
    assert {row.name: row.met for row in adapted.gui_timeline(said)} == {
        "50,000 steps, 5,000 folds drawn": True,
        "longest event-loop gap while drawing": False,
        "zoomed": True,
    }
