"""`dev.py faults [NAME ...] [--minutes N] [--seed S]`: try to break it, and say what came of it.

Without `--minutes` each trial runs once at its full count (some hours for all of them).
With it, short rounds of all trials follow each other, each with a new seed, until the
time is up. A failure is shown with the command that repeats it. The short forms of the
same trials are part of the tests.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Trial:
    """A module of this folder. `count`: the name of its argument for how much, with the
    full and the short amount.
    """

    name: str
    tries: str
    count: str
    full: int
    short: int
    seeded: bool = True


ALL = (
    Trial("store_kill", "SIGKILL under a mixed load", "--trials", 3000, 20),
    Trial("store_crash", "power cuts: images of what the disk may hold", "--trials", 1000, 30),
    Trial("extensions", "code of extensions that changes or misbehaves", "--trials", 0, 10),
    Trial("hostile_host", "another computer that lies to a window", "--messages", 2_000, 200),
    Trial(
        "hostile_acp",
        "agents that speak the Agent Client Protocol and lie",
        "--conversations",
        500,
        10,
    ),
    Trial(
        "hostile_editor",
        "editors that speak the Agent Client Protocol and lie",
        "--conversations",
        500,
        10,
    ),
    Trial("started_names", "programs of a project that are called like others", "--starts", 65, 4),
    Trial("preview_references", "files in the preview that name others", "--files", 20_000, 400),
    Trial("real_documents", "documents as other programs write them", "--sets", 4, 1),
    Trial(
        "mcp_lies",
        "MCP servers that change tools, flood with forms, and sign-ins beset",
        "--lies",
        200,
        8,
    ),
    Trial("mcp_storms", "MCP servers that flood, and results that hold", "--storms", 114, 4),
    Trial("store_bits", "single flipped bits", "--trials", 1000, 30),
    Trial(
        "store_scale",
        "SIGKILL while a workspace grows to 10,000 conversations and a million entries",
        "--entries",
        1_000_000,
        5_000,
    ),
    Trial("store_numbers", "numbers of the tables made huge", "--trials", 0, 40),
    Trial("store_cut", "last logs cut at every length", "--trials", 0, 60),
    Trial("store_disk", "a full disk and I/O errors at every call", "--trials", 0, 40),
    Trial("store_twice", "a second process on an open workspace", "--trials", 200, 20),
    Trial(
        "migration", "SIGKILL at every call of an update over an older workspace", "--trials", 0, 15
    ),
    Trial("seen_by_two", "a session that the gateway and the recorder see", "--sessions", 200, 8),
    Trial("unknown_shapes", "histories as a newer version may write them", "--files", 1600, 100),
    Trial(
        "agent_resume", "real agents resume what was given back to them", "--conversations", 20, 2
    ),
    Trial(
        "agent_pairs", "every agent's conversations go on in every other", "--conversations", 10, 1
    ),
    Trial(
        "agent_recorder",
        "histories cut, written anew and deleted while they are recorded",
        "--conversations",
        40,
        2,
    ),
    Trial(
        "local_conversations",
        "long pastes and slips with a small model and a small window",
        "--conversations",
        50,
        2,
    ),
    Trial("turn_kill", "SIGKILL in the middle of a turn", "--trials", 60, 5),
    Trial("queue_kill", "SIGKILL while messages wait in the queue", "--trials", 60, 3),
    Trial(
        "sending_kill",
        "SIGKILL of the window while messages are sent, edited, moved and asked about",
        "--trials",
        60,
        2,
    ),
    Trial("question_kill", "SIGKILL while a question waits for the user", "--trials", 100, 5),
    Trial(
        "acknowledged_kill",
        "SIGKILL of a host that has just said that something is done",
        "--trials",
        200,
        4,
    ),
    Trial(
        "host_kill",
        "two clients, commands, and kills of them and of the host in one conversation",
        "--stories",
        500,
        2,
    ),
    Trial(
        "owner_ends",
        "MCP server, editor and wrapped agent while whoever has their workspace open is killed",
        "--rounds",
        50,
        1,
    ),
    Trial(
        "full_disk",
        "the disk of the data fills up around a call that changes files",
        "--trials",
        200,
        12,
    ),
    Trial(
        "fleet_kill",
        "SIGKILL of workers and of their database while tasks with effects run",
        "--tasks",
        200,
        20,
    ),
    Trial(
        "fleet_weather",
        "kills, stops, promotions, cuts, full disks and wrong clocks at once",
        "--tasks",
        3000,
        40,
    ),
    Trial(
        "fleet_budget",
        "workers of several computers spend a budget that is raised again and again",
        "--tasks",
        40,
        12,
    ),
    Trial(
        "fleet_leaving",
        "SIGKILL at every step in which conversations leave a worker",
        "--conversations",
        6,
        2,
    ),
    Trial(
        "fleet_many_workspaces",
        "one worker of 1,000 workspaces with 1,024 file handles",
        "--busy",
        100,
        20,
    ),
    Trial(
        "network", "model servers that fail, in whole turns, every protocol", "--turns", 1000, 40
    ),
    Trial("mcp_servers", "MCP servers that misbehave", "--trials", 200, 8),
    Trial(
        "package_removal",
        "the package is installed and removed by root beside hostile users",
        "--rounds",
        50,
        2,
    ),
    Trial("keyring", "no secret service, a working, a locked, a silent one", "--trials", 40, 4),
    Trial("confinement", "links swapped under tools at work", "--races", 20_000, 2_000),
    Trial(
        "cards",
        "commands and previews made to deceive: what is shown is what runs",
        "--values",
        100_000,
        4_000,
    ),
    Trial(
        "consent",
        "texts of any length and script on every surface that asks: all is shown",
        "--texts",
        500,
        40,
    ),
    Trial(
        "starting_uses",
        "uses of 90 programs under “always allow”: what the kernel starts has a name",
        "--uses",
        600,
        40,
    ),
    Trial(
        "command_cards",
        "command lines: a rule covers no more than the words on the card said",
        "--lines",
        2000,
        150,
    ),
    Trial(
        "forgetting",
        "secrets in every place and at every depth, then forgotten",
        "--secrets",
        40,
        2,
    ),
    Trial(
        "early_words",
        "words typed while the program starts, Enter and SIGKILL at any moment",
        "--starts",
        200,
        5,
    ),
    Trial(
        "copies",
        "SIGKILL while a repository is copied: nothing of the user's changes",
        "--kills",
        200,
        12,
    ),
    Trial(
        "plan_mode",
        "fuzzed calls in plan mode: nothing on the disk may change",
        "--calls",
        10_000,
        100,
    ),
    Trial("histories", "histories of other programs, cut and changed", "--files", 2_000, 100),
    Trial(
        "gateway_exact",
        "requests of every shape through the gateway with folds off",
        "--requests",
        10_000,
        10,
    ),
    Trial(
        "gateway_histories",
        "agents that rewind, edit and work side by side",
        "--histories",
        1_000,
        5,
    ),
    Trial(
        "reckoner",
        "conversations made by chance: every figure beside a second reckoner",
        "--histories",
        10_000,
        100,
    ),
    Trial(
        "checkpoints",
        "hostile turns, kills, a second writer and link races under an undo",
        "--trials",
        1000,
        3,
    ),
    Trial(
        "linked_homes",
        "homes whose entries are links of every kind: nothing of them is printed",
        "--homes",
        100,
        8,
    ),
    Trial(
        "evading",
        "commands that evade the checkpoint with a loss: it comes back",
        "--commands",
        2080,
        20,
    ),
    Trial(
        "git_places",
        "settings and links of git that could run or touch something",
        "--places",
        1000,
        20,
    ),
    Trial(
        "clock_jumps",
        "clocks set forward and back in calls, folds, leases, codes, schedules and lists",
        "--stories",
        2_000,
        130,
    ),
    Trial("sandbox", "commands that misbehave", "--rounds", 10, 1, seeded=False),
    Trial(
        "spellings",
        "denied commands in every spelling, and what a real shell starts",
        "--lines",
        40_000,
        1_000,
    ),
    Trial(
        "outside_spellings",
        "denied commands as someone who has not read the code would spell them",
        "--lines",
        2_000,
        200,
    ),
    Trial(
        "planting",
        "what commands leave to be run later, and ways out of the sandbox",
        "--ways",
        0,
        10,
    ),
    Trial(
        "hooks",
        "trusted hooks that plant, read and write, in real conversations",
        "--count",
        300,
        8,
    ),
    Trial(
        "gateway_cuts",
        "gateways that restart, lose their journal or go, in the middle of sessions",
        "--cuts",
        500,
        8,
    ),
    Trial(
        "gateway_steps",
        "sixty steps at a provider that fails, recalls among them: the same end",
        "--runs",
        40,
        4,
    ),
    Trial(
        "gateway_ledger",
        "what wrap and cost say of money against the provider's own ledger",
        "--runs",
        200,
        6,
    ),
    Trial("gateway_bodies", "hostile compressed bodies at the gateway", "--bodies", 1_000, 15),
    Trial("gateway_headers", "odd headers at the gateway", "--requests", 300, 5),
    Trial("cloned_folders", "hostile folders before anybody agreed", "--folders", 100, 2),
    Trial("gateway_rooms", "agents that try to reach each other's rooms", "--tries", 600, 20),
    Trial(
        "other_user",
        "another user of the machine against every port and socket (as root)",
        "--tries",
        10_000,
        1,
    ),
    Trial(
        "gateway_kill", "SIGKILL of a gateway while an agent works through it", "--kills", 500, 3
    ),
    Trial(
        "shared_machines",
        "two machines in one conversation: cut, killed, late, taken over",
        "--interleavings",
        500,
        10,
    ),
    Trial(
        "shared_kill",
        "SIGKILL of clients and of a primary with its standby, which is promoted",
        "--kills",
        3000,
        4,
    ),
    Trial(
        "shared_away", "a shared store that is away while an agent works on", "--seconds", 3600, 10
    ),
    Trial(
        "shared_bits",
        "flipped bytes in the tables and objects of a shared store",
        "--flips",
        1000,
        20,
    ),
    Trial(
        "shared_peer",
        "a hostile peer of a shared store: crafted rows, heads rolled back, replayed segments",
        "--trials",
        1000,
        10,
    ),
    Trial(
        "gateway_ways",
        "what goes wrong around a gateway and inside it, beside no gateway",
        "--ways",
        0,
        3,
    ),
    Trial("bodies", "compressed bodies made to take all memory or time", "--bodies", 1_000, 100),
    Trial(
        "secrets",
        "every kind of secret named in every place of a configuration",
        "--pairs",
        100_000,
        300,
    ),
    Trial("formulas", "formulas made to take long", "--formulas", 500, 20),
    Trial("fuzz_run", "parsers, guided by coverage", "--seconds", 300, 3),
)
LONGEST_SHORT = 600.0  # seconds of a short round; one that takes longer hangs


@dataclass
class Tally:
    """What came of a trial's rounds."""

    runs: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


def main() -> int:
    arguments = _arguments()
    chosen = _find_trials(arguments.names)
    tallies = {trial.name: Tally() for trial in chosen}
    seed = arguments.seed
    begun = time.monotonic()
    until = begun + 60 * arguments.minutes if arguments.minutes else None
    try:
        _run_each(chosen, seed, tallies, until)
        while until is not None and time.monotonic() < until:
            seed += 1
            _run_each(chosen, seed, tallies, until)
    except KeyboardInterrupt:
        print("Interrupted; this is what was found by then.")
    print(table(chosen, tallies, time.monotonic() - begun, (arguments.seed, seed)))
    return int(any(tally.failures for tally in tallies.values()))


def _find_trials(names: list[str]) -> list[Trial]:
    """Those of the names, or all where none is named."""
    known = {trial.name: trial for trial in ALL}
    unknown = set(names) - known.keys()
    if unknown:
        sys.exit(f"There is no trial {', '.join(sorted(unknown))}. Available: {', '.join(known)}.")
    if not names:
        return list(ALL)
    return [trial for trial in ALL if trial.name in names]


def _run_each(
    chosen: list[Trial], seed: int, tallies: dict[str, Tally], until: float | None
) -> None:
    """Each once. Where there is a time to end, each is short and none begins after it."""
    for trial in chosen:
        if until is not None and time.monotonic() >= until:
            return
        _run(trial, seed, tallies[trial.name], short=until is not None)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="dev.py faults", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="\n".join(f"{one.name}: {one.tries}" for one in ALL),
    )
    parser.add_argument("--minutes", type=float, default=0.0, metavar="N", help="go on for so long")
    parser.add_argument("--seed", type=int, default=1, metavar="S", help="the first seed")
    return parser.parse_args()


def _run(one: Trial, seed: int, tally: Tally, *, short: bool) -> None:
    command = [
        sys.executable,
        "-m",
        f"tests.faults.{one.name}",
        one.count,
        str(one.short if short else one.full),
    ]
    command += ["--seed", str(seed)] if one.seeded else []
    begun = time.monotonic()
    code, said = _ended(command, LONGEST_SHORT if short else None)
    tally.runs += 1
    tally.seconds += time.monotonic() - begun
    tally.counts.update(counts(said))
    last = next((line for line in reversed(said.splitlines()) if line.strip()), "it said nothing")
    print(f"{one.name}, seed {seed}: {last}", flush=True)
    if code:
        again = " ".join(["python", *command[1:]])
        tally.failures.append(again)
        print(f"{said}\nAgain: {again}", flush=True)


def _ended(command: list[str], limit: float | None) -> tuple[int, str]:
    """The exit code and what was said; where it hangs, that, and everything it started is ended."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environment,
        start_new_session=True,
    ) as process:  # fmt: skip
        try:
            said, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said, _ = process.communicate()
            return 1, f"{said}\nIt hung: nothing after {limit:.0f} s."
    return process.returncode, said


def counts(said: str) -> Counter[str]:
    """The counts of a report's line: `kill: 20 kills, 31 acknowledged; 0 failures; …`."""
    found: Counter[str] = Counter()
    for line in said.splitlines():
        if report := re.match(r"^[\w ]+: (.*); \d+ failures; ", line):
            for number, what in re.findall(r"(\d+) ([^,;]+)", report[1]):
                found[what] += int(number)
        elif races := re.match(r"^\w+: ([\d,]+) races", line):
            found["races"] += int(races[1].replace(",", ""))
    return found


def table(
    chosen: list[Trial], tallies: dict[str, Tally], seconds: float, seeds: tuple[int, int]
) -> str:
    """What was tried, how often, and what failed."""
    lines = [
        f"\n{'trial':<14}{'rounds':>7}{'minutes':>9}{'failed':>8}  what was tried, and how often"
    ]
    for one in chosen:
        tally = tallies[one.name]
        much = ", ".join(f"{count:,} {what}" for what, count in tally.counts.most_common(4))
        told = f"{one.tries}{f' ({much})' if much else ''}"
        lines.append(
            f"{one.name:<14}{tally.runs:>7}{tally.seconds / 60:>9.1f}{len(tally.failures):>8}  {told}"
        )
    failed = sum(len(tally.failures) for tally in tallies.values())
    rounds = sum(tally.runs for tally in tallies.values())
    lines.append(
        f"{rounds} rounds in {seconds / 60:.1f} minutes, seeds {seeds[0]} to {seeds[1]}: {failed} failed"
    )
    lines += [f"Again: {command}" for tally in tallies.values() for command in tally.failures]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
