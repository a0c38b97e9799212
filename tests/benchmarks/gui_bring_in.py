"""The real program while histories are brought in from its dialog: how long its window
is held, frame after frame.

`python -m tests.benchmarks.gui_bring_in [megabytes]`, with a display (Xvfb) or
offscreen. The page behind the dialog is painted
60 times a second meanwhile, as while an answer streams. A hold is the time from one turn of the event loop to the next.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import Qt, QTimer

from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.gui.importing.import_dialog import ImportConversationsDialog
from tests.benchmarks.bring_in import TRACES, _written
from tests.benchmarks.gui_holds import FRAME, WORKSPACE, Holds, prepare
from tests.soak.driven import drive, opened, until

FACTS = 2_000  # of the conversation behind the dialog
REST = 5.0  # seconds that are measured before it begins


async def import_(run: WindowProgram, holds: Holds) -> None:
    window = run.window
    await opened(run, WORKSPACE)
    window.sides.go_to_conversation(
        next(row.id for row in window.sides.list_rows() if row.title.startswith("A very"))
    )
    await until(lambda: window.current_session is not None)
    window.window_actions["bring-in"].trigger()
    await until(lambda: any(one.import_button.isEnabled() for one in _dialogs(window)))
    (dialog,) = _dialogs(window)
    frames = QTimer(window, interval=16, timerType=Qt.TimerType.PreciseTimer)
    frames.timeout.connect(window.chat.transcript.view.viewport().update)
    frames.start()
    holds.begin()
    await holds.settled()
    holds.taken.clear()
    begun = time.perf_counter()
    await until(lambda: time.perf_counter() - begun > REST)
    _tell("at rest", holds, time.perf_counter() - begun)
    begun = time.perf_counter()
    dialog.import_checked_groups()
    await until(dialog._close.isVisible, 600)
    _tell("while it is brought in", holds, time.perf_counter() - begun)
    print(dialog._message_label.text())


def _dialogs(window: object) -> list[ImportConversationsDialog]:
    return window.findChildren(ImportConversationsDialog)  # type: ignore[attr-defined,no-any-return]


def _tell(name: str, holds: Holds, seconds: float) -> None:
    for at, what in enumerate(("wall", "processor")):
        long = sorted(each[at] * 1000 for each in holds.taken)
        over = sum(each > FRAME * 1000 for each in long)
        shares = ", ".join(
            f"p{share} {long[int(len(long) * share / 100)]:.1f}" for share in (50, 99, 99.9)
        )
        print(
            f"{name:24} {what:10} {shares}, longest {long[-1]:.1f} ms; over 16: {over} of {len(long)} in {seconds:.1f} s"
        )
    holds.taken.clear()


def main() -> int:
    size = next((int(each) for each in sys.argv[1:] if each.isdigit()), 60)
    with tempfile.TemporaryDirectory(prefix="helix-bring-in-") as folder:
        kept = os.environ.get("HELIX_HISTORIES")  # histories that were made before
        home = Path(kept or folder)
        if not (home / ".claude").exists():
            _written(home, size << 20, TRACES)
        os.environ["HOME"] = str(home)
        prepare(Path(folder), FACTS)
        return drive(Path(folder), lambda run: import_(run, Holds()))


if __name__ == "__main__":
    sys.exit(main())
