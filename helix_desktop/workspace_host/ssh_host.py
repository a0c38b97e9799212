"""Reaches a workspace on another computer, by the user's own `ssh`.

`ssh` runs with the user's configuration, agent, jump hosts and known hosts, and asks in the terminal
what it has to ask. Over there it starts `helix-desktop host`, which leads to the process that has the
workspace open; that process goes on when the line breaks.
"""

import asyncio
import logging
import os
import shlex
from collections.abc import Sequence

from helix_desktop.concurrency import OwnedTasks
from helix_desktop.errors import HelixError
from helix_desktop.processes import starter
from helix_desktop.processes.folders_of_agents import environment_without_agents
from helix_desktop.processes.starter import CommandAuthor, Process, ProcessLaunch
from helix_desktop.workspace_host.byte_streams import PIECE, SocketStream
from helix_desktop.workspace_host.kept_host import START_OF_LINE
from helix_desktop.workspace_host.key_holder import KeyOffer, lend_key_over_line
from helix_desktop.workspace_host.remote_workspace_host import RemoteWorkspaceHost
from helix_desktop.workspace_host.ssh_address import SshAddress, build_invalid_address_error

log = logging.getLogger(__name__)

# A line that is silent for three times this long is taken for broken.
ALIVE_SECONDS = 15
MOST_GREETING_BYTES = 1 << 16  # What a login there prints before our program starts.
MOST_COMPLAINT_BYTES = 4_000
NOT_FOUND = 127  # A shell's exit code for a program that is missing.
SSH_FAILED = 255
# What ssh says of a connection that is cut during the login, if the user has it say anything of that.
# Nothing was asked for then, so it is made again. It always says something, and something else, of a
# computer that is not there or does not let the user in.
_CUT = (
    "connection closed",
    "connection reset",
    "closed by remote host",
    "broken pipe",
    "not responding",
)
PAUSES_AFTER_CUT_SECONDS = (1.0, 2.0)
# Programs that a user has installed for themselves are often missing in the path of a command over SSH.
_START_PROGRAM = 'PATH="$HOME/.local/bin:$PATH"; export PATH; exec helix-desktop "$@"'
INSTALL = "Install it there, for example with `pipx install helix-desktop`, and try again."


def ssh_command(address: SshAddress, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `helix-desktop` with these arguments over there."""
    command = ["ssh", "-T", "-o", f"ServerAliveInterval={ALIVE_SECONDS}"]
    if address.port is not None:
        command += ["-p", str(address.port)]
    # ssh joins the words, and the user's shell there takes them apart again.
    words = ["exec", "sh", "-c", _START_PROGRAM, "helix-desktop", *arguments]
    command += ["--", address.target, shlex.join(words)]
    return command


async def connect_over_ssh(
    address: SshAddress, workspace: str = "", *, has_terminal: bool = True
) -> RemoteWorkspaceHost:
    """Connects to the host of the folder's workspace over there, or of the named one. HelixError
    says what is wrong, if it is not reached. Without a terminal, ssh asks in a window of its own,
    if the user has set one up (SSH_ASKPASS), or not at all.
    """
    arguments = ["host", "--over-line", *_name_workspace(address, workspace)]
    stream = await _reach_program(address, arguments, has_terminal=has_terminal)
    try:
        return await RemoteWorkspaceHost.connect_over_stream(stream)
    except BaseException:
        await stream.close_stream()
        raise


def _name_workspace(address: SshAddress, workspace: str) -> list[str]:
    arguments: list[str] = []
    if address.folder:
        arguments += ["--folder", address.folder]
    if workspace:
        arguments += ["--workspace", workspace]
    if not arguments:
        raise build_invalid_address_error(f"ssh://{address.target}")
    return arguments


async def _reach_program(
    address: SshAddress, arguments: Sequence[str], *, has_terminal: bool
) -> "SshStream":
    """Returns the pipes when our program over there speaks. HelixError says why it does not."""
    for pause_seconds in PAUSES_AFTER_CUT_SECONDS:
        try:
            return await _reach_program_once(address, arguments, has_terminal=has_terminal)
        except LoginCut:
            log.info("the connection was cut during the login, and is made again")
            await asyncio.sleep(pause_seconds)
    return await _reach_program_once(address, arguments, has_terminal=has_terminal)


async def _reach_program_once(
    address: SshAddress, arguments: Sequence[str], *, has_terminal: bool
) -> "SshStream":
    stream = await _start_ssh(address, arguments, has_terminal=has_terminal)
    try:
        await stream.read_to_start_of_line()
    except BaseException:
        await stream.close_stream()
        raise
    return stream


def _has_no_host_command(complaint: str) -> bool:
    """Whether a program of a version without this way of hosting complains of our command line."""
    signs = ("--over-line", "invalid choice: 'host'", "no command 'host'")
    return any(sign in complaint for sign in signs)


def _error_of_failed_ssh(machine: str, complaint: str) -> HelixError:
    """A login that was cut off may be tried again. One that was refused is refused again."""
    says_cut = any(words in complaint.lower() for words in _CUT)
    kind_of_error: type[HelixError] = HelixError
    if says_cut or not complaint:
        kind_of_error = LoginCut
    return kind_of_error(
        f"There is no connection to {machine}. {complaint}".strip(),
        remedy=f"If `ssh {machine}` asks for something in a terminal, answer it there once, and try again.",
    )


async def _start_ssh(
    address: SshAddress, arguments: Sequence[str], *, has_terminal: bool
) -> "SshStream":
    command = ssh_command(address, arguments)
    # In a session of its own, ssh cannot wait for an answer in a terminal that nobody looks at.
    launch = ProcessLaunch(
        CommandAuthor.USER,
        command,
        environment=environment_without_agents(os.environ),
        has_own_session=not has_terminal,
    )
    try:
        process = await starter.start_process(launch, stdin=starter.PIPE, line_limit=PIECE)
    except FileNotFoundError:
        raise HelixError(
            "The program ssh is not on this computer.", remedy="Install it, and try again."
        ) from None
    return SshStream(process, address)


async def lend_key_over_ssh(
    address: SshAddress, workspace: str, offer: KeyOffer, *, has_terminal: bool = True
) -> None:
    """Has a process over there hold the key for the offer's conversation. HelixError if it is not."""
    arguments = ["host", "--hold-key", "line", *_name_workspace(address, workspace)]
    stream = await _reach_program(address, arguments, has_terminal=has_terminal)
    try:
        await lend_key_over_line(stream.read_bytes, stream.write_bytes, offer)
    finally:
        await stream.close_stream()


class LoginCut(HelixError):
    """The connection broke before our program over there was started."""


class SshStream:
    """The pipes of a running `ssh`, from the moment on when our program over there speaks."""

    def __init__(self, process: Process, address: SshAddress) -> None:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise ValueError("ssh was started without its three pipes")
        self._process = process
        self._address = address
        self._pipes = SocketStream(process.stdout, process.stdin)
        self._errors = process.stderr
        self._complaint = bytearray()
        self._unread = b""
        self._tasks = OwnedTasks("ssh")
        self._reading_errors = self._tasks.spawn_task(
            self._collect_complaint(), name="read what ssh complains of"
        )

    async def _collect_complaint(self) -> None:
        while piece := await self._errors.read(PIECE):
            self._complaint += piece
            del self._complaint[:-MOST_COMPLAINT_BYTES]

    async def read_to_start_of_line(self) -> None:
        """Skips what a login prints. Raises what went wrong if our program does not start."""
        heard = b""
        while START_OF_LINE not in heard:
            piece = await self._pipes.read_bytes()
            if not piece:
                raise await self._explain_end()
            heard += piece
            if len(heard) > MOST_GREETING_BYTES:
                raise HelixError(
                    f"{self._address.target} sends much text before Helix Desktop starts there.",
                    remedy="Make its login quiet for commands over ssh.",
                )
        _, _, self._unread = heard.partition(START_OF_LINE)

    async def _explain_end(self) -> HelixError:
        # It has closed its output. What it says of the reason comes before its end.
        await self._process.wait()
        await self._reading_errors
        machine = self._address.target
        code = self._process.returncode
        complaint = self._complaint.decode("utf-8", "replace").strip()
        if code == NOT_FOUND:
            return HelixError(
                f"Helix Desktop is not installed on {machine}, or not found there. Nothing was changed there.",
                remedy=INSTALL,
            )
        if code == SSH_FAILED:
            return _error_of_failed_ssh(machine, complaint)
        if _has_no_host_command(complaint):
            return HelixError(
                f"Helix Desktop on {machine} is of an older version, which cannot be used from here. Nothing was changed there.",
                remedy=f"Update it on {machine}.",
            )
        if not complaint:
            complaint = f"It ended with code {code}, and said nothing."
        return HelixError(f"Helix Desktop on {machine} did not start. {complaint}")

    async def read_bytes(self) -> bytes:
        if self._unread:
            piece = self._unread
            self._unread = b""
            return piece
        return await self._pipes.read_bytes()

    async def write_bytes(self, content: bytes) -> None:
        await self._pipes.write_bytes(content)

    async def close_stream(self) -> None:
        await self._pipes.close_stream()
        await starter.end_process(self._process)
        await self._tasks.aclose(limit=1)
