"""What lies beyond one machine, on paper: a fleet of 6,000 agents a day and 30,000 tasks, computed from measured sizes and rates.

python -m tests.benchmarks.fleet [--traces DIR]      writes resources/help/fleet.md from SIZES below and the rates in last.json
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
from tests.benchmarks.row import Row, shown

AGENTS, TASKS = 6_000, 30_000  # a day
BUSY_HOURS = 10  # most of the work falls into
PEAK = 3.0  # the busiest minute beside the mean of the busy hours
DAYS = 30  # kept
PAGE = figures.ROOT / "resources" / "help" / "fleet.md"


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of one task: what its recorded session came to. `packed`: zstd level 1, each output by itself."""

    sessions: int
    outputs: float
    bytes: float
    replies: float
    median: float
    packed: float


# Measured on the recorded sessions of ../shared/traces (five public sets, 27 sessions, 3,118 messages).
SIZES = Sizes(sessions=27, outputs=46.9, bytes=137_339, replies=62.7, median=425, packed=0.270)


def measured(folder: Path) -> Sizes:
    """The same from a folder of recorded sessions."""
    each: list[tuple[int, int, int]] = []
    sizes: list[int] = []
    packed, zstd = 0, zstandard.ZstdCompressor(level=1)
    for file in sorted(folder.rglob("*.jsonl")):
        messages = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
        outputs = [_content(message) for message in messages if message.get("role") == "tool"]
        packed += sum(min(len(output), len(zstd.compress(output))) for output in outputs)
        sizes += map(len, outputs)
        replies = sum(message.get("role") == "assistant" for message in messages)
        each.append((len(outputs), sum(map(len, outputs)), replies))
    outputs_, bytes_, replies_ = (statistics.mean(column) for column in zip(*each, strict=True))
    return Sizes(len(each), outputs_, bytes_, replies_, statistics.median(sizes), packed / sum(sizes))


def _content(message: dict[str, object]) -> bytes:
    content = message.get("content") or ""
    return (content if isinstance(content, str) else json.dumps(content)).encode()


def page(sizes: Sizes, rates: dict[str, Row]) -> str:
    """The page: the load, then what each engine would have to hold and answer."""
    puts = TASKS * sizes.outputs
    gets = TASKS * sizes.replies * 2  # a step resolves what is new in its request; recalls come on top
    held = TASKS * sizes.bytes
    busy = BUSY_HOURS * 3600
    peak_puts, peak_gets = PEAK * puts / busy, PEAK * gets / busy
    put = rates.get("put of 2 KB")
    get = rates.get("get of 2 KB")
    machine = ""
    if put and get:
        seconds = (puts * put.ours.median + gets * get.ours.median) / 1e6
        machine = (
            f"On the machine of the figures page a durable put of 2 KB takes {shown(put.ours.median)} µs and a checked get "
            f"{shown(get.ours.median)} µs: all puts and gets of the day are {seconds / 60:.0f} minutes of one thread. At the peak one thread "
            f"would be busy {(peak_puts * put.ours.median + peak_gets * get.ours.median) / 1e4:.0f} % of the time. So it is not the rate that takes a fleet beyond "
            "one machine; it is that many machines want the same content, and that one disk must not be the end of it."
        )
    return f"""# A fleet, on paper

Nobody has run this. It is computed from measured sizes and rates, to see which engine belongs behind the `Cache` port when
{AGENTS:,} agents work through {TASKS:,} tasks a day for a team.

## The load

From {sizes.sessions} recorded sessions of public agents (one is taken for one task): {sizes.outputs:.0f} tool outputs and {sizes.replies:.0f} replies a task,
{sizes.bytes / 1000:.0f} KB of outputs, the median output {sizes.median:.0f} bytes; zstd level 1 packs them to {sizes.packed:.0%}.

| | a day | at the peak, a second |
|---|---:|---:|
| puts | {puts / 1e6:.2f} million | {peak_puts:.0f} |
| gets (two a step) | {gets / 1e6:.2f} million | {peak_gets:.0f} |
| bytes in | {held / 1e9:.1f} GB | {PEAK * held / busy / 1e6:.1f} MB |
| bytes kept, packed | {held * sizes.packed / 1e9:.2f} GB | |
| entries after {DAYS} days | {puts * DAYS / 1e6:.0f} million | |
| bytes after {DAYS} days, packed | {held * sizes.packed * DAYS / 1e9:.0f} GB | |
| facts (a put, a reply, a share of folds) | {(puts + TASKS * sizes.replies) * 1.1 / 1e6:.1f} million | {PEAK * (puts + TASKS * sizes.replies) * 1.1 / busy:.0f} |

The peak is {PEAK:g} times the mean of {BUSY_HOURS} busy hours. {machine}

## What stays local

Each agent keeps its own workspace: LevelDB, journal and index as they are. A get that is found there never leaves the machine; content is
addressed by its hash, so a copy can never be stale. The journal stays with the one process that writes it; what is shared is content.

## The engine behind the port

The port asks for four things: put bytes and get a digest, get them back checked, ask what an entry is, read a range. What they need of an
engine: a key of 32 bytes, a value of up to 1 MiB (chunks), put-if-absent, no listing, no transaction across keys, and durability before a
put returns.

| engine | holds | answers | verdict |
|---|---|---|---|
| an S3-compatible store | {puts * DAYS / 1e6:.0f} million objects of {sizes.bytes / sizes.outputs * sizes.packed / 1000:.1f} KB are its worst case: small objects cost a request each | a put or get takes some ten milliseconds: {peak_puts:.0f} puts a second need {peak_puts * 0.03:.0f} requests in flight at 30 ms | for what is old and for large entries; small ones packed many to an object |
| Valkey (Redis) with its log synced every second | {held * sizes.packed * 2 / 1e9:.1f} GB of memory for two days | well under a millisecond within a data centre; {peak_puts + peak_gets:,.0f} operations a second are a small part of what one node does | for the last days, as the shared layer; not the only copy: its sync may lose a second |
| PostgreSQL | {puts * DAYS / 1e6:.0f} million rows, {held * sizes.packed * DAYS / 1e9:.0f} GB: one table, partitioned by day | {peak_puts:.0f} small synced inserts a second, in groups | the plainest choice at this size: one engine, durable, backed up as people know how |

At this size PostgreSQL or an S3-compatible store behind the local LevelDB is enough; Valkey is worth its keep from about ten times as many tasks, or
where agents on many machines share work within seconds. The local cache stays in front in each case, so what the engine must answer is
only what an agent does not already have: with agents that read mostly what they wrote, a small part of the gets above.

## What it must hold to

- A put returns when the engine has synced it, or the local copy stays until it has: content before the fact that refers to it.
- Every get is checked against the hash by whoever asked, whatever the engine promises.
- Forgetting reaches the engine and its backups, and leaves a tombstone; a key is shared by conversations, so it is counted before it is deleted.
- A workspace that may not share keeps a prefix of its own, and the digest under a key of its own (HMAC), so that nobody learns from a hash that somebody has a document.
- When the engine is away, agents go on with what is local, and puts wait in the local cache; the limit is its disk: {held * sizes.packed / AGENTS * DAYS / 1e6:.0f} MB an agent for {DAYS} days.

## Not known

Latencies and rates of the engines are not measured here; they are what such engines commonly give. Tasks of other fleets are larger than these
sessions: everything above grows in proportion. Sizes come from `python -m tests.benchmarks.fleet --traces DIR`.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, help="recorded sessions to measure the sizes on")
    arguments = parser.parse_args()
    sizes = measured(arguments.traces) if arguments.traces else SIZES
    write(sizes)
    sys.stdout.write(f"{sizes}\n{PAGE}\n")
    return 0


def rates() -> dict[str, Row]:
    return {
        row["name"]: Row.from_json(row) for run in figures.last() if run["name"] == "store_put" for row in run["rows"]
    }


def write(sizes: Sizes = SIZES) -> None:
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(sizes, rates()), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
