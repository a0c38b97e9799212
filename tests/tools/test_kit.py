from __future__ import annotations

import json
from pathlib import Path

import pytest

from helix_desktop.replay.billing import HEAD_TOKENS
from helix_desktop.store.memory import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.tasks import Tasks
from helix_desktop.tokens import Counter
from helix_desktop.tools.kit import Kit, Options
from helix_desktop.tools.on_demand import Finder, OnDemand
from helix_desktop.tools.runner import Permissions
from helix_desktop.tools.sandbox import Kind
from helix_desktop.tools.subagent import Child
from helix_desktop.workbench.setup import system_prompt
from tests.tools.world import Words


async def opened(folders: list[Path], *closed: Path) -> tuple[Kit, Permissions]:
    cache, permissions = MemoryCache(), Permissions()
    stores = (cache, MemoryIndex(MemoryJournal(), cache), Words())
    kit = await Kit.open(
        folders, stores, permissions=permissions, spawn=Tasks("t").spawn, options=Options(closed=closed)
    )
    return kit, permissions


async def test_the_sandbox_is_found_and_permission_knows(tmp_path: Path) -> None:
    kit, permissions = await opened([tmp_path])
    assert permissions.sandboxed is (kit.sandbox.kind is not Kind.NONE)
    assert kit.sandbox.folders == (tmp_path.resolve(),)
    assert kit.sandbox.scratch.stat().st_mode & 0o77 == 0
    await kit.aclose()
    assert not kit.sandbox.scratch.exists()


@pytest.mark.parametrize("folders", [[], ["gone"]])
async def test_a_workspace_opens_without_its_folder(tmp_path: Path, folders: list[str]) -> None:
    kit, _ = await opened([tmp_path / name for name in folders], tmp_path / "own")
    assert len(kit.toolbox().specs()) >= 13
    await kit.aclose()


async def test_a_second_aclose_does_no_harm(tmp_path: Path) -> None:
    kit, _ = await opened([tmp_path])
    await kit.aclose()
    await kit.aclose()


async def test_what_stands_in_front_of_every_request_is_short_and_every_tool_is_reachable(tmp_path: Path) -> None:
    """The replay bills these tokens with every request."""
    counter = Counter()
    kit, _ = await opened([tmp_path])

    async def nothing(*_: object) -> str:
        return ""

    async def child(*_: object) -> Child:
        return Child("c", "")

    on_demand = OnDemand(counter, Finder())
    box = kit.toolbox(compact=nothing, history=nothing, start_child=child, on_demand=on_demand)
    sent = [
        {"name": one.name, "description": one.description, "input_schema": json.loads(one.schema)}
        for one in box.specs()
    ]
    prompt = system_prompt("Thesis", [str(tmp_path)], counter)
    head = counter.count(json.dumps(sent)) + prompt.tokens
    assert head <= HEAD_TOKENS <= 2_000
    own = {tool.name for tool in kit.toolbox(compact=nothing, history=nothing, start_child=child).specs()}
    for name in own - {spec.name for spec in box.specs()}:
        found = await on_demand.finder.best(name.replace("_", " "), 5, box._searchable(), lambda _: True)
        assert name in [spec.name for spec in found]
    assert own <= box.names
    await kit.aclose()
