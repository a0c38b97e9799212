"""Reads what a small model wrote as text because its server did not read it: tool calls, and
the marks of its chat template.

Each family of models was taught another form of a call. A form counts only at the end of a reply
and only with the name of a tool that was offered, so that an example in an explanation is not run.
If one of several calls is broken, none is made: what the model meant is not known then.
"""

import json
import re
from collections.abc import Collection, Iterator

from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import Json

LONGEST_READ = 60_000  # A longer text is no call: small models do not write as much at once.
MOST_MARKS_TRIED = 200  # A model that loops writes the mark of a call thousands of times.

_TOOL_CALL = "<tool_call>"
_END_OF_TOOL_CALL = "</tool_call>"
_END_OF_FUNCTION = "</function>"
_MISTRAL_MARK = "[TOOL_CALLS]"
_LLAMA_MARK = "<|python_tag|>"
_END_OF_LLAMA_CALL = "<|eom_id|>"
_FUNCTION = re.compile(r"<function=([\w.-]+)>")
_BEGINNING_OF_TAGGED_CALL = re.compile(r"<tool_call>|<function=[\w.-]+>")
_MARK_OF_CALL = re.compile(r"<tool_call>|<function=[\w.-]+>|\[TOOL_CALLS\]|<\|python_tag\|>")
_PARAMETER = re.compile(r"\s*<parameter=([\w.-]+)>\n?(.*?)\n?</parameter>\s*", re.DOTALL)
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
    yield from _read_calls_behind_mark(text, _MISTRAL_MARK, end="")
    yield from _read_calls_behind_mark(text, _LLAMA_MARK, end=_END_OF_LLAMA_CALL)
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
            start = position + len(_TOOL_CALL)
            content, position = _cut_until(text, start, _END_OF_TOOL_CALL)
            if _FUNCTION.match(content.lstrip()):
                yield from _read_function_tags(content.strip())
            else:
                yield from _read_json_calls(content)
        elif _FUNCTION.match(text, position):
            content, position = _cut_until(text, position, _END_OF_FUNCTION)
            yield from _read_function_tags(content)
        else:
            raise _NotACall
        while position < len(text) and text[position].isspace():
            position += 1


def _cut_until(text: str, start: int, end_mark: str) -> tuple[str, int]:
    """Return what stands before the next end mark, or before the end of the text, and the
    position behind it.
    """
    end = text.find(end_mark, start)
    if end < 0:
        return text[start:], len(text)
    return text[start:end], end + len(end_mark)


def _read_function_tags(text: str) -> Iterator[TextCall]:
    """Yield the calls of `<function=NAME>…`, one after another."""
    rest = text
    while rest:
        head = _FUNCTION.match(rest)
        if head is None:
            raise _NotACall
        behind_head = rest[head.end() :]
        body, _, behind_call = behind_head.partition(_END_OF_FUNCTION)
        rest = behind_call.strip()
        arguments: Json
        if body.lstrip().startswith("{"):  # Llama 3.1 writes JSON into the same tag.
            arguments = _read_json_document(body)
        else:
            arguments = _read_parameters(body)
        yield TextCall(head[1], json.dumps(arguments, ensure_ascii=False))


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


def _read_calls_behind_mark(text: str, mark: str, *, end: str) -> Iterator[TextWithCalls]:
    """Yield the calls of Mistral and Llama 3.2: JSON behind a mark."""
    said, found_mark, written = text.rpartition(mark)
    if not found_mark:
        return
    try:
        calls = tuple(_read_json_calls(written.strip().removesuffix(end)))
    except _NotACall:
        return
    yield TextWithCalls(said.rstrip(), calls)


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
        items = [document]
        if isinstance(document, list):
            items = document
        for item in items:
            yield _call_of_object(item)


def _read_json_document(text: str) -> Json:
    documents = _read_json_documents(text)
    if len(documents) != 1:
        raise _NotACall
    return documents[0]


def _read_json_documents(text: str) -> list[Json]:
    """Return the JSON documents of a text, which stand one after another. Raises _NotACall if
    there is anything else.
    """
    decoder = json.JSONDecoder()
    documents: list[Json] = []
    rest = text.strip()
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except (ValueError, RecursionError):
            raise _NotACall from None
        documents.append(document)
        rest = rest[end:].lstrip()
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
