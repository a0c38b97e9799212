"""Writes down which fields the providers' own libraries publish for what a request may hold.

    pip install anthropic openai google-genai      (into an environment of their own)
    python -P tests/protocols/read_published_fields.py > tests/protocols/published_fields.json

The tests read the table alone, so that they need neither network nor these libraries.
"""

# mypy: ignore-errors
# The libraries are not installed where the program is.

import json
import sys
import typing
from collections.abc import Iterator
from importlib import metadata


def members_of_union(kind: typing.Any) -> Iterator[type]:
    for member in typing.get_args(kind):
        if typing.get_origin(member) is typing.Union:
            yield from members_of_union(member)
        elif isinstance(member, type):
            yield member


def literals_of(kind: typing.Any) -> Iterator[str]:
    for value in typing.get_args(kind):
        if isinstance(value, str):
            yield value
        else:
            yield from literals_of(value)


def fields_by_type(union: typing.Any) -> dict[str, list[str]]:
    """The fields of each block, by its `type`. Where it has none, by its class."""
    table: dict[str, list[str]] = {}
    for member in members_of_union(union):
        hints = typing.get_type_hints(member)
        if hasattr(member, "model_fields"):
            continue  # What a reply has: it is sent back in the form of a request.
        names = [name for name in literals_of(hints.get("type")) if name]
        for name in names or [member.__name__]:
            table[name] = sorted(set(hints) | set(table.get(name, ())))
    return dict(sorted(table.items()))


def camel_case(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def main() -> None:
    from anthropic.types.beta.beta_content_block_param import BetaContentBlockParam
    from anthropic.types.beta.beta_tool_result_block_param import Content
    from google.genai import types as gemini
    from openai.types.chat import ChatCompletionContentPartParam, ChatCompletionMessageParam
    from openai.types.responses.response_input_content_param import ResponseInputContentParam
    from openai.types.responses.response_input_item_param import ResponseInputItemParam

    chat_roles: dict[str, list[str]] = {}
    for member in members_of_union(ChatCompletionMessageParam):
        hints = typing.get_type_hints(member)
        chat_roles[typing.get_args(hints["role"])[0]] = sorted(hints)
    parts: dict[str, list[str]] = {}
    for name, field in gemini.Part.model_fields.items():
        kinds = [
            kind for kind in typing.get_args(field.annotation) if hasattr(kind, "model_fields")
        ]
        if kinds:
            parts[camel_case(name)] = sorted(map(camel_case, kinds[0].model_fields))
    tables = {
        "versions": {
            name: metadata.version(name) for name in ("anthropic", "openai", "google-genai")
        },
        "anthropic": fields_by_type(BetaContentBlockParam),
        "anthropic results": fields_by_type(Content),
        "openai-responses": fields_by_type(ResponseInputItemParam),
        "openai-responses parts": fields_by_type(ResponseInputContentParam),
        "openai-chat": dict(sorted(chat_roles.items())),
        "openai-chat parts": fields_by_type(ChatCompletionContentPartParam),
        "gemini": dict(sorted(parts.items())),
    }
    json.dump(tables, sys.stdout, indent=1)
    sys.stdout.write("\n")


if __name__ == "__main__":
    main()
