"""Measures how much of what agents write in the folders of their sessions is read.

If an agent begins to write its sessions in another form or under other names, its old
files may still be read, and nothing else would tell. Here, only sizes, times and names of files
and the tables of databases are looked at; what is in the files is found once a day
(`daily_read_check.py`).
"""

import stat
import time as clock
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from pathlib import Path

from helix_desktop.errors import format_things
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.folder_trees import list_tree_files
from helix_desktop.histories import (
    claude_code_history,
    cline_history,
    copilot_history,
    gemini_cli_history,
    opencode_history,
)
from helix_desktop.histories.daily_read_check import CheckedFile, read_checked_files
from helix_desktop.histories.history_finding import (
    DatabaseShape,
    find_history_of_changed_file,
    history_folders,
    list_database_shapes,
)
from helix_desktop.histories.history_format import HistoryPlaces
from helix_desktop.histories.program_names import NAMES
from helix_desktop.histories.unknown_shapes import (
    list_most_frequent,
    parse_described_shapes,
    read_noted_sentences,
    sentences_about_seen_versions,
)

RECENT_SECONDS = 7 * 86_400.0
LEAST_BYTES = 1 << 20  # Less than this may be notes of an agent that nobody worked with.
MOST_NAMES = 3
# Endings of files that may hold sessions. Programs, logs and pictures lie in the same folders.
_ENDINGS = (".jsonl", ".json", ".ndjson", ".db", ".sqlite", ".sqlite3", ".msgpack", ".zst")
_NAMES_BESIDE_HISTORIES: Mapping[str, Sequence[str]] = {
    gemini_cli_history.KIND: ("logs.json",),  # What was typed, which the sessions have as well.
    cline_history.KIND: ("ui_messages.json", "task_metadata.json"),
    # The runs of its workflows, whose messages are in the session, and whether files are watched.
    copilot_history.KIND: ("session.db", "tracking.json"),
}
_BESIDE_DATABASE = ("-wal", "-shm", "-journal")


@dataclass(frozen=True, slots=True)
class FilesOfShare:
    """How many files of one kind there are. `names`: of the largest."""

    count: int = 0
    bytes: int = 0
    names: tuple[str, ...] = ()

    @property
    def size(self) -> str:
        return _format_size(self.bytes)


@dataclass(frozen=True, slots=True)
class ReadShare:
    """How much of an agent's files that may hold sessions is read.

    `unread`: files that no reader takes. `partly_read`: files in which something is not read, which
    is named in `unknown` with how often it is there, and which `version` of the agent wrote.
    `recent`: files of the last week, and `recent_unread` those that no reader takes.
    """

    kind: str
    all_files: FilesOfShare
    unread: FilesOfShare
    partly_read: FilesOfShare
    recent: FilesOfShare
    recent_unread: FilesOfShare
    unknown: Mapping[str, int] = field(default_factory=dict)
    version: str = ""

    @property
    def program_name(self) -> str:
        return NAMES.get(self.kind, self.kind)

    @property
    def read_bytes(self) -> int:
        return self.all_files.bytes - self.unread.bytes


@dataclass(frozen=True, slots=True)
class _MeasuredFile:
    """`unknown`: how often there is what is not read in a file that is read, by its name."""

    path: Path
    bytes: int
    modified: float
    is_read: bool
    is_recent: bool
    unknown: Mapping[str, int]
    version: str


def sentences_about_unread(data_folder: Path, shares: Sequence[ReadShare]) -> Iterator[str]:
    """Yield what is to be said of all that agents write and this program does not read: what is in
    their folders, and what was read since the last check. Nothing is yielded if all is read.
    """
    said: dict[str, frozenset[str]] = {}
    for share in shares:
        said[share.program_name] = frozenset(share.unknown)
        yield from sentences_about_share(share)
    for sentence in read_noted_sentences(data_folder):
        described = parse_described_shapes(sentence)
        if not described.names or not described.names <= said.get(described.program, frozenset()):
            yield sentence


def measure_read_shares(
    places: HistoryPlaces, data_folder: Path | None = None, now: float | None = None
) -> list[ReadShare]:
    """Return the share of each agent that has files here. `data_folder`: where the daily check has
    remembered what is in them.
    """
    if now is None:
        now = clock.time()
    recent_since = now - RECENT_SECONDS
    databases = {shape.path: shape for shape in list_database_shapes(places)}
    checked_files: Mapping[str, CheckedFile] = {}
    if data_folder is not None:
        checked_files = read_checked_files(data_folder).files
    shares: list[ReadShare] = []
    for kind, folders in history_folders(places).items():
        files: list[_MeasuredFile] = []
        for folder in folders:
            files.extend(_measure_files(kind, folder, recent_since, databases, checked_files))
        if files:
            shares.append(_share_of_files(kind, files))
    return shares


def _measure_files(
    kind: str,
    folder: Path,
    recent_since: float,
    databases: Mapping[Path, DatabaseShape],
    checked_files: Mapping[str, CheckedFile],
) -> Iterator[_MeasuredFile]:
    """Yield the files below a folder that may hold sessions."""
    for file, file_status in list_tree_files(folder):
        if not stat.S_ISREG(file_status.st_mode):
            continue
        # What SQLite writes beside a database counts as the database.
        name = file.name
        for ending in _BESIDE_DATABASE:
            name = name.removesuffix(ending)
        if not name.endswith(_ENDINGS):
            continue
        named = file.with_name(name)
        unknown: Counter[str] = Counter()
        version = ""
        if file == named:
            if named in databases:
                unknown.update(databases[named].report.unknown_tables)
            # What a file held is still in it when it has grown.
            checked_file = checked_files.get(str(named))
            if checked_file is not None:
                unknown |= Counter(checked_file.unknown)
                version = checked_file.version
        yield _MeasuredFile(
            path=file,
            bytes=file_status.st_size,
            modified=file_status.st_mtime,
            is_read=_is_history_or_beside_one(kind, folder, named),
            is_recent=file_status.st_mtime >= recent_since,
            unknown=unknown,
            version=version,
        )


def _is_history_or_beside_one(kind: str, folder: Path, file: Path) -> bool:
    """Whether the file is a history, is read beside one, or has nothing that a history has not."""
    if find_history_of_changed_file(kind, file) is not None:
        return True
    if kind == claude_code_history.KIND:
        return claude_code_history.is_settings_file_of_subagent(file)
    if kind == opencode_history.KIND:
        # Sessions of versions before the database.
        return file.is_relative_to(folder / "storage")
    if kind == cline_history.KIND and file.name == f"{file.parent.name}.json":
        return True
    return file.name in _NAMES_BESIDE_HISTORIES.get(kind, ())


def _share_of_files(kind: str, files: Sequence[_MeasuredFile]) -> ReadShare:
    """Add up an agent's files: all, and those of a week, as an agent whose new files are not read
    writes them in another form now.
    """
    unread_files = [file for file in files if not file.is_read]
    recent_unread_files = [file for file in unread_files if file.is_recent]
    partly_read_files: list[_MeasuredFile] = []
    unknown: Counter[str] = Counter()
    version = ""
    for file in sorted(files, key=lambda file: file.modified):
        if file.is_read and file.unknown:
            partly_read_files.append(file)
            unknown.update(file.unknown)
            version = file.version or version
    return ReadShare(
        kind=kind,
        all_files=_add_up_files(files),
        unread=_add_up_files(unread_files),
        partly_read=_add_up_files(partly_read_files),
        recent=_add_up_files([file for file in files if file.is_recent]),
        recent_unread=_add_up_files(recent_unread_files),
        unknown=unknown,
        version=version,
    )


def _add_up_files(files: Sequence[_MeasuredFile]) -> FilesOfShare:
    by_path = sorted(files, key=lambda file: file.path)
    largest_first = sorted(by_path, key=lambda file: file.bytes, reverse=True)
    # Several files may have the same name.
    names = dict.fromkeys(file.path.name for file in largest_first)
    return FilesOfShare(
        count=len(files),
        bytes=sum(file.bytes for file in files),
        names=tuple(names)[:MOST_NAMES],
    )


def sentences_about_share(share: ReadShare) -> Iterator[str]:
    """Yield a sentence for files that no reader takes, and one for those of which only a part is
    read. Nothing is yielded if all is read.
    """
    name = share.program_name
    recent = share.recent
    if recent.bytes >= LEAST_BYTES and recent.bytes == share.recent_unread.bytes:
        yield (
            f"In the last seven days, {name} wrote {recent.size} where its sessions are, and nothing "
            f"of it can be read: {', '.join(recent.names)}. Its files stay as they are."
        )
    elif share.unread.count:
        yield _describe_unread_files(name, share.unread)
    partly_read = share.partly_read
    if partly_read.count:
        yield " ".join(_describe_partly_read_files(share))


def _describe_unread_files(program: str, files: FilesOfShare) -> str:
    names = ", ".join(files.names)
    if files.count == 1:
        return f"{program}: 1 file ({files.size}) is not read: {names}. It stays as it is."
    if files.count > len(files.names):
        names += " and others"
    return f"{program}: {files.count:,} files ({files.size}) are not read: {names}. They stay as they are."


def _describe_partly_read_files(share: ReadShare) -> Iterator[str]:
    writer = f"{share.program_name} {share.version}".rstrip()
    files = share.partly_read
    unknown = list_most_frequent(share.unknown)
    if files.count == 1:
        yield f"{writer}: 1 file ({files.size}) holds something that is not read yet: {unknown}."
        yield "It stays as it is."
    else:
        yield f"{writer}: {files.count:,} files ({files.size}) hold something that is not read yet: {unknown}."
        yield "They stay as they are."
    yield from sentences_about_seen_versions(share.kind)


def _format_size(amount: int) -> str:
    if amount < 1_000:
        return format_things(amount, "byte", "bytes")
    if amount < 1_000_000:
        return f"{amount / 1e3:,.1f} KB"
    return f"{amount / 1e6:,.1f} MB"
