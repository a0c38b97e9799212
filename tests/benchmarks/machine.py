"""What a figure was measured on: without it, no time means anything."""

from __future__ import annotations

import os
import platform
import sqlite3
import subprocess
import sys
from contextlib import suppress
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from helix_desktop import __version__


def described() -> dict[str, str]:
    """In words, for the head of a report."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "program": f"{__version__} ({_commit()})",
        "libraries": _library_versions(),
        "processor": f"{_processor()}, {os.cpu_count()} cores",
        "memory": _memory(),
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}, SQLite {sqlite3.sqlite_version}",
        "load at the start": " ".join(f"{load:.1f}" for load in os.getloadavg())
        if hasattr(os, "getloadavg")
        else "unknown",
    }


def environment() -> dict[str, str]:
    """For a benchmark's process: this checkout is imported, compiled as an installed
    program is, and nobody's keyring is asked.
    """
    root = Path(__file__).parents[2]
    compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(root / ".venv/compiled")}
    return {
        **os.environ,
        **(compiled if os.environ.get("PYTHONDONTWRITEBYTECODE") else {}),
        "PYTHONPATH": str(root),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }


def memory(process: str = "self") -> float:
    """Megabytes of a process that are in memory."""
    return int(_line(f"/proc/{process}/status", "VmRSS").split()[0]) / 1024


def _library_versions() -> str:
    """The libraries whose speed is measured along with ours."""
    names = ("PySide6-Essentials", "plyvel", "httpx", "orjson", "tiktoken", "zstandard")
    versions: list[str] = []
    for name in names:
        with suppress(PackageNotFoundError):
            versions.append(f"{name} {version(name)}")
    return ", ".join(versions)


def _commit() -> str:
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip() or "no checkout"


def _processor() -> str:
    return _line("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()


def _memory() -> str:
    kilobytes = _line("/proc/meminfo", "MemTotal").partition(" ")[0]
    return f"{int(kilobytes) / 1e6:.0f} GB" if kilobytes else "unknown"


def _line(path: str, name: str) -> str:
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), "")


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}: {value}\n" for name, value in described().items())
