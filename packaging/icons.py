"""Draws the icon: `helix.svg` for 32 pixels and up, `helix-small.svg` for less, and a
PNG of each size from them.

Run after a change of the drawing: `.venv/bin/python packaging/icons.py`. The results
are kept in the repository, so that nothing but this script needs Qt to have an icon.
"""

from __future__ import annotations

import math
import os
import struct
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "resources/icons"
SIZES = (16, 22, 24, 32, 48, 64, 128, 256, 512)
SMALL_BELOW = 32
TILE = ("#12998c", "#0a5f58")
FRONT, BACK, RUNG = "#ffffff", "#f3b75b", "#bfe3de"


def strand(middle: float, reach: float, top: float, quarter: float, turns: int) -> str:
    """A sine wave down the page as a path: `turns` quarter waves of height `quarter`,
    beginning wide at the right.
    """
    near, far = 0.5123, 1.0023  # the cubic that fits a quarter of a sine best, in radians
    step = quarter / 1.5708
    path, side, y = f"M{middle + reach:.1f} {top:.1f}", 1.0, top
    for turn in range(turns):
        if turn % 2 == 0:  # from wide to the crossing
            path += (
                f" C{middle + side * reach:.1f} {y + (1.5708 - far) * step:.1f}"
                f" {middle + side * reach * near:.1f} {y + quarter - near * step:.1f} {middle:.1f} {y + quarter:.1f}"
            )
        else:  # from the crossing to wide, on the other side
            side = -side
            path += (
                f" C{middle + side * reach * near:.1f} {y + near * step:.1f}"
                f" {middle + side * reach:.1f} {y + far * step:.1f} {middle + side * reach:.1f} {y + quarter:.1f}"
            )
        y += quarter
    return path


def crossing(middle: float, reach: float, top: float, quarter: float, number: int) -> str:
    """The front strand around its `number`-th crossing: where it needs a gap to the
    strand behind.
    """
    at, points = top + quarter * (2 * number + 1), []
    for tenth in range(-6, 7):
        angle = tenth / 10
        side = -1 if number % 2 == 0 else 1
        points.append(
            f"{middle + side * reach * math.sin(angle):.1f} {at + angle / 1.5708 * quarter:.1f}"
        )
    return "M" + " L".join(points)


def drawing(*, reach: float, top: float, turns: int, width: float, rungs: tuple[float, ...]) -> str:
    """Two strands around the middle of a tile, the front one with a gap around it where
    it passes over the other.
    """
    quarter = (256 - 2 * top) / turns
    wave = strand(128, reach, top, quarter, turns)
    mirrored = 'transform="matrix(-1 0 0 1 256 0)"'
    gaps = " ".join(crossing(128, reach, top, quarter, number) for number in range(turns // 2))
    steps = "".join(
        f'<line x1="{128 - half:.0f}" x2="{128 + half:.0f}" y1="{y:.0f}" y2="{y:.0f}"/>'
        for y, half in ((y, reach - width * 0.9) for y in rungs)
    )
    return f"""<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 256 256" width="256" height="256">
<title>Helix Desktop</title>
<defs><linearGradient id="tile" x1="0" y1="0" x2="0" y2="1">
<stop offset="0" stop-color="{TILE[0]}"/><stop offset="1" stop-color="{TILE[1]}"/></linearGradient></defs>
<rect x="8" y="8" width="240" height="240" rx="54" fill="url(#tile)"/>
<g fill="none" stroke-linecap="round">
<g stroke="{RUNG}" stroke-width="{width * 0.62:.0f}">{steps}</g>
<path d="{wave}" {mirrored} stroke="{BACK}" stroke-width="{width:.0f}"/>
<path d="{gaps}" stroke="#0d7a70" stroke-width="{width * 1.7:.0f}" stroke-linecap="butt"/>
<path d="{wave}" stroke="{FRONT}" stroke-width="{width:.0f}"/>
</g>
</svg>
"""


def main() -> None:
    """Write both drawings, every PNG, and the Windows icon."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    large = drawing(reach=58, top=46, turns=4, width=23, rungs=(52, 128, 204))
    small = drawing(reach=62, top=54, turns=2, width=38, rungs=(66, 190))
    (FOLDER / "helix.svg").write_text(large, encoding="utf-8")
    (FOLDER / "helix-small.svg").write_text(small, encoding="utf-8")
    images = {size: render(small if size < SMALL_BELOW else large, size) for size in SIZES}
    for size, image in images.items():
        (FOLDER / f"helix-{size}.png").write_bytes(image)
    (FOLDER / "helix.ico").write_bytes(
        windows_icon({size: image for size, image in images.items() if size <= 256})
    )


def render(svg: str, size: int) -> bytes:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    from PySide6.QtCore import QBuffer, QByteArray, Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    image = QImage(size, size, QImage.Format.Format_ARGB32)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    QSvgRenderer(QByteArray(svg.encode())).render(painter)
    painter.end()
    kept = QByteArray()
    buffer = QBuffer(kept)
    buffer.open(QBuffer.OpenModeFlag.WriteOnly)
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # its stubs want bytes for the format
    return bytes(kept.data())


def windows_icon(images: dict[int, bytes]) -> bytes:
    """The .ico container: a directory of PNG images."""
    header, offset, entries = struct.pack("<HHH", 0, 1, len(images)), 6 + 16 * len(images), b""
    for size, image in images.items():
        entries += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(image), offset)
        offset += len(image)
    return header + entries + b"".join(images.values())


if __name__ == "__main__":
    main()
