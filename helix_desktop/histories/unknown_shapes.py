"""Finds what is new in the histories of a known program, so that nothing of it is lost in silence.

Each program's histories were seen with certain tables, kinds of rows and fields
(`resources/tables/history_shapes.toml`). Whatever else a newer version writes is
counted, its rows are kept unchanged, and people are told once.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from helix_desktop.atomic_files import write_file_atomically
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES
from helix_desktop.json_values import first_text, parse_json_or_none, text_at
from helix_desktop.resources import read_table

NOT_READ_YET = "is not read yet"  # Part of each sentence, by which it is recognised.
NOTED = "recorder/unread.json"  # In the program's folder of data.
MOST_NAMES = 8  # So many names are said; the others are counted.


@dataclass(frozen=True, slots=True)
class KnownShapes:
    """What a program's histories were seen with. `notes`: kinds of rows that are no messages.
    `free`: fields whose content may have any names.
    """

    versions: str
    notes: frozenset[str]
    fields: frozenset[str]
    free: frozenset[str]
    tables: frozenset[str]


@cache
def known_shapes(shape: str) -> KnownShapes | None:
    """Return what is known of a kind of history, or None for files of no known program."""
    entry = read_table("history_shapes").get(shape)
    if entry is None:
        return None
    return KnownShapes(
        versions=entry["versions"],
        notes=frozenset(entry["notes"].split()),
        fields=frozenset(entry["fields"].split()),
        free=frozenset(entry["free"].split()),
        tables=frozenset(entry.get("tables", "").split()),
    )


def unknown_tables(shape: str, tables: Iterable[str]) -> list[str]:
    """Return those of these tables that the program's database was not seen with."""
    # Both versions of opencode share one database.
    shapes = known_shapes(shape.removesuffix("-2"))
    if shapes is None:
        return sorted(tables)
    return sorted(table for table in tables if table not in shapes.tables)


def is_known_note(shape: str, kind: str) -> bool:
    """Whether rows of this kind are known to be no messages. Their names are written without
    spaces in the table: `event:task_started`, `no_type`.
    """
    shapes = known_shapes(shape)
    if shapes is None:
        return True
    name_in_table = kind
    for group in ("message", "event", "compaction", "item", "part"):
        name_in_table = name_in_table.replace(f"{group} ", f"{group}:")
    return name_in_table.replace(" ", "_") in shapes.notes


def is_row_of_notes(shape: str, row: Mapping[str, object]) -> bool:
    """Whether a row is known to be no message, so that its fields do not matter."""
    if known_shapes(shape) is None:
        return True
    kind = text_at(row, "type")
    subkind = first_text(row, "subtype") or text_at(row, "payload", "type")
    # Claude Code's kinds are named as in "system/turn_duration", Codex's as in "event task_started".
    names = [kind, f"{kind}/{subkind}", f"{kind.removesuffix('_msg')} {subkind}"]
    for name in names:
        if name and is_known_note(shape, name):
            return True
    return False


def unknown_fields(shape: str, row: Mapping[str, object]) -> set[str]:
    """Return the names of fields of a row, at any depth, that the program was not seen with."""
    shapes = known_shapes(shape)
    if shapes is None:
        return set()
    return set(_unknown_names_of_fields(row, shapes))


def _unknown_names_of_fields(fields: Mapping[str, object], shapes: KnownShapes) -> Iterator[str]:
    for name, value in fields.items():
        if name in shapes.free:
            continue
        if name not in shapes.fields:
            yield str(name)
        else:
            yield from _unknown_names_in_value(value, shapes)


def _unknown_names_in_value(value: object, shapes: KnownShapes) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _unknown_names_of_fields(value, shapes)
    elif isinstance(value, list):
        for item in value:
            yield from _unknown_names_in_value(item, shapes)


def note_sentences(data_folder: Path, sentences: Sequence[str]) -> None:
    """Note what the recorder found, for the check of the installation."""
    with suppress(OSError):
        file = data_folder / NOTED
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file_atomically(file, json.dumps(list(sentences)).encode())


def read_noted_sentences(data_folder: Path) -> list[str]:
    try:
        noted = parse_json_or_none((data_folder / NOTED).read_bytes())
    except OSError:
        return []
    if not isinstance(noted, list):
        return []
    return [sentence for sentence in noted if isinstance(sentence, str)]


def describe_unknown_shapes(
    shape: str, version: str, counts: Counter[str], *, is_kept: bool = True
) -> str:
    """Return the sentence that tells people what a program writes that is not read. `counts` says
    how often, by what it is. `is_kept`: its rows are in the cache, or else in the file alone.
    """
    # The most frequent first, and those that are equally frequent by their names.
    names = sorted(counts)
    names.sort(key=counts.__getitem__, reverse=True)
    names_with_counts = [f"{name} ({counts[name]:,})" for name in names[:MOST_NAMES]]
    listed_names = ", ".join(names_with_counts)
    if len(names) > MOST_NAMES:
        listed_names += f", and {len(names) - MOST_NAMES:,} more"
    program = NAMES.get(shape.removesuffix("-2"), shape) or "another program"
    writer = f"{program} {version}".rstrip()
    sentences = [f"Something that {writer} writes {NOT_READ_YET}: {listed_names}."]
    if is_kept:
        sentences.append("It is kept as it is.")
    else:
        sentences.append("Its file stays as it is.")
    shapes = known_shapes(shape)
    if shapes is not None:
        sentences.append(f"Its versions {shapes.versions} were seen.")
    return " ".join(sentences)
