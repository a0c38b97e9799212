"""Counting tokens, in one run beside tiktoken alone on the same texts; loading, memory, and texts that break others.

python -m tests.benchmarks.tokens [--rounds 5] [--json]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tiktoken

from helix_desktop.tokens import Counter

SOURCES = Path(__file__).resolve().parent.parent.parent / "helix_desktop"


def texts() -> dict[str, str]:
    """The program's own source, a log, and text without a blank: of two million characters in all."""
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py")))[:700_000]
    log = "".join(
        f"2026-11-20T08:{n % 60:02d}:{n % 59:02d} worker[{n}] GET /api/items/{n * 7919} 200 {n % 97} ms\n"
        for n in range(12_000)
    )
    return {"code": code, "log": log[:700_000], "chinese": "上下文窗口不再是障碍，历史记录只增不减。" * 30_000}


def measure(rounds: int) -> dict[str, object]:
    before = _memory()
    begun = time.perf_counter()
    counter = Counter()
    counter.count("hello")
    loaded = time.perf_counter() - begun
    grown = _memory() - before
    alone = _alone(counter)
    figures: dict[str, object] = {"load ms": round(1000 * loaded), "memory MB": round(grown)}
    for name, text in texts().items():
        ours, theirs = _speeds(rounds, text, counter.count, lambda piece: len(alone.encode_ordinary(piece)))
        exact = len(alone.encode_ordinary(text))
        counted = counter.count(text)
        figures[name] = {
            "characters": len(text), "ours MB/s": ours, "tiktoken MB/s": theirs, "difference": f"{(counted - exact) / exact:+.5%}",
        }  # fmt: skip
    figures["a million blanks ms"] = _milliseconds(lambda: counter.count(" " * 1_000_000))
    figures["200 MB ms"] = _milliseconds(lambda: counter.count("line of a log\n" * 14_000_000))
    figures["counted before, 10 KB, µs"] = _again(counter)
    return figures


def _alone(counter: Counter) -> tiktoken.Encoding:
    """The same vocabulary, without what guards ours."""
    loaded = counter._encoding
    assert loaded is not None
    return tiktoken.Encoding(
        "alone",
        pat_str=loaded._pat_str,
        mergeable_ranks=loaded._mergeable_ranks,
        special_tokens=loaded._special_tokens,
    )


def _speeds(rounds: int, text: str, *ways: Callable[[str], int]) -> list[float]:
    """Megabytes a second of each way, medians; in turns, and each time a different text: nothing is remembered."""
    taken: list[list[float]] = [[] for _ in ways]
    for number in range(rounds):
        for way, count in enumerate(ways):
            fresh = f"{number} {way} {text}"
            begun = time.perf_counter()
            count(fresh)
            taken[way].append(len(fresh.encode()) / 1e6 / (time.perf_counter() - begun))
    return [round(statistics.median(speeds), 1) for speeds in taken]


def _milliseconds(work: Callable[[], object]) -> int:
    begun = time.perf_counter()
    work()
    return round(1000 * (time.perf_counter() - begun))


def _again(counter: Counter) -> float:
    text = "a text counted before\n" * 480
    counter.count(text)
    begun = time.perf_counter()
    for _ in range(1_000):
        counter.count(text)
    return round(1000 * (time.perf_counter() - begun), 1)


def _memory() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure(arguments.rounds)
    if arguments.json:
        sys.stdout.write(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
    else:
        sys.stdout.writelines(f"{name}: {figure}\n" for name, figure in figures.items())
    return 0


if __name__ == "__main__":
    sys.exit(main())
