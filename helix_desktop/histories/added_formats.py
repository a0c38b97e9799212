"""Formats of histories that extensions add to those that the program knows itself."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from helix_desktop.errors import InvalidInput
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES

# The window knows the names of programs from its start, and reads no files before it shows any.
if TYPE_CHECKING:
    from helix_desktop.histories.recorded_session import RecordedSession

BEGINNING = 64 << 10  # So many bytes of a file are shown to a format that may recognize it.
# The kinds of the program's own formats. The last ones are no program's name.
OWN_KINDS = (*NAMES, "trajectory", "anthropic", "openai")


@dataclass(frozen=True, slots=True)
class AddedReading:
    """What a format read of a file. `left_out`: a sentence for each part that it could not read."""

    sessions: "tuple[RecordedSession, ...]" = ()
    left_out: tuple[str, ...] = ()
    unreadable_because: str = ""


@dataclass(frozen=True, slots=True)
class AddedFormat:
    """A format by its kind. `recognizes` and `read` raise InvalidInput if they fail.

    `endings`: how the names of its files end. `folders`: where its program keeps them, "~" being
    the user's home.
    """

    kind: str
    program: str
    recognizes: Callable[[Path, bytes], bool]
    read: Callable[[Path], AddedReading]
    endings: Sequence[str] = ()
    folders: Sequence[str] = ()


_added: dict[str, AddedFormat] = {}


def add_format(added: AddedFormat) -> None:
    """Add a format. Raises InvalidInput for a kind that the program or another extension has."""
    if not added.kind or added.kind in OWN_KINDS:
        raise InvalidInput(f"The kind of history {added.kind!r} belongs to Helix Desktop.")
    if added.kind in _added:
        raise InvalidInput(f"The kind of history {added.kind!r} belongs to another extension.")
    _added[added.kind] = added


def remove_format(kind: str) -> None:
    _added.pop(kind, None)


def list_added_formats() -> list[AddedFormat]:
    return list(_added.values())


def name_of_program(kind: str) -> str:
    """Return the name of the program that writes a kind of history, or an empty text."""
    added = _added.get(kind)
    if added is not None:
        return added.program
    return NAMES.get(kind, "")


def is_kind_of_history(kind: str) -> bool:
    return kind in OWN_KINDS or kind in _added


def check_kind_of_history(kind: str) -> None:
    """Raises InvalidInput for a kind that neither the program nor an extension can read."""
    if not is_kind_of_history(kind):
        kinds = list(OWN_KINDS) + list(_added)
        raise InvalidInput(
            f"Unknown kind of history: {kind!r}.", remedy=f"Available: {', '.join(kinds)}."
        )


def find_added_format(path: Path, kind: str, complaints: list[str]) -> AddedFormat | None:
    """Return the added format of a file: by its kind if that is known, else by its beginning.

    Formats are asked in the order in which they were added. `complaints` gets a sentence for each
    that failed.
    """
    if kind or not _added:
        return _added.get(kind)
    for added in list(_added.values()):
        if _is_recognized(added, path, complaints):
            return added
    return None


def find_files_of_format(added: AddedFormat, home: Path) -> Iterator[Path]:
    """Yield the format's files in the folders where its program keeps them."""
    from helix_desktop.histories.companion_files import list_files_below

    complaints: list[str] = []  # They are said again when the file is read.
    for folder in folders_of_format(added, home):
        for path in list_files_below(folder, *patterns_of_format(added)):
            if _is_recognized(added, path, complaints):
                yield path


def folders_of_format(added: AddedFormat, home: Path) -> list[Path]:
    return [home / folder.removeprefix("~/") for folder in added.folders]


def patterns_of_format(added: AddedFormat) -> list[str]:
    return [f"*{ending}" for ending in added.endings]


def _is_recognized(added: AddedFormat, path: Path, complaints: list[str]) -> bool:
    with path.open("rb") as file:
        beginning = file.read(BEGINNING)
    try:
        return added.recognizes(path, beginning)
    except InvalidInput as error:
        complaints.append(f"{path}: {error.what}")
        return False
