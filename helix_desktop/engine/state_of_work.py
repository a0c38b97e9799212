"""Says where the work stands, from the record alone: tests, commits, changes, refusals, tasks.

A handover begins with these lines, because a model that summarises takes a plan for
what was done, and a red test run for a green one. Nothing here is guessed: what the
record does not say is not said, or said to be unknown.
"""

import asyncio
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace

from helix_desktop.engine import facts, span_text_and_detail_sources, test_and_commit_commands
from helix_desktop.engine.changes.turn_changes import printable_path
from helix_desktop.engine.changes.undo_notes_for_model import (
    name_changes_of_fact,
    read_undone_files,
)
from helix_desktop.engine.interpreter_pauses import InterpreterPauses
from helix_desktop.engine.ports import ContentCache
from helix_desktop.engine.strategies.markers import call_answered_by
from helix_desktop.engine.test_and_commit_commands import GitCommand, ReportedCommit
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, UNREAD
from helix_desktop.engine.tool_result_reading import (
    command_of_call,
    describe_call_as_source,
    find_changed_paths,
    find_open_tasks,
    is_test_tool,
    parse_call_arguments,
    read_refusal,
    shorten_with_mark,
)
from helix_desktop.engine.view import ConversationState
from helix_desktop.fast_dataclass import dataclass

HEADING = (
    "State of the work at number {seq}, written by the program from the record. "
    "Where anything below says otherwise, this holds."
)
LONGEST_COMMAND = 240  # A longer command is cut, with a mark.
LONGEST_SUMMARY = 240
LONGEST_TASK = 160
MOST_FILES = 12
MOST_TASKS = 10
MOST_EVENTS = 3  # Of refusals, stops and commands of git, this many of the newest are named.
# After a commit, these may have changed what is committed or what the files are.
_GIT_CHANGES = frozenset({
    "reset", "revert", "checkout", "switch", "restore", "rebase", "merge", "pull", "cherry-pick",
    "stash", "am", "apply", "clean",
})  # fmt: skip
_ADDS_EVERYTHING = frozenset((".", "-A", "--all", ":/", "*", "-u", "--update"))
_PATTERN_OR_VARIABLE = re.compile(r"[*?\[{$`]")
_DENIED_BY = {"user": "the user", "rule": "a rule", "mode": "the permission mode"}
_INTERRUPTED = "[Request interrupted by user"


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call with its result. `seq`: the result's number. `text`: its output, where it matters."""

    seq: int
    call: facts.ToolCall
    result: facts.ToolReturned
    values: Mapping[str, object]
    command: str
    text: str = ""

    @property
    def was_refused(self) -> bool:
        return not self.result.ok and read_refusal(self.text) is not None

    @property
    def was_stopped(self) -> bool:
        if self.result.stopped:
            return True
        says_so = self.text.startswith((NOT_BEGUN, UNREAD, _INTERRUPTED))
        return says_so and not self.result.ok

    @property
    def was_run(self) -> bool:
        return not self.was_refused and not self.was_stopped

    @property
    def key(self) -> tuple[str, str]:
        return self.call.name, self.call.arguments

    @property
    def is_test_run(self) -> bool:
        if is_test_tool(self.call.name):
            return True
        return test_and_commit_commands.runs_tests(self.command)

    @property
    def git_commands(self) -> list[GitCommand]:
        if "git" not in self.command:
            return []
        return list(test_and_commit_commands.find_git_commands(self.command))

    @property
    def needs_text(self) -> bool:
        """Whether the state depends on what the output says."""
        return not self.result.ok or "commit" in self.command


@dataclass(frozen=True, slots=True)
class OpenChange:
    """A file that differs from what it was. `is_exact`: its content before and after is known."""

    path: str
    seq: int
    before: object = None
    after: object = None
    is_exact: bool = True


@dataclass(frozen=True, slots=True)
class RecordedCommit:
    """`command` and `call`: what the agent ran for it; both are empty if the user committed
    in the window.
    """

    seq: int
    reported: ReportedCommit | None
    command: str = ""
    call: str = ""

    def describe(self) -> str:
        """Return the commit's hash, branch and subject, or what else is known of it."""
        who = ""
        if not self.call:
            who = ", by the user"
        if self.reported is not None:
            subject = shorten_with_mark(self.reported.subject, LONGEST_SUMMARY)
            return f'{self.reported.commit} on {self.reported.branch}, "{subject}"{who}'
        if self.command:
            return f"`{_on_one_line(self.command)}`"
        return f"a commit of the listed files{who}"


@dataclass(slots=True)
class StateOfWork:
    """What the record says of the work. It is filled fact by fact, oldest first."""

    tests: AnsweredCall | None = None
    commit: RecordedCommit | None = None
    unconfirmed_commit: AnsweredCall | None = None
    git_since: list[tuple[int, str]] = field(default_factory=list)
    changes: dict[str, OpenChange] = field(default_factory=dict)
    not_added: dict[str, OpenChange] = field(default_factory=dict)
    changed_by_commit_command: dict[str, OpenChange] = field(default_factory=dict)
    denied: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    stopped: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    stopped_turn: int = 0
    tasks: tuple[int, list[str]] | None = None
    _added: list[GitCommand] = field(default_factory=list)

    def add_answered_call(self, answered: AnsweredCall) -> None:
        """Note what a call says of tests, tasks and commits, if it was run, or that it was not."""
        if answered.was_stopped:
            self.stopped[answered.key] = (answered.seq, describe_call(answered.call))
            # Tests that were stopped half-way are the last run all the same.
            if answered.is_test_run and not answered.text.startswith(NOT_BEGUN):
                self.tests = answered
        if not answered.was_run:
            return
        # The same call has worked now, so that it was denied or stopped before is past.
        if answered.result.ok:
            self.denied.pop(answered.key, None)
            self.stopped.pop(answered.key, None)
        if answered.is_test_run:
            self.tests = answered
        tasks = find_open_tasks(answered.values)
        if tasks is not None and answered.result.ok:
            self.tasks = (answered.seq, tasks)
        self._add_git_commands(answered)

    def note_end_of_turn(self, seq: int, reason: facts.TurnEnd) -> None:
        self.stopped_turn = 0
        if reason is facts.TurnEnd.STOPPED:
            self.stopped_turn = seq

    def _add_git_commands(self, answered: AnsweredCall) -> None:
        for git in answered.git_commands:
            if git.verb in ("add", "stage", "rm", "mv"):
                self._added.append(git)
            elif git.verb == "commit" and "--dry-run" not in git.rest:
                self._add_commit(answered, git)
            elif git.verb in _GIT_CHANGES and not answered.result.exit_code and answered.result.ok:
                self.git_since.append((answered.seq, git.text))

    def _add_commit(self, answered: AnsweredCall, git: GitCommand) -> None:
        """Add a commit if its output or its exit code proves it, and otherwise note the doubt."""
        reported = test_and_commit_commands.find_reported_commit(answered.text)
        programs = test_and_commit_commands.split_command_line(answered.command)
        # The exit code of several programs together does not say whether git succeeded.
        is_success_certain = len(programs) == 1 and answered.result.exit_code == 0
        if reported is None and not is_success_certain:
            self.unconfirmed_commit = answered
            return
        left_out: dict[str, OpenChange] = {}
        for path, change in {**self.not_added, **self.changes}.items():
            if not self._may_be_in(change, git):
                left_out[path] = change
        commit = RecordedCommit(answered.seq, reported, answered.command, answered.call.id)
        self._begin_after_commit(commit, left_out)

    def add_commit_by_user(self, seq: int, committed: facts.FilesCommitted) -> None:
        """Add a commit that the user made in the window, of exactly these files."""
        # The paths have the number of their folder first.
        names = [printable_path(path.partition("/")[2]) for path in committed.paths]
        left_out: dict[str, OpenChange] = {}
        for path, change in {**self.not_added, **self.changes}.items():
            is_committed = any(_is_same_or_within(change.path, name) for name in names)
            if not is_committed:
                left_out[path] = change
        reported = test_and_commit_commands.find_reported_commit(committed.answer)
        self._begin_after_commit(RecordedCommit(seq, reported), left_out)

    def _begin_after_commit(self, commit: RecordedCommit, left_out: dict[str, OpenChange]) -> None:
        """Count changes from this commit on. `left_out`: earlier ones that are not in it."""
        self.commit = commit
        self.not_added = left_out
        self.unconfirmed_commit = None
        self.git_since.clear()
        self.changed_by_commit_command.clear()
        self.changes.clear()
        self._added.clear()

    def _may_be_in(self, change: OpenChange, commit: GitCommand) -> bool:
        """Whether a changed file may be in a commit, by the options of `git commit` and by what
        was given to `git add` before. What is not certain counts as yes.
        """
        is_new = change.is_exact and change.before is None
        if commit.takes_all_changes and not is_new:
            return True
        words = commit.words_without_message
        for added in self._added:
            words += added.words
        for word in words:
            if _names_everything(word) or _is_same_or_within(change.path, word):
                return True
        return False

    def add_change(self, change: OpenChange, call: str = "") -> None:
        """Add a change to what differs since the last commit. Earlier changes of the same file
        and this one become one, or none if the file is as it was.

        `call`: the id of the call that made it, if that is known.
        """
        commit = self.commit
        if commit is not None and call and commit.call == call:
            # The command that committed also changed files, before the commit or after it.
            programs = test_and_commit_commands.split_command_line(commit.command)
            if "commit" not in programs[-1].text:
                self.changed_by_commit_command[change.path] = change
            return
        whole_change = change
        earlier_change = self.changes.pop(change.path, None)
        if earlier_change is not None:
            is_exact = earlier_change.is_exact and change.is_exact
            whole_change = replace(change, before=earlier_change.before, is_exact=is_exact)
        was_changed_back = whole_change.is_exact and whole_change.before == whole_change.after
        if not was_changed_back:
            self.changes[change.path] = whole_change


def _names_everything(word: str) -> bool:
    """Whether a word of git add may stand for any file: an option, a pattern or a variable."""
    if word in _ADDS_EVERYTHING or _PATTERN_OR_VARIABLE.search(word):
        return True
    # Which files are in a folder above, or in the one where the command ran, is not known.
    if word and not word.strip("./"):
        return True
    # Several short options may be written as one, such as -Av.
    is_short_option = word.startswith("-") and not word.startswith("--")
    return is_short_option and ("A" in word or "u" in word)


def _is_same_or_within(path: str, name: str) -> bool:
    """Whether two ways to write a path may mean the same file, or a folder and a file in it."""
    # Between slashes, only whole names match, and never a part of one.
    path_in_slashes = f"/{path.strip('/')}/"
    name_below = name
    while name_below.startswith(("./", "../")):
        name_below = name_below.partition("/")[2]
    name_in_slashes = f"/{name_below.strip('/')}/"
    if name_in_slashes == "//":  # The name is empty, and would match everything.
        return False
    return name_in_slashes in path_in_slashes or name_in_slashes.endswith(path_in_slashes)


def describe_call(call: facts.ToolCall) -> str:
    command = command_of_call(call.name, parse_call_arguments(call.arguments), call.arguments)
    if command:
        return f"{call.name} `{_on_one_line(command)}`"
    return f"{call.name} {describe_call_as_source(call.arguments)}".strip()


async def describe_state_of_work(state: ConversationState, cache: ContentCache) -> str:
    """Return the state as lines, or an empty string if the record says nothing of it."""
    # Facts may be added while the outputs are read.
    seq_of_heading = state.seq
    work = await read_state_of_work(state, cache)
    lines = await _lines_about_tests(work, cache)
    lines += _lines_about_commits_and_changes(work)
    lines += await _lines_about_undos(state, cache)
    lines += _lines_about_events(work)
    lines += _lines_about_tasks(work)
    if not lines:
        return ""
    listed = "\n".join(f"- {line}" for line in lines)
    return f"{HEADING.format(seq=seq_of_heading)}\n{listed}"


async def read_state_of_work(state: ConversationState, cache: ContentCache) -> StateOfWork:
    """Compute the state from the facts that lead to the view, and the outputs that matter."""
    recorded_facts = state.facts_on_path()
    differences = await _read_differences(recorded_facts, cache)
    answered_calls = await _read_answered_calls(state, recorded_facts, cache)
    return await asyncio.to_thread(_follow_record, recorded_facts, differences, answered_calls)


def _follow_record(
    recorded_facts: Sequence[facts.Recorded],
    differences: Mapping[int, bytes],
    answered_calls: Mapping[int, AnsweredCall],
) -> StateOfWork:
    """Read all facts, oldest first. It runs in a thread."""
    pauses = InterpreterPauses()
    reader = _RecordReader(differences, answered_calls)
    reader.note_compared_calls(recorded_facts)
    for recorded in recorded_facts:
        pauses.sleep_after_long_stretch()
        reader.read_fact(recorded)
    return reader.work


class _RecordReader:
    """Reads facts into the state of the work, oldest first."""

    def __init__(
        self, differences: Mapping[int, bytes], answered_calls: Mapping[int, AnsweredCall]
    ) -> None:
        self.work = StateOfWork()
        self._differences = differences
        self._answered_calls = answered_calls
        self._compared_calls: set[str] = set()
        self._calls_by_id: dict[str, facts.ToolCall] = {}
        self._names_by_path: dict[str, str] = {}

    def note_compared_calls(self, recorded_facts: Sequence[facts.Recorded]) -> None:
        """Note the calls after which folders were compared: that says best what they changed."""
        for recorded in recorded_facts:
            if isinstance(recorded.fact, facts.FilesChanged):
                self._compared_calls.add(recorded.fact.call)

    def read_fact(self, recorded: facts.Recorded) -> None:
        """Follow the record by one fact. Most kinds of facts say nothing of the work."""
        seq = recorded.seq
        match recorded.fact:
            case facts.ModelReplied() as reply:
                self._remember_calls(reply)
            case facts.ToolReturned() if seq in self._answered_calls:
                self._read_result(self._answered_calls[seq])
            case facts.FilesChanged() as changed if seq in self._differences:
                self._read_changes(seq, changed)
            case facts.FilesCommitted() as committed:
                self.work.add_commit_by_user(seq, committed)
            case facts.Decided(allowed=False) as decided:
                call = self._calls_by_id.get(decided.call)
                _add_denial(self.work, call, decided.by, seq)
            case facts.TurnEnded() as turn_end:
                self.work.note_end_of_turn(seq, turn_end.reason)
            case facts.TodoSet() as todo:
                open_tasks: list[str] = []
                for text, task_state in todo.items:
                    if task_state != "done":
                        open_tasks.append(text)
                self.work.tasks = (seq, open_tasks)

    def _remember_calls(self, reply: facts.ModelReplied) -> None:
        for part in reply.parts:
            if isinstance(part, facts.ToolCall):
                self._calls_by_id[part.id] = part

    def _read_result(self, answered: AnsweredCall) -> None:
        self.work.add_answered_call(answered)
        _add_foreign_denial(self.work, answered)
        if answered.was_run and answered.call.id not in self._compared_calls:
            _add_changes_of_call(self.work, answered)

    def _read_changes(self, seq: int, changed: facts.FilesChanged) -> None:
        difference = self._differences[seq]
        for path_change in name_changes_of_fact(changed, difference, self._names_by_path):
            name = self._names_by_path[path_change.path]
            change = OpenChange(name, seq, path_change.before, path_change.after)
            self.work.add_change(change, changed.call)


async def _read_differences(
    recorded_facts: Sequence[facts.Recorded], cache: ContentCache
) -> dict[int, bytes]:
    """Return the difference of each change to files, by the number of its fact."""
    digests = {}
    for recorded in recorded_facts:
        if isinstance(recorded.fact, facts.FilesChanged):
            digests[recorded.seq] = recorded.fact.difference.digest
    contents = await cache.read_contents(frozenset(digests.values()))
    differences = {}
    for seq, digest in digests.items():
        if digest in contents:
            differences[seq] = contents[digest]
    return differences


async def _read_answered_calls(
    state: ConversationState, recorded_facts: Sequence[facts.Recorded], cache: ContentCache
) -> dict[int, AnsweredCall]:
    """Return each result with its call, by the result's number, with its text where it matters."""
    answered_calls = await asyncio.to_thread(_pair_calls_with_results, state, recorded_facts)
    calls_without_text = {
        seq: answered for seq, answered in answered_calls.items() if answered.needs_text
    }
    results = [recorded for recorded in recorded_facts if recorded.seq in calls_without_text]
    # Short outputs are read together, and long ones each by itself.
    short_texts = await span_text_and_detail_sources.read_short_outputs(results, cache)
    for seq, answered in calls_without_text.items():
        text = short_texts.get(answered.result.output)
        if not text:
            text = await read_output(answered, cache)
        answered_calls[seq] = replace(answered, text=text)
    return answered_calls


async def read_answered_calls_of(
    state: ConversationState, cache: ContentCache
) -> list[AnsweredCall]:
    """Return all calls that were answered, oldest first."""
    answered_calls = await _read_answered_calls(state, state.facts_on_path(), cache)
    return [answered_calls[seq] for seq in sorted(answered_calls)]


def _pair_calls_with_results(
    state: ConversationState, recorded_facts: Sequence[facts.Recorded]
) -> dict[int, AnsweredCall]:
    """Return each result with its call, by the result's number, still without the texts."""
    pauses = InterpreterPauses()
    answered_calls = {}
    for recorded in recorded_facts:
        pauses.sleep_after_long_stretch()
        result = recorded.fact
        call = call_answered_by(state.branch, recorded.seq)
        if call is not None and isinstance(result, facts.ToolReturned):
            values = parse_call_arguments(call.arguments)
            command = command_of_call(call.name, values, call.arguments)
            answered = AnsweredCall(recorded.seq, call, result, values, command)
            answered_calls[recorded.seq] = answered
    return answered_calls


async def read_output(answered: AnsweredCall, cache: ContentCache) -> str:
    """Return a call's output: from the fact if it is short, and otherwise from the cache."""
    result = answered.result
    if result.head:
        return result.head
    return await span_text_and_detail_sources.read_stored_text(cache, result.output)


def _add_foreign_denial(work: StateOfWork, answered: AnsweredCall) -> None:
    """Add the refusal of a call that another program reports in the call's output."""
    # This program's own refusals are recorded as decisions.
    is_own = answered.text.startswith(("This call was not run", UNREAD))
    if answered.was_refused and not is_own:
        description = f"{describe_call(answered.call)}, by the user"
        work.denied[answered.key] = (answered.seq, description)


def _add_denial(work: StateOfWork, call: facts.ToolCall | None, denied_by: str, seq: int) -> None:
    if call is not None:
        who = _DENIED_BY.get(denied_by, denied_by)
        work.denied[(call.name, call.arguments)] = (seq, f"{describe_call(call)}, by {who}")


def _add_changes_of_call(work: StateOfWork, answered: AnsweredCall) -> None:
    """Add what a call changed, by its result, or for other agents by the call itself."""
    for change in answered.result.changes:
        work.add_change(OpenChange(change.path, answered.seq, change.before, change.after))
    if answered.result.changes or not answered.result.ok:
        return
    call = answered.call
    for path in find_changed_paths(call.name, answered.values, answered.command, call.arguments):
        work.add_change(OpenChange(path, answered.seq, is_exact=False))


# --- The lines


async def _lines_about_tests(work: StateOfWork, cache: ContentCache) -> list[str]:
    """Describe the last test run: its command, its exit code and its summary."""
    answered = work.tests
    if answered is None:
        return []
    command = answered.call.name
    if answered.command:
        command = f"`{_on_one_line(answered.command)}`"
    test_run = f"Last test run [{answered.seq}]: {command}"
    if answered.was_stopped:
        return [f"{test_run} was stopped before it ended"]
    output = await read_output(answered, cache)
    summary = test_and_commit_commands.find_test_summary(output)
    exit_code = _describe_exit_code(answered, output)
    if not summary:
        return [f"{test_run}: {exit_code}, without output"]
    return [f'{test_run}: {exit_code}, "{shorten_with_mark(summary, LONGEST_SUMMARY)}"']


def _describe_exit_code(answered: AnsweredCall, output: str) -> str:
    """Say how a test run ended: with the recorded exit code, or the one that its output names."""
    code = answered.result.exit_code
    if code is None:
        code = test_and_commit_commands.read_exit_code(output)
    if code is None:
        if answered.result.ok:
            return "no exit code is recorded"
        return "it failed"
    if answered.command and not test_and_commit_commands.is_exit_code_of_tests(answered.command):
        return f"exit code {code} of the whole command line"
    return f"exit code {code}"


def _lines_about_commits_and_changes(work: StateOfWork) -> Iterator[str]:
    """Yield the last commit, and what was changed since then or is not in it."""
    changed_files = _list_files(work.changes.values())
    if work.commit is None:
        if changed_files:
            yield f"Changed files, without a recorded commit: {changed_files}"
    else:
        yield f"Last commit [{work.commit.seq}]: {work.commit.describe()}"
        yield f"Changed since that commit: {changed_files or 'nothing that is recorded'}"
        if work.not_added:
            left_out = "and in no recorded git add"
            if not work.commit.call:
                left_out = "and not in it"
            yield f"Changed before it, {left_out}: {_list_files(work.not_added.values())}"
        if work.changed_by_commit_command:
            by_command = _list_files(work.changed_by_commit_command.values())
            yield f"Changed by the command that committed: {by_command}"
    if work.unconfirmed_commit is not None:
        answered = work.unconfirmed_commit
        yield f"No commit is reported by the output of `{_on_one_line(answered.command)}` [{answered.seq}]"
    for seq, text in work.git_since[-MOST_EVENTS:]:
        yield f"Run since then [{seq}]: `{_on_one_line(text)}`"


async def _lines_about_undos(state: ConversationState, cache: ContentCache) -> list[str]:
    files = await read_undone_files(state, cache)
    undos = files.describe_undos(files.after_agent)
    if not undos:
        return []
    return [undos]


def _lines_about_events(work: StateOfWork) -> Iterator[str]:
    for seq, description in sorted(work.denied.values())[-MOST_EVENTS:]:
        yield f"Denied [{seq}]: {description}"
    for seq, description in sorted(work.stopped.values())[-MOST_EVENTS:]:
        yield f"Stopped before it was done [{seq}]: {description}"
    if work.stopped_turn:
        yield f"The turn that ended at number {work.stopped_turn} was stopped or interrupted."


def _lines_about_tasks(work: StateOfWork) -> Iterator[str]:
    """Yield a line with the first open tasks of the last task list, if there is one."""
    if work.tasks is None:
        return
    seq, tasks = work.tasks
    if not tasks:
        yield f"Open tasks [{seq}]: none is left on the list"
        return
    listed = []
    for task in tasks[:MOST_TASKS]:
        one_line = " ".join(task.split())
        listed.append(shorten_with_mark(one_line, LONGEST_TASK))
    if len(tasks) > MOST_TASKS:
        listed.append(f"and {len(tasks) - MOST_TASKS} more")
    yield f"Open tasks [{seq}]: {'; '.join(listed)}"


def _list_files(changes: Iterable[OpenChange]) -> str:
    newest = sorted(changes, key=lambda change: change.seq, reverse=True)
    names = [printable_path(change.path) + _what_was_done(change) for change in newest[:MOST_FILES]]
    listed = ", ".join(names)
    if len(newest) > MOST_FILES:
        listed += f" and {len(newest) - MOST_FILES:,} more"
    return listed


def _what_was_done(change: OpenChange) -> str:
    if not change.is_exact:
        return ""
    if change.after is None:
        return " (deleted)"
    if change.before is None:
        return " (new)"
    return ""


def _on_one_line(command: str) -> str:
    """Return a command's first line, with a mark if that is not all of it."""
    first_line, line_break, _ = command.strip().partition("\n")
    shortened = shorten_with_mark(first_line, LONGEST_COMMAND)
    is_cut_already = shortened != first_line
    if line_break and not is_cut_already:
        return f"{first_line} [cut]"
    return shortened
