"""Holds the gateway's listening socket in a process that outlives the gateway, and
restarts the gateway.
"""

import contextlib
import json
import socket
import sys
import threading
import time
from collections.abc import Iterable, Sequence

from helix_desktop import concurrency
from helix_desktop.errors import HelixError, InvalidInput
from helix_desktop.gateway.gateway_socket import GATEWAY_PORT, listen_on_loopback
from helix_desktop.gateway.registration import GatewayRegistration
from helix_desktop.processes import starter
from helix_desktop.processes.starter import open_process

PAUSE_SECONDS = 0.2  # The pause before a gateway is started again that ended within this time.
# Gateways inherit the listening socket, so no other program can take the port.
INHERITS = sys.platform != "win32"


class GatewayKeeper:
    """Restarts a killed gateway on the same socket, while new connections wait."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = list(command) + ["--told"]
        self._registrations_line = "[]\n"
        self._lock = threading.Lock()
        self._process: starter.ChildProcess | None = None
        self._socket: socket.socket | None = None
        self._is_ending = threading.Event()
        self.port = 0

    @property
    def gateway_pid(self) -> int:
        return self._process.pid if self._process is not None else 0

    def start_first_gateway(self, port: int = 0) -> None:
        """Start the first gateway on `port`, which agents know, or else the usual port
        or a free one.
        """
        try:
            self._socket = listen_on_loopback(port or GATEWAY_PORT, is_reserved=bool(port))
        except InvalidInput:
            if port:
                raise
            self._socket = listen_on_loopback(0)
        self.port = self._socket.getsockname()[1]
        if not INHERITS:
            self._socket.close()
        self._start_gateway_process()
        concurrency.start_thread(self._restart_ended_gateway, name="watch the gateway", daemon=True)

    def set_registrations(self, registrations: Iterable[GatewayRegistration]) -> None:
        with self._lock:
            rows = [registration.as_json_without_key() for registration in registrations]
            self._registrations_line = json.dumps(rows) + "\n"
            self._send_registrations_to_gateway()

    def stop_gateway_process(self) -> None:
        self._is_ending.set()
        with self._lock:
            if self._socket is not None:
                self._socket.close()
            process = self._process
        if process is not None:
            process.terminate()
            starter.close_or_kill_process(process, 10)

    def _start_gateway_process(self) -> None:
        with self._lock:
            if self._is_ending.is_set() or self._socket is None:
                return
            try:
                launch = self._build_gateway_launch(self._socket)
                self._process = open_process(launch, stdin=starter.PIPE, stdout=starter.DEVNULL)
            except OSError as error:
                raise HelixError(f"The gateway could not be started: {error.strerror}.") from error
            self._send_registrations_to_gateway()

    def _build_gateway_launch(self, listening_socket: socket.socket) -> starter.ProcessLaunch:
        if INHERITS:
            inherited = [listening_socket.fileno()]
            listening_options = ["--socket", str(listening_socket.fileno())]
        else:
            inherited = []
            listening_options = ["--port", str(self.port)]
        return starter.ProcessLaunch(
            starter.CommandAuthor.PROGRAM,
            self._command + listening_options,
            inherited=inherited,
            has_own_session=True,
        )

    def _send_registrations_to_gateway(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        # If the gateway has just ended, its successor will get the message.
        with contextlib.suppress(OSError):
            self._process.stdin.write(self._registrations_line)
            self._process.stdin.flush()

    def _restart_ended_gateway(self) -> None:
        while not self._is_ending.is_set():
            started_waiting = time.monotonic()
            if self._process is not None:
                self._process.wait()
            seconds_until_end = time.monotonic() - started_waiting
            # Agents wait during the pause, so there is one only if gateways end at once.
            if seconds_until_end < PAUSE_SECONDS:
                self._is_ending.wait(PAUSE_SECONDS)
            if not self._is_ending.is_set():
                self._start_gateway_process()
