"""A soak of the real window against a scripted server: work without a pause, workspaces
switched, memory watched.

python -m tests.soak [--minutes 60] [--seed 1] [--out FILE]      needs a display; xvfb-run does

A turn stands for two minutes of a person's work: the message is typed key by key, the
agent reads, writes and runs commands, the answer is read by scrolling, pages are
visited and outputs opened, folds made, undone and made again, every so many turns a new
conversation is begun or an old one opened. Watched are memory, objects of Qt, Python's
objects, threads, files and the longest wait of the event loop. Memory at the end must
be within a tenth of what it was after one sixth of the time, and the tools have to have
done what was asked.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from PySide6.QtCore import QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton

from helix_desktop import glibc_memory
from helix_desktop.desktop import window_program
from helix_desktop.engine.facts import FoldKind, ToolReturned, TurnEnded
from helix_desktop.engine.session_events import ConversationActivity, Event, FactAppended
from helix_desktop.errors import ActionRefused, HelixError
from tests.benchmarks import figures, machine
from tests.benchmarks.row import Figure, Row
from tests.soak.driven import drive, opened, prepare, started, turns, until
from tests.soak.server import ANSWER, FILES, NOTES

WORKSPACES = ("Atlas", "Birch", "Cedar")
PERSON_MINUTES = 2.0  # what a turn stands for
PACE = 6.0  # seconds a turn takes here, so that 60 minutes carry 20 hours
TALK = 12  # turns after which a conversation is usually left
FOLD_LIMIT = 600.0  # seconds; no fold's length is measured here, and much else may run beside it
SUMMARIZE = "Summarize and send"
CENSUS_EVERY = 10.0  # minutes between two counts of Python's objects by their types


@dataclass(frozen=True, slots=True)
class Sample:
    """The state of the process at a moment."""

    minute: float
    memory: float
    widgets: int
    qt_objects: int
    objects: int
    threads: int
    files: int
    turns: int
    steps: int
    longest_gap: float


class Soak:
    """The person at the window, and the notes taken meanwhile."""

    def __init__(self, minutes: float, seed: int, out: Path | None) -> None:
        self.minutes = minutes
        self.out = out
        self.chance = random.Random(seed)
        self.begun = time.monotonic()
        self.turns = 0
        self.samples: list[Sample] = []
        self.gap = 0.0
        self.refused = 0
        self.heard: set[str] = set()
        self.ended = 0  # Turns of any conversation that came to an end.
        self.calls = Counter[bool]()  # of tools, by whether they did what was asked
        self.failures = Counter[str]()  # of those that did not, by what was said
        self.censuses: list[Counter[str]] = []

    async def story(self, run: window_program.WindowProgram) -> None:
        watching = [asyncio.ensure_future(self._gaps()), asyncio.ensure_future(self._watch(run))]  # noqa: TID251
        try:
            while time.monotonic() - self.begun < 60 * self.minutes:
                begun = time.monotonic()
                await self._turn(run)
                await asyncio.sleep(max(0.0, PACE - (time.monotonic() - begun)))
        finally:
            for task in watching:
                task.cancel()
        self._note(run)

    # --- what the person does

    async def _turn(self, run: window_program.WindowProgram) -> None:
        if self.chance.random() < 0.3 or run.window.current_workbench is None:
            await opened(run, self.chance.choice(WORKSPACES))
            self._hear(run)
        await self._choose_conversation(run)
        await self._say(run)
        for act in self.chance.sample(
            (self._scroll, self._look_around, self._fold, self._look_back), 2
        ):
            await act(run)
        self.turns += 1

    def _hear(self, run: window_program.WindowProgram) -> None:
        bench = run.window.current_workbench
        if bench is not None and bench.id not in self.heard:
            self.heard.add(bench.id)
            bench.subscribe_to_events(self._happened)

    def _happened(self, event: Event) -> None:
        if isinstance(event, FactAppended) and isinstance(event.recorded.fact, TurnEnded):
            self.ended += 1
        if isinstance(event, FactAppended) and isinstance(event.recorded.fact, ToolReturned):
            returned = event.recorded.fact
            self.calls[returned.ok] += 1
            if not returned.ok:
                self.failures[returned.head.split("\n", 1)[0]] += 1

    async def _choose_conversation(self, run: window_program.WindowProgram) -> None:
        window = run.window
        chance = self.chance
        rows = [row for row in window.sides.list_rows() if not row.trashed and not row.parent]
        if window.current_session is None or not rows:
            return
        if turns(run) >= TALK and chance.random() < 0.5:
            window.window_actions["new"].trigger()
        elif chance.random() < 0.2:
            wanted = chance.choice(rows[:8]).id
            window.sidebar.list.opened.emit(wanted)
            await until(
                lambda: window.current_session is not None and window.current_session.id == wanted
            )

    async def _say(self, run: window_program.WindowProgram) -> None:
        """Type it, send it with the key, and wait for the end of the turn while it is shown."""
        window = run.window
        window.switch_to_page("chat")
        # Turns of any conversation: another one may be shown while the words are typed.
        self._hear(run)
        before = self.ended
        box = window.chat.composer.text
        for letter in f"Please go on with part {self.turns} of the plan":
            QTest.keyClicks(box, letter)
            await asyncio.sleep(0.005)
        QTest.keyClick(box, Qt.Key.Key_Return)
        try:
            await until(lambda: self._agree_to_summary() or self.ended > before)
        except TimeoutError:
            window.grab().save(str(Path(tempfile.gettempdir()) / "soak-stands-still.png"))
            print(f"no turn ended; the message box says: {box.toPlainText()!r}", flush=True)
            raise
        await until(
            lambda: (
                window.current_session is None
                or window.current_session.running is ConversationActivity.IDLE
            )
        )

    @staticmethod
    def _agree_to_summary() -> bool:
        """Press the button of the question that comes when a conversation is too long, if it is
        shown. The hour ended with it twice, as nobody answered.
        """
        for button in QApplication.allWidgets():
            if (
                isinstance(button, QPushButton)
                and button.text() == SUMMARIZE
                and button.isVisible()
            ):
                button.click()
        return False

    async def _scroll(self, run: window_program.WindowProgram) -> None:
        bar = run.window.chat.transcript.view.verticalScrollBar()
        for _ in range(20):
            bar.setValue(self.chance.randint(0, max(bar.maximum(), 1)))
            await asyncio.sleep(0.02)
        run.window.window_actions["bottom"].trigger()

    async def _look_around(self, run: window_program.WindowProgram) -> None:
        """The cache with one of the outputs, the timeline, and back."""
        session = run.window.current_session
        facts = session.conversation.state.facts if session else ()
        outputs = [one.fact.output.digest for one in facts if isinstance(one.fact, ToolReturned)]
        run.window.switch_to_page("cache")
        if outputs:
            run.window.pages.cache.open_entry_by_digest(self.chance.choice(outputs))
        for page in ("timeline", "chat"):
            await asyncio.sleep(0.3)
            run.window.switch_to_page(page)

    async def _fold(self, run: window_program.WindowProgram) -> None:
        session = run.window.current_session
        kind = self.chance.choice((FoldKind.MARKER, FoldKind.HANDOVER))
        try:
            if session is not None:
                await asyncio.wait_for(session.fold_on_request(kind), FOLD_LIMIT)
        except (HelixError, TimeoutError) as error:
            self._allow(error)

    async def _look_back(self, run: window_program.WindowProgram) -> None:
        """Take the newest fold back, and put it in force again."""
        session = run.window.current_session
        live = list(session.conversation.state.branch.live) if session else []
        try:
            if session is not None and live:
                await session.folding.unfold(live[-1])
                await asyncio.sleep(0.1)
                await session.folding.refold(live[-1])
        except HelixError as error:
            self._allow(error)

    def _allow(self, error: BaseException) -> None:
        if not isinstance(error, ActionRefused):
            raise error
        self.refused += 1

    # --- what is watched

    async def _gaps(self) -> None:
        last = time.perf_counter()
        while True:
            await asyncio.sleep(0)
            now = time.perf_counter()
            self.gap = max(self.gap, now - last)
            last = now
            await asyncio.sleep(0.002)
            last = time.perf_counter()

    async def _watch(self, run: window_program.WindowProgram) -> None:
        while True:
            self._note(run)
            await asyncio.sleep(15)

    def _note(self, run: window_program.WindowProgram) -> None:
        minute = (time.monotonic() - self.begun) / 60
        counts = (
            len(QApplication.allWidgets()),
            count_qt_objects(run.top_window),
            len(gc.get_objects()),
        )
        open_files = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
        steps = sum(
            len(session.all_facts)
            for bench in (run._desk.opened_workbenches() if run._desk else ())
            for session in bench.sessions
        )
        if minute >= CENSUS_EVERY * (len(self.censuses) + 1):
            self.censuses.append(census())
        sample = Sample(
            minute,
            machine.memory(),
            *counts,
            threading.active_count(),
            open_files,
            self.turns,
            steps,
            1000 * self.gap,
        )
        self.gap = 0.0
        self.samples.append(sample)
        print(told(sample), flush=True)
        if self.out:
            self.out.write_text(
                json.dumps([asdict(each) for each in self.samples]), encoding="utf-8"
            )


def count_qt_objects(root: QObject) -> int:
    """How many objects are below this one.

    `findChildren` would make the root hold Python's wrapper of everything that it finds. Of what
    Qt itself has made, such as a menu's actions, the wrapper would stay when Qt has deleted it.
    """
    count = 0
    for child in root.children():
        count += 1 + count_qt_objects(child)
    return count


def census() -> Counter[str]:
    """How many of Python's objects there are of each type."""
    return Counter(f"{type(each).__module__}.{type(each).__name__}" for each in gc.get_objects())


def grown_types(first: Counter[str], last: Counter[str]) -> str:
    """The types of which the most objects were added between two counts, a line for each."""
    growth = last - first
    lines = [
        f"grown by {count} to {last[name]}: {name}\n" for name, count in growth.most_common(20)
    ]
    return "".join(lines)


def told(sample: Sample) -> str:
    return (
        f"{sample.minute:6.1f} min  {sample.memory:6.0f} MB  {sample.widgets:5} widgets  {sample.qt_objects:6} Qt  {sample.objects:8} Python  "
        f"{sample.threads:3} threads  {sample.files:4} files  {sample.turns:4} turns  {sample.steps:6} facts  gap {sample.longest_gap:5.0f} ms"
    )


def verdict(samples: list[Sample], minutes: float) -> tuple[bool, str]:
    """Memory at the end beside memory after one sixth of the time, each the median of
    the samples around it.
    """
    early = statistics.median(
        s.memory for s in samples if abs(s.minute - minutes / 6) <= max(minutes / 24, 0.5)
    )
    late = statistics.median(s.memory for s in samples[-5:])
    person = samples[-1].turns * PERSON_MINUTES / 60
    words = (
        f"{minutes:g} minutes, {samples[-1].turns} turns ({person:.1f} hours of a person's work): {early:.0f} MB after "
        f"{minutes / 6:.0f} minutes, {late:.0f} MB at the end ({late / early - 1:+.1%})"
    )
    return late <= 1.1 * early, words


def run_of(samples: list[Sample], minutes: float, where: dict[str, str]) -> dict[str, object]:
    """The soak as a run of the figures page: what was held at the end beside what was
    held after one sixth of the time.
    """
    early = min(samples, key=lambda sample: abs(sample.minute - minutes / 6))
    good, words = verdict(samples, minutes)
    rows = [
        Row(
            name, unit, Figure.of([value(each) for each in samples[-5:]]), {"after one sixth of the time": Figure.of([value(early)])},
            "≤ 1.1 × the value after one sixth of the time" if name == "memory at the end" else "", good if name == "memory at the end" else None,
            note=words if name == "memory at the end" else "",
        )
        for name, unit, value in WATCHED
    ]  # fmt: skip
    return {
        "name": "soak", "measures": f"the program's window, in use for {minutes:g} minutes", "machine": where,
        "seconds": 60 * minutes, "failed": "", "rows": [row.as_json() for row in rows],
    }  # fmt: skip


WATCHED: tuple[tuple[str, str, Callable[[Sample], float]], ...] = (
    ("memory at the end", "MB", lambda sample: sample.memory),
    ("widgets", "", lambda sample: sample.widgets),
    ("Qt objects in the window", "", lambda sample: sample.qt_objects),
    ("Python objects", "", lambda sample: sample.objects),
    ("threads", "", lambda sample: sample.threads),
    ("open files", "", lambda sample: sample.files),
)


def fill(folder: Path) -> None:
    """Files for an agent to read, from 1 KB to 60 KB, and notes for it to go on with."""
    (folder / "src").mkdir()
    (folder / "notes").mkdir()
    for number in range(FILES):
        lines = "".join(
            f"def f{number}_{line}(a, b):\n    return a * {line} + b\n"
            for line in range(20 + 30 * number)
        )
        (folder / "src" / f"part{number}.py").write_text(lines + ANSWER, encoding="utf-8")
    for number in range(NOTES):
        (folder / "notes" / f"{number}.md").write_text(ANSWER, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="keep the samples in this file as they are taken")
    parser.add_argument(
        "--keep", action="store_true", help="the result stands on the figures page from now on"
    )
    arguments = parser.parse_args()
    where = machine.described()
    # as the program does before it has threads; what is prepared below has some already
    glibc_memory.share_one_heap_between_threads()
    with (
        tempfile.TemporaryDirectory(prefix="helix-soak-") as home,
        started("tests.soak.server") as (_, port),
    ):
        prepare(Path(home), port, WORKSPACES, fill, window=32_000)
        soak = Soak(arguments.minutes, arguments.seed, arguments.out)
        code = drive(Path(home), soak.story)
    if arguments.keep:
        figures.keep([run_of(soak.samples, arguments.minutes, where)])
    good, words = verdict(soak.samples, arguments.minutes)
    done = soak.calls[True]
    failed = soak.calls[False]
    tools = (
        f"{done} calls of tools, {failed} more failed; {soak.refused} folds refused with a reason"
    )
    print(f"soak: {words}; {tools}; seed {arguments.seed}")
    print(
        "".join(f"failed {count}: {said}\n" for said, count in soak.failures.most_common(20)),
        end="",
    )
    if len(soak.censuses) > 1:
        print(grown_types(soak.censuses[0], soak.censuses[-1]), end="")
    return code or int(not good or failed > done // 50)


if __name__ == "__main__":
    sys.exit(main())
