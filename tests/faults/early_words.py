"""Words typed while the program starts, by a real keyboard, with Enter and SIGKILL at
random moments: none may be lost.

    python -m tests.faults.early_words [--starts 200] [--seed 1]

Each start types numbered words from the moment the window has the keyboard. Afterwards
each word is looked for where a user would: in the messages, those that wait and the draft of the
conversation that was shown. A failure is a word that is not there, or anywhere else. Of
a program that was killed, words typed in its last second are not asked for. A witness
in the program's process (key_witness.py) hears each press before Qt does: what the X
server never brought there, or brought otherwise, is counted for itself. Needs Xvfb,
openbox and xdotool.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.gui import screen as screens
from tests.gui.screen import Screen, program, wait_for

TITLE = "Helix Desktop"
WORKSPACES = 3
CONVERSATIONS = 4
WORD = re.compile(r"w\d+x\d+q")
# of the keycodes of a usual keyboard
CHARACTERS = {
    **dict(zip(range(10, 20), "1234567890", strict=True)),
    24: "q",
    25: "w",
    36: "\n",
    53: "x",
    65: " ",
}
MOST_UNBROUGHT = 50  # one word in so many; more would be a keyboard that says nothing of the window
LATE = 1.0  # seconds a word may take to the disk
SLOW = 3.0  # the same where the computer is busy


def prepare(home: Path) -> tuple[str, str]:
    """Workspaces with conversations; one of them was open last."""

    async def make() -> tuple[str, str]:
        where = program_folders.find_program_folders(home)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        last = ("", "")
        for number in range(WORKSPACES):
            folder = home.parent / f"folder{number}"
            folder.mkdir()
            bench = await desk.create_workspace(f"workspace {number}", folder)
            await bench.choose_model_for_role("demo/demo")
            for title in range(CONVERSATIONS):
                session = await bench.start_conversation(f"conversation {title}")
                await session.set_title(f"conversation {title}")
                last = (bench.id, session.id)
        await desk.aclose()
        return last

    workspace, conversation = asyncio.run(make())
    kept = {"workspace": workspace, f"conversation/{workspace}": conversation}
    (home / "window.json").write_text(json.dumps(kept))
    return workspace, conversation


def type_words(on: Screen, run: int, chance: random.Random, seconds: float) -> dict[str, float]:
    """Words with pauses as a person makes them; when each was finished."""
    typed: dict[str, float] = {}
    until = time.monotonic() + seconds
    number = 0
    while time.monotonic() < until:
        word = f"w{run}x{number}q"
        on.run("xdotool", "type", "--delay", "12", f"{word} ")
        typed[word] = time.monotonic()
        number += 1
        if chance.random() < 0.2:
            on.run("xdotool", "key", "Return")
        time.sleep(chance.random() * 0.15)
    return typed


def brought_words(log: Path) -> set[str]:
    """What the X server brought to the program's process."""
    typed = (
        "".join(CHARACTERS.get(int(code), "?") for code in log.read_text().split())
        if log.exists()
        else ""
    )
    return set(WORD.findall(typed))


def texts_in(home: Path) -> Iterator[tuple[str, str]]:
    """Every text a user typed, and its conversation."""
    for journal in sorted(home.glob("workspaces/*/journal.sqlite3")):
        with sqlite3.connect(f"file:{journal}?mode=ro", uri=True) as connection:
            for conversation, fact in connection.execute(
                "SELECT conversation, fact FROM facts WHERE fact LIKE '%UserSaid%'"
            ):
                yield fact, conversation
    # Messages that were sent while the agent worked on an earlier one.
    for waiting in sorted(home.glob("workspaces/*/*/*.queue")):
        yield waiting.read_text(), waiting.stem
    for path, value in json.loads((home / "window.json").read_text()).items():
        kind, _, place = path.partition("/")
        if kind in ("draft", "waiting"):
            yield json.dumps(value), place.split("/")[-1]


def found_in(home: Path) -> dict[str, set[str]]:
    """Every word there is, and the conversations where it is."""
    found: dict[str, set[str]] = {}
    for text, conversation in texts_in(home):
        for word in WORD.findall(text):
            found.setdefault(word, set()).add(conversation)
    return found


def one_start(
    on: Screen, home: Path, log: Path, run: int, chance: random.Random, *, late: float
) -> tuple[set[str], str]:
    """The words that have to be there, and how the program ended."""
    seconds = 0.3 + chance.random() * 5
    killed = chance.random() < 0.4
    with program(
        on, home, within=(sys.executable, "-m", "tests.faults.key_witness", str(log))
    ) as process:
        wait_for("the window", lambda: TITLE in on.active(), 120)
        typed = type_words(on, run, chance, seconds)
        if killed:
            end = time.monotonic()
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(60)
            return {word for word, at in typed.items() if at < end - late}, "killed"
        wait_for("what is behind the window", lambda: "conversation" in on.active(), 120)
        time.sleep(0.5)
        process.send_signal(signal.SIGTERM)  # Ctrl+Q asks first while the agent works.
        process.wait(120)
        return set(typed), "closed"


def main() -> int:
    asked = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    asked.add_argument("--starts", type=int, default=200)
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--late", type=float, default=LATE)
    given = asked.parse_args()
    chance = random.Random(given.seed)
    found = Counter[str]()
    ends = Counter[str]()
    with tempfile.TemporaryDirectory() as folder, screens.screen() as on:
        home = Path(folder, "home")
        _, conversation = prepare(home)
        for run in range(given.starts):
            log = Path(folder, f"keys{run}")
            typed, end = one_start(on, home, log, run, chance, late=given.late)
            ends[end] += 1
            judge_start(home, conversation, f"w{run}x", typed, brought_words(log), found)
    wrong = {"lost": found["lost"], "elsewhere": found["elsewhere"]}
    words = found["words"]
    unbrought = found["unbrought"]
    print(
        f"{given.starts} starts ({dict(ends)}), {words} words, {wrong}, {unbrought} never reached the process"
    )
    has_failed = any(wrong.values()) or unbrought * MOST_UNBROUGHT > words
    return int(has_failed)


def judge_start(
    home: Path,
    conversation: str,
    begin: str,
    typed: set[str],
    brought: set[str],
    found: Counter[str],
) -> None:
    """Each word of this start that reached the process stands in the conversation, and only there.
    The words of a start have their own beginning.
    """
    needed = typed & brought
    unbrought = typed - needed
    mine = {word: places for word, places in found_in(home).items() if word.startswith(begin)}
    lost = needed - mine.keys()
    elsewhere = {word for word, places in mine.items() if places != {conversation}}
    found["words"] += len(needed)
    found["lost"] += len(lost)
    found["elsewhere"] += len(elsewhere)
    found["unbrought"] += len(unbrought)
    if lost or elsewhere:
        print(f"{begin}: {len(needed)} words, lost {sorted(lost)}, elsewhere {sorted(elsewhere)}")
        for _, text in texts_in(home):
            if begin in text:
                print(f"  {text}")
    if unbrought:
        print(f"{begin}: never reached the process {sorted(unbrought)}")


if __name__ == "__main__":
    sys.exit(main())
