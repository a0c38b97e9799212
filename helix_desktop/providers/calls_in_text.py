"""Reads what a small model wrote as text because its server did not read it: tool calls, and
the marks of its chat template.

Each family of models was taught another form of a call. A form counts only at the end of a reply
and only with the name of a tool that was offered, so that an example in an explanation is not run.
If one of several calls is broken, none is made: what the model meant is not known then.
"""

import json
import re
from collections.abc import Collection, Iterator
from contextlib import suppress

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json

LONGEST_READ = 60_000  # A longer text is no call: small models do not write as much at once.
MOST_MARKS_TRIED = 200  # A model that loops writes the mark of a call thousands of times.
MOST_ENDS_TRIED = 10  # An argument may have the mark that ends a call, but hardly more often.

_TOOL_CALL = "<tool_call>"
_END_OF_TOOL_CALL = "</tool_call>"
_END_OF_FUNCTION = "</function>"
_MISTRAL_MARK = "[TOOL_CALLS]"
_LLAMA_MARK = "<|python_tag|>"
_END_OF_LLAMA_CALL = "<|eom_id|>"
_FUNCTION = re.compile(r"<function=([\w.-]+)>")
_BEGINNING_OF_TAGGED_CALL = re.compile(r"<tool_call>|<function=[\w.-]+>")
_MARK_OF_CALL = re.compile(r"<tool_call>|<function=[\w.-]+>|\[TOOL_CALLS\]|<\|python_tag\|>")
# A value may have the mark of its end in itself. The true one ends the call or is before another.
_PARAMETER = re.compile(
    r"\s*<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>\s*(?=<parameter=|\Z)", re.DOTALL
)
# What may stand behind a call in tags.
_BEHIND_FUNCTION = re.compile(r"\s*(?:\Z|<function=[\w.-]+>|</?tool_call>)")
# The newer form of Mistral: the name, an id in some of its models, and then the arguments.
_MISTRAL_NAME = re.compile(r"\s*([\w.-]+)(?:\[CALL_ID\][\w-]*)?\[ARGS\]")
# ```json, a line with JSON in which no backtick stands, and ``` at the end of the text.
_FENCED_CALL = re.compile(
    r"```(?:json|tool_call|tool_code)?[ \t]*\n\s*([{\[][^`]*[}\]])\s*```\s*\Z"
)
# How chat templates begin the model's turn and end it: ChatML, Llama 3, Phi, Gemma, Mistral.
_MARK_AT_START = re.compile(
    r"\A\s*(?:<\|im_start\|>(?:assistant)?|<\|start_header_id\|>assistant<\|end_header_id\|>"
    r"|<start_of_turn>(?:model)?|<\|assistant\|>)\s*"
)
_MARKS_AT_END = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<end_of_turn>",
    "</s>",
)
_THINK = "<think>"
_END_OF_THINK = "</think>"


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
class CallsAt:
    """Calls that stand in a text, and the position behind them."""

    calls: tuple[TextCall, ...]
    end: int


@dataclass(frozen=True, slots=True)
class JsonAt:
    """A JSON value that stands in a text, and the position behind it."""

    value: Json
    end: int


@dataclass(frozen=True, slots=True)
class ThoughtsAndText:
    """What a reply has between `<think>` and `</think>`, and what it says."""

    thoughts: str
    text: str


class _NotACall(Exception):
    """What stands there cannot be read as calls and nothing else."""


def find_calls_in_text(text: str, tool_names: Collection[str]) -> TextWithCalls | None:
    """Return the calls at the end of a text, or None if there are none that can be made.

    Each form in which a model may write a call is tried. All calls must be of tools that
    exist, because the text may also be about calls.
    """
    if len(text) > LONGEST_READ:
        return None
    for text_with_calls in _read_each_form(text):
        calls = text_with_calls.calls
        if calls and all(call.name in tool_names for call in calls):
            return text_with_calls
    return None


def looks_like_a_call(text: str) -> bool:
    """Whether a text ends in what is meant as a tool call, though it cannot be made.

    JSON without a mark may also be what the user asked for, so it does not count.
    """
    if len(text) > LONGEST_READ:
        return False
    last_mark: re.Match[str] | None = None
    for mark in _MARK_OF_CALL.finditer(text):
        last_mark = mark
    if last_mark is None:
        return False
    # What stands behind the last mark of a call, without the marks that end a call.
    behind_mark = text[last_mark.end() :].strip()
    without_end = behind_mark.removesuffix(_END_OF_LLAMA_CALL).removesuffix(_END_OF_TOOL_CALL)
    written_call = without_end.rstrip().removesuffix(_END_OF_FUNCTION)
    # A text that goes on behind a call, or quotes it, is an explanation.
    signs_of_explanation = ("`", _END_OF_TOOL_CALL, _END_OF_FUNCTION)
    if any(sign in written_call for sign in signs_of_explanation):
        return False
    if last_mark[0].startswith("<function="):
        return True
    if last_mark[0] == _MISTRAL_MARK:
        written_call = _MISTRAL_NAME.sub("", written_call, count=1).lstrip()
    return written_call.startswith(("{", "["))


def remove_template_marks(text: str) -> str:
    """Return a reply's text without the marks that begin and end the model's turn.

    The server should have read them, but some leave them in the text, even several at the end.
    """
    rest = _MARK_AT_START.sub("", text)
    while True:
        without_space = rest.rstrip()
        if not without_space.endswith(_MARKS_AT_END):
            return rest
        mark_start = without_space.rfind("<")
        rest = without_space[:mark_start].rstrip()


def split_off_thoughts(text: str) -> ThoughtsAndText:
    """Split a reply's text into the thoughts at its start, if they are marked as such and
    complete, and the rest.
    """
    beginning = text.lstrip()
    if not beginning.startswith(_THINK):
        return ThoughtsAndText("", text)
    thoughts, end_mark, said = beginning.removeprefix(_THINK).partition(_END_OF_THINK)
    if not end_mark:
        return ThoughtsAndText("", text)
    return ThoughtsAndText(thoughts.strip(), said.lstrip())


# --- The forms of calls, each at the end of the text


def _read_each_form(text: str) -> Iterator[TextWithCalls]:
    yield from _read_tagged_calls(text)
    yield from _read_calls_of_mistral(text)
    yield from _read_calls_of_llama(text)
    yield from _read_fenced_calls(text)
    yield from _read_bare_calls(text)


def _read_tagged_calls(text: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Hermes, Qwen and SmolLM (JSON in `<tool_call>`), of Qwen3-Coder
    (`<function=NAME>` with `<parameter=NAME>`) and of Llama 3.1 (`<function=NAME>` with JSON).

    The calls begin at one of the marks, and nothing else follows until the end of the text.
    """
    for number, mark in enumerate(_BEGINNING_OF_TAGGED_CALL.finditer(text)):
        if number >= MOST_MARKS_TRIED:
            return
        try:
            calls = tuple(_read_blocks_to_end(text, mark.start()))
        except _NotACall:
            continue
        yield TextWithCalls(text[: mark.start()].rstrip(), calls)
        return


def _read_blocks_to_end(text: str, position: int) -> Iterator[TextCall]:
    """Yield the calls of the blocks from a position to the end. Raises _NotACall if anything
    else stands there.

    A model may leave out the mark at the end of the last block.
    """
    while position < len(text):
        if text.startswith(_TOOL_CALL, position):
            start = _skip_space(text, position + len(_TOOL_CALL))
            block = _read_block(text, start)
            position = _skip_end_mark(text, block.end, _END_OF_TOOL_CALL)
        else:
            block = _read_functions_at(text, position)
            position = block.end
        yield from block.calls


def _read_block(text: str, position: int) -> CallsAt:
    """Return the calls in `<tool_call>`: in tags, or as JSON."""
    if _FUNCTION.match(text, position):
        return _read_functions_at(text, position)
    return _read_json_calls_at(text, position)


def _skip_space(text: str, position: int) -> int:
    while position < len(text) and text[position].isspace():
        position += 1
    return position


def _skip_end_mark(text: str, position: int, end_mark: str) -> int:
    """Return the position behind the mark that ends a call, which only the last may lack.
    Raises _NotACall if anything else stands there.
    """
    position = _skip_space(text, position)
    if position == len(text):
        return position
    if not text.startswith(end_mark, position):
        raise _NotACall
    return _skip_space(text, position + len(end_mark))


def _read_functions_at(text: str, position: int) -> CallsAt:
    """Return the calls of `<function=NAME>…`, one after another, from a position on."""
    calls: list[TextCall] = []
    while True:
        head = _FUNCTION.match(text, position)
        if head is None:
            break
        start = _skip_space(text, head.end())
        if text.startswith("{", start):  # Llama 3.1 writes JSON into the same tag.
            document = _read_json_at(text, start)
            arguments = document.value
            position = _skip_end_of_function(text, document.end)
        else:
            body = _find_function_body(text, head.end())
            arguments = _read_parameters(body)
            position = _skip_end_of_function(text, head.end() + len(body))
        calls.append(TextCall(head[1], json.dumps(arguments, ensure_ascii=False)))
    if not calls:
        raise _NotACall
    return CallsAt(tuple(calls), position)


def _skip_end_of_function(text: str, position: int) -> int:
    position = _skip_space(text, position)
    if text.startswith(_END_OF_FUNCTION, position):
        position += len(_END_OF_FUNCTION)
    return _skip_space(text, position)


def _find_function_body(text: str, start: int) -> str:
    """Return what stands before the end of a call in tags, or before the end of the text.

    An argument may have the mark of that end in itself, so the first end counts before which the
    parameters can be read, and behind which there is nothing or another call.
    """
    end = start
    for _ in range(MOST_ENDS_TRIED):
        end = text.find(_END_OF_FUNCTION, end)
        if end < 0:
            break
        if _BEHIND_FUNCTION.match(text, end + len(_END_OF_FUNCTION)):
            body = text[start:end]
            with suppress(_NotACall):
                _read_parameters(body)
                return body
        end += len(_END_OF_FUNCTION)
    return text[start:]


def _read_parameters(body: str) -> dict[str, Json]:
    """Return the arguments in `<parameter=NAME>VALUE</parameter>`, one after another."""
    arguments: dict[str, Json] = {}
    position = 0
    while body[position:].strip():
        parameter = _PARAMETER.match(body, position)
        if parameter is None:
            raise _NotACall
        name, value = parameter.groups()
        arguments[name] = value
        position = parameter.end()
    return arguments


def _read_calls_of_mistral(text: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Mistral: behind each mark JSON, or a name and its arguments.

    The calls begin at the first mark from which everything up to the end is calls.
    """
    start = -1
    for _ in range(MOST_MARKS_TRIED):
        start = text.find(_MISTRAL_MARK, start + 1)
        if start < 0:
            return
        try:
            calls = _read_mistral_calls_to_end(text, start)
        except _NotACall:
            continue
        yield TextWithCalls(text[:start].rstrip(), calls)
        return


def _read_mistral_calls_to_end(text: str, position: int) -> tuple[TextCall, ...]:
    """Return the calls from the mark at a position to the end. Raises _NotACall if anything else
    stands there.
    """
    calls: list[TextCall] = []
    while position < len(text):
        if not text.startswith(_MISTRAL_MARK, position):
            raise _NotACall
        start = position + len(_MISTRAL_MARK)
        name = _MISTRAL_NAME.match(text, start)
        if name is None:
            block = _read_json_calls_at(text, _skip_space(text, start))
            calls.extend(block.calls)
            position = block.end
            continue
        document = _read_json_at(text, _skip_space(text, name.end()))
        if not isinstance(document.value, dict):
            raise _NotACall
        arguments = json.dumps(document.value, ensure_ascii=False)
        calls.append(TextCall(name[1], arguments))
        position = _skip_space(text, document.end)
    return tuple(calls)


def _read_calls_of_llama(text: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Llama 3.2: JSON behind the first mark from which all is JSON."""
    start = -1
    for _ in range(MOST_MARKS_TRIED):
        start = text.find(_LLAMA_MARK, start + 1)
        if start < 0:
            return
        written = text[start + len(_LLAMA_MARK) :]
        try:
            calls = tuple(_read_json_calls(written.strip().removesuffix(_END_OF_LLAMA_CALL)))
        except _NotACall:
            continue
        yield TextWithCalls(text[:start].rstrip(), calls)
        return


def _read_fenced_calls(text: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Gemma and others: JSON in a block of code at the end."""
    block = _FENCED_CALL.search(text)
    if block is None:
        return
    try:
        calls = tuple(_read_json_calls(block[1]))
    except _NotACall:
        return
    yield TextWithCalls(text[: block.start()].rstrip(), calls)


def _read_bare_calls(text: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Llama 3 and Phi: the whole text is JSON."""
    if not text.lstrip().startswith(("{", "[")):
        return
    try:
        calls = tuple(_read_json_calls(text))
    except _NotACall:
        return
    yield TextWithCalls("", calls)


def _read_json_calls(text: str) -> Iterator[TextCall]:
    """Yield the calls of JSON documents that stand one after another, or in lists."""
    for document in _read_json_documents(text):
        yield from _calls_of_document(document)


def _read_json_calls_at(text: str, position: int) -> CallsAt:
    """Return the calls of JSON documents that stand one after another from a position on, up to
    the first thing that is none.
    """
    calls: list[TextCall] = []
    while text.startswith(("{", "["), position) and not text.startswith(_MISTRAL_MARK, position):
        document = _read_json_at(text, position)
        calls.extend(_calls_of_document(document.value))
        position = _skip_space(text, document.end)
    if not calls:
        raise _NotACall
    return CallsAt(tuple(calls), position)


def _calls_of_document(document: Json) -> list[TextCall]:
    """Return the call that a JSON document describes, or the calls of its list."""
    if isinstance(document, list):
        return [_call_of_object(item) for item in document]
    return [_call_of_object(document)]


def _read_json_at(text: str, position: int) -> JsonAt:
    try:
        value, end = json.JSONDecoder().raw_decode(text, position)
    except (ValueError, RecursionError):
        raise _NotACall from None
    return JsonAt(value, end)


def _read_json_document(text: str) -> Json:
    documents = _read_json_documents(text)
    if len(documents) != 1:
        raise _NotACall
    return documents[0]


def _read_json_documents(text: str) -> list[Json]:
    """Return the JSON documents of a text, which stand one after another. Raises _NotACall if
    there is anything else.
    """
    documents: list[Json] = []
    position = _skip_space(text, 0)
    while position < len(text):
        document = _read_json_at(text, position)
        documents.append(document.value)
        position = _skip_space(text, document.end)
    return documents


def _call_of_object(value: Json) -> TextCall:
    """Return the call that a JSON object describes. Raises _NotACall if it describes none."""
    if not isinstance(value, dict):
        raise _NotACall
    call = value
    function = value.get("function")
    if isinstance(function, dict):  # OpenAI's form.
        call = function
    name = call.get("name")
    arguments = call.get("arguments", call.get("parameters", {}))
    if arguments is None:  # Some models write null where there are no arguments.
        arguments = {}
    if isinstance(arguments, str):  # JSON within JSON; empty if there are no arguments.
        arguments = _read_json_document(arguments.strip() or "{}")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise _NotACall
    return TextCall(name, json.dumps(arguments, ensure_ascii=False))
