"""SIGKILL while agents change files, in a workspace or a copy. Each change belongs to
the turn that made it, and can be undone.

python -m tests.faults.step_kill FIRST LAST

Each number is a trial: one or two agents work side by side, and the program kills
itself at some step of its own, or is killed with all its commands while one of them
runs.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.changes.turn_changes import ChangeSource
from helix_desktop.engine.facts import FilesChanged, ModelReplied, Stop, Text, ToolCall, UserSaid
from helix_desktop.engine.messages import Reply
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_call_execution import ToolCallRunner
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.faults.copy_kill import SPAWNS, STEPS, run_in_child
from tests.faults.copy_trials import git
from tests.faults.store_load import Say

PLACES = ("folder", "folder", "copy", "sub-agent")


@dataclass
class Work:
    """What an agent does: its calls, and the files that they alone may change, below
    the folder with its name.
    """

    name: str
    calls: list[ToolCall] = field(default_factory=list)

    def add_calls(self, chance: random.Random) -> None:
        for number in range(1 + chance.randrange(3)):
            path = f"{self.name}/{chance.choice(('one', 'two', 'new', 'deep/new'))}"
            text = f"{self.name} {number}\n" * chance.randrange(1, 2_000)
            line = chance.choice(
                (
                    f"echo {number} >> {path}; echo more > {path}.log",
                    f"rm -f {path}; mkdir -p {self.name}/made/{number}; seq 5000 > {self.name}/made/{number}/seq",
                    f"mv {self.name}/one {self.name}/moved; echo x > {path}",
                    f"for n in $(seq 300); do echo $n > {self.name}/part$n; done",
                )
            )
            name, arguments = chance.choice(
                (
                    ("write_file", {"path": path, "content": text}),
                    (
                        "edit_file",
                        {"path": f"{self.name}/two", "edits": [{"old": "second", "new": text}]},
                    ),
                    ("run_command", {"command": f"mkdir -p {self.name}/deep; {line}"}),
                    ("run_command", {"command": line}),
                    ("run_command", {"command": f"{line}; read forever", "background": True}),
                )
            )
            self.calls.append(ToolCall(f"{self.name}{number}", name, json.dumps(arguments)))


@dataclass
class StepTrial:
    base: Path
    seed: int

    def __post_init__(self) -> None:
        chance = random.Random(self.seed)
        self.place = chance.choice(PLACES)
        self.works = [Work(name) for name in ("left", "right")[: chance.choice((1, 1, 2))]]
        for work in self.works:
            work.add_calls(chance)
        self.at = chance.random()
        self.waits = chance.random() * 0.4 if chance.random() < 0.3 else None

    @property
    def project(self) -> Path:
        return self.base / "project"

    def open_desk(self) -> Workbenches:
        where = program_folders.find_program_folders(self.base / "home")
        return Workbenches(where, SecretStorage(where.key_file, environ={}))

    def set_scene(self) -> None:
        for name in ("left", "right"):
            (self.project / name).mkdir(parents=True)
            (self.project / name / "one").write_text(f"{name} one\n" * 50)
            (self.project / name / "two").write_text(f"first\nsecond\n{name}\n")
        git(self.project, "init", "-q")
        git(self.project, "add", "-A")
        git(self.project, "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qm", "first")
        asyncio.run(self._make())

    async def _make(self) -> None:
        desk = self.open_desk()
        bench = await desk.create_workspace("W", self.project)
        await bench.choose_permission_mode("allow all")
        for work in self.works:
            if self.place == "copy":
                session = await bench.start_conversation_in_copy(work.name)
            elif self.place == "sub-agent":
                parent = await bench.start_conversation(f"above {work.name}")
                session = await bench.start_conversation(
                    work.name, agent="helper", parent=parent.id
                )
            else:
                session = await bench.start_conversation(work.name)
            await session.conversation.append_facts(UserSaid((Text(f"{work.name} begins"),)))
        await desk.aclose()

    def work_and_count(self, say: Say, kill_at: int = 0) -> None:
        steps = 0
        is_counting = False

        def count_step(event: str, arguments: tuple[object, ...]) -> None:
            nonlocal steps
            is_writing = (
                event == "open"
                and isinstance(arguments[2], int)
                and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            )
            if is_counting and (is_writing or event in STEPS or event in SPAWNS):
                steps += 1
                if steps == kill_at:
                    os.killpg(0, signal.SIGKILL)

        async def work() -> None:
            nonlocal is_counting
            desk = self.open_desk()
            bench = await desk.open_workspace("W")
            sessions = await self.sessions_of_works(bench)
            for session in sessions:
                checkpoints = bench.file_changes_of(session.id).workspace_checkpoints
                await checkpoints.ensure_first_check()
            say("ready")
            is_counting = True
            await asyncio.gather(*map(_run_calls, sessions, (work.calls for work in self.works)))
            is_counting = False
            await desk.aclose()

        sys.addaudithook(count_step)
        asyncio.run(work())
        say(str(steps))

    async def sessions_of_works(self, bench: Workbench) -> list[Session]:
        ids = {row.title: row.id for row in bench.list_conversations()}
        return [await bench.open_session(ids[work.name]) for work in self.works]

    async def check_after_kill(self, before: dict[Path, dict[str, str]]) -> None:
        desk = self.open_desk()
        bench = await desk.open_workspace("W")
        sessions = await self.sessions_of_works(bench)
        for session in sessions:
            await bench.file_changes_of(session.id).workspace_checkpoints.ensure_first_check()
        owned: list[object] = []
        for session, work in zip(sessions, self.works, strict=True):
            facts = [each.fact for each in session.all_facts if isinstance(each.fact, FilesChanged)]
            owned.append((work.name, [(fact.call, fact.by, fact.names) for fact in facts]))
            differences = [(fact.call, fact.difference.digest) for fact in facts]
            assert len(differences) == len(set(differences)), f"recorded twice: {differences}"
            await _undo_all(bench, session, work.name)
        for folder, files_before in before.items():
            now = texts_of(folder)
            difference = differences_of(files_before, now)
            assert now == files_before, f"{folder}: {difference}; {owned}"
        await desk.aclose()

    def folders(self) -> list[Path]:
        return [self.project, *self.base.glob("home/**/copies/*/0")]


async def _undo_all(bench: Workbench, session: Session, name: str) -> None:
    """What the session's agent has changed, all of it in the folder that has its name."""
    changes = bench.file_changes_of(session.id)
    sources: list[ChangeSource] = []
    for turn in await changes.turns_with_changes(session.id):
        sources += turn.sources
    files = await changes.changes_with_folders(sources)
    strange: set[str] = set()
    for file in files:
        is_of_tool = file.by == "tool"  # Commands have all that changes meanwhile.
        if is_of_tool and file.place.split("/")[0] != name:
            strange.add(file.place)
    assert not strange, f"{name} is said to have changed {strange}"
    await changes.undo_file_changes(files, conversation=session.id)


async def _run_calls(session: Session, calls: list[ToolCall]) -> None:
    async def ask(_: PermissionQuestion) -> PermissionAnswer:
        return PermissionAnswer(allowed=True)

    runner = ToolCallRunner(session.conversation, session._services, session.folding, ask)
    for call in calls:
        await session.conversation.append_facts(ModelReplied((call,), "demo", Stop.CALLS))
        await runner.run_reply_calls(Reply((call,), Stop.CALLS))
    await session.conversation.append_facts(
        *await session._services.collect_file_changes(session.id)
    )


def texts_of(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if ".git" not in path.parts)
    return {
        str(path.relative_to(folder)): path.read_text() if path.is_file() else "" for path in found
    }


def differences_of(one: dict[str, str], other: dict[str, str]) -> list[str]:
    return sorted(name for name in {*one, *other} if one.get(name) != other.get(name))


def run_step_trial(seed: int) -> str:
    """Return where the agents worked. Raises AssertionError for what is wrong."""
    with tempfile.TemporaryDirectory(prefix="helix-step-") as name:
        base = Path(name).resolve() / "base"
        saved = Path(name).resolve() / "saved"
        trial = StepTrial(base, seed)
        run_in_child(lambda _: trial.set_scene())
        shutil.copytree(base, saved, symlinks=True)
        whole = run_in_child(trial.work_and_count)
        shutil.rmtree(base)
        saved.rename(base)
        before = {folder: texts_of(folder) for folder in trial.folders()}
        at = 1 + int(trial.at * int(whole[-1]))
        if trial.waits is None:
            run_in_child(lambda say: trial.work_and_count(say, at))
        else:
            run_in_child(trial.work_and_count, power_fails_after=trial.waits)
        try:
            run_in_child(lambda _: asyncio.run(trial.check_after_kill(before)))
        except AssertionError as error:
            did = [
                f"{call.name} {call.arguments[:150]}" for work in trial.works for call in work.calls
            ]
            when = f"{trial.waits:.2f} s" if trial.waits is not None else f"{at} of {whole[-1]}"
            raise AssertionError(
                "\n".join((f"seed {seed}: {trial.place}, {when}", *did, str(error)))
            ) from error
    return trial.place


def main() -> int:
    first, last = map(int, sys.argv[1:3])
    found: Counter[str] = Counter()
    for seed in range(first, last):
        try:
            found[run_step_trial(seed)] += 1
        except AssertionError as error:
            found["WRONG"] += 1
            print(f"--- {error}", flush=True)
    print(dict(found), flush=True)
    return int(found["WRONG"] > 0)


if __name__ == "__main__":
    sys.exit(main())
