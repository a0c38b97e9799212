"""Makes allowed packages of the folder for extensions importable, and nothing else there.

The folder is not on Python's path. Libraries try to import others that may be missing, and load
what registers with them by an entry point, so any package on the path could run unasked.
"""

import importlib.machinery
import importlib.metadata
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.metadata import Distribution, DistributionFinder, MetadataPathFinder
from pathlib import Path
from types import ModuleType

from helix_desktop import atomic_files

# pip puts the programs of all packages into one folder. They are not imported.
NAMES_OF_NO_MODULE = frozenset({"bin", "Scripts", "__pycache__"})
_NAME_OF_REQUIREMENT = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)")


class AllowedPackagesFinder(MetaPathFinder):
    """What Python asks for a module that it found nowhere else."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._modules: set[str] = set()
        self._packages: set[str] = set()

    def allow_modules(self, modules: Iterable[str], packages: Iterable[str]) -> None:
        """Let these modules of the top level be imported, and these packages name their version."""
        self._modules.update(modules)
        self._packages.update(packages)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        # Modules inside a package are found by the package's own path.
        if path is not None or fullname not in self._modules:
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [str(self._folder)], target)

    def find_distributions(
        self, context: DistributionFinder.Context | None = None
    ) -> Iterable[Distribution]:
        """Find an allowed package by its name. Whoever looks for all packages finds none here."""
        if context is None or context.name is None:
            return ()
        if canonical_package_name(context.name) not in self._packages:
            return ()
        in_folder = DistributionFinder.Context(name=context.name, path=[str(self._folder)])
        return MetadataPathFinder.find_distributions(in_folder)


def start_finding(finder: AllowedPackagesFinder, bytecode_folder: Path) -> None:
    """Ask this finder last. From now on, Python keeps bytecode in the program's own folder: what
    lies beside a package's source need not be made from it, and is not part of what was allowed.
    """
    atomic_files.ensure_private_folder(bytecode_folder)
    sys.pycache_prefix = str(bytecode_folder)
    if finder not in sys.meta_path:
        sys.meta_path.append(finder)


def list_with_dependencies(
    distribution: Distribution, packages_in_folder: Sequence[Distribution]
) -> list[Distribution]:
    """Return a package and those of the folder that it needs, and that they need."""
    packages_by_name: dict[str, list[Distribution]] = {}
    for other in packages_in_folder:
        name_of_other = canonical_package_name(str(other.metadata["Name"]))
        packages_by_name.setdefault(name_of_other, []).append(other)
    found = [distribution]
    names = {canonical_package_name(str(distribution.metadata["Name"]))}
    for package in found:  # It grows while it is read.
        for requirement in package.requires or ():
            match = _NAME_OF_REQUIREMENT.match(requirement)
            if match is None:
                continue
            name = canonical_package_name(match[1])
            if name in names:
                continue
            names.add(name)
            found.extend(packages_by_name.get(name, ()))
    return found


def canonical_package_name(name: str) -> str:
    """Return the name as packages are compared: `Word.Tools` and `word-tools` are one."""
    return re.sub(r"[-_.]+", "-", name).lower()


def modules_of_files(files: Iterable[Path], folder: Path) -> list[str]:
    """Return the modules of the top level to which files in the folder belong."""
    modules: dict[str, None] = {}
    for path in files:
        if not path.is_relative_to(folder):
            continue
        first_part = path.relative_to(folder).parts[0]
        name, _, _ = first_part.partition(".")
        if name not in NAMES_OF_NO_MODULE:
            modules[name] = None
    return list(modules)
