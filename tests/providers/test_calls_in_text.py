"""Calls that a small model wrote as text are read by template, and examples are not run."""

from __future__ import annotations

import json
import time

import pytest

from helix_desktop.engine.facts import Stop, Text, ToolCall, ToolSpec
from helix_desktop.engine.messages import Message, Reply, Request, Role
from helix_desktop.providers.calls_in_text import (
    TextCall,
    find_calls_in_text,
    looks_like_a_call,
    remove_template_marks,
    split_off_thoughts,
)
from helix_desktop.providers.http_transport import ProviderConnections
from helix_desktop.providers.provider_catalog import ProviderConfig, connect_model_client
from tests.peers.chat_server import ChatServer, reply
from tests.providers.asking import Instant, heard

TOOLS = ("read_file", "list_files")
READ = '{"name": "read_file", "arguments": {"path": "a.txt"}}'

WRITTEN = {
    "hermes": f"I look.\n<tool_call>\n{READ}\n</tool_call>",
    "hermes without an end": f"I look.\n<tool_call>\n{READ}\n",
    "mistral": f"I look.[TOOL_CALLS][{READ}]",
    "llama 3.2": f"I look.<|python_tag|>{READ}<|eom_id|>",
    "llama 3.1": 'I look.\n<function=read_file>{"path": "a.txt"}</function>',
    "qwen3-coder": (
        "I look.\n<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n"
        "</function>\n</tool_call>"
    ),
    "gemma": f"I look.\n```json\n{READ}\n```",
    "tool_code": f"I look.\n```tool_call\n{READ}\n```\n",
    "openai": (
        'I look.\n<tool_call>{"type": "function", "function": {"name": "read_file", '
        '"arguments": "{\\"path\\": \\"a.txt\\"}"}}</tool_call>'
    ),
}


@pytest.mark.parametrize("text", WRITTEN.values(), ids=WRITTEN)
def test_each_template_is_read(text: str) -> None:
    found = find_calls_in_text(text, TOOLS)
    assert found is not None
    (call,) = found.calls
    assert (found.text, call.name, json.loads(call.arguments)) == (
        "I look.",
        "read_file",
        {"path": "a.txt"},
    )


# What stands in the argument of a call is no mark of a call, and no end of one.
MARKS_IN_ARGUMENTS = (
    "see </tool_call> and <tool_call>",
    "[TOOL_CALLS][{}]",
    "[TOOL_CALLS]bash[ARGS]{}",
    "<function=list_files></function>",
    "<|python_tag|>{}<|eom_id|>",
)


@pytest.mark.parametrize("argument", MARKS_IN_ARGUMENTS)
@pytest.mark.parametrize(
    "written",
    [
        "<tool_call>{}</tool_call>",
        "<tool_call>{}",
        "[TOOL_CALLS]{}",
        "[TOOL_CALLS][{}]",
        "<|python_tag|>{}<|eom_id|>",
    ],
)
def test_marks_in_the_arguments_of_a_call_are_a_part_of_it(written: str, argument: str) -> None:
    call = json.dumps({"name": "read_file", "arguments": {"path": argument}})
    found = find_calls_in_text("I look." + written.replace("{}", call), TOOLS)
    assert found is not None
    assert found.text == "I look."
    assert [(call.name, json.loads(call.arguments)) for call in found.calls] == [
        ("read_file", {"path": argument})
    ]


@pytest.mark.parametrize(
    "argument",
    [
        "see </tool_call> and <tool_call>",
        "<function=list_files>\n<parameter=path>\na\n</parameter>\n</function>",
        "</function>",
    ],
)
def test_a_function_as_tags_may_have_tags_in_its_argument(argument: str) -> None:
    function = f"<function=read_file>\n<parameter=path>\n{argument}\n</parameter>\n</function>"
    for text in (function, f"<tool_call>\n{function}\n</tool_call>"):
        found = find_calls_in_text(text, TOOLS)
        assert found is not None
        assert [json.loads(call.arguments) for call in found.calls] == [{"path": argument}]


@pytest.mark.parametrize("call_id", ["", "[CALL_ID]a1B2c3D4e"])
def test_mistrals_newer_form_has_the_name_before_the_arguments(call_id: str) -> None:
    def write(name: str, arguments: str) -> str:
        return f"[TOOL_CALLS]{name}{call_id}[ARGS]{arguments}"

    one = "I look." + write("read_file", '{"path": "[TOOL_CALLS]b[ARGS]{}"}')
    both = one + write("list_files", "{}")
    for text, names in ((one, ["read_file"]), (both, ["read_file", "list_files"])):
        found = find_calls_in_text(text, TOOLS)
        assert found is not None
        assert (found.text, [call.name for call in found.calls]) == ("I look.", names)
        assert json.loads(found.calls[0].arguments) == {"path": "[TOOL_CALLS]b[ARGS]{}"}
    for broken in (write("read_file", '{"path": '), write("read_file", '["a"]'), one + " Well."):
        assert find_calls_in_text(broken, TOOLS) is None
    assert looks_like_a_call("I look." + write("read_file", '{"path": '))
    assert not looks_like_a_call("A call is " + write("read_file", "arguments") + ".")


def test_bare_json_and_several_calls_are_read() -> None:
    bare = find_calls_in_text('{"name": "list_files", "parameters": {}}', TOOLS)
    assert bare is not None
    assert [call.name for call in bare.calls] == ["list_files"]
    # A model may write null where a call has no arguments.
    without = find_calls_in_text('<tool_call>{"name": "list_files", "arguments": null}', TOOLS)
    assert without is not None
    assert without.calls == (TextCall("list_files", "{}"),)
    two = f"<tool_call>{READ}</tool_call>\n<tool_call>{READ}</tool_call>"
    several = find_calls_in_text(two, TOOLS)
    assert several is not None
    assert len(several.calls) == 2


@pytest.mark.parametrize(
    "text",
    [
        f"A call looks like this: <tool_call>{READ}</tool_call>. Shall I make it?",
        f"```json\n{READ}\n```\nThis is how it would be called.",
        '<tool_call>{"name": "delete_everything", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "read_file", "arguments": {"path": </tool_call>',
        '```json\n{"name": "Mary", "age": 3}\n```',
        '{"result": "read_file"}',
        "<tool_call>" + "[" * 5_000,
        "To list files you would write <function=list_files></function>. Shall I?",
        f"An example: <tool_call>{READ}</tool_call>\nThat ends in a bracket [a]",
        "<function=read_file>\n<parameter=path>\na.tx",
        f'<tool_call>{READ}</tool_call>\n<tool_call>{{"name": "read_</tool_call>',
        f'{{"name": "read_file", "arguments": "{"[" * 5_000}"}}',
        f"{READ}, {READ}",
        "<function=read_file>{} {}</function>",
        '{"name": "read_file", "arguments": "{} {}"}',
        "",
    ],
)
def test_examples_unknown_tools_and_broken_json_are_not_run(text: str) -> None:
    assert find_calls_in_text(text, TOOLS) is None


@pytest.mark.parametrize(
    "text",
    [
        f"<tool_call>{READ}</tool_call>" * 900 + " Done.",
        f"<tool_call>{READ}</tool_call>" * 900 + " ]",
        "<tool_call>[" * 4_000 + "`",
        "<function=read_file>" * 2_500 + "</tool_call>",
        "<function=read_file><parameter=path>" * 1_600,
        "<|im_end|>" * 5_000 + ".",
        "<think>" * 8_000,
        "```json\n{" * 5_000,
        "[TOOL_CALLS]" * 4_900,
    ],
    ids=lambda text: text[:24],
)
def test_what_a_looping_model_wrote_is_read_at_once(text: str) -> None:
    """Twenty repeated calls took three seconds, and each one more twice as long."""
    before = time.process_time()
    find_calls_in_text(text, TOOLS)
    looks_like_a_call(text)
    split_off_thoughts(remove_template_marks(text))
    assert time.process_time() - before < 1.0


def test_a_call_after_an_example_is_made() -> None:
    text = f"So `<tool_call>` begins it.\n<tool_call>{READ}</tool_call>"
    text_with_calls = find_calls_in_text(text, TOOLS)
    assert text_with_calls is not None
    assert text_with_calls.text == "So `<tool_call>` begins it."


def test_json_that_the_user_asked_for_is_no_failed_call() -> None:
    assert not looks_like_a_call('```json\n{"name": "Mary", "age": 3}\n```')
    assert looks_like_a_call('<tool_call>{"name": "gone", "arguments": {}}</tool_call>')


async def ask(text: str, connections: ProviderConnections, key_host: str = "") -> Reply:
    specs = tuple(ToolSpec(name, name, "{}") for name in TOOLS)
    request = Request("m", "", (Message(Role.USER, (Text("Read a.txt"),)),), specs)
    with ChatServer([reply(text)]) as server:
        config = ProviderConfig("mine", base_url=server.base_url, key_host=key_host)
        client = connect_model_client(config, "m", connections=connections, clock=Instant())
        return (await heard(client, request))[1]


async def test_a_local_models_call_as_text_is_made(connections: ProviderConnections) -> None:
    made = await ask(WRITTEN["hermes"], connections)
    text, call = made.parts
    assert isinstance(text, Text)
    assert isinstance(call, ToolCall)
    assert (text.text, call.name, made.stop) == ("I look.", "read_file", Stop.CALLS)


async def test_a_providers_call_as_text_stays_text_with_a_hint(
    connections: ProviderConnections,
) -> None:
    kept = await ask(WRITTEN["hermes"], connections, key_host="127.0.0.1")
    assert kept.parts == (Text(WRITTEN["hermes"]),)
    assert "as text, so nothing was run" in kept.why
    plain = await ask("The file says hello.", connections)
    assert plain.why == ""
