"""The tools that builtin_context_cache offers over MCP. `resources/mcp_tools.json`
describes them and their arguments.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.mcp_server import cache_operations
from helix_desktop.resources import read_json_resource

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


_OPERATIONS: dict[str, RunTool] = {
    ToolName.RECALL: cache_operations.recall_content,
    ToolName.SEARCH_CACHE: cache_operations.search_content,
    ToolName.COMPACT_CACHE: cache_operations.compact_content,
    ToolName.RECALL_HISTORY: cache_operations.recall_fold_messages,
    "list_cached_content": cache_operations.list_content,
    "put_cached_content": cache_operations.put_content,
    "add_task": cache_operations.add_task,
    "show_tasks": cache_operations.show_tasks,
    "cache_stats": cache_operations.cache_figures_as_json,
}


def _read_offers() -> Iterator[OfferedTool]:
    for name, fields in read_json_resource("mcp_tools.json").items():
        yield OfferedTool(name, run=_OPERATIONS[name], **fields)


OFFERS = tuple(_read_offers())
