"""Checks whether there is a screen to open a window on. Without one, Qt would abort the process."""

import os
import re
import socket
import sys
from collections.abc import Collection, Mapping
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
    wanted = {plugin.partition(":")[0] for plugin in plugins.split(";")}
    if wanted - {"xcb", "wayland"}:
        return ""  # Qt platforms such as offscreen and vnc need no display.
    displays = _named_displays(wanted, environ)
    if not displays:
        return "there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)"
    if any(map(_is_display_listening, displays)):
        return ""
    return f"the display {displays[0]} is not responding"


def _named_displays(wanted: Collection[str], environ: Mapping[str, str]) -> list[str]:
    """Returns the displays that the environment names: Wayland's socket, X11's name."""
    displays: list[str] = []
    socket_name = environ.get("WAYLAND_DISPLAY", "")
    if socket_name and "wayland" in wanted:
        runtime_folder = environ.get("XDG_RUNTIME_DIR") or "/"
        socket = Path(runtime_folder, socket_name)
        displays.append(str(socket))
    x_display = environ.get("DISPLAY", "")
    if x_display and "xcb" in wanted:
        displays.append(x_display)
    return displays


def _is_display_listening(display: str) -> bool:
    """Whether something listens at a display of this computer. One of another is believed."""
    x_display = re.fullmatch(r"(?:unix)?:(\d+)(?:\.\d+)?", display)
    if x_display is not None:
        path = f"/tmp/.X11-unix/X{x_display[1]}"  # noqa: S108 - where X servers listen
    elif display.startswith("/"):
        path = display
    else:
        return True
    for address in (path, f"\0{path}"):  # As a file, and in Linux's abstract namespace.
        with socket.socket(socket.AF_UNIX) as asking:
            if asking.connect_ex(address) == 0:
                return True
    return False
