"""`dev.py bench [NAME ...] [--json] [--html FILE] [--quick] [--traces DIR]`: every benchmark, or those named.

Each is a module of this folder with a `main` of its own, run in a process of its own. What it says is shown as it comes;
`--json` gathers it in one value, `--html` in one page.
"""

from __future__ import annotations

import argparse
import html
import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import machine

SCREEN = ["xvfb-run", "-a", "-s", "-screen 0 1440x900x24"]


@dataclass(frozen=True)
class Benchmark:
    """A module, what it measures, its arguments, and those for a quick look. `screen`: it opens windows."""

    name: str
    measures: str
    arguments: tuple[str, ...] = ()
    quick: tuple[str, ...] = ()
    screen: bool = False
    json: bool = False


ALL = (
    Benchmark(
        "store_put", "put and get beside plyvel, sqlite, lmdb, diskcache, files", quick=("--rounds", "5"), json=True
    ),
    Benchmark("store_million", "a workspace with a million entries", quick=("--entries", "100000"), json=True),
    Benchmark("tokens", "counting tokens beside tiktoken alone", json=True),
    Benchmark("view", "the view after each step, by length of the conversation", json=True),
    Benchmark("start", "process start to the first painted window", quick=("3",), screen=True),
    Benchmark("gui_transcript", "the chat at 10,000 and 100,000 messages", screen=True),
    Benchmark("gui_cache", "the cache page at a million entries", screen=True),
)


@dataclass(frozen=True)
class Outcome:
    name: str
    measures: str
    seconds: float
    code: int
    text: str
    figures: Any = None


def main() -> int:
    arguments = _arguments()
    chosen = [one for one in ALL if not arguments.names or one.name in arguments.names]
    if unknown := set(arguments.names) - {one.name for one in ALL}:
        sys.exit(
            f"There is no benchmark {', '.join(sorted(unknown))}. There are: {', '.join(one.name for one in ALL)}."
        )
    where = machine.described()
    quiet = arguments.json
    if not quiet:
        sys.stdout.writelines(f"{name}: {value}\n" for name, value in where.items())
    outcomes = [_run(one, quick=arguments.quick, quiet=quiet) for one in chosen if _possible(one)]
    if arguments.traces:
        outcomes.append(_traces(arguments.traces, quiet=quiet))
    if arguments.json:
        told = {one.name: one.figures if one.figures is not None else one.text for one in outcomes}
        print(json.dumps({"machine": where, "benchmarks": told}, indent=1))
    if arguments.html:
        arguments.html.write_text(page(where, outcomes), encoding="utf-8")
    return int(any(one.code for one in outcomes))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev.py bench", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="\n".join(f"{one.name}: {one.measures}" for one in ALL)
    )
    parser.add_argument("--json", action="store_true", help="one JSON value instead of text")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page as well")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter, for a first look")
    parser.add_argument("--traces", type=Path, metavar="DIR", help="recorded sessions: every policy is run on each")
    return parser.parse_args()


def _possible(one: Benchmark) -> bool:
    if one.screen and not os.environ.get("DISPLAY") and shutil.which("xvfb-run") is None:
        print(f"{one.name} is left out: it needs a screen, and there is no xvfb-run.", file=sys.stderr)
        return False
    return True


def _run(one: Benchmark, *, quick: bool, quiet: bool) -> Outcome:
    arguments = [*(one.quick if quick else one.arguments), *(["--json"] if quiet and one.json else [])]
    command = [sys.executable, "-m", f"tests.benchmarks.{one.name}", *arguments]
    if one.screen and not os.environ.get("DISPLAY"):
        command = [*SCREEN, *command]
    if not quiet:
        print(f"\n== {one.name}: {one.measures}", flush=True)
    return _outcome(one.name, one.measures, command, quiet=quiet, is_json=quiet and one.json)


def _traces(folder: Path, *, quiet: bool) -> Outcome:
    """The policies side by side, by the program's own `replay`."""
    files = sorted(str(path) for path in folder.rglob("*.jsonl*"))
    command = [sys.executable, "-m", "helix_desktop", "replay", *files, *(["--json"] if quiet else [])]
    return _outcome("replay", f"policies on {len(files)} recorded sessions", command, quiet=quiet, is_json=quiet)


def _outcome(name: str, measures: str, command: list[str], *, quiet: bool, is_json: bool) -> Outcome:
    begun, said = time.monotonic(), []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(Path.cwd())}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if not quiet:
                print(line, end="", flush=True)
    text = "".join(said)
    figures = json.loads(text) if is_json and not process.returncode else None
    return Outcome(name, measures, time.monotonic() - begun, process.returncode, text, figures)


def page(where: dict[str, str], outcomes: list[Outcome]) -> str:
    """One page: the machine, then each benchmark's own words."""
    rows = "".join(f"<tr><td>{html.escape(name)}<td>{html.escape(value)}" for name, value in where.items())
    parts = "".join(
        f"<h2>{html.escape(one.name)}</h2><p>{html.escape(one.measures)}; {one.seconds:.0f} s"
        f"{'' if not one.code else f'; <b>failed ({one.code})</b>'}</p><pre>{html.escape(one.text)}</pre>"
        for one in outcomes
    )
    style = (
        "body{font:15px system-ui;max-width:1100px;margin:2em auto}pre{background:#f4f4f1;padding:1em;overflow:auto}"
    )
    title = "Helix Desktop: benchmarks"
    return f"<!doctype html><meta charset=utf-8><title>{title}</title><style>{style}</style><h1>{title}</h1><table>{rows}</table>{parts}"


if __name__ == "__main__":
    sys.exit(main())
