"""Which programs a command line would start: through assignments, wrappers, shells, xargs, find, git's own options.

    programs("timeout 5 env A=1 git -C sub push")  # Known: timeout, env, git -C sub push, git push
    programs("$TOOL push")                         # Unknown: the program to run comes from a shell expansion

`UnknownPrograms` is what the shell itself hides. What a program does inside (make, scripts, code of its own) is the sandbox's
matter. Pure: nothing is looked up on the disk.
"""

from __future__ import annotations

import sys
from functools import lru_cache

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools.command_lines.program_finder import ProgramFinder, StartedProgram, WrittenCommand
from helix_desktop.tools.command_lines.shell_words import UnreadableCommand
from helix_desktop.tools.command_lines.wrapper_programs import WRAPPER_READERS


@dataclass(frozen=True, slots=True)
class KnownPrograms:
    """`is_plain`: nothing but commands written out in full. `doubts`: where a program is told what to start in a way that is
    not read. `texts`: words in which another program may be named.
    """

    commands: tuple[WrittenCommand, ...]
    is_plain: bool
    doubts: tuple[str, ...] = ()
    texts: tuple[str, ...] = ()

    @property
    def all_programs(self) -> tuple[StartedProgram, ...]:
        """All that would be started, each before what it starts itself."""
        return tuple(
            one for command in self.commands for one in (StartedProgram(command.words), *command.started_programs)
        )


@dataclass(frozen=True, slots=True)
class UnknownPrograms:
    """What would run is hidden. `reason`: the end of a sentence."""

    reason: str


@lru_cache(maxsize=64)
def find_started_programs(line: str) -> KnownPrograms | UnknownPrograms:
    """What the line would start in a shell of this system."""
    if sys.platform == "win32":
        return UnknownPrograms("PowerShell is not read")
    try:
        return _find_known_programs(line)
    except UnreadableCommand as hidden:
        return UnknownPrograms(str(hidden))


def _find_known_programs(text: str) -> KnownPrograms:
    line = ProgramFinder(WRAPPER_READERS)
    commands, plain = line.find_commands(text)
    line.check_whole_line()
    return KnownPrograms(tuple(commands), plain, tuple(line.doubts), tuple(line.texts))
