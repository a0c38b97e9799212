"""Finds a workspace's list of tasks: in the PostgreSQL store it is shared through, or
in a file of its folder.
"""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Protocol, TypeVar

from helix_desktop.errors import NotFound, SharedStoreUnreachable, StoreFailed
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.resources import read_schema
from helix_desktop.store import sqlite_database
from helix_desktop.store.all_workspaces import KnownWorkspace
from helix_desktop.store.content_forgetting import ForgetRequest
from helix_desktop.store.fleet_statements import (
    POSTGRES,
    SQLITE,
    Rows,
    Statement,
    TableTransaction,
)
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_task_moving import move_tasks_and_budgets
from helix_desktop.store.procrastinate_task_queue import ProcrastinateTaskQueue
from helix_desktop.store.row_task_queue import RowTaskQueue
from helix_desktop.store.shared.postgres_rows import PostgresRowStore
from helix_desktop.store.shared.row_encryption import RowCipher
from helix_desktop.store.stored_workspace import StoredWorkspace

T = TypeVar("T")
TASK_FILE = "tasks.sqlite3"
COPY_OF_0_2 = "tasks.before-0.3.sqlite3"  # What version 0.2 left, from before it was taken over.
_WHAT = "list of tasks"
VERSION = 3
_STEPS = read_schema("fleet_tasks").split("-- Next step\n")
# Whether a task can run now, and in how many seconds the next one can. A running task
# counts too: its worker may have been killed.
_LOOK = (
    "SELECT EXISTS (SELECT 1 FROM tasks WHERE state = 'running') OR EXISTS (SELECT 1 FROM tasks"
    " WHERE state = 'waiting' AND open_needs = 0 AND until <= {now}), (SELECT min(until) - {now}"
    " FROM tasks WHERE state = 'waiting' AND open_needs = 0 AND until > {now})"
)

_HAS_TASKS_TO_MOVE = (
    "SELECT EXISTS (SELECT 1 FROM tasks WHERE state NOT IN ('done', 'failed', 'cancelled'))"
    " OR EXISTS (SELECT 1 FROM notes WHERE name LIKE 'limit %')"
)


@dataclass(frozen=True, slots=True)
class TasksAhead:
    """Whether a closed workspace has tasks to run now, and when the next may be tried again."""

    has_work: bool
    next_try_seconds: float | None = None


def find_tasks_ahead(path: Path) -> TasksAhead:
    """Look into the file of a closed workspace, and change nothing. What cannot be read
    counts as work, since opening the workspace repairs it or says what is wrong.
    """
    statement, _ = SQLITE.build_statement(_LOOK)
    try:
        with closing(sqlite_database.connect_read_only(path, StoreFailed, _WHAT)) as connection:
            has_work, next_try_seconds = connection.execute(statement).fetchone()
    except (StoreFailed, sqlite3.Error):
        return TasksAhead(has_work=True)
    return TasksAhead(bool(has_work), next_try_seconds)


class SqliteTaskTables:
    """The tables in a file. Each call is a transaction that is synced before it returns."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._connection = sqlite_database.connect_database(path, StoreFailed, _WHAT)
        sqlite_database.prepare_schema(
            self._connection, "".join(_STEPS), application=0x48585431, version=VERSION, name=_WHAT
        )
        if sqlite_database.schema_version(self._connection) < VERSION:
            self._keep_copy(path)
        steps = dict(enumerate(_STEPS[1:], 1))
        sqlite_database.upgrade_older_schema(self._connection, steps, VERSION, _WHAT)

    def _keep_copy(self, path: Path) -> None:
        """Keep the file as the older version left it, which that version can still open.

        A copy that was interrupted has another name, and is made again.
        """
        copy = path.with_name(COPY_OF_0_2)
        unfinished = path.with_name(f"{COPY_OF_0_2}.unfinished")
        with sqlite_database.SqliteErrors(StoreFailed, _WHAT):
            unfinished.unlink(missing_ok=True)
            self._connection.execute("VACUUM INTO ?", (str(unfinished),))
        unfinished.chmod(0o600)
        unfinished.replace(copy)

    async def run_in_task_file(self, work: Callable[[TableTransaction], T]) -> T:
        return await asyncio.to_thread(self._run_and_commit, work)

    def _run_and_commit(self, work: Callable[[TableTransaction], T]) -> T:
        with self._lock, sqlite_database.SqliteTransaction(self._connection, StoreFailed, _WHAT):
            return work(self)

    def run_all(self, statements: Sequence[Statement]) -> list[Rows]:
        """Run statements within the transaction that has begun: a TableTransaction."""
        rows_by_statement: list[Rows] = []
        for text, values in statements:
            rows_by_statement.append(self._connection.execute(text, values).fetchall())
        return rows_by_statement

    def open_list_in_file(self) -> FleetTaskList:
        return FleetTaskList(self.run_in_task_file, SQLITE, RowTaskQueue())

    def close(self) -> None:
        with self._lock:
            self._connection.close()


@asynccontextmanager
async def open_fleet_task_list(
    workspace: StoredWorkspace | KnownWorkspace,
) -> AsyncIterator[FleetTaskList]:
    """Open the workspace's task list, even if it is closed. Raises
    SharedStoreUnreachable if its store is away.

    A workspace that had tasks before it was shared has a list in its folder as well. What
    has not ended there is moved to the shared list, where alone workers look.
    """
    if isinstance(workspace, KnownWorkspace) or workspace.link is None:
        async with _open_list_in_folder(workspace.folder) as tasks:
            yield tasks
        return

    connected = await workspace.link.ensure_connected()
    engine = connected.remote.engine
    if not isinstance(engine, PostgresRowStore):
        raise NotFound(
            "This shared store cannot store tasks.", remedy="To share tasks, use PostgreSQL."
        )
    shared_list = open_shared_task_list(engine, connected.seal, connected.remote.run_in_thread)
    path = workspace.folder / TASK_FILE
    if await asyncio.to_thread(_has_tasks_to_move, path):
        async with _open_list_in_folder(workspace.folder) as earlier_list:
            await move_tasks_and_budgets(earlier_list, shared_list)
    yield shared_list


@asynccontextmanager
async def _open_list_in_folder(folder: Path) -> AsyncIterator[FleetTaskList]:
    tables = await asyncio.to_thread(SqliteTaskTables, folder / TASK_FILE)
    try:
        yield tables.open_list_in_file()
    finally:
        await asyncio.to_thread(tables.close)


def _has_tasks_to_move(path: Path) -> bool:
    """Whether a list in a file has tasks that have not ended, or budgets. A file that cannot
    be read is left as it is: the workspace works without it.
    """
    if not path.exists():
        return False
    try:
        with closing(sqlite_database.connect_read_only(path, StoreFailed, _WHAT)) as connection:
            ((has_tasks_or_budgets,),) = connection.execute(_HAS_TASKS_TO_MOVE).fetchall()
    except (StoreFailed, sqlite3.Error):
        return False
    return bool(has_tasks_or_budgets)


class RunInThread(Protocol):
    """Runs a blocking function in a thread."""

    def __call__(self, work: Callable[[], T], /) -> Awaitable[T]: ...


def open_shared_task_list(
    engine: PostgresRowStore, seal: RowCipher, run_in_thread: RunInThread
) -> FleetTaskList:
    """Return the list of tasks that computers share in this database."""

    async def run_in_shared_store(work: Callable[[TableTransaction], T]) -> T:
        return await run_in_thread(lambda: engine.run_work_in_store(work))

    queue = ProcrastinateTaskQueue(seal.space)
    return FleetTaskList(run_in_shared_store, POSTGRES, queue, seal.space, seal)


async def forget_text_in_tasks(
    workspace: StoredWorkspace, text: str
) -> tuple[int, tuple[str, ...]]:
    """Forget a text in tasks. Return how many changed, and sentences on what is left."""
    if not text:
        return 0, ()
    is_shared = workspace.link is not None
    has_task_file = (workspace.folder / TASK_FILE).exists()
    blank_text = ForgetRequest(text, ()).blank_text
    # It was kept in case version 0.2 is needed again, and cannot be searched.
    await asyncio.to_thread((workspace.folder / COPY_OF_0_2).unlink, missing_ok=True)
    number_changed = 0
    running_ids: list[str] = []
    sentences: list[str] = []
    if has_task_file:
        # Also in a shared workspace: tasks that had ended before it was shared are there.
        async with _open_list_in_folder(workspace.folder) as list_in_folder:
            blanked = await list_in_folder.blank_texts_of_tasks(blank_text)
        number_changed += blanked.number_changed
        running_ids += blanked.running_ids
    if is_shared:
        try:
            async with open_fleet_task_list(workspace) as shared_list:
                await shared_list.remove_copy_of_0_2()
                blanked = await shared_list.blank_texts_of_tasks(blank_text)
            number_changed += blanked.number_changed
            running_ids += blanked.running_ids
        except NotFound:  # This shared store cannot store tasks.
            pass
        except SharedStoreUnreachable:
            sentences.append(
                "The tasks in the shared store could not be searched, because the store does not answer."
            )
    for task in running_ids:
        sentences.append(
            f"The task {task} is running and still contains the text. Forget it again later."
        )
    return number_changed, tuple(sentences)
