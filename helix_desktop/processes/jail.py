"""Runs one command and kills everything that is left of it. A script, which imports no
module of ours.

    jail.py '{"lifeline": 5, "write": [...], "read": [...], "network": false, "landlock": true}' command arguments...

It stays the ancestor of everything the command starts (PR_SET_CHILD_SUBREAPER gives it orphans,
too). It kills all of that when the command ends, when the lifeline (a pipe the program holds) is
closed, or when told to end. An `attended` command has the terminal: it gets the signals, is asked
to end before it is killed, and what it leaves in the background when it ends by itself goes on.
With `scoped`, it reaches no abstract socket of others. With `landlock`, the command itself is
locked in first: it writes only in `write`, reads only in `read` (empty: anywhere), and in
`closed` only what is in `write`. It opens no sockets, or with `network` only internet sockets.
"""

# ruff: noqa: PTH102, PTH106, PTH110, PTH112, PTH123, PTH208 -- a script that must start
# fast: pathlib alone takes longer than the rest of it

from __future__ import annotations

import ctypes
import marshal
import os
import select
import struct
import sys
import time

# Importing `typing`, `signal` or `contextlib` would delay the start of every command by
# a third.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import signal
    from collections.abc import Mapping, Sequence
    from typing import Any
else:
    import _signal as signal

_SUBREAPER, _NO_NEW_PRIVILEGES, _SECCOMP, _SECUREBITS = 36, 38, 22, 28
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = 1, 2, 4, 8, 1 << 14, 1 << 15
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_FILE_RIGHTS = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_START = "import sys; sys.path.append(sys.argv.pop(1)); import jail; sys.exit(jail.main())"
_LOOK = 0.25  # The interval in seconds at which a command's memory and processes are measured.
_ASKED_SECONDS = 3.0  # When asked to end, a command with a terminal has this long to restore it.
_PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
# Refused system calls (x86_64, aarch64): mounts, namespaces, modules, keys, clocks, and
# ways around the sandbox.
_REFUSED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "bpf": (321, 280), "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217),
    "request_key": (249, 218), "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "setns": (308, 268), "acct": (163, 89),
    "settimeofday": (164, 170), "clock_settime": (227, 112), "quotactl": (179, 60), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442),
    "sethostname": (170, 161), "setdomainname": (171, 162), "fanotify_init": (300, 262), "syslog": (103, 116), "quotactl_fd": (443, 443),
}  # fmt: skip
_UNSHARE, _CLONE, _CLONE3, _CONTROL, _SOCKET = (272, 97), (56, 220), (435, 435), (16, 29), (41, 198)
_NEW_USER, _TYPE_AHEAD, _CONSOLE = 0x10000000, 0x5412, 0x541C
_DEVICES = (
    "/dev/null",
    "/dev/zero",
    "/dev/full",
    "/dev/random",
    "/dev/urandom",
    "/dev/tty",
    "/dev/ptmx",
    "/dev/pts",
)


def jail_command_line(options: Mapping[str, object], command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` through this script, from bytecode
    compiled before.
    """
    folder = __file__.rpartition(os.sep)[0]
    return [
        sys.executable,
        "-I",
        "-S",
        "-c",
        _START,
        folder,
        marshal.dumps(dict(options)).hex(),
        *command,
    ]


def main() -> int:
    options = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 -- what `jail_command_line` wrote, in this very Python
    lifeline = options["lifeline"]
    if sys.platform.startswith("linux"):
        _open_c_library().prctl(_SUBREAPER, 1, 0, 0, 0)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    handled = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    inherited = {number: signal.signal(number, lambda *_: None) for number in handled}
    group = "" if options.get("attended") else _create_control_group()
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        for number, handler in inherited.items():  # A signal that nohup ignores must stay ignored.
            signal.signal(number, handler)
        _jail_and_exec_command(options, group, sys.argv[2:])
    if options.get("attended"):
        return _wait_and_pass_signals_on(child, lifeline, wake)
    try:
        return _watch_until_end(
            child, lifeline, wake, _ResourceUse(group, options.get("limits") or {})
        )
    finally:  # Also after an error here: the command must not outlive the process that watches it.
        _kill_all_remaining(group)


def _jail_and_exec_command(options: dict[str, Any], group: str, command: list[str]) -> None:
    """Lock the child process in, then replace it with the command. Never returns."""
    try:
        if group:
            _write_to_system_file(f"{group}/cgroup.procs", "0")
        if limits := options.get("limits"):
            _set_system_limits(limits)
        if options.get("landlock"):
            restrict_this_process(options)
        elif options.get("scoped"):
            block_abstract_sockets()
        if options.get("filter"):
            command = [command[0], "--seccomp", str(_open_seccomp_filter()), *command[1:]]
        os.execvp(command[0], command)  # noqa: S606 -- to run this command is the purpose
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(127 if isinstance(error, FileNotFoundError) else 126)


def _watch_until_end(child: int, lifeline: int, wake: int, use: _ResourceUse) -> int:
    """Wait until the command ends or must be ended, and return its exit code. Reap
    orphans meanwhile.
    """
    while True:
        ready, _, _ = select.select([lifeline, wake], [], [], _LOOK if use.limits else None)
        if too_much := use.describe_exceeded_limit():
            os.write(2, f"\n[stopped: {too_much}]\n".encode())
            return 128 + signal.SIGKILL
        if wake in ready and signal.SIGTERM in os.read(wake, 512):
            return 128 + signal.SIGTERM
        if (code := _reap_until_ended(child)) is not None:
            return code
        if lifeline in ready:
            return 128 + signal.SIGKILL


def _wait_and_pass_signals_on(child: int, lifeline: int, wake: int) -> int:
    """Wait for a command with the terminal, passing signals on. If told to end, kill
    what is left of it.
    """
    watched, seconds, told = [lifeline, wake], None, False
    while ready := select.select(watched, [], [], seconds)[0]:
        passed_on = {signal.SIGTERM, signal.SIGHUP}.intersection(
            os.read(wake, 512) if wake in ready else ()
        )
        if lifeline in ready:
            watched, seconds, passed_on = [wake], _ASKED_SECONDS, {signal.SIGTERM}
        told = told or bool(passed_on)
        for number in passed_on:
            os.kill(child, number)
        if (code := _reap_until_ended(child)) is not None:
            break
    else:
        code = 128 + signal.SIGKILL
    if told:
        _kill_all_remaining("")
    return code


def _reap_until_ended(child: int) -> int | None:
    """Reap ended processes until the command is among them. Return its exit code, or
    None while it runs.
    """
    with _Suppressing(ChildProcessError):
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == child:
                code = os.waitstatus_to_exitcode(found[1])
                return code if code >= 0 else 128 - code
    return None


class _Suppressing:
    """A substitute for `contextlib.suppress`, whose import is slow."""

    def __init__(self, *errors: type[BaseException]) -> None:
        self._errors = errors

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> bool:
        return kind is not None and issubclass(kind, self._errors)


class _ResourceUse:
    """Measures, a few times a second, what the command and everything it started use."""

    def __init__(self, group: str, limits: dict[str, int]) -> None:
        self.group, self.limits, self.next = group, limits, 0.0
        if group and limits:
            for name, limit in (
                ("pids.max", limits["processes"]),
                ("memory.max", limits["memory"]),
            ):
                with _Suppressing(OSError):
                    _write_to_system_file(f"{group}/{name}", str(limit or "max"))

    def describe_exceeded_limit(self) -> str:
        """Say which limit the command exceeds. Return an empty string if it exceeds none."""
        if not self.limits or time.monotonic() < self.next:
            return ""
        pids = self._list_group_members()
        if len(pids) > self.limits["processes"]:
            return f"it started more than {self.limits['processes']:,} processes"
        if self.limits["memory"] and sum(map(_private_memory_bytes, pids)) > self.limits["memory"]:
            return f"it used more than {self.limits['memory'] >> 20:,} MB of memory"
        self.next = time.monotonic() + _LOOK
        return ""

    def _list_group_members(self) -> list[int]:
        if self.group:
            with _Suppressing(OSError), open(f"{self.group}/cgroup.procs") as file:
                return [int(line) for line in file]
        return list_descendants(os.getpid())


def _private_memory_bytes(pid: int) -> int:
    with _Suppressing(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        words = file.read().split()
        return max(0, int(words[1]) - int(words[2])) * _PAGE
    return 0


def _set_system_limits(limits: dict[str, int]) -> None:
    """Set the limits that the system enforces for each process or each user."""
    import resource

    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits["handles"],
        resource.RLIMIT_FSIZE: limits["file"],
        resource.RLIMIT_NPROC: 2 * limits["processes"]
        + 4096,  # The system counts all processes of the user here.
    }
    for kind, most in wanted.items():
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with _Suppressing(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


def _kill_all_remaining(group: str) -> None:
    """Kill the remaining descendants until none is left. Processes forked meanwhile are
    among them.
    """
    with _Suppressing(OSError):
        _write_to_system_file(f"{group}/cgroup.kill", "1")
    while _reap_ended_children():
        below = list_descendants(os.getpid())
        for target in [
            *(-pgid for pgid in {_process_group_of(pid) for pid in below} - {0, os.getpgrp()}),
            *below,
        ]:
            with _Suppressing(OSError):
                os.kill(target, signal.SIGKILL)
        time.sleep(0.002)
    if group:
        with _Suppressing(OSError):
            os.rmdir(group)


def _reap_ended_children() -> bool:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _process_group_of(pid: int) -> int:
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _create_control_group() -> str:
    """Create a control group, to kill its members at once. Return an empty string if
    that is impossible.
    """
    try:
        with open("/proc/self/cgroup") as file:
            own = next(line[3:].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo") as file:
            mounted = next(line.split()[4] for line in file if " - cgroup2 " in line)
        group = f"{mounted}{own.rstrip('/')}/helix-{os.getpid()}"
        os.mkdir(group)
    except (OSError, StopIteration):
        return ""
    return group if os.path.exists(f"{group}/cgroup.kill") else ""


def _write_to_system_file(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def list_descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _list_parent_ids():
        children.setdefault(parent, []).append(pid)
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _list_parent_ids() -> list[tuple[int, int]]:
    if not os.path.exists("/proc/self/stat"):
        import subprocess  # Imported here, because only systems without /proc (macOS) need it.

        rows = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False
        ).stdout
        return [
            (int(pid), int(parent)) for pid, parent in (row.split() for row in rows.splitlines())
        ]
    pairs = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            with _Suppressing(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
                pairs.append((int(name), int(stat.read().rpartition(b")")[2].split()[1])))
    return pairs


# --- Limiting what a command can reach, by Landlock and seccomp


def _open_c_library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def landlock_version() -> int:
    if sys.platform != "linux":
        return 0
    version: int = _open_c_library().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def restrict_this_process(options: dict[str, Any]) -> None:
    """Restrict this process and what it will execute. After an error, the command must not run."""
    version = landlock_version()
    rights = (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)) - 1
    attributes = struct.pack("QQQ", rights, 0, 3)[: 8 if version < 4 else 16 if version < 6 else 24]
    ruleset = _check_system_call(
        _open_c_library().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    )
    for path in _folders_without_closed(options.get("closed") or [], options.get("read") or ["/"]):
        _allow_path_in_ruleset(ruleset, path, _READING & rights)
    for path in _DEVICES:
        _allow_path_in_ruleset(
            ruleset, path, (_READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL) & rights
        )
    for path in options.get("write") or []:
        _allow_path_in_ruleset(ruleset, path, rights)
    if not os.geteuid():  # As root, a command must lose root's capabilities, which bypass Landlock.
        _check_system_call(_open_c_library().prctl(_SECUREBITS, 3, 0, 0, 0))
    _check_system_call(_open_c_library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check_system_call(_open_c_library().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)
    _refuse_sockets(network=bool(options.get("network")))


def block_abstract_sockets() -> None:
    """Cut this process off from others' abstract sockets (X11, D-Bus), if the kernel
    can do that.
    """
    if landlock_version() < 6:
        return
    ruleset = _check_system_call(
        _open_c_library().syscall(
            _CREATE_RULESET, struct.pack("QQQ", 0, 0, 1), ctypes.c_size_t(24), 0
        )
    )
    _check_system_call(_open_c_library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check_system_call(_open_c_library().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow_path_in_ruleset(ruleset: int, path: str, rights: int) -> None:
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    if not os.path.isdir(path):
        rights &= _FILE_RIGHTS
    rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, handle))
    try:
        _check_system_call(_open_c_library().syscall(_ADD_RULE, ruleset, 1, rule, 0))
    finally:
        os.close(handle)


def _folders_without_closed(closed: list[str], opened: list[str]) -> list[str]:
    """Return folders that together hold everything in `opened` except `closed`, since
    Landlock can only allow.
    """
    todo, found = [os.path.realpath(path) for path in opened], []
    while todo:
        folder = todo.pop()
        if folder in closed:
            continue
        if not any(path.startswith(folder.rstrip("/") + "/") for path in closed):
            found.append(folder)
            continue
        with _Suppressing(OSError):
            todo += [entry.path for entry in os.scandir(folder) if not entry.is_symlink()]
    return found


def _build_seccomp_filter(families: tuple[int, ...] | None) -> bytes:
    """Build a seccomp program that refuses certain calls, and sockets not in `families`
    (None: allow any).
    """
    arch, which = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}.get(
        os.uname().machine, (0, 0)
    )
    if not arch:
        raise OSError(38, "no filter for this processor")
    no, absent, kill, accept = 0x00050000 | 1, 0x00050000 | 38, 0x80000000, 0x7FFF0000
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, kill), (0x20, 0, 0, 0)]
    if not which:
        code += [
            (0x35, 0, 1, 0x40000000),
            (0x06, 0, 0, kill),
        ]  # Refuses calls by their x32 numbers.
    for numbers in _REFUSED.values():
        code += [(0x15, 0, 1, numbers[which]), (0x06, 0, 0, no)]
    # A filter can't see clone3's flags, so clone3 is reported as missing, and programs use clone.
    code += [(0x15, 0, 1, _CLONE3[which]), (0x06, 0, 0, absent)]
    for numbers in (_UNSHARE, _CLONE):
        code += [
            (0x15, 0, 4, numbers[which]),
            (0x20, 0, 0, 16),
            (0x45, 0, 1, _NEW_USER),
            (0x06, 0, 0, no),
            (0x06, 0, 0, accept),
        ]
    code += [
        (0x15, 0, 5, _CONTROL[which]),
        (0x20, 0, 0, 24),
        (0x15, 1, 0, _TYPE_AHEAD),
        (0x15, 0, 1, _CONSOLE),
        (0x06, 0, 0, no),
    ]
    code += [(0x06, 0, 0, accept)]
    if families is not None:
        code += [(0x15, 1, 0, _SOCKET[which]), (0x06, 0, 0, accept), (0x20, 0, 0, 16)]
        for family in families:
            code += [(0x15, 0, 1, family), (0x06, 0, 0, accept)]
        code += [(0x06, 0, 0, 0x00050000 | 13)]
    code += [(0x06, 0, 0, accept)]
    return b"".join(struct.pack("HBBI", *line) for line in code)


def _open_seccomp_filter() -> int:
    """Return the filter as an open file, for a program that applies it just before it
    starts another.
    """
    handle = os.memfd_create("filter", 0)
    os.write(handle, _build_seccomp_filter(None))
    os.lseek(handle, 0, os.SEEK_SET)
    return handle


def _refuse_sockets(*, network: bool) -> None:
    """Refuse all sockets, or with `network` all but internet sockets. Desktop and
    Docker stay out of reach.

    Landlock covers neither UDP nor sockets with a path. io_uring opens sockets unseen,
    so it is refused.
    """
    lines = _build_seccomp_filter((2, 10, 16) if network else ())
    program = ctypes.create_string_buffer(lines)
    filter_ = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(lines) // 8, ctypes.addressof(program))
    )
    _check_system_call(_open_c_library().prctl(_SECCOMP, 2, filter_, 0, 0))


def _check_system_call(result: int) -> int:
    if result < 0:
        raise OSError(
            ctypes.get_errno(), f"the sandbox cannot be set up ({os.strerror(ctypes.get_errno())})"
        )
    return int(result)
