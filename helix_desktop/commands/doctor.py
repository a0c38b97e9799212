"""`doctor`: check the installation, and write a file that can be read before it is sent."""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop import places
from helix_desktop.commands import as_json
from helix_desktop.commands.open_workspace import say_json
from helix_desktop.console import Terminal

if TYPE_CHECKING:
    from helix_desktop.commands import Subparsers
    from helix_desktop.doctor import Finding

MARKS = {"good": "ok", "note": "--", "bad": "!!"}


def add(nouns: Subparsers) -> None:
    noun = nouns.add_parser("doctor", help="check this installation", description="Check this installation.")
    noun.add_argument(
        "--output",
        "-o",
        type=Path,
        metavar="FILE",
        help="write a report to this file; read it before you send it to anyone",
    )
    as_json(noun)
    noun.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """1 where something is wrong, 0 where there are only notes."""
    from helix_desktop import doctor

    findings, text = doctor.run(places.find(arguments.home))
    with Terminal(target=arguments.output) as console:
        if arguments.output:
            asyncio.run(console.write(text.encode()))
    asyncio.run(_tell(arguments, findings, Terminal()))  # with the file in its place
    return int(any(finding.state is doctor.State.BAD for finding in findings))


async def _tell(arguments: argparse.Namespace, findings: tuple[Finding, ...], console: Terminal) -> None:
    if arguments.json:
        await say_json(console, [asdict(finding) for finding in findings])
        return
    for finding in findings:
        await console.say(f"{MARKS[finding.state]}  {finding.what:<18} {finding.says}")
        if finding.remedy:
            await console.say(f"{'':<23}{finding.remedy}")
    if arguments.output:
        await console.say(f"Written to {arguments.output}. Read it before you send it to anyone.")
