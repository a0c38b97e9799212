"""Histories as a newer version of their program might write them: whatever of them is not read as
before is said.

python -m tests.faults.unknown_shapes [--files N] [--seed S] [--moves M] [--every] [--from FOLDER]
    the folder has a folder of real sessions for each kind of history, beside those of the tests;
    --moves: so many changes in each file; --every: each change of each file once, not by chance

Each file is made from a real one by one change, wherever it applies: a table, a column, a kind or a
field gets another name, a value stands deeper or higher, is in a list, is a text instead of a
number, or a date in another form. A change of which no sentence speaks must not change what is
read.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sqlite3
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from helix_desktop.histories import cline_history, history_reading
from helix_desktop.histories.history_rows import ReadingReport, parse_time
from helix_desktop.histories.recorded_session import RecordedSession
from tests.histories import test_written_here, written

FIXTURES = Path(__file__).parents[1] / "histories" / "fixtures"
ARGUMENTS = ("input", "args", "arguments")  # What a tool was given is all kept, in any form.
# So is what Claude Code showed the model besides messages, which stands as JSON in the conversation.
KEPT_WHOLE = {"claude-code": ("attachment", "rendered")}
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
    """Every field that a reader could want, also in rows that are no messages: it may take the
    session's folder or its title from one.
    """
    places: list[Place] = []
    for row in rows:
        places.extend(places_in_object(row, KEPT_WHOLE.get(kind, ())))
    return places


def places_in_object(holder: Row, kept_whole: Sequence[str]) -> Iterator[Place]:
    for name, value in holder.items():
        if name in ARGUMENTS and isinstance(value, dict):
            continue
        yield Place(holder, name)
        inner = value if isinstance(value, list) else [value]
        for item in inner if name not in kept_whole else ():
            if isinstance(item, dict):
                yield from places_in_object(item, kept_whole)


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


SEVERAL_FORMS = ("deeper", "a date in another form")
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


def names_to_change(rows: Sequence[Row], kind: str, change: str) -> list[str]:
    """The names of the fields that can be changed in this way."""
    applies, _ = CHANGES[change]
    places = places_of_fields(rows, kind)
    return sorted({place.name for place in places if applies(place.holder[place.name])})


def change_field(rows: Sequence[Row], kind: str, change: str, name: str, seed: float) -> str:
    """Change a field wherever it stands in the same way."""
    applies, make = CHANGES[change]
    for place in places_of_fields(rows, kind):
        if place.name == name and name in place.holder and applies(place.holder[name]):
            make(place, random.Random(seed))
    return f"{name}: {change}"


def change_a_field(rows: Sequence[Row], kind: str, chance: random.Random) -> str:
    change = chance.choice(sorted(CHANGES))
    names = names_to_change(rows, kind, change)
    if not names:
        return ""
    return change_field(rows, kind, change, chance.choice(names), chance.random())


def holders_of_kinds(rows: Sequence[Row]) -> list[Row]:
    """The rows, and what is in them, that say of what kind they are."""
    holders: list[Row] = []
    for holder in (*rows, *(row.get("payload") for row in rows)):
        if isinstance(holder, dict) and isinstance(holder.get("type"), str):
            holders.append(holder)
    return holders


def new_names_of_kind(name: str) -> tuple[object, ...]:
    return (f"{name}_v2", f"{name}V2", name.upper(), f"x/{name}", f"{name}s", [name], 7, None)


def change_kind(rows: Sequence[Row], name: str, new_name: object) -> str:
    """Give a kind of row, or of what is in one, another name or form, wherever it stands."""
    for holder in holders_of_kinds(rows):
        if holder["type"] == name:
            holder["type"] = new_name
    return f"the kind {name}: {new_name!r}"


def change_a_kind(rows: Sequence[Row], chance: random.Random) -> str:
    holders = holders_of_kinds(rows)
    if not holders:
        return ""
    name: str = chance.choice(sorted({holder["type"] for holder in holders}))
    return change_kind(rows, name, chance.choice(new_names_of_kind(name)))


def every_change_of_rows(original: Original) -> Iterator[tuple[str, list[Row]]]:
    """Each change of each field and kind in a file once, with what is changed and the rows."""
    for change in CHANGES:
        for name in names_to_change(rows_of(original), original.kind, change):
            seeds = range(8) if change in SEVERAL_FORMS else range(1)
            for seed in seeds:
                rows = rows_of(original)
                yield change_field(rows, original.kind, change, name, seed), rows
    for name in sorted({holder["type"] for holder in holders_of_kinds(rows_of(original))}):
        for new_name in new_names_of_kind(name):
            rows = rows_of(original)
            yield change_kind(rows, name, new_name), rows


# --- Changes of databases


@dataclass(frozen=True)
class DatabaseMove:
    """Another name for a table or a column, or a change of a field in a column's texts of JSON."""

    table: str
    column: str = ""
    change: str = ""
    name: str = ""

    def make(self, database: sqlite3.Connection, chance: random.Random) -> str:
        ending = chance.choice(ENDINGS_OF_NAMES)
        if not self.column:
            database.execute(f'ALTER TABLE "{self.table}" RENAME TO "{self.table}{ending}"')
            return f"the table {self.table}"
        if not self.change:
            database.execute(
                f'ALTER TABLE "{self.table}" RENAME COLUMN "{self.column}" TO "{self.column}{ending}"'
            )
            return f"the column {self.table}.{self.column}"
        values_by_row = read_json_column(database, self.table, self.column)
        objects = objects_in_values(values_by_row.values())
        changed = change_field(objects, "", self.change, self.name, chance.random())
        for number, value in values_by_row.items():
            update = f'UPDATE "{self.table}" SET "{self.column}" = ? WHERE rowid = ?'  # noqa: S608
            database.execute(update, [json.dumps(value), number])
        return f"{self.table}.{self.column}: {changed}"


def read_json_column(database: sqlite3.Connection, table: str, column: str) -> dict[int, Any]:
    """The objects and lists that a column has as JSON, by row."""
    values: dict[int, Any] = {}
    select = f'SELECT rowid, "{column}" FROM "{table}"'  # noqa: S608
    for number, text in database.execute(select).fetchall():
        if isinstance(text, str) and text.startswith(("{", "[")):
            values[number] = json.loads(text)
    return values


def objects_in_values(values: Iterable[Any]) -> list[Row]:
    objects: list[Row] = []
    for value in values:
        items = value if isinstance(value, list) else [value]
        objects += [item for item in items if isinstance(item, dict)]
    return objects


def database_moves(path: Path) -> list[DatabaseMove]:
    """Every change of the tables that have rows."""
    moves: list[DatabaseMove] = []
    with closing(sqlite3.connect(path)) as database:
        names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        for (table,) in database.execute(names).fetchall():
            if not database.execute(f'SELECT 1 FROM "{table}"').fetchone():  # noqa: S608
                continue
            moves.append(DatabaseMove(table))
            for row in database.execute(f'PRAGMA table_info("{table}")').fetchall():
                moves.append(DatabaseMove(table, row[1]))
                objects = objects_in_values(read_json_column(database, table, row[1]).values())
                for change in CHANGES:
                    for name in names_to_change(objects, "", change):
                        moves.append(DatabaseMove(table, row[1], change, name))
    return moves


def change_a_database(path: Path, chance: random.Random) -> str:
    """Make one change: of a table, a column, or a field within a column."""
    moves = database_moves(path)
    # There are many more fields than columns, and more columns than tables.
    changes_of_table = [move for move in moves if not move.column]
    changes_of_column = [move for move in moves if move.column and not move.change]
    changes_of_field = [move for move in moves if move.change]
    fitting_moves = chance.choice((changes_of_table, changes_of_column, changes_of_field)) or moves
    return make_moves(path, [chance.choice(fitting_moves)], chance)


def make_moves(path: Path, moves: Sequence[DatabaseMove], chance: random.Random) -> str:
    with closing(sqlite3.connect(path)) as database, database:
        return ", ".join(move.make(database, chance) for move in moves)


# --- The trials


@dataclass(frozen=True)
class Original:
    kind: str
    path: Path
    content: bytes


def originals(more: Path | None, folder: Path) -> list[Original]:
    """Real sessions, and those that our tests write of programs of which too little is real."""
    files: list[tuple[str, Path]] = []
    for kind in ("claude-code", "codex", "pi", "gemini-cli", "qwen-code"):
        paths = sorted((FIXTURES / kind).rglob("*.jsonl"))
        files += [(kind, path) for path in paths]
    files.append(("opencode", test_written_here.write_database(folder / "opencode-real")))
    for path in test_written_here.write_files("cline", folder / "cline-real"):
        if cline_history.is_cline_file(path):
            files.append(("cline", path))
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


def copy_original(original: Original, folder: Path) -> Path:
    """Return a copy with what lies beside it: the folders above a file name its session."""
    place = folder / original.path.parent.name
    shutil.copytree(original.path.parent, place)
    path = place / original.path.name
    path.write_bytes(original.content)
    return path


def try_change(
    original: Original, folder: Path, moves: int, chance: random.Random
) -> tuple[str, str]:
    """Make one changed file. Return what was changed, and what was read otherwise in silence."""
    path = copy_original(original, folder)
    before = read(path, original.kind)
    changes: list[str] = []
    if original.content.startswith(b"SQLite"):
        for _ in range(moves):
            changes.append(change_a_database(path, chance))
    else:
        rows = rows_of(original)
        for _ in range(moves):
            changes.append(change_rows(rows, original.kind, chance))
        write_rows(original, path, rows)
    if not all(changes):
        return "", ""
    return " and ".join(changes), find_silence(before, read(path, original.kind))


def change_rows(rows: Sequence[Row], kind: str, chance: random.Random) -> str:
    if chance.random() < 0.3:
        return change_a_kind(rows, chance)
    return change_a_field(rows, kind, chance)


def try_every_change(original: Original, folder: Path) -> Iterator[tuple[str, str]]:
    """Make every change of a file once, and say the same of each."""
    path = copy_original(original, folder)
    before = read(path, original.kind)
    if not original.content.startswith(b"SQLite"):
        for changed, rows in every_change_of_rows(original):
            write_rows(original, path, rows)
            yield changed, find_silence(before, read(path, original.kind))
        return
    for number, move in enumerate(database_moves(path)):
        path.write_bytes(original.content)
        changed = make_moves(path, [move], random.Random(number))
        yield changed, find_silence(before, read(path, original.kind))


def find_silence(before: Reading, after: Reading) -> str:
    """Return what is read otherwise although no sentence says so, or nothing."""
    if after.sentences or comparable(after) == comparable(before):
        return ""
    return describe_difference(before, after) or "something else"


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


def tries(
    files: Sequence[Original], base: Path, given: argparse.Namespace
) -> Iterator[tuple[Original, str, str]]:
    """Make the files, and yield of each what was changed and what was read otherwise in silence."""
    if given.every:
        for number, original in enumerate(files):
            for changed, difference in try_every_change(original, base / str(number)):
                yield original, changed, difference
        return
    number = made = 0
    while made < given.files:
        number += 1
        chance = random.Random(f"{given.seed} {number}")
        original = files[number % len(files)]
        folder = base / str(number)
        changed, difference = try_change(original, folder, given.moves, chance)
        shutil.rmtree(folder)
        made += bool(changed)
        yield original, changed, difference


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moves", type=int, default=1)
    parser.add_argument("--every", action="store_true")
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
        for original, changed, difference in tries(files, base, given):
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
