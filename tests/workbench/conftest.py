"""A desk on a home of its own, with the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk
from helix_desktop.workbench.tour import Quick

Desks = Callable[[], Desk]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "src" / "pairs.py").write_text("def count(sequence):\n    return len(sequence)\n")
    (made / "README.md").write_text("# Pairs\n\nCounting sequences.\n")
    return made


@pytest.fixture
async def desks(tmp_path: Path) -> AsyncIterator[Desks]:
    """Desks on the same home, one after another, as after a restart."""
    made: list[Desk] = []

    def new() -> Desk:
        where = places.find(tmp_path / "home")
        made.append(Desk(where, Secrets(where.key_file, environ={}), clock=Quick()))
        return made[-1]

    yield new
    for desk in made:
        await desk.aclose()
