"""Writes the demonstration's summaries, excerpts and titles from the request itself.

It makes no judgements. It finds paths, calls, failures, items and rules by their form, in messages
or in a transcript of them, so every line of a summary can be found in what was summarised.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import field

from helix_desktop.engine.agent_findings import LONGEST_REPORT, SHORTEST_REPORT
from helix_desktop.engine.changes.undo_notes_for_model import UNDID, quote_file_name
from helix_desktop.engine.facts import Purpose, Text, ToolCall
from helix_desktop.engine.messages import Request, Role, ToolResult
from helix_desktop.engine.request_building import CONTINUE
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Object, list_at, parse_object, text_at
from helix_desktop.resources import read_table

LONGEST_QUOTE = 240
MOST_LINES = 12
MOST_EXCERPT = 24
COMMON = 0.2  # A word in a larger share of the lines describes none of them.
_PATH = re.compile(r"(?<![\w/.])(?:[\w.-]+/)*[\w-]+\.[A-Za-z]{1,5}\b")
_WRONG = re.compile(
    r"\b(error|failed|failure|exception|traceback|not found|refused|denied)\b", re.IGNORECASE
)
_RULE = re.compile(r"\b(must|never|always|do not|don't|only|prefer|please use)\b", re.IGNORECASE)
_SENTENCE = re.compile(r"[^.!?\n]+(?:[.!?](?!\s|$)[^.!?\n]*)*[.!?]?")
_WRITTEN_BY_PROGRAM = re.compile(rf"\s*[\[(]|{re.escape(CONTINUE)}$")  # Texts in a user's message.
_WORD = re.compile(r"\w{3,}")
_LINES_LEFT_OUT = re.compile(r"^\[… [\d,]+ characters of all ([\d,]+) lines left out", re.MULTILINE)
_NOT_OUTPUT = ("<material>", "</material>", "[… ", "[lines ")
_WISH = re.compile(r"needed from it: (.*)")
_PASSAGE = re.compile(
    r"^\[[\d–]+\] (?:(user|assistant): |call of (\w+): |output(?: of \w+)?:$)", re.MULTILINE
)
_TELLING = ("path", "command", "pattern", "query", "sha256", "task")
_WRITING = (ToolName.WRITE_FILE, ToolName.EDIT_FILE)


@dataclass(slots=True)
class _SortedMaterial:
    said: list[str] = field(default_factory=list)
    calls: list[tuple[str, Object]] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)


def write_demo_answer(request: Request) -> str:
    """Answer a request that is no step of a conversation."""
    writers: Mapping[Purpose, Callable[[Request], str]] = {
        Purpose.HANDOVER: write_handover,
        Purpose.OBSERVATIONS: write_observations,
        Purpose.REFLECTION: write_observations,
        Purpose.COMPACTION: write_compaction,
        Purpose.ADMISSION: lambda _: "All of them: preview",
        Purpose.TITLE: write_title,
    }
    write = writers.get(request.purpose)
    return write(request) if write is not None else "The scripted demonstration answers."


# --- Writing handovers, observations and titles


def write_handover(request: Request) -> str:
    """Write the six sections from the request. An empty section says so."""
    found = _sort_material(request)
    arguments = (text_at(values, "path") for _, values in found.calls)
    paths = _without_repeats(
        match for text in (*found.said, *arguments) for match in _PATH.findall(text)
    )
    wrong = (line for text in found.outputs for line in text.splitlines() if _WRONG.search(line))
    rules = (one for text in found.said for one in _SENTENCE.findall(text) if _RULE.search(one))
    contents: Mapping[str, list[str]] = {
        "Project Background": [
            f"The user wrote: “{shorten_to_line(text, LONGEST_QUOTE)}”" for text in found.said[:3]
        ],
        "Technical Details": [f"File: {path}" for path in paths],
        "Completed Work": [
            *_without_repeats(
                _describe_call(name, values)
                for name, values in found.calls
                if name != ToolName.SET_TODO
            ),
            *(f"The agent reported: {' '.join(text.split())}" for text in found.reports[-2:]),
        ],
        "Current Issues": _without_repeats(shorten_to_line(line, LONGEST_QUOTE) for line in wrong),
        "TODO Items": _todo_lines(found),
        "User Preferences": _without_repeats(shorten_to_line(one, LONGEST_QUOTE) for one in rules),
    }
    lists = ("\n".join(f"- {line}" for line in contents[name][-MOST_LINES:]) for name in SECTIONS)
    return "\n\n".join(
        f"## {name}\n{lines or '- None so far.'}"
        for name, lines in zip(SECTIONS, lists, strict=True)
    )


def write_observations(request: Request) -> str:
    """Write a line for all that the user said, then for each call, and then for each
    reported failure.
    """
    found = _sort_material(request)
    lines = [f"!! The user said: {shorten_to_line(text, 160)}" for text in found.said]
    lines += [f"! Done: {_describe_call(name, values)}" for name, values in found.calls]
    lines += [
        f"! {shorten_to_line(line, LONGEST_QUOTE)}"
        for text in found.outputs
        for line in text.splitlines()
        if _WRONG.search(line)
    ]
    return (
        "\n".join(f"- {line}" for line in _without_repeats(lines)[-MOST_EXCERPT:])
        or "- Nothing happened."
    )


def write_title(request: Request) -> str:
    said = _sort_material(request).said
    return " ".join(" ".join(said).split()[:6])[:60] or "A demonstration"


def _describe_call(name: str, values: Object) -> str:
    told = next((text for key in _TELLING if (text := text_at(values, key))), "")
    subject = f"`{shorten_to_line(told, 160)}`" if told else "the folder"
    sentence = read_table("demo")["done"].get(name)
    return sentence.format(subject) if sentence else f"{name} {told}".strip()


def _todo_lines(found: _SortedMaterial) -> list[str]:
    lists = [values for name, values in found.calls if name == ToolName.SET_TODO]
    items = list_at(lists[-1], "items") if lists else []
    states = ((text_at(item, "text"), text_at(item, "state") or "open") for item in items)
    return [f"{text} ({state})" for text, state in states if state != "done"]


def _sort_material(request: Request) -> _SortedMaterial:
    """Sort everything but the question, which is the last text."""
    found = _SortedMaterial()
    parts = [(message.role, part) for message in request.messages for part in message.parts]
    question = parts[-1][1] if len(parts) > 1 else None
    undone = (
        question.text.rpartition(UNDID)[2]
        if isinstance(question, Text) and UNDID in question.text
        else ""
    )
    for role, part in parts[:-1] if len(parts) > 1 else parts:
        if isinstance(part, ToolCall):
            found.calls.append((part.name, parse_object(part.arguments) or {}))
        elif isinstance(part, ToolResult):
            found.outputs.append(part.text)
        elif isinstance(part, Text) and part.text.startswith("<material>"):
            _sort_transcript_lines(part.text, found)
        elif isinstance(part, Text) and role is Role.ASSISTANT:
            if SHORTEST_REPORT <= len(part.text) <= LONGEST_REPORT and "```" not in part.text:
                found.reports.append(part.text)
        elif isinstance(part, Text) and not _WRITTEN_BY_PROGRAM.match(part.text):
            found.said.append(part.text)
    found.calls = [
        call
        for call in found.calls
        if call[0] not in _WRITING or quote_file_name(text_at(call[1], "path")) not in undone
    ]
    return found


def _sort_transcript_lines(text: str, found: _SortedMaterial) -> None:
    """Sort a transcript's lines: `[3] user: …`, `[4] call of read_file: {…}`, `[5]
    output of read_file:`.
    """
    heads = list(_PASSAGE.finditer(text))
    for head, end in zip(heads, [*(one.start() for one in heads[1:]), len(text)], strict=True):
        body = text[head.end() : end].strip().removesuffix("</material>").strip()
        if head[2]:
            found.calls.append((head[2], parse_object(body) or {}))
        elif head[1] == "user":
            found.said.append(body)
        elif head[1] is None:
            found.outputs.append(body)


# --- Compacting large outputs


def write_compaction(request: Request) -> str:
    """Return the output's lines with the rarest words of what was requested, in order."""
    texts = [
        part.text
        for message in request.messages
        for part in message.parts
        if isinstance(part, Text)
    ]
    material = "\n".join(texts[:-1])
    lines = [
        line for line in material.splitlines() if line.strip() and not line.startswith(_NOT_OUTPUT)
    ]
    question = texts[-1] if texts else ""
    wish = match[1] if (match := _WISH.search(question)) else question
    asked = _distinguishing_words(wish, lines)
    matching = [line for line in lines if asked & set(_lowercase_words(line))]
    left_out = _LINES_LEFT_OUT.search(material)
    count = left_out[1] if left_out else f"{len(lines):,}"
    head = f"{count} lines, from `{_shorten_line_at(lines, 0)}` to `{_shorten_line_at(lines, -1)}`."
    if not matching:
        return f"{head} No line contains the words that were asked for."
    shown = "\n".join(line[:200] for line in matching[:MOST_EXCERPT])
    rest = f", the first {MOST_EXCERPT} of them" if len(matching) > MOST_EXCERPT else ""
    return f"{head} Lines with words of what was asked for: {len(matching):,}{rest}:\n{shown}"


def _distinguishing_words(wish: str, lines: list[str]) -> set[str]:
    """Return words of the wish that are in some of the lines, but not in most."""
    counts = Counter(word for line in lines for word in set(_lowercase_words(line)))
    return {
        word for word in _lowercase_words(wish) if 0 < counts[word] <= max(1, COMMON * len(lines))
    }


def _lowercase_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _shorten_line_at(lines: list[str], at: int) -> str:
    return lines[at].strip()[:80] if lines else ""


def _without_repeats(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(line for line in lines if line.strip()))
