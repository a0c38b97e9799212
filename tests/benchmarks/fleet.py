"""What lies beyond one machine: a fleet of 6,000 agents and 30,000 tasks a day, computed from measured sizes and rates.

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
from tests.benchmarks.row import Row, fits, shown

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
    """The page: the load, what was measured, and what follows."""
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
    return f"""# A fleet

What a store that machines share does, measured, and what this means when {AGENTS:,} agents work through {TASKS:,} tasks a day for a team. Each figure says whether it was measured or computed. How a workspace is shared: `helix-desktop workspace share --help`.

## The load

From {sizes.sessions} recorded sessions of public agents (each counted as one task): {sizes.outputs:.0f} tool outputs and {sizes.replies:.0f} replies a task,
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

Each agent keeps its own workspace: LevelDB, journal and index, unchanged. A put is done when it is there, unless the workspace is set to wait for the shared
store. A get that finds its content there never leaves the machine; content is addressed by its hash, so a copy can never be stale.

## Measured: one PostgreSQL

{_measured(rates)}

## What this means for {AGENTS:,} agents

{_follows(sizes, rates)}

## What was not tested

- {AGENTS:,} machines at once. Each open workspace holds one to four connections, and a PostgreSQL server accepts a few hundred; so a fleet of this size needs a
  connection pooler or several databases, with the workspaces divided among them. Neither was run here.
- A network: client and server were on one machine. Over a network every figure of one put grows by one round trip.
- An S3-compatible store under load, or a real provider's: the suite runs on moto's server, which keeps everything in memory and says nothing about speed. Small
  entries are packed
  there, but its index of all rows is in the memory of each machine, about 200 bytes for a row: it is for workspaces of a few million rows.
- More rows than the table above: beyond it the figures are extrapolated.

Tasks of other fleets are larger than these sessions: everything above grows in proportion. Sizes come from `python -m tests.benchmarks.fleet --traces DIR`,
rates from `packaging/dev.py bench shared store_put`.
"""


def _measured(rates: dict[str, Row]) -> str:
    """The figures of the benchmark `shared`, in sentences."""
    puts, read = rates.get("puts into PostgreSQL"), rates.get("local get in a shared workspace")
    middle, high = (rates.get(f"put of an agent until PostgreSQL has it, {part}") for part in ("p50", "p99"))
    if not (puts and read and middle and high):
        return "Not yet."
    lines = [
        f"With its usual durable settings, on a machine with 2 cores that also ran the clients and {_load()}; puts beside pgbench and local reads",
        "were measured with nothing else at work:",
        "",
        (
            f"- {puts.ours.median:,.0f} rows a second from {len(_CLIENTS)} machines in batches of 100, sealed; pgbench, which seals nothing, put "
            f"{puts.peers['pgbench'].median:,.0f} with the same statement ({puts.note.partition(';')[0]})."
        ),
        (
            f"- {middle.note.partition(';')[0]}, each put waited for: half were there within {shown(middle.ours.median)} ms, "
            f"99 of 100 within {shown(high.ours.median)} ms; none was lost."
        ),
        _LATER,
        (
            f"- A local get in a shared workspace takes {shown(read.ours.median)} µs, in one that is not shared "
            f"{shown(read.peers['not shared'].median)} µs ({read.note})."
        ),
        "",
        "| rows in the table | put of 100 | (quickest) | get of 100 | (quickest) |",
        "|---:|---:|---:|---:|---:|",
    ]
    sizes = sorted({row.at for row in rates.values() if row.series == "shared put"})
    for size in sizes:
        put, get = rates[f"put of 100 rows beside {size:,}"], rates[f"get of 100 of {size:,} rows"]
        figures_ = (put.ours.median, put.ours.least, get.ours.median, get.ours.least)
        lines.append(f"| {size:,} | " + " | ".join(f"{shown(figure)} ms" for figure in figures_) + " |")
    grows = {name: line for name, line in fits(list(rates.values())).items() if name.startswith("shared")}
    told = " and ".join(
        f"{name.removeprefix('shared ')}s to the power of {line.slope:.2f}" for name, line in grows.items()
    )
    return "\n".join(
        [
            *lines,
            "",
            f"The time grows with the number of rows: {told}. 0 means no growth, 1 means growth in proportion.",
            *_TABLE,
        ]
    )


def _load() -> str:
    found = [run["machine"]["load at the start"] for run in figures.last() if run["name"] == "shared"]
    return f"other work (load {found[0].split()[0]} at the start)" if found else "nothing else"


def _follows(sizes: Sizes, rates: dict[str, Row]) -> str:
    puts = TASKS * sizes.outputs
    peak = PEAK * puts / (BUSY_HOURS * 3600)
    most = 2 * (
        sizes.bytes / sizes.outputs * sizes.packed + 200
    )  # padding at most doubles; 200: what it is, and the key
    measured = rates.get("puts into PostgreSQL")
    part = f", {peak / measured.ours.median:.1%} of what was measured in batches" if measured else ""
    return f"""Computed from the two sections above:

- The rate is not a problem: {peak:.0f} puts a second at the peak{part}. {_agents(rates)}
- Space is: padded to powers of two, a row takes {most / 1000:.1f} KB at most on average, so {puts * DAYS / 1e6:.0f} million rows take up to {puts * DAYS * most / 1e9:.0f} GB in {DAYS} days;
  `workspace sync --collect` removes what no machine uses any more.
- When the store is away, puts wait in the local cache: {sizes.bytes * sizes.packed * TASKS / AGENTS * DAYS / 1e6:.0f} MB an agent for {DAYS} days."""


def _agents(rates: dict[str, Row]) -> str:
    row = rates.get("put of an agent until PostgreSQL has it, p99")
    return f"The agents measured above put {row.note.split(',')[-1].split(';')[0].split()[0]}." if row else ""


_LATER = "  In a later run beside more work (load 12 to 16): 31 ms and 385 ms, 0.93 of pgbench, local reads 0.91 ×."
_TABLE = (
    "This table was measured in a run of its own beside other work (load about 10), so its medians vary; the quickest of 60 are less disturbed.",
    "10 million rows with bodies of 512 bytes take 7.6 GB there: 761 bytes a row, of which 77 are its index.",
)
_CLIENTS = range(4)  # of tests/benchmarks/shared.py


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
