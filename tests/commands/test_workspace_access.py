"""Finding what a command line names, and asking before something is done."""

from __future__ import annotations

import asyncio
import io
import os
import sys
from argparse import Namespace
from pathlib import Path

import pytest

from helix_desktop import commands, errors
from helix_desktop.commands import workspace_access
from helix_desktop.commands.workspace_access import (
    ASKING,
    check_permission_names,
    find_chosen_workspace,
    find_conversation_by_prefix,
    find_id_by_prefix,
    insert_options,
    is_confirmed,
    open_all_workspaces,
    print_result,
    read_agent_of_conversation,
    run_and_confirm,
    run_here_or_at_owner,
)
from helix_desktop.concurrency import OwnedTasks
from helix_desktop.engine.facts import ConversationChanged, ConversationStarted, Fact, Origin
from helix_desktop.program_folders import ProgramFolders, find_program_folders
from helix_desktop.resident.resident_client import CollectingConsole
from helix_desktop.store.stored_workspace import StoredWorkspace
from tests.store.conftest import workspace, workspaces

__all__ = ["workspace", "workspaces"]


@pytest.fixture
def where(tmp_path: Path) -> ProgramFolders:
    return find_program_folders(tmp_path / "helix")


# --- Workspaces


def test_without_a_name_it_is_the_workspace_of_the_innermost_folder(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner_folder = tmp_path / "outer" / "inner"
    (inner_folder / "src").mkdir(parents=True)
    known = open_all_workspaces(where)
    outer = known.create_stored_workspace("Outer", tmp_path / "outer")
    inner = known.create_stored_workspace("Inner", inner_folder)
    chosen = Namespace(places=where, workspace=None)

    monkeypatch.chdir(inner_folder / "src")
    assert find_chosen_workspace(chosen).id == inner.id
    monkeypatch.chdir(tmp_path / "outer")
    assert find_chosen_workspace(chosen).id == outer.id
    monkeypatch.chdir(tmp_path)
    with pytest.raises(errors.NotFound, match="is not in a workspace folder"):
        find_chosen_workspace(chosen)
    assert find_chosen_workspace(Namespace(places=where, workspace="Inner")).id == inner.id


def test_the_only_workspace_is_meant_wherever_one_is(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    only = open_all_workspaces(where).create_stored_workspace("Only", tmp_path / "work")
    monkeypatch.chdir(tmp_path)
    assert find_chosen_workspace(Namespace(places=where, workspace=None)).id == only.id


# --- Conversations


async def started(workspace: StoredWorkspace, name: str, *facts: Fact) -> None:
    await workspace.journal.append_to_journal(name, [ConversationStarted(title="Talk"), *facts])


async def change(workspace: StoredWorkspace, name: str, fact: ConversationChanged) -> None:
    await workspace.journal.append_to_journal(name, [fact])


async def test_a_title_names_what_is_in_use_before_what_was_put_away(
    workspace: StoredWorkspace,
) -> None:
    for name in ("in-use", "archived", "trashed"):
        await started(workspace, name)
    with pytest.raises(errors.AmbiguousName, match="3 conversations are called Talk"):
        await find_conversation_by_prefix(workspace, "Talk")

    await change(workspace, "archived", ConversationChanged(archived=True))
    await change(workspace, "trashed", ConversationChanged(trashed=True))
    assert await find_conversation_by_prefix(workspace, "Talk") == "in-use"
    with pytest.raises(errors.AmbiguousName):
        await find_conversation_by_prefix(workspace, "Talk", listed_first=False)
    await change(workspace, "in-use", ConversationChanged(trashed=True))
    with pytest.raises(errors.AmbiguousName):
        await find_conversation_by_prefix(workspace, "Talk")
    assert await find_conversation_by_prefix(workspace, "arch") == "archived"


def test_the_beginning_of_an_id_names_one_and_no_two() -> None:
    ids = ["abc", "abd", "x"]
    words = ("thing", "things")
    assert find_id_by_prefix(ids, "abd", words, "Run `list`.") == "abd"
    with pytest.raises(errors.AmbiguousName, match="IDs of 2 things begin with ab"):
        find_id_by_prefix(ids, "ab", words, "Run `list`.")
    with pytest.raises(errors.NotFound, match="no thing with an ID that begins with q") as failure:
        find_id_by_prefix(ids, "q", words, "Run `list`.")
    assert failure.value.remedy == "Run `list`."


async def test_the_agent_of_a_conversation_is_the_connected_one_or_the_recorded_one(
    workspace: StoredWorkspace,
) -> None:
    starts = {
        "connected": ConversationStarted(agent="Codex"),
        "recorded": ConversationStarted(origin=Origin(kind="claude-code")),
        "own": ConversationStarted(),
    }
    for name, start in starts.items():
        await workspace.journal.append_to_journal(name, [start, ConversationChanged(title="x")])
    agents = {}
    for row in await workspace.journal.list_conversations():
        agents[row.id] = await read_agent_of_conversation(workspace, row)
    assert agents == {"connected": "Codex", "recorded": "Claude Code", "own": ""}


# --- Whoever has the workspace open


def stats_command(where: ProgramFolders) -> Namespace:
    argv = ["cache", "stats", "-w", "Work"]
    arguments: Namespace = commands.build_command_line_parser(argv).parse_args(argv)
    arguments.argv = argv
    arguments.places = where
    return arguments


class ToldConsole(CollectingConsole):
    """Says when it has been told something."""

    def __init__(self) -> None:
        super().__init__()
        self.is_told = asyncio.Event()

    async def print_error(self, sentence: str) -> None:
        await super().print_error(sentence)
        self.is_told.set()


async def test_who_has_the_workspace_open_and_does_not_answer_yet_is_waited_for(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy computer, one that has just opened it may get no processor for many seconds."""
    monkeypatch.setattr(workspace_access, "SILENT_WAIT_SECONDS", 0.0)
    all_workspaces = open_all_workspaces(where)
    known = all_workspaces.create_stored_workspace("Work", tmp_path)
    opened = await all_workspaces.open_stored_workspace(known.id)
    tasks = OwnedTasks("a command that waits")
    console = ToldConsole()
    waiting = tasks.spawn_task(
        run_here_or_at_owner(stats_command(where), known.id, console), name="cache stats"
    )
    try:
        async with asyncio.timeout(30):
            await console.is_told.wait()
            service = await workspace_access.listen_for_commands(opened, where)
            assert await waiting == 0
    finally:
        await tasks.aclose(limit=1)
    await service.finish_requests()
    await opened.aclose()
    assert "does not answer yet. Waiting for it…" in console.complaint
    assert f"process {os.getpid()}" in console.complaint
    assert console.answers


async def test_who_never_answers_is_named_and_what_to_do_is_said(
    where: ProgramFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workspace_access, "LONGEST_WAIT_SECONDS", 0.1)
    all_workspaces = open_all_workspaces(where)
    known = all_workspaces.create_stored_workspace("Work", tmp_path)
    opened = await all_workspaces.open_stored_workspace(known.id)
    try:
        with pytest.raises(errors.StoreBusy, match="has not answered for") as failure:
            await run_here_or_at_owner(stats_command(where), known.id, CollectingConsole())
    finally:
        await opened.aclose()
    assert f"process {os.getpid()}" in failure.value.what
    assert "end that program if it never answers" in failure.value.remedy


# --- Command lines


def test_options_stand_before_what_is_no_option_any_more() -> None:
    assert insert_options(["ask", "hi"], "--yes") == ["ask", "hi", "--yes"]
    assert insert_options(["ask", "--", "hi"], "-a", "-b") == ["ask", "-a", "-b", "--", "hi"]
    assert insert_options(["--", "hi"], "--yes") == ["--yes", "--", "hi"]


def test_what_may_be_allowed_is_a_group_or_a_tool() -> None:
    check_permission_names(["edits", "delegate", "server__tool"])
    with pytest.raises(errors.InvalidInput, match="There is no edit to allow"):
        check_permission_names(["edit"])


class TypedInput(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("typed", "agrees"),
    [("y\n", True), (" YES\n", True), ("n\n", False), ("\n", False), ("", False)],
)
def test_only_a_yes_in_a_terminal_is_one(
    typed: str, agrees: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", TypedInput(typed))
    assert is_confirmed(Namespace(yes=False, json=False)) == agrees
    assert ("Nothing was changed." in capsys.readouterr().err) == (not agrees)


def test_nobody_is_asked_who_cannot_answer(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert is_confirmed(Namespace(yes=True, json=True))
    monkeypatch.setattr(sys, "stdin", TypedInput("y\n"))
    assert not is_confirmed(Namespace(yes=False, json=True))
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert not is_confirmed(Namespace(yes=False, json=False))
    assert capsys.readouterr().err.count("To confirm, add --yes.") == 2


def test_what_asks_is_done_once_more_with_yes_and_only_if_the_user_agrees(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[str]] = []

    def work(arguments: Namespace) -> int:
        seen.append(arguments.argv)
        return 0 if arguments.yes else ASKING

    monkeypatch.setattr(sys, "stdin", TypedInput("y\nn\n"))
    assert run_and_confirm(Namespace(yes=False, json=False, argv=["do"]), work) == 0
    assert seen == [["do"], ["do", "--yes"]]
    assert run_and_confirm(Namespace(yes=False, json=False, argv=["do"]), work) == 1
    assert seen == [["do"], ["do", "--yes"], ["do"]]
    assert run_and_confirm(Namespace(yes=False, argv=[]), lambda _: 7) == 7


async def test_a_result_is_json_or_lines_and_never_both() -> None:
    console = CollectingConsole()
    assert await print_result(Namespace(json=True), console, {"a": 1}, "a is 1") == 0
    assert await print_result(Namespace(json=False), console, {"a": 1}, "a is 1", "done") == 0
    assert console.answers == ['{\n "a": 1\n}', "a is 1", "done"]


def test_a_command_that_needs_no_tokens_loads_no_vocabulary() -> None:
    with pytest.raises(errors.StoppedByUser):
        workspace_access.OptionalTokenCounter(wanted=False)("two words")
    assert workspace_access.OptionalTokenCounter()("two words") == 2
