"""Where a bundled program starts.

A bundle has no `python`: `sys.executable` is the program. The parts that run a script
of ours in a clean interpreter (`python -I -S script`, `python -I -S -c code`), or the
program anew (`python -I -m helix_desktop`; `-P` as earlier versions wrote it into
agents' settings), get what they ask for here.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> int:
    _leave_no_traces()
    if sys.argv[1:3] == ["-I", "-S"]:
        sys.argv = sys.argv[3:]
        _run_in_place_of_python()
        return 0
    if sys.argv[1:4] in (["-I", "-m", "helix_desktop"], ["-P", "-m", "helix_desktop"]):
        del sys.argv[1:4]
    from helix_desktop.cli import main as command_line

    return command_line()


def _run_in_place_of_python() -> None:
    """What stands behind `python -I -S`: a script of ours, or code of ours as the
    keeper of commands is started with.
    """
    if sys.argv[0] != "-c":
        runpy.run_path(sys.argv[0], run_name="__main__")
        return
    code = sys.argv.pop(1)
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102 -- our own words, from processes/jail.py


def _leave_no_traces() -> None:
    """The bundle's own library path is not for the programs an agent starts.

    One of them may be this program anew: told that it is a child of the bundle, it
    would do without that path.
    """
    for name in [name for name in os.environ if name.startswith("_PYI_")]:
        del os.environ[name]
    for name in ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"):
        before = os.environ.pop(f"{name}_ORIG", None)
        if before:
            os.environ[name] = before
        else:
            os.environ.pop(name, None)


if __name__ == "__main__":
    sys.exit(main())
