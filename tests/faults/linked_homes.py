"""Homes whose entries are links of every kind: no command prints what is in them, and
no weaker sandbox takes over.

python -m tests.faults.linked_homes [--homes 100] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.tools.linked_homes import linked_homes, what_got_through


async def _tried(count: int, seed: int) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        (Path(folder) / "scratch").mkdir()
        for layout in linked_homes(Path(folder), count, seed):
            os.environ["HOME"] = str(layout.home)
            if through := await what_got_through(layout, Path(folder) / "scratch"):
                failed += 1
                print(f"FAILED: {layout}: {through}", flush=True)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--homes", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    failed = asyncio.run(_tried(given.homes, given.seed))
    print(f"linked_homes: {given.homes} homes; {failed} failures", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
