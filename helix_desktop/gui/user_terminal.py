"""Opens the user's own terminal in a folder. It goes on when Helix Desktop is closed."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from helix_desktop.errors import NotFound
from helix_desktop.gui.translation import tr
from helix_desktop.processes import starter
from helix_desktop.processes.folders_of_agents import environment_without_agents

# In this order. The first is what Debian and Ubuntu call the terminal that the user chose.
LINUX_TERMINALS = (
    "x-terminal-emulator",
    "gnome-terminal",
    "ptyxis",
    "konsole",
    "xfce4-terminal",
    "kitty",
    "alacritty",
    "foot",
    "wezterm",
    "xterm",
)


def find_terminal_command(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Returns what starts a terminal in a folder and ends at once, or raises NotFound."""
    if sys.platform == "darwin":
        return ["open", "-a", "Terminal", str(folder)]
    if sys.platform == "win32":
        return ["cmd.exe", "/c", "start", "cmd.exe"]
    names = list(LINUX_TERMINALS)
    if environment.get("TERMINAL"):
        names.insert(0, environment["TERMINAL"])
    for name in names:
        terminal = starter.find_own_program(name, environment)
        if terminal:
            # Otherwise the terminal would be closed together with this program.
            return ["setsid", "--fork", terminal]
    raise NotFound(
        tr("No terminal was found."),
        remedy=tr("Install one, or name yours in the environment variable TERMINAL."),
    )


async def open_user_terminal(folder: Path) -> None:
    command = find_terminal_command(folder, os.environ)
    environment = environment_without_agents(os.environ)
    launch = starter.ProcessLaunch(starter.CommandAuthor.USER, command, folder, environment)
    process = await starter.start_process(
        launch, stdin=starter.DEVNULL, stdout=starter.DEVNULL, stderr=starter.DEVNULL
    )
    await process.wait()
