"""Details that must not be lost. They are collected from facts
without a model, checked against a summary and kept across handovers.

Critical details are demands, prohibitions and figures of the user, decisions, files
that were made, commands that fail or work, open tasks, lessons, and what an agent
reports. They appear word for word in the document with their seq, as far as there is
room, and only they are counted. All details are in one cache entry that the document
names, followed by an index of the names, paths and addresses in the covered facts, each
once (`fold_document_writer.py`). A later handover inherits them without reading the
facts again.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice

from helix_desktop.engine import agent_findings, stated_rules_and_decisions, tool_result_reading
from helix_desktop.engine.agent_findings import split_sentences
from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.ports import TokenCounter
from helix_desktop.engine.user_preferences import UserPreferences
from helix_desktop.fast_dataclass import dataclass

# The heading of a list in a handover.
NEWEST_OUTPUTS = "Its newest outputs, newest first, as recall_cached_content finds them:"
KEPT_HEADING = "\nKept word for word:"  # The line break starts a new paragraph after the last item.
LONGEST_SENTENCE = 1_000  # At most this many characters of a stated rule or decision are kept.
# In messages of the user with more characters, each sentence is searched for demands.
BRIEF_MESSAGE = 600
ERROR_LINE = 2_000
COMMAND = 2_000
SHOWN_COMMAND = 400  # Of a longer command that failed or proves something, the rest is cut.
LONGEST_FAILURE = 600  # Of a longer failure that was solved, the rest is cut.
LONGEST_REFERENCE = 8_000  # An address or path of more characters than this is cut.
# Only this many characters at the beginning of a user's message are kept.
LONGEST_MESSAGE = 100_000
# The paths in a call that reads something are searched for in so many characters of it.
SEARCHED_FOR_READ_PATHS = 2_000
MOST_READ_PATHS = 8
MOST_FAILURES = 12  # Only this many of the newest failures without a solution are critical.
LINES_READ = 100_000  # Only this many lines of an output are searched for errors.
# The most characters of a stored list of details. What it has no room for is discarded.
REFERENCE_LIMIT = 2_000_000
LEAST_LINE = 10  # In a stored list of details, the characters of a line besides the detail itself.
# The most words of a text that differ only in digits. A log could contain millions.
MOST_NUMBERED_WORDS = 40
# Texts are searched in pieces of this many characters, because a search blocks other threads.
SEARCHED_PIECE = 1 << 16

CRITICAL = (
    "rule",
    "figure",
    "todo",
    "decision",
    "failure",
    "lesson",
    "report",
    "written",
    "works",
    "artifact",
)
REFERENCE = (
    "message",
    "wish",
    "stored",
    "error",
    "url",
    "read",
    "command",
    "path",
    "identifier",
    "unseen",
)
# Details of these kinds contain no spaces, so those of one message share a line of the stored list.
WORDS = ("url", "read", "path", "identifier", "unseen")
# A name in an output of which the model only saw an excerpt. These have an entry of
# their own.
UNSEEN = "unseen"
KINDS = CRITICAL + REFERENCE

# An address may follow any character, even the "n" of an escaped line break (\nhttps://).
_URL = re.compile(r"https?://[^\s<>\"'`\\]+")
# Every repetition in this pattern has a limit, because the texts may be hostile.
# Without limits, a text of a million letters could take quadratic time.
_PATH = re.compile(
    # a path with a slash or backslash
    r"(?<![\w:/])(?:~|\.{1,2}|[A-Za-z]:)?[/\\]?(?:[\w.@+-]{1,120}[/\\]){1,40}[\w.@+-]{0,120}"
    r"|(?<![\w/])~?/[\w.@+-]{1,120}"  # a name directly in the root folder or the home folder
    r"|\b[\w-]{1,120}\.[a-zA-Z]\w{0,9}\b"  # a file name with an extension
    r"|(?<![\w.])\.[A-Za-z][\w.-]{1,60}"  # a file name that begins with a dot
)
_IDENTIFIER = re.compile(r"(?<![A-Za-z0-9_])\d{0,20}[A-Za-z_][\w./-]{5,900}")  # behind digits, too
_NUMBERED = re.compile(r"\b[\w-]{0,60}\d[\w-]{3,60}\b")
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|failed|failure|panic|cannot|can't|denied"
    r"|refused|undefined|unresolved|not found|no such|unable to|could not|unexpected"
    r"|killed|ENOENT|EACCES|errno|segfault|aborted|assert\w*|timed? ?out|invalid)\b"
    r"|\w(?:Error|Exception|Warning)\b|\bERR!|^E\s{2,}|✗|错误|失败|Fehler",
    re.IGNORECASE,
)
# Every line that `_ERROR` matches contains one of these lower-case words, or its second character
# is a space. Searching for them first is faster than matching the pattern against each line.
_TELLS = (
    "error", "exception", "warning", "traceback", "fatal", "fail", "panic", "cannot", "can't",
    "denied", "refused", "undefined", "unresolved", "not found", "no such", "unable to",
    "could not", "unexpected", "killed", "enoent", "eacces", "errno", "segfault", "aborted",
    "assert", "timed", "time out", "timeout", "invalid", "err!", "✗", "错误", "失败", "fehler",
)  # fmt: skip
_YES = re.compile(
    r"^\W*(?:yes|yep|yeah|ok(?:ay)?|sure|agreed|correct|right|exactly|go ahead|do it"
    r"|sounds good|approved|confirmed|ja\b|genau|einverstanden|oui|d'accord|sí|好的?|可以"
    r"|同意|是的|对|はい|네|да)",
    re.IGNORECASE,
)
_FIGURE = re.compile(
    r"\b\d[\d.,]*\s?(?:%|ms|s|sec\w*|min\w*|h|hours?|days?|weeks?|[kKMGT]i?B|bytes?"
    r"|tokens?|lines?|words?|characters?|users?|rows?|requests?|times|EUR|USD"
    r"|dollars?|euros?|€|px|percent)(?!\w)|[$€£]\s?\d[\d.,]*|[≤≥<>]=?\s?\d[\d.,]*"
)
_LIMIT = re.compile(
    r"\b(?:up to|under|below|above|within|less than|more than|fewer than|budget"
    r"|target|goal|limit|unter|über|binnen|innerhalb)\b|[≤≥]",
    re.IGNORECASE,
)
_GO_ON = "go on|go ahead|continue|proceed|next|do (?:it|that|so)|please|thanks?(?: you| a lot)?|thx|weiter|bitte|danke|继续|谢谢"
# A whole message that only agrees.
_NOD = re.compile(rf"(?:{_YES.pattern}|)\W*(?:{_GO_ON}|)\W*", re.IGNORECASE)
_RECORDED = re.compile(r"\[[^\]]*\]")  # A note added by a recorder: [Request interrupted by user].
_DIGITS = re.compile(r"\d+")
_DONE = re.compile(r"^(?:created|changed|deleted) ")
_READS = re.compile(r"read|view|open|cat|get|fetch|list|grep|search|find|ls", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class DetailSource:
    seq: int
    # "user", "assistant", "call", "output", or "addition": what an agent's own program adds to
    # the user's message.
    role: str
    text: str
    tool: str = ""
    ok: bool = True
    names: tuple[str, ...] = ()  # The names of attached or produced files.
    changes: tuple[FileChanged, ...] = ()
    excerpt: str = ""  # What the model saw of the text, if it never saw all of it.


@dataclass(frozen=True, slots=True)
class Detail:
    """One detail. `times`: how often it was said or seen. `seq`: the last time."""

    kind: str
    text: str
    seq: int
    times: int = 1

    @property
    def is_critical(self) -> bool:
        """Whether the detail belongs in the document itself."""
        return self.kind in CRITICAL

    def format_reference_line(self) -> str:
        """Return the detail's lines in a stored list, which `details_entry` reads again."""
        numbers = str(self.seq)
        if self.times > 1:
            numbers += f" x{self.times}"
        more_lines = self.text.count("\n")
        if more_lines:
            numbers += f" +{more_lines} lines"
        return f"{self.kind} [{numbers}] {self.text}"


# By kind and text. A key of both would take as much memory as a detail.
MergedDetails = dict[str, dict[str, "Detail"]]


def merge_details(details: Iterable[Detail]) -> list[Detail]:
    """Merge equal details into one, with the latest seq and the sum of their counts."""
    merged: MergedDetails = {}
    for detail in details:
        _merge_detail_and_count_new_characters(merged, detail)
    return _list_merged_details(merged)


def _list_merged_details(merged: MergedDetails) -> list[Detail]:
    details: list[Detail] = []
    for details_of_kind in merged.values():
        details += details_of_kind.values()
    return details


def _merge_detail_and_count_new_characters(merged: MergedDetails, detail: Detail) -> int:
    """Return how many characters the detail adds to an entry: none if an equal one is there."""
    details_of_kind = merged.setdefault(detail.kind, {})
    earlier = details_of_kind.get(detail.text)
    if earlier is not None:
        details_of_kind[detail.text] = Detail(
            detail.kind,
            detail.text,
            seq=max(earlier.seq, detail.seq),
            times=earlier.times + detail.times,
        )
        return 0
    details_of_kind[detail.text] = detail
    if detail.kind in WORDS:
        return len(detail.text) + 1  # Words of one message share a line.
    return len(detail.text) + LEAST_LINE


def merge_details_and_replace_todos(
    details_before: Iterable[Detail],
    new_details: Iterable[Detail],
    todo: Sequence[tuple[str, str]],
) -> list[Detail]:
    """Combine a document's details with later ones. Only the current task list is kept."""
    earlier_details = [detail for detail in details_before if detail.kind != "todo"]
    open_tasks = [Detail("todo", text, 0) for text, state in todo if state != "done"]
    return merge_details(chain(earlier_details, new_details, open_tasks))


def names_a_file(written: str) -> bool:
    """Whether a detail names a file. Earlier versions took words of a command for files."""
    path = _DONE.sub("", written)
    says_what_was_done = path != written
    return says_what_was_done or _may_be_path(path)


@dataclass(frozen=True, slots=True)
class _AttemptedCall:
    """What a call tries to do, its command line, and the files that it writes if it succeeds."""

    seq: int
    subject: str
    line: str = ""
    paths: tuple[str, ...] = ()


class DetailCollector:
    """Collects details in one pass over the sources.

    A failure waits for its solution and then becomes a lesson; a proof holds until the same
    fails. Details without room in an entry are dropped at once, because a command may print a
    million numbers.
    """

    def __init__(self) -> None:
        self.merged: MergedDetails = {}
        self._preferences = UserPreferences()
        self._size = 0  # The characters of the entry that the found details would make.
        # The assistant's last sentence, which the user's next message may answer.
        self._question = ""
        # The assistant's last message. What is kept of it depends on whether it also makes a call.
        self._last_message: DetailSource | None = None
        # How many calls there have been, and how many of them were answered.
        self._call_count = 0
        self._answer_count = 0
        self._last_call = 0  # The fact number of the last call.
        # Failures without a solution yet, by action and error: the fact number and a description.
        self._failures: dict[tuple[str, str], tuple[int, str]] = {}
        # By action: the command that last worked and proves something, and its fact number.
        self._proofs: dict[str, tuple[int, str]] = {}
        # True if a call has changed a file or checked something since the user's last message.
        self._has_acted = False
        # By how many calls there were before each of them. Results come in the same order.
        self._calls_without_result: dict[int, _AttemptedCall] = {}
        # How often each word of a text occurs, with 0 for all its digits.
        self._shape_counts: Counter[str] = Counter()
        # The last list of tasks, "given" by a call or "said" by the agent: its fact
        # number, and the open tasks.
        self._open_tasks: dict[str, tuple[int, list[str]]] = {}

    def collect_from_sources(
        self, sources: Iterable[DetailSource], between: Callable[[], None]
    ) -> None:
        for source in sources:
            self._collect_from_source(source)
            between()

    def _collect_from_source(self, source: DetailSource) -> None:
        """Collect what matters by who said it, and then the names and addresses in it."""
        match source.role:
            case "user":
                self._collect_from_user(source)
            case "assistant":
                self._collect_from_assistant(source)
            case "output":
                self._collect_from_output(source)
            case "call":
                self._remember_attempted_call(source)
                # The values alone, because names would be found with JSON's escapes in them.
                readable_call = replace(source, text=format_argument_values(source.text))
                self._collect_from_call(readable_call)
                self._collect_references(readable_call)
                return
        self._collect_references(source)

    def inherit_details(self, before: Iterable[Detail]) -> list[Detail]:
        """Take over the details of an earlier document that later messages may settle: demands,
        commands that work, and failures. Return its other details.
        """
        other_details = []
        for detail in before:
            if detail.kind == "rule":
                self._preferences.add_demand(detail.text, detail.seq, detail.times)
            elif detail.kind == "works":
                self._proofs[detail.text] = (detail.seq, detail.text)
            elif detail.kind == "failure" and " failed: " in detail.text:
                command, _, error = detail.text.partition(" failed: ")
                self._failures[command, error] = (detail.seq, detail.text)
            elif detail.kind != "written" or names_a_file(detail.text):
                other_details.append(detail)
        return other_details

    def finish_collecting(self) -> list[Detail]:
        """Add what no later message has settled, and return all details.

        A settled demand is only a wish, and of many failures only the newest are critical.
        """
        self._collect_from_last_message_without_calls()
        for demand in self._preferences.demands:
            kind = "rule"
            if demand.is_settled:
                kind = "wish"
            self.add_detail(Detail(kind, demand.text, demand.seq, demand.times))
        for seq, command in self._proofs.values():
            self._add_detail_line("works", command, seq)
        failures = sorted(self._failures.values())
        for seq, failure in failures[:-MOST_FAILURES]:
            self._add_detail_line("error", failure, seq)
        for seq, failure in failures[-MOST_FAILURES:]:
            self._add_detail_line("failure", failure, seq)
        for seq, tasks in self._open_tasks.values():
            for text in tasks:
                self._add_detail_line("todo", text, seq)
        details = _list_merged_details(self.merged)
        self.merged = {}
        return details

    def _add_detail_line(
        self, kind: str, text: str, seq: int, limit: int = LONGEST_SENTENCE
    ) -> None:
        line = _join_lines(text)
        if line:
            short_line = tool_result_reading.shorten_with_mark(line, limit)
            self.add_detail(Detail(kind, short_line, seq))

    def _add_demand(self, text: str, seq: int) -> None:
        line = _join_lines(text)
        if line:
            demand = tool_result_reading.shorten_with_mark(line, LONGEST_SENTENCE)
            self._preferences.add_demand(demand, seq)

    def add_detail(self, detail: Detail) -> None:
        """Add a detail. Discard the least important if there are far more than an entry
        has room for.
        """
        self._size += _merge_detail_and_count_new_characters(self.merged, detail)
        # Sorting takes long, so it waits until the limit is exceeded by a quarter.
        if self._size <= REFERENCE_LIMIT * 5 // 4:
            return
        most_important_first = sort_details(_list_merged_details(self.merged))
        self.merged = {}
        self._size = 0
        for important_detail in most_important_first:
            if self._size > REFERENCE_LIMIT:
                break
            self._size += _merge_detail_and_count_new_characters(self.merged, important_detail)

    def _collect_from_user(self, source: DetailSource) -> None:
        """Collect a user's message: a decision if it answers a question, and demands."""
        self._collect_from_last_message_without_calls()
        self._has_acted = False
        self._preferences.add_next_message()
        text = source.text.strip()
        if text:
            self.add_detail(Detail("message", text[:LONGEST_MESSAGE], source.seq))
        is_short = len(text) < LONGEST_SENTENCE
        confirms_question = bool(self._question and is_short and _YES.match(text))
        states_a_rule = stated_rules_and_decisions.states_a_rule(text)
        if confirms_question:
            confirmation = text
            if states_a_rule:
                # What follows the agreement is a demand of its own.
                confirmation = split_sentences(text)[0]
            self._add_detail_line("decision", f"{self._question} — {confirmation}", source.seq)
        if len(text) > BRIEF_MESSAGE:
            self._collect_demands(source)
        elif states_a_rule or not (confirms_question or _is_no_demand(text)):
            self._add_demand(text, source.seq)
        for name in source.names:
            self._add_detail_line("artifact", name, source.seq)

    def _collect_demands(self, source: DetailSource) -> None:
        """Collect a long message's demanding sentences, and pasted errors."""
        for sentence in split_sentences(source.text[:LONGEST_MESSAGE]):
            if stated_rules_and_decisions.states_a_rule(sentence):
                self._add_demand(sentence, source.seq)
            elif _states_a_limit(sentence):
                self._add_detail_line("figure", sentence, source.seq)
            elif stated_rules_and_decisions.states_a_wish(sentence):
                self._add_detail_line("wish", sentence, source.seq)
            is_short = len(sentence) < LONGEST_SENTENCE // 2
            if is_short and stated_rules_and_decisions.states_a_decision(sentence):
                self._add_detail_line("decision", sentence, source.seq)
        for line in tool_result_reading.find_pasted_errors(source.text):
            self._add_detail_line("failure", line, source.seq)

    def _collect_from_assistant(self, source: DetailSource) -> None:
        """Collect open tasks, and remember the message and its last sentence for what follows."""
        self._collect_from_last_message_without_calls()
        self._last_message = replace(source, text=source.text[:LONGEST_MESSAGE])
        tasks = list(agent_findings.find_tasks_left_open(self._last_message.text))
        if tasks:
            self._open_tasks["said"] = (source.seq, tasks)
        sentences = split_sentences(source.text)
        self._question = ""
        if sentences and len(sentences[-1]) > 3:
            last_sentence = sentences[-1]
            self._question = tool_result_reading.shorten_with_mark(
                last_sentence, LONGEST_SENTENCE // 2
            )

    def _collect_from_last_message_without_calls(self) -> None:
        """Keep the report and conclusions of the last message, unless it called a tool."""
        message = self._last_message
        self._last_message = None
        if message is None:
            return
        calls_a_tool = bool(self._call_count) and self._last_call == message.seq
        if calls_a_tool:
            return
        report = ""
        if self._has_acted:
            report = agent_findings.extract_report(message.text)
            self._preferences.add_answer()
        text_after_report = message.text[len(report) :]
        if report and text_after_report.rstrip():
            self._add_detail_line("report", report + tool_result_reading.CUT, message.seq)
        else:
            self._add_detail_line("report", report, message.seq)
        for conclusion in agent_findings.find_conclusions(text_after_report):
            self._add_detail_line("lesson", conclusion, message.seq)

    def _remember_attempted_call(self, source: DetailSource) -> None:
        """Note what a call tries to do. Whether it did is known only from its result."""
        arguments = tool_result_reading.parse_call_arguments(source.text)
        command = tool_result_reading.command_of_call(source.tool, arguments, source.text)
        paths = tuple(
            tool_result_reading.find_changed_paths(source.tool, arguments, command, source.text)
        )
        tasks = tool_result_reading.find_open_tasks(arguments)
        if tasks is not None:
            self._open_tasks["given"] = (source.seq, tasks)
        if paths or tool_result_reading.is_verifying_command(command):
            self._has_acted = True
        self._keep_finding_beside_call(source.seq, changes=bool(paths))
        subject = tool_result_reading.key_shared_by_attempts(source.tool, arguments, command)
        self._calls_without_result[self._call_count] = _AttemptedCall(
            source.seq, subject, command, paths
        )

    def _keep_finding_beside_call(self, seq: int, *, changes: bool) -> None:
        """Keep what was said in the same message as a call, if it reports a finding."""
        message = self._last_message
        if message is None or message.seq != seq:
            return
        if agent_findings.reports_finding(message.text, changes=changes):
            self._add_detail_line("lesson", message.text, seq)
            self._last_message = None

    def _collect_written_paths(self, call: _AttemptedCall, changes: Sequence[FileChanged]) -> None:
        """Collect the files that a call wrote, apart from changes that are collected already."""
        for path in call.paths:
            self._preferences.add_changed_file(path)
            if not _is_among_changes(path, changes):
                self._add_detail_line("written", path, call.seq)

    def _collect_from_call(self, source: DetailSource) -> None:
        self._call_count += 1
        self._last_call = source.seq
        self._add_detail_line("command", f"{source.tool} {source.text}", source.seq, COMMAND)
        if _READS.search(source.tool):
            paths = _PATH.findall(source.text[:SEARCHED_FOR_READ_PATHS])
            for path in paths[:MOST_READ_PATHS]:
                self._add_detail_line("read", path, source.seq)

    def _collect_from_output(self, source: DetailSource) -> None:
        """Collect what a call changed, its errors, and whether it failed or was refused."""
        self._collect_products_and_error_lines(source)

        has_call = self._answer_count < self._call_count
        call_if_unknown = _AttemptedCall(source.seq, source.tool)
        call = self._calls_without_result.pop(self._answer_count, call_if_unknown)
        if has_call:
            self._answer_count += 1
        is_command = bool(call.line) or not has_call
        failure = tool_result_reading.describe_failure(
            source.text, ok=source.ok, command=is_command
        )
        refusal = None
        if not source.ok:
            refusal = tool_result_reading.read_refusal(source.text)
        if refusal is not None:
            self._add_demand(refusal, source.seq)
        elif not failure:
            self._collect_written_paths(call, source.changes)
        if failure:
            self._remember_failure(call, source.seq, failure, was_refused=refusal is not None)
        else:
            self._resolve_failures(call, source.seq)

    def _collect_products_and_error_lines(self, source: DetailSource) -> None:
        """Collect what an output shows by itself, whatever call it answers."""
        for change in source.changes:
            self._preferences.add_changed_file(change.path)
            verb = describe_change(before=change.before, after=change.after)
            self._add_detail_line("written", f"{verb} {change.path}", source.seq)
        for name in source.names:
            self._add_detail_line("artifact", name, source.seq)
        for error in find_error_lines(source.text):
            self._add_detail_line("error", error, source.seq, ERROR_LINE)

    def _remember_failure(
        self, call: _AttemptedCall, seq: int, failure: str, *, was_refused: bool
    ) -> None:
        """Keep a failure until a call like it works. What it disproves is no longer proven."""
        label = _show_command(call.line) or call.subject
        if was_refused:
            # Only the same command shows that what was not run works after all.
            self._add_newest_failure((label, failure), seq, f"{label}: {failure}")
            return
        self._add_newest_failure((call.subject, failure), seq, f"{label} failed: {failure}")
        self._proofs.pop(call.subject, None)
        self._proofs.pop(label, None)

    def _add_newest_failure(self, key: tuple[str, str], seq: int, text: str) -> None:
        # An earlier failure of the same kind moves to the end of the order.
        self._failures.pop(key, None)
        self._failures[key] = (seq, text)

    def _resolve_failures(self, call: _AttemptedCall, seq: int) -> None:
        """Turn the failures that this call solves into lessons, or note what it proves.

        A call solves an earlier failure if it attempts the same thing.
        """
        label = _show_command(call.line) or call.subject
        solved_failures = []
        for subject, error in self._failures:
            if subject in (call.subject, label):
                solved_failures.append((subject, error))
        for key in solved_failures:
            failed_seq, failure = self._failures.pop(key)
            solution = f"worked: {label}"
            if failure.startswith((f"{label} failed", f"{label}: ")):
                solution = "it worked"
            failure_line = tool_result_reading.shorten_with_mark(failure, LONGEST_FAILURE)
            lesson = f"{failure_line} — then {solution}"
            self._add_detail_line("lesson", lesson, max(failed_seq, seq))
        if solved_failures or not call.line:
            return
        if tool_result_reading.is_verifying_command(call.line):
            self._proofs[call.subject] = (seq, label)

    def _collect_references(self, source: DetailSource) -> None:
        """Examine each word once. References contain no spaces."""
        if not source.excerpt:
            self._collect_names(source.text, source.seq)
            return
        self._collect_names(source.excerpt, source.seq)
        self._collect_names(source.text, source.seq, UNSEEN)

    def _collect_names(self, text: str, seq: int, kind: str = "") -> None:
        """Collect a text's addresses, paths and identifiers, all as one kind if it is given."""
        self._shape_counts.clear()
        for piece in split_into_pieces_at_line_ends(text):
            words = dict.fromkeys(piece.split())
            words_with_address = [word for word in words if "://" in word]
            for url in _find_in_words(_URL, words_with_address):
                self._add_detail_line(kind or "url", url, seq, LONGEST_REFERENCE)

            words_like_paths = [word for word in words if _may_be_path(word)]
            paths = _find_in_words(_PATH, words_like_paths)
            for path in paths:
                self._add_detail_line(kind or "path", path, seq, LONGEST_REFERENCE)

            self._collect_identifiers(words, paths, seq, kind or "identifier")

    def _collect_identifiers(
        self, words: Mapping[str, None], paths: Mapping[str, None], seq: int, kind: str
    ) -> None:
        """Collect names and numbered words that are no paths. Of those which differ only in
        digits, only some are kept.
        """
        names = dict.fromkeys(_IDENTIFIER.findall(" ".join(words)))
        words_with_digit = [word for word in words if _DIGITS.search(word)]
        names |= _find_in_words(_NUMBERED, words_with_digit)
        for name in names:
            if name not in paths and self._count_shape_and_return_whether_rare(name):
                self._add_detail_line(kind, name, seq)

    def _count_shape_and_return_whether_rare(self, word: str) -> bool:
        shape = _DIGITS.sub("0", word)
        if shape == word:
            return True
        self._shape_counts[shape] += 1
        return self._shape_counts[shape] <= MOST_NUMBERED_WORDS


def _find_in_words(pattern: re.Pattern[str], words: Iterable[str]) -> dict[str, None]:
    """Return what a pattern finds in the words, each once and in order."""
    names: dict[str, None] = {}
    for word in words:
        for name in pattern.findall(word):
            names[name] = None
    return names


def _is_among_changes(path: str, changes: Sequence[FileChanged]) -> bool:
    for change in changes:
        # One of the two may be relative to a folder.
        if path.endswith(change.path) or change.path.endswith(path):
            return True
    return False


def _is_no_demand(text: str) -> bool:
    """Whether a message only agrees, or is a recorder's note such as [Request interrupted]."""
    return bool(_NOD.fullmatch(text) or _RECORDED.fullmatch(text))


def _may_be_path(word: str) -> bool:
    return "/" in word or "." in word or "\\" in word


def _join_lines(text: str) -> str:
    line = text.strip()
    if "\n" not in line and "\r" not in line:
        return line
    return " ".join(line.split())


def _show_command(line: str) -> str:
    """Return a command as a document shows it: whole, or with a mark where it was cut."""
    command = tool_result_reading.strip_here_documents(line, mark=tool_result_reading.CUT)
    return tool_result_reading.shorten_with_mark(_join_lines(command), SHOWN_COMMAND)


def describe_change(*, before: object, after: object) -> str:
    """Return what was done to a file. None: there was nothing, or nothing is left."""
    if before is None:
        return "created"
    if after is None:
        return "deleted"
    return "changed"


def _states_a_limit(sentence: str) -> bool:
    """Whether the sentence states a limit or goal: a figure with a comparing or demanding word."""
    if len(sentence) >= LONGEST_SENTENCE // 2 or not _FIGURE.search(sentence):
        return False
    if _LIMIT.search(sentence):
        return True
    return stated_rules_and_decisions.states_a_wish(sentence)


def format_argument_values(arguments: str) -> str:
    """Return the values of a call's arguments without JSON escapes. Other text is
    returned unchanged.
    """
    try:
        return "\n".join(_iterate_json_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return arguments


def _iterate_json_leaves(value: object) -> Iterator[str]:
    """Yield all plain values within a JSON value, each behind the keys that lead to it."""
    if isinstance(value, dict):
        for key, field_value in value.items():
            for leaf in _iterate_json_leaves(field_value):
                yield f"{key}: {leaf}"
    elif isinstance(value, list):
        for element in value:
            yield from _iterate_json_leaves(element)
    else:
        yield str(value)


def split_into_pieces_at_line_ends(text: str) -> Iterator[str]:
    """Yield a text in pieces of limited length, split within a line only if it is longer."""
    piece_start = 0
    while piece_start < len(text):
        piece_end = piece_start + SEARCHED_PIECE
        if piece_end < len(text):
            last_line_end = text.rfind("\n", piece_start, piece_end)
            if last_line_end >= 0:
                piece_end = last_line_end + 1
        yield text[piece_start:piece_end]
        piece_start = piece_end


def find_error_lines(text: str) -> Iterator[str]:
    """Yield an output's lines that look like errors, each once."""
    error_lines: set[str] = set()
    pieces = split_into_pieces_at_line_ends(text)
    lines = chain.from_iterable(map(_blank_harmless_lines, pieces))
    for whole_line in islice(lines, LINES_READ):
        line = whole_line.strip()[:ERROR_LINE]
        if line and line not in error_lines and _ERROR.search(line):
            error_lines.add(line)
            yield line


def _blank_harmless_lines(piece: str) -> Iterator[str]:
    """Yield lines, blanking those that can't be errors, which the pattern would reject
    ten times slower.
    """
    if piece.isascii():
        lower_piece = piece.lower()
    else:
        # The pattern ignores case, so Turkish letters i match, too.
        lower_piece = piece.casefold().replace("ı", "i").replace("\u0307", "")
    # Only these words can be in one of the piece's lines.
    tells_in_piece = [tell for tell in _TELLS if tell in lower_piece]
    for line, lower_line in zip(piece.splitlines(), lower_piece.splitlines(), strict=True):
        is_second_character_space = lower_line.lstrip()[1:2].isspace()
        if is_second_character_space or _contains_any(lower_line, tells_in_piece):
            yield line
        else:
            yield ""


def _contains_any(line: str, words: Sequence[str]) -> bool:
    for word in words:
        if word in line:
            return True
    return False


def sort_details(details: Iterable[Detail]) -> list[Detail]:
    """Sort details as in an entry: by kind, newest first."""
    order = {kind: index for index, kind in enumerate(KINDS)}
    newest_first = sorted(details, key=lambda detail: detail.seq, reverse=True)
    return sorted(newest_first, key=lambda detail: order[detail.kind])


# --- Finding the details that a document lacks ---

SECTION_OF: Mapping[str, str] = {
    "rule": "User Preferences", "figure": "User Preferences", "todo": "TODO Items", "decision": "Project Background",
    "failure": "Current Issues", "lesson": "Technical Details", "report": "Completed Work",
    "written": "Completed Work", "works": "Completed Work", "artifact": "Completed Work",
}  # fmt: skip
# Each kind's share of the tokens, so that none crowds out the others.
SHARE_BY_KIND: Mapping[str, float] = {
    "rule": 0.5, "figure": 0.05, "todo": 0.1, "decision": 0.1, "failure": 0.15, "lesson": 0.1, "report": 0.1,
    "written": 0.15, "works": 0.1, "artifact": 0.1,
}  # fmt: skip

# How tokens that are left over are shared between the kinds of details. Lessons and reports
# get no share of them: they are long prose, and every step sends the whole document.
LEFTOVER_SHARES: Mapping[str, float] = {kind: kind not in ("lesson", "report") for kind in CRITICAL}


def find_missing_critical_details(details: Iterable[Detail], text: str) -> list[Detail]:
    """Return those that the text does not contain word for word."""
    flat_text = " ".join(text.split())
    missing = []
    for detail in details:
        if detail.is_critical and " ".join(detail.text.split()) not in flat_text:
            missing.append(detail)
    return missing


@dataclass(slots=True)
class _DetailCandidate:
    """A detail that a document may get, with the tokens of its line."""

    detail: Detail
    tokens: int
    is_chosen: bool = False


def choose_fitting_details(
    missing_details: Sequence[Detail], most_tokens: int, tokens: TokenCounter
) -> list[Detail]:
    """Choose the details that a document gets in addition, of at most `most_tokens` in all.

    Those that were repeated most come first, then standing rules before what was asked once,
    and then the newest: a rule that was given at the beginning still holds. A first round gives
    each kind its share of the tokens, so that no kind crowds out the others. A second one gives
    what is left over to the kinds in their order, but not to lessons and reports. They are
    returned in the conversation's order.
    """
    best_first = sorted(missing_details, key=_importance_of_detail, reverse=True)
    candidates_by_kind: dict[str, list[_DetailCandidate]] = {kind: [] for kind in CRITICAL}
    for detail in best_first:
        if detail.is_critical:
            line = format_document_line(detail)
            line_tokens = tokens.count_tokens(line)
            candidate = _DetailCandidate(detail, line_tokens + 1)  # With the line end.
            candidates_by_kind[detail.kind].append(candidate)

    chosen: list[Detail] = []
    free_tokens = most_tokens
    for shares in (SHARE_BY_KIND, LEFTOVER_SHARES):
        for kind, candidates in candidates_by_kind.items():
            share_tokens = int(most_tokens * shares[kind])
            for candidate in _candidates_that_fit(candidates, min(free_tokens, share_tokens)):
                candidate.is_chosen = True
                chosen.append(candidate.detail)
                free_tokens -= candidate.tokens
    return sorted(chosen, key=lambda detail: detail.seq)


def _importance_of_detail(detail: Detail) -> tuple[int, bool, int]:
    return (detail.times, _is_standing_rule(detail), detail.seq)


def _candidates_that_fit(
    candidates: Sequence[_DetailCandidate], most_tokens: int
) -> list[_DetailCandidate]:
    """Return those that were not chosen before, in their order, as long as there is room."""
    fitting: list[_DetailCandidate] = []
    free_tokens = most_tokens
    for candidate in candidates:
        if not candidate.is_chosen and candidate.tokens <= free_tokens:
            fitting.append(candidate)
            free_tokens -= candidate.tokens
    return fitting


def _is_standing_rule(detail: Detail) -> bool:
    """Whether it is a rule in its own words, such as "never …", and not only something asked."""
    return detail.kind == "rule" and stated_rules_and_decisions.states_a_rule(detail.text)


def format_document_line(detail: Detail) -> str:
    if not detail.seq:
        return f"- {detail.text}"
    return f"- {detail.text} [{detail.seq}]"
