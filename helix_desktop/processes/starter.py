"""The one place that starts processes: each start says whose words it runs, where, with
what, and what is checked afterwards.

| whose words | where | what must hold |
|---|---|---|
| the program's own | outside, or locked in | an absolute path, not in a folder in which agents work; Python isolated (`-I`): no folder of the user's is searched for modules |
| the user's own | outside, or locked in | the user set it up, or answered a question that showed it; neither it nor what it starts is looked up in a folder in which agents work |
| a trusted item of a folder | in the sandbox alone | the hash that was trusted |
| the model's | in the sandbox, or outside when the user allowed this very command | checked afterwards |

`tests/test_one_door.py` forbids every other way to start a process.
"""

import asyncio
import errno
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

from helix_desktop import concurrency
from helix_desktop.cancellation import end_if_cancelled
from helix_desktop.errors import NotFound
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.processes.folders_of_agents import (
    environment_for_openers,
    environment_without_agents,
    is_in_folder_of_agents,
    search_path_without_agents,
)

PIPE = subprocess.PIPE
DEVNULL = subprocess.DEVNULL
STDOUT = subprocess.STDOUT
Process = asyncio.subprocess.Process
ProcessTimeout = subprocess.TimeoutExpired
ChildProcess = subprocess.Popen[str]  # A process that was started without an event loop.
FinishedProcess = subprocess.CompletedProcess[bytes]
# The most that is kept of what a program prints. A list of checks or of files is far smaller.
MOST_OUTPUT_BYTES = 64 << 20
MOST_ERROR_BYTES = 1 << 20
# A process that has ended has printed all; only what it started could still hold its streams.
SECONDS_FOR_LAST_OUTPUT = 5.0
_SECONDS_BETWEEN_LOOKS = 0.25
# In it, Linux lets a process wait that opens a named pipe whose other end nobody has open.
_KERNEL_FUNCTION_AT_PIPES = "wait_for_partner"
_LINE_LIMIT = 1 << 16
_CHUNK_BYTES = 1 << 16
_HASH = re.compile(r"[0-9a-f]{64}")
_OWN_CODE = (
    "import sys; sys.path += sys.argv.pop(1).split({separator!r}); sys.argv[0] = 'helix-desktop'; "
    "from helix_desktop.cli import main; sys.exit(main())"
)
_WEB = ("http://", "https://", "mailto:")


class CommandAuthor(StrEnum):
    """Who wrote what a process runs."""

    PROGRAM = "program"
    USER = "user"
    TRUSTED = "trusted"
    MODEL = "model"


class ProcessPlace(StrEnum):
    """The confinement of a process. WATCHED: only by the keeper, which ends everything
    the process started.
    """

    SANDBOX = "sandbox"
    WATCHED = "watched"
    OUTSIDE = "outside"


class ChecksAfterwards(Protocol):
    """Checks what a process changed once it has ended, and reverts what nobody wants."""

    async def revert_without_asking(self) -> None: ...


class UnsafeLaunch(Exception):
    """Raised for a launch that breaks the rules above: a bug of ours. Nothing was started."""


class OutputTooLong(Exception):
    """Raised for a process that printed more than may be kept. It was ended."""


class PipeOpened(Exception):
    """Raised for a process that waited at a named pipe where it expected a file. It was ended."""


def _own_environment() -> dict[str, str]:
    """Return this process's variables for another one, which loads nothing that agents have put into
    a folder of theirs.
    """
    return environment_without_agents(os.environ, is_of_program=True)


@dataclass(frozen=True, slots=True)
class ProcessLaunch:
    """A process to start. `trusted_hash` is the hash of a trusted item. `checks` follow
    what a model or folder wrote, or `reason_unchecked` is set. `is_allowed_outside`:
    the user allowed this very command unsandboxed.
    """

    author: CommandAuthor
    argv: Sequence[str]
    folder: Path | str | None = None
    environment: Mapping[str, str] = field(default_factory=_own_environment)
    place: ProcessPlace = ProcessPlace.OUTSIDE
    trusted_hash: str = ""
    checks: ChecksAfterwards | None = None
    reason_unchecked: str = ""
    is_allowed_outside: bool = False
    inherited: Sequence[int] = ()  # The numbers of open files that the process inherits.
    # True if it gets its own process group, which can be ended as a whole.
    has_own_session: bool = False
    # True for what the user starts from a shell: it looks up what that shell would look up.
    keeps_search_path: bool = False
    memory_bytes: int = 0  # The maximum address space that it may use, if the system can limit it.
    # The same for memory that it fills itself: files that it maps to read them do not count.
    filled_memory_bytes: int = 0

    def __post_init__(self) -> None:
        broken_rule = _find_broken_rule(self)
        if broken_rule:
            raise UnsafeLaunch(f"{list(self.argv)[:2]} was not started: {broken_rule}.")


def _find_broken_rule(launch: ProcessLaunch) -> str:
    """Return which rule a launch breaks, as a sentence, or an empty string."""
    if not launch.argv:
        return "there is no program to run"
    if launch.author is CommandAuthor.PROGRAM:
        return _find_broken_rule_of_program(launch.argv)
    if launch.author is CommandAuthor.USER:
        return ""
    return _find_broken_rule_of_others(launch)


def _find_broken_rule_of_others(launch: ProcessLaunch) -> str:
    """Return which rule a launch of a folder's or the model's words breaks."""
    is_outside = launch.place is not ProcessPlace.SANDBOX
    if launch.author is CommandAuthor.TRUSTED:
        if not _HASH.fullmatch(launch.trusted_hash):
            return "an item of a folder runs only with the hash that was trusted"
        if is_outside:
            return "an item of a folder runs only in the sandbox"
    if is_outside and not launch.is_allowed_outside:
        return "a command of the model runs outside the sandbox only when the user allowed it"
    if launch.checks is None and not launch.reason_unchecked:
        return "nothing is checked afterwards"
    return ""


def _find_broken_rule_of_program(argv: Sequence[str]) -> str:
    """Return which rule a launch of the program's own breaks."""
    program = argv[0]
    if not Path(program).is_absolute():
        return "the program's own processes are named by an absolute path"
    if program != sys.executable and is_in_folder_of_agents(program):
        return "the program's own processes are no files of a folder in which agents work"
    is_python = program == sys.executable and not _is_bundle()
    is_isolated = len(argv) > 1 and argv[1] == "-I"
    if is_python and not is_isolated:
        return "the program's own Python runs isolated"
    return ""


def isolated_python_command(*arguments: str) -> list[str]:
    """Return a command for a Python that finds no modules by its working folder or by variables."""
    command = [sys.executable, "-I"]
    command.extend(arguments)
    return command


def own_program_command(*arguments: str) -> list[str]:
    """Return a command that starts this program again, isolated. A bundle is isolated
    by its build.
    """
    if _is_bundle():
        command = [sys.executable]
        command.extend(arguments)
        return command
    folders = _own_module_folders()
    if not folders:
        return isolated_python_command("-m", "helix_desktop", *arguments)
    code = _OWN_CODE.format(separator=os.pathsep)
    return isolated_python_command("-c", code, os.pathsep.join(folders), *arguments)


def find_own_environment() -> Path | None:
    """Return the folder from which this program runs, if it could be in a project: a bundle's, or a
    virtual environment. What is changed there runs when the program is started again.
    """
    if _is_bundle():
        return Path(os.path.realpath(sys.executable)).parent
    if sys.prefix != sys.base_prefix:
        return Path(os.path.realpath(sys.prefix))
    return None


def is_of_own_environment(path: Path) -> bool:
    own_environment = find_own_environment()
    return own_environment is not None and path.is_relative_to(own_environment)


def _is_bundle() -> bool:
    return bool(getattr(sys, "frozen", False))


def _own_module_folders() -> list[str]:
    """Return the folders with our modules that an isolated Python would not search by itself.

    These are a checkout, or the user's own packages. Importing our package has removed folders
    from `sys.path` that might be an agent's, so none of them is among these.
    """
    searched_folders: list[str] = []
    for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix):
        searched_folders.append(os.path.realpath(prefix).rstrip(os.sep) + os.sep)

    own_folders: list[str] = []
    for path in sys.path:
        is_absolute = os.path.isabs(path)  # noqa: PTH117 -- texts, as they stand in sys.path
        is_searched = os.path.realpath(path).startswith(tuple(searched_folders))
        if is_absolute and not is_searched:
            own_folders.append(path)
    return own_folders


def find_program(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the full path of a program, or an empty string if it is not found.

    It is looked up in the PATH of this environment, or of this process. A relative path finds
    nothing, since it would depend on the working folder.
    """
    return next(_find_all_programs(name, environment), "")


def find_own_program(name: str, environment: Mapping[str, str] | None = None) -> str:
    """Return the full path of a program that we use for ourselves, such as git or bubblewrap, or an
    empty string. What PATH has of it in a folder in which agents work is passed over.
    """
    for path in _find_all_programs(name, environment):
        if not is_in_folder_of_agents(path):
            return path
    return ""


def find_users_program(name: str, environment: Mapping[str, str]) -> str:
    """Return the full path of a program that the user has set up to be started outside the sandbox.

    Raises NotFound, also if it stands only in a folder in which agents work: whatever they have put
    there would run. A full path is the user's own choice of this very file.
    """
    if Path(name).is_absolute():
        if Path(name).is_file():
            return name
    elif program := find_own_program(name, environment):
        return program
    elif program := find_program(name, environment):
        raise NotFound(
            f"The program {name} is only in {Path(program).parent}, where agents work.",
            remedy="If agents may choose what this program is, specify its full path.",
        )
    raise NotFound(
        f"The program {name} was not found.",
        remedy="Install the program, or specify its full path.",
    )


def _find_all_programs(name: str, environment: Mapping[str, str] | None) -> Iterator[str]:
    """Yield every file in the folders of PATH that could be started by this name."""
    if os.path.dirname(name):  # noqa: PTH120 -- a name with a folder in it is no name to look up
        is_absolute = os.path.isabs(name)  # noqa: PTH117
        if is_absolute:
            yield name
        return
    if environment is None:
        environment = os.environ
    file_names = _file_names_of_program(name, environment)
    for folder in environment.get("PATH", os.defpath).split(os.pathsep):
        # A relative one would be searched for in the working folder, which may be the agent's.
        if not Path(folder).is_absolute():
            continue
        for file_name in file_names:
            path = os.path.join(folder, file_name)  # noqa: PTH118
            # `Path.is_file` raises PermissionError below a folder that this user cannot enter, such
            # as one of root's.
            if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
                yield path


def _file_names_of_program(name: str, environment: Mapping[str, str]) -> list[str]:
    """Return the names that a program's file may have. Windows has an ending for each kind."""
    if sys.platform != "win32" or Path(name).suffix:
        return [name]
    endings = environment.get("PATHEXT", ".EXE;.CMD;.BAT;.COM").split(os.pathsep)
    return [f"{name}{ending}" for ending in endings]


async def start_process(
    launch: ProcessLaunch,
    *,
    stdin: int = DEVNULL,
    stdout: int = PIPE,
    stderr: int = PIPE,
    line_limit: int = _LINE_LIMIT,
    end: Callable[[Process], Awaitable[object]] | None = None,
) -> Process:
    """Start a process without blocking the event loop.

    If this is cancelled, the process is killed, or ended by `end` if given. `line_limit`: the
    longest line, in bytes, that can be read from its output at once.
    """
    starting = start_without_cleanup(
        launch, stdin=stdin, stdout=stdout, stderr=stderr, line_limit=line_limit
    )
    return await end_if_cancelled(starting, end or end_process)


async def start_without_cleanup(
    launch: ProcessLaunch,
    *,
    stdin: int,
    stderr: int,
    stdout: int = PIPE,
    line_limit: int = _LINE_LIMIT,
) -> Process:
    """Start a process, for callers that end it themselves when they are cancelled."""
    environment = environment_of(launch)
    process = await asyncio.create_subprocess_exec(
        *argv_with_program_path(launch, environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        limit=line_limit,
        **_process_options(launch, environment),
    )
    if launch.memory_bytes:
        _limit_memory(process.pid, launch.memory_bytes)
    return process


async def start_isolated_script(
    script: Path, *, line_limit: int = _LINE_LIMIT, memory_bytes: int = 0
) -> Process:
    """Start a script of ours that reads foreign bytes, such as a document from the web.

    A flaw in it should find nothing of ours, so it gets hardly any of our variables.
    """
    environment: dict[str, str] = {}
    for name in ("SYSTEMROOT", "LD_LIBRARY_PATH"):
        if name in os.environ:
            environment[name] = os.environ[name]
    argv = isolated_python_command("-S", str(script))
    launch = ProcessLaunch(
        CommandAuthor.PROGRAM, argv, script.parent, environment, memory_bytes=memory_bytes
    )
    return await start_process(launch, stdin=PIPE, stderr=DEVNULL, line_limit=line_limit)


async def end_process(process: Process) -> int:
    """Kill a process and wait. `process.kill()` would take the exit code away from asyncio."""
    if process.returncode is None:
        with suppress(ProcessLookupError):
            if sys.platform == "win32":
                process.kill()
            else:
                os.kill(process.pid, signal.SIGKILL)
    return await process.wait()


def open_process(
    launch: ProcessLaunch,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    pipe_bytes: int = -1,
) -> ChildProcess:
    """Start a process without an event loop. What it prints is read as text.

    Streams that are not given are those of this process.
    """
    environment = environment_of(launch)
    return subprocess.Popen(
        argv_with_program_path(launch, environment),
        stdin=stdin,
        stdout=stdout,
        stderr=stderr,
        text=True,
        pipesize=pipe_bytes,
        **_process_options(launch, environment),
    )


def close_or_kill_process(process: ChildProcess, patience_seconds: float) -> None:
    """Close a process's input, which tells it to end, and kill it if it has not ended in time."""
    if process.stdin is not None:
        with suppress(OSError):
            process.stdin.close()
    with suppress(ProcessTimeout):
        process.wait(patience_seconds)
    process.kill()
    process.wait()


def run_process(
    launch: ProcessLaunch,
    *,
    input_bytes: bytes = b"",
    seconds: float | None = None,
    most_bytes: int = MOST_OUTPUT_BYTES,
    ends_at_pipes: bool = False,
) -> FinishedProcess:
    """Run a process in the calling thread, and return its whole output once it has ended.

    Raises ProcessTimeout if it takes longer than so many seconds, and OutputTooLong if it prints more
    than so many bytes: part of a list or of a file must not be taken for all of it. Of its errors,
    the end is kept. `ends_at_pipes`: raise PipeOpened if it waits at a named pipe that nobody else
    opens, where it expects a file.
    """
    process = _open_process_with_pipes(launch)
    output = _EndOfStream(process, process.stdout, most_bytes, must_be_whole=True)
    errors = _EndOfStream(process, process.stderr, MOST_ERROR_BYTES)
    finished = _finish_process(
        process, launch, (output, errors), input_bytes, seconds, ends_at_pipes=ends_at_pipes
    )
    if output.is_cut:
        raise OutputTooLong(f"{launch.argv[0]} printed more than {most_bytes} bytes")
    return finished


def run_process_keeping_end(
    launch: ProcessLaunch,
    *,
    input_bytes: bytes = b"",
    seconds: float | None = None,
    kept_bytes: int = MOST_OUTPUT_BYTES,
) -> FinishedProcess:
    """The same for a process that may print without end, such as a server's log: of each of its two
    streams, the last so many bytes are kept.
    """
    process = _open_process_with_pipes(launch)
    output = _EndOfStream(process, process.stdout, kept_bytes)
    errors = _EndOfStream(process, process.stderr, kept_bytes)
    return _finish_process(process, launch, (output, errors), input_bytes, seconds)


def _open_process_with_pipes(launch: ProcessLaunch) -> "subprocess.Popen[bytes]":
    environment = environment_of(launch)
    process = subprocess.Popen(
        argv_with_program_path(launch, environment),
        stdin=PIPE,
        stdout=PIPE,
        stderr=PIPE,
        **_process_options(launch, environment),
    )
    if launch.filled_memory_bytes:
        _limit_filled_memory(process.pid, launch.filled_memory_bytes)
    return process


class _EndOfStream:
    """Reads what a process prints, in a thread, and keeps the end of it, so that no process can fill
    the memory of this one. `must_be_whole`: end the process once something would be lost.
    """

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        stream: IO[bytes] | None,
        kept_bytes: int,
        *,
        must_be_whole: bool = False,
    ) -> None:
        if stream is None:
            raise TypeError("the stream is a pipe")
        self.content = bytearray()
        self.is_cut = False
        self._process = process
        self._stream = stream
        self._kept_bytes = kept_bytes
        self._must_be_whole = must_be_whole
        self.thread = concurrency.start_thread(self._read_to_end, name="output", daemon=True)

    def _read_to_end(self) -> None:
        with self._stream:
            chunk = self._stream.read(_CHUNK_BYTES)
            while chunk:
                self.content += chunk
                surplus = len(self.content) - self._kept_bytes
                if surplus > 0:
                    self.is_cut = True
                    del self.content[:surplus]
                if self.is_cut and self._must_be_whole:
                    self._process.kill()
                    return
                chunk = self._stream.read(_CHUNK_BYTES)


def _finish_process(
    process: "subprocess.Popen[bytes]",
    launch: ProcessLaunch,
    streams: tuple[_EndOfStream, _EndOfStream],
    input_bytes: bytes,
    seconds: float | None,
    *,
    ends_at_pipes: bool = False,
) -> FinishedProcess:
    """Give a process its input and wait for its end. `streams`: its output and its errors.

    Raises ProcessTimeout if it takes longer than so many seconds; what it started ends, too.
    """
    if process.stdin is None:
        raise TypeError("the stream is a pipe")
    writing = concurrency.start_thread(
        partial(_write_and_close, process.stdin, input_bytes), name="input", daemon=True
    )
    output, errors = streams
    try:
        if ends_at_pipes:
            _wait_unless_at_pipe(process, seconds)
        else:
            process.wait(seconds)
    except BaseException:  # Also Ctrl+C: the process must not go on without this one.
        _kill_at_once(process, launch)
        raise
    finally:
        for thread in (writing, output.thread, errors.thread):
            thread.join(SECONDS_FOR_LAST_OUTPUT)
    return FinishedProcess(
        process.args, process.returncode, bytes(output.content), bytes(errors.content)
    )


def _wait_unless_at_pipe(process: "subprocess.Popen[bytes]", seconds: float | None) -> None:
    limit = float("inf")
    if seconds is not None:
        limit = seconds
    end = time.monotonic() + limit
    while process.poll() is None:
        seconds_left = end - time.monotonic()
        if seconds_left <= 0:
            raise ProcessTimeout(process.args, limit)
        with suppress(ProcessTimeout):
            process.wait(min(_SECONDS_BETWEEN_LOOKS, seconds_left))
        if process.returncode is None and _is_opening_pipe(process.pid):
            raise PipeOpened("it waits at a pipe")


def _is_opening_pipe(pid: int) -> bool:
    """Whether a process waits until somebody opens the other end of a named pipe. Only Linux says
    where in the kernel a process waits; some kernels (5.15) do not.
    """
    try:
        waits_in = Path(f"/proc/{pid}/wchan").read_text("ascii", "replace")
    except OSError:
        return False
    return waits_in == _KERNEL_FUNCTION_AT_PIPES


def _write_and_close(stream: IO[bytes], content: bytes) -> None:
    with suppress(OSError):  # It may end without reading.
        stream.write(content)
    with suppress(OSError):
        stream.close()


def _kill_at_once(process: "subprocess.Popen[bytes]", launch: ProcessLaunch) -> None:
    if launch.has_own_session and sys.platform != "win32":
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.kill()
    process.wait()


def open_web_page(address: str) -> None:
    import webbrowser  # Imported here because only this function needs it.

    if address.startswith(_WEB):
        with environment_for_openers():
            webbrowser.open(address)


def argv_with_program_path(launch: ProcessLaunch, environment: Mapping[str, str]) -> list[str]:
    """Return the words to start, with the program's full path, never one in the working folder.

    `environment`: that of the launch, as `environment_of` returns it.
    """
    name = launch.argv[0]
    if os.path.dirname(name):  # noqa: PTH120 -- a path is taken as it is
        return list(launch.argv)
    path = find_program(name, environment)
    if not path:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    return [path, *launch.argv[1:]]


def environment_of(launch: ProcessLaunch) -> dict[str, str]:
    """Return the variables that a process gets. Outside the sandbox, what the user has set up is not
    looked up in folders in which agents work, neither by us nor by what it starts itself: `npx`
    starts `node`, and an agent could have put one into the project.
    """
    environment = dict(launch.environment)
    if launch.author is CommandAuthor.PROGRAM:
        environment = environment_without_agents(environment, is_of_program=True)
    is_outside = launch.place is not ProcessPlace.SANDBOX
    is_of_user = launch.author is CommandAuthor.USER and not launch.keeps_search_path
    if is_outside and is_of_user and "PATH" in environment:
        environment["PATH"] = search_path_without_agents(environment["PATH"])
    return environment


def _process_options(launch: ProcessLaunch, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return what a launch asks for, as the library for processes names it."""
    options: dict[str, Any] = {"cwd": launch.folder or None, "env": environment}
    if sys.platform == "win32":
        if launch.has_own_session:
            flags = subprocess.CREATE_NO_WINDOW | subprocess.CREATE_NEW_PROCESS_GROUP
            options["creationflags"] = flags
        return options
    options["pass_fds"] = tuple(launch.inherited)
    options["start_new_session"] = launch.has_own_session
    return options


def _limit_memory(pid: int, memory_bytes: int) -> None:
    """Limit a running process's address space. Only Linux can do that from outside."""
    if sys.platform.startswith("linux"):
        import resource

        with suppress(OSError, ValueError):  # The process may have ended.
            resource.prlimit(pid, resource.RLIMIT_AS, (memory_bytes, memory_bytes))


def _limit_filled_memory(pid: int, memory_bytes: int) -> None:
    if sys.platform.startswith("linux"):
        import resource

        with suppress(OSError, ValueError):  # The process may have ended.
            resource.prlimit(pid, resource.RLIMIT_DATA, (memory_bytes, memory_bytes))
