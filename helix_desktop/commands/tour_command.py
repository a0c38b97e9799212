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

from helix_desktop import program_folders
from helix_desktop.commands import add_verb
from helix_desktop.console import discard_output
from helix_desktop.errors import InvalidInput

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.workbench.scripted_tour import Say, TourReport


def add_tour_command(nouns: Subparsers) -> None:
    tour = add_verb(nouns, "tour", "run a demonstration that needs no key, network or window", run_tour_command)
    tour.add_argument(
        "--out", type=Path, metavar="DIR", help="save the sample folder, the workspace and the report in this folder"
    )


def run_tour_command(arguments: argparse.Namespace) -> int:
    from helix_desktop.workbench import scripted_tour

    with ExitStack() as stack:
        out = arguments.out or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="helix-tour-")))
        _prepare_empty_folder(out)
        failures: list[OSError] = []
        say: Say = (lambda _: None) if arguments.json else partial(_print_until_output_fails, failures)
        report = asyncio.run(_run_tour_in_folder(out.absolute(), say))
        (out / "report.json").write_text(scripted_tour.tour_report_as_json(report), encoding="utf-8")
        (out / "report.md").write_text(scripted_tour.tour_report_as_markdown(report), encoding="utf-8")
        for failure in failures:
            raise failure
        sys.stdout.write(
            scripted_tour.tour_report_as_json(report)
            if arguments.json
            else "\n" + scripted_tour.tour_report_as_markdown(report)
        )
    return 0


def _prepare_empty_folder(out: Path) -> None:
    """An empty folder: nothing of anybody's is written over."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        if any(out.iterdir()):
            raise InvalidInput(f"{out} is not empty.", remedy="Choose a new folder. Nothing was written.")
    except OSError as error:
        raise InvalidInput(f"{out} cannot be used: {error.strerror}.") from error


def _print_until_output_fails(failures: list[OSError], words: str) -> None:
    """Within a session an output that fails would be a mistake of ours; the tour goes on, for its report."""
    try:
        print(words, flush=True)
    except OSError as error:
        discard_output()
        failures.append(error)


async def _run_tour_in_folder(out: Path, say: Say) -> TourReport:
    from helix_desktop.secrets import SecretStorage
    from helix_desktop.workbench import Workbenches, scripted_tour

    where = program_folders.find_program_folders(out / "home")
    scripted_tour.create_tour_folder(out / "folder")
    desk = Workbenches(where, SecretStorage(where.key_file), clock=scripted_tour.ClockWithoutPauses())
    try:
        bench = await desk.create_workspace("Tour", out / "folder")
        return await scripted_tour.run_tour_session(bench, say)
    finally:
        await desk.aclose()
