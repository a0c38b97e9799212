"""Clocks that are set forward and back, by seconds and by decades, while everything works: nothing
is lost, no length is negative or absurd, nothing waits for ever and nothing lives longer.

Each story has a computer whose clock is set at any moment, and real time that passes all the same.
The last kind of story is the whole program under `libfaketime`, with a clock that is set between
its commands and while they run.

python -m tests.faults.clock_jumps [--stories 2000] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.engine import context_usage
from helix_desktop.engine.context_policy import preset_policy
from helix_desktop.engine.facts import (
    ConversationStarted,
    Folded,
    FoldKind,
    ModelReplied,
    ModelRole,
    ModelSet,
    Recorded,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Reply, Request
from helix_desktop.engine.ports import CallContext, PermissionAnswer, PermissionQuestion
from helix_desktop.engine.session_events import Event, QuestionAsked
from helix_desktop.errors import ActionRefused
from helix_desktop.gui.common.figure_formats import format_short_day, format_time_ago
from helix_desktop.gui.frame.conversation_list import (
    ConversationGroupHeading,
    format_age,
    group_conversations,
)
from helix_desktop.histories.daily_read_check import seconds_until_check
from helix_desktop.phone_page.paired_devices import CODE_SECONDS, PairedDevices
from helix_desktop.resident.schedules import WorkSchedule
from helix_desktop.store.async_stores import StoreJournal
from helix_desktop.store.content_age import EntryTimes
from helix_desktop.store.fleet_task_files import SqliteTaskTables
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskResult,
    FleetTaskState,
    NewFleetTask,
    TaskRetention,
)
from helix_desktop.store.journal_backups import create_backup, is_backup_due, list_backups
from helix_desktop.store.journal_file import JournalFile
from helix_desktop.store.store_thread import StoreThread
from helix_desktop.tools.timed_allowance import SECONDS_OF_ALLOWANCE, TimedAllowance
from helix_desktop.workbench.conversation_list_rows import ConversationListRows
from helix_desktop.workbench.times_of_last_use import TimesOfLastUse
from tests.engine.agent import SteppedClock, calls, says, told, world
from tests.engine.keeping import good, keeping
from tests.engine.talk import Talk
from tests.engine.test_automatic_folding import worked
from tests.faults.store_report import report

NOW = 1_790_000_000.0  # In September 2026.
HOUR = 3_600.0
DAY = 86_400.0
YEAR = 365.25 * DAY
LIFETIME = 300  # Seconds of a provider's cache.
RETENTION_DAYS = 30
FAKETIME = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1")
# What a clock is wrong by: a year, summer time, the days before 1970 and after 2038, and little.
WRONG_BY = (YEAR, -YEAR, HOUR, -HOUR, 60 - NOW, 13 * YEAR, 40 * YEAR, 20.0, -20.0, 0.4, -0.4)


@dataclass
class Computer:
    """`passed`: seconds that really passed; `wrong_by`: how far its clock is off."""

    chance: random.Random
    passed: float = 0.0
    wrong_by: float = 0.0
    jumps: int = 0

    def date(self) -> float:
        return NOW + self.passed + self.wrong_by

    def steady(self) -> float:
        return 1_000.0 + self.passed

    def set_clock(self) -> None:
        self.jumps += 1
        self.wrong_by = self.chance.choice(WRONG_BY)

    def maybe_set_clock(self, likelihood: float = 0.3) -> None:
        """It is set, or set right again."""
        if self.chance.random() < likelihood:
            self.set_clock()
        elif self.chance.random() < likelihood:
            self.wrong_by = 0.0


# --- Lengths


def tell_turn(computer: Computer, _folder: Path) -> None:
    """A call with a question, and a reply: their lengths are what really passed."""
    asyncio.run(_told_turn(computer))


async def _told_turn(computer: Computer) -> None:
    chance = computer.chance
    at = await world(calls("look"))
    clock = at.session._services.clock
    assert isinstance(clock, SteppedClock)
    clock.time = NOW

    def jump() -> None:
        computer.set_clock()
        clock.time = NOW + clock.passed + computer.wrong_by

    seconds = [chance.randrange(1, 500) for _ in range(3)]

    async def look(call: ToolCall, context: CallContext) -> str:
        jump()
        await context.ask(PermissionQuestion(call, "Look", "look"))
        await clock.sleep_seconds(seconds[1])
        jump()
        return "seen"

    def think(event: Event) -> None:
        if isinstance(event, QuestionAsked):
            clock.pass_seconds(seconds[0])
            jump()
            at.session.answer_question(event.number, PermissionAnswer(allowed=True))

    async def reply(request: Request) -> Reply:
        jump()
        await clock.sleep_seconds(seconds[2])
        jump()
        return says("done")

    at.session.subscribe_to_events(think)
    at.tools.runs = {"look": look}
    at.model.script.append(reply)
    await told(at)
    assert [result.seconds for result in at.of(ToolReturned)] == [seconds[1]]
    assert [replied.seconds for replied in at.of(ModelReplied)] == [0, seconds[2]]


def tell_fold(computer: Computer, _folder: Path) -> None:
    asyncio.run(_told_fold(computer))


async def _told_fold(computer: Computer) -> None:
    seconds = computer.chance.randrange(1, 90)

    def write(request: Request) -> str:
        computer.set_clock()
        kept.clock.pass_seconds(seconds)
        kept.clock.time = NOW + computer.wrong_by
        return good(request)

    kept = await keeping(window=1_000_000, handover_writer="main")
    kept.clock.time = NOW
    await kept.say("the task")
    await worked(kept, 14, 300)
    kept.writers["main"].answer = write
    (recorded,) = await kept.folding.fold_on_demand(FoldKind.HANDOVER)
    assert isinstance(recorded.fact, Folded)
    assert recorded.fact.seconds == seconds


# --- What ends by itself


def tell_cache(computer: Computer, _folder: Path) -> None:
    """The price of a warm cache is shown for no longer than the provider keeps it."""
    talk = Talk()
    chosen = ModelSet(
        ModelRole.MAIN, "m", 1_000_000, 0, 3.0, 15.0, 0.3, 3.75, cache_seconds=LIFETIME
    )
    talk.add(chosen, after=NOW)
    talk.user("go", tokens=1_000)
    talk.reply("yes", model="m", billed=talk.state.counted_tokens)
    policy = preset_policy("layered")
    used_at = talk.state.time_of_moment
    price = context_usage.estimate_next_message_cost(talk.state, policy)
    assert price is not None
    for passed in (0.0, 10.0, 2 * LIFETIME, DAY):
        computer.set_clock()
        now = used_at + passed + computer.wrong_by
        left = price.warm_seconds_left(now)
        assert left <= LIFETIME, f"warm for another {left:.0f} s"
        is_cold = context_usage.is_cache_cold(talk.state, now)
        assert is_cold == (price.cost_when_sent(now) == price.cold) or left == 0
        if abs(computer.wrong_by) < 1 and passed == 10.0:
            assert price.cost_when_sent(now) == price.warm
        if abs(computer.wrong_by) >= HOUR or passed >= 2 * LIFETIME:
            assert price.cost_when_sent(now) == price.cold


def tell_pairing(computer: Computer, folder: Path) -> None:
    """A code works within ten minutes and never later, whoever sets the clock however often."""
    devices = PairedDevices(folder, computer.date, computer.steady)
    code = devices.create_pairing_code(may_allow=True)
    passed = 0.0
    was_set = False
    for _ in range(computer.chance.randrange(1, 6)):
        step = computer.chance.choice([5.0, 200.0, 595.0, HOUR, DAY])
        computer.passed += step
        passed += step
        before = computer.wrong_by
        computer.maybe_set_clock(0.5)
        was_set = was_set or computer.wrong_by != before
    try:
        PairedDevices(folder, computer.date, computer.steady).pair_device(code, "A")
    except ActionRefused:
        assert was_set or passed > CODE_SECONDS, "a good code was refused"
        again = devices.create_pairing_code(may_allow=True)
        devices.pair_device(again, "B")  # No lock-out: a new code works.
        return
    assert passed <= CODE_SECONDS, f"a code worked after {passed:.0f} s"


def tell_allowance(computer: Computer, _folder: Path) -> None:
    """Everything is allowed for no longer than an hour, and once it is over, it stays so."""
    allowance = TimedAllowance(computer.date, computer.steady)
    allowance.begin_hour()
    begun = computer.passed
    is_over = False
    for _ in range(8):
        computer.passed += computer.chance.choice([10.0, 900.0, HOUR])
        computer.maybe_set_clock()
        is_running = allowance.is_hour_running()
        assert not (is_running and computer.passed - begun >= SECONDS_OF_ALLOWANCE)
        assert not (is_running and is_over), "it came back"
        is_over = is_over or not is_running


def tell_lease(computer: Computer, folder: Path) -> None:
    """The task of a killed worker runs again, and one that was given back is tried again."""
    asyncio.run(_told_lease(computer, folder))


async def _told_lease(computer: Computer, folder: Path) -> None:
    tables = SqliteTaskTables(folder / "tasks.sqlite3")
    try:
        tasks = tables.open_list_in_file()
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("a"))])
        (first,) = await tasks.claim_fleet_tasks("one", 9, 30)
        is_killed = computer.chance.random() < 0.5
        if not is_killed:
            await tasks.give_back_after_setback(first, FleetTaskResult())
        await tasks.notes.renew_worker_and_tell_if_draining("one", 30)
        computer.set_clock()
        # Half an hour later, by a clock that is wrong now.
        _move_times(folder, HOUR / 2 + computer.wrong_by)
        state = await tasks.notes.read_state()
        next_claims = await tasks.claim_fleet_tasks("two", 9, 30)
        if computer.wrong_by > -HOUR:
            assert list(state.workers) == [], "a killed worker counts as alive"
        if computer.wrong_by < -DAY or computer.wrong_by > -HOUR / 3:
            assert [task.claims for task in next_claims] == [2], "nobody does the task"
    finally:
        tables.close()


def tell_ended_tasks(computer: Computer, folder: Path) -> None:
    """What ended within the last weeks is not removed as old."""
    asyncio.run(_told_ended_tasks(computer, folder))


async def _told_ended_tasks(computer: Computer, folder: Path) -> None:
    tables = SqliteTaskTables(folder / "tasks.sqlite3")
    try:
        tasks = tables.open_list_in_file()
        forward = computer.chance.choice([YEAR, 13 * YEAR, 40 * YEAR])
        for _ in range(computer.chance.randrange(1, 4)):
            await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("a"))])
            for task in await tasks.claim_fleet_tasks("one", 9, 30):
                await tasks.end_fleet_task(task, FleetTaskState.DONE, FleetTaskResult())
            if computer.jumps < 3 and computer.chance.random() < 0.7:
                computer.jumps += 1
                _move_times(folder, forward)
            removed = await tasks.remove_old_tasks(TaskRetention())
            assert removed == 0, f"{removed} tasks of today were removed as old"
    finally:
        tables.close()


def _move_times(folder: Path, seconds: float) -> None:
    """Make all that is in the list so much older, as if that time had passed on the clock."""
    with closing(sqlite3.connect(folder / "tasks.sqlite3")) as connection, connection:
        connection.execute("UPDATE tasks SET until = until - ? WHERE until > 0", (seconds,))
        connection.execute("UPDATE tasks SET added = added - ?", (seconds,))
        connection.execute("UPDATE notes SET until = until - ? WHERE until > 0", (seconds,))
        connection.execute("UPDATE ended_tasks SET ended = ended - ?", (seconds,))


def tell_contents(computer: Computer, _folder: Path) -> None:
    """Contents that were stored within their retention are not certainly old."""
    stored: list[tuple[float, float]] = []  # What the clock said, and what really had passed.
    for _ in range(60):
        computer.passed += computer.chance.choice([60.0, HOUR, DAY])
        if computer.jumps < 3:
            computer.maybe_set_clock(0.03)
        stored.append((computer.date(), computer.passed))
    times = EntryTimes(computer.date())
    at_the_earliest = [times.note_entry_time(recorded) for recorded, _ in stored]
    times.end_with_present()
    for recorded, (_, passed) in zip(at_the_earliest, stored, strict=True):
        real_days = (computer.passed - passed) / DAY
        if real_days < RETENTION_DAYS - 1:
            assert times.certain_age_seconds(recorded) < RETENTION_DAYS * DAY


# --- What comes back by itself


def tell_schedule(computer: Computer, _folder: Path) -> None:
    """Each day of the clock has one run at most, no jump brings hundreds of them, and once the
    clock is right again, the next day has its run.
    """
    schedule = WorkSchedule("s", "w", "text", "08:00", "Europe/Berlin", handled=computer.date())
    runs: set[str] = set()
    dates = 0
    for _ in range(40):
        computer.passed += computer.chance.choice([60.0, HOUR, 6 * HOUR, DAY])
        computer.maybe_set_clock(0.1)
        dates += 1
        schedule, due = schedule.advance_past_due(computer.date())
        if due:
            # A due time that comes again after the clock was set back has the same key, with which its
            # task is added once.
            runs.add(schedule.task_key(due))
        assert schedule.next_due(computer.date()) - computer.date() <= 2 * DAY
    assert len(runs) <= dates
    computer.wrong_by = 0.0
    schedule, _ = schedule.advance_past_due(computer.date())
    done = 0
    for _ in range(3 * 24):
        computer.passed += HOUR
        schedule, due = schedule.advance_past_due(computer.date())
        done += bool(due)
    assert 2 <= done <= 3, f"{done} runs in three days"


def tell_backups(computer: Computer, folder: Path) -> None:
    """The backups of the last days stay, and new ones are made each day."""
    journal = folder / "journal.sqlite3"
    JournalFile(journal).close()
    made: list[Path] = []
    for _ in range(7):
        computer.passed += DAY
        made.append(create_backup(folder, now=computer.date()).path)
    for _ in range(3):
        computer.set_clock()
        computer.passed += HOUR
        create_backup(folder, now=computer.date())
    kept = {backup.path for backup in list_backups(folder)}
    lost = [path.name for path in made[1:] if path not in kept]
    assert len(lost) <= 3, f"the backups of {lost} were deleted"
    computer.wrong_by = 0.0
    computer.passed += 2 * DAY
    os.utime(journal, (computer.date(), computer.date()))
    assert is_backup_due(folder, computer.date()), "no backup is made any more"


def tell_daily_check(computer: Computer, _folder: Path) -> None:
    for _ in range(10):
        finished_at = computer.date()
        computer.passed += computer.chance.choice([60.0, HOUR, DAY])
        computer.maybe_set_clock()
        assert 0 <= seconds_until_check(finished_at, computer.date()) <= DAY


# --- Orders and dates


def tell_list(computer: Computer, folder: Path) -> None:
    """The list follows what happened last, live and after each start, under headings in order."""
    asyncio.run(_told_list(computer, folder))


async def _told_list(computer: Computer, folder: Path) -> None:
    chance = computer.chance
    file = JournalFile(folder / "journal.sqlite3", now=computer.date)
    thread = StoreThread("store")
    rows = ConversationListRows(StoreJournal(file, thread, lambda: None, lambda: None))
    rows._times = TimesOfLastUse(computer.date, computer.steady)
    used: list[str] = []
    said: Counter[str] = Counter()
    try:
        for _ in range(25):
            computer.passed += chance.choice([1.0, 60.0, HOUR, DAY])
            computer.maybe_set_clock(0.15)
            name = f"c{chance.randrange(8)}"
            facts = [UserSaid((Text("go", 1),))]
            if name not in used:
                started = ConversationStarted(name)
                (recorded,) = file.append_all_or_nothing(name, [started])
                rows.add_new_row(name, started, recorded.time)
                rows.update_row_with_fact(recorded, None)
            for recorded in file.append_all_or_nothing(name, facts):
                rows.update_row_with_fact(recorded, None)
            said[name] += 1
            used = [one for one in used if one != name] + [name]
            if chance.random() < 0.15:
                rows._times = TimesOfLastUse(computer.date, computer.steady)
                await rows.read_all_rows()
            _check_list(rows, used, computer.date())
        for name, count in said.items():
            assert len(file.read_recorded(name)) == count + 1, "a fact is missing"
    finally:
        await thread.aclose()
        file.close()


def _check_list(rows: ConversationListRows, used: list[str], now: float) -> None:
    lines = group_conversations(list(rows), now=now)
    listed = [line.id for line in lines if not isinstance(line, ConversationGroupHeading)]
    assert listed == used[::-1], f"{listed} instead of {used[::-1]}"
    for row in rows:
        assert row.updated <= now + 61, "it is said to be of the future"


def tell_dates(computer: Computer, _folder: Path) -> None:
    """No date is said with a minus, an error or a day of this week that is not of this week."""
    for _ in range(20):
        moment = computer.date()
        computer.passed += computer.chance.choice([0.0, 60.0, HOUR, 3 * DAY])
        computer.maybe_set_clock(0.5)
        now = computer.date()
        for words in (format_age(moment, now), format_time_ago(moment, now)):
            assert words
            assert "-" not in words, words
        day = format_short_day(moment, now)
        if abs(now - moment) > 7 * DAY:
            assert any(letter.isdigit() for letter in day), f"{day} is {now - moment:.0f} s ago"


# --- The whole program, seen from outside


def tell_program(computer: Computer, folder: Path) -> None:
    """Turns of the demonstration under clocks of which each is another one: all are there, each took
    seconds, and the conversations are in order for whoever opens the workspace then.
    """
    shift = folder / "clock"
    home = folder / "home"
    project = folder / "project"
    project.mkdir()
    environment = {
        **os.environ,
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME_TIMESTAMP_FILE": str(shift),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }

    def run(*words: str) -> str:
        computer.set_clock()
        shift.write_text(f"{computer.wrong_by:+.1f}")
        command = [sys.executable, "-m", "helix_desktop", "--home", str(home), *words]
        with subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                process.communicate(timeout=computer.chance.random())
            except subprocess.TimeoutExpired:
                computer.set_clock()  # While it runs.
                shift.write_text(f"{computer.wrong_by:+.1f}")
            out, errors = process.communicate(timeout=300)
        assert process.returncode == 0, f"{words}: {errors[-600:]}"
        return out

    run("workspace", "new", "Clock", "--folder", str(project))
    ids: list[str] = []
    for number in range(3):
        out = run("ask", "-w", "Clock", "-m", "demo/demo", "--json", f"Say {number}")
        last = json.loads(out.strip().splitlines()[-1])
        ids.append(str(last["conversation"]))
    (journal_path,) = home.rglob("journal.sqlite3")
    with closing(JournalFile(journal_path)) as journal:
        facts: list[Recorded] = []
        for name in dict.fromkeys(ids):
            facts += journal.read_recorded(name)
    lengths = [
        each.fact.seconds for each in facts if isinstance(each.fact, ModelReplied | ToolReturned)
    ]
    assert len(lengths) >= 3, "a turn is missing"
    assert all(0 <= seconds < 600 for seconds in lengths), lengths


Story = Callable[[Computer, Path], None]
STORIES: tuple[tuple[str, Story], ...] = (
    ("turns", tell_turn),
    ("folds", tell_fold),
    ("caches", tell_cache),
    ("codes", tell_pairing),
    ("allowances", tell_allowance),
    ("leases", tell_lease),
    ("ended tasks", tell_ended_tasks),
    ("contents", tell_contents),
    ("schedules", tell_schedule),
    ("backups", tell_backups),
    ("daily checks", tell_daily_check),
    ("lists", tell_list),
    ("dates", tell_dates),
)
PROGRAM_EVERY = 100  # Of so many stories, one is of the whole program, as it takes long.


def trials(count: int, seed: int, found: Counter[str]) -> None:
    with_program = FAKETIME.exists() and shutil.which("faketime") is not None
    for number in range(count):
        name, story = STORIES[number % len(STORIES)]
        if with_program and number % PROGRAM_EVERY == PROGRAM_EVERY - 1:
            name, story = "programs", tell_program
        computer = Computer(random.Random(f"{seed} {number}"))
        with tempfile.TemporaryDirectory(prefix="helix-clock-") as folder:
            try:
                story(computer, Path(folder))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is a failure of the story
                found[f"LOST {name}, story {number}: {type(error).__name__}: {error}"] += 1
        found[name] += 1
        found["stories"] += 1
        found["jumps"] += computer.jumps


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--stories", type=int, default=2_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return report("clock_jumps", given.seed, lambda found: trials(given.stories, given.seed, found))


if __name__ == "__main__":
    sys.exit(main())
