"""A desk on a home of its own, with the scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from helix_desktop import program_folders
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.scripted_tour import ClockWithoutPauses

Desks = Callable[[], Workbenches]


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
    made: list[Workbenches] = []

    def new() -> Workbenches:
        where = program_folders.find_program_folders(tmp_path / "home")
        made.append(
            Workbenches(
                where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses()
            )
        )
        return made[-1]

    yield new
    for desk in made:
        await desk.aclose()
