"""The disk of the program's data fills up while a call that may change files is
allowed. What is changed in the user's folder is recorded then and can be undone, or
nothing is changed.

    python -m tests.faults.full_disk [--trials 40] [--seed 1]

The data lies on a real file system of a few megabytes, in a mount namespace of its own;
the user's folder on another.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.facts import (
    FilesChanged,
    ModelReplied,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Reply
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.tool_call_execution import ToolCallRunner
from helix_desktop.errors import HelixError
from helix_desktop.secrets import SecretStorage
from helix_desktop.tools.changes.change_attribution import OpenStep
from helix_desktop.workbench import Workbench, Workbenches
from tests.faults.store_report import report

MEGABYTES = 32
INSIDE = ("unshare", "--mount", "--map-root-user", "sh", "-c")
MOMENTS = ("before", "asked", "runs")  # When the disk fills up.
CALLS = (
    ("write_file", {"path": "new.txt", "content": "new\n"}),
    ("write_file", {"path": "old.txt", "content": "written over\n" * 9}),
    ("write_file", {"path": "long.txt", "content": "{noise}"}),
    ("edit_file", {"path": "old.txt", "edits": [{"old": "second", "new": "other"}]}),
    ("run_command", {"command": "echo more >> old.txt; echo b > b.txt; mv old.txt c.txt"}),
    ("run_command", {"command": "rm old.txt; mkdir -p d; seq 9000 > d/seq; seq 9000"}),
)


def trials(count: int, seed: int) -> Counter[str]:
    """What was found, counted. Anything under a key that begins with LOST is a failure."""
    with tempfile.TemporaryDirectory(prefix="helix-full-") as place:
        disk = Path(place) / "disk"
        disk.mkdir()
        run = f'mount -t tmpfs -o size={MEGABYTES}m none "$1" && shift && exec "$@"'
        command = [
            sys.executable,
            "-m",
            "tests.faults.full_disk",
            "--trials",
            str(count),
            "--seed",
            str(seed),
        ]
        given = [*INSIDE, run, "sh", str(disk), *command, "--inside", place]
        return Counter(json.loads(subprocess.run(given, check=True, stdout=subprocess.PIPE).stdout))


async def _trials_inside(place: Path, count: int, seed: int) -> Counter[str]:
    chance = random.Random(seed)
    found = Counter[str]()
    folder = place / "work"
    before = {"old.txt": "first\nsecond\n"}
    for trial in range(count):
        name, arguments = CALLS[trial % len(CALLS)]
        room = chance.choice((0, 4, 16, 64, 256, 1024, 4096, 8192)) << 10
        moment = chance.choice(MOMENTS)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(place / "disk" / "home", ignore_errors=True)
        folder.mkdir()
        for file_name, text in before.items():
            (folder / file_name).write_text(text)
        noise = "".join(chance.choices("abcdefghijklmnopqrstuvwxyz0123456789\n", k=600_000))
        words = json.dumps(arguments).replace("{home}", str(place / "disk"))
        words = words.replace("{noise}", json.dumps(noise)[1:-1])
        await _one_call(place, name, words, moment, room, found)
        has_changed = _texts_of_files(folder) != before
        found["calls"] += 1
        found["changed" if has_changed else "refused"] += 1
        recorded = await _recorded_and_undone(place, found)
        about = f"in trial {trial} ({name} {words[:60]}, {room >> 10} KB left, {moment})"
        if has_changed and not recorded:
            found[f"LOST {about}: changed, not recorded"] += 1
        left = _texts_of_files(folder)
        if recorded and left != before:
            found[f"LOST {about}: undone to {sorted(left)}"] += 1
    return found


def _texts_of_files(folder: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in folder.iterdir() if path.is_file()}


def _desk(place: Path) -> Workbenches:
    where = program_folders.find_program_folders(place / "disk" / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}))


def _fill(place: Path, room: int) -> None:
    with (place / "disk" / "filler").open("ab") as filler:
        while (free := shutil.disk_usage(place / "disk").free - room) > 0:
            with suppress(OSError):  # The program writes as well.
                os.posix_fallocate(filler.fileno(), os.fstat(filler.fileno()).st_size, free)


async def _one_call(
    place: Path, name: str, arguments: str, moment: str, room: int, found: Counter[str]
) -> None:
    desk = _desk(place)
    bench = await desk.create_workspace("Full", place / "work")
    session = await bench.start_conversation("Full")
    call = ToolCall("1", name, arguments)
    await bench.file_changes.workspace_checkpoints.ensure_first_check()
    await session.conversation.append_facts(
        UserSaid((Text("go"),)), ModelReplied((call,), "demo", Stop.CALLS)
    )

    async def ask(question: PermissionQuestion) -> PermissionAnswer:
        if moment == "asked":
            _fill(place, room)
        return PermissionAnswer(allowed=True)

    checkpoints = bench.file_changes.workspace_checkpoints
    begin_step = checkpoints.begin_step

    async def begin_and_fill(
        call: str, conversation: str, by: str, size: int = 0, only: Sequence[str] | None = None
    ) -> OpenStep | None:
        step = await begin_step(call, conversation, by, size, only)
        if moment == "runs":
            _fill(place, room)
        return step

    checkpoints.begin_step = begin_and_fill  # type: ignore[method-assign]
    if moment == "before":
        _fill(place, room)
    runner = ToolCallRunner(session.conversation, session._services, session.folding, ask)
    try:
        await runner.run_reply_calls(Reply((call,), Stop.CALLS))
    except HelixError as error:
        found[f"raised {type(error).__name__}"] += 1
        with suppress(HelixError):  # As at the end of a turn.
            rest = await session._services.collect_file_changes(session.id)
            await session.conversation.append_facts(*rest)
    (place / "disk" / "filler").unlink(missing_ok=True)
    await desk.aclose()


async def _recorded_and_undone(place: Path, found: Counter[str]) -> bool:
    """Whether the change is in the journal at the next start; then it is undone."""
    desk = _desk(place)
    bench: Workbench = await desk.open_workspace("Full")
    session: Session = await bench.open_session(bench.list_conversations()[0].id)
    facts = [one.fact for one in session.all_facts]
    found["answered"] += any(isinstance(fact, ToolReturned) for fact in facts)
    recorded = any(isinstance(fact, FilesChanged) for fact in facts)
    if recorded:
        turns = await bench.file_changes.turns_with_changes(session.id)
        files = await bench.file_changes.changes_with_folders(
            [one for turn in turns for one in turn.sources]
        )
        await bench.file_changes.undo_file_changes(files, conversation=session.id)
    await desk.aclose()
    return recorded


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--inside", type=Path)
    given = parser.parse_args()
    if given.inside:
        sys.stdout.write(
            json.dumps(asyncio.run(_trials_inside(given.inside, given.trials, given.seed)))
        )
        return 0
    return report(
        "full_disk", given.seed, lambda found: found.update(trials(given.trials, given.seed))
    )


if __name__ == "__main__":
    sys.exit(main())
