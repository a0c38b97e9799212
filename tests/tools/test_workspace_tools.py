from __future__ import annotations

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import pytest

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext
from helix_desktop.errors import ActionRefused
from helix_desktop.processes import starter
from helix_desktop.replay.prompt_cache_billing import HEAD_TOKENS
from helix_desktop.store.in_memory_stores import MemoryCache, MemoryIndex, MemoryJournal
from helix_desktop.token_counting import TiktokenCounter
from helix_desktop.tools.delegate_tool import DelegationResult
from helix_desktop.tools.git_runner import run_git
from helix_desktop.tools.sandbox import SandboxKind
from helix_desktop.tools.toolbox import WorkspacePermissions
from helix_desktop.tools.tools_on_demand import OnDemandTools, ToolFinder
from helix_desktop.tools.workspace_tools import WorkspaceToolOptions, WorkspaceTools
from helix_desktop.workbench.system_prompt_and_settings import build_system_prompt
from tests.tools.world import Person, Words


async def opened(folders: list[Path], *closed: Path) -> tuple[WorkspaceTools, WorkspacePermissions]:
    cache = MemoryCache()
    permissions = WorkspacePermissions()
    stores = (cache, MemoryIndex(MemoryJournal(), cache), Words())
    kit = await WorkspaceTools.open_workspace_tools(
        folders,
        stores,
        permissions=permissions,
        spawn=OwnedTasks("t").spawn_task,
        options=WorkspaceToolOptions(closed_paths=closed),
    )
    return kit, permissions


async def test_the_sandbox_is_found_and_permission_knows(tmp_path: Path) -> None:
    kit, permissions = await opened([tmp_path])
    assert permissions.sandboxed is (kit.sandbox.kind is not SandboxKind.NONE)
    assert kit.sandbox.folders == (tmp_path.resolve(),)
    assert kit.sandbox.scratch.stat().st_mode & 0o77 == 0
    await kit.aclose()
    assert not kit.sandbox.scratch.exists()


@pytest.mark.parametrize("folders", [[], ["gone"]])
async def test_a_workspace_opens_without_its_folder(tmp_path: Path, folders: list[str]) -> None:
    kit, _ = await opened([tmp_path / name for name in folders], tmp_path / "own")
    assert len(kit.build_toolbox().offered_specs()) >= 13
    await kit.aclose()


@pytest.mark.parametrize("beginning", ["links", "project/.venv/bin", "relative"])
async def test_our_own_helpers_are_never_those_of_a_folder_in_which_agents_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    """With a project's virtual environment activated, PATH names a folder of the project. A `git` or
    `bwrap` that somebody had put there ran outside the sandbox, and nobody was asked.
    """
    project = tmp_path / "project"
    environment = project / ".venv" / "bin"
    links = tmp_path / "links"
    canary = tmp_path / "canary"
    environment.mkdir(parents=True)
    links.mkdir()
    for name in ("git", "bwrap", "rg", "cp", "gh", "glab", "gpg"):
        own = environment / name
        own.write_text(f'#!/bin/sh\necho {name} >> "{canary}"\nexec /usr/bin/{name} "$@"\n')
        own.chmod(0o755)
        if name != "gpg":  # Git finds it itself, and a link in a folder of the user is the user's.
            (links / name).symlink_to(own)
    first_folder = str(tmp_path / beginning)
    if beginning == "relative":
        first_folder = "./.venv/bin"
    monkeypatch.setenv("PATH", f"{first_folder}:{os.environ['PATH']}")
    kit, _ = await opened([project])
    await asyncio.to_thread(run_git, project, "init", "-q")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".gitconfig").write_text(
        "[user]\nname = A\nemail = a@b\n[commit]\ngpgsign = true\n"
    )
    with pytest.raises(ActionRefused, match="sign"):
        await asyncio.to_thread(run_git, project, "commit", "--allow-empty", "-qm", "x")
    assert not canary.exists(), canary.read_text()
    person = Person()
    box = kit.build_toolbox()
    for tool, arguments in (
        ("run_command", {"command": "echo done"}),
        ("search_files", {"pattern": "echo"}),
    ):
        call = ToolCall(tool, tool, json.dumps(arguments))
        await box.run_tool_call(call, CallContext("c", person.ask, person.shown.append))
        assert not canary.exists(), canary.read_text()
    for name in ("git", "bwrap", "rg", "cp", "gh", "glab"):
        assert not starter.find_own_program(name).startswith(str(tmp_path))
    launch = partial(starter.ProcessLaunch, starter.CommandAuthor.PROGRAM)
    with pytest.raises(starter.UnsafeLaunch, match="agents work"):
        launch([str(links / "git")])
    assert not canary.exists()
    await kit.aclose()


async def test_a_second_aclose_does_no_harm(tmp_path: Path) -> None:
    kit, _ = await opened([tmp_path])
    await kit.aclose()
    await kit.aclose()


async def test_what_stands_in_front_of_every_request_is_short_and_every_tool_is_reachable(
    tmp_path: Path,
) -> None:
    """The replay bills these tokens with every request."""
    counter = TiktokenCounter()
    kit, _ = await opened([tmp_path])

    async def nothing(*_: object) -> str:
        return ""

    async def child(*_: object) -> DelegationResult:
        return DelegationResult("c", "")

    on_demand = OnDemandTools(counter, ToolFinder())
    box = kit.build_toolbox(
        compact=nothing, history=nothing, start_child=child, on_demand=on_demand
    )
    sent = [
        {"name": one.name, "description": one.description, "input_schema": json.loads(one.schema)}
        for one in box.offered_specs()
    ]
    prompt = build_system_prompt("Thesis", [str(tmp_path)], counter)
    head = counter.count_tokens(json.dumps(sent)) + prompt.tokens
    assert head <= HEAD_TOKENS <= 2_000
    own = {
        tool.name
        for tool in kit.build_toolbox(
            compact=nothing, history=nothing, start_child=child
        ).offered_specs()
    }
    for name in own - {spec.name for spec in box.offered_specs()}:
        found = await on_demand.finder.find_best_tools(
            name.replace("_", " "), 5, box._searchable_specs(), lambda _: True
        )
        assert name in [spec.name for spec in found]
    assert own <= box.callable_names
    await kit.aclose()
