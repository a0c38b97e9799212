"""A hundred broken and hostile extensions: nothing of them runs before they are allowed, and
afterwards each that fails is a sentence, while the program and another extension go on.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from helix_desktop.documents import document_kinds
from helix_desktop.engine.ports import CallContext
from helix_desktop.extensions import extension_loading
from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.extensions.installed_extensions import AllowedExtensions
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.providers import provider_catalog
from tests.commands.conftest import Helix, helix  # noqa: F401
from tests.extensions.conftest import WriteExtension
from tests.extensions.hostile_packages import MARK, build_hostile_packages
from tests.extensions.test_extension_loading import A_TOOL

PACKAGES = build_hostile_packages()
REPOSITORY = Path(__file__).parents[2]


@pytest.fixture
def hostile_home(where: ProgramFolders, write_extension: WriteExtension) -> ProgramFolders:
    for package in PACKAGES:
        write_extension(package.name, MARK + package.code, target=package.target)
    return where


def names_of_code_that_ran(where: ProgramFolders) -> list[str]:
    return sorted(mark.name for mark in where.extensions_folder.glob("ran-*"))


def test_before_they_are_allowed_all_are_listed_and_no_code_runs(
    hostile_home: ProgramFolders,
    helix: Helix,  # noqa: F811
) -> None:
    assert len(PACKAGES) >= 100
    code, out, _ = helix("--home", hostile_home.data, "extension", "list", "--json")
    assert code == 0
    states = {listed["name"]: listed["state"] for listed in json.loads(out)}
    assert {states[package.name] for package in PACKAGES} == {"off"}
    code, out, _ = helix("--home", hostile_home.data, "extension", "allow", "hangs")
    assert code == 1
    assert "can do everything that you can do" in out
    extensions = LoadedExtensions(AllowedExtensions(hostile_home))
    extensions.load_allowed()
    assert (extensions.running, extensions.complaints) == ([], [])
    assert names_of_code_that_ran(hostile_home) == []


async def test_once_allowed_each_that_fails_is_a_sentence_and_everything_else_goes_on(
    hostile_home: ProgramFolders,
    write_extension: WriteExtension,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extension_loading, "IMPORT_SECONDS", 2.0)
    monkeypatch.setattr(extension_loading, "CHECK_SECONDS", 2.0)
    write_extension("zz_works", A_TOOL.format(body="return 'done'"))
    presets = dict(provider_catalog.PRESETS)
    decisions = AllowedExtensions(hostile_home)
    for known in decisions.list_extensions():
        decisions.allow_extension(known.installed)
    extensions = LoadedExtensions(decisions)
    extensions.load_allowed()
    for package in PACKAGES:
        beginning = f"The extension {package.name} was switched off: "
        complaints = [line for line in extensions.complaints if line.startswith(beginning)]
        if not package.said:
            assert complaints == []
            continue
        assert len(complaints) == 1, package.name
        assert package.said in complaints[0]
        assert complaints[0].isprintable()
        assert len(complaints[0]) < 600
    tools = {tool.spec.name: tool for tool in extensions.list_tools()}
    assert list(tools) == ["zz_works__act"]
    context = CallContext("conversation", lambda _: pytest.fail("nobody asks"), lambda _: None)
    assert (await tools["zz_works__act"].call_foreign_tool({}, context)).text == "done"
    assert presets == provider_catalog.PRESETS
    assert document_kinds.list_document_kinds() == list(document_kinds.KINDS)
    again = LoadedExtensions(decisions)
    again.load_allowed()
    assert again.complaints == []


ENDS_THE_PROGRAM = {
    "exits": "import os; os._exit(7)",
    "kills": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "crashes": "import ctypes; ctypes.string_at(0)",
}


@pytest.mark.parametrize("name", ENDS_THE_PROGRAM)
def test_one_that_ends_the_program_does_so_once(
    name: str, where: ProgramFolders, write_extension: WriteExtension
) -> None:
    """Nothing in one process can hold this. At the next start, it is off."""
    write_extension(name, ENDS_THE_PROGRAM[name])
    decisions = AllowedExtensions(where)
    decisions.allow_extension(decisions.find_extension(name).installed)
    command = [sys.executable, "-m", "helix_desktop", "--home", str(where.data), "no-such-command"]
    first = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert first.returncode not in (0, 1, 2)
    second = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert second.returncode == 2
    assert (
        f"The extension {name} was switched off: the program ended while it was loaded."
        in second.stderr
    )
