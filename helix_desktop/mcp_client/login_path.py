"""Asks the user's login shell for variables, such as its PATH with `npx`, which
programs started from a menu lack.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from helix_desktop.concurrency import wait_with_limit
from helix_desktop.processes.folders_of_agents import (
    environment_without_agents,
    find_folder_without_agents,
)
from helix_desktop.processes.starter import (
    DEVNULL,
    CommandAuthor,
    Process,
    ProcessLaunch,
    start_process,
)

SECONDS = 5.0
_GONE = 0.5
_MARK = b"helix-path-begins:"


async def read_login_path(environment: Mapping[str, str]) -> str:
    """Return a login shell's PATH followed by ours, or only ours if the shell does not answer."""
    own_path = environment.get("PATH", os.defpath)
    variables = await read_login_variables(["PATH"], environment)
    login_path = variables.get("PATH")
    if not login_path:
        return own_path
    folders: list[str] = []
    for folder in login_path.split(os.pathsep) + own_path.split(os.pathsep):
        if folder not in folders:
            folders.append(folder)
    return os.pathsep.join(folders)


def _login_shell(environment: Mapping[str, str]) -> str:
    """Return the user's shell, as the environment or else the list of users names it."""
    shell = environment.get("SHELL", "")
    if Path(shell).is_absolute():
        return shell
    import pwd  # Windows lacks this module.

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


async def read_login_variables(
    names: Sequence[str], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the values that variables have in the user's login shell.

    It is empty for what is not set there. If the shell does not answer, nothing is returned.
    The shell is started as in a terminal, so that it reads the user's own files.
    """
    if sys.platform == "win32":
        return {}
    # What the user's files print comes before the mark. The values have tabs between them.
    references = "\t".join(f"${name}" for name in names)
    command = f'printf "\\n%s%s\\n" "{_MARK.decode()}" "{references}"'
    own_environment = environment_without_agents(environment)
    try:
        argv = [_login_shell(own_environment), "-l", "-i", "-c", command]
        # In a project, the user's files could run what stands there.
        folder = find_folder_without_agents()
        launch = ProcessLaunch(
            CommandAuthor.USER, argv, folder, own_environment, has_own_session=True
        )
        process = await start_process(launch, stderr=DEVNULL, end=_wait_until_shell_ended)
    except OSError:
        return {}
    try:
        async with asyncio.timeout(SECONDS):
            printed = cast(asyncio.StreamReader, process.stdout)
            values = await _read_values_behind_mark(printed)
            return dict(zip(names, values, strict=False))
    except TimeoutError:
        return {}
    finally:
        await _wait_until_shell_ended(process)


async def _read_values_behind_mark(printed: asyncio.StreamReader) -> list[str]:
    """Return the values in the line that begins with our mark.

    It does not wait for the end of the output, since what the user's files have started may
    hold the pipe open longer.
    """
    with suppress(ValueError):  # An output line was too long.
        async for line in printed:
            if line.startswith(_MARK):
                values = line.removeprefix(_MARK).decode("utf-8", "replace")
                return values.strip("\r\n").split("\t")
    return []


async def _wait_until_shell_ended(process: Process) -> None:
    """End the shell as a closed terminal does, so that it can clean up, and then by force.

    The signals come one after another, because a second one interrupts cleaning up.
    Interactive shells react only to the first, and shells under nohup only to the second.
    """
    for signal_number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal_number)
        with suppress(TimeoutError):
            await wait_with_limit(process.wait(), _GONE)
            break
    cast(Any, process)._transport.close()  # noqa: SLF001 - what it has started may hold the pipe for ever
    await asyncio.sleep(0)
