"""Imports and touches every feature, with the interpreter of a bundle: `helix-desktop -I -S packaging/smoke.py`."""

from __future__ import annotations

import importlib
import pkgutil
import sqlite3
import ssl
import sys

import helix_desktop

SKIPPED = ("_worker", ".jail", "__main__")  # scripts, run and not imported


def main() -> int:
    names = [each.name for each in pkgutil.walk_packages(helix_desktop.__path__, "helix_desktop.")]
    for name in names:
        if not name.endswith(SKIPPED):
            importlib.import_module(name)
    _libraries()
    _window()
    print(f"{len(names)} modules, the libraries and a window: all there.")
    return 0


def _libraries() -> None:
    import keyring.backends
    import markdown_it
    import mcp
    import mcp.server
    import pygments.lexers
    import tomlkit
    import uvicorn
    import zstandard

    from helix_desktop.tokens import Counter

    ssl.create_default_context().load_default_certs()
    sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE t USING fts5(x)")
    pygments.lexers.get_lexer_by_name("python")
    markdown_it.MarkdownIt().render("# a")
    tomlkit.parse("a = 1")
    zstandard.ZstdDecompressor().decompress(zstandard.ZstdCompressor().compress(b"a"))
    if Counter("cl100k_base").count("hello world") != 2 or not (keyring.backends and mcp and uvicorn):
        sys.exit("The tokens are miscounted.")


def _window() -> None:
    from PySide6.QtCore import QByteArray
    from PySide6.QtGui import QImageReader
    from PySide6.QtSvg import QSvgRenderer
    from PySide6.QtWidgets import QApplication, QLabel

    from helix_desktop import resources

    application = QApplication([])
    label = QLabel("here")
    label.show()
    application.processEvents()
    formats = {bytes(each.data()).decode() for each in QImageReader.supportedImageFormats()}
    if missing := {"png", "jpg", "gif", "webp", "svg"} - formats:
        sys.exit(f"Pictures cannot be shown: {missing}")
    drawing = QByteArray((resources.folder() / "icons/helix.svg").read_bytes())
    if not QSvgRenderer(drawing).isValid():
        sys.exit("The icon cannot be drawn.")


if __name__ == "__main__":
    sys.exit(main())
