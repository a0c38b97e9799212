"""The tools that builtin_context_cache offers over MCP: names, descriptions, schemas, annotations."""

from collections.abc import Awaitable, Callable
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_server import cache_operations

NAME = "builtin_context_cache"
INSTRUCTIONS = (
    "This server offers the context cache of a Helix Desktop workspace: everything that the workspace's agents have "
    "seen. Each entry has its SHA-256 hash as its name. You can search the cache, recall entries by hash (in pages, by "
    "lines or by a pattern), and store text that you want to find again. You can also give tasks to other agents."
)
RunTool = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool. `changes_workspace` and `asks_model` say what a call of it may do."""

    name: str
    title: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any]
    run: RunTool  # Called with the workspace and the arguments.
    changes_workspace: bool = False
    asks_model: bool = False


def _strict_object_schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _text_schema(description: str, most_characters: int = 10_000) -> dict[str, Any]:
    return {"type": "string", "description": description, "maxLength": most_characters}


def _whole_number_schema(description: str, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": 0, "maximum": most}


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_HASH = _text_schema("The entry's SHA-256 hash in hexadecimal, or its first 4 or more digits if they are unique", 100)
_PAGE = _strict_object_schema(("sha256", "text"), sha256=_STRING, text=_STRING)
_ENTRY = _strict_object_schema(
    ("sha256", "size"),
    **dict.fromkeys(("sha256", "media_type", "tool", "source"), _STRING),
    **dict.fromkeys(("size", "lines", "tokens", "uses"), _INTEGER),
    time={"type": "number"},
    pinned={"type": "boolean"},
)
_NAMES = {"type": "array", "description": "The IDs of the tasks, or the beginnings of the IDs", "items": _STRING}
_TASK_FIELDS = ("id", "state", "why", "answer", "text")
_TASK = _strict_object_schema(_TASK_FIELDS, **dict.fromkeys(_TASK_FIELDS, _STRING))
_PLACE = _strict_object_schema(
    ("sha256", "line"), sha256=_STRING, line=_INTEGER, snippet=_STRING, tool=_STRING, source=_STRING
)


OFFERS = (
    OfferedTool(
        ToolName.RECALL,
        "Recall cached content",
        "Return an entry of the cache. With find, return only the passages that contain certain words; with lines, only certain lines; with grep, only the lines that match a pattern. Without these, return the whole entry if it is short, or its beginning and an outline with line numbers.",
        _strict_object_schema(
            ("sha256",),
            sha256=_HASH,
            find=_text_schema("Words that the passages you need contain"),
            lines=_text_schema("Return only these lines, for example 10-40", 40),
            grep=_text_schema("Return only the lines that match this regular expression"),
            context=_whole_number_schema("With grep: how many lines to show before and after each match", 50),
        ),
        _PAGE,
        cache_operations.recall_content,
    ),
    OfferedTool(
        ToolName.SEARCH_CACHE,
        "Search the cache",
        "Search all content in the cache for words. For each match, this returns the entry's hash, the line number and a snippet.",
        _strict_object_schema(
            ("query",),
            query=_text_schema("The words to search for"),
            tool=_text_schema("Search only the outputs of this tool", 200),
            limit=_whole_number_schema("The maximum number of matches to return", 50),
        ),
        _strict_object_schema(("hits",), hits={"type": "array", "items": _PLACE}),
        cache_operations.search_content,
    ),
    OfferedTool(
        ToolName.COMPACT_CACHE,
        "Compact cached content",
        "Let the workspace's fast model read an entry of any length and return only the information that you ask for.",
        _strict_object_schema(("sha256", "keep"), sha256=_HASH, keep=_text_schema("What you need to know")),
        _PAGE,
        cache_operations.compact_content,
        asks_model=True,
    ),
    OfferedTool(
        ToolName.RECALL_HISTORY,
        "Recall folded messages",
        "Return, word for word, the original messages that a handover document or another fold has replaced.",
        _strict_object_schema(
            ("fold",),
            fold=_text_schema("The fold's ID", 200),
            find=_text_schema("Return only passages of messages and tool outputs with these words"),
            conversation=_text_schema("The conversation's ID. If omitted, the newest ones are searched", 200),
        ),
        _strict_object_schema(("fold", "text"), fold=_STRING, text=_STRING),
        cache_operations.recall_fold_messages,
    ),
    OfferedTool(
        "list_cached_content",
        "List cached content",
        "List the newest entries of the cache, each with its hash, size, tool and source.",
        _strict_object_schema(
            (),
            tool=_text_schema("List only the outputs of this tool", 200),
            limit=_whole_number_schema("The maximum number of entries to list", cache_operations.MOST_LISTED),
        ),
        _strict_object_schema(("total", "entries"), total=_INTEGER, entries={"type": "array", "items": _ENTRY}),
        cache_operations.list_content,
    ),
    OfferedTool(
        "put_cached_content",
        "Put content into the cache",
        "Store text in the cache. This returns the text's hash. You can recall and search the text later, here or in Helix Desktop.",
        _strict_object_schema(
            ("content",),
            content=_text_schema("The text to store", cache_operations.MOST_PUT),
            source=_text_schema("Where the text comes from, for example a path, a command or an address", 1000),
            tool=_text_schema("The name of the tool that made the text", 200),
        ),
        _strict_object_schema(("sha256", "size", "lines"), sha256=_STRING, size=_INTEGER, lines=_INTEGER),
        cache_operations.put_content,
        changes_workspace=True,
    ),
    OfferedTool(
        "add_task",
        "Give a task to a worker",
        "Give a task to the workers of this workspace. A worker runs each task once, in a conversation of its own. This returns the task's ID at once; show_tasks returns the answer. If your client supports MCP tasks, it gets the answer from the MCP task instead.",
        _strict_object_schema(
            ("text",),
            text=_text_schema("What the worker should do", 100_000),
            agent=_text_schema("The name of the workspace's agent that should do the task", 200),
            key=_text_schema("Tasks with the same key are added only once", 1_000),
            after={**_NAMES, "description": "The IDs or keys of tasks that must be done before this task starts"},
        ),
        _strict_object_schema(("task",), task=_STRING),
        cache_operations.add_task,
        changes_workspace=True,
        asks_model=True,
    ),
    OfferedTool(
        "show_tasks",
        "Show tasks",
        "Return the state and the answer of tasks. With wait_seconds, wait first until the tasks have ended. Without IDs, return the newest tasks.",
        _strict_object_schema((), tasks=_NAMES, wait_seconds=_whole_number_schema("The longest time to wait", 3_600)),
        _strict_object_schema(("tasks",), tasks={"type": "array", "items": _TASK}),
        cache_operations.show_tasks,
    ),
    OfferedTool(
        "cache_stats",
        "Cache figures",
        "Return how many entries, bytes and tokens the workspace's cache holds.",
        _strict_object_schema(()),
        {
            "type": "object",
            "properties": {"workspace": _STRING},
            "required": ["workspace"],
            "additionalProperties": _INTEGER,
        },
        cache_operations.cache_figures_as_json,
    ),
)
