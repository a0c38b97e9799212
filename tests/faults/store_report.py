"""What a trial says at its end: its counts, and each failure with what it takes to see it again."""

from __future__ import annotations

import signal
import sys
import time
from collections import Counter
from collections.abc import Callable

FAILED = 1
CUT_OFF = 2


def report(name: str, seed: int, trials: Callable[[Counter[str]], None]) -> int:
    """Run the trials and print a line of counts, then what was lost. The exit code: FAILED
    for a failure, or for no trial, and CUT_OFF for trials that were interrupted.

    Those are not judged, as many trials look only at their end whether all is well. What was
    counted and lost by then is shown.
    """
    started = time.monotonic()
    found: Counter[str] = Counter()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _interrupt)
    cut_off = ""
    try:
        trials(found)
    except KeyboardInterrupt:
        cut_off = "cut off: not judged, "
    lost = [key for key in found if key.startswith("LOST")]
    counts = ", ".join(f"{count} {key}" for key, count in found.items() if key not in lost)
    seconds = time.monotonic() - started
    sys.stdout.write(
        f"{name}: {counts}; {cut_off}{len(lost)} failures; {seconds:.0f} s, seed {seed}\n"
    )
    sys.stdout.writelines(f"{key}\n" for key in lost)
    if cut_off:
        return CUT_OFF
    if lost or not found:
        return FAILED
    return 0


def _interrupt(*_: object) -> None:
    """Once: `timeout` tells the process and then its group."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
