"""SIGKILL while a question waits for the user: it is asked again, and nothing ran meanwhile.

python -m tests.faults.question_kill [--trials 100] [--seed 1]

A turn asks for permission, sometimes while a message waits, and the program is killed, at once or a
moment later. The next program, or the one after it, opens the conversation and continues the turn. It
must ask for the same call, before anything is sent to the model; only after an answer does the call
run, once. What waited is sent after it, once.
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
from helix_desktop.engine.facts import ModelReplied, Text, UserSaid
from helix_desktop.engine.ports import PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.scripted_tour import ClockWithoutPauses

MADE = "made.txt"
WORDS = f"write {MADE}: kept"
LATER = "and say hello"
# How a message waits meanwhile: until the turn ends, or only for the call.
WAITING_WAYS = {"nothing waits": None, "waits for the turn": False, "waits for the call": True}


def run_trials(count: int, seed: int, found: Counter[str]) -> None:
    chance = random.Random(seed)
    for trial in range(count):
        home = Path(tempfile.mkdtemp(prefix="helix-question-"))
        try:
            _run_trial(home, chance, found, trial)
        finally:
            shutil.rmtree(home, ignore_errors=True)


def _run_trial(home: Path, chance: random.Random, found: Counter[str], trial: int) -> None:
    asyncio.run(_create_conversation(home))
    way = chance.choice(list(WAITING_WAYS))

    def work(say: Say) -> None:
        asyncio.run(_work(home, say, way))

    child, reading = in_child(work)
    select.select([reading], [], [], 30)
    time.sleep(chance.choice((0.0, 0.0, 0.01, 0.2)))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    asked = told(reading)
    found["kills"] += 1
    if not asked:
        found["LOST no question was asked, so this trial showed nothing"] += 1
        return
    found[way] += 1
    if chance.random() < 0.3:
        found["opened and closed in between"] += 1
        asyncio.run(_open_and_close(home))
    allows = chance.random() < 0.5
    waited = WAITING_WAYS[way] is not None
    for wrong in asyncio.run(_continue_turn(home, asked[0], allows=allows, waited=waited)):
        found[f"LOST in trial {trial}, {way}: {wrong}"] += 1
    found["allowed" if allows else "denied"] += 1


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())


async def _create_conversation(home: Path) -> None:
    create_tour_folder(home / "folder")
    desk = _desk(home)
    bench = await desk.create_workspace("Killed", home / "folder")
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("ask")
    await bench.start_conversation("Killed")
    await desk.aclose()


async def _open_conversation(desk: Workbenches) -> Session:
    bench = await desk.open_workspace("Killed")
    (row,) = bench.list_conversations()
    return await bench.open_session(row.id)


async def _open_and_close(home: Path) -> None:
    desk = _desk(home)
    await _open_conversation(desk)
    await desk.aclose()


async def _work(home: Path, say: Say, way: str) -> None:
    session = await _open_conversation(_desk(home))
    question: asyncio.Future[PermissionQuestion] = asyncio.get_running_loop().create_future()

    def hear(event: Event) -> None:
        if isinstance(event, QuestionAsked) and not question.done():
            question.set_result(event.question)

    session.subscribe_to_events(hear)
    session.send_message((Text(WORDS),))
    asked = await question
    steers = WAITING_WAYS[way]
    if steers is not None:
        session.send_message((Text(LATER),), steer=steers)
    say(asked.preview.replace("\n", "\\n"))
    await asyncio.Event().wait()


async def _continue_turn(home: Path, asked: str, *, allows: bool, waited: bool) -> list[str]:
    desk = _desk(home)
    wrong: list[str] = []
    made = home / "folder" / MADE
    try:
        session = await _open_conversation(desk)
        replies = _count_replies(session)
        again: asyncio.Future[PermissionQuestion] = asyncio.get_running_loop().create_future()

        def hear(event: Event) -> None:
            if isinstance(event, QuestionAsked) and not again.done():
                again.set_result(event.question)
                session.answer_question(event.number, PermissionAnswer(allowed=allows))

        session.subscribe_to_events(hear)
        if made.exists():
            wrong.append("the call ran without an answer")
        session.resume_turn()
        try:
            question = await asyncio.wait_for(asyncio.shield(again), 30)
        except TimeoutError:
            return [*wrong, "it was not asked again"]
        if _count_messages(session, LATER):
            wrong.append("what waited was sent before the question")
        if question.preview.replace("\n", "\\n") != asked:
            wrong.append("something else was asked")
        if _count_replies(session) != replies:
            wrong.append("the model was asked before the user")
        await asyncio.wait_for(session.wait_until_idle(), 60)
        wrong += _find_wrong_in_the_end(home, session, allows=allows, waited=waited)
        return wrong
    finally:
        await desk.aclose()


def _find_wrong_in_the_end(
    home: Path, session: Session, *, allows: bool, waited: bool
) -> list[str]:
    wrong: list[str] = []
    made = home / "folder" / MADE
    if made.exists() != allows:
        wrong.append(f"allowed is {allows}, and the file is there: {made.exists()}")
    if list((home / "home").rglob("*.question")):
        wrong.append("a note stayed behind")
    sent = _count_messages(session, LATER)
    if sent != waited:
        wrong.append(f"what waited was sent {sent} times")
    return wrong


def _count_replies(session: Session) -> int:
    return sum(isinstance(recorded.fact, ModelReplied) for recorded in session.all_facts)


def _count_messages(session: Session, words: str) -> int:
    count = 0
    for recorded in session.all_facts:
        if isinstance(recorded.fact, UserSaid):
            texts = [part.text for part in recorded.fact.parts if isinstance(part, Text)]
            count += texts.count(words)
    return count


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return report(
        "question_kill",
        arguments.seed,
        lambda found: run_trials(arguments.trials, arguments.seed, found),
    )


if __name__ == "__main__":
    raise SystemExit(main())
