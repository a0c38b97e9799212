"""Checks whether there is a screen to open a window on. Without one, Qt would abort the process."""

import os
import re
import socket
import sys
from collections.abc import Mapping
from pathlib import Path

INSTEAD = (
    "Start it in a graphical session, use the command line (helix-desktop --help), "
    "or use a virtual display: xvfb-run helix-desktop."
)


def describe_missing_screen(
    environ: Mapping[str, str] = os.environ, platform: str = sys.platform
) -> str:
    """Returns why no window can be opened, as a clause for a sentence. Empty: there is a screen."""
    if platform in {"win32", "darwin"}:
        return ""
    plugins = environ.get("QT_QPA_PLATFORM") or "wayland;xcb"
    wanted = {each.partition(":")[0] for each in plugins.split(";")}
    if wanted - {"xcb", "wayland"}:
        return ""  # Qt platforms such as offscreen and vnc need no display.
    name = environ.get("WAYLAND_DISPLAY", "")
    socket_path = str(Path(environ.get("XDG_RUNTIME_DIR") or "/", name)) if name else ""
    known = {"wayland": socket_path, "xcb": environ.get("DISPLAY", "")}
    places = [place for kind, place in known.items() if kind in wanted and place]
    if not places:
        return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    return (
        "" if any(map(_x_server_listens, places)) else f"the display {places[0]} is not responding"
    )


def _x_server_listens(display: str) -> bool:
    local = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", display)
    if local is None and not display.startswith("/"):
        return True
    path = f"/tmp/.X11-unix/X{local[1]}" if local else display  # noqa: S108 - where X servers listen
    for address in (path, f"\0{path}"):  # As a file, and in Linux's abstract namespace.
        with socket.socket(socket.AF_UNIX) as asking:
            if asking.connect_ex(address) == 0:
                return True
    return False
