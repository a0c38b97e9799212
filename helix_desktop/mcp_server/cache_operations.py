"""The operations of builtin_context_cache, apart from MCP: coroutines that return plain values.

The agent's own tools use `engine/content_recall.py` for the same purpose. Entries are looked up
only in this workspace, so the hash of another workspace's entry is not found.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
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
    left = await content_recall.describe_left_entries(served.catalogue, cache, digest.hex, "")
    return {"sha256": digest.hex, "text": left + text}


async def search_content(
    served: ServedWorkspace, *, query: str, tool: str = "", limit: int = 10
) -> dict[str, Any]:
    """Return passages of the cached content that contain these words."""
    if not query.strip():
        raise InvalidInput("A query is needed.", remedy="Specify the words to look for.")
    await served.catalogue.wait_until_indexed()
    allowed_limit = max(1, min(limit, content_recall.MOST_HITS))
    hits = await served.catalogue.search_index(
        query, tool=tool, limit=allowed_limit, entries_only=True
    )
    left_entries = await served.catalogue.find_left_entries(
        [hit.digest for hit in hits if hit.digest]
    )
    described_hits: list[dict[str, Any]] = []
    for hit in hits:
        if hit.digest is None:
            continue
        described_hit = _describe_hit(hit, hit.digest)
        if hit.digest in left_entries:
            described_hit["note"] = content_recall.say_where_left(left_entries[hit.digest])
        described_hits.append(described_hit)
    return {"hits": described_hits}


def _describe_hit(hit: SearchHit, digest: Digest) -> dict[str, Any]:
    snippet_on_one_line = " ".join(hit.snippet.split())
    return {
        "sha256": digest.hex,
        "line": hit.line,
        "snippet": snippet_on_one_line[: content_recall.SNIPPET_CHARACTERS],
        "tool": hit.about.tool,
        "source": hit.about.source,
    }


async def compact_content(served: ServedWorkspace, *, sha256: str, keep: str) -> dict[str, Any]:
    """Return an entry as this workspace's model shortens it. `keep`: what must stay."""
    entry = await content_recall.find_entry(served.cache, sha256)
    digest = entry.stored.digest
    if served.compact is None:
        raise InvalidInput(
            "This workspace has no model that can shorten the content.",
            remedy="Recall the entry one page at a time.",
        )
    text = await served.compact(digest, keep)
    left = await content_recall.describe_left_entries(
        served.catalogue, served.cache, digest.hex, ""
    )
    return {"sha256": digest.hex, "text": left + text}


async def list_content(
    served: ServedWorkspace, *, tool: str = "", limit: int = 50
) -> dict[str, Any]:
    most_rows = max(1, min(limit, MOST_LISTED))
    rows = await list_newest_entries(served, most_rows, tool)
    total = await served.catalogue.count_entries(EntryFilter(tool=tool))
    left_notes = await describe_left_rows(served, rows)
    entries: list[dict[str, Any]] = []
    for row in rows:
        entry = dict(row.as_json_table())
        if row.stored.digest in left_notes:
            entry["note"] = left_notes[row.stored.digest]
        entries.append(entry)
    return {"total": total, "entries": entries}


async def list_newest_entries(
    served: ServedWorkspace, limit: int, tool: str = ""
) -> Sequence[EntryRow]:
    await served.catalogue.wait_until_indexed()
    return await served.catalogue.entries_page(EntryFilter(tool=tool), limit=limit)


async def describe_left_rows(
    served: ServedWorkspace, rows: Sequence[EntryRow]
) -> dict[Digest, str]:
    """Return where those of these entries are from that only parts of conversations hold that were
    left.
    """
    left_entries = await served.catalogue.find_left_entries([row.stored.digest for row in rows])
    return {
        digest: content_recall.say_where_left(conversations)
        for digest, conversations in left_entries.items()
    }


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
    marked_tool = "outside"
    if tool.strip():
        marked_tool = f"outside:{_collapse_to_line(tool)}"
    origin = EntryOrigin(marked_tool, _collapse_to_line(source))
    stored = await served.cache.store_content(data, origin)
    return {"sha256": stored.digest.hex, "size": stored.size, "lines": stored.lines}


def _collapse_to_line(words: str) -> str:
    return " ".join(words.split())[:200]


async def cache_figures_as_json(served: ServedWorkspace) -> dict[str, Any]:
    await served.catalogue.wait_until_indexed()
    computed = await served.catalogue.compute_figures()
    figures: dict[str, Any] = {"workspace": served.name}
    figures.update(computed.figures_by_name())
    return figures


async def recall_fold_messages(
    served: ServedWorkspace, *, fold: str, find: str = "", conversation: str = ""
) -> dict[str, Any]:
    """Return a fold's messages, or their passages with certain words, from the named or
    newest conversation.
    """
    # Models quote the id as they have read it.
    fold_id = fold.strip().strip("\"'`")
    async for _, state in _iterate_conversation_states(served, conversation):
        if state.find_fold(fold_id) is None:
            continue
        text = await content_recall.recall_folded_messages(
            state, served.cache, served.tokens, fold_id, find
        )
        return {"fold": fold_id, "text": text}

    where = f"In the newest {NEWEST} conversations"
    if conversation:
        where = f"In the conversation {conversation[:40]}"
    raise NotFound(
        f"{where} there is no fold {fold_id[:80]!r}.",
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
    if not tasks:
        all_tasks = await served.run_task_command(["list"])
        return {"tasks": [_choose_task_fields(task) for task in all_tasks]}
    if wait_seconds:
        wait_command = ["wait", "--"]
        wait_command += tasks
        # Once time is up, the tasks are shown as they are.
        with suppress(TimeoutError):
            await wait_with_limit(served.run_task_command(wait_command), wait_seconds)
    show_command = ["show", "--"]
    show_command += tasks
    named_tasks = await served.run_task_command(show_command)
    return {"tasks": [_choose_task_fields(task) for task in named_tasks]}


def _choose_task_fields(task: Mapping[str, Any]) -> dict[str, Any]:
    return {name: task[name] for name in SHOWN_OF_TASK}


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
    """Yield the named conversation, or without a name the newest ones, each with its state."""
    rows = await served.journal.list_conversations()
    if conversation:
        chosen_rows = [row for row in rows if row.id == conversation]
    else:
        chosen_rows = list(rows[:NEWEST])
    for row in chosen_rows:
        recorded_facts = await served.journal.read_facts(row.id)
        yield row, build_state(recorded_facts)
