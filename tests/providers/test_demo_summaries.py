"""The demonstration's summaries contain only what stands in the request."""

from __future__ import annotations

import pytest

from helix_desktop.engine.facts import Purpose, Text, ToolCall
from helix_desktop.engine.messages import Message, Request, Role, ToolResult
from helix_desktop.engine.strategies.handover import SECTIONS
from helix_desktop.providers.demo_summaries import write_demo_answer

TALK = (
    Message(Role.USER, (Text("Please fix src/fees.py. You must never touch a.lock."),)),
    Message(
        Role.ASSISTANT,
        (
            Text("I look at it."),
            ToolCall("1", "read_file", '{"path": "src/fees.py"}'),
            ToolCall("2", "set_todo", '{"items": [{"text": "test it", "state": "open"}]}'),
        ),
    ),
    Message(Role.USER, (ToolResult("1", "def fee():\n  pass\nError: no tests"),)),
)
QUESTION = Message(Role.USER, (Text("Write the document."),))


def answer_to(purpose: Purpose, *messages: Message) -> str:
    return write_demo_answer(Request("demo", "", messages, purpose=purpose))


def test_a_handover_has_all_sections_and_what_was_said_in_them() -> None:
    text = answer_to(Purpose.HANDOVER, *TALK, QUESTION)
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [*SECTIONS]
    sections = dict(part.split("\n", 1) for part in text.removeprefix("## ").split("\n\n## "))
    assert "File: src/fees.py" in sections["Technical Details"]
    assert "Error: no tests" in sections["Current Issues"]
    assert "test it (open)" in sections["TODO Items"]
    assert "never touch a.lock" in sections["User Preferences"]
    assert "src/fees.py" in sections["Completed Work"]


def test_empty_sections_say_so() -> None:
    text = answer_to(Purpose.HANDOVER, Message(Role.USER, (Text("Hello"),)), QUESTION)
    assert text.count("- None so far.") == 5


def test_a_transcript_is_sorted_as_the_messages_are() -> None:
    transcript = (
        "<material>\n[1] user: Read a.txt\n\n[2] call of read_file: "
        '{"path": "a.txt"}\n\n[3] output of read_file:\nfailed: not found\n</material>'
    )
    text = answer_to(Purpose.OBSERVATIONS, Message(Role.USER, (Text(transcript),)), QUESTION)
    assert "!! The user said: Read a.txt" in text
    assert "a.txt" in text.splitlines()[1]
    assert "! failed: not found" in text


@pytest.mark.parametrize(
    ("wish", "expected"),
    [
        ("needed from it: the fee of the reader", "fee 3 euros"),
        ("needed from it: dragons", "No line contains the words"),
    ],
)
def test_a_compaction_has_the_lines_with_the_words_that_were_asked_for(
    wish: str, expected: str
) -> None:
    lines = "\n".join(["a book"] * 20 + ["fee 3 euros"])
    material = Message(Role.USER, (Text(lines), Text(wish)))
    assert expected in answer_to(Purpose.COMPACTION, material)


def test_a_title_is_the_first_words() -> None:
    assert answer_to(Purpose.TITLE, *TALK, QUESTION).startswith("Please fix src/fees.py.")
