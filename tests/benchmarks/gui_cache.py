"""The cache page at a million entries, over the real catalogue and its thread: showing,
sorting, filtering, scrolling, choosing all, copying hashes, memory; and a 200 MB entry
in the real cache.

A gap is the time between two turns of the event loop: what an event that comes meanwhile waits for.
Run it alone: `python -m tests.benchmarks.gui_cache [entries]`, with a display (Xvfb) or offscreen.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, cast

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import qasync
from PySide6.QtCore import QTimer
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication

from helix_desktop.engine.cache_entry_rows import EntryFilter, EntrySort
from helix_desktop.engine.facts import Stored
from helix_desktop.engine.ports import EntryOrigin, ForgetResult
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.errors import StoreFailed
from helix_desktop.gui.background_runner import BackgroundRunner
from helix_desktop.gui.cache.cache_page import CachePage
from helix_desktop.gui.theme import Theme
from helix_desktop.store import index_file
from helix_desktop.store.async_stores import WorkspaceIndex
from helix_desktop.store.cache_folder import CacheFolder
from helix_desktop.store.sqlite_database import connect_database, prepare_schema
from helix_desktop.store.store_thread import StoreThread
from tests.gui.stand_in import StandIn

MEGABYTE = 1 << 20


def fill(path: Path, entries: int) -> None:
    """An index file with so many rows, as the index would have made them."""
    connection = connect_database(path, StoreFailed, "index", synchronous="NORMAL")
    prepare_schema(
        connection,
        index_file._SCHEMA,
        application=index_file.APPLICATION,
        version=index_file.VERSION,
        name="index",
    )
    random.seed(2)
    tools = ("read_file", "run_command", "search", "fetch", "sub-agent")

    def row(number: int) -> tuple[object, ...]:
        digest = hashlib.sha256(str(number).encode()).digest()
        size = random.randrange(100, 400_000)
        source = f"src/part{number % 977}/file{number}.rs"
        figures = (
            size,
            size // 4,
            size // 40,
            size // 4,
            1.7e9 + number,
            number % 7,
            0.0,
            number % 1000 == 0,
            0,
        )
        return (number, digest, tools[number % 5], source, "text/plain", *figures)

    kept = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql NOT NULL"
    ).fetchall()
    for name, _ in kept:
        connection.execute(
            f"DROP INDEX {name}"
        )  # rows first, then their indices: ten times as fast
    with connection:
        connection.executemany(
            f"INSERT INTO entries VALUES({','.join('?' * 14)})", map(row, range(1, entries + 1))
        )
        connection.execute("INSERT OR IGNORE INTO sources SELECT DISTINCT source FROM entries")
    for sql in (sql for _, sql in kept):
        connection.execute(sql)
    for name, columns in index_file._SORT_INDEXES.items():
        connection.execute(f"CREATE INDEX {name} ON entries({columns})")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()


class NoFeed:
    """Nothing is to be caught up with."""

    def last_entry_and_fact(self) -> tuple[int, int]:
        return 0, 0


class Served(StandIn):
    """The store's index and cache, each on its own threads."""

    def __init__(self, served: WorkspaceIndex, folder: CacheFolder | None = None) -> None:
        self.index = served
        self.stores = StoreThread("store")
        self.folder = folder

    @classmethod
    async def open(cls, folder: Path, cache: CacheFolder | None = None) -> Served:
        return cls(await WorkspaceIndex.open(folder, cast(Any, NoFeed()), lambda _: 0), cache)

    @property
    def cache(self) -> Served:
        return self

    async def resolve_prefix(self, prefix: str) -> Digest:
        return Digest.from_hex(prefix)

    async def read_range(self, digest: Digest, start: int, length: int) -> bytes:
        if self.folder is None:
            return b"fn main() {}\n" * 200
        return await self.stores.run_work(self.folder.reader.read_part, digest, start, length)

    async def verify_entry(self, digest: Digest) -> None: ...

    async def pin_entry(self, digest: Digest, *, pinned: bool) -> None: ...

    async def content_forgetter(
        self, *, text: str = "", entries: Sequence[Digest] = ()
    ) -> ForgetResult:
        return ForgetResult((), 0, (), 0)


class Gaps:
    """Turns of the event loop, as a timer sees them: how long each took, and how long
    the window itself was busy in it (processor time of its thread, which does not count
    what other programs took).
    """

    def __init__(self) -> None:
        self._last = time.perf_counter()
        self._worked = time.thread_time()
        self.all: list[float] = []
        self.busy: list[float] = []
        self._timer = QTimer(interval=1)
        self._timer.timeout.connect(self._tick)
        self._timer.start()

    def _tick(self) -> None:
        now = time.perf_counter()
        worked = time.thread_time()
        self.all.append(1000 * (now - self._last))
        self.busy.append(1000 * (worked - self._worked))
        self._last = now
        self._worked = worked

    def begin(self) -> None:
        self.all.clear()
        self.busy.clear()
        self._last = time.perf_counter()
        self._worked = time.thread_time()

    def told(self) -> str:
        gaps = sorted(self.all) or [0.0]
        busy = sorted(self.busy) or [0.0]
        p99 = int(0.99 * (len(gaps) - 1))
        return f"gaps: p99 {gaps[p99]:5.1f}, longest {gaps[-1]:5.1f} ms; busy: p99 {busy[p99]:4.1f}, longest {busy[-1]:4.1f}"


def memory() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() / 1e6


async def until(done: Callable[[], bool], limit: float = 120.0) -> float:
    """Milliseconds until something is so."""
    start = time.perf_counter()
    while not done():
        await asyncio.sleep(0.001)
        if time.perf_counter() - start > limit:
            raise TimeoutError
    return 1000 * (time.perf_counter() - start)


async def trial(application: QApplication, entries: int) -> None:
    running: set[asyncio.Task[Any]] = set()

    def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)  # noqa: TID251 - the benchmark owns its tasks
        running.add(task)
        task.add_done_callback(running.discard)
        return task

    theme = Theme(scheme="light")
    theme.apply_to_application()
    with tempfile.TemporaryDirectory(prefix="helix-bench-") as folder:
        path = Path(folder) / "index.sqlite3"
        fill(path, entries)
        served = await Served.open(path.parent)
        page = CachePage(theme, doing := BackgroundRunner(spawn))
        doing.failed.connect(print)
        page.resize(1132, 852)
        page.show()
        application.processEvents()
        before = memory()
        gaps = Gaps()

        def there() -> bool:
            bar = page.table.verticalScrollBar()
            row = bar.value() // 35
            return (
                page.model.rowCount() > 0
                and page.model.get_or_load_row(min(row, page.model.rowCount() - 1)) is not None
            )

        gaps.begin()
        page.show_cache_of(served)
        print(f"{entries:,} entries: page shown in {await until(there):.0f} ms, {gaps.told()}")
        await until(lambda: not running)
        for sort in (
            EntrySort.SIZE,
            EntrySort.SOURCE,
            EntrySort.TOKENS,
            EntrySort.HASH,
            EntrySort.TOOL,
            EntrySort.TIME,
        ):
            gaps.begin()
            page.model.set_sort_order(sort, descending=sort is not EntrySort.TIME)
            print(f"  sorted by {sort.value:9} in {await until(there):5.0f} ms, {gaps.told()}")
        for chosen in (
            EntryFilter(tool="fetch"),
            EntryFilter(least=300_000),
            EntryFilter(pinned=True),
            EntryFilter(text="file77"),
            EntryFilter(),
        ):
            gaps.begin()
            page.bar.filter_chosen.emit(chosen)
            count = page.model.rowCount()
            taken = await until(lambda count=count: page.model.rowCount() != count and there())  # type: ignore[misc]
            print(f"  {page.model.rowCount():>9,} of it chosen in {taken:5.0f} ms, {gaps.told()}")
        await scroll(page, gaps, there)
        print(f"  memory grew by {memory() - before:.0f} MB")
        await choose_all(page, gaps)
        page.close()
        await served.index.aclose()


async def scroll(page: CachePage, gaps: Gaps, there: Callable[[], bool]) -> None:
    bar = page.table.verticalScrollBar()
    taken = []
    gaps.begin()
    for _ in range(60):
        bar.setValue(random.randrange(bar.maximum()))
        taken.append(await until(there))
    ordered = sorted(taken)
    print(
        f"  jumped anywhere: rows there in {ordered[30]:.0f} ms (median), {ordered[-1]:.0f} (longest), {gaps.told()}"
    )
    gaps.begin()
    for _ in range(300):
        bar.setValue(bar.value() + 90)
        await asyncio.sleep(0)
    print(f"  scrolled: {gaps.told()}")


async def choose_all(page: CachePage, gaps: Gaps) -> None:
    gaps.begin()
    start = time.perf_counter()
    page.table.selectAll()
    await asyncio.sleep(0)
    print(
        f"  all {page.table.selected_count:,} chosen in {1000 * (time.perf_counter() - start):.1f} ms"
    )
    before = memory()
    QGuiApplication.clipboard().setText("")
    page.entry_actions.copy_selected_hashes()
    taken = await until(lambda: len(QGuiApplication.clipboard().text()) > 0, 300)
    print(
        f"  their hashes copied in {taken:.0f} ms, {gaps.told()}, {memory() - before:.0f} MB for them"
    )
    QGuiApplication.clipboard().setText("")


async def large_entry() -> None:
    """200 MB in the real cache: the first page, checked."""
    with tempfile.TemporaryDirectory(prefix="helix-bench-") as folder:
        cache = CacheFolder(Path(folder) / "cache")
        block = b"".join(
            b"line %09d of a very long log, with some words in it\n" % i for i in range(20_000)
        )
        incoming = cache.begin_incoming(EntryOrigin("run_command", "make", "text/plain"))
        for _ in range(200 * MEGABYTE // len(block)):
            incoming.write_piece(block)
        staged = incoming.finish_entry()
        cache.commit_staged([staged])
        stored: Stored = staged.record.stored_reference
        theme = Theme(scheme="light")
        theme.apply_to_application()
        tasks: set[asyncio.Task[Any]] = set()

        def spawn(work: Coroutine[Any, Any, Any], *, name: str) -> asyncio.Task[Any]:
            task = asyncio.ensure_future(work)  # noqa: TID251 - the benchmark owns its tasks
            tasks.add(task)
            return task

        path = Path(folder) / "index.sqlite3"
        fill(path, 10)
        served = await Served.open(path.parent, cache)
        page = CachePage(theme, doing := BackgroundRunner(spawn))
        doing.failed.connect(print)
        page.resize(1132, 852)
        page.show()
        page.show_cache_of(served)
        await until(lambda: page.model.get_or_load_row(0) is not None)
        gaps = Gaps()
        body = page.viewer.content_view
        for _ in range(3):
            body.lines.show_text_lines([])
            gaps.begin()
            body.show_entry_content(
                served, stored, EntryOrigin("run_command", "make", "text/plain")
            )
            taken = await until(lambda: len(body.lines.viewed_lines) > 0)
            print(
                f"a {stored.size / 1e6:.0f} MB entry: first page, checked, shown in {taken:.0f} ms, {gaps.told()}"
            )
        served.stores.call_and_wait(cache.close)
        await served.index.aclose()


def main() -> None:
    entries = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    application = QApplication.instance()
    app = application if isinstance(application, QApplication) else QApplication([])
    app.setQuitOnLastWindowClosed(False)
    loop = qasync.QEventLoop(app)
    asyncio.set_event_loop(loop)
    with loop:
        loop.run_until_complete(trial(app, entries))
        loop.run_until_complete(large_entry())


if __name__ == "__main__":
    main()
