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
# What a process may no longer reach outside: abstract sockets, or these and by signals.
_SCOPE_SOCKETS = 1
_SCOPE_SOCKETS_AND_SIGNALS = 3
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
# How Linux names a processor in what a filter is given.
_PROCESSORS = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_FIRST_X32_NUMBER = 0x40000000
# The instructions of a filter: load a value, compare it, and return what the kernel is to do.
_LOAD = 0x20
_IF_EQUAL = 0x15
_IF_AT_LEAST = 0x35
_IF_ANY_BIT = 0x45
_RETURN = 0x06
# Where a filter finds the values of a system call.
_PLACE_OF_CALL_NUMBER = 0
_PLACE_OF_PROCESSOR = 4
_PLACE_OF_FIRST_ARGUMENT = 16
_PLACE_OF_SECOND_ARGUMENT = 24
# What the kernel does with a call: it returns an error, ends the process, or accepts.
_FAIL_WITH_EPERM = 0x00050000 | 1
_FAIL_WITH_EACCES = 0x00050000 | 13
_FAIL_WITH_ENOSYS = 0x00050000 | 38
_END_PROCESS = 0x80000000
_ACCEPT = 0x7FFF0000
_WITH_FILTER = 2  # The mode of seccomp that takes a filter.
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
    """Run the command and return its exit code, once nothing of it is left."""
    options = marshal.loads(bytes.fromhex(sys.argv[1]))  # noqa: S302 -- what `jail_command_line` wrote, in this very Python
    command = sys.argv[2:]
    lifeline = options["lifeline"]
    is_attended = bool(options.get("attended"))
    if sys.platform.startswith("linux"):
        _open_c_library().prctl(_SUBREAPER, 1, 0, 0, 0)

    # A signal writes its number to this pipe, so that one `select` waits for all there is.
    wake, waker = os.pipe()
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(waker)
    inherited_handlers = {}
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        inherited_handlers[number] = signal.signal(number, _wake_from_signal)

    # What an attended command leaves in the background goes on, so it is in no group.
    group = ""
    if not is_attended:
        group = _create_control_group()
    child = os.fork()
    if not child:
        signal.set_wakeup_fd(-1)
        # A signal that nohup ignores must stay ignored.
        for number, handler in inherited_handlers.items():
            signal.signal(number, handler)
        _jail_and_exec_command(options, group, command)

    if is_attended:
        return _wait_and_pass_signals_on(child, lifeline, wake)
    try:
        use = _ResourceUse(group, options.get("limits") or {})
        return _watch_until_end(child, lifeline, wake, use)
    finally:  # Also after an error here: the command must not outlive the process that watches it.
        _kill_all_remaining(group)


def _wake_from_signal(*_: object) -> None:
    """Handle a signal that only needs to wake the loop, through the wake-up pipe."""


def _jail_and_exec_command(options: dict[str, Any], group: str, command: list[str]) -> None:
    """Lock the child process in, then replace it with the command. Never returns.

    It runs in the child, after the fork. What the options ask for holds from here on, for the
    command and all that it starts.
    """
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
        if options.get("filter"):  # The command is bubblewrap, which applies the filter.
            command.insert(1, "--seccomp")
            command.insert(2, str(_open_seccomp_filter()))
        os.execvp(command[0], command)  # noqa: S606 -- to run this command is the purpose
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        # As a shell ends: 127 if there is no such command, 126 if it cannot be run.
        exit_code = 126
        if isinstance(error, FileNotFoundError):
            exit_code = 127
        os._exit(exit_code)


def _watch_until_end(child: int, lifeline: int, wake: int, use: _ResourceUse) -> int:
    """Wait until the command ends or must be ended, and return its exit code.

    It must end if it exceeds a limit, if this process is told to end, or if the lifeline is
    closed. The caller then kills what is left. Ended orphans are collected meanwhile.
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
    """Wait for a command that has the terminal, and return its exit code.

    Signals to end are passed on to it. It has a few seconds to restore the terminal then,
    before it is killed with all that it started.
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
            for number in os.read(wake, 512):
                if number in (signal.SIGTERM, signal.SIGHUP):
                    signals_to_pass.add(number)
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
    """Return the exit code of the command if it has ended, or None while it runs.

    All processes that have ended are collected ("reaped"), as the system keeps them until then.
    """
    with _Suppressing(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return None
            if pid != child:
                continue
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
        """`group`: the folder of the control group that they are in, or empty for none."""
        self.group = group
        self.limits = limits
        self.next_look = 0.0
        if not group or not limits:
            return
        # Where the system enforces the limits, they hold between two looks as well.
        limit_by_file = {"pids.max": limits["processes"], "memory.max": limits["memory"]}
        for name, limit in limit_by_file.items():
            limit_text = "max"
            if limit:
                limit_text = str(limit)
            with _Suppressing(OSError):
                _write_to_system_file(f"{group}/{name}", limit_text)

    def describe_exceeded_limit(self) -> str:
        """Say which limit the command exceeds. Return an empty string if it exceeds none."""
        if not self.limits or time.monotonic() < self.next_look:
            return ""
        pids = self._list_group_members()
        most_processes = self.limits["processes"]
        if len(pids) > most_processes:
            return f"it started more than {most_processes:,} processes"

        most_memory = self.limits["memory"]  # 0: as much as there is.
        if most_memory:
            memory = sum(_private_memory_bytes(pid) for pid in pids)
            if memory > most_memory:
                return f"it used more than {most_memory >> 20:,} MB of memory"
        self.next_look = time.monotonic() + _LOOK
        return ""

    def _list_group_members(self) -> list[int]:
        """Return the processes of the control group, or else all that this one started."""
        if self.group:
            with _Suppressing(OSError), open(f"{self.group}/cgroup.procs") as file:
                return [int(line) for line in file]
        return list_descendants(os.getpid())


def _private_memory_bytes(pid: int) -> int:
    """Return the memory that a process does not share with others, or 0 if it has ended."""
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
    """Kill all that the command started, until nothing is left.

    Processes may start others while they are killed, so it is done again and again. `group`:
    the folder of their control group, whose members the system kills at once. Empty if they have
    none.
    """
    if group:
        with _Suppressing(OSError):
            _write_to_system_file(f"{group}/cgroup.kill", "1")
    while _reap_ended_children():
        pids = list_descendants(os.getpid())
        process_groups = set[int]()
        for pid in pids:
            process_groups.add(_process_group_of(pid))
        process_groups.discard(0)  # It ended meanwhile.
        process_groups.discard(os.getpgrp())  # This process is in it, too.

        # Whole groups first, because one call reaches all members of a group.
        for process_group in process_groups:
            _kill_if_there(-process_group)  # A negative number stands for a group.
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
        while True:
            pid, _ = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return True
    except ChildProcessError:
        return False


def _process_group_of(pid: int) -> int:
    """Return the process group, or 0 if the process has ended."""
    try:
        return os.getpgid(pid)
    except OSError:
        return 0


def _create_control_group() -> str:
    """Create a control group below our own, and return its folder, or an empty string.

    The system keeps a list of a group's processes and can kill all of them at once. Not every
    system lets a user create one.
    """
    try:
        own_group = ""
        with open("/proc/self/cgroup") as file:
            for line in file:
                if line.startswith("0::"):
                    own_group = line.removeprefix("0::").strip()
                    break
        mount_point = ""
        with open("/proc/self/mountinfo") as file:
            for line in file:
                if " - cgroup2 " in line:
                    mount_point = line.split()[4]
                    break
        if not own_group or not mount_point:
            return ""
        group = f"{mount_point}{own_group.rstrip('/')}/helix-{os.getpid()}"
        os.mkdir(group)
    except OSError:
        return ""
    if not os.path.exists(f"{group}/cgroup.kill"):  # The kernel is older than Linux 5.14.
        return ""
    return group


def _write_to_system_file(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def list_descendants(root: int) -> list[int]:
    """Return all processes that this one started, and those that they started."""
    children_by_parent: dict[int, list[int]] = {}
    for pid, parent in _list_parent_ids():
        children_by_parent.setdefault(parent, []).append(pid)
    descendants: list[int] = []
    parents_to_look_at = [root]
    while parents_to_look_at:
        parent = parents_to_look_at.pop()
        children = children_by_parent.get(parent, [])
        descendants.extend(children)
        parents_to_look_at.extend(children)
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
    """Return the version of Landlock that the kernel has, or 0 if it has none."""
    if sys.platform != "linux":
        return 0
    version: int = _open_c_library().syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    return max(0, version)


def restrict_this_process(options: dict[str, Any]) -> None:
    """Restrict by Landlock what this process, and what it will execute, can do with files.

    A set of rules takes all rights away, and each rule gives some back for a path. Sockets are
    refused by seccomp. After an error, the command must not run.
    """
    # Each version of Landlock knows more rights. Each right is a bit, counted from the lowest.
    version = landlock_version()
    known_rights = {1: 13, 2: 14, 3: 15, 4: 15}.get(version, 16)
    rights = (1 << known_rights) - 1
    ruleset = _create_ruleset(version, rights)

    readable_paths = options.get("read") or ["/"]
    closed_paths = options.get("closed") or []
    for path in _folders_without_closed(closed_paths, readable_paths):
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


def _create_ruleset(version: int, rights: int) -> int:
    """Return an empty set of rules that takes these rights away wherever no rule gives them."""
    # Each version has more fields of eight bytes: files, then network ports, then other processes.
    attributes = struct.pack("QQQ", rights, 0, _SCOPE_SOCKETS_AND_SIGNALS)
    if version < 4:
        attributes = attributes[:8]
    elif version < 6:
        attributes = attributes[:16]
    size = ctypes.c_size_t(len(attributes))
    return _check_system_call(_open_c_library().syscall(_CREATE_RULESET, attributes, size, 0))


def block_abstract_sockets() -> None:
    """Cut this process off from others' abstract sockets (X11, D-Bus), if the kernel
    can do that.
    """
    if landlock_version() < 6:
        return
    attributes = struct.pack("QQQ", 0, 0, _SCOPE_SOCKETS)
    size = ctypes.c_size_t(len(attributes))
    ruleset = _check_system_call(_open_c_library().syscall(_CREATE_RULESET, attributes, size, 0))
    _check_system_call(_open_c_library().prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0))
    _check_system_call(_open_c_library().syscall(_RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _allow_path_in_ruleset(ruleset: int, path: str, rights: int) -> None:
    """Add a rule that gives these rights for a path. What does not exist needs none."""
    try:
        handle = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    possible_rights = rights
    if not os.path.isdir(path):  # The kernel refuses a rule with a folder's rights for a file.
        possible_rights = rights & _FILE_RIGHTS
    rule = ctypes.create_string_buffer(struct.pack("=Qi", possible_rights, handle))
    try:
        _check_system_call(_open_c_library().syscall(_ADD_RULE, ruleset, 1, rule, 0))
    finally:
        os.close(handle)


def _folders_without_closed(closed: list[str], opened: list[str]) -> list[str]:
    """Return folders that together hold everything in `opened`, but nothing in `closed`.

    Landlock can only allow, so a folder with a closed one in it is allowed by its parts.
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
            for entry in os.scandir(folder):
                if not entry.is_symlink():
                    folders_to_check.append(entry.path)
    return open_folders


def _build_seccomp_filter(families: tuple[int, ...] | None) -> bytes:
    """Build a seccomp program that refuses certain calls, and sockets not in `families`
    (None: allow any).

    The kernel runs the program from top to bottom for each system call of a command, until an
    instruction returns. First it makes sure that it can tell the calls by their numbers, and
    loads the call's number. Each step then compares that number, and either returns or leaves it
    to the next step. What no step has refused is accepted at the end.
    """
    processor_name = os.uname().machine
    if processor_name not in _PROCESSORS:
        raise OSError(38, "no filter for this processor")
    # In the tables of system calls, x86_64 is the first and aarch64 the second.
    column = list(_PROCESSORS).index(processor_name)

    program = _load_call_number(processor_name)
    program += _refuse_calls(column)
    program += _refuse_new_user_namespaces(column)
    program += _refuse_typing_into_terminal(column)
    if families is not None:
        program += _refuse_sockets_of_other_families(column, families)
    program.append(_instruction(_RETURN, _ACCEPT))
    return b"".join(program)


def _load_call_number(processor_name: str) -> list[bytes]:
    """Load the call's number. End a process whose calls are numbered in another way."""
    program: list[bytes] = []
    program.append(_instruction(_LOAD, _PLACE_OF_PROCESSOR))
    program.append(_instruction(_IF_EQUAL, _PROCESSORS[processor_name], skip_if_true=1))
    program.append(_instruction(_RETURN, _END_PROCESS))
    program.append(_instruction(_LOAD, _PLACE_OF_CALL_NUMBER))
    if processor_name == "x86_64":
        # Calls by their x32 numbers would not be recognised.
        program.append(_instruction(_IF_AT_LEAST, _FIRST_X32_NUMBER, skip_if_false=1))
        program.append(_instruction(_RETURN, _END_PROCESS))
    return program


def _refuse_calls(column: int) -> list[bytes]:
    """Refuse the calls that are refused whatever their arguments are."""
    program: list[bytes] = []
    for numbers in _REFUSED.values():
        program.append(_instruction(_IF_EQUAL, numbers[column], skip_if_false=1))
        program.append(_instruction(_RETURN, _FAIL_WITH_EPERM))
    return program


def _refuse_new_user_namespaces(column: int) -> list[bytes]:
    """Refuse calls that make a user namespace. Their first argument has a flag for that."""
    program: list[bytes] = []
    # A filter can't see clone3's flags, so clone3 is reported as missing, and programs use clone.
    program.append(_instruction(_IF_EQUAL, _CLONE3[column], skip_if_false=1))
    program.append(_instruction(_RETURN, _FAIL_WITH_ENOSYS))
    for numbers in (_UNSHARE, _CLONE):
        # Another call skips the four instructions about the flag.
        program.append(_instruction(_IF_EQUAL, numbers[column], skip_if_false=4))
        program.append(_instruction(_LOAD, _PLACE_OF_FIRST_ARGUMENT))
        program.append(_instruction(_IF_ANY_BIT, _NEW_USER, skip_if_false=1))
        program.append(_instruction(_RETURN, _FAIL_WITH_EPERM))
        program.append(_instruction(_RETURN, _ACCEPT))
    return program


def _refuse_typing_into_terminal(column: int) -> list[bytes]:
    """Refuse the two requests to a device (`ioctl`) that can type into the user's terminal."""
    program: list[bytes] = []
    # Another call skips the five instructions about the request.
    program.append(_instruction(_IF_EQUAL, _CONTROL[column], skip_if_false=5))
    program.append(_instruction(_LOAD, _PLACE_OF_SECOND_ARGUMENT))
    program.append(_instruction(_IF_EQUAL, _TYPE_AHEAD, skip_if_true=1))
    program.append(_instruction(_IF_EQUAL, _CONSOLE, skip_if_false=1))
    program.append(_instruction(_RETURN, _FAIL_WITH_EPERM))
    program.append(_instruction(_RETURN, _ACCEPT))
    return program


def _refuse_sockets_of_other_families(column: int, families: tuple[int, ...]) -> list[bytes]:
    """Refuse sockets whose family, the first argument, is not one of these. This step must be
    the last, because it accepts all calls that open no socket.
    """
    program: list[bytes] = []
    program.append(_instruction(_IF_EQUAL, _SOCKET[column], skip_if_true=1))
    program.append(_instruction(_RETURN, _ACCEPT))
    program.append(_instruction(_LOAD, _PLACE_OF_FIRST_ARGUMENT))
    for family in families:
        program.append(_instruction(_IF_EQUAL, family, skip_if_false=1))
        program.append(_instruction(_RETURN, _ACCEPT))
    program.append(_instruction(_RETURN, _FAIL_WITH_EACCES))
    return program


def _instruction(
    operation: int, value: int, *, skip_if_true: int = 0, skip_if_false: int = 0
) -> bytes:
    """Return one instruction of a filter. A comparison skips so many of the next ones."""
    return struct.pack("HBBI", operation, skip_if_true, skip_if_false, value)


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
    program = _build_seccomp_filter(families)
    instruction_count = len(program) // 8
    program_in_memory = ctypes.create_string_buffer(program)
    address = ctypes.addressof(program_in_memory)
    count_and_address = struct.pack("HxxxxxxP", instruction_count, address)
    argument = ctypes.create_string_buffer(count_and_address)
    _check_system_call(_open_c_library().prctl(_SECCOMP, _WITH_FILTER, argument, 0, 0))


def _check_system_call(result: int) -> int:
    """Return what a system call returned. Raises OSError if it failed."""
    if result < 0:
        error_number = ctypes.get_errno()
        reason = os.strerror(error_number)
        raise OSError(error_number, f"the sandbox cannot be set up ({reason})")
    return int(result)
