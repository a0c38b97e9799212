"""Judges whether a provider would accept a request: a second opinion on the engine's
rules, which are not used here.

The request is flattened to OpenAI's list of messages and read as a provider reads it.
Anthropic also demands that roles alternate and that the user is first and last.
"""

import itertools
from collections.abc import Iterator

from helix_desktop.engine.facts import Reasoning, ToolCall
from helix_desktop.engine.messages import Image, Request, Role, ToolResult
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.json_values import parse_json_or_none
from tests.texts_and_calls import calls_in, texts_in


@dataclass(frozen=True, slots=True)
class FlatMessage:
    role: str
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str = ""
    pictures: int = 0


def find_complaints(request: Request) -> list[str]:
    """Return why a provider would refuse the request, or nothing if it is legal."""
    flat = list(flatten_request(request))
    return [
        *_complaints_about_roles(request),
        *_complaints_about_contents(flat),
        *_complaints_about_results(flat),
    ]


def flatten_request(request: Request) -> Iterator[FlatMessage]:
    """Yield results before the user's words, and an assistant's text with its calls."""
    for message in request.messages:
        texts = "".join(texts_in(message.parts))
        if message.role is Role.ASSISTANT:
            yield FlatMessage("assistant", texts, tuple(calls_in(message.parts)))
            continue
        results = [part for part in message.parts if isinstance(part, ToolResult)]
        for result in results:
            yield FlatMessage("tool", result.text, answers=result.call)
        pictures = sum(isinstance(part, Image) for part in message.parts)
        if texts or pictures or not results:
            yield FlatMessage("user", texts, pictures=pictures)


def _complaints_about_roles(request: Request) -> Iterator[str]:
    roles = [message.role for message in request.messages]
    if not roles or roles[0] is not Role.USER or roles[-1] is not Role.USER:
        yield "the user is not first and last"
    if any(one is other for one, other in itertools.pairwise(roles)):
        yield "a role speaks twice in a row"
    for message in request.messages:
        alone = [part for part in message.parts if not isinstance(part, Reasoning)]
        if not alone:
            yield "a message says nothing but reasoning"


def _complaints_about_contents(flat: list[FlatMessage]) -> Iterator[str]:
    for number, message in enumerate(flat):
        if not message.text.strip() and not message.calls and not message.pictures:
            yield f"message {number} of the {message.role} is empty"
        for call in message.calls:
            if (
                not call.id
                or not call.name
                or not isinstance(parse_json_or_none(call.arguments), dict)
            ):
                yield f"message {number} has a call that is not well formed"


def _complaints_about_results(flat: list[FlatMessage]) -> Iterator[str]:
    open_calls: set[str] = set()
    known: set[str] = set()
    for number, message in enumerate(flat):
        if message.role == "tool":
            if message.answers not in open_calls:
                yield f"message {number} answers a call that is not open"
            open_calls.discard(message.answers)
            continue
        if open_calls:
            yield f"message {number} comes before {len(open_calls)} results"
        open_calls = {call.id for call in message.calls}
        if len(open_calls) < len(message.calls) or open_calls & known:
            yield f"message {number} uses the id of another call"
        known |= open_calls
    if open_calls:
        yield "the last calls are not answered"
