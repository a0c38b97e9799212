"""One worker process that knows many workspaces, with few file handles: every task is
done, and only workspaces with a task are open.

The limit of open files is 1,024 and cannot be raised. A tenth of the workspaces, or as
many as `--busy`, have a task at the start, others get one while the worker runs.

python -m tests.faults.fleet_many_workspaces [--workspaces 1000] [--busy 100] [--handles 1024]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from helix_desktop.store.all_workspaces import AllWorkspaces, KnownWorkspace
from helix_desktop.store.fleet_task_files import open_fleet_task_list
from helix_desktop.store.fleet_tasks import FleetTaskOrder, NewFleetTask
from tests.faults.store_report import report
from tests.peers.chat_server import ChatServer, reply

LATER = 20  # workspaces that get a task while the worker runs
PATIENCE = 240.0
REST_SECONDS = 65.0  # Within a minute, the worker returns memory to the system.


def run_trial(count: int, busy: int, handles: int, found: Counter[str]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="helix-many-"))
    environment = {**os.environ, "HELIX_HOME": str(folder / "home")}
    with ChatServer(default=lambda _seen: reply("done")) as server:
        _helix(environment, "provider", "add", "peer", "--base-url", server.base_url)
        known = _make_workspaces(folder, environment, count)
        for workspace in known[:busy]:
            asyncio.run(_add_task(workspace))
        began = time.monotonic()
        with (folder / "worker.log").open("wb") as log_file:
            worker = subprocess.Popen(
                [sys.executable, "-m", "helix_desktop", "worker", "--json"],
                env=environment,
                stdout=subprocess.DEVNULL,
                stderr=log_file,
                preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (handles, handles)),  # noqa: PLW1509
            )
        try:
            _wait_until_done(worker, known[:busy], found)
            found["seconds until the first are done"] = round(time.monotonic() - began)
            later = known[-LATER:]
            began = time.monotonic()
            for workspace in later:
                asyncio.run(_add_task(workspace))
            _wait_until_done(worker, later, found)
            found["seconds until the later ones are done"] = round(time.monotonic() - began)
            _wait_until_closed(worker, found)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.wait(60)
        log = (folder / "worker.log").read_text(errors="replace")
        found["LOST: too many open files"] = log.count("Too many open files")
        found["requests to the model"] = len(server.bodies)
    for name in [name for name, count in found.items() if not count]:
        del found[name]
    shutil.rmtree(folder)


def _helix(environment: dict[str, str], *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "helix_desktop", *arguments],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )


def _make_workspaces(folder: Path, environment: dict[str, str], count: int) -> list[KnownWorkspace]:
    """The first gets its model by a command, the others have the same settings."""
    _helix(environment, "workspace", "new", "first", "--folder", str(folder))
    _helix(environment, "model", "set", "-w", "first", "peer/scripted")
    (first,) = (folder / "home").glob("workspaces/*/workspace.toml")
    workspaces = AllWorkspaces(first.parent.parent)
    for number in range(1, count):
        place = workspaces.folder / f"workspace-{number:05}"
        place.mkdir(mode=0o700)
        settings = first.read_text().replace('"first"', f'"Workspace {number}"')
        (place / "workspace.toml").write_text(settings)
    return list(workspaces.list_workspaces())


async def _add_task(workspace: KnownWorkspace) -> None:
    async with open_fleet_task_list(workspace) as tasks:
        await tasks.add_fleet_tasks([NewFleetTask(FleetTaskOrder("say done"))])


async def _count_done(workspaces: list[KnownWorkspace]) -> int:
    done = 0
    for workspace in workspaces:
        async with open_fleet_task_list(workspace) as tasks:
            done += (await tasks.count_fleet_tasks()).by_state["done"]
    return done


def _wait_until_done(
    worker: subprocess.Popen[bytes], workspaces: list[KnownWorkspace], found: Counter[str]
) -> None:
    until = time.monotonic() + PATIENCE
    while (done := asyncio.run(_count_done(workspaces))) < len(workspaces):
        _look_at_handles(worker, found)
        if worker.poll() is not None or time.monotonic() > until:
            found["LOST: tasks that were not done"] = len(workspaces) - done
            return
        time.sleep(0.5)
    found["tasks done"] += done


def _wait_until_closed(worker: subprocess.Popen[bytes], found: Counter[str]) -> None:
    """Until no workspace is open any more, so few handles are."""
    until = time.monotonic() + PATIENCE
    while (handles := _look_at_handles(worker, found)) > 40:
        if worker.poll() is not None or time.monotonic() > until:
            found["LOST: handles that stay open"] = handles
            return
        time.sleep(0.5)
    found["handles at rest"] = handles
    found["threads at rest"] = int(_status_of_process(worker.pid)["Threads"])
    before = _processor_seconds(worker.pid)
    time.sleep(REST_SECONDS)
    busy = (_processor_seconds(worker.pid) - before) / REST_SECONDS
    found["per mille of a core at rest"] = round(1000 * busy)
    fields = _status_of_process(worker.pid)
    found["MB of memory at most"] = int(fields["VmHWM"].split()[0]) // 1024
    found["MB of memory at rest"] = int(fields["VmRSS"].split()[0]) // 1024


def _status_of_process(pid: int) -> dict[str, str]:
    status = Path(f"/proc/{pid}/status").read_text()
    return dict(line.split(":", 1) for line in status.splitlines())


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _look_at_handles(worker: subprocess.Popen[bytes], found: Counter[str]) -> int:
    handles = len(list(Path(f"/proc/{worker.pid}/fd").iterdir()))
    found["most handles"] = max(found["most handles"], handles)
    threads = len(list(Path(f"/proc/{worker.pid}/task").iterdir()))
    found["most threads"] = max(found["most threads"], threads)
    return handles


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workspaces", type=int, default=1_000)
    parser.add_argument("--busy", type=int, default=100)
    parser.add_argument("--handles", type=int, default=1_024)
    arguments = parser.parse_args()
    sizes = (arguments.workspaces, arguments.busy, arguments.handles)
    return report("many workspaces", 0, lambda found: run_trial(*sizes, found))


if __name__ == "__main__":
    sys.exit(main())
