"""Histories from files of every form: what an agent wrote, recorded traces, messages as JSON.

A line that cannot be read is left out and gets a sentence naming file and line; a file in which nothing can be read is
a `WrongUse`. What a file says is data: nothing in it is carried out, looked up or opened.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import orjson

from helix_desktop.errors import NotThere, WrongUse
from helix_desktop.histories import (
    anthropic_style,
    claude_code,
    cline,
    codex,
    gemini_cli,
    goose,
    openai_style,
    opencode,
    pi,
    sqlite_files,
    trajectories,
)
from helix_desktop.histories.recording import RecordedMessage, Recording
from helix_desktop.histories.rows import Row, Told, Unreadable
from helix_desktop.values import dataclass

LARGEST = 2 << 30  # bytes
FORMS = "Supported formats: sessions from Claude Code, Codex, opencode, Gemini CLI, pi, Cline and goose; trajectories from SWE-agent and Harbor; and messages in OpenAI or Anthropic API format."
_BESIDE = (
    ".usage.json",
    ".compactions.json",
    "ui_messages.json",
    "task_metadata.json",
)  # what recorders put beside a session

_PARTS = ("msg_", "prt_")  # what opencode puts beside a session

Is = Callable[[Mapping[str, object]], bool]
Read = Callable[[Sequence[Row], Told, Path], list[Recording]]
Databases = Callable[[sqlite3.Connection, Path, Told, str], Iterator[Recording]]


@dataclass(frozen=True, slots=True)
class Form:
    """One form of history. `is_one`: whether a row shows that a file is of it."""

    kind: str
    is_one: Is
    read: Read


FORMS_OF_ROWS: Sequence[Form] = (
    Form(pi.KIND, pi.is_one, pi.recordings),
    Form(claude_code.KIND, claude_code.is_one, claude_code.recordings),
    Form(codex.KIND, codex.is_one, codex.recordings),
    Form(gemini_cli.KIND, gemini_cli.is_one, gemini_cli.recordings),
    Form(goose.KIND, goose.is_one, goose.recordings),
    Form(trajectories.KIND, trajectories.is_swe_agent, trajectories.recordings),
    Form(trajectories.KIND, trajectories.is_atif, trajectories.recordings),
    Form(trajectories.KIND, trajectories.is_managed, trajectories.recordings),
    Form("anthropic", anthropic_style.is_one, anthropic_style.recordings),
    Form("openai", lambda _: True, openai_style.recordings),
)
DATABASES: Sequence[tuple[str, Callable[[frozenset[str]], bool], Databases]] = (
    (opencode.KIND, opencode.is_database, opencode.from_database),
    (goose.KIND, goose.is_database, goose.from_database),
)
KINDS = tuple(dict.fromkeys([*(form.kind for form in FORMS_OF_ROWS), opencode.KIND, cline.KIND]))


@dataclass(frozen=True, slots=True)
class Imported:
    """The sessions of some files, and a sentence for each line that was left out."""

    recordings: tuple[Recording, ...]
    complaints: tuple[str, ...]


def played(imported: Imported) -> Imported:
    """What a replay plays: each session's first line, what the model was shown, and no notes of failed requests."""
    main = [one for one in imported.recordings if not one.forked_from and not one.parent]
    return replace(
        imported, recordings=tuple(replace(one, messages=tuple(_shown(one))) for one in main or imported.recordings)
    )


def _shown(recording: Recording) -> Iterator[RecordedMessage]:
    for message in recording.messages:
        if message.role != "failure":
            yield replace(message, text=message.shown) if message.shown else message


def read_all(paths: Sequence[Path]) -> Imported:
    """Every session of the files; of a folder, of all files under it that hold one, whatever else is there."""
    found = [imported for path in paths for imported in (_all_under(path) if path.is_dir() else (read(path),))]
    recordings = tuple(recording for imported in found for recording in imported.recordings)
    return Imported(recordings, tuple(complaint for imported in found for complaint in imported.complaints))


def _all_under(folder: Path) -> Iterator[Imported]:
    """WrongUse where no file holds a session."""
    useless: list[WrongUse] = []
    found = files(folder)
    for file in found:
        try:
            yield read(file)
        except WrongUse as error:
            useless.append(error)
    if len(useless) == len(found):
        raise useless[0]
    yield Imported((), tuple(error.what for error in useless))


def read(path: Path) -> Imported:
    """The sessions of one file; WrongUse where there is none."""
    told = Told()
    recordings = tuple(sessions(path, told))
    complaints = told.sentences(str(path))
    if not any(message.role == "assistant" for recording in recordings for message in recording.messages):
        why = f" {complaints[0]}" if complaints else ""
        raise WrongUse(f"{path} doesn't contain a session that can be read.{why}", remedy=FORMS)
    return Imported(recordings, complaints)


def sessions(path: Path, told: Told, kind: str = "") -> Iterator[Recording]:
    """The sessions of a file, one by one, whatever it holds; NotThere, and WrongUse for what is too large."""
    try:
        if not path.is_file() and path.exists():
            raise WrongUse(f"{path} is not a file.")
        if path.stat().st_size > LARGEST:
            raise WrongUse(
                f"{path} is larger than {LARGEST >> 30} GB.", remedy="Split the file into smaller files at line breaks."
            )
        if sqlite_files.is_one(path):
            yield from _in_database(path, told)
        elif opencode.is_file(path):
            yield from opencode.from_file(path, told)
        else:
            yield from _in_rows(path, told, kind)
    except OSError as error:
        raise NotThere(f"{path} cannot be read: {error.strerror}.", remedy="Check the name.") from error


def _in_database(path: Path, told: Told) -> Iterator[Recording]:
    try:
        with sqlite_files.opened(path) as connection:
            tables = sqlite_files.tables(connection)
            for _, is_one, read_it in DATABASES:
                if is_one(tables):
                    yield from read_it(connection, path, told, "")
    except sqlite3.Error as error:
        told.complaints.append(f"{path}: the database cannot be read: {error}.")


def _in_rows(path: Path, told: Told, kind: str) -> Iterator[Recording]:
    groups = list(_groups(list(_rows(path, told.complaints))))
    several = len(groups) > 1
    for number, rows in enumerate(groups, 1):
        try:
            made = _form(rows, path, kind).read(rows, told, path)
        except Unreadable as error:
            told.complaints.append(f"{path}: {error}; the session was left out.")
            continue
        for recording in made:
            if recording.messages:
                name, session = recording.name, recording.session
                yield (
                    replace(recording, name=f"{name}#{number}", session=f"{session}#{number}") if several else recording
                )


def _form(rows: Sequence[Row], path: Path, kind: str) -> Form:
    """What the file is: as the caller says, by its name, or by the first form that knows one of its rows."""
    if kind == cline.KIND or (not kind and path.name == cline.NAME):
        return Form(cline.KIND, lambda _: True, cline.recordings)
    for form in FORMS_OF_ROWS:
        if form.kind == kind:
            return form
    if kind:
        raise WrongUse(f"Unknown kind of history: {kind!r}.", remedy=f"Available: {', '.join(KINDS)}.")
    return next(
        form for form in FORMS_OF_ROWS if any(form.is_one(row.value) for row in rows) or form is FORMS_OF_ROWS[-1]
    )


def files(folder: Path) -> Sequence[Path]:
    """The files of a folder that may hold a session."""
    endings = ("*.jsonl", "*.json", "*.traj", "*.db")
    inside = folder.resolve()
    found = sorted(
        file
        for ending in endings
        for file in folder.rglob(ending)
        if file.is_file() and file.resolve().is_relative_to(inside)
    )
    kept = [file for file in found if not file.name.endswith(_BESIDE) and not file.name.startswith(_PARTS)]
    if not kept:
        raise WrongUse(
            f"There is no .jsonl or .json file under {folder}.", remedy="Specify a file or a folder of sessions."
        )
    return kept


# --- rows -----------------------------------------------------------------------------------------------------------


def _rows(path: Path, complaints: list[str]) -> Iterator[Row]:
    """One JSON document, or one per line; each with a place for people."""
    with path.open("rb") as file:
        first = _first(file.read(1 << 16))
        file.seek(0)
        if first[:1] == b"[" or first == b"{":
            yield from _whole(file.read(), path, complaints)
            return
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            place = f"{path}, line {number}"
            value = _loaded(line if number > 1 else line.removeprefix(b"\xef\xbb\xbf"))
            if isinstance(value, Mapping):
                yield Row(value, place)
            else:
                complaints.append(f"{place}: this is not a JSON object; the line was left out.")


def _first(begins: bytes) -> bytes:
    return begins.removeprefix(b"\xef\xbb\xbf").strip().partition(b"\n")[0].rstrip()


def _whole(content: bytes, path: Path, complaints: list[str]) -> Iterator[Row]:
    try:
        yield from _document(json.loads(content.decode("utf-8-sig", "replace")), path)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        kept = list(_before_the_break(content.decode("utf-8-sig", "replace")))
        left = f"{len(kept)} messages before it were read" if kept else "the file was left out"
        complaints.append(f"{path}, line {line}: the JSON is broken here; {left}.")
        for number, item in enumerate(kept, 1):
            yield Row(item, f"{path}, entry {number}")


def _before_the_break(text: str) -> Iterator[Mapping[str, object]]:
    """The whole objects of a list that is cut or damaged further on."""
    decoder, at = json.JSONDecoder(), text.find("[") + 1
    while at:
        while at < len(text) and text[at] in " \r\n\t,":
            at += 1
        try:
            value, at = decoder.raw_decode(text, at)
        except (ValueError, RecursionError):
            return
        if isinstance(value, Mapping):
            yield value


def _document(whole: object, path: Path) -> Iterator[Row]:
    items = whole if isinstance(whole, list) else [whole]
    for number, item in enumerate(items, 1):
        place = f"{path}, entry {number}" if len(items) > 1 else str(path)
        if isinstance(item, Mapping):
            yield Row(item, place)
        elif isinstance(item, list):
            yield Row({"messages": item}, place)


def _groups(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """Rows that hold a list of messages are a session each; all other rows together are one."""
    plain = []
    for row in rows:
        whole = trajectories.is_swe_agent(row.value) or trajectories.is_atif(row.value) or gemini_cli.is_one(row.value)
        inner = None if whole else openai_style.listed(row.value)
        if inner is None:
            plain.append(row)
        else:
            yield [
                Row(item, f"{row.place}, message {number}") for number, item in enumerate(_with_system(row, inner), 1)
            ]
    if plain:
        yield plain


def _with_system(row: Row, inner: Sequence[Mapping[str, object]]) -> Sequence[Mapping[str, object]]:
    """A request to Anthropic has its system prompt beside the messages."""
    system = row.value.get("system")
    return [{"role": "system", "content": system}, *inner] if isinstance(system, str | list) and system else inner


def _loaded(line: bytes) -> object:
    try:
        return orjson.loads(line)
    except ValueError:
        pass
    try:
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
