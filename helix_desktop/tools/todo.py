"""The tool set_todo: the plan the user sees beside the conversation, and that no summary may lose."""

from __future__ import annotations

from collections.abc import Mapping

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import WrongUse
from helix_desktop.tools.tool import Arguments, Result, Tool, Use, fields

STATES = ("open", "doing", "done")
MOST_ITEMS = 100
_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


async def set_todo(args: Arguments, use: Use) -> Result:  # noqa: ARG001 -- the shape of every tool
    items = tuple(_item(item) for item in args.items("items"))
    if len(items) > MOST_ITEMS:
        raise WrongUse(f"A list of {len(items)} items is too long. The limit is {MOST_ITEMS}.")
    lines = [f"{_MARKS[state]} {words}" for words, state in items]
    return Result("\n".join(lines) or "[the list is empty]", source="todo", todo=items)


def _item(item: object) -> tuple[str, str]:
    if not isinstance(item, Mapping):
        raise WrongUse("Every item in the list needs a `text` and a `state`.")
    words = " ".join(str(item["text"]).split())[:500]
    if not words:
        raise WrongUse("An item in the list has no text.")
    return words, str(item.get("state", "open"))


TOOLS = (
    Tool(
        ToolName.SET_TODO,
        "Write the plan of a longer task: the whole list, each time it changes.",
        fields(
            "items",
            items={
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string"},
                        "state": {"type": "string", "enum": list(STATES)},
                    },
                    "required": ["text"],
                },
            },
        ),
        set_todo,
    ),
)
