"""Which conversations a worker has claimed, and what is asked before a step and a call."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ConversationStarted, ToolCall
from helix_desktop.engine.ports import CallContext, CallOutcome
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.errors import StoreFailed
from helix_desktop.tools.toolbox import CallHooks
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


class NotedHooks:
    """`CallHooks` that note which calls they were run for."""

    def __init__(self) -> None:
        self.before: list[str] = []
        self.after: list[str] = []

    async def run_hooks_before_call(self, call: ToolCall, context: CallContext) -> None:
        self.before.append(call.id)

    async def run_hooks_after_call(
        self, call: ToolCall, context: CallContext, outcome: CallOutcome
    ) -> None:
        self.after.append(call.id)


class NotedClaim:
    """A claim that notes what it was asked, and refuses it if it is lost."""

    def __init__(self, budget: float = 0.0) -> None:
        self.asked: list[str] = []
        self.is_lost = False
        self.claim = WorkerClaim(
            partial(self._ask, "act"),
            partial(self._ask, "call"),
            partial(self._ask, "write"),
            nothing_sent,
            budget,
        )

    async def _ask(self, what: str) -> None:
        self.asked.append(what)
        if self.is_lost:
            raise StoreFailed("The task is lost.")


def claims_of(hooks: CallHooks | None = None) -> WorkerClaims:
    """`child` is below `task`, and `other` stands alone."""
    return WorkerClaims(hooks or NotedHooks(), {"child": ["task"], "other": []}.__getitem__)


async def test_a_claim_is_held_until_its_block_ends_even_by_an_error() -> None:
    claims = claims_of()
    held = NotedClaim().claim
    assert claims.find_claim("nobody knows this one") is None, "nothing is looked up"

    async def fail_while_held() -> None:
        async with claims.hold_claim("task", held):
            assert claims.find_claim("task") is held
            assert claims.find_claim("child") is held
            assert claims.find_claim("other") is None
            assert not held.removed.is_set()
            raise StoreFailed("It broke.")

    with pytest.raises(StoreFailed):
        await fail_while_held()
    assert claims.held == {}
    assert held.removed.is_set()


async def test_a_second_claim_waits_for_the_end_of_the_first() -> None:
    claims = claims_of()
    first, second = NotedClaim().claim, NotedClaim().claim
    owned = OwnedTasks("claims")
    reached = asyncio.Event()

    async def hold_second() -> None:
        async with claims.hold_claim("task", second):
            reached.set()
            assert claims.find_claim("task") is second

    async with claims.hold_claim("task", first):
        waiting = owned.spawn_task(hold_second(), name="second")
        await asyncio.sleep(0)
        assert not reached.is_set()
        assert claims.find_claim("task") is first
    await asyncio.wait_for(waiting, 60)
    assert reached.is_set()
    await owned.aclose()


async def test_a_call_that_waits_for_other_tasks_takes_no_room_meanwhile() -> None:
    claims = claims_of()
    held = NotedClaim().claim
    with claims.give_up_worker_slot("child"):
        assert held.waiting == []

    def fail_while_waiting() -> None:
        with claims.give_up_worker_slot("child"):
            assert held.waiting == ["child"]
            raise StoreFailed("It broke.")

    async with claims.hold_claim("task", held):
        with pytest.raises(StoreFailed):
            fail_while_waiting()
        assert held.waiting == []


async def test_a_step_and_a_call_of_a_sub_agent_ask_the_claim_of_its_task_first() -> None:
    hooks = NotedHooks()
    claims = claims_of(hooks)
    noted = NotedClaim()
    call = ToolCall("c1", "run_command", "{}")
    context = cast(CallContext, SimpleNamespace(conversation="child"))
    await claims.ensure_may_act("child")
    await claims.run_hooks_before_call(call, context)
    assert (noted.asked, hooks.before) == ([], ["c1"])
    async with claims.hold_claim("task", noted.claim):
        await claims.ensure_may_act("child")
        await claims.run_hooks_before_call(call, context)
        assert (noted.asked, hooks.before) == (["act", "call"], ["c1", "c1"])
        noted.is_lost = True
        with pytest.raises(StoreFailed):
            await claims.ensure_may_act("child")
        with pytest.raises(StoreFailed):
            await claims.run_hooks_before_call(call, context)
        assert hooks.before == ["c1", "c1"], "nothing runs for a lost task"
    await claims.run_hooks_after_call(call, context, cast(CallOutcome, None))
    assert hooks.after == ["c1"]


async def test_a_budget_limits_its_own_conversation_only() -> None:
    claims = claims_of()
    usual = TurnLimits(conversation_cost=9.0)
    async with claims.hold_claim("task", NotedClaim(budget=0.5).claim):
        assert claims.limit_conversation_cost("task", usual) == replace(
            usual, conversation_cost=0.5
        )
        assert claims.limit_conversation_cost("child", usual) is usual
    async with claims.hold_claim("task", NotedClaim().claim):
        assert claims.limit_conversation_cost("task", usual) is usual, "0 is no limit"
