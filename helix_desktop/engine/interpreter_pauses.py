"""Lets other threads run while one computes for long.

Python runs one thread at a time, and a thread that computes gives way seldom: the window
would not be painted and other agents' streams would wait.
"""

import time

LONGEST_STRETCH_SECONDS = 0.002


class InterpreterPauses:
    """Pauses as long as the work before it took."""

    def __init__(self) -> None:
        self._stretch_start = time.thread_time()

    def sleep_after_long_stretch(self) -> None:
        stretch_seconds = time.thread_time() - self._stretch_start
        if stretch_seconds > LONGEST_STRETCH_SECONDS:
            time.sleep(stretch_seconds)
            self._stretch_start = time.thread_time()
