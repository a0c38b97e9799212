"""Showing a file of this content in the preview."""

from __future__ import annotations

import asyncio
from pathlib import Path

from helix_desktop.gui.preview.preview_pane import PreviewPane
from tests.gui.fake_desk import FakeWorkbench


def show(pane: PreviewPane, folder: Path, name: str, content: bytes, line: int = 0) -> None:
    (folder / name).write_bytes(content)
    bench = FakeWorkbench("one", "#0d7d74", folder)
    file = asyncio.run(bench.read_file_for_preview("", name))
    pane.show_file(bench, file, line, line)
