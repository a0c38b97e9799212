"""Sessions from files: the traces' own form, exports of Claude Code and Codex, and OpenAI-style JSON.

A line that cannot be read is left out and gets a sentence naming file and line; a file in which nothing can be read is
a `WrongUse`. What a file says is data: nothing in it is carried out, looked up or opened.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from helix_desktop.errors import NotThere, WrongUse
from helix_desktop.replay import claude_code, codex, openai_style
from helix_desktop.replay.recording import RecordedMessage, Recording
from helix_desktop.replay.rows import Row, Unreadable

LARGEST = 2 << 30  # bytes
FORMS = "A line is a message of OpenAI's chat completions, of a Claude Code session or of a Codex rollout."
_BESIDE = (".usage.json", ".compactions.json")  # what recorders put beside a session

Reader = Callable[[Sequence[Row], list[str]], list[RecordedMessage]]


@dataclass(frozen=True, slots=True)
class Imported:
    """The sessions of some files, and a sentence for each line that was left out."""

    recordings: tuple[Recording, ...]
    complaints: tuple[str, ...]


def read_all(paths: Sequence[Path]) -> Imported:
    """Every session of the files; of a folder, of all `.jsonl` and `.json` files under it, whatever else is there."""
    found = [imported for path in paths for imported in (_all_under(path) if path.is_dir() else (read(path),))]
    recordings = tuple(recording for imported in found for recording in imported.recordings)
    return Imported(recordings, tuple(complaint for imported in found for complaint in imported.complaints))


def _all_under(folder: Path) -> Iterator[Imported]:
    """WrongUse where no file holds a session."""
    useless: list[WrongUse] = []
    files = _files(folder)
    for file in files:
        try:
            yield read(file)
        except WrongUse as error:
            useless.append(error)
    if len(useless) == len(files):
        raise useless[0]
    yield Imported((), tuple(error.what for error in useless))


def read(path: Path) -> Imported:
    """The sessions of one file; WrongUse where there is none."""
    text = _text(path)
    complaints: list[str] = []
    rows = list(_rows(text, path, complaints))
    found = [_session(path, group, complaints) for group in _sessions(rows)]
    sessions = [messages for messages in found if messages]
    if not any(message.role == "assistant" for messages in sessions for message in messages):
        why = f" {complaints[0]}" if complaints else ""
        raise WrongUse(f"{path} holds no session that can be replayed.{why}", remedy=FORMS)
    several = len(sessions) > 1
    names = [f"{path}#{number}" if several else str(path) for number in range(1, len(sessions) + 1)]
    made = (Recording(name, tuple(messages)) for name, messages in zip(names, sessions, strict=True))
    return Imported(tuple(made), tuple(complaints))


def _files(path: Path) -> Sequence[Path]:
    found = sorted(file for ending in ("*.jsonl", "*.json") for file in path.rglob(ending) if file.is_file())
    files = [file for file in found if not file.name.endswith(_BESIDE)]
    if not files:
        raise WrongUse(f"There is no .jsonl or .json file under {path}.", remedy="Name a file or a folder of sessions.")
    return files


def _text(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            raise WrongUse(f"{path} is larger than {LARGEST >> 30} GB.", remedy="Split it at its lines.")
        return path.read_bytes().decode("utf-8-sig", "replace")
    except OSError as error:
        raise NotThere(f"{path} cannot be read: {error.strerror}.", remedy="Check the name.") from error


def _rows(text: str, path: Path, complaints: list[str]) -> Iterator[Row]:
    """One JSON document, or one per line; each with a place for people."""
    first = text.strip().partition("\n")[0].rstrip()
    if first[:1] == "[" or first == "{":
        try:
            yield from _document(json.loads(text), path)
        except (ValueError, RecursionError) as error:
            line = getattr(error, "lineno", 1)
            complaints.append(f"{path}, line {line}: the JSON is broken here; the file was left out.")
        return
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        value = _loaded(line)
        if isinstance(value, Mapping):
            yield Row(value, place)
        else:
            complaints.append(f"{place}: this is not a JSON object; the line was left out.")


def _document(whole: object, path: Path) -> Iterator[Row]:
    items = whole if isinstance(whole, list) else [whole]
    for number, item in enumerate(items, 1):
        place = f"{path}, entry {number}" if len(items) > 1 else str(path)
        if isinstance(item, Mapping):
            yield Row(item, place)
        elif isinstance(item, list):
            yield Row({"messages": item}, place)


def _sessions(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows that hold a list of messages are a session each; all other rows together are one."""
    plain = []
    for row in rows:
        inner = openai_style.listed(row.value)
        if inner is None:
            plain.append(row)
        else:
            yield [Row(item, f"{row.place}, message {number}") for number, item in enumerate(inner, 1)]
    if plain:
        yield plain


def _session(path: Path, rows: Sequence[Row], complaints: list[str]) -> list[RecordedMessage]:
    reader: Reader = openai_style.messages
    if any(claude_code.is_one(row.value) for row in rows):
        reader = claude_code.messages
    elif any(codex.is_one(row.value) for row in rows):
        reader = codex.messages
    try:
        return reader(rows, complaints)
    except Unreadable as error:
        complaints.append(f"{path}: {error}; the session was left out.")
        return []


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
