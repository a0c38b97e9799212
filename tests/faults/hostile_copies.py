"""Hostile repositories, copied and brought back by each way: nothing of theirs runs,
and nothing outside is written.

python -m tests.faults.hostile_copies [--repositories 50] [--seed 1]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
from collections import Counter
from pathlib import Path

from helix_desktop import program_folders
from helix_desktop.secrets import SecretStorage
from helix_desktop.workbench import Workbenches
from tests.workbench.hostile_copies import WAYS, HostileCopy


async def try_one(base: Path, number: int, way: str) -> str:
    os.environ["HOME"] = str(base)
    hostile = HostileCopy(base / "hostile", number)
    hostile.create_repository()
    before = hostile.outside()
    where = program_folders.find_program_folders(base / "home")
    desk = Workbenches(where, SecretStorage(where.key_file, environ={}))
    try:
        bench = await desk.create_workspace("Hostile", hostile.project)
        became = await hostile.copy_and_bring_back(bench, way)
    finally:
        await desk.aclose()
    if problem := hostile.problems(before):
        return f"FAILED: {problem}: {number} {way}"
    return f"{way}: {became}" if hostile.has_bitten or became == "refused" else f"harmless: {way}"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--repositories", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found: Counter[str] = Counter()
    for number in range(given.repositories):
        for way in WAYS:
            with tempfile.TemporaryDirectory(
                prefix="helix-hostile-", ignore_cleanup_errors=True
            ) as base:
                found[
                    asyncio.run(try_one(Path(base).resolve(), given.seed * 1_000 + number, way))
                ] += 1
    for what, times in sorted(found.items()):
        print(f"{times:5} {what}", flush=True)
    failures = sum(times for what, times in found.items() if what.startswith("FAILED"))
    print(
        f"hostile_copies: {given.repositories} repositories by {len(WAYS)} ways; {failures} failures",
        flush=True,
    )
    return failures


if __name__ == "__main__":
    sys.exit(main())
