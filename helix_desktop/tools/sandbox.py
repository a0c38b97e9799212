"""What keeps a command inside the workspace: bubblewrap, else Landlock, else nothing, and then that is said.

Inside: the whole system can be read, but not the program's own data, the desktop's sockets and, without network, the
user's own keys; only the roots and a scratch folder in place of /tmp can be written; no network unless allowed.
What other programs run later stays as it is where it is there already (`guard.py` sees to the rest). No powers of root,
no mounts, no new namespaces, and a limit for processes and memory.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from helix_desktop.processes import jail
from helix_desktop.processes.command import Command
from helix_desktop.tools import credentials
from helix_desktop.values import dataclass

PROCESSES, HANDLES, LARGEST_FILE = 4096, 65_536, 64 << 30
Held = tuple[Sequence[str], Sequence[str]]
PASSED_ON = frozenset(
    [
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "PATH",
        "LANG",
        "LANGUAGE",
        "TZ",
        "JAVA_HOME",
        "GOPATH",
        "GOROOT",
        "CARGO_HOME",
        "RUSTUP_HOME",
        "NVM_DIR",
        "PYENV_ROOT",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "SYSTEMROOT",
        "COMSPEC",
        "PATHEXT",
        "WINDIR",
        "PROGRAMFILES",
        "PROGRAMDATA",
        "APPDATA",
        "LOCALAPPDATA",
        "USERPROFILE",
        "NUMBER_OF_PROCESSORS",
    ]
)
PROXIES = frozenset(
    ["http_proxy", "https_proxy", "no_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"]
)
# Nobody is there to type: git takes a message as it is, and a rebase that would be edited fails.
_EDITORS = {"GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "false", "GIT_TERMINAL_PROMPT": "0"}
_QUIET = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "NO_COLOR": "1", **_EDITORS}


class Kind(StrEnum):
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "Landlock"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What this system has. `folders` are the roots; `scratch` replaces /tmp; `closed` is never seen inside."""

    kind: Kind
    folders: tuple[Path, ...]
    scratch: Path
    closed: tuple[Path, ...] = ()
    read_only: bool = False  # the roots can be read and not written

    @property
    def can_close(self) -> bool:
        """Landlock only allows: what it allows for a root, it allows for all that is inside."""
        return self.kind is not Kind.LANDLOCK or not self._inside(self.closed)

    def command(
        self, argv: Sequence[str], lifeline: int, *, network: bool, free: bool = False, held: Held = ((), ())
    ) -> list[str]:
        """The command line that runs `argv` locked in; `free`: only watched, for what the user allowed outside. `held`:
        folders inside the roots that stay where they are, and files that stay as they are.
        """
        if free or self.kind is Kind.NONE:
            return _jailed({"lifeline": lifeline}, argv)
        if self.kind is Kind.LANDLOCK:
            return _jailed(self._landlock(lifeline, network=network), argv)
        scoped = network and not _setuid("bwrap")
        options = {"lifeline": lifeline, "scoped": scoped, "filter": True, "limits": limits()}
        return _jailed(options, [*self._bubblewrap(held, network=network), "--", *argv])

    def reader(self, argv: Sequence[str], lifeline: int) -> list[str] | None:
        """A command line for a trusted program that may read nothing but the system's programs and the roots."""
        seen = [*_SYSTEM_FOLDERS, str(Path(argv[0]).resolve().parent), *map(str, self.folders)]
        if self.kind is Kind.LANDLOCK:
            options = {"lifeline": lifeline, "landlock": True, "read": seen, "write": [], "network": False}
            return _jailed(options, argv)
        if self.kind is Kind.BUBBLEWRAP:
            binds = [word for path in seen for word in ("--ro-bind-try", path, path)]
            return _jailed(
                {"lifeline": lifeline, "filter": True},
                ["bwrap", *_ALONE, "--unshare-net", *binds, *self._masks(), "--", *argv],
            )
        return None

    def temporary(self, *, free: bool = False) -> str:
        """The folder for temporary files as a command sees it."""
        return "/tmp" if self.kind is Kind.BUBBLEWRAP and not free else str(self.scratch)  # noqa: S108 -- as above

    def _landlock(self, lifeline: int, *, network: bool) -> dict[str, object]:
        closed = [str(path) for path in (*self.closed, *self._hidden(network=network), *_sockets())]
        write = [str(path) for path in (*(() if self.read_only else self.folders), self.scratch)]
        options = {"lifeline": lifeline, "landlock": True, "write": write, "closed": closed, "network": network}
        return {**options, "limits": limits()}

    def _bubblewrap(self, held: Held, *, network: bool) -> list[str]:
        words = ["bwrap", *_ALONE, "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        words += [word for name in _OF_PROC for word in ("--ro-bind-try", f"/proc/{name}", f"/proc/{name}")]
        for kept in _KEPT_OF_RUN:
            words += ["--ro-bind-try", kept, kept]
        if network:
            words += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
        else:
            words += ["--unshare-net"]
        words += ["--bind", str(self.scratch), "/tmp"]  # noqa: S108 -- inside, /tmp is a folder of the workspace's own
        hidden = self._hidden(network=network)
        words += [word for path in (*hidden, *self.closed) for word in _mask(path)]
        for root in self.folders:
            words += ["--ro-bind-try" if self.read_only else "--bind-try", str(root), str(root)]
        if not self.read_only:
            words += [word for path in held[0] for word in _kept(path)]
        words += [word for path in held[1] if not os.path.islink(path) for word in ("--ro-bind-try", path, path)]  # noqa: PTH114
        words += [word for path in self._inside(hidden) for word in _mask(path)]
        words += self._masks()
        return words

    def _masks(self) -> list[str]:
        """What stays closed though it lies inside a root."""
        return [word for path in self._inside(self.closed) for word in _mask(path)]

    def _inside(self, paths: Sequence[Path]) -> list[Path]:
        return [path for path in paths if any(path.is_relative_to(root) for root in self.folders)]

    def _hidden(self, *, network: bool) -> list[Path]:
        home = str(Path.home())
        names = credentials.RINGS if network else (*credentials.RINGS, *credentials.KEYS)
        there = (f"{home}/{name}" for name in names if os.path.exists(f"{home}/{name}"))  # noqa: PTH110 -- for each command
        return [path for path in map(Path, there) if path not in self.folders]


_ALONE = (
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
)
_OF_PROC = (
    "sys",
    "sysrq-trigger",
    "irq",
    "bus",
    "fs",
    "acpi",
    "scsi",
    "driver",
)  # through these root changes the system
_KEPT_OF_RUN = ("/run/current-system", "/run/wrappers", "/run/opengl-driver")  # NixOS has its programs there
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache")


def _jailed(options: Mapping[str, object], argv: Sequence[str]) -> list[str]:
    if sys.platform == "win32":  # there a job object does what the jail does
        return list(argv)
    return jail.argv(options, argv)


def limits() -> dict[str, int]:
    """What all processes of a command may take together."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    except (ValueError, OSError):
        memory = 0
    return {"processes": PROCESSES, "memory": memory, "file": LARGEST_FILE, "handles": HANDLES}


def _kept(path: str) -> tuple[str, ...]:
    """Git's folder as a place of its own, which cannot be moved away or replaced; where it is a file, that file."""
    return ("--bind-try" if Path(path).is_dir() else "--ro-bind-try", path, path)


def _mask(path: Path) -> tuple[str, ...]:
    if not path.exists():
        return ()
    return ("--tmpfs", str(path)) if path.is_dir() else ("--ro-bind", "/dev/null", str(path))


def _setuid(program: str) -> bool:
    """Whether a program gains rights when it is started: the kernel forbids that to whoever has locked itself in."""
    path = shutil.which(program)
    return path is not None and bool(Path(path).stat().st_mode & stat.S_ISUID)


def _sockets() -> list[str]:
    return [path for path in ("/run/user", "/run/docker.sock", "/run/dbus") if Path(path).exists()]


async def find_sandbox(folders: Sequence[Path], scratch: Path, closed: Sequence[Path] = ()) -> Sandbox:
    """The best sandbox that really works here: each is tried with a command that must not be able to write."""
    for kind in (Kind.BUBBLEWRAP, Kind.LANDLOCK):
        sandbox = Sandbox(kind, tuple(folders), scratch, tuple(closed))
        if sandbox.can_close and await holds(sandbox):
            return sandbox
    return Sandbox(Kind.NONE, tuple(folders), scratch, tuple(closed))


def _present(kind: Kind) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    return shutil.which("bwrap") is not None if kind is Kind.BUBBLEWRAP else jail.landlock_version() > 0


async def holds(sandbox: Sandbox) -> bool:
    """Whether it is there, starts, and keeps a command from writing beside the scratch folder."""
    if not _present(sandbox.kind):
        return False
    probe = sandbox.scratch.parent / f".probe-{os.getpid()}"
    argv = ["/bin/sh", "-c", f"echo started; : > '{probe}'"]
    said = b""
    try:
        command = await Command.start(lambda lifeline: sandbox.command(argv, lifeline, network=False), Path("/"), {})
        try:
            async with asyncio.timeout(30):  # a busy machine takes its time, and must not do without
                said = b"".join([piece async for piece in command.output()])
        finally:
            await command.gone()
        return said.startswith(b"started\n") and not probe.exists()
    except (OSError, TimeoutError):
        return False
    finally:
        probe.unlink(missing_ok=True)


def scrubbed(
    environment: Mapping[str, str], temporary: str, *, network: bool, extra: Sequence[str] = ()
) -> dict[str, str]:
    """What a command gets of our environment: by name, so that no key, token or address of a bus is among it."""
    wanted = PASSED_ON | set(extra) | (PROXIES if network else set())
    out = {name: value for name, value in environment.items() if name in wanted or name.startswith("LC_")}
    if out.get("VIRTUAL_ENV") == sys.prefix:  # our own, not the user's
        del out["VIRTUAL_ENV"]
    caches = {"XDG_CACHE_HOME": f"{temporary}/cache", "npm_config_cache": f"{temporary}/npm", "TMPDIR": temporary}
    return {**out, **_QUIET, **caches, "PYTHONUNBUFFERED": "1"}
