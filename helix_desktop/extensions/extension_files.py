"""Which files the code of an extension comes from, found without running any of it.

A package lists the files that it installed, but its code can come from elsewhere: from a project
that was installed for development (`pip install -e`), from behind a link, from a file that was put
there later. What was allowed is exactly these files, so all of them are found, or the extension is
refused.
"""

import importlib.machinery
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum
from importlib.machinery import ModuleSpec
from importlib.metadata import Distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from helix_desktop.errors import ActionRefused
from helix_desktop.extensions.allowed_imports import NAMES_OF_NO_MODULE, AllowedPackagesFinder
from helix_desktop.json_values import object_at, parse_object, text_at

# A project with more files and folders than this is not looked through at each start.
MOST_ENTRIES_OF_PROJECT = 20_000
# A package is read whole when the program starts, as are those that it needs.
MOST_ENTRIES_OF_PACKAGE = 50_000
MOST_BYTES_OF_PACKAGES = 4 << 30
# Python loads modules from ordinary files with these. Archives have another loader.
_LOADERS_OF_FILES = (
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    importlib.machinery.ExtensionFileLoader,
)
_ENDINGS_OF_CODE = tuple(importlib.machinery.all_suffixes())
# Folders of a project that have many files and no module of it.
_NO_FOLDERS_OF_PROJECT = frozenset({"__pycache__", "node_modules"})


def list_files_of_extension(
    distribution: Distribution, target: str, packages: Sequence[Distribution], folder: Path
) -> tuple[Path, ...]:
    """Return the files of a package with an extension, and of the packages that it needs.

    `target` is what its entry point names. Raises ActionRefused if a file that it loads could
    change unnoticed.
    """
    paths: set[Path] = set()
    for package in packages:
        paths |= _files_of_package(package)
    module = find_module_without_running(top_module(target), folder)
    if module is not None:
        paths |= _files_of_module(module)
        paths |= _files_beside_module(distribution, module)
    files = tuple(_keep_files_of_code(sorted(paths)))
    total_bytes = sum(path.stat().st_size for path in files)
    if total_bytes > MOST_BYTES_OF_PACKAGES:
        raise ActionRefused(
            f"its files, and those of the packages that it needs, are larger than {MOST_BYTES_OF_PACKAGES >> 30} GB"
        )
    return files


def top_module(target: str) -> str:
    """Return the module of the top level in a target such as "words.tools:extension"."""
    module = target.partition(":")[0]
    return module.partition(".")[0].strip()


def find_module_without_running(name: str, folder: Path) -> ModuleSpec | None:
    """Return where Python would load a module of the top level from, and the folder for extensions
    last, as when an extension is loaded.
    """
    if not name:
        return None
    for finder in sys.meta_path:
        if isinstance(finder, AllowedPackagesFinder):
            continue  # It finds only what has been allowed already.
        # A package that was installed for development brings a finder of its own.
        find_spec = getattr(finder, "find_spec", None)
        if find_spec is None:
            continue
        found: ModuleSpec | None = find_spec(name, None)
        if found is not None:
            return found
    return importlib.machinery.PathFinder.find_spec(name, [str(folder)])


def _files_of_package(package: Distribution) -> set[Path]:
    """Return what a package lists, within the place of its installation, and all that Python would
    load by the names of its modules: its list can name every file of the system, of which some
    have no end, and need not name every file of its folders.
    """
    place = _place_of_package(package)
    names: set[str] = set()
    paths: set[Path] = set()
    for listed in package.files or ():
        # A link is not resolved: what it leads to is loaded, wherever it is.
        located_file = str(package.locate_file(listed))
        path = Path(os.path.normpath(located_file))
        if path.is_relative_to(place):
            paths.add(path)
            first_part = path.relative_to(place).parts[0]
            module_name, _, _ = first_part.partition(".")
            names.add(module_name)
        elif path.is_relative_to(sys.prefix):
            paths.add(path)
    for name in names - NAMES_OF_NO_MODULE:
        module = importlib.machinery.PathFinder.find_spec(name, [str(place)])
        if module is not None:
            paths |= _files_of_module(module)
    return paths


def _place_of_package(package: Distribution) -> Path:
    located_folder = str(package.locate_file(""))
    return Path(os.path.normpath(located_folder))


def _files_of_module(module: ModuleSpec) -> set[Path]:
    paths: set[Path] = set()
    if isinstance(module.loader, _LOADERS_OF_FILES):
        file = str(module.origin)
        paths.add(Path(file))
    elif module.has_location:
        raise ActionRefused(f"{module.origin} is no ordinary file")
    for code_folder in module.submodule_search_locations or ():
        code_files = _files_below(Path(code_folder))
        paths.update(code_files)
    return paths


def _files_beside_module(distribution: Distribution, module: ModuleSpec) -> set[Path]:
    """Return the code of the project that a package was installed from for development.

    Its list of files does not name the modules of the project, which import each other.
    """
    place = _place_of_package(distribution)
    projects: set[Path] = set()
    for code_folder in _folders_with_module(module):
        if code_folder != place:
            projects.add(code_folder)
    project = _editable_project(distribution)
    if project is not None:
        projects.add(project)
    paths: set[Path] = set()
    for folder in projects:
        paths |= _code_of_project(folder)
    return paths


def _folders_with_module(module: ModuleSpec) -> Iterator[Path]:
    """Yield the folders in which a module of the top level was found."""
    for package_folder in module.submodule_search_locations or ():
        yield Path(os.path.normpath(package_folder)).parent
    is_package = module.submodule_search_locations is not None
    if module.has_location and module.origin and not is_package:
        yield Path(os.path.normpath(module.origin)).parent


def _editable_project(distribution: Distribution) -> Path | None:
    """Return the folder that `pip install -e` has noted for a package."""
    about = parse_object(distribution.read_text("direct_url.json") or "") or {}
    if object_at(about, "dir_info").get("editable") is not True:
        return None
    address = urlsplit(text_at(about, "url"))
    if address.scheme != "file":
        return None
    return Path(os.path.normpath(url2pathname(address.path)))


def _code_of_project(project: Path) -> set[Path]:
    """Return the modules of a project, which can have much else in its folder."""
    paths: set[Path] = set()
    entries_seen = 0
    folders = [project]
    while folders:
        entries = _list_entries_of_code_folder(folders.pop())
        entries_seen += len(entries)
        if entries_seen > MOST_ENTRIES_OF_PROJECT:
            raise ActionRefused(
                f"it is installed for development from {project}, which contains too many files to check; install it without -e"
            )
        is_environment = any(entry.name == "pyvenv.cfg" for entry in entries)
        if is_environment:
            continue
        for entry in entries:
            if entry.name.startswith(".") or entry.name in _NO_FOLDERS_OF_PROJECT:
                continue
            kind = _kind_of_code_entry(entry)
            if kind is _CodeEntryKind.FOLDER:
                folders.append(Path(entry.path))
            elif kind is _CodeEntryKind.FILE and entry.name.endswith(_ENDINGS_OF_CODE):
                paths.add(Path(entry.path))
    return paths


def _files_below(folder: Path) -> set[Path]:
    """Return all files of a folder with code, since code also reads files that are no modules."""
    paths: set[Path] = set()
    entries_seen = 0
    folders = [folder]
    while folders:
        entries = _list_entries_of_code_folder(folders.pop())
        entries_seen += len(entries)
        if entries_seen > MOST_ENTRIES_OF_PACKAGE:
            raise ActionRefused(f"{folder} contains too many files to check")
        for entry in entries:
            kind = _kind_of_code_entry(entry)
            if kind is _CodeEntryKind.FOLDER:
                folders.append(Path(entry.path))
            elif kind is _CodeEntryKind.FILE:
                paths.add(Path(entry.path))
    return paths


def _list_entries_of_code_folder(folder: Path) -> list[os.DirEntry[str]]:
    with suppress(OSError), os.scandir(folder) as entries:
        return list(entries)
    return []  # A finder can name folders that do not exist.


class _CodeEntryKind(Enum):
    FOLDER = "folder"
    FILE = "file"
    NEVER_LOADED = "never loaded"


def _kind_of_code_entry(entry: os.DirEntry[str]) -> _CodeEntryKind:
    """Return what an entry of a folder with code is. Raises ActionRefused for what could be loaded
    and has no content that can be compared.
    """
    if entry.is_dir(follow_symlinks=False):
        return _CodeEntryKind.FOLDER
    if entry.is_file():
        return _CodeEntryKind.FILE
    # Python imports from no folder with another name.
    if entry.is_dir() and entry.name.isidentifier():
        raise ActionRefused(
            f"{entry.path} is a link to a folder, so its files can change unnoticed"
        )
    if entry.name.endswith(_ENDINGS_OF_CODE):
        raise ActionRefused(f"{entry.path} is no ordinary file")
    return _CodeEntryKind.NEVER_LOADED


def _keep_files_of_code(paths: Sequence[Path]) -> Iterator[Path]:
    for path in paths:
        # Python writes these again as it likes, and those of extensions are never read.
        is_compiled = "__pycache__" in path.parts and path.suffix == ".pyc"
        if path.is_file() and not is_compiled and path.name != "RECORD":
            yield path
