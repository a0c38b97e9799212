"""Histories as a newer version of their program might write them: whatever of them is not read as
before is said.

python -m tests.faults.unknown_shapes [--files N] [--seed S] [--from FOLDER]      the folder has
    a folder of real sessions for each kind of history, beside those of the tests

Each file is made from a real one by one change, wherever it applies: a table, a column, a kind or a
field gets another name, a value stands deeper or higher, is in a list, is a text instead of a
number, or a date in another form. A change of which no sentence speaks must not change what is
read.
"""

from __future__ import annotations

import argparse
import json
import random
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helix_desktop.histories import history_reading, unknown_shapes
from helix_desktop.histories.history_rows import ReadingReport, parse_time
from helix_desktop.histories.recorded_session import RecordedSession
from tests.histories import written

FIXTURES = Path(__file__).parents[1] / "histories" / "fixtures"
ARGUMENTS = ("input", "args", "arguments")  # What a tool was given is all kept, in any form.
ENDINGS_OF_NAMES = ("V2", "_v3", "New", "_list", "_at", "Ref")
Row = dict[str, Any]


@dataclass(frozen=True)
class Place:
    """A field of an object in a row."""

    holder: Row
    name: str


@dataclass(frozen=True)
class Reading:
    sessions: list[RecordedSession]
    sentences: list[str]


def read(path: Path, kind: str) -> Reading:
    report = ReadingReport()
    sessions = list(history_reading.read_sessions(path, report, kind))
    return Reading(sessions, [*report.sentences_about_unknown(), *report.complaints])


def comparable(reading: Reading) -> list[RecordedSession]:
    """What was read, without what names the file or is a copy of its lines."""
    return [replace(session, name="", lines=(), own_lines=()) for session in reading.sessions]


# --- Changes of rows


def places_of_fields(rows: Sequence[Row], kind: str) -> list[Place]:
    """Every field that a reader could want, in rows that are part of the conversation."""
    places: list[Place] = []
    for row in rows:
        if not unknown_shapes.is_row_of_notes(kind, row):
            places.extend(places_in_object(row, kind))
    return places


def places_in_object(holder: Row, kind: str) -> Iterator[Place]:
    known = unknown_shapes.known_shapes(kind)
    assert known is not None
    for name, value in holder.items():
        if name in ARGUMENTS and isinstance(value, dict):
            continue
        yield Place(holder, name)
        inner = value if isinstance(value, list) else [value]
        for item in inner if name not in known.free else ():
            if isinstance(item, dict):
                yield from places_in_object(item, kind)


def is_text(value: object) -> bool:
    return isinstance(value, str)


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_date(value: object) -> bool:
    return isinstance(value, str) and value[:3] == "202" and parse_time(value) > 0


def is_anything(value: object) -> bool:
    return value is not None


def is_object(value: object) -> bool:
    return isinstance(value, dict) and bool(value)


def is_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def rename(place: Place, chance: random.Random) -> None:
    ending = chance.choice(ENDINGS_OF_NAMES)
    place.holder[f"{place.name}{ending}"] = place.holder.pop(place.name)


def nest(place: Place, chance: random.Random) -> None:
    inner_name = chance.choice(("value", "data", "content", "v"))
    place.holder[place.name] = {inner_name: place.holder[place.name]}


def lift(place: Place, _: random.Random) -> None:
    for name, value in place.holder.pop(place.name).items():
        place.holder.setdefault(name, value)


def put_in_list(place: Place, _: random.Random) -> None:
    place.holder[place.name] = [place.holder[place.name]]


def take_out_of_list(place: Place, _: random.Random) -> None:
    place.holder[place.name] = place.holder[place.name][0]


def list_to_object(place: Place, _: random.Random) -> None:
    items = enumerate(place.holder[place.name])
    place.holder[place.name] = {str(number): item for number, item in items}


def object_to_entries(place: Place, _: random.Random) -> None:
    items = place.holder[place.name].items()
    place.holder[place.name] = [{"key": name, "value": value} for name, value in items]


def number_to_text(place: Place, _: random.Random) -> None:
    place.holder[place.name] = str(place.holder[place.name])


def date_in_another_form(place: Place, chance: random.Random) -> None:
    text = place.holder[place.name]
    seconds = parse_time(text)
    year, month, day = text[:10].split("-")
    forms = (
        f"{day}/{month}/{year} {text[11:19]}",
        f"{int(seconds)}",
        seconds,
        int(seconds * 1_000),
        {"seconds": int(seconds), "nanos": 0},
        f"Fri {day} Nov {year} {text[11:19]} GMT",
    )
    place.holder[place.name] = chance.choice(forms)


CHANGES: dict[str, tuple[Callable[[object], bool], Callable[[Place, random.Random], None]]] = {
    "another name": (is_anything, rename),
    "deeper": (is_anything, nest),
    "higher": (is_object, lift),
    "in a list": (is_anything, put_in_list),
    "out of its list": (is_list, take_out_of_list),
    "a list as an object": (is_list, list_to_object),
    "an object as entries": (is_object, object_to_entries),
    "a number as text": (is_number, number_to_text),
    "a date in another form": (is_date, date_in_another_form),
}


def change_a_field(rows: Sequence[Row], kind: str, chance: random.Random) -> str:
    """Change one field wherever it stands in the same way, and say which and how."""
    change = chance.choice(sorted(CHANGES))
    applies, make = CHANGES[change]
    places = [place for place in places_of_fields(rows, kind) if applies(place.holder[place.name])]
    if not places:
        return ""
    name = chance.choice(sorted({place.name for place in places}))
    seed = chance.random()
    for place in places:
        if place.name == name and name in place.holder and applies(place.holder[name]):
            make(place, random.Random(seed))
    return f"{name}: {change}"


def change_a_kind(rows: Sequence[Row], chance: random.Random) -> str:
    """Give a kind of row, or of what is in one, another name or form, wherever it stands."""
    holders: list[Row] = []
    for holder in (*rows, *(row.get("payload") for row in rows)):
        if isinstance(holder, dict) and isinstance(holder.get("type"), str):
            holders.append(holder)
    if not holders:
        return ""
    name: str = chance.choice(sorted({holder["type"] for holder in holders}))
    new_names = (f"{name}_v2", f"{name}V2", name.upper(), f"x/{name}", f"{name}s", [name], 7, None)
    new_name = chance.choice(new_names)
    for holder in holders:
        if holder["type"] == name:
            holder["type"] = new_name
    return f"the kind {name}: {new_name!r}"


# --- Changes of databases


def change_a_database(path: Path, chance: random.Random) -> str:
    """Rename a table or a column of it, or change a field within its texts of JSON."""
    with closing(sqlite3.connect(path)) as database, database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        tables = [
            str(table)
            for (table,) in database.execute(names).fetchall()
            if database.execute(f'SELECT 1 FROM "{table}"').fetchone()  # noqa: S608
        ]
        table = chance.choice(tables)
        ending = chance.choice(ENDINGS_OF_NAMES)
        columns = [str(row[1]) for row in database.execute(f'PRAGMA table_info("{table}")')]
        if chance.random() < 0.2:
            database.execute(f'ALTER TABLE "{table}" RENAME TO "{table}{ending}"')
            return f"the table {table}"
        column = chance.choice(columns)
        if column != "data" or chance.random() < 0.2:
            database.execute(
                f'ALTER TABLE "{table}" RENAME COLUMN "{column}" TO "{column}{ending}"'
            )
            return f"the column {table}.{column}"
        stored = database.execute(f'SELECT rowid, data FROM "{table}"').fetchall()  # noqa: S608
        rows = [json.loads(text) for _, text in stored]
        changed = change_a_field(rows, "opencode", chance)
        for (number, _), row in zip(stored, rows, strict=True):
            update = f'UPDATE "{table}" SET data = ? WHERE rowid = ?'  # noqa: S608
            database.execute(update, [json.dumps(row), number])
        return changed and f"{table}.{changed}"


# --- The trials


@dataclass(frozen=True)
class Original:
    kind: str
    path: Path
    content: bytes


def originals(more: Path | None, folder: Path) -> list[Original]:
    """Real sessions, and for programs without one those that our tests write."""
    files: list[tuple[str, Path]] = []
    for kind in ("claude-code", "codex", "pi", "gemini-cli"):
        paths = sorted((FIXTURES / kind).rglob("*.jsonl"))
        files += [(kind, path) for path in paths]
    for kind in ("opencode", "cline", "goose", "qwen-code", "copilot-cli"):
        files.append((kind, written.KINDS[kind](folder / kind)))
    if more is not None:
        for path in sorted(path for path in more.rglob("*") if path.is_file()):
            files.append((path.relative_to(more).parts[0], path))
    return [Original(kind, path, path.read_bytes()) for kind, path in files]


def rows_of(original: Original) -> list[Row]:
    text = original.content.decode()
    if original.kind == "cline":
        document = json.loads(text)
        # Cline 3 writes one object, with all messages of the session in it.
        return document if isinstance(document, list) else [document]
    return [json.loads(line) for line in text.splitlines()]


def write_rows(original: Original, path: Path, rows: Sequence[Row]) -> None:
    if original.kind == "cline":
        is_one_object = original.content.lstrip().startswith(b"{")
        path.write_text(json.dumps(rows[0] if is_one_object else rows), "utf-8")
    else:
        written.lines(path, rows)


def try_change(original: Original, folder: Path, chance: random.Random) -> tuple[str, str]:
    """Make one changed file. Return what was changed, and what was read otherwise in silence."""
    # The folders above a file name its session or its task.
    path = folder / original.path.parent.name / original.path.name
    path.parent.mkdir(parents=True)
    path.write_bytes(original.content)
    before = read(path, original.kind)
    if original.content.startswith(b"SQLite"):
        changed = change_a_database(path, chance)
    else:
        rows = rows_of(original)
        changed = (
            change_a_kind(rows, chance)
            if chance.random() < 0.3
            else change_a_field(rows, original.kind, chance)
        )
        write_rows(original, path, rows)
    if not changed:
        return "", ""
    after = read(path, original.kind)
    if after.sentences or comparable(after) == comparable(before):
        return changed, ""
    return changed, describe_difference(before, after)


def describe_difference(before: Reading, after: Reading) -> str:
    if len(before.sessions) != len(after.sessions):
        return f"{len(before.sessions)} sessions are {len(after.sessions)}"
    for old, new in zip(comparable(before), comparable(after), strict=True):
        if len(old.messages) != len(new.messages):
            return f"{len(old.messages)} messages are {len(new.messages)}"
        for one, other in zip(old.messages, new.messages, strict=True):
            for name in one.__slots__:
                if getattr(one, name) != getattr(other, name):
                    return f"{name} of a message: {getattr(other, name)!r:.60}"
        for name in old.__slots__:
            if name != "messages" and getattr(old, name) != getattr(new, name):
                return f"{name}: {getattr(new, name)!r:.60}"
    return ""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", type=Path, dest="more")
    given = parser.parse_args(arguments)
    silent: Counter[str] = Counter()
    warned = made = 0
    with tempfile.TemporaryDirectory(prefix="shapes-") as temporary:
        base = Path(temporary)
        files = originals(given.more, base / "own")
        for original in files:
            for sentence in read(original.path, original.kind).sentences:
                warned += 1
                print(f"unchanged: {original.path.name}: {sentence}")
        number = 0
        while made < given.files:
            number += 1
            chance = random.Random(f"{given.seed} {number}")
            original = files[number % len(files)]
            changed, difference = try_change(original, base / str(number), chance)
            made += bool(changed)
            if difference:
                silent[f"{original.kind}: {changed}: {difference}"] += 1
    for what, count in sorted(silent.items()):
        print(f"SILENT {count} × {what}")
    print(
        f"{made} files, {silent.total()} silent; {warned} warnings on {len(files)} unchanged files"
    )
    return int(bool(silent or warned))


if __name__ == "__main__":
    sys.exit(main())
