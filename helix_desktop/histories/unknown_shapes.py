"""Finds what is new in the histories of a known program, so that nothing of it is lost in silence.

Each program's histories were seen with certain tables, columns, kinds of rows and fields, and
what a reader needs of them in certain forms (`resources/tables/history_shapes.toml`). Whatever
else a newer version writes is counted, its rows are kept unchanged, and people are told once.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import datetime
from functools import cache
from pathlib import Path

from helix_desktop.atomic_files import create_private_folder, write_file_atomically
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.program_names import NAMES
from helix_desktop.json_values import first_text, parse_json_or_none, text_at
from helix_desktop.resources import read_table

SHAPES_TABLE = "history_shapes"  # In `resources/tables`.
NOT_READ_YET = "is not read yet"  # Part of each sentence, by which it is recognised.
NOTED = "recorder/unread.json"  # In the program's folder of data.
_START_OF_SENTENCE = "Something that "
ROW = "row"  # In the table, what holds a row's own fields.
MOST_NAMES = 8  # So many names are said; the others are counted.


@dataclass(frozen=True, slots=True)
class KnownShapes:
    """What a program's histories were seen with. `notes`: kinds of rows that are no messages.
    `read_notes`: those of them of which something is read all the same, such as the session's
    folder, and whose fields are all known. `needs`: those of which only what is read is known, with
    its paths. `free`: fields whose content may have any names. `columns`: as in "message.id", of
    those tables of a database that are read. `forms`: of the fields by which something would be
    lost in another form. `holders`: the only fields in which a field is read, by its name.
    """

    versions: str
    notes: frozenset[str]
    read_notes: frozenset[str]
    needs: Mapping[str, Sequence[Sequence[str]]]
    fields: frozenset[str]
    free: frozenset[str]
    tables: frozenset[str]
    columns: frozenset[str]
    forms: "FormsOfFields"
    holders: Mapping[str, frozenset[str]]
    # What was looked up of known fields already, by the field that holds them.
    known_fields: dict[str, dict[str, "_KnownField"]] = field(default_factory=dict)

    def known_fields_within(self, holder: str) -> dict[str, "_KnownField"]:
        return self.known_fields.setdefault(holder, {})

    def look_up_field(self, name: str, holder: str) -> "_KnownField | None":
        """Return what is known of a field within `holder`, or None if it was never seen."""
        if name not in self.fields and name not in self.free:
            return None
        holders = self.holders.get(name)
        known_field = _KnownField(
            forms=self.forms.forms_of_field(name, holder),
            is_in_place=holders is None or holder in holders,
            has_known_content=name not in self.free,
        )
        # Names that were never seen are not kept, as a file can have any number of them.
        self.known_fields_within(holder)[name] = known_field
        return known_field


@dataclass(frozen=True, slots=True)
class _KnownField:
    """What is known of a field in one place. `forms`: None if it may have any."""

    forms: frozenset[str] | None
    is_in_place: bool
    has_known_content: bool


@dataclass(frozen=True, slots=True)
class FormsOfFields:
    """In which forms fields were seen: text, number, flag, list, object or date.

    `by_holder`: the forms of a field, by its name, in the certain fields where they are others. The
    table has these as in "tokens.thoughts".
    """

    by_name: Mapping[str, frozenset[str]]
    by_holder: Mapping[str, Mapping[str, frozenset[str]]]

    @classmethod
    def from_table(cls, places_by_form: Mapping[str, str]) -> "FormsOfFields":
        forms: dict[str, set[str]] = {}
        for form, places in places_by_form.items():
            for place in places.split():
                forms.setdefault(place, set()).add(form)
        by_name: dict[str, frozenset[str]] = {}
        by_holder: dict[str, dict[str, frozenset[str]]] = {}
        for place, forms_of_place in forms.items():
            holder, _, name = place.rpartition(".")
            if holder:
                by_holder.setdefault(name, {})[holder] = frozenset(forms_of_place)
            else:
                by_name[name] = frozenset(forms_of_place)
        return cls(by_name, by_holder)

    def forms_of_field(self, name: str, holder: str) -> frozenset[str] | None:
        """Return the forms in which a field was seen within `holder`, or None if any will do."""
        forms_in_holders = self.by_holder.get(name)
        if forms_in_holders is not None and holder in forms_in_holders:
            return forms_in_holders[holder]
        return self.by_name.get(name)


@cache
def known_shapes(shape: str) -> KnownShapes | None:
    """Return what is known of a kind of history, or None for files of no known program."""
    entry = read_table(SHAPES_TABLE).get(shape)
    if entry is None:
        return None
    holders: dict[str, set[str]] = {}
    for holder, names in entry.get("inside", {}).items():
        for name in names.split():
            holders.setdefault(name, set()).add(holder)
    # The table has the names of each set in one text.
    notes = entry["notes"].split()
    read_notes = entry.get("read_notes", "").split()
    needs: dict[str, list[list[str]]] = {}
    for kind, paths in entry.get("needs", {}).items():
        needs[kind] = [path.split(".") for path in paths.split()]
    fields = entry["fields"].split()
    free_fields = entry["free"].split()
    tables = entry.get("tables", "").split()
    columns = entry.get("columns", "").split()
    forms = FormsOfFields.from_table(entry.get("forms", {}))
    return KnownShapes(
        versions=entry["versions"],
        notes=frozenset([*notes, *read_notes, *needs]),
        read_notes=frozenset(read_notes),
        needs=needs,
        fields=frozenset(fields),
        free=frozenset(free_fields),
        tables=frozenset(tables),
        columns=frozenset(columns),
        forms=forms,
        holders={name: frozenset(holders_of_name) for name, holders_of_name in holders.items()},
    )


def unknown_tables(shape: str, tables: Iterable[str]) -> list[str]:
    """Return those of these tables that the program's database was not seen with."""
    # Both versions of opencode share one database.
    shapes = known_shapes(shape.removesuffix("-2"))
    if shapes is None:
        return sorted(tables)
    return sorted(table for table in tables if table not in shapes.tables)


def list_tables_with_known_columns(shape: str) -> list[str]:
    """Return the tables of a program's database of which every column is known."""
    shapes = known_shapes(shape.removesuffix("-2"))
    if shapes is None:
        return []
    tables: set[str] = set()
    for column in shapes.columns:
        table, _, _ = column.partition(".")
        tables.add(table)
    return sorted(tables)


def unknown_columns(shape: str, table: str, columns: Iterable[str]) -> list[str]:
    """Return those of a table's columns that the program's database was not seen with."""
    shapes = known_shapes(shape.removesuffix("-2"))
    if shapes is None:
        return []
    return [column for column in columns if f"{table}.{column}" not in shapes.columns]


def is_known_note(shape: str, kind: str) -> bool:
    """Whether rows of this kind are known to be no messages. Their names are written without
    spaces in the table: `event:task_started`, `no_type`.
    """
    shapes = known_shapes(shape)
    if shapes is None:
        return True
    return _name_in_table(kind) in shapes.notes


def _name_in_table(kind: str) -> str:
    name_in_table = kind
    for group in ("message", "event", "compaction", "item", "part"):
        name_in_table = name_in_table.replace(f"{group} ", f"{group}:")
    return name_in_table.replace(" ", "_")


def is_row_of_notes(shape: str, row: Mapping[str, object]) -> bool:
    """Whether a row is known to be no message and nothing of it is read, so that its fields do not
    matter.
    """
    shapes = known_shapes(shape)
    if shapes is None:
        return True
    kind = text_at(row, "type")
    subkind = first_text(row, "subtype") or text_at(row, "payload", "type")
    # Claude Code's kinds are named as in "system/turn_duration", Codex's as in "event task_started".
    names = [kind, f"{kind}/{subkind}", f"{kind.removesuffix('_msg')} {subkind}"]
    for name in names:
        name_in_table = _name_in_table(name)
        if name_in_table in shapes.notes:
            is_read = name_in_table in shapes.read_notes or name_in_table in shapes.needs
            return not is_read
    return False


def unknown_fields(shape: str, row: Mapping[str, object]) -> set[str]:
    """Return the names of fields of a row, at any depth, that the program was not seen with. A
    field that stands elsewhere or has another form than before is named with that.
    """
    shapes = known_shapes(shape)
    if shapes is None:
        return set()
    needed_paths = shapes.needs.get(text_at(row, "type"))
    if needed_paths is not None:
        return set(_names_of_missing_fields(row, needed_paths, shapes))
    return set(_unknown_names_of_fields(row, ROW, shapes))


def _names_of_missing_fields(
    row: Mapping[str, object], needed_paths: Sequence[Sequence[str]], shapes: KnownShapes
) -> Iterator[str]:
    """Yield what is unknown of the fields that are read of a row: one that is not there stands in
    another place.
    """
    for path in needed_paths:
        value: object = row
        holder = ROW
        for name in path:
            if not isinstance(value, Mapping) or name not in value:
                yield f"{name} in another place"
                break
            value = value[name]
            forms = shapes.forms.forms_of_field(name, holder)
            if forms is not None and not _is_in_form(name, value, forms):
                yield f"{name} in another form"
                break
            holder = name


def _unknown_names_of_fields(
    fields: Mapping[str, object], holder: str, shapes: KnownShapes
) -> Iterator[str]:
    """Yield what is unknown of the fields of an object. `holder`: the field that it stands in."""
    known_fields = shapes.known_fields_within(holder)
    for name, value in fields.items():
        known_field = known_fields.get(name) or shapes.look_up_field(name, holder)
        if known_field is None:
            yield str(name)
        elif known_field.forms is not None and not _is_in_form(name, value, known_field.forms):
            yield f"{name} in another form"
        elif not known_field.is_in_place:
            yield f"{name} in another place"
        elif known_field.has_known_content:
            yield from _unknown_names_in_value(value, name, shapes)


def _unknown_names_in_value(value: object, holder: str, shapes: KnownShapes) -> Iterator[str]:
    if isinstance(value, Mapping):
        yield from _unknown_names_of_fields(value, holder, shapes)
    elif isinstance(value, list):
        for item in value:
            yield from _unknown_names_in_value(item, holder, shapes)


def _is_in_form(name: str, value: object, forms: frozenset[str]) -> bool:
    """Whether a value is in one of these forms. All fields but the kind of a row may be empty."""
    if value is None:
        return name != "type"
    if isinstance(value, bool):
        return "flag" in forms
    if isinstance(value, int | float):
        return "number" in forms or "date" in forms
    if isinstance(value, str):
        is_date = "date" in forms and _is_iso_date(value)
        return "text" in forms or is_date
    if isinstance(value, list):
        has_lists = any(isinstance(item, list) for item in value)
        return "list" in forms and not has_lists
    return "object" in forms


def _is_iso_date(text: str) -> bool:
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return text == ""
    return True


def note_sentences(data_folder: Path, sentences: Sequence[str]) -> None:
    """Note what the recorder found, for the check of the installation."""
    with suppress(OSError):
        file = data_folder / NOTED
        create_private_folder(file.parent)
        text = json.dumps(list(sentences))
        write_file_atomically(file, text.encode())


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
    program = NAMES.get(shape.removesuffix("-2"), shape) or "another program"
    writer = f"{program} {version}".rstrip()
    sentences = [
        f"{_START_OF_SENTENCE}{writer} writes {NOT_READ_YET}: {list_most_frequent(counts)}."
    ]
    # Versions and names come from the file, and could look like further sentences.
    sentences = [" ".join(sentence.split()) for sentence in sentences]
    if is_kept:
        sentences.append("It is kept as it is.")
    else:
        sentences.append("Its file stays as it is.")
    sentences += sentences_about_seen_versions(shape)
    return " ".join(sentences)


def list_most_frequent(counts: Mapping[str, int]) -> str:
    """Return names of what is unknown with how often it is there, and how many more there are."""
    # The most frequent first, and those that are equally frequent by their names.
    names = sorted(counts)
    names.sort(key=counts.__getitem__, reverse=True)
    names_with_counts = [f"{name} ({counts[name]:,})" for name in names[:MOST_NAMES]]
    listed_names = ", ".join(names_with_counts)
    if len(names) > MOST_NAMES:
        listed_names += f", and {len(names) - MOST_NAMES:,} more"
    return listed_names


def sentences_about_seen_versions(shape: str) -> Iterator[str]:
    shapes = known_shapes(shape)
    if shapes is not None:
        yield f"Its versions {shapes.versions} were seen."


@dataclass(frozen=True, slots=True)
class DescribedShapes:
    """What one of the sentences above names."""

    program: str
    names: frozenset[str]


def parse_described_shapes(sentence: str) -> DescribedShapes:
    """Return what a sentence names, without versions and counts, so that it is not said again when
    only these are others.
    """
    writer, _, rest = sentence.removeprefix(_START_OF_SENTENCE).partition(
        f" writes {NOT_READ_YET}: "
    )
    listed_names, _, _ = rest.partition(". It")
    names: set[str] = set()
    for part in listed_names.split(", "):
        name, has_count, _ = part.rpartition(" (")
        if has_count:
            names.add(name)
    programs = [name for name in NAMES.values() if f"{writer} ".startswith(f"{name} ")]
    program = max(programs, key=len, default=writer)
    return DescribedShapes(program, frozenset(names))


def add_new_sentences(sentences: Sequence[str], more: Iterable[str]) -> list[str]:
    """Return the sentences and those of `more` that name something else."""
    all_sentences = list(sentences)
    names_by_program: dict[str, set[str]] = {}
    for sentence in sentences:
        described = parse_described_shapes(sentence)
        names_by_program.setdefault(described.program, set()).update(described.names)
    for sentence in more:
        described = parse_described_shapes(sentence)
        names = names_by_program.setdefault(described.program, set())
        is_named = bool(described.names) and described.names <= names
        if not is_named and sentence not in all_sentences:
            names.update(described.names)
            all_sentences.append(sentence)
    return all_sentences
