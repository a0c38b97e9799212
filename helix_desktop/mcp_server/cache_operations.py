"""The operations of builtin_context_cache, apart from MCP: coroutines that return plain values.

The agent's own tools use `engine/content_recall.py` for the same purpose. Entries are looked up
only in this workspace, so the hash of another workspace's entry is not found.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Protocol

from helix_desktop.concurrency import wait_with_limit
from helix_desktop.engine import content_recall
from helix_desktop.engine.cache_entry_rows import CacheEntryFigures, EntryFilter, EntryRow
from helix_desktop.engine.facts import Folded, FoldKind, Recorded
from helix_desktop.engine.ports import (
    ContentCache,
    EntryOrigin,
    SearchHit,
    SearchIndex,
    TokenCounter,
)
from helix_desktop.engine.session import Session
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.view import ConversationState, build_state
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass

MOST_LISTED = 200
MOST_PUT = 16 << 20
SHOWN_OF_TASK = ("id", "state", "why", "answer", "text")
NEWEST = 20  # Only this many of the newest conversations are searched for handovers.

Grep = Callable[[str, AsyncIterator[bytes], int], Awaitable[str]]
Compact = Callable[[Digest, str], Awaitable[str]]
RunTaskCommand = Callable[[Sequence[str]], Awaitable[Any]]


class ServedJournal(Protocol):
    async def read_facts(
        self, conversation: str, after: int = 0, limit: int = 0
    ) -> Sequence[Recorded]: ...
    async def list_conversations(self) -> Sequence[Any]: ...


class ServedCatalogue(SearchIndex, Protocol):
    """What the server needs of the index. Await `wait_until_indexed` before calling the others."""

    async def wait_until_indexed(self) -> object: ...
    async def entries_page(self, chosen: EntryFilter, *, limit: int) -> Sequence[EntryRow]: ...
    async def count_entries(self, chosen: EntryFilter) -> int: ...
    async def compute_figures(self) -> CacheEntryFigures: ...


@dataclass(frozen=True, slots=True)
class ServedWorkspace:
    """One workspace as the server needs it. `compact` is None if no model can shorten content.
    `run_task_command` takes the words after `task` on the command line and returns what `--json`
    prints. `use_agent_session` opens the last conversation of the agent that a client's name means.
    """

    name: str
    cache: ContentCache
    catalogue: ServedCatalogue
    journal: ServedJournal
    tokens: TokenCounter
    grep: Grep
    compact: Compact | None
    run_task_command: RunTaskCommand
    use_agent_session: Callable[[str], AbstractAsyncContextManager[Session]] | None = None


@dataclass(frozen=True, slots=True)
class ListedHandover:
    """A handover document that replaces messages now. `title` is the conversation's."""

    conversation: str
    title: str
    fold: Folded


async def recall_content(
    served: ServedWorkspace,
    *,
    sha256: str,
    find: str = "",
    lines: str = "",
    grep: str = "",
    context: int = 0,
) -> dict[str, Any]:
    """Return a page of an entry, passages with certain words, or matching lines."""
    cache = served.cache
    digest = await content_recall.resolve_entry_name(cache, sha256)
    wanted = content_recall.WantedContent(
        pattern=grep, lines_around_match=context, lines=lines, words=find
    )
    text = await content_recall.recall_entry(
        cache, served.tokens, digest.hex, wanted, grep=served.grep
    )
    return {"sha256": digest.hex, "text": text}


async def search_content(
    served: ServedWorkspace, *, query: str, tool: str = "", limit: int = 10
) -> dict[str, Any]:
    """Return passages of the cached content that contain these words."""
    if not query.strip():
        raise InvalidInput("A query is needed.", remedy="Specify the words to look for.")
    await served.catalogue.wait_until_indexed()
    hits = await served.catalogue.search_index(
        query, tool=tool, limit=max(1, min(limit, content_recall.MOST_HITS)), entries_only=True
    )
    return {"hits": [_search_hit_as_json(hit) for hit in hits if hit.digest is not None]}


def _search_hit_as_json(hit: SearchHit) -> dict[str, Any]:
    snippet = " ".join(hit.snippet.split())[: content_recall.SNIPPET_CHARACTERS]
    about = {"tool": hit.about.tool, "source": hit.about.source}
    return {
        "sha256": hit.digest.hex if hit.digest else "",
        "line": hit.line,
        "snippet": snippet,
        **about,
    }


async def compact_content(served: ServedWorkspace, *, sha256: str, keep: str) -> dict[str, Any]:
    digest = (await content_recall.find_entry(served.cache, sha256)).stored.digest
    if served.compact is None:
        raise InvalidInput(
            "This workspace has no model that can shorten the content.",
            remedy="Recall the entry one page at a time.",
        )
    return {"sha256": digest.hex, "text": await served.compact(digest, keep)}


async def list_content(
    served: ServedWorkspace, *, tool: str = "", limit: int = 50
) -> dict[str, Any]:
    rows = await list_newest_entries(served, max(1, min(limit, MOST_LISTED)), tool)
    total = await served.catalogue.count_entries(EntryFilter(tool=tool))
    return {"total": total, "entries": [row.as_json_table() for row in rows]}


async def list_newest_entries(
    served: ServedWorkspace, limit: int, tool: str = ""
) -> Sequence[EntryRow]:
    await served.catalogue.wait_until_indexed()
    return await served.catalogue.entries_page(EntryFilter(tool=tool), limit=limit)


async def put_content(
    served: ServedWorkspace, *, content: str, source: str = "", tool: str = ""
) -> dict[str, Any]:
    """Store a foreign agent's content. Its tool's name is marked, so that it cannot
    pass for one of ours.
    """
    data = content.encode("utf-8", "replace")
    if not data or len(data) > MOST_PUT:
        raise InvalidInput(
            f"The content must be 1 to {MOST_PUT:,} bytes long; this is {len(data):,} bytes."
        )
    about = EntryOrigin(
        f"outside:{_collapse_to_line(tool)}" if tool.strip() else "outside",
        _collapse_to_line(source),
    )
    stored = await served.cache.store_content(data, about)
    return {"sha256": stored.digest.hex, "size": stored.size, "lines": stored.lines}


def _collapse_to_line(words: str) -> str:
    return " ".join(words.split())[:200]


async def cache_figures_as_json(served: ServedWorkspace) -> dict[str, Any]:
    await served.catalogue.wait_until_indexed()
    return {
        "workspace": served.name,
        **(await served.catalogue.compute_figures()).figures_by_name(),
    }


async def recall_fold_messages(
    served: ServedWorkspace, *, fold: str, find: str = "", conversation: str = ""
) -> dict[str, Any]:
    """Return a fold's messages, or their passages with certain words, from the named or
    newest conversation.
    """
    wanted = fold.strip().strip("\"'`")
    async for _, state in _iterate_conversation_states(served, conversation):
        if state.find_fold(wanted) is not None:
            return {
                "fold": wanted,
                "text": await content_recall.recall_folded_messages(
                    state, served.cache, served.tokens, wanted, find
                ),
            }
    where = f"In the newest {NEWEST} conversations"
    if conversation:
        where = f"In the conversation {conversation[:40]}"
    raise NotFound(
        f"{where} there is no fold {wanted[:80]!r}.",
        remedy="Specify which conversation the fold belongs to, or list the resources.",
    )


async def add_task(
    served: ServedWorkspace, *, text: str, agent: str = "", key: str = "", after: Sequence[str] = ()
) -> dict[str, Any]:
    """Add a task. Its worker and the workspace's rules decide what it may do without asking."""
    command = ["add", f"--agent={agent}", f"--key={key}"]
    for needed_task in after:
        command.append(f"--after={needed_task}")
    # The space keeps a text that is a single "-" from being read as standard input.
    command += ["--", f" {text}"]
    (task,) = await served.run_task_command(command)
    return {"task": task}


async def show_tasks(
    served: ServedWorkspace, *, tasks: Sequence[str] = (), wait_seconds: int = 0
) -> dict[str, Any]:
    """Return these tasks once they have ended or time is up. Without names, return the newest."""
    named = ["--", *tasks]
    if tasks and wait_seconds:
        with suppress(TimeoutError):
            await wait_with_limit(served.run_task_command(["wait", *named]), wait_seconds)
    command = ["list"]
    if tasks:
        command = ["show", *named]
    shown: list[dict[str, Any]] = []
    for task in await served.run_task_command(command):
        shown.append({name: task[name] for name in SHOWN_OF_TASK})
    return {"tasks": shown}


async def list_newest_handovers(served: ServedWorkspace) -> list[ListedHandover]:
    """Return the handovers of the newest conversations, newest first."""
    listed: list[ListedHandover] = []
    async for row, state in _iterate_conversation_states(served, ""):
        for fold in reversed(state.live_folds):
            if fold.kind is FoldKind.HANDOVER:
                listed.append(ListedHandover(row.id, row.title, fold))
    return listed


async def read_handover_text(served: ServedWorkspace, conversation: str, fold: str) -> str:
    async for _, state in _iterate_conversation_states(served, conversation):
        document = state.find_fold(fold)
        if document is not None and document.kind is FoldKind.HANDOVER:
            return document.text
    raise NotFound(f"There is no handover {fold[:80]!r} in that conversation.")


async def _iterate_conversation_states(
    served: ServedWorkspace, conversation: str
) -> AsyncIterator[tuple[Any, ConversationState]]:
    rows = await served.journal.list_conversations()
    chosen = [row for row in rows if row.id == conversation] if conversation else rows[:NEWEST]
    for row in chosen:
        yield row, build_state(await served.journal.read_facts(row.id))
