"""The names of the program's own tools: what a model calls, and what code asks for when
a certain tool matters.
"""

from enum import StrEnum


class ToolName(StrEnum):
    READ_FILE = "read_file"
    READ_DOCUMENT = "read_document"
    WRITE_FILE = "write_file"
    EDIT_FILE = "edit_file"
    LIST_FILES = "list_files"
    GLOB_FILES = "glob_files"
    SEARCH_FILES = "search_files"
    RUN_COMMAND = "run_command"
    LIST_COMMANDS = "list_commands"
    READ_COMMAND_OUTPUT = "read_command_output"
    STOP_COMMAND = "stop_command"
    FETCH_URL = "fetch_url"
    SET_TODO = "set_todo"
    DELEGATE = "delegate"
    RECALL = "recall_cached_content"
    SEARCH_CACHE = "search_cached_content"
    COMPACT_CACHE = "compact_cached_content"
    RECALL_HISTORY = "recall_history"


RECALLS = frozenset(
    {ToolName.RECALL, ToolName.SEARCH_CACHE, ToolName.COMPACT_CACHE, ToolName.RECALL_HISTORY}
)
ALLOWED_GROUPS = (
    "edits",
    "commands",
    "all",
    "hidden",
    "held",
    "outside_sandbox",
    "opened",
    "runs_later",
)
EDITS = frozenset({ToolName.WRITE_FILE, ToolName.EDIT_FILE})
