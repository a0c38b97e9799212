from __future__ import annotations

from typing import Any, cast

from helix_desktop.engine.facts import ConversationStarted
from helix_desktop.workbench.conversation_list_rows import ConversationListRows
from helix_desktop.workbench.worker_claims import WorkerClaim, WorkerClaims


async def nothing() -> None:
    return


async def nothing_sent(_conversation: str) -> None:
    return


def test_the_claim_of_a_sub_agent_is_found_above_it_and_none_where_parents_go_in_a_circle() -> None:
    rows = ConversationListRows(cast("Any", None))
    hooks = cast("Any", None)
    for name, parent in (("task", ""), ("child", "task"), ("one", "two"), ("two", "one")):
        rows.add_new_row(name, ConversationStarted(parent=parent), 0.0)
    claims = WorkerClaims(hooks, rows.ids_above)
    claims.held["task"] = claim = WorkerClaim(nothing, nothing, nothing, nothing_sent)
    assert claims.find_claim("child") is claim
    assert claims.find_claim("one") is None
