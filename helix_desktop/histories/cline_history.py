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
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.histories import history_rows
from helix_desktop.histories.anthropic_history import AnthropicMessages
from helix_desktop.histories.companion_files import read_file_below
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
    list_at,
    number_at,
    object_at,
    objects_at,
    parse_json_or_none,
    text_at,
)

KIND = "cline"
NAME = "api_conversation_history.json"
END_OF_NAME = ".messages.json"
CUT = (
    "[Some earlier messages of this conversation were left out to keep within the context window.]"
)

_CALL_END = re.compile(r"</(\w+)>\s*\Z")
_TAG = re.compile(r"<(/?)(\w+)>")
_RESULT = re.compile(r"\[(\w+)[^\n]*\] Result:\n?")
_TYPED = re.compile(r'<user_input mode="\w*">(.*)</user_input>', re.DOTALL)
_FOLDER = re.compile(r"# Current Working Directory \((.{0,1024}?)\) Files")
# Cline adds texts that begin like this to the user's messages.
_NOT_SAID = ("<environment_details>", "# task_progress", "# TODO LIST", "# todo")


@dataclass(frozen=True, slots=True)
class TaggedCall:
    """A call that is written as tags at the end of the block at `place`, behind what was `said`."""

    place: int
    said: str
    tool: str
    inside: str  # The text between the tags.


@dataclass(frozen=True, slots=True)
class TaggedResult:
    """A result in the user's text, in the block at `place`."""

    place: int
    tool: str
    text: str


def read_cline_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    messages_by_row = [
        list(_read_cline_row(row, report)) for row in _convert_tagged_calls_to_blocks(rows)
    ]
    messages = [message for own in messages_by_row for message in own]
    beside = objects_at(_read_json_beside(path, "ui_messages.json"))
    begun = 0.0
    if path.parent.name.isdecimal():
        begun = parse_time(int(path.parent.name))
    timed = _with_spread_times(messages, beside, begun)
    session = RecordedSession(
        str(path),
        tuple(timed),
        KIND,
        path.parent.name,
        title=_title_from_cline_text(_task_shown(beside)),
        folder=_folder_in_messages(messages),
        compactions=_compactions_from_cuts(beside, messages_by_row, timed),
    )
    return [_with_description(session, path)]


def _with_description(session: RecordedSession, path: Path) -> RecordedSession:
    """Return the session with what its describing file says, and a sub-agent's with its parent."""
    about = read_about_cline_session(path)
    version = text_at(about, "metadata", "sessionHistoryOrigin", "version")
    session = replace(session, version=version or _read_cline_version(path))
    if path.name.startswith("agent_"):
        name = f"{session.session}__{path.name.removesuffix(END_OF_NAME)}"
        return replace(session, session=name, parent=session.session)
    if about:
        title = _title_from_cline_text(text_at(about, "metadata", "title"))
        return replace(session, title=title, folder=text_at(about, "cwd"))
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
    return object_at(_read_json_beside(path, f"{path.parent.name}.json"))


def working_folder_in_cline_text(text: str) -> str:
    folder = _FOLDER.search(text)
    if folder is None:
        return ""
    return folder[1]


def _fields_between_tags(text: str) -> dict[str, str]:
    """Return the content of each outermost pair of tags, by tag name, in one pass over all tags."""
    tags = list(_TAG.finditer(text))
    closings: dict[str, deque[re.Match[str]]] = {}
    for tag in tags:
        if tag[1]:
            closings.setdefault(tag[2], deque()).append(tag)
    fields: dict[str, str] = {}
    after = 0
    for tag in tags:
        name = tag[2]
        if tag[1]:
            closings[name].popleft()  # It cannot close a later tag.
            continue
        own_closings = closings.get(name)
        if tag.start() >= after and own_closings:
            closing = own_closings[0]
            fields[name] = text[tag.end() : closing.start()].strip("\n")
            after = closing.end()
    return fields


def _convert_tagged_calls_to_blocks(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the rows with each call that is written as tags, and its result, in a
    block of its own.
    """
    values = [dict(row.value) for row in rows]
    for number, (asked, answered) in enumerate(pairwise(values)):
        if asked.get("role") == "assistant":
            _convert_tagged_call_and_result(asked, answered, f"cline_{number}")
    return [HistoryRow(value, row.place) for value, row in zip(values, rows, strict=True)]


def _convert_tagged_call_and_result(
    asked: dict[str, object], answered: dict[str, object], call_id: str
) -> None:
    """Change a reply that ends in a tagged call, and the user's message with its result."""
    blocks = objects_at(asked, "content")
    back = objects_at(answered, "content")
    call = _find_tagged_call(blocks)
    result = _find_tagged_result(back)
    if call is None or result is None or call.tool != result.tool:
        return
    called: list[Mapping[str, object]] = []
    if call.said.strip():
        called.append({**blocks[call.place], "text": call.said})
    fields = _fields_between_tags(call.inside)
    called.append({"type": "tool_use", "id": call_id, "name": call.tool, "input": fields})
    asked["content"] = blocks[: call.place] + called + blocks[call.place + 1 :]
    end = result.place + 1
    content: object = result.text
    if not result.text:
        # Older versions of Cline put the output into a separate block.
        content = text_of_message_content(back[end : end + 1])
        end += 1
    output: Mapping[str, object] = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
    }
    answered["content"] = [*back[: result.place], output, *back[end:]]


def _find_tagged_call(blocks: Sequence[Mapping[str, object]]) -> TaggedCall | None:
    """Return the first call that stands as tags at the end of a text."""
    for place, block in enumerate(blocks):
        text = text_at(block, "text")
        closing = _CALL_END.search(text)
        if closing is None:
            continue
        tool = closing[1]
        begin = text.find(f"<{tool}>\n", 0, closing.start())
        if begin >= 0:
            inside = text[begin + len(tool) + 3 : closing.start()]
            return TaggedCall(place, text[:begin], tool, inside)
    return None


def _find_tagged_result(blocks: Sequence[Mapping[str, object]]) -> TaggedResult | None:
    for place, block in enumerate(blocks):
        text = text_at(block, "text")
        beginning = _RESULT.match(text)
        if beginning is not None:
            return TaggedResult(place, beginning[1], text[beginning.end() :])
    return None


def _read_cline_row(row: HistoryRow, report: ReadingReport) -> Iterator[RecordedMessage]:
    """Yield what the user or the model wrote, and then what Cline added to it."""
    value = {**row.value, **_model_and_usage_of_row(row.value)}
    added: list[Mapping[str, object]] = []
    blocks = objects_at(value, "content")
    if value.get("role") == "user" and blocks:
        said: list[Mapping[str, object]] = []
        for block in map(_without_cline_wrapping, blocks):
            is_added = text_at(block, "text").lstrip().startswith(_NOT_SAID)
            (added if is_added else said).append(block)
        value["content"] = said
    messages = AnthropicMessages(report).read_rows([replace(row, value=value)])
    yield from messages.made
    for block in added:
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
    read = number_at(tokens, "cached") or number_at(metrics, "cacheReadTokens")
    prompt = number_at(tokens, "prompt") or number_at(metrics, "inputTokens")
    usage = {
        "input_tokens": max(0, prompt - read),
        "cache_read_input_tokens": read,
        "output_tokens": tokens.get("completion", metrics.get("outputTokens")),
    }
    return {"model": text_at(info, "modelId") or text_at(info, "id"), "usage": usage}


def _without_cline_wrapping(block: Mapping[str, object]) -> Mapping[str, object]:
    """Return what the user typed, or the outputs of a call that does several things at once."""
    typed = _TYPED.fullmatch(text_at(block, "text"))
    if typed is not None:
        return {**block, "text": typed[1]}
    outputs = [output for output in objects_at(block, "content") if "result" in output]
    if not outputs:
        return block
    content = []
    is_error = False
    for output in outputs:
        content.append({"type": "text", "text": history_rows.format_arguments(output["result"])})
        is_error = is_error or not output.get("success", True)
    return {**block, "content": content, "is_error": is_error}


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
    begun: float,
) -> list[RecordedMessage]:
    """Return the messages with times spread evenly over the task, since older histories contain
    none.
    """
    shown: list[float] = []
    for ui_message in ui_messages:
        time = parse_time(ui_message.get("ts"))
        if time:
            shown.append(time)
    first = begun
    last = begun
    if shown:
        first = shown[0]
        last = max(shown[-1], first)
    pause = (last - first) / max(1, len(messages) - 1)
    return [
        replace(message, time=message.time or first + position * pause)
        for position, message in enumerate(messages)
    ]


def _compactions_from_cuts(
    shown: Sequence[Mapping[str, object]],
    by_row: Sequence[Sequence[RecordedMessage]],
    made: Sequence[RecordedMessage],
) -> tuple[RecordedCompaction, ...]:
    """Return the last cut. Cline leaves out a range of rows, and keeps the task before it."""
    cuts = [
        message["conversationHistoryDeletedRange"]
        for message in shown
        if _has_deleted_range(message)
    ]
    if not cuts or not all(by_row):
        return ()
    first_row, last_row = list_at(cuts[-1])
    keep = sum(map(len, by_row[: last_row + 1]))
    texts: list[str] = []
    for row_messages in by_row[:first_row]:
        for message in row_messages:
            if message.role == "user" and not message.beside:
                texts.append(message.text)
    texts.append(CUT)
    time = made[-1].time if made else 0.0
    return (RecordedCompaction(len(made), keep, "\n\n".join(texts), time, "Cline cut here"),)


def _has_deleted_range(ui_message: Mapping[str, object]) -> bool:
    deleted = ui_message.get("conversationHistoryDeletedRange")
    if not isinstance(deleted, list) or len(deleted) != 2:
        return False
    return all(isinstance(row, int) for row in deleted)
