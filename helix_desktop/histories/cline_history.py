"""Tasks of Cline: `…/saoudrizwan.claude-dev/tasks/<id>/api_conversation_history.json`,
in Anthropic's format.

Tested with files of its command line 2.18.0. Since 3.0 (tested: 3.0.65), it keeps
`.cline/data/sessions/<id>/<id>.messages.json` instead, with a file of its own for each
sub-agent and `<id>.json`, which describes the session. Most models are asked to write
calls as tags, and get results in the user's text; both are read as calls and results.
What Cline cut out of a long task is in `ui_messages.json` as a range of messages, and
becomes a fold (not tested with real files).
"""

import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.anthropic_history import AnthropicMessages
from helix_desktop.histories.companion_files import list_files_below, read_file_below
from helix_desktop.histories.history_format import HistoryFormat, HistoryPlaces
from helix_desktop.histories.history_rows import (
    HistoryRow,
    ReadingReport,
    parse_time,
    text_of_message_content,
)
from helix_desktop.histories.recorded_session import (
    RecordedCompaction,
    RecordedMessage,
    RecordedSession,
)
from helix_desktop.json_values import (
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "cline"
NAME = "api_conversation_history.json"
END_OF_NAME = ".messages.json"
SUBAGENT_FILE = "agent_*"
CUT = (
    "[Some earlier messages of this conversation were left out to keep within the context window.]"
)

_EDITORS = ("Code", "Code - Insiders", "VSCodium", "Cursor", "Windsurf")
_CALL_END = re.compile(r"</(\w+)>\s*\Z")
_TAG = re.compile(r"<(?P<slash>/?)(?P<name>\w+)>")
_RESULT = re.compile(r"\[(\w+)[^\n]*\] Result:\n?")
_USER_INPUT = re.compile(r'<user_input mode="\w*">(.*)</user_input>', re.DOTALL)
_FOLDER = re.compile(r"# Current Working Directory \((.{0,1024}?)\) Files")
# Cline adds texts that begin like this to the user's messages.
_NOT_SAID = ("<environment_details>", "# task_progress", "# TODO LIST", "# todo")


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """A call that is written as tags at the end of a block, behind other words of the model."""

    block_number: int
    words_before: str
    tool: str
    tagged_text: str  # The text between the tags.


@dataclass(frozen=True, slots=True)
class TaggedResult:
    """A result at the beginning of a block of the user's message."""

    block_number: int
    tool: str
    text: str


def read_cline_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    """Return the session of one file. What Cline showed in its window is in a file beside it.

    Messages are also kept by the row that they come from, because Cline says by the numbers of rows
    which it has cut out of a long task.
    """
    messages_by_row: list[list[RecordedMessage]] = []
    messages: list[RecordedMessage] = []
    for row in _convert_tagged_calls_to_blocks(rows):
        messages_of_row = list(_read_cline_row(row, report))
        messages_by_row.append(messages_of_row)
        messages.extend(messages_of_row)
    ui_messages = objects_at(_read_json_beside(path, "ui_messages.json"))
    task_time = 0.0
    if path.parent.name.isdecimal():
        # A task's folder is named by the milliseconds at which it began.
        task_time = parse_time(int(path.parent.name))
    timed_messages = _with_spread_times(messages, ui_messages, task_time)
    title = _title_from_cline_text(_task_shown(ui_messages))
    folder = _folder_in_messages(messages)
    compactions = _compactions_from_cuts(ui_messages, messages_by_row, timed_messages)
    session = RecordedSession(
        name=str(path),
        messages=tuple(timed_messages),
        kind=KIND,
        session=path.parent.name,
        title=title,
        folder=folder,
        compactions=compactions,
    )
    return [_with_description(session, path)]


def _with_description(session: RecordedSession, path: Path) -> RecordedSession:
    """Return the session with what its describing file says, and a sub-agent's with its parent."""
    description = read_about_cline_session(path)
    version = text_at(description, "metadata", "sessionHistoryOrigin", "version")
    session = replace(session, version=version or _read_cline_version(path))
    if path.name.startswith("agent_"):
        name = f"{session.session}__{path.name.removesuffix(END_OF_NAME)}"
        return replace(session, session=name, parent=session.session)
    if description:
        title = _title_from_cline_text(text_at(description, "metadata", "title"))
        return replace(session, title=title, folder=text_at(description, "cwd"))
    return session


def _title_from_cline_text(text: str) -> str:
    return " ".join(text.split())[:60]


def _task_shown(ui_messages: Sequence[Mapping[str, object]]) -> str:
    for message in ui_messages:
        if message.get("say") == "task":
            return text_at(message, "text")
    return ""


def _folder_in_messages(messages: Sequence[RecordedMessage]) -> str:
    for message in messages:
        folder = working_folder_in_cline_text(message.text)
        if folder:
            return folder
    return ""


def is_cline_file(path: Path) -> bool:
    if path.name == NAME:
        return True
    if not path.name.endswith(END_OF_NAME):
        return False
    session = path.name.removesuffix(END_OF_NAME)
    return session == path.parent.name or session.startswith("agent_")


def read_about_cline_session(path: Path) -> Mapping[str, object]:
    """Return what the file beside it says about the session, or nothing for older versions."""
    return object_at(_read_json_beside(path, f"{path.parent.name}.json"))


def working_folder_in_cline_text(text: str) -> str:
    folder = _FOLDER.search(text)
    if folder is None:
        return ""
    return folder[1]


def _fields_between_tags(text: str) -> dict[str, str]:
    """Return the content of each outermost pair of tags, by tag name, in one pass over all tags."""
    tags = list(_TAG.finditer(text))
    closing_tags: dict[str, deque[re.Match[str]]] = {}
    for tag in tags:
        if tag["slash"]:
            closing_tags.setdefault(tag["name"], deque()).append(tag)
    fields: dict[str, str] = {}
    end_of_last_field = 0
    for tag in tags:
        name = tag["name"]
        if tag["slash"]:
            closing_tags[name].popleft()  # It cannot close a later tag.
            continue
        later_closing_tags = closing_tags.get(name)
        is_outermost = tag.start() >= end_of_last_field
        if is_outermost and later_closing_tags:
            closing_tag = later_closing_tags[0]
            fields[name] = text[tag.end() : closing_tag.start()].strip("\n")
            end_of_last_field = closing_tag.end()
    return fields


def _convert_tagged_calls_to_blocks(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the rows with each call that is written as tags, and its result, in a
    block of its own.
    """
    values = [dict(row.value) for row in rows]
    for number, (message, next_message) in enumerate(pairwise(values)):
        if message.get("role") == "assistant":
            _convert_tagged_call_and_result(message, next_message, f"cline_{number}")
    return [HistoryRow(value, row.place) for value, row in zip(values, rows, strict=True)]


def _convert_tagged_call_and_result(
    reply: dict[str, object], user_message: dict[str, object], call_id: str
) -> None:
    """Change a reply that ends in a tagged call, and the user's message with its result."""
    reply_blocks = objects_at(reply, "content")
    user_blocks = objects_at(user_message, "content")
    call = _find_tagged_call(reply_blocks)
    result = _find_tagged_result(user_blocks)
    if call is None or result is None or call.tool != result.tool:
        return

    new_reply_blocks = list(reply_blocks[: call.block_number])
    if call.words_before.strip():
        text_block = dict(reply_blocks[call.block_number])
        text_block["text"] = call.words_before
        new_reply_blocks.append(text_block)
    fields = _fields_between_tags(call.tagged_text)
    new_reply_blocks.append({"type": "tool_use", "id": call_id, "name": call.tool, "input": fields})
    new_reply_blocks.extend(reply_blocks[call.block_number + 1 :])
    reply["content"] = new_reply_blocks

    output: object = result.text
    blocks_behind_result = user_blocks[result.block_number + 1 :]
    if not result.text:
        # Older versions of Cline put the output into a separate block.
        output = text_of_message_content(blocks_behind_result[:1])
        blocks_behind_result = blocks_behind_result[1:]
    new_user_blocks = list(user_blocks[: result.block_number])
    new_user_blocks.append({"type": "tool_result", "tool_use_id": call_id, "content": output})
    new_user_blocks.extend(blocks_behind_result)
    user_message["content"] = new_user_blocks


def _find_tagged_call(blocks: Sequence[Mapping[str, object]]) -> TaggedCall | None:
    """Return the first call that stands as tags at the end of a text."""
    for block_number, block in enumerate(blocks):
        text = text_at(block, "text")
        closing_tag = _CALL_END.search(text)
        if closing_tag is None:
            continue
        tool = closing_tag[1]
        words_before, opening_tag, tagged_text = text[: closing_tag.start()].partition(
            f"<{tool}>\n"
        )
        if opening_tag:
            return TaggedCall(block_number, words_before, tool, tagged_text)
    return None


def _find_tagged_result(blocks: Sequence[Mapping[str, object]]) -> TaggedResult | None:
    """Return the first result that stands, after its heading, in a text."""
    for block_number, block in enumerate(blocks):
        text = text_at(block, "text")
        heading = _RESULT.match(text)
        if heading is not None:
            return TaggedResult(block_number, tool=heading[1], text=text[heading.end() :])
    return None


def _read_cline_row(row: HistoryRow, report: ReadingReport) -> Iterator[RecordedMessage]:
    """Yield what the user or the model wrote, and then what Cline added to it."""
    value = dict(row.value)
    value.update(_model_and_usage_of_row(row.value))
    added_blocks: list[Mapping[str, object]] = []
    blocks = objects_at(value, "content")
    if value.get("role") == "user" and blocks:
        user_blocks: list[Mapping[str, object]] = []
        for wrapped_block in blocks:
            block = _without_cline_wrapping(wrapped_block)
            if text_at(block, "text").lstrip().startswith(_NOT_SAID):
                added_blocks.append(block)
            else:
                user_blocks.append(block)
        value["content"] = user_blocks
    row_without_additions = replace(row, value=value)
    reader = AnthropicMessages(report).read_rows([row_without_additions])
    yield from reader.messages
    for block in added_blocks:
        text = text_at(block, "text").strip()
        yield RecordedMessage("user", text, time=parse_time(value.get("ts")), beside=True)


def _model_and_usage_of_row(value: Mapping[str, object]) -> dict[str, object]:
    """Return a reply's model and usage under Anthropic's names, in which two versions of Cline
    have theirs.
    """
    info = object_at(value, "modelInfo")
    if not info:
        return {}
    metrics = object_at(value, "metrics")
    tokens = object_at(metrics, "tokens")
    cached_tokens = number_at(tokens, "cached") or number_at(metrics, "cacheReadTokens")
    prompt_tokens = number_at(tokens, "prompt") or number_at(metrics, "inputTokens")
    # Cline counts the cached tokens among those of the prompt, Anthropic does not.
    uncached_tokens = max(0, prompt_tokens - cached_tokens)
    output_tokens = tokens.get("completion", metrics.get("outputTokens"))
    usage = {
        "input_tokens": uncached_tokens,
        "cache_read_input_tokens": cached_tokens,
        "output_tokens": output_tokens,
    }
    model = text_at(info, "modelId") or text_at(info, "id")
    return {"model": model, "usage": usage}


def _without_cline_wrapping(block: Mapping[str, object]) -> Mapping[str, object]:
    """Return what the user typed, or the outputs of a call that does several things at once."""
    unwrapped_block = dict(block)
    user_input = _USER_INPUT.fullmatch(text_at(block, "text"))
    if user_input is not None:
        unwrapped_block["text"] = user_input[1]
        return unwrapped_block

    content: list[Mapping[str, object]] = []
    is_error = False
    for output in objects_at(block, "content"):
        if "result" not in output:
            continue
        text = history_rows.format_arguments(output["result"])
        content.append({"type": "text", "text": text})
        if not output.get("success", True):
            is_error = True
    if content:
        unwrapped_block["content"] = content
        unwrapped_block["is_error"] = is_error
    return unwrapped_block


def _read_cline_version(path: Path) -> str:
    """Return the version of Cline that last worked on the task."""
    environments = objects_at(_read_json_beside(path, "task_metadata.json"), "environment_history")
    if not environments:
        return ""
    return text_at(environments[-1], "cline_version")


def _read_json_beside(path: Path, name: str) -> object:
    with suppress(OSError):
        return parse_json_or_none(read_file_below(path.parent, name).decode("utf-8", "replace"))
    return None


def _with_spread_times(
    messages: Sequence[RecordedMessage],
    ui_messages: Sequence[Mapping[str, object]],
    task_time: float,
) -> list[RecordedMessage]:
    """Return the messages with times spread evenly over the task, since older histories contain
    none.
    """
    ui_times: list[float] = []
    for ui_message in ui_messages:
        time = parse_time(ui_message.get("ts"))
        if time:
            ui_times.append(time)
    first_time = task_time
    last_time = task_time
    if ui_times:
        first_time = ui_times[0]
        last_time = max(ui_times[-1], first_time)
    pause = (last_time - first_time) / max(1, len(messages) - 1)
    timed_messages: list[RecordedMessage] = []
    for position, message in enumerate(messages):
        time = message.time or first_time + position * pause
        timed_messages.append(replace(message, time=time))
    return timed_messages


def _compactions_from_cuts(
    ui_messages: Sequence[Mapping[str, object]],
    messages_by_row: Sequence[Sequence[RecordedMessage]],
    messages: Sequence[RecordedMessage],
) -> tuple[RecordedCompaction, ...]:
    """Return the last cut as a compaction. Cline leaves out a range of rows, and keeps the task
    before it, which is repeated in the compaction's text.
    """
    deleted_rows = _find_last_deleted_rows(ui_messages)
    # If a row gave no message, the numbers in the range do not fit these rows.
    if deleted_rows is None or not all(messages_by_row):
        return ()

    first_kept = 0
    for messages_of_row in messages_by_row[: deleted_rows.last + 1]:
        first_kept += len(messages_of_row)
    texts_before_cut: list[str] = []
    for messages_of_row in messages_by_row[: deleted_rows.first]:
        for message in messages_of_row:
            if message.role == "user" and not message.beside:
                texts_before_cut.append(message.text)
    time = 0.0
    if messages:
        time = messages[-1].time
    compaction = RecordedCompaction(
        at=len(messages),
        keep=first_kept,
        text="\n\n".join(texts_before_cut + [CUT]),
        time=time,
        why="Cline cut here",
    )
    return (compaction,)


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The numbers of the first and the last row that Cline leaves out."""

    first: int
    last: int


def _find_last_deleted_rows(ui_messages: Sequence[Mapping[str, object]]) -> DeletedRows | None:
    for ui_message in reversed(ui_messages):
        deleted_rows = _parse_deleted_rows(ui_message)
        if deleted_rows is not None:
            return deleted_rows
    return None


def _parse_deleted_rows(ui_message: Mapping[str, object]) -> DeletedRows | None:
    row_numbers = ui_message.get("conversationHistoryDeletedRange")
    if not isinstance(row_numbers, list) or len(row_numbers) != 2:
        return None
    first, last = row_numbers
    if not isinstance(first, int) or not isinstance(last, int):
        return None
    return DeletedRows(first, last)


# --- Where its tasks are


def _list_cline_folders(places: HistoryPlaces) -> Sequence[Path]:
    """Return Cline's own folders in newer versions, and those in its editors' data."""
    own_data = places.home / ".cline" / "data"
    folders = [own_data / "tasks", own_data / "sessions"]
    editors_data = _folder_of_editors_data(places)
    for editor in _EDITORS:
        extension_data = editors_data / editor / "User" / "globalStorage" / "saoudrizwan.claude-dev"
        folders.append(extension_data / "tasks")
    return folders


def _folder_of_editors_data(places: HistoryPlaces) -> Path:
    if sys.platform == "darwin":
        return places.home / "Library" / "Application Support"
    if sys.platform == "win32":
        return places.folder_from_variable("APPDATA", "AppData", "Roaming")
    return places.folder_from_variable("XDG_CONFIG_HOME", ".config")


def _is_main_cline_session(file: Path) -> bool:
    return not file.match(SUBAGENT_FILE)


def _list_cline_subagents(file: Path) -> Sequence[Path]:
    if not file.name.endswith(END_OF_NAME) or not _is_main_cline_session(file):
        return ()
    return list_files_below(file.parent, f"{SUBAGENT_FILE}{END_OF_NAME}")


def _read_working_folder(file: Path, beginning: bytes) -> str:
    folder = text_at(read_about_cline_session(file), "cwd")
    if folder:
        return folder
    return working_folder_in_cline_text(beginning.decode("utf-8", "replace"))


FORMAT = HistoryFormat(
    KIND,
    read=read_cline_recordings,
    recognizes_file=is_cline_file,
    folders=_list_cline_folders,
    file_pattern="*.json",
    holds_session=is_cline_file,
    is_main_session=_is_main_cline_session,
    list_subagents=_list_cline_subagents,
    working_folder=_read_working_folder,
)
