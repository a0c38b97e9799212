from __future__ import annotations

from typing import Any

from helix_desktop.workbench.worker_claims import ConversationFence, ConversationFences


async def nothing() -> None:
    return


def test_the_fence_of_a_sub_agent_is_found_above_it_and_none_where_parents_go_in_a_circle() -> None:
    parents = {"child": "task", "one": "two", "two": "one"}
    hooks: Any = None
    fences = ConversationFences(hooks, lambda name: parents.get(name, ""))
    fences.held["task"] = fence = ConversationFence(nothing, nothing)
    assert fences.find_fence("child") is fence
    assert fences.find_fence("one") is None
