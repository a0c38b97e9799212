"""`doctor`: checks the installation, and writes a report for the user to read and send."""

import asyncio
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path

from helix_desktop.commands.option_parsing import Subparsers, add_command, add_json_option
from helix_desktop.commands.workspace_access import print_result
from helix_desktop.console import Terminal
from helix_desktop.doctor_findings import DoctorFindingState
from helix_desktop.installation_checks import run_checks_with_diagnostics

MARKS = {"good": "ok", "note": "--", "bad": "!!"}


async def run_doctor_command(arguments: Namespace) -> int:
    """Checks the installation. The exit code is 1 if something is wrong, and 0 if there
    are only notes.
    """
    findings, report = await asyncio.to_thread(run_checks_with_diagnostics, arguments.places)
    lines: list[str] = []
    is_something_wrong = False
    for finding in findings:
        lines.append(f"{MARKS[finding.state]}  {finding.what:<18} {finding.says}")
        if finding.remedy:
            lines.append(f"{'':<23}{finding.remedy}")
        if finding.state is DoctorFindingState.BAD:
            is_something_wrong = True

    if arguments.output:
        with Terminal(target=arguments.output) as console:
            await console.write_output(report.encode())
        lines.append(
            f"The report was written to {arguments.output}. Read the report before you send it to anyone."
        )
    findings_as_json = [asdict(finding) for finding in findings]
    await print_result(arguments, Terminal(), findings_as_json, *lines)
    if is_something_wrong:
        return 1
    return 0


def add_doctor_commands(nouns: Subparsers) -> None:
    """Declares `doctor`, which has no verbs."""
    noun = add_command(nouns, "doctor", "check this installation")
    add_json_option(noun)
    noun.add_argument(
        "--output",
        "-o",
        metavar="FILE",
        type=Path,
        default=None,
        help="write a report to this file; read the report before you send it to anyone",
    )
    noun.set_defaults(run=run_doctor_command)
