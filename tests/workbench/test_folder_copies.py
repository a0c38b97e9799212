"""Copies of a workspace's folders: made, worked in, brought back in four ways, and
never deleted without being asked.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from helix_desktop.acp_agent.conversation_updates import ClientAbilities, ConversationUpdates
from helix_desktop.engine.facts import (
    ConversationStarted,
    FilesChanged,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.ports import (
    CallContext,
    EntryOrigin,
    PermissionAnswer,
    PermissionQuestion,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, MeterChanged, QuestionAsked
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import ActionRefused
from helix_desktop.tools import private_git_copy
from helix_desktop.tools.changes import change_restoring
from helix_desktop.tools.changes.checkpoint_coverage import CheckpointCoverage
from helix_desktop.tools.delegate_tool import Delegation
from helix_desktop.tools.private_git_copy import GitCheckout
from helix_desktop.workbench import Workbench, copy_files
from helix_desktop.workbench.copy_files import FolderCopy
from tests.faults import copy_trials
from tests.tools.git_places import PROGRAMS
from tests.workbench.conftest import Desks
from tests.workbench.test_git_repository import git, project
from tests.workbench.test_open_workbench import bench_on, told

__all__ = ["project"]


async def copy_in(bench: Workbench, *, with_changes: bool = False) -> FolderCopy:
    session = await bench.start_conversation_in_copy("Apart", with_changes=with_changes)
    copy = bench.copies.find_copy(session.id)
    assert copy is not None
    return copy


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))


async def test_a_conversation_works_in_its_copy_and_nowhere_else(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("not committed\n")
    copy = await copy_in(bench)
    kit = bench.copies.tools_of_copy(copy.id)
    assert kit.resources.roots.folders == (copy.folder / "0",)
    assert kit.sandbox.folders == (copy.folder / "0",)
    assert (copy.folder / "0" / "a").read_text() == "one\n"
    with pytest.raises(ActionRefused, match="outside"):
        kit.resources.roots.resolve_path(str(project / "a"))
    assert copy.label == git(project, "rev-parse", "--abbrev-ref", "HEAD").strip()


async def test_commands_in_a_copy_read_no_folder_that_took_the_place_of_gits_objects(
    desks: Desks, project: Path
) -> None:
    """An agent in the user's folder can put a link there while a command runs in the background."""
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    opened = bench.copies.tools_of_copy(copy.id).options.opened
    objects = project / ".git" / "objects"
    assert str(objects) in opened().folders
    objects.rename(project / "objects")
    objects.symlink_to(project.parent)
    assert str(objects) not in opened().folders


async def test_an_editor_is_shown_the_files_of_the_copy(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    call = ToolCall("1", "read_file", json.dumps({"path": "a"}))
    for conversation, folder in (
        (copy.id, copy.folder / "0"),
        ((await bench.start_conversation()).id, project),
    ):
        found = ConversationUpdates(bench, conversation, ClientAbilities()).locations_of_call(call)
        assert found is not None
        assert found[0].path == str(folder / "a")


async def test_it_is_the_same_after_a_restart(desks: Desks, project: Path) -> None:
    desk = desks()
    bench = await desk.create_workspace("W", project)
    copy = await copy_in(bench, with_changes=True)
    await desk.aclose()
    again = await desks().open_workspace(bench.id)
    session = await again.open_session(copy.id)
    assert again.copies.tools_of_copy(
        session.conversation.state.own_copy
    ).resources.roots.folders == (copy.folder / "0",)


async def test_changes_are_applied_and_can_be_undone(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("carried\nover\n")
    copy = await copy_in(bench, with_changes=True)
    work = copy.folder / "0"
    (work / "a").write_text("carried\nover\nand more\n")
    (work / "b").unlink()
    (work / "new").mkdir()
    (work / "new" / "run").write_text("x\n")
    (work / "new" / "run").chmod(0o755)
    (work / ".gitignore").write_text("junk\n")
    (work / "junk").write_text("ignored\n")
    (project / "a").write_text("mine\ncarried\nover\n")
    (project / "a").chmod(0o600)
    git_before = git(project, "for-each-ref"), (project / ".git/index").read_bytes()
    await bench.copies.bring_back(copy, "apply")
    assert (project / "a").read_text() == "mine\ncarried\nover\nand more\n"
    assert (project / "a").stat().st_mode & 0o777 == 0o600
    assert not (project / "b").exists()
    assert (project / "new" / "run").stat().st_mode & 0o111
    assert not (project / "junk").exists()
    assert (git(project, "for-each-ref"), (project / ".git/index").read_bytes()) == git_before
    await undo_apply(bench)
    assert (project / "a").read_text() == "mine\ncarried\nover\n"
    assert (project / "b").read_text() == "b\n"
    assert not (project / "new").exists()


async def test_a_link_that_leads_out_of_the_folders_is_named(desks: Desks, project: Path) -> None:
    """Whoever opens it later would read or change a file that nobody thinks of."""
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "names").symlink_to("/etc/passwd")
    (copy.folder / "0" / "up").symlink_to("../../elsewhere")
    (copy.folder / "0" / "inside").symlink_to("a")
    sentences = await bench.copies.bring_back(copy, "apply")
    assert (project / "names").is_symlink()
    elsewhere = project.parent.parent / "elsewhere"
    assert sorted(sentences[1:]) == [
        f"The link {project}/names leads out of the workspace's folders, to /etc/passwd.",
        f"The link {project}/up leads out of the workspace's folders, to {elsewhere}.",
    ]


async def test_without_checkpoints_a_copy_has_its_own_and_is_merged(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    bench.workspace.change_settings(lambda _now: {"changes.off": True})
    await bench.file_changes.workspace_checkpoints.apply_coverage(CheckpointCoverage(off=True))
    copy = await copy_in(bench)
    checkpoints = (await bench.copies.get_or_open_tools(copy.id)).resources.checkpoints
    assert checkpoints is not None
    assert checkpoints.is_undo_available
    (copy.folder / "0" / "a").write_text("theirs\n")
    before = (project / "a").read_text()
    with pytest.raises(ActionRefused, match="turned off"):
        await bench.copies.bring_back(copy, "apply")
    assert (project / "a").read_text() == before


@pytest.mark.parametrize(
    ("choice", "text"),
    [
        ("", "mine\n"),
        ("yours", "mine\n"),
        ("copy", "theirs\n"),
        ("markers", "<<<<<<< your folder\nmine\n=======\ntheirs\n>>>>>>> the copy\n"),
    ],
)
async def test_what_both_changed_is_left_to_the_user(
    desks: Desks, project: Path, choice: str, text: str
) -> None:
    """What only the agent changed is taken, and for the rest the user chooses."""
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    for name in ("a", "b", "both new"):
        (copy.folder / "0" / name).write_text("theirs\n")
    for name in ("a", "both new"):
        (project / name).write_text("mine\n")
    assert await bench.copies.find_conflicts(copy) == ["a", "both new"]
    if choice:
        await bench.copies.bring_back(copy, "apply", conflicts=choice)
    else:
        with pytest.raises(
            ActionRefused, match=r"in the copy: a, both new\. All other changes were brought back"
        ):
            await bench.copies.bring_back(copy, "apply")
    found = [(project / name).read_text() for name in ("a", "both new", "b")]
    assert found == [text, text, "theirs\n"]
    left = await bench.copies.find_conflicts(_again(bench, copy))
    assert left == ([] if choice else ["a", "both new"]), "a choice holds"
    (project / "b").write_text("mine\n")
    for name in ("a", "both new"):
        (project / name).write_text("mine and theirs\n")
    if choice:
        assert await bench.copies.bring_back(_again(bench, copy), "apply") == (
            "There are no changes to bring back.",
        )
    assert [(project / name).read_text() for name in ("a", "b")] == ["mine and theirs\n", "mine\n"]


async def test_files_that_the_users_folder_already_has_are_named(
    desks: Desks, project: Path
) -> None:
    """The question named the file as not brought back, and the answer said that nothing changed."""
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    for folder in (project, copy.folder / "0"):
        (folder / "notes.md").write_text("the same\n")
    assert await bench.copies.bring_back(copy, "apply") == (
        "Nothing was brought back: your folder already has the same versions of these files: notes.md.",
    )
    assert await bench.copies.bring_back(_again(bench, copy), "apply") == (
        "There are no changes to bring back.",
    )


async def test_what_cannot_be_merged_with_markers_stays_a_conflict(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    (project / "picture").write_bytes(b"\0one")
    copy = await copy_in(bench, with_changes=True)
    (copy.folder / "0" / "picture").write_bytes(b"\0theirs")
    (project / "picture").write_bytes(b"\0mine")
    (copy.folder / "0" / "a").write_text("theirs\n")
    (project / "a").unlink()
    with pytest.raises(ActionRefused, match=r"in the copy: a, picture\."):
        await bench.copies.bring_back(copy, "apply", conflicts="markers")
    assert ((project / "picture").read_bytes(), (project / "a").exists()) == (b"\0mine", False)


@pytest.mark.parametrize("way", ["merge", "rebase"])
async def test_commits_come_back_to_the_branch(desks: Desks, project: Path, way: str) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "new").write_text("new\n")
    (project / "b").write_text("two\n")
    git(project, "commit", "-qam", "mine")
    (project / "a").write_text("not committed\n")
    with pytest.raises(ActionRefused, match="not committed"):
        await bench.copies.bring_back(copy, way)
    await bench.copies.bring_back(copy, way, "theirs")
    assert (project / "new").read_text() == "new\n"
    assert (project / "b").read_text() == "two\n"
    assert git(project, "status", "--porcelain") == " M a\n"
    assert git(project, "rev-parse", f"refs/helix/{copy.id}") == git(project, "rev-parse", "HEAD")
    assert len(git(project, "rev-list", "--merges", "HEAD").split()) == (way == "merge")
    git(project, "fsck", "--strict")


@pytest.mark.parametrize("way", ["merge", "rebase"])
async def test_a_conflict_is_named_and_stays_in_the_copy(
    desks: Desks, project: Path, way: str
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    (project / "a").write_text("mine\n")
    git(project, "commit", "-qam", "mine")
    head = git(project, "rev-parse", "HEAD")
    with pytest.raises(
        ActionRefused, match=r"the copy changed these files in ways that conflict: a\."
    ):
        await bench.copies.bring_back(copy, way, "theirs")
    assert git(project, "rev-parse", "HEAD") == head
    assert git(project, "status", "--porcelain") == ""
    assert "<<<<<<<" in (copy.folder / "0" / "a").read_text()
    with pytest.raises(ActionRefused, match="has not been finished"):
        await bench.copies.bring_back(copy, way)
    (copy.folder / "0" / "a").write_text("both\n")
    git(copy.folder / "0", "add", "a")
    git(copy.folder / "0", "-c", "core.editor=true", way, "--continue")
    await bench.copies.bring_back(copy, way)
    assert (project / "a").read_text() == "both\n"


async def test_what_the_user_has_not_committed_is_not_overwritten(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    (project / "a").write_text("mine\n")
    head = git(project, "rev-parse", "HEAD")
    with pytest.raises(ActionRefused, match="in the way: a"):
        await bench.copies.bring_back(copy, "merge", "theirs")
    assert ((project / "a").read_text(), git(project, "rev-parse", "HEAD")) == ("mine\n", head)
    git(project, "checkout", "-q", "a")
    await bench.copies.bring_back(copy, "merge")
    assert (project / "a").read_text() == "theirs\n"


async def test_what_is_discarded_is_in_the_cache(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    (work / "a").write_text("committed\n")
    git(work, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qam", "theirs")
    (work / "b").write_text("not committed\n")
    found = await bench.copies.read_copy_status(copy)
    assert (found.uncommitted, found.commits, found.problem) == (("b",), 1, "")
    said = await bench.copies.bring_back(copy, "discard")
    assert not copy.folder.exists()
    assert bench.copies.list_copies() == []
    digest = Digest.from_hex(said[0].split(" as ")[1][:64])
    await bench.workspace.index.wait_until_indexed()
    assert digest not in await bench.workspace.index.find_unused_entries()
    bundle = await bench.workspace.cache.read_content(digest)
    (project.parent / "bundle").write_bytes(bundle)
    git(project, "fetch", "-q", str(project.parent / "bundle"), "HEAD")
    assert git(project, "show", "FETCH_HEAD~:a") == "committed\n"
    assert git(project, "show", "FETCH_HEAD:b") == "not committed\n"
    with pytest.raises(ActionRefused, match="was discarded"):
        bench.copies.check_copy_is_there(copy.id)
    assert bench.copies.tools_of_copy(copy.id).resources.roots.folders == (), (
        "asked for while the user types there"
    )
    fork = await bench.fork_conversation(copy.id)
    assert fork.conversation.state.own_copy == ""


@pytest.mark.parametrize("name", ["/", "no-such-copy", "a\0b", "a" * 300])
async def test_a_copy_that_is_not_here_has_no_folder_whatever_its_name_is(
    desks: Desks, project: Path, name: str
) -> None:
    """Another machine's conversation names its copy. A null byte in the name kept the
    conversation from being opened.
    """
    bench = await bench_on(desks, project)
    assert (await bench.copies.get_or_open_tools(name)).resources.roots.folders == ()
    with pytest.raises(ActionRefused, match="on another computer"):
        bench.copies.check_copy_is_there(name)


async def test_what_a_crash_left_is_listed_and_hinders_nothing(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    half = bench.workspace.folder / "copies" / "half"
    (half / "0").mkdir(parents=True)
    (half / "copy.json").write_text(
        (copy.folder / "copy.json").read_text().replace('"is_whole": true', '"is_whole": false')
    )
    (bench.workspace.folder / "copies" / "strange" / "0").mkdir(parents=True)
    (bench.workspace.folder / "copies" / "strange" / "0" / "file").write_text("somebody's")
    found = {each.id: (each.is_whole, bool(each.problem)) for each in bench.copies.list_copies()}
    assert found == {copy.id: (True, False), "half": (False, False), "strange": (False, True)}
    left = {each.id: each for each in bench.copies.list_copies()}
    with pytest.raises(ActionRefused, match="not completed"):
        await bench.copies.bring_back(left["half"], "merge")
    await bench.copies.bring_back(left["half"], "discard")
    with pytest.raises(ActionRefused, match="cannot be read"):
        await bench.copies.bring_back(left["strange"], "discard")
    assert {each.id for each in bench.copies.list_copies()} == {copy.id, "strange"}


async def test_a_folder_without_git_needs_a_file_system_that_shares_blocks(
    desks: Desks, folder: Path
) -> None:
    bench = await bench_on(desks, folder)
    (bench.workspace.folder / "copies").mkdir()
    if _shares_blocks(folder / "README.md", bench.workspace.folder / "copies" / "probe"):
        copy = await copy_in(bench)
        assert (copy.folder / "0" / "README.md").read_text() == (folder / "README.md").read_text()
        return
    with pytest.raises(ActionRefused, match="not in a git repository"):
        await copy_in(bench)
    assert bench.copies.list_copies() == []


def _shares_blocks(source: Path, target: Path) -> bool:
    done = subprocess.run(
        ["cp", "--reflink=always", source, target], check=False, capture_output=True
    )
    target.unlink(missing_ok=True)
    return done.returncode == 0


async def test_a_copy_that_an_agent_made_lead_elsewhere_is_not_used(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "new").write_text("x")
    (copy.folder / "0" / ".git" / "commondir").write_text(f"{project}/.git\n")
    before = git(project, "for-each-ref")
    for way in ("merge", "rebase", "apply", "discard"):
        with pytest.raises(ActionRefused, match="leads elsewhere"):
            await bench.copies.bring_back(copy, way, "x")
    assert "leads elsewhere" in (await bench.copies.read_copy_status(copy)).problem
    assert git(project, "for-each-ref") == before


async def test_commands_in_a_copy_commit_there_and_reach_nothing_of_the_users(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    await bench.choose_permission_mode("allow all")
    copy = await copy_in(bench)
    box = bench.copies.tools_of_copy(copy.id).build_toolbox()

    async def run(line: str) -> str:
        call = ToolCall("1", "run_command", json.dumps({"command": line}))
        outcome = await box.run_tool_call(call, CallContext(copy.id, _yes, lambda _: None))
        return (await bench.workspace.cache.read_content(outcome.output.digest)).decode()

    said = await run(
        "echo two > a && git add a && git -c user.name=a -c user.email=a@b commit -qm two && git log --format=%s"
    )
    assert "two\nx" in said, said
    before = git(project, "for-each-ref")
    await run(
        f"echo x > {project}/a; git -C {project} branch stolen; git push {project} HEAD:refs/heads/stolen"
    )
    assert (project / "a").read_text() == "one\n"
    assert git(project, "for-each-ref") == before


@pytest.mark.parametrize("way", ["merge", "rebase"])
async def test_commits_bring_no_file_that_other_programs_run_and_that_nobody_was_asked_about(
    desks: Desks, project: Path, way: str
) -> None:
    """Written by git's plumbing it is never in the copy's folder, where the look after
    a command would find it.
    """
    bench = await bench_on(desks, project)
    await bench.choose_permission_mode("allow all")
    copy = await copy_in(bench)
    box = bench.copies.tools_of_copy(copy.id).build_toolbox()
    line = (
        "git update-index --add --cacheinfo 100644,$(echo evil | git hash-object -w --stdin),.vscode/tasks.json;"
        " git update-index --skip-worktree .vscode/tasks.json; git commit -qm planted; git status --porcelain"
    )
    call = ToolCall("1", "run_command", json.dumps({"command": line}))
    outcome = await box.run_tool_call(call, CallContext(copy.id, _yes, lambda _: None))
    assert (
        await bench.workspace.cache.read_content(outcome.output.digest)
        == b"[no output, exit code 0]\n"
    )
    (project / "b").write_text("two\n")
    git(project, "commit", "-qam", "mine")
    with pytest.raises(ActionRefused, match=r"\.vscode/tasks\.json"):
        await bench.copies.bring_back(copy, way)
    assert not (project / ".vscode").exists()
    (copy.folder / "0" / ".vscode").mkdir()
    (copy.folder / "0" / ".vscode" / "tasks.json").write_text("evil\n")  # now it is seen
    git(copy.folder / "0", "update-index", "--no-skip-worktree", ".vscode/tasks.json")
    await bench.copies.bring_back(copy, way)
    assert (project / ".vscode" / "tasks.json").exists()


async def test_a_copy_in_which_a_command_still_runs_is_not_brought_back(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    await bench.choose_permission_mode("allow all")
    copy = await copy_in(bench)
    kit = bench.copies.tools_of_copy(copy.id)
    box = kit.build_toolbox()
    context = CallContext(copy.id, _yes, lambda _: None)
    given = json.dumps({"command": "sleep 600", "background": True})
    await box.run_tool_call(ToolCall("1", "run_command", given), context)
    for way in ("merge", "rebase", "apply"):
        with pytest.raises(ActionRefused, match="a command is still running"):
            await bench.copies.bring_back(copy, way)
    await box.run_tool_call(ToolCall("2", "stop_command", '{"name": "bg1"}'), context)
    assert await bench.copies.bring_back(copy, "merge") == ("There are no changes to bring back.",)


TRIES = (
    "echo x > PLACE/a",
    "git -C PLACE branch stolen",
    "git -C PLACE commit --allow-empty -m stolen",
    "git push PLACE HEAD:refs/heads/stolen",
    "git --git-dir=PLACE/.git update-ref refs/heads/stolen HEAD",
    "GIT_DIR=PLACE/.git GIT_WORK_TREE=. git checkout -b stolen",
    "git -C PLACE worktree add ./tree",
    "git -C PLACE config user.name stolen",
    "git -C PLACE gc --prune=now",
    "echo x > PLACE/.git/refs/heads/stolen",
    "printf '#!/bin/sh\\ntouch stolen\\n' > PLACE/.git/hooks/post-commit",
    "rm -rf PLACE/.git/objects $(cat .git/objects/info/alternates)/*",
    "ln -s PLACE away; echo x > away/a; echo x > away/new",
    "ln PLACE/a hard; echo x > hard",
    "mv .git ours; ln -s PLACE/.git .git; git commit -qam stolen; rm .git; mv ours .git",
    "mkdir -p mounted; mount --bind PLACE mounted; echo x > mounted/a",
    "mv PLACE PLACE.gone; chmod -R 0 PLACE; touch PLACE/new",
    "python3 -c \"open('PLACE/a', 'w').write('x')\"",
)


async def test_an_agent_reaches_neither_the_users_branches_nor_another_agents_copy(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    await bench.choose_permission_mode("allow all")
    copy, other = [await copy_in(bench) for _ in range(2)]
    (other.folder / "0" / "a").write_text("by the other\n")
    box = bench.copies.tools_of_copy(copy.id).build_toolbox()

    def state() -> list[object]:
        places = (project, other.folder / "0")
        files = [path for place in places for path in sorted(place.rglob("*")) if path.is_file()]
        said = [
            git(place, *words.split())
            for place in places
            for words in ("for-each-ref", "fsck --strict")
        ]
        return [[(path, path.stat().st_mode, path.read_bytes()) for path in files], said]

    before = state()
    for place in (project, other.folder / "0"):
        lines = "\n".join(f"({line.replace('PLACE', str(place))})" for line in TRIES)
        call = ToolCall("1", "run_command", json.dumps({"command": lines}))
        await box.run_tool_call(call, CallContext(copy.id, _yes, lambda _: None))
        for name, path in (("written", f"{place}/a"), ("through a link", "away/a")):
            given = json.dumps({"path": path, "content": "x\n"})
            outcome = await box.run_tool_call(
                ToolCall(name, "write_file", given), CallContext(copy.id, _yes, lambda _: None)
            )
            assert not outcome.ok
    assert state() == before
    assert git(copy.folder / "0", "log", "--format=%s") == "x\n"


async def _yes(_: PermissionQuestion) -> PermissionAnswer:
    return PermissionAnswer(allowed=True)


async def test_an_undo_in_a_copy_leaves_the_users_files_alone(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    changes = bench.file_changes_of(copy.id)
    window = await changes.workspace_checkpoints.begin_step("1", copy.id, "command")
    assert window is not None
    for folder in (work, project):
        (folder / "a").write_text("the same in both\n")
    fact = await changes.workspace_checkpoints.end_step(window)
    assert fact is not None
    session = await bench.open_session(copy.id)
    await session.conversation.append_facts(UserSaid((Text("Change it", 3),)), fact)
    (turn,) = await changes.turns_with_changes(copy.id)
    await changes.undo_file_changes(
        await changes.changes_with_folders(turn.sources), conversation=copy.id
    )
    assert (work / "a").read_text() == "one\n"
    assert (project / "a").read_text() == "the same in both\n"


async def test_copies_that_change_the_same_files_never_see_each_other(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copies = await asyncio.gather(
        *(bench.copies.create_copy(f"copy{number}") for number in range(4))
    )

    async def rewrite(copy: FolderCopy) -> None:
        for turn in range(5):
            for name in ("a", "b", "new"):
                await asyncio.to_thread(
                    (copy.folder / "0" / name).write_text, f"{copy.id} {turn} {name}\n"
                )
            await asyncio.to_thread(git, copy.folder / "0", "add", "-A")
            await asyncio.to_thread(git, copy.folder / "0", "commit", "-qm", f"{copy.id} {turn}")

    before = git(project, "for-each-ref"), (project / ".git/index").read_bytes()
    await asyncio.gather(*map(rewrite, copies))
    for copy in copies:
        assert {git(copy.folder / "0", "show", f"HEAD:{name}") for name in ("a", "b", "new")} == {
            f"{copy.id} 4 {name}\n" for name in ("a", "b", "new")
        }
        known_subjects = {"", "x"} | {f"{copy.id} {turn}" for turn in range(5)}
        assert set(git(copy.folder / "0", "log", "--format=%s").split("\n")) <= known_subjects
    assert (git(project, "for-each-ref"), (project / ".git/index").read_bytes()) == before
    git(project, "fsck", "--strict")


async def test_a_sub_agent_works_where_its_parent_does_or_in_a_copy_of_that(
    desks: Desks, project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "elsewhere"))  # and the program's data are not in it
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("by the parent\n")
    for isolated in (False, True):
        wish = Delegation(copy.id, "1", "task", "", (), 1, isolated=isolated)
        session = await bench._create_subagent_session(ConversationStarted(parent=copy.id), wish)
        name = session.conversation.state.own_copy
        assert (name == copy.id) is not isolated
    made = bench.copies.find_copy(name)
    assert made is not None
    assert (made.folder / "0" / "a").read_text() == "by the parent\n"
    (made.folder / "0" / "b").write_text("by the sub-agent\n")
    await bench.choose_permission_mode("allow all")
    call = ToolCall(
        "1", "run_command", json.dumps({"command": "git commit -qam own && git log --format=%s"})
    )
    outcome = (
        await bench.copies.tools_of_copy(name)
        .build_toolbox()
        .run_tool_call(call, CallContext(name, _yes, lambda _: None))
    )
    assert await bench.workspace.cache.read_content(outcome.output.digest) == b"own\nx\n"
    await bench.copies.bring_back(made, "apply")
    assert (copy.folder / "0" / "b").read_text() == "by the sub-agent\n"
    assert (project / "b").read_text() == "b\n"


async def test_the_same_file_changed_in_two_copies_is_said(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("not committed\n")
    (project / "b").unlink()
    one, two = [await copy_in(bench, with_changes=True) for _ in range(2)]
    child = await bench.copies.create_copy("child", with_changes=True, parent=one.id)
    found = await bench.copies.read_status_of_copies()
    assert [contents.changed for contents in found.values()] == [
        (),
        (),
        (),
    ]  # what was carried over is the user's
    (one.folder / "0" / "a").write_text("by one\n")
    (one.folder / "0" / "alone").write_text("by one\n")
    (two.folder / "0" / "a").write_text("by two\n")
    git(two.folder / "0", "commit", "-qam", "two")
    (child.folder / "0" / "b").write_text("by the child\n")
    (two.folder / "0" / "b").write_text("by two\n")
    found = await bench.copies.read_status_of_copies()
    assert {name: contents.overlaps for name, contents in found.items()} == {
        one.id: {str(project / "a"): [two.id]},
        two.id: {str(project / "a"): [one.id], str(project / "b"): ["child"]},
        "child": {str(project / "b"): [two.id]},
    }


async def test_what_was_merged_is_no_longer_changed_in_other_copies(
    desks: Desks, project: Path
) -> None:
    """The warning stayed until the next message."""
    bench = await bench_on(desks, project)
    one, two = [await copy_in(bench) for _ in range(2)]
    for copy in (one, two):
        (copy.folder / "0" / "a").write_text(f"by {copy.id}\n")
    await bench.copies.read_status_of_copies()
    assert bench.copies.overlaps[two.id] == {str(project / "a"): [one.id]}
    await bench.copies.bring_back(one, "merge", "Work")
    assert bench.copies.overlaps == {one.id: {}, two.id: {}}


async def test_a_fork_may_have_a_copy_of_its_own(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("not committed\n")
    session = await bench.start_conversation("Here")
    fork = await bench.fork_conversation(session.id, in_copy=True)
    assert fork.conversation.state.own_copy == fork.id
    copy = bench.copies.find_copy(fork.id)
    assert copy is not None
    (copy.folder / "0" / "b").write_text("by the fork\n")
    assert (copy.folder / "0" / "a").read_text() == "not committed\n"
    again = await bench.fork_conversation(fork.id, in_copy=True)
    second = bench.copies.find_copy(again.id)
    assert second is not None
    assert (second.parent, (second.folder / "0" / "b").read_text()) == (copy.id, "by the fork\n")
    shares = await bench.fork_conversation(fork.id)
    row = bench.conversation_row(shares.id)
    assert row is not None
    assert (shares.conversation.state.own_copy, row.copy) == (copy.id, copy.label)


async def test_where_the_settings_say_so_new_conversations_and_sub_agents_work_in_copies(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    assert (await bench.start_users_conversation()).conversation.state.own_copy == ""
    await bench.change_settings({"copies.always": True})
    session = await bench.start_users_conversation("0" * 20)
    assert session.conversation.state.own_copy == session.id == "0" * 20
    wish = Delegation(session.id, "1", "task", "", (), 1)
    child = await bench._create_subagent_session(ConversationStarted(parent=session.id), wish)
    assert child.conversation.state.own_copy == child.id
    (bench.copies.tools_of_copy(child.id).resources.roots.folders[0] / "a").write_text(
        "by the sub-agent\n"
    )
    words = await bench.copies.describe_copy_of_agent(child)
    assert f"{project}/a" in words
    assert f"call apply_agent_changes with the agent {child.id}" in words


@pytest.mark.parametrize("isolated", [True, False])
async def test_what_a_sub_agent_changed_in_its_own_copy_is_no_change_of_the_parents(
    desks: Desks, project: Path, *, isolated: bool
) -> None:
    """It was listed as done in the user's folder, and reversing its undo wrote it there."""
    bench = await bench_on(desks, project)
    parent = await bench.start_conversation()
    wish = Delegation(parent.id, "1", "task", "", (), 1, isolated=isolated)
    child = await bench._create_subagent_session(ConversationStarted(parent=parent.id), wish)
    kit = await bench.copies.get_or_open_tools(child.conversation.state.own_copy)
    assert kit.resources.checkpoints is not None
    await kit.resources.checkpoints.ensure_first_check()
    window = await kit.resources.checkpoints.begin_step("", child.id, "command")
    assert window is not None
    (kit.resources.roots.folders[0] / "a").write_text("by the sub-agent\n")
    fact = await kit.resources.checkpoints.end_step(window)
    assert fact is not None
    await child.conversation.append_facts(UserSaid((Text("task"),)), fact)
    said = await bench.workspace.cache.store_content(b"done", EntryOrigin("delegate"))
    returned = ToolReturned("1", said, 1, child=child.id)
    await parent.conversation.append_facts(UserSaid((Text("Delegate it."),)), returned)
    assert len(await bench.file_changes.turns_with_changes(parent.id)) == (not isolated)
    assert len(await bench.file_changes.turns_with_changes(child.id)) == 1


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_parent_brings_the_changes_of_its_sub_agent_back_after_the_user_saw_them(
    desks: Desks, project: Path, *, allowed: bool
) -> None:
    bench = await bench_on(desks, project)
    await bench.choose_permission_mode("allow all")
    parent = await bench.start_conversation()
    stranger = await bench.start_conversation()
    await parent.conversation.append_facts(UserSaid((Text("Delegate it."),)))
    wish = Delegation(parent.id, "1", "task", "", (), 1, isolated=True)
    child = await bench._create_subagent_session(ConversationStarted(parent=parent.id), wish)
    (bench.copies.tools_of_copy(child.id).resources.roots.folders[0] / "a").write_text(
        "by the sub-agent\n"
    )
    call = ToolCall("1", "apply_agent_changes", json.dumps({"agent": child.id}))
    asked: list[str] = []

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        asked.append(question.preview)
        return PermissionAnswer(allowed=allowed)

    refused = await stranger._services.tools.run_tool_call(
        call, CallContext(stranger.id, ask, lambda _: None)
    )
    assert (refused.ok, asked) == (False, [])
    done = await parent._services.tools.run_tool_call(
        call, CallContext(parent.id, ask, lambda _: None)
    )
    assert (done.ok, asked) == (allowed, [f"{project}/a"])
    assert (project / "a").read_text() == ("by the sub-agent\n" if allowed else "one\n")
    changed = [each for each in parent.all_facts if isinstance(each.fact, FilesChanged)]
    assert len(changed) == allowed
    if allowed:
        files = await bench.file_changes.changes_after_fact(parent.id, changed[0].seq - 1)
        await bench.file_changes.undo_file_changes(files, conversation=parent.id)
        assert (project / "a").read_text() == "one\n"


async def test_a_file_that_two_copies_change_is_said_while_it_happens(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    one, two = [await bench.start_conversation_in_copy(name) for name in ("One", "Two")]
    heard = asyncio.Event()
    bench.subscribe_to_events(
        lambda event: heard.set() if isinstance(event, MeterChanged) else None
    )
    for session, name in ((one, "b"), (two, "a"), (one, "a")):
        kit = bench.copies.tools_of_copy(session.id)
        assert kit.resources.checkpoints is not None
        await kit.resources.checkpoints.ensure_first_check()
        assert bench.conversation_row(session.id).overlaps == ()  # type: ignore[union-attr]
        step = await kit.resources.checkpoints.begin_step("1", session.id, "command")
        assert step is not None
        (kit.resources.roots.folders[0] / name).write_text(f"by {session.id}\n")
        heard.clear()
        await session.conversation.append_facts(*await kit.collect_unfinished_changes(session.id))
        await asyncio.wait_for(heard.wait(), 30)
    rows = [bench.conversation_row(session.id) for session in (one, two)]
    assert [row.overlaps for row in rows if row is not None] == [(f"{project}/a",)] * 2
    assert bench.copies.changed[one.id] == (f"{project}/a", f"{project}/b")
    discarded = bench.copies.find_copy(one.id)
    assert discarded is not None
    await bench.copies.bring_back(discarded, "discard")
    assert bench.conversation_row(two.id).overlaps == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("allowed", [True, False])
async def test_a_command_sets_a_new_copy_up_once_and_is_asked_for(
    desks: Desks, project: Path, *, allowed: bool
) -> None:
    bench = await bench_on(desks, project)
    await bench.change_settings({"copies.set_up": "echo ready > set-up; echo done so"})
    await bench.choose_permission_mode("ask")
    here = await bench.start_conversation()
    copy = await copy_in(bench)
    session = await bench.open_session(copy.id)
    asked: list[str] = []

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            asked.append(event.question.preview)
            session.answer_question(event.number, PermissionAnswer(allowed=allowed))

    session.subscribe_to_events(hear)
    for talking in (here, session, session):
        await told(talking, "todo look; tell")
    assert asked == ["echo ready > set-up; echo done so"]
    assert (copy.folder / "0" / "set-up").exists() is allowed
    assert not (project / "set-up").exists()
    said = [
        part.text
        for r in session.all_facts
        if isinstance(r.fact, UserSaid)
        for part in r.fact.parts
        if isinstance(part, Text)
    ]
    assert ("Exit code 0" in "".join(said)) is allowed


async def test_a_name_is_given_once(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    with pytest.raises(ActionRefused, match="already a copy"):
        await bench.copies.create_copy(copy.id)
    assert bench.copies.find_copy(copy.id) == copy


@pytest.mark.parametrize("way", ["merge", "rebase", "apply", "discard"])
async def test_nothing_runs_whatever_both_repositories_name(
    desks: Desks, project: Path, tmp_path: Path, way: str
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    run = f"touch {tmp_path}/canary"
    git(project, "commit", "-q", "--allow-empty", "-m", "mine")
    for folder in (project, work):
        (folder / ".git/info").mkdir(exist_ok=True)
        (folder / ".git/info/attributes").write_text("* diff=x merge=x\n")
        names = [name for name in PROGRAMS if not name.startswith(("filter.", "alias."))]
        settings = "".join(_format_setting(name, run) for name in names)
        settings += (
            '[branch "master"]\n\tmergeoptions = --strategy=evil\n[core]\n\tworktree = /nowhere\n'
        )
        with (folder / ".git/config").open("a") as file:
            file.write(
                settings
                if folder == work
                else settings.replace("worktree = /nowhere", "bare = false")
            )
        for hook in HOOKS:
            (folder / ".git/hooks").mkdir(exist_ok=True)
            (folder / ".git/hooks" / hook).write_text(f"#!/bin/sh\n{run}\n")
            (folder / ".git/hooks" / hook).chmod(0o755)
    (work / "a").write_text("theirs\n")
    assert (await bench.copies.read_copy_status(copy)).uncommitted == ("a",)
    said = await bench.copies.bring_back(copy, way, "theirs")
    assert said != ("There are no changes to bring back.",)
    assert (project / "a").read_text() == ("one\n" if way == "discard" else "theirs\n")
    assert not (tmp_path / "canary").exists()
    subprocess.run(["git", "status"], cwd=project, check=False, capture_output=True)
    assert (tmp_path / "canary").exists(), "what was planted runs nothing"


HOOKS = ("pre-commit", "commit-msg", "post-commit", "pre-merge-commit", "post-merge", "post-checkout", "pre-rebase",
         "post-rewrite", "post-index-change", "reference-transaction", "prepare-commit-msg")  # fmt: skip


def _format_setting(name: str, value: str) -> str:
    first, _, rest = name.partition(".")
    below, _, key = rest.rpartition(".")
    return (
        f'[{first} "{below}"]\n\t{key} = {value}\n' if below else f"[{first}]\n\t{key} = {value}\n"
    )


async def test_a_discard_keeps_all_or_is_refused(desks: Desks, project: Path) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "new").write_text("new\n")
    (copy.folder / "0" / "nested").mkdir()
    git(copy.folder / "0" / "nested", "init", "-q", ".")
    (copy.folder / "0" / "nested" / "file").write_text("nowhere else\n")
    for way in ("merge", "discard"):
        with pytest.raises(ActionRefused, match="nested/ in the copy is a repository of its own"):
            await bench.copies.bring_back(copy, way, "theirs")
    subprocess.run(["rm", "-rf", copy.folder / "0" / "nested"], check=True)
    moved = project.rename(project.parent / "moved")
    with pytest.raises(ActionRefused):
        await bench.copies.bring_back(copy, "discard")
    assert (copy.folder / "0" / "new").read_text() == "new\n"
    moved.rename(project)
    said = await bench.copies.bring_back(copy, "discard")
    assert len(said) == 2


async def test_changes_that_checkpoints_leave_out_are_not_lost_in_silence(
    desks: Desks, project: Path
) -> None:
    (project / "node_modules").mkdir()
    (project / "node_modules" / "kept").write_text("tracked, and the same in both\n")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "y")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    await bench.copies.bring_back(copy, "apply")
    assert (project / "a").read_text() == "theirs\n"
    (copy.folder / "0" / "node_modules" / "kept").write_text("theirs\n")
    with pytest.raises(ActionRefused, match="Checkpoints leave out"):
        await bench.copies.bring_back(copy, "apply")


async def test_a_discard_keeps_stashes_staged_versions_and_what_git_was_told_to_overlook(
    desks: Desks, project: Path
) -> None:
    (project / "c").write_text("c\n")
    git(project, "add", "c")
    git(project, "commit", "-qm", "c")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    for name, value in (("user.name", "a"), ("user.email", "a@b")):
        git(work, "config", name, value)
    for number in range(3):
        (work / "a").write_text(f"stash {number}\n")
        git(work, "stash")
    (work / "a").write_text("taken back\n")
    git(work, "commit", "-qam", "taken back")
    git(work, "reset", "-q", "--hard", "HEAD~1")
    (work / "a").write_text("staged\n")
    git(work, "add", "a")
    (work / "a").write_text("one\n")
    for mark, name in (("--skip-worktree", "b"), ("--assume-unchanged", "c")):
        git(work, "update-index", mark, name)
        (work / name).write_text(f"{mark}\n")
    found = await bench.copies.read_copy_status(copy)
    assert (found.uncommitted, found.changed) == (("a", "b", "c"), (f"{project}/b", f"{project}/c"))
    said = await bench.copies.bring_back(copy, "discard")
    bundle = await bench.workspace.cache.read_content(
        Digest.from_hex(said[0].split(" as ")[1][:64])
    )
    (project.parent / "bundle").write_bytes(bundle)
    git(
        project,
        "fetch",
        "-q",
        str(project.parent / "bundle"),
        "+refs/*:refs/kept/*",
        "+HEAD:refs/kept/all",
    )
    assert {git(project, "show", f"refs/kept/all:{name}") for name in "bc"} == {
        "--skip-worktree\n",
        "--assume-unchanged\n",
    }
    refs = git(project, "for-each-ref", "--format=%(refname)", "refs/kept").split()
    kept = {git(project, "show", f"{ref}:a") for ref in refs}
    assert kept >= {"stash 0\n", "stash 1\n", "stash 2\n", "taken back\n", "staged\n"}


@pytest.mark.parametrize("way", ["merge", "rebase", "discard"])
async def test_commits_are_by_whom_the_repository_names_now(
    desks: Desks, project: Path, way: str
) -> None:
    """A copy made before git knew a name was merged under the name for all
    repositories, instead of this one's.
    """
    git(project, "config", "--unset", "user.name")
    git(project, "config", "user.useConfigOnly", "true")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("from the copy\n")
    git(copy.folder / "0", "config", "user.email", "chosen@agent")
    with pytest.raises(ActionRefused, match="git does not know your name"):
        await bench.copies.bring_back(copy, way, "Work")
    (project.parent / ".gitconfig").write_text("[user]\n\tname = Global\n\temail = global@x\n")
    git(project, "config", "user.name", "Local")
    git(project, "-c", "user.name=Other", "commit", "-q", "--allow-empty", "-m", "meanwhile")
    said = await bench.copies.bring_back(copy, way, "Work")
    if way == "discard":
        bundle = await bench.workspace.cache.read_content(
            Digest.from_hex(said[0].split(" as ")[1][:64])
        )
        (project.parent / "bundle").write_bytes(bundle)
        git(project, "fetch", "-q", str(project.parent / "bundle"), "+HEAD:refs/kept/all")
    last = "refs/kept/all" if way == "discard" else "HEAD"
    others = ("--invert-grep", "--grep=meanwhile")
    found = git(
        project, "log", "--format=%an %ae, %cn %ce", *others, f"{copy.repositories[0].base}..{last}"
    )
    assert set(found.splitlines()) == {"Local a@b, Local a@b"}


@pytest.mark.parametrize("is_locked", [False, True])
async def test_a_discard_leaves_no_ref_in_the_users_repository(
    desks: Desks, project: Path, *, is_locked: bool
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    other = await copy_in(bench)
    for number, each in enumerate((copy, other)):
        (each.folder / "0" / f"new {number}").write_text("x\n")
        await bench.copies.bring_back(each, "merge", "New")
    if is_locked:  # It is no reason to keep the copy.
        (project / ".git" / "refs" / "helix" / f"{copy.id}.lock").touch()
    found = bench.copies.find_copy(copy.id)
    assert found is not None
    assert await bench.copies.bring_back(found, "discard") == ("The copy was deleted.",)
    left = git(project, "for-each-ref", "--format=%(refname)", "refs/helix").split()
    assert left == sorted(
        f"refs/helix/{each.id}" for each in (copy, other)[0 if is_locked else 1 :]
    )


async def test_a_discard_keeps_what_an_unfinished_rebase_has_stashed(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    git(work, "config", "user.name", "a")
    git(work, "config", "user.email", "a@b")
    for branch in ("side", "other"):
        git(work, "checkout", "-qb", branch, copy.repositories[0].base)
        (work / "a").write_text(f"on {branch}\n")
        git(work, "commit", "-qam", branch)
    (work / "b").write_text("stashed by git\n")
    subprocess.run(
        ["git", "rebase", "-q", "--autostash", "side"], cwd=work, check=False, capture_output=True
    )
    assert (work / "b").read_text() == "b\n"
    said = await bench.copies.bring_back(copy, "discard")
    bundle = await bench.workspace.cache.read_content(
        Digest.from_hex(said[0].split(" as ")[1][:64])
    )
    (project.parent / "bundle").write_bytes(bundle)
    git(project, "fetch", "-q", str(project.parent / "bundle"), "+refs/*:refs/kept/*")
    refs = git(project, "for-each-ref", "--format=%(refname)", "refs/kept").split()
    assert "stashed by git\n" in {git(project, "show", f"{ref}:b") for ref in refs}


async def test_a_discard_does_not_delete_files_in_the_folder_of_a_submodule(
    desks: Desks, project: Path
) -> None:
    commit = git(project, "rev-parse", "HEAD").strip()
    git(project, "update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    git(project, "commit", "-qm", "with a submodule")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "module" / "new").write_text("nowhere else\n")
    with pytest.raises(ActionRefused, match="module/ in the copy is a repository of its own"):
        await bench.copies.bring_back(copy, "discard")
    (copy.folder / "0" / "module" / "new").unlink()
    assert await bench.copies.bring_back(copy, "discard") == ("The copy was deleted.",)


async def test_files_that_a_sparse_checkout_leaves_out_are_no_changes(
    desks: Desks, project: Path
) -> None:
    git(project, "sparse-checkout", "set", "--no-cone", "/*", "!/b")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    assert not (copy.folder / "0" / "b").exists()
    found = await bench.copies.read_copy_status(copy)
    assert (found.uncommitted, found.changed, found.problem) == ((), (), "")
    assert await bench.copies.bring_back(copy, "discard") == ("The copy was deleted.",)


@pytest.fixture
def second(project: Path) -> Path:
    """Another repository with the same files."""
    folder = project.parent / "second"
    subprocess.run(["cp", "-a", project, folder], check=True)
    return folder


@pytest.mark.parametrize("way", ["merge", "rebase"])
async def test_of_two_repositories_both_are_merged_or_none(
    desks: Desks, project: Path, second: Path, way: str
) -> None:
    copy = await copy_of_two(desks, project, second)
    (second / "a").write_text("mine\n")
    heads = [git(folder, "rev-parse", "HEAD") for folder in (project, second)]
    with pytest.raises(ActionRefused, match=r"in the way: a\. Nothing was changed in your folder"):
        await copy.bench.copies.bring_back(copy.folders, way, "theirs")
    assert [git(folder, "rev-parse", "HEAD") for folder in (project, second)] == heads
    assert [(folder / "a").read_text() for folder in (project, second)] == ["one\n", "mine\n"]
    (second / "a").write_text("one\n")  # its time alone is another one
    await copy.bench.copies.bring_back(copy.folders, way)
    assert [(folder / "a").read_text() for folder in (project, second)] == ["theirs\n"] * 2


async def test_if_the_second_repository_cannot_be_moved_it_is_said_that_the_first_was(
    desks: Desks, project: Path, second: Path
) -> None:
    copy = await copy_of_two(desks, project, second)
    branch = git(second, "symbolic-ref", "HEAD").strip()
    before = git(project, "rev-parse", "--short=9", "HEAD").strip()
    (second / ".git" / f"{branch}.lock").touch()
    with pytest.raises(
        ActionRefused,
        match="Another git program is working in this repository, or was killed there",
    ) as refused:
        await copy.bench.copies.bring_back(copy.folders, "merge", "theirs")
    assert f"in {project} is now at" in refused.value.what
    assert ((second / "a").read_text(), git(second, "status", "--porcelain")) == ("one\n", "")
    assert refused.value.remedy == f"To go back, run `git reset --keep {before}` in {project}."
    git(project, "reset", "--keep", before)
    assert (project / "a").read_text() == "one\n"


@dataclass(frozen=True)
class CopyOfTwo:
    bench: Workbench
    folders: FolderCopy


async def copy_of_two(desks: Desks, *folders: Path) -> CopyOfTwo:
    """A copy of both folders, with the same file changed in each."""
    desk = desks()
    bench = await desk.create_workspace("W", folders[0])
    await bench.change_settings({"roots": list(map(str, folders))})
    await desk.aclose()
    bench = await desks().open_workspace(bench.id)
    copy = await copy_in(bench)
    for number in range(len(folders)):
        (copy.folder / str(number) / "a").write_text("theirs\n")
    return CopyOfTwo(bench, copy)


async def test_forgetting_names_what_git_has_compressed_and_it_could_not_search(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy, fresh = [await copy_in(bench) for _ in range(2)]
    work = copy.folder / "0"
    text = "correct-horse-battery-staple-4711"
    (work / "a").write_text(f"{text} and more text, and more text, and more text\n")
    git(work, "add", "a")
    (work / "a").write_text("one\n")
    (place,) = (await bench.workspace.forget_content(text=text)).elsewhere
    assert f"compressed versions of files in {work}/.git/objects" in place
    assert str(fresh.folder) not in place
    said = await bench.copies.bring_back(copy, "discard")
    digest = Digest.from_hex(said[0].split(" as ")[1][:64])
    (place,) = (await bench.workspace.forget_content(text=text)).elsewhere
    assert f"The entry {digest.hex} contains the compressed changes of a discarded copy" in place
    assert (await bench.workspace.forget_content(text=text, entries=[digest])).elsewhere == ()
    assert (await bench.workspace.forget_content(text=text)).elsewhere == ()


async def sub_agent_in_copy(bench: Workbench) -> tuple[Session, FolderCopy]:
    """A conversation that may do everything, and the copy in which its sub-agent works."""
    await bench.choose_permission_mode("allow all")
    parent = await bench.start_conversation()
    wish = Delegation(parent.id, "1", "task", "", (), 1, isolated=True)
    child = await bench._create_subagent_session(ConversationStarted(parent=parent.id), wish)
    copy = bench.copies.find_copy(child.id)
    assert copy is not None
    return parent, copy


async def apply_after(
    parent: Session, copy: FolderCopy, meanwhile: Callable[[], object] = lambda: None
) -> tuple[bool, list[str]]:
    """Whether the changes were applied, and the lines of the question. `meanwhile` runs
    while it is shown.
    """
    shown = list[str]()

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        shown.extend(question.preview.splitlines())
        meanwhile()
        return PermissionAnswer(allowed=True)

    call = ToolCall("1", "apply_agent_changes", json.dumps({"agent": copy.id}))
    done = await parent._services.tools.run_tool_call(
        call, CallContext(parent.id, ask, lambda _: None)
    )
    return done.ok, shown


@pytest.mark.parametrize("mark", ["--assume-unchanged", "--skip-worktree"])
async def test_the_question_shows_what_is_applied_whatever_git_was_told_to_overlook(
    desks: Desks, project: Path, mark: str
) -> None:
    parent, copy = await sub_agent_in_copy(await bench_on(desks, project))
    work = copy.folder / "0"
    git(work, "update-index", mark, "b")
    (work / "b").write_text("hidden from git\n")
    (work / "a").unlink()
    (work / "new\nline").mkdir()
    (work / "new\nline" / "run").write_text("x\n")
    (work / "new\nline" / "run").chmod(0o755)
    (work / "away").symlink_to("/etc/passwd")
    done, shown = await apply_after(parent, copy)
    assert (done, shown) == (
        True,
        [
            f"{project}/a (deleted)",
            f"{project}/away (new, link to /etc/passwd)",
            f"{project}/b",
            f"{project}/new\\nline (new, folder)",
            f"{project}/new\\nline/run (new, executable)",
        ],
    )
    assert (project / "b").read_text() == "hidden from git\n"
    assert await apply_after(parent, copy) == (True, [])


@pytest.mark.parametrize("place", ["copy", "folder"])
async def test_what_was_changed_while_the_question_was_shown_is_not_applied(
    desks: Desks, project: Path, place: str
) -> None:
    parent, copy = await sub_agent_in_copy(await bench_on(desks, project))
    work = copy.folder / "0"
    (work / "a").write_text("theirs\n")
    changed = work / "b" if place == "copy" else project / "a"
    done, shown = await apply_after(parent, copy, lambda: changed.write_text("meanwhile\n"))
    assert (done, shown) == (False, [f"{project}/a"])
    assert (project / "a").read_text() == ("one\n" if place == "copy" else "meanwhile\n")
    assert (project / "b").read_text() == "b\n"


async def test_nothing_is_asked_while_a_command_still_runs_in_the_copy(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    parent, copy = await sub_agent_in_copy(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    box = bench.copies.tools_of_copy(copy.id).build_toolbox()
    context = CallContext(copy.id, _yes, lambda _: None)
    given = json.dumps({"command": "sleep 600", "background": True})
    await box.run_tool_call(ToolCall("1", "run_command", given), context)
    assert await apply_after(parent, copy) == (False, [])
    await box.run_tool_call(ToolCall("2", "stop_command", '{"name": "bg1"}'), context)
    assert await apply_after(parent, copy) == (True, [f"{project}/a"])


async def copy_with_what_a_test_run_left(
    desks: Desks, project: Path
) -> tuple[Workbench, FolderCopy]:
    """A copy with the user's uncommitted changes, in which an agent has changed `b` and
    run the tests.
    """
    (project / "a").write_text("mine\n")
    (project / "notes").write_text("untracked\n")
    (project / "__pycache__").mkdir()
    (project / "__pycache__" / "a.pyc").write_text("compiled\n")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench, with_changes=True)
    work = copy.folder / "0"
    (work / "b").write_text("theirs\n")
    (work / "__pycache__").mkdir(exist_ok=True)
    (work / "__pycache__" / "a.pyc").write_text("compiled again\n")
    (work / "__pycache__" / "b.pyc").write_text("compiled\n")
    return bench, copy


async def test_caches_hinder_no_apply_and_are_left_alone(desks: Desks, project: Path) -> None:
    bench, copy = await copy_with_what_a_test_run_left(desks, project)
    assert (await bench.copies.read_copy_status(copy)).uncommitted == ("b",)
    await bench.copies.bring_back(copy, "apply")
    assert (project / "b").read_text() == "theirs\n"
    assert [path.name for path in (project / "__pycache__").iterdir()] == ["a.pyc"]
    assert (project / "__pycache__" / "a.pyc").read_text() == "compiled\n"


@pytest.mark.parametrize("way", ["merge", "rebase"])
@pytest.mark.parametrize("user_commits", ["nothing", "the same files", "another file"])
async def test_what_came_with_the_copy_is_neither_committed_nor_a_conflict(
    desks: Desks, project: Path, way: str, user_commits: str
) -> None:
    bench, copy = await copy_with_what_a_test_run_left(desks, project)
    if user_commits == "another file":
        (project / "other").write_text("other\n")
    if user_commits != "nothing":
        git(project, "add", *(("a", "notes") if user_commits == "the same files" else ("other",)))
        git(project, "commit", "-qm", "mine")
    await bench.copies.bring_back(copy, way, "theirs")
    assert git(
        project, "log", "-1", "--no-merges", "--name-only", "--format=", "--grep=theirs"
    ).split() == ["b"]
    assert ((project / "a").read_text(), (project / "b").read_text()) == ("mine\n", "theirs\n")
    left = (
        ["__pycache__/a.pyc"]
        if user_commits == "the same files"
        else ["a", "__pycache__/a.pyc", "notes"]
    )
    assert [
        line[3:] for line in git(project, "status", "--porcelain", "-uall").splitlines()
    ] == left
    assert (project / "__pycache__" / "a.pyc").read_text() == "compiled\n"


async def test_a_commit_with_files_that_the_user_has_as_well_is_merged(
    desks: Desks, project: Path
) -> None:
    bench, copy = await copy_with_what_a_test_run_left(desks, project)
    git(copy.folder / "0", "add", "-A")
    git(copy.folder / "0", "reset", "-q", "__pycache__")
    git(
        copy.folder / "0",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "everything",
    )
    (project / "b").write_text("in the way\n")
    git(project, "add", "b")
    before = git(project, "status", "--porcelain", "-uall"), git(project, "diff", "--cached")
    with pytest.raises(ActionRefused, match="in the way: b"):
        await bench.copies.bring_back(copy, "merge")
    assert (
        git(project, "status", "--porcelain", "-uall"),
        git(project, "diff", "--cached"),
    ) == before
    assert (project / "notes").read_text() == "untracked\n"
    git(project, "checkout", "-q", "HEAD", "b")
    await bench.copies.bring_back(copy, "merge")
    assert git(project, "status", "--porcelain", "-uall").split() == ["??", "__pycache__/a.pyc"]
    assert (project / "b").read_text() == "theirs\n"


@pytest.mark.parametrize(
    ("first", "second", "with_changes"),
    [
        # Each way comes first and second, with changes and without.
        ("merge", "rebase", True),
        ("rebase", "apply", False),
        ("apply", "merge", True),
        ("apply", "apply", False),
        ("rebase", "rebase", True),
    ],
)
async def test_what_was_brought_back_before_is_no_conflict(
    desks: Desks, project: Path, first: str, second: str, *, with_changes: bool
) -> None:
    if with_changes:
        (project / "a").write_text("not committed\n")
    desk = desks()
    bench = await desk.create_workspace("W", project)
    copy = await copy_in(bench, with_changes=with_changes)
    work = copy.folder / "0"
    # No commit says that a file is gone which was only applied.
    stays_behind = {"new 0"} if first == "apply" != second else set()
    assert await bench.copies.list_files_not_brought_back(copy) == []
    for number, way in enumerate((first, second, second)):
        (work / "a").write_text(f"version {number}\n")
        (work / f"new {number}").write_text("new\n")
        (work / f"new {number - 1}").unlink(missing_ok=True)
        left = await bench.copies.list_files_not_brought_back(_again(bench, copy))
        assert {"a", f"new {number}"} <= set(left)
        await bench.copies.bring_back(_again(bench, copy), way, "theirs")
        assert await bench.copies.list_files_not_brought_back(_again(bench, copy)) == []
        assert (project / "a").read_text() == f"version {number}\n"
        new_files = {path.name for path in project.glob("new*")}
        assert new_files == {f"new {number}"} | stays_behind
        if way != "apply":
            status = await bench.copies.read_copy_status(_again(bench, copy))
            assert not status.changed
        if number == 0:
            await desk.aclose()
            bench = await desks().open_workspace(bench.id)
    if second != "apply":
        not_committed = "".join(f'?? "{name}"\n' for name in stays_behind)
        assert git(project, "status", "--porcelain") == not_committed
    said = await bench.copies.bring_back(_again(bench, copy), second)
    assert said == ("There are no changes to bring back.",)


def _again(bench: Workbench, copy: FolderCopy) -> FolderCopy:
    found = bench.copies.find_copy(copy.id)
    assert found is not None
    return found


async def test_what_was_applied_and_undone_can_be_applied_again(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    (copy.folder / "0" / "new").write_text("new\n")
    (copy.folder / "0" / "b").unlink()
    (copy.folder / "0" / "c").mkdir()
    (copy.folder / "0" / "c" / "new").write_text("new\n")
    for _ in range(2):
        await bench.copies.bring_back(_again(bench, copy), "apply")
        assert ((project / "a").read_text(), (project / "new").read_text()) == ("theirs\n", "new\n")
        assert await bench.copies.list_files_not_brought_back(_again(bench, copy)) == []
        await undo_apply(bench)
        assert await bench.copies.list_files_not_brought_back(_again(bench, copy)) == [
            "a",
            "b",
            "c/new",
            "new",
        ]
        assert ((project / "a").read_text(), (project / "new").exists()) == ("one\n", False)


async def test_what_was_merged_with_the_users_changes_and_undone_can_be_applied_again(
    desks: Desks, project: Path
) -> None:
    """It was taken for brought back already, and nothing was done."""
    bench = await bench_on(desks, project)
    (project / "a").write_text("one\n2\n3\nfour\n")
    git(project, "commit", "--all", "--message", "Four lines")
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("one\n2\n3\nfour, theirs\n")
    (project / "a").write_text("one, mine\n2\n3\nfour\n")
    for _ in range(2):
        await bench.copies.bring_back(_again(bench, copy), "apply")
        assert (project / "a").read_text() == "one, mine\n2\n3\nfour, theirs\n"
        assert await bench.copies.list_files_not_brought_back(_again(bench, copy)) == []
        await undo_apply(bench)
        assert await bench.copies.list_files_not_brought_back(_again(bench, copy)) == ["a"]
        assert (project / "a").read_text() == "one, mine\n2\n3\nfour\n"


async def undo_apply(bench: Workbench) -> None:
    """Undo what the newest apply changed."""
    conversation = max(
        row.id for row in bench.list_conversations() if row.title == "Changes from a copy"
    )
    (turn,) = await bench.file_changes.turns_with_changes(conversation)
    files = await bench.file_changes.changes_with_folders(turn.sources)
    await bench.file_changes.undo_file_changes(files, conversation=conversation)


class Killed(BaseException):
    """Stands for a kill: nobody catches it."""


async def test_what_a_killed_apply_has_written_can_be_undone(
    desks: Desks, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = desks()
    bench = await desk.create_workspace("W", project)
    (project / "shut").mkdir()
    (project / "shut" / "file").write_text("one\n")
    git(project, "add", "--all")
    git(project, "commit", "--message", "A folder")
    (project / "shut").chmod(0o555)
    copy = await copy_in(bench)
    for name in ("a", "b", "new/file", "shut/file"):
        (copy.folder / "0" / name).parent.mkdir(exist_ok=True)
        (copy.folder / "0" / name).write_text("theirs\n")
    write = change_restoring._PathRestorer._restore_file

    async def write_or_be_killed(
        self: change_restoring._PathRestorer, step: change_restoring.RestoreStep
    ) -> None:
        if step.path == "0/b":
            raise Killed
        await write(self, step)

    held = copy_trials.files_of(project)
    with monkeypatch.context() as kill:
        kill.setattr(change_restoring._PathRestorer, "_restore_file", write_or_be_killed)
        with pytest.raises(Killed):
            await bench.copies.bring_back(copy, "apply")
    (project / "new").chmod(0o700)  # As the kill leaves them.
    (project / "shut").chmod(0o700)
    await desk.aclose()
    desk = desks()
    again = await desk.open_workspace(bench.id)
    assert [(project / name).read_text() for name in ("a", "b")] == ["theirs\n", "b\n"]
    assert [(project / name).stat().st_mode & 0o777 for name in ("new", "shut")] == [0o755, 0o555]
    assert "You can undo this in the conversation “Changes from a copy”" in "".join(
        again.opening_notes
    )
    await undo_apply(again)
    assert (copy_trials.files_of(project), (project / "new").exists()) == (held, False)
    await desk.aclose()
    last = await desks().open_workspace(bench.id)
    assert last.opening_notes == ()
    await last.copies.bring_back(_again(last, copy), "apply")
    assert [(project / name).read_text() for name in ("a", "b", "shut/file")] == ["theirs\n"] * 3


@pytest.mark.parametrize("is_older_copy", [False, True])
async def test_a_file_that_came_with_the_copy_and_was_made_executable_there_is_merged(
    desks: Desks, project: Path, *, is_older_copy: bool
) -> None:
    """Only its size and time were compared."""
    bench = await bench_on(desks, project)
    (project / "a").write_text("mine\n")
    (project / "b").unlink()
    copy = await copy_in(bench, with_changes=True)
    if is_older_copy:
        (made,) = copy.repositories
        made = replace(made, carried={name: at[:2] for name, at in made.carried.items()})
        copy_files.save_copy_description(copy := replace(copy, repositories=[made]))
    (copy.folder / "0" / "new").write_text("theirs\n")
    (copy.folder / "0" / "a").chmod(0o755)
    await bench.copies.bring_back(copy, "merge", "Work")
    assert (project / "a").stat().st_mode & 0o100 == (0 if is_older_copy else 0o100)
    assert ((project / "a").read_text(), (project / "new").read_text()) == ("mine\n", "theirs\n")
    assert git(project, "ls-tree", "HEAD", "b"), "what the user has not committed is not committed"
    assert not (project / "b").exists()
    if not is_older_copy:
        assert git(project, "ls-tree", "HEAD", "a").startswith("100755")


async def test_words_that_came_with_the_copy_are_there_after_git_was_killed_in_a_merge(
    desks: Desks, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What git stashes for a merge is in no file then, and the next apply took the
    words from the user's own folder.
    """
    bench = await bench_on(desks, project)
    for name in ("a", "b"):
        (project / name).write_text(f"{name}, my own words\n")
    copy = await copy_in(bench, with_changes=True)
    (copy.folder / "0" / "new").write_text("new\n")
    git(project, "commit", "--message", "Mine", "--", "b")
    run = GitCheckout.run

    def run_or_be_killed(self: GitCheckout, *words: str, **options: Any) -> bytes:
        if words[0] != "merge" or not self.is_copy:
            return run(self, *words, **options)
        if "--autostash" in words:
            git(
                self.folder, "stash"
            )  # Git writes elsewhere which commit it is, and then does the same.
        raise Killed

    with monkeypatch.context() as kill:
        kill.setattr(GitCheckout, "run", run_or_be_killed)
        kill.setattr(private_git_copy, "put_back_set_aside_files", lambda *_: None)
        with pytest.raises(Killed):
            await bench.copies.bring_back(copy, "merge", "Work")
    await bench.copies.bring_back(_again(bench, copy), "apply")
    for folder in (project, copy.folder / "0"):
        assert {name: (folder / name).read_text() for name in ("a", "b", "new")} == {
            "a": "a, my own words\n",
            "b": "b, my own words\n",
            "new": "new\n",
        }


async def test_what_the_user_changed_after_it_was_brought_back_stays(
    desks: Desks, project: Path
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    (copy.folder / "0" / "a").write_text("theirs\n")
    (copy.folder / "0" / "b").write_text("theirs\n")
    await bench.copies.bring_back(_again(bench, copy), "apply")
    (project / "a").write_text("mine\n")
    (project / "b").write_text("mine\ntheirs\n")
    (copy.folder / "0" / "b").write_text("theirs\nmore\n")
    await bench.copies.bring_back(_again(bench, copy), "apply")
    assert ((project / "a").read_text(), (project / "b").read_text()) == (
        "mine\n",
        "mine\ntheirs\nmore\n",
    )
    with pytest.raises(ActionRefused, match="in the way: a"):
        await bench.copies.bring_back(_again(bench, copy), "merge", "theirs")
    assert (project / "a").read_text() == "mine\n"


@pytest.mark.parametrize("crashes", [False, True])
async def test_a_refused_merge_leaves_the_copy_as_it_was(
    desks: Desks, project: Path, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """Otherwise the next apply would take the user's own words for removed by the agent."""
    bench = await bench_on(desks, project)
    (project / "a").write_text("one\nmy own words\n")
    (project / "mine").write_text("mine\n")
    copy = await copy_in(bench, with_changes=True)
    work = copy.folder / "0"
    (work / "b").write_text("the agent's\n")
    (project / "mine").write_text("mine, and changed since\n")
    for folder in (
        project,
        work,
    ):  # Git refuses a merge that would overwrite a file which it does not know.
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "x.pyc").write_text(str(folder))
    git(project, "add", "--all")
    git(project, "commit", "--message", "All")
    with monkeypatch.context() as crash:
        if crashes:
            crash.setattr(private_git_copy, "put_back_set_aside_files", lambda *_: None)
        with pytest.raises(ActionRefused, match=r"x\.pyc"):
            await bench.copies.bring_back(copy, "merge", "Work")
    assert (work / "a").read_text() == ("one\n" if crashes else "one\nmy own words\n")
    (status,) = (await bench.copies.read_status_of_copies()).values()
    assert status.commits == 1
    (work / "new").write_text("new\n")
    said = await bench.copies.bring_back(_again(bench, copy), "apply")
    assert (
        said[0] == "Files changed: 2. You can undo this in the conversation “Changes from a copy”."
    )
    assert {each: (work / each).read_text() for each in ("a", "mine")} == {
        "a": "one\nmy own words\n",
        "mine": "mine\n",
    }
    wanted = {
        "a": "one\nmy own words\n",
        "mine": "mine, and changed since\n",
        "b": "the agent's\n",
        "new": "new\n",
    }
    assert {each: (project / each).read_text() for each in wanted} == wanted


@pytest.mark.parametrize("way", ["merge", "rebase"])
async def test_words_that_came_with_the_copy_are_there_again_after_an_aborted_merge(
    desks: Desks, project: Path, way: str
) -> None:
    """Git sets them aside for the merge. The next apply took them for removed by the agent."""
    bench = await bench_on(desks, project)
    (project / "a").write_text("one\nmy own words\n")
    (project / "mine").write_text("mine\n")
    copy = await copy_in(bench, with_changes=True)
    work = copy.folder / "0"
    for folder in (project, work):
        (folder / "b").write_text(f"{folder}\n")
    git(project, "add", "--all")
    git(project, "commit", "--message", "All")
    with pytest.raises(ActionRefused, match="in ways that conflict: b"):
        await bench.copies.bring_back(copy, way, "Work")
    assert "<<<<<<<" in (work / "b").read_text()
    with pytest.raises(ActionRefused, match="has not been finished"):
        await bench.copies.bring_back(_again(bench, copy), "apply")
    git(work, way, "--abort")
    (work / "new").write_text("new\n")
    assert (await bench.copies.read_copy_status(_again(bench, copy))).uncommitted == ("new",)
    await bench.copies.bring_back(_again(bench, copy), "apply", conflicts="yours")
    assert {each: (work / each).read_text() for each in ("a", "mine")} == {
        "a": "one\nmy own words\n",
        "mine": "mine\n",
    }
    wanted = {"a": "one\nmy own words\n", "mine": "mine\n", "b": f"{project}\n", "new": "new\n"}
    assert {each: (project / each).read_text() for each in wanted} == wanted


@pytest.mark.parametrize("commits", [False, True])
async def test_words_that_came_with_the_copy_stay_if_the_agent_edits_their_file_after_an_aborted_merge(
    desks: Desks, project: Path, *, commits: bool
) -> None:
    bench = await bench_on(desks, project)
    (project / "a").write_text("one\n2\n3\n4\nfive\n")
    git(project, "commit", "--all", "--message", "Five lines")
    (project / "a").write_text("one\n2\n3\n4\nfive, my own words\n")
    copy = await copy_in(bench, with_changes=True)
    work = copy.folder / "0"
    for folder in (project, work):
        (folder / "b").write_text(f"{folder}\n")
    git(project, "commit", "--all", "--message", "All")
    with pytest.raises(ActionRefused, match="in ways that conflict: b"):
        await bench.copies.bring_back(copy, "merge", "Work")
    git(work, "merge", "--abort")
    assert (work / "a").read_text() == "one\n2\n3\n4\nfive\n"
    (work / "a").write_text("one, by the agent\n2\n3\n4\nfive\n")
    if commits:
        git(work, "commit", "--all", "--message", "Edit it")
    await bench.copies.bring_back(_again(bench, copy), "apply", conflicts="yours")
    for folder in (project, work):
        assert (folder / "a").read_text() == "one, by the agent\n2\n3\n4\nfive, my own words\n"


@pytest.mark.parametrize("way", ["merge", "rebase"])
@pytest.mark.parametrize("whose", ["the user", "the agent"])
async def test_a_file_that_git_ignores_is_not_overwritten_by_a_commit(
    desks: Desks, project: Path, way: str, whose: str
) -> None:
    """Git itself takes ignored files for worthless."""
    (project / ".gitignore").write_text("local\n")
    git(project, "add", "--all")
    git(project, "commit", "--message", "Ignore it")
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    ignoring, adding = (project, work) if whose == "the user" else (work, project)
    (ignoring / "local").write_text("nowhere else\n")
    (adding / "local").write_text("in a commit\n")
    git(adding, "add", "--force", "local")
    git(adding, "commit", "--message", "Add it")
    (work / "b").write_text("theirs\n")
    head = git(project, "rev-parse", "HEAD")
    with pytest.raises(ActionRefused, match="in the way: local"):
        await bench.copies.bring_back(copy, way, "Work")
    assert (ignoring / "local").read_text() == "nowhere else\n"
    assert (git(project, "rev-parse", "HEAD"), (project / "b").read_text()) == (head, "b\n")
    (ignoring / "local").unlink()
    await bench.copies.bring_back(_again(bench, copy), way, "Work")
    assert [(project / name).read_text() for name in ("local", "b")] == [
        "in a commit\n",
        "theirs\n",
    ]


@pytest.mark.parametrize(
    ("way", "users"),
    [
        ("merge", "untracked file"),
        ("rebase", "untracked file"),
        ("merge", "staged file"),
        ("rebase", "changed file"),
        ("merge", "folder"),
        ("rebase", "file for a folder"),
        ("merge", "ignored folder"),
    ],
)
async def test_what_is_in_the_way_of_a_merge_is_said_in_plain_words(
    desks: Desks, project: Path, way: str, users: str
) -> None:
    bench = await bench_on(desks, project)
    copy = await copy_in(bench)
    work = copy.folder / "0"
    added = (
        "new/inside" if users == "file for a folder" else "a" if users == "changed file" else "new"
    )
    (work / added).parent.mkdir(exist_ok=True)
    (work / added).write_text("theirs\n")
    mine = {"folder": "new/inside", "ignored folder": "new/inside", "changed file": "a"}.get(
        users, "new"
    )
    (project / mine).parent.mkdir(exist_ok=True)
    (project / mine).write_text("mine\n")
    if users == "staged file":
        git(project, "add", "new")
    if users == "ignored folder":
        (project / ".git/info/exclude").write_text("inside\n")
    before = git(project, "status", "--porcelain", "-uall"), git(project, "rev-parse", "HEAD")
    with pytest.raises(ActionRefused) as refused:
        await bench.copies.bring_back(copy, way, "Work")
    assert (
        refused.value.what
        == f"These files in {project} are not committed and are in the way: {mine}."
    )
    assert refused.value.remedy == (
        "Nothing was changed in your folder, and the copy keeps its changes. Commit, move or delete these files, then try again."
    )
    assert (
        git(project, "status", "--porcelain", "-uall"),
        git(project, "rev-parse", "HEAD"),
    ) == before
    assert (project / mine).read_text() == "mine\n"


@pytest.mark.parametrize("seed", [112])
async def test_a_user_and_an_agent_at_random_lose_nothing(seed: int) -> None:
    """More of these: `python -m tests.faults.copy_trials 0 100`."""
    assert await copy_trials.run_trial(seed, steps=25)
