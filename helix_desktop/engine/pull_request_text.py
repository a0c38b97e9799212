"""Writes the first text of a pull request from the record alone: what was asked, decided, tried,
changed and tested. People read and change it before it is sent, so it must not promise anything
that the record does not have: a test run that is missing is named as missing.
"""

import re
from collections.abc import Iterator, Sequence

from helix_desktop.engine import facts, state_of_work, test_and_commit_commands
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.state_of_work import AnsweredCall, OpenChange, StateOfWork
from helix_desktop.engine.stated_rules_and_decisions import states_a_decision
from helix_desktop.engine.tool_result_reading import shorten_with_mark
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

LONGEST_TITLE = 72  # Longer titles are cut in the lists of the sites.
LONGEST_REQUEST = 600
LONGEST_SENTENCE = 300
MOST_REQUESTS = 8
MOST_DECISIONS = 8
MOST_ATTEMPTS = 6
MOST_FILES = 40
MOST_COMMITS = 20
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|\n+")


@dataclass(frozen=True, slots=True)
class PullRequestText:
    title: str
    body: str


@dataclass(frozen=True, slots=True)
class CommittedFile:
    """A file in which the branch differs from the one that the pull request goes to."""

    path: str
    is_new: bool = False
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class BranchContents:
    """What a branch has and the one that the pull request goes to has not. `commits`: the subjects
    of its newest commits, the oldest first.
    """

    files: Sequence[CommittedFile]
    commits: Sequence[str]


async def write_pull_request_text(
    state: ConversationState,
    cache: ContentCache,
    branch_contents: BranchContents | None = None,
) -> PullRequestText:
    """Return a title and a body with a section for each thing that the record knows.

    `branch_contents`: None if it is not known. Then the changes in the conversation's record, and
    its last commit, stand for it.
    """
    work = await state_of_work.read_state_of_work(state, cache)
    calls = await state_of_work.read_answered_calls_of(state, cache)
    recorded_facts = state.facts_on_path()
    tests = await _describe_tests(work, cache)
    if branch_contents is None:
        changed_lines = _list_files_of_record(work)
        if work.commit is not None:
            changed_lines.append(f"Committed: {work.commit.describe()}")
    else:
        # The last commit of the record may be in the other branch already.
        changed_lines = _list_committed_files(branch_contents.files)
        for subject in branch_contents.commits[-MOST_COMMITS:]:
            changed_lines.append(f"Committed: {_join_and_shorten(subject, LONGEST_SENTENCE)}")
    sections = [
        ("What was asked", _list_requests(recorded_facts)),
        ("What was decided", _list_decisions(recorded_facts)),
        ("What was tried", _list_attempts(calls)),
        ("What changed", changed_lines),
        ("Tests", tests),
    ]
    blocks: list[str] = []
    for heading, lines in sections:
        if lines:
            points = "\n".join(f"- {line}" for line in lines)
            blocks.append(f"## {heading}\n\n{points}")
    title = shorten_with_mark(state.title or _first_request(recorded_facts), LONGEST_TITLE)
    return PullRequestText(title, "\n\n".join(blocks) + "\n")


def _texts_of_user(recorded_facts: Sequence[facts.Recorded]) -> Iterator[str]:
    """Yield what the user wrote, without what the program or another agent said for them."""
    for recorded in recorded_facts:
        message = recorded.fact
        if not isinstance(message, facts.UserSaid) or message.by:
            continue
        for part in message.parts:
            if isinstance(part, facts.Text) and part.text.strip():
                yield part.text.strip()


def _first_request(recorded_facts: Sequence[facts.Recorded]) -> str:
    for text in _texts_of_user(recorded_facts):
        return text.splitlines()[0]
    return ""


def _list_requests(recorded_facts: Sequence[facts.Recorded]) -> list[str]:
    """Return the user's first messages, shortened, and how many more there are."""
    requests = list(_texts_of_user(recorded_facts))
    lines = [_join_and_shorten(request, LONGEST_REQUEST) for request in requests[:MOST_REQUESTS]]
    left_out_count = len(requests) - MOST_REQUESTS
    if left_out_count == 1:
        lines.append("and one more message")
    elif left_out_count > 1:
        lines.append(f"and {left_out_count} more messages")
    return lines


def _list_decisions(recorded_facts: Sequence[facts.Recorded]) -> list[str]:
    """Return the newest sentences of user and model that state a decision, each once."""
    sentences: list[str] = []
    for recorded in recorded_facts:
        for text in _texts_people_read(recorded.fact):
            sentences += _SENTENCE_END.split(text)

    decisions: list[str] = []
    for sentence in sentences:
        line = _join_and_shorten(sentence, LONGEST_SENTENCE)
        if line not in decisions and states_a_decision(sentence):
            decisions.append(line)
    return decisions[-MOST_DECISIONS:]


def _texts_people_read(fact: facts.Fact) -> Iterator[str]:
    if isinstance(fact, facts.UserSaid | facts.ModelReplied):
        for part in fact.parts:
            if isinstance(part, facts.Text):
                yield part.text


def _list_attempts(calls: Sequence[AnsweredCall]) -> list[str]:
    """Name the commands that failed, with what became of them."""
    runs_by_command: dict[str, list[AnsweredCall]] = {}
    for answered in calls:
        if answered.command and answered.was_run:
            runs_by_command.setdefault(answered.command, []).append(answered)
    lines: list[str] = []
    for command, runs in runs_by_command.items():
        failure_count = sum(not run.result.ok for run in runs)
        if not failure_count:
            continue
        if failure_count == 1:
            failed = "failed once"
        else:
            failed = f"failed {failure_count} times"
        if runs[-1].result.ok:
            outcome = "and then succeeded"
        elif len(runs) > 1:
            outcome = "the last time too"
        else:
            outcome = "and was not run again"
        short_command = _join_and_shorten(command, LONGEST_SENTENCE)
        lines.append(f"`{short_command}` {failed}, {outcome}")
    return lines[-MOST_ATTEMPTS:]


def _list_committed_files(committed_files: Sequence[CommittedFile]) -> list[str]:
    """Return a line for each file of the branch, and how many exceed the limit."""
    lines: list[str] = []
    for file in committed_files[:MOST_FILES]:
        line = f"`{printable_path(file.path)}`"
        if file.is_deleted:
            line += " (deleted)"
        elif file.is_new:
            line += " (new)"
        lines.append(line)
    left_out_count = len(committed_files) - MOST_FILES
    if left_out_count > 0:
        lines.append(f"Files that are not listed here: {left_out_count}")
    return lines


def _list_files_of_record(work: StateOfWork) -> list[str]:
    """Return a line for each changed file, in the order of paths, and the number of those that
    exceed the limit. A file is called new or deleted only if its change is known exactly.
    """
    changes: dict[str, OpenChange] = {**work.not_added, **work.changes}
    lines: list[str] = []
    for path in sorted(changes)[:MOST_FILES]:
        change = changes[path]
        line = f"`{printable_path(path)}`"
        if change.is_exact and change.after is None:
            line += " (deleted)"
        elif change.is_exact and change.before is None:
            line += " (new)"
        lines.append(line)
    left_out_count = len(changes) - MOST_FILES
    if left_out_count > 0:
        lines.append(f"Files that are not listed here: {left_out_count}")
    return lines


async def _describe_tests(work: StateOfWork, cache: ContentCache) -> list[str]:
    """Describe the last test run, and name what was changed after it and so was not tested."""
    test_run = work.tests
    if test_run is None:
        return ["No test run is recorded: these changes were not tested here."]
    run_name = test_run.call.name
    if test_run.command:
        run_name = f"`{_join_and_shorten(test_run.command, LONGEST_SENTENCE)}`"
    if test_run.was_stopped:
        return [f"{run_name} was stopped before it ended: these changes were not tested here."]

    outcome = "failed"
    if test_run.result.ok:
        outcome = "succeeded"
    output = await state_of_work.read_output(test_run, cache)
    summary = test_and_commit_commands.find_test_summary(output)
    lines = [f"{run_name} {outcome}"]
    if summary:
        lines = [f"{run_name} {outcome}: “{_join_and_shorten(summary, LONGEST_SENTENCE)}”"]

    paths_changed_later = []
    for path, change in work.changes.items():
        if change.seq > test_run.seq:
            paths_changed_later.append(path)
    if paths_changed_later:
        listed_paths = sorted(paths_changed_later)[:MOST_FILES]
        names = ", ".join(f"`{printable_path(path)}`" for path in listed_paths)
        lines.append(f"Changed after that run, so not tested: {names}")
    return lines


def _join_and_shorten(text: str, limit: int) -> str:
    return shorten_with_mark(" ".join(text.split()), limit)
