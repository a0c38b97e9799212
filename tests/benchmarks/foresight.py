"""What the effective bill would be at the least if a policy knew what every later reply uses.

    python -m tests.benchmarks.foresight --traces DIR [--window N]

Each part of a session stands from when it comes to the last reply that uses something
of it (an identifier, a path, a line, as in `replay/simulated_recalls.py`; of several
parts that hold it, the newest). Where a recall costs less than carrying a part until it
is used again, it goes and a passage of it comes back. Parts go at the moments that make
the bill the smallest, found by trying all of them; going leaves no marker and no
summary behind and costs nothing but writing again what stands after it. Outputs over
4,000 tokens come as excerpts, and what is used of them is recalled, as in every policy
compared. A real policy pays for markers and summaries, does not know what will be used,
and keeps some text for nothing: no rule of this kind gets below this.

The first four columns are what no policy avoids: the head, each text once, the output.
`carried_token_steps` is the rent of what is used again, `rewritten` what its going
costs, `recalls` what comes back.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path

from helix_desktop import token_counting
from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.histories.recorded_session import RecordedSession
from helix_desktop.replay.prompt_cache_billing import (
    HEAD_TOKENS,
    BillingLedger,
    bill_without_folds,
    count_output_tokens,
)
from helix_desktop.replay.session_player import RememberingCounter
from helix_desktop.replay.simulated_recalls import MissedReferences
from tests.benchmarks import policies
from tests.benchmarks.peer_policies import CALL, EXCERPT, Part, held_back, parts_of
from tests.benchmarks.public_names import read_public_names

PASSAGE = 500  # tokens a recall brings at the most


@dataclass(frozen=True, slots=True)
class Piece:
    """Tokens that stand from the reply `begins` to the reply `ends`, both included.
    `fresh`: it comes from the session.
    """

    tokens: int
    begins: int
    ends: int
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class Bound:
    """The parts of one session's bill, in input tokens, and what sending everything comes to."""

    name: str
    bill: Mapping[str, float]
    plain: float

    @property
    def share(self) -> float:
        return sum(self.bill.values()) / self.plain


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--window", type=int, default=128_000)
    arguments = parser.parse_args(argv)
    counting = RememberingCounter(token_counting.TiktokenCounter())
    prices = RelativePrices(0.1, 1.25, 5.0)
    recordings = policies.sessions(arguments.traces, 40_000, counting.count_tokens)
    bounds = [bound(each, prices, counting) for each in recordings]
    for one in bounds:
        print(line(Path(one.name).name[-34:], one))
    print(line("all", whole(bounds)))
    return 0


def line(name: str, one: Bound) -> str:
    parts = "  ".join(f"{kind} {cost / one.plain:.3f}" for kind, cost in one.bill.items())
    return f"{name:34}  {one.share:.3f}  {parts}"


def whole(bounds: Sequence[Bound]) -> Bound:
    bill = {kind: sum(one.bill[kind] for one in bounds) for kind in bounds[0].bill}
    return Bound("all", bill, sum(one.plain for one in bounds))


def bound(
    recording: RecordedSession, prices: RelativePrices, counting: RememberingCounter
) -> Bound:
    """The least bill of one session."""
    replies = [message for message in recording.messages if message.role == "assistant"]
    pieces, head = needed(recording, prices, counting)
    rent, rewritten = scheduled(pieces, len(replies), prices)
    again = [piece for piece in pieces if not piece.fresh]
    asking = prices.output * CALL + prices.read * head
    rounds = len({piece.begins for piece in again})
    bill = {
        "head": prices.write * head + prices.read * head * (len(replies) - 1),
        "new": prices.write * sum(piece.tokens for piece in pieces if piece.fresh),
        "output": prices.output
        * sum(count_output_tokens(reply, counting.count_tokens) for reply in replies),
        "carried": rent,
        "rewritten": rewritten,
        "recalls": prices.write * sum(piece.tokens for piece in again) + asking * rounds,
    }
    return Bound(
        recording.name,
        bill,
        bill_without_folds(
            recording.messages, BillingLedger(prices, 0), counting.count_tokens
        ).billed,
    )


def needed(
    recording: RecordedSession, prices: RelativePrices, counting: RememberingCounter
) -> tuple[list[Piece], int]:
    """What must stand and from when to when, in the order in which it comes, and the
    tokens of the head.
    """
    misses = MissedReferences(counting, read_public_names())
    newest: dict[str, int] = {}  # the part that holds it
    parts: list[Part] = []
    used: list[set[int]] = []  # at which replies something of a part is used
    waiting: list[Part] = []
    head = HEAD_TOKENS
    step = 0
    for message in recording.messages:
        if message.role == "assistant":
            _comes(waiting, parts, used, newest)
            waiting = []
            for one in misses.session_references_used_by(message) & newest.keys():
                used[newest[one]].add(step)
            step += 1
        made = list(parts_of(message, step, 0, counting.count_tokens, misses))
        if message.role == "system":
            head += sum(part.tokens for part in made)
        else:
            waiting.extend(made)
        misses.add_earlier_message(message)
    pieces = [
        piece
        for part, at in zip(parts, used, strict=True)
        for piece in _stands(part, sorted(at), prices, head)
    ]
    return sorted(pieces, key=lambda piece: piece.begins), head


def _comes(
    waiting: list[Part], parts: list[Part], used: list[set[int]], newest: dict[str, int]
) -> None:
    large = held_back(waiting)
    for part in waiting:
        newest.update(dict.fromkeys(part.uses, len(parts)))
        parts.append(replace(part, form="excerpt") if part in large else part)
        used.append(set())


def _stands(part: Part, used: Sequence[int], prices: RelativePrices, head: int) -> list[Piece]:
    """A part from its coming to its last use, in pieces: between two uses it goes where
    bringing it back costs less.
    """
    begins = ends = part.step
    size = part.tokens
    passage = min(part.tokens, PASSAGE)
    if part.form == "excerpt":
        size = EXCERPT
    found: list[Piece] = []
    fresh = True
    for at in used:
        back = prices.write * passage + prices.output * CALL + prices.read * head
        if (part.form == "excerpt" and fresh) or prices.read * size * (at - ends) > back:
            found.append(Piece(size, begins, ends, fresh))
            size = passage
            begins = at
            fresh = False
        ends = at
    return [*found, Piece(size, begins, ends, fresh)]


def scheduled(pieces: Sequence[Piece], steps: int, prices: RelativePrices) -> tuple[float, float]:
    """Rent and rewriting with the best moments. A moment is just before a reply: there
    all goes that is needed no more.
    """
    came = list(
        accumulate(
            (sum(one.tokens for one in pieces if one.begins == at) for at in range(steps)),
            initial=0,
        )
    )
    rents = list(accumulate(came, initial=0))
    alive = [
        sum(one.tokens for one in pieces if one.begins < at <= one.ends) for at in range(steps)
    ]
    least = [(0.0, 0.0, 0.0)]  # by moment: the sum, of it rent, of it rewriting
    for now in range(1, steps + 1):
        behind = _behind(pieces, now) if now < steps else [0] * now
        ways = []
        for before, (cost, rent, again) in enumerate(least):
            more = prices.read * (
                (now - before) * (alive[before] - came[before]) + rents[now] - rents[before]
            )
            write = (prices.write - prices.read) * behind[before]
            ways.append((cost + more + write, rent + more, again + write))
        least.append(min(ways))
    return least[-1][1], least[-1][2]


def _behind(pieces: Sequence[Piece], now: int) -> list[int]:
    """By the moment before: the tokens that stand behind the first piece that goes now,
    and stay.
    """
    first = [len(pieces)] * now  # of those whose last reply is this one
    stays = [one.tokens if one.begins < now <= one.ends else 0 for one in pieces]
    after = [*accumulate(reversed(stays), initial=0)][::-1]
    for number, one in enumerate(pieces):
        if one.ends < now:
            first[one.ends] = min(first[one.ends], number)
    return [after[number] for number in [*accumulate(reversed(first), min)][::-1]]


if __name__ == "__main__":
    sys.exit(main())
