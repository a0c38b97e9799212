"""SIGKILL while messages wait in the queue: none is lost, and none is sent or shown twice.

python -m tests.faults.queue_kill [--trials 60] [--seed 1]

A turn runs, and messages are written, sent, moved, edited and taken back as the window does it:
what is written is in the draft of the window, what was sent in the queue of the workspace. The program is
killed at any moment. Every word must then be in the conversation, or come back in the message
box, exactly once. Equal messages are sent on purpose: they are told apart by their ids.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import select
import shutil
import signal
import tempfile
import time
from collections import Counter
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine.facts import Text, UserSaid
from helix_desktop.engine.session import Session
from helix_desktop.gui.chat.composer import Composer
from helix_desktop.gui.saved_layouts_and_drafts import WindowStateFile
from helix_desktop.gui.theme import Theme
from helix_desktop.gui.workspace_activity import WorkspaceActivity
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.scripted_tour import ClockWithoutPauses

ACTS = 30
PAUSE_SECONDS = 0.004  # Gives the turn time to take a message.
LONGEST_RUN_SECONDS = 2.5  # So long take the acts on a busy machine.


def run_trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for trial in range(count):
        home = Path(tempfile.mkdtemp(prefix="helix-queue-"))
        try:
            _run_trial(home, chance, found, trial)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _run_trial(home: Path, chance: random.Random, found: Counter[str], trial: int) -> None:
    asyncio.run(_create_conversation(home))
    seed = chance.randrange(1 << 30)

    def work(say: Say) -> None:
        _work(home, random.Random(seed), say)

    child, reading = in_child(work)
    select.select([reading], [], [], 60)
    time.sleep(chance.random() * LONGEST_RUN_SECONDS)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    found["kills"] += 1
    written: Counter[str] = Counter()
    for line in told(reading):
        if line.startswith("RAISED"):
            found[f"LOST in trial {trial}: {line[:300]}"] += 1
        sign, _, words = line.partition(" ")
        if sign == "+":
            written[words] += 1
        elif sign == "-":
            written[words] -= 1
    recorded, came_back = _read_in_child(home, found)
    found["recorded"] += sum(recorded.values())
    found["came back"] += sum(came_back.values())
    there = recorded + came_back
    # The last word was perhaps written, but not yet said, or taken back.
    for words in written.keys() | there.keys():
        if there[words] < written[words]:
            found[f"LOST in trial {trial} (seed {seed}): {words}"] += 1
        if there[words] > written[words] + 1 or (there[words] > 1 and words.startswith("one")):
            found[f"LOST twice in trial {trial} (seed {seed}): {words}"] += 1


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())


async def _create_conversation(home: Path) -> None:
    create_tour_folder(home / "folder")
    desk = _desk(home)
    bench = await desk.create_workspace("Killed", home / "folder")
    await bench.choose_model_for_role(MODEL)
    await bench.start_conversation("Killed")
    await desk.aclose()


async def _open_conversation(desk: Workbenches) -> tuple[Workbench, Session]:
    bench = await desk.open_workspace("Killed")
    (row,) = bench.list_conversations()
    return bench, await bench.open_session(row.id)


def _work(home: Path, chance: random.Random, say: Say) -> None:
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from PySide6.QtWidgets import QApplication

    application = QApplication([])

    async def send_until_killed() -> None:
        bench, session = await _open_conversation(_desk(home))
        file = WindowStateFile(home / "window.json")
        activity = WorkspaceActivity(bench, file, application)
        composer = Composer(Theme(scheme="light"), file)
        composer.show_draft_of(bench.id, session.id, "Killed")
        for number in range(ACTS):
            words = chance.choice(["again", f"one {number}"])
            composer.text.setPlainText(words)
            file.write_state_file()
            say(f"+ {words}")
            draft_id = composer.draft_id
            composer.text.clear()
            steer = chance.random() < 0.3
            session.send_message((Text(words),), steer=steer, command_id=draft_id)
            _change_queue(session, chance, say)
            application.processEvents()
            await asyncio.sleep(PAUSE_SECONDS)
        activity.stop_watching_workspace()
        await asyncio.Event().wait()

    asyncio.run(send_until_killed())


def _change_queue(session: Session, chance: random.Random, say: Say) -> None:
    """Moves, turns or takes back one of the waiting messages."""
    waiting = len(session.queue)
    if not waiting:
        return
    index = chance.randrange(waiting)
    match chance.choice(["leave", "leave", "move", "turn", "take back"]):
        case "move":
            session.queue.move_message(index, chance.randrange(waiting))
        case "turn":
            session.queue.set_steering(index, steer=chance.random() < 0.5)
        case "take back":
            (part,) = session.queue[index].parts
            assert isinstance(part, Text)
            say(f"- {part.text}")  # Before it: a kill between the two must not look like a loss.
            session.queue.take_back_queued(index)


def _read_in_child(home: Path, found: Counter[str]) -> tuple[Counter[str], Counter[str]]:
    """Each window is a process of its own: Qt does not start again after a fork."""

    def read(say: Say) -> None:
        recorded, came_back = _read_what_is_there(home)
        for words in recorded.elements():
            say(f"recorded {words}")
        for words in came_back.elements():
            say(f"back {words}")
        say("done ")

    child, reading = in_child(read)
    lines = told(reading)
    os.waitpid(child, 0)
    if "done " not in lines and "done" not in lines:
        found[f"LOST it could not be opened again: {lines[-1:]}"] += 1
    words_of = {"recorded": Counter[str](), "back": Counter[str]()}
    for line in lines:
        kind, _, words = line.partition(" ")
        if kind in words_of:
            words_of[kind][words] += 1
    return words_of["recorded"], words_of["back"]


def _read_what_is_there(home: Path) -> tuple[Counter[str], Counter[str]]:
    """What the conversation has, and what the message box has after a new start."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from PySide6.QtWidgets import QApplication

    application = QApplication([])

    async def read() -> tuple[Counter[str], Counter[str]]:
        desk = _desk(home)
        bench, session = await _open_conversation(desk)
        recorded: Counter[str] = Counter()
        for entry in session.all_facts:
            if isinstance(entry.fact, UserSaid):
                for part in entry.fact.parts:
                    if isinstance(part, Text):
                        recorded[part.text] += 1
        composer = Composer(Theme(scheme="light"), WindowStateFile(home / "window.json"))
        composer.show_draft_of(bench.id, session.id, "Killed")
        composer.take_over_messages_of_last_start(session.conversation.state, session.queue)
        came_back = Counter(filter(None, composer.text.toPlainText().splitlines()))
        for message in session.queue:
            (part,) = message.parts
            assert isinstance(part, Text)
            came_back[part.text] += 1
        await desk.aclose()
        return recorded, came_back

    there = asyncio.run(read())
    del application
    return there


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "queue_kill",
        arguments.seed,
        lambda found: run_trials(arguments.trials, arguments.seed, found),
    )


if __name__ == "__main__":
    raise SystemExit(main())
