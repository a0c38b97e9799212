"""Processes of our own commands without the second that Python takes to import them.

The nursery is one process that has imported everything, and nothing else: no event loop, no threads.
For each command it forks, and the child runs the command line as `python -m helix_desktop` would. So
a story of many processes that are killed costs little processor time. Begin it before any event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Sequence

from helix_desktop import cli

_PRELOADED = (
    "helix_desktop.commands.ask_command",
    "helix_desktop.commands.acp_command",
    "helix_desktop.commands.gateway_command",
    "helix_desktop.commands.host_command",
    "helix_desktop.acp_agent.editor_requests",
    "helix_desktop.gateway.gateway_server",
    "helix_desktop.gateway.local_conversations",
    "helix_desktop.gateway.remote_conversations",
    "helix_desktop.workbench",
    "helix_desktop.workspace_host.host_connection",
    "helix_desktop.workspace_host.kept_host",
    "helix_desktop.workspace_host.remote_workspace_host",
)
_LONGEST_REQUEST = 1 << 16


class NurseryProcess:
    """A command that runs. `exit_code` is None while it does, and -9 once it was killed."""

    def __init__(self, pid: int, exit_pipe: int) -> None:
        self.pid = pid
        self._exit_pipe = exit_pipe
        self.exit_code: int | None = None

    def kill(self) -> bool:
        """Returns whether it was still running."""
        if not self.is_running:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        return True

    @property
    def is_running(self) -> bool:
        if self.exit_code is None:
            self._read_exit_code()
        return self.exit_code is None

    def _read_exit_code(self) -> None:
        """Its end of the pipe is closed when it has ended, however that was."""
        try:
            said = os.read(self._exit_pipe, 16)
        except BlockingIOError:
            return
        os.close(self._exit_pipe)
        self.exit_code = -signal.SIGKILL
        if said:
            self.exit_code = int(said)

    async def wait_until_ended(self) -> None:
        while self.is_running:
            await asyncio.sleep(0.02)


class CommandNursery:
    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket = ours
        self._pid = os.fork()
        if self._pid == 0:
            ours.close()
            _run_nursery(theirs)
            os._exit(0)
        theirs.close()

    def start_command(
        self, argv: Sequence[str], stdin: int, stdout: int, stderr: int
    ) -> NurseryProcess:
        """Starts the command with these three open files, which the caller closes."""
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        request = json.dumps(list(argv)).encode()
        socket.send_fds(self._socket, [request], [stdin, stdout, stderr, writing])
        os.close(writing)
        pid = int(self._socket.recv(_LONGEST_REQUEST))
        return NurseryProcess(pid, reading)

    def start_silent_command(self, argv: Sequence[str]) -> NurseryProcess:
        nothing = os.open(os.devnull, os.O_RDWR)
        try:
            return self.start_command(argv, nothing, nothing, nothing)
        finally:
            os.close(nothing)

    def close(self) -> None:
        self._socket.close()
        os.waitpid(self._pid, 0)


def _run_nursery(requests: socket.socket) -> None:
    for name in _PRELOADED:
        __import__(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Nobody waits for the children here.
    while True:
        request, files, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 4)
        if not request:
            return
        pid = os.fork()
        if pid == 0:
            requests.close()
            _run_command(json.loads(request), files)
        for file in files:
            os.close(file)
        requests.send(str(pid).encode())


def _run_command(argv: list[str], files: Sequence[int]) -> None:
    code = 1
    exit_pipe = files[3]
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        for number, file in enumerate(files[:3]):
            os.dup2(file, number)
            os.close(file)
        sys.stdin = os.fdopen(0, "r", closefd=False)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", closefd=False)
        code = cli.main(argv)
        sys.stdout.flush()
    except BaseException:  # noqa: BLE001 - the last words of a command that failed
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os.write(exit_pipe, str(code).encode())
        os._exit(code)
