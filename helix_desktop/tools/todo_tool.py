"""The tool set_todo: the plan that users see beside the conversation. No summary may lose it."""

from collections.abc import Mapping

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.errors import InvalidInput
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)

MOST_ITEMS = 100
STATE_MARKS = {"open": "[ ]", "doing": "[>]", "done": "[x]"}


async def set_todo(args: ToolArguments, use: ToolResources) -> ToolOutput:  # noqa: ARG001 -- the shape of every tool
    items = tuple(_parse_todo_item(item) for item in args.list_argument("items"))
    if len(items) > MOST_ITEMS:
        raise InvalidInput(f"A list of {len(items)} items is too long. The limit is {MOST_ITEMS}.")
    lines = [f"{STATE_MARKS[state]} {words}" for words, state in items]
    return ToolOutput("\n".join(lines) or "[the list is empty]", source="todo", todo=items)


def _parse_todo_item(item: object) -> tuple[str, str]:
    if not isinstance(item, Mapping):
        raise InvalidInput("Every item in the list needs a `text` and a `state`.")
    words = " ".join(str(item["text"]).split())[:500]
    if not words:
        raise InvalidInput("An item in the list has no text.")
    return words, str(item.get("state", "open"))


SET_TODO = ToolDeclaration(
    ToolName.SET_TODO,
    "Write the plan of a longer task: the whole list, each time it changes.",
    {
        "type": "object",
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "text": {"type": "string"},
                        "state": {"type": "string", "enum": list(STATE_MARKS)},
                    },
                    "required": ["text"],
                },
            }
        },
        "required": ["items"],
    },
    is_brief=True,
)
TOOLS = (BuiltInTool(SET_TODO, set_todo),)
