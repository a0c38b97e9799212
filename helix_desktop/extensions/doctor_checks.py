"""Runs the checks of the doctor that allowed extensions bring."""

import asyncio
from dataclasses import replace
from itertools import islice

from helix_desktop.doctor_findings import DoctorFinding, DoctorFindingState
from helix_desktop.extensions.extension_interfaces import ExtensionCheck
from helix_desktop.extensions.extension_loading import load_extensions_in_thread
from helix_desktop.extensions.limited_calls import ExtensionFailed, printable_text
from helix_desktop.extensions.running_extension import RunningExtension
from helix_desktop.program_folders import ProgramFolders

SECONDS_FOR_CHECK = 20.0
MOST_FINDINGS = 50


async def run_checks_of_extensions(where: ProgramFolders) -> list[DoctorFinding]:
    return await asyncio.to_thread(_run_checks, where)


def _run_checks(where: ProgramFolders) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    for extension in load_extensions_in_thread(where).running:
        for check in extension.declared.doctor_checks:
            if not extension.stopped_because:
                findings += _run_check(extension, check)
    return findings


def _run_check(extension: RunningExtension, check: ExtensionCheck) -> list[DoctorFinding]:
    """Return what a check found, with the extension's title before it. A check that fails is a
    finding, too.
    """
    title = f"{extension.declared.title}: {check.name}"
    try:
        findings = extension.run_and_count(
            lambda: _find(check), SECONDS_FOR_CHECK, f"the check {check.name}"
        )
    except ExtensionFailed as error:
        return [DoctorFinding(title, DoctorFindingState.BAD, f"This check failed: {error.what}.")]
    named_findings: list[DoctorFinding] = []
    for finding in findings:
        named_findings.append(replace(finding, what=title))
    return named_findings


def _find(check: ExtensionCheck) -> list[DoctorFinding]:
    findings: list[DoctorFinding] = []
    for finding in islice(check.find(), MOST_FINDINGS):
        if type(finding) is not DoctorFinding or type(finding.state) is not DoctorFindingState:
            raise ExtensionFailed("it returned something else than a DoctorFinding")
        for text in (finding.says, finding.remedy):
            if type(text) is not str:
                raise ExtensionFailed(f"it returned {type(text).__name__} instead of a text")
        says = printable_text(finding.says)
        remedy = printable_text(finding.remedy)
        findings.append(DoctorFinding(check.name, finding.state, says, remedy))
    return findings
