"""Every setting of git that names a program or a path, planted in every way: nothing
runs, and no file outside is touched.

python -m tests.faults.git_places [--places 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
from pathlib import Path

from tests.tools.git_places import git_places, what_got_through


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--places", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    names = [place.name for place in git_places("true", Path("/"))]
    random.Random(given.seed).shuffle(names)
    failed = 0
    for name in names[: given.places]:
        base = Path(tempfile.mkdtemp(prefix="helix-git-"))
        try:
            through = what_got_through(base, name)
        finally:
            shutil.rmtree(base, ignore_errors=True)
        if through:
            failed += 1
            print(f"FAILED: {name}: {through}", flush=True)
    print(
        f"git_places: {min(len(names), given.places)} repositories; {failed} failures", flush=True
    )
    return failed


if __name__ == "__main__":
    sys.exit(main())
