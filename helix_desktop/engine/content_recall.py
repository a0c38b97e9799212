"""Recalls originals that were folded, by their hash, line range, pattern, words or fold.

These coroutines use only the ports and return text for a model. They must not know views or
policies. Everything comes in pages, each below the size at which outputs are shortened. Otherwise a
recall would be shortened itself, and the agent would recall in circles.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress

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
    SearchHit,
    SearchIndex,
    TokenCounter,
)
from helix_desktop.engine.prompt_cache_terms import prices_of_main_model
from helix_desktop.engine.sha256_digest import Digest
from helix_desktop.engine.state.branch import ConversationBranch
from helix_desktop.engine.state.fold_covers import first_and_last
from helix_desktop.engine.strategies import large_output_choice, text_preview
from helix_desktop.engine.strategies.markers import call_answered_by, describe_output
from helix_desktop.engine.tool_names import RECALLS
from helix_desktop.engine.view import ConversationState
from helix_desktop.errors import InvalidInput, NotFound
from helix_desktop.fast_dataclass import dataclass

# The size of a page read from the start. It is small because every later step sends the page again.
PAGE_TOKENS = 1_400
WHOLE_TOKENS = 6_000  # An entry of more tokens than this is never recalled as a whole.
# Assumed if the context's tokens or its steps are unknown.
USUAL_CONTEXT = 40_000
USUAL_STEPS = 20
# For a longer entry: the most tokens shown of its beginning, and of an outline of the rest.
BEGINNING_TOKENS = 800
OUTLINE_TOKENS = 500
LINES_TOKENS = 3_500  # The most tokens that a recall of a range of lines returns.
MOST_AT_ONCE = 6  # An agent can ask for so many entries in one call.
COMPACTED_TOKENS = 3_500
# Lines shown around a hit, the most hits shown that way, and the most characters of these lines.
LINES_AROUND_HIT = 12
MOST_SHOWN_HITS = 3
LONGEST_LINES_OF_HIT = 1_600
PAGE_BYTES = 24_000
SHORT_HASH = 12  # Lists of results show this many digits of a hash.
FIND_BYTES = 8 << 20  # Words are looked for in this much of a very long entry.
IN_A_THREAD = 1 << 15  # Longer contents would hold up the other tasks of the loop.
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


@dataclass(frozen=True, slots=True)
class WantedContent:
    """What an agent asks of an entry: lines that match a pattern, some lines, passages with
    some words, or else the entry itself. It is asked for one of these at a time.

    `lines`: such as 10-40. `whole_tokens`: an entry of up to so many tokens is returned
    whole, a longer one as its beginning and an outline; 0 stands for the usual number.
    """

    pattern: str = ""
    lines_around_match: int = 0
    lines: str = ""
    words: str = ""
    whole_tokens: int = 0

    @property
    def most_tokens_of_whole_entry(self) -> int:
        return self.whole_tokens or most_tokens_recalled_whole()


WHOLE_ENTRY = WantedContent()


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
    unquoted_name = name.strip().strip("\"'`").lower()
    # The model may have copied the hash with some text of the marker.
    whole_hash = _WHOLE_HASH.search(unquoted_name)
    if whole_hash:
        return Digest.from_hex(whole_hash.group())
    if not HASH_BEGINNING.fullmatch(unquoted_name):
        raise InvalidInput(
            f"{unquoted_name[:80]!r} is not a hash.",
            remedy="A hash has 64 hexadecimal digits. Give at least the first 4.",
        )
    return await cache.resolve_prefix(unquoted_name)


async def _suggest_near_entry(cache: ContentCache, name: str) -> str:
    """Name an entry whose hash begins in the same way, in case a later digit was mistyped."""
    try:
        similar_digest = await cache.resolve_prefix(name[:8])
    except NotFound:
        return " None begins alike; search_cached_content finds entries by their words."
    return f" Near it is {similar_digest.hex}."


async def recall_entry(
    cache: ContentCache,
    tokens: TokenCounter,
    name: str,
    wanted: WantedContent = WHOLE_ENTRY,
    *,
    grep: Grep | None = None,
) -> str:
    """Return what an agent wants of an entry: at most a page, which says how to continue."""
    if wanted.pattern:
        entry = await find_entry(cache, name)
        return await _recall_matches(cache, entry.stored, wanted, grep)
    if wanted.lines.strip():
        entry = await find_entry(cache, name)
        return await _recall_lines(cache, tokens, entry.stored, wanted)
    if wanted.words.strip():
        entry = await find_entry(cache, name)
        return await _recall_passages(cache, tokens, entry.stored, wanted.words)
    entry = await find_entry(cache, name, 2 * PAGE_BYTES)
    if not _fits_whole(tokens, entry, wanted.most_tokens_of_whole_entry):
        return await _recall_outline(cache, tokens, entry)
    return _whole_text(entry)


async def recall_entries(
    cache: ContentCache,
    tokens: TokenCounter,
    names: str,
    wanted: WantedContent = WHOLE_ENTRY,
    *,
    grep: Grep | None = None,
) -> str:
    """Return what an agent wants of one or several entries, named by their hashes.

    Each call costs a request, which sends the whole context again. So an agent that is
    not sure which of some outputs it needs asks for all of them, best with words.
    """
    split_names = split_entry_names(names)
    if len(split_names) == 1:
        return await recall_entry(cache, tokens, names, wanted, grep=grep)
    if len(split_names) > MOST_AT_ONCE:
        raise InvalidInput(
            f"{len(split_names)} entries are too many for one call.",
            remedy=f"Ask for up to {MOST_AT_ONCE}, with words to find.",
        )
    if wanted.lines.strip() or wanted.pattern:
        raise InvalidInput(
            "Lines and patterns can be asked of one entry at a time.",
            remedy="Use find with words for several entries.",
        )

    # Together they may be as long as one entry that is returned whole.
    tokens_for_each = wanted.most_tokens_of_whole_entry // len(split_names)
    wanted_of_each = WantedContent(words=wanted.words, whole_tokens=tokens_for_each)
    answers = []
    for name in split_names:
        try:
            text = await recall_entry(cache, tokens, name, wanted_of_each)
        except (InvalidInput, NotFound) as error:
            text = f"[{error}]"  # The other entries are still worth having.
        answers.append(f"[{name[:SHORT_HASH]}]\n{text}")
    return "\n\n".join(answers)


async def describe_left_entries(
    index: SearchIndex, cache: ContentCache, names: str, conversation: str
) -> str:
    """Return a line for each of these entries that is only in what was left by a rewind.

    An output from there may say what is not true any more, such as how a file was.
    """
    split_names = split_entry_names(names)
    digests: dict[Digest, str] = {}
    for name in split_names:
        # Whoever recalls the entry is told what is wrong with its name.
        with suppress(InvalidInput, NotFound):
            digests[await resolve_entry_name(cache, name)] = name
    left_entries = await index.find_left_entries(list(digests))
    lines: list[str] = []
    for digest, conversations in left_entries.items():
        words = say_where_left(conversations, conversation)
        if len(split_names) > 1:
            words = f"{digests[digest][:SHORT_HASH]}: {words}"
        lines.append(f"[{words}]\n")
    return "".join(lines)


def say_where_left(conversations: Collection[str], asking_conversation: str = "") -> str:
    """Return where an entry is from that only parts of these conversations hold that were left: by
    the user, by a connected agent, or by an import that found another continuation.
    """
    if asking_conversation in conversations:
        return "from a part of this conversation that was left"
    return "from a part of a conversation that was left"


def split_entry_names(names: str) -> list[str]:
    """Return each hash once of an argument that names several, or the argument as it is."""
    whole_hashes = _WHOLE_HASH.findall(names.lower())
    if len(whole_hashes) > 1:
        return list(dict.fromkeys(whole_hashes))
    words = [word.strip("\"'`[]()").lower() for word in re.split(r"[\s,;]+", names.strip())]
    if len(words) > 1 and all(HASH_BEGINNING.fullmatch(word) for word in words):
        return list(dict.fromkeys(words))
    return [names]


async def _recall_matches(
    cache: ContentCache, stored: facts.Stored, wanted: WantedContent, grep: Grep | None
) -> str:
    """Return the lines that match the wanted pattern."""
    if grep is None:
        raise InvalidInput("Patterns cannot be used here.", remedy="Specify lines, or search.")
    content = read_in_pieces(cache, stored)
    matches = await grep(wanted.pattern, content, wanted.lines_around_match)
    return matches or f"[no line matches {wanted.pattern}]"


async def _recall_lines(
    cache: ContentCache, tokens: TokenCounter, stored: facts.Stored, wanted: WantedContent
) -> str:
    """Return the wanted lines, at most a page of them, and how to go on."""
    first, last = parse_line_range(wanted.lines)
    wanted_lines = await read_entry_lines(cache, stored, first, last)
    if not wanted_lines:
        raise NotFound(
            f"There is no line {first:,} in the entry; the last one is {stored.lines:,}."
        )
    most_tokens = LINES_TOKENS
    if not last:
        # Without a last line the agent has not said that it needs so many.
        most_tokens = min(wanted.most_tokens_of_whole_entry, LINES_TOKENS)
    text, last_shown = cut_to_page_with_last_line_number(tokens, wanted_lines, first, most_tokens)
    line_count = max(stored.lines, last_shown)

    rows = []
    is_whole_entry = first == 1 and last_shown >= line_count
    if not is_whole_entry:
        rows.append(f"[lines {first}-{last_shown} of {line_count:,}]")
    if text.strip():
        rows.append(text)
    else:
        rows.append("(empty lines)")
    last_wanted = min(last or line_count, line_count)
    if last_shown < last_wanted:
        rows.append(f'[go on with lines="{last_shown + 1}-{last or ""}"]')
    return "\n".join(rows)


def most_tokens_recalled_whole(
    state: ConversationState | None = None, policy: Policy | None = None
) -> int:
    """Return the most tokens that an entry may have to be returned whole and not page by page.

    That depends on what another request would cost, and so on how full the conversation is.
    Without a conversation, usual figures are taken. Tokens are as we count them.
    """
    if state is None or policy is None:
        usual_prices = fold_economics.RelativePrices()
        return fold_economics.most_tokens_of_whole_entry(
            context=USUAL_CONTEXT,
            steps=USUAL_STEPS,
            price=usual_prices,
            least=PAGE_TOKENS,
            most=WHOLE_TOKENS,
        )
    # The meter has tokens as the provider bills them.
    meter = context_usage.measure_window(state, policy)
    context_tokens = sum(meter.counted.values())
    free_tokens = round(meter.free_tokens / meter.factor)
    most_tokens = min(WHOLE_TOKENS, max(PAGE_TOKENS, free_tokens))
    step_count = len(state.branch.steps)
    prices = prices_of_main_model(state)
    return fold_economics.most_tokens_of_whole_entry(
        context=context_tokens,
        steps=step_count,
        price=prices,
        least=PAGE_TOKENS,
        most=most_tokens,
    )


def _fits_whole(tokens: TokenCounter, entry: CacheEntry, most_tokens: int) -> bool:
    """Whether an entry fits. Counts tokens only if needed: no token is shorter than a byte."""
    if entry.stored.size <= most_tokens:
        return True
    if entry.stored.size > PAGE_BYTES:
        return False
    if entry.tokens:
        return entry.tokens <= most_tokens
    text = entry.beginning.decode("utf-8", "replace")
    return tokens.count_tokens(text) <= most_tokens


def _whole_text(entry: CacheEntry) -> str:
    if not entry.stored.size:
        return "(empty)"
    text = entry.beginning.decode("utf-8", "replace").removesuffix("\n")
    if not text.strip():
        return "(empty lines)"
    return text


async def _recall_outline(cache: ContentCache, tokens: TokenCounter, entry: CacheEntry) -> str:
    """Return an entry's beginning, and an outline of the rest whose lines can be asked for."""
    stored = entry.stored
    first_lines = _split_lines(entry.beginning, is_end=len(entry.beginning) >= stored.size)
    text, last_shown = cut_to_page_with_last_line_number(tokens, first_lines, 1, BEGINNING_TOKENS)
    line_count = max(stored.lines, last_shown)
    if last_shown >= line_count:
        # There are no further lines to outline, so a whole page of these few can be shown.
        page, _ = cut_to_page_with_last_line_number(tokens, first_lines, 1)
        return page
    piece = await cache.read_range(stored.digest, 0, min(PIECE_BYTES, stored.size))
    text_to_outline = piece.decode("utf-8", "replace")
    outline = await asyncio.to_thread(
        text_preview.outline_text, text_to_outline, last_shown + 1, OUTLINE_TOKENS
    )
    beginning = f"[lines 1-{last_shown} of {line_count:,}]\n{text}"
    way_on = f'[go on with lines="{last_shown + 1}-"]'
    return f"{beginning}\n[the rest, by line:]\n{outline}\n{way_on}"


async def _recall_passages(
    cache: ContentCache, tokens: TokenCounter, stored: facts.Stored, words: str
) -> str:
    """Return the passages with the words. Only the beginning of a very long entry is searched."""
    content = b""
    if stored.size:
        content = await cache.read_range(stored.digest, 0, min(FIND_BYTES, stored.size))
    lines = content.decode("utf-8", "replace").split("\n")
    ends_with_line_end = len(lines) > 1 and not lines[-1]
    if ends_with_line_end:
        lines.pop()
    if len(content) > IN_A_THREAD:
        passages = await asyncio.to_thread(text_passages.find_passages, tokens, lines, words)
    else:
        passages = text_passages.find_passages(tokens, lines, words)
    if not passages:
        passages = f"[none of these words is in it; it has {stored.lines:,} lines]"
    if stored.size <= FIND_BYTES:
        return passages
    return (
        f"{passages}\n[only the first {len(lines):,} lines were searched; grep searches all of it]"
    )


async def search_entries(
    index: SearchIndex,
    query: str,
    *,
    tool: str = "",
    limit: int = 10,
    cache: ContentCache | None = None,
    conversation: str = "",
) -> str:
    """Search all entries. With a `cache`, the first hits are shown with the lines around them.
    `conversation`: the one that asks.
    """
    if not query.strip():
        raise InvalidInput("A query is needed.", remedy="Specify the words to look for.")
    allowed = max(1, min(limit, MOST_HITS))
    hits = await index.search_index(query, tool=tool, limit=allowed, entries_only=True)
    if not hits:
        return f"[nothing in the cache contains {query}]"
    left_entries = await index.find_left_entries([hit.digest for hit in hits if hit.digest])
    rows: list[str] = []
    for hit in hits:
        lines_around = ""
        if cache is not None and hit.digest is not None and len(rows) < MOST_SHOWN_HITS:
            lines_around = await _lines_around_hit(cache, hit.digest, hit.line)
        where_left = ""
        if hit.digest is not None and hit.digest in left_entries:
            where_left = say_where_left(left_entries[hit.digest], conversation)
        rows.append(_format_hit(hit, lines_around, where_left))
    return "\n".join(rows)


def _format_hit(hit: SearchHit, lines_around: str, where_left: str) -> str:
    """Return where something was found, and the lines around it or else the index's snippet."""
    if hit.digest is not None:
        name = hit.digest.hex
    else:
        name = f"message {hit.seq}"
    origin = f"{hit.about.tool} {hit.about.source}".strip()
    heading = f"{name}  {origin}  line {hit.line}"
    if where_left:
        heading += f"  [{where_left}]"
    if lines_around:
        return f"{heading}\n{lines_around}"
    snippet = " ".join(hit.snippet.split())
    return f"{heading}\n    {snippet[:SNIPPET_CHARACTERS]}"


async def _lines_around_hit(cache: ContentCache, digest: Digest, line: int) -> str:
    """Return the lines around a hit, or nothing if the entry is gone or its lines are too long."""
    first = max(1, line - LINES_AROUND_HIT)
    last = line + LINES_AROUND_HIT
    try:
        entry = await cache.describe_entry(digest)
        lines = await read_entry_lines(cache, entry.stored, first, last)
    except NotFound:
        return ""
    text = "\n".join(lines)
    if len(text) > LONGEST_LINES_OF_HIT:
        return ""
    return text


async def compact_entry(
    cache: ContentCache, client: ModelClient, name: str, keep: str, asking: ModelInquiry
) -> str:
    """Let a fast model shorten an entry. Raises ModelFailed if it does not answer."""
    entry = await find_entry(cache, name)
    text = await span_text_and_detail_sources.read_stored_text(cache, entry.stored)
    origin = f"{entry.about.tool} {entry.about.source}".strip() or "a tool"
    question = large_output_choice.compaction_question(origin, keep, COMPACTED_TOKENS // 2)
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

    A fold is what stands in the view for older messages, such as a summary. With `words`,
    return passages with them from these messages and their outputs; without a name, from
    everything that summaries cover.
    """
    branch = state.branch
    if name.strip() or not words.strip():
        folds = [_require_fold(state, name)]
    else:
        folds = _live_folds_of_spans(state)
    messages = _messages_covered_by(folds, branch)
    if words.strip():
        return await _passages_in_messages(branch, cache, tokens, messages, words)

    output_texts = await span_text_and_detail_sources.read_short_outputs(messages, cache)
    formatted_messages = [format_message(branch, message, output_texts) for message in messages]
    text = "\n".join(formatted_messages)
    if tokens.count_tokens(text) <= PAGE_TOKENS:
        return text
    content = text.encode("utf-8", "replace")
    stored = await cache.store_content(content, EntryOrigin("recall_history", name))
    page, last_shown = cut_to_page_with_last_line_number(tokens, text.split("\n"), 1)
    way_on = f'recall_cached_content("{stored.digest.hex}", lines="{last_shown + 1}-")'
    return f"{page}\n[go on with {way_on}]"


def _messages_covered_by(
    folds: Sequence[facts.Folded], branch: ConversationBranch
) -> list[facts.Recorded]:
    # A fold inside another one covers the same messages again.
    covered_seqs: set[int] = set()
    for fold in folds:
        first, last = first_and_last(fold.cover)
        covered_seqs.update(branch.covered_messages(facts.Span(first, last)))
    return [branch.message_at(seq) for seq in sorted(covered_seqs)]


async def _passages_in_messages(
    branch: ConversationBranch,
    cache: ContentCache,
    tokens: TokenCounter,
    messages: Sequence[facts.Recorded],
    words: str,
) -> str:
    """Return passages of these messages and their outputs that contain the words.

    Lines that the model can see anyway count less. A note says how many outputs were too long to
    be searched.
    """
    searched = await _read_texts_to_search(branch, cache, messages)
    lines_in_view = await _read_lines_in_view(branch, cache)
    passages = await asyncio.to_thread(
        text_passages.find_passages_in_texts, tokens, searched.texts, words, in_view=lines_in_view
    )
    if not passages:
        passages = f"[none of these words is in the {len(messages):,} messages]"
    if not searched.unsearched_count:
        return passages
    return f"{passages}\n[outputs too long to be searched here: {searched.unsearched_count:,}; search_cached_content finds words in them]"


@dataclass(frozen=True, slots=True)
class _TextsToSearch:
    """The name and the lines of each text, newest first, and how many outputs were left out."""

    texts: list[tuple[str, list[str]]]
    unsearched_count: int


async def _read_texts_to_search(
    branch: ConversationBranch, cache: ContentCache, messages: Sequence[facts.Recorded]
) -> _TextsToSearch:
    """Read messages and their outputs, newest first, until FIND_BYTES of outputs are read."""
    texts: list[tuple[str, list[str]]] = []
    free_bytes = FIND_BYTES
    unsearched_count = 0
    for message in reversed(messages):
        result = message.fact
        if not isinstance(result, facts.ToolReturned):
            message_text = format_message(branch, message, {}, recalls=False)
            texts.append((f"message {message.seq}", message_text.split("\n")))
            continue
        if _is_left_out_of_search(branch, message.seq):
            continue
        if result.output.size > free_bytes:
            unsearched_count += 1
            continue
        free_bytes -= result.output.size
        output_text = await span_text_and_detail_sources.read_stored_text(cache, result.output)
        short_hash = result.output.digest.hex[:SHORT_HASH]
        call = describe_output(branch, message.seq)
        name = f'recall_cached_content("{short_hash}"), {call}'
        texts.append((name, output_text.split("\n")))
    return _TextsToSearch(texts, unsearched_count)


async def _read_lines_in_view(branch: ConversationBranch, cache: ContentCache) -> set[str]:
    """Return the lines of all that the model is shown now, without the blanks around them."""
    lines_in_view: set[str] = set()
    texts_in_view = span_text_and_detail_sources.read_span_texts(branch, branch.items, cache)
    async for text_in_view in texts_in_view:
        for line in text_in_view.text.split("\n"):
            lines_in_view.add(line.strip())
    return lines_in_view


def _is_left_out_of_search(branch: ConversationBranch, seq: int) -> bool:
    """Whether the user took an output out, or it only repeats what was recalled."""
    if branch.is_excluded(facts.PartRef(seq)):
        return True
    call = call_answered_by(branch, seq)
    return call is not None and call.name in RECALLS


def _require_fold(state: ConversationState, name: str) -> facts.Folded:
    """Return the fold of this name, which a model may have quoted. Raises NotFound, with the
    newest names that there are.
    """
    unquoted_name = name.strip().strip("\"'`")
    fold = state.find_fold(unquoted_name)
    if fold is not None:
        return fold
    newest_folds = _live_folds_of_spans(state)[-5:]
    newest_names = ", ".join(newest_fold.fold for newest_fold in newest_folds)
    raise NotFound(
        f"This conversation has no fold {unquoted_name[:80]!r}.",
        remedy=f"Available: {newest_names or 'none'}.",
    )


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
    seq = recorded.seq
    match recorded.fact:
        case facts.ToolReturned() as result:
            text = result.head or texts.get(result.output, "(the text is in the entry)")
            recall = f'recall_cached_content("{result.output.digest.hex}")'
            call = describe_output(branch, seq)
            return f"[{seq}] output of {call}: {recall}\n{text}"
        case facts.UserSaid(parts=parts):
            return "\n".join(f"[{seq}] user: {_format_user_part(part)}" for part in parts)
        case facts.ModelReplied() as reply:
            sources = span_text_and_detail_sources.sources_of_reply(branch, seq, reply)
            rows = []
            for source in sources:
                if recalls or source.tool not in RECALLS:
                    rows.append(_format_source(source))
            return "\n".join(rows)
    return ""


def _format_user_part(part: facts.UserPart) -> str:
    if isinstance(part, facts.Text):
        return part.text
    return f"attached {part.name} {part.stored.digest.hex}"


def _format_source(source: DetailSource) -> str:
    if source.role == "call":
        return f"[{source.seq}] call of {source.tool}: {format_argument_values(source.text)}"
    return f"[{source.seq}] assistant: {source.text}"


# --- Reading an entry page by page, or by ranges of lines ---


def parse_line_range(words: str) -> tuple[int, int]:
    """Parse `10-40`, `10-` or `10` into first and last line; 0 means the end."""
    if not words.strip():
        return 1, 0
    match = _LINE_RANGE.fullmatch(words)
    if match is None:
        raise InvalidInput(
            f"lines = {words[:40]!r} is not a valid line range.", remedy="Write 10-40, 10- or 10."
        )
    first = max(1, int(match[1]))
    last = first
    if match[2]:
        last = int(match[3] or 0)
    if last and last < first:
        raise InvalidInput(
            f"In `lines`, the last line ({last}) is before the first line ({first})."
        )
    return first, last


async def read_in_pieces(cache: ContentCache, stored: facts.Stored) -> AsyncIterator[bytes]:
    """Yield the entry in pieces, each checked separately."""
    for start in range(0, stored.size, PIECE_BYTES):
        length = min(PIECE_BYTES, stored.size - start)
        yield await cache.read_range(stored.digest, start, length)


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
    length = min(2 * PAGE_BYTES, stored.size - start)
    content = await cache.read_range(stored.digest, start, length)
    lines = _split_lines(content, is_end=start + len(content) >= stored.size)
    if not last:
        return lines
    wanted_count = last - first + 1
    return lines[:wanted_count]


def _split_lines(content: bytes, *, is_end: bool) -> list[str]:
    """Return the complete lines, and an incomplete last one at the content's end or if
    there is no other.
    """
    lines = content.decode("utf-8", "replace").split("\n")
    rest = lines.pop()
    is_only_line = not lines and not is_end
    if is_only_line or (is_end and rest):
        lines.append(rest)
    return lines


async def _find_line_start(cache: ContentCache, stored: facts.Stored, number: int) -> int:
    """Return the offset at which a line begins, or the entry's end if there is no such line.

    The entry is read piece by piece, and line ends are counted until the piece with the last
    one before the wanted line.
    """
    if number == 1:
        return 0
    line_ends_to_skip = number - 1
    start_of_piece = 0
    async for piece in read_in_pieces(cache, stored):
        line_ends = piece.count(b"\n")
        if line_ends < line_ends_to_skip:
            line_ends_to_skip -= line_ends
            start_of_piece += len(piece)
            continue
        line_end = -1
        for _ in range(line_ends_to_skip):
            line_end = piece.index(b"\n", line_end + 1)
        return start_of_piece + line_end + 1
    return stored.size


def cut_to_page_with_last_line_number(
    tokens: TokenCounter, lines: Sequence[str], first: int, most_tokens: int = PAGE_TOKENS
) -> tuple[str, int]:
    """Return as many lines as fit on a page, and the number of the last of them.

    `first` is the number of the first line. A line longer than a page is cut, with a note.
    """
    line_count = len(lines)
    text = "\n".join(lines)
    while not _fits_on_page(tokens, text, most_tokens):
        if line_count <= 1:
            return _cut_line_to_page(tokens, text, most_tokens), first + line_count - 1
        # Counting tokens takes long, so the lines are reduced by a quarter at a time.
        line_count = max(1, line_count * 3 // 4)
        text = "\n".join(lines[:line_count])
    return text, first + line_count - 1


def _cut_line_to_page(tokens: TokenCounter, line: str, most_tokens: int) -> str:
    """Return the beginning of a line that is longer than a page, and a note that says so."""
    cut_line = line[:PAGE_BYTES]
    while tokens.count_tokens(cut_line) > most_tokens:
        cut_line = cut_line[: len(cut_line) * 3 // 4]
    note = "[this line is longer than a page and was cut; use grep to look into it]"
    return f"{cut_line}\n{note}"


def _fits_on_page(tokens: TokenCounter, text: str, most_tokens: int) -> bool:
    return len(text) <= PAGE_BYTES and tokens.count_tokens(text) <= most_tokens


async def read_entry_beginning(cache: ContentCache, stored: facts.Stored, limit_bytes: int) -> str:
    """Return the first bytes of an entry as text."""
    content = await cache.read_range(stored.digest, 0, min(stored.size, limit_bytes))
    return content.decode("utf-8", "replace")
