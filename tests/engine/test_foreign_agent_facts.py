from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable
from typing import Any

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import facts
from helix_desktop.engine.foreign_agent_facts import AgentFollower
from helix_desktop.engine.state.view_items import ViewItem
from tests.engine.keeping import Quarters, keeping

MESSAGES = 12_000
AT_ONCE = 5_000


async def test_what_a_fold_of_a_long_history_covers_is_freed_in_steps_between_which_others_run() -> (
    None
):
    at = await keeping(preset="none")
    conversation = at.conversation
    await conversation.append_facts(
        *(facts.UserSaid((facts.Text(f"{n}", 100),)) for n in range(MESSAGES))
    )

    async def fold(work: Awaitable[Any]) -> None:
        await work
        span = facts.Span(conversation.state.branch.order[0], conversation.state.branch.order[-1])
        await conversation.append_facts(
            facts.Folded("handover-1", facts.FoldKind.HANDOVER, span, "All.", 9, 10**6)
        )

    def count_items() -> int:
        return sum(type(each) is ViewItem for each in gc.get_objects())

    counts = [before := count_items()]

    async def watch() -> None:
        while True:
            counts.append(count_items())
            await asyncio.sleep(0)

    tasks = OwnedTasks("test")
    tasks.spawn_task(watch(), name="watch")
    view = await AgentFollower(
        conversation, at.folding, at.cache, Quarters(), waiting=fold
    ).apply_folds_and_get_view()
    counts.append(count_items())
    await tasks.aclose(limit=1)
    assert [block.fold for block in view.blocks] == [
        "handover-1",
        "",
    ]  # What the user said last stays.
    assert before - counts[-1] > MESSAGES - AT_ONCE
    assert max(one - two for one, two in itertools.pairwise(counts)) <= AT_ONCE
