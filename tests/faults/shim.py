"""The library between a program and its files (shim.c): built with the system's
compiler, loaded with LD_PRELOAD.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).with_name("shim.c")


def compiler() -> str | None:
    """A C compiler, on Linux; elsewhere there is no LD_PRELOAD."""
    return (shutil.which("cc") or shutil.which("gcc")) if sys.platform == "linux" else None


def built() -> Path:
    """The library, compiled when its source has changed."""
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    library = Path(tempfile.gettempdir()) / f"helix-shim-{os.getuid()}" / f"{name}.so"
    if not library.exists():
        library.parent.mkdir(mode=0o700, exist_ok=True)
        made = library.with_suffix(f".{os.getpid()}")
        command = [
            compiler() or "cc",
            "-shared",
            "-fPIC",
            "-O1",
            "-o",
            str(made),
            str(SOURCE),
            "-ldl",
            "-lpthread",
        ]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(library)
    return library


def again(module: str, arguments: list[str]) -> int:
    """Run a trial's module in a process that has the library in front of its files. Its
    exit code.
    """
    environment = {**os.environ, "LD_PRELOAD": str(built()), "HELIX_SHIM": "1"}
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command, env=environment, text=True, capture_output=True, check=False, cwd=SOURCE.parents[2]
    )
    sys.stdout.write(done.stdout + done.stderr)
    return done.returncode


def loaded() -> bool:
    return os.environ.get("HELIX_SHIM") == "1"


def watch(folder: Path) -> None:
    """Calls below this folder are counted, recorded and made to fail; no others."""
    ctypes.CDLL(None).shim_root(os.fsencode(folder))


def record(fd: int) -> None:
    ctypes.CDLL(None).shim_record(fd)


def fail(at: int, number: int, *, for_good: bool) -> None:
    """Let the `at`-th call from now fail with this errno, and all behind it where it is
    for good; 0 ends that.
    """
    ctypes.CDLL(None).shim_fail(ctypes.c_long(at), number, int(for_good))


def kill(at: int) -> None:
    """End this process right before the `at`-th call from now."""
    fail(at, -signal.SIGKILL, for_good=False)


def calls() -> int:
    count = ctypes.CDLL(None).shim_calls
    count.restype = ctypes.c_long
    return int(count())
