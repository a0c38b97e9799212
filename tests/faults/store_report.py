"""What a storage trial says at its end: its counts, and each failure with what it takes
to see it again.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable


def report(name: str, seed: int, trials: Callable[[Counter[str]], None]) -> int:
    """Run the trials and print a line of counts, then what was lost. The exit code: 1
    for a failure, or for no trial.

    Interrupted, it says what was found by then.
    """
    started = time.monotonic()
    found: Counter[str] = Counter()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, _ended)
    with contextlib.suppress(KeyboardInterrupt):
        trials(found)
    lost = [key for key in found if key.startswith("LOST")]
    counts = ", ".join(f"{count} {key}" for key, count in found.items() if key not in lost)
    seconds = time.monotonic() - started
    sys.stdout.write(f"{name}: {counts}; {len(lost)} failures; {seconds:.0f} s, seed {seed}\n")
    sys.stdout.writelines(f"{key}\n" for key in lost)
    return 1 if lost or not found else 0


def _ended(*_: object) -> None:
    """Once: `timeout` tells the process and then its group."""
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt
