"""How much of the database each question to the list of tasks touches, with 0 to 1,000,000
ended tasks and 10,000 blocked ones in PostgreSQL: pages read in memory or from the disk,
and rows. Unlike times, these figures do not depend on what else the computer does.

python -m tests.benchmarks.fleet_growth_work [--quick: to 10,000] [--statements: each one's part]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from helix_desktop.store.fleet_task_files import open_shared_task_list
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from tests.benchmarks import fleet_growth
from tests.peers import postgres

COUNTED = {
    **postgres.FAST,
    "shared_preload_libraries": "'pg_stat_statements'",
    "pg_stat_statements.track": "'top'",
    "pg_stat_statements.track_utility": "off",
}
# Statements inside functions and triggers count for the statement that calls them.
_READ = (
    "SELECT query, calls, rows, shared_blks_hit + shared_blks_read FROM pg_stat_statements"
    " WHERE query NOT LIKE '%pg_stat_statements%' ORDER BY 4 DESC"
)
REPEATS = 20


@dataclass(frozen=True, slots=True)
class StatementWork:
    """What one run of a question did with one of its statements."""

    text: str
    calls: float
    rows: float
    pages: float


class WorkCounter:
    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._connection.execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")

    async def count_work(self, ask: Callable[[], Awaitable[object]]) -> list[StatementWork]:
        """Return the work of a question, on average of some runs after a first one."""
        await ask()
        self._connection.execute("SELECT pg_stat_statements_reset()")
        for _ in range(REPEATS):
            await ask()
        rows: list[tuple[Any, ...]] = self._connection.execute(_READ).fetchall()
        works = []
        for text, calls, touched_rows, pages in rows:
            works.append(
                StatementWork(
                    " ".join(text.split()),
                    calls / REPEATS,
                    float(touched_rows) / REPEATS,
                    float(pages) / REPEATS,
                )
            )
        return works

    def refresh_statistics(self) -> None:
        """Do what PostgreSQL does by itself within a minute after many changes."""
        self._connection.execute("VACUUM (ANALYZE)")

    def close(self) -> None:
        self._connection.close()


async def measure(sizes: Sequence[int], *, shows_statements: bool = False) -> list[str]:
    server = postgres.Server(COUNTED).start()
    try:
        seal = RowCipher(bytes(32))
        engine = PostgresRowStore(server.url, seal.space)
        counter = WorkCounter(server.url)
        tasks = open_shared_task_list(engine, seal, asyncio.to_thread)
        lines: list[str] = []
        sample = await fleet_growth.add_blocked_tasks(tasks)
        ended = 0
        for size in sizes:
            await fleet_growth.add_ended_tasks(tasks, sample, ended, size)
            ended = size
            await fleet_growth.add_ready_tasks(tasks)
            counter.refresh_statistics()
            lines += await _describe_work(tasks, counter, size, shows_statements=shows_statements)
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()
            lines.clear()
        counter.close()
        engine.close()
        return lines
    finally:
        server.remove()


async def _describe_work(
    tasks: FleetTaskList, counter: WorkCounter, size: int, *, shows_statements: bool
) -> list[str]:
    lines = []
    for name, ask in fleet_growth.build_questions(tasks).items():
        works = await counter.count_work(ask)
        pages = sum(work.pages for work in works)
        rows = sum(work.rows for work in works)
        lines.append(f"{size:>9,} ended  {name:<36} {pages:>9,.1f} pages {rows:>8,.1f} rows")
        if not shows_statements:
            continue
        for work in works[:6]:
            lines.append(
                f"    {work.pages:>9,.1f} pages {work.rows:>6,.1f} rows {work.calls:>5,.1f} calls  {work.text[:150]}"
            )
    return lines


def main() -> int:
    sizes: Sequence[int] = fleet_growth.SIZES
    if "--quick" in sys.argv:
        sizes = sizes[:2]
    asyncio.run(measure(sizes, shows_statements="--statements" in sys.argv))
    return 0


if __name__ == "__main__":
    sys.exit(main())
