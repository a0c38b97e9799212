"""What an agent says of its work that is worth keeping: what it found out, what it did, what caused it, what it leaves open.

Before a call an agent says what it found and what it does next; that it only looks or edits now is not worth keeping. An answer is
mostly a report. Measured on sessions marked by hand (tests/benchmarks/marked_details.py): single words such as "because" tell little.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

FOUND = 80  # characters of what was found, from which a remark before a change is kept
LOOKS = 160  # and before any other call
LONGEST = 1_000  # characters of a remark before a call; what is longer is an answer
ANSWER, REPORTED = 100, 600  # characters from which an answer is a report, and of a report that are kept
HEADING = 100  # characters of a line above a list, at most
SHORT = 25  # characters of a sentence that says nothing by itself
SENTENCES = re.compile("(?<=[.!?;])\\s+|\\n+|(?<=[\u3002\uff01\uff1f])")
_NEXT = re.compile(
    r"\W*(?:(?:good|perfect|great|ok(?:ay)?|now|next|then|so|and|also|wait|ah|yes|alright|excellent|gut|jetzt|und)\b\W*)*"
    r"(?:let me|let's|let us|i'?ll|i will|i'm going to|now|first|step \d|here'?s|here is|looking at|you'?re (?:absolutely )?right|"
    r"ich (?:werde|sehe|prüfe)|als nächstes|zuerst|让我|我来|我将|接下来|首先)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"[^\w\"]{0,20}(?:(?:the|one|my|key|die|das|der)\s+)*(?:root cause|cause|reason|problem|issue|solution|fix|decision|approach|compromise|recommendation|"
    r"conclusion|ursache|grund|lösung|entscheidung)s?(?: \w+)?(?: #?\d)?\W{0,8}(?::|-|—| (?:is|was|ist|war)\b)\W{0,8}\S.{15,}",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"\W*(?:根本)?(?:原因|问题|解决方案|决定|结论)\w{0,4}[：:]\s*\S.{3,}")
_REMAINS = re.compile(
    r"\W{0,20}(?:remaining|next steps?|to ?dos?|left to do|still (?:to do|open)|what's left|open (?:tasks|items|questions)|"
    r"offen|noch zu tun|nächste schritte)\b|\W{0,20}(?:剩余|下一步|待办|未完成)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+(\S.{3,300})")
_BOX = re.compile(r"\s*(?:(?:[-*•]|\d+[.)])\s+)?(?:\[ \]|TODO:?)\s+(\S.{3,200})")
_DATA = re.compile(r'^\s*"[\w ]{1,80}":', re.MULTILINE)


def split_sentences(text: str) -> list[str]:
    """The sentences and lines of a message, each without the space around it."""
    return [piece.strip() for piece in SENTENCES.split(text) if piece and piece.strip()]


def reports_finding(text: str, *, changes: bool) -> bool:
    """Whether an agent says what it found out, and not only what it does next. `changes`: the call writes a file."""
    found = sum(len(each) for each in split_sentences(text) if len(each) >= SHORT and not _NEXT.match(each))
    return found >= (FOUND if changes else LOOKS) and len(text) <= LONGEST


def extract_report(text: str) -> str:
    """The beginning of an answer that says what was done; nothing of a short one, and of data."""
    return text[:REPORTED] if len(text) >= ANSWER and not _DATA.search(text) else ""


def find_conclusions(text: str) -> Iterator[str]:
    """The sentences of an answer that are labelled as a cause, a decision or a solution."""
    return (each for each in split_sentences(text) if _LABEL.match(each) or _CAUSE.match(each))


def find_tasks_left_open(text: str) -> Iterator[str]:
    """Tasks that are not ticked, and the items below a line that says they remain."""
    remains = False
    for line in text.splitlines():
        item = _ITEM.match(line)
        if box := _BOX.fullmatch(line):
            yield box.group(1)
        elif item and remains:
            yield item.group(1)
        elif not item and line.strip():
            remains = len(line) < HEADING and bool(_REMAINS.match(line))
