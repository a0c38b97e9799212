"""Histories made by chance: every list and every number the program shows of them,
beside the second reckoner's.

python -m tests.faults.reckoner [--histories N] [--seed S] [--facts MOST]      the seeds
S*1,000,000, S*1,000,000 + 1, and so on
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter

from tests.reckoner.compare import differences
from tests.reckoner.histories import history

MILLION = 1_000_000


def trials(count: int, seed: int, most: int, found: Counter[str]) -> None:
    """So many histories, each from its own seed; `found` counts what was compared and
    what differed.
    """
    for number in range(count):
        made = history(seed * MILLION + number, most)
        found["histories"] += 1
        found.update(type(fact).__name__ for fact in made.facts)
        for difference in differences(made):
            found["DIFFER"] += 1
            print(
                f"history {seed * MILLION + number} ({len(made.facts)} facts): {str(difference)[:2_000]}",
                flush=True,
            )
            break
        if not (number + 1) % 500:
            print(f"{number + 1:,} histories, {found['DIFFER']} differ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--facts", type=int, default=45, help="the most facts of a history")
    arguments = parser.parse_args()
    begun = time.monotonic()
    found = Counter[str]()
    trials(arguments.histories, arguments.seed, arguments.facts, found)
    facts = ", ".join(
        f"{name} {number:,}" for name, number in sorted(found.items()) if name[0].isupper()
    )
    print(
        f"{facts}\n{found['histories']:,} histories, {found['DIFFER']} differ, {time.monotonic() - begun:.0f} s"
    )
    return 1 if found["DIFFER"] else 0


if __name__ == "__main__":
    sys.exit(main())
