from __future__ import annotations

import asyncio
import dataclasses
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, cast

import pytest

from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.processes.running_command import RunningCommand
from helix_desktop.tools import hidden_files
from helix_desktop.tools.command_tools import CommandLimits, _FollowedCommand
from helix_desktop.tools.home_access import CommandOpenings
from helix_desktop.tools.permission import PermissionMode
from helix_desktop.tools.sandbox import SandboxKind
from tests.tools.world import World, world
from tests.turns import lasted

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="POSIX shells")


def alive(mark: str) -> list[int]:
    """Processes with the mark on their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                line = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in line and int(folder.name) != os.getpid():
                found.append(int(folder.name))
    return found


async def test_output_and_exit_code(everywhere: World) -> None:
    outcome = await everywhere.run("run_command", command="echo out; echo err >&2; pwd")
    assert everywhere.text(outcome) == f"out\nerr\n{everywhere.folder}\n"
    assert (outcome.ok, outcome.exit_code) == (True, 0)
    failed = await everywhere.run("run_command", command="echo no; exit 3")
    assert everywhere.text(failed) == "no\n\n[exit code 3]\n"
    assert (failed.ok, failed.exit_code) == (False, 3)
    assert await everywhere.said("run_command", command="true") == "[no output, exit code 0]\n"
    assert "not found" in await everywhere.said("run_command", command="no-such-program")
    assert (await everywhere.run("run_command", command="kill -9 $$")).exit_code == 137


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("cd src", "the next one begins anew"),
        ("export PATH=$PATH:/opt", "the next one begins anew"),
        ("cd src && ls", ""),
        ("sleep 60 & echo up", "is ended with it"),
        ("nohup sleep 60 > log 2>&1 &", "is ended with it"),
        ("sleep 0.01 & wait", ""),
        ("echo 'a & b' \"c & d\" 2>&1 && echo e &>/dev/null", ""),
        ("cat <<E\na & b\nE", ""),
        ("cd missing", ""),
    ],
)
async def test_what_is_not_as_in_a_terminal_is_said(here: World, line: str, hint: str) -> None:
    here.write("src/a", "")
    said = await here.said("run_command", command=line)
    assert (hint in said) if hint else ("begins anew" not in said and "ended with it" not in said)


async def test_a_command_longer_than_the_system_takes_gets_a_sentence(here: World) -> None:
    said = await here.said("run_command", command=f"echo {'x' * 200_000}")
    assert (
        "longer than the system allows (200,005 bytes); it was not run. Write the long part to a file"
        in said
    )


async def test_git_waits_for_no_editor(here: World) -> None:
    here.write("a", "1")
    user = (
        "git config user.name a; git config user.email a@b.c; git config core.editor 'sleep 60 #'"
    )
    assert (
        await here.run("run_command", command=f"git init -q; {user}; git add a; git commit -qm one")
    ).ok
    assert "empty commit message" in await here.said(
        "run_command", command="echo 2 > a; git commit -a"
    )
    assert (await here.run("run_command", command="git commit -qa --amend")).ok
    assert "problem with the editor" in await here.said(
        "run_command", command="git rebase -i --root"
    )


async def test_output_is_bytes_as_they_come(everywhere: World) -> None:
    outcome = await everywhere.run("run_command", command="printf '\\xff\\x00a\\r\\n'")
    assert everywhere.content(outcome.output.digest) == b"\xff\x00a\r\n"


async def test_what_it_prints_is_shown_while_it_runs(here: World) -> None:
    run = asyncio.ensure_future(here.run("run_command", command="echo first; sleep 30"))  # noqa: TID251 -- to cancel it
    async with asyncio.timeout(60):
        while not here.person.shown:
            await asyncio.sleep(0.01)
    assert here.person.shown == ["first\n"]
    run.cancel()
    assert (await run).stopped


async def test_the_last_of_what_is_printed_is_shown_though_nothing_follows(here: World) -> None:
    line = "echo first; sleep 0.02; echo and the last; sleep 30"
    run = asyncio.ensure_future(here.run("run_command", command=line))  # noqa: TID251 -- to cancel it
    async with asyncio.timeout(60):
        while "last" not in "".join(here.person.shown):
            await asyncio.sleep(0.01)
    run.cancel()
    await run


async def test_a_command_that_takes_too_long_is_ended_with_its_children(everywhere: World) -> None:
    mark = f"31{time.time_ns() % 10**9}"
    outcome = await everywhere.run("run_command", command=f"sleep {mark} & sleep {mark}", seconds=1)
    assert "\n[stopped: it ran longer than 1 s." in everywhere.text(outcome)
    assert not outcome.ok
    assert alive(mark) == []


async def test_a_command_that_floods_is_ended_in_time_and_its_pipe_is_closed(here: World) -> None:
    here.kit.commands.limits = CommandLimits(output=1000)
    outcome = await here.run("run_command", command="yes", seconds=1)
    assert not outcome.ok
    gc.collect()  # a pipe left open is a warning, and so an error


async def test_what_is_printed_without_a_pause_does_not_outrun_the_clock() -> None:
    class Flood:
        pieces = 0
        ended = False

        async def iterate_output(self) -> AsyncIterator[bytes]:
            while self.pieces < 100_000:
                self.pieces += 1
                yield b"y"

        def kill_process_tree(self) -> None:
            self.ended = True

    flood = Flood()
    nobody = cast(Any, None)
    followed = _FollowedCommand(nobody, nobody, "yes", cast(RunningCommand, flood), 0)
    async for _ in followed.output_until_deadline():
        pass
    assert (followed.is_timed_out, flood.ended, flood.pieces < 100_000) == (True, True, True)


STUBBORN = """
trap '' TERM INT HUP
for i in $(seq 100); do (trap '' TERM INT HUP; setsid sleep {mark} & sleep {mark}) & done
echo ready
wait
"""


async def test_stop_ends_a_hundred_children_that_ignore_it(everywhere: World) -> None:
    mark = f"32{time.time_ns() % 10**9}"
    run = asyncio.ensure_future(  # noqa: TID251 -- to cancel it
        everywhere.run("run_command", command=STUBBORN.replace("{mark}", mark))
    )
    async with asyncio.timeout(60):
        while "ready" not in "".join(everywhere.person.shown) or len(alive(mark)) < 200:
            await asyncio.sleep(0.05)
    run.cancel()
    assert await lasted(run) < 2
    assert run.result().stopped
    assert alive(mark) == []


@pytest.mark.parametrize("much", [0, 30_000])
async def test_what_a_stopped_command_printed_is_kept_and_the_model_is_told_that_it_was_stopped(
    here: World, much: int
) -> None:
    here.write("a", "1")
    await here.run("read_file", path="a")
    line = f"echo 2 > a; printf '%{much}s' | tr ' ' x; echo; echo 3 of 9 tests failed; sleep 60"
    run = asyncio.ensure_future(here.run("run_command", command=line))  # noqa: TID251 -- to cancel it
    async with asyncio.timeout(60):
        while "failed" not in "".join(here.person.shown):
            await asyncio.sleep(0.02)
    run.cancel()
    outcome = await run
    said = here.text(outcome)
    assert (outcome.ok, outcome.stopped, outcome.exit_code) == (False, True, None)
    assert re.search(
        r"\n3 of 9 tests failed\n\n\[stopped after \d+ s, before it had ended\]\n$", said
    )
    assert len(said) < 9_000
    assert ("recall_cached_content(" in said) is bool(much)
    assert [change.path for change in outcome.changes] == [str(here.folder / "a")]


async def test_children_that_outlive_their_command_are_ended(everywhere: World) -> None:
    mark = f"33{time.time_ns() % 10**9}"
    outcome = await everywhere.run("run_command", command=f"setsid sleep {mark} & echo done")
    assert everywhere.text(outcome).startswith("done\n")
    assert alive(mark) == []


async def test_output_past_the_limit_is_cut_in_the_middle_with_a_note(here: World) -> None:
    here.kit.commands.limits = CommandLimits(output=1000)
    outcome = await here.run("run_command", command="seq 1 100000; echo the end")
    said = here.text(outcome)
    whole = "".join(f"{number}\n" for number in range(1, 100_001)) + "the end\n"
    head, _, tail = said.partition("\n[… ")
    assert head == whole[:1000]
    note, _, end = tail.partition(" …]\n")
    assert end == whole[-64 * 1024 :]
    assert (
        note
        == f"{len(whole) - 1000 - 64 * 1024:,} bytes were cut here: outputs are kept up to 1,000 bytes"
    )


async def test_output_just_past_the_limit_is_kept_whole(here: World) -> None:
    here.kit.commands.limits = CommandLimits(output=1000)
    assert await here.said("run_command", command="seq 1 400") == "".join(
        f"{number}\n" for number in range(1, 401)
    )


async def test_nothing_is_left_running_when_the_kit_is_closed(tmp_path: Path) -> None:
    mark = f"34{time.time_ns() % 10**9}"
    async with world(tmp_path) as made:
        await made.run(
            "run_command", command=f"setsid sleep {mark} & sleep {mark}", background=True
        )
        async with asyncio.timeout(60):
            while not alive(mark):
                await asyncio.sleep(0.01)
        scratch = made.kit.sandbox.scratch
    assert alive(mark) == []
    assert not scratch.exists()


async def test_a_command_that_is_refused_does_not_run(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    here.person.answer = PermissionAnswer(allowed=False, words="use make instead")
    outcome = await here.run("run_command", command="touch x")
    assert not outcome.ok
    assert outcome.refused
    assert "use make instead" in here.text(outcome)
    assert list(here.folder.iterdir()) == []


async def test_what_is_asked_says_what_is_special(here: World) -> None:
    here.kit.permissions.mode = PermissionMode.ASK
    (here.folder / "sub").mkdir()
    await here.run("run_command", command="true", network=True, folder="sub")
    await here.run("run_command", command="true", outside_sandbox=True)
    assert (
        here.person.asked[0].title == f"Run a command with network access in {here.folder / 'sub'}"
    )
    why = "it would run outside the sandbox, so it can only be allowed once"
    assert here.person.asked[1].why == why
    assert here.person.asked[1].command_access == "no_sandbox"
    assert here.person.asked[1].scopes == ("once",)


@pytest.mark.parametrize("outside", [True, False])
@pytest.mark.parametrize("swapped_for", ["link outside", "link inside", "other folder"])
async def test_a_command_runs_in_the_folder_that_the_question_named(
    here: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swapped_for: str, *, outside: bool
) -> None:
    """The defect: a link that took the folder's place while the user was asked led an allowed command,
    also one outside the sandbox, to another folder.
    """
    here.kit.permissions.mode = PermissionMode.ASK
    folder = here.folder / "sub"
    elsewhere = tmp_path / "elsewhere"
    for place in (folder, elsewhere, here.folder / "other"):
        place.mkdir()
        (place / "kept").write_text("x")

    async def swap_and_allow(_question: PermissionQuestion) -> PermissionAnswer:
        folder.rename(here.folder / "away")
        if swapped_for == "other folder":
            (here.folder / "other").rename(folder)
        else:
            folder.symlink_to(elsewhere if swapped_for == "link outside" else here.folder / "other")
        return PermissionAnswer(allowed=True)

    monkeypatch.setattr(here.person, "ask", swap_and_allow)
    outcome = await here.run(
        "run_command", command="rm kept; pwd", folder="sub", outside_sandbox=outside
    )
    assert not outcome.ok
    assert (elsewhere / "kept").exists()
    assert (folder / "kept").exists()
    assert (here.folder / "away" / "kept").exists()


@pytest.mark.parametrize("outside", [True, False])
async def test_a_command_knows_its_folder_by_its_path(here: World, *, outside: bool) -> None:
    (here.folder / "sub").mkdir()
    said = await here.said(
        "run_command", command="pwd; pwd -P; echo $PWD", folder="sub", outside_sandbox=outside
    )
    assert said.split() == [str(here.folder / "sub")] * 3


@pytest.mark.parametrize(
    ("folder", "words"),
    [("..", "refused"), ("/etc", "outside"), ("none", "none does not exist"), ("file", "")],
)
async def test_a_command_starts_only_in_a_folder_of_the_workspace(
    here: World, folder: str, words: str
) -> None:
    here.write("file", "")
    outcome = await here.run("run_command", command="pwd", folder=folder)
    assert not outcome.ok
    assert words in here.text(outcome)


@pytest.mark.parametrize("tool", ["read_command_output", "stop_command"])
async def test_a_name_that_is_none_gets_a_sentence(here: World, tool: str) -> None:
    assert "Available: none" in await here.said(tool, name="bg7")


async def test_what_a_command_does_to_files_the_agent_knows_can_be_undone(here: World) -> None:
    here.write("read", "one\n")
    here.write("unknown", "x\n")
    await here.run("read_file", path="read")
    await here.run("write_file", path="written", content="two\n")
    outcome = await here.run("run_command", command="echo 1 > read; rm written; echo y > unknown")
    assert [(Path(change.path).name, change.after is None) for change in outcome.changes] == [
        ("read", False),
        ("written", True),
    ]
    assert (await here.run("run_command", command="true")).changes == ()


async def test_the_model_is_told_whether_there_is_a_sandbox(here: World) -> None:
    for kind, words in (
        (SandboxKind.BUBBLEWRAP, "runs in a sandbox"),
        (SandboxKind.NONE, "There is no sandbox"),
    ):
        here.kit.commands.sandbox = dataclasses.replace(here.kit.sandbox, kind=kind)
        (spec,) = [
            spec for spec in here.kit.build_toolbox().offered_specs() if spec.name == "run_command"
        ]
        assert words in spec.description


async def test_files_that_no_agent_sees_are_absent_for_commands_until_one_asks_by_name(
    here: World,
) -> None:
    here.write(".env", "TOKEN=secret-value\n")
    here.write("app/deploy.key", "secret-value\n")
    here.write(".env.example", "TOKEN=\n")
    (here.folder / "link").symlink_to(".env")
    here.person.answer = PermissionAnswer(allowed=True)
    look = "cat .env app/deploy.key link; cat .env.example; ls"
    assert "secret-value" not in (said := await here.said("run_command", command=look))
    assert "TOKEN=\n" in said
    assert here.person.asked == []
    said = await here.said("run_command", command="grep secret .env && false", needs=".env")
    assert "secret-value" in said
    assert [(one.apart, one.why) for one in here.person.asked] == [
        ("opened", "it would see files that are hidden from agents: .env")
    ]
    assert "can ask with `needs`" in await here.said("run_command", command="grep secret .env")
    here.person.answer = PermissionAnswer(allowed=False)
    assert "secret-value" not in await here.said("run_command", command="cat .env", needs=".env")
    assert (here.folder / ".env").read_text() == "TOKEN=secret-value\n"


@pytest.mark.parametrize("more", [(), ("secrets/",)], ids=("as it comes", "with a folder"))
async def test_renaming_the_folders_around_hidden_files_shows_none(
    here: World, more: tuple[str, ...]
) -> None:
    """Packages show their certificates, and a pattern may name a folder."""
    guard = here.kit.commands.guard
    assert guard is not None
    guard.patterns = lambda: (*hidden_files.DEFAULT, *more)
    here.write("app/.env", "hidden-value\n")
    here.write("tls/deep/site.key", "hidden-value\n")
    if more:
        here.write("secrets/deep/prod.yml", "hidden-value\n")
    moves = (
        "tls venv",
        "tls/deep site-packages",
        "secrets open",
        "secrets/deep open",
        "app node_modules",
    )
    await here.run("run_command", command="; ".join(f"mv {move}" for move in moves))
    assert "hidden-value" not in await here.said("run_command", command="grep -r . .; ls")
    assert (here.folder / "tls/deep/site.key").read_text() == "hidden-value\n"
    assert (here.folder / ("app" if more else "node_modules") / ".env").exists()


def _commit_all(folder: Path) -> None:
    run = ["git", "-C", str(folder), "-c", "user.name=x", "-c", "user.email=x@x"]
    for words in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*run, *words], check=True)


async def test_a_commit_keeps_what_agents_do_not_see_of_tracked_files(here: World) -> None:
    """They are empty for commands, and `git commit -a` took their content away."""
    for name in ("tests/ca.pem", "a [b]/*.key", '"q"\\.key', "own/deep/site.key"):
        here.write(name, "hidden-value\n")
    here.write("readme", "one\n")
    for top in ("own", "."):
        _commit_all(here.folder / top)
    here.write("readme", "two\n")
    who = "-c user.name=x -c user.email=x@x"
    await here.run(
        "run_command",
        command=f"git {who} commit -qam two; cd own; git add -A; git {who} commit -qm two",
    )
    changed = await here.said(
        "run_command",
        command="git status --short; git diff HEAD~1 HEAD --stat; git -C own status -s",
    )
    assert changed == " readme | 2 +-\n 1 file changed, 1 insertion(+), 1 deletion(-)\n"


async def test_what_moves_or_removes_hidden_files_is_told_how_and_can_do_it(here: World) -> None:
    for name in ("certs/dev/site.key", "node_modules/a/.env", "node_modules/b/.env", "conf/.env"):
        here.write(name, "hidden-value\n")
    for line in ("mv certs keys", "rm -r node_modules"):
        assert "or of a folder around it" in await here.said("run_command", command=line)
    assert (here.folder / "certs/dev/site.key").exists()
    await here.run("run_command", command="mv certs keys", needs="certs")
    await here.run("run_command", command="rm -r node_modules", needs="node_modules")
    assert [one.why for one in here.person.asked] == [
        "it would see files that are hidden from agents: certs/dev/site.key",
        "it would see files that are hidden from agents: node_modules/a/.env, node_modules/b/.env",
    ]
    assert (here.folder / "keys/dev/site.key").read_text() == "hidden-value\n"
    assert not (here.folder / "node_modules").exists()


@pytest.mark.parametrize("needs", ["conf", "conf/.env"])
async def test_a_file_in_a_closed_folder_can_be_asked_for(
    here: World, needs: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    here.write("conf/.env", "hidden-value\n")
    (here.folder / "conf").chmod(0o311)

    def access_by_mode(path: Any, mode: int, **_: object) -> bool:
        """As for an ordinary user, also where the tests run as root."""
        try:
            return (os.stat(path).st_mode >> 6) & mode == mode  # noqa: PTH116 -- also of a handle
        except OSError:
            return False

    monkeypatch.setattr(os, "access", access_by_mode)
    said = await here.said("run_command", command="cat conf/.env; false")
    assert "hidden-value" not in said
    assert "Agents don't see conf in" in said
    assert "hidden-value" in await here.said("run_command", command="cat conf/.env", needs=needs)
    (here.folder / "conf").chmod(0o700)


async def test_what_is_not_hidden_or_needs_the_network_is_not_asked_for(here: World) -> None:
    assert "is not hidden" in await here.said("run_command", command="true", needs="src/a.py")
    assert "needs `network`" in await here.said("run_command", command="true", needs="ssh")


async def test_an_opening_is_asked_for_by_what_it_opens(here: World) -> None:
    await here.run("run_command", command="true", needs="ssh", network=True)
    assert (
        here.person.asked[0].why
        == "it would use access that other commands don't have: SSH, including Git over SSH"
    )
    here.person.asked.clear()
    here.kit.commands.opened = lambda: CommandOpenings(("ssh",))
    await here.run("run_command", command="true", needs="ssh", network=True)
    assert here.person.asked == []


async def test_landlock_asks_for_what_it_cannot_hide_and_says_that_it_is_used(here: World) -> None:
    sandbox = dataclasses.replace(here.kit.sandbox, kind=SandboxKind.LANDLOCK)
    here.kit.commands.sandbox = sandbox
    here.write(".env", "TOKEN=secret-value\n")
    here.person.answer = PermissionAnswer(allowed=False)
    assert "secret-value" not in await here.said("run_command", command="cat .env")
    assert here.person.asked[0].title == (
        "Run a command in the weaker sandbox, Landlock (bubblewrap is missing or does not work)"
    )
    assert (
        here.person.asked[0].why
        == "this sandbox, Landlock, cannot hide these files from the command: .env"
    )
