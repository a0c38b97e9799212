"""What holds for every dialect whatever it is given: legal requests for any
conversation, no surprise from any stream.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helix_desktop.engine.facts import Reasoning, Stop, Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import Image, Message, Reply, Request, Role, ToolResult
from helix_desktop.errors import ModelFailed
from helix_desktop.json_values import dump_json, parse_json
from helix_desktop.protocols.event_stream import ServerSentEvent
from helix_desktop.protocols.protocol_dialect import (
    ModelAbilities,
    ProtocolDialect,
    sampling_options,
)
from helix_desktop.providers.provider_catalog import DIALECTS
from tests.peers import anthropic_server, chat_server, gemini_server, responses_server
from tests.providers.asking import READ

CALLS = [("read", {"path": "a"}), ("read", {"path": "b"})]
STREAMS: dict[str, list[Any]] = {
    "openai-chat": [
        chat_server.chunk({"reasoning_content": "hm"}),
        chat_server.chunk({"content": "Yes"}),
        *chat_server.call_chunks(CALLS),
        chat_server.chunk({}, "tool_calls", usage=chat_server.USAGE),
    ],
    "openai-responses": responses_server.events("Yes", reasoning="hm", calls=CALLS),
    "anthropic": anthropic_server.events("Yes", thinking="hm", redacted="x", calls=CALLS),
    "gemini": gemini_server.chunks("Yes", thought="hm", calls=CALLS, signature="s"),
}
junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.floats(allow_nan=False)
    | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.sampled_from(["type", "text", "id", "index"]), inner, max_size=2)
    ),
    max_leaves=4,
)


def dialect(kind: str) -> ProtocolDialect:
    return DIALECTS[kind]("https://llm.example.org/v1", "peer", "")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """All paths into a value."""
    inner = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    return [path, *(deeper for key, one in inner for deeper in places(one, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = put(value[path[0]], path[1:], new)
    return value


@pytest.mark.parametrize("kind", DIALECTS)
@settings(max_examples=150)
@given(data=st.data())
def test_no_stream_surprises(kind: str, data: st.DataObject) -> None:
    """Any value of a real stream replaced by anything, events lost or twice: a reply,
    or one of the two errors.
    """
    stream = list(STREAMS[kind])
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(stream) - 1))
        stream[at] = put(
            stream[at], data.draw(st.sampled_from(places(stream[at]))), data.draw(junk)
        )
    if data.draw(st.booleans()):
        del stream[data.draw(st.integers(0, len(stream) - 1))]
    reading = dialect(kind).build_reply_reader(Request("m", "", ()))
    for one in stream:
        try:
            reading.feed_event(ServerSentEvent(json.dumps(one)))
        except (ValueError, ModelFailed):
            break
    reply = reading.reply_so_far("" if reading.is_reply_complete else "cut")
    assert isinstance(reply, Reply)
    assert reading.is_reply_complete or reply.stop is Stop.CUT
    assert all(isinstance(part, Text | Reasoning | ToolCall) for part in reply.parts)
    assert all(
        isinstance(getattr(part, "text", ""), str)
        and isinstance(getattr(part, "arguments", ""), str)
        for part in reply.parts
    )


@pytest.mark.parametrize("kind", DIALECTS)
def test_every_proper_part_of_a_stream_is_cut_and_the_whole_is_not(kind: str) -> None:
    stream = STREAMS[kind]
    ends = []
    for length in range(len(stream) + 1):
        reading = dialect(kind).build_reply_reader(Request("m", "", ()))
        for one in stream[:length]:
            reading.feed_event(ServerSentEvent(json.dumps(one)))
        ends.append(reading.reply_so_far().stop)
    assert ends[-1] is Stop.CALLS
    last_cut = max(at for at, stop in enumerate(ends) if stop is Stop.CUT)
    assert last_cut >= len(stream) - 2, "only the reason, and what follows it, makes a reply whole"
    assert all(stop is Stop.CUT for stop in ends[: last_cut + 1])


# --- any conversation

texts = st.text(max_size=6)
reasonings = st.builds(
    Reasoning,
    texts,
    opaque=st.sampled_from(
        [
            "",
            "broken",
            "{}",
            '{"type":"thinking","thinking":"a","signature":"s"}',
            '{"signature":"of another"}',
            '{"field":"reasoning"}',
        ]
    ),
    provider=st.sampled_from(["", *(f"{kind} llm.example.org" for kind in DIALECTS)]),
)
images = st.builds(Image, st.sampled_from(["image/png", "image/tiff", ""]), st.binary(max_size=3))
ids = st.text(min_size=1, max_size=5)


@st.composite
def conversations(draw: st.DrawFn) -> tuple[Message, ...]:
    """Legal ones: turns taken, calls answered in the next message, results first."""
    messages = [
        Message(Role.USER, (*draw(st.lists(texts.map(Text) | images, min_size=1, max_size=2)),))
    ]
    for number in range(draw(st.integers(0, 3))):
        calls = [
            ToolCall(f"{draw(ids)}{number}{at}", "read", draw(texts))
            for at in range(draw(st.integers(0, 2)))
        ]
        said = draw(st.lists(texts.map(Text) | reasonings, max_size=2))
        messages.append(Message(Role.ASSISTANT, (*said, *calls, *([] if calls else [Text("ok")]))))
        results = [
            ToolResult(
                call.id,
                draw(texts),
                ok=draw(st.booleans()),
                images=tuple(draw(st.lists(images, max_size=1))),
            )
            for call in calls
        ]
        messages.append(
            Message(
                Role.USER,
                (
                    *results,
                    *([] if results else [Text("go on")]),
                    *draw(st.lists(texts.map(Text), max_size=1)),
                ),
            )
        )
    return tuple(messages)


@pytest.mark.parametrize("kind", DIALECTS)
@settings(max_examples=80)
@given(
    messages=conversations(),
    stable=st.integers(0, 8),
    reasoning=st.sampled_from(["", "high"]),
    abilities=st.builds(
        ModelAbilities,
        st.sampled_from([0, 64_000]),
        st.booleans(),
        st.booleans(),
        st.sampled_from(["", "effort", "budget", "adaptive", "level"]),
    ),
)
def test_any_legal_conversation_can_be_written(
    kind: str, messages: tuple[Message, ...], stable: int, reasoning: str, abilities: ModelAbilities
) -> None:
    request = Request(
        "m", "system", messages, (READ, ToolSpec("odd", "", "broken")), stable, reasoning=reasoning
    )
    body: Any = parse_json(dump_json(dialect(kind).compile_request(request, abilities).body))
    for message in body.get("messages", body.get("contents", [])):
        content = message.get("content", message.get("parts"))
        assert content or message.get("tool_calls") or message["role"] == "tool", (
            "no message is empty"
        )
    written = json.dumps(body)
    for message in messages:
        for part in message.parts:
            if (
                isinstance(part, Reasoning)
                and "llm.example.org" in part.provider
                and kind not in part.provider
                and part.opaque == '{"signature":"of another"}'
            ):
                assert '"of another"' not in written or kind == "gemini"


@pytest.mark.parametrize("kind", DIALECTS)
def test_the_same_conversation_is_written_the_same_way_twice_and_its_beginning_stays(
    kind: str,
) -> None:
    """What the providers' prompt caches live on."""
    call = ToolCall("call_000000001", "read", '{"path": "a"}')
    begun = (
        Message(Role.USER, (Text("Go"),)),
        Message(Role.ASSISTANT, (call,)),
        Message(Role.USER, (ToolResult(call.id, "x"),)),
    )
    longer = (*begun, Message(Role.ASSISTANT, (Text("Done"),)), Message(Role.USER, (Text("More"),)))
    one, again, more = (
        json.dumps(
            dialect(kind)
            .compile_request(Request("m", "s", messages, (READ,), stable=1), ModelAbilities())
            .body
        )
        for messages in (begun, begun, longer)
    )
    assert one == again
    plain = one.replace(', "cache_control": {"type": "ephemeral"}', "")
    name = next(name for name in ('"messages": [', '"input": [', '"contents": [') if name in plain)
    items = json.loads(plain)[name.strip('": [')]
    more_items = json.loads(more.replace(', "cache_control": {"type": "ephemeral"}', ""))[
        name.strip('": [')
    ]
    assert more_items[: len(items)] == items


@pytest.mark.parametrize("kind", DIALECTS)
def test_reasoning_is_marked_with_the_protocol_and_the_host_that_alone_can_read_it(
    kind: str,
) -> None:
    one = dialect(kind)
    assert (one.host, one.reasoning_owner) == ("llm.example.org", f"{kind} llm.example.org")
    elsewhere = DIALECTS[kind]("http://127.0.0.1:8080/v1", "peer", "")
    assert elsewhere.reasoning_owner == f"{kind} 127.0.0.1"
    assert DIALECTS[kind]("not an address", "peer", "").host == ""


@pytest.mark.parametrize("kind", DIALECTS)
def test_a_key_goes_under_the_header_that_the_user_named(kind: str) -> None:
    assert (
        DIALECTS[kind]("https://llm.example.org/v1", "peer", "x-own-key").key_headers("k")[
            "x-own-key"
        ]
        == "k"
    )
    assert "k" in "".join(dialect(kind).key_headers("k").values())


def test_a_model_that_takes_no_temperature_is_sent_none() -> None:
    request = Request(
        "scripted", "", (Message(Role.USER, (Text("Hi"),)),), temperature=0.5, top_p=0.9
    )
    assert sampling_options(request, ModelAbilities()) == {"temperature": 0.5, "top_p": 0.9}
    assert sampling_options(request, ModelAbilities(), "topP") == {"temperature": 0.5, "topP": 0.9}
    assert sampling_options(request, ModelAbilities(temperature=False)) == {}
