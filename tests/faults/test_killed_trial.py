"""A trial that is killed leaves nothing running: its servers end with it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from tests.peers import pgbouncer, postgres

# Prints its processes, then waits until it is killed.
TRIAL = """
import sys
from tests.peers import left_servers, pgbouncer, postgres
server = postgres.Server(postgres.FAST).start()
pooler = pgbouncer.Pooler(server)
print(server.pid, pooler.pid, left_servers.watching_process_id(), server.folder, flush=True)
sys.stdin.read()
"""
PATIENCE_MILLISECONDS = 40_000


def wait_for_end(process_id: int) -> bool:
    """Return whether a process, which need not be a child of this one, ends."""
    try:
        handle = os.pidfd_open(process_id)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(PATIENCE_MILLISECONDS))
    finally:
        os.close(handle)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks for processes in /proc")
def test_servers_of_a_killed_trial_end_with_it() -> None:
    if why := postgres.why_not() or pgbouncer.why_not():
        pytest.skip(why)
    trial = subprocess.Popen(
        [sys.executable, "-c", TRIAL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert trial.stdout is not None
    assert trial.stdin is not None
    *process_ids, folder = trial.stdout.readline().split()
    trial.send_signal(signal.SIGKILL)
    trial.wait()
    trial.stdin.close()
    trial.stdout.close()
    try:
        for process_id in process_ids:
            assert wait_for_end(int(process_id))
        assert not Path(folder).exists()
    finally:
        for process_id in process_ids:
            with suppress(ProcessLookupError):
                os.kill(int(process_id), signal.SIGQUIT)
