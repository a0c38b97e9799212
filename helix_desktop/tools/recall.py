"""The tools of builtin_context_cache for the agent inside; what they do is in engine/recall.py."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

from helix_desktop.engine import recall
from helix_desktop.engine.digest import Digest
from helix_desktop.engine.tool_names import ToolName
from helix_desktop.tools.grep import content_of, grep, shown
from helix_desktop.tools.tool import Arguments, Result, Run, Tool, Use, fields, text, whole

Compact = Callable[[Digest, str], Awaitable[str]]  # the entry, and what is needed of it
AROUND = 2  # lines around each match of a pattern
History = Callable[[str, str], Awaitable[str]]  # the fold, and words of what is looked for


def tools(compact: Compact | None = None, history: History | None = None) -> tuple[Tool, ...]:
    """The tools there are; what has nobody to do it is not offered."""
    out = [Tool(ToolName.RECALL, _RECALL, _RECALL_SCHEMA, recall_cached_content)]
    out.append(Tool(ToolName.SEARCH_CACHE, _SEARCH, _SEARCH_SCHEMA, search_cached_content))
    if compact is not None:
        out.append(Tool(ToolName.COMPACT_CACHE, _COMPACT, _COMPACT_SCHEMA, _compacting(compact), rare=True))
    if history is not None:
        out.append(Tool(ToolName.RECALL_HISTORY, _HISTORY, _HISTORY_SCHEMA, _recounting(history)))
    return tuple(out)


async def matching_lines(pattern: str, content: AsyncIterator[bytes], context: int) -> str:
    """`engine.recall.Grep`, in a process that can be killed; a page of lines at the most."""
    found = shown(await grep(pattern, content_of("", content), context=context))
    if len(found) <= recall.PAGE_BYTES // 2:
        return found
    return found[: recall.PAGE_BYTES // 2] + "\n[… there is more; use a narrower pattern, or lines]"


async def recall_cached_content(args: Arguments, use: Use) -> Result:
    said = await recall.recall(
        use.cache,
        use.tokens,
        args.text("sha256"),
        lines=args.text("lines"),
        words=args.text("find"),
        pattern=args.text("grep"),
        context=AROUND,
        grep=matching_lines,
    )
    asked = (args.text("sha256")[:16], args.text("lines"), args.text("find"), args.text("grep"))
    return Result(said, source=" ".join(filter(None, asked))[:100])


async def search_cached_content(args: Arguments, use: Use) -> Result:
    query = args.text("query")
    tool, limit = args.text("tool"), args.number("limit", 10)
    said = await recall.search(use.index, query, tool=tool, limit=limit, cache=use.cache)
    return Result(said, source=query[:100])


def _compacting(compact: Compact) -> Run:
    async def compact_cached_content(args: Arguments, use: Use) -> Result:
        digest = await recall.found(use.cache, args.text("sha256"))
        return Result(await compact(digest, args.text("keep")), source=digest.short)

    return compact_cached_content


def _recounting(history: History) -> Run:
    async def recall_history(args: Arguments, _: Use) -> Result:
        fold, words = args.text("fold"), args.text("find")
        return Result(await history(fold, words), source=" ".join(filter(None, (fold, words)))[:100])

    return recall_history


_HASH = text("The hash, or its first digits")
_RECALL = "Bring back what is behind a hash."
_RECALL_SCHEMA = fields(
    "sha256",
    sha256=_HASH,
    find=text("Words of the part"),
    lines=text("Like 10-40"),
    grep=text("Only lines that match"),
)
_SEARCH = "Search everything ever seen in this workspace."
_SEARCH_SCHEMA = fields("query", query=text(), tool=text("Only outputs of this tool"), limit=whole(least=1))
_COMPACT = "Have a model read an entry of the cache, however long, and write down what you need of it."
_COMPACT_SCHEMA = fields("sha256", "keep", sha256=_HASH, keep=text("What you need of it"))
_HISTORY = "Show what summaries stand for, or find words in it."
_HISTORY_SCHEMA = fields(fold=text(), find=text())
