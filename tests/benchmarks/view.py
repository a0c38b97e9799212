"""How much processor time one more step takes as a conversation grows: recording the
step, computing what is sent to the model, updating the meter, and making the folds that
are due.

python -m tests.benchmarks.view [--quick]      1,000, 10,000 and 100,000 messages,
beside computing the view from scratch
"""

from __future__ import annotations

import gc
import random
import sys
import time
from collections.abc import Callable
from functools import partial

from helix_desktop.engine import context_policy, context_usage, request_building, view
from helix_desktop.engine.facts import FoldKind, Span
from helix_desktop.engine.strategies import handover, markers, observation, reflection
from helix_desktop.engine.strategies.fold_strategy import FoldSituation
from tests.benchmarks import report
from tests.benchmarks.row import Figure, Row
from tests.engine.talk import Talk

LENGTHS = (1_000, 10_000, 100_000)
STEPS = 200
MOMENTS = 100


def conversation(messages: int) -> Talk:
    """Turns of one question and eight steps; a handover every hundred turns, so that
    the view stays of one size.
    """
    talk = Talk()
    turns = 0
    covered = 0
    while talk.state.seq < messages:
        talk.user(f"question {turns}")
        talk.steps(8)
        talk.reply("done")
        turns += 1
        if turns % 100 == 0:
            end = talk.state.seq
            talk.fold(f"h{turns}", Span(1, end), tokens=1_500)
            covered = end
    if not covered:
        talk.fold("h", Span(1, talk.state.seq // 2), kind=FoldKind.HANDOVER, tokens=1_500)
    return talk


def rows(*, quick: bool) -> list[Row]:
    """Every part of a step, at every length; asked: its 99th percentile under 5 ms, and
    no more than twice that at 100,000.
    """
    made: list[Row] = []
    lengths = LENGTHS[:2] if quick else LENGTHS
    for length in lengths:
        made += _rows_at(length)
    return made


def _rows_at(length: int) -> list[Row]:
    talk = conversation(length)
    gc.collect()
    taken: dict[str, list[float]] = {
        name: []
        for name in (
            "recording the facts of a step",
            "computing the view",
            "updating the meter",
            "running the strategies that are due",
            "",
        )
    }
    for number in range(STEPS):
        parts = {
            "recording the facts of a step": _milliseconds(partial(talk.step, f"new{number}")),
            "computing the view": _milliseconds(talk.view),
            "updating the meter": _milliseconds(
                lambda: context_usage.measure_window(talk.state, RULES)
            ),
            "running the strategies that are due": _milliseconds(lambda: due(talk)),
        }
        parts[""] = sum(parts.values())
        for name, value in parts.items():
            taken[name].append(value)
    nothing = Figure.of(
        [_milliseconds(lambda: view.build_state(talk.facts).get_view()) for _ in range(3)]
    )
    whole = taken.pop("")
    p99 = sorted(whole)[int(0.99 * (len(whole) - 1))]
    limit = 5.0 if length <= 10_000 else 10.0
    asked = f"p99 < {limit:g} ms" if length >= 10_000 else ""
    step = Row(
        f"a step after {length:,} messages", "ms of processor time", Figure.of(whole), {"from scratch": nothing}, asked,
        p99 < limit if asked else None, series="a step", at=length, note=f"p99 {p99:.2f} ms",
    )  # fmt: skip
    parts_ = [
        Row(f"{name}, after {length:,} messages", "ms", Figure.of(each), series=name, at=length)
        for name, each in taken.items()
    ]
    return [step, *parts_, _past(talk, length)]


def _past(talk: Talk, length: int) -> Row:
    """Any earlier moment: its view, and the request it was."""
    # The window collects on its own thread when nothing waits: see garbage_collection.
    gc.freeze()
    chosen = random.Random(length)
    seqs = [chosen.randrange(1, talk.state.seq) for _ in range(MOMENTS)]
    taken = [_milliseconds(partial(_request_at, talk, seq)) for seq in seqs]
    highest = max(taken)
    return Row(
        f"the request of any earlier step, after {length:,} messages", "ms of processor time", Figure.of(taken), {},
        "all < 50 ms", highest < 50, series="an earlier step", at=length, note=f"at most {highest:.1f} ms",
    )  # fmt: skip


def _request_at(talk: Talk, seq: int) -> object:
    return request_building.build_request(talk.state.past_moment(seq).get_view(), {})


RULES = context_policy.preset_policy("layered")


def due(talk: Talk) -> object:
    """Every strategy asked once, as the program asks before a step."""
    now = FoldSituation(
        talk.state,
        RULES,
        context_usage.measure_window(talk.state, RULES),
        talk.state.time_of_moment,
    )
    return [
        markers.find_due_clearing(now),
        handover.find_due_handover(now),
        observation.find_due_observation(now),
        reflection.find_due_reflection(now),
    ]


def _milliseconds(work: Callable[[], object]) -> float:
    """Of this thread: it computes and waits for nothing, and what other programs took
    meanwhile is none of its cost.
    """
    begun = time.thread_time()
    work()
    return 1e3 * (time.thread_time() - begun)


def main() -> int:
    made = rows(quick="--quick" in sys.argv)
    sys.stdout.write("\n".join([*report.table(made), *report.fit_lines(made)]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
