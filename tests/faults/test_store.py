"""The storage trials in their short form; each module's docstring says what it tries, and how to run it at length."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import shim

ROOT = Path(__file__).parents[2]
needs_fork = pytest.mark.skipif(sys.platform == "win32", reason="the trials fork")
needs_shim = pytest.mark.skipif(shim.compiler() is None, reason="needs a C compiler and LD_PRELOAD")


@needs_fork
@pytest.mark.parametrize(
    ("trial", "count"),
    [
        ("kill", 6),
        pytest.param("crash", 8, marks=needs_shim),
        pytest.param("disk", 8, marks=needs_shim),
        ("bits", 12),
        ("cut", 12),
        ("twice", 10),
    ],
)
def test_nothing_is_lost(trial: str, count: int) -> None:
    command = [sys.executable, "-m", f"tests.faults.store_{trial}", "--trials", str(count), "--seed", "11"]
    done = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "; 0 failures;" in done.stdout
