"""Whether there is a screen to open a window on. Qt, asked without one, ends the process with an abort."""

from __future__ import annotations

import os
import re
import socket
import sys
from collections.abc import Mapping

INSTEAD = (
    "Start it in a graphical session, use the command line (helix-desktop --help), "
    "or give it a virtual screen: xvfb-run helix-desktop."
)


def missing(environ: Mapping[str, str] = os.environ, platform: str = sys.platform) -> str:
    """Why there is none, as a clause; empty where there is one."""
    if platform in {"win32", "darwin"}:
        return ""
    wanted = environ.get("QT_QPA_PLATFORM", "").partition(":")[0]
    if wanted and wanted not in {"xcb", "wayland"}:
        return ""  # offscreen, vnc and the like need nothing
    if environ.get("WAYLAND_DISPLAY"):
        return ""
    display = environ.get("DISPLAY", "")
    if not display:
        return "there is no display here (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    return "" if _answers(display) else f"the display {display} does not answer"


def _answers(display: str) -> bool:
    """Whether an X server listens there. One on another machine is believed to."""
    local = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", display)
    if local is None:
        return True
    path = f"/tmp/.X11-unix/X{local[1]}"  # noqa: S108 - where X servers listen
    for address in (path, f"\0{path}"):  # in the file system, and in Linux's abstract names
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(address)
            except OSError:
                continue
            return True
    return False
