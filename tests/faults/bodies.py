"""Hostile bodies in number: none may take more memory or time than its limits, and an
honest one comes out as it went in.

python -m tests.faults.bodies [--bodies 1000] [--seed 1]
"""

from __future__ import annotations

import argparse
import resource
import time

from helix_desktop.decompression import DecodedTooLarge, UnreadableCoding, decompress_body
from tests.hostile_bodies import hostile_body

LIMIT = 8 << 20
MOST_KILOBYTES = 96 << 10
MOST_SECONDS = 3.0


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bodies", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    failures = 0
    slowest = 0.0
    grown = 0
    ended = {"decoded": 0, "too large": 0, "unreadable": 0}
    for seed in range(chosen.seed, chosen.seed + chosen.bodies):
        body = hostile_body(seed)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began = time.process_time()
        how = "decoded"
        try:
            decoded = decompress_body(body.content, body.encoding, LIMIT)
            failures += len(decoded) > LIMIT or (body.plain is not None and decoded != body.plain)
        except DecodedTooLarge:
            how = "too large"
        except UnreadableCoding:
            how = "unreadable"
        seconds = time.process_time() - began
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        ended[how] += 1
        slowest = max(slowest, seconds)
        grown = max(grown, more)
        if seconds > MOST_SECONDS or more > MOST_KILOBYTES:
            failures += 1
            print(f"seed {seed}: {seconds:.2f} s, {more:,} KB more, {body.encoding}")
    print(
        f"{chosen.bodies} bodies, {ended}: {failures} failures; slowest {slowest:.2f} s, most memory {grown:,} KB more"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
