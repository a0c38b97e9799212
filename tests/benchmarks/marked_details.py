"""Details of recorded sessions, marked by a reader who has not seen the collector, beside what the collector finds.

    python -m tests.benchmarks.marked_details --traces DIR [--file FILE]           precision and recall
    python -m tests.benchmarks.marked_details --traces DIR --half N                only the sessions rules are chosen on (0) or judged on (1)
    python -m tests.benchmarks.marked_details --traces DIR --kinds                 recall of each kind of mark
    python -m tests.benchmarks.marked_details --traces DIR --covers > FILE         the 200 covers, not marked yet
    python -m tests.benchmarks.marked_details --traces DIR --show N [--file FILE]  the text of cover N, with offsets
    python -m tests.benchmarks.marked_details --traces DIR --check [--file FILE]   whether each mark lies inside its text

FILE (`marked_details.jsonl` beside this module) has one cover a line. The texts stay in the folder of the traces:

    {"session": "<sha256 of the session's file>", "first": 24, "last": 35,
     "marks": [{"message": 24, "part": 0, "digest": "<sha256 of that text>", "start": 0, "end": 57, "kind": "rule"}]}

`first` and `last` count the session's messages from 0, both included, as `replay` reads them. `part` 0 is the message's
text, part n the arguments of its n-th call, as the file has them. `start` and `end` are offsets in characters of that
part; `digest` is of its UTF-8 and guards against another version of the file. A cover nobody has marked has `null` for
`marks`; one in which nothing is worth keeping has `[]`.

What is to be marked, as short as it can be understood: `rule` (what the person demands, forbids or prefers), `decision`
(what was agreed), `file` (the path of a file that was written, created, renamed or deleted, once for each), `failure` (the line
that says why a command failed), `worked` (a command that proves something works), `todo` (a task still open), `lesson`
(what solved a failure), `figure` (a number the person named as a limit or a goal).

A detail the collector calls critical meets a mark if one contains the other, or it has at least 0.6 of the mark's words.
Precision is the share of critical details that meet a mark, recall the share of marks that are met. `in the entry` is the
share of marks whose words stand in a row in the cache entry that a document names, in a detail of any kind.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from helix_desktop.engine import conversation_details
from helix_desktop.engine.conversation_details import Detail, DetailSource
from helix_desktop.errors import InvalidInput
from helix_desktop.histories import history_reading
from helix_desktop.histories.recorded_session import RecordedMessage
from tests.engine.collecting import collect_details

FILE = Path(__file__).with_suffix(".jsonl")
COVERS, LENGTH = 200, 12  # covers, and messages of each
SHARE = 0.6  # of a mark's words
Sessions = Mapping[str, Sequence[RecordedMessage]]


@dataclass(frozen=True, slots=True)
class Score:
    """`met`: details that meet a mark; `found`: marks that are met; `entered`: marks
    that stand in the entry.
    """

    details: int = 0
    met: int = 0
    marks: int = 0
    found: int = 0
    entered: int = 0

    @property
    def precision(self) -> float:
        return self.met / self.details if self.details else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.marks if self.marks else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(*(mine + its for mine, its in zip(astuple(self), astuple(other), strict=True)))


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(argv)
    sessions = read(arguments.traces)
    if arguments.covers:
        print("\n".join(map(json.dumps, covers(sessions))))
        return 0
    if not arguments.file.exists():
        sys.exit(f"There is no {arguments.file.name} yet: --covers writes the covers to be marked.")
    lines = [json.loads(line) for line in arguments.file.read_text(encoding="utf-8").splitlines()]
    if arguments.show is not None:
        print("\n".join(shown(lines[arguments.show], sessions)))
        return 0

    marked = list_marked_covers(lines, arguments.half)
    if arguments.check:
        marks = 0
        for cover in marked:
            for mark in cover["marks"]:
                marked_text(mark, sessions[cover["session"]])  # Raises if it is not inside.
                marks += 1
        print(f"{len(marked)} covers marked, {marks} marks, each inside its text")
        return 0

    score = score_of(marked, sessions, wrong=arguments.wrong)
    print(f"{len(marked)} covers marked, {score.marks} marks, {score.details} details")
    if arguments.kinds:
        print_score_of_each_kind(marked, sessions)
    print(f"in the entry {score.entered / max(score.marks, 1):.3f}")
    print(
        f"precision {score.precision:.3f} (asked for: ≥ 0.8), recall {score.recall:.3f} (asked for: ≥ 0.95)"
    )
    if score.precision >= 0.8 and score.recall >= 0.95:
        return 0
    return 1


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--covers", action="store_true")
    parser.add_argument("--show", type=int, metavar="N")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--half", type=int, choices=(0, 1))
    parser.add_argument("--kinds", action="store_true")
    parser.add_argument(
        "--wrong", action="store_true", help="list what was missed and what was too much"
    )
    return parser.parse_args(argv)


def list_marked_covers(lines: list[dict[str, Any]], half: int | None) -> list[dict[str, Any]]:
    """The covers that somebody marked: all of them, or one half, which the session decides."""
    marked: list[dict[str, Any]] = []
    for cover in lines:
        if cover["marks"] is None:
            continue
        if half is None or int(cover["session"][:8], 16) % 2 == half:
            marked.append(cover)
    return marked


def score_of(marked: list[dict[str, Any]], sessions: Sessions, *, wrong: bool = False) -> Score:
    total = Score()
    for cover in marked:
        total += scored(cover, sessions, wrong=wrong)
    return total


def print_score_of_each_kind(marked: list[dict[str, Any]], sessions: Sessions) -> None:
    kinds = sorted({mark["kind"] for cover in marked for mark in cover["marks"]})
    for kind in kinds:
        of_kind: list[dict[str, Any]] = []
        for cover in marked:
            marks = [mark for mark in cover["marks"] if mark["kind"] == kind]
            of_kind.append({**cover, "marks": marks})
        score = score_of(of_kind, sessions)
        print(f"{kind}: {score.found} of {score.marks} ({score.recall:.2f})")


def read(folder: Path) -> Sessions:
    """Every session of the folder by the hash of its file; the same session in another
    form counts as another.
    """
    found: dict[str, Sequence[RecordedMessage]] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        try:
            recordings = history_reading.read_history_file(file).recordings
        except InvalidInput:
            continue
        if len(recordings) == 1:
            found[hashlib.sha256(file.read_bytes()).hexdigest()] = recordings[0].messages
    return found


def covers(sessions: Sessions) -> list[dict[str, Any]]:
    """200 spans of twelve messages, picked by hash: nobody chose them."""
    every = [
        (hashlib.sha256(f"{session}:{first}".encode()).hexdigest(), session, first)
        for session, messages in sessions.items()
        for first in range(0, len(messages), LENGTH)
    ]
    chosen = sorted(every)[:COVERS]
    return [
        {
            "session": session,
            "first": first,
            "last": min(first + LENGTH, len(sessions[session])) - 1,
            "marks": None,
        }
        for _, session, first in chosen
    ]


def shown(cover: Mapping[str, Any], sessions: Sessions) -> Iterator[str]:
    """The parts of a cover as a person marks them."""
    for number in range(cover["first"], cover["last"] + 1):
        message = sessions[cover["session"]][number]
        for part, text in enumerate(parts(message)):
            digest = hashlib.sha256(text.encode()).hexdigest()
            yield f"=== message {number} part {part} {message.role} {digest} ({len(text)} characters)\n{text}"


def parts(message: RecordedMessage) -> list[str]:
    return [message.text, *(call.arguments for call in message.calls)]


def scored(cover: Mapping[str, Any], sessions: Sessions, *, wrong: bool = False) -> Score:
    """What the collector finds in one cover, against its marks."""
    messages = sessions[cover["session"]]
    every = collect_details(sources(messages[cover["first"] : cover["last"] + 1]))
    found = [detail for detail in every if detail.is_critical]
    entry = "\n".join(_plain(detail.text) for detail in every)
    marks: list[str] = []
    for mark in cover["marks"]:
        text = marked_text(mark, messages)
        marks.append(conversation_details.format_argument_values(text))
    missed = [mark for mark in marks if not any(meets(detail, mark) for detail in found)]
    extra = [detail for detail in found if not any(meets(detail, mark) for mark in marks)]
    if wrong:
        for mark in missed:
            print(f"missed: {mark}")
        for detail in extra:
            print(f"extra: {detail.kind} {detail.text}")
    entered = sum(_plain(mark) in entry for mark in marks)
    return Score(len(found), len(found) - len(extra), len(marks), len(marks) - len(missed), entered)


def marked_text(mark: Mapping[str, Any], messages: Sequence[RecordedMessage]) -> str:
    """What was marked, if the text is still the one that was read."""
    text: str = parts(messages[mark["message"]])[mark["part"]]
    if hashlib.sha256(text.encode()).hexdigest() != mark["digest"]:
        raise ValueError(f"message {mark['message']} is not the text that was marked")
    if not 0 <= mark["start"] < mark["end"] <= len(text):
        raise ValueError(f"a mark in message {mark['message']} lies outside its text")
    return text[mark["start"] : mark["end"]]


def meets(detail: Detail, mark: str) -> bool:
    """Whether the detail says what was marked."""
    one = _plain(detail.text)
    other = _plain(mark)
    if one in other or other in one:
        return True
    words = set(other.split())
    return len(words & set(one.split())) >= SHARE * len(words)


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def sources(messages: Sequence[RecordedMessage]) -> Iterator[DetailSource]:
    """The messages as the collector is given them."""
    names: dict[str, str] = {}
    for seq, message in enumerate(messages, 1):
        if message.role == "user":
            yield DetailSource(seq, "user", message.text)
        elif message.role == "assistant":
            yield DetailSource(seq, "assistant", message.text)
            for call in message.calls:
                names[call.id] = call.name
                yield DetailSource(seq, "call", call.arguments, call.name)
        elif message.role == "tool":
            yield DetailSource(
                seq, "output", message.text, names.get(message.answers, ""), message.ok
            )


if __name__ == "__main__":
    sys.exit(main())
