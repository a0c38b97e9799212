"""doctor.py: what is wrong is found, named, and can be shown to others."""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from helix_desktop import installation_checks, logs, program_folders, program_settings
from helix_desktop.doctor_findings import DoctorFinding, DoctorFindingState
from helix_desktop.engine.facts import ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.errors import NoUsableKeyring
from helix_desktop.histories import unknown_shapes
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.secrets import Keyring, SecretStorage
from helix_desktop.store.all_workspaces import AllWorkspaces
from tests.histories import written


@pytest.fixture
def where(tmp_path: Path) -> ProgramFolders:
    return program_folders.find_program_folders(tmp_path / "home")


def no_keyring() -> Keyring:
    raise NoUsableKeyring("There is none.", remedy="Choose another way.")


def installation_in(where: ProgramFolders) -> installation_checks.CheckedInstallation:
    secrets = SecretStorage(where.key_file, keyring=no_keyring)
    return installation_checks.CheckedInstallation(where, secrets)


async def examined(where: ProgramFolders) -> dict[str, DoctorFinding]:
    secrets = SecretStorage(where.key_file, keyring=no_keyring)
    return {
        finding.what: finding
        for finding in reversed(await installation_checks.check_installation(where, secrets))
    }


async def test_a_sound_installation_has_nothing_bad(where: ProgramFolders) -> None:
    findings = await examined(where)
    assert [
        finding for finding in findings.values() if finding.state is DoctorFindingState.BAD
    ] == []
    assert findings["Keyring"] == DoctorFinding(
        "Keyring", DoctorFindingState.NOTE, "There is none.", "Choose another way."
    )
    assert not where.data.exists(), "looking changes nothing"


async def test_a_cache_beyond_its_limit_is_a_note(where: ProgramFolders, tmp_path: Path) -> None:
    workspaces = AllWorkspaces(where.workspaces_folder)
    workspace = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Full", tmp_path).id
    )
    await workspace.cache.store_content(bytes(range(256)), EntryOrigin())
    workspace.change_settings({"limits.cache_bytes": 100})
    await workspace.aclose()
    finding = (await examined(where))["Workspace Full"]
    assert (finding.state, finding.says) == (
        DoctorFindingState.NOTE,
        "The workspace's cache exceeds its limit by 157 bytes.",
    )
    assert "Nothing is removed automatically" in finding.remedy


async def test_a_cache_that_lost_entries_is_reported_until_they_are_back(
    where: ProgramFolders, tmp_path: Path
) -> None:
    workspaces = AllWorkspaces(where.workspaces_folder)
    known = workspaces.create_stored_workspace("Zeroed", tmp_path)
    workspace = await workspaces.open_stored_workspace(known.id)
    stored = await workspace.cache.store_content(b"output" * 900, EntryOrigin("shell"))
    await workspace.journal.append_to_journal("c", [ToolReturned("1", stored, 1)])
    await workspace.aclose()
    for path in (workspace.folder / "cache").iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    for _ in range(2):
        findings = await findings_in_workspaces(where)
        bad = [each for each in findings if each.state is DoctorFindingState.BAD]
        assert [each.says for each in bad] == ["Cache entries that are damaged or lost: 1."]
    workspace = await workspaces.open_stored_workspace(known.id)
    await workspace.cache.store_content(b"output" * 900, EntryOrigin("shell"))
    await workspace.aclose()
    (finding,) = await findings_in_workspaces(where)
    assert finding.state is DoctorFindingState.GOOD


async def findings_in_workspaces(where: ProgramFolders) -> list[DoctorFinding]:
    found = installation_checks._check_workspaces(installation_in(where))
    return [finding async for finding in found]


async def test_what_is_wrong_with_a_workspace_is_named_and_the_others_are_looked_at(
    where: ProgramFolders, tmp_path: Path
) -> None:
    workspaces = AllWorkspaces(where.workspaces_folder)
    sound, mistaken, broken = (
        workspaces.create_stored_workspace(name, tmp_path)
        for name in ("Sound", "Mistaken", "Broken")
    )
    (mistaken.folder / "workspace.toml").write_text("name = \n")
    (broken.folder / "journal.sqlite3").write_bytes(b"this is no database" * 100)
    busy = await workspaces.open_stored_workspace(
        workspaces.create_stored_workspace("Busy", tmp_path).id
    )
    findings = await examined(where)
    await busy.aclose()
    assert findings["Workspace Sound"].state is DoctorFindingState.GOOD
    assert "line 1" in findings[f"Workspace {mistaken.id}"].says
    assert findings["Workspace Broken"].state is DoctorFindingState.NOTE
    assert "journal" in findings["Workspace Broken"].says
    assert "open in a running program" in findings["Workspace Busy"].says
    assert sound.id


async def test_mistakes_in_the_settings_are_told(where: ProgramFolders) -> None:
    where.config.mkdir()
    where.settings_file.write_text("[appearance]\nzoom = 3\n")
    assert "line 2" in (await examined(where))["Settings"].says


async def test_mistakes_in_the_files_of_providers_and_keys_are_told(where: ProgramFolders) -> None:
    where.providers_file.parent.mkdir(parents=True)
    where.providers_file.write_text("[provider.x")
    where.key_file.write_text("{bad")
    secrets = SecretStorage(where.key_file, keyring=no_keyring, consent=lambda: True)
    bad = {
        one.what: one.says
        for one in await installation_checks.check_installation(where, secrets)
        if one.state is DoctorFindingState.BAD
    }
    assert list(bad) == ["Providers", "Keys"]
    assert str(where.providers_file) in bad["Providers"]
    assert str(where.key_file) in bad["Keys"]


async def test_a_check_that_fails_itself_is_a_finding(
    where: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: installation_checks.CheckedInstallation) -> Iterator[DoctorFinding]:
        raise ZeroDivisionError

    broken = installation_checks.DoctorCheck("Broken", fail)
    monkeypatch.setattr(installation_checks, "CHECKS", (*installation_checks.CHECKS, broken))
    findings = await examined(where)
    assert "ZeroDivisionError" in findings["Broken"].says
    failed = [finding for finding in findings.values() if "ZeroDivisionError" in finding.says]
    assert [finding.state for finding in failed] == [DoctorFindingState.BAD]


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the installer brings what Qt needs")
async def test_the_library_qt_lacks_is_named_also_in_a_bundle(
    where: ProgramFolders, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(name: str) -> None:
        raise OSError(f"Failed to load {name}") from OSError(
            "libGL.so.1: cannot open shared object file"
        )

    monkeypatch.setattr("ctypes.CDLL", load)
    finding = (await examined(where))["System libraries"]
    assert finding.says == "Qt cannot be loaded: libGL.so.1: cannot open shared object file."
    assert "libgl1" in finding.remedy


def test_the_file_holds_no_key_and_no_name_of_the_home_folder(where: ProgramFolders) -> None:
    key = "planted-secret-4711"
    where.config.mkdir()
    where.logs.mkdir()
    program_settings.ProgramSettings(where.settings_file).change_setting(program_settings.FONT, key)
    (where.logs / "helix.log").write_text(
        json.dumps({"says": f"used {key} in {Path.home()}/x"}) + "\n{torn} line}\ntorn li"
    )
    redaction = logs.LogRedaction()
    redaction.add_secret_to_redact(key)
    text = installation_checks.build_diagnostics_text(
        [DoctorFinding("a", DoctorFindingState.GOOD, f"{key} is kept")], where, redaction
    )
    assert key not in text
    assert str(Path.home()) + "/x" not in text
    assert json.loads(text)["end of the log"] == [
        {"says": f"used {logs.BLOT} in ~/x"},
        "{torn} line}",
        "torn li",
    ]


def test_what_an_agent_writes_and_is_not_read_yet_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: ProgramFolders
) -> None:
    """A database with tables under new names was taken for no conversations at all."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    path = written.opencode(tmp_path / ".local" / "share")
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("ALTER TABLE session RENAME TO session_v3")
    unknown_shapes.note_sentences(where.data, ["Something that pi writes is not read yet: x."])
    found = list(installation_checks._check_histories(installation_in(where)))
    assert [finding.state for finding in found] == [DoctorFindingState.NOTE] * 2
    assert found[0].says.startswith("opencode: 1 file (")
    assert "not read yet: the table session_v3 (1). It stays as it is." in found[0].says
    assert "pi writes" in found[1].says


def test_a_system_without_the_folder_of_processes_is_told(
    where: ProgramFolders, tmp_path: Path
) -> None:
    """In a chroot without /proc no workspace could be created, and the doctor was content."""
    installation = replace(installation_in(where), process_folder=tmp_path)
    (found,) = installation_checks._check_process_folder(installation)
    assert (found.state, "not mounted" in found.says) == (DoctorFindingState.BAD, True)
    (tmp_path / "self").mkdir()
    assert not list(installation_checks._check_process_folder(installation))


async def test_a_missing_git_is_a_note(
    where: ProgramFolders, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = (await examined(where))["Git"]
    assert finding.state is DoctorFindingState.NOTE
    assert "git was not found" in finding.says
    program = tmp_path / "git"
    program.touch(mode=0o700)
    assert (await examined(where))["Git"].says == f"{program}."
