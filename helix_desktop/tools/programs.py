"""Which programs a command line would start: through assignments, wrappers, shells, xargs, find, git's own options.

    programs("timeout 5 env A=1 git -C sub push")  # Known: timeout, env, git -C sub push, git push
    programs("$TOOL push")                         # Unknown: the program to run comes from a shell expansion

`Unknown` is what the shell itself hides. What a program does inside (make, scripts, code of its own) is the sandbox's
matter. Pure: nothing is looked up on the disk.
"""

from __future__ import annotations

import sys
from functools import lru_cache

from helix_desktop.tools.shell_words import Hidden
from helix_desktop.tools.started import Line, Started, Written
from helix_desktop.tools.started_by import OWN
from helix_desktop.values import dataclass


@dataclass(frozen=True, slots=True)
class Known:
    """`plain`: nothing but commands written out in full. `doubts`: where a program is told what to start in a way that is
    not read. `texts`: words in which another program may be named.
    """

    commands: tuple[Written, ...]
    plain: bool
    doubts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def programs(self) -> tuple[Started, ...]:
        """All that would be started, each before what it starts itself."""
        return tuple(one for command in self.commands for one in (Started(command.words), *command.starts))


@dataclass(frozen=True, slots=True)
class Unknown:
    """What would run is hidden. `reason`: the end of a sentence."""

    reason: str


@lru_cache(maxsize=64)
def programs(line: str) -> Known | Unknown:
    """What the line would start in a shell of this system."""
    if sys.platform == "win32":
        return Unknown("PowerShell is not read")
    try:
        return _known(line)
    except Hidden as hidden:
        return Unknown(str(hidden))


def _known(text: str) -> Known:
    line = Line(OWN)
    commands, plain = line.read(text)
    line.check()
    return Known(tuple(commands), plain, tuple(line.doubts), tuple(line.texts))
