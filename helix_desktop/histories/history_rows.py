"""Rows of a recorded history: reads their values, whatever they are, and reports
unreadable rows.
"""

import base64
import binascii
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import field
from datetime import UTC, datetime
from typing import Self

from helix_desktop.engine.facts import ToolCall
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedPicture,
)
from helix_desktop.histories.unknown_shapes import (
    describe_unknown_shapes,
    is_known_note,
    is_row_of_notes,
    unknown_fields,
)
from helix_desktop.json_values import object_at, objects_at, text_at

_JSON = json.JSONEncoder(ensure_ascii=False, default=str)  # A row of a database may have bytes.
NO_MESSAGES = ": these lines are not part of the conversation"
NOT_JSON = "this is not a JSON object"
CUT_OFF = "the last line is cut off; everything before it was read."
LATEST = 253402300799.0  # The year 9999, where Python's calendar ends.
# The kinds of parts that some reader knows. Gemini's parts have a field of this name, no type.
_KNOWN_PART = re.compile(
    r"(?:input_|output_|reasoning_)?text|refusal|(?:input_)?image(?:_url)?|inlineData"
    r"|document|thought|(?:redacted_)?thinking|redactedThinking|(?:server_"
    r"|mcp_)?tool_use|tool_result|toolCall|toolRe(?:quest|sponse)|frontendToolRequest"
    r"|toolConfirmationRequest|function(?:Call|Response)"
)


class UnreadableRow(Exception):
    """A row cannot be read. The message says why, and is shown behind the row's place."""


class UnknownRow(UnreadableRow):
    """A row is of a kind that its program was not seen to write."""


@dataclass(frozen=True, slots=True)
class HistoryRow:
    """`place` names file and line for people. `line`: the original line of a file, if it is one."""

    value: Mapping[str, object]
    place: str
    line: bytes = b""


@dataclass(slots=True)
class ReadingReport:
    """Complaints about unreadable rows. `left_out`: other rows by kind. `unread`: the
    lines of both.
    """

    complaints: list[str] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    unread: list[bytes] = field(default_factory=list)
    kept_rows: set[tuple[str, bytes]] = field(default_factory=set)  # Places and lines in it.
    row: HistoryRow = HistoryRow({}, "", b"none")  # The one that is being read.
    shape: str = ""  # Whose rows they are, by its name in the table of known shapes.
    version: str = ""  # The version of the program that wrote them, if it says so.
    unknown: Counter[str] = field(default_factory=Counter)  # What that program was not seen with.
    unknown_tables: Counter[str] = field(default_factory=Counter)  # By name: how many rows.
    # Whether a whole line is unreadable, not one that the agent is still writing.
    is_damaged: bool = False
    # Whether the file ends within a message, as a crash leaves it.
    is_cut_off: bool = False
    # By complaint about a line that is not JSON: what to say of it below the file's name.
    words_on_lines: dict[str, str] = field(default_factory=dict)

    def add_left_out_row(self, kind: str, value: Mapping[str, object] | None = None) -> None:
        self.left_out[kind] += 1
        if not is_known_note(self.shape, kind):
            self.unknown[kind] += 1
        row = self.row
        if value is not None:
            row = HistoryRow(value, "")
        self._append_unread_row(row)

    def keep_row_as_it_is(self) -> None:
        """Keep the line of a row that was read, because its message does not have all of it."""
        self._append_unread_row(self.row)

    def note_unknown_fields(self, row: HistoryRow) -> None:
        """Count the fields of a row that its program was not seen with, and keep the row."""
        if is_row_of_notes(self.shape, row.value):
            return
        names = unknown_fields(self.shape, row.value)
        if names:
            self.unknown.update(f"the field {name}" for name in names)
            self._append_unread_row(row)

    def note_unknown_tables(self, rows_by_table: Mapping[str, int]) -> None:
        """Note tables that the program's database was not seen with, if they have rows."""
        for table, rows in rows_by_table.items():
            if rows:
                self.unknown_tables[f"the table {table}"] = rows

    def note_unknown_columns(self, table: str, columns: Iterable[str]) -> None:
        """Note columns of a table that the program's database was not seen with."""
        for column in columns:
            self.unknown_tables[f"the column {column} of the table {table}"] = 1

    def sentences_about_unknown(self) -> Iterator[str]:
        if self.unknown:
            yield describe_unknown_shapes(self.shape, self.version, self.unknown)
        if self.unknown_tables:
            yield describe_unknown_shapes(
                self.shape, self.version, self.unknown_tables, is_kept=False
            )

    def complain_about_line(self, file: str, number: int, line: bytes) -> None:
        """Complain about a line that is not a JSON object."""
        row = HistoryRow({}, f"{file}, line {number}", line)
        # Only the last line of a file can lack its end.
        has_end = line.endswith(b"\n")
        is_beginning_of_object = line.startswith(b"{") or not line.strip(b"\0")
        if number > 1 and not has_end and is_beginning_of_object:
            self.is_cut_off = True
            self.complaints.append(f"{file}: {CUT_OFF}")
            return
        self.complain_about_row(row, NOT_JSON)
        self.words_on_lines[self.complaints[-1]] = f"Line {number} is not JSON."

    def complain_about_row(self, row: HistoryRow, why: object) -> None:
        self.complaints.append(f"{row.place}: {why}; the line was left out.")
        if isinstance(why, UnknownRow) and self.shape:
            self.unknown[str(why).removeprefix("there is no ")] += 1
        self.is_damaged |= not row.line or row.line.endswith(b"\n")
        self._append_unread_row(row)

    def _append_unread_row(self, row: HistoryRow) -> None:
        """Keep its line, or the value of a row that is not a line of a file, once."""
        if row.line and row.place:
            if (row.place, row.line) in self.kept_rows:
                return
            self.kept_rows.add((row.place, row.line))
        with suppress(RecursionError):
            line = row.line or _JSON.encode(row.value).encode("utf-8", "replace") + b"\n"
            if line.endswith(b"\n"):  # Without a line end, the agent is still writing it.
                self.unread.append(line.rstrip(b"\r\n"))

    def complaint_sentences(self, history_name: str) -> tuple[str, ...]:
        if not self.left_out:
            return tuple(self.complaints)
        kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(self.left_out.items()))
        sentence = f"{history_name}{NO_MESSAGES}, and are kept in the cache as they are: {kinds}."
        return (*self.complaints, sentence)


@dataclass(slots=True)
class HistoryMessages:
    """The messages of the rows read so far. Each format has a subclass, with a `read_row`."""

    report: ReadingReport
    messages: list[RecordedMessage] = field(default_factory=list)
    compactions: list[RecordedCompaction] = field(default_factory=list)

    def read_rows(self, rows: Iterable[HistoryRow]) -> Self:
        for row in rows:
            self.report.row = row
            try:
                self.read_row(row.value)
                self.report_unknown_parts(row.value)
            except UnreadableRow as error:
                self.report.complain_about_row(row, error)
        return self

    def report_unknown_parts(self, value: Mapping[str, object]) -> None:
        """Report parts of a row's message that are of no kind that a reader knows."""
        holder = object_at(value, "message") or object_at(value, "payload") or value
        for part in objects_at(holder.get("content")):
            # Gemini's parts have no type, but a field of that name.
            kinds = list(part)
            if "type" in part:
                kinds = [str(part["type"])]
            known_kinds = [kind for kind in kinds if _KNOWN_PART.fullmatch(kind)]
            if not known_kinds:
                self.report.add_left_out_row(f"part {' '.join(kinds)[:80]}")

    def read_row(self, value: Mapping[str, object]) -> None:
        raise NotImplementedError

    def add_user_message(self, content: object, time: float, *, beside: bool = False) -> None:
        """Add a user's message if it has text or a picture. `beside`: as in `RecordedMessage`."""
        text, pictures = text_and_pictures(content)
        if text.strip() or pictures:
            self.messages.append(
                RecordedMessage("user", text, time=time, pictures=pictures, beside=beside)
            )

    def add_compaction(self, text: str, time: float, why: str, keep: int | None = None) -> None:
        """Add a summary, which replaces what came before it, or before the message `keep`."""
        position = len(self.messages)
        if keep is None:
            keep = position
        compaction = RecordedCompaction(at=position, keep=keep, text=text, time=time, why=why)
        self.compactions.append(compaction)


def text_of_message_content(content: object) -> str:
    """Return the text of a string or a list of parts. Pictures and files become short notes."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return text_of_message_content([content])
    if isinstance(content, list):
        texts = [_text_or_placeholder_of_part(part) for part in content]
        return join_nonempty_texts(texts, "\n")
    raise UnreadableRow(
        f"a content of type {type(content).__name__} is neither text nor a list of parts"
    )


def join_nonempty_texts(texts: Iterable[str], separator: str) -> str:
    return separator.join(text for text in texts if text)


def checked_tool_call(call_id: str, name: str, arguments: object) -> ToolCall:
    if not call_id or not name:
        raise UnreadableRow("a call has no id or no name")
    return ToolCall(call_id, name, format_arguments(arguments))


def format_arguments(value: object) -> str:
    """Return the arguments of a call as JSON text, which some programs write already."""
    if isinstance(value, str):
        return value
    if value is None:
        return "{}"
    return _JSON.encode(value)


def cost_or_zero(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    if not 0 <= value < 1e9:
        return 0.0
    return float(value)


def parse_time(value: object) -> float:
    """Return seconds since 1970 from an ISO date, seconds, milliseconds or microseconds, or 0."""
    if isinstance(value, str):
        return _parse_iso_time(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    if not 0 < value < 1e17:
        return 0.0
    # 1e11 seconds are some 3,000 years, so a greater value has a smaller unit.
    for units_a_second in (1, 1_000, 1_000_000):
        seconds = value / units_a_second
        if seconds < 1e11:
            return min(seconds, LATEST)
    return 0.0


def _parse_iso_time(text: str) -> float:
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, moment.timestamp())
    except (ValueError, OverflowError):
        return 0.0


def decode_picture(media_type: object, data: object, name: str = "") -> RecordedPicture | None:
    """Return a picture from base64 text, or None."""
    if not isinstance(data, str) or not data:
        return None
    try:
        content = base64.b64decode(data, validate=True)
    except (ValueError, binascii.Error):
        return None
    if not isinstance(media_type, str) or not media_type:
        media_type = "application/octet-stream"
    return RecordedPicture(media_type, content, name)


def picture_from_data_url(url: object) -> RecordedPicture | None:
    if not isinstance(url, str) or not url.startswith("data:"):
        return None
    header, _, data = url.partition(",")
    if not header.endswith(";base64"):
        return None
    media_type, _, _ = header.removeprefix("data:").partition(";")
    return decode_picture(media_type, data)


def pictures_in_content(content: object) -> tuple[RecordedPicture, ...]:
    """Return the pictures and documents in a content, in the form of any protocol."""
    pictures: list[RecordedPicture] = []
    for part in _content_parts(content):
        picture = _picture_of_part(part)
        if picture is not None:
            pictures.append(picture)
    return tuple(pictures)


def text_and_pictures(content: object) -> tuple[str, tuple[RecordedPicture, ...]]:
    """Return a content's text and pictures. Only unreadable pictures leave a note in the text."""
    pictures: list[RecordedPicture] = []
    other_parts: list[object] = []
    for part in _content_parts(content):
        picture = _picture_of_part(part)
        if picture is None:
            other_parts.append(part)
        else:
            pictures.append(picture)
    if not pictures:
        return text_of_message_content(content), ()
    return text_of_message_content(other_parts), tuple(pictures)


def read_tool_result(
    block: Mapping[str, object], time: float, call_field: str, failed_field: str
) -> RecordedMessage:
    """Return a result. `call_field`: the field with its call's id. `failed_field`: the
    field that says whether it failed.
    """
    call_id = text_at(block, call_field)
    if not call_id:
        raise UnreadableRow("a tool result names no call")
    text, pictures = text_and_pictures(block.get("content"))
    is_ok = not block.get(failed_field)
    return RecordedMessage("tool", text, answers=call_id, ok=is_ok, time=time, pictures=pictures)


def _content_parts(content: object) -> Sequence[object]:
    if isinstance(content, list):
        return content
    if isinstance(content, Mapping):
        return [content]
    return []


def _picture_of_part(part: object) -> RecordedPicture | None:
    """Return the picture or document in a part, in the form of any protocol, or None."""
    if not isinstance(part, Mapping):
        return None
    source = object_at(part, "source")
    if source:
        return decode_picture(source.get("media_type"), source.get("data"), text_at(part, "title"))
    inline = object_at(part, "inlineData")
    if inline:
        return decode_picture(inline.get("mimeType"), inline.get("data"))
    if part.get("type") == "image":
        return decode_picture(part.get("mimeType"), part.get("data"))
    url = part.get("image_url", part.get("url"))
    if isinstance(url, Mapping):
        url = url.get("url")
    return picture_from_data_url(url)


def _text_or_placeholder_of_part(part: object) -> str:
    """Return a part's text, or its kind in brackets if it has none."""
    if isinstance(part, str):
        return part
    if not isinstance(part, Mapping):
        raise UnreadableRow("a part of the content is neither a text nor an object")
    for name in ("text", "input_text", "output_text", "refusal", "content"):
        text = part.get(name)
        if isinstance(text, str):
            return text
    kind = part.get("type")
    if not isinstance(kind, str):
        return ""
    return f"[{kind}]"
