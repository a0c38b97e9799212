"""The tour in an open workspace: what it leaves behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import Question
from helix_desktop.workbench import Desk
from helix_desktop.workbench.tour import make_folder, take


async def test_when_it_is_over_nobody_answers_for_the_user(desks: Callable[[], Desk], tmp_path: Path) -> None:
    make_folder(tmp_path / "tour")
    bench = await desks().create("Tour", tmp_path / "tour")
    asking = bench.mode
    report = await take(bench, lambda _words: None)
    assert bench.mode == asking == "ask"
    session = await bench.session(report.conversation)
    asked = asyncio.ensure_future(session._ask(Question(ToolCall("1", "run_command", "{}"), "Run it?", "")))  # noqa: TID251
    await asyncio.sleep(0)
    assert list(session.questions)
    assert not asked.done()
    session.stop()
    await asyncio.wait([asked])
