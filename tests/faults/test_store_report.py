"""A trial that was cut off is no pass: most trials look only at their end whether all is well."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.faults import store_report

# Counts three things, then is told to end, as `timeout` and Ctrl+C do.
CUT_OFF_TRIAL = """
import os, signal, sys
from tests.faults import store_report
def trials(found):
    found["kills"] += 3
    os.kill(os.getpid(), signal.{signal})
    found["LOST: what only the end of the trial sees"] += 1
sys.exit(store_report.report("fleet", 7, trials))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="there, no signal asks a process to end")
@pytest.mark.parametrize("signal", ["SIGTERM", "SIGINT"])
def test_a_trial_that_was_cut_off_is_not_judged(signal: str) -> None:
    program = CUT_OFF_TRIAL.format(signal=signal)
    trial = subprocess.run(
        [sys.executable, "-c", program], check=False, capture_output=True, text=True
    )
    assert trial.returncode == store_report.CUT_OFF
    assert trial.stdout.startswith("fleet: 3 kills; cut off: not judged, 0 failures; ")


def test_the_exit_code_says_whether_something_was_lost() -> None:
    program = """
from tests.faults.store_report import report
codes = [report("t", 1, lambda found: found.update(counts)) for counts in ({}, {"kills": 1}, {"LOST: it": 2})]
print(codes)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout.splitlines()[-1] == "[1, 0, 1]"
