"""Finds out from a call's arguments and output what it did: which files it created, why it failed.

Recorders and tools report success in different ways, so a command's output is read as
well as its exit code. A line that only mentions an error, in a file or a log, is no
failure. So the patterns are those with which programs end.
"""

import json
import re
import shlex
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence

from helix_desktop.json_values import object_at, parse_json_or_none, text_at

# All lengths are in characters. Programs say at the end of their output why they stopped.
SEARCHED_TAIL = 20_000
SEARCHED_ARGUMENTS = 4_000  # A call's subject is looked for in this much of its arguments.
LONGEST_SOURCE = 200  # The name of a cache entry is cut to this length.
LONGEST_REASON = 200  # A longer line is taken for data.
MOST_REASONS = 3  # More lines would repeat the reason.
MOST_PASTED = 12  # Only this many of the last lines of a pasted error are kept.
_EDIT_TOOL = re.compile(
    r"write|edit|create|patch|replace|insert|delete|remove|rename|move|save|upload", re.IGNORECASE
)
_READING_TOOL = re.compile(r"^(?:view|read|open|list|undo_edit|find_file|search)", re.IGNORECASE)
_SHELL_TOOL = re.compile(
    r"bash|shell|terminal|exec|command|console|(?:^|_)run(?:_|$)", re.IGNORECASE
)
_PATH_KEYS = (
    "path",
    "file_path",
    "filename",
    "file_name",
    "file",
    "notebook_path",
    "new_path",
    "destination",
    "target",
)
# The names of arguments whose values are text to be written into a file.
_TEXT_ARGUMENT = re.compile(r"content|edits|(?:file|new|old)_?(?:text|str|string)", re.IGNORECASE)
_OTHER_SUBJECT_KEYS = ("pattern", "query", "url", "sha256", "task", "prompt", "name", "title")
_SUBJECT_KEYS = ("command", *_PATH_KEYS, *_OTHER_SUBJECT_KEYS)
_VALUE = r'"\s*:\s*"((?:[^"\\]|\\.){0,400})'
_SUBJECT_VALUE = re.compile(f'"({"|".join(_SUBJECT_KEYS)}){_VALUE}')
_FIRST_VALUE = re.compile(r'"[A-Za-z_]{1,60}' + _VALUE)
_COMMAND_KEYS = ("command", "cmd", "script", "line")
_TARGET_PATH = r"['\"]?([\w./~-][\w./~+@-]{0,200})['\"]?"
_CHANGING_COMMANDS = (
    re.compile(rf"(?<![<>&\d=-])>>?\s*(?!/dev/|&){_TARGET_PATH}"),
    re.compile(
        rf"(?:^|[;&|]\s*|\n)\s*(?:tee(?: -a)?|touch|rm(?: -\w+)*|sed -i\S*\s+(?:''\s+)?(?:'[^']*'|\"[^\"]*\"))\s+{_TARGET_PATH}"
    ),
    re.compile(rf"(?:^|[;&|]\s*|\n)\s*(?:git )?(?:mv|cp)(?: -\w+)*\s+\S+\s+{_TARGET_PATH}"),
)
# `<<WORD`, `<<-WORD` or `<<'WORD'`. What follows `<<<` is a text of its own, and no such word.
_HERE_DOCUMENT = re.compile(
    r"(?<!<)<<(?P<dash>-?)[ \t]*(?:'(?P<single>[^'\n]++)'|\"(?P<double>[^\"\n]++)\"|\\?(?P<plain>\w++))"
)
# Such a tool may also only show a file, so it counts only with text to write.
_SHOWS_AND_CHANGES = re.compile(r"edit(?:or)?$", re.IGNORECASE)
_FAILURE = re.compile(
    r"^(?:[\w.]+\.)?[A-Z]\w*(?:Error|Exception|Exit|Interrupt)\b(?::.*)?$|^(?:error"
    r"|fatal|ERROR)(?:\[\w+\])?: .+|^E {3,}\S.*|^FAIL(?:ED\b|:).*\S|^npm ERR! .+"
    r"|^make(?:\[\d+\])?: \*\*\* .+|^.{0,120}: command not found$"
    r"|^.{0,200}: No such file or directory$|^.{0,200}: Permission denied$"
    r"|^\S+\(\d+,\d+\): error .+|^panic: .+|^Segmentation fault.*|^Error: .+"
    r"|^SyntaxError: .+|^.{0,40}exit(?:ed)? (?:code|status)?:? ?(?:with )?(?:code "
    r"|status )?[1-9]\d{0,2}\b.*",
    re.MULTILINE,
)
_REFUSED = re.compile(
    r"This call was not run|The user (?:denied this call"
    r"|doesn't want to (?:proceed with this tool use|take this action))"
    r"|exec command rejected"
)
_WORDS_OF_REFUSAL = re.compile(r"[Tt]he user said:\s*(.+)", re.DOTALL)
_POSITION = re.compile(r"[\w@./-]{1,200}\.\w{1,5}:\d+:\d+:? \S")
_COLOUR_CODE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
# What such a program does is said by its next word.
_PROGRAMS_OF_MANY = frozenset(("python", "python3", "npm", "git", "cargo", "go"))
_TEST_TOOL = re.compile(r"(?:^|_)(?:run_?tests?|pytest)$", re.IGNORECASE)
_PATCHED_FILE = re.compile(
    r"^\*\*\* (?:(?:Add|Update|Delete) File|Move to): (\S.*?)\s*$", re.MULTILINE
)
_BEGIN_PATCH = "*** Begin Patch"
CUT = " [cut]"
_VERIFYING_COMMAND = re.compile(
    r"\b(?:pytest|unittest|runtests|tox|nox|nosetests|jest|vitest|mocha|ctest|phpunit"
    r"|rspec|go test|go build|go vet|cargo (?:test|build|check)|(?:npm|yarn|pnpm"
    r"|bun)(?: run)? (?:test|build|check|lint|typecheck)\S*|make\b|gradle|mvn|tsc"
    r"|mypy|ruff|eslint|pyright|manage\.py test|git (?:-C \S+ )?(?:init|commit|push"
    r"|merge|rebase)|gh \w+ create)"
)


def parse_call_arguments(arguments: str) -> Mapping[str, object]:
    """Return a call's arguments, or an empty mapping if they are not a JSON object."""
    return object_at(parse_json_or_none(arguments))


def command_of_call(tool: str, values: Mapping[str, object], arguments: str) -> str:
    """Return the command line that a call runs, or nothing."""
    if not _SHELL_TOOL.search(tool):
        return ""
    # An editor's "command" is what it does with a file, such as "view".
    if "command" in values and _path_argument(values):
        return ""
    for key in _COMMAND_KEYS:
        value = values.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, list) and value:
            return _command_of_words([str(word) for word in value])
    if values:
        return ""
    # What is no JSON object is the command line itself.
    return arguments


def _command_of_words(words: list[str]) -> str:
    """Return the command line of a program and its arguments, without the shell that reads it."""
    # Codex sends ["bash", "-lc", "the command line"].
    if len(words) == 3 and words[0].endswith("sh") and words[1].endswith("c"):
        return words[2]
    return shlex.join(words)


def find_call_subject_and_place(arguments: str) -> tuple[str, str]:
    """Return what a call is about: for a search its pattern and the path in which it searches,
    otherwise its command, its path or its first text, and no place.
    """
    beginning = arguments[:SEARCHED_ARGUMENTS]
    values: dict[str, str] = {}
    for key, value in _SUBJECT_VALUE.findall(beginning):
        values.setdefault(key, _unescape_json(value))
    path = _first_value(values, _PATH_KEYS)
    if "pattern" in values or "query" in values:
        searched_words = values.get("pattern") or values.get("query", "")
        return searched_words, path
    if "command" in values and path:
        return f"{values['command']} {path}", ""
    if values:
        return _first_value(values, _SUBJECT_KEYS), ""
    first_text = _FIRST_VALUE.search(beginning)
    if first_text is None:
        return "", ""
    return _unescape_json(first_text[1]), ""


def _first_value(values: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the value of the first of these keys that there is, or nothing."""
    for key in keys:
        if key in values:
            return values[key]
    return ""


def describe_call_as_source(arguments: str) -> str:
    """Return a short form of the call, which the entry of its output names as its source."""
    subject, searched_path = find_call_subject_and_place(arguments)
    words = f"{subject} {searched_path}".strip() or arguments
    # Neither a NUL nor half of a surrogate pair can be stored.
    storable_words = words.replace("\0", " ").encode("utf-8", "replace").decode()
    one_line = " ".join(storable_words.split())
    return one_line[:LONGEST_SOURCE]


def _unescape_json(text: str) -> str:
    """Return what a JSON string stands for, also if it was cut within an escape."""
    if "\\" not in text:
        return text
    try:
        return str(json.loads(f'"{text}"', strict=False))
    except (ValueError, RecursionError):
        return text.replace("\\n", " ")


def find_changed_paths(
    tool: str, values: Mapping[str, object], command: str, arguments: str = ""
) -> Iterator[str]:
    """Yield the files that a call writes, creates, renames or deletes, where the tool says so.

    What a command line changes is not guessed: `=> import(` looks like a redirection.
    """
    is_patch_command = command.lstrip().startswith("apply_patch")
    if command and not is_patch_command:
        return
    patch = _find_patch(values, command, arguments)
    if patch and (is_patch_command or "patch" in tool.casefold()):
        yield from dict.fromkeys(_PATCHED_FILE.findall(patch))
        return
    path = _path_argument(values)
    if path and _does_edit(tool, values):
        yield path


def _find_patch(values: Mapping[str, object], command: str, arguments: str) -> str:
    """Return the text of a call that is a patch in the form of Codex, or nothing."""
    for text in (command, *values.values()):
        if isinstance(text, str) and _BEGIN_PATCH in text:
            return text
    if _BEGIN_PATCH not in arguments:
        return ""
    if arguments.lstrip().startswith("{"):
        # In JSON that was cut, a line ends with the two characters "\n".
        return arguments.replace("\\n", "\n")
    return arguments


def _does_edit(tool: str, values: Mapping[str, object]) -> bool:
    """Whether a tool's name, or what it is told to do, says that it changes a file."""
    verb = text_at(values, "command")
    if _READING_TOOL.match(tool) or _READING_TOOL.match(verb):
        return False
    if not _EDIT_TOOL.search(f"{tool} {verb}"):
        return False
    has_text = any(_TEXT_ARGUMENT.fullmatch(key) for key in values)
    return has_text or not _SHOWS_AND_CHANGES.search(tool)


def guess_if_command_changes_files(command: str) -> bool:
    """Whether a command line looks as if it changed files: good enough for a mark on a timeline."""
    # A document cut before its end would be taken for command lines.
    command_line = strip_here_documents(command)[:SEARCHED_ARGUMENTS]
    for pattern in _CHANGING_COMMANDS:
        for path in pattern.findall(command_line):
            is_number = path.isdigit()
            is_only_dots_and_slashes = not path.strip("./~")
            if not is_number and not is_only_dots_and_slashes:
                return True
    return False


def is_test_tool(tool: str) -> bool:
    return bool(_TEST_TOOL.search(tool))


def shorten_with_mark(text: str, limit: int) -> str:
    """Return the text, or its beginning with a mark that it was cut."""
    if len(text) <= limit:
        return text
    return text[: limit - len(CUT)].rstrip() + CUT


def _path_argument(values: Mapping[str, object]) -> str:
    for key in _PATH_KEYS:
        value = values.get(key)
        if isinstance(value, str) and value:
            return value
    return ""


def describe_failure(text: str, *, ok: bool, command: bool) -> str:
    """Return the last lines that say why the call failed, or nothing if it did not.

    `ok`: the call was reported as successful, which a failed command may be, too.
    """
    end_of_text = _COLOUR_CODE.sub("", text[-SEARCHED_TAIL:])
    if ok and not command:
        # What a file or a page says about errors is no failure of the tool that read it.
        only_line = end_of_text.strip()
        if len(text) <= LONGEST_REASON and _FAILURE.fullmatch(only_line):
            return only_line
        return ""
    reasons = _find_failure_lines(end_of_text)
    if ok or reasons:
        return "; ".join(reasons)
    return _describe_failure_without_reason(end_of_text, command=command)


def _find_failure_lines(end_of_text: str) -> list[str]:
    """Return the last lines with which programs say why they failed, each once."""
    reasons: dict[str, None] = {}
    for line in _FAILURE.findall(end_of_text)[-MOST_REASONS:]:
        one_line = " ".join(line.split())
        reason = shorten_with_mark(one_line, LONGEST_REASON)
        reasons[reason] = None
    return list(reasons)


def _describe_failure_without_reason(end_of_text: str, *, command: bool) -> str:
    """Return the last line of a failed command, or all lines of another tool."""
    lines = [line.strip() for line in end_of_text.splitlines() if line.strip()]
    if not lines:
        return "it failed and said nothing"
    if command:
        return shorten_with_mark(lines[-1], LONGEST_REASON)
    return shorten_with_mark(" ".join(lines), LONGEST_REASON)


def read_refusal(text: str) -> str | None:
    """Return what the user said when refusing a call, which may be nothing, or None if
    it was not refused.
    """
    if not _REFUSED.match(text):
        return None
    words = _WORDS_OF_REFUSAL.search(text)
    if words is None:
        return ""
    return words[1]


def find_pasted_errors(text: str) -> list[str]:
    """Return the last pasted lines that report a failure or begin with a position in a file."""
    errors: dict[str, None] = {}  # Each once, in order.
    for line in text[-SEARCHED_TAIL:].splitlines():
        stripped_line = line.strip()
        if _FAILURE.fullmatch(stripped_line) or _POSITION.match(stripped_line):
            error = shorten_with_mark(stripped_line, LONGEST_REASON)
            errors[error] = None
    return list(errors)[-MOST_PASTED:]


def is_verifying_command(command: str) -> bool:
    return bool(_VERIFYING_COMMAND.search(strip_here_documents(command)))


def strip_here_documents(command: str, mark: str = "") -> str:
    """Return a command without the texts that its lines pass on, with a mark in their place.

    Such a text, a here document, begins on the line after `<<WORD` and ends with a line that is
    this word. What follows `<<WORD` on the same line belongs to the command.
    """
    if "<<" not in command:
        return command
    lines = command.split("\n")
    ends = _PossibleEndsOfDocuments(lines)
    command_lines: list[str] = []
    line_number = 0
    while line_number < len(lines):
        line = lines[line_number]
        command_line = ""
        position = 0
        # The documents of several openings on one line follow one another.
        last_line_number = line_number
        for opening in _HERE_DOCUMENT.finditer(line):
            end_line_number = ends.find_end_of_document(opening, last_line_number)
            if end_line_number is None:
                continue
            command_line += line[position : opening.start()] + mark
            position = opening.end()
            last_line_number = end_line_number
        command_lines.append(command_line + line[position:])
        line_number = last_line_number + 1
    return "\n".join(command_lines)


class _PossibleEndsOfDocuments:
    """Finds the line that ends a here document, without reading all lines for each of them."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._numbers_by_line: dict[str, list[int]] = {}
        # After `<<-`, the shell ignores tabs at the beginning of a line.
        self._numbers_by_line_without_tabs: dict[str, list[int]] = {}
        for line_number, line in enumerate(lines):
            self._numbers_by_line.setdefault(line, []).append(line_number)
            line_without_tabs = line.lstrip("\t")
            self._numbers_by_line_without_tabs.setdefault(line_without_tabs, []).append(line_number)

    def find_end_of_document(self, opening: re.Match[str], after: int) -> int | None:
        """Return the number of the first line after line `after` that ends the document."""
        word = opening["single"] or opening["double"] or opening["plain"]
        numbers_by_line = self._numbers_by_line
        if opening["dash"]:
            numbers_by_line = self._numbers_by_line_without_tabs
        line_numbers = numbers_by_line.get(word, [])
        index = bisect_right(line_numbers, after)
        if index == len(line_numbers):
            return None
        return line_numbers[index]


def find_open_tasks(values: Mapping[str, object]) -> list[str] | None:
    """Return the open tasks that a call sets, or None if it sets no task list."""
    for key in ("todos", "plan", "tasks"):
        tasks = values.get(key)
        if isinstance(tasks, list) and _is_task_list(tasks):
            return list(_texts_of_open_tasks(tasks))
    return None


def _is_task_list(tasks: list[object]) -> bool:
    """Whether these are tasks with their states. An empty list is one, too: it clears the tasks."""
    if not tasks:
        return True
    for task in tasks:
        if isinstance(task, dict) and isinstance(task.get("status"), str):
            return True
    return False


def _texts_of_open_tasks(tasks: list[object]) -> Iterator[str]:
    for task in tasks:
        if not isinstance(task, dict):
            continue
        if task.get("status") not in ("pending", "in_progress"):
            continue
        text = task.get("content") or task.get("step")
        if isinstance(text, str):
            yield text


def key_shared_by_attempts(tool: str, values: Mapping[str, object], command: str) -> str:
    """Return what two attempts at the same thing share: the tool, and a command's last program or
    the file. A later one that works shows that the failure of an earlier one is solved.
    """
    if not command.strip():
        return f"{tool} {_path_argument(values)}".strip()
    # Of several lines, the others may be the text that the first one's program reads.
    if "\n" in command:
        program_line = command.strip().splitlines()[0]
    else:
        program_line = re.split(r"&&|\|\||;", command.strip())[-1]

    words = []
    for word in program_line.split():
        is_option_or_variable = "=" in word or word.startswith("-")
        if not is_option_or_variable:
            words.append(word)
    if words and words[0] in _PROGRAMS_OF_MANY:
        return f"{tool} {' '.join(words[:2])}"
    return f"{tool} {' '.join(words[:1])}"
