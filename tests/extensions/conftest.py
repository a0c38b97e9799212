"""Packages that are installed by pip into a home's folder for extensions."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from helix_desktop.extensions import (
    added_actions,
    added_fold_strategies,
    added_search_sources,
    extension_loading,
    offered_kinds,
)
from helix_desktop.extensions.allowed_imports import AllowedPackagesFinder
from helix_desktop.histories import added_formats
from helix_desktop.program_folders import ProgramFolders, find_program_folders

PACKAGES = Path(__file__).parent / "packages"
Install = Callable[[Path], None]
WriteExtension = Callable[..., None]


@pytest.fixture
def where(tmp_path: Path) -> Iterator[ProgramFolders]:
    search_path = list(sys.path)
    modules = set(sys.modules)
    yield find_program_folders(tmp_path / "home")
    sys.path[:] = search_path
    for finder in list(sys.meta_path):
        if isinstance(finder, AllowedPackagesFinder):
            sys.meta_path.remove(finder)
    sys.pycache_prefix = None
    for name in set(sys.modules) - modules:
        del sys.modules[name]
    extension_loading.forget_loaded_extensions()
    # Of extensions that were loaded without the function that remembers them.
    for added in added_formats.list_added_formats():
        added_formats.remove_format(added.kind)
    offered_kinds._nouns_of_extensions.clear()
    added_search_sources._added.clear()
    added_actions._added.clear()
    added_fold_strategies._added.clear()


def install_with_pip(package: Path, folder: Path) -> None:
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    command += ["--no-build-isolation", "--no-index", "--upgrade", "--no-compile"]
    command += ["--target", str(folder), str(package)]
    subprocess.run(command, check=True, capture_output=True)


@pytest.fixture(scope="session")
def folder_by_package() -> dict[Path, Path]:
    """What pip has installed already, as it takes a second for each package."""
    return {}


@pytest.fixture
def install(
    where: ProgramFolders,
    folder_by_package: dict[Path, Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Install:
    """Build and install a package as a user of an installer does."""

    def install_package(package: Path) -> None:
        folder = where.extensions_folder
        if folder.exists():
            install_with_pip(package, folder)
            return
        if package not in folder_by_package:
            folder_by_package[package] = tmp_path_factory.mktemp("installed") / "extensions"
            install_with_pip(package, folder_by_package[package])
        shutil.copytree(folder_by_package[package], folder)

    return install_package


@pytest.fixture
def write_extension(where: ProgramFolders) -> WriteExtension:
    """Write an installed package with this code, without pip, which takes a second."""

    def write(name: str, code: str, version: str = "1.0", target: str = "") -> None:
        folder = where.extensions_folder
        module = f"extension_{name}"
        information = folder / f"{module}-{version}.dist-info"
        for old in folder.glob(f"{module}-*.dist-info"):
            for file in old.iterdir():
                file.unlink()
            old.rmdir()
        information.mkdir(parents=True)
        (folder / f"{module}.py").write_text(code, "utf-8")
        (information / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {module}\nVersion: {version}\n", "utf-8"
        )
        entry_point = target or f"{module}:extension"
        (information / "entry_points.txt").write_text(
            f"[helix_desktop.extensions]\n{name} = {entry_point}\n", "utf-8"
        )

    return write
