"""Recalls originals that were folded, by their hash, line range, pattern, words or fold.

These coroutines use only the ports and return text for a model. They must not know views or
policies. Everything comes in pages, each below the size at which outputs are shortened. Otherwise a
recall would be shortened itself, and the agent would recall in circles.
"""

import asyncio
import functools
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence

from helix_desktop.engine import (
    context_usage,
    facts,
    fold_economics,
    span_text_and_detail_sources,
    text_passages,
)
from helix_desktop.engine.ask_model import ModelInquiry, build_material_request
from helix_desktop.engine.context_policy import Policy
from helix_desktop.engine.conversation_details import DetailSource, format_argument_values
from helix_desktop.engine.ports import (
    CacheEntry,
    ContentCache,
    EntryOrigin,
    ModelClient,
    SearchIndex,
    TokenCounter,
)
from helix_desktop.engine.prompt_cache_terms import prices_of_main_model
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.strategies import large_output_choice, text_preview
from helix_desktop.engine.strategies.markers import call_answered_by, describe_output
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import InvalidInput, NotFound

# The size of a page read from the start. It is small because every later step sends the page again.
PAGE_TOKENS = 1_400
WHOLE_TOKENS = 6_000  # An entry of more tokens than this is never recalled as a whole.
USUAL_CONTEXT, USUAL_STEPS = 40_000, 20  # Assumed if the context's tokens or its steps are unknown.
# For a longer entry: the most tokens shown of its beginning, and of an outline of the rest.
BEGINNING_TOKENS, OUTLINE_TOKENS = 800, 500
LINES_TOKENS = 3_500  # The most tokens that a recall of a range of lines returns.
COMPACTED_TOKENS = 3_500
# Lines shown around a hit, the most hits shown that way, and the most characters of these lines.
LINES_AROUND_HIT, MOST_SHOWN_HITS, LONGEST_LINES_OF_HIT = 12, 3, 1_600
PAGE_BYTES = 24_000
SHORT_HASH = 12  # Lists of results show this many digits of a hash.
FIND_BYTES, IN_A_THREAD = 8 << 20, 1 << 15
PIECE_BYTES = 1 << 20
COMPACT_BYTES = 2 << 20
COMPACT_SECONDS = 120.0
MOST_HITS = 50
SNIPPET_CHARACTERS = 300
HASH_BEGINNING = re.compile(r"[0-9a-f]{4,64}")
_WHOLE_HASH = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
_LINE_RANGE = re.compile(r"\s*L?(\d{1,12})\s*(?:([-:,])\s*L?(\d{1,12})?\s*)?")

# A function that finds a pattern in content and returns the matching lines as text.
# Its arguments are the pattern, the content in pieces, and the number of context lines.
# The function must run where it can be killed, because matching some patterns never ends.
Grep = Callable[[str, AsyncIterator[bytes], int], Awaitable[str]]


async def find_entry(cache: ContentCache, name: str, beginning: int = 0) -> CacheEntry:
    """Return the entry with this hash or beginning of a hash, and its first bytes."""
    digest = await resolve_entry_name(cache, name)
    try:
        return await cache.describe_entry(digest, beginning)
    except NotFound as error:
        if digest.hex not in name.lower():
            raise
        raise NotFound(
            f"No entry has the hash {digest}.{await _suggest_near_entry(cache, digest.hex)}"
        ) from error


async def resolve_entry_name(cache: ContentCache, name: str) -> Digest:
    """Return the digest that a name means. For a whole hash, there may be no entry."""
    name = name.strip().strip("\"'`").lower()
    if whole := _WHOLE_HASH.search(
        name
    ):  # The model may have copied the hash with some text of the marker.
        name = whole.group()
    if not HASH_BEGINNING.fullmatch(name):
        raise InvalidInput(
            f"{name[:80]!r} is not a hash.",
            remedy="A hash has 64 hexadecimal digits. Give at least the first 4.",
        )
    return Digest.from_hex(name) if len(name) == 64 else await cache.resolve_prefix(name)


async def _suggest_near_entry(cache: ContentCache, name: str) -> str:
    """Name an entry whose hash begins in the same way, in case a later digit was mistyped."""
    try:
        near = await cache.resolve_prefix(name[:8])
    except NotFound:
        return " None begins alike; search_cached_content finds entries by their words."
    return f" Near it is {near.hex}."


async def recall_entry(  # noqa: PLR0913  # Most are parameters of the agent's tool.
    cache: ContentCache,
    tokens: TokenCounter,
    name: str,
    *,
    lines: str = "",
    words: str = "",
    pattern: str = "",
    context: int = 0,
    grep: Grep | None = None,
    whole_tokens: int = 0,
) -> str:
    """Return an entry, some of its lines, passages with some words, or
    lines that match a pattern: at most a page, which says how to continue.

    An entry of up to `whole_tokens` is returned whole, a longer one as its beginning
    and an outline.
    """
    is_plain = not (lines.strip() or words.strip() or pattern)
    entry = await find_entry(cache, name, 2 * PAGE_BYTES if is_plain else 0)
    stored = entry.stored
    if pattern:
        if grep is None:
            raise InvalidInput("Patterns cannot be used here.", remedy="Specify lines, or search.")
        return (
            await grep(pattern, read_in_pieces(cache, stored), context)
            or f"[no line matches {pattern}]"
        )
    if words.strip() and not lines.strip():
        return await _recall_passages(cache, tokens, stored, words)
    whole = whole_tokens or most_tokens_recalled_whole()
    if not lines.strip():
        if _fits_whole(tokens, entry, whole):
            text = entry.beginning.decode("utf-8", "replace").removesuffix("\n")
            return text if text.strip() else "(empty lines)" if stored.size else "(empty)"
        return await _recall_outline(cache, tokens, entry)
    first, last = parse_line_range(lines)
    if not (taken := await read_entry_lines(cache, stored, first, last)):
        raise NotFound(
            f"There is no line {first:,} in the entry; the last one is {stored.lines:,}."
        )
    text, until = cut_to_page_with_last_line_number(
        tokens, taken, first, LINES_TOKENS if last else min(whole, LINES_TOKENS)
    )
    total = max(stored.lines, until)
    head = "" if first == 1 and until >= total else f"[lines {first}-{until} of {total:,}]\n"
    rest = (
        f'\n[go on with lines="{until + 1}-{last or ""}"]'
        if until < min(last or total, total)
        else ""
    )
    return f"{head}{text if text.strip() else '(empty lines)'}{rest}"


def most_tokens_recalled_whole(
    state: ConversationState | None = None, policy: Policy | None = None
) -> int:
    """Return the most counted tokens that an entry may have to be returned whole."""
    context, steps, price, most = (
        USUAL_CONTEXT,
        USUAL_STEPS,
        fold_economics.RelativePrices(),
        WHOLE_TOKENS,
    )
    if state is not None and policy is not None:
        meter = context_usage.measure_window(state, policy)
        price = prices_of_main_model(state)
        context, steps = round(meter.used / meter.factor), len(state.branch.steps)
        most = min(most, max(PAGE_TOKENS, round(meter.free_tokens / meter.factor)))
    return fold_economics.most_tokens_of_whole_entry(context, steps, price, PAGE_TOKENS, most)


def _fits_whole(tokens: TokenCounter, entry: CacheEntry, whole: int) -> bool:
    """Whether an entry fits. Counts tokens only if needed: no token is shorter than a byte."""
    if not whole < entry.stored.size <= PAGE_BYTES:
        return entry.stored.size <= whole
    return (
        entry.tokens or tokens.count_tokens(entry.beginning.decode("utf-8", "replace"))
    ) <= whole


async def _recall_outline(cache: ContentCache, tokens: TokenCounter, entry: CacheEntry) -> str:
    """Return an entry's beginning, and an outline of the rest whose lines can be asked for."""
    stored = entry.stored
    taken = _split_lines(entry.beginning, is_end=len(entry.beginning) >= stored.size)
    text, until = cut_to_page_with_last_line_number(tokens, taken, 1, BEGINNING_TOKENS)
    total = max(stored.lines, until)
    if until >= total:
        return cut_to_page_with_last_line_number(tokens, taken, 1)[0]
    read = await cache.read_range(stored.digest, 0, min(PIECE_BYTES, stored.size))
    outline = await asyncio.to_thread(
        text_preview.outline_text, read.decode("utf-8", "replace"), until + 1, OUTLINE_TOKENS
    )
    way_on = f'[go on with lines="{until + 1}-"]'
    return f"[lines 1-{until} of {total:,}]\n{text}\n[the rest, by line:]\n{outline}\n{way_on}"


async def _recall_passages(
    cache: ContentCache, tokens: TokenCounter, stored: facts.Stored, words: str
) -> str:
    """Return the passages with the words. Only the beginning of a very long entry is searched."""
    content = (
        await cache.read_range(stored.digest, 0, min(FIND_BYTES, stored.size))
        if stored.size
        else b""
    )
    lines = content.decode("utf-8", "replace").split("\n")
    if len(lines) > 1 and not lines[-1]:
        lines.pop()
    work = functools.partial(text_passages.find_passages, tokens, lines, words)
    found = await asyncio.to_thread(work) if len(content) > IN_A_THREAD else work()
    found = found or f"[none of these words is in it; it has {stored.lines:,} lines]"
    if stored.size <= FIND_BYTES:
        return found
    return f"{found}\n[only the first {len(lines):,} lines were searched; grep searches all of it]"


async def search_entries(
    index: SearchIndex,
    query: str,
    *,
    tool: str = "",
    limit: int = 10,
    cache: ContentCache | None = None,
) -> str:
    """Search all entries. With a `cache`, the first hits are shown with the lines around them."""
    if not query.strip():
        raise InvalidInput("A query is needed.", remedy="Specify the words to look for.")
    hits = await index.search_index(
        query, tool=tool, limit=max(1, min(limit, MOST_HITS)), entries_only=True
    )
    rows: list[str] = []
    for hit in hits:
        name = hit.digest.hex if hit.digest else f"message {hit.seq}"
        about = " ".join(part for part in (hit.about.tool, hit.about.source) if part)
        shown = f"    {' '.join(hit.snippet.split())[:SNIPPET_CHARACTERS]}"
        if cache is not None and hit.digest is not None and len(rows) < MOST_SHOWN_HITS:
            shown = await _lines_around_hit(cache, hit.digest, hit.line) or shown
        rows.append(f"{name}  {about}  line {hit.line}\n{shown}")
    return "\n".join(rows) or f"[nothing in the cache contains {query}]"


async def _lines_around_hit(cache: ContentCache, digest: Digest, line: int) -> str:
    """Return the lines around a hit, or nothing if the entry is gone or its lines are too long."""
    try:
        stored = (await cache.describe_entry(digest)).stored
        lines = await read_entry_lines(
            cache, stored, max(1, line - LINES_AROUND_HIT), line + LINES_AROUND_HIT
        )
    except NotFound:
        return ""
    text = "\n".join(lines)
    return text if len(text) <= LONGEST_LINES_OF_HIT else ""


async def compact_entry(
    cache: ContentCache, client: ModelClient, name: str, keep: str, asking: ModelInquiry
) -> str:
    """Let a fast model shorten an entry. Raises ModelFailed if it does not answer."""
    entry = await find_entry(cache, name)
    text = await span_text_and_detail_sources.read_stored_text(cache, entry.stored)
    about = f"{entry.about.tool} {entry.about.source}".strip() or "a tool"
    question = large_output_choice.compaction_question(about, keep, COMPACTED_TOKENS // 2)
    request = build_material_request(
        text[:COMPACT_BYTES], question, facts.Purpose.COMPACTION, COMPACTED_TOKENS
    )
    answer = await asking.ask_for_text(client, request, COMPACT_SECONDS)
    return answer[: PAGE_BYTES // 2] or "[the model found nothing to say about it]"


# --- Recalling and searching folded messages ---


async def recall_folded_messages(
    state: ConversationState, cache: ContentCache, tokens: TokenCounter, name: str, words: str = ""
) -> str:
    """Return a fold's messages word for word, with outputs by hash. A longer text becomes an entry.

    With `words`, return passages with them from these messages and
    their outputs; without a name, from everything that summaries cover.
    """
    branch, asked = state.branch, words.strip()
    folds = (
        [_require_fold(state, name)] if name.strip() or not asked else _live_folds_of_spans(state)
    )
    covers = (fold.cover for fold in folds)
    spans = [
        facts.Span(cover.seq, cover.seq) if isinstance(cover, facts.PartRef) else cover
        for cover in covers
    ]
    messages = [
        branch.message_at(seq)
        for seq in sorted({seq for span in spans for seq in branch.covered_messages(span)})
    ]
    if asked:
        return await _passages_in_messages(branch, cache, tokens, messages, words)
    texts = await span_text_and_detail_sources.read_short_outputs(messages, cache)
    text = "\n".join(format_message(branch, message, texts) for message in messages)
    if tokens.count_tokens(text) <= PAGE_TOKENS:
        return text
    stored = await cache.store_content(
        text.encode("utf-8", "replace"), EntryOrigin("recall_history", name)
    )
    shown, until = cut_to_page_with_last_line_number(tokens, text.split("\n"), 1)
    return (
        f'{shown}\n[go on with recall_cached_content("{stored.digest.hex}", lines="{until + 1}-")]'
    )


async def _passages_in_messages(
    branch: ConversationBranch,
    cache: ContentCache,
    tokens: TokenCounter,
    messages: Sequence[facts.Recorded],
    words: str,
) -> str:
    """Return the newest of equal passages with the words. Searches only so many outputs."""
    texts: list[tuple[str, list[str]]] = []
    room, left = FIND_BYTES, 0
    for message in reversed(messages):
        fact, seq = message.fact, message.seq
        if not isinstance(fact, facts.ToolReturned):
            texts.append(
                (f"message {seq}", format_message(branch, message, {}, recalls=False).split("\n"))
            )
        elif branch.is_excluded(facts.PartRef(seq)):
            continue
        elif (call := call_answered_by(branch, seq)) is not None and call.name in RECALLS:
            continue  # It only repeats something.
        elif fact.output.size > room:
            left += 1
        else:
            room -= fact.output.size
            text = await span_text_and_detail_sources.read_stored_text(cache, fact.output)
            name = f'recall_cached_content("{fact.output.digest.hex[:SHORT_HASH]}"), {describe_output(branch, seq)}'
            texts.append((name, text.split("\n")))
    shown = span_text_and_detail_sources.read_span_texts(branch, branch.items, cache)
    in_view = {line.strip() async for one in shown for line in one.text.split("\n")}
    work = functools.partial(
        text_passages.find_passages_in_texts, tokens, texts, words, in_view=in_view
    )
    found = await asyncio.to_thread(work)
    rest = (
        f"\n[outputs too long to be searched here: {left:,}; search_cached_content finds words in them]"
        if left
        else ""
    )
    return (found or f"[none of these words is in the {len(messages):,} messages]") + rest


def _require_fold(state: ConversationState, name: str) -> facts.Folded:
    name = name.strip().strip("\"'`")
    fold = state.find_fold(name)
    if fold is None:
        known = [live.fold for live in _live_folds_of_spans(state)][-5:]
        raise NotFound(
            f"This conversation has no fold {name[:80]!r}.",
            remedy=f"Available: {', '.join(known) or 'none'}.",
        )
    return fold


def _live_folds_of_spans(state: ConversationState) -> list[facts.Folded]:
    return [fold for fold in state.live_folds if isinstance(fold.cover, facts.Span)]


def format_message(
    branch: ConversationBranch,
    recorded: facts.Recorded,
    texts: Mapping[facts.Stored, str],
    *,
    recalls: bool = True,
) -> str:
    """Format a message without reasoning and, unless `recalls`, without calls that
    recall. `texts`: short outputs.
    """
    fact, seq = recorded.fact, recorded.seq
    if isinstance(fact, facts.ToolReturned):
        about = describe_output(branch, seq)
        shown = fact.head or texts.get(fact.output, "(the text is in the entry)")
        return (
            f'[{seq}] output of {about}: recall_cached_content("{fact.output.digest.hex}")\n{shown}'
        )
    if isinstance(fact, facts.UserSaid):
        said = [
            part.text
            if isinstance(part, facts.Text)
            else f"attached {part.name} {part.stored.digest.hex}"
            for part in fact.parts
        ]
        return "\n".join(f"[{seq}] user: {text}" for text in said)
    if isinstance(fact, facts.ModelReplied):
        sources = span_text_and_detail_sources.sources_of_reply(branch, seq, fact)
        return "\n".join(
            _format_source(one) for one in sources if recalls or one.tool not in RECALLS
        )
    return ""


def _format_source(source: DetailSource) -> str:
    if source.role == "call":
        return f"[{source.seq}] call of {source.tool}: {format_argument_values(source.text)}"
    return f"[{source.seq}] assistant: {source.text}"


# --- Reading an entry page by page, or by ranges of lines ---


def parse_line_range(words: str) -> tuple[int, int]:
    """Parse `10-40`, `10-` or `10` into first and last line; 0 means the end."""
    if not words.strip():
        return 1, 0
    if (match := _LINE_RANGE.fullmatch(words)) is None:
        raise InvalidInput(
            f"lines = {words[:40]!r} is not a valid line range.", remedy="Write 10-40, 10- or 10."
        )
    first = max(1, int(match[1]))
    last = int(match[3]) if match[3] else (0 if match[2] else first)
    if last and last < first:
        raise InvalidInput(
            f"In `lines`, the last line ({last}) is before the first line ({first})."
        )
    return first, last


async def read_in_pieces(cache: ContentCache, stored: facts.Stored) -> AsyncIterator[bytes]:
    """Yield the entry in pieces, each checked separately."""
    for start in range(0, stored.size, PIECE_BYTES):
        yield await cache.read_range(stored.digest, start, min(PIECE_BYTES, stored.size - start))


async def read_entry_lines(
    cache: ContentCache, stored: facts.Stored, first: int, last: int
) -> Sequence[str]:
    """Return the wanted lines, up to about a page. Earlier ones are counted but not
    kept, later ones not read.
    """
    if not stored.size:
        return ["(empty)"]
    start = await _find_line_start(cache, stored, first)
    if start >= stored.size:
        return []
    taken = await cache.read_range(stored.digest, start, min(2 * PAGE_BYTES, stored.size - start))
    lines = _split_lines(taken, is_end=start + len(taken) >= stored.size)
    return lines[: last - first + 1] if last else lines


def _split_lines(content: bytes, *, is_end: bool) -> list[str]:
    """Return the complete lines, and an incomplete last one at the content's end or if
    there is no other.
    """
    *lines, rest = content.decode("utf-8", "replace").split("\n")
    return [*lines, rest] if (is_end and rest) or not (lines or is_end) else lines


async def _find_line_start(cache: ContentCache, stored: facts.Stored, number: int) -> int:
    """Return the offset at which a line begins, or the entry's end if there is no such line."""
    before, start = number - 1, 0
    if number == 1:
        return 0
    async for piece in read_in_pieces(cache, stored):
        held = piece.count(b"\n")
        if held >= before:
            at = -1
            for _ in range(before):
                at = piece.index(b"\n", at + 1)
            return start + at + 1
        before -= held
        start += len(piece)
    return stored.size


def cut_to_page_with_last_line_number(
    tokens: TokenCounter, lines: Sequence[str], first: int, limit: int = PAGE_TOKENS
) -> tuple[str, int]:
    """Return as many lines as fit on a page. A line longer than a page is cut, with a note."""
    count = len(lines)
    while (
        len(text := "\n".join(lines[:count])) > PAGE_BYTES or tokens.count_tokens(text) > limit
    ) and count > 1:
        count = max(1, count * 3 // 4)
    text = text[:PAGE_BYTES]
    cut = tokens.count_tokens(text) > limit or len(lines[0]) > PAGE_BYTES
    while tokens.count_tokens(text) > limit:
        text = text[: len(text) * 3 // 4]
    if cut:
        text += "\n[this line is longer than a page and was cut; use grep to look into it]"
    return text, first + count - 1


async def read_entry_beginning(cache: ContentCache, stored: facts.Stored, limit_bytes: int) -> str:
    return (await cache.read_range(stored.digest, 0, min(stored.size, limit_bytes))).decode(
        "utf-8", "replace"
    )
