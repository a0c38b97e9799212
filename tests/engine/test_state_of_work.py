"""The state of the work above a handover: what the record says, and nothing else.

The histories are random, and their truth is kept beside them while they are made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from helix_desktop.engine.changes.folder_state import (
    PathChange,
    PathKind,
    TreeItem,
    encode_difference,
)
from helix_desktop.engine.facts import (
    Decided,
    FilesChanged,
    FilesCommitted,
    ModelReplied,
    Rewound,
    Stop,
    Text,
    TodoSet,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state_of_work import OpenChange, StateOfWork, describe_state_of_work
from helix_desktop.store.in_memory_stores import MemoryCache
from tests.engine.talk import Talk

NOWHERE = Digest.of_content(b"")


@dataclass
class Work:
    """A conversation, with what is true of it."""

    talk: Talk = field(default_factory=Talk)
    cache: MemoryCache = field(default_factory=MemoryCache)
    calls: int = 0
    files: dict[str, int] = field(default_factory=dict)  # each file's version
    tests: str = ""
    commit: str = ""
    since: dict[str, bool] = field(default_factory=dict)  # changed since the commit: whether new
    undone: set[str] = field(default_factory=set)
    denied: set[str] = field(default_factory=set)
    stopped: set[str] = field(default_factory=set)
    tasks: list[str] = field(default_factory=list)

    async def run(
        self,
        command: str,
        output: str,
        *,
        code: int | None = 0,
        tool: str = "run_command",
        stopped: bool = False,
        ok: bool | None = None,
    ) -> tuple[str, int]:
        return await self.call(
            tool, json.dumps({"command": command}), output, code=code, stopped=stopped, ok=ok
        )

    async def call(
        self,
        tool: str,
        arguments: str,
        output: str,
        *,
        code: int | None = None,
        stopped: bool = False,
        ok: bool | None = None,
    ) -> tuple[str, int]:
        self.calls += 1
        name = f"c{self.calls}"
        self.talk.add(ModelReplied((ToolCall(name, tool, arguments, 5),), "m", Stop.CALLS))
        stored = await self.cache.store_content(output.encode(), EntryOrigin(tool))
        worked = not code if ok is None else ok
        head = output if self.calls % 2 else ""  # of a long history facts do not hold the text
        result = ToolReturned(name, stored, 9, worked, code, head=head, stopped=stopped)
        return name, self.talk.add(result)

    async def change(
        self, call: str, path: str, versions: tuple[int, int], by: str = "tool"
    ) -> None:
        before, after = (
            TreeItem(PathKind.FILE, 0o644, 1, Digest.of_content(f"{path} {version}".encode()).raw)
            if version
            else None
            for version in versions
        )
        content = encode_difference([PathChange(f"0/{path}", before, after)], NOWHERE)
        difference = await self.cache.store_content(content, EntryOrigin("change"))
        self.talk.add(FilesChanged(difference, NOWHERE, NOWHERE, 1, call=call, by=by))

    async def lines(self) -> list[str]:
        return (await describe_state_of_work(self.talk.state, self.cache)).split("\n")


COMMANDS = ("pytest -q", "cd x && python -m pytest", "npm test")
PATHS = ("src/a.py", "src/b.py", "docs/c.md")


async def run_red_tests(work: Work, chance: random.Random, number: int) -> None:
    command = chance.choice(COMMANDS)
    summary = f"{number + 1} failed, {number} passed in 1.{number}s"
    if chance.random() < 0.5:
        text = f"Exit code 1\n{summary}"
        _, seq = await work.run(command, text, code=None, tool="Bash", ok=False)
    else:
        _, seq = await work.run(command, f"F\n{summary}\n", code=1)
    work.tests = f'Last test run [{seq}]: `{command}`: exit code 1, "{summary}"'
    if chance.random() < 0.5:
        work.talk.reply("All tests pass now. I committed everything.")


async def run_green_tests(work: Work, chance: random.Random, number: int) -> None:
    command = chance.choice(COMMANDS)
    summary = f"{number + 3} passed in 0.{number}s"
    _, seq = await work.run(command, f"...\n=== {summary} ===", code=0)
    work.tests = f'Last test run [{seq}]: `{command}`: exit code 0, "{summary}"'


async def commit_all(work: Work, _chance: random.Random, number: int) -> None:
    name = f"{number:07x}"
    command = f"git add -A && git commit -m 'step {number}'"
    _, seq = await work.run(command, f"[main {name}] step {number}\n 1 file changed")
    work.commit = f'Last commit [{seq}]: {name} on main, "step {number}"'
    work.since.clear()


async def commit_nothing(work: Work, _chance: random.Random, _: int) -> None:
    await work.run("git commit -am x", "nothing to commit, working tree clean", code=1)


async def write_file(work: Work, chance: random.Random, _: int) -> None:
    path = chance.choice(PATHS)
    version = work.files.get(path, 0)
    name, _seq = await work.call("write_file", json.dumps({"path": path}), "done")
    await work.change(name, path, (version, version + 1))
    work.files[path] = version + 1
    work.since[path] = work.since.get(path, version == 0)
    work.undone.discard(path)


async def undo_a_new_file(work: Work, _chance: random.Random, _: int) -> None:
    new = [path for path, is_new in work.since.items() if is_new]
    if new:
        await work.change("", new[0], (work.files.pop(new[0]), 0), by="undo")
        del work.since[new[0]]
        work.undone.add(new[0])


async def deny_call(work: Work, chance: random.Random, number: int) -> None:
    what = f"rm -rf build/{number}"
    said = "The user denied this call, so it was not run."
    name, _ = await work.run(what, said, ok=False, code=None)
    work.talk.add(Decided(name, allowed=False, by="user"))
    work.denied.add(what)
    if chance.random() < 0.5:
        await work.run(what, "")
        work.denied.discard(what)


async def stop_call(work: Work, _chance: random.Random, number: int) -> None:
    what = f"make deploy-{number}"
    await work.run(what, "half of it", code=None, stopped=True, ok=False)
    work.stopped.add(what)


async def set_tasks(work: Work, chance: random.Random, number: int) -> None:
    work.tasks = [f"task {number}", f"task {number + 1}"][: chance.randint(0, 2)]
    work.talk.add(TodoSet((*((task, "open") for task in work.tasks), ("an old one", "done"))))


async def claim_much(work: Work, _chance: random.Random, _: int) -> None:
    work.talk.reply("12 passed in 3s. Committed as abc1234. Nothing is open.")
    await work.run("echo pytest; cat run_tests.log", "99 passed in 1s")


ACTS = (
    run_red_tests,
    run_green_tests,
    commit_all,
    commit_nothing,
    write_file,
    undo_a_new_file,
    deny_call,
    stop_call,
    set_tasks,
    claim_much,
)


async def test_no_line_of_the_state_is_false() -> None:
    for seed in range(200):
        await _no_line_is_false_after_random_work(seed)


async def _no_line_is_false_after_random_work(seed: int) -> None:
    chance = random.Random(seed)
    work = Work()
    work.talk.user("Do the work.")
    for number in range(chance.randint(3, 30)):
        await chance.choice(ACTS)(work, chance, number)
    lines = await work.lines()
    last_test_run = _lines_that_begin(lines, "Last test run")
    assert last_test_run == [work.tests] * bool(work.tests)
    last_commit = _lines_that_begin(lines, "Last commit")
    assert last_commit == [work.commit] * bool(work.commit)
    _files_are_named_unless_they_were_undone(lines, work)
    _the_last_three_are_named(_lines_that_begin(lines, "Denied"), work.denied)
    _the_last_three_are_named(_lines_that_begin(lines, "Stopped"), work.stopped)
    tasks = "".join(_lines_that_begin(lines, "Open tasks"))
    assert tasks.partition(": ")[2] in ("; ".join(work.tasks), "none is left on the list")
    if lines != [""]:
        assert lines[0].startswith(f"State of the work at number {work.talk.state.seq}")


def _lines_that_begin(lines: Sequence[str], start: str) -> list[str]:
    return [line.removeprefix("- ") for line in lines if line.startswith(f"- {start}")]


def _files_are_named_unless_they_were_undone(lines: Sequence[str], work: Work) -> None:
    listed = _lines_that_begin(lines, "Changed since that commit: ")
    listed += _lines_that_begin(lines, "Changed files, without a recorded commit: ")
    named: set[str] = set()
    for line in listed:
        for file_and_remark in line.partition(": ")[2].split(", "):
            if "nothing" not in file_and_remark:
                named.add(file_and_remark.partition(" ")[0])
    assert named == set(work.since)
    undone = "".join(_lines_that_begin(lines, "The user undid"))
    assert all(path in undone for path in work.undone)
    assert all(path not in undone for path in work.since)


def _the_last_three_are_named(lines: Sequence[str], commands: set[str]) -> None:
    """Each line has its command between backticks, and no line another one."""
    named = {line.partition("`")[2].rpartition("`")[0] for line in lines}
    assert named <= commands
    assert len(named) == min(3, len(commands))


async def test_a_record_that_says_nothing_has_no_state() -> None:
    work = Work()
    work.talk.user("Read a.py")
    await work.run("cat a.py", "x = 1")
    assert await work.lines() == [""]


async def test_of_a_whole_command_line_the_exit_code_is_said_to_be() -> None:
    work = Work()
    _, seq = await work.run("pytest | tail -1", "1 failed in 1s", code=0)
    assert (
        f'- Last test run [{seq}]: `pytest | tail -1`: exit code 0 of the whole command line, "1 failed in 1s"'
        in await work.lines()
    )
    _, seq = await work.run("pytest", "ok", code=None)
    assert (
        f'- Last test run [{seq}]: `pytest`: no exit code is recorded, "ok"' in await work.lines()
    )
    _, seq = await work.run("pytest -x", "", code=None, stopped=True, ok=False)
    assert f"- Last test run [{seq}]: `pytest -x` was stopped before it ended" in await work.lines()


async def test_what_no_git_add_names_is_said_to_be_left_out_of_a_commit() -> None:
    work = Work()
    for path in ("src/a.py", "notes/x.txt"):
        name, _ = await work.call("write_file", json.dumps({"path": path}), "done")
        await work.change(name, path, (0, 1))
    await work.run("git add src && git commit -m x", "[main 1a2b3c4] x")
    lines = await work.lines()
    assert "- Changed before it, and in no recorded git add: notes/x.txt (new)" in lines
    assert "- Changed since that commit: nothing that is recorded" in lines
    _, seq = await work.run("git reset --hard HEAD~1", "HEAD is now at 1")
    assert f"- Run since then [{seq}]: `git reset --hard HEAD~1`" in await work.lines()


@pytest.mark.parametrize(
    "added",
    [
        "./",
        "..",
        "../src",
        "src/?.py",
        "src/{a,x}*",
        '"src/a b.py"',
        "src/a\\ b.py",
        "-Av",
        "`ls src`",
    ],
)
async def test_what_may_have_been_added_is_not_said_to_be_left_out_of_a_commit(added: str) -> None:
    work = Work()
    name, _ = await work.call("write_file", json.dumps({"path": "src/a b.py"}), "done")
    await work.change(name, "src/a b.py", (0, 1))
    await work.run(f"git add {added} && git commit -m x", "[main 1a2b3c4] x")
    assert "no recorded git add" not in "\n".join(await work.lines())


async def test_of_many_files_changed_by_the_command_that_committed_the_rest_is_counted() -> None:
    work = Work()
    name, _ = await work.run("git commit -am x; make", "[main 1a2b3c4] x")
    for number in range(13):
        await work.change(name, f"out/{number}", (0, 1))
    (line,) = [line for line in await work.lines() if "command that committed" in line]
    assert line.startswith("- Changed by the command that committed: out/12 (new), ")
    assert line.endswith(" and 1 more")


async def test_the_words_of_a_commits_message_name_no_files() -> None:
    work = Work()
    name, _ = await work.call("write_file", json.dumps({"path": "notes/x.txt"}), "done")
    await work.change(name, "notes/x.txt", (0, 1))
    await work.run(
        "git add src && git commit -qm 'What are notes/x.txt and [y]?'", "[main 1a2b3c4] x"
    )
    lines = await work.lines()
    assert "- Changed before it, and in no recorded git add: notes/x.txt (new)" in lines


async def test_a_call_that_was_denied_again_is_among_the_newest() -> None:
    work = Work()
    for command in ("rm a", "rm b", "rm c", "rm d", "rm a"):
        name, _ = await work.run(command, "The user denied this call.", ok=False, code=None)
        work.talk.add(Decided(name, allowed=False, by="user"))
    denied = [line for line in await work.lines() if line.startswith("- Denied")]
    assert [line.partition("`")[2][:4] for line in denied] == ["rm c", "rm d", "rm a"]


async def test_what_the_user_commits_in_the_window_is_no_longer_said_to_be_uncommitted() -> None:
    work = Work()
    for path in ("src/a.py", "notes/x.txt"):
        name, _ = await work.call("write_file", json.dumps({"path": path}), "done")
        await work.change(name, path, (0, 1))
    seq = work.talk.add(FilesCommitted(("0/src/a.py",), "[main 0eac1f8] Add a\n 1 file changed"))
    lines = await work.lines()
    assert f'- Last commit [{seq}]: 0eac1f8 on main, "Add a", by the user' in lines
    assert "- Changed before it, and not in it: notes/x.txt (new)" in lines
    assert "- Changed since that commit: nothing that is recorded" in lines
    name, _ = await work.call("write_file", json.dumps({"path": "src/a.py"}), "done")
    await work.change(name, "src/a.py", (1, 2))
    assert "- Changed since that commit: src/a.py" in await work.lines()


async def test_another_agents_files_are_those_that_its_calls_name() -> None:
    work = Work()
    await work.call(
        "Edit", json.dumps({"file_path": "a.py", "old_string": "x", "new_string": "y"}), "ok"
    )
    await work.call("Write", json.dumps({"file_path": "b.py", "content": "x"}), "no", ok=False)
    await work.run("node -e 'const f = () => import(\"./c.js\")' > d.txt", "", tool="Bash")
    work.talk.add(UserSaid((Text("stop"),)))
    tasks = [{"content": "mend it", "status": "pending"}, {"content": "x", "status": "completed"}]
    _, seq = await work.call("TodoWrite", json.dumps({"todos": tasks}), "ok")
    refused = "The user doesn't want to proceed with this tool use."
    _, at = await work.run("git push", refused, tool="Bash", ok=False, code=None)
    assert (await work.lines())[1:] == [
        "- Changed files, without a recorded commit: a.py",
        f"- Denied [{at}]: Bash `git push`, by the user",
        f"- Open tasks [{seq}]: mend it",
    ]


async def test_what_a_rewind_left_behind_is_no_state() -> None:
    work = Work()
    work.talk.user("Test it")
    _, seq = await work.run("pytest", "1 passed in 1s")
    await work.run("pytest", "1 failed in 1s", code=1)
    work.talk.add(Rewound(seq))
    assert f'- Last test run [{seq}]: `pytest`: exit code 0, "1 passed in 1s"' in await work.lines()


async def test_a_turn_that_was_stopped_last_is_told() -> None:
    work = Work()
    work.talk.user("Go on")
    seq = work.talk.add(TurnEnded(TurnEnd.STOPPED))
    told = f"- The turn that ended at number {seq} was stopped or interrupted."
    assert told in await work.lines()
    work.talk.user("Again")
    work.talk.add(TurnEnded(TurnEnd.DONE))
    assert told not in await work.lines()


async def test_long_commands_and_tasks_are_cut_with_a_mark() -> None:
    work = Work()
    await work.run("pytest " + "tests/test_a.py " * 100, "1 passed in 1s")
    await work.run("pytest \\\n -q", "2 passed in 1s")
    work.talk.add(TodoSet((("x" * 1_000, "open"),)))
    lines = await work.lines()
    assert "`pytest \\ [cut]`: exit code 0" in lines[1]
    assert lines[-1].endswith("x [cut]")


@pytest.mark.parametrize(
    ("first_is_exact", "second_is_exact", "is_left"),
    [(True, True, False), (True, False, True), (False, True, True), (False, False, True)],
)
def test_a_file_that_was_changed_back_counts_as_changed_unless_both_contents_are_known(
    first_is_exact: bool, second_is_exact: bool, is_left: bool
) -> None:
    work = StateOfWork()
    work.add_change(OpenChange("a.py", 1, before="old", after="new", is_exact=first_is_exact))
    work.add_change(OpenChange("a.py", 2, before="new", after="old", is_exact=second_is_exact))
    assert ("a.py" in work.changes) == is_left


def test_changes_of_one_file_are_one_change_from_the_first_state_to_the_last() -> None:
    work = StateOfWork()
    work.add_change(OpenChange("a.py", 1, before="old", after="new"))
    work.add_change(OpenChange("a.py", 2, before="new", after="newer"))
    assert work.changes == {"a.py": OpenChange("a.py", 2, before="old", after="newer")}


async def test_a_test_run_that_said_nothing_is_told_with_its_exit_code() -> None:
    work = Work()
    _, seq = await work.run("pytest -q", "", code=5, ok=False)
    line = f"- Last test run [{seq}]: `pytest -q`: exit code 5, without output"
    assert line in await work.lines()
