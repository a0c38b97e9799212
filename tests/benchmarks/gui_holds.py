"""The real program with a conversation of 100,000 facts: the longest time its window is
held while each page is opened.

A hold is the time from one turn of the event loop to the next: input, timers, layout
and painting. Beside it stands what the processor gave to it. Run it alone: `python -m
tests.benchmarks.gui_holds [facts] [--where]`; `--where` says what was going on in the
longest ones.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt, QTimer

from helix_desktop import program_folders
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import Fact, ModelReplied, Recorded, Stored, ToolReturned
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.benchmarks.gui_timeline import facts
from tests.soak.driven import HOME, drive, opened, until

SIZE = 100_000
FRAME = 0.016
QUIET = 0.4  # seconds without a hold of a third of a frame: everything is there
WORKSPACE = "long"


@dataclass(slots=True)
class Holds:
    """`taken`: of each turn of the event loop, how long it was and what the processor
    gave to it, in seconds.
    """

    where: bool = False
    taken: list[tuple[float, float]] = field(default_factory=list)
    stacks: list[str] = field(default_factory=list)  # of this turn
    longest: list[tuple[float, list[str]]] = field(default_factory=list)  # turns, and what went on
    _last: tuple[float, float] = (0.0, 0.0)
    _timer: QTimer | None = None

    def begin(self) -> None:
        self._timer = QTimer(interval=1, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self._tick)
        self._last = time.perf_counter(), time.thread_time()
        self._timer.start()
        if self.where:
            threading.Thread(target=self._look, args=(threading.get_ident(),), daemon=True).start()  # noqa: TID251

    def _tick(self) -> None:
        now = time.perf_counter(), time.thread_time()
        self.taken.append((now[0] - self._last[0], now[1] - self._last[1]))
        if self.taken[-1][1] > FRAME / 2 and self.stacks:
            self.longest.append((self.taken[-1][1], self.stacks))
        self._last = now
        self.stacks = []

    def _look(self, thread: int) -> None:
        """What the window's thread does while it is held."""
        while True:
            time.sleep(0.001)
            if (frame := sys._current_frames().get(thread)) is not None:
                names = [
                    f"{Path(each.f_code.co_filename).stem}.{each.f_code.co_name}:{line}"
                    for each, line in traceback.walk_stack(frame)
                ]
                self.stacks.append(" < ".join(names[:9]))

    async def settled(self) -> None:
        """Until nothing is done any more."""
        quiet = time.perf_counter()
        seen = len(self.taken)
        while time.perf_counter() - quiet < QUIET:
            await asyncio.sleep(0.02)
            if any(given > FRAME / 3 for _, given in self.taken[seen:]):
                quiet = time.perf_counter()
            seen = len(self.taken)

    async def of(self, name: str, act: Callable[[], object], there: Callable[[], bool]) -> None:
        """Do it, wait until all of it is there, and tell the longest holds."""
        await self.settled()
        self.taken.clear()
        self.longest.clear()
        begun = time.perf_counter()
        act()
        await until(there)
        await self.settled()
        whole = time.perf_counter() - begun - QUIET
        wall = sorted((1000 * long for long, _ in self.taken), reverse=True)
        given = sorted((1000 * long for _, long in self.taken), reverse=True)
        over = sum(long > 1000 * FRAME for long in given)
        print(
            f"{name:34} longest {wall[0]:6.1f} {wall[1]:6.1f} ms, processor {given[0]:6.1f} {given[1]:6.1f}; over 16: {over}; there in {whole:.2f} s",
            flush=True,
        )
        self.tell_longest()

    def tell_longest(self) -> None:
        """What went on in the longest turns."""
        for held, stacks in sorted(self.longest, key=lambda each: -each[0])[:3]:
            print(f"  {1000 * held:.1f} ms", flush=True)
            for stack, times in Counter(stacks).items():
                print(f"    {times:4}  {stack}", flush=True)


def prepare(home: Path, size: int) -> None:
    """A home with one workspace, and one long conversation in it whose outputs are in the cache."""

    async def make() -> None:
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        folder = home / "folder"
        folder.mkdir()
        bench = await desk.create_workspace(WORKSPACE, folder)
        await bench.choose_model_for_role("demo/demo")
        talk = await bench.start_conversation("A very long conversation")
        await bench.start_conversation("Another")
        outputs = [
            await bench.workspace.cache.store_content(f"{number}: {'what a command printed ' * 80}\n".encode(), EntryOrigin("read_file", f"src/{number}.rs"))
            for number in range(1000)
        ]  # fmt: skip
        told = facts(size * 10 // 27)
        await bench.workspace.journal.append_to_journal(talk.id, _with_outputs(told, outputs)[1:])
        await desk.aclose()

    asyncio.run(make())


def _with_outputs(told: Sequence[Recorded], outputs: Sequence[Stored]) -> list[Fact]:
    found: list[Fact] = []
    for recorded in told:
        fact = recorded.fact
        if isinstance(fact, ToolReturned):
            stored = outputs[recorded.seq % len(outputs)]
            fact = ToolReturned(fact.call, stored, fact.tokens, head="what a command printed")
        found.append(fact)
    return found


async def look_around(run: WindowProgram, holds: Holds) -> None:
    """Every page once, as a person opens them."""
    window = run.window
    await opened(run, WORKSPACE)
    holds.begin()
    await holds.settled()
    name = next(row.id for row in window.sides.list_rows() if row.title.startswith("A very"))
    other = next(row.id for row in window.sides.list_rows() if row.id != name)
    view = window.chat.transcript.view
    inspector = window.pages.inspector

    def open_(conversation: str) -> None:
        window.showing.set_shown_page("chat")
        window.sides.go_to_conversation(conversation)

    def is_open(conversation: str) -> bool:
        return window.current_session is not None and window.current_session.id == conversation

    def replies() -> list[int]:
        assert window.current_session is not None
        return [
            each.seq
            for each in window.current_session.conversation.state.facts
            if isinstance(each.fact, ModelReplied)
        ]

    await holds.of("chat, opened from the disk", lambda: open_(name), lambda: is_open(name))
    await holds.of("another conversation", lambda: open_(other), lambda: is_open(other))
    await holds.of("chat, opened again", lambda: open_(name), lambda: is_open(name))
    await holds.of("chat, its beginning", lambda: view.scroll_to_item(0), lambda: True)
    await holds.of("chat, its end", window.window_actions["bottom"].trigger, lambda: True)
    await holds.of("inspector hidden or shown", window.toggle_side_panel, lambda: True)
    await holds.of("inspector, the other way", window.toggle_side_panel, lambda: True)
    middle = replies()[len(replies()) // 2]
    await holds.of(
        "inspector, an earlier moment",
        lambda: window.showing.set_shown_moment(middle),
        lambda: True,
    )
    await holds.of(
        "inspector, now",
        lambda: window.showing.set_shown_moment(None),
        lambda: inspector is not None,
    )
    for page in ("cache", "timeline", "changes", "chat", "timeline", "cache"):
        await holds.of(f"page {page}", lambda page=page: window.switch_to_page(page), lambda: True)  # type: ignore[misc]
    window.switch_to_page("chat")


def main() -> int:
    size = next((int(each) for each in sys.argv[1:] if each.isdigit()), SIZE)
    holds = Holds(where="--where" in sys.argv)
    with tempfile.TemporaryDirectory(prefix="helix-holds-") as folder:
        kept = os.environ.get("HELIX_HOLDS")  # a home that was made before
        home = Path(kept or folder)
        if not (home / HOME).exists():
            prepare(home, size)
        return drive(home, lambda run: look_around(run, holds))


if __name__ == "__main__":
    sys.exit(main())
