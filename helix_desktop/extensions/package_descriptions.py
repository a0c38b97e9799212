"""Reads what packages say of themselves, before anybody has allowed anything of them.

Python's own reading of these files waits for a pipe for ever, and reads a device without end.
"""

import importlib.metadata
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PathDistribution
from pathlib import Path

from helix_desktop import atomic_files
from helix_desktop.errors import InvalidInput

# Each line may be a file, or a package to look for. Few packages have ten thousand files.
MOST_LINES = 100_000
_ENDINGS = (".dist-info", ".egg-info")


class DescribedPackage(PathDistribution):
    """A package of which only ordinary files are read, within limits. InvalidInput for others."""

    def __init__(self, information: Path) -> None:
        super().__init__(information)
        self._information = information

    def read_text(self, filename: str) -> str | None:  # type: ignore[override]
        try:
            content = atomic_files.read_small_file(self._information / filename)
        except OSError:  # Most files are missing from most packages.
            return None
        if content.count(b"\n") > MOST_LINES:
            raise InvalidInput(f"{filename} of a package has more than {MOST_LINES:,} lines.")
        return content.decode("utf-8")


def list_described_packages(search_path: Sequence[str]) -> Iterator[Distribution]:
    """Yield the packages that are installed in these places, without reading anything of them."""
    for place in search_path:
        folder = Path(place)
        if not folder.is_dir():
            # An archive. Python itself has read it already, if it is on the path.
            yield from importlib.metadata.distributions(path=[place])
            continue
        try:
            entries = sorted(folder.iterdir())
        except OSError:
            continue
        for entry in entries:
            if entry.name.lower().endswith(_ENDINGS):
                yield DescribedPackage(entry)
