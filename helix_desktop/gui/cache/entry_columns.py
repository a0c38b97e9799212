"""The columns of the table of stored outputs: all that the page knows of each is one declaration.

A column that can be sorted by also has its name in `EntrySort` and in the index.
"""

from collections.abc import Callable, Sequence

from helix_desktop.documents.document_kinds import find_kind_by_ending
from helix_desktop.engine.cache_entry_rows import EntryRow, EntrySort
from helix_desktop.engine.facts import FoldKind
from helix_desktop.engine.ports import NOT_RUN
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.tool_result_reading import describe_call_as_source
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import (
    format_byte_size,
    format_time_ago,
    format_time_with_seconds,
)
from helix_desktop.gui.common.tool_words import words_for_tool
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.translation import format_number, tr, translate_name

LONGEST_TOOL = 200  # Longer names of tools are cut to this many characters.
LONGEST_SOURCE = 400
SECONDS_OF_DAY = 86_400
USER = "user"  # What is called the tool of a file that the user attached.
# What the program has stored of itself, as `store/FORMATS.md` names it.
IMPORT = "import"
LINES_OF_FILE = "lines of "
VERSION = "version"
COPY = "copy"
COPY_OF_FOLDER = "copy of "
TOOLS_OF_OWN_SOURCES = frozenset({USER, "handover", ""})
TOOLS_THAT_WRITE_FILES = frozenset({ToolName.WRITE_FILE, ToolName.EDIT_FILE})


@dataclass(frozen=True, slots=True)
class EntryColumn:
    """A column. `title` returns the heading, and `text` a cell's text at a time.

    `sort`: the order that a click on the heading chooses, if the index has it. `width` and
    `narrow_width` are in pixels, in a wide table and in a narrow one; 0 takes the room that is
    left. `hidden_first`: where room is short, the column with the lowest number is hidden first,
    and one with 0 never. `is_shown_at_first`: whether users see it who have chosen nothing. `hint`:
    what the heading means, if its word alone does not say it.
    """

    id: str
    title: Callable[[], str]
    text: Callable[[EntryRow, float], str]
    sort: EntrySort | None
    width: int = 0
    narrow_width: int = 0
    is_number: bool = False
    is_code: bool = False
    is_muted: bool = False
    hidden_first: int = 0
    is_shown_at_first: bool = True
    hint: Callable[[], str] | None = None


def _source_on_one_line(row: EntryRow, _now: float) -> str:
    source = row.about.source
    if not source and row.about.tool == NOT_RUN.tool:
        return tr("Call that was not run")
    if not source:
        return name_of_writer(row.about.tool)
    # For outputs of connected agents, version 0.2 stored the call's raw arguments.
    if source.startswith("{"):
        source = describe_call_as_source(source)
    return make_safe_text(_words_for_own_source(row, source)[:LONGEST_SOURCE]).replace("\n", " ")


def _words_for_own_source(row: EntryRow, source: str) -> str:
    """Says in the user's language what this program itself has stored, and where from. What tools
    and people have named keeps its name.
    """
    tool = row.about.tool
    if tool == IMPORT and source.startswith(LINES_OF_FILE):
        return tr("All lines of {file}", file=source.removeprefix(LINES_OF_FILE))
    if tool == COPY and source.startswith(COPY_OF_FOLDER):
        return tr("Copy of {folder}", folder=source.removeprefix(COPY_OF_FOLDER))
    if tool in TOOLS_OF_OWN_SOURCES:
        return translate_name("source of a stored output", source, otherwise=source)
    return source


def name_of_writer(tool: str) -> str:
    """What wrote an entry: words for a tool, or for what the program or the user stored."""
    words = words_for_tool(tool)
    name = translate_name("writer of a stored output", tool, otherwise=words)
    return make_safe_text(name[:LONGEST_TOOL])


def is_for_program_itself(row: EntryRow) -> bool:
    """Whether an entry was stored for a summary, or to give an imported history back to its agent."""
    is_lines_of_history = row.about.tool == IMPORT and row.about.source.startswith(LINES_OF_FILE)
    return is_lines_of_history or row.about.tool in set(FoldKind)


def is_document_of_user(row: EntryRow) -> bool:
    """Whether an entry is a document that the user attached, or the text that was read from it."""
    return row.about.tool == USER and find_kind_by_ending(row.about.source) is not None


def describe_kind_of_entry(row: EntryRow) -> str:
    """Names what wrote an entry. Where two entries have one origin, it says which of them this is:
    what a tool answered or the file that it wrote, a document or the text that was read from it.
    """
    name = name_of_writer(row.about.tool)
    if row.about.tool in TOOLS_THAT_WRITE_FILES:
        return translate_name("stored output that was found", row.about.tool, otherwise=name)
    kind = find_kind_by_ending(row.about.source)
    if kind is None or row.about.tool != USER:
        return name
    if row.stored.media_type == kind.media_type:
        return tr("Your file")
    if row.stored.media_type.startswith("text/"):
        return tr("Text of your file")
    return name


def _kind_in_cell(row: EntryRow, _now: float) -> str:
    return describe_kind_of_entry(row)


def _size(row: EntryRow, _now: float) -> str:
    return format_byte_size(row.stored.size)


def _tokens(row: EntryRow, _now: float) -> str:
    if not row.tokens:
        return "–"
    return format_token_count(row.tokens)


def _lines(row: EntryRow, _now: float) -> str:
    if not row.stored.lines:
        return "–"
    return format_number(row.stored.lines)


def _uses(row: EntryRow, _now: float) -> str:
    return format_number(row.uses)


def _time_stored(row: EntryRow, now: float) -> str:
    # An agent stores many versions of one file within a minute.
    is_version = row.about.tool == VERSION or row.about.tool in TOOLS_THAT_WRITE_FILES
    if is_version and now - row.time < SECONDS_OF_DAY:
        return format_time_with_seconds(row.time)
    return format_time_ago(row.time, now)


def _last_recall(row: EntryRow, now: float) -> str:
    if not row.recalled:
        return "–"
    return format_time_ago(row.recalled, now)


def _short_hash(row: EntryRow, _now: float) -> str:
    digits = row.stored.digest.hex
    return f"{digits[:8]}…{digits[-4:]}"


COLUMNS_OF_EARLIER_LAYOUTS = 8  # They did not say how many they had.
# From left to right. Saved layouts of the table know a column by its number, so a new one is last.
ENTRY_COLUMNS: Sequence[EntryColumn] = (
    EntryColumn(
        "source", lambda: tr("Origin"), _source_on_one_line, EntrySort.SOURCE, is_code=True
    ),
    EntryColumn("tool", lambda: tr("Tool"), _kind_in_cell, EntrySort.TOOL, 170, 128),
    EntryColumn(
        "size", lambda: tr("Size"), _size, EntrySort.SIZE, 100, 82, is_number=True, hidden_first=4
    ),
    EntryColumn(
        "tokens",
        lambda: tr("Tokens"),
        _tokens,
        EntrySort.TOKENS,
        106,
        88,
        is_number=True,
        hidden_first=2,
    ),
    EntryColumn(
        "uses",
        lambda: tr("Messages"),
        _uses,
        EntrySort.USES,
        110,
        96,
        is_number=True,
        hidden_first=1,
        hint=lambda: tr("In how many messages it was used"),
    ),
    EntryColumn(
        "time", lambda: tr("Stored"), _time_stored, EntrySort.TIME, 120, 112, is_muted=True
    ),
    EntryColumn(
        "recalled",
        lambda: tr("Last recalled"),
        _last_recall,
        EntrySort.RECALLED,
        128,
        98,
        is_muted=True,
        is_shown_at_first=False,
    ),
    # The viewer shows an entry's hash, too, and few people look for one.
    EntryColumn(
        "hash",
        lambda: tr("Hash"),
        _short_hash,
        EntrySort.HASH,
        160,
        132,
        is_code=True,
        hidden_first=3,
        is_shown_at_first=False,
    ),
    EntryColumn(
        "lines",
        lambda: tr("Lines"),
        _lines,
        None,
        90,
        70,
        is_number=True,
        is_shown_at_first=False,
    ),
)


def _build_order_of_hiding() -> list[int]:
    numbers: list[int] = []
    for number, column in enumerate(ENTRY_COLUMNS):
        if column.hidden_first:
            numbers.append(number)
    numbers.sort(key=lambda number: ENTRY_COLUMNS[number].hidden_first)
    return numbers


COLUMNS_HIDDEN_FIRST: Sequence[int] = _build_order_of_hiding()


def number_of_column(column_id: str) -> int:
    """Return where a column stands from the left, before the user moves it."""
    return [column.id for column in ENTRY_COLUMNS].index(column_id)


# The source is always shown, and takes the room that is left.
SOURCE_COLUMN = number_of_column("source")
