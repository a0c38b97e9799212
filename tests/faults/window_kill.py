"""SIGKILL of the real window while it folds, imports and reads attachments.

    python -m tests.faults.window_kill [--kills 100] [--seed 1] [--first 1]

Needs a display. In each round the window opens a workspace, sends messages, writes handovers and
takes them back, imports a long session of another program and attaches a large file, and notes what
was acknowledged. It is killed at a random moment of one of these. Nothing that was acknowledged may
be missing or be there twice, each import is there once and whole or not at all, every content that is
referred to can be read, and the next window says that a turn was broken off.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.desktop.history_import import HistoryImporter
from helix_desktop.desktop.window_program import WindowProgram
from helix_desktop.engine.facts import (
    Attachment,
    Folded,
    FoldKind,
    Text,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.request_building import find_violations
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.gui.chat.turn_end_help import TurnEndHelp, find_turn_end_help
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.soak.driven import drive, opened
from tests.texts_and_calls import missing_results, user_texts

WORKSPACE = "w"
PHASES = ("fold", "import", "attach", "message")
PHASE_SECONDS = 60.0  # The window is killed even if the phase has not begun by then.
LONGEST_PAUSE_SECONDS = 1.5
LINES_OF_A_SESSION = 1_600
ATTACHED_BYTES = 3 << 20
ROUNDS_OF_A_HOME = 12


def desk_of(place: Path) -> Workbenches:
    where = program_folders.find_program_folders(place / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}))


Note = tuple[str, str]  # What happened, and with what.


class Notes:
    """What the window says of its own work, a line each, in a file that survives it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a")

    def __call__(self, kind: str, what: str = "") -> None:
        self._file.write(json.dumps([kind, what]) + "\n")
        self._file.flush()


def read_notes(path: Path) -> list[Note]:
    lines = path.read_text().splitlines() if path.exists() else []
    notes: list[Note] = []
    for line in lines:
        with suppress(ValueError):
            kind, what = json.loads(line)
            notes.append((kind, what))
    return notes


async def story(run: WindowProgram, place: Path, number: int) -> None:
    note = Notes(place / "notes")
    await opened(run, WORKSPACE)
    bench = run.window.current_workbench
    assert isinstance(bench, Workbench)
    rows = [row for row in bench.list_conversations() if row.title.startswith("worked")]
    if rows:
        session = await bench.open_session(rows[0].id)
    else:
        session = await bench.start_conversation("worked on")
    run.window.sidebar.list.opened.emit(session.id)
    was_broken_off = session.conversation.state.branch.turn.running and session.is_idle
    if was_broken_off and find_turn_end_help(session) is not TurnEndHelp.BROKEN:
        note("wrong", "a turn was broken off, and the chat does not say so")
    note("begun")

    def hear(event: Event) -> None:
        if isinstance(event, FactAppended):
            fact = event.recorded.fact
            if isinstance(fact, UserSaid):
                for part in fact.parts:
                    if isinstance(part, Text):
                        note("said", part.text)
                    if isinstance(part, Attachment):
                        note("attached", part.stored.digest.hex)
            elif isinstance(fact, Folded):
                note("folded", fact.fold)

    session.subscribe_to_events(hear)
    await asyncio.gather(
        work_on(session, note, number), attach(bench, session, note, number),
        bring_in(run, place, note, number),
    )  # fmt: skip
    note("done")
    await asyncio.Event().wait()


async def work_on(session: Session, note: Notes, number: int) -> None:
    for turn in range(4):
        note("message")
        session.send_message((Text(f"read a.txt of {number} {turn}"),))
        await session.wait_until_idle()
        note("fold")
        with suppress(HelixError):
            await session.fold_on_request(FoldKind.HANDOVER)
        live = list(session.conversation.state.branch.live)
        if live and turn % 2:
            with suppress(HelixError):
                await session.folding.unfold(live[-1])
                await session.folding.refold(live[-1])


async def attach(bench: Workbench, session: Session, note: Notes, number: int) -> None:
    for turn in range(3):
        note("attach")
        content = f"{number} {turn} line of an attachment\n".encode()
        content *= ATTACHED_BYTES // len(content)
        parts = await bench.attach_file(f"{number}-{turn}.txt", content, session.id)
        session.send_message((Text(f"list {number} attached {turn}"), *parts))
        await session.wait_until_idle()


async def bring_in(run: WindowProgram, place: Path, note: Notes, number: int) -> None:
    assert run._desk is not None
    importer = HistoryImporter(run._desk)
    chosen = await importer.read_chosen_files([place / "histories" / f"{number}.jsonl"])
    note("import")
    await importer.import_history_groups(chosen.groups, lambda *_: None)
    note("imported", str(number))


def history_lines(number: int, folder: Path) -> Iterator[str]:
    for each in range(LINES_OF_A_SESSION):
        role = "assistant" if each % 2 else "user"
        message: dict[str, object] = {"role": role, "content": f"import {number} question {each}"}
        if role == "assistant":
            text = f"import {number} answer {each} " + "words " * 60
            message |= {"id": f"{number}-{each}", "content": [{"type": "text", "text": text}]}
        about: dict[str, object] = {
            "type": role, "uuid": f"{number}-u{each}", "cwd": str(folder), "version": "2.1.0",
            "parentUuid": f"{number}-u{each - 1}" if each else None, "sessionId": f"s{number}",
            "timestamp": f"2026-11-20T{10 + each // 3600:02}:{each // 60 % 60:02}:{each % 60:02}.000Z",
        }  # fmt: skip
        yield json.dumps({**about, "message": message}) + "\n"


async def prepare(place: Path) -> None:
    folder = place / "work"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n" * 2_000)
    (place / "histories").mkdir()
    desk = desk_of(place)
    bench = await desk.create_workspace(WORKSPACE, folder)
    await bench.choose_model_for_role("demo/demo")
    await bench.choose_permission_mode("allow all")
    await desk.aclose()


def kill_once(place: Path, number: int, pick: random.Random, counts: Counter[str]) -> None:
    """Starts the window, and kills it at a random moment after a phase has begun."""
    (place / "notes").unlink(missing_ok=True)
    lines = "".join(history_lines(number, place / "work"))
    (place / "histories" / f"{number}.jsonl").write_text(lines)
    phase = pick.choice(PHASES)
    pause = LONGEST_PAUSE_SECONDS * pick.random() ** 2
    words = [sys.executable, "-m", "tests.faults.window_kill"]
    words += ["--window", str(place), "--first", str(number)]
    window = subprocess.Popen(
        words, stdout=subprocess.DEVNULL, stderr=(place / "errors").open("ab")
    )
    wait_for_phase(window, place / "notes", phase)
    time.sleep(pause)
    if window.poll() is not None:
        errors = (place / "errors").read_text("utf-8", "replace")
        raise RuntimeError(f"the window ended by itself, {window.returncode}: {errors[-1_500:]}")
    window.send_signal(signal.SIGKILL)
    window.wait()
    counts["kills"] += 1
    kinds = [kind for kind, _ in read_notes(place / "notes")]
    begun = [kind for kind in kinds if kind in PHASES]
    last = begun[-1] if begun else "the start"
    counts[f"killed after the beginning of: {last}"] += 1
    if kinds and kinds[-1] == "done":
        counts["killed after all was done"] += 1


def wait_for_phase(window: subprocess.Popen[bytes], notes: Path, phase: str) -> None:
    """Until it begins, or the window has had enough time since it began its first."""
    end = time.monotonic() + 3 * PHASE_SECONDS
    has_begun = False
    while window.poll() is None and time.monotonic() < end:
        kinds = [kind for kind, _ in read_notes(notes)]
        if kinds and not has_begun:
            has_begun = True
            end = time.monotonic() + PHASE_SECONDS
        if phase in kinds:
            return
        time.sleep(0.02)


@dataclass
class FoundAgain:
    """What a workspace has after a kill."""

    said: Counter[str] = field(default_factory=Counter)
    imports: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)  # Of folds, and digests of attachments.
    wrong: list[str] = field(default_factory=list)

    async def read_conversation(self, bench: Workbench, identity: str) -> None:
        session = await bench.open_session(identity)
        cache = bench.workspace.cache
        for recorded in session.all_facts:
            fact = recorded.fact
            if isinstance(fact, UserSaid):
                attached = [part for part in fact.parts if isinstance(part, Attachment)]
                self.names.update(part.stored.digest.hex for part in attached)
            elif isinstance(fact, ToolReturned):
                await cache.read_content(fact.output.digest)
            elif isinstance(fact, Folded):
                self.names.add(fact.fold)
                for digest in fact.entries:
                    await cache.read_content(digest)
        missing = missing_results(session.all_facts)
        if any(count < 0 for count in missing.values()):
            self.wrong.append(f"a call in {identity} has two results")
        violations = find_violations(await session.context.rebuild_request())
        if violations:
            self.wrong.append(f"the next request of {identity} is illegal: {violations}")
        self._count_questions(user_texts(session.all_facts))

    def _count_questions(self, questions: list[str]) -> None:
        self.said.update(questions)
        if not questions or not questions[0].startswith("import "):
            return
        name = questions[0].split()[1]
        self.imports[name] += 1
        if self.imports[name] > 1:
            self.wrong.append(f"import {name} is there {self.imports[name]} times")
        if len(questions) != LINES_OF_A_SESSION // 2:
            self.wrong.append(f"import {name} has {len(questions)} questions")

    def compare_with(self, acknowledged: list[Note]) -> None:
        for kind, what in acknowledged:
            if kind == "wrong":
                self.wrong.append(what)
            elif kind == "said" and self.said[what] != 1:
                self.wrong.append(f"{what!r} is there {self.said[what]} times")
            elif kind in ("folded", "attached") and what not in self.names:
                self.wrong.append(f"{kind} {what} is gone")
            elif kind == "imported" and self.imports[what] != 1:
                self.wrong.append(f"import {what} is there {self.imports[what]} times")


async def check(place: Path, acknowledged: list[Note]) -> list[str]:
    desk = desk_of(place)
    found = FoundAgain()
    try:
        bench = await desk.open_workspace(WORKSPACE)
        for row in bench.list_conversations():
            await found.read_conversation(bench, row.id)
        found.compare_with(acknowledged)
    except HelixError as error:
        found.wrong.append(f"it cannot be opened or read: {error}")
    finally:
        await desk.aclose()
    return found.wrong


def run(kills: int, seed: int, first: int) -> int:
    counts: Counter[str] = Counter()
    failures: list[str] = []
    begun = time.monotonic()
    for start in range(first, first + kills, ROUNDS_OF_A_HOME):
        with tempfile.TemporaryDirectory(dir="/var/tmp", ignore_cleanup_errors=True) as folder:
            place = Path(folder)
            asyncio.run(prepare(place))
            acknowledged: list[Note] = []
            for number in range(start, min(start + ROUNDS_OF_A_HOME, first + kills)):
                kill_once(place, number, random.Random(f"{seed} {number}"), counts)
                acknowledged += read_notes(place / "notes")
                wrong = asyncio.run(check(place, acknowledged))
                for what in wrong:
                    failures.append(f"kill {number}: {what}")
                    print(f"FAILED: {failures[-1]}", flush=True)
                print(
                    f"kill {number}: {time.monotonic() - begun:.0f} s, {len(failures)} failures",
                    flush=True,
                )
            for kind, _ in acknowledged:
                counts[f"acknowledged: {kind}"] += kind in (
                    "said",
                    "folded",
                    "attached",
                    "imported",
                )
            errors = (place / "errors").read_text("utf-8", "replace")
            if "Traceback" in errors:
                failures.append(f"homes of kill {start}: {errors[-1_500:]}")
                print(f"FAILED: {failures[-1]}", flush=True)
    said = ", ".join(f"{count} {key}" for key, count in sorted(counts.items()) if count)
    print(
        f"window_kill: {said}; {len(failures)} failures; {time.monotonic() - begun:.0f} s, seed {seed}, from number {first}"
    )
    return int(bool(failures))  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--window", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.window:
        return drive(arguments.window, lambda run: story(run, arguments.window, arguments.first))
    return run(arguments.kills, arguments.seed, arguments.first)


if __name__ == "__main__":
    sys.exit(main())
