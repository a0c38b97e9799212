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
    about = read_table("history_shapes").get(shape)
    if about is None:
        return None
    return KnownShapes(
        about["versions"],
        frozenset(about["notes"].split()),
        frozenset(about["fields"].split()),
        frozenset(about["free"].split()),
        frozenset(about.get("tables", "").split()),
    )


def unknown_tables(shape: str, tables: Iterable[str]) -> list[str]:
    """Return those of these tables that the program's database was not seen with."""
    # Both versions of opencode share one database.
    known = known_shapes(shape.removesuffix("-2"))
    return sorted(name for name in tables if known is None or name not in known.tables)


def is_known_note(shape: str, kind: str) -> bool:
    """Whether rows of this kind are known to be no messages. Their names are written without
    spaces in the table: `event:task_started`, `no_type`.
    """
    known = known_shapes(shape)
    if known is None:
        return True
    written = kind.replace("message ", "message:").replace("event ", "event:")
    written = written.replace("compaction ", "compaction:")
    written = written.replace("item ", "item:").replace("part ", "part:").replace(" ", "_")
    return written in known.notes


def is_row_of_notes(shape: str, row: Mapping[str, object]) -> bool:
    """Whether a row is known to be no message, so that its fields do not matter."""
    kind = text_at(row, "type")
    inner = first_text(row, "subtype") or text_at(row, "payload", "type")
    names = [kind, f"{kind}/{inner}", f"{kind.removesuffix('_msg')} {inner}"]
    return known_shapes(shape) is None or any(name and is_known_note(shape, name) for name in names)


def unknown_fields(shape: str, row: Mapping[str, object]) -> set[str]:
    """Return the names of fields of a row, at any depth, that the program was not seen with."""
    known = known_shapes(shape)
    if known is None:
        return set()
    return set(_names_outside(row, known))


def _names_outside(value: Mapping[str, object], known: KnownShapes) -> Iterator[str]:
    for name, inner in value.items():
        if name not in known.fields and name not in known.free:
            yield str(name)
        elif name not in known.free:
            yield from _names_inside(inner, known)


def _names_inside(value: object, known: KnownShapes) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _names_outside(value, known)
    elif isinstance(value, list):
        for item in value:
            yield from _names_inside(item, known)


def note_sentences(data_folder: Path, sentences: Sequence[str]) -> None:
    """Note what the recorder found, for the check of the installation."""
    with suppress(OSError):
        file = data_folder / NOTED
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_file_atomically(file, json.dumps([*sentences]).encode())


def read_noted_sentences(data_folder: Path) -> list[str]:
    try:
        noted = parse_json_or_none((data_folder / NOTED).read_bytes())
    except OSError:
        return []
    listed = noted if isinstance(noted, list) else []
    return [sentence for sentence in listed if isinstance(sentence, str)]


def describe_unknown_shapes(
    shape: str, version: str, found: Counter[str], *, is_kept: bool = True
) -> str:
    """Return the sentence that tells people what a program writes that is not read. `found` says
    how often, by what it is. `is_kept`: its rows are in the cache, or else in the file alone.
    """
    known = known_shapes(shape)
    program = NAMES.get(shape.removesuffix("-2"), shape)
    named = sorted(found, key=lambda name: (-found[name], name))
    listed = ", ".join(f"{name} ({found[name]:,})" for name in named[:MOST_NAMES])
    if len(named) > MOST_NAMES:
        listed += f", and {len(named) - MOST_NAMES:,} more"
    seen = f" Its versions {known.versions} were seen." if known is not None else ""
    kept = "It is kept as it is." if is_kept else "Its file stays as it is."
    writer = f"{program} {version}".rstrip()
    return f"Something that {writer} writes {NOT_READ_YET}: {listed}. {kept}{seen}"
