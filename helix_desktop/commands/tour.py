"""`tour`: a real session with the built-in scripted model, without a window and without a network, and its report."""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import places
from helix_desktop.commands import as_json
from helix_desktop.console import drop_output
from helix_desktop.errors import WrongUse

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.workbench.tour import Report, Say


def add(nouns: Subparsers) -> None:
    tour = nouns.add_parser("tour", help="run a demonstration that needs no key, network or window")
    tour.add_argument(
        "--out", type=Path, metavar="DIR", help="save the sample folder, the workspace and the report in this folder"
    )
    as_json(tour)
    tour.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from helix_desktop.workbench import tour

    with ExitStack() as stack:
        out = arguments.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="helix-tour-")))
        _prepare(out)
        failures: list[OSError] = []
        say: Say = (lambda _: None) if arguments.json else partial(_print, failures)
        report = asyncio.run(_take(out.absolute(), say))
        (out / "report.json").write_text(tour.as_json(report), encoding="utf-8")
        (out / "report.md").write_text(tour.as_markdown(report), encoding="utf-8")
        for failure in failures:
            raise failure
        sys.stdout.write(tour.as_json(report) if arguments.json else "\n" + tour.as_markdown(report))
    return 0


def _prepare(out: Path) -> None:
    """An empty folder: nothing of anybody's is written over."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise WrongUse(f"{out} is not empty.", remedy="Choose a new folder. Nothing was written.")
    except OSError as error:
        raise WrongUse(f"{out} cannot be used: {error.strerror}.") from error


def _print(failures: list[OSError], words: str) -> None:
    """Within a session an output that fails would be a mistake of ours; the tour goes on, for its report."""
    try:
        print(words, flush=True)
    except OSError as error:
        drop_output()
        failures.append(error)


async def _take(out: Path, say: Say) -> Report:
    from helix_desktop.secrets import Secrets
    from helix_desktop.workbench import Desk, tour

    where = places.find(out / "home")
    tour.make_folder(out / "folder")
    desk = Desk(where, Secrets(where.key_file), clock=tour.Quick())
    try:
        bench = await desk.create("Tour", out / "folder")
        return await tour.take(bench, say)
    finally:
        await desk.aclose()
