"""The tour's folder: a scripted session on it has folds of every use, and leaves nothing behind."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from helix_desktop.engine.facts import FilesChanged, FoldKind, Text, ToolCall
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.unknown_names import find_unknown_names_of_fold
from helix_desktop.workbench import Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.scripted_tour import folds_of, run_tour_session


async def test_when_it_is_over_nobody_answers_for_the_user(
    desks: Callable[[], Workbenches], tmp_path: Path
) -> None:
    create_tour_folder(tmp_path / "tour")
    bench = await desks().create_workspace("Tour", tmp_path / "tour")
    asking = bench.permission_mode
    session = await run_tour_session(bench)
    assert bench.permission_mode == asking == "ask"
    assert [fold.kind for fold in folds_of(session)].count(FoldKind.HANDOVER) == 1
    assert (
        0.25 < session.conversation.state.savings_until_moment().saved_share < 1
    )  # beside a summary at the limit of the window
    asked = asyncio.ensure_future(  # noqa: TID251
        session._ask_user(PermissionQuestion(ToolCall("1", "run_command", "{}"), "Run it?", ""))
    )
    await asyncio.sleep(0)
    assert list(session.questions)
    assert not asked.done()
    session.stop_turn()
    await asyncio.wait([asked])


async def test_the_first_handover_of_a_new_user_keeps_what_matters_and_claims_nothing_false(
    desks: Callable[[], Workbenches], tmp_path: Path
) -> None:
    """The window's tour: its line in the chat said “the model kept only 1 of 3
    details”, and its page named four false claims.
    """
    create_tour_folder(tmp_path / "tour")
    bench = await desks().create_workspace("Tour", tmp_path / "tour")
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("allow all")
    session = await bench.start_conversation("Tour")
    for words in ("Show me what you can do", "list"):
        session.send_message((Text(words),))
        await session.wait_until_idle()
    changes = [each.fact.names for each in session.all_facts if isinstance(each.fact, FilesChanged)]
    assert changes == [("README.md",)]
    assert "run.log" in (tmp_path / "tour" / "README.md").read_text("utf-8")
    await session.fold_on_request(FoldKind.HANDOVER)
    (fold,) = [fold for fold in folds_of(session) if fold.kind is FoldKind.HANDOVER]
    assert fold.details.kept >= fold.details.found / 2
    assert "written again" not in fold.why
    state = session.conversation.state
    assert await find_unknown_names_of_fold(state, fold, bench.workspace.cache) == []
