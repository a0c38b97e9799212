"""`doctor`: checks the installation, and writes a report for the user to read and send."""

import argparse
import asyncio
from dataclasses import asdict
from pathlib import Path

from helix_desktop.commands import Subparsers, add_subcommand
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Terminal
from helix_desktop.installation_checks import DoctorFinding, DoctorFindingState, run_checks_with_diagnostics

MARKS = {"good": "ok", "note": "--", "bad": "!!"}


def add_doctor_command(nouns: Subparsers) -> None:
    one = add_subcommand(nouns, "doctor", "check this installation", run_doctor_command)
    one.add_argument("--output", "-o", type=Path, metavar="FILE", help="write a report to this file; read the report before you send it to anyone")  # fmt: skip


def run_doctor_command(arguments: argparse.Namespace) -> int:
    """Checks the installation. The exit code is 1 if something is wrong, and 0 if there are only notes."""
    findings, text = run_checks_with_diagnostics(arguments.places)
    with Terminal(target=arguments.output) as console:
        if arguments.output:
            asyncio.run(console.write_output(text.encode()))
    asyncio.run(_print_findings(arguments, findings))  # The report must be written before this.
    return int(any(finding.state is DoctorFindingState.BAD for finding in findings))


async def _print_findings(arguments: argparse.Namespace, findings: tuple[DoctorFinding, ...]) -> None:
    lines = []
    for finding in findings:
        lines.append(f"{MARKS[finding.state]}  {finding.what:<18} {finding.says}")
        lines += [f"{'':<23}{finding.remedy}"] if finding.remedy else []
    lines += [f"The report was written to {arguments.output}. Read the report before you send it to anyone."] if arguments.output else []  # fmt: skip
    await print_result(arguments, Terminal(), [asdict(finding) for finding in findings], *lines)
