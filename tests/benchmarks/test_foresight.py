"""The least bill of a policy that knew what will be used: the best moments, and never
above what policies cost.
"""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helix_desktop.engine.fold_economics import RelativePrices
from helix_desktop.replay.session_player import RememberingCounter
from tests.benchmarks import foresight
from tests.benchmarks.foresight import Piece
from tests.benchmarks.peer_policies import PEERS, play
from tests.replay.sessions import Words, long_session

PRICES = RelativePrices(0.1, 1.25, 5.0)
STEPS = 6


def priced(pieces: list[Piece], moments: tuple[int, ...]) -> float:
    """Rent and rewriting where what is needed no more goes at these moments, reckoned
    step by step.
    """
    cost = 0.0
    standing: list[Piece] = []
    for now in range(STEPS):
        if now in moments:
            needed = [piece for piece in standing if piece.ends >= now]
            # What stands before the first piece that goes is in the cache.
            unchanged = 0
            while unchanged < len(needed) and needed[unchanged] is standing[unchanged]:
                unchanged += 1
            rewritten = sum(piece.tokens for piece in needed[unchanged:])
            cost += (PRICES.write - PRICES.read) * rewritten
            standing = needed
        cost += PRICES.read * sum(piece.tokens for piece in standing)
        standing += [piece for piece in pieces if piece.begins == now]
    return cost


@st.composite
def stands(draw: st.DrawFn) -> Piece:
    begins = draw(st.integers(0, STEPS - 1))
    return Piece(draw(st.integers(1, 5_000)), begins, draw(st.integers(begins, STEPS - 1)))


@given(st.lists(stands(), min_size=1, max_size=8))
def test_no_choice_of_moments_is_cheaper(found: list[Piece]) -> None:
    pieces = sorted(found, key=lambda one: one.begins)
    every = [moments for count in range(STEPS) for moments in combinations(range(1, STEPS), count)]
    least = min(priced(pieces, moments) for moments in every)
    assert sum(foresight.scheduled(pieces, STEPS, PRICES)) == pytest.approx(least)


@pytest.mark.parametrize("seed", range(3))
def test_no_policy_of_others_costs_less(seed: int) -> None:
    recording = long_session(seed, 25)
    counting = RememberingCounter(Words())
    least = sum(foresight.bound(recording, PRICES, counting).bill.values())
    for name, peer in PEERS.items():
        assert (
            play(recording, peer(), 128_000, PRICES, counting.count_tokens).billed_with_recalls
            >= least
        ), name
