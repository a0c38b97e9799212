"""Finds the sentences of an agent that are worth keeping: findings, results, causes and open tasks.

Before a call, an agent says what it found, which is worth keeping, and what it will do next, which
is not. A final answer is mostly a report. Sessions marked by hand
(tests/benchmarks/marked_details.py) show that single words such as "because" prove little.
"""

import re
from collections.abc import Iterator

# A remark before a change is kept if its findings have at least this many characters.
LEAST_REMARK_OF_CHANGE = 80
# A remark before any other call is kept if its findings have at least this many
# characters.
LEAST_REMARK = 160
# A text of more characters before a call is taken for an answer, not a remark.
LONGEST_REMARK = 1_000
# An answer of at least SHORTEST_REPORT characters counts as a report; its first
# LONGEST_REPORT characters are kept.
SHORTEST_REPORT = 100
LONGEST_REPORT = 600
LONGEST_HEADING = 100  # A line that introduces a list has fewer characters than this.
SHORTEST_SENTENCE = 25  # A sentence with fewer characters than this says nothing by itself.
SENTENCES = re.compile(
    r"(?<=[.!?;])(?<!\b[DM][rs]\.)(?<!\bMrs\.)(?<!\b[ei]\.[ge]\.)\s+|\n+|(?<=[。！？])"
)
_NEXT = re.compile(
    r"\W*(?:(?:good|perfect|great|ok(?:ay)?|now|next|then|so|and|also|wait|ah|yes"
    r"|alright|excellent|gut|jetzt|und)\b\W*)*(?:let me|let's|let us|i'?ll|i will"
    r"|i'm going to|now|first|step \d|here'?s|here is|looking at"
    r"|you'?re (?:absolutely )?right|ich (?:werde|sehe|prüfe)|als nächstes|zuerst|让我"
    r"|我来|我将|接下来|首先)",
    re.IGNORECASE,
)
_LABEL = re.compile(
    r"[^\w\"]{0,20}(?:(?:the|one|my|key|die|das|der)\s+)*(?:root cause|cause|reason"
    r"|problem|issue|solution|fix|decision|approach|compromise|recommendation"
    r"|conclusion|ursache|grund|lösung|entscheidung)s?(?: \w+)?(?: #?\d)?\W{0,8}(?::"
    r"|-|—| (?:is|was|ist|war)\b)\W{0,8}\S.{15,}",
    re.IGNORECASE,
)
_CAUSE = re.compile(r"\W*(?:根本)?(?:原因|问题|解决方案|决定|结论)\w{0,4}[：:]\s*\S.{3,}")
_REMAINS = re.compile(
    r"\W{0,20}(?:remaining|next steps?|to ?dos?|left to do|still (?:to do|open)"
    r"|what's left|open (?:tasks|items|questions)|offen|noch zu tun"
    r"|nächste schritte)\b|\W{0,20}(?:剩余|下一步|待办|未完成)",
    re.IGNORECASE,
)
_ITEM = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+(\S.{3,300})")
_BOX = re.compile(r"\s*(?:(?:[-*•]|\d+[.)])\s+)?(?:\[ \]|TODO:?)\s+(\S.{3,200})")
_DATA = re.compile(r'^[^\S\n]*"[\w ]{1,80}":', re.MULTILINE)


def split_sentences(text: str) -> list[str]:
    """Split a message into sentences and lines, without surrounding space."""
    return [piece.strip() for piece in SENTENCES.split(text) if piece and piece.strip()]


def reports_finding(text: str, *, changes: bool) -> bool:
    """Whether an agent's remark before a call says enough of what it found to be kept.

    `changes`: the call writes a file. What is said before a change is kept sooner, since it is
    mostly the reason for the change.
    """
    if len(text) > LONGEST_REMARK:
        return False
    characters_of_findings = 0
    for sentence in split_sentences(text):
        # "Let me look at ..." says what comes next, and not what was found.
        announces_next_step = _NEXT.match(sentence)
        if len(sentence) >= SHORTEST_SENTENCE and not announces_next_step:
            characters_of_findings += len(sentence)
    if changes:
        return characters_of_findings >= LEAST_REMARK_OF_CHANGE
    return characters_of_findings >= LEAST_REMARK


def extract_report(text: str) -> str:
    """Return the reporting beginning of an answer, or nothing for a short one or data."""
    if len(text) < SHORTEST_REPORT or _DATA.search(text):
        return ""
    return text[:LONGEST_REPORT]


def find_conclusions(text: str) -> Iterator[str]:
    """Yield an answer's sentences that are labelled as a cause, decision or solution."""
    for sentence in split_sentences(text):
        if _LABEL.match(sentence) or _CAUSE.match(sentence):
            yield sentence


def find_tasks_left_open(text: str) -> Iterator[str]:
    """Yield unticked tasks, and items below a line such as "Remaining:".

    The items of any other list, such as "Done:", are left out.
    """
    is_below_heading = False
    for line in text.splitlines():
        unticked_box = _BOX.fullmatch(line)
        if unticked_box:
            yield unticked_box.group(1)
            continue
        item = _ITEM.match(line)
        if item:
            if is_below_heading:
                yield item.group(1)
            continue
        # A blank line between a heading and its list changes nothing.
        if line.strip():
            is_below_heading = len(line) < LONGEST_HEADING and bool(_REMAINS.match(line))
