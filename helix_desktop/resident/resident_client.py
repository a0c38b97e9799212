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
ANSWER_SECONDS = START_SECONDS + 10  # Longer than the start of the resident may take.
END_SECONDS = 5.0  # For this many seconds, the end of a registration is waited for.
PAUSE_SECONDS = 0.1


class CollectingConsole:
    """Keeps what a command prints, for a program that reads it."""

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
    """Keeps an address of the gateway registered, also if the resident is killed.

    A registration lasts as long as a connection to the resident, so a thread holds that
    connection from `__enter__` to `__exit__`. `starts`: start the resident if it does not run.
    """

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
        self._is_answered = threading.Event()  # The addresses are known, or there will be none.
        self._loop = asyncio.new_event_loop()
        self._holding: asyncio.Task[None] | None = None
        self._ended = threading.Event()
        self.addresses: list[str] = []
        self._reserved_ports: dict[int, socket.socket | None] = {}

    def __enter__(self) -> Self:
        concurrency.start_thread(self._run_event_loop, name="hold a registration", daemon=True)
        self._is_answered.wait(ANSWER_SECONDS)
        if not self.addresses:
            self.__exit__()
            raise HelixError(self.complaint or "The gateway could not be started.")
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(RuntimeError):  # The event loop may have been closed.
            self._loop.call_soon_threadsafe(self._cancel_holding)
        self._ended.wait(END_SECONDS)
        for reserving_socket in self._reserved_ports.values():
            if reserving_socket is not None:
                reserving_socket.close()

    def _cancel_holding(self) -> None:
        if self._holding is not None:
            self._holding.cancel()

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
                self._is_answered.set()

    async def _hold_registration(self) -> None:
        """Register, and stay connected until cancelled. `print_line` gets the addresses."""
        self._holding = asyncio.current_task()
        start_command: Sequence[str] = ()
        if self._starts:
            start_command = self._command
        while True:
            connection = await connect_to_resident(self._where, start_command)
            if connection is None:
                return
            try:
                await running_instance.run_at_owner(connection, self._build_request(), self)
            except HelixError:  # The resident process was killed, so ask a new one.
                continue
            return

    def _build_request(self) -> list[str]:
        """Return the request to register. A new resident is asked for the port of the old one,
        since agents know it.
        """
        request = ["register"]
        if self.addresses:
            port = urlsplit(self.addresses[0]).port
            if port:
                request = ["register again", str(port)]
        for registration in self._registrations:
            request.append(json.dumps(registration.as_json_without_key()))
        return request

    async def print_line(self, text: str) -> None:
        """Take the addresses that the resident answers with."""
        answer = json.loads(text)
        with_tokens: list[GatewayRegistration] = []
        for registration, token in zip(self._registrations, answer["tokens"], strict=False):
            with_tokens.append(replace(registration, token=token))
        self._registrations = tuple(with_tokens)
        self.addresses = answer["addresses"]

        # Ports stay reserved while their agents may run, even if the resident is killed.
        for address in self.addresses:
            port = urlsplit(address).port or 0
            if port not in self._reserved_ports:
                self._reserved_ports[port] = reserve_port_beside_listener(port)
        self._is_answered.set()

    @property
    def is_held(self) -> bool:
        return not self._ended.is_set()


async def connect_to_resident(
    where: ProgramFolders, command: Sequence[str]
) -> running_instance.FrameConnection | None:
    """Connect to the resident. If none runs, start it with `command`, or return None
    without one.
    """
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        connection = await running_instance.connect_to_owner(where.run, RESIDENT_NAME)
        if connection is not None or not command:
            return connection
        claim = running_instance.claim_instance(where.run, RESIDENT_NAME)
        if claim is None:  # A resident is starting or ending.
            await asyncio.sleep(PAUSE_SECONDS)
        else:
            claim.close()  # The new resident makes the claim itself.
            await asyncio.to_thread(_start_resident, command)
    raise HelixError(
        "The background process could not be started.", remedy="The reason is in the log."
    )


def _start_resident(command: Sequence[str]) -> None:
    """Start a resident. Returns when it can be reached, or when another one was faster."""
    resident_command = list(command) + ["resident", "--run"]
    launch = ProcessLaunch(CommandAuthor.PROGRAM, resident_command, os.sep, has_own_session=True)
    process = open_process(launch, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL)
    if process.stdout is not None:
        with process.stdout:
            process.stdout.readline()  # It prints a line once it can be reached, or it ends.
    concurrency.start_thread(process.wait, name="wait for the resident", daemon=True)


async def ask_resident(
    where: ProgramFolders, *arguments: str, command: Sequence[str] = ()
) -> dict[str, Any] | None:
    """Return the resident's answer, or None if none runs and no `command` says how to start one."""
    connection = await connect_to_resident(where, command)
    if connection is None:
        return None
    console = CollectingConsole()
    exit_code = await running_instance.run_at_owner(connection, list(arguments), console)
    if exit_code:
        raise HelixError(console.complaint)
    if not console.answers:
        return {}
    status: dict[str, Any] = json.loads(console.answers[-1])
    return status
