"""Keeps a command inside the workspace: by bubblewrap, else Landlock. Without either,
the user is told.

A command can read the system, but not the program's data, desktop sockets, or the user's home,
except toolchains and what the user opened (`sandbox_home.py`). It can write only to the roots, the
workspace's own caches, and a scratch folder in place of /tmp, and has no network unless allowed.
Existing files that other programs run later are protected (`autorun_guard.py` does the rest). It
has no powers of root, cannot mount or create namespaces, and has limits for memory and processes.
"""

import asyncio
import os
import stat
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from pathlib import Path

from helix_desktop.atomic_files import create_private_folder
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes import jail
from helix_desktop.processes.running_command import CommandLine, RunningCommand
from helix_desktop.processes.starter import (
    CommandAuthor,
    ProcessLaunch,
    ProcessPlace,
    find_own_environment,
    find_own_program,
)
from helix_desktop.tools import git_identity, sandbox_home
from helix_desktop.tools.home_access import (
    NOTHING_OPENED,
    CommandOpenings,
    opened_sockets,
    opened_variables,
)
from helix_desktop.tools.sandbox_home import (
    ClosedHome,
    HeldPaths,
    is_within_any_folder,
    is_within_folder,
    touches_any_folder,
)
from helix_desktop.tools.temporary_folders import GIVEN

_ECHO = ("/bin/sh", "-c", "echo started")
_START_SECONDS = 30  # Enough for a slow machine to start a sandbox.
PROCESSES = 4096
HANDLES = 65_536
LARGEST_FILE = 64 << 30
PASSED_ON_VARIABLES = frozenset((
    "HOME", "USER", "LOGNAME", "SHELL", "PATH", "LANG", "LANGUAGE", "TZ", "JAVA_HOME", "GOROOT",
    "RUSTUP_HOME", "NVM_DIR", "PYENV_ROOT", "VIRTUAL_ENV", "CONDA_PREFIX", "SYSTEMROOT",
    "COMSPEC", "PATHEXT", "WINDIR", "PROGRAMFILES", "PROGRAMDATA", "APPDATA", "LOCALAPPDATA",
    "USERPROFILE", "NUMBER_OF_PROCESSORS",
))  # fmt: skip
PROXY_VARIABLES = frozenset(
    [
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
    ]
)
# The sandbox has no editor, so git takes messages as given, and an interactive rebase fails.
_EDITORS = {"GIT_EDITOR": "true", "GIT_SEQUENCE_EDITOR": "false", "GIT_TERMINAL_PROMPT": "0"}
_QUIET_VARIABLES = {"TERM": "dumb", "PAGER": "cat", "GIT_PAGER": "cat", "NO_COLOR": "1", **_EDITORS}


class SandboxKind(StrEnum):
    BUBBLEWRAP = "bubblewrap"
    LANDLOCK = "Landlock"
    NONE = "none"


NOTHING_HELD = HeldPaths()
# Each bubblewrap that has started a command in this process: its path and when it was changed.
_started_bubblewraps: set[tuple[str, int]] = set()


@dataclass(frozen=True, slots=True)
class Sandbox:
    """`folders`: the roots. `scratch` replaces /tmp. `closed_paths` are hidden. Builds
    keep `caches`.
    """

    kind: SandboxKind
    folders: tuple[Path, ...]
    scratch: Path
    closed_paths: tuple[Path, ...] = ()
    read_only: bool = False  # True if commands may only read the workspace's folders.
    caches: Path | None = None

    @property
    def can_hide_paths(self) -> bool:
        """Whether closed paths can be hidden. Landlock cannot close what is inside a
        root that it allows.
        """
        if self.kind is not SandboxKind.LANDLOCK:
            return True
        return not self._paths_within_roots(map(str, self.closed_paths))

    @property
    def command_folder(self) -> Path:
        """Return the folder of what the program gives to commands to read: a git
        identity and an empty file.
        """
        return self.scratch.with_name(f"{self.scratch.name}{GIVEN}")

    def paths_left_visible(
        self, opened: CommandOpenings = NOTHING_OPENED, *, network: bool = False
    ) -> list[str]:
        """Return hidden paths that a command would see, because this kind of sandbox
        can't take them out of a root.
        """
        if self.kind is not SandboxKind.LANDLOCK:
            return []
        home = self._closed_home_for(opened, network=network)
        masked = self._paths_within_roots(home.masked_paths)
        hidden = self._paths_within_roots(opened.hidden)
        return masked + hidden

    def wrap_command(
        self,
        argv: Sequence[str],
        lifeline: int,
        *,
        network: bool,
        outside: bool = False,
        held: HeldPaths = NOTHING_HELD,
        opened: CommandOpenings = NOTHING_OPENED,
    ) -> list[str]:
        """Return the command line that runs `argv` sandboxed, or, with `outside`, only watched."""
        if outside or self.kind is SandboxKind.NONE:
            return _wrap_in_jail({"lifeline": lifeline}, argv)
        if self.kind is SandboxKind.LANDLOCK:
            return _wrap_in_jail(self._landlock_options(lifeline, opened, network=network), argv)
        # A process with `scoped` can't gain rights, which a setuid bwrap needs.
        scoped = network and not _is_setuid_program(_bubblewrap_program())
        options = {
            "lifeline": lifeline,
            "scoped": scoped,
            "filter": True,
            "limits": process_limits(),
        }
        words = self._bubblewrap_arguments(held, opened, network=network)
        words.append("--")
        words += argv
        return _wrap_in_jail(options, words)

    def wrap_trusted_reader(self, argv: Sequence[str], lifeline: int) -> list[str] | None:
        """Return a command line for a trusted program that may read only system
        programs and the roots.
        """
        program_folder = str(Path(argv[0]).resolve().parent)
        readable_paths = list(_SYSTEM_FOLDERS)
        readable_paths.append(program_folder)
        readable_paths += map(str, self.folders)
        if self.kind is SandboxKind.LANDLOCK:
            options = {
                "lifeline": lifeline,
                "landlock": True,
                "read": readable_paths,
                "write": [],
                "network": False,
            }
            return _wrap_in_jail(options, argv)
        if self.kind is SandboxKind.BUBBLEWRAP:
            words = [_bubblewrap_program(), *_ISOLATION_OPTIONS, "--unshare-net"]
            for path in readable_paths:
                words += ["--ro-bind-try", path, path]
            closed_in_roots = self._paths_within_roots(map(str, self.closed_paths))
            words += self._arguments_to_mask(closed_in_roots)
            words.append("--")
            words += argv
            return _wrap_in_jail({"lifeline": lifeline, "filter": True}, words)
        return None

    def build_environment(
        self,
        environ: Mapping[str, str],
        *,
        network: bool,
        free: bool = False,
        opened: CommandOpenings = NOTHING_OPENED,
    ) -> dict[str, str]:
        """Return a command's environment variables, without secrets and, in a sandbox, with
        the folders for caches and settings that it can use there. `free`: outside the sandbox.
        """
        temporary_folder = str(self.scratch)
        if self.kind is SandboxKind.BUBBLEWRAP and not free:
            temporary_folder = "/tmp"  # noqa: S108 -- inside, the scratch folder is mounted there
        extra_variables = opened_variables(opened, network=network)
        environment = scrub_environment(
            environ, temporary_folder, network=network or free, extra=extra_variables
        )
        if free or self.kind is SandboxKind.NONE:
            return environment
        for name in ("XDG_CACHE_HOME", "npm_config_cache"):
            environment.pop(name)
        if self.kind is SandboxKind.LANDLOCK:
            environment |= self._cache_variables()
            if "git" not in opened.names or not network:
                environment["GIT_CONFIG_GLOBAL"] = str(self.command_folder / "git" / "config")
        return environment

    # --- With Landlock: restricting the rights of the process

    def _landlock_options(
        self, lifeline: int, opened: CommandOpenings, *, network: bool
    ) -> dict[str, object]:
        """Return what a process may do that Landlock, a part of Linux, restricts: what it reads
        and writes, and what stays closed to it even within a folder that it may read.
        """
        home = self._closed_home_for(opened, network=network)
        roots = [str(folder) for folder in self.folders]
        return {
            "lifeline": lifeline,
            "landlock": True,
            "read": self._paths_read_under_landlock(home, roots),
            "write": self._paths_written_under_landlock(roots),
            "closed": self._paths_closed_under_landlock(home),
            "network": network,
            "limits": process_limits(),
        }

    def _paths_read_under_landlock(self, home: ClosedHome, roots: Sequence[str]) -> list[str]:
        paths = list(_READ_BY_LANDLOCK)
        paths += [path for path, _ in home.readable_paths]
        paths.append(str(self.command_folder))
        paths += roots
        return paths

    def _paths_written_under_landlock(self, roots: Sequence[str]) -> list[str]:
        """Return the roots unless they are only to be read, the scratch folder and the caches,
        for which the folder is created.
        """
        paths: list[str] = []
        if not self.read_only:
            paths += roots
        paths.append(str(self.scratch))
        if self.caches is not None:
            own_caches = str(self.caches)
            self._create_cache_folders([(own_caches, own_caches)])
            paths.append(own_caches)
        return paths

    def _paths_closed_under_landlock(self, home: ClosedHome) -> list[str]:
        paths = [str(path) for path in self.closed_paths]
        paths += home.masked_paths
        paths += home.emptied_homes
        # Through these sockets a command could have other programs act for it.
        for socket in ("/run/user", "/run/docker.sock", "/run/dbus"):
            if Path(socket).exists():
                paths.append(socket)
        return paths

    def _cache_variables(self) -> dict[str, str]:
        """Return variables with folders for programs that keep caches in the home,
        where they can't write.
        """
        cache_folder = self.caches or self.scratch
        variables = {}
        for name, variable in sandbox_home.CACHES:
            if variable:
                variables[variable] = f"{cache_folder}/{name}"
        variables["MAVEN_OPTS"] = f"-Dmaven.repo.local={cache_folder}/.m2/repository"
        variables["GOMODCACHE"] = f"{cache_folder}/go/pkg/mod"
        # Java ignores TMPDIR, but Gradle needs a temporary file to start.
        variables["JAVA_TOOL_OPTIONS"] = f"-Djava.io.tmpdir={self.scratch}"
        return variables

    # --- With bubblewrap: building a separate file system

    def _bubblewrap_arguments(
        self, held: HeldPaths, opened: CommandOpenings, *, network: bool
    ) -> list[str]:
        """Return the words before the command itself: bubblewrap and what it mounts.

        bubblewrap mounts in the order of its arguments, and a later mount covers what lies
        under it, so this order decides what a command sees: the system, then an emptied home,
        then the parts of it that are open and the workspace's folders (the roots), and above
        all of these the masks of what is hidden. A mask is empty and cannot be written to.
        """
        home = self._closed_home_for(opened, network=network)
        masked_in_roots = self._paths_within_roots(home.masked_paths)
        masked_in_roots += self._paths_within_roots(map(str, self.closed_paths))
        words = [_bubblewrap_program(), *_ISOLATION_OPTIONS]
        words += self._arguments_for_system(network=network)
        words += self._arguments_to_close_homes(home)
        words += self._arguments_to_show_home(home, opened, network=network)
        words += self._arguments_for_roots(held)
        shown_in_home = [place for _, place in home.readable_paths + home.cache_paths]
        words += self._arguments_to_mask(masked_in_roots, shown_in_home)
        words += self._arguments_to_show_again(home, masked_in_roots)
        words += self._arguments_to_mask(opened.hidden)
        words += self._arguments_to_finish_homes(home)
        return words

    def _arguments_for_system(self, *, network: bool) -> list[str]:
        """Return arguments that show the system read-only, with an own /tmp, and with the
        network only if it is asked for.
        """
        words = ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        for name in _CLOSED_PARTS_OF_PROC:
            words += ["--ro-bind-try", f"/proc/{name}", f"/proc/{name}"]
        for path in _SHOWN_PARTS_OF_RUN:
            words += ["--ro-bind-try", path, path]
        if network:
            # Names of hosts are looked up there. With /run empty, none would be found.
            words += ["--ro-bind-try", "/run/systemd/resolve", "/run/systemd/resolve"]
        else:
            words += ["--unshare-net"]
        words += ["--bind", str(self.scratch), "/tmp"]  # noqa: S108 -- inside, /tmp is a folder of the workspace's own
        return words

    def _arguments_to_finish_homes(self, home: ClosedHome) -> list[str]:
        """Return arguments that make the emptied homes read-only. All mounts in them are made
        by now, so nothing has to be created in them any more.
        """
        roots = [str(folder) for folder in self.folders]
        words: list[str] = []
        for home_folder in home.emptied_homes:
            if home_folder not in roots:
                words += ["--remount-ro", home_folder]
        return words

    def _arguments_to_close_homes(self, home: ClosedHome) -> list[str]:
        """Return arguments that hide homes, and what their links lead to, before parts
        are shown again.
        """
        paths_to_mask = [path for path in home.masked_paths if not self._paths_within_roots([path])]
        for path in map(str, self.closed_paths):
            # What lies in an emptied home is hidden with it.
            if not is_within_any_folder(path, home.emptied_homes):
                paths_to_mask.append(path)
        paths_shown_again = [path for path, _ in home.readable_paths]
        words = self._arguments_to_mask(paths_to_mask, paths_shown_again)
        # The outer one of two homes is mounted first. It would cover the inner one.
        for emptied_home in sorted(home.emptied_homes, key=len):
            words += ["--tmpfs", emptied_home]
        return words

    def _arguments_to_show_home(
        self, home: ClosedHome, opened: CommandOpenings, *, network: bool
    ) -> list[str]:
        """Return arguments that show in the emptied home what commands may use of it: readable
        folders, caches of the workspace's own, opened sockets, and a git identity.
        """
        linked_caches = _caches_to_link(home)
        words = self._arguments_to_mount_in_home(home, linked_caches)
        if linked_caches:
            words += self._arguments_to_link_caches(home, linked_caches)
        for socket in opened_sockets(opened, os.environ, network=network):
            real_socket = os.path.realpath(socket)
            words += ["--bind-try", real_socket, real_socket]
        uses_own_git_settings = "git" in opened.names and network
        if home.emptied_homes and not uses_own_git_settings:
            words += self._arguments_to_give_git_identity(home, opened)
        return words

    def _arguments_to_mount_in_home(
        self, home: ClosedHome, linked_caches: Sequence[tuple[str, str]]
    ) -> list[str]:
        """Return arguments that mount the readable folders, and to write in the caches that
        are not linked. A mount needs a folder to lead to, so caches are created first.
        """
        self._create_cache_folders(home.cache_paths)
        mounted_caches = frozenset(home.cache_paths) - frozenset(linked_caches)
        words: list[str] = []
        mounts = list(home.readable_paths)
        mounts += mounted_caches
        # A folder must be mounted after the one that contains it.
        for path, shown_at in sorted(mounts, key=_length_of_place):
            if (path, shown_at) in mounted_caches:
                words += ["--bind", path, shown_at]
            else:
                words += ["--ro-bind-try", path, shown_at]
        return words

    def _arguments_to_link_caches(
        self, home: ClosedHome, linked_caches: Sequence[tuple[str, str]]
    ) -> list[str]:
        """Return arguments that mount the folder of all caches once in the home, and make the
        places where programs look for their caches links into it.
        """
        caches_inside = f"{home.emptied_homes[0]}/{_CACHES_IN_HOME}"
        words = ["--bind", str(self.caches), caches_inside]
        for path, shown_at in linked_caches:
            target = caches_inside + path.removeprefix(str(self.caches))
            words += ["--symlink", target, shown_at]
        return words

    def _arguments_to_give_git_identity(
        self, home: ClosedHome, opened: CommandOpenings
    ) -> list[str]:
        """Return arguments that put a git identity in place of the user's hidden git settings."""
        git_settings = str(self.command_folder / "git")
        # When the sandbox is tried out, there is no identity yet.
        with suppress(FileNotFoundError):
            git_identity.write_attributes_of_hidden_files(Path(git_settings), opened.hidden)
        words = []
        for emptied in home.emptied_homes:
            words += ["--ro-bind-try", git_settings, f"{emptied}/.config/git"]
        return words

    def _arguments_for_roots(self, held: HeldPaths) -> list[str]:
        """Return arguments that show the workspace's folders, and mount what is held in them
        above: a mounted file or folder cannot be moved or replaced, and a file not be written.
        """
        words: list[str] = []
        for root in map(str, self.folders):
            words += [self._option_to_bind_roots, root, root]
        words += self._arguments_to_hold_own_environment()
        if not self.read_only:
            # These are git's folders, or the file `.git` that stands for one.
            for git_path in held.folders:
                if Path(git_path).is_dir():
                    words += ["--bind-try", git_path, git_path]
                else:
                    words += ["--ro-bind-try", git_path, git_path]
        for file in held.files:
            # A mount over a link would be made where the link leads to.
            if not os.path.islink(file):  # noqa: PTH114 -- for each command
                words += ["--ro-bind-try", file, file]
        return words

    def _arguments_to_hold_own_environment(self) -> list[str]:
        """Return arguments that make this program itself read-only, if it is installed in one of the
        workspace's folders. A folder that is mounted cannot be moved away.
        """
        own_environment = find_own_environment()
        words: list[str] = []
        for root in self.folders:
            if own_environment is None or not own_environment.is_relative_to(root):
                continue
            for folder in reversed(own_environment.parents):
                if folder != root and folder.is_relative_to(root):
                    words += [self._option_to_bind_roots, str(folder), str(folder)]
            words += ["--ro-bind-try", str(own_environment), str(own_environment)]
        return words

    @property
    def _option_to_bind_roots(self) -> str:
        if self.read_only:
            return "--ro-bind-try"
        return "--bind-try"

    def _arguments_to_show_again(self, home: ClosedHome, masked: Sequence[str]) -> list[str]:
        """Return arguments that show open paths again in a folder that was just hidden
        inside a root.
        """
        words: list[str] = []
        for path, shown_at in home.readable_paths + home.cache_paths:
            if not is_within_any_folder(shown_at, masked):
                continue
            # Only a cache appears in another place than its own, and only caches can be written to.
            if path == shown_at:
                words += ["--ro-bind-try", path, shown_at]
            else:
                words += ["--bind", path, shown_at]
        for root in map(str, self.folders):
            if is_within_any_folder(root, masked):
                words += [self._option_to_bind_roots, root, root]
        return words

    def _closed_home_for(self, opened: CommandOpenings, *, network: bool) -> ClosedHome:
        caches = ""
        if self.caches is not None:
            caches = str(self.caches)
        return sandbox_home.build_closed_home(
            [str(path) for path in self.folders], os.environ, caches, opened, network=network
        )

    def _create_cache_folders(self, caches: Sequence[tuple[str, str]]) -> None:
        for path, _ in caches:
            if not os.path.isdir(path):  # noqa: PTH112 -- for each command
                create_private_folder(Path(path))

    def _arguments_to_mask(self, paths: Iterable[str], shown: Iterable[str] = ()) -> list[str]:
        """Return arguments that hide these paths. A path in a hidden folder needs no mask; nothing
        can be created in that folder, so it starts with places for the folders in `shown`.
        """
        masked_paths: list[str] = []
        for path in sorted(paths, key=len):
            if not is_within_any_folder(path, masked_paths):
                masked_paths.append(path)
        shown_places = [str(folder) for folder in self.folders]
        shown_places += shown
        words: list[str] = []
        for path in masked_paths:
            words += _arguments_to_mask_path(path, self._ensure_empty_file, shown_places)
        return words

    def _ensure_empty_file(self) -> Path:
        """Return the empty file that takes the place of hidden files."""
        empty = self.command_folder / "empty"
        if not empty.exists():
            self.command_folder.mkdir(mode=0o700, exist_ok=True)
            empty.touch(0o400)
            os.utime(empty, (1, 1))  # Git reads a file again if it is not older than git's index.
        return empty

    def _paths_within_roots(self, paths: Iterable[str]) -> list[str]:
        roots = [str(folder) for folder in self.folders]
        paths_within = []
        for path in paths:
            if is_within_any_folder(path, roots):
                paths_within.append(path)
        return paths_within


# No cgroup namespace: Java looks up its limits by the outer names, so Gradle builds would fail.
_ISOLATION_OPTIONS = (
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
)
# Parts of /proc through which root could change the system.
_CLOSED_PARTS_OF_PROC = "sys", "sysrq-trigger", "irq", "bus", "fs", "acpi", "scsi", "driver"
_CACHES_IN_HOME = ".workspace-caches"
_SHOWN_PARTS_OF_RUN = (
    "/run/current-system",
    "/run/wrappers",
    "/run/opengl-driver",
)  # These contain programs on NixOS.
_READ_BY_LANDLOCK = (
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc", "/opt", "/nix", "/gnu", "/snap",
    "/proc", "/sys", "/var/lib", "/var/cache", "/run/systemd/resolve", *_SHOWN_PARTS_OF_RUN,
)  # fmt: skip
_SYSTEM_FOLDERS = ("/usr", "/bin", "/lib", "/lib64", "/lib32", "/etc/ld.so.cache")


def _wrap_in_jail(options: Mapping[str, object], argv: Sequence[str]) -> list[str]:
    if sys.platform == "win32":  # On Windows, a job object does what the jail does elsewhere.
        return list(argv)
    return jail.jail_command_line(options, argv)


def process_limits() -> dict[str, int]:
    """Return the limits for all processes of a command together."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") * 3 // 4
    except (ValueError, OSError):
        memory = 0
    return {"processes": PROCESSES, "memory": memory, "file": LARGEST_FILE, "handles": HANDLES}


def _arguments_to_mask_path(
    path: str, empty_file: Callable[[], Path], shown_places: Sequence[str]
) -> list[str]:
    """Return arguments that put an empty folder, with places for what is shown in it, or an
    empty file over a real path.
    """
    if os.path.isdir(path):  # noqa: PTH112 -- for each command
        words = ["--tmpfs", path]
        for place in shown_places:
            if not is_within_folder(place, path):
                continue
            if os.path.isdir(place):  # noqa: PTH112 -- as above
                words += ["--dir", place]
            else:
                words += ["--ro-bind-try", place, place]
        return words + ["--remount-ro", path]
    if os.path.exists(path):  # noqa: PTH110 -- as above
        return ["--ro-bind", str(empty_file()), path]
    return []


def _length_of_place(mount: tuple[str, str]) -> int:
    _path, shown_at = mount
    return len(shown_at)


def _caches_to_link(home: ClosedHome) -> list[tuple[str, str]]:
    """Return caches to be links in an emptied home, since many mounts would double a command's
    start time. A cache that contains a toolchain, or is inside one, is mounted instead.
    """
    if not home.emptied_homes:
        return []
    toolchains = [place for _, place in home.readable_paths]
    linked_caches = []
    for path, shown_at in home.cache_paths:
        if touches_any_folder(shown_at, toolchains):
            continue
        if is_within_folder(shown_at, home.emptied_homes[0]):
            linked_caches.append((path, shown_at))
    return linked_caches


def _is_setuid_program(program: str) -> bool:
    """Whether a program gains rights when started, which the kernel forbids to a
    sandboxed process.
    """
    return os.path.isfile(program) and bool(Path(program).stat().st_mode & stat.S_ISUID)  # noqa: PTH113


def _bubblewrap_program() -> str:
    """The full path of bubblewrap. A mere name would be looked up in the PATH of the command that is
    to be locked in, from the folder in which it runs, and could be a file of the project's.
    """
    return find_own_program("bwrap") or "/usr/bin/bwrap"


async def find_sandbox(
    folders: Sequence[Path], scratch: Path, closed: Sequence[Path] = (), caches: Path | None = None
) -> Sandbox:
    """Return the best sandbox that works here, tested with a command that must not be
    able to write. If bubblewrap itself works but cannot close some place here, it is
    still used: commands then fail with the reason, rather than run in something weaker.
    """
    bubblewrap = Sandbox(
        SandboxKind.BUBBLEWRAP, tuple(folders), scratch, tuple(closed), caches=caches
    )
    if await _does_bubblewrap_start(bubblewrap):
        return bubblewrap
    landlock = replace(bubblewrap, kind=SandboxKind.LANDLOCK)
    if landlock.can_hide_paths and await is_sandbox_effective(landlock):
        return landlock
    return replace(bubblewrap, kind=SandboxKind.NONE)


async def _does_bubblewrap_start(sandbox: Sandbox) -> bool:
    """Whether bubblewrap starts a command, in this sandbox or with nothing to close.

    It is used wherever it starts at all, so one that has started a command in this process
    is not tried again: each further workspace opens .04 s sooner.
    """
    if not _is_kind_available(SandboxKind.BUBBLEWRAP):
        return False
    program = find_own_program("bwrap")
    identity = (program, os.stat(program).st_mtime_ns)  # noqa: PTH116 -- waits for no disk
    if identity in _started_bubblewraps:
        return True
    words = [program, *_ISOLATION_OPTIONS, "--ro-bind", "/", "/", "--", *_ECHO]
    has_started = await is_sandbox_effective(sandbox) or await _can_start_command(lambda _: words)
    if has_started:
        _started_bubblewraps.add(identity)
    return has_started


def _is_kind_available(kind: SandboxKind) -> bool:
    if not sys.platform.startswith("linux"):
        return False
    if kind is SandboxKind.BUBBLEWRAP:
        return bool(find_own_program("bwrap"))
    return jail.landlock_version() > 0


async def is_sandbox_effective(sandbox: Sandbox) -> bool:
    """Whether the sandbox exists, starts, and keeps a command from writing beside the
    scratch folder.
    """
    if not _is_kind_available(sandbox.kind):
        return False
    probe_file = sandbox.scratch.parent / f".probe-{os.getpid()}"
    command_line = ["/bin/sh", "-c", f"echo started; : > '{probe_file}'"]
    try:
        has_started = await _can_start_command(
            lambda lifeline: sandbox.wrap_command(command_line, lifeline, network=False)
        )
        return has_started and not probe_file.exists()
    finally:
        probe_file.unlink(missing_ok=True)


async def _can_start_command(command_line: CommandLine) -> bool:
    """Whether a command can really be started in this sandbox: a small one is tried out."""
    output = b""
    try:
        command = await RunningCommand.start_in_jail(
            ProcessLaunch(CommandAuthor.PROGRAM, _ECHO, "/", {}, place=ProcessPlace.SANDBOX),
            command_line,
        )
        try:
            async with asyncio.timeout(_START_SECONDS):
                output = b"".join([piece async for piece in command.iterate_output()])
        finally:
            await command.kill_and_wait()
    except (OSError, TimeoutError):
        return False
    return output.startswith(b"started\n")


def scrub_environment(
    environment: Mapping[str, str], temporary: str, *, network: bool, extra: Sequence[str] = ()
) -> dict[str, str]:
    """Return the variables that a command gets, chosen by name, so that no key or token
    is among them.
    """
    wanted_names = PASSED_ON_VARIABLES | set(extra)
    if network:
        wanted_names |= PROXY_VARIABLES | set(sandbox_home.CERTIFICATES) | {"SSL_CERT_DIR"}
    passed_on: dict[str, str] = {}
    for name, value in environment.items():
        if name in wanted_names or name.startswith("LC_"):
            passed_on[name] = value
    if passed_on.get("VIRTUAL_ENV") == sys.prefix:
        # This program's own environment, not the user's.
        del passed_on["VIRTUAL_ENV"]
    caches = {
        "XDG_CACHE_HOME": f"{temporary}/cache",
        "npm_config_cache": f"{temporary}/npm",
        "TMPDIR": temporary,
    }
    return passed_on | _QUIET_VARIABLES | caches | {"PYTHONUNBUFFERED": "1"}
