"""A tool call in one line: its name, what it was about, chips for what a fold did to it, and how it went.

Plain values; `boxes` draws them. Arguments may be a megabyte: only their beginning is looked at.
"""

from __future__ import annotations

import json
import re
from enum import StrEnum

from helix_desktop.engine.calls import UNREAD
from helix_desktop.engine.events import Stage
from helix_desktop.engine.facts import Folded, FoldKind, ToolReturned
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.gui.meter import short
from helix_desktop.gui.shared.figures import lasted
from helix_desktop.gui.shared.folds import change
from helix_desktop.gui.transcript.harmless import harmless
from helix_desktop.gui.transcript.intents import (
    OpenChanges,
    OpenConversation,
    OpenEntry,
    OpenFold,
    OpenSubAgent,
    Recall,
    Want,
)
from helix_desktop.gui.transcript.item import CallState
from helix_desktop.gui.words import tr
from helix_desktop.values import dataclass

_LOOKED_AT = 4_000
_LONGEST = 300
_KEYS = ("command", "path", "file_path", "file", "pattern", "query", "url", "sha256", "task", "prompt", "name", "title")
_VALUE = r'"\s*:\s*"((?:[^"\\]|\\.){0,400})'
_OF_KEY = {key: re.compile(f'"{key}{_VALUE}') for key in _KEYS}
_FIRST = re.compile(r'"[A-Za-z_]{1,60}' + _VALUE)
_COMMANDS = frozenset({ToolName.RUN_COMMAND, "shell", "bash"})
_COUNTED = re.compile(r"^(?P<sign>[+-])(?!\1\1 )", re.MULTILINE)


class Look(StrEnum):
    """The dot before the line."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    REFUSED = "refused"
    CACHED = "cached"


@dataclass(frozen=True, slots=True)
class Chip:
    """`strong`: the soft accent surface of a hash."""

    text: str
    strong: bool = False
    mono: bool = False
    want: Want | None = None


@dataclass(frozen=True, slots=True)
class CallLine:
    words: str
    look: Look
    chips: tuple[Chip, ...] = ()
    right: str = ""
    want: Want | None = None  # what a click on `right` asks for

    @property
    def spoken(self) -> str:
        """The line for a screen reader."""
        states = {
            Look.DONE: tr("done"),
            Look.RUNNING: tr("running"),
            Look.WAITING: tr("waiting for you"),
            Look.FAILED: tr("failed"),
            Look.REFUSED: self.right,
            Look.CACHED: tr("cached"),
        }
        return ", ".join([self.words, states[self.look], *(chip.text for chip in self.chips)])


def call_line(state: CallState, now: float) -> CallLine:
    """The line of a call as it stands at the time `now`."""
    words = called(state.call.name, state.call.arguments)
    returned = state.returned
    if returned is None:
        return _unfinished(state, words, now)
    chips = [*_fold_chips(state), *_result_chips(state, returned)]
    if state.fold is not None and state.fold.kind is FoldKind.MARKER:
        return CallLine(words, Look.CACHED, tuple(chips), tr("Recall"), Recall(returned.output.digest))
    if state.decided is not None and not state.decided.allowed:
        return CallLine(words, Look.REFUSED, tuple(chips), tr("denied"))
    if returned.stopped or (returned.head == UNREAD and not returned.ok):
        return CallLine(words, Look.REFUSED, tuple(chips), tr("stopped"))
    if not returned.ok:
        code = "" if returned.exit_code is None else tr("exit {code}", code=returned.exit_code)
        return CallLine(words, Look.FAILED, tuple(chips), code or tr("failed"))
    return CallLine(words, Look.DONE, tuple(chips), lasted(returned.seconds) if returned.seconds >= 0.1 else "")


def called(name: str, arguments: str) -> str:
    """`read_file src/lock/table.rs`; of a command, the command itself."""
    argument = about(arguments)
    return argument if name in _COMMANDS and argument else f"{name} {argument}".strip()


def about(arguments: str) -> str:
    """What a call is about: its path, its command, its query, else its first text."""
    looked_at = arguments[:_LOOKED_AT]
    found = {key: _unescaped(match.group(1)) for key in _KEYS if (match := _OF_KEY[key].search(looked_at))}
    sought = found.get("pattern") or found.get("query")
    if sought:
        return tr("{what} in {where}", what=sought, where=found["path"]) if found.get("path") else sought
    if found:
        return next(iter(found.values()))
    match = _FIRST.search(looked_at)
    return _unescaped(match.group(1)) if match else ""


def fold_chips(fold: Folded, digest_chip: Chip | None) -> list[Chip]:
    """What a fold did, as chips: a hash and the figures for a marker; for an excerpt, what the agent asked to keep."""
    if fold.kind is FoldKind.MARKER:
        figures = Chip(change(fold.tokens_before, fold.tokens), want=OpenFold(fold.fold))
        return [digest_chip, figures] if digest_chip else [figures]
    kept = (
        tr("kept: the agent asked for “{words}”", words=_one_line(fold.asked, 80)) if fold.asked else tr("preview kept")
    )
    shrunk = f"{short(fold.tokens_before)} → {short(fold.tokens)}"
    return [Chip(kept, want=OpenFold(fold.fold)), Chip(shrunk, want=OpenFold(fold.fold))]


def changed_lines(diff: str) -> str:
    """`+38 −61` of a unified difference; empty where the text is none."""
    if "@@" not in diff and not diff.startswith(("---", "diff ")):
        return ""
    signs = [match.group("sign") for match in _COUNTED.finditer(diff)]
    return f"+{signs.count('+')} −{signs.count('-')}" if signs else ""


def _unfinished(state: CallState, words: str, now: float) -> CallLine:
    chips = (Chip(tr("sub-agent"), want=OpenSubAgent(state.call.id)),) if state.call.name == ToolName.DELEGATE else ()
    if state.running and state.waiting:
        return CallLine(words, Look.WAITING, chips, tr("waiting for you"))
    if state.running and state.stage is not Stage.RUNNING:
        return CallLine(words, Look.RUNNING, (), tr("done") if state.stage is Stage.DONE else tr("queued"))
    if state.running:
        text = tr("running… {time}", time=lasted(max(0.0, now - state.said)))
        return CallLine(words, Look.RUNNING, chips, text)
    return CallLine(words, Look.REFUSED, (), tr("not finished"))


def _fold_chips(state: CallState) -> list[Chip]:
    chips: list[Chip] = []
    if state.fold is not None and state.returned is not None:
        digest = state.returned.output.digest
        chips += fold_chips(state.fold, Chip(digest.short, strong=True, mono=True, want=OpenEntry(digest)))
    if state.argument_fold is not None:
        entries = state.argument_fold.entries
        digest_chip = Chip(entries[0].short, strong=True, mono=True, want=OpenEntry(entries[0])) if entries else None
        chips += fold_chips(state.argument_fold, digest_chip)
    return chips


def _result_chips(state: CallState, returned: ToolReturned) -> list[Chip]:
    chips: list[Chip] = []
    if returned.changes and (lines := changed_lines(returned.head)):
        chips.append(Chip(lines, want=OpenChanges(state.returned_seq, returned.changes[0].path)))
    if returned.repeat_of:
        chips.append(Chip(tr("unchanged, from cache")))
    if returned.child:
        chips.append(Chip(tr("sub-agent"), want=OpenConversation(returned.child)))
    if state.fold is None and returned.tokens >= 100:
        chips.append(Chip(tr("{n} tokens", n=short(returned.tokens)), want=OpenEntry(returned.output.digest)))
    return chips


def _unescaped(text: str) -> str:
    try:
        text = str(json.loads(f'"{text}"'))
    except ValueError:
        text = text.replace("\\n", " ")
    return _one_line(text, _LONGEST)


def _one_line(text: str, longest: int) -> str:
    line = " ".join(harmless(text[: longest * 2]).split())
    return line if len(line) <= longest else line[: longest - 1] + "…"
