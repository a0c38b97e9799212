"""A desk on a home of its own, with the scripted model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from helix_desktop import places
from helix_desktop.secrets import Secrets
from helix_desktop.workbench import Desk

Desks = Callable[[], Desk]


class Hurried:
    """The real time, and nobody waits."""

    def now(self) -> float:
        return time.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(0)


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
        made.append(Desk(where, Secrets(where.key_file, environ={}), clock=Hurried()))
        return made[-1]

    yield new
    for desk in made:
        await desk.aclose()
