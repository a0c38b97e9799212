"""What was allowed is what runs, also where a package's code does not lie where its list of files
says: installed for development, behind links, in an archive.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import zipfile
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from helix_desktop.errors import ActionRefused
from helix_desktop.extensions.installed_extensions import AllowedExtensions, ExtensionState
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import WriteExtension
from tests.extensions.test_allowed_imports import HARMLESS, allow, load, write_package
from tests.extensions.test_installed_extensions import state_of
from tests.faults.extensions import CHANGES, is_change_noticed

ENTRY = "[helix_desktop.extensions]\ndeveloped = developed_words:extension\n"


class FinderOfEditablePackage:
    """What `pip install -e` leaves in `sys.meta_path`: modules by the places of their files."""

    def __init__(self, places: dict[str, Path]) -> None:
        self._places = places

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: object = None
    ) -> ModuleSpec | None:
        place = self._places.get(fullname)
        if place is None:
            return None
        return importlib.util.spec_from_file_location(fullname, place)


@pytest.fixture
def project(where: ProgramFolders, tmp_path: Path) -> Iterator[Path]:
    """A project that was installed for development beside the program, by a finder."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "developed_words.py").write_text(HARMLESS, "utf-8")
    (folder / "developed_helper.py").write_text("", "utf-8")
    packages = tmp_path / "site-packages"
    information = packages / "developed_words-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: developed-words\nVersion: 1.0\n", "utf-8"
    )
    (information / "entry_points.txt").write_text(ENTRY, "utf-8")
    about = {"dir_info": {"editable": True}, "url": folder.as_uri()}
    (information / "direct_url.json").write_text(json.dumps(about), "utf-8")
    (information / "RECORD").write_text(
        "developed_words-1.0.dist-info/METADATA,,\ndeveloped_words-1.0.dist-info/direct_url.json,,\n",
        "utf-8",
    )
    sys.path.append(str(packages))  # The fixture `where` takes it away.
    names = ("developed_words", "developed_helper")
    finder = FinderOfEditablePackage({name: folder / f"{name}.py" for name in names})
    sys.meta_path.append(finder)
    yield folder
    sys.meta_path.remove(finder)


def test_edited_source_of_a_package_installed_for_development_is_a_change(
    where: ProgramFolders, project: Path
) -> None:
    allow(where, "developed")
    assert state_of(where, "developed") is ExtensionState.ALLOWED
    assert len(load(AllowedExtensions(where)).running) == 1
    (project / "developed_words.py").write_text(HARMLESS + "# edited", "utf-8")
    assert state_of(where, "developed") is ExtensionState.CHANGED


def test_another_module_of_a_project_installed_for_development_is_a_change_too(
    where: ProgramFolders, project: Path
) -> None:
    allow(where, "developed")
    hidden = project / ".venv"
    hidden.mkdir()
    (hidden / "other.py").write_text("", "utf-8")
    assert state_of(where, "developed") is ExtensionState.ALLOWED
    (project / "developed_helper.py").write_text("edited = True", "utf-8")
    assert state_of(where, "developed") is ExtensionState.CHANGED


def test_a_project_with_too_many_files_is_not_allowed(
    where: ProgramFolders, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("helix_desktop.extensions.extension_files.MOST_ENTRIES_OF_PROJECT", 1)
    with pytest.raises(ActionRefused, match=r"installed for development from .* without -e"):
        allow(where, "developed")


def test_a_file_that_no_list_names_is_a_change(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    """A package of the folder that the extension needs, with a file put there by hand."""
    folder = where.extensions_folder
    write_extension("harmless", HARMLESS)
    metadata = folder / "extension_harmless-1.0.dist-info" / "METADATA"
    with metadata.open("a", encoding="utf-8") as file:
        file.write("Requires-Dist: needed\n")
    write_package(folder, "needed", "")
    (folder / "needed.py").unlink()
    (folder / "needed").mkdir()
    (folder / "needed" / "__init__.py").write_text("", "utf-8")
    record = folder / "needed-1.0.dist-info" / "RECORD"
    record.write_text("needed/__init__.py,,\nneeded-1.0.dist-info/METADATA,,\n", "utf-8")
    allow(where, "harmless")
    (folder / "needed" / "speedups.py").write_text("", "utf-8")
    assert state_of(where, "harmless") is ExtensionState.CHANGED


def test_a_listed_link_to_a_file_elsewhere_is_read(
    where: ProgramFolders, write_extension: WriteExtension, tmp_path: Path
) -> None:
    """So packages are installed with `uv pip install --link-mode symlink`."""
    write_extension("harmless", HARMLESS)
    folder = where.extensions_folder
    elsewhere = tmp_path / "cache" / "helper.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text("", "utf-8")
    (folder / "harmless_helper.py").symlink_to(elsewhere)
    record = folder / "extension_harmless-1.0.dist-info" / "RECORD"
    record.write_text("extension_harmless.py,,\nharmless_helper.py,,\n", "utf-8")
    allow(where, "harmless")
    elsewhere.write_text("changed = True", "utf-8")
    assert state_of(where, "harmless") is ExtensionState.CHANGED


def write_folder_package(where: ProgramFolders, write_extension: WriteExtension) -> Path:
    write_extension("harmless", "", target="harmless_words:extension")
    package = where.extensions_folder / "harmless_words"
    package.mkdir()
    (package / "__init__.py").write_text(HARMLESS, "utf-8")
    return package


def test_a_link_to_a_folder_within_a_package_is_not_allowed(
    where: ProgramFolders, write_extension: WriteExtension, tmp_path: Path
) -> None:
    package = write_folder_package(where, write_extension)
    allow(where, "harmless")
    (package / "more").symlink_to(tmp_path)
    assert state_of(where, "harmless") is ExtensionState.CHANGED
    with pytest.raises(ActionRefused, match="more is a link to a folder"):
        allow(where, "harmless")


def test_what_is_no_ordinary_file_is_not_allowed(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    package = write_folder_package(where, write_extension)
    os.mkfifo(package / "helper.py")
    with pytest.raises(ActionRefused, match=r"helper\.py is no ordinary file"):
        allow(where, "harmless")
    known = AllowedExtensions(where).find_extension("harmless")
    assert known.state is ExtensionState.OFF
    assert "helper.py is no ordinary file" in known.why


def test_an_archive_is_not_allowed(where: ProgramFolders, tmp_path: Path) -> None:
    archive = tmp_path / "words.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("developed_words.py", HARMLESS)
        file.writestr("developed-1.dist-info/METADATA", "Name: developed\nVersion: 1\n")
        file.writestr("developed-1.dist-info/entry_points.txt", ENTRY)
    sys.path.append(str(archive))
    with pytest.raises(ActionRefused, match=r"words\.zip.* is no ordinary file"):
        allow(where, "developed")


def test_one_that_loads_a_file_which_was_not_allowed_is_off(
    where: ProgramFolders, write_extension: WriteExtension, tmp_path: Path
) -> None:
    (tmp_path / "stray_module.py").write_text("", "utf-8")
    code = f"import sys\nsys.path.append({str(tmp_path)!r})\nimport stray_module\n"
    write_extension("harmless", code + HARMLESS)
    loaded = load(allow(where, "harmless"))
    assert loaded.running == []
    assert "stray_module.py, which is not among the files that were allowed" in loaded.complaints[0]


@pytest.mark.parametrize("description", CHANGES)
def test_every_way_to_change_what_runs_is_noticed(description: str) -> None:
    assert is_change_noticed(CHANGES[description])


def test_a_package_that_is_too_large_to_compare_at_each_start_is_not_allowed(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    package = write_folder_package(where, write_extension)
    with (package / "data.bin").open("wb") as file:
        file.truncate(10 << 30)
    with pytest.raises(ActionRefused, match="larger than 4 GB"):
        allow(where, "harmless")


def test_a_package_with_too_many_files_to_look_through_is_not_allowed(
    where: ProgramFolders, write_extension: WriteExtension, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = write_folder_package(where, write_extension)
    monkeypatch.setattr("helix_desktop.extensions.extension_files.MOST_ENTRIES_OF_PACKAGE", 20)
    for number in range(21):
        (package / f"{number}.txt").touch()
    with pytest.raises(ActionRefused, match="too many files to check"):
        allow(where, "harmless")
