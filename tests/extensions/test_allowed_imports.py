"""What is allowed is the code that runs: neither bytecode beside it, nor another package of the
folder, nor a changed dependency gets into the program.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import py_compile
import sys
from pathlib import Path

import pytest

from helix_desktop.extensions.extension_loading import LoadedExtensions
from helix_desktop.extensions.installed_extensions import AllowedExtensions, ExtensionState
from helix_desktop.program_folders import ProgramFolders
from tests.extensions.conftest import WriteExtension
from tests.extensions.test_installed_extensions import state_of

HARMLESS = """
from helix_desktop.extensions.extension_interfaces import Extension
extension = Extension("Harmless")
"""
LEAVES_A_MARK = """
import pathlib
pathlib.Path(__file__).with_name("hostile-code-ran").touch()
"""


def hostile_code_ran(where: ProgramFolders) -> bool:
    return (where.extensions_folder / "hostile-code-ran").exists()


def write_package(
    folder: Path, name: str, code: str, metadata: str = "", entries: str = ""
) -> None:
    information = folder / f"{name}-1.0.dist-info"
    information.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(code, "utf-8")
    (information / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n{metadata}", "utf-8"
    )
    (information / "RECORD").write_text(f"{name}.py,,\n{name}-1.0.dist-info/METADATA,,\n", "utf-8")
    (information / "entry_points.txt").write_text(entries, "utf-8")


def allow(where: ProgramFolders, name: str) -> AllowedExtensions:
    extensions = AllowedExtensions(where)
    extensions.allow_extension(extensions.find_extension(name).installed)
    return extensions


def load(extensions: AllowedExtensions) -> LoadedExtensions:
    loaded = LoadedExtensions(extensions)
    loaded.load_allowed()
    return loaded


@pytest.mark.parametrize(
    "mode",
    [py_compile.PycInvalidationMode.UNCHECKED_HASH, py_compile.PycInvalidationMode.TIMESTAMP],
)
def test_bytecode_that_a_package_brings_is_never_run(
    where: ProgramFolders,
    write_extension: WriteExtension,
    tmp_path: Path,
    mode: py_compile.PycInvalidationMode,
) -> None:
    write_extension("harmless", HARMLESS)
    source = where.extensions_folder / "extension_harmless.py"
    extensions = allow(where, "harmless")
    other = tmp_path / "other.py"
    other.write_text(LEAVES_A_MARK + HARMLESS, "utf-8")
    compiled = Path(importlib.util.cache_from_source(str(source)))
    py_compile.compile(str(other), str(compiled), str(source), invalidation_mode=mode)
    if mode is py_compile.PycInvalidationMode.TIMESTAMP:
        content = bytearray(compiled.read_bytes())
        content[8:12] = int(source.stat().st_mtime).to_bytes(4, "little")
        content[12:16] = source.stat().st_size.to_bytes(4, "little")
        compiled.write_bytes(content)
    assert len(load(extensions).running) == 1
    assert not hostile_code_ran(where)


def test_a_package_that_is_not_allowed_takes_no_module_that_a_library_looks_for(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    """Libraries try to import others that may be missing, and load those that register with them."""
    write_extension("harmless", HARMLESS)
    folder = where.extensions_folder
    registered = "[keyring.backends]\nhostile = hostile_backend\n"
    write_package(folder, "hostile_backend", LEAVES_A_MARK, entries=registered)
    write_package(folder, "sometimes_missing", LEAVES_A_MARK)
    load(allow(where, "harmless"))
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("sometimes_missing")
    backends = importlib.metadata.entry_points(group="keyring.backends")
    assert "hostile" not in backends.names
    assert not hostile_code_ran(where)


def test_a_dependency_in_the_folder_is_part_of_what_was_allowed(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    folder = where.extensions_folder
    write_package(folder, "needed_below", "value = 1")
    write_package(
        folder, "needed_first", "import needed_below", "Requires-Dist: needed-below (>=1)\n"
    )
    write_extension("harmless", "import needed_first\n" + HARMLESS)
    metadata = folder / "extension_harmless-1.0.dist-info" / "METADATA"
    with metadata.open("a", encoding="utf-8") as file:
        file.write('Requires-Dist: Needed.First>=1; python_version > "3"\nRequires-Dist: no-such\n')
    extensions = allow(where, "harmless")
    assert len(load(extensions).running) == 1
    (folder / "needed_below.py").write_text(LEAVES_A_MARK, "utf-8")
    assert state_of(where, "harmless") is ExtensionState.CHANGED
    assert not hostile_code_ran(where)


def test_an_extension_finds_its_own_version(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    code = "import importlib.metadata\nassert importlib.metadata.version('extension_harmless') == '1.0'"
    write_extension("harmless", code + HARMLESS)
    assert load(allow(where, "harmless")).complaints == []


def test_files_that_a_package_claims_elsewhere_are_not_read(
    where: ProgramFolders, write_extension: WriteExtension
) -> None:
    """Some files of the system have no end."""
    write_extension("endless", HARMLESS)
    record = where.extensions_folder / "extension_endless-1.0.dist-info" / "RECORD"
    up = "../" * 30
    claimed = [f"{up}proc/self/pagemap", f"{up}etc/passwd", "/proc/self/pagemap", f"{up}dev/zero"]
    record.write_text("".join(f"{path},,\n" for path in claimed), "utf-8")
    known = AllowedExtensions(where).find_extension("endless")
    places = {path.resolve() for path in known.installed.files}
    # The tests' own folder may lie in memory, below /dev.
    folder = where.extensions_folder.resolve()
    assert not [path for path in places if not path.is_relative_to(folder)]


@pytest.mark.parametrize("target", [":x", ".x:y", "..:.", "/:x", " :x", "\x00:x"])
def test_a_target_without_a_module_names_no_files_of_others(
    where: ProgramFolders, write_extension: WriteExtension, target: str
) -> None:
    write_extension("strange", "", target=target)
    found = [known.installed for known in AllowedExtensions(where).list_extensions()]
    for installed in found:
        assert len(installed.files) <= 2
    assert sys.modules.get("extension_strange") is None
