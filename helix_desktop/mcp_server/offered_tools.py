"""The tools of builtin_context_cache for MCP: names, sentences, schemas, annotations."""

from collections.abc import Awaitable, Callable
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_server import cache_operations

NAME = "builtin_context_cache"
INSTRUCTIONS = (
    "The context cache of a Helix Desktop workspace: everything its agents have seen, addressed by SHA-256. "
    "Search it, recall entries by hash (in pages, by lines or by pattern), and put in what you want to find again."
)
Act = Callable[..., Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool. `changes`: it adds to the cache. `thinks`: it asks a model."""

    name: str
    title: str
    description: str
    takes: dict[str, Any]
    gives: dict[str, Any]
    act: Act  # Called with the workspace and the arguments.
    changes: bool = False
    thinks: bool = False


def _strict_object_schema(required: tuple[str, ...], **properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _text_schema(description: str, longest: int = 10_000) -> dict[str, Any]:
    return {"type": "string", "description": description, "maxLength": longest}


def _whole_number_schema(description: str, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": description, "minimum": 0, "maximum": most}


_STRING, _INTEGER = {"type": "string"}, {"type": "integer"}
_HASH = _text_schema("SHA-256 of the entry in hexadecimal, or its first 4 digits or more where only one begins so", 100)
_PAGE = _strict_object_schema(("sha256", "text"), sha256=_STRING, text=_STRING)
_ENTRY = _strict_object_schema(
    ("sha256", "size"),
    **dict.fromkeys(("sha256", "media_type", "tool", "source"), _STRING),
    **dict.fromkeys(("size", "lines", "tokens", "uses"), _INTEGER),
    time={"type": "number"},
    pinned={"type": "boolean"},
)
_NAMES = {"type": "array", "description": "IDs of tasks, or their beginnings", "items": _STRING}
_TASK_FIELDS = ("id", "state", "why", "answer", "text")
_TASK = _strict_object_schema(_TASK_FIELDS, **dict.fromkeys(_TASK_FIELDS, _STRING))
_PLACE = _strict_object_schema(
    ("sha256", "line"), sha256=_STRING, line=_INTEGER, snippet=_STRING, tool=_STRING, source=_STRING
)


OFFERS = (
    OfferedTool(
        ToolName.RECALL,
        "Recall cached content",
        "Bring back content from the cache: the passages with some words, some of its lines, the lines that match, or all of it page by page.",
        _strict_object_schema(
            ("sha256",),
            sha256=_HASH,
            find=_text_schema("Words of what you need"),
            lines=_text_schema("Only these lines, such as 10-40", 40),
            grep=_text_schema("Only lines that match this regular expression"),
            context=_whole_number_schema("With grep: lines to show around each match", 50),
        ),
        _PAGE,
        cache_operations.recall_content,
    ),
    OfferedTool(
        ToolName.SEARCH_CACHE,
        "Search the cache",
        "Search everything in the cache for words; gives hash, line and snippet of each place.",
        _strict_object_schema(
            ("query",),
            query=_text_schema("Words to find"),
            tool=_text_schema("Only what this tool returned", 200),
            limit=_whole_number_schema("At most so many", 50),
        ),
        _strict_object_schema(("hits",), hits={"type": "array", "items": _PLACE}),
        cache_operations.search_content,
    ),
    OfferedTool(
        ToolName.COMPACT_CACHE,
        "Compact cached content",
        "Have the workspace's fast model read an entry, however long, and write down what you need of it.",
        _strict_object_schema(("sha256", "keep"), sha256=_HASH, keep=_text_schema("What you need of it")),
        _PAGE,
        cache_operations.compact_content,
        thinks=True,
    ),
    OfferedTool(
        ToolName.RECALL_HISTORY,
        "Recall folded messages",
        "Show the messages that a handover or another fold stands for, word for word.",
        _strict_object_schema(
            ("fold",),
            fold=_text_schema("The fold's name", 200),
            find=_text_schema("Only the passages with these words, of the messages and of their outputs"),
            conversation=_text_schema("Its conversation; the newest that knows the fold when left out", 200),
        ),
        _strict_object_schema(("fold", "text"), fold=_STRING, text=_STRING),
        cache_operations.recall_fold_messages,
    ),
    OfferedTool(
        "list_cached_content",
        "List cached content",
        "List the newest entries of the cache.",
        _strict_object_schema(
            (),
            tool=_text_schema("Only what this tool returned", 200),
            limit=_whole_number_schema("At most so many", cache_operations.MOST_LISTED),
        ),
        _strict_object_schema(("total", "entries"), total=_INTEGER, entries={"type": "array", "items": _ENTRY}),
        cache_operations.list_content,
    ),
    OfferedTool(
        "put_cached_content",
        "Put content into the cache",
        "Store text and get its hash, to recall or search it later, here or in Helix Desktop.",
        _strict_object_schema(
            ("content",),
            content=_text_schema("The text", cache_operations.MOST_PUT),
            source=_text_schema("Where it comes from: a path, a command, an address", 1000),
            tool=_text_schema("What made it", 200),
        ),
        _strict_object_schema(("sha256", "size", "lines"), sha256=_STRING, size=_INTEGER, lines=_INTEGER),
        cache_operations.put_content,
        changes=True,
    ),
    OfferedTool(
        "add_task",
        "Give a task to a worker",
        "Give a task to the workers of this workspace. Each task is run once, in its own conversation. Returns its ID at once, or the answer later where MCP tasks are known.",
        _strict_object_schema(
            ("text",),
            text=_text_schema("What to do", 100_000),
            agent=_text_schema("The workspace's agent that does it", 200),
            key=_text_schema("A task with the same key is added once", 1_000),
            after={**_NAMES, "description": "IDs or keys of tasks that must be done before"},
        ),
        _strict_object_schema(("task",), task=_STRING),
        cache_operations.add_task,
        changes=True,
        thinks=True,
    ),
    OfferedTool(
        "show_tasks",
        "Show tasks",
        "Show the state and the answer of tasks, by their IDs, and wait until they have ended; without IDs, the newest.",
        _strict_object_schema((), tasks=_NAMES, wait_seconds=_whole_number_schema("Wait so long at most", 3_600)),
        _strict_object_schema(("tasks",), tasks={"type": "array", "items": _TASK}),
        cache_operations.show_tasks,
    ),
    OfferedTool(
        "cache_stats",
        "Cache figures",
        "How much the workspace's cache holds.",
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
