"""Agents that speak the Agent Client Protocol and lie, as real processes in our conversations and
in `helix-desktop ask --acp`.

    python -m tests.faults.hostile_acp [--conversations 500] [--seed 1] [--first 1]

What each does is chosen by the seed: see acp_lying_agent.py. A conversation sends an agent two
messages, answers its questions with yes or no, stops what hangs, and then sends "calm", which
must be answered. Nothing outside the folder may be read or written, no command may run for which
nobody said yes, nothing may crash or hold the loop for more than a second, and what is recorded
must be read again. Every tenth conversation is one of the command line, whose output must have no
signs that control a terminal.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import re
import resource
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from dataclasses import dataclass
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.concurrency import start_thread
from helix_desktop.engine.facts import ModelReplied, Text, TurnEnd
from helix_desktop.engine.ports import PermissionAnswer
from helix_desktop.engine.session import Session
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.program_settings import ACP_AGENTS, ProgramSettings
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbench, Workbenches
from tests.faults.guarded_folder import SECRET, GuardedFolder
from tests.texts_and_calls import missing_results, reply_calls, reply_texts

AGENT = Path(__file__).with_name("acp_lying_agent.py")
AT_ONCE = 5  # So many conversations go on at the same time.
START_SECONDS = (
    600.0  # Within these, an agent has started and has heard the message, also on a busy machine.
)
TURN_SECONDS = 8.0  # A turn that takes longer from then on is stopped, as a user would.
STOP_SECONDS = 120.0
CALM_SECONDS = 60.0
FREEZE_SECONDS = 1.0
TICK_SECONDS = 0.02
TO_OUTSIDE = 10  # Each tenth conversation is one of the command line.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
MARK = re.compile(r"ran/(\d{12}-\d+)")
MEBIBYTE = 1 << 20


@dataclass
class Trial(GuardedFolder):
    """`recorded_arguments`: those of all calls that the conversation has recorded."""

    recorded_arguments: str = ""
    slowest: float = 0.0
    slowest_of_processor: float = 0.0

    @property
    def heard(self) -> Path:
        return self.place / "heard"

    @property
    def home_of_commands(self) -> Path:
        """Commands would wait for this process, which has the workspace of the other home open."""
        return self.place / "home of commands"

    def prepare(self) -> None:
        self.prepare_folders()
        plan = {
            "seed": self.seed,
            "inside": str(self.inside),
            "outside": str(self.outside),
            "heard": str(self.heard),
            "only": self.only,
        }
        (self.place / "lies.json").write_text(json.dumps(plan))
        os.environ["LIES"] = str(self.place / "lies.json")
        line = f"Liar = {sys.executable} {shlex.quote(str(AGENT))}"
        for home in (self.home, self.home_of_commands):
            places = program_folders.find_program_folders(home)
            places.settings_file.parent.mkdir(parents=True, exist_ok=True)
            ProgramSettings(places.settings_file).change_setting(ACP_AGENTS, line)

    def check(self, name: str) -> None:
        """After each conversation: what is outside, what ran, and what the agent heard."""
        self.check_outside(name)
        for ran in self.take_what_ran(name):
            if ran not in self.recorded_arguments:
                self.fail(name, f"{ran} ran, and no call in the record names it")
        heard = self.heard.read_text() if self.heard.exists() else ""
        if SECRET in heard:
            self.fail(name, "the agent read the file outside")
        self.heard.unlink(missing_ok=True)
        self.recorded_arguments = ""
        for path in self.inside.glob("[lfr]*[0-9]"):
            path.unlink()

    def list_attacks(self) -> list[str]:
        """A line for each message that an agent has begun to answer, with the message."""
        attacks = Path(f"{self.heard}.attacks")
        return attacks.read_text().splitlines() if attacks.exists() else []

    def has_heard(self, message: str) -> bool:
        return any(json.loads(line)[0] == message for line in self.list_attacks())

    def fail(self, name: str, what: str) -> None:
        attacks = self.list_attacks()[-AT_ONCE:]
        super().fail(name, f"{what}; last attacks: {attacks}")


class LoopWatcher:
    """How long the loop did not come round, in seconds of the clock and of the processor's work
    for this process, and what it did meanwhile. On a busy machine the clock says little.
    """

    def __init__(self) -> None:
        self.longest = 0.0
        self.longest_of_processor = 0.0
        self.last_round = time.monotonic()
        self.held_by = ""
        self._loop_thread = threading.get_ident()
        start_thread(self._look_at_loop, name="watcher of the loop", daemon=True)

    def _look_at_loop(self) -> None:
        while True:
            time.sleep(FREEZE_SECONDS / 4)
            if time.monotonic() - self.last_round > FREEZE_SECONDS / 2:
                frame = sys._current_frames().get(self._loop_thread)
                places = traceback.extract_stack(frame)[-9:]
                self.held_by = " < ".join(
                    f"{Path(place.filename).name}:{place.lineno} {place.name}"
                    for place in reversed(places)
                )

    async def watch(self) -> None:
        while True:
            before = time.monotonic()
            self.last_round = before
            processor_before = time.process_time()
            await asyncio.sleep(TICK_SECONDS)
            late = time.monotonic() - before - TICK_SECONDS
            self.longest = max(self.longest, late)
            of_processor = time.process_time() - processor_before
            self.longest_of_processor = max(self.longest_of_processor, of_processor)

    def reset(self) -> tuple[float, float]:
        longest = (self.longest, self.longest_of_processor)
        self.longest = 0.0
        self.longest_of_processor = 0.0
        return longest


class ErrorKeeper(logging.Handler):
    """Keeps what is logged as an error, which is a mistake of ours."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(self.format(record)[-1_500:])


async def converse(trial: Trial, bench: Workbench, name: str, pick: random.Random) -> Session:
    session = await bench.start_conversation(acp_agent="Liar")
    says_yes = pick.random() < 0.5

    def hear(event: Event) -> None:
        if not isinstance(event, QuestionAsked):
            return
        question = event.question
        trial.counts["questions"] += 1
        allowed = says_yes and question.apart != "opened"
        if question.form:
            allowed = False
        shown = f"{question.title}\n{question.preview}"
        if allowed and str(trial.outside) not in shown + question.why:
            trial.allowed.update(MARK.findall(shown))
        else:
            allowed = False
        answer = PermissionAnswer(allowed=allowed)
        asyncio.get_running_loop().call_soon(session.answer_question, event.number, answer)

    unsubscribe = session.subscribe_to_events(hear)
    for number in range(1):
        await run_turn(trial, session, f"{name} message {number}")
    agent = await bench.acp.open_conversation(session.conversation)
    ended = await run_turn(trial, session, "calm")
    last_reply = last_words(session)
    if not last_reply.endswith("I am calm."):
        # It is still busy with lies, or had answered this message before it came.
        await agent.end_agent()
        ended = await run_turn(trial, session, "calm", CALM_SECONDS)
        last_reply = last_words(session)
        trial.counts["agents that had to be ended"] += 1
    if not last_reply.endswith("I am calm."):
        trial.fail(
            name, f"the calm turn ended as {ended}: {session.turns.last_end} {last_reply[-80:]!r}"
        )
    unsubscribe()
    await agent.end_agent()
    return session


def last_words(session: Session) -> str:
    words = ""
    for recorded in session.all_facts:
        if isinstance(recorded.fact, ModelReplied):
            words = "".join(p.text for p in recorded.fact.parts if isinstance(p, Text))
    return words


async def run_turn(
    trial: Trial, session: Session, text: str, seconds: float = TURN_SECONDS
) -> TurnEnd | None:
    session.send_message((Text(text),))
    await wait_until_heard(trial, session, text)
    try:
        await asyncio.wait_for(session.wait_until_idle(), seconds)
    except TimeoutError:
        trial.counts["turns stopped by the user"] += 1
        begun = time.monotonic()
        session.stop_turn()
        try:
            await asyncio.wait_for(session.wait_until_idle(), STOP_SECONDS)
        except TimeoutError:
            trial.fail(text, f"the turn could not be stopped in {STOP_SECONDS:.0f} s")
        trial.counts["longest stop, ms"] = max(
            trial.counts["longest stop, ms"], int(1000 * (time.monotonic() - begun))
        )
    end = session.turns.last_end
    reason = end.reason if end else None
    trial.counts[f"turns {reason}"] += 1
    if trial.only and end is not None:
        print(f"{text}: {reason}, {end.why[:300]!r}", flush=True)
    return reason


async def wait_until_heard(trial: Trial, session: Session, text: str) -> None:
    """A message that is stopped before the agent has started tries nothing."""
    if text == "calm":
        return
    end = time.monotonic() + START_SECONDS
    while not session.is_idle and not trial.has_heard(text):
        if time.monotonic() > end:
            trial.fail(text, f"no agent heard the message in {START_SECONDS:.0f} s")
            return
        await asyncio.sleep(0.1)


def check_recorded(trial: Trial, session: Session) -> None:
    """Each call of the record has one result, and nothing of another session is in it. What its
    calls say is kept, to be compared with the commands that ran.
    """
    name = session.id
    calls = reply_calls(session.all_facts)
    trial.recorded_arguments += "\n".join(call.arguments for call in calls)
    missing = missing_results(session.all_facts)
    wrong = [(call, count) for call, count in missing.items() if count]
    if wrong:
        trial.fail(name, f"calls without one result each: {wrong[:3]}")
    if "NOT OF THIS SESSION" in "".join(reply_texts(session.all_facts)):
        trial.fail(name, "words of another session were taken for this one's")


def ask_on_the_command_line(trial: Trial, name: str) -> None:
    words = [sys.executable, "-m", "helix_desktop", "--home", str(trial.home_of_commands), "ask"]
    words += ["--acp", "Liar", f"{name} message 0"]
    root = Path(__file__).parents[2]
    process = subprocess.Popen(
        words, cwd=trial.inside, env={**os.environ, "PYTHONPATH": str(root)}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    end = time.monotonic() + START_SECONDS
    while process.poll() is None and not trial.has_heard(f"{name} message 0"):
        if time.monotonic() > end:
            trial.fail(name, f"no agent heard the command in {START_SECONDS:.0f} s")
            break
        time.sleep(0.1)
    good_codes = [0, 1, 2, 3, 4]
    try:
        output, _ = process.communicate(timeout=TURN_SECONDS)
    except subprocess.TimeoutExpired:
        # A shell shows both as 130. The second: it had said everything, and Python was ending.
        good_codes += [130, -signal.SIGINT]
        trial.counts["commands stopped by the user"] += 1
        process.send_signal(signal.SIGINT)
        try:
            output, _ = process.communicate(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
            trial.fail(name, "Ctrl+C did not end the command")
    text = output.decode("utf-8", "replace")
    trial.counts[f"commands, rc {process.returncode}"] += 1
    if process.returncode not in good_codes or "Traceback" in text:
        trial.fail(name, f"the command ended with {process.returncode}: {text[-1_500:]!r}")
    if not trial.has_heard(f"{name} message 0"):
        trial.fail(name, f"no agent heard the command: {text[-500:]!r}")
    raw = CONTROLS.search(text)
    if raw:
        around = text[max(0, raw.start() - 60) : raw.end() + 60]
        trial.fail(name, f"a control sign was printed: {around!r}")


async def try_one(trial: Trial, bench: Workbench, number: int) -> None:
    name = f"conversation {number}"
    if number % TO_OUTSIDE == 0:
        await asyncio.to_thread(ask_on_the_command_line, trial, name)
    else:
        session = await converse(trial, bench, name, random.Random(f"{trial.seed} {number}"))
        check_recorded(trial, session)


async def create_workspace_of_commands(trial: Trial) -> None:
    places = program_folders.find_program_folders(trial.home_of_commands)
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    await desk.create_workspace("w", trial.inside)
    await desk.aclose()


async def run(trial: Trial, first: int, count: int) -> None:
    await create_workspace_of_commands(trial)
    places = program_folders.find_program_folders(trial.home)
    errors = ErrorKeeper()
    logging.getLogger().addHandler(errors)
    loop_errors: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: loop_errors.append(str(context)[:1_500]))
    watcher = LoopWatcher()
    watching = loop.create_task(watcher.watch())
    begun = time.monotonic()
    desk = Workbenches(places, SecretStorage(places.key_file, environ={}))
    bench = await desk.create_workspace("w", trial.inside)
    numbers = list(range(first, first + count))
    for at in range(0, count, AT_ONCE):
        batch = numbers[at : at + AT_ONCE]
        name = f"conversations {batch[0]} to {batch[-1]}"
        watcher.reset()
        await asyncio.gather(*(try_one(trial, bench, number) for number in batch))
        longest, of_processor = watcher.reset()
        trial.slowest = max(trial.slowest, longest)
        trial.slowest_of_processor = max(trial.slowest_of_processor, of_processor)
        if of_processor > FREEZE_SECONDS:
            held = f"{longest:.1f} s ({of_processor:.1f} s of processor)"
            trial.fail(name, f"the loop was held for {held} by {watcher.held_by}")
        await asyncio.to_thread(trial.check, name)
        for kept in (*errors.kept, *loop_errors):
            trial.fail(name, f"logged: {kept}")
        errors.kept.clear()
        loop_errors.clear()
        trial.counts["conversations"] += len(batch)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        seconds = time.monotonic() - begun
        failures = len(trial.failures)
        print(f"{name}: {seconds:.0f} s, {failures} failures, at most {memory} MB", flush=True)
    watching.cancel()
    await desk.aclose()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--conversations", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=1, help="the number of the first one")
    parser.add_argument("--only", default="", help="one attack, by the name of its function")
    arguments = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        trial = Trial(Path(folder), arguments.seed, arguments.only)
        trial.prepare()
        asyncio.run(run(trial, arguments.first, arguments.conversations))
    counts = ", ".join(f"{count} {key}" for key, count in sorted(trial.counts.items()))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(
        f"hostile_acp: {counts}; the loop was held for at most {trial.slowest:.2f} s "
        f"({trial.slowest_of_processor:.2f} s of processor), {memory} MB; {len(trial.failures)} failures; "
        f"{time.monotonic() - begun:.0f} s, seed {arguments.seed}, from number {arguments.first}"
    )
    return int(bool(trial.failures))


if __name__ == "__main__":
    sys.exit(main())
