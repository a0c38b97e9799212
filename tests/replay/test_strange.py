"""Strange sessions under every policy and in every window: nothing breaks, nothing is
illegal, nothing is lost.

HELIX_STRANGE=all plays each session under all policies in all windows; otherwise each of them once.
"""

from __future__ import annotations

import itertools
import os
from pathlib import Path

import pytest

from helix_desktop import token_counting
from helix_desktop.engine import context_policy
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay import simulated_clock
from helix_desktop.replay.replay_figures import ReplayFigures
from helix_desktop.replay.session_player import (
    RememberingCounter,
    ReplayStores,
    ReplayTerms,
    SessionPlayer,
)
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from tests.replay import collector, strange

POLICIES = ("layered", "helix", "observational", "none")
WINDOWS = (8_000, 32_000, 128_000)
EVERY = list(itertools.product(POLICIES, WINDOWS))
COUNTING = RememberingCounter(token_counting.TiktokenCounter())
ALL = os.environ.get("HELIX_STRANGE") == "all"


def chosen(number: int) -> list[tuple[str, int]]:
    """What a session is played under: all of it when asked for, else another pair for
    each session, never `none`.
    """
    folding = EVERY[: -len(WINDOWS)]
    return EVERY if ALL else [folding[number % len(folding)]]


TRIALS = [
    pytest.param(name, preset, window, id=f"{name}-{preset}-{window // 1_000}K")
    for number, name in enumerate(strange.MAKERS)
    for preset, window in chosen(number)
]


def played(recording: RecordedSession, preset: str, window: int) -> tuple[ReplayFigures, set[str]]:
    """The figures, and what the other collector misses."""

    async def play() -> tuple[ReplayFigures, set[str]]:
        now = simulated_clock.LoopClock().current_time
        journal = MemoryJournal(now=now)
        cache = MemoryCache(now=now)
        stores = ReplayStores(journal, cache, MemoryIndex(journal, cache))
        figures = await SessionPlayer(
            recording, ReplayTerms(context_policy.preset_policy(preset), window), stores, COUNTING
        ).play_session()
        return figures, await collector.lost(await journal.read_facts("replay"), cache)

    return simulated_clock.run_on_jumping_loop(play())


@pytest.mark.parametrize(("name", "preset", "window"), TRIALS)
def test_a_strange_session_is_played_whole(
    name: str, preset: str, window: int, tmp_path: Path
) -> None:
    path = tmp_path / "session.jsonl"
    path.write_bytes(strange.file(name))
    recordings = history_reading.read_history_file(path).recordings
    assert recordings
    for recording in recordings:
        figures, missing = played(recording, preset, window)
        assert len(figures.steps) == sum(
            message.role == "assistant" for message in recording.messages
        )
        assert figures.illegal_requests == 0
        assert figures.recalls_failed == 0
        assert figures.undo_identical
        assert figures.details.get("lost", 0) == 0
        assert missing == set()
