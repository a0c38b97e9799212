"""Cycles go on the window's thread, and only there."""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop import concurrency
from helix_desktop.gui import garbage_collection
from helix_desktop.gui.garbage_collection import GarbageCollector


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def knot() -> weakref.ref[Knot]:
    return weakref.ref(Knot())


@pytest.fixture
def window(application: QApplication) -> Iterator[GarbageCollector]:
    gc.collect()
    made = GarbageCollector(application)
    yield made
    made._timer.stop()
    # What is frozen stays so: among it are all the tests, and every later collection of garbage
    # would look through them.
    gc.enable()


def test_cycles_go_when_it_looks_and_not_in_a_workers_thread(window: GarbageCollector) -> None:
    lost = knot()

    def work() -> None:
        for _ in range(5_000):
            Knot()

    concurrency.start_thread(work, name="worker").join()
    assert lost() is not None
    window.collect_due_generations()
    assert lost() is None


def test_it_begins_without_a_collection(application: QApplication) -> None:
    """At the start everything would be looked at, for .1 s in which nobody can type;
    hardly anything of it is garbage.
    """
    gc.collect()
    lost = knot()
    begun = GarbageCollector(application)
    assert lost() is not None
    begun._timer.stop()
    gc.enable()


def test_what_has_become_old_is_looked_for_less_often(
    window: GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Knot()
    old = weakref.ref(kept)
    for _ in range(3):
        window.collect_due_generations()  # the first time everything, then what is new
    del kept
    window.collect_due_generations()
    assert old() is not None
    monkeypatch.setattr(time, "monotonic", lambda: 1e12)
    window.collect_due_generations()
    assert old() is None


def test_it_waits_while_much_is_made_but_not_for_ever(
    window: GarbageCollector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage_collection, "BUSY_OBJECT_COUNT", 100)
    lost = knot()
    much = [Knot() for _ in range(200)]
    for _ in range(garbage_collection.MOST_POSTPONEMENTS):
        window.collect_due_generations()
    assert lost() is not None
    window.collect_due_generations()
    assert lost() is None
    assert len(much) == 200
