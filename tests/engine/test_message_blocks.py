"""One message as blocks: raw, with a part folded, or with a part taken out."""

from __future__ import annotations

import json

import pytest

from helix_desktop.engine import message_blocks
from helix_desktop.engine.facts import (
    Attachment,
    ConversationStarted,
    Folded,
    FoldKind,
    ModelReplied,
    PartRef,
    Reasoning,
    Recorded,
    Stop,
    Stored,
    Text,
    ToolCall,
    ToolReturned,
    UserSaid,
)
from helix_desktop.engine.messages import ContextKind, Role
from tests.engine.talk import stored


def recorded(fact: UserSaid | ModelReplied | ToolReturned) -> Recorded:
    return Recorded("c", 7, 0.0, fact)


PICTURE = Stored(stored("picture").digest, 7, 0, "image/png")
FOLD = Folded("f", FoldKind.MARKER, PartRef(7), "short", 5, 500, entries=(stored("value").digest,))


def test_what_each_part_is() -> None:
    user = message_blocks.build_original_block(
        recorded(UserSaid((Attachment("a.png", PICTURE), Text("hi", 3)))), PartRef(7), {}
    )
    assert (user.kind, user.role, user.tokens) == (
        ContextKind.CONVERSATION,
        Role.USER,
        message_blocks.IMAGE_TOKENS,
    )
    reply = message_blocks.build_original_block(
        recorded(ModelReplied((Reasoning("hm", 4),), "m", Stop.END)), PartRef(7), {}
    )
    assert (reply.kind, reply.role, reply.tokens) == (ContextKind.CONVERSATION, Role.ASSISTANT, 4)
    result = recorded(ToolReturned("a", stored("x"), 9, ok=False, images=(PICTURE,)))
    output = message_blocks.build_original_block(result, PartRef(7), {PartRef(7): "renamed"})
    picture = message_blocks.build_original_block(result, PartRef(7, 1), {})
    assert (output.kind, output.role, output.call, output.ok, output.tokens) == (
        ContextKind.OUTPUT,
        Role.TOOL,
        "renamed",
        False,
        9,
    )
    assert (picture.content, picture.tokens) == (PICTURE, message_blocks.IMAGE_TOKENS)


def test_other_facts_are_no_messages() -> None:
    with pytest.raises(TypeError, match="ConversationStarted is not a message"):
        message_blocks.require_message(Recorded("c", 1, 0.0, ConversationStarted()))


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"a": 1}', '{"a": 1}'),
        ("", "{}"),
        ("  ", "{}"),
        ("[1]", '{"malformed": "[1]"}'),
        ('{"a": ', '{"malformed": "{\\"a\\": "}'),
        ("null", '{"malformed": "null"}'),
        ('{"a": NaN}', '{"malformed": "{\\"a\\": NaN}"}'),
        ('{"a": 1e400}', '{"malformed": "{\\"a\\": 1e400}"}'),
        ('{"a": "b\nc"}', '{"a": "b\\nc"}'),
        ('"{\\"a\\": 1}"', '{"a": 1}'),
        ("[" * 100_000, json.dumps({"malformed": "[" * 100_000})),
    ],
)
def test_arguments_are_an_object(arguments: str, shown: str) -> None:
    assert message_blocks.make_call_legal(ToolCall("a", "read", arguments), "a").arguments == shown


def test_a_legal_call_is_left_as_it_is() -> None:
    call = ToolCall("a", "read", "{}", 5, "the numbers")
    assert message_blocks.make_call_legal(call, "a") is call
    assert message_blocks.make_call_legal(ToolCall("", "", ""), "call-1-0") == ToolCall(
        "call-1-0", "unnamed", "{}"
    )


def test_a_folded_part_names_what_is_behind_it() -> None:
    output = message_blocks.build_original_block(
        recorded(ToolReturned("a", stored("x"), 900)), PartRef(7), {}
    )
    shown = message_blocks.fold_block(output, FOLD)
    assert shown.content == Text("short", 5)
    assert shown.cached == (stored("x"),)
    assert (shown.fold, shown.call, shown.tokens) == ("f", "a", 5)
    attached = message_blocks.build_original_block(
        recorded(UserSaid((Attachment("a", stored("x"), 9),))), PartRef(7), {}
    )
    assert message_blocks.fold_block(attached, FOLD).cached == (stored("x"),)
    said = message_blocks.build_original_block(
        recorded(UserSaid((Text("x", 900),))), PartRef(7), {}
    )
    assert [one.digest for one in message_blocks.fold_block(said, FOLD).cached] == list(
        FOLD.entries
    )


def test_a_part_taken_out_beats_a_pin_and_a_pin_beats_a_fold() -> None:
    message = recorded(ToolReturned("a", stored("x"), 900))

    def render(*, pinned: bool, excluded: bool) -> object:
        return message_blocks.build_message_blocks(
            message, {}, lambda _: FOLD, lambda _: pinned, lambda _: excluded
        )[0].content

    assert render(pinned=True, excluded=True) == Text(
        message_blocks.EXCLUDED, message_blocks.NOTE_TOKENS
    )
    assert render(pinned=True, excluded=False) == stored("x")
    assert render(pinned=False, excluded=False) == Text("short", 5)


def test_blank_texts_are_not_shown() -> None:
    message = recorded(UserSaid((Text(" \n", 1), Text("hi", 1))))
    assert (
        len(
            message_blocks.build_message_blocks(
                message, {}, lambda _: None, lambda _: False, lambda _: False
            )
        )
        == 1
    )


def test_other_alphabets_stay_as_they_are_in_arguments_that_are_written_anew() -> None:
    assert message_blocks.replace_long_argument_values(
        json.dumps({"text": "é" * 500, "more": "ü" * 500, "path": "ä"}), "märk"
    ) == ('{"text": "märk", "more": "[CACHED] in the same entry", "path": "ä"}')
    assert (
        message_blocks.replace_long_argument_values('{"path": "ä"}', "märk")
        == '{"path": "ä", "cached": "märk"}'
    )
    assert (
        message_blocks.make_call_legal(ToolCall("a", "read", "größe"), "a").arguments
        == '{"malformed": "größe"}'
    )
