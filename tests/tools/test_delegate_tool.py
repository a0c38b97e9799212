from __future__ import annotations

import asyncio
from typing import Any

import pytest

from helix_desktop.engine.ports import CallContext
from helix_desktop.engine.session_setup import TurnLimits
from helix_desktop.tools.delegate_tool import AgentPlace, AgentRole, Delegation, DelegationResult
from tests.tools.world import World


class Children:
    """Starts children that answer when they are let to."""

    def __init__(self) -> None:
        self.wishes: list[Delegation] = []
        self.running = self.most = 0
        self.go = asyncio.Event()

    async def __call__(self, wish: Delegation, context: CallContext) -> DelegationResult:
        self.wishes.append(wish)
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            await self.go.wait()
        finally:
            self.running -= 1
        return DelegationResult(f"child{len(self.wishes)}", f"did {wish.task}")


async def test_only_the_result_comes_back_with_the_childs_conversation(here: World) -> None:
    children = Children()
    children.go.set()
    here.box = here.kit.build_toolbox(start_child=children)
    outcome = await here.run(
        "delegate", task="look", context="in src", tools=["read_file", "read_file"]
    )
    assert (here.text(outcome), outcome.child, outcome.ok) == ("did look", "child1", True)
    assert children.wishes == [Delegation("c", "call1", "look", "in src", ("read_file",), 1)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"task": " "}, "Specify a task"),
        ({"task": "x" * 100_001}, "Specify a task"),
        ({"task": "x", "tools": ["fly"]}, "no tool 'fly'"),
    ],
)
async def test_what_cannot_be_delegated_gets_a_sentence(
    here: World, arguments: dict[str, Any], words: str
) -> None:
    here.box = here.kit.build_toolbox(start_child=Children())
    assert words in await here.said("delegate", **arguments)


async def test_depth_and_number_are_limited(here: World) -> None:
    children = Children()
    children.go.set()
    assert "delegate" in {
        spec.name
        for spec in here.kit.build_toolbox(
            start_child=children, place=AgentPlace(1)
        ).offered_specs()
    }
    assert "delegate" not in {
        spec.name
        for spec in here.kit.build_toolbox(
            start_child=children, place=AgentPlace(2)
        ).offered_specs()
    }
    here.box = here.kit.build_toolbox(
        start_child=children, place=AgentPlace(1, limits=lambda: TurnLimits(agents=2))
    )
    for _ in range(2):
        assert (await here.run("delegate", task="x")).ok
    assert "no more can be started" in await here.said("delegate", task="x")
    assert {wish.depth for wish in children.wishes} == {2}


async def test_stopping_stops_the_child(here: World) -> None:
    children = Children()
    here.box = here.kit.build_toolbox(start_child=children)
    run = asyncio.ensure_future(here.run("delegate", task="x"))  # noqa: TID251 -- to cancel it
    async with asyncio.timeout(60):
        while not children.running:
            await asyncio.sleep(0)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert children.running == 0


@pytest.mark.parametrize(
    ("patterns", "asked_for", "given"),
    [
        ((), (), ()),
        ((), ("read_file",), ("read_file",)),
        (("read_*", "list_f*"), ("read_file", "write_file"), ("read_file",)),
        (("nothing",), ("write_file",), ("none",)),
    ],
)
async def test_an_agent_has_the_tools_that_its_file_and_the_call_name(
    here: World, patterns: tuple[str, ...], asked_for: tuple[str, ...], given: tuple[str, ...]
) -> None:
    children = Children()
    children.go.set()
    roles = {"reader": AgentRole("reader", patterns)}
    place = AgentPlace(roles=lambda: roles)
    here.box = here.kit.build_toolbox(start_child=children, place=place)
    await here.run("delegate", task="look", agent="reader", tools=list(asked_for))
    assert children.wishes[0].tools == given


async def test_an_agent_without_a_wish_has_all_that_fits_and_can_always_recall(
    here: World,
) -> None:
    children = Children()
    children.go.set()
    roles = {"reader": AgentRole("reader", ("read_file", "list_f?les"))}
    place = AgentPlace(roles=lambda: roles)
    here.box = here.kit.build_toolbox(start_child=children, place=place)
    await here.run("delegate", task="look", agent="reader")
    given = set(children.wishes[0].tools)
    assert {"read_file", "list_files", "recall_cached_content"} <= given
    assert "write_file" not in given
    assert "delegate" not in given
