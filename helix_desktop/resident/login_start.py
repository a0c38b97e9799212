"""Starts the resident at login, by a file that the user's session reads. Needs no special rights."""

import os
import plistlib
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.errors import ActionRefused

UNIT = "helix-desktop-resident.service"
AUTOSTART = "helix-desktop-resident.desktop"
LAUNCH_AGENT = "helix-desktop.resident.plist"
_WANTS = "default.target.wants"


def check_login_start() -> None:
    """Raise ActionRefused if the program cannot start at login: nobody would hold the gateway's address."""
    if sys.platform == "win32":
        raise ActionRefused(
            "On Windows, the gateway's address cannot be reserved while you are logged out, so the address is not written to the agent's settings.",
            remedy="Start the agent with helix-desktop wrap instead.",
        )


def enable_login_start(command: Sequence[str]) -> None:
    check_login_start()
    line = [*command, "resident", "--run"]
    if sys.platform == "darwin":
        content = plistlib.dumps(
            {"Label": LAUNCH_AGENT.removesuffix(".plist"), "ProgramArguments": line, "RunAtLoad": True}
        )
        write_file_atomically(_macos_launch_agent_file(), content)
        return
    config = _user_config_folder()
    quoted = shlex.join(line).replace("%", "%%")
    if Path("/run/systemd/system").is_dir():
        unit = config / "systemd" / "user" / UNIT
        write_file_atomically(unit, _UNIT.format(command=quoted))
        wanted = unit.parent / _WANTS / UNIT
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.unlink(missing_ok=True)
        wanted.symlink_to(unit)
    else:
        write_file_atomically(config / "autostart" / AUTOSTART, _DESKTOP.format(command=quoted))


def disable_login_start() -> None:
    config = _user_config_folder()
    units = config / "systemd" / "user"
    for file in (units / _WANTS / UNIT, units / UNIT, config / "autostart" / AUTOSTART, _macos_launch_agent_file()):
        file.unlink(missing_ok=True)


def _user_config_folder() -> Path:
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def _macos_launch_agent_file() -> Path:
    return Path.home() / "Library" / "LaunchAgents" / LAUNCH_AGENT


_UNIT = """[Unit]
Description=Helix Desktop: the gateway's address for connected agents

[Service]
ExecStart={command}
KillMode=mixed

[Install]
WantedBy=default.target
"""
_DESKTOP = """[Desktop Entry]
Type=Application
Name=Helix Desktop (gateway)
Exec={command}
NoDisplay=true
"""
