"""PgBouncer in front of a server, as fleets have it: connections of the server go round
among the clients, by the transaction.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time

from tests.peers import ports, postgres


def why_not() -> str:
    """Why none can be started here; empty where one can."""
    return (
        ""
        if shutil.which("pgbouncer")
        else "PgBouncer is not installed here (on Debian: apt-get install pgbouncer)"
    )


class Pooler:
    """`size`: the connections it has to the server."""

    def __init__(self, server: postgres.Server, *, size: int = 3) -> None:
        self._folder = postgres.new_folder()
        self._size = size
        self.port = ports.free_port()
        self.url = f"postgresql://helix@127.0.0.1:{self.port}/postgres"
        postgres.hand_over(self._folder)
        self.start(server)

    def start(self, server: postgres.Server) -> None:
        """Also again, after it was killed, and for another server."""
        settings = self._folder / "pgbouncer.ini"
        settings.write_text(
            f"[databases]\npostgres = host=127.0.0.1 port={server.port} user=helix\n[pgbouncer]\n"
            f"listen_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\nauth_type = any\n"
            f"pool_mode = transaction\nmax_client_conn = 500\ndefault_pool_size = {self._size}\n"
        )
        postgres.hand_over(settings)
        program = shutil.which("pgbouncer")
        assert program is not None
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                [program, str(settings)],
                stdout=log,
                stderr=log,
                cwd="/",
                user=_user(),
                start_new_session=True,
            )
        self._wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    def _wait(self) -> None:
        until = time.monotonic() + 60
        while self._process.poll() is None and time.monotonic() < until:
            with socket.socket() as one:
                if one.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.02)
        raise RuntimeError((self._folder / "log").read_text(errors="replace")[-2000:])

    def send_signal(self, sign: signal.Signals) -> None:
        """SIGSTOP leaves its clients without an answer, and without a closed connection."""
        self._process.send_signal(sign)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(60)

    def remove(self) -> None:
        self.kill()
        postgres.remove_folder(self._folder)


def _user() -> str | None:
    return None if os.getuid() else "postgres"
