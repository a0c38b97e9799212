"""What a program made of a browser costs before it does anything: Chromium with one
empty page, as an application's window.

An Electron program, which is this and more, cannot be had from the registries alone:
its install step fetches a binary.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

PAGE = b"""<!doctype html><title>Empty</title><body><script>
requestAnimationFrame(() => requestAnimationFrame(() => fetch("/painted")))
</script>"""
NAME = "Chromium, an empty page"
SETTLED = 0.5  # seconds after the first paint, as for the other windows


def found() -> bool:
    return shutil.which("chromium") is not None


def once(home: str) -> tuple[float, float]:
    """Milliseconds to the first painted frame, and megabytes of all its processes, what
    they share counted once.
    """
    heard: list[float] = []

    class Listening(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/painted":
                heard.append(time.perf_counter())
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Listening) as server:
        server.timeout = 30
        address = f"--app=http://127.0.0.1:{server.server_port}/"
        options = [
            f"--user-data-dir={home}",
            "--no-first-run",
            "--no-sandbox",
            "--window-size=1440,900",
            address,
        ]
        begun = time.perf_counter()
        with subprocess.Popen(
            ["chromium", *options],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                while not heard and time.perf_counter() - begun < server.timeout:
                    server.handle_request()
                time.sleep(SETTLED)
                memory = sum(map(_share, _family(process.pid)))
            finally:
                for each in list(_family(process.pid)):
                    with suppress(ProcessLookupError):
                        os.kill(each, signal.SIGKILL)
    return 1000 * (heard[0] - begun), memory


def _family(eldest: int) -> Iterator[int]:
    """The process and all that come from it."""
    parents: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
    for pid in parents:
        at = pid
        while at not in {0, eldest}:
            at = parents.get(at, 0)
        if at == eldest:
            yield pid


def _share(pid: int) -> float:
    lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("Pss:")).split()[1]) / 1024
