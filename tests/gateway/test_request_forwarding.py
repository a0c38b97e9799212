"""A body on its way: whole, and in parts that are neither tiny nor huge."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.gateway import request_forwarding
from helix_desktop.protocols.gateway_message import SLICE


@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 700, SLICE - 1, SLICE, 3 * SLICE + 5]), max_size=4), st.integers(0, 300))
async def test_short_pieces_go_together_and_long_ones_in_parts(sizes: list[int], short: int) -> None:
    pieces = [bytes([at % 256]) * size for at, size in enumerate([*sizes, *[9] * short])]
    parts = [part async for part in request_forwarding._slices_of_pieces(pieces)]
    whole = b"".join(pieces)
    assert b"".join(parts) == whole
    assert all(len(part) < 2 * SLICE for part in parts)
    assert len(parts) <= len(whole) // SLICE + 1
