"""What `ask` prints of a turn, and how it answers where nobody can be asked."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, cast

import pytest

from helix_desktop.commands.turn_output import (
    TurnPrinter,
    answer_by_allowed_names,
    describe_early_end,
    fact_as_json_line,
    plain_text_of_fact,
    report_end_of_turn,
)
from helix_desktop.engine.facts import (
    Fact,
    Folded,
    FoldKind,
    ModelReplied,
    Recorded,
    Span,
    Stop,
    Text,
    ToolCall,
    ToolReturned,
    TurnEnd,
    TurnEnded,
    UserSaid,
)
from helix_desktop.engine.messages import RetryDelay, TextDelta
from helix_desktop.engine.ports import PermissionQuestion
from helix_desktop.engine.session_events import (
    ActivityChanged,
    ConversationActivity,
    FoldProgress,
    ReplyStreamed,
)
from helix_desktop.resident.resident_client import CollectingConsole
from tests.engine.talk import stored

if TYPE_CHECKING:
    from helix_desktop.engine.session import Session

DONE = TurnEnded(TurnEnd.DONE)
EDIT = ToolCall("1", "edit_file", "{}")
RUN = ToolCall("2", "run_command", "{}")


@pytest.mark.parametrize(
    ("call", "apart", "form", "allowed", "may"),
    [
        (EDIT, "", "", {"edits"}, True),
        (EDIT, "", "", {"edit_file"}, True),
        (EDIT, "", "", {"commands"}, False),
        (EDIT, "", "", {"all"}, True),
        (RUN, "", "", {"commands"}, True),
        (RUN, "outside_sandbox", "", {"commands"}, False),
        (RUN, "outside_sandbox", "", {"outside_sandbox"}, True),
        (RUN, "outside_sandbox", "", {"all"}, True),
        (RUN, "", '{"type": "object"}', {"all"}, False),
    ],
)
def test_a_question_is_answered_by_what_the_command_line_allows(
    call: ToolCall, apart: str, form: str, allowed: set[str], may: bool
) -> None:
    refused: list[str] = []
    question = PermissionQuestion(call, "title", "preview", apart=apart, form=form)
    answer = answer_by_allowed_names(question, frozenset(allowed), refused)
    assert answer.allowed == may
    assert len(refused) == (not may)
    if refused:
        assert answer.words.endswith(f"was not started with --allow {refused[0]}.")


@pytest.mark.parametrize(
    ("fact", "text"),
    [
        (UserSaid((Text("hello"),)), ""),
        (ModelReplied((Text("hello"),), "m", Stop.END), "\n"),
        (ModelReplied((EDIT,), "m", Stop.CALLS), "· edit_file {}\n"),
        (ModelReplied((Text("look"), EDIT), "m", Stop.CALLS), "\n· edit_file {}\n"),
        (ToolReturned("1", stored("x"), 1, ok=True, head="fine"), ""),
        (
            ToolReturned("1", stored("x"), 1, ok=False, head="\n it broke\nhere"),
            "· failed: it broke\n",
        ),
        (
            Folded("h", FoldKind.HANDOVER, Span(1, 2), "text", 1_200, 34_000),
            "· handover: 34,000 → 1,200 tokens\n",
        ),
    ],
)
def test_calls_failures_and_folds_are_lines_and_the_words_of_a_reply_are_streamed(
    fact: Fact, text: str
) -> None:
    assert plain_text_of_fact(fact) == text


def test_long_arguments_and_errors_are_cut() -> None:
    call = ToolCall("1", "look", "x" * 300)
    reply = ModelReplied((call,), "m", Stop.CALLS)
    assert plain_text_of_fact(reply) == f"· look {'x' * 100}\n"
    failed = ToolReturned("1", stored("x"), 1, ok=False, head="y" * 300)
    assert plain_text_of_fact(failed) == f"· failed: {'y' * 100}\n"


def test_a_fact_as_json_has_its_conversation_number_and_time() -> None:
    line = fact_as_json_line(Recorded("c", 3, 12.5, DONE))
    body = json.loads(line)
    assert (body["conversation"], body["seq"], body["time"]) == ("c", 3, 12.5)
    assert body["reason"] == "done"
    assert "\n" not in line


@pytest.mark.parametrize(
    ("ended", "sentence"),
    [
        (None, "The turn did not finish, so its result is not known."),
        (TurnEnded(TurnEnd.FAILED, "no key"), "The turn ended early: no key."),
        (TurnEnded(TurnEnd.FAILED, "Who are you?"), "The turn ended early: Who are you?"),
        (TurnEnded(TurnEnd.STOPPED), f"The turn ended early: {TurnEnd.STOPPED.value}."),
    ],
)
async def test_a_turn_that_is_not_done_says_why(ended: TurnEnded | None, sentence: str) -> None:
    assert describe_early_end(ended) == sentence
    console = CollectingConsole()
    assert not await report_end_of_turn(ended, [], console)
    assert console.complaint == sentence


async def test_a_turn_that_is_done_says_only_what_there_is_to_say() -> None:
    console = CollectingConsole()
    assert await report_end_of_turn(DONE, [], console)
    assert console.complaint == ""
    assert await report_end_of_turn(TurnEnded(TurnEnd.DONE, "The limit is near."), [], console)
    assert console.complaint == "The limit is near."


async def test_what_was_refused_is_named_once_with_the_way_to_allow_it() -> None:
    console = CollectingConsole()
    await report_end_of_turn(DONE, ["edits", "commands", "edits"], console)
    assert console.complaint.startswith(
        "Refused, because nobody was there to give permission: edits, commands."
    )
    assert console.complaint.endswith("add `--allow edits --allow commands`.")


async def test_a_retry_is_printed_among_the_errors_and_the_answer_where_answers_are() -> None:
    class PrintedConsole(CollectingConsole):
        output = b""

        async def write_output(self, data: bytes) -> None:
            self.output += data

    # Events alone are printed here, so no conversation is needed.
    printer = TurnPrinter(cast("Session", None), frozenset(), as_lines=False)
    printer.print_event(ReplyStreamed("c", TextDelta("The answer")))
    printer.print_event(ReplyStreamed("c", RetryDelay("the provider is busy", 2.0)))
    printer.print_event(ActivityChanged("c", ConversationActivity.IDLE))
    console = PrintedConsole()
    await printer.print_until_turn_ends(console)
    assert (console.output, console.complaint) == (
        b"The answer",
        "Retrying in 2 s: the provider is busy",
    )


async def test_a_turn_that_waits_for_a_summary_says_so_once_and_each_retry_with_its_reason() -> (
    None
):
    class ListingConsole(CollectingConsole):
        def __init__(self) -> None:
            super().__init__()
            self.complaints: list[str] = []

        async def print_error(self, sentence: str) -> None:
            self.complaints.append(sentence)

    printer = TurnPrinter(cast("Session", None), frozenset(), as_lines=True)
    begun = FoldProgress("c", FoldKind.HANDOVER, "in the background")
    awaited = replace(begun, is_update=True, is_waited_for=True)
    failed = replace(awaited, retry_why="peer says: internal error.", retry_seconds=1.6)
    for event in (begun, awaited, failed, awaited, failed, replace(begun, done=True)):
        printer.print_event(event)
    printer.print_event(ActivityChanged("c", ConversationActivity.IDLE))
    console = ListingConsole()
    await printer.print_until_turn_ends(console)
    assert console.complaints == [
        "Waiting until the older messages are summarized.",
        "Retrying in 2 s: peer says: internal error.",
        "Retrying in 2 s: peer says: internal error.",
    ]
