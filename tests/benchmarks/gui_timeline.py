"""The timeline at 50,000 steps and 5,000 folds: read, drawn, zoomed, hovered over; the
list scrolled.

A frame is the time from an input event to the end of the paint it causes.
Run it alone: `python -m tests.benchmarks.gui_timeline [steps]`, with a display (Xvfb) or offscreen.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Coroutine
from typing import Any

from helix_desktop.engine.facts import ModelRole
from helix_desktop.engine.view import build_state

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import (
    ConversationStarted,
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    ModelSet,
    PartRef,
    Recorded,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    Usage,
    UserSaid,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.background_runner import BackgroundRunner, SpawnedTask
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.timeline.timeline_page import TimelinePage
from tests.gui.fake_desk import FakeSession, now


def facts(steps: int) -> list[Recorded]:
    """Steps with an output each; a handover after every hundred, a batch of markers
    after every twelve.
    """
    random.seed(3)
    told: list[Recorded] = []
    stored = Stored(Digest.of_content(b"output"), 18_900, 400)
    tokens = 8_000
    outputs = list[int]()

    def add(fact: Fact) -> int:
        told.append(Recorded("c", len(told) + 1, 1.7e9 + 20 * len(told), fact))
        return len(told)

    add(ConversationStarted("long"))
    add(ModelSet(ModelRole.MAIN, "m", 128_000))
    add(UserSaid((Text("go", 10),)))
    for step in range(steps):
        call = ToolCall(f"c{step}", "read_file", f'{{"path": "src/{step % 97}.rs"}}', 20)
        add(
            ModelReplied(
                (Text("next", 20), call),
                "m",
                Stop.CALLS,
                Usage(input=tokens, cache_read=tokens // 2),
            )
        )
        outputs.append(add(ToolReturned(call.id, stored, 900)))
        tokens += 960
        if step % 100 == 99:
            add(
                Folded(
                    f"h{step}",
                    FoldKind.HANDOVER,
                    Span(1, len(told)),
                    "## TODO Items\nx",
                    8_000,
                    tokens,
                    number=step // 100,
                )
            )
            tokens = 8_000
            outputs = []
        elif step % 11 == 10:
            for seq in outputs[-8:]:
                add(
                    Folded(f"m{seq}", FoldKind.MARKER, PartRef(seq), "x", 30, 900, batch=f"b{step}")
                )
            tokens -= 870 * len(outputs[-8:])
    return told


class Quick(FakeSession):
    """A session whose state is the facts alone: the timeline reads nothing else of it
    to be drawn.
    """

    def __init__(self, told: list[Recorded]) -> None:
        super().__init__("c")
        self.state = build_state(told)


def _drop(work: Coroutine[Any, Any, Any], *, name: str) -> SpawnedTask:
    work.close()
    return now


def told(name: str, taken: list[float]) -> None:
    ordered = sorted(taken)
    print(
        f"  {name:24} median {ordered[len(ordered) // 2]:6.2f}   p99 {ordered[int(0.99 * (len(ordered) - 1))]:6.2f}   longest {ordered[-1]:6.2f} ms"
    )


def frames(app: QApplication, times: int, act: Callable[[int], None]) -> list[float]:
    taken = []
    for number in range(times):
        start = time.perf_counter()
        act(number)
        app.processEvents()
        taken.append(1000 * (time.perf_counter() - start))
    return taken


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 50_000
    application = QApplication.instance()
    app = application if isinstance(application, QApplication) else QApplication([])
    theme = Theme(scheme="light")
    theme.apply_to_application()
    page = TimelinePage(theme, BackgroundRunner(_drop))
    page.resize(1160, 800)
    page.show()
    app.processEvents()
    made = facts(steps)
    session = Quick(made)
    start = time.perf_counter()
    longest = 0.0
    page.show_timeline_of(session)
    while page._read_timer.isActive():
        turn = time.perf_counter()
        app.processEvents()
        longest = max(longest, 1000 * (time.perf_counter() - turn))
    read = 1000 * (time.perf_counter() - start)
    app.processEvents()
    drawn = 1000 * (time.perf_counter() - start)
    folds = sum(bool(event.current_folds) for event in page.timeline.events)
    print(
        f"{steps:,} steps, {folds:,} folds, {len(made):,} facts: read in {read:.0f} ms (longest gap {longest:.1f} ms), drawn in {drawn:.0f} ms"
    )
    chart = page.chart
    middle = QPointF(500, 160)
    no_button = Qt.MouseButton.NoButton
    no_key = Qt.KeyboardModifier.NoModifier

    def wheel(number: int) -> None:
        by = QPoint(0, 120 if number % 40 < 20 else -120)
        event = QWheelEvent(
            middle, middle, QPoint(), by, no_button, no_key, Qt.ScrollPhase.NoScrollPhase, False
        )
        QApplication.sendEvent(chart, event)

    def hover(number: int) -> None:
        place = QPointF(number * 7 % 1100, 150)
        event = QMouseEvent(QMouseEvent.Type.MouseMove, place, place, no_button, no_button, no_key)
        QApplication.sendEvent(chart, event)

    def repaint(_: int) -> None:
        chart.repaint()

    bar = page.list.verticalScrollBar()
    told("whole chart drawn", frames(app, 100, repaint))
    told("zoomed", frames(app, 200, wheel))
    told("hovered", frames(app, 200, hover))
    told(
        "list scrolled to a random row",
        frames(app, 100, lambda _: bar.setValue(random.randrange(max(1, bar.maximum())))),
    )
    told(
        "a fold selected",
        frames(
            app,
            50,
            lambda n: page.list.select_fold_event(
                page.list.rows.items[n * 37 % len(page.list.rows.items)]
            ),
        ),
    )


if __name__ == "__main__":
    main()
