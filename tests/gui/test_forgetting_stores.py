"""A text forgotten from the window is in no file of a real workspace any more, and in
no line of the log.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication, QWidget

from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.forget_text_dialog import ForgetTextDialog
from helix_desktop.workbench import Workbenches
from tests.gui.fake_desk import Now, now
from tests.workbench.conftest import desks, folder

__all__ = ["desks", "folder"]

SECRET = "sk-live-77\nsecond line"


@pytest.fixture(autouse=True)
def _cycles_are_not_collected_in_threads() -> Iterator[None]:
    """As in the program (gui/garbage_collection.py): the stores' threads may not end
    what belongs to Qt.
    """
    gc.disable()
    yield
    gc.enable()


class Later:
    """A spawn that keeps what it is given until a test runs it."""

    def __init__(self) -> None:
        self.work: list[Coroutine[Any, Any, Any]] = []

    def __call__(self, work: Coroutine[Any, Any, Any], *, name: str) -> Now:
        assert "sk-live" not in name
        self.work.append(work)
        return now


async def test_journal_and_cache_of_a_real_workspace_no_longer_hold_it(
    desks: Callable[[], Workbenches],
    tmp_path: Path,
    application: QApplication,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    (tmp_path / "project").mkdir(exist_ok=True)
    bench = await desks().create_workspace("Work", tmp_path / "project")
    session = await bench.start_conversation("Talk")
    await bench.workspace.cache.store_content(f"login {SECRET}".encode(), EntryOrigin("shell"))
    await session.conversation.append_facts(UserSaid((Text(f"it is {SECRET}", 3),)))
    later = Later()
    gone = list[str]()
    told = list[str]()
    owner = QWidget()
    dialog = ForgetTextDialog(bench, BackgroundRunner(later), gone.append, owner, owner)
    dialog.closed_early = told.append
    QApplication.clipboard().setText(f"{SECRET}\n")
    dialog.text.paste()
    dialog.forget_button.click()
    dialog.reject()  # closed meanwhile: the work goes on, and its result is told by the window
    (work,) = later.work
    await work
    assert gone == [SECRET]
    assert told == ["Removed: 1 stored output. Changed: 1 record. Cleaned up: 0 backups."]
    assert holding(bench.workspace.folder) == []
    assert "[forgotten]" in str([recorded.fact for recorded in session.all_facts])
    assert "sk-live" not in caplog.text
    owner.deleteLater()


def holding(where: Path) -> list[Path]:
    return [
        path for path in where.rglob("*") if path.is_file() and b"sk-live-77" in path.read_bytes()
    ]
