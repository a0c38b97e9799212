"""Changes of files as a client and a host send them to each other.

A path may have any bytes, and no message of text carries those, so paths are sent as bytes. Steps that
changed many files are sent once, and each file names them by their numbers.
"""

import struct
from collections.abc import Sequence

import msgspec

from helix_desktop.engine import fact_encoding
from helix_desktop.engine.changes.folder_state import (
    DIGEST_BYTES,
    PathChange,
    PathKind,
    TreeItem,
    decode_path,
    encode_path,
    pack_item,
    unpack_item,
)
from helix_desktop.engine.changes.turn_changes import (
    ChangeSource,
    FileChange,
    PlannedUndo,
    TurnOfChanges,
    UncoveredPath,
    UndoOutlook,
)
from helix_desktop.engine.facts import FilesChanged
from helix_desktop.errors import HelixError, InvalidInput

MOST_DIGITS = 9  # Of the number of a folder.


class SentStep(msgspec.Struct, frozen=True, array_like=True):
    """A step that changed files. `fact`: what it changed, as the journal has it."""

    conversation: str
    seq: int
    time: float
    fact: str
    tool: str
    step: int


class SentTurn(msgspec.Struct, frozen=True, array_like=True):
    number: int
    last_number: int
    seq: int
    end: int
    title: str
    steps: tuple[SentStep, ...]


class SentChange(msgspec.Struct, frozen=True, array_like=True):
    """What was at a path and what is there now, each as `pack_item` packs it."""

    path: bytes
    before: bytes
    after: bytes


class SentFile(msgspec.Struct, frozen=True, array_like=True):
    """A change of one file. `steps`: numbers of `SentFiles.steps`."""

    change: SentChange
    shown_path: bytes
    added: int
    removed: int
    by: str
    step: int
    is_broken: bool
    steps: tuple[int, ...]


class SentFiles(msgspec.Struct, frozen=True):
    """Changed files. `steps`: all that changed one of them."""

    steps: tuple[SentStep, ...] = ()
    files: tuple[SentFile, ...] = ()


class SentPlan(msgspec.Struct, frozen=True, array_like=True):
    """What an undo would do with a file. `now`: what is there at present."""

    path: bytes
    before: bytes
    after: bytes
    now: bytes
    outlook: UndoOutlook


class SentCoverage(msgspec.Struct, frozen=True):
    """What checkpoints cover, and how far the first one is."""

    state: str
    files: int
    all_files: int
    why: str
    uncovered: tuple[tuple[bytes, str, bool], ...]


class SentUndo(msgspec.Struct, frozen=True):
    """What an undo has done. `left_alone`: paths that it has not changed, each with the reason.
    `fact`: as the journal has it, or empty.
    """

    restored: tuple[bytes, ...] = ()
    left_alone: tuple[tuple[bytes, str], ...] = ()
    files_put_back: int = 0
    files_deleted: int = 0
    fact: str = ""


# --- Steps and turns


def send_step(source: ChangeSource) -> SentStep:
    fact = fact_encoding.encode_fact(source.fact)
    return SentStep(source.conversation, source.seq, source.time, fact, source.what, source.step)


def receive_step(sent: SentStep) -> ChangeSource:
    try:
        fact_encoding.require_valid_time(sent.time)
    except ValueError:
        raise _unfitting_change() from None
    fact = receive_change_fact(sent.fact)
    return ChangeSource(sent.conversation, sent.seq, sent.time, fact, sent.tool, sent.step)


def receive_change_fact(text: str) -> FilesChanged:
    try:
        fact = fact_encoding.decode_fact(text, is_foreign=True)
    except HelixError:
        raise _unfitting_change() from None
    if not isinstance(fact, FilesChanged):
        raise _unfitting_change()
    return fact


def send_turn(turn: TurnOfChanges) -> SentTurn:
    steps = tuple(send_step(source) for source in turn.sources)
    return SentTurn(turn.number, turn.last, turn.seq, turn.end, turn.title, steps)


def receive_turn(sent: SentTurn) -> TurnOfChanges:
    if not sent.steps:
        raise _unfitting_change()
    sources = tuple(receive_step(step) for step in sent.steps)
    return TurnOfChanges(
        sent.number, sent.seq, sent.end, sent.title, sources, last=sent.last_number
    )


# --- Files


def send_change(change: PathChange) -> SentChange:
    before = pack_item(change.before)
    after = pack_item(change.after)
    return SentChange(encode_path(change.path), before, after)


def receive_change(sent: SentChange) -> PathChange:
    path = receive_path(sent.path)
    return PathChange(path, receive_item(sent.before), receive_item(sent.after))


def send_files(files: Sequence[FileChange]) -> SentFiles:
    # A step that changed many files is sent once, and its files give its number.
    numbers: dict[tuple[str, int, float], int] = {}
    steps: list[SentStep] = []
    for file in files:
        for source in file.sources:
            key = _key_of_step(source)
            if key not in numbers:
                numbers[key] = len(steps)
                steps.append(send_step(source))
    sent_files: list[SentFile] = []
    for file in files:
        numbers_of_file = [numbers[_key_of_step(source)] for source in file.sources]
        sent_files.append(_send_file(file, tuple(numbers_of_file)))
    return SentFiles(tuple(steps), tuple(sent_files))


def _key_of_step(source: ChangeSource) -> tuple[str, int, float]:
    return (source.conversation, source.seq, source.time)


def _send_file(file: FileChange, numbers_of_steps: tuple[int, ...]) -> SentFile:
    return SentFile(
        change=send_change(file.change),
        shown_path=encode_path(file.place),
        added=file.added,
        removed=file.removed,
        by=file.by,
        step=file.step,
        is_broken=file.broken,
        steps=numbers_of_steps,
    )


def receive_files(sent: SentFiles) -> list[FileChange]:
    sources = [receive_step(step) for step in sent.steps]
    files: list[FileChange] = []
    for sent_file in sent.files:
        sources_of_file = [_find_source(sources, number) for number in sent_file.steps]
        files.append(_receive_file(sent_file, tuple(sources_of_file)))
    return files


def _find_source(sources: Sequence[ChangeSource], number: int) -> ChangeSource:
    if not 0 <= number < len(sources):
        raise _unfitting_change()
    return sources[number]


def _receive_file(sent: SentFile, sources: tuple[ChangeSource, ...]) -> FileChange:
    change = receive_change(sent.change)
    return FileChange(
        change,
        decode_path(sent.shown_path),
        max(sent.added, 0),
        max(sent.removed, 0),
        sent.by,
        sent.step,
        sent.is_broken,
        sources,
    )


def receive_path(sent: bytes) -> str:
    """Refuses a path that does not begin with the number of a folder, or leads out of it."""
    path = decode_path(sent)
    number, _slash, inside = path.partition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= MOST_DIGITS
    leads_out = ".." in inside.split("/") or inside.startswith("/") or "\0" in inside
    if not is_number or leads_out:
        raise _unfitting_change()
    return path


def receive_item(packed: bytes) -> TreeItem | None:
    """Returns what is at a path. A file has a whole digest, whoever sent it."""
    try:
        item = unpack_item(packed)
    except (struct.error, KeyError):  # It is cut off, or of no kind.
        raise _unfitting_change() from None
    if item is not None and item.kind is PathKind.FILE and len(item.content) != DIGEST_BYTES:
        raise _unfitting_change()
    return item


# --- Plans of an undo, and what checkpoints cover


def send_plan(planned: PlannedUndo) -> SentPlan:
    before = pack_item(planned.before)
    after = pack_item(planned.after)
    now = pack_item(planned.now)
    return SentPlan(encode_path(planned.path), before, after, now, planned.how)


def receive_plan(sent: SentPlan) -> PlannedUndo:
    path = receive_path(sent.path)
    before = receive_item(sent.before)
    after = receive_item(sent.after)
    now = receive_item(sent.now)
    return PlannedUndo(path, before, after, now, sent.outlook)


def receive_uncovered_paths(sent: SentCoverage) -> list[UncoveredPath]:
    uncovered: list[UncoveredPath] = []
    for path, why, is_beyond_limits in sent.uncovered:
        uncovered.append(UncoveredPath(decode_path(path), why, is_beyond_limits))
    return uncovered


def _unfitting_change() -> InvalidInput:
    return InvalidInput(
        "What the other side told of changed files does not fit together. Nothing was changed."
    )
