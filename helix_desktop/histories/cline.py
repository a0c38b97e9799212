"""Tasks of Cline: `…/saoudrizwan.claude-dev/tasks/<id>/api_conversation_history.json`, messages in Anthropic's form.

Tried with what 2.18.0 of its command line writes here. Most models are asked to write their calls as tags, and the result comes in a
user's text; both are read as what they are. What Cline cut out of the middle of a long task is told in `ui_messages.json` as a range of
messages; it becomes a fold (untried).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from helix_desktop.histories import anthropic_style
from helix_desktop.histories.beside import read_beneath
from helix_desktop.histories.recording import Compaction, RecordedMessage, Recording
from helix_desktop.histories.rows import Row, Told, mapping, number, objects, string, text_of, time_of

KIND = "cline"
NAME = "api_conversation_history.json"
CUT = "[Some earlier messages of this conversation were left out to keep within the context window.]"


_CALL = re.compile(r"<(\w+)>\n(.*)</\1>\s*\Z", re.DOTALL)
_FIELD = re.compile(r"<(\w+)>(.*?)</\1>", re.DOTALL)
_RESULT = re.compile(r"\[(\w+)[^\n]*\] Result:\n?")
_FOLDER = re.compile(r"# Current Working Directory \((.*?)\) Files")
_NOT_SAID = (
    "<environment_details>",
    "# task_progress",
    "# TODO LIST",
    "# todo",
)  # what Cline puts behind a person's words


def recordings(rows: Sequence[Row], told: Told, path: Path) -> list[Recording]:
    """The one task of a folder."""
    read = [list(_messages(row, told)) for row in _with_calls(rows)]
    made = [message for each in read for message in each]
    beside = _beside(path)
    begun = time_of(number(int(path.parent.name))) if path.parent.name.isdecimal() else 0.0
    times = _times(beside, begun)
    timed = [replace(message, time=message.time or times(at, len(made))) for at, message in enumerate(made)]
    title = next((string(one, "text") for one in beside if one.get("say") == "task"), "")
    folder = next(filter(None, (folder_in(message.text) for message in made)), "")
    recording = Recording(str(path), tuple(timed), KIND, path.parent.name, " ".join(title.split())[:60], folder)
    return [replace(recording, version=_version(path), compactions=_cuts(beside, read, timed))]


def folder_in(text: str) -> str:
    """The folder that Cline tells the model it works in."""
    found = _FOLDER.search(text)
    return found[1] if found else ""


def _with_calls(rows: Sequence[Row]) -> list[Row]:
    """The rows, with a call that is written as tags, and its result in the next row, as blocks of their own."""
    values = [dict(row.value) for row in rows]
    for at, (asked, answered) in enumerate(pairwise(values)):
        blocks, back = objects(asked.get("content")), objects(answered.get("content"))
        call = next(((n, found) for n, one in enumerate(blocks) if (found := _CALL.search(string(one, "text")))), None)
        result = next(((n, found) for n, one in enumerate(back) if (found := _RESULT.match(string(one, "text")))), None)
        if asked.get("role") != "assistant" or call is None or result is None or call[1][1] != result[1][1]:
            continue
        (place_of_call, said), (place, begins) = call, result
        fields = {name: value.strip("\n") for name, value in _FIELD.findall(said[2])}
        use = {"type": "tool_use", "id": f"cline_{at}", "name": said[1], "input": fields}
        words = {**blocks[place_of_call], "text": said.string[: said.start()]}
        asked["content"] = [
            *blocks[:place_of_call],
            *([words] if said.string[: said.start()].strip() else []),
            use,
            *blocks[place_of_call + 1 :],
        ]
        text = begins.string[begins.end() :]
        end = place + 1 if text or place + 1 == len(back) else place + 2  # older ones: the output in a block of its own
        output = {
            "type": "tool_result",
            "tool_use_id": f"cline_{at}",
            "content": text or text_of(back[place + 1 : end]),
        }
        answered["content"] = [*back[:place], output, *back[end:]]
    return [Row(value, row.place) for value, row in zip(values, rows, strict=True)]


def _messages(row: Row, told: Told) -> Iterator[RecordedMessage]:
    """What is said, and behind it what Cline adds."""
    info, tokens = mapping(row.value.get("modelInfo")), mapping(mapping(row.value.get("metrics")).get("tokens"))
    value = dict(row.value)
    if info:
        read = number(tokens.get("cached"))
        fresh = max(0, number(tokens.get("prompt")) - read)
        usage = {"input_tokens": fresh, "cache_read_input_tokens": read, "output_tokens": tokens.get("completion")}
        value |= {"model": string(info, "modelId"), "usage": usage}
    blocks = objects(value.get("content")) if value.get("role") == "user" else []
    added = [block for block in blocks if string(block, "text").lstrip().startswith(_NOT_SAID)]
    if added:
        value["content"] = [block for block in blocks if block not in added]
    yield from anthropic_style.messages([Row(value, row.place)], told.complaints)
    for block in added:
        text = string(block, "text").strip()
        yield RecordedMessage("user", text, time=time_of(value.get("ts")), beside=True)


def _version(path: Path) -> str:
    """Of Cline, as it was when the task was worked on last."""
    try:
        value = mapping(json.loads(read_beneath(path.parent, "task_metadata.json").decode("utf-8", "replace")))
    except (OSError, ValueError, RecursionError):
        return ""
    versions = [string(one, "cline_version") for one in objects(value.get("environment_history"))]
    return versions[-1] if versions else ""


def _beside(path: Path) -> list[Mapping[str, object]]:
    try:
        return objects(json.loads(read_beneath(path.parent, "ui_messages.json").decode("utf-8", "replace")))
    except (OSError, ValueError, RecursionError):
        return []


def _times(beside: Sequence[Mapping[str, object]], begun: float) -> Callable[[int, int], float]:
    """Cline notes no times in the history: spread between the first and the last it shows."""
    shown = [time for one in beside if (time := time_of(one.get("ts")))]
    first = shown[0] if shown else begun
    last = max(shown[-1] if shown else begun, first)
    return lambda at, count: first + (last - first) * at / max(1, count - 1)


def _cuts(
    beside: Sequence[Mapping[str, object]], read: Sequence[Sequence[RecordedMessage]], made: Sequence[RecordedMessage]
) -> tuple[Compaction, ...]:
    ranges = [one.get("conversationHistoryDeletedRange") for one in beside]
    found = [
        one for one in ranges if isinstance(one, list) and len(one) == 2 and all(isinstance(at, int) for at in one)
    ]
    if not found or not all(read):
        return ()
    kept = sum(map(len, read[: int(found[-1][1]) + 1]))
    return (Compaction(len(made), kept, CUT, made[-1].time if made else 0.0, "Cline cut here"),)
