"""Connects to the resident process and starts it if it does not run."""

import asyncio
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self
from urllib.parse import urlsplit

from helix_desktop import concurrency, running_instance
from helix_desktop.errors import HelixError
from helix_desktop.gateway.gateway_socket import reserve_port_beside_listener
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.processes.starter import (
    DEVNULL,
    PIPE,
    CommandAuthor,
    ProcessLaunch,
    open_process,
)
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.resident.resident_process import RESIDENT_NAME

START_SECONDS = 30.0
PAUSE_SECONDS = 0.1


class CollectingConsole:
    def __init__(self) -> None:
        self.answers: list[str] = []
        self.complaint = ""

    async def read_input(self) -> bytes:
        return b""

    async def write_output(self, data: bytes) -> None:
        del data

    async def print_line(self, text: str) -> None:
        self.answers.append(text)

    async def print_error(self, sentence: str) -> None:
        self.complaint = sentence


class HeldRegistration(CollectingConsole):
    """Keeps an address of the gateway registered, also if the resident is killed."""

    def __init__(
        self,
        where: ProgramFolders,
        command: Sequence[str],
        *registrations: GatewayRegistration,
        starts: bool = True,
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
        self._reserved_ports: dict[int, socket.socket | None] = {}

    def __enter__(self) -> Self:
        concurrency.start_thread(self._run_event_loop, name="hold a registration", daemon=True)
        self._known.wait(START_SECONDS + 10)
        if not self.addresses:
            self.__exit__()
            raise HelixError(self.complaint or "The gateway could not be started.")
        return self

    def __exit__(self, *_: object) -> None:
        def cancel_holding() -> None:
            if self._holding is not None:
                self._holding.cancel()

        with contextlib.suppress(RuntimeError):  # The event loop may have been closed.
            self._loop.call_soon_threadsafe(cancel_holding)
        self._ended.wait(5)
        for held in self._reserved_ports.values():
            if held is not None:
                held.close()

    def _run_event_loop(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            try:
                runner.run(self._hold_registration())
            except (HelixError, OSError) as error:
                self.complaint = str(error)
            except asyncio.CancelledError:
                pass
            finally:
                self._ended.set()
                self._known.set()

    async def _hold_registration(self) -> None:
        self._holding = asyncio.current_task()
        while True:
            wire = await connect_to_resident(self._where, self._command if self._starts else ())
            if wire is None:
                return
            told = [json.dumps(one.as_json_without_key()) for one in self._registrations]
            port = urlsplit(self.addresses[0]).port if self.addresses else None
            request = ["register again", str(port)] if port else ["register"]
            try:
                await running_instance.run_at_owner(wire, [*request, *told], self)
            except HelixError:  # The resident process was killed, so ask a new one.
                continue
            return

    async def print_line(self, text: str) -> None:
        told = json.loads(text)
        pairs = zip(self._registrations, told["tokens"], strict=False)
        self._registrations = tuple(replace(held, token=token) for held, token in pairs)
        self.addresses = told["addresses"]
        # Ports stay reserved while their agents may run, even if the resident is killed.
        for port in {
            urlsplit(address).port or 0 for address in self.addresses
        } - self._reserved_ports.keys():
            self._reserved_ports[port] = reserve_port_beside_listener(port)
        self._known.set()

    @property
    def is_held(self) -> bool:
        return not self._ended.is_set()


async def connect_to_resident(
    where: ProgramFolders, command: Sequence[str]
) -> running_instance.FrameConnection | None:
    """Connect to the resident. If none runs, start it with `command`, or return None
    without one.
    """
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        wire = await running_instance.connect_to_owner(where.run, RESIDENT_NAME)
        if wire is not None or not command:
            return wire
        if (claim := running_instance.claim_instance(where.run, RESIDENT_NAME)) is None:
            await asyncio.sleep(PAUSE_SECONDS)
            continue
        claim.close()
        await asyncio.to_thread(_start_resident, command)
    raise HelixError(
        "The background process could not be started.", remedy="The reason is in the log."
    )


def _start_resident(command: Sequence[str]) -> None:
    """Start a resident. Returns when it can be reached, or when another one was faster."""
    launch = ProcessLaunch(
        CommandAuthor.PROGRAM, [*command, "resident", "--run"], os.sep, has_own_session=True
    )
    process = open_process(launch, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    if process.stdout is not None:
        with process.stdout:
            process.stdout.readline()
    concurrency.start_thread(process.wait, name="wait for the resident", daemon=True)


async def ask_resident(
    where: ProgramFolders, *arguments: str, command: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the resident's answer, or None if none runs and no `command` says how to start one."""
    if (wire := await connect_to_resident(where, command)) is None:
        return None
    heard = CollectingConsole()
    if await running_instance.run_at_owner(wire, list(arguments), heard):
        raise HelixError(heard.complaint)
    return json.loads(heard.answers[-1]) if heard.answers else {}
