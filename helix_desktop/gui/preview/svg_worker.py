"""Draws one SVG file as a PNG in a process that can be ended. A script.

    svg_worker.py FOLDERS      folders with the libraries, if any are needed

Standard input has the SVG, standard output the PNG, or nothing if it cannot be drawn. Qt's drawing of
an SVG opens the files that it names, and small files hold it for minutes, so references to anything
outside the file are taken out, and the system limits the process.
"""

import os
import re
import sys

SECONDS = 10
LONGEST_EDGE = 4_000
_OUTSIDE = re.compile(rb"""((?:xlink:)?href|src)\s*=\s*(["'])(?!#|data:)[^"']*\2""", re.IGNORECASE)
_IMPORTS = re.compile(rb"@import[^;]*;|url\(\s*[\"']?(?!#|data:)[^)]*\)", re.IGNORECASE)


def draw_standard_input() -> None:
    for folder in sys.argv[1].split(os.pathsep):
        if folder:
            sys.path.append(folder)
    _limit_drawing_process()
    svg = sys.stdin.buffer.read()
    svg = _OUTSIDE.sub(b"", svg)
    svg = _IMPORTS.sub(b"", svg)
    from PySide6.QtGui import QGuiApplication

    # Without an application, Qt has no fonts for the texts of the picture.
    application = QGuiApplication(["svg", "-platform", "offscreen"])
    png = _draw_svg(svg)
    sys.stdout.buffer.write(png)
    sys.stdout.buffer.flush()
    del application


def _draw_svg(svg: bytes) -> bytes:
    """Returns nothing for a file that is no picture."""
    from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QSize, Qt
    from PySide6.QtGui import QImage, QPainter
    from PySide6.QtSvg import QSvgRenderer

    renderer = QSvgRenderer(QByteArray(svg))
    size = renderer.defaultSize() * 2  # Sharp on screens with two pixels for one.
    if not renderer.isValid() or size.isEmpty():
        return b""
    if max(size.width(), size.height()) > LONGEST_EDGE:
        size.scale(QSize(LONGEST_EDGE, LONGEST_EDGE), Qt.AspectRatioMode.KeepAspectRatio)
    image = QImage(size, QImage.Format.Format_ARGB32_Premultiplied)
    image.fill(Qt.GlobalColor.white)
    painter = QPainter(image)
    renderer.render(painter)
    painter.end()

    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    image.save(buffer, "png")  # type: ignore[call-overload]  # Its annotations want bytes, Qt wants text.
    return bytes(buffer.data().data())


def _limit_drawing_process() -> None:
    if sys.platform == "win32":  # There, the parent process ends this process.
        return
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # It writes no file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    draw_standard_input()
