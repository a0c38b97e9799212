#!/usr/bin/env python3
"""Makes the installers: `dev.py build bundle|deb|run|windows|macos|all [--version]`;
what it made lies in dist/.

The same commit gives the same files where the tools allow it: every time is the
commit's. Signing happens where a key is given in the environment and is skipped, with a
line, where there is none.
"""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import bundle
import notices

ROOT = bundle.ROOT
DIST = ROOT / "dist"


@dataclass(frozen=True)
class Release:
    """What is being built. `epoch`: the time everything in it is stamped with."""

    version: str
    epoch: int

    @property
    def day(self) -> str:
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%d")

    @property
    def time(self) -> str:
        return datetime.fromtimestamp(self.epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def main() -> int:
    targets: dict[str, Callable[[Release], list[Path]]] = {
        "bundle": _bundle, "deb": _deb, "run": _run, "windows": _windows, "macos": _macos,
    }  # fmt: skip
    release = Release(_version(), _epoch())
    asked = sys.argv[1:] or ["all"]
    if "--version" in asked:
        print(release.version)
        return 0
    if asked == ["all"]:
        asked = (
            ["deb", "run", "windows"]
            if sys.platform == "linux"
            else ["macos"]
            if sys.platform == "darwin"
            else ["windows"]
        )
    if unknown := set(asked) - targets.keys():
        sys.exit(
            f"There is no target {', '.join(sorted(unknown))}. Available: {', '.join(targets)}."
        )
    os.environ["SOURCE_DATE_EPOCH"] = str(release.epoch)
    DIST.mkdir(exist_ok=True)
    for target in asked:
        for path in targets[target](release):
            _sign(path)
    _accompany(release)
    return 0


def _version() -> str:
    text = (ROOT / "helix_desktop/__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        sys.exit("helix_desktop/__init__.py names no version.")
    return found[1]


def _epoch() -> int:
    """The commit's time; an earlier say is obeyed."""
    if given := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(given)
    said = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return int(said.stdout) if said.returncode == 0 and said.stdout.strip() else 1_700_000_000


def _bundle(_: Release) -> list[Path]:
    folder = bundle.make()
    (folder / "LICENSES.txt").write_text(notices.licences(_shipped()), encoding="utf-8")
    print(f"{folder}: {_size(folder):,} bytes")
    return []


def _shipped() -> set[str]:
    """What the run lock names and is installed here, which is what a bundle can hold."""
    return notices.locked(ROOT / "packaging/requirements.lock")


def _deb(release: Release) -> list[Path]:
    from linux import deb

    return [deb.make(_fresh_bundle(release), release.version, release.day, DIST)]


def _run(release: Release) -> list[Path]:
    from linux import run

    return [run.make(_fresh_bundle(release), release.version, release.day, DIST)]


_made: list[Path] = []


def _fresh_bundle(release: Release) -> Path:
    """Made once for all targets of one call; each target works on a copy."""
    if not _made:
        _bundle(release)
        _made.append(bundle.WORK / "bundle" / bundle.NAME)
    return _made[0]


def _windows(release: Release) -> list[Path]:
    from windows import installer

    return installer.make(release.version, release.epoch, DIST)


def _macos(release: Release) -> list[Path]:
    from macos import image

    return image.make(_fresh_bundle(release), release.version, DIST)


def _sign(path: Path) -> None:
    """A detached GPG signature beside the file. Authenticode and notarisation are done
    while building.
    """
    key = os.environ.get("HELIX_GPG_KEY")
    if not key:
        print(f"{path.name}: not signed (HELIX_GPG_KEY names no key)")
        return
    command = [
        "gpg",
        "--batch",
        "--yes",
        "--local-user",
        key,
        "--armor",
        "--detach-sign",
        str(path),
    ]
    subprocess.run(command, check=True)


def _accompany(release: Release) -> None:
    """Checksums of everything in dist/, the licences, and the bill of materials."""
    made = [
        path
        for path in sorted(DIST.iterdir())
        if path.suffix in {".deb", ".run", ".exe", ".dmg", ".zip"}
    ]
    hashes = {path.name: notices.sha256(path) for path in made}
    shipped = _shipped()
    suffix = f"{sys.platform}-{platform.machine().lower()}"
    bill = notices.bill_of_materials(shipped, release.version, release.time, hashes)
    (DIST / f"helix-desktop-{release.version}-{suffix}.cdx.json").write_text(bill, encoding="utf-8")
    (DIST / f"helix-desktop-{release.version}-{suffix}.licenses.txt").write_text(
        notices.licences(shipped), encoding="utf-8"
    )
    lines = "".join(f"{digest}  {name}\n" for name, digest in hashes.items())
    (DIST / "SHA256SUMS").write_text(lines, encoding="utf-8")
    print(lines, end="")


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*"))


if __name__ == "__main__":
    sys.exit(main())
