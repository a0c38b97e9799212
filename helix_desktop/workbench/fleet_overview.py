"""What the workers of all workspaces do, with the same figures for `fleet status
--json` and the window.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from helix_desktop.errors import HelixError, SharedStoreUnreachable, UnknownModel
from helix_desktop.store import fleet_task_files
from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.fleet_notes import FleetState
from helix_desktop.store.fleet_task_list import FleetTaskList
from helix_desktop.store.fleet_tasks import (
    FleetTaskOrder,
    FleetTaskState,
    NewFleetTask,
    task_as_json,
)
from helix_desktop.store.stored_workspace import StoredWorkspace
from helix_desktop.workbench.fleet_worker import FleetWorker
from helix_desktop.workbench.open_workbench import Workbench
from helix_desktop.workbench.unattended_permissions import UserAnswer, permission_by_rule

# The maximum number of tasks that are shown for each state of each workspace, until older
# ones are asked for.
MOST_SHOWN = 100
FOLLOW_SECONDS = 1.0  # The overview looks for changes this often.
WORKS_AT_ONCE = 4


async def collect_fleet_state(
    tasks: FleetTaskList, shown_states: Iterable[FleetTaskState], shown_at_most: int = MOST_SHOWN
) -> dict[str, Any]:
    """Return the figures of one workspace, and its newest tasks of each state in
    `shown_states`, up to `shown_at_most` of each.
    """
    counts = await tasks.count_fleet_tasks()
    notes = await tasks.notes.read_state()
    tasks_by_worker = dict.fromkeys(notes.workers, 0)  # A worker may have no task.
    tasks_by_worker.update(counts.by_worker)
    # These workers have tasks but no longer report.
    lost_workers = sorted(counts.by_worker.keys() - notes.workers.keys())
    # Of what is spent, the part for requests that were cut off when a worker was killed.
    estimated_cost = notes.spent.get("estimated", 0.0)
    oldest_waiting_seconds = await tasks.oldest_waiting_seconds()
    state: dict[str, Any] = {
        "tasks": counts.by_state,
        "workers": tasks_by_worker,
        "lost": lost_workers,
        "draining": _list_draining_workers(notes),
        "oldest_waiting_seconds": oldest_waiting_seconds,
        "is_stopped": notes.is_stopped,
        "cost": counts.dollars,
        "budgets": _describe_budgets(notes),
        "estimated_cost": estimated_cost,
        "paused_providers": list(notes.paused),
        "unable": list(notes.unable),
        "setbacks": notes.setbacks,
        "unsent_facts": notes.unsent_facts,
        "has_older": False,
        "is_shared": tasks.is_shared,
    }
    newest_by_state = await tasks.list_newest_of_each_state(shown_states, shown_at_most)
    for shown_state, newest in newest_by_state.items():
        key = shown_state.value.replace("-", "_")
        state[key] = [task_as_json(task) for task in newest]
        if counts.by_state[shown_state] > len(newest):
            state["has_older"] = True
    return state


def _list_draining_workers(notes: FleetState) -> list[str]:
    """Return the workers that end their tasks and take no others."""
    return [worker for worker, is_told_to_drain in notes.workers.items() if is_told_to_drain]


def _describe_budgets(notes: FleetState) -> dict[str, dict[str, float]]:
    budgets: dict[str, dict[str, float]] = {}
    for scope, limit in notes.limits.items():
        spent = notes.spent.get(scope, 0.0)
        budgets[scope] = {"limit": limit, "spent": spent}
    return budgets


class FleetOverview:
    """The tasks of all workspaces. A closed one is read without opening it, so that its
    worker keeps it.
    """

    def __init__(
        self, known: AllWorkspaces, open_workspace: Callable[[str], Awaitable[Workbench]]
    ) -> None:
        self._known = known
        self._open_workspace = open_workspace
        self._most_shown = MOST_SHOWN
        self._look_now = asyncio.Event()  # Set to look for changes at once.

    def show_older_tasks(self) -> None:
        """Let `follow_fleet` list more tasks of each state."""
        self._most_shown += MOST_SHOWN
        self._look_now.set()

    async def follow_fleet(self, show: Callable[[list[Mapping[str, Any]]], object]) -> None:
        """Call `show` with all workspaces that have tasks, now and after each change,
        until this is cancelled.
        """
        last_states: dict[str, Mapping[str, Any]] = {}
        is_first_look = True
        while True:
            workspaces = await asyncio.to_thread(self._list_workspaces_with_tasks)
            reading = [
                self._read_if_changed(workspace, last_states.get(workspace.id, {}))
                for workspace in workspaces
            ]
            states = await asyncio.gather(*reading)
            states_by_workspace = {state["workspace"]: state for state in states}
            if is_first_look or states_by_workspace != last_states:
                show(states)
            last_states = states_by_workspace
            is_first_look = False
            self._look_now.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(FOLLOW_SECONDS):
                    await self._look_now.wait()

    async def count_tasks_that_need_user(self) -> int:
        """Count those of all workspaces. Why a list cannot be read is said where it is shown."""
        number = 0
        for known in await asyncio.to_thread(self._list_workspaces_with_tasks):
            with suppress(HelixError):
                async with self._open_list(known) as tasks:
                    counts = await tasks.count_fleet_tasks()
                    number += counts.by_state[FleetTaskState.NEEDS_YOU]
        return number

    def _list_workspaces_with_tasks(self) -> list[KnownWorkspace]:
        with_tasks: list[KnownWorkspace] = []
        for workspace in self._known.list_workspaces():
            task_file = workspace.folder / fleet_task_files.TASK_FILE
            if self._is_shared(workspace) or task_file.exists():
                with_tasks.append(workspace)
        return with_tasks

    def _is_shared(self, known: KnownWorkspace) -> bool:
        opened = self._known.workspaces_open_here().get(known.id)
        if opened is not None:
            return opened.link is not None
        # A closed workspace has no link, but its settings say where it is shared.
        shared = known.settings.shared
        return bool(shared.get("url") or shared.get("environment"))

    async def _read_if_changed(
        self, known: KnownWorkspace, last_state: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        id_and_name = {"workspace": known.id, "name": known.name}
        try:
            async with self._open_list(known) as tasks:
                fingerprint = (self._most_shown, await tasks.read_fingerprint())
                if last_state.get("fingerprint") == fingerprint:
                    return last_state
                state = await collect_fleet_state(tasks, FleetTaskState, self._most_shown)
                return {**id_and_name, "fingerprint": fingerprint, **state}
        except HelixError as error:
            return {**id_and_name, "trouble": str(error)}

    @asynccontextmanager
    async def _open_list(self, known: KnownWorkspace) -> AsyncIterator[FleetTaskList]:
        opened = self._known.workspaces_open_here().get(known.id)
        if opened is None and self._is_shared(known):
            raise SharedStoreUnreachable(
                f"{known.name} is shared.", remedy="Open the workspace to see its tasks."
            )
        workspace: StoredWorkspace | KnownWorkspace = known
        if opened is not None and opened.link is not None:
            workspace = opened
        async with fleet_task_files.open_fleet_task_list(workspace) as tasks:
            yield tasks

    async def run_on_task_list(
        self, workspace: str, work: Callable[[FleetTaskList], Awaitable[object]]
    ) -> bool:
        """Run `work` on a workspace's tasks. Returns whether there is a worker to do them."""
        known = await asyncio.to_thread(self._known.find_known_workspace, workspace)
        async with self._open_list(known) as tasks:
            await work(tasks)
            notes = await tasks.notes.read_state()
            return bool(notes.workers)

    async def add_task(
        self, workspace: str, text: str, allowed: Sequence[str], model: str = ""
    ) -> None:
        """Add a task. This program does it if there is no worker. `model`: empty for that of the
        workspace.
        """
        new_task = NewFleetTask(FleetTaskOrder(text, model=model, allowed=tuple(allowed)))
        has_worker = await self.run_on_task_list(
            workspace, lambda tasks: tasks.add_fleet_tasks([new_task])
        )
        if not has_worker:
            await self.do_tasks_here(workspace)

    async def retry_task(self, workspace: str, task: str, allowed: Sequence[str]) -> None:
        """Let a task be done again, by this program if there is no worker."""

        async def retry(tasks: FleetTaskList) -> None:
            await tasks.retry_fleet_task(await tasks.find_fleet_task(task), allowed)

        has_worker = await self.run_on_task_list(workspace, retry)
        if not has_worker:
            await self.do_tasks_here(workspace)

    async def retry_tasks_set_aside(self, workspace: str) -> None:
        """Let all tasks be done again that were given back too often."""
        has_worker = await self.run_on_task_list(workspace, FleetTaskList.retry_dead_letters)
        if not has_worker:
            await self.do_tasks_here(workspace)

    async def answer_task(
        self, workspace: str, task: str, why: str, *, allowed: bool, words: str = ""
    ) -> None:
        """Answer the question that a task waits for. `why`: the text that the user has read."""
        answer = UserAnswer(allowed, words)
        await self.retry_task(workspace, task, [answer.as_permission(why)])

    async def allow_for_rest_of_task(
        self, workspace: str, task: str, asked: str, rule: str
    ) -> None:
        """Let a task do from now on what this rule covers, which its question offers."""
        await self.retry_task(workspace, task, [permission_by_rule(asked, rule)])

    async def do_tasks_here(self, workspace: str) -> None:
        bench = await self._open_workspace(workspace)
        try:
            await bench.models.check_main_model()
        except UnknownModel as error:
            raise UnknownModel(
                f"{error.what} No other computer runs the tasks of {bench.name} at the moment.",
                remedy="Choose a model at the top right, or start a worker on another computer.",
            ) from error
        bench.tasks.spawn_task(_work_until_empty(bench), name="worker of the window")


async def _work_until_empty(bench: Workbench) -> None:
    async with fleet_task_files.open_fleet_task_list(bench.workspace) as tasks:
        worker = FleetWorker(bench, tasks, at_once=WORKS_AT_ONCE, allowed=())
        await worker.work_until_drained(until_empty=True)
