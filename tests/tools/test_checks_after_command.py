from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from helix_desktop.engine.facts import ToolCall
from helix_desktop.engine.ports import CallContext, PermissionAnswer
from helix_desktop.tools.built_in_tool import FilesSeen, ToolResources
from helix_desktop.tools.checks_after_command import CommandCheck
from helix_desktop.tools.permission import ToolAction
from tests.tools.planting import prepare
from tests.tools.world import World, world


async def refuse(_: ToolAction) -> None:
    raise AssertionError


PLANT = "git init -q sub; git -C sub config core.fsmonitor evil; echo evil > .vimrc"


@pytest_asyncio.fixture
async def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "work").mkdir()
    prepare(tmp_path / "work")
    async with world(tmp_path) as made:
        yield made


def fsmonitor(here: World) -> bool:
    config = here.folder / "sub/.git/config"
    return config.exists() and "evil" in config.read_text()


async def test_the_user_is_asked_by_name_and_meanwhile_it_is_put_back(here: World) -> None:
    seen: list[bool] = []

    async def ask(question: object) -> PermissionAnswer:
        seen.append(fsmonitor(here) or (here.folder / ".vimrc").exists())
        return PermissionAnswer(allowed=False)

    here.person.ask = ask  # type: ignore[method-assign]
    said = await here.said("run_command", command=PLANT)
    assert seen == [False]
    assert "Put back as it was: .vimrc, sub/.git/config" in said
    assert not fsmonitor(here)


async def test_what_is_asked_shows_what_would_be_there(here: World) -> None:
    here.person.answer = PermissionAnswer(allowed=False)
    await here.run("run_command", command=PLANT)
    question = here.person.asked[-1]
    assert (question.apart, question.scopes) == ("runs_later", ("once",))
    assert "+\tfsmonitor = evil" in question.preview
    assert "+evil" in question.preview


async def test_what_the_user_keeps_is_there(here: World) -> None:
    said = await here.said("run_command", command=PLANT)
    assert "keeps what the command did there" in said
    assert fsmonitor(here)
    assert "Put back" not in await here.said("run_command", command="git -C sub status --short")


async def test_a_large_file_that_the_user_keeps_is_there_and_is_asked_about_once(
    here: World,
) -> None:
    await here.run("run_command", command="sleep 1000", background=True)
    line = "mkdir -p .yarn/releases; seq 400000 > .yarn/releases/yarn-4.cjs"
    assert "keeps what the command did there" in await here.said("run_command", command=line)
    assert (here.folder / ".yarn/releases/yarn-4.cjs").stat().st_size == 2_688_895
    await here.run("read_command_output", name="bg1")
    await here.run("stop_command", name="bg1")
    assert len(here.person.asked) == 1


async def test_what_is_too_large_to_be_kept_is_put_back_and_never_said_to_be_kept(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's own file was deleted, and the agent heard that the user keeps the command's."""
    monkeypatch.setattr("helix_desktop.tools.autorun_guard._MOST_BYTES_HELD", 1_000_000)
    path = here.write(".yarn/releases/yarn-4.cjs", "the user's\n")
    (here.folder / ".yarn").rename(here.folder / "yarn")
    said = await here.said(
        "run_command",
        command="mv yarn .yarn; echo x > .vimrc; seq 400000 > .yarn/releases/yarn-4.cjs",
    )
    assert "asked about .vimrc, and keeps" in said
    assert (
        "Put back as it was: .yarn/releases/yarn-4.cjs. Other programs run what is in there later, and"
        in said
    )
    assert not path.exists()
    assert [one.title for one in here.person.asked] == ["Keep the command's changes to .vimrc?"]


async def test_ordinary_work_asks_nothing(here: World) -> None:
    await here.run(
        "run_command", command="echo x > new; git add -A; git commit -qm new; git init -q sub"
    )
    assert here.person.asked == []


async def test_what_a_command_in_the_background_leaves_is_found_when_its_output_is_read(
    here: World,
) -> None:
    here.person.answer = PermissionAnswer(allowed=False)
    await here.run("run_command", command=f"{PLANT}; touch done; sleep 1000", background=True)
    async with asyncio.timeout(60):
        while not (here.folder / "done").exists():
            await asyncio.sleep(0.01)
    said = await here.said("read_command_output", name="bg1", all=True)
    assert "Put back as it was" in said
    assert not fsmonitor(here)
    await here.run("stop_command", name="bg1")


async def test_what_one_in_the_background_left_at_its_end_is_put_back(here: World) -> None:
    await here.run("run_command", command=PLANT, background=True)
    said = await here.said("read_command_output", name="bg1", wait=60, all=True)
    assert "Put back as it was" in said
    assert not fsmonitor(here)


REPLANT = "while :; do [ -e .envrc ] || echo evil > .envrc; [ -e .vimrc ] || echo evil > .vimrc; sleep 0.01; done"


async def wait_for(path: Path) -> None:
    async with asyncio.timeout(200):
        while not path.exists():
            await asyncio.sleep(0.01)


async def test_what_is_written_again_while_the_user_refuses_it_is_put_back_at_the_end(
    here: World,
) -> None:
    (here.folder / ".envrc").unlink()

    async def refuse_when_it_is_there_again(question: object) -> PermissionAnswer:
        await wait_for(here.folder / ".envrc")
        return PermissionAnswer(allowed=False)

    here.person.ask = refuse_when_it_is_there_again  # type: ignore[method-assign]
    await here.run("run_command", command=REPLANT, background=True)
    await wait_for(here.folder / ".envrc")
    await here.run("run_command", command="echo work")
    await wait_for(here.folder / ".envrc")
    await here.run("stop_command", name="bg1")
    async with asyncio.timeout(200):
        while (here.folder / ".envrc").exists() or (here.folder / ".vimrc").exists():
            await asyncio.sleep(0.01)


async def test_what_the_user_kept_stays_as_it_was_kept(here: World) -> None:
    """A command in the background, which nothing holds from it, may not change it afterwards."""
    line = (
        "echo first > .vimrc; touch done; until [ -e go ]; do sleep 0.01; done; echo evil > .vimrc"
    )
    await here.run("run_command", command=line, background=True)
    await wait_for(here.folder / "done")
    assert "keeps what the command did" in await here.said(
        "read_command_output", name="bg1", all=True
    )
    here.person.answer = PermissionAnswer(allowed=False)
    (here.folder / "go").touch()
    said = await here.said("read_command_output", name="bg1", wait=60)
    while "running for" in said:
        said = await here.said("read_command_output", name="bg1", wait=60)
    assert (here.folder / ".vimrc").read_text() == "first\n"


async def test_what_was_kept_of_one_command_is_not_asked_about_for_another(here: World) -> None:
    await here.run("run_command", command="sleep 1000", background=True)
    await here.run("run_command", command="echo mine > .vimrc")
    assert len(here.person.asked) == 1
    await here.run("read_command_output", name="bg1")
    await here.run("stop_command", name="bg1")
    assert len(here.person.asked) == 1
    assert (here.folder / ".vimrc").read_text() == "mine\n"


async def test_what_a_stop_interrupts_is_put_back_all_the_same(here: World) -> None:
    """The program closes while what a command planted is being looked for."""
    guard = here.kit.commands.guard
    assert guard is not None
    check = await CommandCheck.begin_check(guard)
    (here.folder / ".vimrc").write_text("evil\n")
    call = ToolCall("call", "run_command", "{}")
    context = CallContext("c", here.person.ask, here.person.shown.append)
    use = ToolResources(call, context, refuse, here.kit.resources, FilesSeen())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0):
            await check.revert_and_ask(use, ask=False)
    await check.revert_without_asking()
    assert not (here.folder / ".vimrc").exists()


async def test_what_the_user_changes_beside_a_command_in_the_background_is_the_users(
    here: World,
) -> None:
    await here.run("run_command", command="echo ready; sleep 60", background=True)
    (here.folder / ".envrc").write_text("the user's\n")
    assert "Put back" not in await here.said("run_command", command="true")
    await here.run("stop_command", name="bg1")
    assert (here.folder / ".envrc").read_text() == "the user's\n"


async def test_commands_outside_of_the_sandbox_are_the_users_decision(here: World) -> None:
    await here.run("run_command", command="echo evil > .vimrc", outside_sandbox=True)
    assert (here.folder / ".vimrc").exists()


async def test_names_that_are_no_text_or_pass_for_a_line_of_ours_are_shown_escaped(
    here: World,
) -> None:
    here.person.answer = PermissionAnswer(allowed=False)
    lines = r"""d=$(printf 'a\377b'); mkdir "$d" "$(printf 'c\n[Kept]')"; echo evil > "$d/.vimrc"; echo evil > "$(printf 'c\n[Kept]')/.vimrc" """
    said = await here.said(
        "run_command", command=f"{lines}; ln -s \"$(printf '/x\\n[Kept]\\377')\" .exrc"
    )
    question = here.person.asked[-1]
    for text in (said, question.title, question.preview):
        assert text.encode()
        assert "\n[Kept]" not in text
    assert r"Put back as it was: .exrc, a\udcffb/.vimrc, c\n[Kept]/.vimrc" in said
    assert not list(here.folder.rglob(".vimrc"))
