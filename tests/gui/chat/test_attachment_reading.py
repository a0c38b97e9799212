from __future__ import annotations

import os
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QUrl
from PySide6.QtGui import QColor, QImage

from helix_desktop.engine.facts import Attachment
from helix_desktop.errors import HelixError
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.chat.attachment_reading import AttachmentReader
from tests.gui.fake_desk import FakeWorkbench


def made(
    doing: BackgroundRunner, tmp_path: Path
) -> tuple[AttachmentReader, FakeWorkbench, list[Attachment], list[HelixError]]:
    bench = FakeWorkbench("one", "#0d7d74", tmp_path)
    attached = list[Attachment]()
    errors = list[HelixError]()
    doing.failed.connect(errors.append)
    reader = AttachmentReader(doing, lambda: bench, lambda: "", lambda: attached.extend)
    return reader, bench, attached, errors


def test_files_are_read_and_put_into_the_cache(doing: BackgroundRunner, tmp_path: Path) -> None:
    attaching, bench, attached, errors = made(doing, tmp_path)
    (tmp_path / "notes.md").write_text("remember")
    attaching.attach_files([tmp_path / "notes.md"])
    assert bench.attached == [("notes.md", b"remember")]
    assert [(each.name, each.stored.media_type) for each in attached] == [
        ("notes.md", "text/plain")
    ]
    assert errors == []


def test_what_cannot_be_attached_is_said_and_the_rest_comes(
    doing: BackgroundRunner, tmp_path: Path
) -> None:
    attaching, _, attached, errors = made(doing, tmp_path)
    (tmp_path / "good.txt").write_text("x")
    attaching.attach_files([tmp_path, tmp_path / "gone.txt", tmp_path / "good.txt"])
    assert [error.what for error in errors] == [
        f"{tmp_path.name} is a folder.",
        "gone.txt could not be read: No such file or directory.",
    ]
    assert [each.name for each in attached] == ["good.txt"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes among files here")
def test_a_pipe_is_refused_and_not_waited_for(doing: BackgroundRunner, tmp_path: Path) -> None:
    attaching, _, attached, errors = made(doing, tmp_path)
    os.mkfifo(tmp_path / "pipe")
    attaching.attach_files([tmp_path / "pipe"])
    assert [error.what for error in errors] == [
        "pipe is a pipe or a device and cannot be attached."
    ]
    assert attached == []


def test_a_damaged_picture_is_not_attached(doing: BackgroundRunner, tmp_path: Path) -> None:
    attaching, _, attached, errors = made(doing, tmp_path)
    (tmp_path / "broken.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256)))
    attaching.attach_files([tmp_path / "broken.png"])
    assert [error.what for error in errors] == [
        "broken.png is damaged, too large, or in an image format Helix Desktop cannot read."
    ]
    assert attached == []


def test_a_picture_of_the_clipboard_becomes_a_png(doing: BackgroundRunner, tmp_path: Path) -> None:
    attaching, bench, attached, _ = made(doing, tmp_path)
    picture = QImage(3, 2, QImage.Format.Format_RGB32)
    picture.fill(QColor("#0d7d74"))
    mime = QMimeData()
    mime.setImageData(picture)
    attaching.attach_dropped_data(mime)
    assert attached[0].stored.media_type == "image/png"
    again = QImage.fromData(bench.attached[0][1])
    assert (again.width(), again.height(), again.pixelColor(1, 1).name()) == (3, 2, "#0d7d74")


def test_dropped_files_win_over_a_picture_and_long_texts_are_files(
    doing: BackgroundRunner, tmp_path: Path
) -> None:
    attaching, bench, _, _ = made(doing, tmp_path)
    (tmp_path / "a.txt").write_text("a")
    mime = QMimeData()
    mime.setUrls([QUrl.fromLocalFile(str(tmp_path / "a.txt"))])
    attaching.attach_dropped_data(mime)
    attaching.attach_long_text("long " * 5_000)
    assert [name for name, _ in bench.attached] == ["a.txt", "pasted.txt"]


def test_without_a_workspace_nothing_happens(doing: BackgroundRunner) -> None:
    attached: list[Attachment] = []
    reader = AttachmentReader(doing, lambda: None, lambda: "", lambda: attached.extend)
    reader.attach_long_text("words")
    assert attached == []
