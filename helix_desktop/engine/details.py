"""What must not be lost: collected from facts without a model, checked against a summary, kept across handovers.

Critical details are shown in the document itself, word for word with their seq, as far as there is room. All of them,
and everything of the reference kind, stand in one entry of the cache that the document names. The entry is plain
lines, so an agent can search it, and `parse` reads them back: a later handover inherits them without going back to
the facts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from helix_desktop.engine.facts import FileChanged
from helix_desktop.engine.ports import Tokens
from helix_desktop.engine.rules import states_a_rule, states_a_wish

SENTENCE = 1_000  # characters of a stated rule or a decision that are kept
ERROR_LINE = 2_000
COMMAND = 2_000
WORD = 8_000  # characters of an address or a path
MESSAGE = 100_000  # characters of one message of the user that are kept whole
ERRORS_OF_A_FAILURE = 6
LINES_READ = 100_000  # of one output: what is beyond is found by its hash
MOST = 10_000  # details of an entry: half as many again as the longest recorded session has
PIECE = 1 << 16  # characters a pattern is run over at once, so that it never holds the interpreter for long
REFERENCE_LIMIT = 2_000_000  # characters of the entry

CRITICAL = ("rule", "wish", "todo", "decision", "failure", "lesson", "written", "artifact")
REFERENCE = ("message", "stored", "error", "url", "read", "command", "path", "identifier")
KINDS = (*CRITICAL, *REFERENCE)

_SENTENCES = re.compile("(?<=[.!?;])\\s+|\\n+|(?<=[\u3002\uff01\uff1f])")
_URL = re.compile(r"\bhttps?://[^\s<>\"'`\\]+")
# Every repetition is bounded: texts come from anywhere, and a run of a million letters must not cost a million squared.
_PATH = re.compile(
    r"(?<![\w:/])(?:~|\.{1,2}|[A-Za-z]:)?[/\\]?(?:[\w.@+-]{1,120}[/\\]){1,40}[\w.@+-]{0,120}"  # with a separator
    r"|(?<![\w/])~?/[\w.@+-]{1,120}"  # right below the root, or below home
    r"|\b[\w-]{1,120}\.[a-zA-Z]\w{0,9}\b"  # a name with an ending
    r"|(?<![\w.])\.[A-Za-z][\w.-]{1,60}"  # a name that begins with a dot
)
_IDENTIFIER = re.compile(r"[A-Za-z_][\w./-]{5,80}")
_NUMBERED = re.compile(r"\b[\w-]{0,60}\d[\w-]{3,60}\b")
_ERROR = re.compile(
    r"\b(?:error|exception|traceback|fatal|failed|failure|panic|cannot|can't|denied|refused|undefined|unresolved|"
    r"not found|no such|unable to|could not|unexpected|killed|ENOENT|EACCES|errno|segfault|aborted|assert\w*|timed? ?out|invalid)\b|\w(?:Error|Exception|Warning)\b|\bERR!|^E\s{2,}|✗|错误|失败|Fehler",
    re.IGNORECASE,
)
_ARTIFACT = re.compile(
    r"\b(?:saved|wrote|written|created|generated|exported|uploaded|downloaded)\b[^.\n]{0,40}?([\w./\\-]{1,120}\.\w{1,6})\b"
)
_YES = re.compile(
    r"^\W*(?:yes|yep|yeah|ok(?:ay)?|sure|agreed|correct|right|exactly|go ahead|do it|sounds good|approved|confirmed|ja\b|genau|einverstanden|oui|d'accord|sí|好的?|可以|同意|是的|对|はい|네|да)",
    re.IGNORECASE,
)
_EDITS = re.compile(r"write|edit|create|patch|replace|insert|delete|remove|rename|move|save|upload", re.IGNORECASE)
_READS = re.compile(r"read|view|open|cat|get|fetch|list|grep|search|find|ls", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Source:
    """One message as the collector reads it."""

    seq: int
    role: str  # user, assistant, call, output
    text: str
    tool: str = ""
    ok: bool = True
    names: tuple[str, ...] = ()  # attached or produced files
    changes: tuple[FileChanged, ...] = ()


@dataclass(frozen=True, slots=True)
class Detail:
    """`times`: how often it was said or seen; `seq`: the last time."""

    kind: str
    text: str
    seq: int
    times: int = 1

    @property
    def critical(self) -> bool:
        """Whether it belongs into the document itself."""
        return self.kind in CRITICAL

    def line(self) -> str:
        """Its line in the reference entry."""
        again = f" x{self.times}" if self.times > 1 else ""
        more = self.text.count("\n")
        return f"{self.kind} [{self.seq}{again}{f' +{more} lines' if more else ''}] {self.text}"


def collect(sources: Iterable[Source], todo: Sequence[tuple[str, str]] = ()) -> list[Detail]:
    """Every detail of the sources, each once, in the order it was first met."""
    collecting = _Collecting()
    for source in sources:
        collecting.take(source)
    collecting.finish(todo)
    return list(collecting.found.values())


Known = dict[tuple[str, str], "Detail"]


def merged(found: Iterable[Detail]) -> list[Detail]:
    """The same detail met twice is one detail, met later and more often."""
    known: Known = {}
    for detail in found:
        _meet(known, detail)
    return list(known.values())


def _meet(known: Known, detail: Detail) -> None:
    key = (detail.kind, detail.text)
    if before := known.get(key):
        detail = replace(before, seq=max(before.seq, detail.seq), times=before.times + detail.times)
    known[key] = detail


def inherited(before: Iterable[Detail], fresh: Iterable[Detail], todo: Sequence[tuple[str, str]]) -> list[Detail]:
    """The details of a document together with those of what came after it; of the todo list only the present one."""
    standing = [detail for detail in before if detail.kind != "todo"]
    return merged([*standing, *fresh, *(Detail("todo", text, 0) for text, state in todo if state != "done")])


# --- collecting ------------------------------------------------------------------------------------------------------


class _Collecting:
    """One pass over the sources. A failure waits for what solves it: then it becomes a lesson. What no entry would have
    room for is let go on the way: a command may print a million numbers.
    """

    def __init__(self) -> None:
        self.found: Known = {}
        self._asked = ""  # the end of what the assistant said last
        self._command: Source | None = None
        self._commands: list[Source] = []
        self._failures: dict[str, tuple[int, str]] = {}

    def take(self, source: Source) -> None:
        if source.role == "call":
            source = replace(source, text=values_of(source.text))
        take = {"user": self._user, "assistant": self._assistant, "call": self._call, "output": self._output}
        take[source.role](source)
        self._references(source)

    def finish(self, todo: Sequence[tuple[str, str]]) -> None:
        for seq, failure in list(self._failures.values())[-5:]:
            self._add("failure", failure, seq)
        for text, state in todo:
            if state != "done":
                self._add("todo", text, 0)

    def _add(self, kind: str, text: str, seq: int, limit: int = SENTENCE) -> None:
        line = text.strip()
        if "\n" in line or "\r" in line:
            line = " ".join(line.split())
        if line:
            self._keep(Detail(kind, line[:limit], seq))

    def _keep(self, detail: Detail) -> None:
        _meet(self.found, detail)
        if len(self.found) >= MOST * 3 // 2:
            foremost = set(_foremost(self.found.values()))
            self.found = {key: detail for key, detail in self.found.items() if detail in foremost}

    def _user(self, source: Source) -> None:
        if source.text.strip():
            self._keep(Detail("message", source.text.strip()[:MESSAGE], source.seq))
        for sentence in sentences(source.text[:MESSAGE]):
            if states_a_rule(sentence):
                self._add("rule", sentence, source.seq)
            elif states_a_wish(sentence):
                self._add("wish", sentence, source.seq)
        if self._asked and len(source.text) < SENTENCE and _YES.match(source.text):
            self._add("decision", f"{self._asked} — {source.text.strip()}", source.seq)
        for name in source.names:
            self._add("artifact", name, source.seq)

    def _assistant(self, source: Source) -> None:
        said = [sentence for sentence in sentences(source.text) if sentence.strip()]
        self._asked = said[-1][: SENTENCE // 2] if said and len(said[-1]) > 3 else ""

    def _call(self, source: Source) -> None:
        self._commands.append(source)
        self._add("command", f"{source.tool} {source.text}", source.seq, COMMAND)
        paths = _PATH.findall(source.text[:2_000])
        if _EDITS.search(source.tool):
            for path in paths[:4]:
                self._add("written", f"{source.tool}: {path}", source.seq)
        elif _READS.search(source.tool):
            for path in paths[:8]:
                self._add("read", path, source.seq)

    def _output(self, source: Source) -> None:
        command = self._commands.pop(0) if self._commands else None
        label = f"{command.tool} {command.text[:160]}" if command else source.tool
        for change in source.changes:
            done = "created" if change.before is None else "deleted" if change.after is None else "changed"
            self._add("written", f"{done} {change.path}", source.seq)
        for name in source.names:
            self._add("artifact", name, source.seq)
        errors = list(error_lines(source.text))
        for error in errors:
            self._add("error", error, source.seq, ERROR_LINE)
        key = command.tool if command else source.tool
        if not source.ok:
            told = "; ".join(error[:200] for error in errors[-ERRORS_OF_A_FAILURE:]) or source.text[-200:]
            self._failures[key] = (source.seq, f"{label} failed: {told}")
        elif key in self._failures:
            seq, failure = self._failures.pop(key)
            self._add("lesson", f"{failure[:300]} — then worked: {label[:200]}", max(seq, source.seq))

    def _references(self, source: Source) -> None:
        words = 0
        for text in pieces(source.text):
            for url in dict.fromkeys(_URL.findall(text)):
                self._add("url", url, source.seq, WORD)
            paths = dict.fromkeys(_PATH.findall(text))
            for path in paths:
                self._add("path", path, source.seq, WORD)
            if words < MOST:
                met = dict.fromkeys((*_IDENTIFIER.findall(text), *_NUMBERED.findall(text)))
                words += len(met)
                for word in met:
                    if word not in paths:
                        self._add("identifier", word, source.seq)
            for match in _ARTIFACT.finditer(text):
                self._add("artifact" if source.role != "output" else "path", match.group(1), source.seq)


def values_of(arguments: str) -> str:
    """The values of a call's arguments as plain text, without JSON's escapes; what is no JSON as it is."""
    try:
        return "\n".join(_leaves(json.loads(arguments)))
    except (ValueError, RecursionError):
        return arguments


def _leaves(value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from (f"{key}: {leaf}" for leaf in _leaves(inner))
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(inner)
    else:
        yield str(value)


def pieces(text: str) -> Iterator[str]:
    """The text in pieces of some length, cut at the ends of lines where that can be."""
    start = 0
    while start < len(text):
        end = start + PIECE
        if end < len(text):
            end = text.rfind("\n", start, end) + 1 or end
        yield text[start:end]
        start = end


def sentences(text: str) -> list[str]:
    """The sentences and lines of a message, each without the space around it."""
    return [piece.strip() for piece in _SENTENCES.split(text) if piece and piece.strip()]


def error_lines(text: str) -> Iterator[str]:
    """The lines of an output that look like errors, each once."""
    seen: set[str] = set()
    lines = (line for piece in pieces(text) for line in piece.splitlines())
    for line in islice(lines, LINES_READ):
        shown = line.strip()[:ERROR_LINE]
        if shown not in seen and _ERROR.search(shown):
            seen.add(shown)
            yield shown


# --- checking a document ---------------------------------------------------------------------------------------------

SECTION_OF: Mapping[str, str] = {
    "rule": "User Preferences",
    "wish": "User Preferences",
    "todo": "TODO Items",
    "decision": "Project Background",
    "failure": "Current Issues",
    "lesson": "Technical Details",
    "written": "Completed Work",
    "artifact": "Completed Work",
}
ROOM: Mapping[str, float] = {  # shares of the room, so that no kind crowds out the others
    "rule": 0.5,
    "wish": 0.05,
    "todo": 0.1,
    "decision": 0.1,
    "failure": 0.15,
    "lesson": 0.1,
    "written": 0.15,
    "artifact": 0.1,
}


def missing(found: Iterable[Detail], text: str) -> list[Detail]:
    """The critical details the text does not contain word for word."""
    flat = " ".join(text.split())
    return [detail for detail in found if detail.critical and " ".join(detail.text.split()) not in flat]


def chosen(lacking: Sequence[Detail], room: int, tokens: Tokens) -> list[Detail]:
    """What of it fits the room: of each kind the newest and most repeated first; room one kind leaves, others take."""
    taken: dict[int, Detail] = {}
    ranked = {kind: sorted((d for d in lacking if d.kind == kind), key=_rank) for kind in CRITICAL}
    left = room
    for share in (ROOM, dict.fromkeys(CRITICAL, 1.0)):
        for kind, details in ranked.items():
            kind_left = min(left, int(room * share[kind]))
            for detail in details:
                size = tokens.count(shown(detail)) + 1 if id(detail) not in taken and kind_left > 0 else left + 1
                if size <= kind_left:
                    taken[id(detail)] = detail
                    kind_left -= size
                    left -= size
    return sorted(taken.values(), key=lambda detail: detail.seq)


def _rank(detail: Detail) -> tuple[int, int]:
    return (-detail.times, -detail.seq)


def shown(detail: Detail) -> str:
    """Its line in a document."""
    where = f" [{detail.seq}]" if detail.seq else ""
    return f"- {detail.text}{where}"


# --- the reference entry ---------------------------------------------------------------------------------------------

HEADER = "Details kept by Helix Desktop: kind [seq] text"


def entry(found: Iterable[Detail]) -> str:
    """All details as lines, the critical first. What is beyond the limit, the oldest of the least kind, is left out."""
    lines = [HEADER]
    size = len(HEADER)
    for detail in _foremost(found):
        line = detail.line()
        size += len(line) + 1
        if size > REFERENCE_LIMIT:
            break
        lines.append(line)
    return "\n".join(lines) + "\n"


def _foremost(found: Iterable[Detail]) -> list[Detail]:
    """The most that an entry has, in its order: by kind, the newest first."""
    order = {kind: index for index, kind in enumerate(KINDS)}
    return sorted(found, key=lambda detail: (order[detail.kind], -detail.seq))[:MOST]


_LINE = re.compile(r"(\w+) \[(\d+)(?: x(\d+))?(?: \+(\d+) lines)?\] (.*)")


def parse(text: str) -> list[Detail]:
    """The details of an entry; a line that is none is skipped."""
    found = []
    lines = iter(text.split("\n")[1:])
    for line in lines:
        match = _LINE.fullmatch(line)
        if match and match.group(1) in KINDS:
            more = [next(lines, "") for _ in range(int(match.group(4) or 0))]
            said = "\n".join([match.group(5), *more])
            found.append(Detail(match.group(1), said, int(match.group(2)), int(match.group(3) or 1)))
    return found
