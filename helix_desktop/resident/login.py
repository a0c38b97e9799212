"""Starts the resident when its user logs in, by a file that the system's session reads. Nothing here needs more rights than theirs."""

from __future__ import annotations

import os
import plistlib
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from helix_desktop import durable
from helix_desktop.errors import Refused

UNIT = "helix-desktop-resident.service"
AUTOSTART = "helix-desktop-resident.desktop"
AGENT = "helix-desktop.resident.plist"
_WANTS = "default.target.wants"


def check() -> None:
    """Refused where the program cannot be started at login, so that nobody would hold the gateway's address."""
    if sys.platform == "win32":
        raise Refused(
            "On Windows the gateway's address cannot be held while you are logged out, so it is not written into settings.",
            remedy="Start the agent with helix-desktop wrap instead.",
        )


def start_at_login(command: Sequence[str], home: Path | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """From the next login on."""
    check()
    line = [*command, "resident", "--run"]
    home = home or Path.home()
    if sys.platform == "darwin":
        content = plistlib.dumps({"Label": AGENT.removesuffix(".plist"), "ProgramArguments": line, "RunAtLoad": True})
        durable.write(home / "Library" / "LaunchAgents" / AGENT, content)
        return
    config = _config(home, environ)
    quoted = shlex.join(line).replace("%", "%%")
    if Path("/run/systemd/system").is_dir():
        unit = config / "systemd" / "user" / UNIT
        durable.write(unit, _UNIT.format(command=quoted))
        wanted = unit.parent / _WANTS / UNIT
        wanted.parent.mkdir(parents=True, exist_ok=True)
        wanted.unlink(missing_ok=True)
        wanted.symlink_to(unit)
    else:
        durable.write(config / "autostart" / AUTOSTART, _DESKTOP.format(command=quoted))


def stop_at_login(home: Path | None = None, environ: Mapping[str, str] = os.environ) -> None:
    """No longer."""
    home = home or Path.home()
    units = _config(home, environ) / "systemd" / "user"
    places = [units / _WANTS / UNIT, units / UNIT, _config(home, environ) / "autostart" / AUTOSTART]
    for file in (*places, home / "Library" / "LaunchAgents" / AGENT):
        file.unlink(missing_ok=True)


def _config(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


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
