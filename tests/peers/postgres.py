"""A PostgreSQL server of one's own: made in a temporary folder, run by a user without
rights, stopped or killed at will.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.peers import left_servers
from tests.peers.ports import free_port

FAST = {"fsync": "off"}  # where nothing is killed
_COMMON = {
    "listen_addresses": "'127.0.0.1'",
    "shared_buffers": "'64MB'",
    "max_connections": "300",
    "unix_socket_directories": "''",
    "logging_collector": "off",
}


def programs() -> Path | None:
    """The folder with initdb and postgres, the newest version where there are several."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    there = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda each: int(each.parent.name)
    )
    return there[-1] if there else None


def why_not() -> str:
    """Why no server can be started here; empty where one can."""
    if programs() is None:
        return "PostgreSQL is not installed here (on Debian: apt-get install postgresql)"
    if os.name == "nt":
        return "the trial starts PostgreSQL as another user, which is written for Unix"
    return ""


class Server:
    """One server. `options` go into its settings; `write_user_message`'s password is
    `password` where one is given.
    """

    def __init__(
        self,
        options: Mapping[str, str] | None = None,
        *,
        password: str = "",
        folder: Path | None = None,
    ) -> None:
        self.folder = new_folder() if folder is None else folder
        self.data = self.folder / "data"
        self.port = free_port()
        self.password = password
        self._process: subprocess.Popen[bytes] | None = None
        hand_over(self.folder)
        self._initialise()
        self.configure({**_COMMON, **(options or {})})

    @property
    def url(self) -> str:
        secret = f":{self.password}" if self.password else ""
        return f"postgresql://helix{secret}@127.0.0.1:{self.port}/postgres"

    @property
    def pid(self) -> int:
        """Of the postmaster; 0 while none runs."""
        return self._process.pid if self._process is not None else 0

    def processor_seconds(self) -> float:
        """Return the processor time of all its processes that live. For what a connection
        did, ask before and after.
        """
        processes = [self.pid, *_children_of(self.pid)]
        return sum(_processor_seconds(process) for process in processes)

    def has_ended_by_itself(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def configure(self, options: dict[str, str]) -> None:
        with (self.data / "postgresql.conf").open("a") as file:
            file.writelines(f"{name} = {value}\n" for name, value in options.items())

    def _initialise(self) -> None:
        if self.data.exists():
            return
        secret = self.folder / "password"
        secret.write_text(self.password or "none")
        hand_over(secret)
        how = "scram-sha-256" if self.password else "trust"
        self.run(
            "initdb",
            "-D",
            str(self.data),
            "-U",
            "helix",
            f"--auth={how}",
            f"--pwfile={secret}",
            "--no-sync",
        )
        secret.unlink()

    def run(self, program: str, *arguments: str) -> str:
        """One of PostgreSQL's programs, as the server's user; gives what it prints."""
        where = programs()
        assert where is not None
        environment = {**os.environ, "PGPASSWORD": self.password, "LC_ALL": "C.UTF-8"}
        done = subprocess.run(
            [str(where / program), *arguments],
            check=False,
            capture_output=True,
            text=True,
            cwd="/",
            env=environment,
            user=_user(),
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stdout}{done.stderr}")
        return done.stdout

    def start(self) -> Server:
        """Again and again, while processes of one that was killed still hold its memory."""
        for _ in range(40):
            self._process = self._started()
            if self._answers(self._process):
                return self
            time.sleep(0.25)
        raise RuntimeError((self.folder / "log").read_text(errors="replace")[-2000:])

    def _started(self) -> subprocess.Popen[bytes]:
        where = programs()
        assert where is not None
        with (self.folder / "log").open("ab") as log:
            return subprocess.Popen(
                [str(where / "postgres"), "-D", str(self.data), "-p", str(self.port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                user=_user(),
                start_new_session=True,
            )

    def _answers(self, process: subprocess.Popen[bytes], limit: float = 60) -> bool:
        where = programs()
        assert where is not None
        asked = [str(where / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        until = time.monotonic() + limit
        while process.poll() is None and time.monotonic() < until:
            if subprocess.run(asked, check=False).returncode == 0:
                return True
            time.sleep(0.05)
        return False

    def stop(self) -> None:
        """In order, and at once."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a power cut would, for this server: the postmaster and all its processes."""
        self._end(signal.SIGKILL)

    def _end(self, by: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(ProcessLookupError):
            if by is signal.SIGKILL:  # each of its processes has a group of its own
                if process.poll() is not None:
                    raise RuntimeError(
                        f"It ended by itself: {(self.folder / 'log').read_text(errors='replace')[-2000:]}"
                    )
                process.send_signal(signal.SIGSTOP)
                for child in _children_of(process.pid):
                    with suppress(ProcessLookupError):
                        os.kill(child, by)
            process.send_signal(by)
        process.wait(60)

    def remove(self) -> None:
        self.stop()
        remove_folder(self.folder)


def _children_of(process: int) -> list[int]:
    children = Path(f"/proc/{process}/task/{process}/children").read_text()
    return [int(child) for child in children.split()]


def _processor_seconds(process: int) -> float:
    """Return what the scheduler counts in nanoseconds, or 0 for a process that has ended."""
    try:
        nanoseconds, _, _ = Path(f"/proc/{process}/schedstat").read_text().split()
    except OSError:
        return 0.0
    return int(nanoseconds) / 1e9


def new_folder() -> Path:
    """A temporary one that the server's user can reach, also where this user's own
    temporary folder is private.
    """
    places = (Path(tempfile.gettempdir()), Path("/var/tmp"))
    open_ones = [
        place
        for place in places
        if place.is_dir() and (os.getuid() or place.stat().st_mode & 0o001)
    ]
    folder = Path(tempfile.mkdtemp(prefix="helix-pg-", dir=next(iter(open_ones), None)))
    left_servers.watch_folder(folder)
    return folder


def remove_folder(folder: Path) -> None:
    """Remove what `new_folder` made."""
    shutil.rmtree(folder, ignore_errors=True)
    left_servers.forget_folder(folder)


def hand_over(path: Path) -> None:
    """To the user the server runs as."""
    if (user := _user()) is not None:
        shutil.chown(path, user)


def _user() -> str | None:
    """PostgreSQL does not run as root."""
    if os.getuid():
        return None
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name).pw_name
    return None
