"""SIGKILL at random moments of a whole turn: model, tools, folds. What was told is
there, and the turn goes on.

python -m tests.faults.turn_kill [--trials 60] [--seed 1]
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
from collections.abc import AsyncIterator
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.engine import request_building
from helix_desktop.engine.facts import Folded, Text, ToolReturned, TurnEnded
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, FactAppended
from helix_desktop.errors import HelixError
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from helix_desktop.workbench.tour_folder import MODEL, create_tour_folder
from tests.faults.store_load import Say, in_child, told
from tests.faults.store_report import report
from tests.scripted_tour import ClockWithoutPauses

WORDS = (
    "tour",
    "read run.log",
    "large",
    "search ERROR",
    "write notes.txt: kept",
    "read samples.csv",
)
GENERATIONS = 6  # kills of one conversation before another home is begun
LONGEST = 2.5  # seconds: about what the words above take


def trials(count: int, seed: int) -> Counter[str]:
    """Kill `count` times; what was found, counted. Anything under a key that begins
    with LOST is a failure.
    """
    chance = random.Random(seed)
    found: Counter[str] = Counter()
    home = Path(tempfile.mkdtemp(prefix="helix-turn-"))
    try:
        for trial in range(count):
            if trial % GENERATIONS == 0:
                shutil.rmtree(home, ignore_errors=True)
                asyncio.run(_begin(home))
            told_of = killed(home, chance)
            found["kills"] += 1
            for line in asyncio.run(_after(home, told_of, found)):
                found[f"LOST in trial {trial}: {line}"] += 1
    finally:
        shutil.rmtree(home, ignore_errors=True)
    return found


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home / "home")
    return Workbenches(where, SecretStorage(where.key_file, environ={}), clock=ClockWithoutPauses())


async def _begin(home: Path) -> None:
    create_tour_folder(home / "folder")
    desk = _desk(home)
    bench = await desk.create_workspace("Killed", home / "folder")
    await bench.choose_model_for_role(MODEL)
    await bench.choose_permission_mode("allow all")
    await bench.start_conversation("Killed")
    await desk.aclose()


async def _opened(desk: Workbenches) -> tuple[Workbench, Session]:
    bench = await desk.open_workspace("Killed")
    (row,) = bench.list_conversations()
    return bench, await bench.open_session(row.id)


def killed(home: Path, chance: random.Random) -> list[str]:
    """Let it work and kill it after a while; the seqs it told of."""
    words = chance.sample(WORDS, 3)

    def work(say: Say) -> None:
        asyncio.run(_work(home, words, say))

    child, reading = in_child(work)
    if chance.random() < 0.9:
        select.select([reading], [], [], 10)
    time.sleep(LONGEST * chance.random() ** 2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return told(reading)


async def _work(home: Path, words: list[str], say: Say) -> None:
    _, session = await _opened(_desk(home))

    def hear(event: Event) -> None:
        if isinstance(event, FactAppended):
            say(str(event.recorded.seq))

    session.subscribe_to_events(hear)
    for text in words:
        session.send_message((Text(text),))
    await session.wait_until_idle()
    await asyncio.Event().wait()


async def _after(home: Path, told_of: list[str], found: Counter[str]) -> list[str]:
    """What is wrong after the kill: with the facts, their content, the next request,
    and going on.
    """
    desk = _desk(home)
    try:
        bench, session = await _opened(desk)
        last = session.conversation.state.seq
        wrong = [f"fact {seq} was told and is gone" for seq in told_of if int(seq) > last]
        wrong += [line async for line in _missing(bench, session)]
        wrong += [
            f"the next request is illegal: {what}"
            for what in request_building.find_violations(await session.context.rebuild_request())
        ]
        broken_off = session.conversation.state.branch.turn.running
        found["turns broken off"] += broken_off
        session.resume_turn() if broken_off else session.send_message((Text("hello"),))
        await asyncio.wait_for(session.wait_until_idle(), 60)
        if not isinstance(session.all_facts[-1].fact, TurnEnded):
            wrong.append("the turn did not go on to its end")
    except HelixError as error:
        return [f"it does not open: {error}"]
    else:
        return wrong
    finally:
        await desk.aclose()


async def _missing(bench: Workbench, session: Session) -> AsyncIterator[str]:
    digests = {r.fact.output.digest for r in session.all_facts if isinstance(r.fact, ToolReturned)}
    digests |= {
        digest for r in session.all_facts if isinstance(r.fact, Folded) for digest in r.fact.entries
    }
    for digest in digests:
        try:
            await bench.workspace.cache.read_content(digest)
        except HelixError as error:
            yield f"{digest.short_hex} is referred to and not there: {error}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return report(
        "turn_kill", given.seed, lambda found: found.update(trials(given.trials, given.seed))
    )


if __name__ == "__main__":
    raise SystemExit(main())
