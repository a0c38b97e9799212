"""Measures how much of what agents write in the folders of their sessions is read.

If an agent begins to write its sessions in another form or under other names, its old
files may still be read, and nothing else would tell. Only sizes, times and names of
files are looked at.
"""

import time as clock
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.histories import claude_code_history, cline_history, opencode_history
from helix_desktop.histories.history_finding import (
    find_history_of_changed_file,
    history_folders,
    list_database_shapes,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.program_names import NAMES

RECENT_SECONDS = 7 * 86_400.0
LEAST_BYTES = 1 << 20  # Less than this may be notes of an agent that nobody worked with.
MOST_NAMES = 3
# Endings of files that may hold sessions. Programs, logs and pictures lie in the same folders.
_ENDINGS = (".jsonl", ".json", ".ndjson", ".db", ".sqlite", ".sqlite3", ".msgpack", ".zst")
_BESIDE_DATABASE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class ReadShare:
    """How many bytes are in the files of an agent that may hold sessions, and how many of them
    are read. `unread_names`: of the largest files that are not, and `recent_unread_names`: of those
    of the last week. `has_unknown`: whether something in the files that are read is not read yet.
    """

    kind: str
    bytes: int = 0
    read_bytes: int = 0
    recent_bytes: int = 0
    recent_read_bytes: int = 0
    unread_names: tuple[str, ...] = ()
    recent_unread_names: tuple[str, ...] = ()
    has_unknown: bool = False

    @property
    def program_name(self) -> str:
        return NAMES.get(self.kind, self.kind)


@dataclass(frozen=True, slots=True)
class _MeasuredFile:
    path: Path
    bytes: int
    is_read: bool
    is_recent: bool


def measure_read_shares(places: HistoryPlaces, now: float | None = None) -> list[ReadShare]:
    """Return the share of each agent that has files here."""
    if now is None:
        now = clock.time()
    recent_since = now - RECENT_SECONDS
    shapes = list(list_database_shapes(places))
    unread_databases = {shape.path for shape in shapes if not shape.has_known_tables}
    kinds_with_unknown = {shape.kind for shape in shapes if shape.report.unknown_tables}
    shares: list[ReadShare] = []
    for kind, folders in history_folders(places).items():
        files: list[_MeasuredFile] = []
        for folder in folders:
            files.extend(_measure_files(kind, folder, recent_since, unread_databases))
        if files:
            share = _share_of_files(kind, files)
            shares.append(replace(share, has_unknown=kind in kinds_with_unknown))
    return shares


def _measure_files(
    kind: str, folder: Path, recent_since: float, unread_databases: Collection[Path]
) -> Iterator[_MeasuredFile]:
    """Yield the files below a folder that may hold sessions."""
    for file, file_status in list_tree_files(folder):
        # What SQLite writes beside a database counts as the database.
        name = file.name
        for ending in _BESIDE_DATABASE:
            name = name.removesuffix(ending)
        if not name.endswith(_ENDINGS):
            continue
        named = file.with_name(name)
        is_read = named not in unread_databases and _is_history_or_beside_one(kind, folder, named)
        yield _MeasuredFile(
            path=file,
            bytes=file_status.st_size,
            is_read=is_read,
            is_recent=file_status.st_mtime >= recent_since,
        )


def _is_history_or_beside_one(kind: str, folder: Path, file: Path) -> bool:
    """Whether the file is a history, or is read beside one."""
    if find_history_of_changed_file(kind, file) is not None:
        return True
    if kind == claude_code_history.KIND:
        return claude_code_history.is_settings_file_of_subagent(file)
    if kind == opencode_history.KIND:
        # Sessions of versions before the database.
        return file.is_relative_to(folder / "storage")
    if kind == cline_history.KIND:
        beside = ("ui_messages.json", "task_metadata.json", f"{file.parent.name}.json")
        return file.name in beside
    return False


def _share_of_files(kind: str, files: Sequence[_MeasuredFile]) -> ReadShare:
    """Add up the sizes of an agent's files: of all, of those that are read, and of those that are
    recent, as an agent whose new files are not read writes them in another form now.
    """
    read_files = [file for file in files if file.is_read]
    recent_files = [file for file in files if file.is_recent]
    recent_read_files = [file for file in recent_files if file.is_read]
    unread_files = [file for file in files if not file.is_read]
    recent_unread_files = [file for file in recent_files if not file.is_read]
    return ReadShare(
        kind=kind,
        bytes=_sum_of_sizes(files),
        read_bytes=_sum_of_sizes(read_files),
        recent_bytes=_sum_of_sizes(recent_files),
        recent_read_bytes=_sum_of_sizes(recent_read_files),
        unread_names=_names_of_largest(unread_files),
        recent_unread_names=_names_of_largest(recent_unread_files),
    )


def _names_of_largest(files: Sequence[_MeasuredFile]) -> tuple[str, ...]:
    by_path = sorted(files, key=lambda file: file.path)
    largest_first = sorted(by_path, key=lambda file: file.bytes, reverse=True)
    # Several files may have the same name.
    names = dict.fromkeys(file.path.name for file in largest_first)
    return tuple(names)[:MOST_NAMES]


def _sum_of_sizes(files: Sequence[_MeasuredFile]) -> int:
    return sum(file.bytes for file in files)


def sentences_about_unread_agents(shares: Sequence[ReadShare]) -> Iterator[str]:
    """Yield a sentence for each agent of whose files of the last week none is read."""
    for share in shares:
        if share.recent_bytes >= LEAST_BYTES and not share.recent_read_bytes:
            megabytes = share.recent_bytes / 1e6
            names = ", ".join(share.recent_unread_names)
            yield (
                f"In the last seven days, {share.program_name} wrote {megabytes:,.1f} MB where its "
                f"sessions are, and nothing of it can be read: {names}. Its files stay as they are."
            )


def describe_read_share(share: ReadShare) -> str:
    """Return how much of an agent's files is read, and what is not, in a sentence or two."""
    name = share.program_name
    megabytes = f"{share.bytes / 1e6:,.1f}"
    if share.read_bytes == share.bytes and share.has_unknown:
        return f"{name}: {megabytes} MB that may hold sessions are read, except what is named as not read yet."
    if share.read_bytes == share.bytes:
        return f"{name}: all {megabytes} MB that may hold sessions are read."
    read_megabytes = f"{share.read_bytes / 1e6:,.1f}"
    unread_names = ", ".join(share.unread_names)
    return f"{name}: {read_megabytes} of {megabytes} MB that may hold sessions are read. Not read: {unread_names}."
