"""The agent's tools for the context cache, implemented in engine/content_recall.py."""

from collections.abc import Awaitable, Callable, Sequence

from helix_desktop.engine import content_recall
from helix_desktop.engine.ports import ContentCache, SearchIndex, TokenCounter
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.fast_dataclass import dataclass
from helix_desktop.tools import built_in_tool
from helix_desktop.tools.built_in_tool import (
    BuiltInTool,
    ToolArguments,
    ToolDeclaration,
    ToolOutput,
)
from helix_desktop.tools.regex_search import grep_entry_lines

# Takes the digest and what is needed of it.
CompactForPurpose = Callable[[Digest, str], Awaitable[str]]
LINES_AROUND_MATCH = 2  # So many lines are shown before and after each match of a pattern.
ReadHistory = Callable[[str, str], Awaitable[str]]  # Takes a fold's id and words to search for.


def build_recall_tools(
    compact: CompactForPurpose | None = None, history: ReadHistory | None = None
) -> tuple[BuiltInTool, ...]:
    """Return the recall tools. A tool that nothing implements is left out."""
    recall = BuiltInTool(RECALL, recall_cached_content)
    search = BuiltInTool(SEARCH_CACHE, search_cached_content)
    tools = [recall, search]
    if compact is not None:
        tools.append(_build_compact_tool(compact))
    if history is not None:
        tools.append(_build_history_tool(history))
    return tuple(tools)


@dataclass(frozen=True, slots=True)
class RecallStores:
    """What an entry is read from."""

    cache: ContentCache
    index: SearchIndex
    tokens: TokenCounter


async def recall_asked_entry(
    args: ToolArguments, stores: RecallStores, conversation: str, whole_tokens: int
) -> str:
    """Return what a call of the recall tool asks for: entries by their hashes, whole or only
    the lines, words or matches that it names. `conversation`: the one that asks.
    """
    wanted = content_recall.WantedContent(
        pattern=args.text_argument("grep"),
        lines_around_match=LINES_AROUND_MATCH,
        lines=args.text_argument("lines"),
        words=args.text_argument("find"),
        whole_tokens=whole_tokens,
    )
    names = args.text_argument("sha256")
    content = await content_recall.recall_entries(
        stores.cache, stores.tokens, names, wanted, grep=grep_entry_lines
    )
    left = await content_recall.describe_left_entries(
        stores.index, stores.cache, names, conversation
    )
    return left + content


async def recall_cached_content(
    args: ToolArguments, resources: built_in_tool.ToolResources
) -> ToolOutput:
    """The tool that reads an entry of the cache again, such as an output that was shortened."""
    stores = RecallStores(resources.cache, resources.index, resources.tokens)
    content = await recall_asked_entry(
        args, stores, resources.context.conversation, resources.context.whole_tokens
    )
    beginning_of_hash = args.text_argument("sha256")[:16]
    asked = [beginning_of_hash]
    for name in ("lines", "find", "grep"):
        asked.append(args.text_argument(name))
    return ToolOutput(content, source=_source_of_recall(asked))


def _source_of_recall(asked: Sequence[str]) -> str:
    """Return what a row says of a recall: the arguments that the call gave."""
    given_arguments = " ".join(filter(None, asked))
    return given_arguments[:100]


async def search_cached_content(
    args: ToolArguments, resources: built_in_tool.ToolResources
) -> ToolOutput:
    """The tool that searches the cache and the conversations for words."""
    query = args.text_argument("query")
    hits = await content_recall.search_entries(
        resources.index,
        query,
        tool=args.text_argument("tool"),
        limit=args.number_argument("limit", 10),
        cache=resources.cache,
        conversation=resources.context.conversation,
    )
    return ToolOutput(hits, source=query[:100])


def _build_compact_tool(compact: CompactForPurpose) -> BuiltInTool:
    """Return the tool that lets a model shorten an entry for a purpose."""

    async def compact_cached_content(
        args: ToolArguments, resources: built_in_tool.ToolResources
    ) -> ToolOutput:
        entry = await content_recall.find_entry(resources.cache, args.text_argument("sha256"))
        digest = entry.stored.digest
        compacted = await compact(digest, args.text_argument("keep"))
        left = await content_recall.describe_left_entries(
            resources.index, resources.cache, digest.hex, resources.context.conversation
        )
        return ToolOutput(left + compacted, source=digest.short_hex)

    return BuiltInTool(COMPACT_CACHE, compact_cached_content)


def _build_history_tool(history: ReadHistory) -> BuiltInTool:
    """Return the tool that shows a model the messages behind a summary."""

    async def recall_history(args: ToolArguments, _: built_in_tool.ToolResources) -> ToolOutput:
        fold = args.text_argument("fold")
        words = args.text_argument("find")
        messages = await history(fold, words)
        return ToolOutput(messages, source=_source_of_recall([fold, words]))

    return BuiltInTool(RECALL_HISTORY, recall_history)


RECALL = ToolDeclaration(
    ToolName.RECALL,
    "Bring back what is behind a hash.",
    {
        "type": "object",
        "properties": {
            "sha256": {
                "type": "string",
                "description": "The hash, or its first digits; several with commas",
            },
            "find": {"type": "string", "description": "Words of the part"},
            "lines": {"type": "string", "description": "Like 10-40"},
            "grep": {"type": "string", "description": "Only lines that match"},
        },
        "required": ["sha256"],
    },
)
SEARCH_CACHE = ToolDeclaration(
    ToolName.SEARCH_CACHE,
    "Search everything ever seen in this workspace.",
    {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "tool": {"type": "string", "description": "Only outputs of this tool"},
            "limit": {"type": "integer", "minimum": 1},
        },
        "required": ["query"],
    },
)
COMPACT_CACHE = ToolDeclaration(
    ToolName.COMPACT_CACHE,
    "Have a model read an entry of the cache, however long, and write down what you need of it.",
    {
        "type": "object",
        "properties": {
            "sha256": {"type": "string", "description": "The hash, or its first digits"},
            "keep": {"type": "string", "description": "What you need of it"},
        },
        "required": ["sha256", "keep"],
    },
    is_rare=True,
)
RECALL_HISTORY = ToolDeclaration(
    ToolName.RECALL_HISTORY,
    "Show what summaries stand for, or find words in it.",
    {
        "type": "object",
        "properties": {"fold": {"type": "string"}, "find": {"type": "string"}},
        "required": [],
    },
)
