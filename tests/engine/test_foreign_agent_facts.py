from __future__ import annotations

import asyncio
import gc
import itertools
from collections.abc import Awaitable
from typing import Any

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine import facts
from helix_desktop.engine.foreign_agent_facts import AgentFollower, AgentOutput
from helix_desktop.engine.ports import EntryOrigin
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


async def test_an_output_that_is_stored_already_is_not_stored_again() -> None:
    at = await keeping(preset="none")
    follower = AgentFollower(at.conversation, at.folding, at.cache, Quarters())
    call = facts.ToolCall("c1", "read", "{}")
    await at.conversation.append_facts(facts.ModelReplied((call,), "m", facts.Stop.CALLS))
    stored = await at.cache.store_content(b"as the agent stored it", EntryOrigin("read", "a.py"))
    await follower.record_outputs([AgentOutput("c1", "as it is shown", stored=stored)])
    (returned,) = [
        recorded.fact
        for recorded in at.conversation.state.facts
        if isinstance(recorded.fact, facts.ToolReturned)
    ]
    assert returned.output == stored
    assert returned.head == "as it is shown"
