"""Starts the resident at login, by a file that the user's session reads. Needs no special rights.

Connected agents and schedules need the file as long as they exist. The recorder needs
it only if the user asked for that, so the file says when it was not written for the
recorder.
"""

import os
import plistlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.errors import ActionRefused
from helix_desktop.gateway import address_in_agent_settings
from helix_desktop.program_folders import ProgramFolders
from helix_desktop.program_settings import PAGE_ON, RECORDER, ProgramSettings
from helix_desktop.resident import schedules
from helix_desktop.resources import resources_folder

UNIT = "helix-desktop-resident.service"
AUTOSTART = "helix-desktop-resident.desktop"
LAUNCH_AGENT = "helix-desktop.resident.plist"
NOT_FOR_RECORDER = "X-HelixNotForRecorder"  # Sessions ignore keys that begin with X-.
_WANTS = "default.target.wants"


def check_login_start() -> None:
    """Raise ActionRefused if the program cannot start at login: nobody would hold the
    gateway's address.
    """
    if sys.platform == "win32":
        raise ActionRefused(
            "On Windows, the gateway's address cannot be reserved while you are logged out, so the address is not written to the agent's settings.",
            remedy="Start the agent with helix-desktop wrap instead.",
        )


def enable_login_start(command: Sequence[str], *, for_recorder: bool = False) -> None:
    check_login_start()
    line = [*command, "resident", "--run"]
    mark = {} if for_recorder or _is_written_for_recorder() else {NOT_FOR_RECORDER: "true"}
    if sys.platform == "darwin":
        label = LAUNCH_AGENT.removesuffix(".plist")
        content = plistlib.dumps(
            {"Label": label, "ProgramArguments": line, "RunAtLoad": True, **mark}
        )
        write_file_atomically(_macos_launch_agent_file(), content)
        return
    config = _user_config_folder()
    quoted = shlex.join(line).replace("%", "%%")
    marked = "".join(f"{key}={value}\n" for key, value in mark.items())
    if Path("/run/systemd/system").is_dir():
        unit = config / "systemd" / "user" / UNIT
        write_file_atomically(unit, _login_template(UNIT).format(command=quoted, mark=marked))
        wanted = unit.parent / _WANTS / UNIT
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.unlink(missing_ok=True)
        wanted.symlink_to(unit)
    else:
        write_file_atomically(
            config / "autostart" / AUTOSTART,
            _login_template(AUTOSTART).format(command=quoted) + marked,
        )


def disable_unneeded_login_start(where: ProgramFolders) -> None:
    """Remove the file unless an agent has the gateway's address, a schedule exists, or
    the recorder needs it.
    """
    if not is_resident_needed(where, at_login=True):
        disable_login_start()


def is_resident_needed(where: ProgramFolders, *, at_login: bool = False) -> bool:
    """Whether the resident has work even if no wrap and no window uses it."""
    records = ProgramSettings(where.settings_file)[RECORDER] and (
        not at_login or _is_written_for_recorder()
    )
    connected = address_in_agent_settings.read_written_registrations(where.config)
    # At login it starts only if something else needs it: the page waits for the window.
    shows_page = ProgramSettings(where.settings_file)[PAGE_ON] and not at_login
    return bool(records or connected or shows_page or schedules.read_schedules(where.data))


def disable_login_start() -> None:
    for file in (_user_config_folder() / "systemd" / "user" / _WANTS / UNIT, *_login_files()):
        file.unlink(missing_ok=True)


def _is_written_for_recorder() -> bool:
    """Also true for files of earlier versions, which do not say whom they were written for."""
    return any(
        file.exists() and NOT_FOR_RECORDER.encode() not in file.read_bytes()
        for file in _login_files()
    )


def _login_files() -> tuple[Path, ...]:
    config = _user_config_folder()
    return (
        config / "systemd" / "user" / UNIT,
        config / "autostart" / AUTOSTART,
        _macos_launch_agent_file(),
    )


def _login_template(name: str) -> str:
    return (resources_folder() / "login" / name).read_text("utf-8")


def _user_config_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _macos_launch_agent_file() -> Path:
    return Path.home() / "Library" / "LaunchAgents" / LAUNCH_AGENT
