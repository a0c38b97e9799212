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
    """A call, with its arguments as values."""

    name: str
    values: Object

    @property
    def path(self) -> str:
        return text_at(self.values, "path")


@dataclass(slots=True)
class _SortedMaterial:
    """What a request holds, by its kind. `said`: by the user. `reports`: by the agent."""

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
        newest_lines = contents[name][-MOST_LINES:]
        list_of_lines = "\n".join(f"- {line}" for line in newest_lines)
        sections.append(f"## {name}\n{list_of_lines or '- None so far.'}")
    return "\n\n".join(sections)


def _quote_first_messages(material: _SortedMaterial) -> list[str]:
    quotes = [shorten_to_line(text, LONGEST_QUOTE) for text in material.said[:3]]
    return [f"The user wrote: “{quote}”" for quote in quotes]


def _list_named_files(material: _SortedMaterial) -> list[str]:
    """Return a line for each file that the user or a call named."""
    paths: list[str] = []
    for text in material.said:
        paths.extend(_PATH.findall(text))
    for call in material.calls:
        paths.extend(_PATH.findall(call.path))
    return [f"File: {path}" for path in _without_repeats(paths)]


def _list_completed_work(material: _SortedMaterial) -> list[str]:
    """Return what the calls did, and what the agent said of it last."""
    descriptions: list[str] = []
    for call in material.calls:
        if call.name != ToolName.SET_TODO:
            descriptions.append(_describe_call(call))
    lines = _without_repeats(descriptions)
    for report in material.reports[-2:]:
        report_in_one_line = " ".join(report.split())
        lines.append(f"The agent reported: {report_in_one_line}")
    return lines


def _quote_rules(material: _SortedMaterial) -> list[str]:
    """Return the user's sentences that sound like a rule."""
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
    lines: list[str] = []
    for text in material.said:
        lines.append(f"!! The user said: {shorten_to_line(text, 160)}")
    for call in material.calls:
        lines.append(f"! Done: {_describe_call(call)}")
    for failure in material.failures():
        lines.append(f"! {failure}")
    newest_lines = _without_repeats(lines)[-MOST_EXCERPT:]
    if not newest_lines:
        return "- Nothing happened."
    return "\n".join(f"- {line}" for line in newest_lines)


def write_title(request: Request) -> str:
    """Return the user's first words."""
    material = _sort_material(request)
    first_words = " ".join(material.said).split()[:6]
    title = " ".join(first_words)[:60]
    return title or "A demonstration"


def _describe_call(call: _CallOfTool) -> str:
    """Say what a call did to what, such as "Read `README.md`"."""
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
    """Return the items of the newest to-do list that are not done."""
    newest_list: Object = {}
    for call in material.calls:
        if call.name == ToolName.SET_TODO:
            newest_list = call.values
    lines: list[str] = []
    for item in list_at(newest_list, "items"):
        state = text_at(item, "state") or "open"
        if state != "done":
            lines.append(f"{text_at(item, 'text')} ({state})")
    return lines


# --- Sorting a request's parts


def _sort_material(request: Request) -> _SortedMaterial:
    """Return what a request holds, sorted by kind: what the user said, calls, outputs, reports.

    The last text is the question of the summary itself, so it is left out. Calls whose files
    the user has put back as they were do not count.
    """
    parts: list[_PartOfMessage] = []
    for message in request.messages:
        for part in message.parts:
            parts.append(_PartOfMessage(message.role, part))
    parts_before_question = parts
    if len(parts) > 1:
        parts_before_question = parts[:-1]

    material = _SortedMaterial()
    for part_of_message in parts_before_question:
        _sort_part(part_of_message, material)
    undone_files = _files_undone_by_user(parts)
    material.calls = [call for call in material.calls if not _was_undone(call, undone_files)]
    return material


@dataclass(frozen=True, slots=True)
class _PartOfMessage:
    """A part, with who wrote its message."""

    role: Role
    part: MessagePart


def _sort_part(part_of_message: _PartOfMessage, material: _SortedMaterial) -> None:
    """Add a part to the material of its kind."""
    part = part_of_message.part
    if isinstance(part, ToolCall):
        arguments = parse_object(part.arguments) or {}
        material.calls.append(_CallOfTool(part.name, arguments))
    elif isinstance(part, ToolResult):
        material.outputs.append(part.text)
    elif isinstance(part, Text):
        _sort_text(part.text, part_of_message.role, material)


def _sort_text(text: str, role: Role, material: _SortedMaterial) -> None:
    """Add a text to what the user said, to the agent's reports, or to the transcript's lines."""
    if text.startswith("<material>"):
        _sort_transcript_lines(text, material)
    elif role is Role.ASSISTANT:
        has_length_of_report = SHORTEST_REPORT <= len(text) <= LONGEST_REPORT
        if has_length_of_report and "```" not in text:
            material.reports.append(text)
    elif not _WRITTEN_BY_PROGRAM.match(text):
        material.said.append(text)


def _files_undone_by_user(parts: Sequence[_PartOfMessage]) -> str:
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
    beginnings = list(_PASSAGE.finditer(text))
    for number, beginning in enumerate(beginnings):
        end = len(text)
        if number + 1 < len(beginnings):
            end = beginnings[number + 1].start()
        passage = text[beginning.end() : end].strip()
        body = passage.removesuffix("</material>").strip()
        speaker, called_tool = beginning.groups()
        if called_tool:
            material.calls.append(_CallOfTool(called_tool, parse_object(body) or {}))
        elif speaker == "user":
            material.said.append(body)
        elif speaker is None:
            material.outputs.append(body)


# --- Compacting large outputs


def write_compaction(request: Request) -> str:
    """Return an excerpt of a large output: the lines that have words of what was asked for.

    Words that most of the lines have say nothing about a line, so they do not count.
    """
    texts = _texts_of_request(request)
    question = ""
    if texts:
        question = texts.pop()
    output = "\n".join(texts)
    lines = [line for line in output.splitlines() if _is_line_of_output(line)]

    wanted_words = _distinguishing_words(_wish_of_question(question), lines)
    matching_lines: list[str] = []
    for line in lines:
        if wanted_words.intersection(_lowercase_words(line)):
            matching_lines.append(line)

    extent = _describe_extent(output, lines)
    if not matching_lines:
        return f"{extent} No line contains the words that were asked for."
    count = f"{len(matching_lines):,}"
    if len(matching_lines) > MOST_EXCERPT:
        count += f", the first {MOST_EXCERPT} of them"
    excerpt = "\n".join(line[:200] for line in matching_lines[:MOST_EXCERPT])
    return f"{extent} Lines with words of what was asked for: {count}:\n{excerpt}"


def _texts_of_request(request: Request) -> list[str]:
    """Return all texts of a request. The question is the last one."""
    texts: list[str] = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, Text):
                texts.append(part.text)
    return texts


def _describe_extent(output: str, lines: list[str]) -> str:
    """Say how many lines the whole output has, and its first and last line."""
    count = f"{len(lines):,}"
    left_out = _LINES_LEFT_OUT.search(output)
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
    """Return what the question says is needed of the output."""
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
    words = set[str]()
    for word in _lowercase_words(wish):
        if 0 < lines_with_word[word] <= most_lines:
            words.add(word)
    return words


def _lowercase_words(text: str) -> list[str]:
    return [word.lower() for word in _WORD.findall(text)]


def _without_repeats(lines: Iterable[str]) -> list[str]:
    """Return the lines that are not blank, each once."""
    different_lines: dict[str, None] = {}  # A dictionary keeps their order, and is fast.
    for line in lines:
        if line.strip():
            different_lines[line] = None
    return list(different_lines)
