"""Summaries that no model writes: what the user said, what was called, and the last answer.

A model on a small computer reads for minutes before it writes a summary. This one is there at once.
"""

import re
from collections.abc import Sequence

from helix_desktop.extensions.extension_interfaces import (
    Extension,
    ExtensionFoldStrategy,
    MessageToFold,
)

LONGEST_LINE = 300
MOST_CALLS = 30
LABEL = re.compile(r"^\[\d+\] (?:user|assistant): ?", re.MULTILINE)
CALL = re.compile(r"^\[\d+\] call of (.*)$", re.MULTILINE)


def write_summary(messages: Sequence[MessageToFold]) -> str:
    said: list[str] = []
    calls: list[str] = []
    earlier: list[str] = []
    answer = ""
    for message in messages:
        if message.role == "user":
            said.append(f"- [{message.number}] {_first_line(message.text)}")
        elif message.role == "summary":
            earlier.append(message.text)
        elif message.role == "assistant":
            calls.extend(_list_calls(message))
            answer = _first_line(message.text)
    return "\n".join(
        [
            "## Project Background",
            *earlier,
            "## Completed Work",
            *calls[-MOST_CALLS:],
            f"Last answer: {answer}",
            "## User Preferences",
            *said,
        ]
    )


def _list_calls(message: MessageToFold) -> list[str]:
    return [f"- [{message.number}] {call[:LONGEST_LINE]}" for call in CALL.findall(message.text)]


def _first_line(text: str) -> str:
    return LABEL.sub("", text).strip().partition("\n")[0][:LONGEST_LINE]


extension = Extension(
    title="Plain summaries",
    fold_strategies=[ExtensionFoldStrategy("plain", write=write_summary)],
)
