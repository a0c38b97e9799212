"""The scripted demonstration: it goes by what stands in the request, works in any
folder, and says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import Purpose, Stop, Text, ToolCall, ToolSpec, Usage
from helix_desktop.engine.messages import (
    CallDelta,
    Message,
    Reply,
    Request,
    Role,
    TextDelta,
    ToolResult,
)
from helix_desktop.providers import demo_tour
from helix_desktop.providers.demo_model import DemoModel
from tests.providers.asking import Instant, assistant, heard, user

NAMES = (
    "set_todo",
    "list_files",
    "read_file",
    "search_files",
    "run_command",
    "recall_cached_content",
    "search_cached_content",
)
KEEP = '{"type":"object","properties":{"keep":{"type":"string"}}}'
TOOLS = tuple(ToolSpec(name, "", KEEP) for name in NAMES)
DIGEST = "ab" * 32
LISTING = "src/\nREADME.md  1,200\nnotes.txt  80\nhuge.csv  9,000,000\nphoto.jpg  5,000"
EXCERPT = f'[EXCERPT of 50,000 tokens (preview); the whole: recall_cached_content("{DIGEST}")]\nrecord 1 value 1'


async def reply_to(
    *messages: Message, tools: Sequence[ToolSpec] = TOOLS, purpose: Purpose = Purpose.STEP
) -> Reply:
    request = Request("demo/demo", "system", tuple(messages), tuple(tools), purpose=purpose)
    assert purpose is not Purpose.STEP or request_building.find_violations(request) == []
    return (await heard(DemoModel(), request))[1]


def words(reply: Reply) -> str:
    return "".join(part.text for part in reply.parts if isinstance(part, Text))


def calls(reply: Reply) -> list[ToolCall]:
    return [part for part in reply.parts if isinstance(part, ToolCall)]


def result_of(call: ToolCall) -> str:
    """What a small folder would answer."""
    if call.name == "run_command" and "record" in call.arguments:
        return EXCERPT
    answers = {
        "list_files": LISTING,
        "read_file": "some documentation of a wonderful program",
        "recall_cached_content": f"record {demo_tour.RECALLED} value 9",
    }
    return answers.get(call.name, "fine")


async def tour(
    tools: Sequence[ToolSpec] = TOOLS, *, refuse: str = "", most: int = 20, asked: str = "tour"
) -> tuple[list[Message], str]:
    """The whole tour: every call answered, until it calls no more."""
    messages = [user(asked)]
    for _ in range(most):
        reply = await reply_to(*messages, tools=tools)
        if not calls(reply):
            return messages, words(reply)
        messages.append(Message(Role.ASSISTANT, reply.parts))
        results = [
            ToolResult(call.id, result_of(call), ok=call.name != refuse) for call in calls(reply)
        ]
        messages.append(user(*results))
    raise AssertionError("the tour does not end")


async def test_it_says_at_once_what_it_is() -> None:
    assert "not a language model" in words(await reply_to(user("tour")))


async def test_a_reply_that_was_cut_off_is_gone_on_with() -> None:
    reply = await reply_to(user("tour"), assistant("I am the"), user(request_building.GO_ON))
    assert calls(reply)[0].name == "set_todo"


@pytest.mark.parametrize("text", ["Refactor the parser, please.", "", "What is 2+2?"])
async def test_anything_else_is_answered_honestly(text: str) -> None:
    reply = await reply_to(user(text or "?"))
    assert "demonstration, not a language model" in words(reply)
    assert (calls(reply), reply.stop) == ([], Stop.END)


@pytest.mark.parametrize(
    ("text", "name", "arguments"),
    [
        ("list", "list_files", {}),
        ("list src", "list_files", {"path": "src"}),
        ("Read README.md", "read_file", {"path": "README.md"}),
        ("search def main", "search_files", {"pattern": "def main"}),
        ("run: ls -l", "run_command", {"command": "ls -l"}),
        (f"recall {DIGEST}", "recall_cached_content", {"sha256": DIGEST}),
        ("find adapter", "search_cached_content", {"query": "adapter"}),
        (
            "todo one; two",
            "set_todo",
            {"items": [{"text": "one", "state": "open"}, {"text": "two", "state": "open"}]},
        ),
        (
            "write a/b.txt: hello: world",
            "write_file",
            {"path": "a/b.txt", "content": "hello: world\n"},
        ),
        ("delegate read README.md", "delegate", {"task": "read README.md"}),
    ],
)
async def test_single_words_call_the_tool_and_tell_what_came(
    text: str, name: str, arguments: object
) -> None:
    tools = [ToolSpec(name, "", KEEP)]
    reply = await reply_to(user(text), tools=tools)
    (call,) = calls(reply)
    assert (call.name, json.loads(call.arguments), reply.stop) == (name, arguments, Stop.CALLS)
    after = await reply_to(
        user(text),
        Message(Role.ASSISTANT, reply.parts),
        user(ToolResult(call.id, "a\n```\nb")),
        tools=tools,
    )
    assert (calls(after), "3 lines" in words(after)) == ([], True)
    assert "````" in words(after), "a fence longer than any in the output"
    missing = await reply_to(user(text), tools=())
    assert "does not offer" in words(missing)


async def test_words_stream_at_a_pace_and_calls_at_the_end() -> None:
    clock = Instant()
    request = Request("demo/demo", "", (user("tour"),), TOOLS)
    deltas, reply = await heard(DemoModel(sleep=clock.sleep_seconds), request)
    assert "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)) == words(reply)
    assert [delta.name for delta in deltas if isinstance(delta, CallDelta)] == ["set_todo"]
    assert 0 < sum(clock.slept) < 5


async def test_a_summary_that_nobody_watches_is_not_paced() -> None:
    clock = Instant()
    request = Request("demo/demo", "", (user("Please fix a.py."),), purpose=Purpose.HANDOVER)
    _deltas, reply = await heard(DemoModel(sleep=clock.sleep_seconds), request)
    assert clock.slept == []
    assert "a.py" in words(reply)


async def test_usage_is_what_somebody_counted() -> None:
    request = Request("demo/demo", "1234", (user("tour"),))
    assert (await heard(DemoModel(), request))[1].usage == Usage()
    used = (await heard(DemoModel(count=len), request))[1].usage
    assert used.input == len("1234tour")
    assert used.output > 10


# --- summaries

WORK = (
    user("Never touch vendor/. Please fix parser.py."),
    assistant("On it.", ToolCall("demo_00000001", "read_file", '{"path":"src/parser.py"}')),
    user(ToolResult("demo_00000001", "ERROR: bad token in line 7\nfine", ok=False)),
    assistant(
        ToolCall("demo_00000002", "set_todo", '{"items":[{"text":"Write a test","state":"doing"}]}')
    ),
)
QUESTION = "Write a handover document about everything. You must use exactly these six headings."
TRANSCRIPT = """<material>
[1] user: Never touch vendor/. Please fix parser.py.
[2] assistant: On it.
[2] call of read_file: {"path":"src/parser.py"}
[3] output of read_file:
ERROR: bad token in line 7
[4] call of set_todo: {"items":[{"text":"Write a test","state":"doing"}]}
</material>"""


async def test_what_the_program_adds_before_the_question_is_not_said_by_the_user() -> None:
    messages = (user("Please fix parser.py."), assistant("Done."), user("Continue.", QUESTION))
    text = words(await reply_to(*messages, purpose=Purpose.HANDOVER))
    assert "The user wrote: “Please fix parser.py.”" in text
    assert "Continue" not in text


@pytest.mark.parametrize(
    "messages",
    [(*WORK, user(ToolResult("demo_00000002", "ok"), QUESTION)), (user(TRANSCRIPT, QUESTION),)],
    ids=["the conversation itself", "its transcript"],
)
async def test_a_handover_has_the_six_sections_from_what_really_stands_there(
    messages: tuple[Message, ...],
) -> None:
    from helix_desktop.engine.strategies import handover

    text = words(await reply_to(*messages, purpose=Purpose.HANDOVER))
    found = handover.split_handover_sections(text)
    assert handover.find_missing_sections(found) == []
    assert set(found) == set(handover.SECTIONS)
    expected = {
        "Project Background": "fix parser.py",
        "Technical Details": "src/parser.py",
        "Completed Work": "Read `src/parser.py`",
        "Current Issues": "ERROR: bad token in line 7",
        "TODO Items": "Write a test (doing)",
        "User Preferences": "Never touch vendor/.",
    }
    for name, words_ in expected.items():
        assert words_ in found[name]
    assert "headings" not in text, "the question itself is nobody's preference"


async def test_a_compaction_finds_the_lines_that_were_asked_for() -> None:
    material = "\n".join(f"record {number} value {number * 7}" for number in range(1, 2000))
    question = "The material is the output of run. Write down what is needed from it: the line of record 1234\nKeep paths."
    text = words(
        await reply_to(
            user(f"<material>\n{material}\n</material>", question), purpose=Purpose.COMPACTION
        )
    )
    assert "record 1234 value 8638" in text
    assert len(text.splitlines()) < 5
    nothing = words(
        await reply_to(
            user("<material>\na\nb\n</material>", "needed from it: zebras"),
            purpose=Purpose.COMPACTION,
        )
    )
    assert "No line contains the words" in nothing
    part = "<material>\na\n[… 9,000 characters of all 6,000 lines left out; in them:]\n[lines 7-7 of 6,000]\nzebra\n</material>"
    cut = words(await reply_to(user(part, "needed from it: the zebra"), purpose=Purpose.COMPACTION))
    assert cut.startswith(
        "6,000 lines, from `a` to `zebra`. Lines with words of what was asked for: 1:"
    )


async def test_observations_are_lines_and_a_title_is_short() -> None:
    asked = (*WORK, user(ToolResult("demo_00000002", "ok"), "Turn it into observations"))
    lines = words(await reply_to(*asked, purpose=Purpose.OBSERVATIONS)).splitlines()
    assert any("Never touch vendor/" in line for line in lines)
    assert all(line.startswith("- !") for line in lines)
    assert (
        words(
            await reply_to(
                user("Fix the parser of the old format please now", "A title?"),
                purpose=Purpose.TITLE,
            )
        )
        == "Fix the parser of the old"
    )


async def test_the_choice_about_large_outputs_can_be_read() -> None:
    from helix_desktop.engine.strategies import large_output_choice

    text = words(await reply_to(user("1: what?"), purpose=Purpose.ADMISSION))
    assert large_output_choice.parse_output_choices(text, [1, 2], []) == {
        number: large_output_choice.OutputChoice("preview") for number in (1, 2)
    }


async def test_a_request_for_nothing_known_is_answered() -> None:
    assert words(await reply_to(user("ready?"), purpose=Purpose.TEST))
    assert words(await reply_to(user(""), purpose=Purpose.TITLE)) == "A demonstration"


async def test_one_line_is_called_so() -> None:
    call = ToolCall("demo_00000001", "list_files", "{}")
    for text, told in (
        ("one", "returned 1 line, 3 characters"),
        ("one\ntwo", "returned 2 lines, 7 characters"),
    ):
        reply = await reply_to(user("list"), assistant(call), user(ToolResult(call.id, text)))
        assert told in words(reply)
