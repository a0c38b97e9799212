"""The PATH of the user's login shell: programs started from a menu do not have it, and `npx` and `uvx` are found by it."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress

SECONDS = 5.0
_GONE = 1.0
_MARK = "helix-path-begins:"


async def login_path(environment: Mapping[str, str]) -> str:
    """PATH as a login shell has it, with what we have ourselves behind it; ours alone where the shell does not answer."""
    ours = environment.get("PATH", os.defpath)
    if sys.platform == "win32":
        return ours
    theirs = await _asked(_shell(environment), environment)
    return os.pathsep.join(dict.fromkeys([*theirs.split(os.pathsep), *ours.split(os.pathsep)])) if theirs else ours


def _shell(environment: Mapping[str, str]) -> str:
    if given := environment.get("SHELL"):
        return given
    import pwd  # there is none on Windows

    with suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


async def _asked(shell: str, environment: Mapping[str, str]) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            shell,
            "-l",
            "-i",
            "-c",
            f'printf "\\n%s%s\\n" "{_MARK}" "$PATH"',
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=dict(environment),
            start_new_session=True,
        )
    except OSError:
        return ""
    try:
        async with asyncio.timeout(SECONDS):
            said, _ = await process.communicate()
    except TimeoutError:
        return ""
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):  # a child that left the group may hold the pipe
            await asyncio.wait_for(process.wait(), _GONE)
    lines = said.decode("utf-8", "replace").splitlines()
    return next((line.removeprefix(_MARK).strip() for line in lines if line.startswith(_MARK)), "")
