"""The chat at 10,000 and 100,000 messages: opening, scrolling, jumping, appending,
streaming, hostile text, memory.

A frame is the time from an input event to the end of the paint it causes, and of what
it leaves to be done at once. Beside it stands its time on the processor: what the
program itself took, whatever else the machine did. Cycles are collected as in the
program. Run it alone: `python -m tests.benchmarks.gui_transcript [messages ...]`, with
a display (Xvfb) or offscreen.
"""

from __future__ import annotations

import os
import random
import resource
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from helix_desktop.engine.view import ConversationState, build_state

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.facts import (
    Fact,
    ModelReplied,
    Recorded,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.messages import TextDelta
from helix_desktop.engine.session_events import (
    ConversationActivity,
    Event,
    FactAppended,
    ReplyStreamed,
)
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.garbage_collection import GarbageCollector
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.transcript import code_highlighting
from helix_desktop.gui.transcript.transcript_pane import TranscriptPane

ANSWER = """The wait queue now lives in its own module and takes the lock only to push or pop. Two tests still fail:

- `upgrade()` re-enters the shard that it **already** holds
- the epoch counter is read without the lock, see [the note](https://example.org/note)

| test | state | seconds |
|------|-------|--------:|
| upgrade | fails | 1.2 |
| promote | passes | 0.3 |

```rust
fn upgrade(&mut self, key: Key) -> Result<Guard> {
    let waiter = self.queue.park(key);   // released before the await
    self.shard(key).promote(waiter)
}
```

Next I will move the counter behind the lock, run the tests again and show what is left. It should take two steps.
"""


class NoSource:
    async def read(self, digest: Digest, start: int, length: int) -> bytes:
        return b"one\ntwo\n" * 100

    async def read_subagent_facts(self, conversation: str) -> Sequence[Recorded]:
        return ()

    def running_state_of_subagent(self, conversation: str) -> ConversationActivity:
        return ConversationActivity.IDLE


class Dropped:
    """Work that is over before it began."""

    def cancel(self) -> bool:
        return False

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        """What was dropped is closed already."""


def _drop(work: Coroutine[Any, Any, Any], *, name: str) -> Dropped:
    work.close()
    return Dropped()


def conversation(messages: int) -> list[Recorded]:
    """A session repeated: a question, some steps with tools, an answer. Counted are
    items of the chat.
    """
    facts: list[Recorded] = []
    digest = Digest.of_content(b"output")

    def add(fact: Fact) -> None:
        facts.append(Recorded("c", len(facts) + 1, 1.7e9 + len(facts), fact))

    shown = 0
    while shown < messages:
        add(
            UserSaid(
                (
                    Text(
                        "The guard must never be held across an await. Move the queue out first. "
                        * 2,
                        40,
                    ),
                )
            )
        )
        for step in range(3):
            call = ToolCall(f"c{len(facts)}", "read_file", f'{{"path": "src/lock/table{step}.rs"}}')
            add(ModelReplied((Text(ANSWER[: 150 + 90 * step], 40), call), "m", Stop.CALLS))
            add(ToolReturned(call.id, Stored(digest, 18_900, 400), 4_812))
        add(ModelReplied((Text(ANSWER + f"\nNumber {len(facts)}.", 300),), "m", Stop.END))
        add(TurnEnded(TurnEnd.DONE))
        shown += 8
    return facts


def memory() -> float:
    """Megabytes of this process that are really in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


Frame = tuple[float, float]  # milliseconds: by the clock, and of the processor


class Trial:
    def __init__(self) -> None:
        application = QApplication.instance()
        self.app = application if isinstance(application, QApplication) else QApplication([])
        code_highlighting.find_lexer("python")  # what the program reads ahead while it starts
        theme = Theme(scheme="light")
        theme.apply_to_application()
        self.pane = TranscriptPane(theme, BackgroundRunner(_drop), NoSource())
        self.pane.resize(1084, 700)
        self.pane.show()
        self.settle()
        self.collecting = GarbageCollector(self.pane)

    def settle(self) -> None:
        for _ in range(50):
            self.app.processEvents()

    def frames(self, times: int, act: Callable[[int], None]) -> list[Frame]:
        """Each act with everything it causes at once. What is left for idle time runs
        in between, and where a slice of that took longer than the act, the slice is the
        frame: an event that came then would have waited so long.
        """
        taken: list[Frame] = []
        for number in range(times):
            longest = (0.0, 0.0)
            for turn in range(4):
                start = time.perf_counter()
                own = time.thread_time()
                if turn == 0:
                    act(number)
                self.app.processEvents()
                wall, own = 1000 * (time.perf_counter() - start), 1000 * (time.thread_time() - own)
                longest = max(longest[0], wall), max(longest[1], own)
            taken.append(longest)
        return taken

    def there(self) -> tuple[bool, float]:
        """Whether words stand at the upper edge of the view, and the share of its
        height that is laid out.
        """
        view = self.pane.view
        y = view.verticalScrollBar().value()
        height = view.viewport().height()
        laid = 0.0
        ends = []
        for index in view.column.visible_items(y, height):
            known = view.column.existing_layout(index)
            top = view.column.content_top(index)
            end = top + (known.bottom_edge if known is not None and known.boxes else 0.0)
            ends.append(end)
            laid += max(
                0.0, min(end, y + height) - max(view.column.heights.total_height_before(index), y)
            )
        return bool(ends) and ends[0] > y - 30, laid / height

    def wheel(self, by: int) -> None:
        view = self.pane.view.viewport()
        middle = QPointF(view.rect().center())
        no_button = Qt.MouseButton.NoButton
        no_key = Qt.KeyboardModifier.NoModifier
        event = QWheelEvent(
            middle,
            middle,
            QPoint(),
            QPoint(0, by),
            no_button,
            no_key,
            Qt.ScrollPhase.NoScrollPhase,
            False,
        )
        QApplication.sendEvent(view, event)


def told(name: str, taken: list[Frame]) -> None:
    wall, own = (sorted(column) for column in zip(*taken, strict=True))
    p99 = min(len(wall) - 1, int(0.99 * len(wall)))
    print(
        f"  {name:34} median {wall[len(wall) // 2]:6.2f}   p99 {wall[p99]:6.2f}   longest {wall[-1]:7.2f} ms"
        f"   of the processor: median {own[len(own) // 2]:6.2f}   p99 {own[p99]:6.2f}   longest {own[-1]:7.2f} ms"
    )


def opened(messages: int) -> None:
    before = memory()
    facts = conversation(messages)
    with_facts = memory()
    trial = Trial()
    started = memory()
    start = time.perf_counter()
    trial.pane.open_transcript(build_state(facts))
    trial.app.processEvents()
    print(f"{messages:,} messages ({len(facts):,} facts, {with_facts - before:.0f} MB of facts)")
    print(f"  opened and painted in {1000 * (time.perf_counter() - start):.0f} ms")
    random.seed(1)
    bar = trial.pane.view.verticalScrollBar()
    told("scroll up", trial.frames(300, lambda _: trial.wheel(120)))
    there: list[tuple[bool, float]] = []

    def jump(_: int) -> None:
        bar.setValue(random.randrange(bar.maximum()))
        there.append(trial.there())

    told("jump to a random message", trial.frames(100, jump))
    at_once, share = sum(words for words, _ in there), sum(share for _, share in there)
    print(
        f"  in the first frame of a jump: words at its place {at_once} of 100 times, {share:.0f} % of what is in sight"
    )
    bar.setValue(bar.maximum() // 4)
    told("scroll down fast", trial.frames(200, lambda _: trial.wheel(-960)))
    trial.pane.view.jump_to_end()
    trial.settle()
    seq = len(facts)

    def append(number: int) -> None:
        said = Recorded("c", seq + number + 1, 1.8e9, UserSaid((Text("One more thing. " * 5, 20),)))
        trial.pane.view.apply_events([FactAppended(said)])

    told("append a message", trial.frames(100, append))
    words = ANSWER.split(" ")

    def stream(number: int) -> None:
        text = " ".join(words[(number * 12) % len(words) : (number * 12) % len(words) + 12]) + " "
        trial.pane.view.apply_events([ReplyStreamed("c", TextDelta(text))])

    told("add 12 streamed words", trial.frames(400, stream))
    print(f"  memory grew by {memory() - started:.0f} MB over the facts and an empty window")


def _longest(taken: list[Frame]) -> Frame:
    return max(wall for wall, _ in taken), max(own for _, own in taken)


def hostile() -> None:
    cases = {
        "a line of 1 MB": "x" * 1_000_000,
        "a line of 1 MB with spaces": "word " * 200_000,
        "50,000 brackets": "[" * 50_000,
        "50,000 nested brackets": "[" * 25_000 + "]" * 25_000,
        "a table of 2,000 rows": "| a | b | c |\n|---|---|---|\n"
        + "| one | two | three |\n" * 2_000,
        "10,000 links": "[a](http://b.example/c) " * 10_000,
        "10,000 links, one per line": "[a](http://b.example/c)\n" * 10_000,
        "ANSI codes, bidirectional text and zero-width characters": "\x1b[31mred\x1b[0m \u202edesrever\u200b "
        * 20_000,
        "a million spaces": " " * 1_000_000 + "x",
        "a million line breaks": "\n" * 1_000_000 + "x",
        "a code block of 20,000 lines": "```python\n"
        + "x = call(1, 'two')  # three\n" * 20_000
        + "```\n",
        "a list of 5,000 items": "- one\n" * 5_000,
    }
    trial = Trial()
    print(
        "hostile text: the longest gap in ms (of the processor), as a fact and streamed in pieces of 20,000 characters"
    )
    for name, text in cases.items():
        said: list[Event] = [
            FactAppended(Recorded("c", 1, 1e9, ModelReplied((Text(text),), "m", Stop.END)))
        ]

        def show(number: int, said: list[Event] = said) -> None:
            if number == 0:
                trial.pane.view.apply_events(said)

        trial.pane.open_transcript(ConversationState())
        whole = _longest(trial.frames(40, show))
        trial.pane.open_transcript(ConversationState())
        pieces = [text[i : i + 20_000] for i in range(0, min(len(text), 400_000), 20_000)]

        def stream(number: int, pieces: list[str] = pieces) -> None:
            trial.pane.view.apply_events([ReplyStreamed("c", TextDelta(pieces[number]))])

        streamed = _longest(trial.frames(len(pieces), stream))
        up = _longest(trial.frames(60, lambda _: trial.wheel(240)))
        figures = zip(("as a fact", "streamed", "scrolled"), (whole, streamed, up), strict=True)
        print(
            f"  {name:30}"
            + "".join(f"   {way} {wall:6.1f} ({own:5.1f})" for way, (wall, own) in figures)
        )


if __name__ == "__main__":
    for count in [int(each) for each in sys.argv[1:]] or [10_000, 100_000]:
        opened(count)
    hostile()
