"""Reads what a small model wrote as text because its server did not read it: tool calls, and
the marks of its chat template.

Each family of models was taught another form. A form counts only at the end of a reply
and only with the name of a tool that was offered, so that an example in an explanation
is not run.
"""

import json
import re
from collections.abc import Callable, Collection, Iterable

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json

LONGEST_READ = 60_000  # Of more characters, no small model's call is the end.
# A call that broke off or is not JSON, at the end of a text.
_BROKEN_CALL = re.compile(
    r"(?:<tool_call>|\[TOOL_CALLS\]|<\|python_tag\|>)\s*[{\[](?:(?!</tool_call>)[^`])*"
    r"(?:</tool_call>\s*)?\Z"
)
# How chat templates begin the model's turn and end it: ChatML, Llama 3, Phi, Gemma, Mistral.
_MARK_AT_START = re.compile(
    r"\A\s*(?:<\|im_start\|>(?:assistant)?|<\|start_header_id\|>assistant<\|end_header_id\|>"
    r"|<start_of_turn>(?:model)?|<\|assistant\|>)\s*"
)
_MARKS_AT_END = re.compile(
    r"\s*(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<end_of_turn>|</s>)"
    r"(?:\s*(?:<\|(?:im_end|eot_id|end|endoftext|end_of_text)\|>|<end_of_turn>|</s>))*\s*\Z"
)
_THOUGHTS_AT_START = re.compile(r"\A\s*<think>\s*(.*?)\s*</think>\s*", re.DOTALL)
_START_OF_JSON = re.compile(r"[{\[]")
_FUNCTION_TAG = re.compile(r"<function=([\w.-]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER_TAG = re.compile(r"<parameter=([\w.-]+)>\n?(.*?)\n?(?:</parameter>|\Z)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TextCall:
    """`arguments`: a JSON object."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class TextWithCalls:
    """What a reply says before its calls, and the calls."""

    text: str
    calls: tuple[TextCall, ...]


@dataclass(frozen=True, slots=True)
class ThoughtsAndText:
    """What a reply has between `<think>` and `</think>`, and what it says."""

    thoughts: str
    text: str


@dataclass(frozen=True, slots=True)
class CallTemplate:
    """How a family of models writes calls. `pattern` matches one call or list of calls
    with the end of the text after it; its first group is what `read` reads.
    """

    models: str
    pattern: re.Pattern[str]
    read: Callable[[str], Iterable[TextCall]]
    is_unmistakable: bool = True


def find_calls_in_text(text: str, tool_names: Collection[str]) -> TextWithCalls | None:
    """Return the calls at the end of a text, or None if there are none that can be made."""
    if len(text) > LONGEST_READ:
        return None
    for template in CALL_TEMPLATES:
        match = template.pattern.search(text)
        if match is None:
            continue
        calls = tuple(template.read(match[1]))
        are_all_offered = all(call.name in tool_names for call in calls)
        if calls and are_all_offered:
            text_before_calls = text[: match.start()].rstrip()
            return TextWithCalls(text_before_calls, calls)
    return None


def remove_template_marks(text: str) -> str:
    """Return a reply's text without the marks that begin and end the model's turn."""
    text = _MARK_AT_START.sub("", text)
    return _MARKS_AT_END.sub("", text)


def split_off_thoughts(text: str) -> ThoughtsAndText:
    """Split a reply's text into the thoughts at its start, if they are marked as such and
    complete, and the rest.
    """
    match = _THOUGHTS_AT_START.match(text)
    if match is None:
        return ThoughtsAndText("", text)
    return ThoughtsAndText(match[1], text[match.end() :])


def looks_like_a_call(text: str) -> bool:
    """Whether a text ends in what is meant as a tool call, though it cannot be read."""
    if len(text) > LONGEST_READ:
        return False
    if _BROKEN_CALL.search(text) is not None:
        return True
    for template in CALL_TEMPLATES:
        # JSON without any mark may also be what the user asked for.
        if template.is_unmistakable and template.pattern.search(text) is not None:
            return True
    return False


def _calls_in_json(text: str) -> Iterable[TextCall]:
    """Yield the calls of JSON documents that stand one after another, or in a list."""
    decoder = json.JSONDecoder()
    position = 0
    while position < len(text):
        start = _START_OF_JSON.search(text, position)
        if start is None:
            return
        try:
            value, position = decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            return
        items = [value]
        if isinstance(value, list):
            items = value
        for item in items:
            call = _call_of_object(item)
            if call is not None:
                yield call


def _call_of_object(value: Json) -> TextCall | None:
    """Return the call that an object is, or None. Families of models name its fields
    differently, and some put all of it under `function`.
    """
    if not isinstance(value, dict):
        return None
    described_call = value
    function = value.get("function")
    if isinstance(function, dict):
        described_call = function
    name = described_call.get("name")
    if "arguments" in described_call:
        arguments = described_call["arguments"]
    else:
        arguments = described_call.get("parameters", {})
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except ValueError:
            return None
    if not isinstance(name, str) or not isinstance(arguments, dict):
        return None
    return TextCall(name, json.dumps(arguments, ensure_ascii=False))


def _calls_in_tags(text: str) -> Iterable[TextCall]:
    """Yield the calls of Qwen3-Coder, whose arguments are tags and not JSON."""
    for function in _FUNCTION_TAG.finditer(text):
        name, content = function.groups()
        arguments: dict[str, Json] = {}
        for parameter in _PARAMETER_TAG.finditer(content):
            parameter_name, value = parameter.groups()
            arguments[parameter_name] = value
        if arguments or not content.strip():
            yield TextCall(name, json.dumps(arguments, ensure_ascii=False))
        else:  # Llama 3.1 writes JSON into the same tag.
            yield from _calls_in_json(f'{{"name": "{name}", "arguments": {content}}}')


def _template(
    models: str,
    pattern: str,
    read: Callable[[str], Iterable[TextCall]] = _calls_in_json,
    *,
    is_unmistakable: bool = True,
) -> CallTemplate:
    return CallTemplate(models, re.compile(pattern, re.DOTALL), read, is_unmistakable)


CALL_TEMPLATES = (
    _template(
        "Qwen3-Coder, Llama 3.1",
        r"((?:(?:<tool_call>\s*)?<function=[\w.-]+>.*?(?:</function>|\Z)\s*(?:</tool_call>\s*)?)+)\Z",
        _calls_in_tags,
    ),
    _template(
        "Hermes, Qwen, SmolLM",
        r"<tool_call>\s*([{\[].*?[}\]]\s*(?:</tool_call>\s*<tool_call>\s*[{\[].*?[}\]]\s*)*)"
        r"(?:</tool_call>)?\s*\Z",
    ),
    _template("Mistral", r"\[TOOL_CALLS\]\s*(\[.*\])\s*\Z"),
    _template("Llama 3.2", r"<\|python_tag\|>\s*(\{.*\})\s*(?:<\|eom_id\|>)?\s*\Z"),
    _template(
        "Gemma and others",
        r"```(?:json|tool_call|tool_code)?\s*\n\s*([{\[][^`]*[}\]])\s*\n?```\s*\Z",
        is_unmistakable=False,
    ),
    _template(
        "Llama 3 and Phi",
        r"\A\s*([{\[]\s*\{?\s*\"(?:name|type|function)\".*[}\]])\s*\Z",
        is_unmistakable=False,
    ),
)
