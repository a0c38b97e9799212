"""The files a Linux desktop wants beside a program: menu entry, icons, metadata, manual page."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path

HERE = Path(__file__).resolve().parent
ICONS = HERE.parent.parent / "resources/icons"
COMPONENT = "io.github.helix_desktop.helix_desktop"


def share(folder: Path, version: str, day: str) -> None:
    """Fill a `share` folder."""
    _place(
        folder / "applications/helix-desktop.desktop", (HERE / "helix-desktop.desktop").read_bytes()
    )
    metadata = _filled(HERE / "helix-desktop.metainfo.xml", version, day)
    _place(folder / f"metainfo/{COMPONENT}.metainfo.xml", metadata)
    manual = gzip.compress(_filled(HERE / "helix-desktop.1", version, day), 9, mtime=0)
    _place(folder / "man/man1/helix-desktop.1.gz", manual)
    for image in sorted(ICONS.glob("helix-*.png")):
        size = image.stem.rpartition("-")[2]
        _copy(image, folder / f"icons/hicolor/{size}x{size}/apps/helix-desktop.png")
    _copy(ICONS / "helix.svg", folder / "icons/hicolor/scalable/apps/helix-desktop.svg")


def _filled(template: Path, version: str, day: str) -> bytes:
    return (
        template.read_text(encoding="utf-8")
        .replace("@VERSION@", version)
        .replace("@DATE@", day)
        .encode()
    )


def _place(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def tidy(folder: Path, programs: set[Path]) -> None:
    """The rights Debian and common sense expect: programs and folders 755, everything else 644."""
    for path in folder.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path in programs else 0o644)
