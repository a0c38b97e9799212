"""Collects reference cycles on the window's thread only, between two events.

Python may collect whenever an object is created. On a worker's thread, that would
destroy Qt objects where they must not be destroyed, and block all other threads while
it examines every object: 70 ms in the midst of typing.
"""

import gc
import time

from PySide6.QtCore import QObject, QTimer

COLLECT_INTERVAL_MS = 1000  # The interval between two checks of whether a collection is due.
# If there are more new objects than this, a large task is running and will soon free most of them.
BUSY_OBJECT_COUNT = 50_000
# A collection is postponed for a large task up to this many times in a row.
MOST_POSTPONEMENTS = 20
# After this many collections of the youngest generation, the middle generation is collected, too.
COLLECTIONS_PER_MIDDLE_GENERATION = 10
# The time until the next full collection is this many times the duration of the last one.
FULL_COLLECTION_INTERVAL_FACTOR = 1000


class GarbageCollector(QObject):
    """Created when the program has been put together."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._postponement_count = 0
        self._next_full_collection_at = 0.0
        gc.disable()
        # A collection would stop the window's thread for .1 s, to free 2,000 of 146,000
        # objects.
        gc.freeze()
        self._timer = QTimer(self, interval=COLLECT_INTERVAL_MS)
        self._timer.timeout.connect(self.collect_due_generations)
        self._timer.start()

    def freeze_living_objects(self) -> None:
        """Excludes everything that exists now from later collections."""
        gc.collect()
        gc.freeze()

    def collect_due_generations(self) -> None:
        """Collects the youngest generation, sometimes the middle one, and rarely everything."""
        new_objects, young_collections, _middle_collections = gc.get_count()
        is_busy = new_objects > BUSY_OBJECT_COUNT
        if is_busy and self._postponement_count < MOST_POSTPONEMENTS:
            self._postponement_count += 1
            return
        self._postponement_count = 0
        if time.monotonic() >= self._next_full_collection_at:
            self._collect_everything()
        elif young_collections >= COLLECTIONS_PER_MIDDLE_GENERATION:
            gc.collect(1)
        else:
            gc.collect(0)

    def _collect_everything(self) -> None:
        started_at = time.thread_time()
        gc.collect()
        duration = time.thread_time() - started_at
        pause = FULL_COLLECTION_INTERVAL_FACTOR * duration
        self._next_full_collection_at = time.monotonic() + pause
