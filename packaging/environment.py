"""The virtual environment `.venv`: made once, filled from a lock file with hashes, left
alone while that stands.

A stamp in it remembers what it was filled with. When the stamp fits, starting costs
reading two small files.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import system

ROOT = Path(__file__).resolve().parent.parent
VENV = Path(os.environ.get("HELIX_VENV", ROOT / ".venv"))
LOCKS = {
    "run": ROOT / "packaging/requirements.lock",
    "test": ROOT / "packaging/requirements-test.lock",
    "bench": ROOT / "packaging/requirements-bench.lock",
    "build": ROOT / "packaging/requirements-build.lock",
}
GROUPS = {"run": (), "test": ("dev",), "bench": ("dev", "bench"), "build": ("build",)}
NEEDS = {
    "run": system.QT,
    "test": (*system.QT, *system.TESTING),
    "bench": (*system.QT, *system.TESTING),
    "build": system.QT,
}


def python() -> Path:
    return VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def prepare(purpose: str) -> None:
    """Have everything in place for `purpose`; quick when it already is. Ends the
    program with a sentence if it fails.
    """
    stamp = VENV / f".helix-{purpose}"
    wanted = _fingerprint(purpose)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted and python().exists():
        return
    complete = system.provide(
        (*NEEDS[purpose], *system.leveldb()) if sys.platform != "win32" else ()
    )
    _make()
    _install(LOCKS[purpose])
    if complete:
        stamp.write_text(wanted, encoding="utf-8")


def _fingerprint(purpose: str) -> str:
    """Changes with the lock, with what the system has to have, with Python, and when
    the checkout is moved.
    """
    content = LOCKS[purpose].read_bytes() + Path(system.__file__).read_bytes()
    return f"{hashlib.sha256(content).hexdigest()} {sys.version} {ROOT}"


def _make() -> None:
    if sys.version_info < (3, 11):
        sys.exit(f"Helix Desktop needs Python 3.11 or newer; this is {sys.version.split()[0]}.")
    if not _has_pip():
        print(f"Making {VENV}", flush=True)
        if not _created():
            system.provide(system.VENV)
            if not _created():
                shutil.rmtree(
                    VENV, ignore_errors=True
                )  # half a one would stand in the way of the next run
                sys.exit(
                    "Python's venv module does not work here. On Debian and Ubuntu: apt-get install python3-venv"
                )
    _place_package()


def _has_pip() -> bool:
    return python().exists() and _quietly([str(python()), "-m", "pip", "--version"]) == 0


def _created() -> bool:
    """A new one, in the place of what a run that was cut short may have left."""
    if VENV.exists() and any(VENV.iterdir()) and not (VENV / "pyvenv.cfg").exists():
        sys.exit(
            f"{VENV} is not a virtual environment. Nothing was changed. Set HELIX_VENV to another folder."
        )
    shutil.rmtree(VENV, ignore_errors=True)
    return _quietly([sys.executable, "-m", "venv", str(VENV)]) == 0 and _has_pip()


def _place_package() -> None:
    """The checkout itself is on the environment's path: nothing to install again when a
    file changes.
    """
    asked = [str(python()), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    folder = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    Path(folder, "helix-desktop-checkout.pth").write_text(f"{ROOT}\n", encoding="utf-8")


def _install(lock: Path) -> None:
    print(f"Installing what {lock.name} names", flush=True)
    pip = [
        str(python()),
        "-m",
        "pip",
        "install",
        "-qq",
        "--disable-pip-version-check",
        "--no-input",
    ]
    if subprocess.run([*pip, "--require-hashes", "-r", str(lock)], check=False).returncode:
        sys.exit(
            "Installing the libraries failed; pip's own words stand above. Is a package index within reach?"
        )


def _quietly(command: list[str]) -> int:
    return subprocess.run(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    ).returncode


def lock() -> int:
    """Write the lock files anew from pyproject.toml, for every platform, with hashes
    and without addresses. The extras for sharing are in all of them: an installer that
    cannot share would have to be replaced by pip.
    """
    uv = shutil.which("uv") or _uv()
    for purpose, path in LOCKS.items():
        groups = [f"--group={group}" for group in GROUPS[purpose]]
        base = [] if purpose == "run" else ["--constraint", str(LOCKS["run"].relative_to(ROOT))]
        command = [
            uv, "pip", "compile", "--quiet", "--universal", "--generate-hashes", "--no-emit-index-url", "--no-annotate",
            "--python-version=3.11", "--extra=shared", "--extra=fleet", "--custom-compile-command=python3 packaging/dev.py lock", *groups, *base,
            "pyproject.toml", "--output-file", str(path.relative_to(ROOT)),
        ]  # fmt: skip
        if status := subprocess.run(command, cwd=ROOT, check=False).returncode:
            return status
    return 0


def _uv() -> str:
    _make()
    subprocess.run([str(python()), "-m", "pip", "install", "--quiet", "uv"], check=True)
    return str(python().with_name("uv"))
