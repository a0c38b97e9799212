"""Where a bundled program starts.

A bundle has no `python`: `sys.executable` is the program. The parts that run a script of ours in a clean interpreter
(`python -I -S script`), or the program anew (`python -P -m helix_desktop`), get what they ask for here.
"""

from __future__ import annotations

import os
import runpy
import sys


def main() -> int:
    _leave_no_traces()
    if sys.argv[1:3] == ["-I", "-S"]:
        sys.argv = sys.argv[3:]
        runpy.run_path(sys.argv[0], run_name="__main__")
        return 0
    if sys.argv[1:4] == ["-P", "-m", "helix_desktop"]:
        del sys.argv[1:4]
    from helix_desktop.cli import main as command_line

    return command_line()


def _leave_no_traces() -> None:
    """The bundle's own library path is not for the programs an agent starts.

    One of them may be this program anew: told that it is a child of the bundle, it would do without that path.
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
