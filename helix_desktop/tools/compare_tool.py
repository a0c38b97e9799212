"""The tool compare_versions: what differs between two texts, each a file or a stored entry.

A command can compare files, but not what is only in the cache: a file as it was read earlier, the
output of an earlier test run, the original of an attachment.
"""

import asyncio
import re

from helix_desktop.engine.changes.diff_hunks import is_binary
from helix_desktop.engine.changes.git_patch import format_unified_diff
from helix_desktop.engine.content_recall import find_entry
from helix_desktop.errors import InvalidInput
from helix_desktop.tools import workspace_roots
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
    ToolResources,
)
from helix_desktop.tools.file_text import decode_file_text

NAME = "compare_versions"
LARGEST_VERSION = 4 << 20  # In bytes.
_HASH = re.compile(r"[0-9a-f]{8,64}")


async def compare_versions(args: ToolArguments, resources: ToolResources) -> ToolOutput:
    """The tool: show what changed from the first text to the second, as a unified difference."""
    before_name = args.text_argument("before").strip()
    after_name = args.text_argument("after").strip()
    before = await _read_version(before_name, resources)
    after = await _read_version(after_name, resources)
    source = f"{before_name} and {after_name}"
    difference = await asyncio.to_thread(format_unified_diff, before, after, source)
    return ToolOutput(difference or "They are equal.", source=source)


async def _read_version(path_or_hash: str, resources: ToolResources) -> str:
    if _HASH.fullmatch(path_or_hash):
        content = await _read_entry(path_or_hash, resources)
    else:
        content = await _read_file(path_or_hash, resources)
    if is_binary(content):
        raise InvalidInput(f"{path_or_hash} is no text, so it cannot be compared line by line.")
    return decode_file_text(content)


async def _read_entry(hash_prefix: str, resources: ToolResources) -> bytes:
    entry = await find_entry(resources.cache, hash_prefix)
    if entry.stored.size > LARGEST_VERSION:
        raise InvalidInput(
            f"{hash_prefix} has {entry.stored.size:,} bytes, and at most {LARGEST_VERSION:,} are compared."
        )
    return await resources.cache.read_content(entry.stored.digest)


async def _read_file(path_text: str, resources: ToolResources) -> bytes:
    """Read a file of the workspace, after asking for permission to read it."""
    root_path = await resources.permit_reading(path_text, NAME, "Read {}")
    return await asyncio.to_thread(
        workspace_roots.read_whole_file, resources.roots, root_path, LARGEST_VERSION
    )


COMPARE_VERSIONS = ToolDeclaration(
    NAME,
    "Show what differs between two texts, such as a file now and a stored earlier version or output.",
    {
        "type": "object",
        "properties": {
            "before": {"type": "string", "description": "A path, or the hash of a stored entry"},
            "after": {"type": "string", "description": "A path, or the hash of a stored entry"},
        },
        "required": ["before", "after"],
    },
    is_rare=True,
)
TOOLS = (BuiltInTool(COMPARE_VERSIONS, compare_versions),)
