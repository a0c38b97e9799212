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
    ProtocolMessage,
)

_CALLS_AND_RESULTS = (PieceKind.CALL, PieceKind.RESULT)


def carried_units(protocol: Any, covered: Sequence[ProtocolMessage]) -> list[Json]:
    """Return what still has to be sent of messages in whose place a fold's text stands.

    That is nothing of most messages. Of others it is one of their pieces, such as a tool that the
    agent has loaded in them. A call goes on only together with its result.
    """
    wanted_pairs = _ids_of_wanted_pairs(covered)
    units: list[Json] = []
    for message in covered:
        carried_positions = _positions_of_carried_pieces(message.pieces, wanted_pairs)
        if not carried_positions:
            continue
        removals: list[PieceEdit] = []
        for position in range(len(message.pieces)):
            if position not in carried_positions:
                removals.append(PieceEdit(position, text=None))
        if removals:
            units.extend(protocol.apply_edits(message, removals))
        else:
            units.extend(message.units)
    if protocol is anthropic_gateway:
        return [anthropic_gateway.without_all_cache_marks(unit) for unit in units]
    return units


def _positions_of_carried_pieces(pieces: Sequence[Piece], wanted_pairs: set[str]) -> set[int]:
    """Return which pieces of a message go on, though a fold covers it."""
    carried_positions = set[int]()
    reasoning_positions = set[int]()
    has_carried_call = False
    for position, piece in enumerate(pieces):
        if piece.kind is PieceKind.REASONING:
            reasoning_positions.add(position)
        if _is_carried(piece, wanted_pairs):
            carried_positions.add(position)
            if piece.kind is PieceKind.CALL:
                has_carried_call = True
    if has_carried_call:  # Providers want a reply's reasoning in front of its calls.
        return carried_positions | reasoning_positions
    return carried_positions


def _ids_of_wanted_pairs(covered: Sequence[ProtocolMessage]) -> set[str]:
    """Return the ids of calls that go on with their results, or the other way round."""
    called_ids = set[str]()
    answered_ids = set[str]()
    wanted_ids = set[str]()
    for message in covered:
        for piece in message.pieces:
            if piece.kind is PieceKind.CALL:
                called_ids.add(piece.id)
            elif piece.kind is PieceKind.RESULT:
                answered_ids.add(piece.id)
            if piece.outlives_folds and piece.id:
                wanted_ids.add(piece.id)
    # No provider accepts a call without its result, or a result without its call.
    ids_without_partner = called_ids.symmetric_difference(answered_ids)
    return wanted_ids - ids_without_partner


def _is_carried(piece: Piece, wanted_pairs: set[str]) -> bool:
    if piece.id or piece.kind in _CALLS_AND_RESULTS:
        return piece.id in wanted_pairs
    return piece.outlives_folds
