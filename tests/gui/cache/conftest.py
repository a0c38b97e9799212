"""A cache page on a catalogue in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.cache_entry_rows import EntryUse
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.theme import Theme
from tests.gui import story
from tests.gui.cache.catalogue import MemoryCatalogue
from tests.gui.fake_desk import now


@pytest.fixture
def catalogue() -> MemoryCatalogue:
    made = MemoryCatalogue()
    table = made.put(story.TABLE.encode(), source="src/lock/table.rs")
    made.used[table.stored.digest] = [
        EntryUse("c", 7, 1.0, "output"),
        EntryUse("c", 19, 2.0, "recall"),
    ]
    made.put(story.TESTS.encode(), "run_command", "cargo test", tokens=18_240)
    made.put(
        b'{"a": [1, 2, {"b": null}], "c": "text"}', "fetch", "x.json", media="application/json"
    )
    made.put(b"name,count\nalpha,1\nbeta,2\n", "read_file", "x.csv", media="text/csv")
    made.put(bytes(range(256)) * 8, "read_file", "x.bin", media="application/octet-stream")
    for number in range(300):
        made.put(
            f"output {number}\n".encode() * (number + 1),
            "search",
            f"pattern {number}",
            uses=number % 4,
        )
    return made


@pytest.fixture
def settle() -> Callable[[], None]:
    def run() -> None:
        for _ in range(60):
            QApplication.processEvents()

    return run


@pytest.fixture
def page(
    theme: Theme, catalogue: MemoryCatalogue, settle: Callable[[], None]
) -> Iterator[CachePage]:
    made = CachePage(theme, BackgroundRunner(now))
    made.resize(1130, 850)
    made.model._load_timer.setInterval(0)
    made._refresh_timer.setInterval(0)
    made._figures_timer.setInterval(0)
    made.show()
    made.show_cache_of(catalogue, lambda: [("c", "Extract the lock manager")])
    settle()
    yield made
    made.close()
