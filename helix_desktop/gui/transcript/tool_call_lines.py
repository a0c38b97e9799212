"""Describes a tool call in one line: its name, its subject, chips for folds, and its outcome.

It only builds values; `call_and_fold_boxes` draws them. Arguments may have a megabyte,
so only their beginning is read.
"""

import re
from enum import StrEnum

from helix_desktop.engine.facts import Folded, FoldKind, ModelReplied, ToolCall, ToolReturned
from helix_desktop.engine.session_events import CallStage
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_call_parsing import NOT_BEGUN, SKIPPED, UNREAD, USER_WORDS
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.engine.tool_result_reading import find_call_subject_and_place
from helix_desktop.errors import shorten_to_line
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.gui.common.figure_formats import format_duration
from helix_desktop.gui.common.fold_descriptions import format_token_change
from helix_desktop.gui.common.tool_words import words_for_tool, words_for_tool_in_english
from helix_desktop.gui.context_meter import format_token_count
from helix_desktop.gui.transcript import chat_actions
from helix_desktop.gui.transcript.chat_actions import ChatIntent, OpenChanges, OpenEntry, OpenFold
from helix_desktop.gui.transcript.safe_text import make_safe_text
from helix_desktop.gui.transcript.transcript_item import (
    ToolCallState,
    TranscriptItem,
    TranscriptItemKind,
)
from helix_desktop.gui.translation import format_number, tr, translate_name

SHORTEST_SHOWN_SECONDS = 0.1  # A shorter time is of no interest.
_LONGEST = 300  # The characters of a call's subject that are shown.
_FILE_TOOLS = (
    ToolName.READ_DOCUMENT, ToolName.WRITE_FILE, ToolName.EDIT_FILE, "Write", "Edit", "write_text_file",
)  # fmt: skip
SHOWN_OF_HASH = 6  # So many characters of each end of a whole hash are shown.
_WHOLE_HASH = re.compile(r"[0-9a-f]{64}")
_ENTRY_HASH = re.compile(r"[0-9a-f]{8,64}")
# "execute" is what the Agent Client Protocol calls a call that runs a command.
_COMMANDS = frozenset({ToolName.RUN_COMMAND, "shell", "bash", "execute"})
# The kinds of calls of the Agent Client Protocol, and what stands for none.
_KINDS_OF_AGENTS = frozenset({
    "read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other", "tool"
})  # fmt: skip
# What is recorded of such a call that has a title and no input.
_ONLY_TITLE = re.compile(r'\{"title": "(?:[^"\\]|\\.)*"\}')
_LINES = re.compile(r'"(first|last)_line"\s*:\s*(\d+)')
_COUNTED = re.compile(r"^(?P<sign>[+-])(?!\1\1 )", re.MULTILINE)


class CallStatus(StrEnum):
    """The state of the dot before the line."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    REFUSED = "refused"
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class LineChip:
    """`strong`: on the soft accent surface of a hash."""

    text: str
    strong: bool = False
    is_monospaced: bool = False
    want: ChatIntent | None = None


def build_entry_chip(digest: Digest) -> LineChip:
    return LineChip(digest.short_hex, strong=True, is_monospaced=True, want=OpenEntry(digest))


@dataclass(frozen=True, slots=True)
class ToolCallLine:
    words: str
    status: CallStatus
    chips: tuple[LineChip, ...] = ()
    outcome: str = ""
    want: ChatIntent | None = None  # The action that a click on `outcome` starts.

    @property
    def spoken_line(self) -> str:
        spoken = [self.words]
        spoken.append(translate_name("state of a call", self.status, otherwise=self.outcome))
        for chip in self.chips:
            spoken.append(chip.text)
        return ", ".join(spoken)


def build_call_line(state: ToolCallState, now: float) -> ToolCallLine:
    """Builds the line of a call as it stands now.

    A call without a result is running or waits for the user. With a result, what the model no
    longer sees comes first (its output was shortened), then a denial, a stop, a failure, and at
    last the usual case: done, with its duration.
    """
    words = format_call(state.call.name, state.call.arguments)
    returned = state.returned
    if returned is None:
        return _build_unfinished_line(state, words, now)
    chips = _build_chips_of_folds(state)
    chips += _build_result_chips(state, returned)
    if state.fold is not None and state.fold.kind is FoldKind.MARKER:
        recall = chat_actions.RecallEntry(returned.output.digest)
        return ToolCallLine(
            words, CallStatus.CACHED, tuple(chips), outcome=tr("Recall"), want=recall
        )
    if state.decided is not None and not state.decided.allowed:
        chips += _build_chips_of_denial(returned)
        return ToolCallLine(words, CallStatus.REFUSED, tuple(chips), tr("denied"))
    if _was_call_stopped(returned):
        outcome = tr("stopped")
        if returned.head == NOT_BEGUN:
            outcome = tr("stopped before it ran")
        elif returned.head == SKIPPED:
            outcome = tr("not run")
        return ToolCallLine(words, CallStatus.REFUSED, tuple(chips), outcome)
    if not returned.ok:
        outcome = tr("failed")
        if returned.exit_code is None:
            chips += _build_chips_of_failure(returned)
        else:
            outcome = tr("exit {code}", code=returned.exit_code)
        return ToolCallLine(words, CallStatus.FAILED, tuple(chips), outcome)
    duration = ""
    if returned.seconds >= SHORTEST_SHOWN_SECONDS:
        duration = format_duration(returned.seconds)
    return ToolCallLine(words, CallStatus.DONE, tuple(chips), duration)


def _build_chips_of_denial(returned: ToolReturned) -> list[LineChip]:
    """Shows what the user said to the agent when denying the call."""
    _, _, user_words = returned.head.partition(USER_WORDS)
    shown_words = shorten_to_line(make_safe_text(user_words[:120]), 60)
    if not shown_words:
        return []
    return [LineChip(f"“{shown_words}”")]


def _build_chips_of_failure(returned: ToolReturned) -> list[LineChip]:
    """Shows the first words of the error, which usually say why the call failed."""
    reason = shorten_to_line(make_safe_text(returned.head[: _LONGEST * 2]), _LONGEST)
    if not reason:
        return []
    return [LineChip(reason)]


def _was_call_stopped(returned: ToolReturned) -> bool:
    if returned.stopped:
        return True
    # Helix itself writes these outputs for calls that the end of a turn cut off.
    return returned.head in (UNREAD, NOT_BEGUN) and not returned.ok


def format_call(name: str, arguments: str) -> str:
    """Formats a call as "Read src/lock/table.rs", or as the command line of a command."""
    subject = call_subject(arguments)
    if subject and name in _COMMANDS:
        return subject
    words = words_for_tool(name)
    # Other agents describe a call with its verb, in English: "Read fees.py".
    verb = words_for_tool_in_english(name)
    if subject.startswith(f"{verb} "):
        return f"{words}{subject.removeprefix(verb)}"
    if _ONLY_TITLE.fullmatch(arguments[: _LONGEST * 2]):
        # Where an agent only gives a title, its name for the tool is that title, or the kind.
        if subject == name:
            return words
        # A title of several words has a verb of its own: "Look at fees.py".
        if name in _KINDS_OF_AGENTS and " " in subject:
            return subject
    if subject and name == ToolName.SET_TODO:
        return f"{words}: {subject}"
    return f"{words} {subject}".strip()


def path_of_file_call(call: ToolCall) -> str:
    """Returns the path that a call read or wrote, or nothing if it is about something else."""
    if not call.name.endswith(_FILE_TOOLS):
        return ""
    path, _ = find_call_subject_and_place(call.arguments)
    # A document may be named by the hash of its entry in the cache.
    if _ENTRY_HASH.fullmatch(path):
        return ""
    return path


def call_as_one_line(item: TranscriptItem) -> str:
    """Returns the call that an item shows. Empty for another item."""
    if item.kind is not TranscriptItemKind.CALL:
        return ""
    if not isinstance(item.source_fact, ModelReplied):
        return ""
    call = item.source_fact.parts[item.part]
    if not isinstance(call, ToolCall):
        return ""
    return format_call(call.name, call.arguments)


def call_subject(arguments: str) -> str:
    """Returns what a call is about: its path and lines, its command, its query, or else
    its first text.
    """
    subject, place = find_call_subject_and_place(arguments)
    what = _shorten_argument(subject)
    if _WHOLE_HASH.fullmatch(what):
        what = f"{what[:SHOWN_OF_HASH]}…{what[-SHOWN_OF_HASH:]}"
    where = _shorten_argument(place)
    if where:
        return tr("{what} in {where}", what=what, where=where)
    lines = dict(_LINES.findall(arguments[: _LONGEST * 2]))
    if lines:
        return f"{what}:{lines.get('first', 1)}–{lines.get('last', '')}"
    return what


def _shorten_argument(text: str) -> str:
    return shorten_to_line(make_safe_text(text[: _LONGEST * 2]), _LONGEST)


def build_fold_chips(
    fold: Folded, digest_chip: LineChip | None, *, original_tokens: int = 0
) -> list[LineChip]:
    """Builds chips for a fold: a hash and figures for a marker; for an excerpt, what
    the agent asked to keep. `original_tokens`: of what was there before all folds, since the fold
    may replace what an earlier one left.
    """
    tokens_before = max(fold.tokens_before, original_tokens)
    open_fold = OpenFold(fold.fold)
    if fold.kind is FoldKind.MARKER:
        chips: list[LineChip] = []
        if digest_chip is not None:
            chips.append(digest_chip)
        figures = format_token_change(tokens_before, fold.tokens)
        chips.append(LineChip(figures, want=open_fold))
        return chips
    kept = tr("shortened to an excerpt")
    if fold.asked:
        words = shorten_to_line(make_safe_text(fold.asked[:160]), 80)
        kept = tr("excerpt: the agent asked for “{words}”", words=words)
    shrunk = format_token_change(tokens_before, fold.tokens)
    return [LineChip(kept, want=open_fold), LineChip(shrunk, want=open_fold)]


def format_diff_counts(diff: str) -> str:
    """Formats `+38 −61` for a unified difference. Empty for any other text."""
    if "@@" not in diff and not diff.startswith(("---", "diff ")):
        return ""
    signs = [match.group("sign") for match in _COUNTED.finditer(diff)]
    if not signs:
        return ""
    added = format_number(signs.count("+"))
    removed = format_number(signs.count("-"))
    return f"+{added} −{removed}"


def _build_unfinished_line(state: ToolCallState, words: str, now: float) -> ToolCallLine:
    """Builds the line of a call that has no result yet: it waits for the user's
    permission, runs, waits for its turn, or was interrupted.
    """
    # A question may arrive before the run state does, or the end of an interrupted turn after it.
    if not state.running and not state.waiting:
        return ToolCallLine(words, CallStatus.REFUSED, (), tr("not finished"))
    chips: tuple[LineChip, ...] = ()
    if state.call.name == ToolName.DELEGATE:
        open_sub_agent = chat_actions.OpenSubAgent(state.call.id)
        chips = (LineChip(tr("sub-agent"), want=open_sub_agent),)
    if state.waiting:
        return ToolCallLine(words, CallStatus.WAITING, chips, tr("needs you"))
    if state.stage is CallStage.RUNNING:
        elapsed_seconds = max(0.0, now - state.begun_at)
        elapsed = tr("running… {time}", time=format_duration(elapsed_seconds))
        return ToolCallLine(words, CallStatus.RUNNING, chips, elapsed)
    # Parallel calls are recorded together, so one that is done may wait for the others.
    if state.stage is CallStage.DONE:
        return ToolCallLine(words, CallStatus.RUNNING, (), tr("done"))
    return ToolCallLine(words, CallStatus.RUNNING, (), tr("queued"))


def _build_chips_of_folds(state: ToolCallState) -> list[LineChip]:
    chips: list[LineChip] = []
    if state.fold is not None and state.returned is not None:
        entry_chip = build_entry_chip(state.returned.output.digest)
        original_tokens = state.returned.tokens
        chips += build_fold_chips(state.fold, entry_chip, original_tokens=original_tokens)
    if state.argument_fold is not None:
        entries = state.argument_fold.entries
        argument_chip: LineChip | None = None
        if entries:
            argument_chip = build_entry_chip(entries[0])
        chips += build_fold_chips(state.argument_fold, argument_chip)
    return chips


def _build_result_chips(state: ToolCallState, returned: ToolReturned) -> list[LineChip]:
    """Builds the small labels behind a finished call: what can be opened from it, and
    how large its output is. A size under 100 tokens interests nobody; that of a
    shortened output stands elsewhere.
    """
    chips: list[LineChip] = []
    path = path_of_file_call(state.call)
    if path and returned.ok:
        open_file = chat_actions.OpenFile(path)
        chips.append(LineChip(tr("Preview"), want=open_file))
    if returned.changes:
        line_counts = format_diff_counts(returned.head)
        if line_counts:
            first_path = returned.changes[0].path
            open_changes = OpenChanges(state.returned_seq, first_path)
            chips.append(LineChip(line_counts, want=open_changes))
    if returned.repeat_of:
        chips.append(LineChip(tr("same as before")))
    if returned.child:
        open_sub_agent = chat_actions.OpenConversation(returned.child)
        chips.append(LineChip(tr("sub-agent"), want=open_sub_agent))
    if state.fold is None and returned.tokens >= 100:
        token_count = format_token_count(returned.tokens)
        size = tr("{n} tokens", n=token_count)
        open_output = OpenEntry(returned.output.digest)
        chips.append(LineChip(size, want=open_output))
    return chips
