"""A scripted server that speaks OpenAI's Responses."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from typing import Any

from tests.peers.chat_server import ChatServer
from tests.peers.peer import Answer, sse

USAGE = {
    "input_tokens": 100,
    "input_tokens_details": {"cached_tokens": 60},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 5},
}

_numbers = itertools.count(1)


def _pieces(text: str, size: int = 7) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def _message(index: int, text: str) -> list[dict[str, Any]]:
    item = {"type": "message", "id": f"msg_{index}", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": text, "annotations": []}
    return [
        {
            "type": "response.output_item.added",
            "output_index": index,
            "item": {**item, "content": []},
        },
        *(
            {"type": "response.output_text.delta", "output_index": index, "delta": piece}
            for piece in _pieces(text)
        ),
        {"type": "response.output_text.done", "output_index": index, "text": text},
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "content": [part]},
        },
    ]


def _reasoning(index: int, summary: str, encrypted: str) -> list[dict[str, Any]]:
    item = {"type": "reasoning", "id": f"rs_{index}", "summary": []}
    done = {
        **item,
        "summary": [{"type": "summary_text", "text": summary}],
        "encrypted_content": encrypted,
    }
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        {
            "type": "response.reasoning_summary_part.added",
            "output_index": index,
            "summary_index": 0,
        },
        *(
            {
                "type": "response.reasoning_summary_text.delta",
                "output_index": index,
                "summary_index": 0,
                "delta": piece,
            }
            for piece in _pieces(summary)
        ),
        {"type": "response.output_item.done", "output_index": index, "item": done},
    ]


def _call(index: int, name: str, arguments: Any) -> list[dict[str, Any]]:
    written = arguments if isinstance(arguments, str) else json.dumps(arguments)
    number = next(_numbers)
    item = {
        "type": "function_call",
        "id": f"fc_{number}",
        "call_id": f"call_{number:08d}",
        "name": name,
        "arguments": "",
    }
    return [
        {"type": "response.output_item.added", "output_index": index, "item": item},
        *(
            {
                "type": "response.function_call_arguments.delta",
                "output_index": index,
                "delta": piece,
            }
            for piece in _pieces(written)
        ),
        {
            "type": "response.function_call_arguments.done",
            "output_index": index,
            "arguments": written,
        },
        {
            "type": "response.output_item.done",
            "output_index": index,
            "item": {**item, "arguments": written},
        },
    ]


def events(
    text: str = "",
    *,
    reasoning: str = "",
    encrypted: str = "sealed",
    calls: Sequence[tuple[str, Any]] = (),
    incomplete: str = "",
) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"id": "resp_1", "status": "in_progress"}}
    ]
    index = itertools.count()
    if reasoning:
        made += _reasoning(next(index), reasoning, encrypted)
    if text:
        made += _message(next(index), text)
    for name, arguments in calls:
        made += _call(next(index), name, arguments)
    response: dict[str, Any] = {
        "id": "resp_1",
        "object": "response",
        "status": "completed",
        "model": "scripted",
        "usage": USAGE,
    }
    kind = "response.completed"
    if incomplete:
        response |= {"status": "incomplete", "incomplete_details": {"reason": incomplete}}
        kind = "response.incomplete"
    return [*made, {"type": kind, "response": response}]


def reply(text: str = "", **more: Any) -> Answer:
    return streamed(events(text, **more))


def streamed(made: Sequence[dict[str, Any]]) -> Answer:
    numbered = [{**one, "sequence_number": at} for at, one in enumerate(made)]
    return Answer(pieces=sse(*numbered, names=[one["type"] for one in numbered]))


class ResponsesServer(ChatServer):
    """Lists models as the chat server does."""
