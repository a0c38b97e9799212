"""Details of recorded sessions, marked by a person who has not seen the collector, beside what the collector finds.

    python -m tests.benchmarks.marked_details --traces DIR [--file FILE]           precision and recall
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
Precision is the share of critical details that meet a mark, recall the share of marks that are met.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helix_desktop.engine import details
from helix_desktop.engine.details import Detail, Source
from helix_desktop.errors import WrongUse
from helix_desktop.histories import reading
from helix_desktop.histories.recording import RecordedMessage

FILE = Path(__file__).with_suffix(".jsonl")
COVERS, LENGTH = 200, 12  # covers, and messages of each
SHARE = 0.6  # of a mark's words
Sessions = Mapping[str, Sequence[RecordedMessage]]


@dataclass(frozen=True, slots=True)
class Score:
    """`met`: details that meet a mark; `found`: marks that are met."""

    details: int = 0
    met: int = 0
    marks: int = 0
    found: int = 0

    @property
    def precision(self) -> float:
        return self.met / self.details if self.details else 1.0

    @property
    def recall(self) -> float:
        return self.found / self.marks if self.marks else 1.0

    def __add__(self, other: Score) -> Score:
        return Score(
            self.details + other.details, self.met + other.met, self.marks + other.marks, self.found + other.found
        )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    parser.add_argument("--file", type=Path, default=FILE)
    parser.add_argument("--covers", action="store_true")
    parser.add_argument("--show", type=int, metavar="N")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--wrong", action="store_true", help="list what was missed and what was too much")
    arguments = parser.parse_args(argv)
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
    marked = [cover for cover in lines if cover["marks"] is not None]
    if arguments.check:
        texts = [marked_text(mark, sessions[cover["session"]]) for cover in marked for mark in cover["marks"]]
        print(f"{len(marked)} covers marked, {len(texts)} marks, each inside its text")
        return 0
    score = sum((scored(cover, sessions, wrong=arguments.wrong) for cover in marked), Score())
    print(f"{len(marked)} covers marked, {score.marks} marks, {score.details} details")
    print(f"precision {score.precision:.3f} (asked for: ≥ 0.8), recall {score.recall:.3f} (asked for: ≥ 0.95)")
    return 0 if score.precision >= 0.8 and score.recall >= 0.95 else 1


def read(folder: Path) -> Sessions:
    """Every session of the folder by the hash of its file; the same session in another form counts as another."""
    found: dict[str, Sequence[RecordedMessage]] = {}
    for file in sorted(folder.rglob("*.jsonl")):
        try:
            recordings = reading.read(file).recordings
        except WrongUse:
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
    messages = sessions[cover["session"]][cover["first"] : cover["last"] + 1]
    found = [detail for detail in details.collect(sources(messages)) if detail.critical]
    marks = [details.values_of(marked_text(mark, sessions[cover["session"]])) for mark in cover["marks"]]
    missed = [mark for mark in marks if not any(meets(detail, mark) for detail in found)]
    extra = [detail for detail in found if not any(meets(detail, mark) for mark in marks)]
    if wrong:
        print("\n".join([*(f"missed: {mark}" for mark in missed), *(f"extra: {one.kind} {one.text}" for one in extra)]))
    return Score(len(found), len(found) - len(extra), len(marks), len(marks) - len(missed))


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
    one, other = " ".join(detail.text.split()).casefold(), " ".join(mark.split()).casefold()
    if one in other or other in one:
        return True
    words = set(other.split())
    return len(words & set(one.split())) >= SHARE * len(words)


def sources(messages: Sequence[RecordedMessage]) -> Iterator[Source]:
    """The messages as the collector is given them."""
    names: dict[str, str] = {}
    for seq, message in enumerate(messages, 1):
        if message.role == "user":
            yield Source(seq, "user", message.text)
        elif message.role == "assistant":
            yield Source(seq, "assistant", message.text)
            for call in message.calls:
                names[call.id] = call.name
                yield Source(seq, "call", call.arguments, call.name)
        elif message.role == "tool":
            yield Source(seq, "output", message.text, names.get(message.answers, ""), message.ok)


if __name__ == "__main__":
    sys.exit(main())
