"""Which extensions are installed, and which of them the user has allowed.

Finding an extension reads only the files of its package. No code of it runs before the user
has allowed it. What was allowed is that version with exactly these files: a package that has
changed since is off until the user allows it again.
"""

import hashlib
import importlib.metadata
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.errors import ActionRefused, InvalidInput, NotFound
from helix_desktop.extensions.allowed_imports import (
    canonical_package_name,
    list_with_dependencies,
)
from helix_desktop.extensions.extension_files import list_files_of_extension
from helix_desktop.extensions.package_descriptions import list_described_packages
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object, object_at, parse_object, text_at
from helix_desktop.program_folders import ProgramFolders

ENTRY_POINT_GROUP = "helix_desktop.extensions"
# All files of a package are found for each of its extensions.
MOST_EXTENSIONS_OF_PACKAGE = 20
_PIECE = 1 << 20
LONGEST_TEXT = 200
log = logging.getLogger(__name__)


class ExtensionState(StrEnum):
    OFF = "off"
    ALLOWED = "allowed"
    CHANGED = "changed"  # It was allowed, but its version or its files are others now.
    FAILED = "failed"  # It was allowed, and was switched off because it failed.


@dataclass(frozen=True, slots=True)
class InstalledExtension:
    """A package with an entry point. `files_sha256`: a digest of all of its files, and of those of
    the packages in the folder for extensions that it needs, which are named in `packages`.

    `target` names what the entry point stands for, such as "word_tools:extension". `refusal`: why
    it cannot be allowed, as its files could change unnoticed. `place`: the folder that the package
    is installed in. `unused_places`: where it is installed as well, which Python does not load.
    """

    name: str
    package: str
    version: str
    target: str
    files: tuple[Path, ...]
    files_sha256: str
    installed_at: float = 0.0
    packages: tuple[str, ...] = ()
    refusal: str = ""
    place: str = ""
    unused_places: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KnownExtension:
    """An installed extension and its state. `why`: why it failed, or why it cannot be allowed."""

    installed: InstalledExtension
    state: ExtensionState
    why: str = ""


class AllowedExtensions:
    """The user's decisions, in `extensions.json` of the settings folder."""

    def __init__(self, where: ProgramFolders) -> None:
        self.path = where.config / "extensions.json"
        self.folder = where.extensions_folder
        self.loading_folder = where.data / "extensions-loading"
        self.bytecode_folder = where.data / "extensions-bytecode"
        self.providers_file = where.providers_file

    def is_any_allowed(self) -> bool:
        """Whether packages need to be looked at. Without a decision, a start costs nothing."""
        return bool(self._read_decisions())

    def list_extensions(self) -> list[KnownExtension]:
        """Return all that are installed, in order of their names."""
        decisions = self._read_decisions()
        known: list[KnownExtension] = []
        for installed in find_installed_extensions(self.folder):
            decision = object_at(decisions, installed.name)
            known.append(_judge_decision(installed, decision))
        return known

    def list_in_order_of_consent(self) -> list[KnownExtension]:
        """Return those that the user has decided on. A newer one comes after the others, so it
        cannot take a name from one that the user allowed before.
        """
        known_by_name = {known.installed.name: known for known in self.list_extensions()}
        names_in_order = [name for name in self._read_decisions() if name in known_by_name]
        return [known_by_name[name] for name in names_in_order]

    def describe_those_never_allowed(self) -> str:
        """Return a sentence for who asks all extensions, or an empty text if none is off."""
        names: list[str] = []
        for known in self.list_extensions():
            if known.state is ExtensionState.OFF:
                names.append(known.installed.name)
        if not names:
            return ""
        return f"Extensions that are off were not asked: {', '.join(names)}. To use one, run `helix-desktop extension allow NAME`."

    def find_extension(self, name: str) -> KnownExtension:
        known_extensions = self.list_extensions()
        for known in known_extensions:
            if known.installed.name == name:
                return known
        names = ", ".join(known.installed.name for known in known_extensions)
        raise NotFound(
            f"There is no extension named {name!r}.", remedy=f"Installed: {names or 'none'}."
        )

    def allow_extension(self, extension: InstalledExtension) -> None:
        """Save that this version with these files may run. Raises ActionRefused if its files
        could change unnoticed.
        """
        check_can_be_allowed(extension)
        self._save_decision(
            extension.name,
            {
                "package": extension.package,
                "version": extension.version,
                "sha256": extension.files_sha256,
            },
        )

    def switch_off(self, name: str) -> None:
        self._save_decision(name, None)

    def switch_off_failed(self, extension: InstalledExtension, why: str) -> None:
        """Save that an extension failed, so that it is not started again by itself."""
        self._save_decision(
            extension.name,
            {
                "package": extension.package,
                "version": extension.version,
                "sha256": extension.files_sha256,
                "failed": why,
            },
        )

    def _read_decisions(self) -> Object:
        try:
            content = atomic_files.read_small_file(self.path)
        except (OSError, InvalidInput):  # Without a readable decision, nothing is allowed.
            return {}
        return parse_object(content) or {}

    def _save_decision(self, name: str, decision: Object | None) -> None:
        with atomic_files.hold_for_change(self.path):
            decisions = self._read_decisions()
            if decision is None:
                decisions.pop(name, None)
            else:
                decisions[name] = decision
            text = json.dumps(decisions, ensure_ascii=False, indent=1) + "\n"
            atomic_files.write_file_atomically(self.path, text, private=True)


def check_can_be_allowed(extension: InstalledExtension) -> None:
    """Raises ActionRefused for an extension whose files could change unnoticed."""
    if extension.refusal:
        raise ActionRefused(f"The extension {extension.name} was not allowed: {extension.refusal}.")


def describe_changed_extension(installed: InstalledExtension) -> str:
    sentences = [f"The extension {installed.name} has changed since you allowed it, so it is off."]
    if installed.unused_places:
        sentences.append(describe_several_places(installed))
    sentences.append(f"To allow it again, run `helix-desktop extension allow {installed.name}`.")
    return " ".join(sentences)


def describe_several_places(installed: InstalledExtension) -> str:
    others = " and ".join(installed.unused_places)
    return f"It is installed more than once: the one in {installed.place} is used, not the one in {others}."


def describe_failed_extension(installed: InstalledExtension, why: str) -> str:
    return f"The extension {installed.name} was switched off: {why}."


def _judge_decision(
    installed: InstalledExtension, decision: Mapping[str, object]
) -> KnownExtension:
    if not decision:
        return KnownExtension(installed, ExtensionState.OFF, installed.refusal)
    if installed.refusal:
        return KnownExtension(installed, ExtensionState.CHANGED, installed.refusal)
    is_same_package = text_at(decision, "package") == installed.package
    is_same_version = text_at(decision, "version") == installed.version
    has_same_files = text_at(decision, "sha256") == installed.files_sha256
    if not (is_same_package and is_same_version and has_same_files):
        return KnownExtension(installed, ExtensionState.CHANGED)
    why = text_at(decision, "failed")
    if why:
        return KnownExtension(installed, ExtensionState.FAILED, why)
    return KnownExtension(installed, ExtensionState.ALLOWED)


def find_installed_extensions(folder: Path) -> list[InstalledExtension]:
    """Return the packages that declare an extension, without importing any of them: those
    installed beside the program, and those in the folder for extensions.

    If two packages use one name, the one whose package name comes first has it.
    """
    search_path = sys.path + [str(folder)]
    packages_in_folder = _list_packages(folder)
    extensions: list[InstalledExtension] = []
    for distribution in list_described_packages(search_path):
        try:
            extensions += _extensions_of_package(distribution, folder, packages_in_folder)
        except Exception as error:  # noqa: BLE001 - a package's description can contain anything
            log.info("a package could not be examined: %s", type(error).__name__)
    return _choose_loaded_copies(extensions, search_path)


def _choose_loaded_copies(
    extensions: Sequence[InstalledExtension], search_path: Sequence[str]
) -> list[InstalledExtension]:
    """Return one extension of each name, in order of the names.

    Of one package in several places, Python loads the first, as it does with modules. In one place,
    the newest description counts: `pip install --target` leaves that of an earlier version.
    """
    place_numbers: dict[str, int] = {}
    for number, place in enumerate(search_path):
        place_numbers.setdefault(os.path.normpath(place), number)

    def precedence(extension: InstalledExtension) -> tuple[str, int, float]:
        place_number = place_numbers.get(extension.place, len(search_path))
        return extension.package, place_number, -extension.installed_at

    copies_by_name: dict[str, list[InstalledExtension]] = {}
    for extension in sorted(extensions, key=precedence):
        copies_by_name.setdefault(extension.name, []).append(extension)
    loaded: list[InstalledExtension] = []
    for name in sorted(copies_by_name):
        first, *others = copies_by_name[name]
        unused_places: dict[str, None] = {}
        for other in others:
            if other.package == first.package and other.place != first.place:
                unused_places[other.place] = None
        loaded.append(replace(first, unused_places=tuple(unused_places)))
    return loaded


def _list_packages(folder: Path) -> list[importlib.metadata.Distribution]:
    """Return the packages of the folder whose descriptions can be read."""
    packages = []
    for distribution in list_described_packages([str(folder)]):
        has_name = False
        with suppress(Exception):  # A package's description can contain anything.
            has_name = bool(distribution.metadata["Name"])
        if has_name:
            packages.append(distribution)
    return packages


def _extensions_of_package(
    distribution: importlib.metadata.Distribution,
    folder: Path,
    packages_in_folder: Sequence[importlib.metadata.Distribution],
) -> Iterator[InstalledExtension]:
    entry_points = distribution.entry_points.select(group=ENTRY_POINT_GROUP)
    if len(entry_points) > MOST_EXTENSIONS_OF_PACKAGE:
        raise InvalidInput(f"The package declares {len(entry_points):,} extensions.")
    for entry_point in entry_points:
        packages = list_with_dependencies(distribution, packages_in_folder)
        files: tuple[Path, ...] = ()
        refusal = ""
        try:
            files = list_files_of_extension(distribution, entry_point.value, packages, folder)
        except ActionRefused as error:
            refusal = " ".join(error.what.split())
        package_name = str(distribution.metadata["Name"])
        package_names: list[str] = []
        for package in packages:
            name = str(package.metadata["Name"])
            package_names.append(canonical_package_name(name))
        place = str(distribution.locate_file(""))
        yield InstalledExtension(
            _join_into_one_line(entry_point.name),
            _join_into_one_line(package_name),
            _join_into_one_line(distribution.version),
            _join_into_one_line(entry_point.value),
            files,
            _digest_of_files(entry_point.value, files),
            _time_of_installation(distribution),
            tuple(package_names),
            refusal,
            os.path.normpath(place),
        )


def _join_into_one_line(text: str) -> str:
    """No text of a package can add a line to the question whether it is allowed."""
    return " ".join(text.split())[:LONGEST_TEXT]


def _time_of_installation(distribution: importlib.metadata.Distribution) -> float:
    for listed in distribution.files or ():
        if listed.name == "METADATA":
            return Path(str(distribution.locate_file(listed))).stat().st_mtime
    return 0.0


def _digest_of_files(target: str, files: tuple[Path, ...]) -> str:
    digest = hashlib.sha256(f"{target}\0".encode("utf-8", "surrogateescape"))
    for path in files:
        with path.open("rb") as file:
            # A file of the system (a link leads there) may have no end, but then it has no size.
            size = os.fstat(file.fileno()).st_size
            path_and_size = f"{path}\0{size}\0"
            digest.update(path_and_size.encode("utf-8", "surrogateescape"))
            bytes_left = size
            while bytes_left > 0:
                piece = file.read(min(bytes_left, _PIECE))
                if not piece:
                    break
                digest.update(piece)
                bytes_left -= len(piece)
    return digest.hexdigest()
