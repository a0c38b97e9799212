"""Commands that try to have a file of the user's changed or removed so that no undo brings it back.

python -m tests.faults.evading [--commands 2080] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.tools.changes.evading import as_an_ordinary_user, commands

_AT_ONCE = 40


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commands", type=int, default=2080)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    numbers = list(range(len(commands())))
    random.Random(given.seed).shuffle(numbers)
    numbers = numbers[: given.commands]
    failed = 0
    for at in range(0, len(numbers), _AT_ONCE):
        base = Path(tempfile.mkdtemp(prefix="helix-evading-"))
        try:
            done = as_an_ordinary_user(base, numbers[at : at + _AT_ONCE])
        finally:
            shutil.rmtree(base, ignore_errors=True)
        failed += done.returncode
        print(f"{done.stdout}{done.stderr}", end="", flush=True)
    print(f"evading: {len(numbers)} commands; {failed} failures", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
