"""Finds what goes on to the provider although a fold covers its message.

That is what an agent has loaded, such as tools that were deferred, what its system said between
the messages, and all that this program does not know: it may change how the rest is read.
"""

from collections.abc import Sequence
from typing import Any

from helix_desktop.protocols.anthropic import anthropic_gateway
from helix_desktop.protocols.gateway_message import (
    Json,
    Piece,
    PieceEdit,
    PieceKind,
    Wired,
)

_CALLS_AND_RESULTS = (PieceKind.CALL, PieceKind.RESULT)


def carried_units(protocol: Any, covered: Sequence[Wired]) -> list[Json]:
    """Return the values to send of messages that a fold covers, in their order."""
    wanted_pairs = _ids_of_wanted_pairs(covered)
    units: list[Json] = []
    for message in covered:
        pieces = message.pieces
        kept = [_is_carried(piece, wanted_pairs) for piece in pieces]
        if not any(kept):
            continue
        if _has_carried_call(pieces, kept):
            # Providers want a reply's reasoning in front of its calls.
            kept = [
                is_kept or piece.kind is PieceKind.REASONING
                for is_kept, piece in zip(kept, pieces, strict=True)
            ]
        gone = [PieceEdit(position, None) for position, is_kept in enumerate(kept) if not is_kept]
        if gone:
            units.extend(protocol.apply_edits(message, gone))
        else:
            units.extend(message.units)
    if protocol is anthropic_gateway:
        return [anthropic_gateway.without_cache_marks(unit) for unit in units]
    return units


def _ids_of_wanted_pairs(covered: Sequence[Wired]) -> set[str]:
    """Return the ids of calls that go on with their results, or the other way round."""
    called = set[str]()
    answered = set[str]()
    wanted = set[str]()
    for message in covered:
        for piece in message.pieces:
            if piece.kind is PieceKind.CALL:
                called.add(piece.id)
            elif piece.kind is PieceKind.RESULT:
                answered.add(piece.id)
            if piece.outlives_folds and piece.id:
                wanted.add(piece.id)
    # No provider accepts a call without its result.
    alone = called ^ answered
    return wanted - alone


def _is_carried(piece: Piece, wanted_pairs: set[str]) -> bool:
    if piece.id or piece.kind in _CALLS_AND_RESULTS:
        return piece.id in wanted_pairs
    return piece.outlives_folds


def _has_carried_call(pieces: Sequence[Piece], kept: Sequence[bool]) -> bool:
    for piece, is_kept in zip(pieces, kept, strict=True):
        if is_kept and piece.kind is PieceKind.CALL:
            return True
    return False
