"""What a step costs as a conversation grows: taking in its facts, the view, and the meter, beside computing it from nothing.

python -m tests.benchmarks.view [--json]      1,000, 10,000 and 100,000 messages; medians, and the slope of the logarithms
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial

from helix_desktop.engine import budget, policy, view
from helix_desktop.engine.facts import FoldKind, Span
from tests.engine.talk import Talk

LENGTHS = (1_000, 10_000, 100_000)
STEPS = 200


def conversation(messages: int) -> Talk:
    """Turns of one question and eight steps; a handover every hundred turns, so that the view stays of one size."""
    talk, turns, covered = Talk(), 0, 0
    while talk.state.last_seq < messages:
        talk.user(f"question {turns}")
        talk.steps(8)
        talk.reply("done")
        turns += 1
        if turns % 100 == 0:
            end = talk.state.last_seq
            talk.fold(f"h{turns}", Span(1, end), tokens=1_500)
            covered = end
    if not covered:
        talk.fold("h", Span(1, talk.state.last_seq // 2), kind=FoldKind.HANDOVER, tokens=1_500)
    return talk


def measure() -> dict[str, object]:
    rules = policy.preset("layered")
    rows = {length: _row(conversation(length), rules) for length in LENGTHS}
    timed = [name for name in rows[LENGTHS[0]] if name != "blocks"]
    return {"rows": rows, "slopes": {name: _slope(rows, name) for name in timed}}


def _row(talk: Talk, rules: policy.Policy) -> dict[str, float]:
    advance, seen, meter = [], [], []
    for number in range(STEPS):
        advance.append(_microseconds(partial(talk.step, f"new{number}")))
        seen.append(_microseconds(talk.view))
        meter.append(_microseconds(partial(budget.meter, talk.state, rules)))
    return {
        "step's facts µs": statistics.median(advance),
        "view µs": statistics.median(seen),
        "meter µs": statistics.median(meter),
        "from nothing ms": _microseconds(partial(view.view, talk.facts)) / 1000,
        "blocks": len(talk.view().blocks),
    }


def _microseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return 1e6 * (time.perf_counter() - begun)


def _slope(rows: dict[int, dict[str, float]], name: str) -> float:
    """Of cost over length, both as logarithms: 0 costs the same at any length, 1 grows with it."""
    first, last = LENGTHS[0], LENGTHS[-1]
    return round(math.log(rows[last][name] / rows[first][name]) / math.log(last / first), 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    figures = measure()
    if arguments.json:
        sys.stdout.write(json.dumps(figures, indent=1, ensure_ascii=False) + "\n")
        return 0
    rows = figures["rows"]
    assert isinstance(rows, dict)
    for length, row in rows.items():
        sys.stdout.write(f"{length:>8,}  " + "  ".join(f"{name} {value:,.1f}" for name, value in row.items()) + "\n")
    sys.stdout.write(f"slopes: {figures['slopes']}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
