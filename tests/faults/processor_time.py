"""How much processor time each part of a trial took, also of processes that were killed
meanwhile.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path

_TICK = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PROCESSES = Path("/proc")


class ProcessorTimes:
    """`look` now and then: of a killed process what it had at the last look is counted.
    Nothing where there is no /proc.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, int, str], float] = {}  # by part, process and when that began

    def look(self, part: str, process: int) -> None:
        """Its own time, that of its children, and of those that have ended."""
        with suppress(OSError, ValueError):
            own, ended, began = _times(PROCESSES / str(process) / "stat")
            self._seen[part, process, began] = own
            self._seen[f"{part}' children", process, began] = ended + sum(
                map(_whole, _children(process))
            )

    def look_at_threads(self) -> None:
        """Of the trial itself."""
        with suppress(OSError, ValueError):
            for thread in threading.enumerate():
                own, _, began = _times(PROCESSES / "self" / "task" / str(thread.native_id) / "stat")
                self._seen[f"the trial's thread {thread.name}", thread.native_id or 0, began] = own

    def totals(self) -> dict[str, float]:
        found: Counter[str] = Counter()
        for (part, _, _), seconds in self._seen.items():
            found[part] += seconds  # type: ignore[assignment]
        return {part: float(seconds) for part, seconds in found.items() if seconds >= 0.1}


def _times(file: Path) -> tuple[float, float, str]:
    """Its own seconds, those of its children that have ended, and when it began."""
    words = file.read_text().rpartition(")")[2].split()
    return (
        (int(words[11]) + int(words[12])) / _TICK,
        (int(words[13]) + int(words[14])) / _TICK,
        words[19],
    )


def _children(process: int) -> list[int]:
    tasks = (PROCESSES / str(process) / "task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


def _whole(process: int) -> float:
    """With its children."""
    with suppress(OSError, ValueError):
        own, ended, _ = _times(PROCESSES / str(process) / "stat")
        return own + ended + sum(map(_whole, _children(process)))
    return 0.0
