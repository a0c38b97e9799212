"""A gateway for one run of an agent: the one that is there, or one that is started, watched and ended with it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from helix_desktop import tasks
from helix_desktop.errors import HelixError, NotThere, WrongUse
from helix_desktop.gateway.agents import KnownAgent
from helix_desktop.gateway.routes import STATUS
from helix_desktop.places import Places
from helix_desktop.values import dataclass

ADDRESS = "gateway.json"  # in the private folder: the port of the gateway that runs
PAUSE = 0.2
BACKLOG = 256
INHERITS = sys.platform != "win32"  # a child gets the socket that listens, and the port never refuses


def running(where: Places) -> str:
    """The address of the gateway of this home; empty where none answers."""
    try:
        told = json.loads((where.run / ADDRESS).read_text("utf-8"))
        url = f"http://127.0.0.1:{int(told['port'])}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return url if status(url) is not None else ""


def status(url: str) -> dict[str, Any] | None:
    """What a gateway says of itself; None where it does not answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{url}{STATUS}", timeout=3) as answer:
            found = json.loads(answer.read())
    except (OSError, ValueError, urllib.error.URLError):
        return None
    return found if isinstance(found, dict) else None


def listening(port: int) -> socket.socket:
    """A socket of this machine alone; WrongUse where the port is taken."""
    # named as TCP: asyncio sends small pieces at once only where the socket says so
    found = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind(("127.0.0.1", port))
    except OSError as error:
        found.close()
        raise WrongUse(
            f"Port {port} is already in use: {error.strerror}.",
            remedy="Choose another port with --port, or 0 for any free port.",
        ) from error
    found.listen(BACKLOG)
    return found


@dataclass(slots=True)
class Started:
    """A gateway started here; killed, it is started again on its port. Who connects meanwhile waits."""

    command: list[str]
    port: int = 0
    _process: subprocess.Popen[str] | None = None
    _socket: socket.socket | None = None
    _ends: bool = False

    @property
    def pid(self) -> int:
        """The process that runs now."""
        return self._process.pid if self._process is not None else 0

    def begin(self) -> str:
        """Its address, when it listens."""
        if INHERITS:
            self._socket = listening(self.port)
        self._process = self._spawn()
        line = self._process.stdout.readline() if self._process.stdout else ""
        if not line.startswith("listening on "):
            raise HelixError("The gateway could not be started.", remedy="Run helix-desktop gateway to see why.")
        url = line.split()[-1]
        self.port = int(url.rpartition(":")[2])
        tasks.thread(self._watch, name="watch the gateway", daemon=True)
        return url

    def _spawn(self) -> subprocess.Popen[str]:
        inherited = [] if self._socket is None else [self._socket.fileno()]
        place = ["--socket", *map(str, inherited)] if inherited else ["--port", str(self.port)]
        return subprocess.Popen(
            [*self.command, *place], stdout=subprocess.PIPE, text=True, start_new_session=True, pass_fds=inherited
        )

    def _watch(self) -> None:
        pause = threading.Event()
        while self._process is not None:
            self._process.wait()
            if self._ends:
                return
            self._process = self._spawn()
            if self._process.stdout:
                self._process.stdout.readline()
            pause.wait(PAUSE)

    def end(self) -> None:
        """In order."""
        self._ends = True
        if self._socket is not None:
            self._socket.close()
        if self._process is not None:
            self._process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)


@contextlib.contextmanager
def gateway(where: Places, options: Sequence[str], *, own: bool) -> Iterator[str]:
    """The address of a gateway: of the one that runs, or, where none does or `own`, of one for as long as this lasts."""
    found = "" if own else running(where)
    if found:
        yield found
        return
    started = Started([*program(where), "gateway", *options])
    try:
        yield started.begin()
    finally:
        started.end()


def program(where: Places) -> list[str]:
    """How this program is started on this home."""
    own = [sys.executable] if getattr(sys, "frozen", False) else [sys.executable, "-m", "helix_desktop"]
    return [*own, "--home", str(where.data)] if os.environ.get("HELIX_HOME") or where.data == where.config else own


def run(agent: KnownAgent, arguments: Sequence[str], url: str) -> int:
    """The agent to its end, with the terminal and the signals its own. Its exit code."""
    with tempfile.TemporaryDirectory(prefix="helix-wrap-") as scratch:
        launch = agent.launch(f"{url}/a/{agent.name}", arguments, os.environ, Path(scratch) / "agent")
        for wanted in (signal.SIGINT, getattr(signal, "SIGQUIT", signal.SIGINT)):
            signal.signal(wanted, _not_ours)  # the agent, which has the terminal, gets them too
        try:
            process = subprocess.Popen(launch.command, env={**os.environ, **launch.environment})
        except FileNotFoundError:
            raise NotThere(f"{agent.program} was not found. Install it, or add it to your PATH.") from None
        code = process.wait()
    return code if code >= 0 else 128 - code


def _not_ours(_number: int, _frame: object) -> None:
    """A handler and not SIG_IGN: what is ignored would be ignored by the agent as well."""


def line(figures: Sequence[dict[str, Any]]) -> str:
    """What one run came to, in a line."""
    if not figures:
        return "Helix Desktop: no request reached the gateway."
    sent, without = (sum(int(one[name]) for one in figures) for name in ("sent", "without"))
    recalls = sum(int(one["recalls"]) for one in figures)
    paid, paid_without = (sum(float(one[name]) for one in figures) for name in ("paid", "paid_without"))
    money = f", ${paid:.2f} instead of ${paid_without:.2f}" if paid else ""
    share = f" ({1 - sent / without:.0%} saved)" if without else ""
    return f"Helix Desktop: {sent:,} tokens sent instead of {without:,}{share}{money}; {recalls} recalls. See the workspace Connected agents."
