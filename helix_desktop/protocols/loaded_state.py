"""Recognises what an agent has loaded for the rest of its work: it is state, not history.

If a fold stood for it, the model would have to know that it must load it again.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from helix_desktop.json_values import Json, list_at, text_at
from helix_desktop.protocols.gateway_message import Piece, PieceKind, unknown_piece

# Their results are the instructions of a skill: of Claude Code, opencode, and Gemini CLI.
LOADING_TOOLS = frozenset({"Skill", "skill", "activate_skill"})
# Claude Code sends a skill's instructions behind the call's result, Codex as a message.
LOADED_TEXTS = ("Base directory for this skill:", "<skill>")


def mark_loaded_state(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """Return the pieces, with those marked that load something for the rest of the work."""
    marked: list[Piece] = []
    for piece in pieces:
        if _loads_something(piece):
            marked.append(replace(piece, outlives_folds=True))
        else:
            marked.append(piece)
    return tuple(marked)


def _loads_something(piece: Piece) -> bool:
    """Whether a piece calls for a skill, or is the text of one."""
    if piece.kind is PieceKind.CALL:
        return piece.name in LOADING_TOOLS
    return piece.kind is PieceKind.TEXT and piece.text.startswith(LOADED_TEXTS)


def mark_all(pieces: Sequence[Piece], message: Mapping[str, Json]) -> tuple[Piece, ...]:
    """Return the pieces of a message that goes on as a whole, such as one of the system."""
    if not pieces:  # It only sets something.
        return (unknown_piece(message, (0,), outlives_folds=True),)
    return tuple(replace(piece, outlives_folds=True) for piece in pieces)


def has_other_parts(content: Json, known_types: Collection[str]) -> bool:
    """Whether a result has parts of other types than the known ones."""
    if isinstance(content, Mapping):
        return text_at(content, "type") not in known_types
    for part in list_at(content):
        if isinstance(part, Mapping) and text_at(part, "type") not in known_types:
            return True
    return False
