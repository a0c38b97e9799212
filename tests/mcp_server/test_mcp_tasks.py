"""Tasks of MCP, with the client of the official SDK."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import mcp
import mcp_types as types
import pytest
from mcp.client.extension import ClaimContext, ClientExtension, ResultClaim

from helix_desktop.errors import NotFound
from helix_desktop.mcp_server.cache_mcp_server import MCP_TASKS, build_cache_server
from tests.mcp_server.world import served


class Created(types.Result):
    result_type: Literal["task"] = "task"
    task_id: str
    status: str
    ttl_ms: int | None
    poll_interval_ms: int


class Got(types.Result):
    task_id: str
    status: str
    status_message: str = ""
    result: dict[str, Any] | None = None


class Get(types.Request[types.GetTaskRequestParams, Literal["tasks/get"]]):
    method: Literal["tasks/get"] = "tasks/get"
    params: types.GetTaskRequestParams
    name_param = "taskId"


class Cancel(types.Request[types.CancelTaskRequestParams, Literal["tasks/cancel"]]):
    method: Literal["tasks/cancel"] = "tasks/cancel"
    params: types.CancelTaskRequestParams
    name_param = "taskId"


class UpdateParams(types.GetTaskRequestParams):
    input_responses: dict[str, Any]


class Update(types.Request[UpdateParams, Literal["tasks/update"]]):
    method: Literal["tasks/update"] = "tasks/update"
    params: UpdateParams
    name_param = "taskId"


class Tasks(ClientExtension):
    identifier = MCP_TASKS

    def __init__(self) -> None:
        self.seen: list[str] = []

    def claims(self) -> Sequence[ResultClaim[Any]]:
        return [ResultClaim(result_type="task", model=Created, resolve=self.resolve)]

    async def resolve(self, created: Created, context: ClaimContext) -> types.CallToolResult:
        self.seen.append(created.status)
        while True:
            got = await context.session.send_request(
                Get(params=types.GetTaskRequestParams(task_id=created.task_id)), Got
            )
            self.seen.append(got.status)
            if got.status == "completed":
                return types.CallToolResult.model_validate(got.result)
            await asyncio.sleep(0)


class Fleet:
    """One task, which a worker takes and ends while it is asked for."""

    def __init__(self, ends: str = "done") -> None:
        self.states = ["waiting", "waiting", "needs-you", ends]
        self.cancelled: list[str] = []

    async def run(self, words: Sequence[str]) -> Any:
        if words[-1] not in ("0a1b", " Do it"):
            raise NotFound("There is no such task.")
        if words[0] == "add":
            return ["0a1b"]
        if words[0] == "cancel":
            self.cancelled.append(words[-1])
            self.states = ["cancelled"]
        state = self.states.pop(0) if len(self.states) > 1 else self.states[0]
        why = {"needs-you": "The task needs your permission.", "failed": "It broke."}.get(state, "")
        return [
            {
                "id": "0a1b",
                "state": state,
                "why": why,
                "answer": "42" if state == "done" else "",
                "added": 0.0,
            }
        ]


@pytest.mark.parametrize(("ends", "text"), [("done", "42"), ("failed", "It broke.")])
async def test_a_client_that_knows_tasks_gets_one_and_asks_until_it_has_ended(
    ends: str, text: str
) -> None:
    on, _ = await served()
    fleet = Fleet(ends)
    tasks = Tasks()
    server = build_cache_server(replace(on, run_task_command=fleet.run))
    async with mcp.Client(server, extensions=[tasks], cache=None) as client:
        result = await client.call_tool("add_task", {"text": "Do it"})
    assert tasks.seen == ["working", "working", "working", "completed"]
    assert isinstance(result.content[0], types.TextContent)
    assert (result.content[0].text, result.structured_content) == (text, {"task": "0a1b"})
    assert result.is_error == (ends == "failed")


async def test_it_is_cancelled_and_an_unknown_one_is_refused() -> None:
    on, _ = await served()
    fleet = Fleet()
    async with mcp.Client(
        build_cache_server(replace(on, run_task_command=fleet.run)),
        extensions=[Tasks()],
        cache=None,
    ) as client:
        await client.session.send_request(
            Cancel(params=types.CancelTaskRequestParams(task_id="0a1b")), types.EmptyResult
        )
        got = await client.session.send_request(
            Get(params=types.GetTaskRequestParams(task_id="0a1b")), Got
        )
        with pytest.raises(mcp.MCPError, match="There is no such task"):
            await client.session.send_request(
                Get(params=types.GetTaskRequestParams(task_id="ffff")), Got
            )
    assert (fleet.cancelled, got.status, got.result) == (["0a1b"], "cancelled", None)


async def test_answers_that_no_task_asked_for_are_accepted_and_change_nothing() -> None:
    on, _ = await served()
    fleet = Fleet()
    server = build_cache_server(replace(on, run_task_command=fleet.run))
    async with mcp.Client(server, extensions=[Tasks()], cache=None) as client:
        sent = Update(
            params=UpdateParams(task_id="0a1b", input_responses={"name": {"action": "accept"}})
        )
        done = await client.session.send_request(sent, types.EmptyResult)
        assert (
            done.model_dump(by_alias=True, exclude_none=True).get("resultType", "complete")
            == "complete"
        )
        unknown = Update(params=UpdateParams(task_id="ffff", input_responses={}))
        with pytest.raises(mcp.MCPError, match="There is no such task") as refused:
            await client.session.send_request(unknown, types.EmptyResult)
    assert (refused.value.code, fleet.cancelled) == (types.INVALID_PARAMS, [])


async def test_a_client_that_does_not_declare_tasks_is_told_to() -> None:
    """The extension wants this error of each of its methods; the client was given its
    task before.
    """
    on, _ = await served()
    fleet = Fleet()
    asked: list[types.Request[Any, Any]] = [
        Get(params=types.GetTaskRequestParams(task_id="0a1b")),
        Update(params=UpdateParams(task_id="0a1b", input_responses={})),
        Cancel(params=types.CancelTaskRequestParams(task_id="0a1b")),
    ]
    async with mcp.Client(
        build_cache_server(replace(on, run_task_command=fleet.run)), cache=None
    ) as client:
        for request in asked:
            with pytest.raises(mcp.MCPError) as refused:
                await client.session.send_request(request, Got)
            assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
            assert refused.value.data == {"requiredCapabilities": {"extensions": {MCP_TASKS: {}}}}
    assert fleet.cancelled == []


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_any_other_client_gets_the_id(mode: str) -> None:
    on, _ = await served()
    async with mcp.Client(
        build_cache_server(replace(on, run_task_command=Fleet().run)), mode=mode, cache=None
    ) as client:
        assert (await client.call_tool("add_task", {"text": "Do it"})).structured_content == {
            "task": "0a1b"
        }
