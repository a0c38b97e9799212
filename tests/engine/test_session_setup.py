"""What a session works with where nothing else is said."""

from __future__ import annotations

from helix_desktop.engine import session_setup


async def test_where_nobody_looks_at_the_folders_nothing_has_changed_there() -> None:
    assert await session_setup._no_file_changes("a conversation") == ()
