from __future__ import annotations

from typing import Any

from helix_desktop.workbench.worker_claims import WorkerClaim, WorkerClaims


async def nothing() -> None:
    return


def test_the_claim_of_a_sub_agent_is_found_above_it_and_none_where_parents_go_in_a_circle() -> None:
    parents = {"child": "task", "one": "two", "two": "one"}
    hooks: Any = None
    claims = WorkerClaims(hooks, lambda name: parents.get(name, ""))
    claims.held["task"] = claim = WorkerClaim(nothing, nothing)
    assert claims.find_claim("child") is claim
    assert claims.find_claim("one") is None
