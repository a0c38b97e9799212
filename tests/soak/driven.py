"""The real window, driven from inside by a story: what a person does, by real events,
on the program's own event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import traceback
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import Any

from helix_desktop import program_folders, window_start
from helix_desktop.desktop import window_program
from helix_desktop.engine.facts import TurnEnded
from helix_desktop.providers.provider_catalog import ProviderConfig
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.benchmarks import machine

MODEL = "peer/scripted"
# the program's own folder, which no tool may enter; the workspaces' folders stand
# beside it
HOME = "home"
Story = Callable[[window_program.WindowProgram], Coroutine[Any, Any, None]]


@contextlib.contextmanager
def started(module: str, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server of ours in a process of its own, and the port it told."""
    command = [sys.executable, "-m", module, *arguments]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=machine.environment()
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        try:
            yield process, int(process.stdout.readline())
        finally:
            process.stdin.close()
            process.terminate()


def prepare(
    home: Path, port: int, workspaces: Sequence[str], fill: Callable[[Path], None], *, window: int
) -> None:
    """A home as it is after the first start: a provider, workspaces on folders beside
    it, everything allowed.
    """

    async def make() -> None:
        where = program_folders.find_program_folders(home / HOME)
        desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
        desk.configured.save_provider(
            ProviderConfig("peer", base_url=f"http://127.0.0.1:{port}/v1")
        )
        desk.configured.correct_model("peer", "scripted", {"window": window})
        for name in workspaces:
            folder = home / "folders" / name
            folder.mkdir(parents=True)
            fill(folder)
            bench = await desk.create_workspace(name, folder)
            bench.workspace.change_settings({"limits.steps": 10_000, "limits.repeats": 1_000})
            await bench.choose_model_for_role(MODEL)
            await bench.choose_permission_mode("allow all")
        await desk.aclose()

    asyncio.run(make())


def drive(home: Path, story: Story, *arguments: str) -> int:
    """Run the window until the story is over; 1 where it ended with an error, which is shown.
    `arguments`: those of its command line.
    """
    failed: list[BaseException] = []

    class Driven(window_program.WindowProgram):
        async def _start_behind_window(self) -> None:
            await super()._start_behind_window()
            self._tasks.spawn_task(self._told(), name="story")

        async def _told(self) -> None:
            try:
                await story(self)
            except Exception as error:  # noqa: BLE001 - the top of a task: shown, and the exit code says so
                failed.append(error)
                traceback.print_exception(error)
            finally:
                self._close_window()

    window_program.WindowProgram = Driven  # type: ignore[misc] # what app.main starts
    code = window_start.main(home / HOME, arguments)
    return 1 if failed else code


async def until(what: Callable[[], bool], limit: float = 600.0) -> None:
    """Wait for something to be so; TimeoutError says that it never was. A turn beside much else
    takes a minute.
    """
    async with asyncio.timeout(limit):
        while not what():
            await asyncio.sleep(0.01)


async def opened(run: window_program.WindowProgram, workspace: str) -> None:
    """Click the workspace in the rail, and wait for it."""
    window = run.window
    await until(lambda: any(row.name == workspace for row in window.workspaces.listed))
    row = next(row for row in window.workspaces.listed if row.name == workspace)
    window.rail.chosen.emit(row.id)
    showing = window.parts.showing
    await until(lambda: showing.workspace is not None and showing.workspace.id == row.id)


def turns(run: window_program.WindowProgram) -> int:
    """Turns of the open conversation that came to an end."""
    session = run.window.current_session
    return (
        sum(isinstance(each.fact, TurnEnded) for each in session.conversation.state.facts)
        if session
        else 0
    )
