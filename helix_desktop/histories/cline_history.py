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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

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
from helix_desktop.json_values import number_at, object_at, objects_at, parse_json_or_none, text_at

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
_NOT_SAID = "<environment_details>", "# task_progress", "# TODO LIST", "# todo"


def read_cline_recordings(
    rows: Sequence[HistoryRow], report: ReadingReport, path: Path
) -> list[RecordedSession]:
    read = [list(_read_cline_row(row, report)) for row in _convert_tagged_calls_to_blocks(rows)]
    made = [message for each in read for message in each]
    beside = objects_at(_read_json_beside(path, "ui_messages.json"))
    begun = parse_time(int(path.parent.name)) if path.parent.name.isdecimal() else 0.0
    times = _build_time_spreader(beside, begun)
    timed = [
        replace(message, time=message.time or times(at, len(made)))
        for at, message in enumerate(made)
    ]
    title = next((text_at(one, "text") for one in beside if one.get("say") == "task"), "")
    folder = next(
        filter(None, (working_folder_in_cline_text(message.text) for message in made)), ""
    )
    session, parent, about = path.parent.name, "", read_about_cline_session(path)
    if path.name.startswith("agent_"):
        session, parent = f"{session}__{path.name.removesuffix(END_OF_NAME)}", session
    elif about:
        title, folder = text_at(about, "metadata", "title"), text_at(about, "cwd")
    version = text_at(about, "metadata", "sessionHistoryOrigin", "version") or _read_cline_version(
        path
    )
    told = (
        session,
        " ".join(title.split())[:60],
        folder,
        version,
        _compactions_from_cuts(beside, read, timed),
    )
    return [RecordedSession(str(path), tuple(timed), KIND, *told, parent=parent)]


def is_cline_file(path: Path) -> bool:
    session = path.name.removesuffix(END_OF_NAME)
    return path.name == NAME or (
        session != path.name and (session == path.parent.name or session.startswith("agent_"))
    )


def read_about_cline_session(path: Path) -> Mapping[str, object]:
    return object_at(_read_json_beside(path, f"{path.parent.name}.json"))


def working_folder_in_cline_text(text: str) -> str:
    found = _FOLDER.search(text)
    return found[1] if found else ""


def _call_at_end(text: str) -> tuple[str, str, str] | None:
    """Return what precedes the call at a text's end, the call's name, and the text
    between its tags.
    """
    closing = _CALL_END.search(text)
    begin = text.find(f"<{closing[1]}>\n", 0, closing.start()) if closing else -1
    if closing is None or begin < 0:
        return None
    return text[:begin], closing[1], text[begin + len(closing[1]) + 3 : closing.start()]


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
        if tag[1]:
            closings[tag[2]].popleft()  # It cannot close a later tag.
        elif tag.start() >= after and (own := closings.get(tag[2])):
            fields[tag[2]] = text[tag.end() : own[0].start()].strip("\n")
            after = own[0].end()
    return fields


def _convert_tagged_calls_to_blocks(rows: Sequence[HistoryRow]) -> list[HistoryRow]:
    """Return the rows with each call that is written as tags, and its result, in a
    block of its own.
    """
    values = [dict(row.value) for row in rows]
    for at, (asked, answered) in enumerate(pairwise(values)):
        blocks, back = objects_at(asked, "content"), objects_at(answered, "content")
        call = next(
            (
                (n, found)
                for n, one in enumerate(blocks)
                if (found := _call_at_end(text_at(one, "text")))
            ),
            None,
        )
        result = next(
            (
                (n, begins)
                for n, one in enumerate(back)
                if (begins := _RESULT.match(text_at(one, "text")))
            ),
            None,
        )
        if (
            asked.get("role") != "assistant"
            or call is None
            or result is None
            or call[1][1] != result[1][1]
        ):
            continue
        (place_of_call, (said, name, inside)), (place, begins) = call, result
        use = {
            "type": "tool_use",
            "id": f"cline_{at}",
            "name": name,
            "input": _fields_between_tags(inside),
        }
        words = {**blocks[place_of_call], "text": said}
        before = [words] if words["text"].strip() else []
        asked["content"] = [*blocks[:place_of_call], *before, use, *blocks[place_of_call + 1 :]]
        text = begins.string[begins.end() :]
        # Older versions of Cline put the output into a separate block.
        end = place + 1 if text else place + 2
        content = text or text_of_message_content(back[place + 1 : end])
        output = {"type": "tool_result", "tool_use_id": f"cline_{at}", "content": content}
        answered["content"] = [*back[:place], output, *back[end:]]
    return [HistoryRow(value, row.place) for value, row in zip(values, rows, strict=True)]


def _read_cline_row(row: HistoryRow, report: ReadingReport) -> Iterator[RecordedMessage]:
    """Yield what the user or the model wrote, and then what Cline added to it."""
    info, metrics = object_at(row.value, "modelInfo"), object_at(row.value, "metrics")
    tokens, value = object_at(metrics, "tokens"), dict(row.value)
    if info:
        read = number_at(tokens, "cached") or number_at(metrics, "cacheReadTokens")
        fresh = max(0, (number_at(tokens, "prompt") or number_at(metrics, "inputTokens")) - read)
        written = tokens.get("completion", metrics.get("outputTokens"))
        usage = {"input_tokens": fresh, "cache_read_input_tokens": read, "output_tokens": written}
        value |= {"model": text_at(info, "modelId") or text_at(info, "id"), "usage": usage}
    if value.get("role") == "user":
        value["content"] = [
            _without_cline_wrapping(one) for one in objects_at(value, "content")
        ] or value["content"]
    blocks = objects_at(value, "content") if value.get("role") == "user" else []
    added = [block for block in blocks if text_at(block, "text").lstrip().startswith(_NOT_SAID)]
    if added:
        value["content"] = [block for block in blocks if block not in added]
    yield from AnthropicMessages(report).read_rows([replace(row, value=value)]).made
    for block in added:
        yield RecordedMessage(
            "user", text_at(block, "text").strip(), time=parse_time(value.get("ts")), beside=True
        )


def _without_cline_wrapping(block: Mapping[str, object]) -> Mapping[str, object]:
    """Return what the user typed, or the outputs of a call that does several things at once."""
    if typed := _TYPED.fullmatch(text_at(block, "text")):
        return {**block, "text": typed[1]}
    if outputs := [one for one in objects_at(block, "content") if "result" in one]:
        content = [
            {"type": "text", "text": history_rows.format_arguments(one["result"])}
            for one in outputs
        ]
        return {
            **block,
            "content": content,
            "is_error": not all(one.get("success", True) for one in outputs),
        }
    return block


def _read_cline_version(path: Path) -> str:
    """Return the version of Cline that last worked on the task."""
    environments = objects_at(_read_json_beside(path, "task_metadata.json"), "environment_history")
    return text_at(environments[-1], "cline_version") if environments else ""


def _read_json_beside(path: Path, name: str) -> object:
    with suppress(OSError):
        return parse_json_or_none(read_file_below(path.parent, name).decode("utf-8", "replace"))
    return None


def _build_time_spreader(
    ui_messages: Sequence[Mapping[str, object]], begun: float
) -> Callable[[int, int], float]:
    """Return a function that spreads times evenly over the task, since the history
    contains none.
    """
    shown = [time for one in ui_messages if (time := parse_time(one.get("ts")))]
    first = shown[0] if shown else begun
    last = max(shown[-1] if shown else begun, first)
    return lambda at, count: first + (last - first) * at / max(1, count - 1)


def _compactions_from_cuts(
    shown: Sequence[Mapping[str, object]],
    by_row: Sequence[Sequence[RecordedMessage]],
    made: Sequence[RecordedMessage],
) -> tuple[RecordedCompaction, ...]:
    ranges = [one.get("conversationHistoryDeletedRange") for one in shown]
    found = [
        one
        for one in ranges
        if isinstance(one, list) and len(one) == 2 and all(isinstance(at, int) for at in one)
    ]
    if not found or not all(by_row):
        return ()
    kept = sum(map(len, by_row[: int(found[-1][1]) + 1]))
    return (
        RecordedCompaction(len(made), kept, CUT, made[-1].time if made else 0.0, "Cline cut here"),
    )
