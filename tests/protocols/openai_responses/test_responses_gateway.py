"""OpenAI's Responses as the gateway reads and rewrites them: items, their numbers, and
the events of a stream.
"""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from helix_desktop.engine.facts import Stop, ToolSpec, Usage
from helix_desktop.protocols.gateway_message import Piece, PieceEdit, PieceKind, Speaker
from helix_desktop.protocols.openai_responses import responses_gateway
from helix_desktop.protocols.openai_responses.responses_gateway import ResponsesCallFilter
from helix_desktop.protocols.protocol_table import with_messages
from tests.protocols.streams import DONE, put_together, through

RUN = ToolSpec("run", "runs", '{"type":"object"}')
WRITTEN = {"type": "function", "name": "run", "description": "runs", "strict": False}
CREATED: Any = {"type": "response.created", "response": {"id": "r1", "status": "in_progress"}}
THOUGHT: Any = {"type": "reasoning", "summary": []}
WORDS: Any = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "a"}],
}
HIDDEN: Any = {
    "type": "function_call",
    "call_id": "c1",
    "name": "recall_history",
    "arguments": "{}",
}
OWN: Any = {"type": "function_call", "call_id": "c2", "name": "run", "arguments": "{}"}
SEARCH: Any = {"type": "web_search_call", "id": "w1"}


def added(index: int, item: Any) -> Any:
    return {
        "type": "response.output_item.added",
        "output_index": index,
        "item": {**item, "status": "in_progress"},
    }


def done(index: int, item: Any) -> Any:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def ended(*output: Any, how: str = "completed", id_: str = "r1", used: int = 3) -> Any:
    usage = {"input_tokens": 5, "output_tokens": used, "total_tokens": 5 + used}
    return {
        "type": f"response.{how}",
        "response": {"id": id_, "status": how, "output": list(output), "usage": usage},
    }


def numbered(*events: Any, first: int = 0) -> list[Any]:
    numbers = count(first)
    return [
        event if event is DONE else {**event, "sequence_number": next(numbers)} for event in events
    ]


def test_a_reply_is_its_last_event_or_the_items_that_were_done() -> None:
    reading = responses_gateway.ReplyAssembler()
    items = [CREATED, added(1, OWN), done(1, OWN), done(0, WORDS)]
    assert put_together(reading, items) == {**CREATED["response"], "output": [WORDS, OWN]}
    assert not reading.is_done
    end = ended(THOUGHT, WORDS)
    assert put_together(reading, [end, CREATED]) == end["response"], (
        "a beginning that comes late changes nothing"
    )
    assert reading.is_done
    empty = ended(how="incomplete")
    assert put_together(reading, [empty]) == {**empty["response"], "output": [WORDS, OWN]}
    assert reading.is_done
    put_together(reading, [ended(how="failed")])
    assert not reading.is_done


@pytest.mark.parametrize(
    "events",
    [
        [
            CREATED,
            added(0, THOUGHT),
            done(0, THOUGHT),
            added(1, OWN),
            done(1, OWN),
            ended(THOUGHT, OWN),
            DONE,
        ],
        [
            CREATED,
            {"type": "response.queued", "response": {"id": "r1"}},
            {"type": "error", "message": "no"},
        ],
    ],
)
def test_a_stream_without_hidden_calls_goes_on_as_it_came(events: list[Any]) -> None:
    as_came = [[at] for at in range(len(events))]
    assert through(ResponsesCallFilter(hold=False), events) == as_came
    assert through(ResponsesCallFilter(hold=False), numbered(*events)) == as_came


@pytest.mark.parametrize(
    ("hold", "events", "given_"),
    [
        (
            False,
            [CREATED, added(0, HIDDEN), done(0, HIDDEN), ended(HIDDEN), DONE],
            [[0], [], [], [], []],
        ),
        (
            False,
            [CREATED, added(0, HIDDEN), done(0, HIDDEN), ended(HIDDEN, how="incomplete")],
            [[0], [], [], []],
        ),
        (
            True,
            [
                added(0, THOUGHT),
                done(0, THOUGHT),
                added(1, HIDDEN),
                done(1, HIDDEN),
                ended(THOUGHT, HIDDEN),
            ],
            [[], [], [], [], []],
        ),
        (
            True,
            [added(0, THOUGHT), done(0, THOUGHT), added(1, OWN), done(1, OWN), ended(THOUGHT, OWN)],
            [[], [], [0, 1, 2], [3], [4]],
        ),
        (True, [added(0, THOUGHT), done(0, THOUGHT), ended(THOUGHT)], [[], [], [0, 1, 2]]),
        (True, [added(0, THOUGHT), done(0, THOUGHT), added(1, WORDS)], [[], [], [0, 1, 2]]),
        (True, [added(0, THOUGHT), added(1, WORDS)], [[], [0, 1]]),
        (
            False,
            [
                CREATED,
                added(0, HIDDEN),
                done(0, HIDDEN),
                added(1, OWN),
                done(1, OWN),
                ended(HIDDEN, OWN),
                DONE,
            ],
            [[0], [], [], [added(0, OWN)], [done(0, OWN)], [ended(OWN)], [6]],
        ),
        (
            False,
            [added(0, OWN), done(0, OWN), added(1, HIDDEN), done(1, HIDDEN), ended(OWN, HIDDEN)],
            [[0], [1], [], [], [ended(OWN)]],
        ),
        (
            False,
            [
                added(0, HIDDEN),
                added(1, SEARCH),
                done(0, HIDDEN),
                done(1, SEARCH),
                ended(HIDDEN, SEARCH),
            ],
            [[], [added(0, SEARCH)], [], [done(0, SEARCH)], [ended(SEARCH)]],
        ),
    ],
)
def test_the_client_sees_a_stream_without_the_hidden_calls(
    hold: bool, events: list[Any], given_: Any
) -> None:
    assert through(ResponsesCallFilter(hold=hold), events) == given_


def test_events_are_numbered_as_the_client_sees_them() -> None:
    veil = ResponsesCallFilter(hold=False)
    first = numbered(
        CREATED,
        added(0, WORDS),
        done(0, WORDS),
        added(1, HIDDEN),
        done(1, HIDDEN),
        ended(WORDS, HIDDEN),
    )
    assert through(veil, first) == [[0], [1], [2], [], [], []]
    veil.continue_in_next_reply(10)
    start = {**CREATED, "response": {"id": "r2"}}
    progress = {"type": "response.in_progress", "response": {"id": "r2"}}
    note = {"type": "response.note"}
    second = numbered(
        start, progress, note, added(0, HIDDEN), done(0, HIDDEN), added(1, OWN), done(1, OWN)
    )
    second += numbered(ended(HIDDEN, OWN, id_="r2"), first=7)
    given = numbered(note, added(1, OWN), done(1, OWN), ended(WORDS, OWN, used=13), first=3)
    assert through(veil, second) == [[], [], [given[0]], [], [], [given[1]], [given[2]], [given[3]]]


def test_the_next_reply_may_be_words_alone() -> None:
    veil = ResponsesCallFilter(hold=True)
    through(veil, [added(0, HIDDEN), done(0, HIDDEN), ended(HIDDEN)])
    veil.continue_in_next_reply(10)
    events = [
        added(0, THOUGHT),
        done(0, THOUGHT),
        added(1, WORDS),
        done(1, WORDS),
        ended(THOUGHT, WORDS),
    ]
    assert through(veil, events) == [[], [], [0, 1, 2], [3], [ended(THOUGHT, WORDS, used=13)]]


def test_words_alone_as_input_are_changed_as_they_stand() -> None:
    (message,) = responses_gateway.parse_messages({"input": "hello"})
    assert responses_gateway.apply_edits(message, [PieceEdit(0, "bye")]) == ["bye"]


def test_the_first_event_that_is_left_out_renumbers_all_that_follow() -> None:
    events = numbered(
        CREATED, added(0, HIDDEN), done(0, HIDDEN), {"type": "response.note"}, added(1, WORDS)
    )
    given = numbered({"type": "response.note"}, added(0, WORDS), first=1)
    assert through(ResponsesCallFilter(hold=False), events) == [[0], [], [], [given[0]], [given[1]]]


def test_whole_replies_become_one_with_the_last_thoughts_and_all_the_output() -> None:
    odd = {**SEARCH, "name": "recall_history"}
    first = ended(THOUGHT, WORDS, HIDDEN, odd)["response"]
    second = ended(THOUGHT, HIDDEN, OWN, id_="r2", used=4)["response"]
    merge = ResponsesCallFilter(hold=True).merge_whole_replies
    assert merge([first, second]) == ended(WORDS, odd, THOUGHT, OWN, used=7)["response"]
    assert merge([second]) == ended(THOUGHT, OWN, id_="r2", used=4)["response"]


def test_tools_stand_first_where_the_request_has_its_own() -> None:
    ours = {**WRITTEN, "parameters": {"type": "object"}}
    theirs = {"type": "function", "name": "theirs"}
    item = {"type": "tools", "tools": [theirs]}
    words = responses_gateway.user_message("hello")
    cases: list[tuple[Any, Any]] = [
        ({}, {"tools": [ours]}),
        ({"tools": [theirs], "input": [item]}, {"tools": [ours, theirs], "input": [item]}),
        ({"input": [words, item]}, {"input": [words, {**item, "tools": [ours, theirs]}]}),
        ({"input": [words]}, {"input": [words], "tools": [ours]}),
    ]
    for body, expected in cases:
        assert responses_gateway.with_added_tools(body, [ours]) == expected
    assert [tool.name for tool in responses_gateway.parse_head({"input": [words, item]}).tools] == [
        "theirs"
    ]


def test_what_developers_say_in_front_of_all_else_belongs_to_the_system_prompt() -> None:
    said = {
        "type": "message",
        "role": "developer",
        "content": [{"type": "input_text", "text": "Ask before you write."}],
    }
    words = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "Begin."}],
    }
    head = responses_gateway.parse_head(
        {"instructions": "You are tested.", "input": [said, words, said]}
    )
    assert head.system == "You are tested.\n\nAsk before you write."


TEXT = PieceKind.TEXT
CALL = PieceKind.CALL
RESULT = PieceKind.RESULT
REASONING = PieceKind.REASONING
IMAGE = PieceKind.IMAGE
OTHER = PieceKind.OTHER


def pieces_of(*items: Any) -> list[Piece]:
    return list(responses_gateway.parse_message(items).pieces)


@pytest.mark.parametrize(
    ("item", "speaker"),
    [
        ({"role": "user", "content": "x"}, Speaker.USER),
        ({"role": "assistant", "content": "x"}, Speaker.ASSISTANT),
        ({"role": "developer", "content": "x"}, Speaker.SYSTEM),
        ({"role": "system", "content": "x"}, Speaker.SYSTEM),
        ({"type": "function_call", "name": "x"}, Speaker.ASSISTANT),
        ({"type": "custom_tool_call", "name": "x"}, Speaker.ASSISTANT),
        ({"type": "reasoning"}, Speaker.ASSISTANT),
        ({"type": "web_search_call"}, Speaker.ASSISTANT),
        ({"type": "function_call_output"}, Speaker.USER),
        ({"type": "compaction"}, Speaker.USER),
    ],
)
def test_who_speaks(item: Any, speaker: Speaker) -> None:
    assert responses_gateway.parse_message([item]).speaker is speaker


def test_a_reply_without_items_is_the_assistants() -> None:
    assert (
        responses_gateway.parse_reply({"status": "completed"}).message.speaker is Speaker.ASSISTANT
    )


def test_every_item_of_a_message_is_a_piece_that_knows_its_place() -> None:
    custom = {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "x"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    assert pieces_of(thought, WORDS, OWN, custom) == [
        Piece(REASONING, "hm", (0,)),
        Piece(TEXT, "a", (1, "content", 0)),
        Piece(CALL, "{}", (2,), "c2", "run", media_type="arguments"),
        Piece(CALL, "x", (3,), "2", "patch", media_type="input"),
    ]
    for kind in (
        "function_call_output",
        "custom_tool_call_output",
        "local_shell_call_output",
    ):
        for output in ("out", [{"type": "input_text", "text": "out"}]):
            assert pieces_of({"type": kind, "call_id": "1", "output": output}) == [
                Piece(RESULT, "out", (0,), "1")
            ]
    screenshot = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AAAA"}
    assert pieces_of({"type": "computer_call_output", "output": screenshot}) == [
        Piece(IMAGE, "AAAA", (0,), media_type="image/png")
    ]
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    odd = {"type": "input_file", "file_id": "f"}
    assert pieces_of({"role": "user", "content": [image, odd]}) == [
        Piece(IMAGE, "AAAA", (0, "content", 0), media_type="image/png"),
        Piece(OTHER, '{"type":"input_file","file_id":"f"}', (0, "content", 1)),
    ]
    assert pieces_of({"role": "user", "content": "a"}) == [Piece(TEXT, "a", (0, "content"))]
    assert pieces_of({"type": "compaction"}) == [
        Piece(OTHER, '{"type":"compaction"}', (0,), outlives_folds=True)
    ]


def test_items_between_two_of_the_users_are_one_reply() -> None:
    user = {"role": "user"}
    call = {"type": "function_call"}
    out = {"type": "function_call_output"}
    items = [user, {"type": "reasoning"}, call, out, {"role": "assistant"}]
    found = responses_gateway.parse_messages({"input": items})
    assert [message.units for message in found] == [(user,), tuple(items[1:3]), (out,), (items[4],)]
    for known in range(len(found) + 1):
        assert responses_gateway.parse_messages({"input": items}, found[:known]) == found
    assert responses_gateway.parse_messages({"input": items[:4]}) == found[:3]
    assert responses_gateway.parse_messages({"input": [call, user, user]})[0].units == (call,)


def test_words_alone_are_a_message_of_the_user_and_are_put_back_as_such() -> None:
    call = {"type": "function_call"}
    (message,) = responses_gateway.parse_messages({"input": "hello"})
    assert (message.speaker, message.units) == (Speaker.USER, ("hello",))
    assert message.pieces == (Piece(TEXT, "hello", (0,)),)
    body = {"model": "m", "input": "old"}
    written = responses_gateway.user_message("hello")
    assert with_messages(responses_gateway.NAME, body, ["hello"]) == {
        "model": "m",
        "input": "hello",
    }
    assert with_messages(responses_gateway.NAME, body, ["hello", call]) == {
        "model": "m",
        "input": [written, call],
    }
    assert with_messages(responses_gateway.NAME, body, [call]) == {"model": "m", "input": [call]}
    assert with_messages(responses_gateway.NAME, body, []) == {"model": "m", "input": []}


def test_the_head_of_a_request_is_its_model_system_prompt_and_tools() -> None:
    search = {"type": "web_search"}
    body = responses_gateway.with_added_tools(
        {"model": "m", "instructions": "a", "tools": [search]},
        responses_gateway.tools_as_json([RUN]),
    )
    head = responses_gateway.parse_head({**body, "reasoning": {"effort": "low", "summary": "auto"}})
    assert (head.model, head.system, head.effort) == ("m", "a", '"low"')
    assert head.tools == (RUN, ToolSpec("web_search", "", "{}"))
    system = {"role": "system", "content": "b"}
    assert responses_gateway.parse_head({"input": [system, system]}).system == "b\n\nb"


@pytest.mark.parametrize(
    ("value", "stop"),
    [
        ({"status": "completed"}, Stop.END),
        ({"status": "completed", "output": [{**OWN, "status": "completed"}]}, Stop.CALLS),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
            Stop.LENGTH,
        ),
        (
            {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
            Stop.FILTERED,
        ),
        ({"status": "incomplete", "output": [OWN]}, Stop.LENGTH),
        ({"status": "failed"}, Stop.CUT),
    ],
)
def test_why_a_reply_ended_and_that_its_items_have_no_status(value: Any, stop: Stop) -> None:
    found = responses_gateway.parse_reply({**value, "model": "m", "usage": {"output_tokens": 3}})
    assert (found.stop, found.model, found.usage) == (stop, "m", Usage(output=3))
    assert found.message.units == ((OWN,) if "output" in value else ())


def test_what_a_reply_cost() -> None:
    told = {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 20, "cache_write_tokens": 5},
        "output_tokens": 4,
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    assert responses_gateway.parse_usage(told) == Usage(100, 20, 5, 4, 3)


def test_what_the_gateway_adds_is_written_as_the_protocol_says_and_put_back_as_it_was_read() -> (
    None
):
    words = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "go on"}],
    }
    result = {"type": "function_call_output", "call_id": "c1", "output": "out"}
    assert responses_gateway.user_message("go on") == words
    assert responses_gateway.result_message("c1", "run", "out") == result
    assert responses_gateway.result_message("c1", "run", "out", ok=False) == result
    body = {"model": "m", "input": [words, result, words, words]}
    read = responses_gateway.parse_messages(body)
    assert [message.units for message in read] == [(unit,) for unit in body["input"]]
    assert (
        with_messages(
            responses_gateway.NAME, {"model": "m"}, [unit for one in read for unit in one.units]
        )
        == body
    )
    assert responses_gateway.merge_added_messages(
        [(words, False), (words, True), (result, True)]
    ) == [
        words,
        words,
        result,
    ]


def test_results_calls_and_words_are_changed_where_they_stand() -> None:
    def changed(*edits: PieceEdit, items: list[Any]) -> Any:
        return responses_gateway.apply_edits(responses_gateway.parse_message(items), edits)

    custom = {"type": "custom_tool_call", "call_id": "2", "name": "patch", "input": "x"}
    assert changed(PieceEdit(1, "y"), items=[OWN, custom]) == [OWN, {**custom, "input": "y"}]
    assert changed(PieceEdit(0, "[]"), items=[OWN, custom]) == [{**OWN, "arguments": "[]"}, custom]
    output = {"type": "function_call_output", "call_id": "1", "output": "long"}
    assert changed(PieceEdit(0, "s"), items=[output]) == [{**output, "output": "s"}]
    image = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
    pictured = {**output, "output": [{"type": "input_text", "text": "long"}, image]}
    assert changed(PieceEdit(0, "s"), items=[pictured]) == [
        {**output, "output": [{"type": "input_text", "text": "s"}, image]}
    ]
    assert changed(PieceEdit(0, "b"), items=[{"role": "user", "content": "a"}]) == [
        {"role": "user", "content": "b"}
    ]
    block = {"type": "output_text", "text": "b"}
    assert changed(PieceEdit(0, "b"), items=[WORDS]) == [{**WORDS, "content": [block]}]


def test_a_message_with_nothing_left_is_dropped_and_other_items_are_not() -> None:
    message = responses_gateway.parse_message(
        [THOUGHT, WORDS, {"role": "assistant", "content": "b"}, OWN]
    )
    assert responses_gateway.apply_edits(message, [PieceEdit(1, None), PieceEdit(2, None)]) == [
        THOUGHT,
        OWN,
    ]
