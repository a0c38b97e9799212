"""What is installed is found without running it, and only what was allowed counts."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from helix_desktop.extensions.installed_extensions import (
    AllowedExtensions,
    ExtensionState,
    describe_changed_extension,
)
from helix_desktop.extensions.package_descriptions import MOST_LINES
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import PACKAGES, Install, WriteExtension

MARKS_ITS_IMPORT = """
import pathlib
pathlib.Path(__file__).with_name("was-imported").touch()
from helix_desktop.extensions.extension_interfaces import Extension
extension = Extension("Harmless")
"""


def state_of(where: ProgramFolders, name: str) -> ExtensionState:
    return AllowedExtensions(where).find_extension(name).state


def test_a_package_is_off_until_it_is_allowed_and_nothing_of_it_runs_before(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    extensions = AllowedExtensions(where)
    assert not extensions.is_any_allowed()
    known = extensions.find_extension("harmless")
    assert known.state is ExtensionState.OFF
    assert known.installed.version == "1.0"
    assert not (where.extensions_folder / "was-imported").exists()
    extensions.allow_extension(known.installed)
    assert state_of(where, "harmless") is ExtensionState.ALLOWED
    assert extensions.is_any_allowed()
    extensions.switch_off("harmless")
    assert state_of(where, "harmless") is ExtensionState.OFF
    assert "extension_harmless" not in sys.modules


def test_one_changed_byte_or_another_version_asks_again(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension("harmless").installed)
    write_extension("harmless", MARKS_ITS_IMPORT + "#")
    assert state_of(where, "harmless") is ExtensionState.CHANGED
    write_extension("harmless", MARKS_ITS_IMPORT)
    assert state_of(where, "harmless") is ExtensionState.ALLOWED
    write_extension("harmless", MARKS_ITS_IMPORT, version="1.1")
    assert state_of(where, "harmless") is ExtensionState.CHANGED


def test_what_python_compiles_is_no_change(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension("harmless").installed)
    compiled = where.extensions_folder / "__pycache__" / "extension_harmless.cpython-311.pyc"
    compiled.parent.mkdir()
    compiled.write_bytes(b"compiled")
    assert state_of(where, "harmless") is ExtensionState.ALLOWED


def test_a_damaged_file_of_decisions_allows_nothing(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension("harmless").installed)
    for damage in (b"", b"{", b"[]", b'{"harmless": true}', b'{"harmless": {"sha256": 7}}'):
        extensions.path.write_bytes(damage)
        assert state_of(where, "harmless") is not ExtensionState.ALLOWED


def test_pip_installs_updates_and_the_update_is_asked_again(
    where: ProgramFolders, install: Install, tmp_path: Path
) -> None:
    install(PACKAGES / "word_tools")
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension("words").installed)
    assert state_of(where, "words") is ExtensionState.ALLOWED
    newer = tmp_path / "newer"
    newer.mkdir()
    for file in (PACKAGES / "word_tools").iterdir():
        if file.is_file():
            text = file.read_text("utf-8").replace('version = "1.0"', 'version = "1.1"')
            (newer / file.name).write_text(text, "utf-8")
    install(newer)
    assert state_of(where, "words") is ExtensionState.CHANGED


def test_a_package_with_a_nonsensical_description_hides_no_other_one(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    for number, target in enumerate(("", ":", "a b:c", "x" * 5_000, "\u202e:\n", "..:.", "/:/")):
        write_extension(f"strange{number}", "", target=target)
    folder = where.extensions_folder
    (folder / "extension_bytes-1.dist-info").mkdir()
    (folder / "extension_bytes-1.dist-info" / "METADATA").write_bytes(b"\xff\xfe\x00")
    (folder / "extension_bytes-1.dist-info" / "entry_points.txt").write_bytes(b"\xff[")
    (folder / "extension_loop").symlink_to(folder)
    assert state_of(where, "harmless") is ExtensionState.OFF


def test_a_second_copy_changes_nothing_unless_python_would_load_it(
    where: ProgramFolders, install: Install, tmp_path: Path
) -> None:
    """A copy in the folder for extensions, of a package beside the program, counted as a change."""
    beside = tmp_path / "site-packages"
    install(PACKAGES / "word_tools")
    shutil.copytree(where.extensions_folder, beside)
    sys.path.append(str(beside))
    shutil.rmtree(where.extensions_folder)
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension("words").installed)

    install(PACKAGES / "word_tools")
    for description in where.extensions_folder.glob("*.dist-info/METADATA"):
        newer = description.stat().st_mtime + 60
        os.utime(description, (newer, newer))
    with_copy = extensions.find_extension("words")
    assert with_copy.state is ExtensionState.ALLOWED
    assert with_copy.installed.place == str(beside)
    assert with_copy.installed.unused_places == (str(where.extensions_folder),)

    sys.path.remove(str(beside))
    extensions.allow_extension(extensions.find_extension("words").installed)
    sys.path.append(str(beside))
    hidden_by_other = extensions.find_extension("words")
    assert hidden_by_other.state is ExtensionState.CHANGED
    sentence = describe_changed_extension(hidden_by_other.installed)
    used, unused = beside, where.extensions_folder
    assert f"the one in {used} is used, not the one in {unused}." in sentence


def _description_as_pipe(file: Path) -> None:
    os.mkfifo(file)


def _description_as_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def _description_of_ten_gigabytes(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate(10 << 30)


def _description_with_many_lines(file: Path) -> None:
    file.write_text("[helix_desktop.extensions]\n" + "a = b\n" * MOST_LINES)


def _description_as_folder(file: Path) -> None:
    file.mkdir()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes among files here")
@pytest.mark.parametrize("name", ["METADATA", "RECORD", "entry_points.txt", "direct_url.json"])
@pytest.mark.parametrize(
    "replace",
    [
        _description_as_pipe,
        _description_as_device,
        _description_of_ten_gigabytes,
        _description_with_many_lines,
        _description_as_folder,
    ],
)
def test_a_description_without_an_end_hides_no_other_package(
    where: ProgramFolders,
    write_extension: WriteExtension,
    replace: Callable[[Path], None],
    name: str,
) -> None:
    write_extension("harmless", MARKS_ITS_IMPORT)
    write_extension("hostile", MARKS_ITS_IMPORT)
    (information,) = where.extensions_folder.glob("*hostile*.dist-info")
    file = information / name
    file.unlink(missing_ok=True)
    replace(file)
    assert state_of(where, "harmless") is ExtensionState.OFF


def test_a_package_that_declares_very_many_extensions_is_not_listed(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    write_extension("hostile", MARKS_ITS_IMPORT)
    (information,) = where.extensions_folder.glob("*.dist-info")
    lines = [f"hostile{number} = extension_hostile:extension\n" for number in range(21)]
    (information / "entry_points.txt").write_text("[helix_desktop.extensions]\n" + "".join(lines))
    names = [known.installed.name for known in AllowedExtensions(where).list_extensions()]
    assert not any(name.startswith("hostile") for name in names)
