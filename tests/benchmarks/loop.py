"""How long the event loop of the real window is blocked while several things happen at
once: 2,000 stream events per second, a command that prints 50 MB, a handover, and
typing.

python -m tests.benchmarks.loop [--quick]      needs a display

A gap is the time between two turns of the event loop, less the millisecond the timer
waits. The peer is a bare Qt window with the same timer and nothing to do, at the same
time on the same machine: what it shows, the machine did. Each gap is also shown in
processor time: what the program itself took, whatever else ran.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QWidget

from helix_desktop.desktop import window_program
from helix_desktop.engine.facts import Folded, FoldKind, ModelReplied, Text, ToolReturned
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import ConversationActivity
from tests.benchmarks import machine, report
from tests.benchmarks.loop_server import RATE
from tests.benchmarks.row import Figure, Row
from tests.soak.driven import drive, opened, prepare, started, until

SCREEN = True
LONGEST, P99 = 50.0, 16.0  # ms, asked for
BARE = """
import sys, time, json
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication, QWidget
app = QApplication([]); window = QWidget(); window.resize(1440, 900); window.show()
gaps, last = [], [time.perf_counter()]
def tick():
    now = time.perf_counter(); gaps.append(1000 * (now - last[0]) - 1); last[0] = now
timer = QTimer(interval=1); timer.timeout.connect(tick); timer.start()
QTimer.singleShot(int(sys.argv[1]), app.quit); app.exec(); print(json.dumps(gaps[20:]))
"""


class Gaps:
    """Turns of the event loop as a timer sees them: in wall time, and in processor time
    of this thread.
    """

    def __init__(self) -> None:
        self.wall: list[float] = []
        self.own: list[float] = []
        self._last = time.perf_counter(), time.thread_time()
        self._timer = QTimer(interval=1)
        self._timer.timeout.connect(self._tick)

    def begin(self) -> None:
        self._last = time.perf_counter(), time.thread_time()
        self._timer.start()

    def end(self) -> None:
        self._timer.stop()

    def _tick(self) -> None:
        now = time.perf_counter(), time.thread_time()
        self.wall.append(max(0.0, 1000 * (now[0] - self._last[0]) - 1))
        self.own.append(1000 * (now[1] - self._last[1]))
        self._last = now


class Trial:
    """The story, and what came of it."""

    def __init__(self, events: int, megabytes: int) -> None:
        self.events = events
        self.megabytes = megabytes
        self.gaps = Gaps()
        self.keys: list[float] = []
        self.bare: list[float] = []
        self.seconds = 0.0
        self.complete = self.printed = self.folded = False

    async def story(self, run: window_program.WindowProgram) -> None:
        await opened(run, "Loop")
        window = run.window
        assert run._desk is not None
        bench = await run._desk.open_workspace("Loop")
        talked, printing, flooded = [await bench.start_conversation() for _ in range(3)]
        for _ in range(12):
            await _said(talked, "tell me more")
        window.sides.refresh_conversations()
        window.sides.go_to_conversation(flooded.id)
        await until(
            lambda: window.current_session is not None and window.current_session.id == flooded.id
        )
        await asyncio.sleep(1)
        command = [sys.executable, "-c", BARE, str(1000 * (4 + self.events // 2000))]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env=machine.environment()
        ) as bare:
            await asyncio.sleep(1)
            await self._at_once(run, talked, printing, flooded)
            assert bare.stdout is not None
            self.bare = json.loads(await asyncio.to_thread(bare.stdout.read))

    async def _at_once(
        self,
        run: window_program.WindowProgram,
        talked: Session,
        printing: Session,
        flooded: Session,
    ) -> None:
        self.gaps.begin()
        begun = time.perf_counter()
        flooded.send_message((Text("flood"),))
        printing.send_message((Text("print"),))
        folding = run._tasks.spawn_task(talked.fold_on_request(FoldKind.HANDOVER), name="fold")
        box = run.window.chat.composer.text
        typing = QTimer(
            interval=100
        )  # outside of every coroutine: an event loop must not be entered twice
        typing.timeout.connect(lambda: self._type(box))
        await until(lambda: flooded.running is not ConversationActivity.IDLE)
        typing.start()
        await asyncio.wait_for(flooded.wait_until_idle(), 180)
        typing.stop()
        self.seconds = time.perf_counter() - begun
        await asyncio.wait_for(printing.wait_until_idle(), 60)
        await asyncio.wait_for(folding, 60)
        self.gaps.end()
        self._check(talked, printing, flooded)

    def _type(self, box: QWidget) -> None:
        """One key, until it is painted."""
        start = time.perf_counter()
        QTest.keyClick(box, Qt.Key.Key_A)
        box.repaint()
        self.keys.append(1000 * (time.perf_counter() - start))

    def _check(self, talked: Session, printing: Session, flooded: Session) -> None:
        replies = [one.fact for one in flooded.all_facts if isinstance(one.fact, ModelReplied)]
        text = "".join(part.text for part in replies[-1].parts if isinstance(part, Text))
        self.complete = text.split() == [f"w{number}" for number in range(self.events)]
        outputs = [
            one.fact.output.size for one in printing.all_facts if isinstance(one.fact, ToolReturned)
        ]
        self.printed = max(outputs, default=0) >= self.megabytes * 1_000_000
        self.folded = any(
            isinstance(one.fact, Folded) and one.fact.kind is FoldKind.HANDOVER
            for one in talked.all_facts
        )


async def _said(session: Session, words: str) -> None:
    session.send_message((Text(words),))
    await session.wait_until_idle()


def _fill(folder: Path) -> None:
    (folder / "a.txt").write_text("a line of a file\n")


def rows(*, quick: bool) -> list[Row]:
    events, megabytes = (6_000, 20) if quick else (20_000, 50)
    trial = Trial(events, megabytes)
    with tempfile.TemporaryDirectory(prefix="helix-loop-") as home:
        server = started("tests.benchmarks.loop_server", str(events), str(megabytes))
        with server as (_, port):
            prepare(Path(home), port, ["Loop"], _fill, window=200_000)
            if drive(Path(home), trial.story):
                raise ValueError("the story broke off")
    return _rows(trial)


def _rows(trial: Trial) -> list[Row]:
    done = f"text complete: {_yes(trial.complete)}; {trial.megabytes} MB stored: {_yes(trial.printed)}; handover written: {_yes(trial.folded)}"
    wall, own, bare = (
        sorted(each) or [0.0] for each in (trial.gaps.wall, trial.gaps.own, trial.bare)
    )
    behind = trial.seconds - trial.events / RATE
    peer = {"bare Qt window": Figure(_at(bare, 0.99), bare[0], bare[-1], len(bare))}
    longest = {"bare Qt window": Figure(bare[-1], bare[-1], bare[-1])}
    whole = trial.complete and trial.printed and trial.folded
    return [
        Row("gap, p99", "ms", Figure(_at(wall, 0.99), wall[0], wall[-1], len(wall)), peer, f"< {P99:g} ms", _at(wall, 0.99) < P99),
        Row("longest gap", "ms", _single(wall[-1]), longest, f"< {LONGEST:g} ms", wall[-1] < LONGEST, note=done),
        Row("event-loop gap in processor time, p99", "ms", Figure(_at(own, 0.99), own[0], own[-1], len(own)), asked=f"< {P99:g} ms", met=_at(own, 0.99) < P99),
        Row("longest event-loop gap in processor time", "ms", _single(own[-1]), asked=f"< {LONGEST:g} ms", met=own[-1] < LONGEST),
        Row("time from a key press to the painted character", "ms", Figure.of(trial.keys), asked="< 16 ms", met=Figure.of(trial.keys).median < 16),
        Row("lag behind the sender at the end of the stream", "s", _single(behind), asked="< 1 s, and everything arrived", met=whole and behind < 1, note=done),
    ]  # fmt: skip


def _single(value: float) -> Figure:
    return Figure(value, value, value)


def _at(ordered: list[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


def _yes(value: bool) -> str:
    return "yes" if value else "NO"


def main() -> int:
    sys.stdout.write("\n".join(report.table(rows(quick="--quick" in sys.argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
