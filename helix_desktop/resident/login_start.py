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

from helix_desktop.atomic_files import create_folders, write_file_atomically
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
    """Have the system start the resident when the user logs in."""
    check_login_start()
    resident_command = list(command) + ["resident", "--run"]
    # A file that was written for the recorder stays so, whoever writes it again.
    is_for_recorder = for_recorder or _is_written_for_recorder()
    if sys.platform == "darwin":
        _write_macos_launch_agent(resident_command, is_for_recorder=is_for_recorder)
    elif Path("/run/systemd/system").is_dir():
        _write_systemd_unit(resident_command, is_for_recorder=is_for_recorder)
    else:
        _write_autostart_file(resident_command, is_for_recorder=is_for_recorder)


def _write_macos_launch_agent(resident_command: Sequence[str], *, is_for_recorder: bool) -> None:
    launch_agent: dict[str, object] = {
        "Label": LAUNCH_AGENT.removesuffix(".plist"),
        "ProgramArguments": list(resident_command),
        "RunAtLoad": True,
    }
    if not is_for_recorder:
        launch_agent[NOT_FOR_RECORDER] = "true"
    write_file_atomically(_macos_launch_agent_file(), plistlib.dumps(launch_agent))


def _write_systemd_unit(resident_command: Sequence[str], *, is_for_recorder: bool) -> None:
    """Write the unit, and the link to it that makes systemd start it at login."""
    unit = _user_config_folder() / "systemd" / "user" / UNIT
    content = _login_template(UNIT).format(
        command=_quote_for_login_file(resident_command),
        mark=_mark_line(is_for_recorder=is_for_recorder),
    )
    write_file_atomically(unit, content)
    link = unit.parent / _WANTS / UNIT
    create_folders(link.parent)
    link.unlink(missing_ok=True)
    link.symlink_to(unit)


def _write_autostart_file(resident_command: Sequence[str], *, is_for_recorder: bool) -> None:
    content = _login_template(AUTOSTART).format(command=_quote_for_login_file(resident_command))
    content += _mark_line(is_for_recorder=is_for_recorder)
    write_file_atomically(_user_config_folder() / "autostart" / AUTOSTART, content)


def _quote_for_login_file(resident_command: Sequence[str]) -> str:
    """Return the command line. In both kinds of file, a percent sign begins a placeholder."""
    return shlex.join(resident_command).replace("%", "%%")


def _mark_line(*, is_for_recorder: bool) -> str:
    if is_for_recorder:
        return ""
    return f"{NOT_FOR_RECORDER}=true\n"


def disable_unneeded_login_start(where: ProgramFolders) -> None:
    """Remove the file unless an agent has the gateway's address, a schedule exists, or
    the recorder needs it.
    """
    if not is_resident_needed(where, at_login=True):
        disable_login_start()


def is_resident_needed(where: ProgramFolders, *, at_login: bool = False) -> bool:
    """Whether the resident has work even if no wrap and no window uses it."""
    settings = ProgramSettings(where.settings_file)
    if settings[RECORDER] and (not at_login or _is_written_for_recorder()):
        return True
    # At login it starts only if something else needs it: the page waits for the window.
    if settings[PAGE_ON] and not at_login:
        return True
    if address_in_agent_settings.read_written_registrations(where.config):
        return True
    return bool(schedules.read_schedules(where.data))


def disable_login_start() -> None:
    link_to_unit = _user_config_folder() / "systemd" / "user" / _WANTS / UNIT
    link_to_unit.unlink(missing_ok=True)
    for file in _login_files():
        file.unlink(missing_ok=True)


def _is_written_for_recorder() -> bool:
    """Also true for files of earlier versions, which do not say whom they were written for."""
    for file in _login_files():
        if file.exists() and NOT_FOR_RECORDER.encode() not in file.read_bytes():
            return True
    return False


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
