"""The page of changes with 500 files and 50,000 changed lines: opened, scrolled, other
files chosen; and one file of 25,000 lines.

A frame is a turn of the event loop, and what its thread worked in it, so that other
programs do not count. Run it alone, with a display (Xvfb) or offscreen: python -m
tests.benchmarks.gui_changes
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Coroutine, Mapping
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.changes.turn_changes import FileChange
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.changes.changes_page import ChangesPage
from helix_desktop.gui.theme import Theme
from tests.benchmarks.gui_cache import Gaps, until
from tests.benchmarks.row import Figure, Row
from tests.gui.fake_changes import FakeChanges

FILES = 500
LINES = 100
LONG = 25_000
OPEN, FRAME = 300, 16  # milliseconds asked
OPENED, CHOSEN, SCROLLED = 5, 60, 8  # times; files; steps in each


class _Listed(FakeChanges):
    """Counted once, as the program counts them when they change."""

    def fill(self, files: Mapping[str, tuple[bytes, bytes]]) -> None:
        super().fill(files)
        self._listed = super()._files()

    def _files(self, *, undo: bool = False) -> list[FileChange]:
        return self._listed


def rows(*, quick: bool = False) -> list[Row]:
    """Offscreen, on real code with every second word another."""
    found = QApplication.instance()
    application = found if isinstance(found, QApplication) else QApplication([])
    loop = qasync.QEventLoop(application)
    asyncio.set_event_loop(loop)
    with loop:
        measured: list[Row] = loop.run_until_complete(_measured(10 if quick else CHOSEN))
    return measured


async def _measured(chosen: int) -> list[Row]:
    running: set[asyncio.Task[Any]] = set()

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)  # noqa: TID251 - the benchmark owns its tasks
        running.add(task)
        task.add_done_callback(running.discard)
        return task

    theme = Theme(scheme="light")
    theme.apply_to_application()
    changes = _Listed()
    page = ChangesPage(theme, BackgroundRunner(spawn))
    page.resize(1440, 900)
    changes.fill({f"src/p{n % 20}/f{n}.py": _versions(n, LINES) for n in range(FILES)})
    opened = []
    for _ in range(OPENED):
        page.hide()
        page.show_changes_of(None, "")
        began = time.perf_counter()
        page.show_changes_of(changes, "c1")
        page.show()
        await until(lambda: bool(page.body.view._sheet.rows) and not running)
        page.grab()
        opened.append(1000 * (time.perf_counter() - began))
    found = [
        Row(
            f"page of {FILES} files opened",
            "ms",
            Figure.of(opened),
            {},
            f"< {OPEN} ms",
            max(opened) < OPEN,
        )
    ]
    for two in (False, True):
        page.body.view.show_columns(two=two)
        found.append(await _frames(page, chosen, "side by side" if two else "unified"))
    return [*found, *await _long(page, changes, running)]


async def _frames(page: ChangesPage, chosen: int, how: str) -> Row:
    """Files chosen by chance, each scrolled a little."""
    chance = random.Random(3)
    gaps = Gaps()
    files = [row for row, entry in enumerate(page.files.files.items) if entry.file]
    bar = page.body.view.verticalScrollBar()
    gaps.begin()
    for row in chance.sample(files, chosen):
        page.files.setCurrentIndex(page.files.files.index(row))
        await asyncio.sleep(0.05)
        for _ in range(SCROLLED):
            bar.setValue(bar.value() + 90)
            await asyncio.sleep(0.004)
    frames = sorted(busy for busy in gaps.busy if busy > 0.5)
    p99 = frames[int(0.99 * (len(frames) - 1))]
    figure = Figure(frames[len(frames) // 2], p99, frames[-1])
    name = f"frames while other files are chosen, {how} (median, p99, longest of {len(frames)})"
    return Row(name, "ms", figure, {}, f"p99 < {FRAME} ms", p99 < FRAME)


async def _long(page: ChangesPage, changes: _Listed, running: set[asyncio.Task[Any]]) -> list[Row]:
    """One long file, every second line of it another; the longest turn of the loop
    while it opens.
    """
    found = []
    for two in (False, True):
        changes.fill({"long.py": _versions(1, LONG)})
        page.show_changes_of(None, "")
        page.body.view.show_columns(two=two)
        gaps = Gaps()
        began = time.perf_counter()
        page.show_changes_of(changes, "c1")
        await until(lambda: len(page.body.view._sheet.rows) > LONG and not running)
        page.grab()
        took = 1000 * (time.perf_counter() - began)
        await asyncio.sleep(0.05)
        how = "side by side" if two else "unified"
        found.append(Row(f"a file of {LONG:,} lines opened, {how}", "ms", Figure(took, took, took)))
        longest = max(gaps.all)
        found.append(
            Row(
                f"the longest turn of the loop in it, {how}",
                "ms",
                Figure(longest, longest, longest),
            )
        )
    return found


def _versions(seed: int, lines: int) -> tuple[bytes, bytes]:
    chance = random.Random(seed)
    words = ("compute", "total", "name", "value", "other", "result", "index")

    def line(number: int) -> str:
        a, b, c = chance.choices(words, k=3)
        return f"    {a}_{number} = {b}({chance.randrange(10**6)}, {c!r}, other={c}_{number})  # from {a} to {b}"

    before = [line(number) for number in range(lines)]
    every = 1 if lines == LINES else 2
    after = [
        each.replace("(", "_of(", 1) if n % every == 0 else each for n, each in enumerate(before)
    ]
    return "\n".join(before).encode(), "\n".join(after).encode()


if __name__ == "__main__":
    for row in rows():
        print(
            f"{row.name}: {row.ours.median:.1f} ({row.ours.least:.1f}-{row.ours.most:.1f}) {row.unit} {row.asked}"
        )
