"""Rows and figures of the cache, under the names that scripts know."""

from __future__ import annotations

from helix_desktop.engine.cache_entry_rows import CacheEntryFigures, EntryRow
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest


def test_a_row_has_the_names_of_the_command_line() -> None:
    stored = Stored(Digest.of_content(b"x"), 12, 3, "text/html")
    row = EntryRow(stored, EntryOrigin("read", "a.py"), 7, 4, 9.5, uses=2, pinned=True)
    assert row.as_json_table() == {
        "sha256": stored.digest.hex,
        "size": 12,
        "lines": 3,
        "tokens": 4,
        "media_type": "text/html",
        "tool": "read",
        "source": "a.py",
        "time": 9.5,
        "uses": 2,
        "pinned": True,
    }


def test_the_figures_have_the_names_of_the_command_line() -> None:
    figures = CacheEntryFigures(1, 2, 3, 4, 5, 6, 7, 8)
    assert figures.figures_by_name() == {
        "entries": 1,
        "bytes": 2,
        "on_disk": 3,
        "tokens": 4,
        "pinned": 5,
        "removed_to_make_room": 6,
        "stored_once_used_again": 7,
        "bytes_not_stored_twice": 8,
    }
