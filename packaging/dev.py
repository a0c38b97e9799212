#!/usr/bin/env python3
"""One door to everything a developer does: run, test, bench, faults, build, lock.

Needs nothing but Python 3.11 or newer; makes the rest itself. Start with `python3
packaging/dev.py run`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

if sys.version_info < (3, 11):  # before anything is imported that an older Python cannot read
    sys.exit("Helix Desktop needs Python 3.11 or newer; this is " + sys.version.split()[0] + ".")

import changed
import environment

ROOT = environment.ROOT
# These fork their process, which must have no threads of earlier tests: a fork could wait for one
# of them for ever. So they have a process of their own, beside the others.
FORKING = ["tests/faults/alone"]
# These time what a person waits for, with no other tests beside them.
TIMED = ["tests/gui/alone"]
ALONE = [*FORKING, *TIMED]
CHANGED_SECONDS = 25  # with the start of pytest, half a minute
REST = [f"--ignore={folder}" for folder in ALONE]
# A worker waits for about half of its time: for the disk, a process, an answer. Two
# more of them than processors keep those busy. A worker that has done its share takes
# from the others: none is idle while one has a long test before it.
TOGETHER = ["-n", str(min((os.cpu_count() or 2) + 2, 8)), "--dist=worksteal"]

MEMORY = Path("/dev/shm")  # noqa: S108 - a folder of our own is made in it
ROOM = 4 << 30  # in bytes: what the tests write at once takes a part of it

COMMANDS = {
    "run": "start the program; what stands after -- goes to it: run -- --version",
    "test": "linter, types, import contract, tests; with arguments (-k x) a part of the tests: pytest is given them;\n"
    "          --changed [BASE]: for half a minute, the tests that a change since BASE (the last commit) can break",
    "bench": "benchmarks beside their peers: bench [NAME] [--json] [--html FILE]",
    "faults": "try to break it: faults [--minutes N] [--seed S]",
    "build": "installers: build deb|run|windows|macos|all",
    "lock": "write the lock files anew from pyproject.toml",
}


def main() -> int:
    command = _parser().parse_args(sys.argv[1:2]).command
    rest = sys.argv[2:]
    if rest[:1] == ["--"]:
        rest = rest[1:]
    if command == "run":
        return run(rest)
    if command == "test":
        return test(rest)
    if command == "lock":
        return environment.lock()
    environment.prepare("build" if command == "build" else "bench")
    module = {"bench": "tests.benchmarks", "faults": "tests.faults"}.get(command)
    return _python(["-m", module, *rest] if module else [str(ROOT / "packaging/build.py"), *rest])


def _parser() -> argparse.ArgumentParser:
    """Only the command itself is ours to read; what follows belongs to whom it starts."""
    commands = "\n".join(f"  {name:<8}{sentence}" for name, sentence in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="dev.py",
        description=__doc__,
        epilog=commands,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", choices=COMMANDS, metavar="COMMAND", help="one of those below")
    return parser


def run(arguments: Sequence[str]) -> int:
    environment.prepare("run")
    command = [str(environment.python()), "-m", "helix_desktop", *arguments]
    if os.name == "nt":
        return subprocess.run(command, check=False).returncode
    return os.execv(command[0], command)  # noqa: S606 - the program takes this process's place: signals reach it


def test(arguments: Sequence[str]) -> int:
    """Everything, even when a step fails, pytest's closing line last; or a part of the tests."""
    environment.prepare("test")
    if arguments[:1] == ["--changed"]:
        return _test_changed(*arguments[1:2])
    if arguments:
        return _python(["-m", "pytest", *arguments])
    steps = {
        "linter": ["-m", "ruff", "check", "."],
        "format": ["-m", "ruff", "format", "--check", "."],
        "imports": [
            "-c",
            "from importlinter.cli import lint_imports_command as check; check()",
            "--no-logo",
        ],
        "tests that stand alone": ["-m", "pytest", "-q", *TIMED],
    }
    types = _begin(["-m", "mypy"])  # the tests that stand alone leave a processor free
    compiling = _begin(
        ["-m", "pytest", "-q", "--collect-only"], subprocess.DEVNULL
    )  # once, not by each of the workers
    ended = {name: _step(name, step) for name, step in steps.items()}
    compiling.wait()
    with folder_in_memory() as place:
        # The path is as short as on the disk: that of a socket has 108 characters at most.
        where, settings = ([f"--basetemp={place}/t"], {"TMPDIR": place}) if place else ([], {})
        tests = _begin_step("tests", ["-m", "pytest", "-q", *TOGETHER, *REST, *where], settings)
        forking = _begin(["-m", "pytest", "-q", *FORKING], settings=settings)
        print(f"\n== types\n{types.communicate()[0]}", flush=True)  # while the tests go on
        ended["types"] = types.returncode
        print(f"\n== tests that fork\n{forking.communicate()[0]}", flush=True)
        ended["tests that fork"] = forking.returncode
        ended["tests"] = tests()
    failed = [name for name, status in ended.items() if status]
    if failed:
        print(f"Failed: {', '.join(failed)}", file=sys.stderr, flush=True)
    return 1 if failed else 0


@contextmanager
def folder_in_memory() -> Iterator[str]:
    """The path of a folder for temporary files in memory, where all the tests' small
    files take a twelfth less of the processor.

    The path is empty if somebody chose another folder, if there is no room, or if no
    program can be started there.
    """
    try:
        space = os.statvfs(MEMORY)
        is_usable = space.f_bavail * space.f_frsize >= ROOM and not space.f_flag & os.ST_NOEXEC
    except (AttributeError, OSError):  # on Windows or a Mac
        is_usable = False
    if not is_usable or "TMPDIR" in os.environ:
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="h", dir=MEMORY, ignore_cleanup_errors=True) as folder:
        yield folder


def _test_changed(base: str = "HEAD") -> int:
    """The linter on what changed, then the tests nearest to it, as many as start within
    the time.
    """
    files = changed.changed_files(ROOT, base)
    sources = [path for path in files if path.endswith(".py") and (ROOT / path).exists()]
    if sources and (status := _python(["-m", "ruff", "check", *sources])):
        return status
    tests = changed.affected_tests(ROOT, files)
    if not tests:
        print("No test reads a file that changed.", flush=True)
        return 0
    return _python(["-m", "pytest", "-q", f"--seconds={CHANGED_SECONDS}", *tests])


def _step(name: str, step: list[str]) -> int:
    return _begin_step(name, step)()


def _begin_step(
    name: str, step: list[str], settings: Mapping[str, str] | None = None
) -> Callable[[], int]:
    """What is returned waits for its end, and says how it went."""
    print(f"== {name}", flush=True)
    begun, process = time.monotonic(), _begin(step, None, settings)

    def end() -> int:
        status = process.wait()
        print(f"== {name}: exit {status} in {time.monotonic() - begun:.1f} s", flush=True)
        return status

    return end


def _python(arguments: Sequence[str]) -> int:
    return subprocess.run(
        [str(environment.python()), *arguments], cwd=ROOT, env=_settings(), check=False
    ).returncode


def _begin(
    arguments: Sequence[str],
    output: int | None = subprocess.PIPE,
    settings: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    command = [str(environment.python()), *arguments]
    return subprocess.Popen(
        command, cwd=ROOT, env=_settings() | dict(settings or {}), stdout=output, text=True
    )


def _settings() -> dict[str, str]:
    """Who wants no compiled files beside the sources gets them inside .venv: the tests
    start hundreds of programs.
    """
    values = dict(os.environ)
    if values.pop("PYTHONDONTWRITEBYTECODE", ""):
        values["PYTHONPYCACHEPREFIX"] = str(ROOT / ".venv/compiled")
    return values


if __name__ == "__main__":
    sys.exit(main())
