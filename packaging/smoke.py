"""Imports and touches every feature, with the interpreter of a bundle: `helix-desktop
-I -S packaging/smoke.py`.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import helix_desktop

SKIPPED = ("_worker", ".jail", "__main__")  # scripts, run and not imported

EMPTY_PDF = (
    b"%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n"
    b"2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj\n"
    b"3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj\ntrailer<</Root 1 0 R>>"
)


def main() -> int:
    names = [each.name for each in pkgutil.walk_packages(helix_desktop.__path__, "helix_desktop.")]
    for name in names:
        if not name.endswith(SKIPPED):
            importlib.import_module(name)
    _libraries()
    _sharing()
    _processes()
    _window()
    print(f"{len(names)} modules, the libraries, the processes and a window: all there.")
    return 0


def _libraries() -> None:
    import httpx2
    import keyring.backends
    import markdown_it
    import mcp
    import mcp.server
    import pygments.lexers
    import tomlkit
    import uvicorn
    import zstandard

    from helix_desktop.providers.http_transport import trusted_certificates
    from helix_desktop.token_counting import TiktokenCounter

    httpx2.Client(verify=trusted_certificates()).close()
    httpx2.Client().close()
    sqlite3.connect(":memory:").execute("CREATE VIRTUAL TABLE t USING fts5(x)")
    pygments.lexers.get_lexer_by_name("python")
    markdown_it.MarkdownIt().render("# a")
    tomlkit.parse("a = 1")
    zstandard.ZstdDecompressor().decompress(zstandard.ZstdCompressor().compress(b"a"))
    if TiktokenCounter("cl100k_base").count_tokens("hello world") != 2 or not (
        keyring.backends and mcp and uvicorn
    ):
        sys.exit("The tokens are miscounted.")


def _sharing() -> None:
    """Both engines, as far as they go without one: they say that nobody answers."""
    from helix_desktop.errors import SharedStoreUnreachable
    from helix_desktop.store import workspace_link
    from helix_desktop.store.shared import row_encryption
    from helix_desktop.store.shared.store_address import StoreAddress

    key = row_encryption.new_workspace_key()
    for url in ("postgresql://me@127.0.0.1:9/none", "s3://none?endpoint=http://127.0.0.1:9"):
        connected = workspace_link.build_store_connection(StoreAddress(url, "key:secret"), key)
        if connected.seal.decrypt_row(b"name", connected.seal.encrypt_row(b"name", b"a")) != b"a":
            sys.exit("A sealed row does not open.")
        try:
            asyncio.run(connected.remote.run_in_thread(connected.remote.engine.describe_server))
        except SharedStoreUnreachable as error:
            print(error.what)


def _processes() -> None:
    """What starts this interpreter again: the readers of strangers' text, the sandbox,
    and the replay lab.
    """
    from helix_desktop.documents.document_kinds import PDF
    from helix_desktop.documents.document_reading import read_document_pages
    from helix_desktop.tools.fetch_tool import html_as_text
    from helix_desktop.tools.regex_search import GrepPiece, grep_pieces
    from helix_desktop.tools.sandbox import find_sandbox

    async def pieces() -> AsyncIterator[GrepPiece]:
        yield GrepPiece("page", b"one\ntwo\n")

    if asyncio.run(html_as_text(b"<p>one</p><script>no</script>")).strip() != "one":
        sys.exit("A page cannot be read.")
    if asyncio.run(read_document_pages("page.pdf", EMPTY_PDF, PDF)).unit_count != 1:
        sys.exit("A document cannot be read.")
    if asyncio.run(grep_pieces("tw.", pieces())).match_count != 1:
        sys.exit("Nothing can be searched.")
    with tempfile.TemporaryDirectory() as folder:
        print(asyncio.run(find_sandbox([Path(folder)], Path(folder))).kind)
        session = Path(folder, "session.json")
        session.write_text(
            json.dumps(
                [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
            )
        )
        command = [sys.executable, "-I", "-m", "helix_desktop", "replay", "--json", str(session)]
        json.loads(subprocess.run(command, capture_output=True, check=True).stdout)


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
    drawing = QByteArray((resources.resources_folder() / "icons/helix.svg").read_bytes())
    if not QSvgRenderer(drawing).isValid():
        sys.exit("The icon cannot be drawn.")


if __name__ == "__main__":
    sys.exit(main())
