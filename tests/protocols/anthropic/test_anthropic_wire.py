"""A reply of Anthropic's put together from its stream, event by event."""

from __future__ import annotations

from typing import Any

from helix_desktop.protocols.anthropic import anthropic_wire


def read(*events: dict[str, Any]) -> dict[str, Any]:
    reading = anthropic_wire.Reading()
    for event in events:
        reading.take(event)
    return reading.value()


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": more}


def test_blocks_stand_in_the_order_of_their_numbers_with_all_their_pieces() -> None:
    begin = {"type": "message_start", "message": {"id": "m1", "usage": {"input_tokens": 5, "output_tokens": 1}}}
    told = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 9, "x": None}}
    value = read(
        begin,
        start(1, type="text", text=""),
        start(0, type="thinking", thinking=""),
        delta(0, type="thinking_delta", thinking="let me "),
        delta(0, type="thinking_delta", thinking="see"),
        delta(0, type="signature_delta", signature="sig"),
        delta(1, type="text_delta", text="here "),
        delta(1, type="text_delta", text="it is"),
        delta(1, type="citations_delta", citation={"n": 1}),
        delta(1, type="citations_delta", citation={"n": 2}),
        delta(4, type="text_delta", text="a block whose beginning was lost"),
        told,
    )
    assert value["content"] == [
        {"type": "thinking", "thinking": "let me see", "signature": "sig"},
        {"type": "text", "text": "here it is", "citations": [{"n": 1}, {"n": 2}]},
        {"type": "text", "text": "a block whose beginning was lost"},
    ]
    assert (value["id"], value["stop_reason"]) == ("m1", "tool_use")
    assert value["usage"] == {"input_tokens": 5, "output_tokens": 9}


def test_the_arguments_of_a_call_are_those_written_and_none_where_they_broke_off() -> None:
    begin = start(0, type="tool_use", id="t1", name="Bash", input={})
    whole = read(begin, delta(0, partial_json='{"command": '), delta(0, partial_json='"ls"}'))
    assert whole["content"] == [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}]
    assert read(begin, delta(0, partial_json='{"comm'))["content"][0]["input"] == {}
    assert read(start(0, type="tool_use", input={"a": 1}))["content"][0]["input"] == {"a": 1}


def test_a_reply_is_complete_with_its_last_event_alone() -> None:
    reading = anthropic_wire.Reading()
    reading.take({"type": "message_start", "message": {}})
    assert not reading.done
    reading.take({"type": "message_stop"})
    assert reading.done
