"""Recognises commands that run tests or commit, and reads what their outputs report.

A handover states the last test run and the last commit. A false line there is worse
than a missing one. So a command counts only by its own words, outside of quotes and
here documents, and a result only by the lines with which such programs end.
"""

import json
import re
import shlex
from collections.abc import Iterator

from helix_desktop.engine.tool_result_reading import strip_here_documents
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none, value_at

SEARCHED_TAIL = 20_000  # Programs report their result in the last so many characters.
SEARCHED_HEAD = 300  # Agents report a command's exit code in the first so many characters.
LONGEST_COMMAND = 4_000  # Of a longer command, only this many characters are read.
MOST_SUMMARY_LINES = 3

_OPERATOR_OR_QUOTED = re.compile(
    r"""'[^']*'|"(?:[^"\\]|\\.)*"|\\."""
    r"|(?P<comment>(?<![^\s;&|])\#[^\n]*)"
    r"|(?P<operator>&&|\|\||\|&?|;|\n|(?<!>)&(?!>))",
    re.DOTALL,
)
# What may stand before the program: settings of the environment, and programs that start another.
_BEFORE_PROGRAM = re.compile(
    r"\s*(?:[({]\s*|\w+=(?:'[^']*'|\"[^\"]*\"|\S)*\s+"
    r"|(?:do|then|else|if|while|until|!)\s+"
    r"|(?:sudo|time|nice|env|command|exec|nohup|npx|bunx)\s+(?:-\S+\s+)*"
    r"|(?:xvfb-run|stdbuf)\s+(?:-\S+\s+)*"
    r"|timeout\s+(?:-\S+\s+)*\d\S*\s+"
    r"|(?:poetry|pipenv|uv|hatch|rye|pdm)\s+run\s+(?:-\S+\s+)*"
    r"|(?:pnpm|yarn|bundle)\s+exec\s+)"
)
_INNER_SHELL = re.compile(r"(?:\S*/)?(?:ba|z|da)?sh\s+-\w*c\s+(['\"])(.*)\1\s*", re.DOTALL)
_TEST_RUNNER = re.compile(
    r"""(?:[^\s/]*/)*(?:
      pytest(?:-\d)?|py\.test|nosetests|tox|nox|jest|vitest|mocha|ava|ctest|rspec|phpunit|trial|behave
    | python[\d.]*\s+(?:-[^m\s]\S*\s+)*-m\s+(?:pytest|unittest|nose2?|tox|nox|django\s+test)
    | python[\d.]*\s+(?:-\S+\s+)*(?:\S*/)?(?:(?:manage|setup)\.py\s+test|runtests\.py|run_tests?\.py|test[\w-]*\.py|[\w-]+_test\.py)
    | coverage\s+run\s+(?:-\S+\s+)*-m\s+(?:pytest|unittest)
    | (?:npm|yarn|pnpm|bun|deno)\s+(?:run\s+)?(?:-\S+\s+)*test(?::[\w:-]+)?
    | npm\s+t | node\s+--test
    | (?:go|dotnet|swift|mix|bazel|lein|stack|cabal|rails|composer|flutter|dart)\s+test
    | cargo\s+(?:\+\S+\s+)?(?:nextest\s+run|test)
    | rake\s+(?:test|spec)
    | (?:mvnw?|gradlew?)\s+(?:-\S+\s+)*(?:\S+\s+)?(?:\S*:)?(?:test|verify|check)
    | make\s+(?:-\S+\s+)*(?:check|test[\w-]*)
    | runtests(?:\.py|\.sh)?|run[-_]tests?(?:\.py|\.sh)?|test\.sh
    )(?![\w.-])""",
    re.VERBOSE,
)
# These run a program somewhere else, which may follow any of their arguments.
_RUNS_ELSEWHERE = re.compile(
    r"(?:docker|docker-compose|podman|kubectl|ssh|conda|nix|xargs|parallel|watch|strace|just)\s"
)
_WORD_START = re.compile(r"(?<=\s)(?=\S)")
# With these options, a runner tells of tests but runs none.
_RUNS_NO_TEST = re.compile(r"\s--?(?:version|help|h|collect-only|co|list|listTests|no-run)\b")
_GIT = re.compile(
    r"(?:\S*/)?git\s+(?:-[Cc]\s+(?:'[^']*'|\"[^\"]*\"|[^\s'\"])+\s+|--?\S+\s+)*([a-z-]+)(?![\w-])(.*)",
    re.DOTALL,
)
_COMMITTED = re.compile(
    r"^\[([^\]\s]+)(?: [^\]\n]*?)? ([0-9a-f]{7,40})\] (.*)$",
    re.MULTILINE,
)
_EXIT_CODE_AT_START = re.compile(
    r"^(?:Exit code:?|Process exited with code) (\d{1,3})\s*$", re.MULTILINE
)
_EXIT_CODE_AT_END = re.compile(
    r"(?:(?:Command|Process) exited with code|exit code:?) (\d{1,3})[\])]?\s*\Z"
)
_COLOUR_CODE = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_COUNTED = r"\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed|deselected|warnings?)"
_TEST_SUMMARY = re.compile(
    rf"(?:=+ )?{_COUNTED}(?:, {_COUNTED})* in [\d.]+ ?s.*"  # pytest
    r"|(?:=+ )?no tests ran\b.*"
    r"|Ran \d+ tests? in .*|OK(?: \(.*\))?|FAILED \(.*\)"  # unittest
    r"|Tests?:?  *\d.*\b(?:passed|failed|total|skipped)\b.*"  # jest, vitest
    r"|\d+ (?:passing|failing|pending)\b.*"  # mocha
    r"|test result: .*"  # cargo
    r"|(?:ok|FAIL)\s+\S+\s.*|FAIL"  # go
    r"|\d+ examples?, \d+ failures?.*"  # rspec
    r"|Tests: \d+, Assertions: .*"  # phpunit
    r"|\d+% tests passed.*"  # ctest
    r"|(?:\[\w+\] )?Tests run: .*|BUILD (?:SUCCESS|FAIL)\w*.*"  # maven, gradle
)
_REPORTS_FAILURE = re.compile(
    r"\b[1-9]\d* (?:failed|failing|errors?|failures?)\b|\b(?:failures?|errors?)[=:] ?[1-9]|FAIL",
    re.IGNORECASE,
)
_NO_FAILURE = re.compile(r"\b0 (?:failed|failing|errors?|failures?)\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class CommandPart:
    """One program and its arguments. `operator`: what joins it to the command before it."""

    text: str
    operator: str = ""


@dataclass(frozen=True, slots=True)
class GitCommand:
    """`verb`: such as "commit". `rest`: its options and arguments."""

    verb: str
    rest: str
    text: str

    @property
    def words(self) -> list[str]:
        """Return its options and arguments, without quotes. What is quoted is one word."""
        try:
            return shlex.split(self.rest)
        except ValueError:  # A quotation has no end, perhaps because the command was cut.
            return [word.strip("'\"") for word in self.rest.split()]

    @property
    def words_without_message(self) -> list[str]:
        """Return the words other than the message that follows -m, -am or --message."""
        words: list[str] = []
        option_before = ""
        for word in self.words:
            is_message = option_before.endswith("m") or option_before == "--message"
            option_before = ""
            if is_message:
                continue
            words.append(word)
            is_short_option = word.startswith("-") and not word.startswith("--")
            if is_short_option or word == "--message":
                option_before = word
        return words

    @property
    def takes_all_changes(self) -> bool:
        """Whether a commit takes all changed files, but no new ones: -a, -am, --all."""
        for word in self.words:
            is_short_option = word.startswith("-") and not word.startswith("--")
            # What follows -m is the message.
            if word == "--all" or (is_short_option and "a" in word.partition("m")[0]):
                return True
        return False


@dataclass(frozen=True, slots=True)
class ReportedCommit:
    """A commit as git reports it after making it."""

    branch: str
    commit: str
    subject: str


def split_command_line(command: str) -> list[CommandPart]:
    """Split a command line into its programs, at operators such as `&&` or `|` that are outside
    of quotes and here documents. Comments are left out.
    """
    # A document cut before its end would be taken for commands.
    line = strip_here_documents(command)[:LONGEST_COMMAND]
    parts: list[CommandPart] = []
    text = ""  # Of the program that is being read, up to `position`.
    operator_before = ""
    position = 0
    for token in _OPERATOR_OR_QUOTED.finditer(line):
        is_quoted = not token["comment"] and not token["operator"]
        if is_quoted:
            continue  # It belongs to the text of the program.
        text += line[position : token.start()]
        position = token.end()
        if token["operator"]:
            parts.append(CommandPart(text.strip(), operator_before))
            text = ""
            operator_before = token["operator"]
    text += line[position:]
    parts.append(CommandPart(text.strip(), operator_before))
    return [part for part in parts if part.text]


def _programs_of_command(command: str) -> Iterator[CommandPart]:
    """Yield every program, without what starts it, also those of an inner shell."""
    for part in split_command_line(command):
        program = _strip_what_starts_program(part.text)
        inner_shell = _INNER_SHELL.fullmatch(program)
        if inner_shell:
            yield from _programs_of_command(inner_shell[2])
        else:
            yield CommandPart(program, part.operator)


def _strip_what_starts_program(text: str) -> str:
    """Return a command from its program on, without `sudo`, `timeout 60` or `NAME=value`."""
    program = text
    before_program = _BEFORE_PROGRAM.match(program)
    while before_program:
        program = program[before_program.end() :]
        before_program = _BEFORE_PROGRAM.match(program)
    return program


def runs_tests(command: str) -> bool:
    return any(_runs_tests(program.text) for program in _programs_of_command(command))


def _runs_tests(program: str) -> bool:
    """Whether a program is a test runner, or runs one somewhere else, such as in a container."""
    if _RUNS_NO_TEST.search(program):
        return False
    if not _RUNS_ELSEWHERE.match(program):
        return bool(_TEST_RUNNER.match(program))
    # The program that it runs elsewhere may begin at any word.
    for word in _WORD_START.finditer(program):
        if _TEST_RUNNER.match(program, word.start()):
            return True
    return False


def is_exit_code_of_tests(command: str) -> bool:
    """Whether the exit code can only be that of the tests: nothing runs after them."""
    programs = list(_programs_of_command(command))
    if not programs:
        return False
    last_program = programs[-1]
    # After `||`, a program runs only if the one before it has failed.
    return last_program.operator != "||" and _runs_tests(last_program.text)


def find_git_commands(command: str) -> Iterator[GitCommand]:
    """Yield every command of git that a command line runs."""
    for program in _programs_of_command(command):
        git = _GIT.fullmatch(program.text)
        if git:
            yield GitCommand(git[1], git[2], program.text)


def find_reported_commit(output: str) -> ReportedCommit | None:
    """Return the last commit that an output reports."""
    reported = _COMMITTED.findall(output[-SEARCHED_TAIL:])
    if not reported:
        return None
    return ReportedCommit(*reported[-1])


def read_exit_code(output: str) -> int | None:
    """Return the exit code that an agent wrote into a command's output, or None."""
    if output.startswith("{"):
        exit_code = value_at(parse_json_or_none(output), "metadata", "exit_code")
        if not isinstance(exit_code, int):
            return None
        return exit_code
    # The command's own output begins after this line.
    lines_of_agent, _, _ = output[:SEARCHED_HEAD].partition("Output:\n")
    reported = _EXIT_CODE_AT_START.search(lines_of_agent)
    if reported is None:
        reported = _EXIT_CODE_AT_END.search(output[-SEARCHED_HEAD:])
    if reported is None:
        return None
    return int(reported[1])


def find_test_summary(output: str) -> str:
    """Return the lines in which test runners summarise a run, or else the last line."""
    last_line = ""
    summaries: dict[str, None] = {}  # Each once, in order.
    end_of_output = _unwrap_output(output)[-SEARCHED_TAIL:]
    for coloured_line in end_of_output.splitlines():
        line = _COLOUR_CODE.sub("", coloured_line).strip()
        if line:
            last_line = line
        if _TEST_SUMMARY.fullmatch(line):
            summaries[line] = None
    if not summaries:
        return last_line

    shown_summaries = list(summaries)[-MOST_SUMMARY_LINES:]
    # A command may run several suites. A failure before the last of them must not be hidden.
    failures = [line for line in summaries if _reports_failure(line)]
    if failures and failures[-1] not in shown_summaries:
        shown_summaries.insert(0, failures[-1])
    return " / ".join(line.strip("= ") for line in shown_summaries)


def _reports_failure(line: str) -> bool:
    without_zero_failures = _NO_FAILURE.sub("", line)
    return bool(_REPORTS_FAILURE.search(without_zero_failures))


def _unwrap_output(output: str) -> str:
    """Return a command's own output, which some agents wrap in JSON."""
    if not output.startswith('{"output"'):
        return output
    try:
        own_output = json.loads(output).get("output")
    except (ValueError, AttributeError, RecursionError):
        return output
    if not isinstance(own_output, str):
        return output
    return own_output
