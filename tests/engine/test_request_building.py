"""Each law of the models' message formats, and the repair of what interrupted runs leave behind."""

from __future__ import annotations

import json
from dataclasses import replace

from helix_desktop.engine import request_building
from helix_desktop.engine.facts import (
    Attachment,
    ModelReplied,
    PartRef,
    Reasoning,
    Span,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import Image, Message, MessagePart, Request, Role, ToolResult
from tests.engine.talk import Talk, said, stored


def asked(*messages: tuple[Role, list[MessagePart]]) -> Request:
    return Request("m", "", tuple(Message(role, tuple(parts)) for role, parts in messages))


USER = Role.USER
ASSISTANT = Role.ASSISTANT
HI: tuple[Role, list[MessagePart]] = (USER, [Text("hi")])
CALL = ToolCall("c1", "read", "{}")


def roles(request: Request) -> list[Role]:
    return [message.role for message in request.messages]


# --- each law finds what breaks it


def test_a_legal_request_breaks_no_law() -> None:
    request = asked(
        HI,
        (ASSISTANT, [Reasoning("hm"), Text("yes"), CALL]),
        (USER, [ToolResult("c1", "out"), Text("and?")]),
    )
    assert request_building.find_violations(request) == []


def test_roles_take_turns_and_the_user_is_first_and_last() -> None:
    assert request_building.find_violations(asked(HI, HI))
    assert request_building.find_violations(asked((ASSISTANT, [Text("hi")]), HI))
    assert request_building.find_violations(asked(HI, (ASSISTANT, [Text("hi")])))
    assert request_building.find_violations(asked((Role.TOOL, [Text("hi")])))
    assert request_building.find_violations(asked()) == ["there is no message"]


def test_nothing_is_empty() -> None:
    assert request_building.find_violations(asked((USER, [])))
    assert request_building.find_violations(asked((USER, [Text(" \n")])))
    assert request_building.find_violations(
        asked(HI, (ASSISTANT, [CALL]), (USER, [ToolResult("c1", "")]))
    )


def test_every_call_has_its_one_result_in_the_next_message() -> None:
    other = ToolCall("c2", "read", "{}")
    assert request_building.find_violations(asked(HI, (ASSISTANT, [CALL]), HI))
    assert request_building.find_violations(
        asked(HI, (ASSISTANT, [CALL, other]), (USER, [ToolResult("c1", "out")]))
    )
    assert request_building.find_violations(
        asked(HI, (ASSISTANT, [CALL]), (USER, [ToolResult("c1", "out"), ToolResult("c1", "out")]))
    )
    assert request_building.find_violations(asked((USER, [ToolResult("c1", "out")])))


def test_results_stand_before_anything_else() -> None:
    assert request_building.find_violations(
        asked(HI, (ASSISTANT, [CALL]), (USER, [Text("so"), ToolResult("c1", "out")]))
    )


def test_ids_are_unique() -> None:
    twice = asked(
        HI,
        (ASSISTANT, [CALL]),
        (USER, [ToolResult("c1", "out")]),
        (ASSISTANT, [CALL]),
        (USER, [ToolResult("c1", "out")]),
    )
    assert "the id 'c1' is empty or used twice" in request_building.find_violations(twice)


def test_who_may_say_what() -> None:
    assert request_building.find_violations(asked((USER, [Text("hi"), Reasoning("hm")])))
    assert request_building.find_violations(
        asked(HI, (ASSISTANT, [Text("see"), Image("image/png", b"x")]), HI)
    )


def test_reasoning_does_not_stand_alone() -> None:
    assert "message 1 is reasoning alone" in request_building.find_violations(
        asked(HI, (ASSISTANT, [Reasoning("hm")]), HI)
    )


def test_calls_have_a_plain_name_and_an_object_of_arguments() -> None:
    for call in (
        ToolCall("c1", "no name", "{}"),
        ToolCall("c1", "read", "[]"),
        ToolCall("c1", "read", "{broken"),
    ):
        assert request_building.find_violations(
            asked(HI, (ASSISTANT, [call]), (USER, [ToolResult("c1", "out")]))
        )


# --- repair


def test_calls_of_an_interrupted_run_get_a_result_that_says_so() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b", "c")
    talk.output("b")
    talk.user("what happened?")
    request = talk.request()
    assert request_building.find_violations(request) == []
    results = {
        part.call: part.text for part in request.messages[2].parts if isinstance(part, ToolResult)
    }
    assert results["a"] == results["c"] == request_building.INTERRUPTED
    assert results["b"] != request_building.INTERRUPTED
    assert request.messages[2].parts[-1] == Text("what happened?", 10)


def test_a_steering_message_said_between_results_stands_behind_the_whole_batch() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b")
    talk.output("a")
    talk.user("rather the other file", steering=True)
    talk.output("b")
    last = talk.request().messages[-1].parts
    assert [type(part) for part in last] == [ToolResult, ToolResult, Text]


def test_a_result_nobody_waits_for_is_left_out() -> None:
    talk = Talk()
    talk.user("go")
    talk.output("nobody")
    talk.reply("", "a")
    talk.output("a")
    talk.output("a", "a second result of the same call")
    request = talk.request()
    assert request_building.find_violations(request) == []
    assert (
        sum(isinstance(part, ToolResult) for message in request.messages for part in message.parts)
        == 1
    )


def test_a_result_that_comes_after_the_next_reply_is_too_late() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a")
    talk.reply("never mind")
    before = talk.request()
    talk.output("a")
    assert talk.request() == before


def test_ids_used_again_by_the_model_are_told_apart() -> None:
    talk = Talk()
    talk.user("go")
    for _ in range(3):
        talk.reply("", "call_0", "call_0", "")
        talk.output("call_0", "first")
        talk.output("call_0", "second")
        talk.output("", "third")
    request = talk.request()
    assert request_building.find_violations(request) == []
    assert request_building.INTERRUPTED not in said(request)


def test_arguments_and_names_no_provider_takes_are_made_legal_and_the_fact_is_left_as_it_was() -> (
    None
):
    talk = Talk()
    talk.user("go")
    call = ToolCall("a", "my tool!", "{broken", 5)
    seq = talk.add(ModelReplied((call,), "m", Stop.CALLS))
    talk.output("a")
    request = talk.request()
    assert request_building.find_violations(request) == []
    shown = request.messages[1].parts[0]
    assert isinstance(shown, ToolCall)
    assert shown.name == "my_tool_"
    assert "{broken" in shown.arguments
    fact = talk.facts[seq - 1].fact
    assert isinstance(fact, ModelReplied)
    assert fact.parts == (call,)


def test_a_reply_that_was_cut_is_continued_the_same_way_every_time() -> None:
    talk = Talk()
    talk.user("go")
    talk.add(ModelReplied((Text("the first half", 20),), "m", Stop.LENGTH))
    first = talk.request()
    assert first.messages[-1].parts == (Text(request_building.GO_ON),)
    talk.reply("the second half")
    assert talk.request().messages[: len(first.messages)] == first.messages
    assert request_building.find_violations(talk.request()) == []


def test_a_reply_that_was_complete_is_not_said_to_have_been_cut_off() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("the planner's word")
    talk.reply("the searcher's word")
    said = [
        part.text
        for message in talk.request().messages
        for part in message.parts
        if isinstance(part, Text)
    ]
    assert said == ["go", "the planner's word", "Continue.", "the searcher's word", "Continue."]


def test_reasoning_that_led_to_nothing_is_left_out() -> None:
    talk = Talk()
    talk.user("go")
    talk.add(ModelReplied((Reasoning("hm", 5, "signed"),), "m", Stop.CUT))
    talk.user("and?")
    assert roles(talk.request()) == [USER]
    assert request_building.find_violations(talk.request()) == []


def test_reasoning_stays_with_its_calls() -> None:
    talk = Talk()
    talk.user("go")
    talk.add(
        ModelReplied(
            (Reasoning("hm", 5, "signed"), ToolCall("a", "read", "{}", 5)), "m", Stop.CALLS
        )
    )
    talk.output("a")
    assert talk.request().messages[1].parts[0] == Reasoning("hm", 5, "signed")


def test_an_empty_conversation_and_an_empty_output_can_be_sent() -> None:
    talk = Talk()
    assert request_building.find_violations(talk.request()) == []
    talk.user("go")
    talk.reply("", "a")
    talk.add(ToolReturned("a", stored(""), 0))
    pieces = request_building.build_legal_messages(talk.view(), lambda _: "  ")
    assert request_building.find_violations(Request("m", pieces.system, pieces.messages)) == []
    assert request_building.EMPTY_OUTPUT in str(pieces.messages)


def test_pictures_join_the_result_they_belong_to() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b")
    picture = Stored(stored("picture").digest, 7, 0, "image/png")
    talk.add(ToolReturned("a", stored("text of a"), 5, images=(picture,)))
    talk.output("b")
    image = Image("image/png", b"picture")
    pieces = request_building.build_legal_messages(
        talk.view(), lambda content: image if content == picture else "text"
    )
    result = pieces.messages[2].parts[0]
    assert isinstance(result, ToolResult)
    assert result.images == (image,)
    assert request_building.find_violations(Request("m", "", pieces.messages)) == []


def test_an_output_that_is_itself_a_picture_answers_its_call() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a", "b")
    picture = replace(stored("picture"), media_type="image/png")
    talk.add(ToolReturned("a", picture, 5, images=(picture,)))
    talk.output("b")
    image = Image("image/png", b"picture")
    pieces = request_building.build_legal_messages(
        talk.view(), lambda content: image if content == picture else "text"
    )
    assert pieces.messages[2].parts[0] == ToolResult(
        "a", request_building.EMPTY_OUTPUT, images=(image, image)
    )


def test_attachments_are_pictures_or_named_texts() -> None:
    talk = Talk()
    talk.add(
        UserSaid(
            (Attachment("a.txt", stored("the text"), 5), Attachment("b.png", stored("bytes"), 5))
        )
    )
    image = Image("image/png", b"bytes")
    pieces = request_building.build_legal_messages(
        talk.view(), lambda content: image if content == stored("bytes") else "the text"
    )
    assert pieces.messages[0].parts == (Text("[Attachment: a.txt]\nthe text"), image)


def test_what_only_an_agents_provider_can_read_is_said_in_a_sentence_and_settings_are_not() -> None:
    sealed = '{"type": "compaction", "encrypted_content": "gAAAA"}'
    setting = '{"role": "system", "content": [], "output_config": {"effort": "low"}}'
    found = '{"type": "search_result", "title": "found", "content": [{"text": "words"}]}'
    talk = Talk()
    for block in (sealed, setting, found):
        stored_block = replace(stored(block), media_type="application/json")
        talk.add(UserSaid((Text("go", 1), Attachment("block", stored_block, 5))))
    contents = {stored(block).digest: block for block in (sealed, setting, found)}
    pieces = request_building.build_legal_messages(
        talk.view(), lambda content: contents[content.digest]
    )
    texts = [part.text for part in pieces.messages[0].parts if isinstance(part, Text)]
    assert texts == [
        "go", "[The rest of the summary is sealed: only its provider can read it.]",
        "go",
        "go", f"[Attachment: block]\n{found}",
    ]  # fmt: skip


def test_content_that_is_gone_is_said_to_be_gone() -> None:
    talk = Talk()
    talk.user("go")
    talk.step("a")
    request = request_building.build_request(talk.view(), {})
    assert request_building.find_violations(request) == []
    assert request_building.MISSING in said(request)


# --- legal cuts


def test_a_cut_is_legal_before_a_step_and_before_a_message_and_nowhere_else() -> None:
    talk = Talk()
    first = talk.user("go")
    one = talk.reply("", "a", "b")
    talk.output("a")
    steering = talk.user("also this", steering=True)
    last = talk.output("b")
    two = talk.reply("done")
    then = talk.user("thanks")
    branch = talk.state.branch
    assert [seq for seq in branch.order if request_building.is_legal_cut(branch, seq)] == [
        first,
        one,
        two,
        then,
    ]
    assert not request_building.is_legal_cut(branch, steering)
    assert not request_building.is_legal_cut(branch, last)
    assert not request_building.is_legal_cut(branch, 99)


def test_no_cut_is_legal_while_calls_are_open() -> None:
    talk = Talk()
    talk.user("go")
    talk.reply("", "a")
    waiting = talk.user("hurry", steering=True)
    assert not request_building.is_legal_cut(talk.state.branch, waiting)


def test_stable_counts_the_messages_that_only_a_fold_can_change() -> None:
    talk = Talk()
    talk.user("go")
    talk.step("a")
    assert talk.request().stable == len(talk.request().messages)
    talk.reply("", "b", "c")
    talk.output("b")
    assert talk.request().stable == 3
    talk.output("c")
    talk.fold("f", Span(1, 3))
    assert talk.request().stable == len(talk.request().messages)
    assert talk.view().blocks[0].source == Span(1, 3)
    assert PartRef(1) in {block.source for block in talk.view().blocks}


def test_a_call_through_call_tool_is_sent_as_it_was_made() -> None:
    talk = Talk()
    talk.user("open one")
    talk.add(
        ModelReplied(
            (ToolCall("c1", "github__create", '{"title": "x"}', via="call_tool"),), "m", Stop.CALLS
        )
    )
    sent = (
        request_building.build_legal_messages(talk.state.get_view(), lambda _: "")
        .messages[1]
        .parts[0]
    )
    assert isinstance(sent, ToolCall)
    assert sent.name == "call_tool"
    assert json.loads(sent.arguments) == {"name": "github__create", "arguments": {"title": "x"}}
