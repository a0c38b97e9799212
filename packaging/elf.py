"""Linux's shared libraries: which needs which, which nothing needs, and whose package a
missing one is.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

MAGIC = b"\x7fELF"


def files(folder: Path) -> list[Path]:
    """Every ELF file below the folder, links left out."""
    return [
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink() and _is_elf(path)
    ]


def _is_elf(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(4) == MAGIC


def needed(path: Path) -> set[str]:
    """The names of the libraries it is linked to."""
    said = subprocess.run(
        ["readelf", "-dW", str(path)], capture_output=True, text=True, check=True
    ).stdout
    return set(re.findall(r"\(NEEDED\).*\[(.+?)\]", said))


def strip(folder: Path) -> None:
    """Take out what only a debugger and a linker want."""
    for path in files(folder):
        subprocess.run(
            [
                "strip",
                "--strip-unneeded",
                "--remove-section=.comment",
                "--enable-deterministic-archives",
                str(path),
            ],
            check=True,
        )


def drop_unreachable(inside: Path) -> list[str]:
    """Remove the libraries (lib*.so*) that no other file is linked to, again and again;
    Python's own stays.
    """
    dropped: list[str] = []
    while True:
        wanted = set().union(*(needed(path) for path in files(inside)))
        loose = [
            path
            for path in _libraries(inside)
            if path.name not in wanted and not path.name.startswith("libpython")
        ]
        if not loose:
            return dropped
        for path in loose:
            path.unlink()
            dropped.append(path.name)


def _libraries(inside: Path) -> Iterable[Path]:
    folders = (inside, inside / "PySide6", inside / "PySide6/Qt/lib", inside / "shiboken6")
    return [path for folder in folders for path in folder.glob("lib*.so*")]


def packages(names: Iterable[str]) -> dict[str, str]:
    """The Debian package of each library, as installed here."""
    listed = subprocess.run(["ldconfig", "-p"], capture_output=True, text=True, check=True).stdout
    found: dict[str, str] = {}
    for name in sorted(names):
        if (
            at := re.search(
                rf"\t{re.escape(name)} .*x86-64.* => (\S+)|\t{re.escape(name)} .* => (\S+)", listed
            )
        ) is None:
            continue
        owner = _owner(Path(at[1] or at[2]))
        if owner:
            found[name] = owner
    return found


def _owner(path: Path) -> str:
    """Merged /usr: dpkg may know the file under either name."""
    resolved = path.resolve()
    for name in dict.fromkeys(
        (str(resolved), str(resolved).removeprefix("/usr"), f"/usr{resolved}", str(path))
    ):
        said = subprocess.run(
            ["dpkg-query", "-S", name], capture_output=True, text=True, check=False
        )
        if said.returncode == 0:
            return said.stdout.partition(":")[0].partition(",")[0]
    return ""
