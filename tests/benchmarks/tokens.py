"""How long it takes to count tokens, compared with plain tiktoken on the same texts in
the same run. Loading time, memory and accuracy on texts that other counters count
wrongly were also measured.

python -m tests.benchmarks.tokens [--quick]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import tiktoken

from helix_desktop.token_counting import TiktokenCounter
from tests.benchmarks import machine, report
from tests.benchmarks.row import Figure, Row

SOURCES = Path(__file__).resolve().parent.parent.parent / "helix_desktop"


def texts() -> dict[str, str]:
    """The program's own source, a log, and text without a blank: of two million
    characters in all.
    """
    code = "\n".join(path.read_text(encoding="utf-8") for path in sorted(SOURCES.rglob("*.py")))[
        :700_000
    ]
    log = "".join(
        f"2026-11-20T08:{n % 60:02d}:{n % 59:02d} worker[{n}] GET /api/items/{n * 7919} 200 {n % 97} ms\n"
        for n in range(12_000)
    )
    return {
        "code": code,
        "a log": log[:700_000],
        "Chinese": "上下文窗口不再是障碍，历史记录只增不减。" * 30_000,
    }


def rows(*, quick: bool) -> list[Row]:
    """Ours beside tiktoken on the same texts in turn; asked: at least three quarters of
    its speed, and the same count.
    """
    before = machine.memory()
    begun = time.perf_counter()
    counter = TiktokenCounter()
    counter.count_tokens("hello")
    loaded = 1000 * (time.perf_counter() - begun)
    grown = machine.memory() - before
    alone = _alone(counter)
    made = [
        _single("loading the vocabulary", "ms", loaded),
        _single("memory used by the vocabulary", "MB", grown),
    ]
    made += [
        _beside(name, text, counter, alone, 2 if quick else 5) for name, text in texts().items()
    ]
    made.append(
        _single(
            "counting a million spaces",
            "ms",
            _milliseconds(lambda: counter.count_tokens(" " * 1_000_000)),
        )
    )
    if not quick:
        made.append(
            _single(
                "counting 200 MB of a log",
                "ms",
                _milliseconds(lambda: counter.count_tokens("line of a log\n" * 14_000_000)),
            )
        )
    return [*made, _single("counting the same 10 KB again", "µs", _again(counter))]


def _single(name: str, unit: str, value: float) -> Row:
    return Row(name, unit, Figure(value, value, value))


def _beside(
    name: str, text: str, counter: TiktokenCounter, alone: tiktoken.Encoding, rounds: int
) -> Row:
    ours = []
    theirs = []
    for number in range(rounds):
        ours.append(_speed(f"{number} {text}", counter.count_tokens))
        theirs.append(_speed(f"{number} {text}", lambda piece: len(alone.encode_ordinary(piece))))
    exact = len(alone.encode_ordinary(text))
    counted = counter.count_tokens(text)
    off = (counted - exact) / exact
    enough = Figure.of(ours).median >= 0.75 * Figure.of(theirs).median and abs(off) < 0.001
    asked = "≥ 0.75 × tiktoken, off by < 0.1%"
    note = f"{off:+.5%} tokens"
    return Row(
        f"counting {name}",
        "MB/s",
        Figure.of(ours),
        {"tiktoken": Figure.of(theirs)},
        asked,
        enough,
        note=note,
    )


def _speed(text: str, count: Callable[[str], int]) -> float:
    """Megabytes a second of a text that was not counted before."""
    begun = time.perf_counter()
    count(text)
    return len(text.encode()) / 1e6 / (time.perf_counter() - begun)


def _alone(counter: TiktokenCounter) -> tiktoken.Encoding:
    """The same vocabulary, without what guards ours."""
    loaded = counter._encoding
    assert loaded is not None
    return tiktoken.Encoding(
        "alone",
        pat_str=loaded._pat_str,
        mergeable_ranks={
            word: loaded.encode_single_token(word) for word in loaded.token_byte_values()
        },
        special_tokens=loaded._special_tokens,
    )


def _milliseconds(work: Callable[[], object]) -> int:
    begun = time.perf_counter()
    work()
    return round(1000 * (time.perf_counter() - begun))


def _again(counter: TiktokenCounter) -> float:
    text = "a text counted before\n" * 480
    counter.count_tokens(text)
    begun = time.perf_counter()
    for _ in range(1_000):
        counter.count_tokens(text)
    return round(1000 * (time.perf_counter() - begun), 1)


def main() -> int:
    sys.stdout.write("\n".join(report.table(rows(quick="--quick" in sys.argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
