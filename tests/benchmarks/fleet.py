"""What lies beyond one machine: a fleet of 6,000 agents and 30,000 tasks a day,
computed from measured sizes and rates.

python -m tests.benchmarks.fleet [--traces DIR]      writes resources/help/fleet.md from
SIZES below and the rates in last.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from dataclasses import dataclass
from pathlib import Path

import zstandard

from tests.benchmarks import figures
from tests.benchmarks.row import Row, fits, shown

AGENTS, TASKS = 6_000, 30_000  # a day
BUSY_HOURS = 10  # most of the work falls into
PEAK = 3.0  # the busiest minute beside the mean of the busy hours
DAYS = 30  # kept
PAGE = figures.ROOT / "resources" / "help" / "fleet.md"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one task: what its recorded session came to. `compress_content`: zstd level 1,
    each output by itself.
    """

    sessions: int
    outputs: float
    bytes: float
    replies: float
    median: float
    packed: float


# Measured on the recorded sessions of ../shared/traces (five public sets, 27 sessions,
# 3,118 messages).
SIZES = Sizes(sessions=27, outputs=46.9, bytes=137_339, replies=62.7, median=425, packed=0.270)


def measured(folder: Path) -> Sizes:
    """The same from a folder of recorded sessions."""
    each: list[tuple[int, int, int]] = []
    sizes: list[int] = []
    packed = 0
    zstd = zstandard.ZstdCompressor(level=1)
    for file in sorted(folder.rglob("*.jsonl")):
        messages = [
            json.loads(line)
            for line in file.read_text(encoding="utf-8").splitlines()
            if line.strip()
        ]
        outputs = [_content(message) for message in messages if message.get("role") == "tool"]
        packed += sum(min(len(output), len(zstd.compress(output))) for output in outputs)
        sizes += map(len, outputs)
        replies = sum(message.get("role") == "assistant" for message in messages)
        each.append((len(outputs), sum(map(len, outputs)), replies))
    outputs_, bytes_, replies_ = (statistics.mean(column) for column in zip(*each, strict=True))
    return Sizes(
        len(each), outputs_, bytes_, replies_, statistics.median(sizes), packed / sum(sizes)
    )


def _content(message: dict[str, object]) -> bytes:
    content = message.get("content") or ""
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def page(sizes: Sizes, rates: dict[str, Row]) -> str:
    """The page: the load, what was measured, and what follows."""
    puts = TASKS * sizes.outputs
    gets = (
        TASKS * sizes.replies * 2
    )  # a step resolves what is new in its request; recalls come on top
    held = TASKS * sizes.bytes
    busy = BUSY_HOURS * 3600
    peak_puts = PEAK * puts / busy
    peak_gets = PEAK * gets / busy
    put = rates.get("put of 2 KB")
    get = rates.get("get of 2 KB")
    machine = ""
    if put and get:
        seconds = (puts * put.ours.median + gets * get.ours.median) / 1e6
        machine = (
            f"On the computer used for the figures page, storing an entry of 2 KB durably takes {shown(put.ours.median)} µs, and reading it and checking its hash takes "
            f"{shown(get.ours.median)} µs. A single thread would therefore need {seconds / 60:.0f} minutes to store and read a whole day's data. At the peak, this thread "
            f"would be busy {(peak_puts * put.ours.median + peak_gets * get.ours.median) / 1e4:.0f}% of the time. You therefore do not need a shared store for its speed. Its purpose is to let many computers use the same content, and to protect this content if a computer's disk fails."
        )
    return f"""# A fleet of agents

This page shows how much work a shared store can handle. The example is a team whose {AGENTS:,} agents run {TASKS:,} tasks a day. Each section says whether its figures were measured or calculated. To learn how to share a workspace, see [Shared workspaces](sharing.md).

## The load

The load is calculated from {sizes.sessions} publicly available recordings of agent sessions, each counted as one task. On average, a task has {sizes.outputs:.0f} tool outputs and {sizes.replies:.0f} replies. A task's outputs take up {sizes.bytes / 1000:.0f} KB in total, and the median output is {sizes.median:.0f} bytes long. Compression with zstd (level 1) reduces the outputs to {sizes.packed:.0%} of their original size.

| load | per day | per second at the peak |
|---|---:|---:|
| entries stored | {puts / 1e6:.2f} million | {peak_puts:.0f} |
| entries read (two per step) | {gets / 1e6:.2f} million | {peak_gets:.0f} |
| data stored, uncompressed | {held / 1e9:.1f} GB | {PEAK * held / busy / 1e6:.1f} MB |
| data stored, compressed | {held * sizes.packed / 1e9:.2f} GB | |
| entries in the store after {DAYS} days | {puts * DAYS / 1e6:.0f} million | |
| data in the store after {DAYS} days, compressed | {held * sizes.packed * DAYS / 1e9:.0f} GB | |
| records (one for each entry and each reply, plus some for folds) | {(puts + TASKS * sizes.replies) * 1.1 / 1e6:.1f} million | {PEAK * (puts + TASKS * sizes.replies) * 1.1 / busy:.0f} |

The peak load is {PEAK:g} times the average over {BUSY_HOURS} busy hours. {machine}

## What stays local

Each agent has its own workspace with its own database, journal and index, as it would without sharing. An entry is considered stored as soon as it is in the local database, unless the workspace is set to wait for the shared store. Reading an entry uses the network only if the entry is not in the local database. Content is identified by its hash, so a copy can never be out of date.

## Measured: a single PostgreSQL server

{_measured(rates)}

## What this means for {AGENTS:,} agents

{_follows(sizes, rates)}

## What the test with 1,000 tasks says about 30,000 tasks a day

In a test, 8 workers ran 1,000 tasks that were as long as the recorded sessions, while workers and PostgreSQL were killed again and again. All tasks were done, no effect was lost, and no command ran twice. This test is described in the section “How it was tested” of [From one desktop to a fleet](workers.md).

- The test took 1,973 seconds on a computer with 2 cores that ran the workers, PostgreSQL and PgBouncer. At this rate, the computer would run 43,800 tasks a day.
- On average, a task used 1.79 seconds of processor time in the worker, 1.39 seconds in the commands that the worker ran, 0.15 seconds in PostgreSQL and 0.03 seconds in PgBouncer. For 30,000 tasks a day, this adds up to 28 hours of processor time, which is a little more than one core can provide in a day.
- In another test with 20,000 tasks of three calls, each task used 0.16 seconds of processor time in the worker, 0.06 seconds in its commands and 0.01 seconds in PostgreSQL.

The test does not show how a fleet behaves with real models and real computers:

- The scripted model answered immediately. A real task takes minutes, so more tasks run at the same time. If each task takes 10 minutes, 30,000 tasks a day mean that 208 tasks run at the same time on average. A waiting agent uses 0.13 MB of memory and almost no processor time.
- Everything ran on one computer, and PostgreSQL did not wait for the disk (`fsync` was off).
- The commands only wrote small files. Commands that do more, for example tests and builds, use more processor time.
- The tasks belonged to three data folders, not to 6,000 workspaces.

## What was not tested

- The store was not tested with {AGENTS:,} computers at the same time. All the workspaces in a process share at most eight connections to each PostgreSQL server. A connection pooler can be used: the tests include PgBouncer in transaction mode. Splitting workspaces across several databases was not tested.
- The test did not use a network: the client and the server ran on the same computer. Over a network, storing an entry takes one more round trip.
- S3-compatible stores were not tested under load, and stores from real providers were not tested at all. The tests use a simulated S3 server (moto) that keeps everything in memory, so they do not show how fast S3 is. In an S3-compatible store, small entries are packed together, and each computer keeps an index of all rows in memory, which takes up about 200 bytes per row. S3-compatible stores are therefore suitable only for workspaces with up to a few million rows.
- Tables with more rows than those listed above were not tested, so the figures for larger tables are estimates.

If your agents' tasks are longer than the recorded sessions, all the calculated figures above increase in proportion. To measure the sizes again, run `python -m tests.benchmarks.fleet --traces DIR`; to measure the rates, run `packaging/dev.py bench shared store_put`.
"""


def _measured(rates: dict[str, Row]) -> str:
    """The figures of the benchmark `shared`, in sentences."""
    puts = rates.get("puts into PostgreSQL")
    read = rates.get("local get in a shared workspace")
    middle, high = (
        rates.get(f"time from an agent's put until the content is in PostgreSQL, {part}")
        for part in ("p50", "p99")
    )
    if not (puts and read and middle and high):
        return "Not yet."
    lines = [
        f"PostgreSQL used its default durability settings. It ran on a computer with 2 cores, together with the clients and {_load()}. No other programs were running while Helix Desktop was compared with the benchmark program pgbench and local reads were measured. These are the results:",
        "",
        (
            f"- {len(_CLIENTS)} clients of Helix Desktop stored {puts.ours.median:,.0f} encrypted rows per second in batches of 100. With the same SQL statement but without encryption, pgbench stored {puts.peers['pgbench'].median:,.0f} rows per second. Helix Desktop was therefore {(1 - puts.ours.median / puts.peers['pgbench'].median) * 100:.0f}% slower than pgbench."
        ),
        (
            f"- {_paced(middle.note)}. Each agent waited until its entry was stored. The median time needed to store an entry was {shown(middle.ours.median)} ms, "
            f"and 99% of the entries were stored within {shown(high.ours.median)} ms. No entry was lost."
        ),
        _LATER,
        (
            f"- Sharing did not slow down local reads: in the first measurement, reading an entry from the local database took {shown(read.ours.median)} µs in a shared workspace and "
            f"{shown(read.peers['not shared'].median)} µs in one that is not shared."
        ),
        "",
        "| rows in the table | storing 100 rows (median) | storing 100 rows (fastest) | reading 100 rows (median) | reading 100 rows (fastest) |",
        "|---:|---:|---:|---:|---:|",
    ]
    sizes = sorted({row.at for row in rates.values() if row.series == "shared put"})
    for size in sizes:
        put = rates[f"put of 100 rows into a table of {size:,}"]
        get = rates[f"fetch 100 rows from a table of {size:,}"]
        figures_ = (put.ours.median, put.ours.least, get.ours.median, get.ours.least)
        lines.append(
            f"| {size:,} | " + " | ".join(f"{shown(figure)} ms" for figure in figures_) + " |"
        )
    grows = {
        name: line for name, line in fits(list(rates.values())).items() if name.startswith("shared")
    }
    done = {"put": "storing", "get": "reading"}
    told = " and ".join(
        f"{line.slope:.2f} for {done[name.split()[1]]}" for name, line in grows.items()
    )
    return "\n".join(
        [
            *lines,
            "",
            f"The time grows much more slowly than the table. It is proportional to a power of the number of rows; the exponent is {told}. With an exponent of 1, twice as many rows would take twice as long.",
            *_TABLE,
        ]
    )


def _paced(note: str) -> str:
    """What the agents did, from "200 agents, 2,000 puts, 129 a second; …"."""
    agents, puts, pace = note.partition(";")[0].split(", ")
    return f"{agents} stored {puts.removesuffix(' puts')} entries at a rate of {pace}"


def _load() -> str:
    found = [
        run["machine"]["load at the start"] for run in figures.last() if run["name"] == "shared"
    ]
    return (
        f"other programs (load average {found[0].split()[0]} at the start)"
        if found
        else "nothing else"
    )


def _follows(sizes: Sizes, rates: dict[str, Row]) -> str:
    puts = TASKS * sizes.outputs
    peak = PEAK * puts / (BUSY_HOURS * 3600)
    most = 2 * (
        sizes.bytes / sizes.outputs * sizes.packed + 200
    )  # padding at most doubles; 200: what it is, and the key
    measured = rates.get("puts into PostgreSQL")
    part = (
        f" is {peak / measured.ours.median:.1%} of the rate measured with batches"
        if measured
        else " is small"
    )
    return f"""The following statements are based on the figures above:

- The shared store is fast enough for {AGENTS:,} agents. At the peak, {peak:.0f} entries are stored per second, which{part}{_agents(rates)}.
- The shared store can run out of space. The size of each row in the store is rounded up to a power of two. On average, a row takes up at most {most / 1000:.1f} KB. The {puts * DAYS / 1e6:.0f} million rows written in {DAYS} days therefore take up at most {puts * DAYS * most / 1e9:.0f} GB. To remove the rows that no computer uses any more, run `workspace sync --collect`.
- While the shared store is offline, new content waits in the local cache. After {DAYS} days, this content would take up {sizes.bytes * sizes.packed * TASKS / AGENTS * DAYS / 1e6:.0f} MB per agent."""


def _agents(rates: dict[str, Row]) -> str:
    row = rates.get("time from an agent's put until the content is in PostgreSQL, p99")
    return (
        f", and less than the {row.note.split(',')[-1].split(';')[0].split()[0]} entries per second that the 200 agents stored"
        if row
        else ""
    )


_LATER = "  When this was measured again on a busier computer (load average 12 to 16), the median time was 31 ms, and 99% of the entries were stored within 385 ms. In this second measurement, Helix Desktop was 7% slower than pgbench, and reading an entry from the local database took 9% less time in a shared workspace than in one that is not shared."
_TABLE = (
    "The figures in this table were measured separately on a busy computer (load average about 10), so the medians vary between measurements. The columns marked “fastest” show the fastest of 60 runs, which varies less.",
    "A table of 10 million rows, each with 512 bytes of content, takes up 7.6 GB. This is 761 bytes per row, including 77 bytes for the index.",
)
_CLIENTS = range(4)  # of tests/benchmarks/shared.py


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, help="recorded sessions to measure the sizes on")
    arguments = parser.parse_args()
    sizes = measured(arguments.traces) if arguments.traces else SIZES
    write(sizes)
    sys.stdout.write(f"{sizes}\n{PAGE}\n")
    return 0


def rates() -> dict[str, Row]:
    return {
        row["name"]: Row.from_json(row)
        for run in figures.last()
        if run["name"] in ("store_put", "shared")
        for row in run["rows"]
    }


def write(sizes: Sizes = SIZES) -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(sizes, rates()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
