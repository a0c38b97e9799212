"""The columns of the table of stored outputs: all that the page knows of each, in one place. A
column that can be sorted by also has its name in `EntrySort` and in the index.
"""

from collections.abc import Callable
from enum import IntEnum

from helix_desktop.engine.cache_entry_rows import EntryRow
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_byte_size, format_time_ago
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_number, tr, translate_name

LONGEST_TOOL = 200  # Longer names of tools are cut to this many characters.
LONGEST_SOURCE = 400


class EntryColumn(IntEnum):
    """The columns, from left to right. `EntrySort` has the same names."""

    SOURCE = 0
    TOOL = 1
    SIZE = 2
    TOKENS = 3
    USES = 4
    TIME = 5
    RECALLED = 6
    HASH = 7


@dataclass(frozen=True, slots=True)
class ColumnLook:
    """`title` returns the heading, and `text` a cell's text at a time. `width` and
    `narrow_width` are in pixels, in a wide table and in a narrow one; 0 takes the room that is
    left. `hidden_first`: where room is short, the column with the lowest number is hidden first,
    and one with 0 never.
    """

    title: Callable[[], str]
    text: Callable[[EntryRow, float], str]
    width: int = 0
    narrow_width: int = 0
    is_number: bool = False
    is_code: bool = False
    is_muted: bool = False
    hidden_first: int = 0


def _source_on_one_line(row: EntryRow, _now: float) -> str:
    source = row.about.source
    # For outputs of connected agents, version 0.2 stored the call's raw arguments.
    if source.startswith("{"):
        source = describe_call_as_source(source)
    return make_safe_text(source[:LONGEST_SOURCE]).replace("\n", " ")


def name_of_writer(tool: str) -> str:
    """What wrote an entry: a tool's name, or a word for what the program or the user stored."""
    name = translate_name("writer of a stored output", tool, otherwise=tool)
    return make_safe_text(name[:LONGEST_TOOL])


def _tool(row: EntryRow, _now: float) -> str:
    return name_of_writer(row.about.tool)


def _size(row: EntryRow, _now: float) -> str:
    return format_byte_size(row.stored.size)


def _tokens(row: EntryRow, _now: float) -> str:
    if not row.tokens:
        return "–"
    return format_number(row.tokens)


def _uses(row: EntryRow, _now: float) -> str:
    return format_number(row.uses)


def _time_stored(row: EntryRow, now: float) -> str:
    return format_time_ago(row.time, now)


def _last_recall(row: EntryRow, now: float) -> str:
    if not row.recalled:
        return "–"
    return format_time_ago(row.recalled, now)


def _short_hash(row: EntryRow, _now: float) -> str:
    digits = row.stored.digest.hex
    return f"{digits[:8]}…{digits[-4:]}"


# A table and no chain of conditions: the cells are drawn while the user scrolls.
LOOK_BY_COLUMN: dict[EntryColumn, ColumnLook] = {
    EntryColumn.SOURCE: ColumnLook(lambda: tr("Origin"), _source_on_one_line, is_code=True),
    EntryColumn.TOOL: ColumnLook(lambda: tr("Tool"), _tool, 190, 122),
    EntryColumn.SIZE: ColumnLook(
        lambda: tr("Size"), _size, 100, 82, is_number=True, hidden_first=4
    ),
    EntryColumn.TOKENS: ColumnLook(
        lambda: tr("Tokens"), _tokens, 106, 78, is_number=True, hidden_first=2
    ),
    EntryColumn.USES: ColumnLook(lambda: tr("Uses"), _uses, 78, 58, is_number=True, hidden_first=1),
    EntryColumn.TIME: ColumnLook(lambda: tr("Stored"), _time_stored, 140, 112, is_muted=True),
    EntryColumn.RECALLED: ColumnLook(
        lambda: tr("Last recalled"), _last_recall, 128, 98, is_muted=True
    ),
    # The viewer shows an entry's hash, too.
    EntryColumn.HASH: ColumnLook(
        lambda: tr("Hash"), _short_hash, 160, 132, is_code=True, hidden_first=3
    ),
}
COLUMNS_HIDDEN_FIRST = sorted(
    (column for column, look in LOOK_BY_COLUMN.items() if look.hidden_first),
    key=lambda column: LOOK_BY_COLUMN[column].hidden_first,
)


def column_title(column: EntryColumn) -> str:
    return LOOK_BY_COLUMN[column].title()


def cell_text(row: EntryRow, column: EntryColumn, now: float) -> str:
    return LOOK_BY_COLUMN[column].text(row, now)
