"""The checks that an extension brings are run by the doctor, and those that fail are findings."""

from __future__ import annotations

import pytest

from helix_desktop.doctor_findings import DoctorFinding, DoctorFindingState
from helix_desktop.extensions import doctor_checks, extension_loading
from helix_desktop.extensions.doctor_checks import run_checks_of_extensions
from helix_desktop.program_folders import ProgramFolders
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import WriteExtension
from tests.extensions.test_allowed_imports import allow, load

CODE = """
import itertools, threading
from helix_desktop.extensions.extension_interfaces import *
NOTE = DoctorFindingState.NOTE
def find():
    {body}
extension = Extension("Mirror", doctor_checks=[ExtensionCheck("Address", find)])
"""
WORKS = "yield DoctorFinding('Keyring', NOTE, 'It is not reachable.', 'Connect.')"


async def findings_of(
    body: str, where: ProgramFolders, write_extension: WriteExtension
) -> list[DoctorFinding]:
    write_extension("mirror", CODE.format(body=body))
    allow(where, "mirror")
    return await run_checks_of_extensions(where)


async def test_a_finding_stands_under_the_extensions_name(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    (finding,) = await findings_of(WORKS, where, write_extension)
    expected = DoctorFinding(
        "Mirror: Address", DoctorFindingState.NOTE, "It is not reachable.", "Connect."
    )
    assert finding == expected


FAILURES = {
    "raise SystemExit": "raised SystemExit",
    "return 7": "raised TypeError",
    "return [7]": "something else than a DoctorFinding",
    "return [DoctorFinding('a', 'bad', 'b')]": "something else than a DoctorFinding",
    "return [DoctorFinding('a', NOTE, None)]": "NoneType instead of a text",
    "threading.Event().wait()": "did not return within",
    "return itertools.cycle([ExtensionCheck])": "something else than a DoctorFinding",
}


@pytest.mark.parametrize("body", FAILURES)
async def test_a_check_that_fails_is_a_finding(
    body: str,
    where: ProgramFolders,
    write_extension: WriteExtension,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor_checks, "SECONDS_FOR_CHECK", 0.1)
    (finding,) = await findings_of(body, where, write_extension)
    assert (finding.what, finding.state) == ("Mirror: Address", DoctorFindingState.BAD)
    assert FAILURES[body] in finding.says


async def test_endless_findings_and_control_characters_are_cut(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    body = "return itertools.repeat(DoctorFinding('a', NOTE, '\\x1b[2Jb' + 'c' * 9_000))"
    findings = await findings_of(body, where, write_extension)
    assert len(findings) == doctor_checks.MOST_FINDINGS
    assert findings[0].says.startswith("[2Jbc")
    assert len(findings[0].says) < 400


def test_the_doctor_of_the_command_line_runs_it(
    where: ProgramFolders,
    write_extension: WriteExtension,
    helix: Helix,  # noqa: F811
) -> None:
    write_extension("mirror", CODE.format(body=WORKS))
    assert "Mirror" not in helix("--home", where.data, "doctor")[1]
    allow(where, "mirror")
    extension_loading.forget_loaded_extensions()
    assert "Mirror: Address    It is not reachable." in helix("--home", where.data, "doctor")[1]


def test_a_check_with_a_wrong_name_is_not_loaded(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("mirror", CODE.format(body=WORKS).replace('"Address"', '"a\\nb"'))
    assert "the name of its check must be one line" in load(allow(where, "mirror")).complaints[0]
