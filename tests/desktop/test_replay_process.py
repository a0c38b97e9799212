"""Conversations of a real workspace through other policies, in a process of their own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import tempfile
from pathlib import Path

import pytest

from helix_desktop.desktop import replay_process
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.lab.replay_lab_port import ReplaySelection
from helix_desktop.workbench.scripted_tour import create_tour_folder, run_tour_session
from tests.workbench.conftest import desks, folder

__all__ = ["desks", "folder"]


async def test_a_conversation_is_played_through_each_policy(desks: object, tmp_path: Path) -> None:
    create_tour_folder(tmp_path / "sample")
    desk = desks()  # type: ignore[operator]
    bench = await desk.create_workspace("Sample", tmp_path / "sample")
    tour = await run_tour_session(bench, lambda _: None)
    heard: list[tuple[int, int]] = []
    wanted = ReplaySelection([tour.conversation], [], ["helix", "none"], 32_000)
    before = set(await asyncio.to_thread(os.listdir, tempfile.gettempdir()))
    outcome = await replay_process.replay_conversations(bench, wanted, lambda done, total: heard.append((done, total)))
    helix, none = outcome.policy_outcomes
    assert (helix.policy, none.policy) == ("helix", "none")
    assert abs(none.billed - none.plain_billed) < none.billed / 1_000  # the same, but for numbers in names
    assert helix.sent < none.sent
    assert helix.steps == none.steps > 5
    assert heard[-1] == (2, 2)
    assert [len(one.conversation_replays[0].steps) for one in outcome.policy_outcomes] == [helix.steps, none.steps]
    assert sum(helix.conversation_replays[0].steps) == helix.sent
    assert max(helix.conversation_replays[0].steps) / 32_000 == pytest.approx(helix.peak, abs=1e-4)
    assert {kind for _, kind in helix.conversation_replays[0].folds} == set(helix.folds) - {"excerpt"}
    title = next(row.title for row in bench.list_conversations() if row.id == tour.conversation)
    assert helix.conversation_replays[0].name == f"1 {title}"
    assert "<html" in outcome.page[:500]
    assert "Recalls are billed with the searches for the content." in outcome.page
    assert f"<h2>1 {title}.json</h2>" in outcome.page
    left = set(await asyncio.to_thread(os.listdir, tempfile.gettempdir())) - before
    assert not any(name.startswith("helix-replay-") for name in left)
    with pytest.raises(StoreFailed, match="The replay failed"):
        await replay_process.replay_conversations(
            bench, ReplaySelection([], [tmp_path / "missing.jsonl"], ["helix"], 32_000), lambda _d, _t: None
        )


async def test_a_replay_that_is_stopped_leaves_no_process(desks: object, tmp_path: Path) -> None:
    desk, long = desks(), tmp_path / "long.jsonl"  # type: ignore[operator]
    (tmp_path / "folder").mkdir()
    bench = await desk.create_workspace("Empty", tmp_path / "folder")
    long.write_text("".join(f'{{"role": "user", "content": "{n}"}}\n' for n in range(50_000)))
    work = asyncio.ensure_future(  # noqa: TID251 - a test's own task
        replay_process.replay_conversations(
            bench, ReplaySelection([], [long], ["layered"], 32_000), lambda _d, _t: None
        )
    )
    while not running(str(long)):
        await asyncio.sleep(0.02)
    work.cancel()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert not running(str(long))


def running(mark: str) -> bool:
    found = subprocess.run(["pgrep", "-f", f"replay.*{mark}"], capture_output=True, check=False)
    return bool(found.stdout.strip())
