"""The tour in an open workspace: what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.workbench import Workbenches
from helix_desktop.workbench.scripted_tour import create_tour_folder, run_tour_session


async def test_when_it_is_over_nobody_answers_for_the_user(desks: Callable[[], Workbenches], tmp_path: Path) -> None:
    create_tour_folder(tmp_path / "tour")
    bench = await desks().create_workspace("Tour", tmp_path / "tour")
    asking = bench.permission_mode
    report = await run_tour_session(bench, lambda _words: None)
    assert bench.permission_mode == asking == "ask"
    session = await bench.open_session(report.conversation)
    asked = asyncio.ensure_future(  # noqa: TID251
        session._ask_user(PermissionQuestion(ToolCall("1", "run_command", "{}"), "Run it?", ""))
    )
    await asyncio.sleep(0)
    assert list(session.questions)
    assert not asked.done()
    session.stop_turn()
    await asyncio.wait([asked])
