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

# Options of prctl.
_SECCOMP = 22
_SECUREBITS = 28
_SUBREAPER = 36
_NO_NEW_PRIVILEGES = 38
# The system calls of Landlock, which have the same numbers on all processors.
_CREATE_RULESET = 444
_ADD_RULE = 445
_RESTRICT_SELF = 446
# Rights of Landlock.
_EXECUTE = 1
_WRITE_FILE = 2
_READ_FILE = 4
_READ_DIR = 8
_TRUNCATE = 1 << 14
_IOCTL = 1 << 15
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
# System calls whose arguments decide (x86_64, aarch64).
_UNSHARE = (272, 97)
_CLONE = (56, 220)
_CLONE3 = (435, 435)
_CONTROL = (16, 29)
_SOCKET = (41, 198)
# Arguments that are refused: a new user namespace, and typing into the user's terminal.
_NEW_USER = 0x10000000
_TYPE_AHEAD = 0x5412
_CONSOLE = 0x541C
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
    written_options = marshal.dumps(dict(options)).hex()
    words = [sys.executable, "-I", "-S", "-c", _START, folder, written_options]
    words.extend(command)
    return words


def main() -> int:
    options = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 -- what `jail_command_line` wrote, in this very Python
    lifeline = options["lifeline"]
    if sys.platform.startswith("linux"):
        _open_c_library().prctl(_SUBREAPER, 1, 0, 0, 0)
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    handled = (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    inherited = {number: signal.signal(number, _wake_from_signal) for number in handled}
    # What an attended command leaves in the background goes on, so it is in no group.
    group = ""
    if not options.get("attended"):
        group = _create_control_group()
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        for number, handler in inherited.items():  # A signal that nohup ignores must stay ignored.
            signal.signal(number, handler)
        _jail_and_exec_command(options, group, sys.argv[2:])
    if options.get("attended"):
        return _wait_and_pass_signals_on(child, lifeline, wake)
    try:
        use = _ResourceUse(group, options.get("limits") or {})
        return _watch_until_end(child, lifeline, wake, use)
    finally:  # Also after an error here: the command must not outlive the process that watches it.
        _kill_all_remaining(group)


def _wake_from_signal(*_: object) -> None:
    """Handle a signal that only needs to wake the loop, through the wake-up pipe."""


def _jail_and_exec_command(options: dict[str, Any], group: str, command: list[str]) -> None:
    """Lock the child process in, then replace it with the command. Never returns."""
    try:
        if group:
            _write_to_system_file(f"{group}/cgroup.procs", "0")
        limits = options.get("limits")
        if limits:
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
        # As a shell ends: 127 if there is no such command, 126 if it cannot be run.
        exit_code = 126
        if isinstance(error, FileNotFoundError):
            exit_code = 127
        os._exit(exit_code)


def _watch_until_end(child: int, lifeline: int, wake: int, use: _ResourceUse) -> int:
    """Wait until the command ends or must be ended, and return its exit code. Reap
    orphans meanwhile.
    """
    seconds_between_looks = None
    if use.limits:
        seconds_between_looks = _LOOK
    while True:
        ready, _, _ = select.select([lifeline, wake], [], [], seconds_between_looks)
        exceeded_limit = use.describe_exceeded_limit()
        if exceeded_limit:
            os.write(2, f"\n[stopped: {exceeded_limit}]\n".encode())
            return 128 + signal.SIGKILL
        if wake in ready and signal.SIGTERM in os.read(wake, 512):
            return 128 + signal.SIGTERM
        exit_code = _reap_until_ended(child)
        if exit_code is not None:
            return exit_code
        if lifeline in ready:
            return 128 + signal.SIGKILL


def _wait_and_pass_signals_on(child: int, lifeline: int, wake: int) -> int:
    """Wait for a command with the terminal, passing signals on. If told to end, kill
    what is left of it.
    """
    watched = [lifeline, wake]
    seconds_to_end = None
    was_asked_to_end = False
    while True:
        ready, _, _ = select.select(watched, [], [], seconds_to_end)
        if not ready:  # It was asked to end, and did not in time.
            exit_code = 128 + signal.SIGKILL
            break
        signals_to_pass = set[int]()
        if wake in ready:
            signals_to_pass.update({signal.SIGTERM, signal.SIGHUP}.intersection(os.read(wake, 512)))
        if lifeline in ready:
            # A closed pipe is ready again and again, so it is no longer watched.
            watched = [wake]
            seconds_to_end = _ASKED_SECONDS
            signals_to_pass = {signal.SIGTERM}
        for number in signals_to_pass:
            was_asked_to_end = True
            os.kill(child, number)
        ended_with = _reap_until_ended(child)
        if ended_with is not None:
            exit_code = ended_with
            break
    if was_asked_to_end:
        _kill_all_remaining("")
    return exit_code


def _reap_until_ended(child: int) -> int | None:
    """Reap ended processes until the command is among them. Return its exit code, or
    None while it runs.
    """
    with _Suppressing(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return None
            if pid == child:
                code = os.waitstatus_to_exitcode(status)
                if code < 0:  # A signal ended it, which a shell reports in this way.
                    return 128 - code
                return code
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
        self.group = group
        self.limits = limits
        self.next_look = 0.0
        if not group or not limits:
            return
        # Where the system enforces the limits, they hold between two looks as well.
        limit_by_file = {"pids.max": limits["processes"], "memory.max": limits["memory"]}
        for name, limit in limit_by_file.items():
            with _Suppressing(OSError):
                _write_to_system_file(f"{group}/{name}", str(limit or "max"))

    def describe_exceeded_limit(self) -> str:
        """Say which limit the command exceeds. Return an empty string if it exceeds none."""
        if not self.limits or time.monotonic() < self.next_look:
            return ""
        pids = self._list_group_members()
        most_processes = self.limits["processes"]
        if len(pids) > most_processes:
            return f"it started more than {most_processes:,} processes"
        most_memory = self.limits["memory"]
        if most_memory and sum(map(_private_memory_bytes, pids)) > most_memory:
            return f"it used more than {most_memory >> 20:,} MB of memory"
        self.next_look = time.monotonic() + _LOOK
        return ""

    def _list_group_members(self) -> list[int]:
        if self.group:
            with _Suppressing(OSError), open(f"{self.group}/cgroup.procs") as file:
                return [int(line) for line in file]
        return list_descendants(os.getpid())


def _private_memory_bytes(pid: int) -> int:
    with _Suppressing(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm") as file:
        words = file.read().split()
        resident_pages = int(words[1])
        shared_pages = int(words[2])
        return max(0, resident_pages - shared_pages) * _PAGE
    return 0


def _set_system_limits(limits: dict[str, int]) -> None:
    """Set the limits that the system enforces for each process or each user."""
    import resource

    wanted = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: limits["handles"],
        resource.RLIMIT_FSIZE: limits["file"],
        # The system counts all processes of the user here.
        resource.RLIMIT_NPROC: 2 * limits["processes"] + 4096,
    }
    for kind, wanted_limit in wanted.items():
        _, hard_limit = resource.getrlimit(kind)
        limit = wanted_limit
        if hard_limit != resource.RLIM_INFINITY:
            limit = min(wanted_limit, hard_limit)
        with _Suppressing(OSError, ValueError):
            resource.setrlimit(kind, (limit, limit))


def _kill_all_remaining(group: str) -> None:
    """Kill the remaining descendants until none is left. Processes forked meanwhile are
    among them.
    """
    with _Suppressing(OSError):
        _write_to_system_file(f"{group}/cgroup.kill", "1")
    while _reap_ended_children():
        pids = list_descendants(os.getpid())
        process_groups = {_process_group_of(pid) for pid in pids}
        # Our own group includes this process.
        process_groups -= {0, os.getpgrp()}
        # Whole groups first, because one call reaches all members of a group.
        for process_group in process_groups:
            _kill_if_there(-process_group)
        for pid in pids:
            _kill_if_there(pid)
        time.sleep(0.002)
    if group:
        with _Suppressing(OSError):
            os.rmdir(group)


def _kill_if_there(target: int) -> None:
    with _Suppressing(OSError):
        os.kill(target, signal.SIGKILL)


def _reap_ended_children() -> bool:
    """Return whether any child is left."""
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
            own_group = next(line[3:].strip() for line in file if line.startswith("0::"))
        with open("/proc/self/mountinfo") as file:
            mount_point = next(line.split()[4] for line in file if " - cgroup2 " in line)
        group = f"{mount_point}{own_group.rstrip('/')}/helix-{os.getpid()}"
        os.mkdir(group)
    except (OSError, StopIteration):
        return ""
    if not os.path.exists(f"{group}/cgroup.kill"):  # The kernel is older than Linux 5.14.
        return ""
    return group


def _write_to_system_file(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def list_descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for pid, parent in _list_parent_ids():
        children.setdefault(parent, []).append(pid)
    descendants: list[int] = []
    parents_to_look_at = [root]
    while parents_to_look_at:
        pids = children.get(parents_to_look_at.pop(), [])
        descendants += pids
        parents_to_look_at += pids
    return descendants


def _list_parent_ids() -> list[tuple[int, int]]:
    """Return each process with its parent."""
    pairs: list[tuple[int, int]] = []
    if not os.path.exists("/proc/self/stat"):
        import subprocess  # Imported here, because only systems without /proc (macOS) need it.

        listing = subprocess.run(
            ["/bin/ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=False
        )
        for row in listing.stdout.splitlines():
            pid, parent = row.split()
            pairs.append((int(pid), int(parent)))
        return pairs
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        with _Suppressing(OSError, IndexError), open(f"/proc/{name}/stat", "rb") as stat:
            # The name of the program, in brackets, may itself contain spaces and brackets.
            words_after_name = stat.read().rpartition(b")")[2].split()
            pairs.append((int(name), int(words_after_name[1])))
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
    # Each version of Landlock knows more rights, and more fields of these attributes.
    known_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    rights = (1 << known_rights) - 1
    attributes_size = 24
    if version < 4:
        attributes_size = 8
    elif version < 6:
        attributes_size = 16
    attributes = struct.pack("QQQ", rights, 0, 3)[:attributes_size]
    ruleset = _check_system_call(
        _open_c_library().syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    )
    for path in _folders_without_closed(options.get("closed") or [], options.get("read") or ["/"]):
        _allow_path_in_ruleset(ruleset, path, _READING & rights)
    device_rights = (_READ_FILE | _WRITE_FILE | _READ_DIR | _IOCTL) & rights
    for path in _DEVICES:
        _allow_path_in_ruleset(ruleset, path, device_rights)
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
    folders_to_check = [os.path.realpath(path) for path in opened]
    open_folders: list[str] = []
    while folders_to_check:
        folder = folders_to_check.pop()
        if folder in closed:
            continue
        beginning = folder.rstrip("/") + "/"
        has_closed_inside = any(path.startswith(beginning) for path in closed)
        if not has_closed_inside:
            open_folders.append(folder)
            continue
        # A link may lead to a closed folder. What it leads to is allowed by its own path.
        with _Suppressing(OSError):
            folders_to_check += [
                entry.path for entry in os.scandir(folder) if not entry.is_symlink()
            ]
    return open_folders


def _build_seccomp_filter(families: tuple[int, ...] | None) -> bytes:
    """Build a seccomp program that refuses certain calls, and sockets not in `families`
    (None: allow any).
    """
    processors = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
    arch, which = processors.get(os.uname().machine, (0, 0))
    if not arch:
        raise OSError(38, "no filter for this processor")
    # What the kernel does with a call: it returns an error, ends the process, or accepts.
    no = 0x00050000 | 1  # EPERM
    absent = 0x00050000 | 38  # ENOSYS
    no_socket = 0x00050000 | 13  # EACCES
    kill = 0x80000000
    accept = 0x7FFF0000
    code = [(0x20, 0, 0, 4), (0x15, 1, 0, arch), (0x06, 0, 0, kill), (0x20, 0, 0, 0)]
    if not which:
        # Refuses calls by their x32 numbers.
        code += [(0x35, 0, 1, 0x40000000), (0x06, 0, 0, kill)]
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
        code += [(0x06, 0, 0, no_socket)]
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
    families: tuple[int, ...] = ()
    if network:
        families = (2, 10, 16)  # IPv4, IPv6, and netlink, which looks up network interfaces.
    lines = _build_seccomp_filter(families)
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
