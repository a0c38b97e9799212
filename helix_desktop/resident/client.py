"""How wraps, windows and commands reach the resident; it is started where none answers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import threading
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from types import TracebackType
from typing import Any, Self

from helix_desktop import instance, tasks
from helix_desktop.errors import HelixError
from helix_desktop.gateway.registration import Registration
from helix_desktop.places import Places
from helix_desktop.processes.starter import DEVNULL, PIPE, ChildProcess, ProcessLaunch, Whose, open_process
from helix_desktop.resident.process import NAME

TRIES = 5
START_SECONDS = 30.0


class Heard:
    """A console that keeps what the resident says."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.complaint = ""

    async def read(self) -> bytes:
        return b""

    async def write(self, data: bytes) -> None:
        del data

    async def say(self, text: str) -> None:
        self.told.append(text)

    async def complain(self, sentence: str) -> None:
        self.complaint = sentence


class HeldRegistration(Heard):
    """An address of the gateway, for as long as the block lasts. If the resident is killed meanwhile, another one is started
    and the registration is made again. `starts`: whether a resident is started where none runs.
    """

    def __init__(
        self, where: Places, command: Sequence[str], *registrations: Registration, starts: bool = True
    ) -> None:
        super().__init__()
        self._starts = starts
        self._where = where
        self._command = command
        self._registrations = registrations
        self._known = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._holding: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        self.addresses: list[str] = []

    def __enter__(self) -> Self:
        tasks.thread(self._work, name="hold a registration", daemon=True)
        self._known.wait(START_SECONDS + 10)
        if not self.addresses:
            self._end()
            raise HelixError(self.complaint or "The gateway could not be started.")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def _end(self) -> None:
        def cancel() -> None:
            if self._holding is not None:
                self._holding.cancel()

        with contextlib.suppress(RuntimeError):  # it has ended by itself
            self._loop.call_soon_threadsafe(cancel)
        self._ended.wait(5)

    def _work(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._hold())
            except (HelixError, OSError) as error:
                self.complaint = str(error)
            except asyncio.CancelledError:
                pass
            finally:
                self._ended.set()
                self._known.set()

    async def _hold(self) -> None:
        self._holding = asyncio.current_task()
        while True:
            wire = await (self._connected() if self._starts else instance.reach(self._where.run, NAME))
            if wire is None:
                return
            told = [json.dumps(one.told()) for one in self._registrations]
            try:
                await instance.hand_over(wire, ["register", *told], self)
            except HelixError:  # it was killed
                continue
            return

    async def say(self, text: str) -> None:
        """The resident's answer."""
        told = json.loads(text)
        self._registrations = tuple(map(_with_token, self._registrations, told["tokens"]))
        self.addresses = told["addresses"]
        self._known.set()

    async def _connected(self) -> instance.Wire | None:
        return await connect(self._where, self._command)

    @property
    def is_held(self) -> bool:
        """Whether the address still answers."""
        return not self._ended.is_set()

    @property
    def address(self) -> str:
        """The first registration's."""
        return self.addresses[0]


def _with_token(registration: Registration, token: str) -> Registration:
    return replace(registration, token=token)


async def connect(where: Places, command: Sequence[str]) -> instance.Wire:
    """A connection to the resident, which is started where there is none."""
    for _ in range(TRIES):
        if (wire := await instance.reach(where.run, NAME)) is not None:
            return wire
        await asyncio.to_thread(_start, command)
    raise HelixError("The resident process could not be started.", remedy="The reason is in the log of commands.")


def _start(command: Sequence[str]) -> None:
    """Returns when it can be reached, or when another one was quicker."""
    launch = ProcessLaunch(Whose.PROGRAM, [*command, "resident", "--run"], os.sep, has_own_session=True)
    process = open_process(launch, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    if process.stdout is not None:
        with process.stdout:
            process.stdout.readline()
    tasks.thread(partial(_reap, process), name="wait for the resident", daemon=True)


def _reap(process: ChildProcess) -> None:
    process.wait()


async def ask(where: Places, *arguments: str, command: Sequence[str] = ()) -> dict[str, Any] | None:
    """What the resident answers; None where there is none, unless `command` says how to start one."""
    wire = await (connect(where, command) if command else instance.reach(where.run, NAME))
    if wire is None:
        return None
    heard = Heard()
    if await instance.hand_over(wire, list(arguments), heard):
        raise HelixError(heard.complaint)
    return json.loads(heard.told[-1]) if heard.told else {}
