"""`dev.py bench [NAME ...] [--json] [--html FILE] [--quick] [--traces DIR] [--keep]`:
every benchmark, or those named.

Each is a module of this folder with a function `rows(*, quick)` (or a reading of what
it says, in adapted.py), run in a process of its own, one after the other: nothing of
one disturbs the next. A figure is the median of several runs of one process, with the
least and the most of them, beside the peers' of the same runs.

`--keep` puts what was measured into tests/benchmarks/last.json and writes the figures
page of the help anew.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import adapted, figures, fleet, machine, report
from tests.benchmarks.row import Row

HERE = Path(__file__).parent
SCREEN = ["xvfb-run", "-a", "-s", "-screen 0 1440x900x24"]
LONGEST = 3600.0  # seconds; one that takes longer hangs
Read = Callable[[str], list[Row]]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """`command` says rows in a form that `read` understands. `screen`: it opens windows."""

    name: str
    measures: str
    command: Callable[[argparse.Namespace], Sequence[str]]
    read: Read
    screen: bool = False
    traces: bool = False


def main() -> int:
    found = {one.name: one for one in benchmarks()}
    arguments = _arguments(found)
    unknown = set(arguments.names) - set(found)
    if unknown:
        sys.exit(
            f"There is no benchmark {', '.join(sorted(unknown))}. Available: {', '.join(found)}."
        )
    chosen = list(found.values())
    if arguments.names:
        chosen = [one for one in chosen if one.name in arguments.names]
    about_machine = machine.described()
    if not arguments.json:
        sys.stdout.writelines(f"{name}: {value}\n" for name, value in about_machine.items())
    runs = [_run(one, arguments) for one in chosen if _possible(one, arguments)]
    if arguments.json:
        told = {"machine": about_machine, "benchmarks": runs}
        print(json.dumps(told, indent=1, ensure_ascii=False))
    else:
        print(_summary(runs))
    if arguments.html:
        arguments.html.write_text(report.page(runs), encoding="utf-8")
    if arguments.keep:
        figures.keep(runs)
        fleet.write()
    return int(any(run["failed"] for run in runs))


def benchmarks() -> list[Benchmark]:
    """Every module here with a function `rows`, and those whose output is read; by name."""
    found = [_of_module(path) for path in sorted(HERE.glob("*.py"))]
    others = [
        _of_adapted(name, each)
        for name, each in adapted.ADAPTED.items()
        if (HERE / f"{name}.py").exists()
    ]
    return sorted([*filter(None, found), *others], key=lambda one: one.name)


def _of_module(path: Path) -> Benchmark | None:
    """Read, not imported: some of them import half the program."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    name = path.stem
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    if "rows" not in functions or name in adapted.ADAPTED:
        return None
    first_paragraph = (ast.get_docstring(tree) or name).partition("\n\n")[0]
    measures = " ".join(first_paragraph.split()).rstrip(".")

    def command(arguments: argparse.Namespace) -> Sequence[str]:
        words = ["-m", "tests.benchmarks.one", name]
        if arguments.quick:
            words.append("quick")
        return words

    return Benchmark(name, measures, command, _rows, "SCREEN" in _names_set_by(tree))


def _names_set_by(tree: ast.Module) -> set[str]:
    """The names of the module's simple assignments."""
    names: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            names.add(node.targets[0].id)
    return names


def _rows(text: str) -> list[Row]:
    return [Row.from_json(each) for each in json.loads(text.strip().splitlines()[-1])]


def _of_adapted(name: str, one: adapted.Adapted) -> Benchmark:
    def command(arguments: argparse.Namespace) -> Sequence[str]:
        traces = ["--traces", str(arguments.traces)] if one.traces else []
        return [
            "-m",
            f"tests.benchmarks.{name}",
            *(one.quick if arguments.quick else one.full),
            *traces,
        ]

    return Benchmark(name, one.measures, command, one.read, one.screen, one.traces)


def _arguments(found: dict[str, Benchmark]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev.py bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    told = "\n".join(f"{one.name}: {one.measures}" for one in found.values())
    parser.add_argument("names", nargs="*", metavar="NAME", help=told)
    parser.add_argument("--json", action="store_true", help="print one JSON value instead of text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots as well")
    parser.add_argument(
        "--quick", action="store_true", help="smaller and shorter, for a first look"
    )
    parser.add_argument(
        "--traces", type=Path, metavar="DIR", help="recorded sessions: every policy is run on each"
    )
    parser.add_argument(
        "--keep", action="store_true", help="these are the figures of the help page from now on"
    )
    return parser.parse_args()


def _possible(one: Benchmark, arguments: argparse.Namespace) -> bool:
    why = ""
    if one.screen and not os.environ.get("DISPLAY") and shutil.which("xvfb-run") is None:
        why = "it needs a screen, and there is no xvfb-run"
    elif one.traces and arguments.traces is None:
        why = "it needs recorded sessions (--traces DIR)"
    if why:
        print(f"{one.name} is left out: {why}.", file=sys.stderr)
    return not why


def _run(one: Benchmark, arguments: argparse.Namespace) -> dict[str, Any]:
    """Run it, show its table when it is done, and return all of it as JSON."""
    command = [sys.executable, *one.command(arguments)]
    if one.screen and not os.environ.get("DISPLAY"):
        command = [*SCREEN, *command]
    if not arguments.json:
        print(f"\n== {one.name}: {one.measures}", flush=True)
    where = machine.described()
    begun = time.monotonic()
    done = _ended(command)
    rows, failed = _read(one, done)
    if not arguments.json:
        print(
            "\n".join([*report.table(rows), *report.fit_lines(rows)]) if rows else failed,
            flush=True,
        )
    return {
        "name": one.name, "measures": one.measures, "machine": where, "seconds": time.monotonic() - begun, "failed": failed,
        "rows": [row.as_json() for row in rows],
    }  # fmt: skip


def _ended(command: list[str]) -> subprocess.CompletedProcess[str]:
    """What it said. One that hangs is ended with all it started, and said to have failed."""
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=machine.environment(),
        start_new_session=True,
    ) as process:
        try:
            said, complained = process.communicate(timeout=LONGEST)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, complained = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, said, complained)


def _read(one: Benchmark, done: subprocess.CompletedProcess[str]) -> tuple[list[Row], str]:
    """The rows, and why there are none. A benchmark that gives rows and an exit code
    says with it what was not met.
    """
    try:
        rows = one.read(done.stdout)
    except (ValueError, KeyError, IndexError, TypeError) as error:
        ended = f"It ended with {done.returncode}, and what it said cannot be read ({type(error).__name__}: {error})."
        return [], f"{ended}\n{done.stdout[-1500:]}\n{done.stderr[-1500:]}"
    return (
        (rows, "")
        if rows
        else ([], f"It said nothing (exit {done.returncode}).\n{done.stderr[-1500:]}")
    )


def _summary(runs: Sequence[dict[str, Any]]) -> str:
    """What was asked for and is not met, and what did not run."""
    rows = [(run["name"], Row.from_json(row)) for run in runs for row in run["rows"]]
    asked = [(name, row) for name, row in rows if row.met is not None]
    lines = [
        f"\n{len(rows)} figures; {sum(bool(row.met) for _, row in asked)} of {len(asked)} asked-for ones are met."
    ]
    lines += [
        f"not met: {name}: {row.name}: {row.ours.median:g} {row.unit} ({row.asked})"
        for name, row in asked
        if not row.met
    ]
    lines += [f"failed: {run['name']}" for run in runs if run["failed"]]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
