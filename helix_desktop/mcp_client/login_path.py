"""Finds the PATH of the user's login shell, with `npx` and `uvx`, which programs started from a menu lack."""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, cast

from helix_desktop.concurrency import wait_with_limit
from helix_desktop.processes.starter import DEVNULL, CommandAuthor, Process, ProcessLaunch, start_process

SECONDS = 5.0
_GONE = 0.5
_MARK = b"helix-path-begins:"


async def read_login_path(environment: Mapping[str, str]) -> str:
    """Return a login shell's PATH followed by ours, or only ours if the shell does not answer."""
    ours = environment.get("PATH", os.defpath)
    if sys.platform == "win32":
        return ours
    theirs = await _ask_shell_for_path(_login_shell(environment), environment)
    return os.pathsep.join(dict.fromkeys([*theirs.split(os.pathsep), *ours.split(os.pathsep)])) if theirs else ours


def _login_shell(environment: Mapping[str, str]) -> str:
    if given := environment.get("SHELL"):
        return given
    import pwd  # Windows lacks this module.

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


async def _ask_shell_for_path(shell: str, environment: Mapping[str, str]) -> str:
    try:
        argv = [shell, "-l", "-i", "-c", f'printf "\\n%s%s\\n" "{_MARK.decode()}" "$PATH"']
        launch = ProcessLaunch(CommandAuthor.USER, argv, environment=environment, has_own_session=True)
        process = await start_process(launch, stderr=DEVNULL, end=_wait_until_shell_ended)
    except OSError:
        return ""
    try:
        async with asyncio.timeout(SECONDS):
            return await _read_path_behind_mark(cast(asyncio.StreamReader, process.stdout))
    except TimeoutError:
        return ""
    finally:
        await _wait_until_shell_ended(process)


async def _read_path_behind_mark(printed: asyncio.StreamReader) -> str:
    """Return the text after the marker at once, since the shell's children may hold the pipe open longer."""
    with suppress(ValueError):  # An output line was too long.
        async for line in printed:
            if line.startswith(_MARK):
                return line.removeprefix(_MARK).decode("utf-8", "replace").strip()
    return ""


async def _wait_until_shell_ended(process: Process) -> None:
    await _end_shell_process(process)
    cast(Any, process)._transport.close()  # noqa: SLF001 - what it has started may hold the pipe for ever
    await asyncio.sleep(0)


async def _end_shell_process(process: Process) -> None:
    """End the shell with the signals of a closed terminal, so that it can clean up, and then by force.

    One after another, because a second signal interrupts cleaning up. Interactive
    shells react only to the first, and shells under nohup only to the second.
    """
    for number in (signal.SIGHUP, signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            await wait_with_limit(process.wait(), _GONE)
            return
