"""What the four providers refuse, as far as their documentation says it: read off the
body of a request.

A request that breaks a rule is answered with 400, as they do.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.peers.peer import Answer, Scripted, Seen, json_answer

Body = Mapping[str, Any]
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def strictly(kind: str, answer: Callable[[Seen], Answer]) -> Scripted:
    """Answers what is legal, and refuses the rest."""

    def checked(seen: Seen) -> Answer:
        wrong = list(RULES[kind](seen.body))
        return (
            json_answer(
                {"error": {"message": "; ".join(wrong), "type": "invalid_request_error"}}, 400
            )
            if wrong
            else answer(seen)
        )

    return checked


def anthropic(body: Body) -> Iterator[str]:
    messages = body["messages"]
    yield from _alternate([message["role"] for message in messages], "user")
    for message, after in itertools.zip_longest(messages, messages[1:]):
        blocks = _blocks(message)
        if not blocks:
            yield "a message is empty"
        for block in blocks:
            yield from _block(block)
        calls = {block["id"] for block in blocks if block["type"] == "tool_use"}
        next_blocks = _blocks(after) if after else []
        answered = [block["tool_use_id"] for block in next_blocks if block["type"] == "tool_result"]
        if sorted(answered) != sorted(calls):
            yield f"the calls {sorted(calls)} are answered by {answered}"
        are_results = [block["type"] == "tool_result" for block in blocks]
        if are_results != sorted(are_results, reverse=True):
            yield "results stand behind text"


def _blocks(message: Body) -> list[Body]:
    """Content that is a string is one block of text."""
    content = message["content"]
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}]


def _block(block: Body) -> Iterator[str]:
    if block["type"] == "text" and not block["text"].strip():
        yield "a text is empty"
    if block["type"] == "tool_use" and (
        not _NAME.fullmatch(block["name"]) or not isinstance(block["input"], dict)
    ):
        yield f"the call of {block['name']} is none"
    if block["type"] == "tool_use" and not _NAME.fullmatch(block["id"]):
        yield f"the id {block['id']} is none"
    if block["type"] == "thinking" and not block.get("signature"):
        yield "thinking is not signed"


def _alternate(roles: list[str], first: str) -> Iterator[str]:
    if not roles or roles[0] != first or roles[-1] != first:
        yield "the user is not first and last"
    if any(one == other for one, other in itertools.pairwise(roles)):
        yield "a role speaks twice in a row"


def chat(body: Body) -> Iterator[str]:
    waiting: set[str] = set()
    for message in body["messages"]:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in waiting:
                yield f"{message['tool_call_id']} was not called"
            waiting.discard(message["tool_call_id"])
            continue
        if waiting:
            yield f"{sorted(waiting)} are not answered"
        waiting = set()
        calls = message.get("tool_calls") or []
        for call in calls:
            waiting.add(call["id"])
            yield from _function(call["function"])
        is_empty = not message.get("content") and not calls
        if is_empty and role in ("user", "assistant"):
            yield f"a message of the {role} is empty"
    if waiting:
        yield f"{sorted(waiting)} are not answered"


def _function(function: Body) -> Iterator[str]:
    if not _NAME.fullmatch(function["name"]):
        yield f"{function['name']} is no name"
    if not isinstance(json.loads(function["arguments"]), dict):
        yield "the arguments are no object"


def responses(body: Body) -> Iterator[str]:
    waiting: set[str] = set()
    for item in body["input"]:
        if item["type"] == "function_call":
            waiting.add(item["call_id"])
            yield from _function(item)
        elif item["type"] == "function_call_output":
            if item["call_id"] not in waiting:
                yield f"{item['call_id']} was not called"
            waiting.discard(item["call_id"])
        elif item["type"] == "reasoning" and not item.get("encrypted_content"):
            yield "reasoning cannot be read"
    if waiting:
        yield f"{sorted(waiting)} are not answered"


def gemini(body: Body) -> Iterator[str]:
    contents = body["contents"]
    yield from _alternate(
        ["user" if one["role"] == "user" else "model" for one in contents], "user"
    )
    for one, after in itertools.zip_longest(contents, contents[1:]):
        calls = [part["functionCall"]["name"] for part in one["parts"] if "functionCall" in part]
        answers = [
            part["functionResponse"]["name"]
            for part in (after or {}).get("parts", [])
            if "functionResponse" in part
        ]
        if sorted(calls) != sorted(answers):
            yield f"the calls {calls} are answered by {answers}"
        if not one["parts"]:
            yield "a content is empty"


RULES: Mapping[str, Callable[[Body], Iterator[str]]] = {
    "anthropic": anthropic,
    "openai-chat": chat,
    "openai-responses": responses,
    "gemini": gemini,
}
