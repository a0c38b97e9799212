"""Reference cycles are collected on the window's thread, between two events, and nowhere else.

Python collects wherever an object is made. In a worker's thread that would end objects of Qt where they must not end, and
look through all objects of the program while every other thread waits: 70 ms in the midst of typing.
"""

from __future__ import annotations

import gc
import time

from PySide6.QtCore import QObject, QTimer

EVERY = 1000  # milliseconds
MUCH = 50_000  # new objects: somebody is at work on something large, which will mostly be gone in a moment
PATIENCE = 20  # times that is waited for
YOUNGER = 10  # collections of what is new before what has lived for a while is looked through
SHARE = 1000  # all objects are looked through for so small a part of the time: what a thread has made is held by its future until then


class Collecting(QObject):
    """Made when the program has been put together."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._waited = 0
        self._everything_at = 0.0
        gc.disable()
        self.keep()
        self._timer = QTimer(self, interval=EVERY)
        self._timer.timeout.connect(self.look)
        self._timer.start()

    def keep(self) -> None:
        """What is there by now stays for as long as the program runs, and is not looked through again."""
        gc.collect()
        gc.freeze()

    def look(self) -> None:
        """Collect what is new, sometimes what is not so new, and, when the last time is long enough ago for what it took, all."""
        new, times, _ = gc.get_count()
        if new > MUCH and self._waited < PATIENCE:
            self._waited += 1
            return
        self._waited = 0
        if time.monotonic() < self._everything_at:
            gc.collect(1 if times >= YOUNGER else 0)
        else:
            begun = time.thread_time()
            gc.collect()
            self._everything_at = time.monotonic() + SHARE * (time.thread_time() - begun)
