"""The storage trials in their short form; each module's docstring says what it tries,
and how to run it at length.
"""

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
        ("store_kill", 4),
        pytest.param("store_crash", 4, marks=needs_shim),
        pytest.param("store_disk", 4, marks=needs_shim),
        ("store_bits", 10),
        ("store_cut", 6),
        ("shared_peer", 12),
        ("store_twice", 5),
        pytest.param("migration", 3, marks=needs_shim),
    ],
)
def test_nothing_is_lost(trial: str, count: int) -> None:
    command = [
        sys.executable,
        "-m",
        f"tests.faults.{trial}",
        "--trials",
        str(count),
        "--seed",
        "11",
    ]
    done = subprocess.run(
        command, cwd=ROOT, text=True, capture_output=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "; 0 failures;" in done.stdout
