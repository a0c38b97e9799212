"""Writes the demonstration's summaries, excerpts and titles from the request itself.

It makes no judgements. It finds paths, calls, failures, items and rules by their form, in messages
or in a transcript of them, so every line of a summary can be found in what was summarised.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

from helix_desktop.engine.agent_findings import LONGEST_REPORT, SHORTEST_REPORT
from helix_desktop.engine.changes.undo_notes_for_model import UNDID, quote_file_name
from helix_desktop.engine.facts import Purpose, Text, ToolCall
from helix_desktop.engine.messages import MessagePart, Request, Role, ToolResult
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


@dataclass(frozen=True, slots=True)
class _CallOfTool:
    name: str
    values: Object

    @property
    def path(self) -> str:
        return text_at(self.values, "path")


@dataclass(slots=True)
class _SortedMaterial:
    said: list[str] = field(default_factory=list)
    calls: list[_CallOfTool] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)

    def failures(self) -> list[str]:
        """Return the lines of outputs that report a failure."""
        failures: list[str] = []
        for output in self.outputs:
            for line in output.splitlines():
                if _WRONG.search(line):
                    failures.append(shorten_to_line(line, LONGEST_QUOTE))
        return failures


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
    if write is None:
        return "The scripted demonstration answers."
    return write(request)


# --- Writing handovers, observations and titles


def write_handover(request: Request) -> str:
    """Write the six sections from the request. An empty section says so."""
    material = _sort_material(request)
    contents: Mapping[str, list[str]] = {
        "Project Background": _quote_first_messages(material),
        "Technical Details": _list_named_files(material),
        "Completed Work": _list_completed_work(material),
        "Current Issues": _without_repeats(material.failures()),
        "TODO Items": _todo_lines(material),
        "User Preferences": _quote_rules(material),
    }
    sections: list[str] = []
    for name in SECTIONS:
        lines = [f"- {line}" for line in contents[name][-MOST_LINES:]]
        body = "\n".join(lines) or "- None so far."
        sections.append(f"## {name}\n{body}")
    return "\n\n".join(sections)


def _quote_first_messages(material: _SortedMaterial) -> list[str]:
    quotes = [shorten_to_line(text, LONGEST_QUOTE) for text in material.said[:3]]
    return [f"The user wrote: “{quote}”" for quote in quotes]


def _list_named_files(material: _SortedMaterial) -> list[str]:
    texts = material.said + [call.path for call in material.calls]
    paths: list[str] = []
    for text in texts:
        paths += _PATH.findall(text)
    return [f"File: {path}" for path in _without_repeats(paths)]


def _list_completed_work(material: _SortedMaterial) -> list[str]:
    done = [call for call in material.calls if call.name != ToolName.SET_TODO]
    lines = _without_repeats(map(_describe_call, done))
    for report in material.reports[-2:]:
        lines.append(f"The agent reported: {' '.join(report.split())}")
    return lines


def _quote_rules(material: _SortedMaterial) -> list[str]:
    rules: list[str] = []
    for text in material.said:
        for sentence in _SENTENCE.findall(text):
            if _RULE.search(sentence):
                rules.append(shorten_to_line(sentence, LONGEST_QUOTE))
    return _without_repeats(rules)


def write_observations(request: Request) -> str:
    """Write a line for all that the user said, then for each call, and then for each
    reported failure.
    """
    material = _sort_material(request)
    lines = [f"!! The user said: {shorten_to_line(text, 160)}" for text in material.said]
    lines += [f"! Done: {_describe_call(call)}" for call in material.calls]
    lines += [f"! {failure}" for failure in material.failures()]
    shown = _without_repeats(lines)[-MOST_EXCERPT:]
    return "\n".join(f"- {line}" for line in shown) or "- Nothing happened."


def write_title(request: Request) -> str:
    said = _sort_material(request).said
    first_words = " ".join(said).split()[:6]
    title = " ".join(first_words)[:60]
    return title or "A demonstration"


def _describe_call(call: _CallOfTool) -> str:
    argument = _most_telling_argument(call.values)
    sentence = read_table("demo")["done"].get(call.name)
    if not sentence:
        return f"{call.name} {argument}".strip()
    if not argument:
        return str(sentence.format("the folder"))
    return str(sentence.format(f"`{shorten_to_line(argument, 160)}`"))


def _most_telling_argument(values: Object) -> str:
    """Return the argument that says what a call is about."""
    for name in _TELLING:
        text = text_at(values, name)
        if text:
            return text
    return ""


def _todo_lines(material: _SortedMaterial) -> list[str]:
    lists = [call.values for call in material.calls if call.name == ToolName.SET_TODO]
    if not lists:
        return []
    lines: list[str] = []
    for item in list_at(lists[-1], "items"):
        state = text_at(item, "state") or "open"
        if state != "done":
            lines.append(f"{text_at(item, 'text')} ({state})")
    return lines


# --- Sorting a request's parts


def _sort_material(request: Request) -> _SortedMaterial:
    """Sort everything but the question, which is the last text."""
    parts: list[_PlacedPart] = []
    for message in request.messages:
        parts += [_PlacedPart(message.role, part) for part in message.parts]
    before_question = parts
    if len(parts) > 1:
        before_question = parts[:-1]
    material = _SortedMaterial()
    for placed in before_question:
        _sort_part(placed, material)
    undone_files = _files_undone_by_user(parts)
    material.calls = [call for call in material.calls if not _was_undone(call, undone_files)]
    return material


@dataclass(frozen=True, slots=True)
class _PlacedPart:
    role: Role
    part: MessagePart


def _sort_part(placed: _PlacedPart, material: _SortedMaterial) -> None:
    part = placed.part
    if isinstance(part, ToolCall):
        material.calls.append(_CallOfTool(part.name, parse_object(part.arguments) or {}))
    elif isinstance(part, ToolResult):
        material.outputs.append(part.text)
    elif not isinstance(part, Text):
        return
    elif part.text.startswith("<material>"):
        _sort_transcript_lines(part.text, material)
    elif placed.role is Role.ASSISTANT:
        has_length_of_report = SHORTEST_REPORT <= len(part.text) <= LONGEST_REPORT
        if has_length_of_report and "```" not in part.text:
            material.reports.append(part.text)
    elif not _WRITTEN_BY_PROGRAM.match(part.text):
        material.said.append(part.text)


def _files_undone_by_user(parts: Sequence[_PlacedPart]) -> str:
    """Return what the question says of files whose changes the user undid."""
    if len(parts) < 2:
        return ""
    question = parts[-1].part
    if isinstance(question, Text) and UNDID in question.text:
        return question.text.rpartition(UNDID)[2]
    return ""


def _was_undone(call: _CallOfTool, undone_files: str) -> bool:
    return call.name in _WRITING and quote_file_name(call.path) in undone_files


def _sort_transcript_lines(text: str, material: _SortedMaterial) -> None:
    """Sort a transcript's lines: `[3] user: …`, `[4] call of read_file: {…}`, `[5]
    output of read_file:`.
    """
    heads = list(_PASSAGE.finditer(text))
    ends = [head.start() for head in heads[1:]] + [len(text)]
    for head, end in zip(heads, ends, strict=False):
        body = text[head.end() : end].strip().removesuffix("</material>").strip()
        speaker = head[1]
        called_tool = head[2]
        if called_tool:
            material.calls.append(_CallOfTool(called_tool, parse_object(body) or {}))
        elif speaker == "user":
            material.said.append(body)
        elif speaker is None:
            material.outputs.append(body)


# --- Compacting large outputs


def write_compaction(request: Request) -> str:
    """Return the output's lines with the rarest words of what was requested, in order."""
    texts = _texts_of_request(request)
    question = ""
    if texts:
        question = texts.pop()
    material = "\n".join(texts)
    lines = [line for line in material.splitlines() if _is_line_of_output(line)]
    asked_words = _distinguishing_words(_wish_of_question(question), lines)
    matching = [line for line in lines if asked_words & set(_lowercase_words(line))]
    head = _describe_extent(material, lines)
    if not matching:
        return f"{head} No line contains the words that were asked for."
    count = f"{len(matching):,}"
    if len(matching) > MOST_EXCERPT:
        count += f", the first {MOST_EXCERPT} of them"
    excerpt = "\n".join(line[:200] for line in matching[:MOST_EXCERPT])
    return f"{head} Lines with words of what was asked for: {count}:\n{excerpt}"


def _texts_of_request(request: Request) -> list[str]:
    texts: list[str] = []
    for message in request.messages:
        texts += [part.text for part in message.parts if isinstance(part, Text)]
    return texts


def _describe_extent(material: str, lines: list[str]) -> str:
    """Say how many lines the whole output has, and its first and last line."""
    count = f"{len(lines):,}"
    left_out = _LINES_LEFT_OUT.search(material)
    if left_out:
        count = left_out[1]
    first = ""
    last = ""
    if lines:
        first = lines[0].strip()[:80]
        last = lines[-1].strip()[:80]
    return f"{count} lines, from `{first}` to `{last}`."


def _is_line_of_output(line: str) -> bool:
    return bool(line.strip()) and not line.startswith(_NOT_OUTPUT)


def _wish_of_question(question: str) -> str:
    match = _WISH.search(question)
    if match is None:
        return question
    return match[1]


def _distinguishing_words(wish: str, lines: list[str]) -> set[str]:
    """Return words of the wish that are in some of the lines, but not in most."""
    lines_with_word: Counter[str] = Counter()
    for line in lines:
        lines_with_word.update(set(_lowercase_words(line)))
    most_lines = max(1, COMMON * len(lines))
    wished = set(_lowercase_words(wish))
    return {word for word in wished if 0 < lines_with_word[word] <= most_lines}


def _lowercase_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _without_repeats(lines: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(line for line in lines if line.strip()))
