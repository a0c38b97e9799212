"""The shared store is away for long while an agent works on: every turn goes on, and
when it is back all is caught up in order.

Two homes with real desks, keys and links share a workspace through a real PostgreSQL,
which is stopped. On the first home turns and contents follow each other, at the times
of a recorded session where one is named. Then the server starts again, and the second
home catches up: at every moment it must have a beginning of what the first has, and in
the end all of it, contents included.

python -m tests.faults.shared_away [--seconds 3600] [--trace FILE.jsonl, whose lines
have a "timestamp"] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from keyring.backends.fail import Keyring as NoKeyring

from helix_desktop import program_folders, program_settings
from helix_desktop.engine.facts import Text, TurnEnd, TurnEnded
from helix_desktop.engine.ports import EntryOrigin
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import HelixError, NotFound, SharedStoreUnreachable
from helix_desktop.secrets import SecretStorage
from helix_desktop.store.index_file import entries_used_by
from helix_desktop.workbench import Workbench, Workbenches
from tests.peers import postgres
from tests.scripted_tour import ClockWithoutPauses

PATIENCE = 120.0  # seconds to catch up
MEAN = 8.0  # seconds between two messages where no session is named
ASKED = ("read README.md", "read src/pairs.py", "what is in README.md?")


@dataclass
class Worked:
    """What was done on the first home."""

    session: Session
    before: list[float] = field(default_factory=list)  # seconds of each turn with the server
    away: list[float] = field(default_factory=list)
    digests: list[Digest] = field(default_factory=list)
    failed: int = 0


def moments(trace: Path | None, seconds: float, chance: random.Random) -> list[float]:
    """When something is written: the busiest stretch of this length of a recorded
    session, or times by chance.
    """
    if trace is None:
        found = []
        at = 0.0
        while (at := at + chance.expovariate(1 / MEAN)) < seconds:
            found.append(at)
        return found
    said = (
        json.loads(line).get("timestamp") for line in trace.read_text(encoding="utf-8").splitlines()
    )
    times = sorted(datetime.fromisoformat(one).timestamp() for one in said if one)
    begin = max(times, key=lambda one: sum(one <= other < one + seconds for other in times))
    return [one - begin for one in times if begin <= one < begin + seconds]


async def trial(
    server: postgres.Server,
    seconds: float,
    when: list[float],
    chance: random.Random,
    found: Counter[str],
) -> None:
    with tempfile.TemporaryDirectory(prefix="helix-shared-away-") as folder:
        work = Path(folder) / "work"
        (work / "src").mkdir(parents=True)
        (work / "README.md").write_text("Pairs\n" * 50)
        (work / "src/late.py").write_text("late = 1\n" * 70)
        (work / "src/pairs.py").write_text("def pairs(): ...\n" * 50)
        desks = [_desk(Path(folder) / name) for name in ("desktop", "laptop")]
        try:
            here = await desks[0].create_workspace("Pairs", work)
            await here.choose_model_for_role("demo/demo")
            await here.sharing_setup.start_sharing_at(server.url)
            assert here.workspace.link is not None
            await here.workspace.link.announce_and_send_missing()  # it is there for others
            there = await desks[1].join_workspace(
                server.url, await here.sharing_setup.read_key_for_joining(), "Pairs", work
            )
            await there.choose_model_for_role("demo/demo")
            done = Worked(await here.start_conversation())
            for _ in range(3):
                await _turn(done, done.before, chance)
            await _until(
                lambda: (
                    here.sharing.sharing_state.state
                    == there.sharing.sharing_state.state
                    == "in step"
                )
            )
            await asyncio.to_thread(server.stop)
            await _work(here, done, [*when, seconds], chance)
            found["state while away: " + here.sharing.sharing_state.state] += 1
            found["waited at the end"] += here.sharing.sharing_state.waiting
            await asyncio.to_thread(server.start)
            await _caught_up(here, there, done, found)
            await _go_on_there(server, here, there, done, found)
            _report(done, found)
        finally:
            for desk in desks:
                await desk.aclose()


def _desk(home: Path) -> Workbenches:
    where = program_folders.find_program_folders(home)
    home.mkdir()
    kept = program_settings.ProgramSettings(where.settings_file)
    kept.change_setting(program_settings.KEYS_IN_FILE, value=True)
    kept.change_setting(program_settings.MACHINE, value=home.name)
    return Workbenches(
        where,
        SecretStorage(where.key_file, environ={}, consent=lambda: True, keyring=NoKeyring),
        clock=ClockWithoutPauses(),
    )


async def _work(here: Workbench, done: Worked, when: list[float], chance: random.Random) -> None:
    begun = time.monotonic()
    for moment in when:
        await asyncio.sleep(max(0.0, begun + moment - time.monotonic()))
        stored = await here.workspace.cache.store_content(
            chance.randbytes(chance.choice((400, 3_000, 60_000))), EntryOrigin("shell", "make")
        )
        done.digests.append(stored.digest)
        await _turn(done, done.away, chance)


async def _turn(done: Worked, taken: list[float], chance: random.Random) -> None:
    begun = time.perf_counter()
    done.session.send_message((Text(chance.choice(ASKED)),))
    await asyncio.wait_for(done.session.wait_until_idle(), 60)
    taken.append(time.perf_counter() - begun)
    end = done.session.all_facts[-1].fact
    done.failed += not (isinstance(end, TurnEnded) and end.reason is TurnEnd.DONE)


async def _caught_up(here: Workbench, there: Workbench, done: Worked, found: Counter[str]) -> None:
    begun = time.monotonic()
    own = [(one.seq, one.time, one.fact) for one in done.session.all_facts]
    seen = await _arrived(there, done.session.id)
    while len(seen.all_facts) < len(own) and time.monotonic() < begun + PATIENCE:
        _compare(own, seen, found)
        await asyncio.sleep(0.02)
    _compare(own, seen, found)
    found["seconds until the facts are there"] = round(time.monotonic() - begun)
    await _until(
        lambda: here.sharing.sharing_state.state == there.sharing.sharing_state.state == "in step"
    )
    found["facts"] = len(own)
    found["facts there"] = len(seen.all_facts)
    found["LOST: facts"] += len(own) - len(seen.all_facts)
    found["LOST: views that differ"] += (
        seen.conversation.current_view() != done.session.conversation.current_view()
    )
    found["LOST: branches"] += len(here.sharing.synced_sessions.branch_by_conversation) + len(
        there.sharing.synced_sessions.branch_by_conversation
    )
    assert here.workspace.link is not None
    await here.workspace.link.send_waiting_content()
    for digest in done.digests:
        try:
            found["contents read there"] += (
                Digest.of_content(await there.workspace.cache.read_content(digest)) == digest
            )
        except HelixError as error:
            found[f"LOST: content, {error}"] += 1


async def _arrived(there: Workbench, conversation: str) -> Session:
    """It may not have come before the server stopped."""
    async with asyncio.timeout(PATIENCE):
        while True:
            with suppress(NotFound):
                return await there.open_session(conversation)
            await asyncio.sleep(0.05)


async def _go_on_there(
    server: postgres.Server, here: Workbench, there: Workbench, done: Worked, found: Counter[str]
) -> None:
    """The other machine has read live; then the server goes again, and the work goes on there."""
    done.session.send_message((Text("read src/late.py"),))
    await asyncio.wait_for(done.session.wait_until_idle(), 60)
    seen = await there.open_session(done.session.id)
    await _until(lambda: len(seen.all_facts) == len(done.session.all_facts))
    wanted = {
        digest for one in done.session.all_facts[-8:] for _, digest in entries_used_by(one.fact)
    }
    async with asyncio.timeout(PATIENCE):
        while await there.workspace.cache.find_missing_content(wanted):
            await asyncio.sleep(0.05)
    found["contents that came by themselves"] = len(wanted)
    await asyncio.to_thread(server.stop)
    with suppress(SharedStoreUnreachable):
        await there.sharing.take_over_conversation(done.session.id)
    taken = Worked(seen)
    await _turn(taken, taken.away, random.Random(1))
    found["LOST: turns there that failed"] += taken.failed


def _compare(own: Sequence[tuple[int, float, object]], seen: Session, found: Counter[str]) -> None:
    there = [(one.seq, one.time, one.fact) for one in seen.all_facts]
    found["looks while it catches up"] += 1
    found["LOST: looks at something out of order"] += there != own[: len(there)]


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not true():
            await asyncio.sleep(0.05)


def _report(done: Worked, found: Counter[str]) -> None:
    found["turns while it was away"] = len(done.away)
    found["LOST: turns that failed"] += done.failed
    for name, taken in (("with it", done.before), ("while away", done.away)):
        if taken:
            found[f"ms of a turn {name}, median"] = round(statistics.median(taken) * 1000)
            found[f"ms of a turn {name}, longest"] = round(max(taken) * 1000)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--trace", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if why := postgres.why_not():
        print(f"skipped: {why}")
        return 0
    chance = random.Random(arguments.seed)
    found = Counter[str]()
    server = postgres.Server(postgres.FAST)
    try:
        when = moments(arguments.trace, arguments.seconds, chance)
        asyncio.run(trial(server.start(), arguments.seconds, when, chance, found))
    finally:
        server.remove()
    for name, count in sorted(found.items()):
        if count or not name.startswith("LOST"):
            print(f"{name}: {count}")
    return 1 if any(count for name, count in found.items() if name.startswith("LOST")) else 0


if __name__ == "__main__":
    sys.exit(main())
