"""The tour's folder: a scripted session on it has folds of every use, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.context_usage import compute_savings
from helix_desktop.engine.facts import FoldKind, ToolCall
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.workbench import Workbenches
from helix_desktop.workbench.tour_folder import create_tour_folder
from tests.scripted_tour import folds_of, run_tour_session


async def test_when_it_is_over_nobody_answers_for_the_user(desks: Callable[[], Workbenches], tmp_path: Path) -> None:
    create_tour_folder(tmp_path / "tour")
    bench = await desks().create_workspace("Tour", tmp_path / "tour")
    asking = bench.permission_mode
    session = await run_tour_session(bench)
    assert bench.permission_mode == asking == "ask"
    assert [fold.kind for fold in folds_of(session)].count(FoldKind.HANDOVER) == 1
    assert (
        0.25 < compute_savings(session.conversation.state).saved_share < 1
    )  # beside a summary at the limit of the window
    asked = asyncio.ensure_future(  # noqa: TID251
        session._ask_user(PermissionQuestion(ToolCall("1", "run_command", "{}"), "Run it?", ""))
    )
    await asyncio.sleep(0)
    assert list(session.questions)
    assert not asked.done()
    session.stop_turn()
    await asyncio.wait([asked])
