"""Formats of histories that extensions add to those that the program knows itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.recorded_session import RecordedSession

BEGINNING = 64 << 10  # So many bytes of a file are shown to a format that may recognize it.
# Kinds of the program's own formats that are no program's name.
_OWN_KINDS = frozenset({"anthropic", "openai", "trajectory"})


@dataclass(frozen=True, slots=True)
class AddedFormat:
    """A format by its kind. `read` returns all sessions of a file, or raises a HelixError."""

    kind: str
    program: str
    recognizes: Callable[[Path, bytes], bool]
    read: Callable[[Path], Sequence[RecordedSession]]


_added: dict[str, AddedFormat] = {}


def add_format(added: AddedFormat) -> None:
    """Add a format. Raises InvalidInput for a kind that the program or another extension has."""
    if not added.kind or added.kind in NAMES or added.kind in _OWN_KINDS:
        raise InvalidInput(f"The kind of history {added.kind!r} belongs to Helix Desktop.")
    if added.kind in _added:
        raise InvalidInput(f"The kind of history {added.kind!r} belongs to another extension.")
    _added[added.kind] = added


def remove_format(kind: str) -> None:
    _added.pop(kind, None)


def find_added_format(path: Path, kind: str = "") -> AddedFormat | None:
    """Return the added format of a file: by its kind if that is known, else by its beginning."""
    if kind or not _added:
        return _added.get(kind)
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    for added in _added.values():
        try:
            if added.recognizes(path, beginning):
                return added
        except Exception:  # noqa: BLE001, S112 - a format that fails does not recognize the file
            continue
    return None
