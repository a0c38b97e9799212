"""Tools on demand: what is sent, what is found, and how a call of it runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import pytest

from helix_desktop.engine.facts import ToolCall, ToolSpec
from helix_desktop.engine.ports import CallContext, CallOutcome
from helix_desktop.engine.tool_call_parsing import CALL_TOOL, FIND_TOOLS, unwrap_call
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.permission import PermissionRule
from helix_desktop.tools.toolbox import Toolbox
from helix_desktop.tools.tools_on_demand import (
    OnDemandTools,
    RequestHeadRoom,
    SourceCatalogue,
    SourceSummary,
    ToolFinder,
    server_of_tool,
)
from tests.tools.test_toolbox import Echo
from tests.tools.world import Words, World, world

SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "Its headline"},
        "count": {"type": "integer"},
    },
    "required": ["title"],
}


def server(name: str, count: int) -> list[Echo]:
    said = json.dumps(SCHEMA)
    return [
        Echo(ToolSpec(f"{name}__tool_{n}", f"[{name}] Does thing {n} of {name}", said))
        for n in range(count)
    ]


@dataclass
class Servers:
    """What the servers that are ready offer."""

    tools: list[Echo] = field(default_factory=list)

    def __call__(self) -> Sequence[Echo]:
        return self.tools


async def _rare(args: ToolArguments, _: ToolResources) -> ToolOutput:
    return ToolOutput(f"rare {args.text_argument('words')}")


RARE = BuiltInTool(
    ToolDeclaration(
        "water_plants",
        "Waters the plants on the balcony",
        {
            "type": "object",
            "properties": {"words": {"type": "string", "description": "What to say"}},
            "required": ["words"],
        },
        is_rare=True,
    ),
    _rare,
)


def box_of(
    here: World, servers: Servers, room: RequestHeadRoom, before: Sequence[ToolSpec] = ()
) -> Toolbox:
    demand = OnDemandTools(Words(), here.kit.finder, lambda: room, lambda: before)
    return Toolbox(
        [RARE], here.kit.resources, permissions=here.kit.permissions, more=servers, on_demand=demand
    )


async def call(here: World, box: Toolbox, name: str, **arguments: object) -> CallOutcome:
    made = unwrap_call(ToolCall("1", CALL_TOOL, json.dumps({"name": name, "arguments": arguments})))
    return await box.run_tool_call(
        made, CallContext("c", here.person.ask, here.person.shown.append)
    )


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[World]:
    async with world(tmp_path) as made:
        yield made


async def test_few_tools_are_sent_as_they_are(here: World) -> None:
    box = box_of(here, Servers(server("few", 3)), RequestHeadRoom())
    names = [spec.name for spec in box.offered_specs()]
    assert names == [FIND_TOOLS, CALL_TOOL, "few__tool_0", "few__tool_1", "few__tool_2"]
    assert box.withheld_definition_totals()[0] == 1  # the rare one


async def test_many_tools_cost_a_line(here: World) -> None:
    servers = Servers([tool for n in range(60) for tool in server(f"server{n}", 150)])
    box = box_of(here, servers, RequestHeadRoom())
    find, call = box.offered_specs()
    assert (find.name, call.name) == (FIND_TOOLS, CALL_TOOL)
    tokens_offered = 0
    for spec in (find, call):
        tokens_offered += Words().count_tokens(spec.name + spec.description + spec.schema)
    assert tokens_offered <= 2_500
    for number in range(60):
        assert f"- server{number}: " in find.description
    count, tokens = box.withheld_definition_totals()
    assert count == 9_001
    assert tokens > 300_000


async def test_what_was_decided_for_a_server_stays(here: World) -> None:
    servers = Servers(server("first", 3))
    box = box_of(here, servers, RequestHeadRoom(definition_tokens=300))
    sent = box.offered_specs()
    servers.tools += server("second", 300)
    more = box.offered_specs()
    assert more[2:] == sent[2:]
    assert "- second: " in more[0].description
    servers.tools = servers.tools[3:]
    servers.tools += server("third", 1)
    assert "- second: tool_0" in box.offered_specs()[0].description
    servers.tools = []
    assert box.offered_specs()[0] == box.offered_specs()[0]


async def test_a_conversation_that_is_opened_again_goes_on_with_the_same_array(here: World) -> None:
    before = box_of(here, Servers(server("many", 500)), RequestHeadRoom()).offered_specs()
    assert box_of(here, Servers(), RequestHeadRoom(), before).offered_specs() == before
    assert (
        box_of(here, Servers(server("many", 2)), RequestHeadRoom(), before).offered_specs()
        == before
    )
    few = box_of(here, Servers(server("few", 2)), RequestHeadRoom()).offered_specs()
    assert (
        box_of(
            here, Servers(server("few", 2)), RequestHeadRoom(definition_tokens=0), few
        ).offered_specs()
        == few
    )


async def test_lines_beyond_their_room_are_left_to_the_search(here: World) -> None:
    demand = OnDemandTools(
        Words(),
        here.kit.finder,
        lambda: RequestHeadRoom(catalogue_tokens=60),
        catalogues=lambda: [
            SourceCatalogue("Skills:", tuple(SourceSummary(f"s{n}", "x" * 40) for n in range(100)))
        ],
    )
    about = demand.definitions_to_send((), ())[0].description
    assert 1 <= about.count("\n- s") <= 6


async def test_a_tool_is_found_and_called_by_its_real_name(here: World) -> None:
    servers = Servers(
        [
            *server("github", 200),
            Echo(ToolSpec("github__create_issue", "Opens an issue", json.dumps(SCHEMA))),
        ]
    )
    box = box_of(here, servers, RequestHeadRoom())
    found = await box.run_tool_call(
        ToolCall("1", FIND_TOOLS, '{"query": "open an issue"}'), here_context(here)
    )
    assert here.text(found).startswith("github__create_issue\n  Opens an issue\n")
    here.kit.permissions.rules = (PermissionRule("ask", tool="github__create_issue"),)
    done = await call(here, box, "github__create_issue", title="Broken", count="3")
    assert done.ok
    assert json.loads(here.text(done)) == {"title": "Broken", "count": 3}
    assert here.person.asked[-1].call.name == "github__create_issue"


async def test_a_rule_that_denies_the_tool_holds(here: World) -> None:
    box = box_of(here, Servers(server("github", 200)), RequestHeadRoom())
    here.kit.permissions.rules = (PermissionRule("deny", tool="github__*"),)
    done = await call(here, box, "github__tool_3", title="x")
    assert not done.ok
    assert done.refused


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("github__tool_1", {}, "'title' is a required property"),
        ("github__tool_1", {"title": "x", "count": "many"}, "count"),
        ("github__tool_x", {"title": "x"}, "There is no tool 'github__tool_x'"),
        ("water_plants", {"word": "x"}, "water_plants has no argument 'word'"),
    ],
)
async def test_arguments_that_do_not_fit_are_said(
    here: World, name: str, arguments: dict[str, object], words: str
) -> None:
    box = box_of(here, Servers(server("github", 200)), RequestHeadRoom())
    done = await call(here, box, name, **arguments)
    assert not done.ok
    assert words in here.text(done)
    assert here.person.asked == []


async def test_a_rare_tool_of_our_own_is_found_and_runs(here: World) -> None:
    box = box_of(here, Servers(), RequestHeadRoom())
    found = await box.run_tool_call(
        ToolCall("1", FIND_TOOLS, '{"query": "plants"}'), here_context(here)
    )
    assert here.text(found).startswith("water_plants\n")
    assert here.text(await call(here, box, "water_plants", words="hello")) == "rare hello"


async def test_a_search_looks_at_the_tools_there_are_once(here: World) -> None:
    """And not once for each that might fit."""
    asked: list[int] = []
    demand = OnDemandTools(Words(), ToolFinder())
    specs = [ToolSpec(f"a__find_{number}", "Find a thing", "{}") for number in range(50)]

    def names() -> frozenset[str]:
        asked.append(1)
        return frozenset(spec.name for spec in specs[40:])

    find, _ = demand.build_on_demand_tools(lambda: specs, names)
    args = ToolArguments({"query": "thing", "limit": 20})
    found = await find.run_tool(args, cast(ToolResources, None))
    assert cast("str", found.output).count("thing") >= 10
    assert len(asked) == 1


async def test_a_search_that_finds_nothing_says_so(here: World) -> None:
    found = await box_of(here, Servers(), RequestHeadRoom()).run_tool_call(
        ToolCall("1", FIND_TOOLS, '{"query": "zebra"}'), here_context(here)
    )
    assert here.text(found).startswith("No tool was found for 'zebra'")


@pytest.mark.parametrize(
    "arguments", ['{"name": 3}', '{"name": "a", "arguments": [1]}', '{"name": "call_tool"}', "{"]
)
async def test_a_call_that_names_no_tool_is_answered(here: World, arguments: str) -> None:
    made = unwrap_call(ToolCall("1", CALL_TOOL, arguments))
    assert made.name == CALL_TOOL
    done = await box_of(here, Servers(), RequestHeadRoom()).run_tool_call(made, here_context(here))
    assert not done.ok


async def test_a_schema_nobody_can_read_is_left_to_the_server(here: World) -> None:
    odd = Echo(
        ToolSpec(
            "odd__tool",
            "Odd",
            '{"type": "object", "properties": {"a": {"$ref": "https://example.com/x"}}}',
        )
    )
    box = box_of(here, Servers([odd]), RequestHeadRoom(definition_tokens=0))
    box.offered_specs()
    assert (await call(here, box, "odd__tool", a=1)).ok


def here_context(here: World) -> CallContext:
    return CallContext("c", here.person.ask, here.person.shown.append)


def test_the_server_is_what_the_name_begins_with() -> None:
    assert server_of_tool("github__create__issue") == "github"
    assert server_of_tool("plain") == "plain"
